//! Intents, memo and single-flight: the phases in their frames, the classes, who is given an answer and who leads.

#![allow(clippy::unwrap_used)] // what a test cannot go on without, it panics for

mod house;

use house::*;
use kernel::{
    admit::{self, Switch},
    effect::{self, Class, Effect, Key, Phase, Response},
    id::{ReservationId, RunId, TenantId, ToolId, UnitId},
    lease::{self, Authority, Lock},
    planted::Planted,
    prove,
    request::{Answer, Command, IntentStanding, Notice, Outcome, Query, Refusal, Reply, Turn},
    reserve,
    run::{self, AttemptState, Ending, HaltReason},
    store::Store,
};

/// A run that may call tools.
fn working() -> (House, Authority) {
    House::with_tools(Planted::none()).running()
}

/// The intent of unit 1, brought to `phase` by requests of their own.
fn intent_at(house: &mut House, held: Authority, tool: ToolId, phase: Phase) -> ReservationId {
    let intent = begun(&house.ok(Some(held), vec![begin(1, 1, tool, 1)]));
    if phase > Phase::Pending {
        house.ok(Some(held), vec![dispatch(intent)]);
    }
    if phase > Phase::Dispatched {
        house.ok(Some(held), vec![commit(intent, b"yes")]);
    }
    intent
}

fn standing(house: &House, run: RunId) -> Vec<(AttemptState, Option<IntentStanding>)> {
    match house.ledger.query(&Query::Run(TENANT, run)) {
        Answer::Run(Some(standing)) => standing.units.iter().map(|unit| (unit.state, unit.intent)).collect(),
        other => panic!("the run is known: {other:?}"),
    }
}

/// Another run of the user's, held by an executor of its own.
fn other_run(house: &mut House, run: RunId, executor: u64) -> Authority {
    house.ok(None, vec![spawn(run)]);
    house.acquire(Lock::Run(TENANT, run), executor, 1_000_000_000)
}

/// What a request of `client` that waits is answered at once.
fn follows(house: &mut House, client: u64, held: Authority, begin: Command) -> Reply {
    let request = kernel::request::Request { wait_ns: 1_000_000, ..request(client, 1, Some(held), vec![begin]) };
    house.one(request)
}

#[test]
fn a_paid_call_is_three_commits_and_its_answer_is_remembered() {
    let (mut house, held) = working();
    let intent = begun(&house.ok(Some(held), vec![begin(1, 1, IDEMPOTENT, 1)]));
    let at = |phase| (AttemptState::Running, Some(IntentStanding { class: Class::Idempotent, phase }));
    assert_eq!(standing(&house, RUN), [at(Phase::Pending)]);
    house.ok(Some(held), vec![dispatch(intent)]);
    assert_eq!(standing(&house, RUN), [at(Phase::Dispatched)]);
    house.ok(Some(held), vec![commit(intent, b"yes"), settle(intent, 4), end_attempt(1, 1, AttemptState::Succeeded)]);
    assert_eq!(standing(&house, RUN), [(AttemptState::Succeeded, None)]);
    let head = house.ledger.head().0;
    let recalled = effect::Outcome::Recalled { source: intent, response: Response(b"yes".as_slice().into()) };
    assert_eq!(house.ok(Some(held), vec![begin(2, 1, IDEMPOTENT, 1)]), [Outcome::Effect(recalled)]);
    assert_eq!(house.ledger.head().0 - head, 2, "a hit is two records: what was recalled, and the decision");
    let account = reserve::Account::Run(TENANT, RUN);
    assert!(matches!(
        house.ledger.query(&Query::Account(account)),
        Answer::Account { settled, live, .. } if (settled.0, live.0) == (4, 0)
    ));
    house.ok(Some(held), vec![begin(3, 1, IDEMPOTENT, 2)]); // another question is another call
}

