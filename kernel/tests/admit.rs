//! The room `admit`: quotas of users and the halt switch, one table or story a rule.

#![allow(clippy::unwrap_used)] // what a test cannot go on without, it panics for

mod house;

use house::*;
use kernel::{
    admit::{self, DepthTier, Quota, Refusal, Switch},
    id::{DAY_NS, RunId, TenantId, UserId},
    lease::{self, Authority, Lock},
    money::MicroUsd,
    planted::Planted,
    prove,
    request::{Answer, Command, Query, Reply, Request, Submitted},
    run::{AttemptState, Ending, HaltReason},
    store::Store,
};

const HALTED: Refusal = Refusal::Halted { tenant: TENANT };

/// A house whose genesis sets one quota for every user of the tenant.
fn with_quota(runs_per_day: u32, micro_usd_per_day: u64, depth_tier: u8) -> House {
    let mut commands = genesis(1_000, 1_000, 1_000, 1_000, 10);
    commands.push(quota(None, runs_per_day, micro_usd_per_day, depth_tier));
    House::with(commands, Planted::none())
}

fn too_many(taken: u32, limit: u32, day: u32) -> kernel::request::Refusal {
    Refusal::TooManyRuns { user: USER, day, limit, taken }.into()
}

/// What the tenant's user may begin: whose halt stops it, and how many runs it has taken of today.
fn standing(house: &House) -> (Option<TenantId>, Option<Quota>, u32) {
    match house.ledger.query(&Query::Admission(TENANT, USER)) {
        Answer::Admission { halted, quota, taken, .. } => (halted, quota, taken),
        other => panic!("an admission was asked for: {other:?}"),
    }
}

fn owner(house: &mut House) -> Authority {
    house.acquire(Lock::Owner, 8, DAY_NS * 10)
}

#[test]
fn only_the_owner_sets_quotas_and_halts() {
    let (mut house, run) = House::new().running();
    let settings = [halt(TENANT, Switch::Halted), halt(TenantId::LEDGER, Switch::Open), quota(None, 1, 1, 1)];
    for setting in &settings {
        let refused = lease::Refusal::NoAuthority { needed: Lock::Owner };
        for authority in [None, Some(run)] {
            assert_eq!(house.no(authority, vec![setting.clone()]), refused.clone().into(), "{setting:?}");
        }
    }
    let owner = owner(&mut house);
    for setting in settings {
        house.ok(Some(owner), vec![setting]);
    }
    let of_the_ledger = admit::Command::SetQuota { tenant: TenantId::LEDGER, user: None, quota: None };
    assert_eq!(house.no(Some(owner), vec![Command::Admit(of_the_ledger)]), Refusal::NoUsers.into());
    let Reply::Decided(decision) = house.one(Request::genesis(vec![halt(TENANT, Switch::Halted)])) else { panic!() };
    assert!(decision.outcome.is_err(), "there is one genesis");
}

#[test]
fn a_spawn_is_asked_depth_then_runs_then_dollars_then_halt() {
    let spent = |house: &mut House| {
        house.ok(None, vec![spawn(RUN)]);
        let held = house.acquire(LOCK, 5, 1_000);
        house.reserve(held, 1, 1, 30);
    };
    let new = RunId(7);
    let dear = Refusal::TooDear {
        user: USER,
        day: 0,
        limit: MicroUsd(30),
        settled: MicroUsd(0),
        live: MicroUsd(30),
        asked: MicroUsd(1),
    };
    let deep = Refusal::TooDeep { user: USER, deepest: DepthTier(2), asked: DepthTier(3) };
    // (runs a day, dollars a day, whether halted, depth asked) -> the refusal.
    let cases = [
        ((1, 30, true, 3), Some(deep.into())),
        ((1, 30, true, 2), Some(too_many(1, 1, 0))),
        ((2, 30, true, 2), Some(dear.into())),
        ((2, 31, true, 2), Some(HALTED.into())),
        ((2, 31, false, 2), None),
    ];
    for ((runs, dollars, halts, depth), expected) in cases {
        let mut house = with_quota(runs, dollars, 2);
        spent(&mut house);
        if halts {
            let owner = owner(&mut house);
            house.ok(Some(owner), vec![halt(TENANT, Switch::Halted)]);
        }
        let before = house.ledger.tables();
        let asked = house.ask(None, vec![spawn_deep(new, USER, depth)]);
        assert_eq!(asked.err(), expected);
        let touched = before.iter().zip(house.ledger.tables()).filter(|(before, after)| *before != after);
        let touched: Vec<&str> = touched.map(|(table, _)| table.name).collect();
        let domain = ["record.lsns", "run.runs", "admit.taken"];
        assert_eq!(domain.iter().all(|table| touched.contains(table)), expected.is_none(), "{touched:?}");
        assert_eq!(domain.iter().any(|table| touched.contains(table)), expected.is_none(), "{touched:?}");
    }
}

