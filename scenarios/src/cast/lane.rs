//! A lane works on a run's units one at a time: reserve, call, settle. A fault may drop it at any await.

use super::{
    TENANT,
    agent::{Agent, MOST_ATTEMPTS, reserved},
    asking::{Hold, Lost, answered},
    meter::Meter,
    provider::latency,
    wire::ToProvider,
};
use crate::{
    fact::{Answered, Fact},
    workload::{Item, Unit},
};
use kernel::{
    admit,
    id::{ReservationId, UnitId},
    money::{MicroUsd, Usage},
    planted,
    planted::Bug,
    request::{Command, Refusal},
    reserve,
    run::{self, AttemptState},
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
    /// Calls that were sent and whose answer no lane has.
    pub(super) on_the_wire: RefCell<BTreeMap<UnitId, Job>>,
}

/// What whoever sees a run through is told.
pub(super) enum News {
    /// A lane has ended, or was cancelled.
    LaneOver,
    /// A unit was given up, and with it the run's completion.
    GivenUp,
    /// A halt is on, and a unit was not begun for it.
    Halted,
    /// The lease is not held any more.
    Lost,
}

/// One unit's work, from where it stands.
#[derive(Clone, Copy)]
pub(super) struct Job {
    pub(super) unit: Unit,
    pub(super) attempt: u32,
    /// The attempt's reservation, if it is running already.
    pub(super) open: Option<ReservationId>,
}

/// Jobs done side by side, and what became of them.
pub(super) struct Round {
    jobs: usize,
    queue: RefCell<VecDeque<Job>>,
    /// Jobs taken off the queue because the run cannot be completed any more.
    dropped: Cell<usize>,
    succeeded: RefCell<Vec<(UnitId, (u32, ReservationId))>>,
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