#[test]
fn no_phase_is_skipped_repeated_or_taken_back() {
    for phase in [Phase::Pending, Phase::Dispatched, Phase::Committed] {
        for class in [IDEMPOTENT, QUERYABLE, UNSAFE] {
            let wrong = |intent| Refusal::from(effect::Refusal::WrongPhase { intent, phase });
            let (mut house, held) = working();
            let intent = intent_at(&mut house, held, class, phase);
            if phase != Phase::Pending {
                assert_eq!(house.no(Some(held), vec![dispatch(intent)]), wrong(intent));
            }
            if phase != Phase::Dispatched {
                assert_eq!(house.no(Some(held), vec![commit(intent, b"")]), wrong(intent));
            }
            if phase != Phase::Committed {
                let settled = vec![settle(intent, 1), end_attempt(1, 1, AttemptState::Succeeded)];
                assert_eq!(house.no(Some(held), settled), wrong(intent));
            }
            if phase == Phase::Dispatched {
                let failed = vec![release(intent), end_attempt(1, 1, AttemptState::Failed)];
                assert_eq!(house.no(Some(held), failed), wrong(intent));
            }
        }
    }
}

/// The states a running attempt may end in go with how far its intent is: a cancelled one is not in doubt, and a doubtful one
/// is not cancelled.
#[test]
fn every_end_goes_with_its_intents_phase() {
    for phase in [Phase::Pending, Phase::Dispatched, Phase::Committed] {
        for to in AttemptState::ALL.into_iter().filter(|to| AttemptState::Running.may_become(*to)) {
            let (mut house, held) = working();
            let intent = intent_at(&mut house, held, UNSAFE, phase);
            let money = match to {
                AttemptState::Succeeded => vec![settle(intent, 1)],
                AttemptState::Indeterminate => vec![],
                _ => vec![release(intent)],
            };
            let commands: Vec<Command> = money.into_iter().chain([end_attempt(1, 1, to)]).collect();
            let found = house.ask(Some(held), commands);
            let legal = match phase {
                Phase::Pending => matches!(to, AttemptState::Cancelled | AttemptState::TimedOut),
                Phase::Dispatched => to == AttemptState::Indeterminate,
                Phase::Committed => to != AttemptState::Indeterminate,
            };
            assert_eq!(found.is_ok(), legal, "{phase:?} ends {to:?}: {found:?}");
        }
    }
}

#[test]
fn two_phases_of_one_intent_never_share_a_frame() {
    let (mut house, held) = working();
    let intent = ReservationId(house.ledger.head().0);
    let same = |phase| Refusal::from(effect::Refusal::SameFrame { intent, phase });
    // In one request, where the name of the intent can be guessed.
    let both = vec![begin(1, 1, UNSAFE, 1), dispatch(intent)];
    assert_eq!(house.no(Some(held), both), same(Phase::Pending));
    // In one batch.
    let intent = ReservationId(house.ledger.head().0);
    let same = |phase| Refusal::from(effect::Refusal::SameFrame { intent, phase });
    let begins = house.next(Some(held), vec![begin(1, 1, UNSAFE, 1)]);
    let dispatches = house.next(Some(held), vec![dispatch(intent)]);
    let [first, second] = house.batch(vec![begins, dispatches]).replies.try_into().unwrap();
    assert_eq!(begun(&decided(first).unwrap()), intent);
    assert_eq!(decided(second).unwrap_err(), same(Phase::Pending));
    let dispatches = house.next(Some(held), vec![dispatch(intent)]);
    let commits = house.next(Some(held), vec![commit(intent, b"yes")]);
    let [first, second] = house.batch(vec![dispatches, commits]).replies.try_into().unwrap();
    assert!(decided(first).is_ok());
    assert_eq!(decided(second).unwrap_err(), same(Phase::Dispatched));
    house.ok(Some(held), vec![commit(intent, b"yes")]);
}

