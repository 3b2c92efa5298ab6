//! The model against batches made by hand: right ones pass, and each wrong answer, event or time is found.

use crate::invariant::history::{Answer::Decides, *};
use kernel::{
    admit::{self, DepthTier, Switch},
    id::{ClientId, ExecutorId, Fence, LedgerTime, ReservationId, RunId, TaskId, TenantId, UnitId, UserId},
    lease::{self, Authority, Lock},
    money::MicroUsd,
    record::Event,
    request::{Command, Decision, Outcome, Refusal, Reply, Request, Turn},
    reserve::{self, Account, Level},
    run::{self, AttemptState, Ending, Purpose},
    serve::BUSY,
};

/// A story of requests alone: genesis with caps of 1,000 and two slots, the run spawned, its lock granted to executor 7.
struct Play {
    story: Story,
    number: u64,
    now_ns: u64,
}

impl Play {
    fn begun() -> Play {
        let mut play = Play { story: Story::watched_by(&["model"]), number: 0, now_ns: 5_000 };
        let commands = vec![
            Command::Reserve(set_cap(Level::Unit, 1_000)),
            Command::Reserve(set_cap(Level::Run, 1_000)),
            Command::Reserve(set_cap(Level::UserDay, 1_000)),
            Command::Reserve(set_cap(Level::LedgerDay, 1_000)),
            Command::Reserve(reserve::Command::SetSlots { tenant: TENANT, slots: 2 }),
            Command::Reserve(reserve::Command::SetPrice(PRICE)),
        ];
        let genesis = Request { client: ClientId::LEDGER, ..request(0, None, commands) };
        let set = Ok(vec![Outcome::Reserve(reserve::Outcome::Set); 6]);
        play.batch(vec![Asked {
            request: genesis,
            waits_until_ns: 0,
            reply: Answer::Unrecorded(set),
            events: settings(1_000, 2),
        }]);
        play.asks(None, vec![spawn(RUN)], Ok(vec![Outcome::Run(run::Outcome::Spawned)]), vec![spawned(RUN)]);
        play.asks(None, vec![acquire(7)], held_until(1, TTL_NS), vec![granted(LOCK, 7, 1, TTL_NS)]);
        play.story.holds();
        play
    }

    fn batch(&mut self, batch: Vec<Asked>) {
        self.story.commits(self.now_ns, batch);
    }

    fn request(&mut self, authority: Option<Authority>, commands: Vec<Command>) -> Request {
        self.number += 1;
        request(self.number, authority, commands)
    }

    /// One request of client 7 in a batch of its own.
    fn asks(
        &mut self,
        authority: Option<Authority>,
        commands: Vec<Command>,
        outcome: Result<Vec<Outcome>, Refusal>,
        events: Vec<Event>,
    ) {
        let request = self.request(authority, commands);
        self.batch(vec![Asked { request, waits_until_ns: 0, reply: Decides(outcome), events }]);
    }

    /// A request that is refused.
    fn refused(&mut self, authority: Option<Authority>, command: Command, refusal: impl Into<Refusal>) {
        self.asks(authority, vec![command], Err(refusal.into()), vec![]);
        self.story.holds();
    }

    /// A reservation of a unit by the run's holder.
    fn reserves(&mut self, unit: u32, attempt: u32, worst: u64) -> ReservationId {
        let id = self.story.next();
        let outcome = Outcome::Reserve(reserve::Outcome::Reserved(id));
        let events = vec![reserved(id, unit, attempt, worst), started(id, unit, attempt)];
        self.asks(Some(held(7, 1)), vec![reserve(unit, attempt, worst)], Ok(vec![outcome]), events);
        id
    }

    fn ticks(&mut self, events: Vec<Event>) {
        let request =
            Request { client: ClientId::LEDGER, ..request(0, None, vec![Command::Lease(lease::Command::Tick)]) };
        let reply = Answer::Unrecorded(Ok(vec![Outcome::Lease(lease::Outcome::Ticked)]));
        self.batch(vec![Asked { request, waits_until_ns: 0, reply, events }]);
    }

