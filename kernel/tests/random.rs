//! Any requests at all: the log obeys the rules by a small model of its own, and however it is folded the tables are equal.

#![allow(clippy::unwrap_used)] // what a test cannot go on without, it panics for

mod house;

use house::*;
use kernel::{
    admit::{self, Quota, Switch},
    effect::{self, Key, Phase},
    id::{ExecutorId, Fence, ReservationId, RunId, TenantId, ToolId, UnitId, UserId},
    lease::{self, Authority, Lock},
    ledger::Ledger,
    money::MicroUsd,
    planted::Planted,
    prove,
    record::{self, Event, Record},
    request::{Answer, Command, Query, Reply, Request, Submitted, Turn},
    reserve::{self, Account, Level, Sums},
    run::{self, AttemptState, Ending, RunState},
    store::{Store, memory::MemoryStore},
};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// What the rules say of the log so far, read from its records alone.
#[derive(Default)]
struct Model {
    caps: BTreeMap<(TenantId, Level), u64>,
    slots: BTreeMap<TenantId, u32>,
    sums: BTreeMap<Account, Sums>,
    live: BTreeMap<(TenantId, UserId), u32>,
    open: BTreeMap<ReservationId, (TenantId, UserId, [Account; 4], u64)>,
    locks: BTreeMap<Lock, (Fence, Option<ExecutorId>)>,
    attempts: BTreeMap<(TenantId, RunId, UnitId), (u32, AttemptState)>,
    runs: BTreeMap<(TenantId, RunId), RunState>,
    halts: std::collections::BTreeSet<TenantId>,
    quotas: BTreeMap<Option<UserId>, Quota>,
    /// Runs by user; a random life is shorter than a day.
    spawned: BTreeMap<UserId, u32>,
    reserved: BTreeMap<(TenantId, RunId, UnitId, u32), ReservationId>,
    intents: BTreeMap<ReservationId, (Option<Key>, Phase)>,
    memo: BTreeMap<Key, ReservationId>,
    /// The frame that is read, and the one that brought each intent where it is.
    frame: usize,
    phased: BTreeMap<ReservationId, usize>,
}

impl Model {
    fn read(&mut self, record: &Record) {
        if let Some(origin) = record.origin
            && !matches!(record.event, Event::Run(run::Event::Spawned { .. }))
        {
            let (highest, holder) = self.locks[&Lock::Run(record.tenant, origin.run)];
            assert_eq!((origin.fence, Some(origin.executor)), (highest, holder), "{record:?}");
        }
        match record.event {
            Event::Lease(lease::Event::Granted { lock, executor, fence, .. }) => {
                if let Lock::Run(tenant, run) = lock {
                    assert_ne!(self.runs.get(&(tenant, run)), Some(&RunState::Suspended), "{record:?}");
                }
                let (highest, holder) = self.locks.entry(lock).or_default();
                assert!(holder.is_none() && fence > *highest, "{record:?}");
                (*highest, *holder) = (fence, Some(executor));
            }
            Event::Lease(lease::Event::Yielded { lock, fence } | lease::Event::Expired { lock, fence }) => {
                let (highest, holder) = self.locks.get_mut(&lock).unwrap();
                assert!(holder.take().is_some() && fence == *highest, "{record:?}");
            }
            Event::Admit(admit::Event::HaltSet { tenant, switch: Switch::Halted }) => drop(self.halts.insert(tenant)),
            Event::Admit(admit::Event::HaltSet { tenant, switch: Switch::Open }) => drop(self.halts.remove(&tenant)),
            Event::Admit(admit::Event::QuotaSet { user, quota: Some(quota), .. }) => {
                self.quotas.insert(user, quota);
            }
            Event::Admit(admit::Event::QuotaSet { user, quota: None, .. }) => drop(self.quotas.remove(&user)),
            Event::Run(run::Event::Spawned { run, user, depth, .. }) => {
                assert_eq!(self.runs.insert((record.tenant, run), RunState::Open), None, "{record:?}");
                assert!(self.halts.is_empty(), "{record:?} during a halt");
                let spawned = self.spawned.entry(user).or_default();
                if let Some(quota) = self.quotas.get(&Some(user)).or(self.quotas.get(&None)) {
                    assert!(*spawned < quota.runs_per_day && depth <= quota.depth_tier, "{record:?} past {quota:?}");
                }
                *spawned += 1;
            }
            Event::Reserve(ref event) => self.reserve(record, event),
            Event::Effect(ref event) => self.effect(record, event),
            Event::Run(ref event) => self.run(record, event),
            Event::Lease(lease::Event::Renewed { .. }) => {}
        }
    }

