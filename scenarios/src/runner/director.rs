//! The director: carries the plan out in time order, then heals, waits for rest, and takes a last look at the store.
//!
//! It wakes for the next step of the plan, when a node goes down, and when an invariant breaks; otherwise it sleeps, so that
//! an idle day costs nothing. It decides nothing by the machine's clock.

use super::{
    RunSpec,
    rest::{self, Shelf},
    weather::{self, Where},
    witness::{self, Witness},
};
use crate::{
    cast::{self, LEDGER, Manners, OWNER, Order, PROVIDER, Stage},
    invariant::Broken,
    scenario::{Scenario, Settings},
    sometimes::Sometimes,
};
use faults::{At, Family, Fault, Happening, Kind, Target};
use kernel::{admit::Quota, money::MicroUsd, planted::Bug, reserve::Level};
use sim::{Control, Engine, NodeId, Reach, Time};
use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet, VecDeque},
    future::Future,
    pin::pin,
    rc::Rc,
    task::Poll,
    time::Duration,
};
use tokio::sync::Notify;

/// After this long, a process that ended by itself is started again.
const REVIVED_AFTER: Duration = Duration::from_secs(1);

/// How the run went, as the director saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Course {
    /// An invariant broke, and the run was stopped.
    Stopped,
    /// Everything ended.
    Converged,
    /// After the heal bound, something had not.
    Hung(Broken),
}

/// A node that went down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WentDown {
    pub node: NodeId,
    /// Whether its process ended of itself: it was not killed.
    pub by_itself: bool,
}

/// What the observer tells the director.
#[derive(Debug, Default)]
pub(super) struct News {
    /// Whether an invariant broke.
    pub broken: Cell<bool>,
    /// Nodes that went down since the director last looked.
    pub down: RefCell<VecDeque<WentDown>>,
    /// Set once the run is at rest: what goes down from then on was not a fault.
    pub at_rest: Cell<bool>,
    /// Events that faults begin at, (what, which) -> the acts; the director writes them down.
    pub awaited: RefCell<BTreeMap<(Happening, u64), Vec<usize>>>,
    /// How often each happened, while any is awaited.
    counts: RefCell<BTreeMap<Happening, u64>>,
    /// Acts whose event came since the director last looked.
    pub due: RefCell<VecDeque<usize>>,
    /// What faults were seen to do, once the run is over.
    pub felt: RefCell<BTreeSet<Sometimes>>,
    /// Whether the run came to rest with nothing left of any fault.
    pub is_healed: Cell<bool>,
    /// Wakes the director.
    pub ring: Notify,
}

impl News {
    /// Counts an event, and rings if a fault begins at it.
    pub(super) fn happened(&self, what: Happening) {
        let mut awaited = self.awaited.borrow_mut();
        if awaited.is_empty() {
            return;
        }
        let mut counts = self.counts.borrow_mut();
        let nth = counts.entry(what).or_default();
        *nth += 1;
        if let Some(acts) = awaited.remove(&(what, *nth)) {
            self.due.borrow_mut().extend(acts);
            self.ring.notify_one();
        }
    }
}

/// One step of the script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Begin(usize),
    End(usize),
    Swing(usize),
    Revive(NodeId),
    Change(usize),
}

/// A fault with what it was aimed at, and whether it is on.
struct Act {
    fault: Fault,
    place: Where,
    lasts: Duration,
    on: bool,
    /// The nodes whose processes it stopped, which it starts again when it ends.
    struck: Vec<NodeId>,
    /// Of what swings while it is on: whether it is in the down half, and how often it went there.
    is_down: bool,
    downs: u32,
    /// Of what cuts links: frames cut by then, if nothing else has cut links since.
    cut_before: Option<u64>,
}

impl Act {
    fn is_cutting(&self) -> bool {
        let swings_up = self.fault.kind() == Kind::Flap && !self.is_down;
        self.on && self.fault.kind().family() == Family::Partition && !swings_up
    }
}

