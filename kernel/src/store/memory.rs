//! A store in memory, for scenarios that are not about the disk. Clones share what is kept, so it outlives the ledger that
//! writes it as a disk outlives a process: keep a clone and open it again.

use super::{Loaded, Row, Store, StoreError, StoredFrame};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// A handle on frames and rows in memory. Every commit is durable at once.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    kept: Arc<Mutex<Kept>>,
}

#[derive(Debug, Default)]
struct Kept {
    frames: Vec<StoredFrame>,
    rows: BTreeMap<(u16, Vec<u8>), Vec<u8>>,
    checkpoint: u64,
    digest: Option<[u8; 32]>,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> MemoryStore {
        MemoryStore::default()
    }

    /// A store that holds these frames and no checkpoint.
    pub fn holding(frames: Vec<StoredFrame>) -> MemoryStore {
        let kept = Kept { frames, ..Kept::default() };
        MemoryStore { kept: Arc::new(Mutex::new(kept)) }
    }

    /// A panic elsewhere does not make what is kept wrong: each change is one step.
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn next_seq(&self) -> u64 {
        self.frames.last().map_or(0, |frame| frame.next_seq)
    }

    /// Every frame from the one that holds sequence `from`.
    fn from(&self, from: u64) -> Vec<StoredFrame> {
        let first = self.frames.partition_point(|frame| frame.next_seq <= from);
        self.frames[first..].to_vec()
    }
}

impl Store for MemoryStore {
    fn load(&mut self) -> Result<Loaded, StoreError> {
        let kept = self.kept();
        let row = |((table, key), value): (&(u16, Vec<u8>), &Vec<u8>)| Row {
            table: *table,
            key: key.clone(),
            value: Some(value.clone()),
        };
        Ok(Loaded {
            rows: kept.rows.iter().map(row).collect(),
            checkpoint: kept.checkpoint,
            digest: kept.digest,
            frames: kept.from(kept.checkpoint),
        })
    }

    fn log(&mut self, from: u64) -> Result<Vec<StoredFrame>, StoreError> {
        Ok(self.kept().from(from))
    }

    fn commit(&mut self, frame: &StoredFrame) -> Result<(), StoreError> {
        let mut kept = self.kept();
        let next_seq = kept.next_seq();
        if frame.first_seq != next_seq {
            return Err(StoreError::NotNext { first_seq: frame.first_seq, next_seq });
        }
        kept.frames.push(frame.clone());
        Ok(())
    }

    fn checkpoint(&mut self, next_seq: u64, changed: &[Row], digest: [u8; 32]) -> Result<(), StoreError> {
        let mut kept = self.kept();
        let committed = kept.next_seq();
        assert!(
            next_seq <= committed,
            "a checkpoint at {next_seq} covers no more than the {committed} records there are"
        );
        for row in changed {
            let key = (row.table, row.key.clone());
            match &row.value {
                Some(value) => kept.rows.insert(key, value.clone()),
                None => kept.rows.remove(&key),
            };
        }
        kept.checkpoint = next_seq;
        kept.digest = Some(digest);
        Ok(())
    }
}
