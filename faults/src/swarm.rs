//! The swarm: a plan drawn from the seed. First which kinds are on at all, because always-on faults mask each other, then
//! how many of each, and for each its time, length, target and rate.
//!
//! Every draw comes from a stream keyed by (seed, kind, number within the kind), so that turning a kind off, or asking for
//! fewer of it, leaves all others as they were.

use crate::{
    limiter,
    plan::{At, FORMAT, Fault, LEVELS, Plan, Planned, Target},
};
use serde::{Deserialize, Serialize};
use sim::Stream;
use std::{fmt, time::Duration};

/// The first word of the swarm's stream keys; picked at random, so that no other stream of a run meets it.
const SWARM: u64 = 0x6c62_272e_07bb_0142;

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
    /// The caps in force.
    Budget,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 17] = [
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
    ];

    /// Its name in files and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Loss => "loss",
            Kind::Repeat => "repeat",
            Kind::Reorder => "reorder",
            Kind::DelaySpike => "delay-spike",
            Kind::Partition => "partition",
            Kind::PartitionOneWay => "partition-one-way",
            Kind::Kill => "kill",
            Kind::PowerCut => "power-cut",
            Kind::Pause => "pause",
            Kind::ClockStep => "clock-step",
            Kind::ClockDrift => "clock-drift",
            Kind::CapLowered => "cap-lowered",
            Kind::TooManyRequests => "too-many-requests",
            Kind::ServerError => "server-error",
            Kind::Slow => "slow",
            Kind::ReplyLost => "reply-lost",
            Kind::Cancel => "cancel",
        }
    }

    /// What it does, in one line.
    pub const fn summary(self) -> &'static str {
        match self {
            Kind::Loss => "frames are lost",
            Kind::Repeat => "frames arrive twice",
            Kind::Reorder => "frames overtake others",
            Kind::DelaySpike => "frames are held back",
            Kind::Partition => "no frame passes, either way",
            Kind::PartitionOneWay => "no frame passes, one way",
            Kind::Kill => "SIGKILL, then a restart",
            Kind::PowerCut => "a kill that loses what was not synced, then a restart",
            Kind::Pause => "a node is frozen, and goes on as a zombie",
            Kind::ClockStep => "a wall clock is stepped, forward or back",
            Kind::ClockDrift => "an oscillator runs at half to double speed",
            Kind::CapLowered => "a cap is lowered mid-run and restored",
            Kind::TooManyRequests => "the provider answers 429, uncharged",
            Kind::ServerError => "the provider answers 500, uncharged",
            Kind::Slow => "the provider takes longer",
            Kind::ReplyLost => "the provider charges, and its answer is lost",
            Kind::Cancel => "a task is dropped at one of its awaits",
        }
    }

    /// What carries it out.
    pub const fn family(self) -> Family {
        match self {
            Kind::Loss | Kind::Repeat | Kind::Reorder | Kind::DelaySpike => Family::Weather,
            Kind::Partition | Kind::PartitionOneWay => Family::Partition,
            Kind::Kill | Kind::PowerCut | Kind::Pause | Kind::Cancel => Family::Process,
            Kind::ClockStep | Kind::ClockDrift => Family::Clock,
            Kind::CapLowered => Family::Budget,
            Kind::TooManyRequests | Kind::ServerError | Kind::Slow | Kind::ReplyLost => Family::Provider,
        }
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

/// What a scenario lets the swarm draw.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Swarm {
    /// The kinds that may be on; each is, in a given run, with a chance of one half.
    pub kinds: Vec<Kind>,
    /// At most this many faults of each kind that is on; at least 1.
    pub most_per_kind: u32,
}

/// What the swarm draws for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ground {
    /// Agents in the cast; at least 1.
    pub agents: u32,
    /// How long the safety phase is: every fault has ended by then.
    pub lasts: Duration,
    /// Roughly how many disk operations the ledger will make: the range in which kills at an operation are drawn. 0 when its
    /// store has no disk, and then none are.
    pub disk_operations: u64,
}

/// A drawn plan, with the kinds that are on in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drawn {
    /// The plan, within what the system promises to survive.
    pub plan: Plan,
    /// The kinds that are on, in the order of [`Kind::ALL`].
    pub on: Vec<Kind>,
}

impl fmt::Display for Drawn {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.on.is_empty() {
            return out.write_str("no faults");
        }
        write!(out, "{} faults:", self.plan.faults.len())?;
        for kind in &self.on {
            let count = self.plan.faults.iter().filter(|planned| planned.fault.kind() == *kind).count();
            write!(out, " {kind} {count}")?;
        }
        Ok(())
    }
}

impl Swarm {
    /// The plan of one seed, in the order of its beginnings; kept within limits by [`limiter::limit`].
    pub fn draw(&self, seed: u64, ground: &Ground) -> Drawn {
        let mut on = Vec::new();
        let mut faults = Vec::new();
        for (number, kind) in Kind::ALL.into_iter().enumerate() {
            let mut stream = Stream::keyed(seed, &[SWARM, number as u64]);
            let (is_on, count) = (stream.below(2) == 1, stream.next_u64());
            if !is_on || !self.kinds.contains(&kind) {
                continue;
            }
            on.push(kind);
            let most = u64::from(self.most_per_kind).min(1 + ground.lasts.as_secs() / 15).max(1);
            for nth in 0..=(count % most) {
                faults.push(ground.fault(kind, &mut Stream::keyed(seed, &[SWARM, number as u64, 1 + nth])));
            }
        }
        // Operations come before times, and a stable sort keeps the order of kinds among equals.
        faults.sort_by_key(|planned| match planned.at {
            At::Operation(nth) => (0, u128::from(nth)),
            At::Time(at) => (1, at.as_nanos()),
        });
        Drawn { plan: limiter::limit(Plan { format: FORMAT, faults }, ground), on }
    }
}