    /// The run's lock is given back.
    fn yields(&mut self) {
        let yields = lease::Command::Yield { held: held(7, 1) };
        let outcome = Outcome::Lease(lease::Outcome::Yielded);
        self.asks(None, vec![Command::Lease(yields)], Ok(vec![outcome]), vec![yielded(LOCK, 1)]);
    }

    /// A request is told to wait, and for how long it may; its number.
    fn waits(&mut self, authority: Option<Authority>, command: Command, until_ns: u64, turn: Turn) -> u64 {
        let request = Request { wait_ns: 10, ..self.request(authority, vec![command]) };
        self.batch(vec![Asked {
            request,
            waits_until_ns: until_ns,
            reply: Answer::Replies(Reply::Waits(turn)),
            events: vec![],
        }]);
        self.story.holds();
        self.number
    }

    /// Time passes on the writer's clock.
    fn passes(&mut self, ns: u64) {
        self.now_ns += ns;
        self.story.ledger_ns += ns;
    }
}

fn set_cap(level: Level, cap: u64) -> reserve::Command {
    let tenant = if level == Level::LedgerDay { TenantId::LEDGER } else { TENANT };
    reserve::Command::SetCap { tenant, level, cap: MicroUsd(cap) }
}

fn spawn(run: RunId) -> Command {
    let (task, purpose) = (TaskId(1), Purpose::Work);
    let depth = DepthTier(1);
    Command::Run(run::Command::Spawn { run, user: USER, task, workflow_version: 1, purpose, depth })
}

fn spawn_of_another_user() -> Command {
    let Command::Run(run::Command::Spawn { run, task, workflow_version, purpose, depth, .. }) = spawn(RUN) else {
        unreachable!("a spawn spawns")
    };
    Command::Run(run::Command::Spawn { run, user: UserId(6), task, workflow_version, purpose, depth })
}

fn acquire(executor: u64) -> Command {
    Command::Lease(lease::Command::Acquire { lock: LOCK, executor: ExecutorId(executor), ttl_ns: TTL_NS })
}

fn held_until(fence: u64, until: u64) -> Result<Vec<Outcome>, Refusal> {
    Ok(vec![Outcome::Lease(lease::Outcome::Held { fence: Fence(fence), until: LedgerTime(until) })])
}

fn reserve(unit: u32, attempt: u32, worst: u64) -> Command {
    let (run, unit, model, worst) = (RUN, UnitId(unit), MODEL, MicroUsd(worst));
    Command::Reserve(reserve::Command::Reserve { run, unit, attempt, model, worst })
}

fn settle(reservation: ReservationId) -> Command {
    Command::Reserve(reserve::Command::Settle { reservation, usage: USAGE })
}

fn release(reservation: ReservationId) -> Command {
    Command::Reserve(reserve::Command::Release { reservation })
}

fn end_attempt(attempt: u32, state: AttemptState) -> Command {
    Command::Run(run::Command::EndAttempt { run: RUN, unit: UNIT, attempt, state })
}

fn end() -> Command {
    Command::Run(run::Command::End { run: RUN, outcome: Ending::Complete })
}

fn settled_outcome() -> Outcome {
    Outcome::Reserve(reserve::Outcome::Settled { cost: MicroUsd(30), overrun: MicroUsd::ZERO })
}

const HELD: Option<Authority> = Some(Authority { lock: LOCK, executor: ExecutorId(7), fence: Fence(1) });
const ATTEMPT_ENDED: Outcome = Outcome::Run(run::Outcome::AttemptEnded);

