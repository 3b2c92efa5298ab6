//! The ledger's end of the bus: it forms batches, parks waiters, sends ticks, and announces what was committed.

use crate::{
    ledger::LedgerError,
    planted::Planted,
    request::{Command, Reply, Submitted},
    store::{Store, StoreError},
};
use serde::{Deserialize, Serialize};
use sim::World;

/// History kind of [`Announcement`]s.
pub const ANNOUNCEMENT: u16 = 16;

/// What the server tells the run's history, for observers. Made when it is true: a commit after it is durable and before any
/// reply leaves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Announcement {
    /// The ledger was opened.
    Opened {
        /// Its next sequence.
        next_seq: u64,
        /// Its chain.
        chain: crate::record::Hash,
        /// The last durable frame: the one that may never have been announced, for at most one can be on its way.
        last_frame: Option<Vec<u8>>,
    },
    /// A batch was committed.
    Committed {
        /// The writer's monotonic reading that it was decided at, in nanoseconds.
        now_ns: u64,
        /// What was decided upon, in order.
        submitted: Vec<Submitted>,
        /// What was answered, in the same order.
        replies: Vec<Reply>,
        /// The frame; `None` if nothing was decided.
        frame: Option<Vec<u8>>,
    },
    /// The ledger broke and the server ends.
    Broke {
        /// What the error said.
        why: String,
    },
}

/// How a server is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The longest batch.
    pub batch_limit: usize,
    /// Requests that may be queued or parked; one more is answered `Busy`.
    pub queue_limit: usize,
    /// Compute charged per batch, in nanoseconds.
    pub batch_cost_ns: u64,
    /// Compute charged per request, in nanoseconds.
    pub request_cost_ns: u64,
    /// A checkpoint is taken after this many frames; 0 for never.
    pub checkpoint_every: u64,
    /// Caps, slots and prices committed as the first request of an empty ledger.
    pub genesis: Vec<Command>,
}

/// Opens the store, then serves until the node dies or the ledger breaks.
pub async fn serve<S: Store>(
    world: World,
    open: impl FnOnce() -> Result<S, StoreError> + Send + 'static,
    settings: Settings,
    planted: Planted,
) -> Result<(), LedgerError> {
    let _ = (world, open, settings, planted);
    todo!()
}
