//! A scenario, a seed and choices become a spec: sizes resolved, work and plan drawn.

use super::RunSpec;
use crate::{
    caps::CapsFile,
    panicking::{Panic, caught},
    scenario::{Scenario, Senseless, StoreKind},
    workload::{
        self, Unit, Unruly, WorkList,
        arrivals::{self, Arrivals},
    },
};
use faults::{Drawn, Ground, Plan, PlanError, Target};
use kernel::{id::RunId, money::Usage, planted::Bug};
use sim::{Engine, Recording};
use std::{path::PathBuf, sync::Arc, time::Duration};

/// Which plan a run follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanChoice {
    /// The scenario's swarm draws it from the seed.
    Swarm,
    /// Nothing goes wrong.
    None,
    /// This one.
    Given(Plan),
}

/// What a user may choose beside the scenario and the seed; the default is all as the scenario says.
#[derive(Clone, Debug)]
pub struct Choices {
    /// Agents, if not the scenario's.
    pub agents: Option<u32>,
    /// How many agents share a user and so that user's caps and slots, if not as many as in the scenario.
    pub agents_per_user: Option<u32>,
    /// How long, if not the scenario's.
    pub lasts: Option<Duration>,
    /// Caps, quotas, limits and changes that take the place of the scenario's.
    pub caps: Option<CapsFile>,
    /// The store, if not the scenario's.
    pub store: Option<StoreKind>,
    /// The engine.
    pub engine: Engine,
    /// The plan. A run on arrivals or on the real engine takes [`PlanChoice::None`] unless its user says otherwise.
    pub plan: PlanChoice,
    /// Planted bugs to turn on.
    pub bugs: Vec<Bug>,
    /// An arrival trace to replay in place of the drawn work.
    pub arrivals: Option<Arc<Arrivals>>,
    /// From this scheduling decision on, plain first in, first out.
    pub schedule_cut: Option<u64>,
    /// How much of the history to keep.
    pub recording: Recording,
    /// Where the real engine keeps its files.
    pub root: Option<PathBuf>,
}

impl Default for Choices {
    fn default() -> Choices {
        Choices {
            agents: None,
            agents_per_user: None,
            lasts: None,
            caps: None,
            store: None,
            engine: Engine::Native,
            plan: PlanChoice::Swarm,
            bugs: Vec::new(),
            arrivals: None,
            schedule_cut: None,
            recording: Recording::HashOnly { tail: 0 },
            root: None,
        }
    }
}

/// The choices do not go together, or with the scenario.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// A number is out of range.
    #[error(transparent)]
    Senseless(#[from] Senseless),
    /// The caps that take the place of the scenario's do not fit it.
    #[error(transparent)]
    Caps(Senseless),
    /// The plan makes no sense by itself.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The plan is about a node that is not in the cast.
    #[error(
        "fault {index} strikes `{name}`, which is not in the cast; its nodes are ledger, provider, owner{} and agent-0 to agent-{last}",
        if *has_edge { ", edge" } else { "" }
    )]
    NotInCast {
        /// Which fault, from 1.
        index: usize,
        /// The node it names.
        name: String,
        /// Whether the cast has an edge.
        has_edge: bool,
        /// The last agent.
        last: u32,
    },
    /// The scenario plays no trace.
    #[error(
        "scenario {scenario} plays no arrival trace, for it has no caps_on_arrivals; play `fleet`, or add them to its file"
    )]
    NoTrace {
        /// Its name.
        scenario: String,
    },
    /// The work breaks a rule of work lists.
    #[error("{whose}: {why}")]
    Work {
        /// Whose lists they are: the workload's, or the trace's.
        whose: String,
        /// What is wrong with them, and where.
        why: Unruly,
    },
    /// The workload panicked.
    #[error("the workload `{workload}` of scenario {scenario} gives no list for seed {seed}: it {panic}")]
    NotDrawn {
        /// Its name.
        workload: &'static str,
        /// The scenario's.
        scenario: String,
        /// The seed that it was to draw from.
        seed: u64,
        /// What it said, and where.
        panic: Panic,
    },
    /// A call takes so long that no run with it can come to rest in time.
    #[error(
        "a call of run {run} that reads {} and generates {} tokens takes {latency:?}, and everything must be at rest {bound:?} after the faults; lower its tokens or raise the scenario's heal_bound",
        usage.input_tokens, usage.output_tokens
    )]
    Endless {
        /// Its run.
        run: RunId,
        /// What it uses.
        usage: Usage,
        /// How long it takes on a good day.
        latency: Duration,
        /// The scenario's bound.
        bound: Duration,
    },
    /// The real engine can make no fault happen.
    #[error("the real engine can make no fault happen and this plan has {faults}; use --plan none, or --engine native")]
    RealFaults {
        /// How many.
        faults: usize,
    },
    /// The real engine keeps files and was given no folder.
    #[error("the real engine needs a folder for the ledger's files")]
    NoRoot,
}

/// Roughly what an unloaded research run takes, in seconds.
const RUN_SECS: u64 = 90;
/// Roughly what one costs redb's disk, counted in the scenario `crash`; only how far the swarm looks for operations to kill
/// at depends on it.
const OPERATIONS_PER_RUN: u64 = 300;

