//! The director's hand on the world: every fault the engine can make happen.

use crate::{Disk, Effects, Engine, NodeId, Time, native, real};
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
    /// What the link passes in a second, frames queueing behind one another; 0 is without limit. The queue is
    /// [`MAX_CLOG_NS`](crate::bus::MAX_CLOG_NS) long: a frame that would take longer to leave is lost.
    #[serde(default)]
    pub bytes_per_s: u64,
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
        bytes_per_s: 0,
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
    /// The links between two halves of all nodes but one, both ways; the links of that one are not touched.
    Across {
        /// The node that both halves reach.
        bridge: NodeId,
        /// How many of the others, by address, are the first half.
        split: u32,
    },
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
pub struct Control {
    inner: Inner,
}

#[derive(Clone)]
enum Inner {
    Native(native::NativeControl),
    Real(real::RealControl),
}

impl Control {
    pub(crate) fn native(control: native::NativeControl) -> Control {
        Control { inner: Inner::Native(control) }
    }

    pub(crate) fn real(control: real::RealControl) -> Control {
        Control { inner: Inner::Real(control) }
    }

    /// True time since the run began.
    pub fn now(&self) -> Time {
        match &self.inner {
            Inner::Native(control) => control.now(),
            Inner::Real(control) => control.now(),
        }
    }

    /// Waits in true time.
    pub async fn sleep(&self, by: Duration) {
        match &self.inner {
            Inner::Native(control) => control.sleep(by).await,
            Inner::Real(control) => control.sleep(by).await,
        }
    }

    /// SIGKILL: the node's tasks are dropped, what it wrote stays in the page cache.
    pub fn kill(&self, node: NodeId) -> Result<(), Unsupported> {
        match &self.inner {
            Inner::Native(control) => control.kill(node),
            Inner::Real(control) => control.kill(node),
        }
    }

    /// A kill that also loses what was not synced: any subset of it survives, torn at sectors.
    pub fn power_cut(&self, node: NodeId) -> Result<(), Unsupported> {
        match &self.inner {
            Inner::Native(control) => control.power_cut(node),
            Inner::Real(control) => control.power_cut(node),
        }
    }

    /// Kills the node, or cuts its power, at its `nth` disk operation from now (1 is the next); the node never sees the result.
    pub fn fell_at_disk_operation(&self, node: NodeId, nth: u64, power_cut: bool) -> Result<(), Unsupported> {
        match &self.inner {
            Inner::Native(control) => control.fell_at_disk_operation(node, nth, power_cut),
            Inner::Real(control) => control.fell_at_disk_operation(node, nth, power_cut),
        }
    }

    /// Boots a node that is down, as its next incarnation; nothing if it is up.
    pub fn restart(&self, node: NodeId) -> Result<(), Unsupported> {
        match &self.inner {
            Inner::Native(control) => control.restart(node),
            Inner::Real(control) => control.restart(node),
        }
    }

    /// Whether the node is up (a paused node is).
    pub fn is_up(&self, node: NodeId) -> bool {
        match &self.inner {
            Inner::Native(control) => control.is_up(node),
            Inner::Real(control) => control.is_up(node),
        }
    }

    /// Freezes a node: its tasks do not run and its timers fire late; frames queue up.
    pub fn pause(&self, node: NodeId) -> Result<(), Unsupported> {
        match &self.inner {
            Inner::Native(control) => control.pause(node),
            Inner::Real(control) => control.pause(node),
        }
    }

    /// Lets a paused node go on where it stood.
    pub fn resume(&self, node: NodeId) -> Result<(), Unsupported> {
        match &self.inner {
            Inner::Native(control) => control.resume(node),
            Inner::Real(control) => control.resume(node),
        }
    }

    /// Steps a node's wall clock by `by_ns` nanoseconds, backward if negative.
    pub fn step_wall(&self, node: NodeId, by_ns: i64) -> Result<(), Unsupported> {
        match &self.inner {
            Inner::Native(control) => control.step_wall(node, by_ns),
            Inner::Real(control) => control.step_wall(node, by_ns),
        }
    }

    /// Stops a node's wall clock where it stands; steps are taken, and seen once it is thawed.
    pub fn freeze_wall(&self, node: NodeId) -> Result<(), Unsupported> {
        match &self.inner {
            Inner::Native(control) => control.freeze_wall(node),
            Inner::Real(control) => control.freeze_wall(node),
        }
    }

