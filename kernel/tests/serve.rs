//! The server and its clients on the native engine: nothing is decided twice, lost after it was told, or granted out of turn.

#![allow(clippy::unwrap_used)] // a test that cannot go on says where

mod house;
mod stage;

use house::{LOCK, RUN, TENANT};
use kernel::{
    client::{Asking, Client},
    effect,
    id::{ClientId, ExecutorId, Fence, RunId},
    lease::{self, Authority, Lock},
    planted::Planted,
    record::{self, Event, Frame},
    request::{Answer, Command, Decision, FromLedger, Outcome, Query, Refusal, Reply, Request, ToLedger},
    run::{AttemptState, Ending, RunState},
    serve::{Announcement, Settings},
    store::{Loaded, Row, Store, StoreError, StoredFrame, memory::MemoryStore, redb::RedbStore},
};
use sim::{Boot, Control, LinkWeather, World};
use stage::{FOUL, LEDGER, Shown, client, ledger, now, settings, stage};
use std::{cell::RefCell, collections::BTreeMap, rc::Rc, time::Duration};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// What each client was told, by client and number.
type Told = Rc<RefCell<BTreeMap<(ClientId, u64), Decision>>>;

fn roomy() -> Settings {
    settings(house::genesis(1_000_000, 1_000_000, 100_000_000, 100_000_000, 1000))
}

fn in_memory(settings: Settings, planted: Planted) -> Boot {
    let store = MemoryStore::new();
    ledger(
        move |_| {
            let store = store.clone();
            move || Ok(store)
        },
        settings,
        planted,
    )
}

fn on_disk(settings: Settings, planted: Planted) -> Boot {
    let open = |world: World| {
        let disk = world.disk();
        move || RedbStore::open(&disk)
    };
    ledger(open, settings, planted)
}

/// The frames that became durable, in order, as the announcements tell: those that were announced, and at each opening the
/// last, which may not have been.
fn frames(shown: &Shown) -> Vec<Frame> {
    let mut frames = BTreeMap::new();
    for (_, announcement) in &shown.announced {
        if let Announcement::Committed { frame: Some(bytes), .. }
        | Announcement::Opened { last_frame: Some(bytes), .. } = announcement
        {
            let frame: Frame = postcard::from_bytes(bytes).unwrap();
            let known = frames.insert(frame.records[0].seq, bytes.clone());
            assert!(known.is_none_or(|known| known == *bytes), "one sequence, two frames");
        }
    }
    record::verify(frames.into_values()).collect::<Result<_, _>>().unwrap()
}

/// How often each request was decided, and what was decided first.
fn decisions(frames: &[Frame]) -> BTreeMap<(ClientId, u64), (usize, Decision)> {
    let mut decisions = BTreeMap::new();
    for record in frames.iter().flat_map(|frame| &frame.records) {
        if let Event::Effect(effect::Event::Decided { client, number, outcome, .. }) = &record.event {
            let decision = Decision { seq: record.seq, outcome: outcome.clone() };
            decisions.entry((*client, *number)).or_insert((0, decision)).0 += 1;
        }
    }
    decisions
}

/// How many answers that clients were told are not what the log holds.
fn disowned(told: &Told, shown: &Shown) -> usize {
    let decided = decisions(&frames(shown));
    let held = |name| decided.get(name).map(|(_, decision)| decision);
    told.borrow().iter().filter(|(name, told)| held(name) != Some(*told)).count()
}

/// Asks one request after another and remembers what it is told.
struct Agent {
    client: Client,
    id: ClientId,
    asked: u64,
    told: Told,
}

impl Agent {
    fn new(world: &World, client: Client, told: &Told) -> Agent {
        Agent { client, id: ClientId(u64::from(world.node().0)), asked: 0, told: told.clone() }
    }

    async fn ask(&mut self, authority: Option<Authority>, commands: Vec<Command>) -> Vec<Outcome> {
        self.asked += 1;
        let decision = self.client.ask(now(TENANT, authority), commands).await.unwrap();
        self.told.borrow_mut().insert((self.id, self.asked), decision.clone());
        decision.outcome.unwrap()
    }
}

