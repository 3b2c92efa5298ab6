//! Runs: suspended, resumed, cancelled, ended; and that after a cancel nothing begins, wherever it lands.

#![allow(clippy::unwrap_used)] // what a test cannot go on without, it panics for

mod house;

use house::*;
use kernel::{
    effect,
    id::{ReservationId, RunId, UnitId},
    lease::{self, Authority, Lock},
    ledger::Ledger,
    planted::Planted,
    prove,
    record::{self, Event},
    request::{Answer, Command, Notice, Query, Refusal, Turn},
    run::{self, AttemptState, Ending, HaltReason, RunState},
    store::Store,
};

fn suspend() -> Command {
    Command::Run(run::Command::Suspend { run: RUN })
}

fn resume() -> Command {
    Command::Run(run::Command::Resume { run: RUN })
}

fn cancel() -> Command {
    Command::Run(run::Command::Cancel { run: RUN })
}

/// Where the run stands, how often it was suspended, and its first unit's latest attempt.
fn standing(house: &House) -> (RunState, u32, Option<AttemptState>) {
    match house.ledger.query(&Query::Run(TENANT, RUN)) {
        Answer::Run(Some(run)) => (run.state, run.suspensions, run.units.first().map(|unit| unit.state)),
        other => panic!("the run is known: {other:?}"),
    }
}

/// A run with its lease held, and the owner's lock held beside it.
fn owned() -> (House, Authority, Authority) {
    let (mut house, held) = House::with_tools(Planted::none()).running();
    let owner = house.acquire(Lock::Owner, 9, 1_000_000_000_000);
    (house, held, owner)
}

/// How a run is brought to each state.
fn house_at(state: RunState) -> (House, Authority, Authority) {
    let (mut house, held, owner) = owned();
    match state {
        RunState::Open => {}
        RunState::Suspended => drop(house.ok(Some(held), vec![suspend()])),
        RunState::Cancelling => {
            house.reserve(held, 1, 1, 10);
            house.ok(Some(owner), vec![cancel()]);
        }
        RunState::Ended(Ending::Cancelled) => drop(house.ok(Some(owner), vec![cancel()])),
        RunState::Ended(how) => drop(house.ok(Some(held), vec![end(how)])),
    }
    assert_eq!(standing(&house).0, state);
    (house, held, owner)
}

/// The arms of a run, as the rules list them and not as the kernel does.
const ARMS: [(RunState, RunState); 10] = [
    (RunState::Open, RunState::Suspended),
    (RunState::Open, RunState::Cancelling),
    (RunState::Open, RunState::Ended(Ending::Complete)),
    (RunState::Open, RunState::Ended(Ending::Incomplete)),
    (RunState::Open, RunState::Ended(Ending::Halted(HaltReason::Owner))),
    (RunState::Open, RunState::Ended(Ending::Halted(HaltReason::Key))),
    (RunState::Open, RunState::Ended(Ending::Cancelled)),
    (RunState::Suspended, RunState::Open),
    (RunState::Suspended, RunState::Ended(Ending::Cancelled)),
    (RunState::Cancelling, RunState::Ended(Ending::Cancelled)),
];

/// Every pair of states, by the function.
#[test]
fn every_pair_of_run_states() {
    for from in RunState::ALL {
        for to in RunState::ALL {
            assert_eq!(from.may_become(to), ARMS.contains(&(from, to)), "{from:?} to {to:?}");
        }
    }
}