#[test]
fn a_runs_whole_life_is_foreseen() {
    let mut play = Play::begun();
    let first = play.reserves(UNIT.0, 1, 40);
    let failed = AttemptState::Failed;
    let outcomes = vec![Outcome::Reserve(reserve::Outcome::Released), ATTEMPT_ENDED];
    let commands = vec![release(first), end_attempt(1, failed)];
    play.asks(HELD, commands, Ok(outcomes), vec![released(first), attempt_ended(1, failed)]);
    let second = play.reserves(UNIT.0, 2, 40);
    let succeeded = AttemptState::Succeeded;
    let commands = vec![settle(second), end_attempt(2, succeeded)];
    let events = vec![settled(second), attempt_ended(2, succeeded)];
    play.asks(HELD, commands, Ok(vec![settled_outcome(), ATTEMPT_ENDED]), events);
    play.passes(500);
    let renew = lease::Command::Renew { held: held(7, 1), ttl_ns: 10 };
    play.asks(None, vec![Command::Lease(renew)], held_until(1, TTL_NS), vec![renewed(LOCK, 1, TTL_NS)]);
    play.asks(HELD, vec![end()], Ok(vec![Outcome::Run(run::Outcome::Ended)]), vec![ended()]);
    play.ticks(vec![]);
    play.passes(TTL_NS);
    play.ticks(vec![expired(LOCK, 1)]);
    play.story.rests().holds();
}

#[test]
fn what_is_unknown_is_the_owners_to_resolve() {
    let mut play = Play::begun();
    let key = play.reserves(UNIT.0, 1, 40);
    let unknown = AttemptState::Indeterminate;
    let owners = Authority { lock: Lock::Owner, executor: ExecutorId(4), fence: Fence(1) };
    let take = lease::Command::Acquire { lock: Lock::Owner, executor: ExecutorId(4), ttl_ns: TTL_NS };
    let granted = lease::Event::Granted {
        lock: Lock::Owner,
        executor: ExecutorId(4),
        client: ClientId(7),
        fence: Fence(1),
        until: LedgerTime(TTL_NS),
    };
    play.asks(None, vec![Command::Lease(take)], held_until(1, TTL_NS), vec![Event::Lease(granted)]);
    let resolve = || Command::Reserve(reserve::Command::Resolve { reservation: key, charged: None });
    play.refused(Some(owners), resolve(), reserve::Refusal::StillLive { reservation: key });
    play.asks(HELD, vec![end_attempt(1, unknown)], Ok(vec![ATTEMPT_ENDED]), vec![attempt_ended(1, unknown)]);
    play.refused(HELD, settle(key), reserve::Refusal::AwaitsOwner { reservation: key });
    play.refused(HELD, resolve(), lease::Refusal::NoAuthority { needed: Lock::Owner });
    let outcome = Outcome::Reserve(reserve::Outcome::Released);
    play.asks(Some(owners), vec![resolve()], Ok(vec![outcome]), vec![released_by_owner(key)]);
    play.refused(Some(owners), resolve(), reserve::Refusal::Ended { reservation: key });
    let (run, unit, attempt, next) = (RUN, UNIT, 2, None);
    play.refused(HELD, reserve(UNIT.0, 2, 1), reserve::Refusal::WrongAttempt { run, unit, attempt, next });
    play.story.holds();
}

