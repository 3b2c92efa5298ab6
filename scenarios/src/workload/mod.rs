//! What each agent is to do, as an explicit list: drawn from a seed, or read from an arrival trace.
//!
//! A list is a pure function of the scenario and the seed. Each item is drawn from a stream of its own, a fixed number of
//! words whatever comes of it, so that adding an agent, a run or a unit shifts nobody else's draws.

pub mod arrivals;
pub mod ceilings;
pub mod contention;
pub mod day;
pub mod edge;
pub mod effects;
mod lists;
pub mod producers;
pub mod research;
pub mod stampede;
pub mod takeover;

pub use lists::{Place, Unruly};

use crate::scenario::Scenario;
use kernel::{
    admit::DepthTier,
    effect::{Class, Content, Question},
    id::{ModelId, RunId, UnitId, UserId},
    money::Usage,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::{fmt, time::Duration};

/// Every workload, in the order in which `list` names them.
pub const ALL: &[Workload] = &[
    // A new one is its file, with its `WORKLOAD`, and a row here.
    research::WORKLOAD,
    contention::WORKLOAD,
    edge::WORKLOAD,
    day::WORKLOAD,
    producers::WORKLOAD,
    takeover::WORKLOAD,
    stampede::WORKLOAD,
    effects::WORKLOAD,
    ceilings::WORKLOAD,
];

/// What agents do, as scenario files name it. Two are equal that have one name.
#[derive(Clone, Copy)]
pub struct Workload {
    /// Its name in files, in lower case with hyphens.
    pub name: &'static str,
    /// What its agents do, in one line.
    pub does: &'static str,
    /// Draws the work of a scenario from a seed. The scenario's `runs_per_agent` is no more than an agent could begin.
    pub draw: fn(&Scenario, u64) -> WorkList,
}

impl Workload {
    /// The workload of that name.
    pub fn named(name: &str) -> Option<Workload> {
        ALL.iter().copied().find(|workload| workload.name == name)
    }
}

impl fmt::Debug for Workload {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name)
    }
}

impl PartialEq for Workload {
    fn eq(&self, other: &Workload) -> bool {
        self.name == other.name
    }
}

impl Eq for Workload {}

impl Serialize for Workload {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.name)
    }
}

impl<'de> Deserialize<'de> for Workload {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Workload, D::Error> {
        let name = String::deserialize(from)?;
        Workload::named(&name).ok_or_else(|| {
            let name = name.escape_debug();
            let known = ALL.iter().map(|workload| workload.name).collect::<Vec<_>>().join(", ");
            de::Error::custom(format!(
                "there is no workload `{name}`; known are {known}, and a new one is a row of ALL in scenarios/src/workload/mod.rs"
            ))
        })
    }
}

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
    /// What it asks, and of what kind of tool.
    #[serde(default = "Call::own", skip_serializing_if = "Call::is_own")]
    pub call: Call,
}

/// What a unit asks, and of what kind of tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    /// The class of the tool.
    pub class: Class,
    /// The question, if others ask it too; `None` for one that no other unit asks.
    pub shared: Option<u32>,
}

impl Call {
    /// A question of the unit's own to an idempotent tool, as a model is.
    pub const OWN: Call = Call { class: Class::Idempotent, shared: None };

    fn own() -> Call {
        Call::OWN
    }

    fn is_own(&self) -> bool {
        *self == Call::OWN
    }
}

impl Unit {
    /// What the unit of `run` asks `model`.
    pub fn content(&self, run: RunId, model: ModelId) -> Content {
        let Unit { unit, call: Call { shared, .. }, .. } = self;
        let mut own = [0; 12];
        own[..8].copy_from_slice(&run.0.to_le_bytes());
        own[8..].copy_from_slice(&unit.0.to_le_bytes());
        let (step, prompt) = match shared {
            Some(question) => (b"shared".as_slice(), question.to_le_bytes().to_vec()),
            None => (b"own".as_slice(), own.to_vec()),
        };
        Content::of(&Question { step, input: b"", prompt: &prompt, model, parameters: b"" })
    }
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
    /// What the owner will decide about it.
    pub orders: Orders,
}

impl Item {
    /// A run that its agent works on, and about which the owner decides nothing.
    pub fn new(run: RunId, user: UserId, units: Vec<Unit>) -> Item {
        Item { run, user, units, stands_by: false, orders: Orders::NONE }
    }
}

/// What the owner decides about a run that is worked on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Orders {
    /// The approval that it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<Approval>,
    /// How long after the owner first sees it begun it is cancelled, in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancelled_after_ns: Option<u64>,
}

/// An approval that a run waits for, suspended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Approval {
    /// It waits before this stage begins.
    pub before_stage: u32,
    /// How long the owner takes over it, from when it first sees the run suspended, in nanoseconds.
    pub takes_ns: u64,
}

impl Orders {
    /// The owner decides nothing.
    pub const NONE: Orders = Orders { approval: None, cancelled_after_ns: None };

    /// Whether it does not.
    pub fn is_none(&self) -> bool {
        *self == Orders::NONE
    }
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
    let mut scenario = scenario.clone();
    let begun =
        scenario.sizes.lasts.as_nanos() * u128::from(scenario.provider.speedup.max(1)) / SHORTEST_RUN.as_nanos();
    let most = u32::try_from(begun + 1).unwrap_or(u32::MAX);
    scenario.sizes.runs_per_agent = scenario.sizes.runs_per_agent.min(most);
    (scenario.workload.draw)(&scenario, seed)
}

/// Less than a run takes from beginning to end at the provider's usual speed, one that is turned away included.
const SHORTEST_RUN: Duration = Duration::from_secs(5);

/// The user that agent `index` works for: each `agents_per_user` agents in a row have one.
pub fn user(index: u32, agents_per_user: u32) -> UserId {
    UserId(index / agents_per_user.max(1))
}

/// The name of the `item`th run on the list of agent `index`.
pub fn run(index: u32, item: u32) -> RunId {
    RunId(u64::from(index) << 32 | u64::from(item))
}
