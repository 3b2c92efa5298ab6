//! An agent: a real client that sees the runs on its list through, one after the other or, in an open loop, each when due.
//!
//! It spawns a run and takes its lease in one request, reads where the run stands if anyone could have begun it, and from
//! there goes on as a successor would: what has succeeded is skipped, an open reservation's call is sent again under the
//! same key, a failed attempt is followed by the next, and what is indeterminate is left to the owner. It does the same after
//! a restart, after a lane was cancelled, and when it takes a run over. So no await needs to be survived: whatever a dropped
//! future leaves behind, in the ledger or at the provider, the next reading finds.

use super::{
    Casting, PROVIDER,
    asking::{Hold, Lines, Lost, granted, nanos},
    lane::{Job, News, Open, Round, Stint},
    meter::Meter,
    wire::{ToProvider, encode},
};
use crate::{
    fact::Fact,
    scenario::Runaway,
    workload::{Item, Unit},
};
use kernel::{
    admit,
    effect::Phase,
    id::{Fence, RunId, TaskId, UnitId},
    lease::{self, Authority, Lock},
    request::{Answer, Command, Query, Refusal, RunStanding},
    run::{self, AttemptState, Ending, HaltReason, Purpose, RunState},
};
use sim::{NodeId, Task, Time, World};
use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    future::{Future, pending, poll_fn},
    pin::pin,
    rc::Rc,
    task::Poll,
    time::Duration,
};
use tokio::sync::mpsc;

/// Units of a stage that are worked on side by side, except in an open loop.
const LANES: usize = 8;
/// Attempts a unit is given before it is given up.
pub(super) const MOST_ATTEMPTS: u32 = 3;
/// The first pause before what did not go by the book is read and tried again; it doubles up to 64 times.
const SECOND_LOOK: Duration = Duration::from_millis(100);

/// Sees the list of agent `index` through as incarnation `incarnation` of the agent at `node`, then says that it is done.
/// Ends if a newer incarnation is at work, or was started before the list was done.
pub(super) async fn run(world: World, casting: Rc<Casting>, index: usize, node: NodeId, incarnation: u32) {
    let lines = Lines::open(&casting, world.clone(), node, incarnation);
    if casting.stage.done.borrow().contains(&node) {
        return pending().await; // an earlier incarnation finished; this one has nothing to do but be up
    }
    let agent = Rc::new(Agent { world, casting, lines: lines.clone(), index });
    agent.run_away();
    let mut working = pin!(work(agent, node));
    let mut stale = pin!(lines.stale.notified());
    poll_fn(|context| match stale.as_mut().poll(context) {
        Poll::Ready(()) => Poll::Ready(()),
        Poll::Pending => working.as_mut().poll(context),
    })
    .await;
}

async fn work(agent: Rc<Agent>, node: NodeId) {
    agent.announce_incarnation().await;
    match agent.casting.work.open_loop {
        false => agent.one_after_the_other().await,
        true => agent.each_when_due().await,
    }
    if !agent.casting.stage.starts.is_newest(node, agent.lines.incarnation) {
        return; // the newer one may have begun what was refused here, and nobody would see that through
    }
    agent.casting.stage.done.borrow_mut().insert(node);
    pending().await
}

/// One incarnation of an agent.
pub(super) struct Agent {
    pub(super) world: World,
    pub(super) casting: Rc<Casting>,
    pub(super) lines: Rc<Lines>,
    index: usize,
}

/// What this incarnation knows of a run beside what the ledger does.
struct Memory {
    meter: Rc<Meter>,
    /// When work on it began.
    began: Option<Time>,
    /// Units that it will not try again.
    given_up: BTreeSet<UnitId>,
    /// Calls it settled.
    calls: u32,
    /// Whether everything done so far was done here, under one grant.
    whole: bool,
    /// What stopped it, if it is to end halted: it begins no further unit. Its lanes say so here as they hear of it, for a lane may
    /// be dropped before it says anything else.
    halted: Rc<Cell<Option<HaltReason>>>,
    /// Whether something of it was not begun because it was cancelled.
    cancelled: bool,
    /// Whether it asked for the run's end, perhaps without learning the answer.
    asked_end: bool,
    /// Rounds in a row that did not go by the book.
    odd_rounds: u32,
}

/// Where a run's units stand, as far as they have begun.
type Known = BTreeMap<UnitId, At>;

/// A unit's latest attempt, where that stands, and what there is of it while it is running.
type At = (u32, AttemptState, Option<Open>);