/// A run of `units` units from its spawning to its end.
fn runner(told: Told, units: u32) -> Boot {
    client(async move |world, client| {
        let mut agent = Agent::new(&world, client.clone(), &told);
        let run = RunId(u64::from(world.node().0));
        let (lock, executor) = (Lock::Run(TENANT, run), ExecutorId(run.0));
        agent.ask(None, vec![house::spawn(run)]).await;
        let fence = house::held(&agent.ask(None, vec![house::acquire(lock, executor.0, 3_600_000_000_000)]).await);
        let authority = Some(Authority { lock, executor, fence });
        for unit in 0..units {
            let reserved = agent.ask(authority, vec![house::reserve_in(run, unit, 1, 100)]).await;
            world.sleep(3 * MS).await;
            let ended = kernel::run::Command::EndAttempt {
                run,
                unit: kernel::id::UnitId(unit),
                attempt: 1,
                state: AttemptState::Succeeded,
            };
            let settled = house::settle(house::reserved(&reserved), 70);
            agent.ask(authority, vec![settled, Command::Run(ended)]).await;
        }
        let ending = kernel::run::Command::End { run, outcome: Ending::Complete };
        agent.ask(authority, vec![Command::Run(ending)]).await;
        let Answer::Run(Some(standing)) = client.query(Query::Run(TENANT, run), None).await.unwrap() else {
            panic!("the run is not known")
        };
        assert_eq!((standing.state, standing.units.len()), (RunState::Ended(Ending::Complete), units as usize));
    })
}

type Fall = fn(&Control) -> Result<(), sim::Unsupported>;

const KILL: Fall = |control| control.kill(LEDGER);
const POWER_CUT: Fall = |control| control.power_cut(LEDGER);

/// The ledger falls every so often and comes back.
async fn falls(control: &Control, fall: Fall) {
    for _ in 0..12 {
        control.sleep(37 * MS).await;
        fall(control).unwrap();
        control.sleep(5 * MS).await;
        control.restart(LEDGER).unwrap();
    }
}

#[test]
fn each_request_is_decided_once_whatever_the_weather_and_the_falls() {
    type Serving = fn(Settings, Planted) -> Boot;
    let cases: [(&str, Serving, Fall); 3] =
        [("memory", in_memory, KILL), ("disk", on_disk, KILL), ("disk", on_disk, POWER_CUT)];
    for (seed, (store, serving, fall)) in (1..=5).flat_map(|seed| cases.map(|case| (seed, case))) {
        let told = Told::default();
        let runners = (0..8).map(|_| runner(told.clone(), 5)).collect();
        let serving = serving(roomy(), Planted::none());
        let shown = stage(seed, FOUL, serving, runners, async move |control| falls(control, fall).await);
        let openings = shown.announced.iter().filter(|(_, said)| matches!(said, Announcement::Opened { .. })).count();
        assert!(openings > 3, "{store}, seed {seed}: opened {openings} times");
        let decided = decisions(&frames(&shown));
        assert_eq!(told.borrow().len(), 8 * 13);
        assert!(decided.values().all(|(times, _)| *times == 1), "{store}, seed {seed}: decided twice");
        assert_eq!(disowned(&told, &shown), 0, "{store}, seed {seed}: told and not held");
    }
}

/// Who asks for the lock when, how long it would wait, and what it does then.
#[derive(Clone, Copy)]
struct Waits {
    at_ms: u64,
    wait_ms: u64,
    then: Then,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    /// It gives the lock back when it has had it for 50 ms.
    Yields,
    /// Its lease runs out after 50 ms.
    RunsOut,
    /// It gives up asking after 20 ms, and goes on to something else, so that what it asked for is forgotten.
    GivesUp,
}