pub(super) struct Director {
    control: Control,
    scenario: Rc<Scenario>,
    shelf: Shelf,
    bugs: Vec<Bug>,
    engine: Engine,
    agents: u32,
    /// Where the second processes of agents run, by the agent's node.
    twins: BTreeMap<NodeId, NodeId>,
    open_loop: bool,
    until: Time,
    stage: Rc<Stage>,
    news: Rc<News>,
    witness: Witness,
    acts: Vec<Act>,
    /// (when, in which order) -> what.
    script: BTreeMap<(Time, u64), Step>,
    written: u64,
    /// Kills at disk operations still to come, in order: (operation, act).
    operations: VecDeque<(u64, usize)>,
    /// What the scenario has set by now.
    set: Settings,
    /// What the owner was last ordered to set.
    ordered: Ordered,
}

/// What the owner can be ordered to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ordered {
    caps: [MicroUsd; Level::ALL.len()],
    slots: u32,
    halted: bool,
    quota: Option<Quota>,
}

impl Director {
    pub(super) fn new(control: Control, spec: &RunSpec, shelf: Shelf, stage: Rc<Stage>, news: Rc<News>) -> Director {
        let agents = spec.work.agents.len() as u32;
        let scenario = Rc::new(spec.scenario.clone());
        let places = scenario.places();
        let twins = places.twins(&spec.plan);
        let last_due = spec.work.agents.iter().flatten().flat_map(|item| &item.units).map(|unit| unit.due_ns).max();
        let until =
            if spec.work.open_loop { Duration::from_nanos(last_due.unwrap_or(0)) } else { scenario.sizes.lasts };
        // A trace is replayed without quotas; see `Casting::quota`.
        let set = Settings { quota: scenario.quota.filter(|_| !spec.work.open_loop), ..scenario.settings() };
        let mut director = Director {
            control,
            shelf,
            bugs: spec.bugs.clone(),
            engine: spec.engine,
            agents,
            twins: twins.into_iter().map(|(index, at)| (cast::agent(index), at)).collect(),
            open_loop: spec.work.open_loop,
            until: Time::ZERO.plus(until),
            stage,
            news,
            witness: Witness::default(),
            acts: Vec::new(),
            script: BTreeMap::new(),
            written: 0,
            operations: VecDeque::new(),
            ordered: Ordered {
                caps: Level::ALL.map(|level| set.cap(level, scenario.sizes.users())),
                slots: set.caps.slots,
                halted: false,
                quota: set.quota,
            },
            set,
            scenario,
        };
        for (number, change) in spec.scenario.change.iter().enumerate() {
            director.write(Time::ZERO.plus(change.at), Step::Change(number));
        }
        for planned in &spec.plan.faults {
            director.learn(planned);
        }
        director.operations.make_contiguous().sort_unstable();
        director
    }

    fn learn(&mut self, planned: &faults::Planned) {
        let node = |name: &String| self.scenario.places().named(name).expect("a spec's plan is about its own cast");
        let place = match &planned.target {
            Target::All => Where::All,
            Target::Node(name) => Where::Node(node(name)),
            Target::Link(from, to) => Where::Link(node(from), node(to)),
        };
        let number = self.acts.len();
        self.acts.push(Act {
            fault: planned.fault.clone(),
            place,
            lasts: planned.lasts,
            on: false,
            struck: Vec::new(),
            is_down: false,
            downs: 0,
            cut_before: None,
        });
        match planned.at {
            At::Time(at) => self.write(Time::ZERO.plus(at), Step::Begin(number)),
            At::Operation(nth) => self.operations.push_back((nth, number)),
            At::Event { what, nth } => {
                self.news.awaited.borrow_mut().entry((what, nth)).or_default().push(number);
            }
        }
    }

    fn write(&mut self, at: Time, step: Step) {
        self.written += 1;
        self.script.insert((at, self.written), step);
    }

