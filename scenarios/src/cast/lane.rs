//! A lane works on a run's units one at a time: begin, dispatch, call, report. A fault may drop it at any await.
//!
//! Whatever a lane finds begun it goes on with as its intent's class allows: what never left leaves now; what may have left is
//! sent again if it is idempotent, looked for if it is queryable, and left to the owner if it is unsafe.

use super::{
    TENANT,
    agent::{Agent, MOST_ATTEMPTS},
    asking::{Hold, Lost, answered},
    meter::Meter,
    provider::latency,
    tool,
    wire::{CallAnswer, ToProvider, body_of},
};
use crate::{
    fact::{Answered, Fact},
    workload::{Item, Unit},
};
use kernel::{
    admit,
    effect::{self, Class, Effect, Key, Phase},
    id::{ModelId, ReservationId, UnitId},
    money::MicroUsd,
    planted,
    planted::Bug,
    request::{Command, Outcome, Refusal},
    reserve,
    run::{self, AttemptState, HaltReason},
};
use sim::{Task, Time};
use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, VecDeque},
    rc::Rc,
    time::Duration,
};
use tokio::sync::mpsc;

/// Copies of a call that are sent under one key, each after waiting longer than the last; then its outcome is unknown.
const COPIES: u32 = 4;
/// What a call's answer may take beyond the most it should, before the call is sent again.
const GRACE: Duration = Duration::from_secs(1);
/// How many lease terms a lane waits for its turn at a slot before it asks again. More than one: a waiter may outlast the
/// lease it asked under, and only the fence keeps a slot that comes free from going to a holder that is gone.
const SLOT_TERMS: u32 = 2;
/// How long a report goes unanswered before the lane makes it anew; each time twice as long.
const ANEW: Duration = Duration::from_secs(5);
/// How often a lane asks whether a call landed.
const LOOKS: usize = 3;
/// The first pause after the provider turned a call away, at its usual speed; it doubles, and is spread over as much again.
const BACKOFF_NS: u64 = 1_000_000_000;

/// One holding of one run.
pub(super) struct Stint {
    pub(super) item: Item,
    pub(super) hold: Rc<Hold>,
    pub(super) meter: Rc<Meter>,
    pub(super) news: mpsc::UnboundedSender<News>,
    /// Reports that were begun and that no lane knows to be taken, or to be refused for another reason than a lost lease.
    pub(super) unheard: RefCell<BTreeMap<UnitId, Vec<Command>>>,
    /// Calls that were sent and whose answer no lane has. Boxed: there are few, and an ordered map takes memory for eleven.
    pub(super) on_the_wire: RefCell<BTreeMap<UnitId, Box<Job>>>,
    /// What a lane heard that is to end the run halted.
    pub(super) halted: Rc<Cell<Option<HaltReason>>>,
}

/// What whoever sees a run through is told.
pub(super) enum News {
    /// A lane has ended, or was cancelled.
    LaneOver,
    /// A unit was given up, and with it the run's completion.
    GivenUp,
    /// A unit was not begun, and the run is to end halted.
    Halted(HaltReason),
    /// The run was cancelled, and a unit was not begun for it.
    Cancelled,
    /// The lease is not held any more.
    Lost,
}

/// One unit's work, from where it stands.
#[derive(Clone, Copy)]
pub(super) struct Job {
    pub(super) unit: Unit,
    pub(super) attempt: u32,
    /// What there is of the attempt, if it is running already.
    pub(super) open: Option<Open>,
    /// Whether the attempt is queued.
    pub(super) is_queued: bool,
}

/// A running attempt: its reservation, and how far its intent is.
#[derive(Clone, Copy)]
pub(super) struct Open {
    pub(super) key: ReservationId,
    pub(super) phase: Phase,
}

/// Jobs done side by side, and what became of them.
pub(super) struct Round {
    jobs: usize,
    queue: RefCell<VecDeque<Job>>,
    /// Jobs taken off the queue because the run cannot be completed any more.
    dropped: Cell<usize>,
    succeeded: RefCell<Vec<(UnitId, u32)>>,
    given_up: RefCell<Vec<UnitId>>,
}

