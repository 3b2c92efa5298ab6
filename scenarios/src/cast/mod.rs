//! The processes: the ledger, the agents, the provider, the owner, and in some scenarios an edge before the ledger. Async code on
//! [`sim::World`], the same in every engine.
//!
//! Every wait is a timer or a message. What a process must not lose is in the ledger or, for the provider, on its invoice.

mod agent;
mod asking;
mod edge;
mod lane;
mod late;
mod ledger;
mod manners;
mod meter;
mod owner;
mod provider;
mod trespasser;
pub mod wire;

use crate::{
    scenario::{Caps, Scenario},
    workload::WorkList,
};
use faults::{Fault, Plan, Target};
use kernel::{
    admit::Quota,
    effect::Class,
    id::{RunId, TenantId, ToolId},
    money::MicroUsd,
    planted::Planted,
    reserve::Level,
    store::{Store, StoreError},
};
use sim::{Boot, Disk, DiskSpec, NodeId, NodeSpec, World};
use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    future::Future,
    rc::Rc,
    sync::Arc,
};

pub use manners::{Manners, Starts};

/// How the provider misbehaves for now; the director sets it. Rates in parts per million of calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProviderWeather {
    /// Answered 429, uncharged.
    pub too_many_ppm: u32,
    /// Answered 500, uncharged.
    pub error_ppm: u32,
    /// Times the usual latency; 0 and 1 are the usual.
    pub slow_factor: u32,
    /// Accepted, charged, and the answer lost.
    pub reply_lost_ppm: u32,
    /// Taken, and not answered while this is set.
    pub hang_ppm: u32,
    /// What a call uses, of a hundred of what the work says; `None` is as it says.
    pub usage_percent: Option<u32>,
    /// Every call is refused, uncharged.
    pub credit_exhausted: bool,
}

/// What the owner is to have the ledger do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Put a cap in force.
    Cap(Level, MicroUsd),
    /// Set the halt switch.
    Halt(bool),
    /// Put a quota in force for every user.
    Quota(Quota),
    /// Let each user have so many live reservations.
    Slots(u32),
}

/// What the director and the cast share in one process; the cast reads, the director writes, and agents report that they are done.
#[derive(Debug, Default)]
pub struct Stage {
    /// How the provider misbehaves.
    pub provider: Cell<ProviderWeather>,
    /// How agents misbehave: those that do, each with how.
    pub manners: RefCell<BTreeMap<NodeId, Manners>>,
    /// Agents that are started twice.
    pub starts: Starts,
    /// Orders for the owner, oldest first. The owner takes an order off once the ledger has decided it.
    pub orders: RefCell<std::collections::VecDeque<Order>>,
    /// Set when agents shall begin no new run.
    pub closing: Cell<bool>,
    /// Agents whose list is done (each once, whichever incarnation finished it), and trespassers who have made their tours.
    pub done: RefCell<std::collections::BTreeSet<NodeId>>,
    /// Whether the owner has nothing left to resolve or to order.
    pub owner_idle: Cell<bool>,
    /// The kinds of fault that made a difference in the cast; see [`Stage::felt`].
    pub felt_kinds: RefCell<std::collections::BTreeSet<faults::Kind>>,
    /// Runs that were begun and that the owner is to cancel, and are not over as far as their agents know.
    pub to_cancel: RefCell<std::collections::BTreeSet<RunId>>,
    /// How often an attempt or a run was left to the owner; see [`Stage::leave_to_owner`].
    pub left_to_owner: Cell<u64>,
}

impl Stage {
    /// States that a fault made a difference: whoever obeys one says so where it does.
    pub fn felt(&self, kind: faults::Kind) {
        self.felt_kinds.borrow_mut().insert(kind);
    }

    /// Tells the owner, before it is recorded, that an attempt's outcome is unknown or that a run waits for it: it is not idle until
    /// it has looked.
    pub fn leave_to_owner(&self) {
        self.left_to_owner.set(self.left_to_owner.get() + 1);
        self.owner_idle.set(false);
    }
}

/// Opens the ledger's store on its node's disk; called at each boot.
pub type OpenStore = Arc<dyn Fn(Disk) -> Result<Box<dyn Store>, StoreError> + Send + Sync>;

