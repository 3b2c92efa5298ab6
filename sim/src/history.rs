//! What happened in a run, in order: the entries, their canonical bytes and the history hash.
//!
//! Canonical form: each entry is its postcard encoding behind a little-endian `u32` length. The history hash is
//! blake3 over all of it. Kinds 0 to 15 are the engine's own, 16 to 31 the kernel's, from 32 on the scenarios'.

use crate::NodeId;
use serde::{Deserialize, Serialize};

/// Kinds of entry the engine itself makes.
pub mod kind {
    /// A node booted; no data.
    pub const UP: u16 = 0;
    /// A node went down; data is one byte: 0 it ended, 1 killed, 2 power cut.
    pub const DOWN: u16 = 1;
    /// A fault was applied or lifted through the control; data is UTF-8 text.
    pub const FAULT: u16 = 2;
    /// The last entry of a run; data is the engine's counts and a digest of every scheduling decision.
    pub const CLOSE: u16 = 3;
}

/// The first kind of entry that nodes and directors may make.
const FIRST_FREE_KIND: u16 = 16;

/// Refuses a kind that is the engine's own, in a note that is not the engine's.
pub(crate) fn assert_free_kind(kind: u16) {
    assert!(kind >= FIRST_FREE_KIND, "history kind {kind} is the engine's own; use {FIRST_FREE_KIND} or more");
}

/// One entry as it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry<'a> {
    /// True time of the run, in nanoseconds; not a node's clock.
    pub time_ns: u64,
    /// The node that noted it; `NodeId(u32::MAX)` for the director.
    pub node: NodeId,
    /// That node's incarnation.
    pub incarnation: u32,
    /// What kind of entry it is; see the module's ranges.
    pub kind: u16,
    /// The entry's own bytes, to be read by whoever owns the kind.
    #[serde(borrow)]
    pub data: &'a [u8],
}

/// How much of a history is kept. The hash is the same either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recording {
    /// The hash and the last `tail` entries.
    HashOnly {
        /// How many entries to keep.
        tail: usize,
    },
    /// Everything.
    Full,
}

/// A finished history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// blake3 over the canonical bytes.
    pub hash: [u8; 32],
    /// How many entries were made.
    pub entries: u64,
    /// Canonical bytes of the entries that were kept, oldest first.
    pub kept: Vec<u8>,
}

/// Why a history's bytes could not be read on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HistoryError {
    /// The bytes end inside an entry.
    #[error("the history ends inside the entry at byte {at}")]
    Truncated {
        /// Where the entry begins.
        at: usize,
    },
    /// The entry is not what its length promised.
    #[error("the entry at byte {at} cannot be decoded")]
    Malformed {
        /// Where the entry begins.
        at: usize,
    },
}

/// Reads canonical bytes, such as [`Recorded::kept`], entry by entry.
pub fn read(bytes: &[u8]) -> Entries<'_> {
    Entries { bytes, at: 0 }
}

/// The entries of a history, oldest first; it ends after the first error.
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>, HistoryError>;

    fn next(&mut self) -> Option<Self::Item> {
        let at = self.at;
        let rest = self.bytes.get(at..).filter(|rest| !rest.is_empty())?;
        let body = frame_body(rest);
        self.at = match body {
            Some(body) => at + LENGTH_BYTES + body.len(),
            None => self.bytes.len(),
        };
        let entry = body.ok_or(HistoryError::Truncated { at }).and_then(|body| {
            match postcard::take_from_bytes::<Entry<'a>>(body) {
                Ok((entry, [])) => Ok(entry),
                _ => Err(HistoryError::Malformed { at }),
            }
        });
        if entry.is_err() {
            self.at = self.bytes.len();
        }
        Some(entry)
    }
}

/// What stands behind the length at the head of `bytes`, if all of it does.
fn frame_body(bytes: &[u8]) -> Option<&[u8]> {
    let (length, rest) = bytes.split_first_chunk::<LENGTH_BYTES>()?;
    rest.get(..usize::try_from(u32::from_le_bytes(*length)).ok()?)
}

const LENGTH_BYTES: usize = 4;

/// The longest encoding of an entry without its data: varints of 64, 32, 32, 16 and 64 bits.
const MAX_ENTRY_HEAD_BYTES: usize = 10 + 5 + 5 + 3 + 10;

/// How much is gathered before it is hashed; blake3 is at its best on long input.
const HASH_BLOCK_BYTES: usize = 64 * 1024;

/// A history in the making, for every engine.
///
/// Appending allocates nothing in the long run: with [`Recording::HashOnly`] two buffers take turns, and the older
/// one is dropped only once the younger holds a whole tail.
pub(crate) struct Log {
    recording: Recording,
    hasher: blake3::Hasher,
    entries: u64,
    older: Vec<u8>,
    current: Vec<u8>,
    entries_in_current: usize,
    hashed_in_current: usize,
}

impl Log {
    pub(crate) fn new(recording: Recording) -> Log {
        Log {
            recording,
            hasher: blake3::Hasher::new(),
            entries: 0,
            older: Vec::new(),
            current: Vec::with_capacity(2 * HASH_BLOCK_BYTES),
            entries_in_current: 0,
            hashed_in_current: 0,
        }
    }

    pub(crate) fn append(&mut self, entry: &Entry<'_>) {
        let start = self.current.len();
        let body = start + LENGTH_BYTES;
        self.current.resize(body + MAX_ENTRY_HEAD_BYTES + entry.data.len(), 0);
        let written = postcard::to_slice(entry, &mut self.current[body..])
            .expect("the buffer holds the longest head and the data")
            .len();
        let length = u32::try_from(written).expect("an entry is shorter than 4 GiB");
        self.current[start..body].copy_from_slice(&length.to_le_bytes());
        self.current.truncate(body + written);
        self.entries += 1;
        self.entries_in_current += 1;
        if self.current.len() - self.hashed_in_current >= HASH_BLOCK_BYTES {
            self.hash_pending();
            self.turn_over();
        }
    }

    pub(crate) fn finish(mut self) -> Recorded {
        self.hash_pending();
        let kept = match self.recording {
            Recording::Full => self.current,
            Recording::HashOnly { tail } => {
                let mut both = self.older;
                both.extend_from_slice(&self.current);
                let held = read(&both).count();
                let mut kept_from = read(&both);
                kept_from.by_ref().take(held.saturating_sub(tail)).for_each(drop);
                both.split_off(kept_from.at)
            }
        };
        Recorded { hash: *self.hasher.finalize().as_bytes(), entries: self.entries, kept }
    }

    fn hash_pending(&mut self) {
        self.hasher.update(&self.current[self.hashed_in_current..]);
        self.hashed_in_current = self.current.len();
    }

    fn turn_over(&mut self) {
        match self.recording {
            Recording::HashOnly { tail } if self.entries_in_current >= tail => {
                std::mem::swap(&mut self.older, &mut self.current);
                self.current.clear();
                self.entries_in_current = 0;
                self.hashed_in_current = 0;
            }
            Recording::HashOnly { .. } | Recording::Full => {}
        }
    }
}