impl Round {
    pub(super) fn new(jobs: Vec<Job>) -> Round {
        let (count, queue) = (jobs.len(), RefCell::new(jobs.into()));
        let dropped = Cell::new(0);
        Round { jobs: count, queue, dropped, succeeded: RefCell::default(), given_up: RefCell::default() }
    }

    /// Begins no further job, except those that are running already.
    pub(super) fn begin_no_more(&self) {
        let mut queue = self.queue.borrow_mut();
        let before = queue.len();
        queue.retain(|job| job.open.is_some());
        self.dropped.set(self.dropped.get() + before - queue.len());
    }

    /// How many jobs it began with.
    pub(super) fn jobs(&self) -> usize {
        self.jobs
    }

    /// Calls settled in it.
    pub(super) fn settled(&self) -> u32 {
        self.succeeded.borrow().len() as u32
    }

    /// Units that succeeded, with their attempts.
    pub(super) fn succeeded(&self) -> impl Iterator<Item = (UnitId, u32)> {
        self.succeeded.borrow().clone().into_iter()
    }

    /// Units that will not be tried again.
    pub(super) fn given_up(&self) -> Vec<UnitId> {
        self.given_up.borrow().clone()
    }

    /// Whether every job ended with a known result; not so when a lane was cancelled or met something it cannot explain.
    pub(super) fn went_by_the_book(&self) -> bool {
        self.succeeded.borrow().len() + self.given_up.borrow().len() + self.dropped.get() == self.jobs
    }
}

/// How an attempt began.
enum Begun {
    /// Its intent is pending, or was found further.
    Running(Open),
    /// It was given an answer that was paid for before.
    Recalled,
}

/// What came of a dispatch.
enum Dispatched {
    /// The call may leave.
    Leaves,
    /// Another has asked or asks the question; the attempt is cancelled, and the next one may begin.
    Superseded,
}

/// How a job ended.
enum Ended {
    Succeeded(u32),
    GivenUp,
    /// It was not begun, and will not be: the run is to end halted.
    Halted(HaltReason),
    /// The run was cancelled: nothing more of it is begun.
    Cancelled,
    /// The ledger's answer does not fit what the lane knows: the run must be read again.
    Puzzled,
    Lost,
}

/// Tells the news of a lane's end even when the lane is dropped.
struct Telling(mpsc::UnboundedSender<News>);

impl Drop for Telling {
    fn drop(&mut self) {
        let _gone = self.0.send(News::LaneOver);
    }
}

impl Agent {
    /// Starts a lane that takes jobs off the round until none is left.
    pub(super) fn start_lane(self: &Rc<Self>, stint: &Rc<Stint>, round: &Rc<Round>) -> Task<()> {
        let (agent, stint, round) = (self.clone(), stint.clone(), round.clone());
        let telling = Telling(stint.news.clone());
        self.world.spawn_cancellable(async move {
            let _telling = telling;
            loop {
                let Some(job) = round.queue.borrow_mut().pop_front() else { break };
                match agent.work_on(&stint, &job).await {
                    Ended::Succeeded(attempt) => round.succeeded.borrow_mut().push((job.unit.unit, attempt)),
                    Ended::GivenUp => {
                        round.given_up.borrow_mut().push(job.unit.unit);
                        let _gone = stint.news.send(News::GivenUp);
                    }
                    Ended::Halted(reason) => {
                        round.given_up.borrow_mut().push(job.unit.unit);
                        let _gone = stint.news.send(News::Halted(reason));
                    }
                    Ended::Cancelled => {
                        round.given_up.borrow_mut().push(job.unit.unit);
                        let _gone = stint.news.send(News::Cancelled);
                    }
                    Ended::Puzzled => {}
                    Ended::Lost => {
                        let _gone = stint.news.send(News::Lost);
                        break;
                    }
                }
            }
        })
    }

