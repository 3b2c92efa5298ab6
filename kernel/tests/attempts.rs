//! Attempts: seven states, eight arms, and what an attempt's end asks of its money and its run.

#![allow(clippy::unwrap_used)] // what a test cannot go on without, it panics for

mod house;

use house::*;
use kernel::{
    id::{ReservationId, UnitId},
    lease::Authority,
    request::{Answer, Command, Query, Refusal},
    reserve,
    run::{self, AttemptState, Ending},
};

/// How a unit's first attempt is brought to each state.
fn house_at(state: Option<AttemptState>) -> (House, Authority, ReservationId) {
    let (mut house, authority) = House::new().running();
    let Some(state) = state else { return (house, authority, ReservationId(0)) };
    if state == AttemptState::Pending {
        house.ok(Some(authority), vec![queue(1, 1)]);
        return (house, authority, ReservationId(0));
    }
    let reservation = house.reserve(authority, 1, 1, 10);
    let ending = match state {
        AttemptState::Running | AttemptState::Pending => return (house, authority, reservation),
        AttemptState::Succeeded => vec![settle(reservation, 5)],
        AttemptState::Failed | AttemptState::Cancelled | AttemptState::TimedOut => vec![release(reservation)],
        AttemptState::Indeterminate => vec![],
    };
    house.ok(Some(authority), ending.into_iter().chain([end_attempt(1, 1, state)]).collect());
    (house, authority, reservation)
}

/// What makes an attempt go from where `house_at` left it to `to`, if one request can.
fn arm(from: AttemptState, to: AttemptState, reservation: ReservationId) -> Vec<Command> {
    use AttemptState::{Cancelled, Failed, Indeterminate, Pending, Running, Succeeded, TimedOut};
    match (from, to) {
        (_, Pending) => vec![queue(1, 1)],
        (_, Running) => vec![reserve(1, 1, 10)],
        (Running, Succeeded) => vec![settle(reservation, 5), end_attempt(1, 1, to)],
        (Running, Failed | TimedOut | Cancelled) => vec![release(reservation), end_attempt(1, 1, to)],
        (_, Succeeded | Failed | TimedOut | Cancelled | Indeterminate) => vec![end_attempt(1, 1, to)],
    }
}

/// Eight arms, as the rules list them and not as the kernel does.
const ARMS: [(AttemptState, AttemptState); 8] = [
    (AttemptState::Pending, AttemptState::Running),
    (AttemptState::Pending, AttemptState::Cancelled),
    (AttemptState::Pending, AttemptState::TimedOut),
    (AttemptState::Running, AttemptState::Succeeded),
    (AttemptState::Running, AttemptState::Failed),
    (AttemptState::Running, AttemptState::TimedOut),
    (AttemptState::Running, AttemptState::Cancelled),
    (AttemptState::Running, AttemptState::Indeterminate),
];

/// All 49 pairs: by the function, and by asking a ledger whose attempt stands at the first for the second.
#[test]
fn every_pair_of_attempt_states() {
    let mut legal = 0;
    for from in AttemptState::ALL {
        for to in AttemptState::ALL {
            let is_arm = ARMS.contains(&(from, to));
            assert_eq!(from.may_become(to), is_arm, "{from:?} to {to:?}");
            let (mut house, authority, reservation) = house_at(Some(from));
            let before = state_of(&house);
            let found = house.ask(Some(authority), arm(from, to, reservation));
            assert_eq!(found.is_ok(), is_arm, "{from:?} to {to:?}: {found:?}");
            assert_eq!(state_of(&house), if is_arm { Some(to) } else { before }, "{from:?} to {to:?}");
            legal += u32::from(is_arm);
        }
    }
    assert_eq!(legal, 8, "and 41 are refused");
}

/// Every state asked for by name: what is no arm is refused as such, also of an attempt that never was.
#[test]
fn every_end_that_is_no_arm_is_refused_by_name() {
    for from in std::iter::once(None).chain(AttemptState::ALL.map(Some)) {
        for to in AttemptState::ALL {
            let (mut house, authority, _) = house_at(from);
            let (unit, attempt) = (UnitId(1), 1);
            let by_end = to != AttemptState::Running && from.is_some_and(|from| from.may_become(to));
            let found = house.ask(Some(authority), vec![end_attempt(1, 1, to)]);
            let expected = match from {
                Some(AttemptState::Pending) if by_end => Ok(()),
                _ if by_end && to == AttemptState::Indeterminate => Ok(()),
                _ if by_end => Err(run::Refusal::ReservationDisagrees { unit, attempt, to }.into()),
                _ => Err(run::Refusal::IllegalArm { unit, attempt, from, to }.into()),
            };
            assert_eq!(found.map(|_| ()), expected, "{from:?} to {to:?}");
        }
    }
}

/// Where the first attempt of unit 1 stands, as the ledger says.
fn state_of(house: &House) -> Option<AttemptState> {
    match house.ledger.query(&Query::Run(TENANT, RUN)) {
        Answer::Run(Some(standing)) => standing.units.first().map(|unit| unit.state),
        other => panic!("the run is known: {other:?}"),
    }
}

