//! The store port: where frames go and where rows are kept between openings. Synchronous on purpose: the single writer
//! owns its thread, and async stays at the edges.

pub mod memory;
pub mod redb;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// A frame's bytes with the sequences it covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredFrame {
    /// Sequence of its first record.
    pub first_seq: u64,
    /// Sequence after its last record.
    pub next_seq: u64,
    /// The postcard encoding of a [`Frame`](crate::record::Frame).
    /// Shared, because a log is handed around whole.
    pub bytes: Bytes,
}

impl AsRef<[u8]> for StoredFrame {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// One row of one table: its key's and its value's postcard encodings; no value means the row is gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// The table, by its stable number.
    pub table: u16,
    /// The key.
    pub key: Vec<u8>,
    /// The value, or `None` to remove the row.
    pub value: Option<Vec<u8>>,
}

/// What a store gives back when it is opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Rows as of `checkpoint`, by table and key; empty without a checkpoint.
    pub rows: Vec<Row>,
    /// The sequence up to which `rows` stand (exclusive); 0 without a checkpoint.
    pub checkpoint: u64,
    /// The digest that the checkpoint was taken with.
    pub digest: Option<[u8; 32]>,
    /// The frames from `checkpoint` on, in order.
    pub frames: Vec<StoredFrame>,
}

/// A store broke. After an error from `commit` it is unknown whether the frame is there: reopen and read.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The device said no.
    #[error("the store cannot {doing}: {source}; reopen it and read what is there")]
    Device {
        /// What it was about to do.
        doing: &'static str,
        /// What the device or database said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// What is stored makes no sense.
    #[error("the store is damaged: {what}; restore it from a copy or rebuild it from the log")]
    Damaged {
        /// What was found.
        what: String,
    },
    /// A frame does not follow the last one stored.
    #[error("frame {first_seq} does not follow {next_seq}; this ledger is not the store's only writer")]
    NotNext {
        /// The frame's first sequence.
        first_seq: u64,
        /// What the store expected.
        next_seq: u64,
    },
}

/// Where a ledger keeps its frames and its checkpoints. One writer; no pipelining.
pub trait Store: Send + 'static {
    /// The newest checkpoint's rows and every frame after it.
    fn load(&mut self) -> Result<Loaded, StoreError>;

    /// Every frame from the one that holds sequence `from`, whatever was checkpointed: the log is never cut.
    fn log(&mut self, from: u64) -> Result<Vec<StoredFrame>, StoreError>;

    /// Makes one frame durable, whole or not at all.
    fn commit(&mut self, frame: &StoredFrame) -> Result<(), StoreError>;

    /// Makes rows durable as of `next_seq` on top of the last checkpoint, whole or not at all.
    fn checkpoint(&mut self, next_seq: u64, changed: &[Row], digest: [u8; 32]) -> Result<(), StoreError>;
}

impl Store for Box<dyn Store> {
    fn load(&mut self) -> Result<Loaded, StoreError> {
        (**self).load()
    }
    fn log(&mut self, from: u64) -> Result<Vec<StoredFrame>, StoreError> {
        (**self).log(from)
    }
    fn commit(&mut self, frame: &StoredFrame) -> Result<(), StoreError> {
        (**self).commit(frame)
    }
    fn checkpoint(&mut self, next_seq: u64, changed: &[Row], digest: [u8; 32]) -> Result<(), StoreError> {
        (**self).checkpoint(next_seq, changed, digest)
    }
}