/// What comes next in a run.
enum Next {
    /// These units.
    Work(Vec<Job>),
    /// Nothing; it ends.
    End(Ending),
}

/// How a round came out.
enum Played {
    /// All its lanes have ended.
    Through,
    /// The run has ended so, for it could not be completed any more.
    Ended(Ending),
    /// The lease was lost.
    Lost,
}

/// How holding a run came out.
enum Worked {
    /// It has ended.
    Over(Ending),
    /// It was suspended first, and the lease given up with that.
    Suspended,
    /// The lease was lost first.
    Lost,
}

impl Agent {
    /// Has a request decided, any request, so that what an earlier incarnation still has on its way is not: it is stale.
    async fn announce_incarnation(&self) {
        let list = &self.casting.work.agents[self.index];
        let (true, Some(first)) = (self.lines.incarnation > 0, list.first()) else { return };
        let nothing =
            Authority { lock: Lock::Run(super::TENANT, first.run), executor: self.lines.executor(), fence: Fence(0) };
        let give = Command::Lease(lease::Command::Yield { held: nothing });
        self.lines.ask(None, Duration::ZERO, None, vec![give]).await;
    }

    /// Has calls made past the ledger from now on, if the scenario says so of this agent.
    fn run_away(&self) {
        let is_mine = |runaway: &Runaway| runaway.agent as usize == self.index && !self.casting.work.open_loop;
        let Some(runaway) = self.casting.scenario.runaway.filter(is_mine) else { return };
        let Some(user) = self.casting.work.agents[self.index].first().map(|item| item.user) else { return };
        let (world, casting) = (self.world.clone(), self.casting.clone());
        self.world.spawn(async move {
            while !casting.stage.closing.get() {
                world.send(PROVIDER, encode(&ToProvider::Stray { user, usage: runaway.usage }));
                world.sleep(runaway.every).await;
            }
        });
    }

    async fn one_after_the_other(self: &Rc<Self>) {
        for item in &self.casting.work.agents[self.index] {
            self.see_through(item).await;
        }
    }

    async fn each_when_due(self: &Rc<Self>) {
        let mut items: Vec<Task<()>> = Vec::new();
        for (position, item) in self.casting.work.agents[self.index].iter().enumerate() {
            let due = Time(item.units.iter().map(|unit| unit.due_ns).min().unwrap_or(0));
            self.world.sleep(due.since(self.world.now())).await;
            let agent = self.clone();
            items.push(self.world.spawn(async move {
                agent.see_through(&agent.casting.work.agents[agent.index][position]).await;
            }));
        }
        for item in items {
            let _ended = item.await;
        }
    }

    /// Holds the run's lease, again if it is lost, until the run is over or there is nothing to do for it.
    async fn see_through(self: &Rc<Self>, item: &Item) {
        let meter = Rc::new(Meter::new(self.world.clone()));
        let mut memory = Memory {
            meter,
            began: None,
            given_up: BTreeSet::new(),
            calls: 0,
            whole: !item.stands_by && self.lines.incarnation == 0,
            halted: Rc::default(),
            cancelled: false,
            asked_end: false,
            odd_rounds: 0,
        };
        while let Some(hold) = self.acquire(item, &mut memory).await {
            if item.orders.cancelled_after_ns.is_some() {
                self.casting.stage.to_cancel.borrow_mut().insert(item.run);
            }
            match self.work(item, &hold, &mut memory).await {
                Worked::Over(ending) => {
                    if memory.asked_end {
                        self.note_over(item, ending, &memory);
                    }
                    hold.give_back();
                    break;
                }
                Worked::Suspended | Worked::Lost => {
                    hold.let_go();
                    memory.whole = false;
                }
            }
        }
        self.casting.stage.to_cancel.borrow_mut().remove(&item.run);
    }

    fn note_over(&self, item: &Item, ending: Ending, memory: &Memory) {
        let due = item.units.iter().map(|unit| unit.due_ns).min().filter(|_| self.casting.work.open_loop);
        let began = due.map(Time).or(memory.began).unwrap_or_default();
        let over = Fact::RunOver {
            tenant: super::TENANT,
            run: item.run,
            ending,
            wall_ns: nanos(self.world.now().since(began)),
            ledger_wait_ns: memory.meter.waited_ns(),
            calls: memory.calls,
            whole: memory.whole,
        };
        over.note(&self.world);
    }