/// Every state, and everything that is asked of a run there: what is admitted, and the refusal that names what is wrong.
#[test]
fn every_command_in_every_run_state() {
    let (not_held, run) =
        (|held: Authority| lease::Refusal::NotHolder { lock: LOCK, executor: held.executor, fence: held.fence }, RUN);
    for state in RunState::ALL {
        let ask = |commands: Vec<Command>, by_owner: bool| {
            let (mut house, held, owner) = house_at(state);
            let said = house.ask(Some(if by_owner { owner } else { held }), commands).map(|_| ());
            (said, standing(&house).0, held)
        };
        let (said, after, held) = ask(vec![suspend()], false);
        let expected = match state {
            RunState::Open => Ok(()),
            RunState::Suspended => Err(not_held(held).into()),
            RunState::Cancelling => Err(run::Refusal::Cancelled { run }.into()),
            RunState::Ended(_) => Err(run::Refusal::Ended { run }.into()),
        };
        assert_eq!((said, after), (expected.clone(), if expected.is_ok() { RunState::Suspended } else { state }));

        let (said, after, _) = ask(vec![resume()], true);
        let expected: Result<(), Refusal> = match state {
            RunState::Suspended => Ok(()),
            RunState::Open | RunState::Cancelling => Err(run::Refusal::NotSuspended { run }.into()),
            RunState::Ended(_) => Err(run::Refusal::Ended { run }.into()),
        };
        assert_eq!((said, after), (expected.clone(), if expected.is_ok() { RunState::Open } else { state }));

        let (said, after, _) = ask(vec![cancel()], true);
        let (expected, then): (Result<(), Refusal>, _) = match state {
            RunState::Open | RunState::Suspended => (Ok(()), RunState::Ended(Ending::Cancelled)),
            RunState::Cancelling => (Ok(()), state),
            RunState::Ended(_) => (Err(run::Refusal::Ended { run }.into()), state),
        };
        assert_eq!((said, after), (expected, then), "a cancel is reached from every state that is no end");

        for how in [Ending::Complete, Ending::Incomplete, Ending::Halted(HaltReason::Owner), Ending::Cancelled] {
            let (said, after, held) = ask(vec![end(how)], false);
            let unit = UnitId(1);
            let expected: Result<(), Refusal> = match (state, how) {
                (RunState::Open, Ending::Cancelled) => Err(run::Refusal::NotCancelled { run }.into()),
                (RunState::Open, _) => Ok(()),
                (RunState::Suspended, _) => Err(not_held(held).into()),
                (RunState::Cancelling, Ending::Cancelled) => {
                    Err(run::Refusal::AttemptRunning { run, unit, attempt: 1 }.into())
                }
                (RunState::Cancelling, _) => Err(run::Refusal::Cancelled { run }.into()),
                (RunState::Ended(_), _) => Err(run::Refusal::Ended { run }.into()),
            };
            let then = if expected.is_ok() { RunState::Ended(how) } else { state };
            assert_eq!((said, after), (expected, then), "{state:?}, asked to end {how:?}");
        }
        for begins in [reserve(2, 1, 10), begin(2, 1, UNSAFE, 1), queue(2, 1)] {
            let (said, after, held) = ask(vec![begins], false);
            let expected = match state {
                RunState::Open => Ok(()),
                RunState::Suspended => Err(not_held(held).into()),
                RunState::Cancelling => Err(run::Refusal::Cancelled { run }.into()),
                RunState::Ended(_) => Err(run::Refusal::Ended { run }.into()),
            };
            assert_eq!((said, after), (expected, state));
        }
    }
}

/// Of a run with attempts running, neither; and both need the lock that they say.
#[test]
fn what_suspend_resume_and_cancel_ask_for() {
    let (mut house, held, owner) = owned();
    let needs = |needed| Refusal::from(lease::Refusal::NoAuthority { needed });
    for (wrong, command, needed) in
        [(owner, suspend(), LOCK), (held, resume(), Lock::Owner), (held, cancel(), Lock::Owner)]
    {
        for authority in [None, Some(wrong)] {
            assert_eq!(house.no(authority, vec![command.clone()]), needs(needed));
        }
    }
    let unknown = run::Refusal::Unknown { run: RunId(1) };
    for command in [run::Command::Resume { run: RunId(1) }, run::Command::Cancel { run: RunId(1) }] {
        assert_eq!(house.no(Some(owner), vec![Command::Run(command)]), unknown.clone().into());
    }
    house.reserve(held, 1, 1, 10);
    let running = run::Refusal::AttemptRunning { run: RUN, unit: UnitId(1), attempt: 1 };
    assert_eq!(house.no(Some(held), vec![suspend()]), running.into());
}

