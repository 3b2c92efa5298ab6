//! Frames between nodes: datagrams that may be lost, repeated, reordered or delayed.

use serde::{Deserialize, Serialize};

/// The longest frame a bus carries, in bytes; a longer one is dropped and counted as lost, in every engine.
pub const MAX_FRAME_BYTES: usize = 1 << 20;

/// How many frames may be on their way or unread between one ordered pair of nodes; one more is counted as lost.
pub const MAX_LINK_FRAMES: usize = 4096;

/// The longest that a frame takes to leave by a clogged link, in nanoseconds; one that would take longer is lost.
pub const MAX_CLOG_NS: u64 = 10_000_000_000;

/// A node's address: dense, from 0, in the order the nodes were given to [`play`](crate::play()).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeId(pub u32);

impl NodeId {
    /// Who the director's and the engine's own entries are from.
    pub const DIRECTOR: NodeId = NodeId(u32::MAX);
}

/// A frame as it arrives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// The sender.
    pub from: NodeId,
    /// The sender's incarnation when it sent: 0 at its first boot, one more at each restart.
    pub incarnation: u32,
    /// The bytes as they were sent.
    pub frame: Vec<u8>,
}