    /// Waits for the run's lease; `None` if the run is over or will not be begun.
    async fn acquire(&self, item: &Item, memory: &mut Memory) -> Option<Rc<Hold>> {
        let third = self.casting.scenario.ledger.lease / 3;
        // Only a run that is this incarnation's own and untouched by it needs no look at where it stands.
        let mut look = !memory.whole;
        loop {
            let may_begin = self.casting.work.open_loop || !self.casting.stage.closing.get();
            if look {
                match self.standing(item.run).await {
                    None if !may_begin => return None,
                    None if item.stands_by => {
                        self.world.sleep(third).await;
                        continue;
                    }
                    Some(RunStanding { state: RunState::Ended(_), .. }) if !memory.asked_end => return None,
                    _ => {}
                }
            } else if !may_begin && memory.began.is_none() {
                return None;
            }
            if !item.stands_by {
                memory.began.get_or_insert(self.world.now());
            }
            let asked = self.world.now();
            let said = {
                let _asking = memory.meter.ask();
                self.lines.ask(None, third, None, self.take_up(item)).await
            };
            match said {
                Some(Ok(outcomes)) => {
                    let fence = granted(&outcomes).unwrap_or_default();
                    memory.whole &= fence == Fence(1);
                    memory.began.get_or_insert(self.world.now());
                    let ttl = self.casting.scenario.ledger.lease;
                    let lock = Lock::Run(super::TENANT, item.run);
                    if let Some(hold) = Hold::begun(&self.lines, lock, fence, ttl, asked) {
                        return Some(hold);
                    }
                }
                Some(Err(Refusal::Lease(
                    lease::Refusal::Held { .. }
                    | lease::Refusal::WaiterExpired { .. }
                    | lease::Refusal::Suspended { .. },
                )))
                | None => {}
                Some(Err(Refusal::Admit(admit::Refusal::Halted { .. }))) => self.world.sleep(third).await,
                // Past a quota, another's by name, or gone: nothing that asking again today would mend.
                Some(Err(_)) => return None,
            }
            (look, memory.whole) = (true, false);
        }
    }

    /// The request that takes a run up: a standby only takes its lease.
    fn take_up(&self, item: &Item) -> Vec<Command> {
        let acquire = Command::Lease(lease::Command::Acquire {
            lock: Lock::Run(super::TENANT, item.run),
            executor: self.lines.executor(),
            ttl_ns: nanos(self.casting.scenario.ledger.lease),
        });
        if item.stands_by {
            return vec![acquire];
        }
        let spawn = Command::Run(run::Command::Spawn {
            run: item.run,
            user: item.user,
            task: TaskId(1),
            workflow_version: 1,
            purpose: Purpose::Work,
            depth: item.depth(),
        });
        vec![spawn, acquire]
    }

    async fn standing(&self, run: RunId) -> Option<RunStanding> {
        match self.lines.query(Query::Run(super::TENANT, run), None).await {
            Some(Answer::Run(standing)) => standing,
            _ => None,
        }
    }

    /// Works on a run for as long as its lease is held.
    async fn work(self: &Rc<Self>, item: &Item, hold: &Rc<Hold>, memory: &mut Memory) -> Worked {
        let (news, mut newspaper) = mpsc::unbounded_channel();
        let (item, hold, meter, unheard) = (item.clone(), hold.clone(), memory.meter.clone(), RefCell::default());
        let on_the_wire = RefCell::default();
        let halted = memory.halted.clone();
        let stint = Rc::new(Stint { item, hold, meter, news, unheard, on_the_wire, halted });
        let keeping = stint.clone();
        let keeper = self.world.spawn(async move {
            keeping.hold.clone().keep().await;
            let _gone = keeping.news.send(News::Lost);
        });
        let worked = self.work_in_rounds(&stint, &mut newspaper, memory).await;
        keeper.cancel();
        if matches!(worked, Worked::Lost) {
            self.report_late(&stint);
        }
        worked
    }

