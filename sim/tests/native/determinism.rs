//! The same seed gives the same bytes, wherever and however it is played; another seed does not.

use crate::cast::*;
use sim::{
    Config, Control, Engine, EngineError, LinkWeather, NodeId, Open, Played, Reach, Recording, Stats, World, play,
};
use std::time::Duration;

const STORMY: LinkWeather = LinkWeather {
    latency_min_ns: 50_000,
    latency_max_ns: 900_000,
    loss_ppm: 50_000,
    repeat_ppm: 50_000,
    reorder_ppm: 50_000,
    spike_ppm: 10_000,
    spike_ns: 20 * MS,
    bytes_per_s: 0,
};

async fn client(world: World) {
    let mut draws = world.stream(7);
    for number in 0u64.. {
        world.send(NodeId(0), number.to_le_bytes().to_vec());
        let side = world.spawn({
            let world = world.clone();
            async move { world.sleep(Duration::from_nanos(world.random() % 1_000_000)).await }
        });
        if let Ok(answer) = world.timeout(ms(5), world.recv()).await {
            world.note(32, &answer.frame);
        }
        side.await.unwrap();
        world.sleep(Duration::from_nanos(draws.between(0, 300_000))).await;
    }
}

async fn server(world: World) {
    loop {
        let datagram = world.recv().await;
        world.charge(10_000).await;
        let disk = world.disk();
        let len = world
            .offload(move || {
                let file = disk.open("log", Open::Existing).or_else(|_| disk.open("log", Open::New)).unwrap();
                file.write_at(file.len().unwrap() % 4096, &[1; 8]).unwrap();
                file.sync().unwrap();
                file.len().unwrap()
            })
            .await;
        world.note(33, &len.to_le_bytes());
        world.send(datagram.from, datagram.frame);
    }
}

async fn trouble(control: Control) {
    control.sleep(ms(20)).await;
    control.power_cut(NodeId(0)).unwrap();
    control.partition(&Reach::Node(NodeId(2))).unwrap();
    control.set_drift(NodeId(3), 1_500_000).unwrap();
    control.pause(NodeId(4)).unwrap();
    control.sleep(ms(20)).await;
    control.heal().unwrap();
    control.fell_at_disk_operation(NodeId(0), 9, false).unwrap();
    control.sleep(ms(60)).await;
    control.heal().unwrap();
    control.sleep(ms(60)).await;
}

fn storm(config: Config) -> Played {
    let mut boots = vec![boot(server)];
    boots.extend((0..8).map(|_| boot(client)));
    run(Config { weather: STORMY, ..config }, boots, direct(trouble))
}

#[test]
fn one_seed_has_one_history() {
    let first = storm(config(1));
    let again = storm(config(1));
    assert!(first.history.entries > 100, "too little happened: {}", first.history.entries);
    assert_eq!(first.history, again.history);
    assert_eq!(first.stats, again.stats);
    assert_ne!(first.history.hash, storm(config(2)).history.hash);
}

#[test]
fn threads_and_recording_do_not_show_in_the_hash() {
    let alone: Vec<_> = (0..16).map(|seed| storm(config(seed)).history.hash).collect();
    let hash_only = |seed| {
        let played = storm(Config { recording: Recording::HashOnly { tail: 3 }, ..config(seed) });
        assert_eq!(sim::history::read(&played.history.kept).count(), 3);
        played.history.hash
    };
    let (even, odd): (Vec<u64>, Vec<u64>) = (0..16).partition(|seed| seed % 2 == 0);
    let threaded = std::thread::scope(|scope| {
        let halves = [even, odd].map(|seeds| scope.spawn(move || seeds.into_iter().map(hash_only).collect::<Vec<_>>()));
        halves.map(|half| half.join().unwrap())
    });
    for (seed, hash) in alone.iter().enumerate() {
        assert_eq!(threaded[seed % 2][seed / 2], *hash, "seed {seed}");
    }
}

/// The order in which ten tasks of one node run, three times each, at one instant.
fn turns(config: Config) -> (Vec<u32>, u64) {
    let (seen, see) = spy();
    let chorus = boot(move |world| {
        let see = see.clone();
        async move {
            for singer in 0..10 {
                let (see, singing) = (see.clone(), world.clone());
                world.spawn(async move {
                    for _ in 0..3 {
                        singing.sleep(ms(1)).await;
                        see(singer);
                    }
                });
            }
            std::future::pending().await
        }
    });
    let played = run(config, vec![chorus], wait(ms(10)));
    (seen.take(), played.stats.decisions)
}

#[test]
fn a_schedule_cut_leaves_first_in_first_out() {
    let fifo: Vec<u32> = (0..10).cycle().take(30).collect();
    let (seeded, decisions) = turns(config(3));
    assert_ne!(seeded, fifo);
    assert_ne!(seeded, turns(config(4)).0);
    let cut_at = |cut| turns(Config { schedule_cut: Some(cut), ..config(3) }).0;
    assert_eq!(cut_at(0), fifo);
    assert_eq!(cut_at(decisions), seeded);
    // The second of the three rounds takes nine decisions, the last but nine of the run.
    for past in 0..9 {
        let mixed = cut_at(decisions - 18 + past as u64);
        let (before, after) = (&mixed[..10 + past], &mixed[10 + past..20]);
        assert_eq!(before, &seeded[..10 + past], "{past} decisions into the round");
        assert!(after.is_sorted_by_key(|singer| seeded.iter().position(|other| other == singer)), "{past}: {mixed:?}");
        assert_eq!(mixed[20..], mixed[10..20], "{past} decisions into the round");
    }
}