/// D6: a suspended run gives its lease up in the same commit, nobody is granted it, whoever waits is told once it is resumed, and
/// the next holder goes on under the next fence.
#[test]
fn a_suspended_run_is_nobodys_until_it_is_resumed() {
    let (mut house, held, owner) = owned();
    house.ok(Some(held), vec![queue(1, 1)]);
    house.notices.clear();
    house.ok(Some(held), vec![suspend()]);
    assert_eq!(house.notices, [], "no turn comes while it is suspended");
    assert_eq!(standing(&house), (RunState::Suspended, 1, Some(AttemptState::Pending)), "what is queued stays so");
    let frame: record::Frame = postcard::from_bytes(&house.ledger.last_frame().unwrap().unwrap()).unwrap();
    let made: Vec<&Event> = frame.records.iter().map(|record| &record.event).collect();
    assert!(
        matches!(made[..2], [Event::Run(run::Event::Suspended { .. }), Event::Lease(lease::Event::Yielded { .. })]),
        "{made:?}"
    );
    let suspended = Refusal::from(lease::Refusal::Suspended { lock: LOCK });
    for executor in [5, 6] {
        assert_eq!(house.no(None, vec![acquire(LOCK, executor, 1)]), suspended);
    }
    let waits = kernel::request::Request { wait_ns: 50, ..house.next(None, vec![acquire(LOCK, 6, 1_000)]) };
    assert_eq!(house.one(waits.clone()), kernel::request::Reply::Waits(Turn::Lock(LOCK)));
    assert_eq!(house.ledger.query(&Query::Suspended(TENANT)), Answer::Suspended(vec![RUN]));
    house.reopen(Planted::none());
    house.ok(Some(owner), vec![resume()]);
    assert_eq!(house.notices, [Notice::TurnCame(Turn::Lock(LOCK))]);
    assert_eq!(house.ledger.query(&Query::Suspended(TENANT)), Answer::Suspended(vec![]));
    let next = held_fence(&house.one(waits));
    assert_eq!(next, held.fence.0 + 1);
    let next = Authority { fence: kernel::id::Fence(next), executor: kernel::id::ExecutorId(6), lock: LOCK };
    house.ok(Some(next), vec![begin(1, 1, UNSAFE, 1)]);
    assert_eq!(standing(&house), (RunState::Open, 1, Some(AttemptState::Running)));
}

fn held_fence(reply: &kernel::request::Reply) -> u64 {
    house::held(&decided(reply.clone()).unwrap()).0
}

/// One unit's way, step by step: begun, dispatched, committed and settled, and then the next one queued.
fn steps() -> Vec<fn(ReservationId) -> Vec<Command>> {
    vec![
        |_| vec![queue(1, 1)],
        |_| vec![begin(1, 1, QUERYABLE, 1)],
        |intent| vec![dispatch(intent)],
        |intent| vec![commit(intent, b"no")],
        |intent| vec![release(intent), end_attempt(1, 1, AttemptState::Failed), queue(1, 2)],
        |_| vec![begin(1, 2, QUERYABLE, 1)],
        |intent| vec![dispatch(intent)],
        |intent| vec![commit(intent, b"yes"), settle(intent, 3), end_attempt(1, 2, AttemptState::Succeeded)],
        |_| vec![end(Ending::Complete)],
    ]
}

/// F24 (dbos-py#703: CANCELLED overwritten by SUCCESS, and calls left running): cancelled after each step of a run, no intent of
/// it is made or dispatched any more; what was on the wire ends once, and is recorded; and the run has ended cancelled, whatever
/// its worker goes on to say.
#[test]
fn cancelled_at_every_step_nothing_begins_and_nothing_overwrites_it() {
    let steps = steps();
    let mut drained = 0;
    for cancelled_after in 0..steps.len() {
        let (mut house, held, owner) = owned();
        let mut intent = ReservationId(0);
        for (number, step) in steps.iter().enumerate() {
            if number == cancelled_after {
                house.ok(Some(owner), vec![cancel()]);
            }
            let mut commands = step(intent);
            let said = house.ask(Some(held), commands.clone());
            if said.is_err() && commands.len() > 1 {
                commands.pop(); // a worker that is told so reports without the next attempt
                drained += u32::from(house.ask(Some(held), commands).is_ok());
            }
            if let Ok([kernel::request::Outcome::Effect(effect::Outcome::Begun(id))]) = said.as_deref() {
                intent = *id;
            }
        }
        // A pending intent's worker withdraws it.
        let _refused_if_over = house.ask(Some(held), vec![release(intent), end_attempt(1, 1, AttemptState::Cancelled)]);
        let _refused_if_over = house.ask(Some(held), vec![release(intent), end_attempt(1, 2, AttemptState::Cancelled)]);
        assert_eq!(standing(&house).0, RunState::Ended(Ending::Cancelled), "cancelled after {cancelled_after} steps");
        let mut cancelled = false;
        for record in records(&mut house) {
            let begins = matches!(
                record.event,
                Event::Effect(effect::Event::Intended { .. } | effect::Event::Dispatched { .. })
                    | Event::Run(run::Event::AttemptQueued { .. })
            );
            assert!(!(cancelled && begins), "cancelled after {cancelled_after} steps: {record:?}");
            let success = matches!(record.event, Event::Run(run::Event::Ended { outcome: Ending::Complete, .. }));
            assert!(!success, "cancelled after {cancelled_after} steps: {record:?}");
            cancelled |= matches!(record.event, Event::Run(run::Event::Cancelled { .. }));
        }
        assert!(cancelled);
    }
    assert_eq!(drained, 2, "a report with the next attempt is refused while its call is out, and taken without it");
}