    /// The whole run. Faults are only asked of the engine that has them, so none is refused.
    pub(super) async fn conduct(mut self) -> (Course, rest::Found) {
        self.arm();
        let course = match self.safety().await {
            Some(stopped) => stopped,
            None => self.heal().await,
        };
        self.news.at_rest.set(true);
        *self.news.felt.borrow_mut() = self.witness.all(&self.control.effects(), &self.stage);
        let converged = course == Course::Converged;
        self.news.is_healed.set(converged && witness::is_over(&self.control, &self.stage));
        let found = rest::look(&self.control, &self.shelf, &self.bugs, &course);
        (course, found)
    }

    /// Does what is due by now, which it gives back.
    fn catch_up(&mut self) -> Time {
        let now = self.control.now();
        self.take_steps(now);
        self.take_news();
        self.take_due();
        now
    }

    /// The safety phase: the plan, until the scenario's time is over, or every list is done and no fault is left.
    async fn safety(&mut self) -> Option<Course> {
        loop {
            let now = self.catch_up();
            if self.news.broken.get() {
                return Some(Course::Stopped);
            }
            let nothing_left = self.script.is_empty() && self.operations.is_empty();
            if now >= self.until || (nothing_left && self.everyone_is_done()) {
                return None;
            }
            // With nothing left to do but wait for lists to be done, look now and then.
            let idle = Duration::from_nanos(self.until.as_nanos() / 100)
                .clamp(Duration::from_secs(1), Duration::from_secs(60));
            let next = self.script.first_key_value().map_or(now.plus(idle), |((at, _), _)| *at).min(self.until);
            self.wait(next.since(now)).await;
        }
    }

    /// The heal phase: no faults, clocks sane, nodes up, caps restored; then rest within the bound, or a hang.
    async fn heal(&mut self) -> Course {
        if !self.open_loop {
            self.stage.closing.set(true);
        }
        self.script.clear();
        self.operations.clear();
        self.news.awaited.borrow_mut().clear();
        self.news.due.borrow_mut().clear();
        for number in 0..self.acts.len() {
            self.look_at(number);
            let act = &mut self.acts[number];
            (act.on, act.is_down, act.struck) = (false, false, Vec::new());
        }
        self.stage.provider.set(Default::default());
        self.set_manners();
        self.order_owner();
        if self.engine == Engine::Native {
            self.expect(self.control.heal());
        }
        let bound = self.control.now().plus(self.scenario.heal_bound);
        let mut at_rest_from = None;
        loop {
            let now = self.catch_up();
            if self.news.broken.get() {
                return Course::Stopped;
            }
            match (self.everyone_is_done(), at_rest_from) {
                (true, Some(at)) if now >= at => return Course::Converged,
                (true, Some(_)) => {}
                (true, None) => at_rest_from = Some(now.plus(self.settling())),
                (false, _) if now >= bound => return Course::Hung(self.hang(now)),
                (false, _) => at_rest_from = None,
            }
            self.wait(Duration::from_secs(1)).await;
        }
    }

    /// How long everyone must have been done: the owner looks every half minute for what was left to it, and what an agent
    /// left as it was killed is not told to it. Without kills it is told.
    fn settling(&self) -> Duration {
        match self.engine {
            Engine::Native => Duration::from_secs(65),
            Engine::Real => Duration::from_secs(3),
        }
    }

    /// Waits for `by`, or until there is news.
    async fn wait(&self, by: Duration) {
        let mut slept = pin!(self.control.sleep(by));
        let mut rung = pin!(self.news.ring.notified());
        std::future::poll_fn(|context| {
            if rung.as_mut().poll(context).is_ready() || slept.as_mut().poll(context).is_ready() {
                return Poll::Ready(());
            }
            Poll::Pending
        })
        .await;
    }

    fn everyone_is_done(&self) -> bool {
        self.stage.done.borrow().len() >= (self.agents + self.scenario.sizes.trespassers) as usize
            && self.stage.owner_idle.get()
            && self.stage.orders.borrow().is_empty()
    }