#[test]
fn a_tool_states_its_class_and_an_idempotent_call_its_derived_key() {
    let (mut house, held) = working();
    let owner = house.acquire(Lock::Owner, 8, 1_000);
    let tool = ToolId(9);
    assert_eq!(house.no(Some(owner), vec![register(tool, None)]), effect::Refusal::NoClass { tool }.into());
    assert_eq!(
        house.no(Some(held), vec![register(tool, Some(Class::Unsafe))]),
        lease::Refusal::NoAuthority { needed: Lock::Owner }.into()
    );
    assert_eq!(house.no(Some(held), vec![begin(1, 1, tool, 1)]), effect::Refusal::UnknownTool { tool }.into());
    house.ok(Some(owner), vec![register(tool, Some(Class::Queryable))]);
    house.ok(Some(held), vec![begin(1, 1, tool, 1)]);

    let right = key(1);
    let other_tenant = Key::derived(TenantId(2), IDEMPOTENT, content(1));
    let other_tool = Key::derived(TENANT, UNSAFE, content(1));
    for (tool, class, key, right) in [
        (IDEMPOTENT, Class::Idempotent, None, Some(right)),
        (IDEMPOTENT, Class::Idempotent, Some(key(2)), Some(right)),
        (IDEMPOTENT, Class::Idempotent, Some(other_tenant), Some(right)),
        (IDEMPOTENT, Class::Idempotent, Some(other_tool), Some(right)),
        (UNSAFE, Class::Unsafe, Some(right), None),
        (QUERYABLE, Class::Queryable, Some(right), None),
    ] {
        let effect = Effect { tool, content: content(1), key };
        let (run, unit, attempt, model, worst) = (RUN, UnitId(5), 1, MODEL, kernel::money::MicroUsd(1));
        let begin = Command::Effect(effect::Command::Begin { run, unit, attempt, effect, model, worst });
        assert_eq!(house.no(Some(held), vec![begin]), effect::Refusal::WrongKey { tool, class, right }.into());
    }
}

/// What a key is made of, and what a content is.
#[test]
fn keys_are_of_tenant_tool_and_content_alone() {
    let keys = [
        Key::derived(TENANT, IDEMPOTENT, content(1)),
        Key::derived(TENANT, IDEMPOTENT, content(2)),
        Key::derived(TENANT, UNSAFE, content(1)),
        Key::derived(TenantId(2), IDEMPOTENT, content(1)),
    ];
    let distinct: std::collections::BTreeSet<Key> = keys.into_iter().collect();
    assert_eq!(distinct.len(), keys.len());
    let of = |step: &[u8], input: &[u8], prompt: &[u8], model, parameters: &[u8]| {
        effect::Content::of(&effect::Question { step, input, prompt, model: kernel::id::ModelId(model), parameters })
    };
    let contents = [
        of(b"a", b"b", b"c", 1, b"d"),
        of(b"ab", b"", b"c", 1, b"d"),
        of(b"a", b"bc", b"", 1, b"d"),
        of(b"a", b"b", b"cd", 1, b""),
        of(b"a", b"b", b"c", 2, b"d"),
    ];
    let distinct: std::collections::BTreeSet<effect::Content> = contents.into_iter().collect();
    assert_eq!(distinct.len(), contents.len(), "no part runs into the next");
}

#[test]
fn a_halt_stops_what_has_not_left_and_nothing_else() {
    let (mut house, held) = working();
    let gone = intent_at(&mut house, held, UNSAFE, Phase::Dispatched);
    let waiting = begun(&house.ok(Some(held), vec![begin(2, 1, UNSAFE, 2)]));
    let owner = house.acquire(Lock::Owner, 8, 1_000);
    house.ok(Some(owner), vec![halt(TENANT, Switch::Halted)]);
    let halted = Refusal::from(admit::Refusal::Halted { tenant: TENANT });
    assert_eq!(house.no(Some(held), vec![dispatch(waiting)]), halted);
    assert_eq!(house.no(Some(held), vec![begin(3, 1, UNSAFE, 3)]), halted);
    house.ok(Some(held), vec![release(waiting), end_attempt(2, 1, AttemptState::Cancelled)]);
    house.ok(Some(held), vec![commit(gone, b"yes"), settle(gone, 1), end_attempt(1, 1, AttemptState::Succeeded)]);
    house.ok(Some(held), vec![end(Ending::Halted(HaltReason::Owner))]);
}

#[test]
fn followers_wait_for_the_leader_and_all_are_given_its_answer() {
    let (mut house, held) = working();
    let leader = intent_at(&mut house, held, IDEMPOTENT, Phase::Dispatched);
    let turn = Turn::Answer(TENANT, key(1));
    for client in 2..5 {
        let run = RunId(200 + client);
        let held = other_run(&mut house, run, 20 + client);
        let begin = begin_in(run, 1, 1, IDEMPOTENT, 1, 10);
        assert_eq!(house.no(Some(held), vec![begin.clone()]), effect::Refusal::InFlight { key: key(1), leader }.into());
        assert_eq!(follows(&mut house, client, held, begin), Reply::Waits(turn));
    }
    house.notices.clear();
    house.ok(Some(held), vec![commit(leader, b"yes"), settle(leader, 1), end_attempt(1, 1, AttemptState::Succeeded)]);
    assert!(house.notices.contains(&Notice::AllTurnsCame(turn)), "{:?}", house.notices);
}

