//! Each planted bug of the pure rooms is reached, on or off, and does its harm only when on.
#![cfg(feature = "planted")]

mod house;

use house::*;
use kernel::{
    admit::Switch,
    id::{RunId, UserId},
    lease::{self, Lock},
    planted::{Bug, Planted},
    prove,
    request::{Answer, Command, Query, Reply, Request, Submitted},
    reserve::{Account, Level},
    run::{self, AttemptState, Ending, RunState},
    store::Store,
};

/// Plays a story with the bug off and on. The story says whether the harm was done.
fn harms_only_when_on(bug: Bug, story: impl Fn(Planted) -> bool) {
    for (planted, expected) in [(Planted::none(), false), (Planted::these(&[bug]), true)] {
        assert_eq!(story(planted.clone()), expected, "{}", bug.name());
        assert!(planted.reached(bug) > 0, "{} was not reached", bug.name());
    }
}

/// Opens the ledger again under the same bugs and compares what the log gives: a bug must survive a crash of its own.
fn reopens(house: &mut House, planted: &Planted) {
    let kept = house.ledger.table_hashes();
    house.reopen(planted.clone());
    assert_eq!(house.ledger.table_hashes(), kept);
}

#[test]
fn skip_fence_accepts_the_deposed() {
    harms_only_when_on(Bug::SkipFence, |planted| {
        let (mut house, deposed) = House::with(genesis(100, 100, 100, 100, 9), planted.clone()).running();
        house.ok(None, vec![Command::Lease(lease::Command::Yield { held: deposed })]);
        house.acquire(LOCK, 6, 1_000);
        let accepted = house.ask(Some(deposed), vec![reserve(1, 1, 10)]).is_ok();
        reopens(&mut house, &planted);
        assert_eq!(prove::rebuild(house.store.log(0).unwrap()).is_err(), accepted, "the log shows it");
        accepted
    });
}

#[test]
fn check_after_call_forgets_what_is_live() {
    harms_only_when_on(Bug::CheckAfterCall, |planted| {
        let (mut house, authority) = House::with(genesis(100, 100, 100, 100, 9), planted.clone()).running();
        house.reserve(authority, 1, 1, 60);
        let admitted = house.ask(Some(authority), vec![reserve(2, 1, 60)]).is_ok();
        reopens(&mut house, &planted);
        admitted
    });
}

#[test]
fn skip_level_passes_the_runs_cap() {
    harms_only_when_on(Bug::SkipLevel, |planted| {
        let (mut house, authority) = House::with(genesis(100, 5, 100, 100, 9), planted.clone()).running();
        let admitted = house.ask(Some(authority), vec![reserve(1, 1, 60)]).is_ok();
        // The levels above are still checked; that refusal is right under either rule.
        reopens(&mut house, &planted);
        admitted
    });
}

#[test]
fn drop_dedup_decides_a_repeat_afresh() {
    harms_only_when_on(Bug::DropDedup, |planted| {
        let (mut house, authority) = House::with(genesis(100, 100, 100, 100, 9), planted.clone()).running();
        let ask = || request(9, 1, Some(authority), vec![reserve(1, 1, 10)]);
        let first = house.one(ask());
        let second = house.one(ask());
        reopens(&mut house, &planted);
        first != second
    });
}

#[test]
fn grant_expired_grants_past_the_waiters_term() {
    harms_only_when_on(Bug::GrantExpired, |planted| {
        let mut house = House::with(genesis(1, 1, 1, 1, 1), planted);
        let request = Request { wait_ns: 10, ..request(9, 1, None, vec![acquire(LOCK, 6, 100)]) };
        let waiter = Submitted::arriving(request, house.now_ns);
        house.now_ns += 11;
        let [reply] = house.submit(vec![waiter]).replies.try_into().unwrap();
        decided(reply).is_ok()
    });
}