    async fn work_in_rounds(
        self: &Rc<Self>,
        stint: &Rc<Stint>,
        newspaper: &mut mpsc::UnboundedReceiver<News>,
        memory: &mut Memory,
    ) -> Worked {
        let mut known = if memory.whole { Some(Known::new()) } else { None };
        let mut suspensions = 0;
        loop {
            let Some(units) = &mut known else {
                let read = {
                    let _asking = memory.meter.ask();
                    self.standing(stint.item.run).await
                };
                match read {
                    Some(RunStanding { state: RunState::Ended(ending), .. }) => return Worked::Over(ending),
                    Some(RunStanding { units, suspensions: before, .. }) => {
                        (known, suspensions) = (Some(known_of(&units)), before);
                    }
                    None => known = Some(Known::new()),
                }
                continue;
            };
            if !stint.hold.is_current() {
                return Worked::Lost;
            }
            match next(&stint.item, units, memory, self.casting.work.open_loop) {
                Next::Work(jobs) if suspensions == 0 && awaits_approval(&stint.item, &jobs) => {
                    match self.suspend(stint, memory).await {
                        Err(Lost) => return Worked::Lost,
                        Ok(true) => return Worked::Suspended,
                        Ok(false) => {
                            known = None; // it was cancelled, or suspended by a request thought lost
                            self.pause_after_odd_round(memory).await;
                        }
                    }
                }
                Next::Work(jobs) => {
                    let round = Rc::new(Round::new(jobs));
                    match self.play(stint, &round, newspaper, memory).await {
                        Played::Through => {}
                        Played::Ended(ending) => return Worked::Over(ending),
                        Played::Lost => return Worked::Lost,
                    }
                    memory.calls += round.settled();
                    memory.given_up.extend(round.given_up());
                    if round.went_by_the_book() {
                        take_in(units, &round);
                        memory.odd_rounds = 0;
                    } else {
                        known = None;
                        self.report_unheard(stint).await;
                        self.pause_after_odd_round(memory).await;
                    }
                }
                Next::End(ending) => {
                    match self.end(stint, ending, memory).await {
                        Err(Lost) => return Worked::Lost,
                        Ok(true) => return Worked::Over(ending),
                        Ok(false) => {
                            known = None; // a request thought lost was decided after all
                            self.pause_after_odd_round(memory).await;
                        }
                    }
                }
            }
        }
    }

    /// The first odd round is followed at once by another look, any further one after a pause.
    async fn pause_after_odd_round(&self, memory: &mut Memory) {
        if memory.odd_rounds > 0 {
            self.world.sleep(SECOND_LOOK * (1 << memory.odd_rounds.min(7) >> 1)).await;
        }
        memory.odd_rounds += 1;
    }

    /// Works on a round's jobs until all its lanes have ended, or the lease is lost and all are stopped. Once a unit is given
    /// up no further one is begun, and the run's end is asked for; while calls are on the wire the ledger says no to that.
    async fn play(
        self: &Rc<Self>,
        stint: &Rc<Stint>,
        round: &Rc<Round>,
        newspaper: &mut mpsc::UnboundedReceiver<News>,
        memory: &mut Memory,
    ) -> Played {
        let jobs = round.jobs();
        let lanes = if self.casting.work.open_loop { jobs } else { jobs.min(LANES) };
        let tasks: Vec<Task<()>> = (0..lanes).map(|_| self.start_lane(stint, round)).collect();
        let stopped = |how| {
            tasks.iter().for_each(Task::cancel);
            how
        };
        let (mut running, mut may_ask_end) = (lanes, true);
        while running > 0 {
            match newspaper.recv().await {
                Some(News::LaneOver) => running -= 1,
                Some(News::GivenUp) if self.casting.work.open_loop => {} // its other calls are due all the same
                Some(News::GivenUp) => {
                    round.begin_no_more();
                    if running > 1 && std::mem::take(&mut may_ask_end) {
                        let ending = memory.halted.get().map_or(Ending::Incomplete, Ending::Halted);
                        match self.end(stint, ending, memory).await {
                            Ok(true) => return stopped(Played::Ended(ending)),
                            Ok(false) => {}
                            Err(Lost) => return stopped(Played::Lost),
                        }
                    }
                }
                Some(News::Halted(reason)) => {
                    memory.halted.set(memory.halted.get().or(Some(reason)));
                    round.begin_no_more();
                }
                Some(News::Cancelled) => {
                    memory.cancelled = true;
                    round.begin_no_more();
                }
                Some(News::Lost) | None => {
                    stint.hold.let_go();
                    return stopped(Played::Lost);
                }
            }
        }
        Played::Through
    }

    /// Has the run wait for its approval; whether the ledger recorded that, and with it that the lease is given up.
    async fn suspend(&self, stint: &Stint, memory: &Memory) -> Result<bool, Lost> {
        self.casting.stage.leave_to_owner();
        let _asking = memory.meter.ask();
        let suspend = Command::Run(run::Command::Suspend { run: stint.item.run });
        Ok(stint.hold.ask_while_held(vec![suspend]).await?.is_ok())
    }