    fn hang(&self, now: Time) -> Broken {
        let done = self.stage.done.borrow();
        let late: Vec<u32> = (0..self.agents).filter(|index| !done.contains(&cast::agent(*index))).collect();
        let mut message =
            format!("{:?} after heal, {} of {} agents are not done", self.scenario.heal_bound, late.len(), self.agents);
        for (index, agent) in late.iter().take(8).enumerate() {
            message += if index == 0 { ": " } else { ", " };
            message += &format!("agent-{agent}");
        }
        if late.len() > 8 {
            message += " and others";
        }
        let trespassing = self.agents as usize - late.len() + self.scenario.sizes.trespassers as usize - done.len();
        if trespassing > 0 {
            message += &format!("; {trespassing} trespassers are still about");
        }
        let orders = self.stage.orders.borrow().len();
        if orders > 0 || !self.stage.owner_idle.get() {
            message += &format!("; the owner is busy, with {orders} orders left");
        }
        for node in [LEDGER, OWNER, PROVIDER].into_iter().chain(self.scenario.places().edge()) {
            if !self.control.is_up(node) {
                message += &format!("; node {} is down", node.0);
            }
        }
        Broken { invariant: "comes-to-rest".to_owned(), message, time_ns: now.as_nanos() }
    }

    fn take_steps(&mut self, now: Time) {
        while let Some(entry) = self.script.first_entry() {
            if entry.key().0 > now {
                return;
            }
            match entry.remove() {
                Step::Begin(act) => self.begin(act, now),
                Step::End(act) => self.end(act),
                Step::Swing(act) => self.swing(act, now),
                Step::Revive(node) => self.expect(self.control.restart(node)),
                Step::Change(number) => {
                    self.set.make(&self.scenario.change[number]);
                    self.order_owner();
                }
            }
        }
    }

    /// Begins what its event came for.
    fn take_due(&mut self) {
        loop {
            let Some(act) = self.news.due.borrow_mut().pop_front() else { return };
            self.witness.felt.borrow_mut().insert(Sometimes::BegunAtEvent);
            self.begin(act, self.control.now());
        }
    }

    /// A node that went down by no act that still has it is to be started again: felled at a disk operation, for as long as
    /// that act lasts; ended by itself, soon. The real engine starts none again, and a run that needs one hangs.
    fn take_news(&mut self) {
        loop {
            let Some(WentDown { node, by_itself }) = self.news.down.borrow_mut().pop_front() else { return };
            if self.is_left_down(node, by_itself) {
                continue;
            }
            let owner = self.acts.iter().position(|act| act.struck.contains(&node));
            let looping = |act: usize| self.acts[act].fault.kind() == Kind::CrashLoop && !self.acts[act].is_down;
            if !by_itself && owner.is_some_and(looping) {
                // Felled at a disk operation between two kills of a crash loop, which starts it again.
                self.operations.pop_front();
                self.arm();
            }
            let taken = owner.is_some();
            let finished = self.stage.done.borrow().contains(&node);
            if taken || self.control.is_up(node) || finished || self.engine == Engine::Real {
                continue;
            }
            let now = self.control.now();
            let felled = if by_itself { None } else { self.operations.pop_front() };
            let Some((_, act)) = felled else {
                self.write(now.plus(REVIVED_AFTER), Step::Revive(node));
                continue;
            };
            self.acts[act].struck.push(node);
            let kind = self.acts[act].fault.kind();
            self.witness.begun.borrow_mut().insert(kind);
            if kind == Kind::Kill {
                self.witness.felt(kind);
            }
            self.witness.felt.borrow_mut().insert(Sometimes::BegunAtOperation);
            self.write(now.plus(self.acts[act].lasts), Step::End(act));
            self.arm();
        }
    }

    /// Arms the next kill at a disk operation: one at a time, in their order.
    fn arm(&mut self) {
        let Some((nth, act)) = self.operations.front().copied() else { return };
        let act = &self.acts[act];
        let Where::Node(node) = act.place else { return };
        let so_far = self.control.disk_operations(node);
        let from_now = nth.saturating_sub(so_far).max(1);
        let power_cut = act.fault.kind() == Kind::PowerCut;
        self.expect(self.control.fell_at_disk_operation(node, from_now, power_cut));
    }

