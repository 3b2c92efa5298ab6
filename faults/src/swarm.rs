//! The swarm: a plan drawn from the seed. First which kinds are on at all, because always-on faults mask each other, then
//! their rates and times.

use serde::{Deserialize, Serialize};

/// A kind of fault, as a scenario's swarm names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "each stands for the fault of the same name")]
pub enum Kind {
    Loss,
    Repeat,
    Reorder,
    DelaySpike,
    Partition,
    PartitionOneWay,
    Kill,
    PowerCut,
    Pause,
    ClockStep,
    ClockDrift,
    CapLowered,
    TooManyRequests,
    ServerError,
    Slow,
    ReplyLost,
    Cancel,
}

/// What a scenario lets the swarm draw.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Swarm {
    /// The kinds that may be on; each is, in a given run, with a chance of one half.
    pub kinds: Vec<Kind>,
    /// At most this many faults of each kind that is on; at least 1.
    pub most_per_kind: u32,
}
