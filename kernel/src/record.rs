//! What happened? Events in one dense sequence and one hash chain, their frames and their codec.
//!
//! Tables of this room: the head of the log (next sequence, chain, highest ledger time) and, per (tenant, run, branch), the
//! next LSN. The chain of record n is blake3 over the chain of n-1 and the content hash of n; the content hash is blake3
//! over the postcard encoding of every other field.

use crate::{
    effect,
    id::{BranchId, ExecutorId, Fence, LedgerTime, RunId, TenantId},
    lease, reserve, run,
};
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
    /// The event's class. Run events are sequenced; all others here are scarce. `Spawned` is sequenced too, under no lease.
    pub fn class(&self) -> Class {
        match self {
            Event::Run(_) => Class::Sequenced,
            Event::Lease(_) | Event::Effect(_) | Event::Reserve(_) => Class::Scarce,
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
