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