    fn run(&mut self, record: &Record, event: &run::Event) {
        match *event {
            run::Event::AttemptStarted { run, unit, attempt, .. } => {
                self.goes_on(record, run);
                self.attempt(record, run, unit, (attempt, AttemptState::Running));
            }
            run::Event::AttemptQueued { run, unit, attempt } => {
                self.goes_on(record, run);
                self.attempt(record, run, unit, (attempt, AttemptState::Pending));
            }
            run::Event::Recalled { run, unit, attempt, key, source } => {
                self.goes_on(record, run);
                assert_eq!(self.memo.get(&key), Some(&source), "{record:?}");
                self.attempt(record, run, unit, (attempt, AttemptState::Running));
                self.attempt(record, run, unit, (attempt, AttemptState::Succeeded));
            }
            run::Event::AttemptEnded { run, unit, attempt, state } => {
                self.attempt(record, run, unit, (attempt, state));
                self.end_intent(record, self.reserved.get(&(record.tenant, run, unit, attempt)).copied(), state);
            }
            run::Event::Ended { run, outcome } => {
                assert_eq!(self.unended(record.tenant, run, AttemptState::Running), 0, "{record:?}");
                assert_eq!(self.unended(record.tenant, run, AttemptState::Pending), 0, "{record:?}");
                let from = if outcome == Ending::Cancelled { RunState::Cancelling } else { RunState::Open };
                self.goes(record, run, &[from], RunState::Ended(outcome));
            }
            run::Event::Suspended { run } => {
                assert_eq!(self.unended(record.tenant, run, AttemptState::Running), 0, "{record:?}");
                self.goes(record, run, &[RunState::Open], RunState::Suspended);
            }
            run::Event::Resumed { run } => {
                self.goes(record, run, &[RunState::Suspended], RunState::Open);
            }
            run::Event::Cancelled { run, running } => self.cancel(record, run, running),
            _ => {}
        }
    }

    /// How many attempts of a run stand so.
    fn unended(&self, tenant: TenantId, run: RunId, state: AttemptState) -> usize {
        let of_run = self.attempts.iter().filter(|((of, which, _), _)| (*of, *which) == (tenant, run));
        of_run.filter(|(_, (_, now))| *now == state).count()
    }

    /// Something of the run begins.
    fn goes_on(&self, record: &Record, run: RunId) {
        assert_eq!(self.runs.get(&(record.tenant, run)), Some(&RunState::Open), "{record:?}");
    }

    fn goes(&mut self, record: &Record, run: RunId, from: &[RunState], to: RunState) {
        let before = self.runs.insert((record.tenant, run), to);
        assert!(before.is_some_and(|before| from.contains(&before)), "{record:?} after {before:?}");
    }

    /// A run that is cancelled ends with the last attempt that is running, or at once if none is; what is queued ends with it.
    fn cancel(&mut self, record: &Record, run: RunId, running: u32) {
        assert_eq!(self.unended(record.tenant, run, AttemptState::Running), running as usize, "{record:?}");
        let to = if running == 0 { RunState::Ended(Ending::Cancelled) } else { RunState::Cancelling };
        self.goes(record, run, &[RunState::Open, RunState::Suspended], to);
        let of_run = self.attempts.iter_mut().filter(|((of, which, _), _)| (*of, *which) == (record.tenant, run));
        for (_, (_, state)) in of_run.filter(|(_, (_, state))| running == 0 && *state == AttemptState::Pending) {
            *state = AttemptState::Cancelled;
        }
    }

    fn effect(&mut self, record: &Record, event: &effect::Event) {
        match *event {
            effect::Event::Intended { intent, key, .. } => {
                assert!(key.is_none_or(|key| !self.memo.contains_key(&key)), "{record:?} was answered");
                assert!(self.open.contains_key(&intent), "{record:?}");
                assert!(self.intents.insert(intent, (key, Phase::Pending)).is_none(), "{record:?}");
            }
            effect::Event::Dispatched { intent } => {
                assert!(self.halts.is_empty(), "{record:?} during a halt");
                let (.., [_, of_run, ..], _) = self.open[&intent];
                if let Account::Run(_, run) = of_run {
                    self.goes_on(record, run);
                }
                self.phase(record, intent, Phase::Dispatched);
            }
            effect::Event::Committed { intent, .. } => self.phase(record, intent, Phase::Committed),
            effect::Event::Decided { .. } | effect::Event::ToolRegistered { .. } => {}
        }
    }

    /// An attempt ends as `state`, as its intent's phase lets it; what succeeded is remembered.
    fn end_intent(&mut self, record: &Record, intent: Option<ReservationId>, state: AttemptState) {
        let Some(intent) = intent else { return };
        let Some((key, phase)) = self.intents.get(&intent).copied() else { return };
        let right = match state {
            AttemptState::Succeeded | AttemptState::Failed => phase == Phase::Committed,
            AttemptState::Indeterminate => phase == Phase::Dispatched,
            _ => phase != Phase::Dispatched,
        };
        assert!(right, "{record:?} with its intent {phase:?}");
        if let (AttemptState::Succeeded, Some(key)) = (state, key) {
            self.memo.entry(key).or_insert(intent);
        }
    }

