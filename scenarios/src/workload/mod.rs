//! What each agent is to do, as an explicit list: drawn from a seed, or read from an arrival trace.
//!
//! A list is a pure function of the scenario and the seed. Each item is drawn from a stream of its own, a fixed number of
//! words whatever comes of it, so that adding an agent, a run or a unit shifts nobody else's draws.

pub mod arrivals;
pub mod contention;
pub mod day;
pub mod edge;
pub mod producers;
pub mod research;
pub mod takeover;

use crate::scenario::{Scenario, Workload};
use kernel::{
    admit::DepthTier,
    id::{RunId, UnitId, UserId},
    money::Usage,
};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// One paid call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unit {
    /// Its name within the run.
    pub unit: UnitId,
    /// Units of a stage run side by side, up to eight at once; a stage begins when the one before is over.
    pub stage: u32,
    /// What it will use: the provider's answer is drawn from it, and latency and cost follow from it.
    pub usage: Usage,
    /// The most it can use: what the reservation is made for.
    pub most: Usage,
    /// When it is due, in nanoseconds from the run of the world's start; 0 for as soon as its stage begins.
    pub due_ns: u64,
}

/// One run on an agent's list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    /// The run.
    pub run: RunId,
    /// Whom it counts against.
    pub user: UserId,
    /// Its calls, by stage.
    pub units: Vec<Unit>,
    /// Whether this agent only stands by for it: it waits for the run's lease and finishes what its holder left.
    pub stands_by: bool,
}

impl Item {
    /// How deep its research goes: the more calls, the deeper. Up to eight are the first tier, up to ten the second.
    pub fn depth(&self) -> DepthTier {
        DepthTier(match self.units.len() {
            ..=8 => 1,
            9 | 10 => 2,
            _ => 3,
        })
    }
}

/// What every agent is to do: one list an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkList {
    /// The agents' lists.
    pub agents: Vec<Vec<Item>>,
    /// Whether items begin when their first unit is due and may overlap, rather than one after the other.
    pub open_loop: bool,
}

/// The work of a scenario, drawn from `seed`.
///
/// An agent's list is no longer than it could begin before the scenario ends, whatever the sizes allow.
pub fn draw(scenario: &Scenario, seed: u64) -> WorkList {
    let mut sizes = scenario.sizes.clone();
    let begun = sizes.lasts.as_nanos() * u128::from(scenario.provider.speedup.max(1)) / SHORTEST_RUN.as_nanos();
    sizes.runs_per_agent = sizes.runs_per_agent.min(u32::try_from(begun + 1).unwrap_or(u32::MAX));
    let (sizes, price) = (&sizes, &scenario.provider.price);
    match scenario.workload {
        Workload::Research => research::work(sizes, seed),
        Workload::Contention => contention::work(sizes, price),
        Workload::Edge => edge::work(sizes, price, seed),
        Workload::Day => day::work(sizes, seed),
        Workload::Producers => producers::work(sizes, seed),
        Workload::Takeover => takeover::work(sizes, seed),
    }
}

/// Less than a run takes from beginning to end at the provider's usual speed, one that is turned away included.
const SHORTEST_RUN: Duration = Duration::from_secs(5);

/// The user that agent `index` works for.
fn user(index: u32, agents_per_user: u32) -> UserId {
    UserId(index / agents_per_user.max(1))
}

/// The name of the `item`th run on the list of agent `index`.
fn run(index: u32, item: u32) -> RunId {
    RunId(u64::from(index) << 32 | u64::from(item))
}
