//! What happened? Events in one dense sequence and one hash chain, their frames and their codec.
//!
//! Tables of this room: the head of the log (next sequence, chain, highest ledger time) and, per (tenant, run, branch), the
//! next LSN. The chain of record n is blake3 over the chain of n-1 and the content hash of n; the content hash is blake3
//! over the postcard encoding of every other field. What kinds of event there are and how each is written is in [`ledgers`].

pub mod ledgers;

use crate::{
    admit, effect,
    id::{BranchId, ExecutorId, Fence, LedgerTime, RunId, TenantId},
    lease::{self, Authority, Lock},
    planted::{Bug, Planted},
    reserve,
    room::{Impossible, ensure},
    run,
    store::StoredFrame,
    table::{self, HashedTable, Table},
};
use ledgers::WrongClass;
use serde::{Deserialize, Serialize};

/// The version of the event schema that this code writes.
pub const SCHEMA: u16 = 1;

/// A blake3 hash.
pub type Hash = [u8; 32];

/// The chain before the first record.
pub const GENESIS_CHAIN: Hash = [0; 32];

/// How an event may be written and merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// One writer per run, in its own dense order.
    Sequenced,
    /// Any node may write it; order does not matter.
    Mergeable,
    /// Coordinated by the ledger, because it is money or authority.
    Scarce,
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// Of the room `admit`.
    Admit(admit::Event),
    /// Of the room `lease`.
    Lease(lease::Event),
    /// Of the room `effect`.
    Effect(effect::Event),
    /// Of the room `reserve`.
    Reserve(reserve::Event),
    /// Of the room `run`.
    Run(run::Event),
}

impl Event {
    /// The event's class, which is its ledger's; see [`ledgers`]. `Spawned` is sequenced too, under no lease.
    pub const fn class(&self) -> Class {
        ledgers::Kind::of(self).ledger().class()
    }

    /// Whose the event is, when a request about `tenant` causes it: locks and settings say so themselves.
    pub fn tenant(&self, tenant: TenantId) -> TenantId {
        match self {
            Event::Admit(event) => event.tenant(),
            Event::Lease(event) => event.lock().tenant(),
            Event::Reserve(event) => event.tenant(tenant),
            Event::Effect(event) => event.tenant(tenant),
            Event::Run(_) => tenant,
        }
    }
}

/// Where a sequenced event stands in its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The run.
    pub run: RunId,
    /// The branch.
    pub branch: BranchId,
    /// Who wrote it; 0 for `Spawned`, which needs no lease.
    pub executor: ExecutorId,
    /// Under which fence; 0 for `Spawned`.
    pub fence: Fence,
    /// Its position in (tenant, run, branch): dense, from 0.
    pub lsn: u64,
}

/// One row of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Its position in the ledger: dense, from 0.
    pub seq: u64,
    /// The schema its event is written in.
    pub schema: u16,
    /// Whose it is.
    pub tenant: TenantId,
    /// Its class.
    pub class: Class,
    /// Ledger time of its frame.
    pub time: LedgerTime,
    /// Where it stands in its run, if it is sequenced.
    pub origin: Option<Origin>,
    /// What happened.
    pub event: Event,
    /// blake3 of everything above.
    pub content: Hash,
    /// The chain up to and including this record.
    pub chain: Hash,
}

/// One batch's records, written in one atomic, durable commit. Never empty.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    /// Ledger time of the commit.
    pub time: LedgerTime,
    /// The records, in sequence.
    pub records: Vec<Record>,
}

/// Bytes of the log do not say what they should.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// The bytes are no frame.
    #[error("the frame at sequence {seq} cannot be decoded: {why}; the log is damaged there")]
    Undecodable {
        /// Where it should begin.
        seq: u64,
        /// What the codec said.
        why: String,
    },
    /// A record is not where it should be.
    #[error("sequence {found} stands where {expected} should; a record is lost, repeated or moved")]
    OutOfSequence {
        /// What should stand here.
        expected: u64,
        /// What does.
        found: u64,
    },
    /// A record was written by newer code.
    #[error("record {seq} is of schema {found}, and this build reads up to {SCHEMA}; use the build that wrote it")]
    FutureSchema {
        /// Which record.
        seq: u64,
        /// Its schema.
        found: u16,
    },
    /// A record's content or chain hash does not fit.
    #[error("record {seq} does not fit its {which} hash; it or one before it was changed")]
    Forged {
        /// Which record.
        seq: u64,
        /// `content` or `chain`.
        which: &'static str,
    },
    /// Ledger time went back.
    #[error("record {seq} is of ledger time {found}, before {highest}")]
    TimeWentBack {
        /// Which record.
        seq: u64,
        /// Its time.
        found: LedgerTime,
        /// The highest before it.
        highest: LedgerTime,
    },
    /// A record cannot follow from those before it.
    #[error("record {seq} cannot follow: {why}")]
    Impossible {
        /// Which record.
        seq: u64,
        /// What `apply` found.
        why: String,
    },
}