/// A leader that comes to nothing promotes one, however it goes; what is done by the next is asked under the same key.
#[test]
fn a_dead_leader_promotes_one_follower() {
    type Death = fn(&mut House, Authority, ReservationId);
    let deaths: [(&str, Phase, Death); 5] = [
        ("failed", Phase::Dispatched, |house, held, intent| {
            let failed = end_attempt(1, 1, AttemptState::Failed);
            house.ok(Some(held), vec![commit(intent, b"no"), release(intent), failed]);
        }),
        ("cancelled", Phase::Pending, |house, held, intent| {
            house.ok(Some(held), vec![release(intent), end_attempt(1, 1, AttemptState::Cancelled)]);
        }),
        ("in doubt", Phase::Dispatched, |house, held, _| {
            house.ok(Some(held), vec![end_attempt(1, 1, AttemptState::Indeterminate)]);
        }),
        ("gave its lease back", Phase::Dispatched, |house, held, _| {
            house.ok(None, vec![Command::Lease(lease::Command::Yield { held })]);
        }),
        ("lost its lease", Phase::Pending, |house, _, _| house.tick(2_000_000_000_000)),
    ];
    for (how, phase, dies) in deaths {
        let (mut house, held) = working();
        let leader = intent_at(&mut house, held, IDEMPOTENT, phase);
        house.notices.clear();
        dies(&mut house, held, leader);
        let turn = Notice::TurnCame(Turn::Answer(TENANT, key(1)));
        assert_eq!(house.notices.iter().filter(|notice| **notice == turn).count(), 1, "{how}");
        let next = other_run(&mut house, RunId(201), 21);
        let second = begun(&house.ok(Some(next), vec![begin_in(RunId(201), 1, 1, IDEMPOTENT, 1, 10)]));
        let third = other_run(&mut house, RunId(202), 22);
        assert_eq!(
            house.no(Some(third), vec![begin_in(RunId(202), 1, 1, IDEMPOTENT, 1, 10)]),
            effect::Refusal::InFlight { key: key(1), leader: second }.into(),
            "{how}"
        );
    }
}

/// A successor finds an intent that never left, while another leads, and after it was answered.
#[test]
fn an_intent_that_never_left_is_not_dispatched_beside_another() {
    let (mut house, held) = working();
    let first = intent_at(&mut house, held, IDEMPOTENT, Phase::Pending);
    house.ok(None, vec![Command::Lease(lease::Command::Yield { held })]);
    let other = other_run(&mut house, RunId(201), 21);
    let leader = begun(&house.ok(Some(other), vec![begin_in(RunId(201), 1, 1, IDEMPOTENT, 1, 10)]));
    let held = house.acquire(LOCK, 6, 1_000_000_000);
    assert_eq!(house.no(Some(held), vec![dispatch(first)]), effect::Refusal::InFlight { key: key(1), leader }.into());
    house.ok(Some(other), vec![dispatch(leader)]);
    let ended = Command::Run(run::Command::EndAttempt {
        run: RunId(201),
        unit: UnitId(1),
        attempt: 1,
        state: AttemptState::Succeeded,
    });
    house.ok(Some(other), vec![commit(leader, b"yes"), settle(leader, 1), ended]);
    let answered = effect::Refusal::AnsweredMeanwhile { key: key(1), answered_by: leader };
    assert_eq!(house.no(Some(held), vec![dispatch(first)]), answered.into());
    house.ok(Some(held), vec![release(first), end_attempt(1, 1, AttemptState::Cancelled)]);
    let outcomes = house.ok(Some(held), vec![begin(1, 2, IDEMPOTENT, 1)]);
    assert!(matches!(&outcomes[..], [Outcome::Effect(effect::Outcome::Recalled { source, .. })] if *source == leader));
}