#[test]
fn every_refusal_is_foreseen_with_its_numbers() {
    let mut play = Play::begun();
    let key = play.reserves(UNIT.0, 1, 40);
    let (run, unit, reservation) = (RUN, UNIT, key);
    let deposed = Authority { fence: Fence(0), ..held(7, 1) };
    let (lock, highest) = (LOCK, Fence(1));
    play.refused(Some(deposed), end(), lease::Refusal::Deposed { lock, offered: Fence(0), highest });
    let (executor, fence) = (ExecutorId(8), Fence(1));
    play.refused(Some(held(8, 1)), end(), lease::Refusal::NotHolder { lock, executor, fence });
    play.refused(None, end(), lease::Refusal::NoAuthority { needed: LOCK });
    let (holder, until) = (ExecutorId(7), LedgerTime(TTL_NS));
    play.refused(None, acquire(8), lease::Refusal::Held { lock, holder, fence, until });
    play.refused(HELD, end(), run::Refusal::AttemptRunning { run, unit, attempt: 1 });
    let (attempt, next) = (2, None);
    play.refused(HELD, reserve(UNIT.0, 2, 1), reserve::Refusal::WrongAttempt { run, unit, attempt, next });
    play.refused(HELD, reserve(6, 1, 0), reserve::Refusal::Nothing);
    play.refused(HELD, release(ReservationId(2)), reserve::Refusal::Unknown { reservation: ReservationId(2) });
    let to = AttemptState::Running;
    play.refused(HELD, settle(reservation), run::Refusal::ReservationDisagrees { unit, attempt: 1, to });
    let (from, to) = (None, AttemptState::Failed);
    play.refused(HELD, end_attempt(3, to), run::Refusal::IllegalArm { unit, attempt: 3, from, to });
    play.refused(HELD, end_attempt(1, to), run::Refusal::ReservationDisagrees { unit, attempt: 1, to });
    let (level, account, cap) = (Level::Run, Account::Run(TENANT, RUN), MicroUsd(1_000));
    let (settled, live, asked) = (MicroUsd::ZERO, MicroUsd(40), MicroUsd(961));
    let over = reserve::Refusal::OverCap { level, account, cap, settled, live, asked };
    play.refused(HELD, reserve(6, 1, 961), over);
    play.refused(
        HELD,
        reserve(6, 1, u64::MAX),
        reserve::Refusal::OverCap {
            level: Level::Unit,
            account: Account::Unit(TENANT, RUN, UnitId(6)),
            cap,
            settled,
            live: MicroUsd::ZERO,
            asked: MicroUsd::MAX,
        },
    );
    play.reserves(6, 1, 960);
    let over = reserve::Refusal::OverCap { level, account, cap, settled, live: MicroUsd(1_000), asked: MicroUsd(1) };
    play.refused(HELD, reserve(7, 1, 1), over);
}

#[test]
fn slots_and_turns_are_foreseen() {
    let mut play = Play::begun();
    play.reserves(UNIT.0, 1, 1);
    play.reserves(6, 1, 1);
    let (user, live, slots) = (USER, 2, 2);
    play.refused(HELD, reserve(7, 1, 1), reserve::Refusal::NoSlot { user, live, slots });
    let mut waits = |commands: Vec<Command>, authority, until_ns, reply| {
        let request = Request { wait_ns: 10, ..play.request(authority, commands) };
        play.batch(vec![Asked { request, waits_until_ns: until_ns, reply, events: vec![] }]);
        play.story.holds();
    };
    let now_ns = 5_000;
    let slot = Reply::Waits(Turn::Slot(TENANT, USER));
    waits(vec![reserve(7, 1, 1)], HELD, now_ns, Answer::Replies(slot));
    let late = reserve::Refusal::NoSlot { user, live, slots };
    waits(vec![reserve(7, 1, 1)], HELD, now_ns - 1, Decides(Err(late.into())));
    waits(vec![acquire(8)], None, now_ns, Answer::Replies(Reply::Waits(Turn::Lock(LOCK))));
    let waiter = play.number;
    play.yields();
    let request = Request { wait_ns: 10, ..request(waiter, None, vec![acquire(8)]) };
    let late = lease::Refusal::WaiterExpired { lock: LOCK, now: LedgerTime(0) };
    play.batch(vec![Asked { request, waits_until_ns: now_ns - 1, reply: Decides(Err(late.into())), events: vec![] }]);
    play.story.holds();
}