/// The head of the log: what the next record extends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The sequence of the next record.
    pub next_seq: u64,
    /// The chain up to the last record; [`GENESIS_CHAIN`] before the first.
    pub chain: Hash,
    /// The highest ledger time committed.
    pub time: LedgerTime,
}

/// The tables of this room.
#[derive(Clone, Debug)]
pub struct Tables {
    /// The head of the log, under tenant 0; no row before the first record.
    pub(crate) head: Table<TenantId, Head>,
    /// The next LSN of each line of history.
    pub(crate) lsns: HashedTable<(TenantId, RunId, BranchId), u64>,
}

impl Default for Tables {
    fn default() -> Tables {
        Tables { head: Table::new(1, "record.head"), lsns: Table::new(2, "record.lsns") }
    }
}

impl Tables {
    /// The head of the log.
    pub fn head(&self) -> Head {
        self.head.get(&TenantId::LEDGER).copied().unwrap_or_default()
    }

    /// Where `event` stands in its run, if it is sequenced: `authority` is what it is written under.
    pub(crate) fn origin(&self, tenant: TenantId, event: &Event, authority: Option<Authority>) -> Option<Origin> {
        let (Event::Run(event), Class::Sequenced) = (event, event.class()) else { return None };
        let (run, branch) = (event.run(), BranchId(0));
        let (executor, fence) = match (event, authority) {
            (run::Event::Spawned { .. }, _) | (_, None) => (ExecutorId(0), Fence(0)),
            (_, Some(authority)) => (authority.executor, authority.fence),
        };
        let lsn = self.lsns.get(&(tenant, run, branch)).copied().unwrap_or(0);
        Some(Origin { run, branch, executor, fence, lsn })
    }
}

/// Folds a record's place in the log, whatever it says.
pub fn apply(tables: &mut table::Tables, record: &Record, planted: &Planted) -> Result<(), Impossible> {
    let head = tables.record.head();
    ensure!(record.seq == head.next_seq, "it should be record {}", head.next_seq);
    ensure!(record.time >= head.time, "ledger time would go back from {} to {}", head.time, record.time);
    ledgers::check(&record.event, record.class, record.origin.as_ref())
        .map_err(|wrong| Impossible(wrong.to_string()))?;
    ensure!(record.tenant == record.event.tenant(record.tenant), "its tenant is not its event's");
    if let Some(origin) = record.origin {
        let lock = Lock::Run(record.tenant, origin.run);
        let written_under = Authority { lock, executor: origin.executor, fence: origin.fence };
        let lawful = match record.event {
            Event::Run(run::Event::Spawned { .. }) => origin.executor == ExecutorId(0) && origin.fence == Fence(0),
            _ => planted.is_on(Bug::SkipFence) || lease::holds(tables, written_under).is_ok(),
        };
        ensure!(lawful, "executor {} does not write under fence {}", origin.executor, origin.fence);
        let next_lsn = tables.record.lsns.row(&(record.tenant, origin.run, origin.branch));
        ensure!(origin.lsn == *next_lsn, "its LSN is {}, and the next is {next_lsn}", origin.lsn);
        *next_lsn += 1;
    }
    let head = Head { next_seq: record.seq + 1, chain: record.chain, time: record.time };
    tables.record.head.insert(TenantId::LEDGER, head);
    Ok(())
}

/// What a content hash is taken of: a [`Record`] without its hashes, and the first bytes of its encoding.
#[derive(Serialize)]
struct Body<'a> {
    seq: u64,
    schema: u16,
    tenant: TenantId,
    class: Class,
    time: LedgerTime,
    origin: Option<Origin>,
    event: &'a Event,
}

/// What most frames fit in, in bytes.
const FRAME_BYTES: usize = 512;

/// A frame being written: each record is encoded once, for its hash and for the frame.
#[derive(Debug)]
pub struct Draft {
    time: LedgerTime,
    first_seq: u64,
    next_seq: u64,
    records: Vec<u8>,
}

impl Draft {
    /// An empty frame at `time` after `head`.
    pub fn new(head: Head, time: LedgerTime) -> Draft {
        assert!(time >= head.time, "ledger time never goes back: {time} after {}", head.time);
        Draft { time, first_seq: head.next_seq, next_seq: head.next_seq, records: Vec::with_capacity(FRAME_BYTES) }
    }

    /// The sequence of its first record.
    pub fn first_seq(&self) -> u64 {
        self.first_seq
    }

    /// Whether there is no record in it.
    pub fn is_empty(&self) -> bool {
        self.first_seq == self.next_seq
    }