    fn attempt(&mut self, record: &Record, run: RunId, unit: UnitId, now: (u32, AttemptState)) {
        let before = self.attempts.insert((record.tenant, run, unit), now);
        let begins = matches!(now.1, AttemptState::Pending | AttemptState::Running);
        let follows = match before {
            None => begins && now.0 == 1,
            Some((last, state)) if last == now.0 => state.may_become(now.1),
            Some((last, AttemptState::Failed | AttemptState::Cancelled | AttemptState::TimedOut)) => {
                begins && now.0 == last + 1
            }
            Some(_) => false,
        };
        assert!(follows, "{record:?} after {before:?}");
    }

    /// One phase after the other, each in a frame of its own.
    fn phase(&mut self, record: &Record, intent: ReservationId, next: Phase) {
        let (_, phase) = self.intents.get_mut(&intent).expect("it was intended");
        let before = std::mem::replace(phase, next);
        let follows =
            matches!((before, next), (Phase::Pending, Phase::Dispatched) | (Phase::Dispatched, Phase::Committed));
        assert!(follows, "{record:?} after {before:?}");
        let frame = self.phased.insert(intent, self.frame);
        assert_ne!(frame, Some(self.frame), "{record:?}: two phases in one frame");
    }

    fn reserve(&mut self, record: &Record, event: &reserve::Event) {
        let tenant = record.tenant;
        match *event {
            reserve::Event::CapSet { tenant, level, cap } => drop(self.caps.insert((tenant, level), cap.0)),
            reserve::Event::SlotsSet { tenant, slots } => drop(self.slots.insert(tenant, slots)),
            reserve::Event::PriceSet(_) => {}
            reserve::Event::Reserved { reservation, run, unit, attempt, user, day, worst, .. } => {
                self.reserved.insert((tenant, run, unit, attempt), reservation);
                self.phased.insert(reservation, self.frame);
                assert!(self.halts.is_empty(), "{record:?} during a halt");
                if let Some(quota) = self.quotas.get(&Some(user)).or(self.quotas.get(&None)) {
                    let sums = self.sums.get(&Account::UserDay(tenant, user, day)).copied().unwrap_or_default();
                    let after = sums.settled.0 + sums.live.0 + worst.0;
                    assert!(after <= quota.micro_usd_per_day.0, "{record:?} past {quota:?}");
                }
                let accounts = [
                    Account::Unit(tenant, run, unit),
                    Account::Run(tenant, run),
                    Account::UserDay(tenant, user, day),
                    Account::LedgerDay(day),
                ];
                let owners = [tenant, tenant, tenant, TenantId::LEDGER];
                for ((account, owner), level) in accounts.into_iter().zip(owners).zip(Level::ALL) {
                    let sums = self.sums.entry(account).or_default();
                    let after = sums.settled.0 + sums.live.0 + worst.0;
                    assert!(after <= self.caps[&(owner, level)], "{account:?}: {sums:?} and {worst}");
                    sums.live.0 += worst.0;
                }
                let live = self.live.entry((tenant, user)).or_default();
                *live += 1;
                assert!(*live <= self.slots[&tenant], "user {user} has {live} live");
                self.open.insert(reservation, (tenant, user, accounts, worst.0));
            }
            reserve::Event::Settled { reservation, cost, overrun, .. } => {
                let worst = self.close(reservation, cost);
                assert_eq!(overrun.0, cost.0.saturating_sub(worst));
            }
            reserve::Event::Released { reservation, .. } => drop(self.close(reservation, MicroUsd(0))),
        }
    }

    fn close(&mut self, reservation: ReservationId, cost: MicroUsd) -> u64 {
        let (tenant, user, accounts, worst) = self.open.remove(&reservation).expect("it ends once");
        for account in accounts {
            let sums = self.sums.get_mut(&account).unwrap();
            sums.live.0 -= worst;
            sums.settled.0 += cost.0;
        }
        *self.live.get_mut(&(tenant, user)).unwrap() -= 1;
        worst
    }
}

/// One step of a random life, in numbers that [`Life`] makes sense of.
#[derive(Clone, Debug)]
enum Step {
    Ask {
        client: u64,
        executor: u64,
        run: u64,
        stale: bool,
        wait_ns: u64,
        wishes: Vec<Wish>,
    },
    /// A call by the book, a request a phase, as far as nothing stands in its way.
    Call {
        run: u64,
        unit: u32,
        question: u8,
    },
    /// A run is cancelled while an attempt is queued, and whoever holds it ends what is running, as far as nothing stands in its
    /// way.
    Stop {
        run: u64,
    },
    Repeat(prop::sample::Index),
    Tick(u64),
    Checkpoint,
    Reopen,
}

