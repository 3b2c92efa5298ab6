//! The director's hand on the world: every fault the engine can make happen.

use crate::{Disk, Engine, NodeId, Time};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How a link treats frames. Rates are in parts per million of frames; times in nanoseconds, drawn per frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkWeather {
    /// The shortest way through.
    pub latency_min_ns: u64,
    /// The longest way through, spikes apart; not below `latency_min_ns`.
    pub latency_max_ns: u64,
    /// Frames lost.
    pub loss_ppm: u32,
    /// Frames delivered twice, the second copy after a latency of its own.
    pub repeat_ppm: u32,
    /// Frames that may overtake others; all else on a link arrives in the order it was sent.
    pub reorder_ppm: u32,
    /// Frames held back by `spike_ns` on top of their latency.
    pub spike_ppm: u32,
    /// How long a spike lasts.
    pub spike_ns: u64,
}

impl LinkWeather {
    /// A data centre's network on a good day: 100 to 300 µs, nothing lost.
    pub const CALM: LinkWeather = LinkWeather {
        latency_min_ns: 100_000,
        latency_max_ns: 300_000,
        loss_ppm: 0,
        repeat_ppm: 0,
        reorder_ppm: 0,
        spike_ppm: 0,
        spike_ns: 0,
    };
}

/// Which ordered pairs of nodes a network fault touches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Every link.
    All,
    /// Every link into or out of the node.
    Node(NodeId),
    /// The links from the first to the second, not back.
    OneWay(NodeId, NodeId),
    /// The links between the two, both ways.
    Between(NodeId, NodeId),
}

/// The engine cannot make this fault happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the {engine:?} engine has no {fault}; play the plan on the native engine")]
pub struct Unsupported {
    /// The fault that was asked for.
    pub fault: &'static str,
    /// The engine that has none.
    pub engine: Engine,
}

/// Faults and true time, for the director alone. Cheap to clone.
///
/// Faults on a node that is already down (a kill of a dead node, a pause of one) do nothing.
#[derive(Clone)]
pub struct Control {}

impl Control {
    /// True time since the run began.
    pub fn now(&self) -> Time {
        todo!()
    }
    /// Waits in true time.
    pub async fn sleep(&self, by: Duration) {
        let _ = by;
        todo!()
    }
    /// SIGKILL: the node's tasks are dropped, what it wrote stays in the page cache.
    pub fn kill(&self, node: NodeId) -> Result<(), Unsupported> {
        let _ = node;
        todo!()
    }
    /// A kill that also loses what was not synced: any subset of it survives, torn at sectors.
    pub fn power_cut(&self, node: NodeId) -> Result<(), Unsupported> {
        let _ = node;
        todo!()
    }
    /// Kills the node, or cuts its power, at its `nth` disk operation from now (1 is the next); the node never sees the result.
    pub fn fell_at_disk_operation(&self, node: NodeId, nth: u64, power_cut: bool) -> Result<(), Unsupported> {
        let _ = (node, nth, power_cut);
        todo!()
    }
    /// Boots a node that is down, as its next incarnation; nothing if it is up.
    pub fn restart(&self, node: NodeId) -> Result<(), Unsupported> {
        let _ = node;
        todo!()
    }
    /// Whether the node is up (a paused node is).
    pub fn is_up(&self, node: NodeId) -> bool {
        let _ = node;
        todo!()
    }
    /// Freezes a node: its tasks do not run and its timers fire late; frames queue up.
    pub fn pause(&self, node: NodeId) -> Result<(), Unsupported> {
        let _ = node;
        todo!()
    }
    /// Lets a paused node go on where it stood.
    pub fn resume(&self, node: NodeId) -> Result<(), Unsupported> {
        let _ = node;
        todo!()
    }
    /// Steps a node's wall clock by `by_ns` nanoseconds, backward if negative.
    pub fn step_wall(&self, node: NodeId, by_ns: i64) -> Result<(), Unsupported> {
        let _ = (node, by_ns);
        todo!()
    }
    /// Makes a node's oscillator run at `rate_ppm` millionths of true speed from now on: 1,000,000 is true, 2,000,000 double.
    pub fn set_drift(&self, node: NodeId, rate_ppm: u32) -> Result<(), Unsupported> {
        let _ = (node, rate_ppm);
        todo!()
    }
    /// Sets the weather of the links reached.
    pub fn set_weather(&self, reach: &Reach, weather: LinkWeather) -> Result<(), Unsupported> {
        let _ = (reach, weather);
        todo!()
    }
    /// Cuts the links reached: frames sent on them, or on their way, are lost.
    pub fn partition(&self, reach: &Reach) -> Result<(), Unsupported> {
        let _ = reach;
        todo!()
    }
    /// Mends the links reached.
    pub fn mend(&self, reach: &Reach) -> Result<(), Unsupported> {
        let _ = reach;
        todo!()
    }
    /// Drops one cancellable task of the node when it has been polled `nth` more times (counted over all of them; 1 is the next).
    pub fn cancel(&self, node: NodeId, nth: u64) -> Result<(), Unsupported> {
        let _ = (node, nth);
        todo!()
    }
    /// Ends every fault: weather as configured, links mended, clocks true to rate, armed faults disarmed, nodes resumed and restarted.
    pub fn heal(&self) -> Result<(), Unsupported> {
        todo!()
    }
    /// A copy of a node's disk as its page cache stands, for an observer to read at rest. Its operations take no time and
    /// need no offload.
    pub fn disk_image(&self, node: NodeId) -> Disk {
        let _ = node;
        todo!()
    }
    /// Disk operations the node has made so far, over all incarnations.
    pub fn disk_operations(&self, node: NodeId) -> u64 {
        let _ = node;
        todo!()
    }
    /// Appends an entry to the history in the director's name.
    pub fn note(&self, kind: u16, data: &[u8]) {
        let _ = (kind, data);
        todo!()
    }
}