/// The plan that the scenario's swarm draws for a seed, with the kinds that are on; for printing with the run.
pub fn drawn(scenario: &Scenario, seed: u64) -> Drawn {
    let sizes = &scenario.sizes;
    let runs = u64::from(sizes.runs_per_agent).min(1 + sizes.lasts.as_secs() / RUN_SECS) * u64::from(sizes.agents);
    let disk_operations = match scenario.store {
        StoreKind::Memory => 0,
        StoreKind::Redb => runs * OPERATIONS_PER_RUN,
    };
    scenario.swarm.draw(
        seed,
        &Ground { agents: sizes.agents, has_edge: scenario.edge.is_some(), lasts: sizes.lasts, disk_operations },
    )
}

/// The work that the scenario's workload draws for a seed.
pub fn drawn_work(scenario: &Scenario, seed: u64) -> Result<WorkList, SpecError> {
    caught(|| workload::draw(scenario, seed)).map_err(|panic| SpecError::NotDrawn {
        workload: scenario.workload.name,
        scenario: scenario.name.clone(),
        seed,
        panic,
    })
}

/// Everything that determines the run of one seed.
pub fn spec(scenario: &Scenario, seed: u64, choices: &Choices) -> Result<RunSpec, SpecError> {
    let mut scenario = scenario.clone();
    scenario.sizes.agents = choices.agents.unwrap_or(scenario.sizes.agents);
    scenario.sizes.agents_per_user = choices.agents_per_user.unwrap_or(scenario.sizes.agents_per_user);
    scenario.sizes.lasts = choices.lasts.unwrap_or(scenario.sizes.lasts);
    scenario.store = choices.store.unwrap_or(scenario.store);
    if choices.arrivals.is_some() {
        scenario.caps =
            scenario.caps_on_arrivals.clone().ok_or_else(|| SpecError::NoTrace { scenario: scenario.name.clone() })?;
    }
    if let Some(caps) = &choices.caps {
        if choices.arrivals.is_some() {
            caps.fits_a_trace().map_err(SpecError::Caps)?;
        }
        caps.apply(&mut scenario).map_err(SpecError::Caps)?;
        scenario.check().map_err(SpecError::Caps)?;
    }
    if choices.arrivals.is_some() {
        scenario.caps_on_arrivals = Some(scenario.caps.clone());
    }
    scenario.check()?;
    let plan = match &choices.plan {
        PlanChoice::Given(plan) => plan.clone(),
        PlanChoice::None => Plan::none(),
        PlanChoice::Swarm => drawn(&scenario, seed).plan,
    };
    let sizes = &scenario.sizes;
    let (work, arrivals) = match &choices.arrivals {
        Some(trace) => (arrivals::work(trace, sizes.agents, sizes.agents_per_user), Some(trace.rows().len() as u64)),
        None => (drawn_work(&scenario, seed)?, None),
    };
    let spec = RunSpec {
        scenario,
        seed,
        engine: choices.engine,
        plan,
        bugs: choices.bugs.clone(),
        work: Arc::new(work),
        arrivals,
        schedule_cut: choices.schedule_cut,
        recording: choices.recording,
        root: choices.root.clone(),
    };
    spec.check()?;
    Ok(spec)
}

impl SpecError {
    /// Whether it is about the lists that one seed's work is, and not about what the user chose.
    pub fn is_of_the_work(&self) -> bool {
        matches!(self, SpecError::Work { .. } | SpecError::NotDrawn { .. })
    }
}

impl RunSpec {
    /// Whether its parts go together: for a spec that was read rather than resolved.
    pub fn check(&self) -> Result<(), SpecError> {
        self.scenario.check()?;
        self.plan.check()?;
        let (agents, places) = (self.scenario.sizes.agents, self.scenario.places());
        self.work.check(agents).map_err(|why| {
            let whose = match self.arrivals {
                Some(_) => "the arrival trace".to_owned(),
                None => format!("the workload `{}`", self.scenario.workload.name),
            };
            SpecError::Work { whose, why }
        })?;
        let Scenario { provider, heal_bound, .. } = &self.scenario;
        // A scenario's own work is its author's affair; a trace may hold anything.
        for item in self.work.agents.iter().flatten().filter(|_| self.work.open_loop) {
            let latency = |unit: &Unit| (unit.usage, provider.latency(unit.usage));
            if let Some((usage, latency)) = item.units.iter().map(latency).find(|(_, latency)| latency > heal_bound) {
                return Err(SpecError::Endless { run: item.run, usage, latency, bound: *heal_bound });
            }
        }
        for (index, planned) in self.plan.faults.iter().enumerate() {
            let names: &[&String] = match &planned.target {
                Target::All => &[],
                Target::Node(name) => &[name],
                Target::Link(from, to) => &[from, to],
            };
            if let Some(name) = names.iter().find(|name| places.named(name).is_none()) {
                let name = name.escape_debug().to_string();
                return Err(SpecError::NotInCast {
                    index: index + 1,
                    name,
                    has_edge: places.has_edge,
                    last: agents - 1,
                });
            }
        }
        if self.engine == Engine::Real {
            if !self.plan.faults.is_empty() {
                return Err(SpecError::RealFaults { faults: self.plan.faults.len() });
            }
            if self.root.is_none() {
                return Err(SpecError::NoRoot);
            }
        }
        Ok(())
    }
}