    async fn work_on(&self, stint: &Stint, job: &Job) -> Ended {
        let Job { ref unit, mut attempt, mut open, mut is_queued } = *job;
        let early = Time(unit.due_ns).since(self.world.now());
        if !early.is_zero() {
            self.world.sleep(early).await;
        }
        loop {
            let begun = match open.take() {
                Some(open) => Begun::Running(open),
                None => match self.begin(stint, unit, attempt, std::mem::take(&mut is_queued)).await {
                    Ok(begun) => begun,
                    Err(ended) => return ended,
                },
            };
            let Open { key, phase } = match begun {
                Begun::Running(open) => open,
                Begun::Recalled => return Ended::Succeeded(attempt),
            };
            let told = match phase {
                Phase::Pending if self.leaves_early(stint, key) => self.call(stint, unit, attempt, key).await,
                Phase::Pending => match self.dispatch(stint, unit, attempt, key).await {
                    Ok(Dispatched::Leaves) => self.call(stint, unit, attempt, key).await,
                    Ok(Dispatched::Superseded) => {
                        attempt += 1;
                        continue;
                    }
                    Err(ended) => return ended,
                },
                Phase::Dispatched | Phase::Committed => Box::pin(self.recover(stint, unit, attempt, key)).await,
            };
            let Ok(answer) = told else { return Ended::Lost };
            let Some(answer) = answer else {
                self.casting.stage.leave_to_owner();
                let end = end_attempt(stint, unit, attempt, AttemptState::Indeterminate);
                return self.report(stint, unit, vec![end]).await.err().unwrap_or(Ended::GivenUp);
            };
            if answer.answered == Answered::Ok {
                let succeeded = succeeded(stint, unit, attempt, key, answer);
                return self.report(stint, unit, succeeded).await.err().unwrap_or(Ended::Succeeded(attempt));
            }
            let no_credit = matches!(answer.answered, Answered::NoCredit { .. });
            if no_credit {
                stint.halted.set(stint.halted.get().or(Some(HaltReason::Key)));
            }
            let goes_on = attempt < MOST_ATTEMPTS && !no_credit;
            let mut commands = self.turned_away(stint, unit, attempt, key, answer);
            is_queued = goes_on && commands.len() > 1;
            commands.extend(is_queued.then(|| queue(stint, unit, attempt + 1)));
            if let Err(ended) = self.report(stint, unit, commands).await {
                return ended;
            }
            if !goes_on {
                return if no_credit { Ended::Halted(HaltReason::Key) } else { Ended::GivenUp };
            }
            self.back_off(attempt).await;
            attempt += 1;
        }
    }

    /// Passes the edge, and then begins an attempt, or is given the answer if its question was answered before. Refused for slots
    /// alone, or because another asks the same, it waits its turn; when its term ends the run is read again, and an attempt that
    /// was queued is timed out.
    async fn begin(&self, stint: &Stint, unit: &Unit, attempt: u32, is_queued: bool) -> Result<Begun, Ended> {
        use reserve::Refusal::{NoCap, NoPrice, NoSlot, Nothing, OverCap, TooMuch, WaiterExpired};
        let price = self.casting.scenario.provider.price;
        let worst = price.cost(unit.most).unwrap_or(MicroUsd::MAX).max(MicroUsd(1));
        let wait = self.casting.scenario.ledger.lease * SLOT_TERMS;
        let (run, model, effect) = (stint.item.run, price.model, effect_of(stint, unit, price.model));
        self.lines.pass_edge(stint.item.user, &stint.hold).await.map_err(|Lost| Ended::Lost)?;
        let _asking = stint.meter.ask();
        loop {
            let begin = effect::Command::Begin { run, unit: unit.unit, attempt, effect, model, worst };
            let refusal = match stint.hold.ask(wait, None, vec![Command::Effect(begin)]).await {
                Err(Lost) => return Err(Ended::Lost),
                Ok(None) => continue,
                Ok(Some(Ok(outcomes))) => return self.begun(stint, unit, &outcomes).ok_or(Ended::Puzzled),
                Ok(Some(Err(refusal))) => refusal,
            };
            match refusal {
                // The slots may be taken, or the question asked, by what lanes of this very run left open, which is seen to once
                // the run is read again.
                Refusal::Reserve(NoSlot { .. } | WaiterExpired { .. })
                | Refusal::Effect(effect::Refusal::InFlight { .. }) => {
                    if is_queued {
                        let late = end_attempt(stint, unit, attempt, AttemptState::TimedOut);
                        self.report(stint, unit, vec![late]).await?;
                    }
                    return Err(Ended::Puzzled);
                }
                Refusal::Admit(admit::Refusal::Halted { .. }) => return Err(Ended::Halted(HaltReason::Owner)),
                Refusal::Admit(_) => return Err(Ended::GivenUp),
                Refusal::Run(run::Refusal::Cancelled { .. }) => return Err(Ended::Cancelled),
                Refusal::Reserve(OverCap { .. } | NoCap { .. } | NoPrice { .. } | Nothing | TooMuch { .. }) => {
                    return Err(Ended::GivenUp);
                }
                _ => return Err(Ended::Puzzled),
            }
        }
    }