/// What a cast is made of.
pub struct Casting {
    /// The scenario, resolved: its sizes are the run's.
    pub scenario: Rc<Scenario>,
    /// What each agent is to do; its length is the number of agents.
    pub work: Arc<WorkList>,
    /// The ledger's store.
    pub open_store: OpenStore,
    /// The bugs that are on.
    pub planted: Planted,
    /// What the director and the cast share.
    pub stage: Rc<Stage>,
    /// Agents that a plan starts twice, as [`twins`] gives them.
    pub twins: BTreeMap<u32, NodeId>,
}

impl Casting {
    /// The caps in force from the first moment: those for arrivals if the work is an open loop and the scenario has any.
    pub fn caps(&self) -> &Caps {
        let on_arrivals = self.scenario.caps_on_arrivals.as_ref().filter(|_| self.work.open_loop);
        on_arrivals.unwrap_or(&self.scenario.caps)
    }

    /// The quota of each user from the first moment; none for a trace, which is replayed as it was.
    pub fn quota(&self) -> Option<Quota> {
        self.scenario.quota.filter(|_| !self.work.open_loop)
    }

    /// How many users the agents are dealt over.
    pub fn users(&self) -> u32 {
        let agents = u32::try_from(self.work.agents.len()).unwrap_or(u32::MAX);
        agents.div_ceil(self.scenario.sizes.agents_per_user.max(1)).max(1)
    }
}

/// The tenant whose fleet it is.
pub const TENANT: TenantId = TenantId(1);

/// The tool of each class that agents call: a provider's endpoint.
pub const fn tool(class: Class) -> ToolId {
    ToolId(match class {
        Class::Idempotent => 1,
        Class::Queryable => 2,
        Class::Unsafe => 3,
    })
}

/// Where each process of a cast is found: `ledger` 0, `provider` 1, `owner` 2, `agent-i` 3 + i.
pub const LEDGER: NodeId = NodeId(0);
/// The provider's node.
pub const PROVIDER: NodeId = NodeId(1);
/// The owner's node.
pub const OWNER: NodeId = NodeId(2);

/// The node of agent `index`.
pub const fn agent(index: u32) -> NodeId {
    NodeId(3 + index)
}

/// Where everyone of a cast is: after the three first ones the agents, the trespassers, the edge if there is one, and the second
/// processes of agents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// Agents.
    pub agents: u32,
    /// Trespassers.
    pub trespassers: u32,
    /// Whether there is an edge.
    pub has_edge: bool,
}

impl Places {
    fn after_trespassers(self) -> u32 {
        self.agents.saturating_add(self.trespassers)
    }

    /// The edge's node.
    pub fn edge(self) -> Option<NodeId> {
        self.has_edge.then(|| agent(self.after_trespassers()))
    }

    /// The node of the second process of each agent that the plan starts twice, by the agent's index: after everyone else's.
    pub fn twins(self, plan: &Plan) -> BTreeMap<u32, NodeId> {
        let doubled = plan.faults.iter().filter(|planned| planned.fault == Fault::DoubleStart);
        let named = doubled.filter_map(|planned| match &planned.target {
            Target::Node(name) => name.strip_prefix("agent-")?.parse().ok(),
            _ => None,
        });
        let indices: BTreeSet<u32> = named.filter(|index| *index < self.agents).collect();
        let first = self.after_trespassers().saturating_add(u32::from(self.has_edge));
        (first..).zip(indices).map(|(place, index)| (index, agent(place))).collect()
    }

    /// The node that goes by `name` in plans.
    pub fn named(self, name: &str) -> Option<NodeId> {
        match name {
            "ledger" => Some(LEDGER),
            "provider" => Some(PROVIDER),
            "owner" => Some(OWNER),
            "edge" => self.edge(),
            _ => {
                let index = name.strip_prefix("agent-")?.parse().ok()?;
                (index < self.agents).then(|| agent(index))
            }
        }
    }
}

/// The names that the nodes of one cast go by.
#[derive(Clone, Debug)]
pub struct Names {
    places: Places,
    /// The agents that have a second process, by its node.
    seconds: BTreeMap<NodeId, u32>,
}

impl Names {
    /// Of a cast at these places, with second processes of agents at `twins`, as [`Places::twins`] gives them.
    pub fn new(places: Places, twins: &BTreeMap<u32, NodeId>) -> Names {
        let seconds = twins.iter().map(|(index, at)| (*at, *index)).collect();
        Names { places, seconds }
    }