    /// Appends the record of `event` after `head`, unless its ledger does not let it be written as `class` at `origin`:
    /// then nothing is written.
    pub fn append(
        &mut self,
        head: Head,
        tenant: TenantId,
        (class, origin): (Class, Option<Origin>),
        event: Event,
    ) -> Result<Record, WrongClass> {
        assert_eq!(head.next_seq, self.next_seq, "a record extends the one before it");
        ledgers::check(&event, class, origin.as_ref())?;
        let body = Body { seq: self.next_seq, schema: SCHEMA, tenant, class, time: self.time, origin, event: &event };
        let start = self.records.len();
        encode_into(&mut self.records, &body);
        let content = *blake3::hash(&self.records[start..]).as_bytes();
        let chain = chain(&head.chain, &content);
        self.records.extend_from_slice(&content);
        self.records.extend_from_slice(&chain);
        self.next_seq += 1;
        Ok(Record { seq: head.next_seq, schema: SCHEMA, tenant, class, time: self.time, origin, event, content, chain })
    }

    /// How far the frame has come, for [`Draft::cut`].
    pub(crate) fn mark(&self) -> (u64, usize) {
        (self.next_seq, self.records.len())
    }

    /// Drops what was appended after `mark`.
    pub(crate) fn cut(&mut self, (next_seq, len): (u64, usize)) {
        self.next_seq = next_seq;
        self.records.truncate(len);
    }

    /// The frame as it is stored: the encoding of a [`Frame`].
    pub fn finish(self) -> StoredFrame {
        assert!(!self.is_empty(), "a frame holds at least one record");
        let mut bytes = Vec::with_capacity(self.records.len() + 20);
        encode_into(&mut bytes, &(self.time, self.next_seq - self.first_seq));
        bytes.extend_from_slice(&self.records);
        StoredFrame { first_seq: self.first_seq, next_seq: self.next_seq, bytes: bytes.into() }
    }
}

/// Reads frames in order and checks each record against those before it: sequence, schema, time and both hashes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Verifier {
    head: Head,
}

impl Verifier {
    /// From the records before `head` on; a default one begins at the first record.
    pub fn after(head: Head) -> Verifier {
        Verifier { head }
    }

    /// The head after the last record that was read.
    pub fn head(&self) -> Head {
        self.head
    }

    /// Reads the next frame. After an error the verifier stands where it stood.
    pub fn frame(&mut self, bytes: &[u8]) -> Result<Frame, LogError> {
        let seq = self.head.next_seq;
        let undecodable = |why: String| LogError::Undecodable { seq, why };
        let (frame, rest) = postcard::take_from_bytes::<Frame>(bytes).map_err(|why| undecodable(why.to_string()))?;
        if !rest.is_empty() {
            return Err(undecodable(format!("{} bytes follow the frame", rest.len())));
        }
        if frame.records.is_empty() {
            return Err(undecodable("the frame is empty".into()));
        }
        let mut head = self.head;
        let mut body = Vec::new();
        for record in &frame.records {
            head = check(head, frame.time, record, &mut body)?;
        }
        self.head = head;
        Ok(frame)
    }
}

/// Checks every frame from the first on, and gives each.
pub fn verify<F: AsRef<[u8]>>(frames: impl IntoIterator<Item = F>) -> impl Iterator<Item = Result<Frame, LogError>> {
    let mut verifier = Verifier::default();
    frames.into_iter().map(move |frame| verifier.frame(frame.as_ref()))
}

/// Appends the postcard encoding of `value`.
pub(crate) fn encode_into<T: Serialize + ?Sized>(bytes: &mut Vec<u8>, value: &T) {
    postcard::serialize_with_flavor::<T, _, ()>(value, Appending(bytes))
        .expect("every type of the log has an encoding");
}

fn chain(before: &Hash, content: &Hash) -> Hash {
    let mut link = [0; 64];
    link[..32].copy_from_slice(before);
    link[32..].copy_from_slice(content);
    *blake3::hash(&link).as_bytes()
}

fn check(head: Head, frame_time: LedgerTime, record: &Record, body: &mut Vec<u8>) -> Result<Head, LogError> {
    let Record { seq, schema, tenant, class, time, origin, ref event, content, chain: linked } = *record;
    if seq != head.next_seq {
        return Err(LogError::OutOfSequence { expected: head.next_seq, found: seq });
    }
    if schema > SCHEMA {
        return Err(LogError::FutureSchema { seq, found: schema });
    }
    body.clear();
    encode_into(body, &Body { seq, schema, tenant, class, time, origin, event });
    if *blake3::hash(body).as_bytes() != content {
        return Err(LogError::Forged { seq, which: "content" });
    }
    if chain(&head.chain, &content) != linked {
        return Err(LogError::Forged { seq, which: "chain" });
    }
    if time < head.time {
        return Err(LogError::TimeWentBack { seq, found: time, highest: head.time });
    }
    if time != frame_time {
        let why = format!("its time is {time}, and its frame's is {frame_time}");
        return Err(LogError::Impossible { seq, why });
    }
    Ok(Head { next_seq: seq + 1, chain: linked, time })
}

/// A postcard flavor that appends to a buffer which others have written to.
struct Appending<'a>(&'a mut Vec<u8>);

impl postcard::ser_flavors::Flavor for Appending<'_> {
    type Output = ();

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.0.push(byte);
        Ok(())
    }

    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}
