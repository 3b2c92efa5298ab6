//! A plan is a list of faults, each with when, where and for how long.

use crate::{
    kind::{Family, Kind},
    parsing::explained,
};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The version of the plan format this code reads and writes.
pub const FORMAT: u32 = 1;

/// The latest a fault may begin, and the longest it may last.
pub const LONGEST: Duration = Duration::from_secs(1_000 * 3_600);

/// The most faults in a plan.
pub const MOST_FAULTS: usize = 10_000;

/// The names of the levels at which spend is capped, lowest first.
pub const LEVELS: [&str; 4] = ["unit", "run", "user-day", "ledger-day"];

/// Of a million: everything.
const MILLION: u32 = 1_000_000;

/// When a fault begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum At {
    /// This long into the run, in true time.
    #[serde(with = "humantime_serde")]
    Time(Duration),
    /// At the ledger's disk operation of this number, counted over the whole run from 1. For `Kill` and `PowerCut` of the
    /// ledger alone: no other process keeps anything on a disk.
    Operation(u64),
    /// At an event: `{ what = "settle", nth = 3 }` is the third settlement of the run.
    Event {
        /// Of which name.
        what: Happening,
        /// Counted over the whole run and all nodes, from 1.
        nth: u64,
    },
}

/// An event that a fault may begin at: something the observer saw. What the ledger commits is counted once, when its commit
/// is first told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Happening {
    /// The ledger's process opened its store.
    Open,
    /// The ledger committed a frame.
    Commit,
    /// A run was spawned.
    Spawn,
    /// A lease was granted.
    Grant,
    /// A lease was renewed.
    Renew,
    /// A lease was given back.
    Yield,
    /// A lease expired.
    Expire,
    /// A reservation was admitted.
    Reserve,
    /// A reservation was settled.
    Settle,
    /// A reservation was released.
    Release,
    /// A request was refused.
    Refusal,
    /// An attempt ended.
    AttemptEnd,
    /// A run ended.
    RunEnd,
    /// A cap was set.
    CapSet,
    /// A call left an agent.
    CallSent,
    /// The provider charged a call.
    Charged,
    /// The provider was sent a call again, and gave the first answer.
    Repeated,
    /// The provider turned a call away.
    TurnedAway,
    /// A node's process went down.
    Down,
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
    /// Each link passes so many bytes a second: frames queue behind one another, within the bound of the link.
    Clog {
        /// 1 to 1,000,000,000.
        bytes_per_s: u64,
    },
    /// All other nodes fall into two halves that reach each other only through the target, which relays nothing: no frame
    /// passes between the halves.
    Bridge {
        /// How many of the others, in the order ledger, provider, owner, agent-0…, are the first half; at least 1.
        split: u32,
    },
    /// Links are cut and mended in turn, beginning with a cut.
    Flap {
        /// How long they are whole; 1 ms to 1 h.
        #[serde(with = "humantime_serde")]
        up: Duration,
        /// How long they are cut; 1 ms to 1 h.
        #[serde(with = "humantime_serde")]
        down: Duration,
    },
    /// The node is killed again and again: it boots after half of `every`, a second at most, and is killed when `every` is
    /// over.
    CrashLoop {
        /// 10 ms to 1 h.
        #[serde(with = "humantime_serde")]
        every: Duration,
    },
    /// The wall clock stands still, and jumps to where it would have been when the fault ends.
    ClockFreeze,
    /// The provider takes a call, and does not answer it while the fault lasts.
    Hang {
        /// Of a million calls.
        ppm: u32,
    },
    /// A call uses this share of what its agent reckoned with, which may be more than was reserved.
    UsageUnlike {
        /// Of a hundred; 1 to 1,000, but not 100.
        percent: u32,
    },
    /// The provider refuses every call and charges nothing: the key's own credit is used up.
    CreditExhausted,
    /// The owner flips the halt switch, and back when the fault ends.
    Halted,
    /// The owner lowers runs a day and dollars a day to this share of what the scenario set, and restores them at the end.
    QuotaChanged {
        /// Of a hundred; 0 to 99.
        percent: u32,
    },
    /// The agent's process is started a second time, elsewhere, as a newer incarnation; both work its list until the older
    /// learns that it is stale. When the fault ends the second is stopped, and the first is started again if it had ended.
    DoubleStart,
    /// An agent asks what is not answered within this time again under a new number, which tells the ledger nothing of the
    /// first; each time it waits twice as long.
    RetryAnew {
        /// 10 us to 1 h.
        #[serde(with = "humantime_serde")]
        after: Duration,
    },
    /// An agent reports the end of a call, an attempt or a run once more, as a new request, after it was taken.
    DuplicateReport {
        /// Of a million reports.
        ppm: u32,
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
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
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

impl Fault {
    /// Its kind.
    pub const fn kind(&self) -> Kind {
        match self {
            Fault::Loss { .. } => Kind::Loss,
            Fault::Repeat { .. } => Kind::Repeat,
            Fault::Reorder { .. } => Kind::Reorder,
            Fault::DelaySpike { .. } => Kind::DelaySpike,
            Fault::Partition => Kind::Partition,
            Fault::PartitionOneWay => Kind::PartitionOneWay,
            Fault::Kill => Kind::Kill,
            Fault::PowerCut => Kind::PowerCut,
            Fault::Pause => Kind::Pause,
            Fault::ClockStep { .. } => Kind::ClockStep,
            Fault::ClockDrift { .. } => Kind::ClockDrift,
            Fault::CapLowered { .. } => Kind::CapLowered,
            Fault::TooManyRequests { .. } => Kind::TooManyRequests,
            Fault::ServerError { .. } => Kind::ServerError,
            Fault::Slow { .. } => Kind::Slow,
            Fault::ReplyLost { .. } => Kind::ReplyLost,
            Fault::Cancel { .. } => Kind::Cancel,
            Fault::Clog { .. } => Kind::Clog,
            Fault::Bridge { .. } => Kind::Bridge,
            Fault::Flap { .. } => Kind::Flap,
            Fault::CrashLoop { .. } => Kind::CrashLoop,
            Fault::ClockFreeze => Kind::ClockFreeze,
            Fault::Hang { .. } => Kind::Hang,
            Fault::UsageUnlike { .. } => Kind::UsageUnlike,
            Fault::CreditExhausted => Kind::CreditExhausted,
            Fault::Halted => Kind::Halted,
            Fault::QuotaChanged { .. } => Kind::QuotaChanged,
            Fault::DoubleStart => Kind::DoubleStart,
            Fault::RetryAnew { .. } => Kind::RetryAnew,
            Fault::DuplicateReport { .. } => Kind::DuplicateReport,
        }
    }
}

impl Plan {
    /// A plan in which nothing goes wrong.
    pub const fn none() -> Plan {
        Plan { format: FORMAT, faults: Vec::new() }
    }

    /// Reads a plan from TOML and checks every value of it.
    pub fn from_toml(text: &str) -> Result<Plan, PlanError> {
        /// What is read first, so that a newer format is named as such and not as an unknown field.
        #[derive(Deserialize)]
        struct Head {
            format: i64,
        }
        let unreadable = |error: toml::de::Error| PlanError::Unreadable { why: explained(text, &error) };
        let head: Head = toml::from_str(text).map_err(unreadable)?;
        if head.format != i64::from(FORMAT) {
            return Err(PlanError::Format { found: u32::try_from(head.format).unwrap_or(u32::MAX) });
        }
        let plan: Plan = toml::from_str(text).map_err(unreadable)?;
        plan.check()?;
        Ok(plan)
    }

    /// The plan as TOML, which [`Plan::from_toml`] reads back equal.
    ///
    /// # Panics
    /// If a number is above what TOML can write (2^63 - 1), which [`Plan::check`] refuses.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("a checked plan holds nothing that TOML cannot write")
    }

    /// Whether every value makes sense by itself; whether its nodes are in a cast is for the cast to say.
    pub fn check(&self) -> Result<(), PlanError> {
        if self.format != FORMAT {
            return Err(PlanError::Format { found: self.format });
        }
        if self.faults.len() > MOST_FAULTS {
            let why = format!("a plan holds at most {MOST_FAULTS} faults and this one has {}", self.faults.len());
            return Err(PlanError::Senseless { index: MOST_FAULTS + 1, why });
        }
        for (index, planned) in self.faults.iter().enumerate() {
            planned.check().map_err(|why| PlanError::Senseless { index: index + 1, why })?;
        }
        Ok(())
    }
}