/// Notices were once left out for a trial, at a yield and at an answer, and small gates passed: whoever waited was served
/// when its term was over, and only later than it could have been.
#[test]
fn whose_turn_has_come_is_in_the_next_batch() {
    let waits_for_lock = |play: &mut Play| play.waits(None, acquire(8), 5_900, Turn::Lock(LOCK));
    let ask_anew = |play: &mut Play| play.refused(None, spawn_of_another_user(), run::Refusal::Taken { run: RUN });
    let taken = |number| Asked {
        request: Request { wait_ns: 10, ..request(number, None, vec![acquire(8)]) },
        waits_until_ns: 5_900,
        reply: Decides(held_until(2, TTL_NS)),
        events: vec![Event::Lease(lease::Event::Granted {
            lock: LOCK,
            executor: ExecutorId(8),
            client: ClientId(7),
            fence: Fence(2),
            until: LedgerTime(TTL_NS),
        })],
    };

    let mut play = Play::begun();
    let waiter = waits_for_lock(&mut play);
    ask_anew(&mut play); // the lock is held
    play.yields();
    play.batch(vec![taken(waiter)]);
    play.story.holds();

    let mut play = Play::begun();
    waits_for_lock(&mut play);
    play.yields();
    play.story.holds();
    play.ticks(vec![]);
    play.story.breaks_by("model", &["waits for Lock", "1 of 1 who wait for it may go, 0 of them are called"]);

    let mut play = Play::begun();
    let waiter = waits_for_lock(&mut play);
    play.story.enter(crate::cast::LEDGER, 0, BUSY, &postcard::to_allocvec(&(ClientId(7), 0u32, waiter)).unwrap());
    play.yields();
    ask_anew(&mut play); // there was no place to wait in

    let mut play = Play::begun();
    waits_for_lock(&mut play);
    play.passes(901);
    ask_anew(&mut play); // formed before the term was over, as far as can be told
    let (request, taken) = (play.request(None, vec![spawn_of_another_user()]), run::Refusal::Taken { run: RUN });
    play.batch(vec![Asked { request, waits_until_ns: 0, reply: Decides(Err(taken.into())), events: vec![] }]);
    play.story.breaks_by("model", &["waits for Lock", "until 5900 ns", "its term is over"]);
}

/// A tick was once asked for five seconds late for a trial, and a small gate passed: nothing but the time that a takeover took told.
#[test]
fn a_lease_that_has_ended_is_expired_by_the_next_batch() {
    let ask_anew = |play: &mut Play| {
        let (request, taken) = (play.request(None, vec![spawn_of_another_user()]), run::Refusal::Taken { run: RUN });
        play.batch(vec![Asked { request, waits_until_ns: 0, reply: Decides(Err(taken.into())), events: vec![] }]);
    };
    for is_expired in [true, false] {
        let mut play = Play::begun();
        play.passes(TTL_NS + 1);
        ask_anew(&mut play); // formed before the lease's end, as far as can be told
        play.story.holds();
        if is_expired {
            play.ticks(vec![expired(LOCK, 1)]);
        }
        ask_anew(&mut play);
        match is_expired {
            true => play.story.holds(),
            false => play.story.breaks_by("model", &["the lease of", "no tick expires it"]),
        }
    }
}

#[test]
fn as_many_are_called_as_slots_are_free() {
    let takes = |play: &mut Play, number, unit| {
        let id = play.story.next();
        let request = Request { wait_ns: 10, ..request(number, HELD, vec![reserve(unit, 1, 1)]) };
        let reply = Decides(Ok(vec![Outcome::Reserve(reserve::Outcome::Reserved(id))]));
        let events = vec![reserved(id, unit, 1, 1), started(id, unit, 1)];
        Asked { request, waits_until_ns: 5_900, reply, events }
    };
    for is_first_of_a_full_batch in [true, false] {
        let mut play = Play::begun();
        let ended = [UNIT.0, 6].map(|unit| (unit, play.reserves(unit, 1, 1)));
        let waiters = [7, 8].map(|unit| play.waits(HELD, reserve(unit, 1, 1), 5_900, Turn::Slot(TENANT, USER)));
        let batch = ended.map(|(unit, id)| {
            let (unit, state) = (UnitId(unit), AttemptState::Failed);
            let end = Command::Run(run::Command::EndAttempt { run: RUN, unit, attempt: 1, state });
            let outcomes = vec![Outcome::Reserve(reserve::Outcome::Released), Outcome::Run(run::Outcome::AttemptEnded)];
            let events = vec![released(id), Event::Run(run::Event::AttemptEnded { run: RUN, unit, attempt: 1, state })];
            let request = play.request(HELD, vec![release(id), end]);
            Asked { request, waits_until_ns: 0, reply: Decides(Ok(outcomes)), events }
        });
        play.batch(batch.into());
        play.story.holds();
        let mut batch = vec![takes(&mut play, waiters[0], 7)];
        if !is_first_of_a_full_batch {
            let (request, taken) =
                (play.request(None, vec![spawn_of_another_user()]), run::Refusal::Taken { run: RUN });
            batch.push(Asked { request, waits_until_ns: 0, reply: Decides(Err(taken.into())), events: vec![] });
        }
        play.batch(batch);
        match is_first_of_a_full_batch {
            true => {
                let second = takes(&mut play, waiters[1], 8);
                play.batch(vec![second]);
                play.story.holds();
            }
            false => play
                .story
                .breaks_by("model", &["waits for Slot", "2 of 2 who wait for it may go, 1 of them are called"]),
        }
    }
}

