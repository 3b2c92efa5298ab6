//! A store in memory, for scenarios that are not about the disk. Clones share what is kept, so it outlives the ledger that
//! writes it as a disk outlives a process: keep a clone and open it again.

use super::{Loaded, Row, Store, StoreError, StoredFrame};
use bytes::{Bytes, BytesMut};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// A handle on frames and rows in memory. Every commit is durable at once.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    kept: Arc<Mutex<Kept>>,
}

/// How much memory is taken for frames at a time, in bytes: they lie behind each other, so that the log is read as it was
/// written and what else lives meanwhile is not strewn among it.
const PIECE_BYTES: usize = 256 * 1024;

#[derive(Debug, Default)]
struct Kept {
    frames: Vec<Place>,
    /// Frames behind each other, none of them in two pieces.
    pieces: Vec<Bytes>,
    /// The piece after those, which is being written.
    written: BytesMut,
    rows: BTreeMap<(u16, Vec<u8>), Vec<u8>>,
    checkpoint: u64,
    digest: Option<[u8; 32]>,
}

/// Where a frame lies: behind the one before it, or at the beginning of its piece.
#[derive(Clone, Copy, Debug)]
struct Place {
    next_seq: u64,
    piece: u32,
    end: u32,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> MemoryStore {
        MemoryStore::default()
    }

    /// A store that holds these frames and no checkpoint.
    ///
    /// # Panics
    ///
    /// When they do not follow each other from sequence 0.
    pub fn holding(frames: Vec<StoredFrame>) -> MemoryStore {
        let mut store = MemoryStore::new();
        for frame in &frames {
            store.commit(frame).expect("frames that follow each other");
        }
        store
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
    fn from(&mut self, from: u64) -> Vec<StoredFrame> {
        self.end_piece();
        let first = self.frames.partition_point(|place| place.next_seq <= from);
        let mut before = first.checked_sub(1).map(|before| self.frames[before]);
        let stored = self.frames[first..].iter().map(|place| {
            let before = before.replace(*place);
            let start = before.filter(|before| before.piece == place.piece).map_or(0, |before| before.end);
            let bytes = self.pieces[place.piece as usize].slice(start as usize..place.end as usize);
            StoredFrame { first_seq: before.map_or(0, |before| before.next_seq), next_seq: place.next_seq, bytes }
        });
        stored.collect()
    }

    fn end_piece(&mut self) {
        self.pieces.push(self.written.split().freeze());
    }

    fn append(&mut self, frame: &StoredFrame) {
        let bytes = frame.bytes.len();
        if self.written.capacity() - self.written.len() < bytes {
            self.end_piece();
            self.written = BytesMut::with_capacity(PIECE_BYTES.max(bytes));
        }
        self.written.extend_from_slice(&frame.bytes);
        let counted = |count: usize| u32::try_from(count).expect("fewer pieces than 2^32, and shorter ones");
        let (piece, end) = (counted(self.pieces.len()), counted(self.written.len()));
        self.frames.push(Place { next_seq: frame.next_seq, piece, end });
    }
}

impl Store for MemoryStore {
    fn load(&mut self) -> Result<Loaded, StoreError> {
        let mut kept = self.kept();
        let checkpoint = kept.checkpoint;
        let frames = kept.from(checkpoint);
        let row = |((table, key), value): (&(u16, Vec<u8>), &Vec<u8>)| Row {
            table: *table,
            key: key.clone(),
            value: Some(value.clone()),
        };
        Ok(Loaded {
            rows: kept.rows.iter().map(row).collect(),
            checkpoint: kept.checkpoint,
            digest: kept.digest,
            frames,
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
        kept.append(frame);
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
