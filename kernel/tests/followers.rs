//! Who waits for another's answer, over the bus: all are served by a success, one asks itself after a failure, and nobody polls.

#![allow(clippy::unwrap_used)] // what a test cannot go on without, it panics for

mod house;
mod stage;

use kernel::{
    client::{Asking, Client},
    effect,
    id::{ExecutorId, ReservationId, RunId, UnitId},
    lease::{Authority, Lock},
    planted::Planted,
    request::{Command, Outcome},
    run::{self, AttemptState},
    store::memory::MemoryStore,
};
use sim::{LinkWeather, World};
use stage::*;
use std::{cell::RefCell, rc::Rc, time::Duration};

const TENANT: kernel::id::TenantId = house::TENANT;
const ASKERS: u64 = 5;
/// How long a call takes.
const CALL: Duration = Duration::from_millis(200);

/// How each asker came by its answer, and when in virtual milliseconds.
type Served = Rc<RefCell<Vec<(How, u64)>>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum How {
    Asked,
    Recalled,
}

async fn asks(client: &Client, held: Option<Authority>, wait: Duration, commands: Vec<Command>) -> Vec<Outcome> {
    let how = Asking { wait, ..now(TENANT, held) };
    client.ask(how, commands).await.unwrap().outcome.unwrap()
}

/// Asks the one question in a run of its own; the first call there is comes to nothing if `fails`.
async fn asker(world: World, client: Client, number: u64, fails: bool, served: Served) {
    let run = RunId(300 + number);
    let lock = Lock::Run(TENANT, run);
    let taken =
        asks(&client, None, Duration::ZERO, vec![house::spawn(run), house::acquire(lock, 40 + number, 60_000_000_000)]);
    let fence = house::held(&taken.await[1..]);
    let held = Some(Authority { lock, executor: ExecutorId(40 + number), fence });
    world.sleep(Duration::from_millis(50) * u32::try_from(number).unwrap()).await; // the first is there before the others
    let mut attempt = 1;
    loop {
        let begin = house::begin_in(run, 1, attempt, house::IDEMPOTENT, 1, 10);
        let outcomes = asks(&client, held, Duration::from_secs(30), vec![begin]).await;
        let [Outcome::Effect(effect::Outcome::Begun(intent))] = outcomes[..] else {
            served.borrow_mut().push((How::Recalled, world.now().as_nanos() / 1_000_000));
            return;
        };
        asks(&client, held, Duration::ZERO, vec![house::dispatch(intent)]).await;
        world.sleep(CALL).await;
        let comes_to_nothing = fails && number == 0 && attempt == 1;
        asks(&client, held, Duration::ZERO, report(run, attempt, intent, !comes_to_nothing)).await;
        if !comes_to_nothing {
            served.borrow_mut().push((How::Asked, world.now().as_nanos() / 1_000_000));
            return;
        }
        attempt += 1;
    }
}

fn report(run: RunId, attempt: u32, intent: ReservationId, succeeds: bool) -> Vec<Command> {
    let state = if succeeds { AttemptState::Succeeded } else { AttemptState::Failed };
    let money = if succeeds { house::settle(intent, 1) } else { house::release(intent) };
    let end = Command::Run(run::Command::EndAttempt { run, unit: UnitId(1), attempt, state });
    vec![house::commit(intent, b"yes"), money, end]
}

fn served(fails: bool) -> Vec<(How, u64)> {
    let mut genesis = house::genesis(1_000, 1_000, 1_000, 1_000, 2);
    genesis.extend(house::tools());
    let served: Served = Rc::default();
    let store = MemoryStore::new();
    let clients = (0..ASKERS).map(|number| {
        let served = served.clone();
        client(async move |world, client| asker(world, client, number, fails, served.clone()).await)
    });
    let ledger = ledger(
        move |_| {
            let store = store.clone();
            move || Ok(store)
        },
        settings(genesis),
        Planted::none(),
    );
    stage(7, LinkWeather::CALM, ledger, clients.collect(), async |_| {});
    let mut served = served.take();
    served.sort_unstable();
    served
}

#[test]
fn one_asks_and_all_the_others_are_served_by_its_answer_at_once() {
    let served = served(false);
    assert_eq!(served.iter().filter(|(how, _)| *how == How::Asked).count(), 1, "{served:?}");
    assert_eq!(served.len() as u64, ASKERS);
    let (first, last) = (served[0].1, served.iter().map(|(_, at)| *at).max().unwrap());
    assert!(last - first < 20, "nobody waits longer than for the answer to come round: {served:?}");
}

/// The leader fails; of those who wait, and itself once more, one asks and the others wait for that.
#[test]
fn after_a_failure_one_follower_asks_and_the_others_wait_on() {
    let served = served(true);
    assert_eq!(served.iter().filter(|(how, _)| *how == How::Asked).count(), 1, "{served:?}");
    assert_eq!(served.len() as u64, ASKERS);
    let last = served.iter().map(|(_, at)| *at).max().unwrap();
    assert!(last < 2 * CALL.as_millis() as u64 + 50, "two calls, one after the other: {served:?}");
}