/// The executors that had the lock, in the order of their fences, and those that were refused.
fn queue(waiting: &[Waits], kill_at: Option<Duration>, planted: Planted) -> (Vec<u64>, Vec<u64>) {
    let grants = Rc::new(RefCell::new((BTreeMap::new(), Vec::new())));
    let waiter = |Waits { at_ms, wait_ms, then }| {
        let grants = grants.clone();
        client(async move |world, client| {
            world.sleep(Duration::from_millis(at_ms)).await;
            let executor = ExecutorId(u64::from(world.node().0));
            let patience = (then == Then::GivesUp).then_some(20 * MS);
            let how = Asking { wait: Duration::from_millis(wait_ms), patience, ..now(TENANT, None) };
            let ttl_ns = if then == Then::RunsOut { 50_000_000 } else { 10_000_000_000 };
            let begun = world.now();
            let Ok(decision) = client.ask(how, vec![house::acquire(LOCK, executor.0, ttl_ns)]).await else {
                client.ask(now(TENANT, None), vec![house::spawn(RUN)]).await.unwrap();
                return grants.borrow_mut().1.push(executor.0);
            };
            let waited = world.now().since(begun);
            assert!(waited < Duration::from_millis(wait_ms + 5), "{waited:?} of {wait_ms} ms");
            match decision.outcome {
                Ok(outcomes) => {
                    let fence = house::held(&outcomes);
                    grants.borrow_mut().0.insert(fence, executor.0);
                    world.sleep(50 * MS).await;
                    if then == Then::Yields {
                        let held = Authority { lock: LOCK, executor, fence };
                        let given_back = vec![Command::Lease(lease::Command::Yield { held })];
                        client.ask(now(TENANT, None), given_back).await.unwrap().outcome.unwrap();
                    }
                }
                Err(Refusal::Lease(lease::Refusal::Held { .. } | lease::Refusal::WaiterExpired { .. })) => {
                    grants.borrow_mut().1.push(executor.0);
                }
                Err(other) => panic!("{other}"),
            }
        })
    };
    let waiters = waiting.iter().copied().map(waiter).collect();
    stage(3, LinkWeather::CALM, in_memory(roomy(), planted), waiters, async move |control| {
        if let Some(at) = kill_at {
            control.sleep(at).await;
            control.kill(LEDGER).unwrap();
            control.restart(LEDGER).unwrap();
        }
    });
    let (granted, refused) = grants.take();
    (granted.into_values().collect(), refused)
}

#[test]
fn who_waits_first_is_granted_first_and_nobody_past_its_term() {
    use Then::{GivesUp, RunsOut, Yields};
    let waits = |at_ms, wait_ms, then| Waits { at_ms, wait_ms, then };
    let first = waits(1, 0, Yields);
    let cases = [
        ("given back", vec![first, waits(5, 900, Yields), waits(9, 900, Yields), waits(13, 900, Yields)], vec![]),
        ("run out", vec![waits(1, 0, RunsOut), waits(5, 900, RunsOut), waits(9, 900, Yields)], vec![]),
        ("one goes", vec![first, waits(5, 900, RunsOut), waits(9, 30, Yields), waits(13, 900, Yields)], vec![3]),
        ("at once", vec![first, waits(5, 0, Yields), waits(9, 900, Yields)], vec![2]),
        ("one gives up", vec![first, waits(5, 900, GivesUp), waits(9, 900, Yields)], vec![2]),
    ];
    for (what, waiting, refused) in cases {
        let granted: Vec<u64> = (1..=waiting.len() as u64).filter(|executor| !refused.contains(executor)).collect();
        assert_eq!(queue(&waiting, None, Planted::none()), (granted, refused), "{what}");
    }
}

#[test]
fn who_waits_is_not_forgotten_by_a_killed_ledger() {
    let waiting = [
        Waits { at_ms: 1, wait_ms: 0, then: Then::Yields },
        Waits { at_ms: 5, wait_ms: 900, then: Then::Yields },
        Waits { at_ms: 9, wait_ms: 900, then: Then::Yields },
    ];
    let (mut granted, refused) = queue(&waiting, Some(30 * MS), Planted::none());
    granted.sort_unstable();
    assert_eq!((granted, refused), (vec![1, 2, 3], vec![]));
}