    /// The name of a node; the director's own entries are under `director`, and one that is not in the cast has its number.
    pub fn of(&self, node: NodeId) -> String {
        let first_trespasser = agent(0).0.saturating_add(self.places.agents);
        let beyond = first_trespasser.saturating_add(self.places.trespassers);
        match node {
            node if Some(node) == self.places.edge() => "edge".to_owned(),
            LEDGER => "ledger".to_owned(),
            PROVIDER => "provider".to_owned(),
            OWNER => "owner".to_owned(),
            NodeId(u32::MAX) => "director".to_owned(),
            NodeId(at) if at < first_trespasser => format!("agent-{}", at - agent(0).0),
            NodeId(at) if at < beyond => format!("trespasser-{}", at - first_trespasser),
            NodeId(at) => match self.seconds.get(&node) {
                Some(index) => format!("agent-{index}-again"),
                None => format!("node-{at}"),
            },
        }
    }
}

/// The cast's nodes, in the order of their addresses.
pub fn assemble(casting: Casting) -> Vec<NodeSpec> {
    let casting = Rc::new(casting);
    let (disk, agents) = (casting.scenario.disk, casting.work.agents.len());
    let places = Places { agents: agents as u32, ..casting.scenario.places() };
    let names = Names::new(places, &casting.twins);
    let name_of_next = |cast: &Vec<NodeSpec>| names.of(NodeId(cast.len() as u32));
    let invoice = Rc::new(provider::Invoice::default());
    let mut cast = vec![
        node("ledger".into(), disk, &casting, ledger::run),
        node("provider".into(), DiskSpec::FLASH, &casting, move |world, casting| {
            provider::run(world, casting, invoice.clone())
        }),
        node("owner".into(), DiskSpec::FLASH, &casting, owner::run),
    ];
    for index in 0..agents {
        let run = move |world, casting| manners::first(world, casting, index);
        cast.push(node(name_of_next(&cast), DiskSpec::FLASH, &casting, run));
    }
    for index in 0..casting.scenario.sizes.trespassers {
        let run = move |world, casting| trespasser::run(world, casting, index);
        cast.push(node(name_of_next(&cast), DiskSpec::FLASH, &casting, run));
    }
    if places.has_edge {
        cast.push(node(name_of_next(&cast), DiskSpec::FLASH, &casting, edge::run));
    }
    for (index, at) in &casting.twins {
        assert_eq!(at.0 as usize, cast.len(), "second processes come after everyone else, in their order");
        let index = *index as usize;
        let run = move |world, casting| manners::second(world, casting, index);
        cast.push(node(name_of_next(&cast), DiskSpec::FLASH, &casting, run));
    }
    cast
}

fn node<F: Future<Output = ()> + 'static>(
    name: String,
    disk: DiskSpec,
    casting: &Rc<Casting>,
    run: impl Fn(World, Rc<Casting>) -> F + 'static,
) -> NodeSpec {
    let casting = casting.clone();
    let boot: Boot = Rc::new(move |world| Box::pin(run(world, casting.clone())));
    NodeSpec { name, cores: 1, disk, boot }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faults::{At, Planned};
    use std::time::Duration;

    #[test]
    fn each_node_of_a_cast_has_the_name_of_what_runs_there() {
        let twice = |name: &str| Planned {
            at: At::Time(Duration::from_secs(1)),
            fault: Fault::DoubleStart,
            target: Target::Node(name.to_owned()),
            lasts: Duration::from_secs(1),
        };
        let faults = vec![twice("agent-2"), twice("agent-0"), twice("agent-2")];
        let plan = Plan { faults, ..Plan::none() };
        let places = Places { agents: 3, trespassers: 2, has_edge: false };
        let names = Names::new(places, &places.twins(&plan));
        let named: Vec<String> = (0..11).map(|at| names.of(NodeId(at))).collect();
        let expect = [
            "ledger",
            "provider",
            "owner",
            "agent-0",
            "agent-1",
            "agent-2",
            "trespasser-0",
            "trespasser-1",
            "agent-0-again",
            "agent-2-again",
            "node-10",
        ];
        assert_eq!(named, expect);
        assert_eq!(names.of(NodeId::DIRECTOR), "director");
        for name in ["ledger", "provider", "owner", "agent-0", "agent-2"] {
            assert_eq!(places.named(name).map(|node| names.of(node)).as_deref(), Some(name));
        }
        assert_eq!(places.named("edge"), None);
        let edged = Places { has_edge: true, ..places };
        let names = Names::new(edged, &edged.twins(&plan));
        assert_eq!([8, 9, 10].map(|at| names.of(NodeId(at))), ["edge", "agent-0-again", "agent-2-again"]);
        assert_eq!(edged.named("edge"), edged.edge());
    }
}
