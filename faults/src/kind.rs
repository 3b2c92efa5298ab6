//! The kinds of fault: each with its name, what it does, and what carries it out.

use serde::{Deserialize, Serialize};
use std::fmt;

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
    Clog,
    Bridge,
    Flap,
    CrashLoop,
    ClockFreeze,
    Hang,
    UsageUnlike,
    CreditExhausted,
    Halted,
    QuotaChanged,
    DoubleStart,
    RetryAnew,
    DuplicateReport,
}

/// What carries a kind of fault out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// The weather of links.
    Weather,
    /// Links that are cut.
    Partition,
    /// A node's process and its tasks.
    Process,
    /// A node's clocks.
    Clock,
    /// The provider's behaviour.
    Provider,
    /// What the owner has the ledger allow: caps, quotas, the halt switch.
    Budget,
    /// What an agent does that a well-behaved one does not.
    Agent,
}

impl Kind {
    /// Every kind. The place of one is part of what its draws are keyed by: new ones come last.
    pub const ALL: [Kind; 30] = [
        Kind::Loss,
        Kind::Repeat,
        Kind::Reorder,
        Kind::DelaySpike,
        Kind::Partition,
        Kind::PartitionOneWay,
        Kind::Kill,
        Kind::PowerCut,
        Kind::Pause,
        Kind::ClockStep,
        Kind::ClockDrift,
        Kind::CapLowered,
        Kind::TooManyRequests,
        Kind::ServerError,
        Kind::Slow,
        Kind::ReplyLost,
        Kind::Cancel,
        Kind::Clog,
        Kind::Bridge,
        Kind::Flap,
        Kind::CrashLoop,
        Kind::ClockFreeze,
        Kind::Hang,
        Kind::UsageUnlike,
        Kind::CreditExhausted,
        Kind::Halted,
        Kind::QuotaChanged,
        Kind::DoubleStart,
        Kind::RetryAnew,
        Kind::DuplicateReport,
    ];

    const fn described(self) -> (&'static str, Family, &'static str) {
        match self {
            Kind::Loss => ("loss", Family::Weather, "frames are lost"),
            Kind::Repeat => ("repeat", Family::Weather, "frames arrive twice"),
            Kind::Reorder => ("reorder", Family::Weather, "frames overtake others"),
            Kind::DelaySpike => ("delay-spike", Family::Weather, "frames are held back"),
            Kind::Partition => ("partition", Family::Partition, "no frame passes, either way"),
            Kind::PartitionOneWay => ("partition-one-way", Family::Partition, "no frame passes, one way"),
            Kind::Kill => ("kill", Family::Process, "SIGKILL, then a restart"),
            Kind::PowerCut => ("power-cut", Family::Process, "a kill that loses what was not synced, then a restart"),
            Kind::Pause => ("pause", Family::Process, "a node is frozen, and goes on as a zombie"),
            Kind::ClockStep => ("clock-step", Family::Clock, "a wall clock is stepped, forward or back"),
            Kind::ClockDrift => ("clock-drift", Family::Clock, "an oscillator runs at half to double speed"),
            Kind::CapLowered => ("cap-lowered", Family::Budget, "a cap is lowered mid-run and restored"),
            Kind::TooManyRequests => ("too-many-requests", Family::Provider, "the provider answers 429, uncharged"),
            Kind::ServerError => ("server-error", Family::Provider, "the provider answers 500, uncharged"),
            Kind::Slow => ("slow", Family::Provider, "the provider takes longer"),
            Kind::ReplyLost => ("reply-lost", Family::Provider, "the provider charges, and its answer is lost"),
            Kind::Cancel => ("cancel", Family::Process, "a task is dropped at one of its awaits"),
            Kind::Clog => ("clog", Family::Weather, "links pass so many bytes a second, and frames queue"),
            Kind::Bridge => ("bridge", Family::Partition, "two halves reach each other only through one node"),
            Kind::Flap => ("flap", Family::Partition, "links are cut and mended, again and again"),
            Kind::CrashLoop => ("crash-loop", Family::Process, "a node is killed again soon after each restart"),
            Kind::ClockFreeze => ("clock-freeze", Family::Clock, "a wall clock stands still, then catches up"),
            Kind::Hang => ("hang", Family::Provider, "the provider takes a call and does not answer"),
            Kind::UsageUnlike => ("usage-unlike", Family::Provider, "a call uses other than what was reckoned with"),
            Kind::CreditExhausted => {
                ("credit-exhausted", Family::Provider, "the provider refuses every call, uncharged")
            }
            Kind::Halted => ("halted", Family::Budget, "the owner flips the halt switch, and back"),
            Kind::QuotaChanged => {
                ("quota-changed", Family::Budget, "the owner lowers the daily quotas, and restores them")
            }
            Kind::DoubleStart => ("double-start", Family::Agent, "an agent's process is started again while it runs"),
            Kind::RetryAnew => ("retry-anew", Family::Agent, "what is not answered is asked under a new number"),
            Kind::DuplicateReport => {
                ("duplicate-report", Family::Agent, "what was reported and taken is reported again, as a new request")
            }
        }
    }

    /// Its name in files and on the command line.
    pub const fn name(self) -> &'static str {
        self.described().0
    }

    /// What carries it out.
    pub const fn family(self) -> Family {
        self.described().1
    }

    /// What it does, in one line.
    pub const fn summary(self) -> &'static str {
        self.described().2
    }

    /// Whether it stops a node's process, once or again and again, for as long as it lasts.
    pub const fn stops(self) -> bool {
        matches!(self, Kind::Kill | Kind::PowerCut | Kind::Pause | Kind::CrashLoop)
    }

    /// The kind of that name.
    pub fn named(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.name())
    }
}