#[test]
fn a_reserve_is_asked_dollars_then_halt_then_all_the_rest() {
    let mut house = with_quota(9, 50, 9);
    house.ok(None, vec![spawn(RUN)]);
    let held = house.acquire(LOCK, 5, DAY_NS * 10);
    let first = house.reserve(held, 1, 1, 20);
    let dear = |settled, live, asked| {
        let [limit, settled, live, asked] = [50, settled, live, asked].map(MicroUsd);
        kernel::request::Refusal::from(Refusal::TooDear { user: USER, day: 0, limit, settled, live, asked })
    };
    assert_eq!(house.no(Some(held), vec![reserve(2, 1, 31)]), dear(0, 20, 31));
    assert_eq!(
        house.no(None, vec![reserve(2, 1, u64::MAX)]),
        dear(0, 20, u64::MAX),
        "before any authority is asked for"
    );
    house.reserve(held, 2, 1, 30);
    let settled = house.ask(Some(held), vec![settle(first, 25), end_attempt(1, 1, AttemptState::Succeeded)]);
    assert!(settled.is_ok(), "usage above its reservation is settled as it is: {settled:?}");
    assert_eq!(house.no(Some(held), vec![reserve(3, 1, 1)]), dear(25, 30, 1));
    let owner = owner(&mut house);
    house.ok(Some(owner), vec![halt(TENANT, Switch::Halted)]);
    assert_eq!(house.no(Some(held), vec![reserve(3, 1, 1)]), dear(25, 30, 1));
    house.ok(Some(owner), vec![quota(None, 9, 56, 9)]);
    assert_eq!(house.no(None, vec![reserve(3, 1, 1)]), HALTED.into());
    assert_eq!(house.no(None, vec![reserve_in(RunId(1), 3, 1, 1)]), HALTED.into(), "whatever run it is");
    house.ok(Some(owner), vec![halt(TENANT, Switch::Open)]);
    house.reserve(held, 3, 1, 1);
}

/// F22: what is refused takes nothing, in the same commit as everything else of it.
#[test]
fn a_refused_create_takes_no_quota() {
    let mut house = with_quota(2, 1_000, 9);
    let other = Lock::Run(TENANT, RunId(1));
    house.acquire(other, 6, 1_000_000);
    for _ in 0..10 {
        // The spawn is admitted and the acquisition is not: neither happens.
        let refused = house.no(None, vec![spawn(RunId(1)), acquire(other, 5, 10)]);
        assert!(matches!(refused, kernel::request::Refusal::Lease(lease::Refusal::Held { .. })), "{refused:?}");
        assert_eq!(standing(&house).2, 0);
    }
    for run in [2, 3] {
        house.ok(None, vec![spawn(RunId(run))]);
        house.ok(None, vec![spawn(RunId(run))]);
    }
    assert_eq!(standing(&house).2, 2, "a repeat takes none");
    for _ in 0..3 {
        assert_eq!(house.no(None, vec![spawn(RunId(4))]), too_many(2, 2, 0));
    }
    assert_eq!(
        house.no(None, vec![spawn_for(RunId(2), UserId(8))]),
        kernel::run::Refusal::Taken { run: RunId(2) }.into()
    );
    house.ok(None, vec![spawn_for(RunId(4), UserId(8))]);
    assert_eq!(standing(&house).2, 2, "each user has its own");
    house.ok(None, vec![spawn(RunId(3))]);
}