async fn asks(client: Client, how: Asking, commands: Vec<Command>) -> Decision {
    client.ask(how, commands).await.unwrap()
}

/// What one batch frees and asks for goes to who waits for it.
#[test]
fn what_a_batch_frees_is_not_taken_in_that_batch_before_who_waits() {
    const LONG_NS: u64 = 100_000_000_000;
    let settings = Settings { batch_cost_ns: 2_000_000, ..settings(house::genesis(1000, 1000, 1000, 1000, 1)) };
    let order = Rc::new(RefCell::new(Vec::new()));
    let (of_holder, of_waiter) = (order.clone(), order.clone());
    let in_turn = |authority| Asking { wait: 10 * SECOND, ..now(TENANT, authority) };
    let give_back = |held| vec![Command::Lease(lease::Command::Yield { held })];
    let end =
        |reservation, unit| vec![house::settle(reservation, 1), house::end_attempt(unit, 1, AttemptState::Succeeded)];
    let holder = client(async move |world, client| {
        let ask = |how, commands| asks(client.clone(), how, commands);
        let at_once = |authority| now(TENANT, authority);
        ask(at_once(None), vec![house::spawn(RUN)]).await;
        let held = async |lock| {
            let decision = ask(at_once(None), vec![house::acquire(lock, 1, LONG_NS)]).await;
            Authority { lock, executor: ExecutorId(1), fence: house::held(&decision.outcome.unwrap()) }
        };
        let (run, owner) = (held(LOCK).await, held(Lock::Owner).await);
        let reserved = ask(at_once(Some(run)), vec![house::reserve(1, 1, 10)]).await.outcome.unwrap();
        world.sleep(100 * MS).await; // by now the other waits for the owner's lock and for the slot
        let together = [
            ask(at_once(None), vec![house::spawn(RunId(5))]), // alone: the rest comes while this is committed
            ask(at_once(None), give_back(owner)),
            ask(at_once(Some(run)), end(house::reserved(&reserved), 1)),
            ask(in_turn(None), vec![house::acquire(Lock::Owner, 3, LONG_NS)]),
            ask(in_turn(Some(run)), vec![house::reserve(2, 1, 10)]),
        ];
        let tasks = together.map(|asked| world.spawn(asked));
        for (task, what) in tasks.into_iter().zip(["", "", "", "new lock", "new slot"]) {
            let seq = task.await.unwrap().seq;
            of_holder.borrow_mut().push((seq, what));
        }
    });
    let waiter = client(async move |world, client| {
        world.sleep(50 * MS).await;
        let run = Authority { lock: LOCK, executor: ExecutorId(1), fence: Fence(1) };
        let slot = asks(client.clone(), in_turn(Some(run)), vec![house::reserve(3, 1, 10)]);
        let lock = asks(client.clone(), in_turn(None), vec![house::acquire(Lock::Owner, 2, LONG_NS)]);
        let (slot, lock) = (world.spawn(slot), world.spawn(lock));
        let (slot, lock) = (slot.await.unwrap(), lock.await.unwrap());
        of_waiter.borrow_mut().extend([(slot.seq, "waiting slot"), (lock.seq, "waiting lock")]);
        asks(client.clone(), now(TENANT, Some(run)), end(house::reserved(&slot.outcome.unwrap()), 3)).await;
        let fence = house::held(&lock.outcome.unwrap());
        let held = Authority { lock: Lock::Owner, executor: ExecutorId(2), fence };
        asks(client, now(TENANT, None), give_back(held)).await;
    });
    stage(4, LinkWeather::CALM, in_memory(settings, Planted::none()), vec![holder, waiter], async |_| {});
    let mut order = order.take();
    order.sort_unstable();
    let of = |kind| order.iter().map(|(_, who)| *who).filter(move |who| who.ends_with(kind)).collect::<Vec<_>>();
    assert_eq!((of("lock"), of("slot")), (vec!["waiting lock", "new lock"], vec!["waiting slot", "new slot"]));
}