/// Two that answered one question, the one after it had lost its lead: the first answer is the one that is remembered.
#[test]
fn the_first_answer_stays() {
    let (mut house, held) = working();
    let first = intent_at(&mut house, held, IDEMPOTENT, Phase::Dispatched);
    house.ok(None, vec![Command::Lease(lease::Command::Yield { held })]);
    let other = other_run(&mut house, RunId(201), 21);
    let second = begun(&house.ok(Some(other), vec![begin_in(RunId(201), 1, 1, IDEMPOTENT, 1, 10)]));
    house.ok(Some(other), vec![dispatch(second)]);
    let held = house.acquire(LOCK, 6, 1_000_000_000);
    house.ok(Some(held), vec![commit(first, b"one"), settle(first, 1), end_attempt(1, 1, AttemptState::Succeeded)]);
    let ended = Command::Run(run::Command::EndAttempt {
        run: RunId(201),
        unit: UnitId(1),
        attempt: 1,
        state: AttemptState::Succeeded,
    });
    house.ok(Some(other), vec![commit(second, b"two"), settle(second, 0), ended]);
    let recalled = effect::Outcome::Recalled { source: first, response: Response(b"one".as_slice().into()) };
    assert_eq!(house.ok(Some(held), vec![begin(2, 1, IDEMPOTENT, 1)]), [Outcome::Effect(recalled)]);
}

#[test]
fn what_is_in_doubt_is_the_owners_and_is_not_shared() {
    let (mut house, held) = working();
    let intent = intent_at(&mut house, held, UNSAFE, Phase::Dispatched);
    house.ok(Some(held), vec![end_attempt(1, 1, AttemptState::Indeterminate)]);
    let awaits = Refusal::from(reserve::Refusal::AwaitsOwner { reservation: intent });
    assert_eq!(house.no(Some(held), vec![commit(intent, b"late")]), awaits);
    house.ok(Some(held), vec![end(Ending::Incomplete)]);
    let owner = house.acquire(Lock::Owner, 8, 1_000);
    house.ok(Some(owner), vec![resolve(intent, Some(7))]);
    assert_eq!(standing(&house, RUN), [(AttemptState::Indeterminate, None)], "its state stands");
    // Two unsafe calls of one content are two effects.
    let other = other_run(&mut house, RunId(201), 21);
    begun(&house.ok(Some(other), vec![begin_in(RunId(201), 1, 1, UNSAFE, 1, 10)]));
}

#[test]
fn others_may_not_touch_an_intent() {
    let (mut house, held) = working();
    let intent = intent_at(&mut house, held, UNSAFE, Phase::Pending);
    let other = other_run(&mut house, RunId(201), 21);
    let unknown = Refusal::from(effect::Refusal::UnknownIntent { intent });
    assert_eq!(house.no(Some(other), vec![dispatch(intent)]), unknown);
    let needed = lease::Refusal::NoAuthority { needed: LOCK };
    assert_eq!(house.no(None, vec![dispatch(intent)]), needed.into());
    let none = ReservationId(9_999);
    assert_eq!(house.no(Some(held), vec![dispatch(none)]), effect::Refusal::UnknownIntent { intent: none }.into());
    house.ok(Some(held), vec![dispatch(intent)]);
    let bytes = vec![0; Response::MOST_BYTES + 1];
    let long = effect::Refusal::TooLong { bytes: bytes.len() as u64 };
    assert_eq!(house.no(Some(held), vec![commit(intent, &bytes)]), long.into());
    house.ok(Some(held), vec![commit(intent, &bytes[1..])]);
}

/// Every prefix of a life with intents opens as it was, with and without a checkpoint.
#[test]
fn intents_and_memo_are_rebuilt() {
    let (mut house, held) = working();
    let first = intent_at(&mut house, held, IDEMPOTENT, Phase::Committed);
    house.ledger.checkpoint().unwrap();
    house.ok(Some(held), vec![settle(first, 1), end_attempt(1, 1, AttemptState::Succeeded)]);
    begun(&house.ok(Some(held), vec![begin(2, 1, UNSAFE, 1)]));
    house.ok(Some(held), vec![begin(3, 1, IDEMPOTENT, 1), queue(4, 1)]);
    let kept = house.ledger.table_hashes();
    prove::compare(&kept, &prove::rebuild(house.store.log(0).unwrap().iter()).unwrap()).unwrap();
    house.reopen(Planted::none());
    assert_eq!(house.ledger.table_hashes(), kept);
}