#[test]
fn release_twice_gives_a_slot_back_twice() {
    harms_only_when_on(Bug::ReleaseTwice, |planted| {
        let (mut house, presumed_dead) = House::with(genesis(100, 100, 100, 100, 1), planted.clone()).running();
        let other_run = Lock::Run(TENANT, RunId(101));
        house.ok(None, vec![spawn_for(RunId(101), USER), spawn_for(RunId(102), UserId(8))]);
        let first = house.reserve(presumed_dead, 1, 1, 10);
        let gives_back = || vec![release(first), end_attempt(1, 1, AttemptState::Cancelled)];
        // Its lease runs out; another takes the run over and gives the slot back; a third takes the slot.
        house.tick(2_000_000_000_000);
        let successor = house.acquire(LOCK, 6, 1_000_000);
        house.ok(Some(successor), gives_back());
        let third = house.acquire(other_run, 7, 1_000_000);
        let reserved = reserved(&house.ok(Some(third), vec![reserve_in(RunId(101), 1, 1, 10)]));
        // The one presumed dead is late, and gives the slot back again: now two have the one slot.
        let late = house.ask(Some(presumed_dead), gives_back()).is_ok();
        let over = house.ask(Some(successor), vec![reserve(2, 1, 10)]);
        assert_eq!(late, over.is_ok());
        // And the books still close, in the bug's own way.
        let end = Command::Run(kernel::run::Command::EndAttempt {
            run: RunId(101),
            unit: kernel::id::UnitId(1),
            attempt: 1,
            state: AttemptState::Succeeded,
        });
        house.ok(Some(third), vec![settle(reserved, 10), end]);
        if let Ok(outcomes) = &over {
            let second = house::reserved(outcomes);
            house.ok(Some(successor), vec![release(second), end_attempt(2, 1, AttemptState::Failed)]);
        }
        house.ledger.checkpoint().unwrap();
        reopens(&mut house, &planted);
        over.is_ok()
    });
}

#[test]
fn blanket_release_overtakes_a_settle_on_its_way() {
    harms_only_when_on(Bug::BlanketRelease, |planted| {
        let (mut house, authority) = House::with(genesis(100, 100, 100, 100, 9), planted.clone()).running();
        let reservation = house.reserve(authority, 1, 1, 10);
        let ended = house.ask(Some(authority), vec![end(Ending::Complete)]).is_ok();
        let late =
            house.ask(Some(authority), vec![settle(reservation, 10), end_attempt(1, 1, AttemptState::Succeeded)]);
        let Answer::Account { settled, live, .. } = house.ledger.query(&Query::Account(Account::Run(TENANT, RUN)))
        else {
            panic!("an account was asked for")
        };
        let lost = late.is_err() && (settled.0, live.0) == (0, 0);
        assert_eq!(lost, ended);
        reopens(&mut house, &planted);
        lost
    });
}

#[test]
fn quota_leak_takes_for_runs_that_were_refused() {
    harms_only_when_on(Bug::QuotaLeak, |planted| {
        let mut commands = genesis(100, 100, 100, 100, 9);
        commands.push(quota(None, 2, 100, 9));
        let mut house = House::with(commands, planted);
        // Another holds the lock of a run that does not exist yet: whoever would create it and take it is refused.
        house.acquire(LOCK, 6, 1_000);
        for _ in 0..2 {
            assert!(house.ask(None, vec![spawn(RUN), acquire(LOCK, 5, 1_000)]).is_err());
        }
        let refused = house.ask(None, vec![spawn(RunId(1))]).is_err();
        let kept = house.ledger.table_hashes();
        let rebuilt = prove::rebuild(house.store.log(0).unwrap()).unwrap();
        let differs = prove::compare(&kept, &rebuilt).err().map(|differs| differs.name);
        assert_eq!(differs, refused.then_some("admit.taken"), "the log knows nothing of it");
        refused
    });
}

#[test]
fn halt_ignored_reserves_during_a_halt() {
    harms_only_when_on(Bug::HaltIgnored, |planted| {
        let (mut house, held) = House::with(genesis(100, 100, 100, 100, 9), planted.clone()).running();
        let owner = house.acquire(Lock::Owner, 8, 1_000);
        house.ok(Some(owner), vec![halt(TENANT, Switch::Halted)]);
        let admitted = house.ask(Some(held), vec![reserve(1, 1, 10)]).is_ok();
        assert!(house.ask(None, vec![spawn(RunId(1))]).is_err(), "a spawn still reads it");
        reopens(&mut house, &planted);
        assert_eq!(prove::rebuild(house.store.log(0).unwrap()).is_err(), admitted, "the log shows it");
        admitted
    });
}

#[test]
fn fence_reused_lets_a_deposed_holder_of_the_same_executor_write_on() {
    harms_only_when_on(Bug::FenceReused, |planted| {
        let (mut house, first) = House::with(genesis(100, 100, 100, 100, 9), planted.clone()).running();
        house.ok(None, vec![Command::Lease(lease::Command::Yield { held: first })]);
        let second = house.acquire(LOCK, 5, 1_000);
        let accepted = house.ask(Some(first), vec![reserve(1, 1, 10)]).is_ok();
        assert_eq!(first == second, accepted);
        reopens(&mut house, &planted);
        accepted
    });
}