    /// Lets a node's wall clock go on from where it would have been without the freeze.
    pub fn thaw_wall(&self, node: NodeId) -> Result<(), Unsupported> {
        match &self.inner {
            Inner::Native(control) => control.thaw_wall(node),
            Inner::Real(control) => control.thaw_wall(node),
        }
    }

    /// Makes a node's oscillator run at `rate_ppm` millionths of true speed from now on: 1,000,000 is true, 2,000,000 double.
    pub fn set_drift(&self, node: NodeId, rate_ppm: u32) -> Result<(), Unsupported> {
        match &self.inner {
            Inner::Native(control) => control.set_drift(node, rate_ppm),
            Inner::Real(control) => control.set_drift(node, rate_ppm),
        }
    }

    /// Sets the weather of the links reached.
    pub fn set_weather(&self, reach: &Reach, weather: LinkWeather) -> Result<(), Unsupported> {
        match &self.inner {
            Inner::Native(control) => control.set_weather(reach, weather),
            Inner::Real(control) => control.set_weather(reach, weather),
        }
    }

    /// Cuts the links reached: frames sent on them, or on their way, are lost.
    pub fn partition(&self, reach: &Reach) -> Result<(), Unsupported> {
        match &self.inner {
            Inner::Native(control) => control.partition(reach),
            Inner::Real(control) => control.partition(reach),
        }
    }

    /// Mends the links reached.
    pub fn mend(&self, reach: &Reach) -> Result<(), Unsupported> {
        match &self.inner {
            Inner::Native(control) => control.mend(reach),
            Inner::Real(control) => control.mend(reach),
        }
    }

    /// Drops one cancellable task of the node when it has been polled `nth` more times (counted over all of them; 1 is the next).
    pub fn cancel(&self, node: NodeId, nth: u64) -> Result<(), Unsupported> {
        match &self.inner {
            Inner::Native(control) => control.cancel(node, nth),
            Inner::Real(control) => control.cancel(node, nth),
        }
    }

    /// Ends every fault: weather as configured, links mended, clocks true, armed faults disarmed, nodes resumed and restarted.
    pub fn heal(&self) -> Result<(), Unsupported> {
        match &self.inner {
            Inner::Native(control) => control.heal(),
            Inner::Real(control) => control.heal(),
        }
    }

    /// A copy of a node's disk as its page cache stands, for an observer to read at rest. Its operations take no time and
    /// need no offload.
    pub fn disk_image(&self, node: NodeId) -> Disk {
        match &self.inner {
            Inner::Native(control) => control.disk_image(node),
            Inner::Real(control) => control.disk_image(node),
        }
    }

    /// Disk operations the node has made so far, over all incarnations.
    pub fn disk_operations(&self, node: NodeId) -> u64 {
        match &self.inner {
            Inner::Native(control) => control.disk_operations(node),
            Inner::Real(control) => control.disk_operations(node),
        }
    }

    /// Whether no fault is on: links as configured, nodes not paused, clocks true to rate and neither stepped nor frozen. What is
    /// down is not looked at, for a process may have ended of itself.
    pub fn is_calm(&self) -> bool {
        match &self.inner {
            Inner::Native(control) => control.is_calm(),
            Inner::Real(_) => true,
        }
    }

    /// Drops every node with all its tasks, when the run is over but for what the director still looks at: unlike a
    /// [`kill`](Control::kill) it is no part of the history and leaves disks alone. It frees what the cast holds in memory; the
    /// real engine, whose runs are small, lets the cast stand.
    pub fn dismiss(&self) {
        match &self.inner {
            Inner::Native(control) => control.dismiss(),
            Inner::Real(_) => {}
        }
    }

    /// What the faults have done so far.
    pub fn effects(&self) -> Effects {
        match &self.inner {
            Inner::Native(control) => control.effects(),
            Inner::Real(_) => Effects::default(),
        }
    }

    /// Appends an entry to the history in the director's name.
    pub fn note(&self, kind: u16, data: &[u8]) {
        match &self.inner {
            Inner::Native(control) => control.note(kind, data),
            Inner::Real(control) => control.note(kind, data),
        }
    }
}