#[test]
fn the_hash_covers_the_schedule_though_nobody_notes_it() {
    let silent = |schedule_cut| {
        let napping = boot(|world| async move {
            let nap = || {
                let world = world.clone();
                async move { world.sleep(ms(1)).await }
            };
            (0..10).for_each(|_| drop(world.spawn(nap())));
            std::future::pending().await
        });
        run(Config { schedule_cut, ..config(1) }, vec![napping], wait(ms(3)))
    };
    let noted_alike = |played: &Played| {
        let entries = sim::history::read(&played.history.kept).map(|entry| entry.unwrap());
        entries
            .filter(|entry| entry.kind != sim::history::kind::CLOSE)
            .map(|entry| format!("{entry:?}"))
            .collect::<Vec<_>>()
    };
    let (seeded, uncut, fifo) = (silent(None), silent(Some(u64::MAX)), silent(Some(0)));
    assert_eq!(seeded.history.hash, uncut.history.hash);
    assert_eq!(noted_alike(&seeded), noted_alike(&fifo));
    let digest = |played: &Played| {
        let close = sim::history::read(&played.history.kept).last().unwrap().unwrap();
        let (stats, digest): (Stats, u64) = postcard::from_bytes(close.data).unwrap();
        assert_eq!(stats, played.stats);
        digest
    };
    assert_ne!(digest(&seeded), digest(&fifo));
}

#[test]
fn an_added_node_leaves_the_order_of_the_others() {
    let order = |bystanders: usize| {
        let (seen, see) = spy();
        let mut boots: Vec<_> = (0..6)
            .map(|_| {
                let see = see.clone();
                boot(move |world| {
                    let see = see.clone();
                    async move {
                        for _ in 0..20 {
                            world.sleep(ms(1)).await;
                            see(world.node().0);
                        }
                    }
                })
            })
            .collect();
        boots.extend((0..bystanders).map(|_| {
            boot(|world| async move {
                loop {
                    world.sleep(ms(1)).await;
                }
            })
        }));
        run(config(5), boots, wait(ms(30)));
        seen.take()
    };
    assert_eq!(order(0), order(3));
}

#[test]
fn a_run_that_can_go_no_further_is_stuck() {
    let forever = direct(|_| std::future::pending());
    let nap = boot(|world| async move { world.sleep(ms(3)).await });
    let stuck = try_run(config(1), vec![nap], forever);
    assert!(matches!(stuck, Err(EngineError::Stuck { at_ns }) if at_ns == 3 * MS), "{stuck:?}");
}

#[test]
#[should_panic(expected = "node 0 keeps virtual time from moving")]
fn a_task_that_never_lets_time_move_is_told_so() {
    let restless = boot(|_| {
        std::future::poll_fn(|cx| {
            cx.waker().wake_by_ref();
            std::task::Poll::Pending
        })
    });
    run(config(1), vec![restless], wait(ms(1)));
}

#[test]
#[should_panic(expected = "runs do not nest")]
fn runs_do_not_nest() {
    let nested = boot(|_| async { drop(run(config(1), vec![], wait(ms(1)))) });
    run(config(1), vec![nested], wait(ms(1)));
}

#[test]
fn an_idle_day_costs_next_to_nothing() {
    let day = Duration::from_secs(86_400);
    let hourly = |_| {
        boot(|world| async move {
            loop {
                world.sleep(Duration::from_secs(3_600)).await;
            }
        })
    };
    let played = run(config(1), (0..10).map(hourly).collect(), wait(day));
    assert_eq!(played.elapsed_ns, 86_400_000 * MS);
    assert!(played.stats.events <= 24 * 10 + 1, "{} events", played.stats.events);
}

#[test]
fn timers_that_were_given_up_do_not_pile_up() {
    let asking = boot(|world| async move {
        for _ in 0..50_000 {
            world.send(NodeId(0), vec![1]);
            world.timeout(Duration::from_secs(3_600), world.recv()).await.unwrap();
        }
        world.note(40, &[]);
    });
    let played = run(config(1), vec![asking], wait(Duration::from_secs(7_200)));
    assert_eq!(played.stats.frames_delivered, 50_000);
    assert_eq!(played.stats.events, 50_001, "a dead timer counted as an event");
}

#[test]
fn an_observer_sees_every_entry_and_may_not_make_one() {
    let (seen, see) = spy();
    let observer = Box::new(move |entry: &sim::Entry<'_>| see((entry.time_ns, entry.node, entry.kind)));
    let noting = boot(|world| async move {
        world.sleep(ms(2)).await;
        world.note(16, b"x");
        std::future::pending().await
    });
    play(Engine::Native, config(1), nodes(vec![noting]), wait(ms(5)), observer).unwrap();
    assert_eq!(seen.take(), [(0, A, 0), (2 * MS, A, 16), (5 * MS, NodeId::DIRECTOR, 3)], "up, the note, and the close");
}

#[test]
#[should_panic(expected = "the observer made a history entry")]
fn an_observer_that_notes_is_told_so() {
    let leaked: Seen<World> = Seen::default();
    let observer = Box::new({
        let leaked = leaked.clone();
        move |entry: &sim::Entry<'_>| {
            if entry.kind == 16 {
                leaked.borrow()[0].note(17, &[]);
            }
        }
    });
    let leaking = boot(move |world| {
        let leaked = leaked.clone();
        async move {
            leaked.borrow_mut().push(world.clone());
            world.note(16, &[]);
        }
    });
    drop(play(Engine::Native, config(1), nodes(vec![leaking]), wait(ms(5)), observer));
}
