//! A plan is a list of faults, each with when, where and for how long.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The version of the plan format this code reads and writes.
pub const FORMAT: u32 = 1;

/// When a fault begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum At {
    /// This long into the run, in true time.
    #[serde(with = "humantime_serde")]
    Time(Duration),
    /// At the target's disk operation of this number, counted over the whole run from 1. For `Kill` and `PowerCut` alone.
    Operation(u64),
}

/// Where a fault strikes. Nodes go by their names in the cast: `ledger`, `provider`, `owner`, `agent-0`…
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// Everything the fault can apply to.
    All,
    /// One node, or every link of it.
    Node(String),
    /// The links between two nodes, both ways; for `PartitionOneWay` only from the first to the second.
    Link(String, String),
}

/// What goes wrong. Rates are in parts per million.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Fault {
    /// Frames are lost.
    Loss {
        /// Of a million frames.
        ppm: u32,
    },
    /// Frames arrive twice.
    Repeat {
        /// Of a million frames.
        ppm: u32,
    },
    /// Frames overtake others.
    Reorder {
        /// Of a million frames.
        ppm: u32,
    },
    /// Frames are held back.
    DelaySpike {
        /// Of a million frames.
        ppm: u32,
        /// By this much.
        #[serde(with = "humantime_serde")]
        by: Duration,
    },
    /// No frame passes, either way.
    Partition,
    /// No frame passes, one way.
    PartitionOneWay,
    /// SIGKILL; the node boots again when the fault ends.
    Kill,
    /// A kill that loses what was not synced; the node boots again when the fault ends.
    PowerCut,
    /// The node is frozen, and goes on as a zombie when the fault ends.
    Pause,
    /// The wall clock is stepped; it stays so until healed.
    ClockStep {
        /// Forward, or backward if negative, in milliseconds.
        by_ms: i64,
    },
    /// The oscillator runs at this many millionths of true speed.
    ClockDrift {
        /// 500,000 to 2,000,000.
        rate_ppm: u32,
    },
    /// A cap is lowered to this share of what the scenario set, and restored when the fault ends.
    CapLowered {
        /// Which: `unit`, `run`, `user-day` or `ledger-day`.
        level: String,
        /// Of a hundred; 0 to 99.
        percent: u32,
    },
    /// The provider answers 429 and charges nothing.
    TooManyRequests {
        /// Of a million calls.
        ppm: u32,
    },
    /// The provider answers 500 and charges nothing.
    ServerError {
        /// Of a million calls.
        ppm: u32,
    },
    /// The provider takes longer.
    Slow {
        /// Times its latency; 2 to 100.
        factor: u32,
    },
    /// The provider accepts and charges, and its answer is lost.
    ReplyLost {
        /// Of a million calls.
        ppm: u32,
    },
    /// A task of the node is dropped at its await of this number, counted from the fault's beginning.
    Cancel {
        /// From 1.
        nth: u64,
    },
}

/// One fault of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Planned {
    /// When it begins.
    pub at: At,
    /// What.
    pub fault: Fault,
    /// Where.
    pub target: Target,
    /// How long it lasts; a fault still on when the safety phase ends is healed then.
    #[serde(rename = "for", with = "humantime_serde")]
    pub lasts: Duration,
}

/// What goes wrong in one run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// [`FORMAT`].
    pub format: u32,
    /// The faults, in the order of their beginnings.
    #[serde(default)]
    pub faults: Vec<Planned>,
}

/// A plan cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// Not a plan.
    #[error("not a plan: {why}")]
    Unreadable {
        /// What the parser said, with line and column.
        why: String,
    },
    /// From a newer build.
    #[error("plan format {found} is not known to this build, which reads format {FORMAT}; use the build that wrote it")]
    Format {
        /// The format found.
        found: u32,
    },
    /// A value makes no sense.
    #[error("fault {index}: {why}")]
    Senseless {
        /// Which fault, from 1.
        index: usize,
        /// What is wrong and what would be right.
        why: String,
    },
}