impl Ground {
    /// One fault of a kind, from a stream of its own.
    fn fault(&self, kind: Kind, stream: &mut Stream) -> Planned {
        let whole = u64::try_from(self.lasts.as_nanos()).unwrap_or(u64::MAX);
        let begins = Duration::from_nanos(stream.below((whole - whole / 10).max(1)));
        // Outages last a fifth of the phase or a minute at most, and often much less: below, near and above a lease's length.
        // A lowered cap binds only once something is committed, so it stays for as much as half the phase; so do refusals by
        // the provider, which have to fall together with an outage before anyone releases what another holds.
        let stays = matches!(kind, Kind::CapLowered | Kind::TooManyRequests | Kind::ServerError);
        let most = if stays { whole / 2 } else { (whole / 5).min(60_000_000_000) };
        let longest = most >> stream.below(6);
        let lasts = Duration::from_nanos(stream.between(longest / 2, longest));
        let fault = draw_fault(kind, stream);
        let target = self.target(kind, stream);
        let by_operation = stream.below(2) == 1;
        let nth = log_uniform(stream, self.disk_operations.max(1));
        let on_ledger = target == Target::Node("ledger".to_owned());
        let at = match kind {
            Kind::Kill | Kind::PowerCut if by_operation && on_ledger && self.disk_operations > 0 => At::Operation(nth),
            _ => At::Time(begins),
        };
        Planned { at, fault, target, lasts }
    }

    fn target(&self, kind: Kind, stream: &mut Stream) -> Target {
        let agent = format!("agent-{}", stream.below(u64::from(self.agents.max(1))));
        let (form, side) = (stream.below(4), stream.below(4));
        let peer = if side == 0 { "provider" } else { "ledger" }.to_owned();
        match kind {
            Kind::PartitionOneWay if form < 2 => Target::Link(peer, agent),
            Kind::PartitionOneWay => Target::Link(agent, peer),
            Kind::Loss | Kind::Repeat | Kind::Reorder | Kind::DelaySpike | Kind::Partition => match form {
                0 => Target::Link(agent, peer),
                1 => Target::Node(agent),
                2 => Target::Node("ledger".to_owned()),
                _ if kind == Kind::Partition => Target::Node(agent),
                _ => Target::All,
            },
            Kind::Kill | Kind::PowerCut | Kind::Pause | Kind::ClockStep | Kind::ClockDrift => match form {
                0 | 1 => Target::Node("ledger".to_owned()),
                2 if side == 0 => Target::Node("owner".to_owned()),
                _ => Target::Node(agent),
            },
            Kind::Cancel => Target::Node(agent),
            Kind::CapLowered | Kind::TooManyRequests | Kind::ServerError | Kind::Slow | Kind::ReplyLost => Target::All,
        }
    }
}

/// A number from `1..=most` whose logarithm is about uniform.
fn log_uniform(stream: &mut Stream, most: u64) -> u64 {
    let bits = u64::from(most.max(1).ilog2());
    let top = 1u64 << stream.between(0, bits);
    stream.between(top, (top * 2 - 1).min(most).max(top)).min(most)
}

fn draw_fault(kind: Kind, stream: &mut Stream) -> Fault {
    let small = log_uniform(stream, 250_000) as u32;
    let free = stream.next_u64();
    match kind {
        Kind::Loss => Fault::Loss { ppm: small },
        Kind::Repeat => Fault::Repeat { ppm: small },
        Kind::Reorder => Fault::Reorder { ppm: small },
        Kind::DelaySpike => Fault::DelaySpike { ppm: small, by: Duration::from_millis(log_uniform(stream, 8_000)) },
        Kind::Partition => Fault::Partition,
        Kind::PartitionOneWay => Fault::PartitionOneWay,
        Kind::Kill => Fault::Kill,
        Kind::PowerCut => Fault::PowerCut,
        Kind::Pause => Fault::Pause,
        Kind::ClockStep => {
            let by_ms = log_uniform(stream, 86_400_000).cast_signed();
            Fault::ClockStep { by_ms: if free & 1 == 0 { by_ms } else { -by_ms } }
        }
        Kind::ClockDrift => Fault::ClockDrift { rate_ppm: 500_000 + (free % 1_500_001) as u32 },
        Kind::CapLowered => {
            let level = LEVELS[(free % 4) as usize].to_owned();
            Fault::CapLowered { level, percent: ((free >> 8) % 100) as u32 }
        }
        // One call in fifty to two in three.
        Kind::TooManyRequests => Fault::TooManyRequests { ppm: 20_000 << (free % 6) },
        Kind::ServerError => Fault::ServerError { ppm: 20_000 << (free % 6) },
        Kind::Slow => Fault::Slow { factor: 2 + (free % 9) as u32 },
        Kind::ReplyLost => Fault::ReplyLost { ppm: small },
        Kind::Cancel => Fault::Cancel { nth: log_uniform(stream, 512) },
    }
}