impl Planned {
    /// What is wrong with it and what would be right.
    fn check(&self) -> Result<(), String> {
        let kind = self.fault.kind();
        match self.at {
            At::Time(at) if at > LONGEST => return Err("`at` is at most 1000h".to_owned()),
            At::Operation(_) if !matches!(kind, Kind::Kill | Kind::PowerCut) => {
                return Err(format!(
                    "{kind} begins at a time or an event; only kill and power-cut begin at a disk operation"
                ));
            }
            At::Operation(_) if self.target != Target::Node("ledger".to_owned()) => {
                return Err(
                    "only the ledger has disk operations to begin at: target = { node = \"ledger\" }".to_owned()
                );
            }
            At::Operation(nth) if !(1..=1_000_000_000_000).contains(&nth) => {
                return Err(format!("operation {nth} is out of range; operations count from 1, to 1000000000000"));
            }
            At::Event { nth, .. } if !(1..=1_000_000_000_000).contains(&nth) => {
                return Err(format!("event {nth} is out of range; events count from 1, to 1000000000000"));
            }
            At::Time(_) | At::Operation(_) | At::Event { .. } => {}
        }
        if self.lasts > LONGEST {
            return Err("`for` is at most 1000h".to_owned());
        }
        self.check_fault()?;
        self.check_target(kind)
    }