#[test]
fn a_repeat_gets_the_first_answer_and_has_no_effect() {
    let mut play = Play::begun();
    let first = Decision { seq: 7, outcome: Ok(vec![Outcome::Run(run::Outcome::Spawned)]) };
    let repeat =
        |reply| vec![Asked { request: request(1, None, vec![spawn(RUN)]), waits_until_ns: 0, reply, events: vec![] }];
    play.batch(repeat(Answer::Replies(Reply::Decided(first))));
    play.story.holds();
    play.asks(None, vec![spawn(RUN)], Ok(vec![Outcome::Run(run::Outcome::Spawned)]), vec![]);
    play.story.holds();
    let acknowledges = Request { acknowledged: 3, ..play.request(None, vec![]) };
    let empty = Decides(Err(kernel::effect::Refusal::Empty.into()));
    play.batch(vec![Asked { request: acknowledges, waits_until_ns: 0, reply: empty, events: vec![] }]);
    play.batch(repeat(Answer::Replies(Reply::Forgotten { acknowledged: 3 })));
    play.story.holds();
    play.batch(repeat(Decides(Ok(vec![Outcome::Run(run::Outcome::Spawned)]))));
    play.story.breaks_by("model", &["request 1 of client 7.0", "expected is Forgotten { acknowledged: 3 }"]);
}

#[test]
fn all_or_nothing_leaves_a_refused_requests_money_where_it_was() {
    let mut play = Play::begun();
    let to = AttemptState::Succeeded;
    let refusal = run::Refusal::IllegalArm { unit: UNIT, attempt: 4, from: None, to };
    play.asks(HELD, vec![reserve(UNIT.0, 1, 1_000), end_attempt(4, to)], Err(refusal.into()), vec![]);
    play.story.holds();
    play.reserves(UNIT.0, 1, 1_000);
    play.story.holds();
}

#[test]
fn a_frame_nobody_announced_is_folded_at_the_next_opening() {
    let mut play = Play::begun();
    let id = play.story.next();
    let request = play.request(HELD, vec![reserve(UNIT.0, 1, 990)]);
    let outcome = Ok(vec![Outcome::Reserve(reserve::Outcome::Reserved(id))]);
    let [one, two] = reserves(id, 1, 990);
    play.story.ledger_ns = 300;
    play.story.logs_unseen(&[one, two, decided(&request, outcome.clone())]).opens_with(3);
    play.now_ns = 9_999_999;
    let repeat = Reply::Decided(Decision { seq: id.0 + 2, outcome });
    play.batch(vec![Asked { request, waits_until_ns: 0, reply: Answer::Replies(repeat), events: vec![] }]);
    play.story.holds();
    let (level, account) = (Level::Run, Account::Run(TENANT, RUN));
    let (cap, settled, live) = (MicroUsd(1_000), MicroUsd::ZERO, MicroUsd(990));
    let over = reserve::Refusal::OverCap { level, account, cap, settled, live, asked: MicroUsd(11) };
    play.refused(HELD, reserve(3, 1, 11), over);
}