#[test]
fn every_pair_of_money_and_attempt_in_one_request() {
    type Money = fn(ReservationId) -> Vec<Command>;
    let moneys: [(&str, Money); 3] = [
        ("settle", |reservation| vec![settle(reservation, 5)]),
        ("release", |reservation| vec![release(reservation)]),
        ("none", |_| vec![]),
    ];
    for (name, money) in moneys {
        for to in AttemptState::ALL {
            let (mut house, authority, reservation) = house_at(Some(AttemptState::Running));
            let commands: Vec<Command> = money(reservation).into_iter().chain([end_attempt(1, 1, to)]).collect();
            let legal = matches!(
                (name, to),
                ("settle", AttemptState::Succeeded)
                    | ("release", AttemptState::Failed | AttemptState::Cancelled | AttemptState::TimedOut)
                    | ("none", AttemptState::Indeterminate)
            );
            let found = house.ask(Some(authority), commands);
            assert_eq!(found.is_ok(), legal, "{name} with {to:?}: {found:?}");
        }
        let (mut house, authority, reservation) = house_at(Some(AttemptState::Running));
        if name != "none" {
            let disagrees =
                run::Refusal::ReservationDisagrees { unit: UnitId(1), attempt: 1, to: AttemptState::Running };
            assert_eq!(house.no(Some(authority), money(reservation)), disagrees.into(), "{name} alone");
            let order: Vec<Command> =
                [end_attempt(1, 1, AttemptState::Succeeded)].into_iter().chain(money(reservation)).collect();
            house.no(Some(authority), order);
        }
    }
}

#[test]
fn the_next_attempt_is_a_queued_one_or_follows_one_that_came_to_nothing() {
    for (state, next) in [
        (None, Some(1)),
        (Some(AttemptState::Pending), Some(1)),
        (Some(AttemptState::Running), None),
        (Some(AttemptState::Succeeded), None),
        (Some(AttemptState::Failed), Some(2)),
        (Some(AttemptState::Cancelled), Some(2)),
        (Some(AttemptState::TimedOut), Some(2)),
        (Some(AttemptState::Indeterminate), None),
    ] {
        for attempt in 0..4 {
            let (mut house, authority, _) = house_at(state);
            let found = house.ask(Some(authority), vec![reserve(1, attempt, 10)]);
            let wrong = reserve::Refusal::WrongAttempt { run: RUN, unit: UnitId(1), attempt, next };
            match found {
                Ok(_) => assert_eq!(next, Some(attempt), "after {state:?}"),
                Err(refusal) => assert_eq!(refusal, wrong.into(), "after {state:?}"),
            }
        }
    }
}

#[test]
fn a_run_ends_once_with_no_attempt_running() {
    let (mut house, authority, _) = house_at(Some(AttemptState::Running));
    let running = run::Refusal::AttemptRunning { run: RUN, unit: UnitId(1), attempt: 1 };
    assert_eq!(house.no(Some(authority), vec![end(Ending::Complete)]), running.into());
    for state in [None, Some(AttemptState::Failed), Some(AttemptState::Indeterminate)] {
        let (mut house, authority, _) = house_at(state);
        house.ok(Some(authority), vec![end(Ending::Incomplete)]);
        let ended = Refusal::from(run::Refusal::Ended { run: RUN });
        for command in [end(Ending::Complete), reserve(2, 1, 10), end_attempt(1, 1, AttemptState::Failed)] {
            assert_eq!(house.no(Some(authority), vec![command]), ended);
        }
    }
    let mut house = House::new();
    let authority = house.acquire(LOCK, 5, 1_000_000);
    assert_eq!(house.no(Some(authority), vec![end(Ending::Complete)]), run::Refusal::Unknown { run: RUN }.into());
}

#[test]
fn what_is_queued_is_cancelled_with_its_run_and_taken_up_by_a_reserve() {
    let (mut house, authority, _) = house_at(Some(AttemptState::Pending));
    assert_eq!(
        house.no(Some(authority), vec![queue(1, 1)]),
        reserve::Refusal::WrongAttempt { run: RUN, unit: UnitId(1), attempt: 1, next: None }.into(),
        "it is queued already"
    );
    house.ok(Some(authority), vec![end(Ending::Incomplete)]);
    assert_eq!(state_of(&house), Some(AttemptState::Cancelled));

    let (mut house, authority, _) = house_at(Some(AttemptState::Pending));
    let reservation = house.reserve(authority, 1, 1, 10);
    let running = run::Refusal::AttemptRunning { run: RUN, unit: UnitId(1), attempt: 1 };
    assert_eq!(house.no(Some(authority), vec![end(Ending::Complete)]), running.into());
    let failed = vec![release(reservation), end_attempt(1, 1, AttemptState::Failed), queue(1, 2)];
    house.ok(Some(authority), failed);
    house.ok(Some(authority), vec![end_attempt(1, 2, AttemptState::TimedOut)]);
    assert!(house.ask(Some(authority), vec![queue(1, 3)]).is_ok(), "a retry is the next attempt");
}