    fn begin(&mut self, number: usize, now: Time) {
        let act = &mut self.acts[number];
        act.on = true;
        let (kind, lasts) = (act.fault.kind(), act.lasts);
        self.witness.begun.borrow_mut().insert(kind);
        self.write(now.plus(lasts), Step::End(number));
        match kind.family() {
            Family::Weather => self.set_links(),
            Family::Provider => self.set_provider(),
            Family::Budget => self.order_owner(),
            Family::Partition => self.cut(number, now),
            Family::Process => self.strike(number, now),
            Family::Clock => self.set_clocks(number),
            Family::Agent => self.set_manners(),
        }
    }

    fn end(&mut self, number: usize) {
        self.look_at(number);
        (self.acts[number].on, self.acts[number].is_down) = (false, false);
        match self.acts[number].fault.kind() {
            kind if kind.family() == Family::Weather => self.set_links(),
            kind if kind.family() == Family::Provider => self.set_provider(),
            kind if kind.family() == Family::Budget => self.order_owner(),
            kind if kind.family() == Family::Partition => self.mend(number),
            kind if kind.family() == Family::Agent => self.set_manners(),
            Kind::Pause => {
                for node in std::mem::take(&mut self.acts[number].struck) {
                    self.expect(self.control.resume(node));
                }
            }
            Kind::Kill | Kind::PowerCut | Kind::CrashLoop => {
                for node in std::mem::take(&mut self.acts[number].struck) {
                    self.expect(self.control.restart(node));
                }
            }
            Kind::ClockDrift | Kind::ClockFreeze => self.set_clocks(number),
            _ => {}
        }
    }

    /// Stops processes, or drops one of their tasks. A node that is down, or that another act has paused, is let be.
    fn strike(&mut self, number: usize, now: Time) {
        let (fault, nodes) = (self.acts[number].fault.clone(), self.nodes(number));
        for node in nodes {
            let taken = self.acts.iter().any(|act| act.struck.contains(&node));
            let in_the_way = taken || !self.control.is_up(node);
            match fault {
                Fault::Cancel { nth } => self.expect(self.control.cancel(node, nth)),
                _ if in_the_way => {}
                Fault::Pause => {
                    self.acts[number].struck.push(node);
                    self.expect(self.control.pause(node));
                }
                Fault::PowerCut => {
                    self.acts[number].struck.push(node);
                    self.expect(self.control.power_cut(node));
                }
                _ => {
                    self.acts[number].struck.push(node);
                    self.expect(self.control.kill(node));
                }
            }
        }
        let act = &mut self.acts[number];
        let any_down = act.struck.iter().any(|node| !self.control.is_up(*node));
        match fault {
            Fault::CrashLoop { every } if any_down => {
                (act.is_down, act.downs) = (true, 1);
                self.write(now.plus(rest_within(every)), Step::Swing(number));
            }
            Fault::Kill if any_down => self.witness.felt(Kind::Kill),
            _ => {}
        }
    }

    /// Cuts links. What it does is told apart from other cuts only while there are none.
    fn cut(&mut self, number: usize, now: Time) {
        let is_alone = !self
            .acts
            .iter()
            .enumerate()
            .any(|(other, act)| other != number && act.on && act.fault.kind().family() == Family::Partition);
        self.acts.iter_mut().for_each(|act| act.cut_before = None);
        let act = &mut self.acts[number];
        act.cut_before = is_alone.then(|| self.control.effects().frames_cut);
        (act.is_down, act.downs) = (true, 1);
        if let Fault::Flap { down, .. } = act.fault {
            self.write(now.plus(down), Step::Swing(number));
        }
        self.expect(self.control.partition(&self.reach(number)));
    }