/// What a kernel with a mistake would do, and what the model says of it.
#[test]
fn every_mistake_is_found() {
    type Mistake = fn(&mut Play);
    let cases: [(&str, Mistake, &[&str]); 10] = [
        (
            "a deposed writer is let in",
            |play| {
                let end = vec![end()];
                play.asks(Some(held(8, 1)), end, Ok(vec![Outcome::Run(run::Outcome::Ended)]), vec![ended()]);
            },
            &["expected is", "NotHolder"],
        ),
        (
            "a cap is passed",
            |play| _ = play.reserves(UNIT.0, 1, 1_001),
            &["OverCap", "cap: MicroUsd(1000)", "asked: MicroUsd(1001)"],
        ),
        (
            "a cap is kept too soon",
            |play| {
                let (level, account) = (Level::Unit, Account::Unit(TENANT, RUN, UNIT));
                let (cap, settled, live) = (MicroUsd(1_000), MicroUsd::ZERO, MicroUsd::ZERO);
                let over = reserve::Refusal::OverCap { level, account, cap, settled, live, asked: MicroUsd(1_000) };
                play.asks(HELD, vec![reserve(UNIT.0, 1, 1_000)], Err(over.into()), vec![]);
            },
            &["expected is Decided", "Reserved(ReservationId(10))"],
        ),
        (
            "the wrong numbers",
            |play| {
                let (level, account) = (Level::Unit, Account::Unit(TENANT, RUN, UNIT));
                let (cap, settled, live) = (MicroUsd(1_000), MicroUsd(1), MicroUsd::ZERO);
                let over = reserve::Refusal::OverCap { level, account, cap, settled, live, asked: MicroUsd(1_001) };
                play.asks(HELD, vec![reserve(UNIT.0, 1, 1_001)], Err(over.into()), vec![]);
            },
            &["settled: MicroUsd(0)"],
        ),
        (
            "an event too many",
            |play| {
                let outcome = Ok(vec![Outcome::Run(run::Outcome::Spawned)]);
                play.asks(None, vec![spawn(RUN)], outcome, vec![yielded(LOCK, 1)]);
            },
            &["expected is", "seq: 10"],
        ),
        (
            "another event",
            |play| {
                let outcome = held_until(1, TTL_NS);
                play.asks(None, vec![acquire(7)], outcome, vec![renewed(LOCK, 1, TTL_NS + 1)]);
            },
            &["record 10 should be Lease(Renewed", "LedgerTime(1000001)"],
        ),
        (
            "a lease expires at its end",
            |play| {
                play.passes(TTL_NS);
                play.ticks(vec![expired(LOCK, 1)]);
            },
            &["expected are []", "recorded [Lease(Expired"],
        ),
        (
            "a lease does not expire",
            |play| {
                play.passes(TTL_NS + 1);
                play.ticks(vec![]);
            },
            &["expected are [Lease(Expired", "recorded []"],
        ),
        (
            "ledger time is not the writer's",
            |play| {
                play.story.ledger_ns = 77;
                play.reserves(UNIT.0, 1, 1);
            },
            &["record 10 is of ledger time 77; at the writer's 5000 ns it is 0"],
        ),
        (
            "a waiter past its term is granted the lock",
            |play| {
                let yields = lease::Command::Yield { held: held(7, 1) };
                let outcome = Outcome::Lease(lease::Outcome::Yielded);
                play.asks(None, vec![Command::Lease(yields)], Ok(vec![outcome]), vec![yielded(LOCK, 1)]);
                let request = Request { wait_ns: 10, ..play.request(None, vec![acquire(7)]) };
                let (reply, events) = (Decides(held_until(2, TTL_NS)), vec![granted(LOCK, 7, 2, TTL_NS)]);
                play.batch(vec![Asked { request, waits_until_ns: 4_999, reply, events }]);
            },
            &["WaiterExpired"],
        ),
    ];
    for (case, mistake, parts) in cases {
        let mut play = Play::begun();
        mistake(&mut play);
        assert!(play.story.broken().is_some(), "{case} passes");
        play.story.breaks_by("model", parts);
    }
}