/// A node that sends frames, each at its millisecond, and keeps what it hears in two seconds.
fn raw(sends: Vec<(u64, Vec<u8>)>, heard: Rc<RefCell<Vec<FromLedger>>>) -> Boot {
    Rc::new(move |world: World| {
        let (sends, heard) = (sends.clone(), heard.clone());
        let (sending, hearing) = (world.clone(), world.clone());
        drop(world.spawn(async move {
            loop {
                let datagram = hearing.recv().await;
                heard.borrow_mut().push(postcard::from_bytes(&datagram.frame).unwrap());
            }
        }));
        Box::pin(async move {
            for (at_ms, frame) in sends {
                sending.sleep(sim::Time(at_ms * 1_000_000).since(sending.now())).await;
                sending.send(LEDGER, frame);
            }
            sending.sleep(2 * SECOND).await;
        })
    })
}

fn frame(request: Request) -> Vec<u8> {
    postcard::to_stdvec(&ToLedger::Request(request)).unwrap()
}

fn plain(client: u64, number: u64, commands: Vec<Command>) -> Vec<u8> {
    frame(Request { incarnation: 0, ..house::request(client, number, None, commands) })
}

#[test]
fn a_full_queue_is_answered_busy_and_is_asked_again() {
    let burst: Vec<_> = (1..=10).map(|number| (50, plain(9, number, vec![house::spawn(RunId(number))]))).collect();
    let heard = Rc::new(RefCell::new(Vec::new()));
    let narrow = Settings { batch_limit: 2, queue_limit: 3, batch_cost_ns: 5_000_000, ..roomy() };
    stage(
        5,
        LinkWeather::CALM,
        in_memory(narrow.clone(), Planted::none()),
        vec![raw(burst, heard.clone())],
        async |_| {},
    );
    let busy = |heard: &FromLedger| matches!(heard, FromLedger::Reply { reply: Reply::Busy, .. });
    let busy = heard.borrow().iter().filter(|heard| busy(heard)).count();
    assert!((1..10).contains(&busy), "{busy} of 10 were busy");

    let told = Told::default();
    let runners = (0..12).map(|_| runner(told.clone(), 2)).collect();
    stage(5, LinkWeather::CALM, in_memory(narrow, Planted::none()), runners, async |_| {});
    assert_eq!(told.borrow().len(), 12 * 7);
}

/// A gate found this one: requests that waited were counted with the queue, so that enough of them had everybody else turned
/// away as busy, and with them the holder that would have let them go on. Leases ran out, successors waited in their turn, and
/// nothing ended any more, long after the weather had cleared.
#[test]
fn who_waits_never_keeps_out_whom_it_waits_for() {
    let waits = |client| {
        let commands = vec![house::acquire(LOCK, client, 100_000_000_000)];
        frame(Request { incarnation: 0, wait_ns: 900_000_000, ..house::request(client, 1, None, commands) })
    };
    let held = Authority { lock: LOCK, executor: ExecutorId(1), fence: Fence(1) };
    let sends = vec![
        (50, plain(1, 1, vec![house::acquire(LOCK, 1, 100_000_000_000)])),
        (60, waits(2)),
        (70, waits(3)),
        (80, waits(4)), // more wait than may be parked
        (90, plain(1, 2, vec![Command::Lease(lease::Command::Yield { held })])),
    ];
    let heard = Rc::new(RefCell::new(Vec::new()));
    let serving = in_memory(Settings { queue_limit: 2, ..roomy() }, Planted::none());
    stage(7, LinkWeather::CALM, serving, vec![raw(sends, heard.clone())], async |_| {});
    let said = heard.borrow().iter().map(said).take(6).collect::<Vec<_>>().join(" ");
    assert_eq!(said, "1.1 2.1-waits 3.1-waits 4.1-busy 1.2 2.1");
}