    /// The next half of what swings: a flapping link, a crash loop.
    fn swing(&mut self, number: usize, now: Time) {
        let act = &mut self.acts[number];
        if !act.on {
            return;
        }
        act.is_down = !act.is_down;
        let (is_down, struck) = (act.is_down, act.struck.clone());
        act.downs += u32::from(is_down && struck.iter().all(|node| self.control.is_up(*node)));
        let next = match act.fault {
            Fault::Flap { down, .. } if is_down => {
                self.expect(self.control.partition(&self.reach(number)));
                down
            }
            Fault::Flap { up, .. } => {
                self.mend(number);
                up
            }
            Fault::CrashLoop { every } if is_down => {
                struck.iter().for_each(|node| self.expect(self.control.kill(*node)));
                rest_within(every)
            }
            Fault::CrashLoop { every } => {
                struck.iter().for_each(|node| self.expect(self.control.restart(*node)));
                every - rest_within(every)
            }
            _ => unreachable!("only flapping links and crash loops swing"),
        };
        self.write(now.plus(next), Step::Swing(number));
    }

    /// What an act did that shares its count with others, as it ends.
    fn look_at(&mut self, number: usize) {
        let act = &mut self.acts[number];
        let kind = act.fault.kind();
        let again = act.downs >= 2;
        if let Some(before) = act.cut_before.take() {
            let cut = act.on && self.control.effects().frames_cut > before;
            if cut && (again || kind != Kind::Flap) {
                self.witness.felt(kind);
            }
        }
        if kind == Kind::CrashLoop && again {
            self.witness.felt(kind);
        }
    }

    /// The nodes that an act on processes or clocks reaches. The provider's process is outside the system.
    fn nodes(&self, number: usize) -> BTreeSet<NodeId> {
        let act = &self.acts[number];
        match act.place {
            Where::Node(node) => BTreeSet::from([node]),
            Where::Link(one, other) => BTreeSet::from([one, other]),
            Where::All => {
                let outside = act.fault.kind().family() == Family::Process;
                let edge = self.scenario.places().edge();
                let everyone =
                    [LEDGER, PROVIDER, OWNER].into_iter().chain((0..self.agents).map(cast::agent)).chain(edge);
                everyone.filter(|node| !(outside && *node == PROVIDER)).collect()
            }
        }
    }

    fn set_clocks(&mut self, number: usize) {
        for node in self.nodes(number) {
            if let Fault::ClockStep { by_ms } = self.acts[number].fault {
                self.expect(self.control.step_wall(node, by_ms.saturating_mul(1_000_000)));
                continue;
            }
            if self.acts[number].fault == Fault::ClockFreeze {
                let is_frozen =
                    self.acts.iter().enumerate().any(|(other, act)| {
                        act.on && act.fault == Fault::ClockFreeze && self.nodes(other).contains(&node)
                    });
                let set = if is_frozen { self.control.freeze_wall(node) } else { self.control.thaw_wall(node) };
                self.expect(set);
                continue;
            }
            let drifts = self.acts.iter().enumerate().rev().filter(|(other, act)| {
                act.on && act.fault.kind() == Kind::ClockDrift && self.nodes(*other).contains(&node)
            });
            let rate_ppm = drifts.map(|(_, act)| act.fault.clone()).find_map(|fault| match fault {
                Fault::ClockDrift { rate_ppm } => Some(rate_ppm),
                _ => None,
            });
            self.expect(self.control.set_drift(node, rate_ppm.unwrap_or(1_000_000)));
        }
    }

    fn on(&self) -> impl Iterator<Item = &Act> {
        self.acts.iter().filter(|act| act.on)
    }

    fn set_links(&self) {
        let on: Vec<(&Fault, &Where)> = self
            .on()
            .filter(|act| act.fault.kind().family() == Family::Weather)
            .map(|act| (&act.fault, &act.place))
            .collect();
        for (reach, weather) in weather::links(self.scenario.weather, &on) {
            self.expect(self.control.set_weather(&reach, weather));
        }
    }

    fn set_provider(&self) {
        self.stage.provider.set(weather::provider(self.on().map(|act| &act.fault)));
    }