#[test]
fn what_may_come_in_is_foreseen() {
    let mut play = Play::begun();
    let owner = Authority { lock: Lock::Owner, executor: ExecutorId(7), fence: Fence(1) };
    let ask = Command::Lease(lease::Command::Acquire { lock: Lock::Owner, executor: ExecutorId(7), ttl_ns: TTL_NS });
    play.asks(None, vec![ask], held_until(1, TTL_NS), vec![granted(Lock::Owner, 7, 1, TTL_NS)]);
    let set = |play: &mut Play, command, event| {
        let set = Ok(vec![Outcome::Admit(admit::Outcome::Set)]);
        play.asks(Some(owner), vec![Command::Admit(command)], set, vec![Event::Admit(event)]);
        play.story.holds();
    };
    let set_quota = |play: &mut Play, runs_per_day, micro_usd_per_day, depth| {
        let (micro_usd_per_day, depth_tier) = (MicroUsd(micro_usd_per_day), DepthTier(depth));
        let (tenant, user) = (TENANT, Some(USER));
        let quota = Some(admit::Quota { runs_per_day, micro_usd_per_day, depth_tier });
        let command = admit::Command::SetQuota { tenant, user, quota };
        set(play, command, admit::Event::QuotaSet { tenant, user, quota });
    };
    let flip = |play: &mut Play, tenant, switch| {
        set(play, admit::Command::SetHalt { tenant, switch }, admit::Event::HaltSet { tenant, switch });
    };
    play.reserves(1, 1, 40);
    let (user, day, new) = (USER, 0, RunId(10));
    set_quota(&mut play, 1, 40, 0);
    play.refused(None, spawn(new), admit::Refusal::TooDeep { user, deepest: DepthTier(0), asked: DepthTier(1) });
    set_quota(&mut play, 1, 40, 1);
    play.refused(None, spawn(new), admit::Refusal::TooManyRuns { user, day, limit: 1, taken: 1 });
    set_quota(&mut play, 2, 40, 1);
    let dear = |asked| {
        let [limit, settled, live, asked] = [40, 0, 40, asked].map(MicroUsd);
        admit::Refusal::TooDear { user, day, limit, settled, live, asked }
    };
    play.refused(None, spawn(new), dear(1));
    play.refused(None, reserve(2, 1, 5), dear(5));
    set_quota(&mut play, 2, 1_000, 1);
    flip(&mut play, TENANT, Switch::Halted);
    let halted = |tenant| admit::Refusal::Halted { tenant };
    play.refused(Some(held(7, 1)), reserve(2, 1, 5), halted(TENANT));
    flip(&mut play, TenantId::LEDGER, Switch::Halted);
    play.refused(None, spawn(new), halted(TenantId::LEDGER));
    play.asks(None, vec![spawn(RUN)], Ok(vec![Outcome::Run(run::Outcome::Spawned)]), vec![]);
    flip(&mut play, TENANT, Switch::Open);
    flip(&mut play, TenantId::LEDGER, Switch::Open);
    play.asks(None, vec![spawn(new)], Ok(vec![Outcome::Run(run::Outcome::Spawned)]), vec![spawned(new)]);
    play.refused(None, spawn(RunId(11)), admit::Refusal::TooManyRuns { user, day, limit: 2, taken: 2 });
    let unset = admit::Command::SetQuota { tenant: TenantId::LEDGER, user: None, quota: None };
    play.refused(Some(owner), Command::Admit(unset), admit::Refusal::NoUsers);
    let flip = Command::Admit(admit::Command::SetHalt { tenant: TENANT, switch: Switch::Halted });
    play.refused(Some(held(7, 1)), flip, lease::Refusal::NoAuthority { needed: Lock::Owner });
}

#[test]
fn who_cannot_hold_a_lock_is_foreseen() {
    let mut play = Play::begun();
    play.refused(None, acquire(0), lease::Refusal::Nobody { lock: LOCK });
    let lock = Lock::Run(TenantId(2), RUN);
    let other = Command::Lease(lease::Command::Acquire { lock, executor: ExecutorId(7), ttl_ns: TTL_NS });
    play.refused(None, other, lease::Refusal::OtherTenant { lock, tenant: TENANT });
}