#[derive(Clone, Debug)]
enum Wish {
    Spawn,
    Acquire(u64),
    Renew(u64),
    Yield,
    Reserve {
        unit: u32,
        worst: u64,
        ahead: u32,
    },
    Finish {
        at: prop::sample::Index,
        tokens: u64,
        state: AttemptState,
    },
    SettleOnly(prop::sample::Index),
    Queue {
        unit: u32,
        ahead: u32,
    },
    Begin {
        unit: u32,
        worst: u64,
        ahead: u32,
        tool: u32,
        question: u8,
    },
    Dispatch(prop::sample::Index),
    Commit(prop::sample::Index),
    /// Through every phase that is left, and to its end.
    Through(prop::sample::Index, AttemptState),
    End(bool),
    Suspend,
    /// Of this run, by the owner, or of one that waits for it.
    Resume(Option<prop::sample::Index>),
    Cancel,
    Cap(Level, u64),
    Slots(u32),
    Resolve(prop::sample::Index, Option<u64>),
    Halt(bool, Switch),
    Quota(Option<UserId>, Option<(u32, u64, u8)>),
}

fn state() -> impl Strategy<Value = AttemptState> {
    prop::sample::select(vec![
        AttemptState::Succeeded,
        AttemptState::Succeeded,
        AttemptState::Failed,
        AttemptState::Cancelled,
        AttemptState::TimedOut,
        AttemptState::Indeterminate,
        AttemptState::Indeterminate,
    ])
}