/// A gate found these: somebody who did not wait was given what another had waited for, in a batch with one who was called and did
/// not take its turn, or with one whose call made time pass.
#[test]
fn nobody_passes_who_waits_in_the_batch_of_one_who_was_called() {
    let held = |lock, executor| Authority { lock, executor: ExecutorId(executor), fence: Fence(1) };
    let acquire = |client, lock, ttl_ms: u64, wait_ms: u64| {
        let commands = vec![house::acquire(lock, client, ttl_ms * 1_000_000)];
        let asked = house::request(client, 1, None, commands);
        frame(Request { incarnation: 0, wait_ns: wait_ms * 1_000_000, ..asked })
    };
    let next = |client, acknowledged, command| {
        frame(Request { incarnation: 0, acknowledged, ..house::request(client, 2, None, vec![command]) })
    };
    let gives = |lock, executor| Command::Lease(lease::Command::Yield { held: held(lock, executor) });
    let other = Lock::Run(TENANT, RunId(77));
    let (long, short, no) = (900, 75, 0);
    let forgotten = vec![
        (10, acquire(1, LOCK, long, no)),
        (30, acquire(2, LOCK, long, long)),
        (50, acquire(3, LOCK, long, long)),
        (70, next(2, 1, house::spawn(RunId(5)))), // its client has given up what waits
        (100, next(1, 1, gives(LOCK, 1))),
        (105, acquire(4, LOCK, long, no)),
    ];
    let expiring = vec![
        (10, acquire(1, LOCK, 95, no)), // granted at 20, and over at 115
        (11, acquire(5, other, long, no)),
        (30, acquire(2, LOCK, long, long)),
        (31, acquire(6, other, long, short)), // waits until 106, and is told so from 110 to 120
        (100, plain(7, 1, vec![house::spawn(RunId(5))])),
        (105, acquire(4, LOCK, long, no)),
    ];
    for (case, sends, granted) in [("forgotten", forgotten, vec![1, 3]), ("expiring", expiring, vec![1, 5, 2])] {
        let heard = Rc::new(RefCell::new(Vec::new()));
        let serving = in_memory(Settings { batch_cost_ns: 10_000_000, ..roomy() }, Planted::none());
        let shown = stage(7, LinkWeather::CALM, serving, vec![raw(sends, heard)], async |_| {});
        let grants: Vec<u64> = frames(&shown)
            .iter()
            .flat_map(|frame| &frame.records)
            .filter_map(|record| match record.event {
                Event::Lease(lease::Event::Granted { client, .. }) => Some(client.0),
                _ => None,
            })
            .take(granted.len())
            .collect();
        assert_eq!(grants, granted, "{case}");
    }
}

/// Which request is answered, and how if not by a decision.
fn said(heard: &FromLedger) -> String {
    match heard {
        FromLedger::Reply { reply: Reply::Decided(_), client, number, .. } => format!("{client}.{number}"),
        FromLedger::Reply { reply: Reply::Busy, client, number, .. } => format!("{client}.{number}-busy"),
        FromLedger::Waiting { client, number, .. } => format!("{client}.{number}-waits"),
        other => panic!("{other:?}"),
    }
}

