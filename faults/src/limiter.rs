//! Keeps a drawn plan within what the system promises to survive.
//!
//! The promises, each with the rule that keeps a plan inside it:
//! - *The provider is outside the system, and its invoice is the oracle*: it is never killed nor cut.
//! - *The ledger recovers from any one failure*: of kills, cuts, pauses and crash loops at a time, at most one is on for the ledger.
//! - *The edge and the owner may be down for as long as they like*: what waits for them waits.
//! - *The fleet makes progress*: not all agents are down at once, and a lone agent is down for at most half the phase.
//! - *Clocks drift, within reason*: from half to double speed.
//! - *Safety ends before heal begins*: every fault has ended when the safety phase does.
//! - *A crash at a disk operation is about the store*: only the ledger has one.
//! - *An agent is started twice, not three times*: of the double starts of one agent at most one is on at a time.
//! - *When an event comes is not known*: of the processes only the ledger's and the owner's are stopped at one.
//!
//! A fault that breaks a rule is shortened or clamped if that is enough, and dropped otherwise; the others stay as they were.

use crate::{
    plan::{At, Fault, Plan, Planned, Target},
    swarm::{Ground, Kind},
};
use std::{collections::BTreeSet, time::Duration};

/// The plan without what passes the promises; see the module.
pub fn limit(plan: Plan, ground: &Ground) -> Plan {
    let mut kept: Vec<Planned> = Vec::with_capacity(plan.faults.len());
    for mut planned in plan.faults {
        if let At::Time(at) = planned.at {
            planned.lasts = planned.lasts.min(ground.lasts.saturating_sub(at));
        }
        if let Fault::ClockDrift { rate_ppm } = &mut planned.fault {
            *rate_ppm = (*rate_ppm).clamp(500_000, 2_000_000);
        }
        if survivable(&planned, &kept, ground) {
            kept.push(planned);
        }
    }
    Plan { faults: kept, ..plan }
}

fn survivable(planned: &Planned, kept: &[Planned], ground: &Ground) -> bool {
    let at = match planned.at {
        At::Time(at) => at,
        At::Operation(_) => return takes_down(planned) == Some("ledger"),
        At::Event { .. } if planned.target == Target::All => return !planned.fault.kind().stops(),
        At::Event { .. } => return takes_down(planned).is_none_or(|node| node == "ledger" || node == "owner"),
    };
    if at >= ground.lasts {
        return false;
    }
    if planned.target == Target::All && planned.fault.kind().stops() {
        return false;
    }
    let is_same = |other: &&Planned| other.fault == planned.fault && other.target == planned.target;
    if planned.fault == Fault::DoubleStart && kept.iter().filter(is_same).any(|other| overlap(planned, other)) {
        return false;
    }
    match takes_down(planned) {
        None | Some("owner" | "edge") => true,
        Some("provider") => planned.fault.kind() == Kind::Pause,
        Some("ledger") => !kept.iter().any(|other| takes_down(other) == Some("ledger") && overlap(planned, other)),
        Some(agent) if ground.agents <= 1 => {
            let down = |other: &&Planned| takes_down(other) == Some(agent);
            let so_far: Duration = kept.iter().filter(down).map(|other| other.lasts).sum();
            (so_far + planned.lasts) * 2 <= ground.lasts
        }
        Some(agent) => {
            let mut down: BTreeSet<&str> = kept
                .iter()
                .filter(|other| overlap(planned, other))
                .filter_map(takes_down)
                .filter(|name| name.starts_with("agent-"))
                .collect();
            down.insert(agent);
            down.len() < ground.agents as usize
        }
    }
}

/// The node whose process the fault stops, if it stops one.
fn takes_down(planned: &Planned) -> Option<&str> {
    match &planned.target {
        Target::Node(name) if planned.fault.kind().stops() => Some(name),
        _ => None,
    }
}

/// Whether two faults may be on at once. When an operation or an event will come is not known; a fault that would stop a
/// node that another has stopped does nothing, so it stands in nobody's way.
fn overlap(one: &Planned, other: &Planned) -> bool {
    match (&one.at, &other.at) {
        (At::Time(a), At::Time(b)) => *a <= *b + other.lasts && *b <= *a + one.lasts,
        _ => false,
    }
}