#[test]
fn settle_at_estimate_bills_what_was_set_aside() {
    harms_only_when_on(Bug::SettleAtEstimate, |planted| {
        let (mut house, held) = House::with(genesis(100, 100, 100, 100, 9), planted.clone()).running();
        let reservation = house.reserve(held, 1, 1, 10);
        house.ok(Some(held), vec![settle(reservation, 4), end_attempt(1, 1, AttemptState::Succeeded)]);
        let Answer::Account { settled, .. } = house.ledger.query(&Query::Account(Account::Run(TENANT, RUN))) else {
            panic!("an account was asked for")
        };
        reopens(&mut house, &planted);
        settled.0 == 10
    });
}

#[test]
fn lost_decided_decides_again_what_the_crash_came_after() {
    harms_only_when_on(Bug::LostDecided, |planted| {
        let (mut house, held) = House::with(genesis(100, 100, 100, 100, 9), planted.clone()).running();
        let ask = || request(9, 1, Some(held), vec![reserve(1, 1, 10)]);
        let first = house.one(ask());
        house.reopen(planted);
        house.one(ask()) != first
    });
}

#[test]
fn lead_twice_lets_two_ask_one_question() {
    harms_only_when_on(Bug::LeadTwice, |planted| {
        let (mut house, held) = House::with_tools(planted.clone()).running();
        let first = begun(&house.ok(Some(held), vec![begin(1, 1, IDEMPOTENT, 1)]));
        let both = house.ask(Some(held), vec![begin(2, 1, IDEMPOTENT, 1)]).is_ok();
        house.ok(Some(held), vec![dispatch(first)]);
        reopens(&mut house, &planted);
        assert_eq!(prove::rebuild(house.store.log(0).unwrap()).is_err(), both, "the log shows it");
        both
    });
}

/// Where the tests' run stands.
fn stands(house: &House) -> RunState {
    match house.ledger.query(&Query::Run(TENANT, RUN)) {
        Answer::Run(Some(run)) => run.state,
        other => panic!("the run is known: {other:?}"),
    }
}

#[test]
fn cancel_ignored_begins_after_a_cancel() {
    harms_only_when_on(Bug::CancelIgnored, |planted| {
        let (mut house, held) = House::with_tools(planted.clone()).running();
        let owner = house.acquire(Lock::Owner, 9, 1_000_000_000);
        let intent = begun(&house.ok(Some(held), vec![begin(1, 1, UNSAFE, 1)]));
        house.ok(Some(owner), vec![Command::Run(run::Command::Cancel { run: RUN })]);
        let asked =
            [dispatch(intent), reserve(2, 1, 10), queue(3, 1)].map(|command| house.ask(Some(held), vec![command]));
        let admitted = asked.iter().filter(|said| said.is_ok()).count();
        assert!(admitted == 0 || admitted == 3, "all of them, or none: {asked:?}");
        reopens(&mut house, &planted);
        admitted > 0
    });
}

#[test]
fn cancel_overwritten_lets_the_worker_say_how_it_ended() {
    harms_only_when_on(Bug::CancelOverwritten, |planted| {
        let (mut house, held) = House::with_tools(planted.clone()).running();
        let owner = house.acquire(Lock::Owner, 9, 1_000_000_000);
        house.ok(Some(owner), vec![Command::Run(run::Command::Cancel { run: RUN })]);
        let overwritten = house.ask(Some(held), vec![end(Ending::Complete)]).is_ok();
        let complete = stands(&house) == RunState::Ended(Ending::Complete);
        assert_eq!(complete, overwritten);
        reopens(&mut house, &planted);
        overwritten
    });
}

#[test]
fn two_bugs_at_once_each_do_their_own() {
    let both = Planted::these(&[Bug::CheckAfterCall, Bug::SkipLevel]);
    let (mut house, authority) = House::with(genesis(100, 5, 100, 100, 9), both).running();
    house.reserve(authority, 1, 1, 60);
    let over_run = house.ask(Some(authority), vec![reserve(2, 1, 30)]);
    assert!(over_run.is_ok(), "{over_run:?}");
    let owner = house.acquire(Lock::Owner, 8, 1_000);
    house.ok(Some(owner), vec![cap(TENANT, Level::Run, 100)]);
    assert!(house.ask(Some(authority), vec![reserve(3, 1, 60)]).is_ok());
    let replies = house.batch(vec![Request::tick()]).replies;
    assert!(matches!(replies[..], [Reply::Decided(_)]));
}
