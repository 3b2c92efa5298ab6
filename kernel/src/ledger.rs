//! The single writer: batches of requests become one frame, one durable commit, then replies and notices.

use crate::{
    planted::Planted,
    record::{Hash, LogError},
    request::{Answer, Notice, Query, Reply, Submitted},
    store::{Store, StoreError},
};

/// The ledger: its tables in memory, its frames in `S`.
pub struct Ledger<S: Store> {
    store: S,
}

/// What a commit gives back: one reply a request, in order, and the notices, all of them true and durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// The replies, in the order of the requests.
    pub replies: Vec<Reply>,
    /// Whose turns have come.
    pub notices: Vec<Notice>,
    /// The frame as stored; `None` if nothing was decided.
    pub frame: Option<Vec<u8>>,
}

/// The ledger broke.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// Its store broke; the ledger is poisoned and must be reopened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Its log makes no sense.
    #[error(transparent)]
    Log(#[from] LogError),
    /// An earlier commit failed.
    #[error("an earlier commit failed; open the ledger again to read what is there")]
    Poisoned,
    /// The tables that a checkpoint gave are not those that its digest was taken of.
    #[error("the checkpoint at {next_seq} does not fit its digest; drop the checkpoint and fold the whole log")]
    CheckpointForged {
        /// The sequence it was taken at.
        next_seq: u64,
    },
}

impl<S: Store> Ledger<S> {
    /// Opens what the store holds: rows as of its checkpoint, and every frame after it folded with `apply`.
    pub fn open(store: S, planted: Planted) -> Result<Ledger<S>, LedgerError> {
        let _ = (store, planted);
        todo!()
    }

    /// Decides a batch in order, makes it durable as one frame, then answers. `now_ns` is the writer's monotonic clock; the
    /// first reading after opening is fixed onto the highest ledger time committed.
    pub fn commit(&mut self, now_ns: u64, batch: Vec<Submitted>) -> Result<Committed, LedgerError> {
        let _ = (&mut self.store, now_ns, batch);
        todo!()
    }

    /// Answers from committed state.
    pub fn query(&self, query: &Query) -> Answer {
        let _ = query;
        todo!()
    }

    /// When, on the writer's monotonic clock, a tick is next due: a lease ends. `None` while nothing can expire.
    pub fn tick_due_ns(&self) -> Option<u64> {
        todo!()
    }

    /// The next sequence and the chain so far.
    pub fn head(&self) -> (u64, Hash) {
        todo!()
    }

    /// Saves the rows changed since the last checkpoint.
    pub fn checkpoint(&mut self) -> Result<(), LedgerError> {
        todo!()
    }

    /// One hash a table, by its stable number, over its rows in key order.
    pub fn table_hashes(&self) -> Vec<(u16, Hash)> {
        todo!()
    }
}

impl<S: Store> Ledger<S> {
    /// The last frame as stored; `None` of an empty log. The one frame that may never have been announced.
    pub fn last_frame(&mut self) -> Result<Option<Vec<u8>>, LedgerError> {
        let Some(last_seq) = self.head().0.checked_sub(1) else { return Ok(None) };
        Ok(self.store.log(last_seq)?.pop().map(|frame| frame.bytes))
    }
}
