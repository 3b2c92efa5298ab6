//! Each room's rules, one table or story a rule: leases and fences, deduplication, budgets and slots, attempts.

#![allow(clippy::unwrap_used)] // what a test cannot go on without, it panics for

mod house;

use house::*;
use kernel::{
    admit::DepthTier,
    id::{DAY_NS, ExecutorId, Fence, LedgerTime, ModelId, ReservationId, RunId, TenantId, UnitId, UserId},
    lease::{self, Authority, Lock},
    money::{MicroUsd, Price},
    planted::Planted,
    request::{Answer, Command, Notice, Query, Refusal, Reply, Request, Submitted, Turn},
    reserve::{self, Account, Level},
    run::{self, AttemptState, Ending, Purpose},
};

// ---- lease ----

#[test]
fn each_grant_has_a_higher_fence_and_the_deposed_are_told() {
    let (mut house, first) = House::new().running();
    assert_eq!(first.fence, Fence(1));
    house.ok(None, vec![Command::Lease(lease::Command::Yield { held: first })]);
    let second = house.acquire(LOCK, 6, 100);
    assert_eq!(second.fence, Fence(2));
    let deposed = lease::Refusal::Deposed { lock: LOCK, offered: Fence(1), highest: Fence(2) };
    let writes = [reserve(1, 1, 10), end_attempt(1, 1, AttemptState::Failed), end(Ending::Complete)];
    for write in writes {
        assert_eq!(house.no(Some(first), vec![write]), deposed.clone().into());
    }
    let renew = Command::Lease(lease::Command::Renew { held: first, ttl_ns: 5 });
    assert_eq!(house.no(None, vec![renew]), deposed.clone().into());
    assert_eq!(house.no(None, vec![Command::Lease(lease::Command::Yield { held: first })]), deposed.into());
}

#[test]
fn only_the_holder_of_the_named_lock_writes() {
    let (mut house, holder) = House::new().running();
    let not_holder = |executor, fence| {
        let (executor, fence) = (ExecutorId(executor), Fence(fence));
        Refusal::from(lease::Refusal::NotHolder { lock: LOCK, executor, fence })
    };
    let needs = |needed| Refusal::from(lease::Refusal::NoAuthority { needed });
    let other = Authority { executor: ExecutorId(6), ..holder };
    let future = Authority { fence: Fence(9), ..holder };
    let other_run = Lock::Run(TENANT, RunId(1));
    let of_other_run = house.acquire(other_run, 5, 1_000_000);
    let owner = house.acquire(Lock::Owner, 5, 1_000_000);
    let cap_of_user = || cap(TENANT, Level::UserDay, 1);
    let cases = [
        (Some(other), reserve(1, 1, 10), not_holder(6, 1)),
        (Some(future), reserve(1, 1, 10), not_holder(5, 9)),
        (None, reserve(1, 1, 10), needs(LOCK)),
        (Some(of_other_run), reserve(1, 1, 10), needs(LOCK)),
        (Some(owner), end(Ending::Complete), needs(LOCK)),
        (Some(holder), cap_of_user(), needs(Lock::Owner)),
        (None, cap_of_user(), needs(Lock::Owner)),
        (Some(holder), resolve(ReservationId(0), None), needs(Lock::Owner)),
        (None, Command::Lease(lease::Command::Tick), needs(Lock::Owner)),
    ];
    for (authority, command, expected) in cases {
        assert_eq!(house.no(authority, vec![command.clone()]), expected, "{command:?} under {authority:?}");
    }
    house.ok(Some(owner), vec![cap_of_user()]);
}