    /// Units that succeeded, with their attempts and reservations.
    pub(super) fn succeeded(&self) -> impl Iterator<Item = (UnitId, (u32, ReservationId))> {
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

/// How a job ended.
enum Ended {
    Succeeded(u32, ReservationId),
    GivenUp,
    /// A halt is on: it was not begun, and will not be.
    Halted,
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
                match agent.work_on(&stint, job).await {
                    Ended::Succeeded(attempt, key) => {
                        round.succeeded.borrow_mut().push((job.unit.unit, (attempt, key)));
                    }
                    Ended::GivenUp => {
                        round.given_up.borrow_mut().push(job.unit.unit);
                        let _gone = stint.news.send(News::GivenUp);
                    }
                    Ended::Halted => {
                        round.given_up.borrow_mut().push(job.unit.unit);
                        let _gone = stint.news.send(News::Halted);
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

    async fn work_on(&self, stint: &Stint, job: Job) -> Ended {
        let Job { unit, mut attempt, mut open } = job;
        let early = Time(unit.due_ns).since(self.world.now());
        if !early.is_zero() {
            self.world.sleep(early).await;
        }
        loop {
            let key = match open.take() {
                Some(key) => key,
                None => match self.reserve(stint, &unit, attempt).await {
                    Ok(key) => key,
                    Err(ended) => return ended,
                },
            };
            let Ok(answer) = self.call(stint, &unit, attempt, key).await else { return Ended::Lost };
            match answer {
                Some((Answered::Ok, usage)) => {
                    return self
                        .report(stint, &unit, succeeded(stint, &unit, attempt, key, usage))
                        .await
                        .err()
                        .unwrap_or(Ended::Succeeded(attempt, key));
                }
                Some((answered @ (Answered::TooManyRequests | Answered::ServerError | Answered::NoCredit), _)) => {
                    if let Err(ended) = self.report(stint, &unit, self.turned_away(stint, &unit, attempt, key)).await {
                        return ended;
                    }
                    if attempt == MOST_ATTEMPTS || answered == Answered::NoCredit {
                        return Ended::GivenUp;
                    }
                    self.back_off(attempt).await;
                    attempt += 1;
                }
                None => {
                    self.casting.stage.leave_to_owner();
                    let end = end_attempt(stint, &unit, attempt, AttemptState::Indeterminate);
                    return self.report(stint, &unit, vec![end]).await.err().unwrap_or(Ended::GivenUp);
                }
            }
        }
    }

    /// Sets the unit's worst case aside. Refused for slots alone it waits its turn; when its term ends the run is read again.
    async fn reserve(&self, stint: &Stint, unit: &Unit, attempt: u32) -> Result<ReservationId, Ended> {
        use reserve::Refusal::{NoCap, NoPrice, NoSlot, Nothing, OverCap, TooMuch, WaiterExpired};
        let price = self.casting.scenario.provider.price;
        let worst = price.cost(unit.most).unwrap_or(MicroUsd::MAX).max(MicroUsd(1));
        let wait = self.casting.scenario.ledger.lease * SLOT_TERMS;
        let (run, unit, model) = (stint.item.run, unit.unit, price.model);
        let _asking = stint.meter.ask();
        loop {
            let reserve = Command::Reserve(reserve::Command::Reserve { run, unit, attempt, model, worst });
            let refusal = match stint.hold.ask(wait, None, vec![reserve]).await {
                Err(Lost) => return Err(Ended::Lost),
                Ok(None) => continue,
                Ok(Some(Ok(outcomes))) => return reserved(&outcomes).ok_or(Ended::Puzzled),
                Ok(Some(Err(refusal))) => refusal,
            };
            match refusal {
                // The slots may be taken by what lanes of this very run left open, which is seen to once the run is read again.
                Refusal::Reserve(NoSlot { .. } | WaiterExpired { .. }) => return Err(Ended::Puzzled),
                Refusal::Admit(admit::Refusal::Halted { .. }) => return Err(Ended::Halted),
                Refusal::Admit(_) => return Err(Ended::GivenUp),
                Refusal::Reserve(OverCap { .. } | NoCap { .. } | NoPrice { .. } | Nothing | TooMuch) => {
                    return Err(Ended::GivenUp);
                }
                _ => return Err(Ended::Puzzled),
            }
        }
    }

    /// Sends the call, again under the same key while no answer comes; `None` if none came at all.
    async fn call(
        &self,
        stint: &Stint,
        unit: &Unit,
        attempt: u32,
        key: ReservationId,
    ) -> Result<Option<(Answered, Usage)>, Lost> {
        let _on_the_wire = stint.meter.call();
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
        let message = ToProvider::Call { key, model: self.casting.scenario.provider.price.model, usage: unit.usage };
        stint.on_the_wire.borrow_mut().insert(unit.unit, Job { unit: *unit, attempt, open: Some(key) });
        let answer = answered(self.lines.tell_provider(key, message, &limits, may_be_sent).await);
        if answer.is_none() && !stint.hold.is_current() {
            return Err(Lost);
        }
        stint.on_the_wire.borrow_mut().remove(&unit.unit);
        Fact::CallEnded { key, answered: answer.map(|(answered, _)| answered) }.note(&self.world);
        Ok(answer)
    }

    /// What is recorded of a call that is known not to have been charged.
    pub(super) fn turned_away(&self, stint: &Stint, unit: &Unit, attempt: u32, key: ReservationId) -> Vec<Command> {
        let release = Command::Reserve(reserve::Command::Release { reservation: key });
        let failed = end_attempt(stint, unit, attempt, AttemptState::Failed);
        let leaked = end_attempt(stint, unit, attempt, AttemptState::Indeterminate);
        planted!(self.casting.planted, Bug::ForgetRelease, vec![release, failed], vec![leaked])
    }

    /// Reports how an attempt ended; long unanswered it reports anew, under another number. Should both be decided, the second
    /// is refused, and the run is read again.
    async fn report(&self, stint: &Stint, unit: &Unit, commands: Vec<Command>) -> Result<(), Ended> {
        let _asking = stint.meter.ask();
        stint.unheard.borrow_mut().insert(unit.unit, commands.clone());
        let mut patience = ANEW;
        let decided = loop {
            match stint.hold.ask(Duration::ZERO, Some(patience), commands.clone()).await {
                Ok(Some(Ok(_))) => break Ok(()),
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

/// What is recorded of a call that was answered.
pub(super) fn succeeded(stint: &Stint, unit: &Unit, attempt: u32, key: ReservationId, usage: Usage) -> Vec<Command> {
    let settle = Command::Reserve(reserve::Command::Settle { reservation: key, usage });
    vec![settle, end_attempt(stint, unit, attempt, AttemptState::Succeeded)]
}

fn end_attempt(stint: &Stint, unit: &Unit, attempt: u32, state: AttemptState) -> Command {
    Command::Run(run::Command::EndAttempt { run: stint.item.run, unit: unit.unit, attempt, state })
}