    /// What came of a request that began an attempt. An answer that was remembered is looked into, as any is once it is durable.
    fn begun(&self, stint: &Stint, unit: &Unit, outcomes: &[Outcome]) -> Option<Begun> {
        match outcomes {
            [Outcome::Effect(effect::Outcome::Begun(key))] => {
                Some(Begun::Running(Open { key: *key, phase: Phase::Pending }))
            }
            [Outcome::Effect(effect::Outcome::Recalled { source, response })] => {
                let right = body_of(unit.content(stint.item.run, self.casting.scenario.provider.price.model));
                if CallAnswer::read(response).is_none_or(|answer| answer.body != right) {
                    let (run, unit, source) = (stint.item.run, unit.unit, *source);
                    Fact::Misled { tenant: TENANT, run, unit, source }.note(&self.world);
                }
                Some(Begun::Recalled)
            }
            _ => None,
        }
    }

    /// [`Bug::LeaveEarly`]: whether the call leaves now, its dispatch being on its way.
    fn leaves_early(&self, stint: &Stint, key: ReservationId) -> bool {
        self.casting.planted.reach(Bug::LeaveEarly);
        let leaves = self.casting.planted.is_on(Bug::LeaveEarly);
        if leaves {
            let dispatch = Command::Effect(effect::Command::Dispatch { intent: key });
            let hold = stint.hold.clone();
            self.world.spawn(async move {
                let _too_late = hold.ask(Duration::ZERO, None, vec![dispatch]).await;
            });
        }
        leaves
    }

    /// States that the call is about to leave. Halted, or cancelled, or answered or led by another meanwhile, the attempt is
    /// cancelled: nothing of it has left.
    async fn dispatch(
        &self,
        stint: &Stint,
        unit: &Unit,
        attempt: u32,
        key: ReservationId,
    ) -> Result<Dispatched, Ended> {
        let dispatch = Command::Effect(effect::Command::Dispatch { intent: key });
        let said = {
            let _asking = stint.meter.ask();
            stint.hold.ask(Duration::ZERO, None, vec![dispatch]).await
        };
        let (after, outcome) = match said {
            Err(Lost) => return Err(Ended::Lost),
            // A lane that was cancelled over its answer had asked for it, and nothing left then.
            Ok(
                Some(Ok(_)) | Some(Err(Refusal::Effect(effect::Refusal::WrongPhase { phase: Phase::Dispatched, .. }))),
            ) => {
                return Ok(Dispatched::Leaves);
            }
            Ok(Some(Err(Refusal::Admit(admit::Refusal::Halted { .. })))) => {
                (Some(Ended::Halted(HaltReason::Owner)), None)
            }
            Ok(Some(Err(Refusal::Run(run::Refusal::Cancelled { .. })))) => (Some(Ended::Cancelled), None),
            Ok(Some(Err(Refusal::Effect(
                effect::Refusal::InFlight { .. } | effect::Refusal::AnsweredMeanwhile { .. },
            )))) => (None, Some(Dispatched::Superseded)),
            Ok(Some(Err(_)) | None) => return Err(Ended::Puzzled),
        };
        let release = Command::Reserve(reserve::Command::Release { reservation: key });
        let cancelled = end_attempt(stint, unit, attempt, AttemptState::Cancelled);
        self.report(stint, unit, vec![release, cancelled]).await?;
        outcome.ok_or_else(|| after.unwrap_or(Ended::Puzzled))
    }

