//! The ledger's log as it is written: records, events and refusals, in the order in which their numbers on the wire count.
//!
//! This is the form of schema 1 set down a second time, from the documentation of the log and not from the kernel: if the two
//! ever part, hashes stop fitting and the checker says so. A new kind of event is a new last variant here; until then it is
//! an event kind that is not known, and said to be.

use serde::{Deserialize, Serialize};

/// The highest schema that is known.
pub(super) const SCHEMA: u16 = 1;

/// A day of ledger time, in nanoseconds.
pub(super) const DAY_NS: u64 = 86_400_000_000_000;

/// A blake3 hash.
pub(super) type Hash = [u8; 32];

/// How an event may be written and merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Class {
    Sequenced,
    Mergeable,
    Scarce,
}

/// One thing that happened, by the room it happened in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Event {
    Admit(Admitted),
    Lease(Leased),
    Effect(Effected),
    Reserve(Budgeted),
    Run(Ran),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) enum Admitted {
    HaltSet { tenant: u32, switch: Switch },
    QuotaSet { tenant: u32, user: Option<u32>, quota: Option<Quota> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Switch {
    Halted,
    Open,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Quota {
    pub runs_per_day: u32,
    pub micro_usd_per_day: u64,
    pub depth_tier: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum Lock {
    Owner,
    Run(u32, u64),
}

impl Lock {
    pub(super) fn tenant(self) -> u32 {
        match self {
            Lock::Owner => 0,
            Lock::Run(tenant, _) => tenant,
        }
    }
}

impl std::fmt::Display for Lock {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Lock::Owner => write!(out, "the owner's lock"),
            Lock::Run(tenant, run) => write!(out, "the lock of run {run} of tenant {tenant}"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) enum Leased {
    Granted { lock: Lock, executor: u64, client: u64, fence: u64, until: u64 },
    Renewed { lock: Lock, fence: u64, until: u64 },
    Yielded { lock: Lock, fence: u64 },
    Expired { lock: Lock, fence: u64 },
}

impl Leased {
    fn lock(&self) -> Lock {
        match *self {
            Leased::Granted { lock, .. }
            | Leased::Renewed { lock, .. }
            | Leased::Yielded { lock, .. }
            | Leased::Expired { lock, .. } => lock,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) enum Effected {
    Decided { client: u64, incarnation: u32, number: u64, acknowledged: u64, outcome: Result<Vec<Outcome>, Refusal> },
    ToolRegistered { tenant: u32, tool: u32, class: EffectClass },
    Intended { intent: u64, tool: u32, class: EffectClass, key: Option<Key> },
    Dispatched { intent: u64 },
    Committed { intent: u64, response: Vec<u8> },
}

/// What a tool's calls do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum EffectClass {
    Idempotent,
    Queryable,
    Unsafe,
}

/// How far an intent is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Phase {
    Pending,
    Dispatched,
    Committed,
}

/// An idempotency key.
pub(super) type Key = [u8; 16];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Level {
    Unit,
    Run,
    UserDay,
    LedgerDay,
}

impl Level {
    /// The lowest first.
    pub(super) const ALL: [Level; 4] = [Level::Unit, Level::Run, Level::UserDay, Level::LedgerDay];
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum Account {
    Unit(u32, u64, u32),
    Run(u32, u64),
    UserDay(u32, u32, u32),
    LedgerDay(u32),
}

impl Account {
    /// Whose table row it is; the ledger's day is the ledger's own.
    pub(super) fn tenant(self) -> u32 {
        match self {
            Account::Unit(tenant, ..) | Account::Run(tenant, _) | Account::UserDay(tenant, ..) => tenant,
            Account::LedgerDay(_) => 0,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Price {
    pub model: u32,
    pub input_per_mtok: u64,
    pub output_per_mtok: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Usage {
    pub input_tokens: u64,
    pub output_tokens: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) enum Budgeted {
    CapSet { tenant: u32, level: Level, cap: u64 },
    SlotsSet { tenant: u32, slots: u32 },
    PriceSet(Price),
    Reserved { reservation: u64, run: u64, unit: u32, attempt: u32, user: u32, day: u32, price: Price, worst: u64 },
    Settled { reservation: u64, usage: Usage, cost: u64, overrun: u64, by_owner: bool },
    Released { reservation: u64, by_owner: bool },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Purpose {
    Work,
    Grading,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum State {
    Running,
    Succeeded,
    Failed,
    Cancelled,
    Indeterminate,
    Pending,
    TimedOut,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Ending {
    Complete,
    Incomplete,
    Halted(HaltReason),
    Cancelled,
}

/// Where a run stands, as its table holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) enum Standing {
    Open,
    Suspended,
    Cancelling,
    Ended(Ending),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum HaltReason {
    Owner,
    Key,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) enum Ran {
    Spawned { run: u64, user: u32, task: u64, workflow_version: u32, purpose: Purpose, depth: u8 },
    AttemptStarted { run: u64, unit: u32, attempt: u32, reservation: u64 },
    AttemptEnded { run: u64, unit: u32, attempt: u32, state: State },
    Ended { run: u64, outcome: Ending },
    AttemptQueued { run: u64, unit: u32, attempt: u32 },
    Recalled { run: u64, unit: u32, attempt: u32, key: Key, source: u64 },
    Suspended { run: u64 },
    Resumed { run: u64 },
    Cancelled { run: u64, running: u32 },
}

impl Ran {
    pub(super) fn run(&self) -> u64 {
        match *self {
            Ran::Spawned { run, .. }
            | Ran::AttemptStarted { run, .. }
            | Ran::AttemptEnded { run, .. }
            | Ran::Ended { run, .. }
            | Ran::AttemptQueued { run, .. }
            | Ran::Recalled { run, .. }
            | Ran::Suspended { run }
            | Ran::Resumed { run }
            | Ran::Cancelled { run, .. } => run,
        }
    }
}

impl Event {
    /// The class that the documentation gives to its ledger.
    pub(super) fn class(&self) -> Class {
        match self {
            Event::Run(Ran::Resumed { .. } | Ran::Cancelled { .. }) => Class::Scarce,
            Event::Run(_) => Class::Sequenced,
            Event::Admit(_) | Event::Lease(_) | Event::Effect(_) | Event::Reserve(_) => Class::Scarce,
        }
    }

    /// Whose the event says it is, if it says so.
    pub(super) fn tenant(&self) -> Option<u32> {
        match self {
            Event::Admit(Admitted::HaltSet { tenant, .. } | Admitted::QuotaSet { tenant, .. })
            | Event::Reserve(Budgeted::CapSet { tenant, .. } | Budgeted::SlotsSet { tenant, .. }) => Some(*tenant),
            Event::Effect(Effected::ToolRegistered { tenant, .. }) => Some(*tenant),
            Event::Reserve(Budgeted::PriceSet(_)) => Some(0),
            Event::Lease(event) => Some(event.lock().tenant()),
            Event::Effect(_) | Event::Reserve(_) | Event::Run(_) => None,
        }
    }

    /// Whether it puts a setting of the owner's in force.
    pub(super) fn is_setting(&self) -> bool {
        matches!(
            self,
            Event::Admit(_)
                | Event::Effect(Effected::ToolRegistered { .. })
                | Event::Reserve(Budgeted::CapSet { .. } | Budgeted::SlotsSet { .. } | Budgeted::PriceSet(_))
        )
    }
}

/// What an admitted command gave back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Outcome {
    Admit(AdmitOutcome),
    Lease(LeaseOutcome),
    Reserve(ReserveOutcome),
    Run(RunOutcome),
    Effect(EffectOutcome),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) enum EffectOutcome {
    Registered,
    Begun(u64),
    Recalled { source: u64, response: Vec<u8> },
    Dispatched,
    Committed,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum AdmitOutcome {
    Set,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) enum LeaseOutcome {
    Held { fence: u64, until: u64 },
    Yielded,
    Ticked,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) enum ReserveOutcome {
    Set,
    Reserved(u64),
    Settled { cost: u64, overrun: u64 },
    Released,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum RunOutcome {
    Spawned,
    AttemptEnded,
    Ended,
    Queued,
    Suspended,
    Resumed,
    Cancelled,
}

/// Why the ledger said no, by the room that did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Refusal {
    Admit(AdmitRefusal),
    Lease(LeaseRefusal),
    Effect(EffectRefusal),
    Reserve(ReserveRefusal),
    Run(RunRefusal),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) enum AdmitRefusal {
    Halted { tenant: u32 },
    TooManyRuns { user: u32, day: u32, limit: u32, taken: u32 },
    TooDear { user: u32, day: u32, limit: u64, settled: u64, live: u64, asked: u64 },
    TooDeep { user: u32, deepest: u8, asked: u8 },
    NoUsers,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) enum LeaseRefusal {
    Held { lock: Lock, holder: u64, fence: u64, until: u64 },
    WaiterExpired { lock: Lock, now: u64 },
    Deposed { lock: Lock, offered: u64, highest: u64 },
    NotHolder { lock: Lock, executor: u64, fence: u64 },
    NoAuthority { needed: Lock },
    NoTerm,
    Nobody { lock: Lock },
    OtherTenant { lock: Lock, tenant: u32 },
    Suspended { lock: Lock },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) enum EffectRefusal {
    Empty,
    Misnumbered { number: u64, acknowledged: u64 },
    NoClass { tool: u32 },
    UnknownTool { tool: u32 },
    WrongKey { tool: u32, class: EffectClass, right: Option<Key> },
    InFlight { key: Key, leader: u64 },
    AnsweredMeanwhile { key: Key, answered_by: u64 },
    UnknownIntent { intent: u64 },
    WrongPhase { intent: u64, phase: Phase },
    SameFrame { intent: u64, phase: Phase },
    TooLong { bytes: u64 },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) enum ReserveRefusal {
    OverCap { level: Level, account: Account, cap: u64, settled: u64, live: u64, asked: u64 },
    NoSlot { user: u32, live: u32, slots: u32 },
    WaiterExpired { user: u32 },
    NoCap { level: Level, tenant: u32, asked: u64 },
    NoPrice { model: u32 },
    Nothing,
    TooMuch { account: Account, settled: u64, asked: Option<u64> },
    WrongAttempt { run: u64, unit: u32, attempt: u32, next: Option<u32> },
    Unknown { reservation: u64 },
    Ended { reservation: u64 },
    AwaitsOwner { reservation: u64 },
    StillLive { reservation: u64 },
    WrongTenant { level: Level, tenant: u32 },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) enum RunRefusal {
    Unknown { run: u64 },
    Taken { run: u64 },
    Ended { run: u64 },
    IllegalArm { unit: u32, attempt: u32, from: Option<State>, to: State },
    ReservationDisagrees { unit: u32, attempt: u32, to: State },
    AttemptRunning { run: u64, unit: u32, attempt: u32 },
    IntentDisagrees { unit: u32, attempt: u32, to: State, phase: Phase },
    Cancelled { run: u64 },
    NotCancelled { run: u64 },
    Suspended { run: u64 },
    NotSuspended { run: u64 },
}

impl Refusal {
    /// `room.kind`, as it is counted under: taken from its own form, so that a new kind has its name at once.
    pub(super) fn kind(&self) -> String {
        let name = |value: serde_json::Value| match value {
            serde_json::Value::Object(fields) => fields.into_iter().next().unwrap_or_default(),
            serde_json::Value::String(name) => (name, serde_json::Value::Null),
            _ => Default::default(),
        };
        let (room, inner) = name(serde_json::to_value(self).unwrap_or_default());
        format!("{}.{}", hyphened(&room), hyphened(&name(inner).0))
    }
}

/// `OverCap` as `over-cap`.
fn hyphened(name: &str) -> String {
    let mut text = String::with_capacity(name.len() + 4);
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !text.is_empty() {
            text.push('-');
        }
        text.push(letter.to_ascii_lowercase());
    }
    text
}

/// Where a sequenced event stands in its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Origin {
    pub run: u64,
    pub branch: u32,
    pub executor: u64,
    pub fence: u64,
    pub lsn: u64,
}

/// A record as frames hold it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    pub seq: u64,
    pub schema: u16,
    pub tenant: u32,
    pub class: Class,
    pub time: u64,
    pub origin: Option<Origin>,
    pub event: Event,
    pub content: Hash,
    pub chain: Hash,
}

impl Record {
    /// Its content hash by the documented rule: blake3 over the postcard encoding of all before the two hashes.
    pub(super) fn own_content(&self) -> Option<Hash> {
        let fields = (self.seq, self.schema, self.tenant, self.class, self.time, self.origin, &self.event);
        let bytes = postcard::to_allocvec(&fields).ok()?;
        Some(*blake3::hash(&bytes).as_bytes())
    }

    /// The day of ledger time it was written in.
    pub(super) fn day(&self) -> u32 {
        u32::try_from(self.time / DAY_NS).unwrap_or(u32::MAX)
    }
}

/// The chain after a record of this content: blake3 over the chain before it and the content hash.
pub(super) fn chain_after(chain: &Hash, content: &Hash) -> Hash {
    *blake3::Hasher::new().update(chain).update(content).finalize().as_bytes()
}

/// A record as a line of `events.jsonl`, its hashes in hexadecimal.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Line {
    seq: u64,
    schema: u16,
    tenant: u32,
    class: Class,
    time: u64,
    origin: Option<Origin>,
    event: Event,
    content: String,
    chain: String,
}

impl Line {
    /// The record; the error names the hash that is none.
    pub(super) fn record(self) -> Result<Record, &'static str> {
        let Line { seq, schema, tenant, class, time, origin, event, content, chain } = self;
        let hash = |text: &str, name: &'static str| {
            let canonical = !text.bytes().any(|byte| byte.is_ascii_uppercase());
            let parsed = blake3::Hash::from_hex(text).ok().filter(|_| canonical);
            parsed.map(|hash| *hash.as_bytes()).ok_or(name)
        };
        let (content, chain) = (hash(&content, "content")?, hash(&chain, "chain")?);
        Ok(Record { seq, schema, tenant, class, time, origin, event, content, chain })
    }
}

/// One batch's records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Frame {
    pub time: u64,
    pub records: Vec<Record>,
}

/// A hash's first bytes, for messages.
pub(super) fn short(hash: &Hash) -> String {
    let mut text: String = hash[..4].iter().map(|byte| format!("{byte:02x}")).collect();
    text.push('…');
    text
}