    fn check_fault(&self) -> Result<(), String> {
        match &self.fault {
            Fault::Loss { ppm }
            | Fault::Repeat { ppm }
            | Fault::Reorder { ppm }
            | Fault::DelaySpike { ppm, .. }
            | Fault::TooManyRequests { ppm }
            | Fault::ServerError { ppm }
            | Fault::ReplyLost { ppm }
            | Fault::Hang { ppm }
            | Fault::DuplicateReport { ppm }
                if *ppm > MILLION =>
            {
                Err(format!("ppm = {ppm} is out of range; it counts of a million, so 0 to {MILLION}"))
            }
            Fault::DelaySpike { by, .. } if by.is_zero() || *by > Duration::from_secs(3_600) => {
                Err("a delay spike is of more than 0s and at most 1h".to_owned())
            }
            Fault::ClockStep { by_ms } if by_ms.unsigned_abs() > 315_360_000_000 => {
                Err(format!("by_ms = {by_ms} is out of range; a step is of at most ten years, 315360000000"))
            }
            Fault::ClockDrift { rate_ppm } if !(500_000..=2_000_000).contains(rate_ppm) => {
                Err(format!("rate_ppm = {rate_ppm} is out of range; half to double speed is 500000 to 2000000"))
            }
            Fault::CapLowered { level, .. } if !LEVELS.contains(&level.as_str()) => {
                Err(format!("there is no cap level `{level}`; the levels are {}", LEVELS.join(", ")))
            }
            Fault::CapLowered { percent, .. } if *percent > 99 => {
                Err(format!("percent = {percent} lowers nothing; it is 0 to 99"))
            }
            Fault::Slow { factor } if !(2..=100).contains(factor) => {
                Err(format!("factor = {factor} is out of range; it is 2 to 100"))
            }
            Fault::Cancel { nth } if !(1..=1_000_000_000).contains(nth) => {
                Err(format!("nth = {nth} is out of range; awaits count from 1, to 1000000000"))
            }
            other => check_shape(other),
        }
    }