    /// What became of a call that may have left, as far as its class lets it be found out.
    async fn recover(
        &self,
        stint: &Stint,
        unit: &Unit,
        attempt: u32,
        key: ReservationId,
    ) -> Result<Option<CallAnswer>, Lost> {
        if let Some(known) = self.lines.known(key) {
            Fact::CallEnded { key, answered: Some(known.answered) }.note(&self.world);
            return Ok(Some(known));
        }
        match planted!(self.casting.planted, Bug::UnsafeRetried, unit.call.class, resendable(unit.call.class)) {
            Class::Idempotent => self.call(stint, unit, attempt, key).await,
            Class::Queryable => self.look(stint, unit, key).await,
            Class::Unsafe => Ok(None),
        }
    }

    /// Sends the call, again under the same key while no answer comes if it is idempotent, and else looks for it if it can be
    /// looked for; `None` if nothing was learned.
    async fn call(
        &self,
        stint: &Stint,
        unit: &Unit,
        attempt: u32,
        key: ReservationId,
    ) -> Result<Option<CallAnswer>, Lost> {
        let on_the_wire = stint.meter.call();
        let sent = Fact::CallSent {
            tenant: TENANT,
            run: stint.item.run,
            unit: unit.unit,
            attempt,
            user: stint.item.user,
            key,
            fence: stint.hold.authority().fence,
        };
        let may_be_sent = || {
            let current = stint.hold.is_current();
            if current {
                sent.note(&self.world);
            }
            current
        };
        let most = latency(&self.casting, 1, unit.most) + GRACE;
        let limits: [Duration; COPIES as usize] = std::array::from_fn(|copy| most * (1 << copy.saturating_sub(1)));
        let copies = if unit.call.class == Class::Idempotent { &limits[..] } else { &limits[2..3] };
        let model = self.casting.scenario.provider.price.model;
        let Effect { content, key: idempotency, .. } = effect_of(stint, unit, model);
        let (usage, user) = (unit.usage, stint.item.user);
        let mut message = ToProvider::Call { key, transmission: 0, idempotency, user, model, content, usage };
        let open = Some(Open { key, phase: Phase::Dispatched });
        let job = Box::new(Job { unit: *unit, attempt, open, is_queued: false });
        stint.on_the_wire.borrow_mut().insert(unit.unit, job);
        let answer = answered(self.lines.tell_provider(key, &mut message, copies, may_be_sent).await);
        if answer.is_none() && !stint.hold.is_current() {
            return Err(Lost);
        }
        stint.on_the_wire.borrow_mut().remove(&unit.unit);
        Fact::CallEnded { key, answered: answer.map(|answer| answer.answered) }.note(&self.world);
        drop(on_the_wire);
        if let Some(answer) = answer.filter(|_| unit.call.class != Class::Idempotent) {
            self.lines.remember(key, answer);
        }
        match unit.call.class {
            Class::Queryable if answer.is_none() => Box::pin(self.look(stint, unit, key)).await,
            _ => Ok(answer),
        }
    }

    /// Asks the provider whether the call landed; `None` if it does not say.
    async fn look(&self, stint: &Stint, unit: &Unit, key: ReservationId) -> Result<Option<CallAnswer>, Lost> {
        let _on_the_wire = stint.meter.call();
        let limits = [latency(&self.casting, 1, unit.most) + GRACE; LOOKS];
        let current = || stint.hold.is_current();
        let answer = answered(self.lines.tell_provider(key, &mut ToProvider::Look { key }, &limits, current).await);
        if answer.is_none() && !stint.hold.is_current() {
            return Err(Lost);
        }
        Ok(answer)
    }

    /// What is recorded of a call that is known not to have been charged.
    pub(super) fn turned_away(
        &self,
        stint: &Stint,
        unit: &Unit,
        attempt: u32,
        key: ReservationId,
        answer: CallAnswer,
    ) -> Vec<Command> {
        let commit = Command::Effect(effect::Command::Commit { intent: key, response: answer.raw() });
        let release = Command::Reserve(reserve::Command::Release { reservation: key });
        let never = answer.answered == Answered::NeverLanded;
        let state = if never { AttemptState::TimedOut } else { AttemptState::Failed };
        let over = end_attempt(stint, unit, attempt, state);
        let leaked = end_attempt(stint, unit, attempt, AttemptState::Indeterminate);
        planted!(self.casting.planted, Bug::ForgetRelease, vec![commit, release, over], vec![leaked])
    }