    /// Has each agent behave as the faults that are on for it say, and starts and stops second processes.
    fn set_manners(&mut self) {
        let mut all = BTreeMap::new();
        for node in (0..self.agents).map(cast::agent) {
            let on = || self.on().filter(|act| act.place == Where::All || act.place == Where::Node(node));
            let manners = weather::manners(on().map(|act| &act.fault));
            if manners != Manners::default() {
                all.insert(node, manners);
            }
            let Some(twin) = self.twins.get(&node).copied() else { continue };
            match on().any(|act| act.fault == Fault::DoubleStart) {
                true if self.stage.starts.begin(node) => self.expect(self.control.restart(twin)),
                false if self.stage.starts.end(node) => self.end_second(node, twin),
                _ => {}
            }
        }
        self.stage.manners.replace(all);
    }

    /// Stops an agent's second process, and starts the first again if it had ended for being stale.
    fn end_second(&self, agent: NodeId, twin: NodeId) {
        self.expect(self.control.kill(twin));
        self.expect(self.control.restart(twin));
        let taken = self.acts.iter().any(|act| act.struck.contains(&agent));
        if !taken && !self.control.is_up(agent) {
            self.expect(self.control.restart(agent));
        }
    }

    /// Whether a node that went down is not to be started again for it: a second process, and a first one that ended because
    /// the second is newer. Both are seen to when the double start ends.
    fn is_left_down(&self, node: NodeId, by_itself: bool) -> bool {
        let is_second = self.twins.values().any(|twin| *twin == node);
        is_second || (by_itself && self.stage.starts.is_twice(node))
    }

    /// Orders the owner to set each cap, the slots, the switch and the quota that are not as they should be now.
    fn order_owner(&mut self) {
        let users = self.scenario.sizes.users();
        let faults = || self.on().map(|act| &act.fault);
        let now = Ordered {
            caps: Level::ALL.map(|level| weather::cap(level, self.set.cap(level, users), faults())),
            slots: self.set.caps.slots,
            halted: faults().any(|fault| *fault == Fault::Halted),
            quota: self.set.quota.map(|quota| weather::quota(quota, faults())),
        };
        let before = std::mem::replace(&mut self.ordered, now);
        let mut orders = self.stage.orders.borrow_mut();
        let caps = Level::ALL.into_iter().zip(before.caps.into_iter().zip(now.caps));
        orders.extend(caps.filter(|(_, (old, new))| old != new).map(|(level, (_, cap))| Order::Cap(level, cap)));
        orders.extend((before.slots != now.slots).then_some(Order::Slots(now.slots)));
        orders.extend((before.halted != now.halted).then_some(Order::Halt(now.halted)));
        orders.extend(now.quota.filter(|_| before.quota != now.quota).map(Order::Quota));
    }

    fn reach(&self, number: usize) -> Reach {
        let act = &self.acts[number];
        match act.place {
            Where::All => Reach::All,
            Where::Node(node) => match act.fault {
                Fault::Bridge { split } => Reach::Across { bridge: node, split },
                _ => Reach::Node(node),
            },
            Where::Link(from, to) if act.fault.kind() == Kind::PartitionOneWay => Reach::OneWay(from, to),
            Where::Link(one, other) => Reach::Between(one, other),
        }
    }

    /// Mends what the act cut, and cuts again what others still have cut.
    fn mend(&self, number: usize) {
        self.expect(self.control.mend(&self.reach(number)));
        for (other, act) in self.acts.iter().enumerate() {
            if act.is_cutting() {
                self.expect(self.control.partition(&self.reach(other)));
            }
        }
    }

    fn expect(&self, done: Result<(), sim::Unsupported>) {
        if let Err(unsupported) = done {
            panic!("a spec has only faults that its engine can make happen: {unsupported}");
        }
    }
}

/// How long a node of a crash loop stays down each time.
fn rest_within(every: Duration) -> Duration {
    (every / 2).min(REVIVED_AFTER)
}