#[test]
fn what_cannot_be_held_is_refused() {
    let mut house = House::new();
    assert_eq!(house.no(None, vec![acquire(LOCK, 5, 0)]), lease::Refusal::NoTerm.into());
    assert_eq!(house.no(None, vec![acquire(LOCK, 0, 5)]), lease::Refusal::Nobody { lock: LOCK }.into());
    let lock = Lock::Run(TenantId(2), RUN);
    assert_eq!(house.no(None, vec![acquire(lock, 5, 5)]), lease::Refusal::OtherTenant { lock, tenant: TENANT }.into());
    let held = house.acquire(LOCK, 5, u64::MAX);
    let renew = Command::Lease(lease::Command::Renew { held, ttl_ns: 0 });
    assert_eq!(house.no(None, vec![renew]), lease::Refusal::NoTerm.into());
    house.tick(1_000_000);
    let no_run = run::Refusal::Unknown { run: RUN };
    assert_eq!(house.no(Some(held), vec![reserve(1, 1, 1)]), no_run.into(), "it lasts for ever, and there is no run");
}

#[test]
fn expiry_binds_only_once_a_tick_commits_it() {
    let mut house = House::new();
    house.ok(None, vec![spawn(RUN)]);
    let held = house.acquire(LOCK, 5, 100);
    assert_eq!(house.ledger.tick_due_ns(), Some(house.now_ns + 101));
    house.tick(100);
    house.reserve(held, 1, 1, 1);
    house.now_ns += 50;
    house.reserve(held, 2, 1, 1);
    assert!(house.notices.is_empty());
    house.tick(0);
    assert_eq!(house.notices, [Notice::TurnCame(Turn::Lock(LOCK))]);
    assert_eq!(house.ledger.tick_due_ns(), None);
    let not_holder = lease::Refusal::NotHolder { lock: LOCK, executor: held.executor, fence: held.fence };
    assert_eq!(house.no(Some(held), vec![reserve(3, 1, 1)]), not_holder.into());
    assert_eq!(house.acquire(LOCK, 6, 100).fence, Fence(2));
}

#[test]
fn leases_end_in_order_and_a_reopened_ledger_asks_for_a_tick_at_once() {
    let mut house = House::new();
    let locks: Vec<Lock> = (0..5).map(|run| Lock::Run(TENANT, RunId(run))).collect();
    for (at, ttl_ns) in [(0, 300), (1, 100), (2, 200), (3, 900)] {
        house.acquire(locks[at], 5, ttl_ns);
    }
    house.reopen(Planted::none());
    assert_eq!(house.ledger.tick_due_ns(), Some(0));
    house.now_ns = 50;
    house.tick(0);
    assert_eq!(house.ledger.tick_due_ns(), Some(151), "the lease's 100 ns run from the first reading");
    house.tick(301);
    let turns = [1, 2, 0].map(|at| Notice::TurnCame(Turn::Lock(locks[at])));
    assert_eq!(house.notices, turns);
}

#[test]
fn asking_again_extends_and_never_shortens() {
    let mut house = House::new();
    let held = house.acquire(LOCK, 5, 100);
    let until = |house: &mut House, command| match &house.ok(None, vec![command])[..] {
        [kernel::request::Outcome::Lease(lease::Outcome::Held { fence, until })] => (*fence, until.0),
        other => panic!("{other:?}"),
    };
    assert_eq!(until(&mut house, acquire(LOCK, 5, 50)), (held.fence, 100));
    house.now_ns += 70;
    assert_eq!(until(&mut house, acquire(LOCK, 5, 50)), (held.fence, 120));
    let renew = |ttl_ns| Command::Lease(lease::Command::Renew { held, ttl_ns });
    assert_eq!(until(&mut house, renew(10)), (held.fence, 120));
    assert_eq!(until(&mut house, renew(500)), (held.fence, 570));
    assert_eq!(house.ledger.tick_due_ns(), Some(1_000 + 571));
    house.tick(51);
    assert!(house.notices.is_empty(), "the lease was extended past its first end");
}