    /// Asks for the run's end; whether the ledger recorded it.
    async fn end(&self, stint: &Stint, ending: Ending, memory: &mut Memory) -> Result<bool, Lost> {
        memory.asked_end = true;
        let _asking = memory.meter.ask();
        let end = Command::Run(run::Command::End { run: stint.item.run, outcome: ending });
        let said = stint.hold.ask_while_held(vec![end.clone()]).await?;
        if said.is_ok() {
            self.report_again(&stint.hold, &[end]);
        }
        Ok(said.is_ok())
    }
}

fn known_of(units: &[kernel::request::UnitStanding]) -> Known {
    let open = |at: &kernel::request::UnitStanding| {
        let phase = at.intent.map_or(Phase::Dispatched, |intent| intent.phase);
        at.reservation.filter(|_| at.open).map(|key| Open { key, phase })
    };
    units.iter().map(|at| (at.unit, (at.attempt, at.state, open(at)))).collect()
}

/// What comes next, by where the units stand: first whatever is still running anywhere and, if nothing failed for good, the
/// earliest stage that has work left; then the end. In an open loop every unit has its turn. In a run that
/// is stopped only what is still running has.
fn next(item: &Item, known: &Known, memory: &Memory, open_loop: bool) -> Next {
    let (given_up, halted, cancelled) = (&memory.given_up, memory.halted.get(), memory.cancelled);
    let (mut jobs, mut failed, mut is_left) = (Vec::new(), false, false);
    let mut stages: Vec<u32> = item.units.iter().map(|unit| unit.stage).collect();
    stages.sort_unstable();
    stages.dedup();
    for stage in stages {
        let of_stage = || item.units.iter().filter(|unit| unit.stage == stage);
        failed |= of_stage().any(|unit| has_failed(unit, known.get(&unit.unit), given_up));
        let may_begin = halted.is_none() && !cancelled && (open_loop || !failed && jobs.is_empty());
        for unit in of_stage() {
            match job(unit, known.get(&unit.unit), given_up) {
                Some(job) if may_begin || job.open.is_some() => jobs.push(job),
                Some(_) => is_left = true,
                None => {}
            }
        }
    }
    if !jobs.is_empty() {
        return Next::Work(jobs);
    }
    Next::End(match (failed, halted) {
        _ if cancelled && (failed || is_left) => Ending::Cancelled,
        (_, Some(reason)) if failed || is_left => Ending::Halted(reason),
        (true, _) => Ending::Incomplete,
        (false, _) => Ending::Complete,
    })
}

/// Takes in how a round went that went by the book. What was found running and then given up runs no more, and must not be taken up
/// as it was found.
fn take_in(known: &mut Known, round: &Round) {
    known.extend(round.succeeded().map(|(unit, attempt)| (unit, (attempt, AttemptState::Succeeded, None))));
    for unit in round.given_up() {
        known.remove(&unit);
    }
}

/// Whether a run has to wait for an approval before any of these jobs, none of which has begun.
fn awaits_approval(item: &Item, jobs: &[Job]) -> bool {
    let not_yet = |before: u32| jobs.iter().all(|job| job.open.is_none() && job.unit.stage >= before);
    item.orders.approval.is_some_and(|approval| not_yet(approval.before_stage))
}

/// Whether a unit will not succeed any more.
fn has_failed(unit: &Unit, at: Option<&At>, given_up: &BTreeSet<UnitId>) -> bool {
    let succeeded = at.is_some_and(|(_, state, _)| *state == AttemptState::Succeeded);
    !succeeded && job(unit, at, given_up).is_none()
}

/// What is left to do for a unit; `None` when it has succeeded or will not be tried again.
fn job(unit: &Unit, at: Option<&At>, given_up: &BTreeSet<UnitId>) -> Option<Job> {
    let job = |attempt, open, is_queued| Job { unit: *unit, attempt, open, is_queued };
    match at {
        Some((attempt, AttemptState::Running, open)) => Some(job(*attempt, *open, false)),
        _ if given_up.contains(&unit.unit) => None,
        None => Some(job(1, None, false)),
        Some((attempt, AttemptState::Pending, _)) => Some(job(*attempt, None, true)),
        Some((attempt, AttemptState::Failed | AttemptState::Cancelled | AttemptState::TimedOut, _)) => {
            (*attempt < MOST_ATTEMPTS).then(|| job(attempt + 1, None, false))
        }
        Some((_, AttemptState::Succeeded | AttemptState::Indeterminate, _)) => None,
    }
}