#[test]
fn a_day_is_a_window_of_ledger_time() {
    let mut house = with_quota(1, 40, 9);
    house.ok(None, vec![spawn(RUN)]);
    let held = house.acquire(LOCK, 5, DAY_NS * 10);
    house.reserve(held, 1, 1, 40);
    assert_eq!(house.no(None, vec![spawn(RunId(1))]), too_many(1, 1, 0));
    house.now_ns += DAY_NS - 1; // genesis was at time 0
    assert_eq!(house.no(None, vec![spawn(RunId(1))]), too_many(1, 1, 0));
    house.now_ns += 1;
    house.ok(None, vec![spawn(RunId(1))]);
    house.reserve(held, 2, 1, 40);
    assert_eq!(house.no(None, vec![spawn(RunId(2))]), too_many(1, 1, 1));
    house.reopen(Planted::none());
    assert_eq!(house.no(None, vec![spawn(RunId(2))]), too_many(1, 1, 1), "downtime is no time");
}

#[test]
fn a_users_own_quota_comes_before_the_default_and_counts_the_day_so_far() {
    let mut house = House::new();
    let owner = owner(&mut house);
    let set = |house: &mut House, user, quota| {
        let set = admit::Command::SetQuota { tenant: TENANT, user, quota };
        house.ok(Some(owner), vec![Command::Admit(set)]);
    };
    let runs = |runs_per_day| Some(Quota { runs_per_day, micro_usd_per_day: MicroUsd(9), depth_tier: DepthTier(1) });
    for run in 0..3 {
        house.ok(None, vec![spawn(RunId(run))]);
    }
    assert_eq!(standing(&house), (None, None, 3));
    // (the default, the user's own) -> how many runs it has left of the day, if that is limited.
    let cases = [
        (None, runs(3), Some(3)),
        (runs(9), runs(2), Some(2)),
        (runs(2), runs(9), None),
        (runs(3), None, Some(3)),
        (None, None, None),
    ];
    for (run, (default, own, limit)) in (10..).zip(cases) {
        set(&mut house, None, default);
        set(&mut house, Some(USER), own);
        assert_eq!(standing(&house).1, own.or(default));
        let taken = standing(&house).2;
        let asked = house.ask(None, vec![spawn(RunId(run))]);
        assert_eq!(asked.err(), limit.map(|limit| too_many(taken, limit, 0)), "{default:?} {own:?}");
    }
}

#[test]
fn a_halt_stops_what_begins_and_nothing_else() {
    for switch in [TENANT, TenantId::LEDGER] {
        let halted = Refusal::Halted { tenant: switch };
        let (mut house, held) = House::new().running();
        let [first, second, third] = [1, 2, 3].map(|unit| house.reserve(held, unit, 1, 10));
        let owner = owner(&mut house);
        house.ok(Some(owner), vec![halt(switch, Switch::Halted)]);
        assert_eq!(standing(&house).0, Some(switch));
        assert_eq!(house.no(Some(held), vec![reserve(4, 1, 10)]), halted.clone().into());
        assert_eq!(house.no(None, vec![spawn(RunId(7))]), halted.clone().into());
        house.ok(None, vec![spawn(RUN)]);
        house.ok(None, vec![Command::Lease(lease::Command::Renew { held, ttl_ns: DAY_NS })]);
        house.ok(Some(held), vec![settle(first, 5), end_attempt(1, 1, AttemptState::Succeeded)]);
        house.ok(Some(held), vec![release(second), end_attempt(2, 1, AttemptState::Failed)]);
        assert_eq!(
            house.no(Some(held), vec![reserve(2, 2, 10)]),
            halted.clone().into(),
            "a retry is a new unit of work"
        );
        house.ok(Some(held), vec![end_attempt(3, 1, AttemptState::Indeterminate)]);
        house.ok(Some(owner), vec![resolve(third, Some(5))]);
        house.ok(Some(held), vec![end(Ending::Halted(HaltReason::Owner))]);
        house.ok(None, vec![Command::Lease(lease::Command::Yield { held })]);
        house.ok(Some(owner), vec![halt(switch, Switch::Halted)]);
        house.ok(Some(owner), vec![halt(switch, Switch::Open)]);
        house.ok(None, vec![spawn(RunId(7))]);
        let kept = house.ledger.table_hashes();
        prove::compare(&kept, &prove::rebuild(house.store.log(0).unwrap()).unwrap()).unwrap();
    }
}