#[test]
fn a_waiter_is_granted_within_its_own_term_only() {
    let wait = |house: &mut House| Request { wait_ns: 40, ..house.next(None, vec![acquire(LOCK, 6, 100)]) };
    let mut house = House::new();
    let holder = house.acquire(LOCK, 5, 1_000);
    let waiter = Submitted::arriving(wait(&mut house), house.now_ns);
    let head = house.ledger.head();
    assert_eq!(house.submit(vec![waiter.clone()]).replies, [Reply::Waits(Turn::Lock(LOCK))]);
    assert_eq!(house.ledger.head(), head, "a wait records nothing");
    house.now_ns += 41;
    let refused = |committed: kernel::ledger::Committed| match &committed.replies[..] {
        [Reply::Decided(decision)] => decision.outcome.clone().unwrap_err(),
        other => panic!("{other:?}"),
    };
    let until = LedgerTime(1_000);
    let held = lease::Refusal::Held { lock: LOCK, holder: holder.executor, fence: holder.fence, until };
    assert_eq!(refused(house.submit(vec![waiter])), held.into());

    let (in_time, too_late) = (wait(&mut house), wait(&mut house));
    let too_late = Submitted::arriving(too_late, house.now_ns);
    house.now_ns += 40;
    house.ok(None, vec![Command::Lease(lease::Command::Yield { held: holder })]);
    house.now_ns += 1;
    house.notices.clear();
    let expired = lease::Refusal::WaiterExpired { lock: LOCK, now: LedgerTime(82) };
    assert_eq!(refused(house.submit(vec![too_late])), expired.into());
    assert_eq!(house.notices, [Notice::TurnCame(Turn::Lock(LOCK))], "the turn is the next waiter's");
    assert_eq!(held_fence(house.one(in_time)), Fence(2));
}

fn held_fence(reply: Reply) -> Fence {
    house::held(&decided(reply).unwrap())
}

// ---- effect ----

#[test]
fn a_repeat_gets_the_first_answer() {
    let (mut house, authority) = House::new().running();
    let ask =
        |number, acknowledged, command| Request { acknowledged, ..request(9, number, Some(authority), vec![command]) };
    let first = house.one(ask(1, 0, reserve(1, 1, 10)));
    let refused = house.one(ask(2, 0, reserve(1, 1, 10)));
    assert!(matches!(&refused, Reply::Decided(decision) if decision.outcome.is_err()));
    let head = house.ledger.head();
    // Whatever a repeat carries, in the same life, in one batch, or after opening again.
    assert_eq!(house.one(ask(1, 0, reserve(1, 1, 10))), first);
    assert_eq!(house.one(ask(2, 0, reserve(8, 1, 10))), refused);
    house.reopen(Planted::none());
    let replies = house.batch(vec![ask(2, 0, reserve(1, 1, 10)), ask(1, 0, reserve(1, 1, 10))]).replies;
    assert_eq!(replies, [refused.clone(), first.clone()]);
    assert_eq!(house.ledger.head(), head);

    let replies = house.batch(vec![ask(3, 0, reserve(2, 1, 10)), ask(3, 0, reserve(2, 1, 10))]).replies;
    assert_eq!(replies[0], replies[1]);
    assert_eq!(house.ledger.head().0, head.0 + 3, "a repeat within a batch is decided once");

    house.one(ask(4, 2, reserve(3, 1, 10)));
    assert_eq!(house.one(ask(2, 0, reserve(1, 1, 10))), Reply::Forgotten { acknowledged: 2 });
    house.one(ask(5, 1, reserve(4, 1, 10)));
    assert_eq!(house.one(ask(2, 0, reserve(1, 1, 10))), Reply::Forgotten { acknowledged: 2 }, "it never goes back");
    assert_eq!(house.one(ask(3, 2, reserve(2, 1, 10))), replies[0]);

    for (number, unit) in [(5, 5), (3, 6)] {
        let newer = Request { incarnation: 2, ..ask(number, 0, reserve(unit, 1, 10)) };
        let reply = house.one(newer);
        assert!(matches!(reply, Reply::Decided(decision) if decision.outcome.is_ok()), "its numbers begin afresh");
    }
    assert_eq!(house.one(ask(6, 5, reserve(6, 1, 10))), Reply::Stale { newest: 2 });
    let other_tenant = Request { tenant: TenantId(2), ..ask(1, 0, spawn(RUN)) };
    assert!(matches!(house.one(other_tenant), Reply::Decided(_)), "clients are known by tenant");
}