fn wish() -> impl Strategy<Value = Wish> {
    prop_oneof![
        2 => Just(Wish::Spawn),
        2 => (1..400u64).prop_map(Wish::Acquire),
        1 => (0..400u64).prop_map(Wish::Renew),
        1 => Just(Wish::Yield),
        10 => (0..4u32, 0..40u64, prop_oneof![9 => Just(0u32), 1 => Just(1u32)])
            .prop_map(|(unit, worst, ahead)| Wish::Reserve { unit, worst, ahead }),
        8 => (any::<prop::sample::Index>(), 0..60u64, state())
            .prop_map(|(at, tokens, state)| Wish::Finish { at, tokens, state }),
        1 => any::<prop::sample::Index>().prop_map(Wish::SettleOnly),
        1 => (0..4u32, 0..2u32).prop_map(|(unit, ahead)| Wish::Queue { unit, ahead }),
        8 => (0..4u32, 0..40u64, prop_oneof![9 => Just(0u32), 1 => Just(1u32)], prop_oneof![3 => Just(1u32), 2 => 2..4u32], 0..2u8)
            .prop_map(|(unit, worst, ahead, tool, question)| Wish::Begin { unit, worst, ahead, tool, question }),
        5 => any::<prop::sample::Index>().prop_map(Wish::Dispatch),
        4 => any::<prop::sample::Index>().prop_map(Wish::Commit),
        4 => (any::<prop::sample::Index>(), state()).prop_map(|(at, state)| Wish::Through(at, state)),
        1 => prop::bool::weighted(0.2).prop_map(Wish::End),
        1 => Just(Wish::Suspend),
        4 => prop::option::weighted(0.9, any::<prop::sample::Index>()).prop_map(Wish::Resume),
        1 => Just(Wish::Cancel),
        1 => (prop::sample::select(Level::ALL.to_vec()), 0..150u64).prop_map(|(level, cap)| Wish::Cap(level, cap)),
        1 => (0..5u32).prop_map(Wish::Slots),
        1 => (any::<bool>(), prop::sample::select(vec![Switch::Halted, Switch::Open, Switch::Open]))
            .prop_map(|(whole, switch)| Wish::Halt(whole, switch)),
        2 => (prop::option::of((0..2u32).prop_map(UserId)), prop::option::of((0..2u32, 0..120u64, 0..4u8)))
            .prop_map(|(user, quota)| Wish::Quota(user, quota)),
        5 => (any::<prop::sample::Index>(), prop::option::of(0..60u64)).prop_map(|(at, usage)| Wish::Resolve(at, usage)),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let ask = (1..4u64, 1..4u64, 0..3u64, prop::bool::weighted(0.1), prop_oneof![Just(0u64), 1..300u64]);
    prop_oneof![
        80 => (ask, prop_oneof![3 => prop::collection::vec(wish(), 1), 1 => prop::collection::vec(wish(), 2..4)]).prop_map(|((client, executor, run, stale, wait_ns), wishes)| {
            Step::Ask { client, executor, run, stale, wait_ns, wishes }
        }),
        8 => (0..2u64, 0..4u32, 0..2u8).prop_map(|(run, unit, question)| Step::Call { run, unit, question }),
        1 => (0..2u64).prop_map(|run| Step::Stop { run }),
        8 => any::<prop::sample::Index>().prop_map(Step::Repeat),
        12 => (0..200u64).prop_map(Step::Tick),
        4 => Just(Step::Checkpoint),
        4 => Just(Step::Reopen),
    ]
}

/// A ledger, what was asked of it, and what the model knows.
struct Life {
    house: House,
    model: Model,
    asked: Vec<(Request, Reply)>,
    numbers: BTreeMap<u64, u64>,
    /// Every reservation there was, with its unit and attempt.
    reservations: Vec<(ReservationId, RunId, UnitId, u32)>,
}

impl Life {
    fn new() -> Life {
        let mut commands = genesis(60, 120, 200, 250, 3);
        commands.extend(tools());
        let mut house = House::with(commands, Planted::none());
        let mut model = Model::default();
        for frame in record::verify(house.store.log(0).unwrap()) {
            frame.unwrap().records.iter().for_each(|record| model.read(record));
            model.frame += 1;
        }
        for run in 0..2 {
            let spawn = request(50 + run, 1, None, vec![spawn_for(RunId(run), UserId(run as u32 % 2))]);
            house.one(spawn);
        }
        Life { house, model, asked: Vec::new(), numbers: BTreeMap::new(), reservations: Vec::new() }
    }

    /// The commands a wish becomes, given what there is.
    fn commands(&self, wish: &Wish, run: RunId, executor: u64, held: Authority) -> Vec<Command> {
        let pick = |at: &prop::sample::Index| match &self.reservations[..] {
            [] => (ReservationId(0), run, UnitId(0), 1),
            some => some[some.len() - 1 - at.index(some.len().min(4))],
        };
        match wish {
            Wish::Spawn => vec![spawn_for(RunId(run.0 + self.asked.len() as u64 % 5), UserId(run.0 as u32 % 2))],
            Wish::Acquire(ttl_ns) => vec![acquire(held.lock, executor, *ttl_ns)],
            Wish::Renew(ttl_ns) => vec![Command::Lease(lease::Command::Renew { held, ttl_ns: *ttl_ns })],
            Wish::Yield => vec![Command::Lease(lease::Command::Yield { held })],
            Wish::Reserve { unit, worst, ahead } => {
                let last = self.model.attempts.get(&(TENANT, run, UnitId(*unit))).map_or(0, |(last, _)| *last);
                vec![reserve_in(run, *unit, last + 1 + ahead, *worst)]
            }
            Wish::Finish { at, tokens, state } => {
                let (reservation, run, unit, attempt) = pick(at);
                let end = Command::Run(run::Command::EndAttempt { run, unit, attempt, state: *state });
                match state {
                    AttemptState::Succeeded => vec![settle(reservation, *tokens), end],
                    AttemptState::Failed | AttemptState::Cancelled | AttemptState::TimedOut => {
                        vec![release(reservation), end]
                    }
                    _ => vec![end],
                }
            }
            Wish::Queue { unit, ahead } => {
                let last = self.model.attempts.get(&(TENANT, run, UnitId(*unit))).map_or(0, |(last, _)| *last);
                vec![Command::Run(run::Command::Queue { run, unit: UnitId(*unit), attempt: last + ahead })]
            }
            Wish::Begin { unit, worst, ahead, tool, question } => {
                let next = match self.model.attempts.get(&(TENANT, run, UnitId(*unit))) {
                    Some((queued, AttemptState::Pending)) => *queued,
                    last => last.map_or(0, |(last, _)| *last) + 1,
                };
                vec![begin_in(run, *unit, next + ahead, ToolId(*tool), *question, *worst)]
            }
            Wish::Dispatch(at) => vec![dispatch(pick(at).0)],
            Wish::Commit(at) => vec![commit(pick(at).0, b"yes")],
            Wish::Through(at, state) => {
                let (intent, ..) = pick(at);
                let first = match self.model.intents.get(&intent) {
                    Some((_, Phase::Dispatched)) if *state != AttemptState::Indeterminate => {
                        vec![commit(intent, b"yes")]
                    }
                    _ => vec![],
                };
                let finish = Wish::Finish { at: *at, tokens: 1, state: *state };
                first.into_iter().chain(self.commands(&finish, run, executor, held)).collect()
            }
            Wish::SettleOnly(at) => vec![settle(pick(at).0, 1)],
            Wish::End(cancelled) => {
                let outcome = if *cancelled { Ending::Cancelled } else { Ending::Incomplete };
                vec![Command::Run(run::Command::End { run, outcome })]
            }
            Wish::Suspend => vec![Command::Run(run::Command::Suspend { run })],
            _ => self.orders(wish, run, pick),
        }
    }

    /// What the owner asks for.
    fn orders(
        &self,
        wish: &Wish,
        run: RunId,
        pick: impl Fn(&prop::sample::Index) -> (ReservationId, RunId, UnitId, u32),
    ) -> Vec<Command> {
        match wish {
            Wish::Resume(at) => {
                let run = match (at, self.house.ledger.query(&Query::Suspended(TENANT))) {
                    (Some(at), Answer::Suspended(some)) if !some.is_empty() => some[at.index(some.len())],
                    _ => run,
                };
                vec![Command::Run(run::Command::Resume { run })]
            }
            Wish::Cancel => vec![Command::Run(run::Command::Cancel { run })],
            Wish::Cap(level, amount) => {
                vec![cap(if *level == Level::LedgerDay { TenantId::LEDGER } else { TENANT }, *level, *amount)]
            }
            Wish::Halt(whole, switch) => vec![halt(if *whole { TenantId::LEDGER } else { TENANT }, *switch)],
            Wish::Quota(user, Some((runs, dollars, depth))) => vec![quota(*user, *runs, *dollars, *depth)],
            Wish::Quota(user, None) => {
                vec![Command::Admit(admit::Command::SetQuota { tenant: TENANT, user: *user, quota: None })]
            }
            Wish::Slots(slots) => vec![Command::Reserve(reserve::Command::SetSlots { tenant: TENANT, slots: *slots })],
            Wish::Resolve(at, tokens) => match self.house.ledger.query(&Query::AwaitsOwner(TENANT)) {
                Answer::AwaitsOwner(some) if !some.is_empty() => vec![resolve(some[at.index(some.len())], *tokens)],
                _ => vec![resolve(pick(at).0, *tokens)],
            },
            _ => unreachable!("{wish:?} is a holder's"),
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Ask { client, executor, run, stale, wait_ns, wishes } => {
                let of_owner = |wish: &Wish| {
                    use Wish::{Cancel, Cap, Halt, Quota, Resolve, Resume, Slots};
                    matches!(wish, Cap(..) | Slots(_) | Resolve(..) | Halt(..) | Quota(..) | Resume(_) | Cancel)
                };
                let owner = wishes.iter().any(of_owner);
                let lock = if owner { Lock::Owner } else { Lock::Run(TENANT, RunId(*run)) };
                let (highest, holder) = self.model.locks.get(&lock).copied().unwrap_or_default();
                let fence = match holder {
                    _ if *stale => Fence(highest.0.saturating_sub(1)),
                    None => Fence(highest.0 + 1), // what the acquire below will be granted
                    Some(_) => highest,
                };
                let writer = holder.filter(|_| !stale).unwrap_or(ExecutorId(*executor));
                let held = Authority { lock, executor: writer, fence };
                let mut commands: Vec<Command> = Vec::new();
                if holder.is_none() {
                    commands.push(acquire(lock, *executor, 200));
                }
                for wish in wishes {
                    commands.extend(self.commands(wish, RunId(*run), *executor, held));
                }
                let number = self.numbers.entry(*client).or_default();
                *number += 1;
                let request = Request { wait_ns: *wait_ns, ..request(*client, *number, Some(held), commands) };
                self.ask(request);
            }
            Step::Call { run, unit, question } => self.call(RunId(*run), *unit, *question),
            Step::Stop { run } => self.stop(RunId(*run)),
            Step::Repeat(at) if !self.asked.is_empty() => {
                let (request, first) = self.asked[at.index(self.asked.len())].clone();
                let head = self.house.ledger.head();
                let reply = self.house.one(request);
                if !matches!(first, Reply::Waits(_)) {
                    assert_eq!((reply, self.house.ledger.head()), (first, head));
                } else {
                    self.reread();
                }
            }
            Step::Repeat(_) => {}
            Step::Tick(after_ns) => {
                self.house.tick(*after_ns);
                self.reread();
            }
            Step::Checkpoint => self.house.ledger.checkpoint().unwrap(),
            Step::Reopen => {
                let kept = self.house.ledger.table_hashes();
                self.house.reopen(Planted::none());
                assert_eq!(self.house.ledger.table_hashes(), kept);
            }
        }
    }

    /// What its holder shows of a lock, which is asked for first.
    fn holds(&mut self, lock: Lock) -> Option<Authority> {
        self.next(None, vec![acquire(lock, 9, 10_000)]);
        let (fence, holder) = self.model.locks.get(&lock).copied().unwrap_or_default();
        holder.map(|executor| Authority { lock, executor, fence })
    }

    fn stop(&mut self, run: RunId) {
        if let Some(held) = self.holds(Lock::Run(TENANT, run)) {
            let unit = UnitId(4);
            let attempt = self.model.attempts.get(&(TENANT, run, unit)).map_or(0, |(last, _)| *last) + 1;
            self.next(Some(held), vec![Command::Run(run::Command::Queue { run, unit, attempt })]);
        }
        let Some(owner) = self.holds(Lock::Owner) else { return };
        self.next(Some(owner), vec![Command::Run(run::Command::Cancel { run })]);
        let Some(held) = self.holds(Lock::Run(TENANT, run)) else { return };
        for (intent, of, unit, attempt) in self.reservations.clone() {
            let now = self.model.attempts.get(&(TENANT, of, unit)).copied();
            if of != run || now != Some((attempt, AttemptState::Running)) {
                continue;
            }
            let dispatched = matches!(self.model.intents.get(&intent), Some((_, Phase::Dispatched)));
            let state = if dispatched { AttemptState::Indeterminate } else { AttemptState::Cancelled };
            let released = (!dispatched).then(|| release(intent));
            let end = Command::Run(run::Command::EndAttempt { run, unit, attempt, state });
            self.next(Some(held), released.into_iter().chain([end]).collect());
        }
    }

    fn call(&mut self, run: RunId, unit: u32, question: u8) {
        let Some(held) = self.holds(Lock::Run(TENANT, run)) else { return };
        let held = Some(held);
        let attempt = match self.model.attempts.get(&(TENANT, run, UnitId(unit))) {
            Some((queued, AttemptState::Pending)) => *queued,
            last => last.map_or(0, |(last, _)| *last) + 1,
        };
        self.next(held, vec![begin_in(run, unit, attempt, IDEMPOTENT, question, 9)]);
        let Some(intent) = self.model.reserved.get(&(TENANT, run, UnitId(unit), attempt)).copied() else { return };
        self.next(held, vec![dispatch(intent)]);
        let (unit, state) = (UnitId(unit), AttemptState::Succeeded);
        let end = Command::Run(run::Command::EndAttempt { run, unit, attempt, state });
        self.next(held, vec![commit(intent, b"yes"), settle(intent, 5), end]);
    }

    /// The next request of client 1.
    fn next(&mut self, held: Option<Authority>, commands: Vec<Command>) {
        let number = self.numbers.entry(1).or_default();
        *number += 1;
        let request = request(1, *number, held, commands);
        self.ask(request);
    }

    fn ask(&mut self, request: Request) {
        let before = self.house.ledger.tables();
        let submitted = Submitted::arriving(request.clone(), self.house.now_ns);
        let [reply] = self.house.submit(vec![submitted]).replies.try_into().unwrap();
        let touched: Vec<&str> = before
            .iter()
            .zip(self.house.ledger.tables())
            .filter(|(before, after)| **before != *after)
            .map(|(_, after)| after.name)
            .collect();
        match &reply {
            Reply::Decided(decision) if decision.outcome.is_err() => {
                assert_eq!(
                    touched,
                    ["record.head", "effect.clients", "effect.answers"][..]
                        .iter()
                        .copied()
                        .filter(|name| touched.contains(name))
                        .collect::<Vec<_>>()
                );
            }
            Reply::Waits(_) => assert!(touched.is_empty(), "a wait touched {touched:?}"),
            _ => {}
        }
        self.asked.push((request, reply));
        self.reread();
    }

    /// What the ledger says of every run is what the log makes of it.
    fn stands(&self) {
        for (&(tenant, run), &state) in &self.model.runs {
            let Answer::Run(Some(standing)) = self.house.ledger.query(&Query::Run(tenant, run)) else {
                panic!("run {run} is not known");
            };
            let latest = self.model.attempts.iter().filter(|((of, which, _), _)| (*of, *which) == (tenant, run));
            let latest: Vec<_> = latest.map(|((.., unit), (attempt, state))| (*unit, *attempt, *state)).collect();
            let told: Vec<_> = standing.units.iter().map(|unit| (unit.unit, unit.attempt, unit.state)).collect();
            assert_eq!((standing.state, told), (state, latest), "run {run}");
        }
    }

    /// Reads what is new in the log.
    fn reread(&mut self) {
        let frames = self.house.store.log(0).unwrap();
        let mut model = Model::default();
        self.reservations.clear();
        for frame in record::verify(frames) {
            for record in frame.unwrap().records {
                model.read(&record);
                if let Event::Reserve(reserve::Event::Reserved { reservation, run, unit, attempt, .. }) = record.event {
                    self.reservations.push((reservation, run, unit, attempt));
                }
            }
            model.frame += 1;
        }
        self.model = model;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn any_life_obeys_the_rules_and_folds_the_same(steps in prop::collection::vec(step(), 1..70), cut in any::<prop::sample::Index>()) {
        let mut life = Life::new();
        for step in &steps {
            life.step(step);
        }
        life.stands();
        let frames = life.house.store.log(0).unwrap();
        let rebuilt = prove::rebuild(&frames).unwrap();
        prove::compare(&life.house.ledger.table_hashes(), &rebuilt).unwrap();
        // A crash after any commit: what opens is what the prefix gives.
        let prefix = frames[..cut.index(frames.len())].to_vec();
        let opened = Ledger::open(MemoryStore::holding(prefix.clone()), Planted::none()).unwrap();
        prove::compare(&opened.table_hashes(), &prove::rebuild(&prefix).unwrap()).unwrap();
        // Whole, without any checkpoint.
        let opened = Ledger::open(MemoryStore::holding(frames), Planted::none()).unwrap();
        prove::compare(&opened.table_hashes(), &rebuilt).unwrap();
    }
}

/// What random lives are about.
const REACHED: [&str; 28] = [
    "expired",
    "renewed",
    "reserved",
    "resolved",
    "overrun",
    "released",
    "ended",
    "suspended",
    "resumed",
    "cancelled at once",
    "cancelled",
    "cancelled to its end",
    "over cap",
    "no slot",
    "deposed",
    "halted",
    "too many runs",
    "too dear",
    "too deep",
    "refused by run",
    "refused",
    "waits",
    "recalled",
    "queued",
    "timed out",
    "dispatched",
    "committed",
    "follows",
];

/// The random lives are worth something: most kinds of thing happen in them.
#[test]
fn random_lives_reach_what_they_are_about() {
    use proptest::{strategy::ValueTree, test_runner::TestRunner};
    let mut runner = TestRunner::deterministic();
    let mut seen: BTreeMap<&str, u32> = BTreeMap::new();
    for _ in 0..250 {
        let steps = prop::collection::vec(step(), 40..70).new_tree(&mut runner).unwrap().current();
        let mut life = Life::new();
        steps.iter().for_each(|step| life.step(step));
        let records = record::verify(life.house.store.log(0).unwrap()).flat_map(|frame| frame.unwrap().records);
        for record in records {
            let name = match record.event {
                Event::Lease(lease::Event::Expired { .. }) => "expired",
                Event::Lease(lease::Event::Renewed { .. }) => "renewed",
                Event::Reserve(reserve::Event::Reserved { .. }) => "reserved",
                Event::Reserve(
                    reserve::Event::Settled { by_owner: true, .. } | reserve::Event::Released { by_owner: true, .. },
                ) => "resolved",
                Event::Reserve(reserve::Event::Settled { overrun: MicroUsd(1..), .. }) => "overrun",
                Event::Reserve(reserve::Event::Released { .. }) => "released",
                Event::Run(run::Event::Ended { outcome: Ending::Cancelled, .. }) => "cancelled to its end",
                Event::Run(run::Event::Ended { .. }) => "ended",
                Event::Run(run::Event::Suspended { .. }) => "suspended",
                Event::Run(run::Event::Resumed { .. }) => "resumed",
                Event::Run(run::Event::Cancelled { running: 0, .. }) => "cancelled at once",
                Event::Run(run::Event::Cancelled { .. }) => "cancelled",
                Event::Run(run::Event::Recalled { .. }) => "recalled",
                Event::Run(run::Event::AttemptQueued { .. }) => "queued",
                Event::Run(run::Event::AttemptEnded { state: AttemptState::TimedOut, .. }) => "timed out",
                Event::Effect(effect::Event::Dispatched { .. }) => "dispatched",
                Event::Effect(effect::Event::Committed { .. }) => "committed",
                Event::Effect(effect::Event::Decided { outcome: Err(ref no), .. }) => match no {
                    kernel::request::Refusal::Admit(admit::Refusal::Halted { .. }) => "halted",
                    kernel::request::Refusal::Admit(admit::Refusal::TooManyRuns { .. }) => "too many runs",
                    kernel::request::Refusal::Admit(admit::Refusal::TooDear { .. }) => "too dear",
                    kernel::request::Refusal::Admit(admit::Refusal::TooDeep { .. }) => "too deep",
                    kernel::request::Refusal::Reserve(reserve::Refusal::OverCap { .. }) => "over cap",
                    kernel::request::Refusal::Reserve(reserve::Refusal::NoSlot { .. }) => "no slot",
                    kernel::request::Refusal::Lease(lease::Refusal::Deposed { .. }) => "deposed",
                    kernel::request::Refusal::Run(_) => "refused by run",
                    _ => "refused",
                },
                _ => continue,
            };
            *seen.entry(name).or_default() += 1;
        }
        let in_flight = life.asked.iter().filter(|(_, reply)| matches!(reply, Reply::Waits(Turn::Answer(..)))).count();
        *seen.entry("follows").or_default() += in_flight as u32;
        let waits = life.asked.iter().filter(|(_, reply)| matches!(reply, Reply::Waits(_))).count();
        *seen.entry("waits").or_default() += waits as u32;
    }
    for name in REACHED {
        assert!(seen.get(name).is_some_and(|count| *count >= 5), "{name} is rare in {seen:?}");
    }
}