    fn check_target(&self, kind: Kind) -> Result<(), String> {
        let names: &[&String] = match &self.target {
            Target::All => &[],
            Target::Node(name) => &[name],
            Target::Link(from, to) if from == to => {
                return Err(format!("a link is between two nodes, not `{from}` alone"));
            }
            Target::Link(from, to) => &[from, to],
        };
        if let Some(name) = names.iter().find(|name| name.is_empty() || name.len() > 64) {
            return Err(format!("`{name}` is no node; nodes are ledger, provider, owner, agent-0, agent-1 and so on"));
        }
        match (kind.family(), &self.target) {
            (Family::Weather, _) => Ok(()),
            (Family::Partition, Target::Node(_)) if kind == Kind::Bridge => Ok(()),
            (Family::Partition, _) if kind == Kind::Bridge => {
                Err("a bridge is one node: target = { node = \"ledger\" }".to_owned())
            }
            (Family::Partition, Target::Link(..)) => Ok(()),
            (Family::Partition, _) if kind == Kind::PartitionOneWay => {
                Err("a one-way partition needs a link: target = { link = [\"agent-0\", \"ledger\"] }".to_owned())
            }
            (Family::Partition, _) => Ok(()),
            (Family::Process | Family::Clock, Target::Link(..)) => {
                Err(format!("{kind} strikes a node, not a link: target = {{ node = \"ledger\" }}"))
            }
            (Family::Process, Target::Node(name)) if name == "provider" && kind != Kind::Pause => Err(format!(
                "{kind} of the provider is not survivable, for its invoice is the oracle; use server-error, slow or reply-lost"
            )),
            (Family::Process | Family::Clock, _) => Ok(()),
            (Family::Agent, Target::Node(name)) if name.starts_with("agent-") => Ok(()),
            (Family::Agent, Target::All) if kind != Kind::DoubleStart => Ok(()),
            (Family::Agent, _) => Err(format!("{kind} is what an agent does: target = {{ node = \"agent-0\" }}")),
            (Family::Provider | Family::Budget, Target::All) => Ok(()),
            (Family::Provider, Target::Node(name)) if name == "provider" => Ok(()),
            (Family::Provider | Family::Budget, _) => Err(format!("{kind} has no target to choose: target = \"all\"")),
        }
    }
}

/// The ranges of what comes in bursts, in halves or in shares.
fn check_shape(fault: &Fault) -> Result<(), String> {
    let hour = Duration::from_secs(3_600);
    match fault {
        Fault::Clog { bytes_per_s } if !(1..=1_000_000_000).contains(bytes_per_s) => {
            Err(format!("bytes_per_s = {bytes_per_s} is out of range; it is 1 to 1000000000"))
        }
        Fault::Bridge { split } if !(1..=100_000).contains(split) => {
            Err(format!("split = {split} is out of range; it is 1 to the number of other nodes less one"))
        }
        Fault::Flap { up, down }
            if [up, down].iter().any(|span| **span < Duration::from_millis(1) || **span > hour) =>
        {
            Err("a flapping link is up, and down, for 1ms to 1h at a time".to_owned())
        }
        Fault::CrashLoop { every } if *every < Duration::from_millis(10) || *every > hour => {
            Err("a crash loop kills every 10ms to 1h".to_owned())
        }
        Fault::RetryAnew { after } if *after < Duration::from_micros(10) || *after > hour => {
            Err("an agent asks anew after 10us to 1h".to_owned())
        }
        Fault::UsageUnlike { percent: 100 } => Err("percent = 100 is as reckoned; give another".to_owned()),
        Fault::UsageUnlike { percent } if !(1..=1_000).contains(percent) => {
            Err(format!("percent = {percent} is out of range; it is 1 to 1000"))
        }
        Fault::QuotaChanged { percent } if *percent > 99 => {
            Err(format!("percent = {percent} lowers nothing; it is 0 to 99"))
        }
        _ => Ok(()),
    }
}
