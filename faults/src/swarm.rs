//! The swarm: a plan drawn from the seed. First which kinds are on at all, because always-on faults mask each other, then
//! how many of each, and for each its time, length, target and rate.
//!
//! Every draw comes from a stream keyed by (seed, kind, number within the kind), so that turning a kind off, or asking for
//! fewer of it, leaves all others as they were.

use crate::{
    limiter,
    plan::{At, FORMAT, Fault, Happening, LEVELS, Plan, Planned, Target},
};
use serde::{Deserialize, Serialize};
use sim::Stream;
use std::{fmt, time::Duration};

pub use crate::kind::{Family, Kind};

/// The first word of the swarm's stream keys; picked at random, so that no other stream of a run meets it.
const SWARM: u64 = 0x6c62_272e_07bb_0142;

/// The events at which faults are drawn to begin: those that come in most runs.
const DRAWN_EVENTS: [Happening; 8] = [
    Happening::Spawn,
    Happening::Grant,
    Happening::Reserve,
    Happening::Settle,
    Happening::Release,
    Happening::RunEnd,
    Happening::CallSent,
    Happening::Charged,
];

/// The latest event of its name at which a fault is drawn to begin.
const MOST_EVENTS: u64 = 32;

/// What a scenario lets the swarm draw.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Swarm {
    /// The kinds that may be on; each is, in a given run, with a chance of one half, unless it is among `always`.
    pub kinds: Vec<Kind>,
    /// Those of `kinds` that are on in every run: what the scenario is about.
    #[serde(default)]
    pub always: Vec<Kind>,
    /// At most this many faults of each kind that is on; at least 1.
    pub most_per_kind: u32,
}