#[test]
fn either_switch_halts_and_another_tenants_does_not() {
    let mut house = House::new();
    let owner = owner(&mut house);
    let set = |house: &mut House, tenant, switch| {
        house.ok(Some(owner), vec![halt(tenant, switch)]);
    };
    set(&mut house, TenantId(2), Switch::Halted);
    house.ok(None, vec![spawn(RUN)]);
    set(&mut house, TENANT, Switch::Halted);
    set(&mut house, TenantId::LEDGER, Switch::Halted);
    assert_eq!(standing(&house).0, Some(TenantId::LEDGER));
    set(&mut house, TenantId::LEDGER, Switch::Open);
    assert_eq!(house.no(None, vec![spawn(RunId(1))]), HALTED.into());
    set(&mut house, TENANT, Switch::Open);
    house.ok(None, vec![spawn(RunId(1))]);
}

#[test]
fn a_waiter_whose_turn_comes_during_a_halt_is_refused_and_passes_it_on() {
    let mut house = House::with(genesis(100, 100, 100, 100, 1), Planted::none());
    house.ok(None, vec![spawn(RUN)]);
    let held = house.acquire(LOCK, 5, DAY_NS);
    let first = house.reserve(held, 1, 1, 10);
    let waits = Request { wait_ns: 1_000, ..house.next(Some(held), vec![reserve(2, 1, 10)]) };
    let waiter = Submitted::arriving(waits, house.now_ns);
    assert!(matches!(house.submit(vec![waiter.clone()]).replies[..], [Reply::Waits(_)]));
    let owner = owner(&mut house);
    house.ok(Some(owner), vec![halt(TENANT, Switch::Halted)]);
    house.ok(Some(held), vec![settle(first, 5), end_attempt(1, 1, AttemptState::Succeeded)]);
    assert_eq!(house.notices.len(), 1);
    let [reply] = house.submit(vec![waiter]).replies.try_into().unwrap();
    assert_eq!(decided(reply), Err(HALTED.into()));
    assert_eq!(house.notices.len(), 2, "the turn is the next waiter's, who will hear the same");
}

#[test]
fn halts_quotas_and_what_is_taken_survive_a_checkpoint_and_an_opening() {
    let (mut house, _) = House::new().running();
    let owner = owner(&mut house);
    house.ok(Some(owner), vec![halt(TENANT, Switch::Halted), quota(Some(USER), 3, 3, 3), quota(None, 9, 9, 9)]);
    house.ledger.checkpoint().unwrap();
    let unset = admit::Command::SetQuota { tenant: TENANT, user: Some(USER), quota: None };
    house.ok(Some(owner), vec![halt(TENANT, Switch::Open), Command::Admit(unset)]);
    house.ok(None, vec![spawn(RunId(1))]);
    let kept = house.ledger.table_hashes();
    house.reopen(Planted::none());
    assert_eq!(house.ledger.table_hashes(), kept);
    let quota = Quota { runs_per_day: 9, micro_usd_per_day: MicroUsd(9), depth_tier: DepthTier(9) };
    assert_eq!(standing(&house), (None, Some(quota), 2));
}