    /// Reports how an attempt ended; long unanswered it reports anew, under another number. Should both be decided, the second
    /// is refused, and the run is read again. Of a run that was cancelled no next attempt is queued.
    async fn report(&self, stint: &Stint, unit: &Unit, mut commands: Vec<Command>) -> Result<(), Ended> {
        let _asking = stint.meter.ask();
        stint.unheard.borrow_mut().insert(unit.unit, commands.clone());
        let (mut patience, mut reported) = (ANEW, Ok(()));
        let decided = loop {
            match stint.hold.ask(Duration::ZERO, Some(patience), commands.clone()).await {
                Ok(Some(Ok(_))) => break reported,
                Ok(Some(Err(Refusal::Run(run::Refusal::Cancelled { .. } | run::Refusal::Ended { .. }))))
                    if matches!(commands.last(), Some(Command::Run(run::Command::Queue { .. }))) =>
                {
                    commands.pop();
                    stint.unheard.borrow_mut().insert(unit.unit, commands.clone());
                    reported = Err(Ended::Cancelled);
                }
                Ok(Some(Err(_))) => break Err(Ended::Puzzled),
                Ok(None) => patience *= 2,
                Err(Lost) => return Err(Ended::Lost), // and the report is left to be made late
            }
        };
        stint.unheard.borrow_mut().remove(&unit.unit);
        if decided.is_ok() {
            self.report_again(&stint.hold, &commands);
        }
        decided
    }

    /// Reports again what lanes were cancelled over. What was decided already is refused now, and that is all right: the run
    /// is read after it.
    pub(super) async fn report_unheard(&self, stint: &Stint) {
        let unheard = std::mem::take(&mut *stint.unheard.borrow_mut());
        for commands in unheard.into_values() {
            let _asking = stint.meter.ask();
            let _refused_if_repeated = stint.hold.ask_while_held(commands).await;
        }
    }

    async fn back_off(&self, attempt: u32) {
        let least_ns = (BACKOFF_NS << (attempt - 1)) / self.casting.scenario.provider.speedup.max(1);
        self.world.sleep(Duration::from_nanos(least_ns + self.world.random() % least_ns.max(1))).await;
    }
}

/// What is recorded of a call that was answered: the raw bytes first.
pub(super) fn succeeded(
    stint: &Stint,
    unit: &Unit,
    attempt: u32,
    key: ReservationId,
    answer: CallAnswer,
) -> Vec<Command> {
    let commit = Command::Effect(effect::Command::Commit { intent: key, response: answer.raw() });
    let settle = Command::Reserve(reserve::Command::Settle { reservation: key, usage: answer.usage });
    vec![commit, settle, end_attempt(stint, unit, attempt, AttemptState::Succeeded)]
}

/// The call that a unit makes, under the key that its tool's class asks for.
fn effect_of(stint: &Stint, unit: &Unit, model: ModelId) -> Effect {
    let (tool, content) = (tool(unit.call.class), unit.content(stint.item.run, model));
    let key = (unit.call.class == Class::Idempotent).then(|| Key::derived(TENANT, tool, content));
    Effect { tool, content, key }
}

/// The class that [`Bug::UnsafeRetried`] takes an unsafe one for.
fn resendable(class: Class) -> Class {
    if class == Class::Unsafe { Class::Idempotent } else { class }
}

fn queue(stint: &Stint, unit: &Unit, attempt: u32) -> Command {
    Command::Run(run::Command::Queue { run: stint.item.run, unit: unit.unit, attempt })
}

fn end_attempt(stint: &Stint, unit: &Unit, attempt: u32, state: AttemptState) -> Command {
    Command::Run(run::Command::EndAttempt { run: stint.item.run, unit: unit.unit, attempt, state })
}