/// What the swarm draws for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ground {
    /// Agents in the cast; at least 1.
    pub agents: u32,
    /// Whether there is an edge in the cast, to be struck as well.
    pub has_edge: bool,
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
            if !(is_on || self.always.contains(&kind)) || !self.kinds.contains(&kind) {
                continue;
            }
            on.push(kind);
            let most = u64::from(self.most_per_kind).min(1 + ground.lasts.as_secs() / 15).max(1);
            for nth in 0..=(count % most) {
                faults.push(ground.fault(kind, &mut Stream::keyed(seed, &[SWARM, number as u64, 1 + nth])));
            }
        }
        // What waits for its moment comes before times, and a stable sort keeps the order of kinds among equals.
        faults.sort_by_key(|planned| match planned.at {
            At::Operation(nth) => (0, u128::from(nth)),
            At::Event { nth, .. } => (1, u128::from(nth)),
            At::Time(at) => (2, at.as_nanos()),
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
        // A lowered cap, and whatever else the owner orders, binds only once something is committed, so it stays for as much
        // as half the phase; so do refusals by the provider, which have to fall together with an outage before anyone
        // releases what another holds, and the manners of agents, who report but now and then.
        let stays = kind.family() == Family::Budget
            || matches!(kind, Kind::TooManyRequests | Kind::ServerError | Kind::RetryAnew | Kind::DuplicateReport);
        let most = if stays { whole / 2 } else { (whole / 5).min(60_000_000_000) };
        let longest = most >> stream.below(6);
        let lasts = Duration::from_nanos(stream.between(longest / 2, longest));
        let fault = match kind {
            Kind::Bridge => Fault::Bridge { split: 1 + stream.below(1 + u64::from(self.agents)) as u32 },
            _ => draw_fault(kind, stream),
        };
        let target = self.target(kind, stream);
        let by_operation = stream.below(2) == 1;
        let nth = log_uniform(stream, self.disk_operations.max(1));
        let by_event = stream.below(8) == 0;
        let what = DRAWN_EVENTS[stream.below(DRAWN_EVENTS.len() as u64) as usize];
        let nth_event = log_uniform(stream, MOST_EVENTS);
        let on_ledger = target == Target::Node("ledger".to_owned());
        let at = match kind {
            Kind::Kill | Kind::PowerCut if by_operation && on_ledger && self.disk_operations > 0 => At::Operation(nth),
            // When an event comes is not known beforehand, so only the ledger is stopped at one; see the limiter.
            _ if by_event && (on_ledger || !kind.stops()) => At::Event { what, nth: nth_event },
            _ => At::Time(begins),
        };
        Planned { at, fault, target, lasts }
    }

    fn target(&self, kind: Kind, stream: &mut Stream) -> Target {
        let agent = format!("agent-{}", stream.below(u64::from(self.agents.max(1))));
        let (form, side) = (stream.below(4), stream.below(4));
        let peer = match side {
            0 => "provider",
            1 if self.has_edge => "edge",
            _ => "ledger",
        };
        let peer = peer.to_owned();
        match kind.family() {
            Family::Partition if kind == Kind::PartitionOneWay && form < 2 => Target::Link(peer, agent),
            Family::Partition if kind == Kind::PartitionOneWay => Target::Link(agent, peer),
            Family::Partition if kind == Kind::Bridge => Target::Node(if form == 0 { agent } else { peer }),
            Family::Weather | Family::Partition => match form {
                0 => Target::Link(agent, peer),
                1 => Target::Node(agent),
                2 => Target::Node("ledger".to_owned()),
                _ if kind.family() == Family::Partition => Target::Node(agent),
                _ => Target::All,
            },
            Family::Process if kind == Kind::Cancel => Target::Node(agent),
            Family::Process | Family::Clock => match form {
                0 | 1 => Target::Node("ledger".to_owned()),
                2 if side == 0 => Target::Node("owner".to_owned()),
                2 if side == 1 && self.has_edge => Target::Node("edge".to_owned()),
                _ => Target::Node(agent),
            },
            Family::Agent if kind == Kind::DoubleStart || form == 0 => Target::Node(agent),
            Family::Provider | Family::Budget | Family::Agent => Target::All,
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
    let half = free & 1 == 0;
    match kind {
        Kind::Loss => Fault::Loss { ppm: small },
        Kind::Repeat => Fault::Repeat { ppm: small },
        // Only of frames that follow each other closely can one overtake another.
        Kind::Reorder => Fault::Reorder { ppm: 50_000 + small },
        Kind::DelaySpike => Fault::DelaySpike { ppm: small, by: Duration::from_millis(log_uniform(stream, 8_000)) },
        // An ordinary frame is some hundred bytes: from a few a second to more than are sent.
        Kind::Clog => Fault::Clog { bytes_per_s: 200 + log_uniform(stream, 100_000) },
        Kind::Partition => Fault::Partition,
        Kind::PartitionOneWay => Fault::PartitionOneWay,
        Kind::Bridge => Fault::Bridge { split: 1 + (free % 8) as u32 },
        Kind::Flap => {
            let mut draw = || Duration::from_millis(20 + log_uniform(stream, 8_000));
            Fault::Flap { up: draw(), down: draw() }
        }
        Kind::Kill => Fault::Kill,
        Kind::PowerCut => Fault::PowerCut,
        Kind::Pause => Fault::Pause,
        Kind::CrashLoop => Fault::CrashLoop { every: Duration::from_millis(200 + log_uniform(stream, 16_000)) },
        Kind::ClockStep => {
            // One in four is of an hour, the usual slip of whoever gets time zones wrong.
            let drawn_ms = log_uniform(stream, 86_400_000).cast_signed();
            let by_ms = if (free >> 1) & 3 == 0 { 3_600_000 } else { drawn_ms };
            Fault::ClockStep { by_ms: if half { by_ms } else { -by_ms } }
        }
        Kind::ClockDrift => match (free >> 32) & 7 {
            0 => Fault::ClockDrift { rate_ppm: 500_000 },
            1 => Fault::ClockDrift { rate_ppm: 2_000_000 },
            _ => Fault::ClockDrift { rate_ppm: 500_000 + (free % 1_500_001) as u32 },
        },
        Kind::ClockFreeze => Fault::ClockFreeze,
        Kind::Cancel => Fault::Cancel { nth: log_uniform(stream, 512) },
        of_the_cast => draw_misbehaviour(of_the_cast, small, free),
    }
}

/// What the provider, the owner or an agent does.
fn draw_misbehaviour(kind: Kind, small: u32, free: u64) -> Fault {
    // Calls are few beside frames.
    let often = 20_000 + small.saturating_mul(2);
    match kind {
        // One call in fifty to two in three.
        Kind::TooManyRequests => Fault::TooManyRequests { ppm: 20_000 << (free % 6) },
        Kind::ServerError => Fault::ServerError { ppm: 20_000 << (free % 6) },
        Kind::Slow => Fault::Slow { factor: 2 + (free % 9) as u32 },
        Kind::ReplyLost => Fault::ReplyLost { ppm: often },
        Kind::Hang => Fault::Hang { ppm: often },
        Kind::UsageUnlike if free & 1 == 0 => Fault::UsageUnlike { percent: 1 + ((free >> 8) % 99) as u32 },
        Kind::UsageUnlike => Fault::UsageUnlike { percent: 101 + ((free >> 8) % 200) as u32 },
        Kind::CreditExhausted => Fault::CreditExhausted,
        Kind::CapLowered => {
            let level = LEVELS[(free % 4) as usize].to_owned();
            // A cap binds once it is lowered to what has been committed, which is little of a day's.
            let most = if (free >> 4) & 1 == 0 { 10 } else { 100 };
            Fault::CapLowered { level, percent: ((free >> 8) % most) as u32 }
        }
        Kind::Halted => Fault::Halted,
        Kind::QuotaChanged => Fault::QuotaChanged { percent: ((free >> 8) % 100) as u32 },
        Kind::DoubleStart => Fault::DoubleStart,
        // An answer takes about a millisecond where nothing is wrong: from less than that to what only outages take.
        Kind::RetryAnew => Fault::RetryAnew { after: Duration::from_micros(100 << (free % 16)) },
        Kind::DuplicateReport => Fault::DuplicateReport { ppm: 31_250 << (free % 6) },
        other => unreachable!("{other} is drawn by the caller"),
    }
}