/// A gate found this one: of two copies in one batch the later had no wait left, so that one request was told to wait and was
/// refused at once, and the parked copy would have taken a turn that nobody was left to use.
#[test]
fn a_repeat_of_who_waits_is_told_so_and_not_parked_twice() {
    let acquire = Request {
        incarnation: 0,
        wait_ns: 500_000_000,
        ..house::request(2, 1, None, vec![house::acquire(LOCK, 2, 1_000)])
    };
    let sends = vec![
        (50, plain(1, 1, vec![house::acquire(LOCK, 1, 100_000_000)])),
        (60, plain(3, 1, vec![house::spawn(RUN)])), // keeps the ledger busy, so that the next two are one batch
        (60, frame(acquire.clone())),
        (60, frame(Request { wait_ns: 0, ..acquire.clone() })),
        (70, frame(acquire.clone())),
        (90, frame(acquire)),
    ];
    let heard = Rc::new(RefCell::new(Vec::new()));
    let serving = in_memory(Settings { batch_cost_ns: 2_000_000, ..roomy() }, Planted::none());
    let shown = stage(6, LinkWeather::CALM, serving, vec![raw(sends, heard.clone())], async |_| {});
    let kinds: String = heard
        .borrow()
        .iter()
        .map(|heard| match heard {
            FromLedger::Reply { reply: Reply::Decided(_), client, .. } => char::from(b'0' + client.0 as u8),
            FromLedger::Waiting { .. } => 'w',
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(kinds, "13www2");
    let submitted = shown.announced.iter().filter_map(|(_, said)| match said {
        Announcement::Committed { submitted, .. } => {
            Some(submitted.iter().filter(|one| one.request.client == ClientId(2)).count())
        }
        _ => None,
    });
    assert_eq!(submitted.sum::<usize>(), 2, "once when it came, once in its turn");
}

#[test]
fn garbage_and_what_only_the_ledger_may_send_is_dropped() {
    let tick = vec![Command::Lease(lease::Command::Tick)];
    let own = Request::genesis(house::genesis(1, 1, 1, 1, 1));
    let sends = vec![
        (50, b"garbage".to_vec()),
        (50, plain(3, 1, tick)),
        (50, frame(own)),
        (60, plain(3, 1, vec![house::spawn(RUN)])),
    ];
    let heard = Rc::new(RefCell::new(Vec::new()));
    let shown =
        stage(7, LinkWeather::CALM, in_memory(roomy(), Planted::none()), vec![raw(sends, heard.clone())], async |_| {});
    assert_eq!((shown.garbage, heard.borrow().len()), (3, 1));
    assert!(matches!(heard.borrow()[0], FromLedger::Reply { reply: Reply::Decided(_), .. }));
}

#[test]
fn an_idle_ledger_does_nothing() {
    let polls = |hours: u32| {
        let idle = async move |control: &Control| control.sleep(3600 * SECOND * hours).await;
        let holder =
            client(async |_, client| drop(asks(client, now(TENANT, None), vec![house::acquire(LOCK, 1, 7)]).await));
        stage(8, LinkWeather::CALM, in_memory(roomy(), Planted::none()), vec![holder], idle).played.stats.polls
    };
    assert_eq!(polls(1), polls(0));
}

/// A store that breaks at its `nth` commit, whichever incarnation makes it.
struct Breaking {
    store: MemoryStore,
    commits: std::sync::Arc<std::sync::atomic::AtomicU64>,
    nth: u64,
}

impl Store for Breaking {
    fn load(&mut self) -> Result<Loaded, StoreError> {
        self.store.load()
    }
    fn log(&mut self, from: u64) -> Result<Vec<StoredFrame>, StoreError> {
        self.store.log(from)
    }
    fn commit(&mut self, frame: &StoredFrame) -> Result<(), StoreError> {
        match self.commits.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1 == self.nth {
            true => Err(StoreError::Damaged { what: "as planned".to_owned() }),
            false => self.store.commit(frame),
        }
    }
    fn checkpoint(&mut self, next_seq: u64, changed: &[Row], digest: [u8; 32]) -> Result<(), StoreError> {
        self.store.checkpoint(next_seq, changed, digest)
    }
}

#[test]
fn a_broken_store_ends_the_server_and_is_never_answered_from() {
    for nth in [1, 2, 7] {
        let (store, commits) = (MemoryStore::new(), std::sync::Arc::default());
        let open = move |_| {
            let breaking = Breaking { store: store.clone(), commits: std::sync::Arc::clone(&commits), nth };
            move || Ok(breaking)
        };
        let told = Told::default();
        let runners = vec![runner(told.clone(), 3)];
        let shown = stage(9, LinkWeather::CALM, ledger(open, roomy(), Planted::none()), runners, async |control| {
            while control.is_up(LEDGER) {
                control.sleep(MS).await;
            }
            control.restart(LEDGER).unwrap();
        });
        let broke: Vec<_> =
            shown.announced.iter().filter(|(_, said)| matches!(said, Announcement::Broke { .. })).collect();
        assert_eq!(broke.len(), 1, "commit {nth}");
        assert_eq!((told.borrow().len(), disowned(&told, &shown)), (9, 0), "commit {nth}");
    }
}

#[cfg(feature = "planted")]
mod planted_bugs {
    use super::*;
    use kernel::planted::Bug;

    /// Answers told and not held, over falls at each of many disk operations.
    fn told_and_lost(bug: Option<Bug>) -> (usize, u64) {
        let planted = Planted::these(&Vec::from_iter(bug));
        let spawner = |told: Told| {
            client(async move |world, client| {
                let mut agent = Agent::new(&world, client, &told);
                for run in 0..10 {
                    agent.ask(None, vec![house::spawn(RunId(run))]).await;
                }
            })
        };
        let lost = (30..90).map(|at| {
            let told = Told::default();
            let serving = on_disk(roomy(), planted.clone());
            let shown = stage(10, LinkWeather::CALM, serving, vec![spawner(told.clone())], async move |control| {
                control.fell_at_disk_operation(LEDGER, at, at % 2 == 0).unwrap();
                control.sleep(SECOND).await;
                control.restart(LEDGER).unwrap();
            });
            disowned(&told, &shown)
        });
        (lost.sum(), planted.reached(Bug::AcknowledgeEarly))
    }

    #[test]
    fn an_early_answer_is_lost_in_a_fall() {
        let (lost, reached) = told_and_lost(None);
        assert!(lost == 0 && reached > 0, "{lost} lost, reached {reached} times");
        let (lost, reached) = told_and_lost(Some(Bug::AcknowledgeEarly));
        assert!(lost > 0 && reached > 0, "{lost} lost, reached {reached} times");
    }

    #[test]
    fn a_stepped_wall_clock_ends_a_lease_only_under_the_bug() {
        let granted = |bugs: &[Bug], step_ns| {
            let planted = Planted::these(bugs);
            let holders = Rc::new(RefCell::new(Vec::new()));
            let taker = |at: Duration| {
                let holders = holders.clone();
                client(async move |world, client| {
                    world.sleep(at).await;
                    let acquire = vec![house::acquire(LOCK, u64::from(world.node().0), 60_000_000_000)];
                    let granted = asks(client, now(TENANT, None), acquire).await.outcome.is_ok();
                    holders.borrow_mut().extend(granted.then_some(world.node().0));
                })
            };
            let takers = vec![taker(SECOND), taker(3 * SECOND)];
            stage(11, LinkWeather::CALM, in_memory(roomy(), planted.clone()), takers, async move |control| {
                control.sleep(2 * SECOND).await;
                control.step_wall(LEDGER, step_ns).unwrap();
            });
            (holders.take(), planted.reached(Bug::WallClockLease) > 0)
        };
        let hour_ns = 3_600_000_000_000;
        assert_eq!(granted(&[], 0), (vec![1], false));
        assert_eq!(granted(&[], hour_ns), (vec![1], true));
        assert_eq!(granted(&[Bug::WallClockLease], hour_ns), (vec![1, 2], true));
        assert_eq!(granted(&[Bug::WallClockLease], -hour_ns), (vec![1], true));
    }

    #[test]
    fn repeats_are_decided_afresh_only_under_the_bug() {
        let twice = |bugs: &[Bug]| {
            let spawner = || {
                client(async |world, client| {
                    for run in 0..20 {
                        let run = RunId(u64::from(world.node().0) << 32 | run);
                        asks(client.clone(), now(TENANT, None), vec![house::spawn(run)]).await;
                    }
                })
            };
            let spawners = (0..4).map(|_| spawner()).collect();
            let shown = stage(12, FOUL, in_memory(roomy(), Planted::these(bugs)), spawners, async |_| {});
            decisions(&frames(&shown)).values().filter(|(times, _)| *times > 1).count()
        };
        assert_eq!(twice(&[]), 0);
        assert!(twice(&[Bug::DropDedup]) > 0);
    }
}