/// A client may number as it likes: what it acknowledges at a stroke is forgotten at a stroke, and nobody else's answers are.
#[test]
fn a_far_acknowledgement_forgets_that_clients_answers_alone() {
    const FAR: u64 = u64::MAX / 2;
    let (mut house, authority) = House::new().running();
    let ask = |client, number, acknowledged, unit| Request {
        acknowledged,
        ..request(client, number, Some(authority), vec![reserve(unit, 1, 10)])
    };
    for number in 1..4 {
        house.one(ask(9, number, 0, number as u32));
    }
    let other = house.one(ask(8, 2, 0, 4));
    assert!(matches!(house.one(ask(9, FAR, FAR - 1, 5)), Reply::Decided(_)));
    for number in 1..4 {
        assert_eq!(house.one(ask(9, number, 0, 6)), Reply::Forgotten { acknowledged: FAR - 1 });
    }
    assert_eq!(house.one(ask(8, 2, 0, 6)), other);
    let answers = |house: &House| {
        let tables = house.ledger.tables();
        tables.iter().find(|table| table.name == "effect.answers").expect("a table of that name").rows
    };
    let held = answers(&house);
    house.reopen(Planted::none());
    assert_eq!(house.one(ask(8, 2, 0, 6)), other, "and so it is after opening again");
    assert_eq!(answers(&house), held);
    house.ledger.checkpoint().unwrap();
    house.reopen(Planted::none());
    // Of client 9 the far one is left, and goes with the next; of client 8 its only one, and goes with its next life.
    house.one(ask(9, FAR + 1, FAR, 7));
    assert_eq!(answers(&house), held);
    house.one(Request { incarnation: 2, ..ask(8, 1, 0, 8) });
    assert_eq!(answers(&house), held);
}

#[test]
fn an_ill_made_request_is_refused_with_its_numbers() {
    let mut house = House::new();
    let misnumbered =
        |number, acknowledged| Refusal::from(kernel::effect::Refusal::Misnumbered { number, acknowledged });
    let head = house.ledger.head();
    let zero = house.one(request(9, 0, None, vec![spawn(RUN)]));
    assert_eq!(decided(zero).unwrap_err(), misnumbered(0, 0));
    assert_eq!(house.ledger.head(), head, "there is no number to remember it under");
    let ask = |number, acknowledged, commands| Request { acknowledged, ..request(9, number, None, commands) };
    for (number, acknowledged) in [(3, 3), (4, 9)] {
        let reply = house.one(ask(number, acknowledged, vec![spawn(RUN)]));
        assert_eq!(decided(reply.clone()).unwrap_err(), misnumbered(number, acknowledged));
        assert_eq!(house.one(ask(number, 0, vec![spawn(RUN)])), reply, "and remembered");
    }
    assert_eq!(decided(house.one(ask(5, 0, vec![]))).unwrap_err(), kernel::effect::Refusal::Empty.into());
    assert!(decided(house.one(ask(1, 0, vec![spawn(RUN)]))).is_ok(), "what it acknowledged was not believed");
}

#[test]
fn the_ledgers_own_requests_are_ticks_and_one_genesis() {
    let mut house = House::new();
    let no = Refusal::from(lease::Refusal::NoAuthority { needed: Lock::Owner });
    for command in [cap(TENANT, Level::Run, 5), spawn(RUN), acquire(LOCK, 5, 5)] {
        let head = house.ledger.head();
        assert_eq!(decided(house.one(Request::genesis(vec![command]))).unwrap_err(), no);
        assert_eq!(house.ledger.head(), head);
    }
}

// ---- reserve ----