/// The whole log, record by record; what it rebuilds to is what is kept.
fn records(house: &mut House) -> Vec<record::Record> {
    let log = house.store.log(0).unwrap();
    let rebuilt = prove::rebuild(log.iter().map(|frame| &frame.bytes)).unwrap();
    prove::compare(&house.ledger.table_hashes(), &rebuilt).unwrap();
    let reopened = Ledger::open(house.store.clone(), Planted::none()).unwrap();
    assert_eq!(reopened.table_hashes(), house.ledger.table_hashes());
    let frames = log.iter().map(|frame| postcard::from_bytes::<record::Frame>(&frame.bytes).unwrap());
    frames.flat_map(|frame| frame.records).collect()
}

/// A cancel is no doubt: only what was dispatched and is not resolved becomes indeterminate, and its run has ended all the same.
#[test]
fn cancelled_is_not_indeterminate_unless_a_dispatched_intent_is_unresolved() {
    let (mut house, held, owner) = owned();
    let pending = begun(&house.ok(Some(held), vec![begin(1, 1, UNSAFE, 1)]));
    house.ok(Some(owner), vec![cancel()]);
    let doubt = vec![end_attempt(1, 1, AttemptState::Indeterminate)];
    assert!(matches!(
        house.no(Some(held), doubt.clone()),
        Refusal::Run(run::Refusal::IntentDisagrees { to: AttemptState::Indeterminate, .. })
    ));
    house.ok(Some(held), vec![release(pending), end_attempt(1, 1, AttemptState::Cancelled)]);
    assert_eq!(standing(&house), (RunState::Ended(Ending::Cancelled), 0, Some(AttemptState::Cancelled)));
    assert_eq!(house.ledger.query(&Query::AwaitsOwner(TENANT)), Answer::AwaitsOwner(vec![]));

    let (mut house, held, owner) = owned();
    let sent = begun(&house.ok(Some(held), vec![begin(1, 1, UNSAFE, 1)]));
    house.ok(Some(held), vec![dispatch(sent)]);
    house.ok(Some(owner), vec![cancel()]);
    house.ok(Some(held), doubt);
    assert_eq!(standing(&house), (RunState::Ended(Ending::Cancelled), 0, Some(AttemptState::Indeterminate)));
    assert_eq!(house.ledger.query(&Query::AwaitsOwner(TENANT)), Answer::AwaitsOwner(vec![sent]));
    house.ok(Some(owner), vec![resolve(sent, Some(7))]);
}

/// With nothing running the cancel's own record ends the run and what is queued; with two running, the second's end does.
#[test]
fn a_cancelled_run_ends_with_the_last_that_runs() {
    let (mut house, held, owner) = owned();
    house.ok(Some(held), vec![queue(1, 1)]);
    house.ok(Some(owner), vec![cancel()]);
    assert_eq!(standing(&house), (RunState::Ended(Ending::Cancelled), 0, Some(AttemptState::Cancelled)));

    let (mut house, held, owner) = owned();
    house.ok(Some(held), vec![queue(3, 1)]);
    let (first, second) = (house.reserve(held, 1, 1, 10), house.reserve(held, 2, 1, 10));
    house.ok(Some(owner), vec![cancel()]);
    house.ok(Some(owner), vec![cancel()]);
    house.ok(Some(held), vec![settle(first, 4), end_attempt(1, 1, AttemptState::Succeeded)]);
    assert_eq!(standing(&house).0, RunState::Cancelling);
    house.ok(Some(held), vec![settle(second, 4), end_attempt(2, 1, AttemptState::Succeeded)]);
    assert_eq!(standing(&house).0, RunState::Ended(Ending::Cancelled));
    let cancels = records(&mut house);
    let cancels = cancels.iter().filter(|record| matches!(record.event, Event::Run(run::Event::Cancelled { .. })));
    assert_eq!(cancels.count(), 1, "the second cancel of a run changes nothing");
}