/// Asks in a house where one reservation of 40 is live and 30 are settled in the same unit's run, user and day.
fn over_cap(unit: u64, run: u64, user_day: u64, ledger_day: u64, asked: u64) -> Result<(), (Level, u64)> {
    let (mut house, authority) = House::with(genesis(unit, run, user_day, ledger_day, 10), Planted::none()).running();
    let first = house.reserve(authority, 1, 1, 30);
    house.ok(Some(authority), vec![settle(first, 30), end_attempt(1, 1, AttemptState::Succeeded)]);
    house.reserve(authority, 2, 1, 40);
    match house.ask(Some(authority), vec![reserve(3, 1, asked)]) {
        Ok(_) => Ok(()),
        Err(Refusal::Reserve(reserve::Refusal::OverCap { level, account, cap, settled, live, asked: of })) => {
            let whole = if level == Level::Unit { (0, 0) } else { (30, 40) };
            assert_eq!((settled.0, live.0, of.0, account.level()), (whole.0, whole.1, asked, level));
            Err((level, cap.0))
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_level_is_checked_with_one_comparator_and_the_lowest_exhausted_is_named() {
    const FAR: u64 = 1_000;
    let cases = [
        ((FAR, FAR, FAR, FAR, 30), Ok(())),
        ((FAR, 100, 100, 100, 30), Ok(())),
        ((FAR, 100, 100, 100, 31), Err((Level::Run, 100))),
        ((FAR, FAR, 100, 100, 31), Err((Level::UserDay, 100))),
        ((FAR, FAR, FAR, 100, 31), Err((Level::LedgerDay, 100))),
        ((40, 100, 100, 100, 41), Err((Level::Unit, 40))),
        ((40, FAR, FAR, FAR, 40), Ok(())),
        ((40, FAR, FAR, 70, 1), Err((Level::LedgerDay, 70))),
    ];
    for ((unit, run, user_day, ledger_day, asked), expected) in cases {
        let found = over_cap(unit, run, user_day, ledger_day, asked);
        assert_eq!(found, expected, "caps {unit}, {run}, {user_day}, {ledger_day}, asked {asked}");
    }
}

#[test]
fn sixty_four_agents_at_the_edge_of_a_budget_are_two() {
    let mut house = House::with(genesis(1_000_000, 1_000_000, 1_000_000, 1_000_000, 100), Planted::none());
    let mut admitted = 0;
    for agent in 0..64 {
        let run = RunId(agent);
        house.ok(None, vec![spawn(run)]);
        let authority = house.acquire(Lock::Run(TENANT, run), agent + 1, 1_000_000);
        admitted += u32::from(house.ask(Some(authority), vec![reserve_in(run, 1, 1, 500_000)]).is_ok());
    }
    assert_eq!(admitted, 2);
}

#[test]
fn a_lowered_cap_admits_nothing_new_and_rewrites_nothing() {
    let (mut house, authority) = House::new().running();
    let live = house.reserve(authority, 1, 1, 100);
    let owner = house.acquire(Lock::Owner, 8, 1_000_000);
    house.ok(Some(owner), vec![cap(TENANT, Level::Run, 40)]);
    let over = |house: &mut House| match house.no(Some(authority), vec![reserve(3, 1, 1)]) {
        Refusal::Reserve(reserve::Refusal::OverCap { cap, settled, live, .. }) => (cap.0, settled.0, live.0),
        other => panic!("{other:?}"),
    };
    assert_eq!(over(&mut house), (40, 0, 100));
    // Usage above the reservation is settled as it is, and counts.
    let outcomes = house.ok(Some(authority), vec![settle(live, 250), end_attempt(1, 1, AttemptState::Succeeded)]);
    let settled = reserve::Outcome::Settled { cost: MicroUsd(250), overrun: MicroUsd(150) };
    assert_eq!(outcomes[0], kernel::request::Outcome::Reserve(settled));
    assert_eq!(over(&mut house), (40, 250, 0));
    house.ok(Some(owner), vec![cap(TENANT, Level::Run, 251)]);
    house.reserve(authority, 2, 1, 1);
    house.ok(Some(owner), vec![cap(TENANT, Level::Run, 0)]);
    assert_eq!(over(&mut house), (0, 250, 1));
}

#[test]
fn nothing_is_admitted_without_a_cap_a_price_or_slots() {
    let (mut house, authority) = House::with(vec![cap(TENANT, Level::Unit, 100)], Planted::none()).running();
    let owner = house.acquire(Lock::Owner, 8, 1_000_000);
    let set = |command| Command::Reserve(command);
    let price = Price { input_per_mtok: 0, ..price() };
    let steps = [
        (reserve::Refusal::NoPrice { model: MODEL }, set(reserve::Command::SetPrice(price))),
        (
            reserve::Refusal::NoCap { level: Level::Run, tenant: TENANT, asked: MicroUsd(10) },
            cap(TENANT, Level::Run, 100),
        ),
        (
            reserve::Refusal::NoCap { level: Level::UserDay, tenant: TENANT, asked: MicroUsd(10) },
            cap(TENANT, Level::UserDay, 100),
        ),
        (
            reserve::Refusal::NoCap { level: Level::LedgerDay, tenant: TenantId::LEDGER, asked: MicroUsd(10) },
            cap(TenantId::LEDGER, Level::LedgerDay, 100),
        ),
        (
            reserve::Refusal::NoSlot { user: USER, live: 0, slots: 0 },
            set(reserve::Command::SetSlots { tenant: TENANT, slots: 1 }),
        ),
    ];
    for (refusal, remedy) in steps {
        assert_eq!(house.no(Some(authority), vec![reserve(1, 1, 10)]), refusal.into());
        house.ok(Some(owner), vec![remedy]);
    }
    house.reserve(authority, 1, 1, 10);
    for (tenant, level) in [(TENANT, Level::LedgerDay), (TenantId::LEDGER, Level::Run)] {
        let wrong = reserve::Refusal::WrongTenant { level, tenant };
        assert_eq!(house.no(Some(owner), vec![cap(tenant, level, 5)]), wrong.into());
    }
}

#[test]
fn a_reservation_settles_at_the_price_and_in_the_day_it_was_made() {
    let (mut house, authority) = House::new().running();
    let first = house.reserve(authority, 1, 1, 100);
    let owner = house.acquire(Lock::Owner, 8, 2 * DAY_NS);
    let dearer = Price { output_per_mtok: 9_000_000, ..price() };
    house.ok(Some(owner), vec![Command::Reserve(reserve::Command::SetPrice(dearer))]);
    house.now_ns += DAY_NS;
    house.ok(Some(authority), vec![settle(first, 60), end_attempt(1, 1, AttemptState::Succeeded)]);
    let second = house.reserve(authority, 2, 1, 100);
    house.ok(Some(authority), vec![settle(second, 1), end_attempt(2, 1, AttemptState::Succeeded)]);
    let settled_of = |day| match house.ledger.query(&Query::Account(Account::UserDay(TENANT, USER, day))) {
        Answer::Account { settled, live, .. } => (settled.0, live.0),
        other => panic!("{other:?}"),
    };
    assert_eq!([settled_of(0), settled_of(1)], [(60, 0), (9, 0)]);
}

#[test]
fn each_reservation_ends_once_and_by_whom_it_may() {
    let (mut house, authority) = House::new().running();
    let other_run = RunId(101);
    house.ok(None, vec![spawn(other_run)]);
    let other = house.acquire(Lock::Run(TENANT, other_run), 5, 1_000_000);
    let owner = house.acquire(Lock::Owner, 8, 1_000_000);
    let live = house.reserve(authority, 1, 1, 10);
    let unknown = |reservation| Refusal::from(reserve::Refusal::Unknown { reservation });
    let nothing = ReservationId(12345);
    for command in [settle(live, 1), release(live)] {
        assert_eq!(house.no(Some(other), vec![command.clone()]), unknown(live));
        assert_eq!(house.no(None, vec![command]), lease::Refusal::NoAuthority { needed: LOCK }.into());
    }
    assert_eq!(house.no(Some(authority), vec![release(nothing)]), unknown(nothing));
    assert_eq!(house.no(None, vec![release(nothing)]), unknown(nothing));
    assert_eq!(house.no(Some(owner), vec![resolve(nothing, None)]), unknown(nothing));
    let still_live = reserve::Refusal::StillLive { reservation: live };
    assert_eq!(house.no(Some(owner), vec![resolve(live, Some(5))]), still_live.into());

    house.ok(Some(authority), vec![end_attempt(1, 1, AttemptState::Indeterminate)]);
    let awaits = Refusal::from(reserve::Refusal::AwaitsOwner { reservation: live });
    assert_eq!(house.no(Some(authority), vec![settle(live, 1)]), awaits);
    assert_eq!(house.no(Some(authority), vec![release(live)]), awaits);
    house.notices.clear();
    house.ok(Some(owner), vec![resolve(live, Some(5))]);
    assert_eq!(house.notices, [Notice::TurnCame(Turn::Slot(TENANT, USER))]);
    let ended = Refusal::from(reserve::Refusal::Ended { reservation: live });
    assert_eq!(house.no(Some(owner), vec![resolve(live, None)]), ended);
    assert_eq!(house.no(Some(authority), vec![release(live)]), ended);
    assert_eq!(house.ledger.query(&Query::AwaitsOwner(TENANT)), Answer::AwaitsOwner(vec![]));
    // The attempt's state stands: the unit does not start again.
    let wrong = run::AttemptState::Indeterminate;
    let Answer::Run(Some(standing)) = house.ledger.query(&Query::Run(TENANT, RUN)) else { panic!("known") };
    assert_eq!((standing.units[0].state, standing.units[0].open), (wrong, false));
}

#[test]
fn live_slots_are_a_users_and_free_ones_are_told() {
    let genesis = genesis(1_000, 1_000, 1_000, 1_000, 2);
    let (mut house, authority) = House::with(genesis, Planted::none()).running();
    let first = house.reserve(authority, 1, 1, 1);
    house.reserve(authority, 2, 1, 1);
    let no_slot = reserve::Refusal::NoSlot { user: USER, live: 2, slots: 2 };
    assert_eq!(house.no(Some(authority), vec![reserve(3, 1, 1)]), no_slot.clone().into());
    let turn = Turn::Slot(TENANT, USER);
    let waiting = |house: &mut House, unit| {
        let request = Request { wait_ns: 10, ..house.next(Some(authority), vec![reserve(unit, 1, 1)]) };
        Submitted::arriving(request, house.now_ns)
    };
    let (third, fourth) = (waiting(&mut house, 3), waiting(&mut house, 4));
    let replies = house.submit(vec![third.clone(), fourth.clone()]).replies;
    assert_eq!(replies, [Reply::Waits(turn), Reply::Waits(turn)]);
    house.notices.clear();
    house.ok(Some(authority), vec![release(first), end_attempt(1, 1, AttemptState::Failed)]);
    assert_eq!(house.notices, [Notice::TurnCame(turn)]);
    assert!(matches!(&house.submit(vec![third]).replies[..], [Reply::Decided(decision)] if decision.outcome.is_ok()));
    house.now_ns += 11;
    let [late] = house.submit(vec![fourth]).replies.try_into().unwrap();
    assert_eq!(decided(late).unwrap_err(), no_slot.into(), "past its term it no longer waits");

    // Another tenant's user has an open run too, and slots of its own.
    let theirs = Command::Run(run::Command::Spawn {
        run: RunId(50),
        user: UserId(9),
        task: kernel::id::TaskId(1),
        workflow_version: 1,
        purpose: Purpose::Work,
        depth: DepthTier(1),
    });
    let spawned = house.one(Request { tenant: TenantId(2), ..request(50, 1, None, vec![theirs]) });
    assert!(decided(spawned).is_ok());

    let owner = house.acquire(Lock::Owner, 8, 1_000_000);
    let slots = |slots| vec![Command::Reserve(reserve::Command::SetSlots { tenant: TENANT, slots })];
    house.notices.clear();
    house.ok(Some(owner), slots(5));
    assert_eq!(house.notices, [Notice::TurnCame(turn); 3], "one notice a freed slot");
    house.notices.clear();
    let fifth = waiting(&mut house, 5);
    house.now_ns += 11;
    let [late] = house.submit(vec![fifth]).replies.try_into().unwrap();
    assert_eq!(decided(late).unwrap_err(), reserve::Refusal::WaiterExpired { user: USER }.into());
    assert_eq!(house.notices, [Notice::TurnCame(turn)], "the turn is the next waiter's");
    house.notices.clear();
    house.ok(Some(owner), slots(1));
    house.ok(Some(owner), slots(2));
    assert!(house.notices.is_empty(), "two are live of two: none came free");
    house.ok(Some(owner), slots(u32::MAX));
    assert_eq!(house.notices.len(), 1024);
}

// ---- run ----

#[test]
fn a_spawn_is_repeated_freely_with_the_same_content_only() {
    let mut house = House::new();
    house.ok(None, vec![spawn(RUN)]);
    let head = house.ledger.head().0;
    house.ok(None, vec![spawn(RUN)]);
    assert_eq!(house.ledger.head().0, head + 1, "only the decision is recorded");
    let other = |user, task, workflow_version, purpose, depth| {
        let (run, user, task) = (RUN, UserId(user), kernel::id::TaskId(task));
        let depth = DepthTier(depth);
        Command::Run(run::Command::Spawn { run, user, task, workflow_version, purpose, depth })
    };
    let cases = [
        other(8, 1, 1, Purpose::Work, 1),
        other(7, 2, 1, Purpose::Work, 1),
        other(7, 1, 2, Purpose::Work, 1),
        other(7, 1, 1, Purpose::Grading, 1),
        other(7, 1, 1, Purpose::Work, 2),
    ];
    for command in cases {
        assert_eq!(house.no(None, vec![command]), run::Refusal::Taken { run: RUN }.into());
    }
}

#[test]
fn other_names_of_the_same_thing_are_other_things() {
    // The same run, client and model numbers in another tenant share nothing but the ledger's day.
    let (mut house, authority) = House::new().running();
    let reservation = house.reserve(authority, 1, 1, 10);
    let other = TenantId(2);
    let asks = |number, authority, command| Request { tenant: other, ..request(1, number, authority, vec![command]) };
    assert!(decided(house.one(asks(1, None, spawn(RUN)))).is_ok());
    let lock = Lock::Run(other, RUN);
    let fence = held_fence(house.one(asks(2, None, acquire(lock, 5, 1_000))));
    let in_other = Authority { lock, executor: ExecutorId(5), fence };
    let unknown = reserve::Refusal::Unknown { reservation };
    assert_eq!(decided(house.one(asks(3, Some(in_other), release(reservation)))).unwrap_err(), unknown.into());
    let no_cap = reserve::Refusal::NoCap { level: Level::Unit, tenant: other, asked: MicroUsd(10) };
    assert_eq!(decided(house.one(asks(4, Some(in_other), reserve(1, 1, 10)))).unwrap_err(), no_cap.into());
    let no_price =
        reserve::Command::Reserve { run: RUN, unit: UnitId(2), attempt: 1, model: ModelId(999), worst: MicroUsd(1) };
    let refusal = house.no(Some(authority), vec![Command::Reserve(no_price)]);
    assert_eq!(refusal, reserve::Refusal::NoPrice { model: ModelId(999) }.into());
    assert_eq!(house.ledger.query(&Query::Run(other, RunId(9))), Answer::Run(None));
}
