//! Kills, restarts, pauses, and deaths at a disk operation.

use crate::cast::*;
use sim::{Cancelled, Control, Open, Reach, World, history};
use std::{cell::Cell, rc::Rc, time::Duration};

/// Up and down entries as (milliseconds, node, incarnation, what).
fn lives(played: &sim::Played) -> Vec<(u64, u32, u32, &'static str)> {
    let entries = history::read(&played.history.kept).map(|entry| entry.unwrap());
    entries
        .filter_map(|entry| {
            let what = match (entry.kind, entry.data) {
                (history::kind::UP, []) => "up",
                (history::kind::DOWN, [0]) => "ended",
                (history::kind::DOWN, [1]) => "killed",
                (history::kind::DOWN, [2]) => "cut",
                _ => return None,
            };
            Some((entry.time_ns / MS, entry.node.0, entry.incarnation, what))
        })
        .collect()
}

#[test]
fn a_node_goes_down_and_up_as_its_next_incarnation() {
    let short = boot(|world| async move { world.sleep(ms(3)).await });
    let director = direct(|control| async move {
        control.sleep(ms(1)).await;
        control.restart(A).unwrap();
        control.kill(A).unwrap();
        control.kill(A).unwrap();
        assert!(!control.is_up(A));
        control.sleep(ms(1)).await;
        control.restart(A).unwrap();
        control.sleep(ms(1)).await;
        control.power_cut(A).unwrap();
        control.restart(A).unwrap();
        assert!(control.is_up(A));
        control.sleep(ms(5)).await;
        assert!(!control.is_up(A), "a process that ends stays down");
    });
    let played = run(config(1), vec![short], director);
    let expected =
        [(0, 0, 0, "up"), (1, 0, 0, "killed"), (2, 0, 1, "up"), (3, 0, 1, "cut"), (3, 0, 2, "up"), (6, 0, 2, "ended")];
    assert_eq!(lives(&played), expected);
}

/// Tells, when it is dropped, what the world lets a dying task do.
struct LastWords {
    world: World,
    number: u32,
    see: Rc<dyn Fn(u32)>,
}

impl Drop for LastWords {
    fn drop(&mut self) {
        (self.see)(self.number);
        self.world.note(20, b"from the grave");
        self.world.send(B, vec![9]);
        let stillborn = self.world.spawn(async { unreachable!("a dead node's task ran") });
        stillborn.cancel();
        let _ = (self.world.random(), self.world.now());
    }
}

#[test]
fn a_kill_drops_tasks_in_order_and_mutes_their_last_words() {
    let (seen, see) = spy();
    let dying = boot(move |world: World| {
        let see = see.clone();
        async move {
            for number in 0..5 {
                let words = LastWords { world: world.clone(), number, see: see.clone() };
                world.spawn(async move {
                    let _words = words;
                    std::future::pending::<()>().await
                });
            }
            std::future::pending().await
        }
    });
    let director = direct(|control| async move {
        control.sleep(ms(1)).await;
        control.kill(A).unwrap();
        control.sleep(ms(10)).await;
    });
    let played = run(config(1), vec![dying, sink()], director);
    assert_eq!(seen.take(), [0, 1, 2, 3, 4]);
    assert_eq!(played.stats.frames_sent, 0);
    assert!(history::read(&played.history.kept).all(|entry| entry.unwrap().kind != 20));
}

#[test]
fn everything_is_dropped_at_the_end() {
    struct Counted(Rc<Cell<u32>>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }
    let dropped = Rc::new(Cell::new(0));
    let counting = dropped.clone();
    let holding = boot(move |world: World| {
        let counted = Counted(counting.clone());
        async move {
            let (sender, mut receiver) = tokio::sync::mpsc::channel::<Counted>(4);
            sender.send(counted).await.unwrap();
            let (_sender, own) = (sender, world.clone());
            world.spawn(async move { own.recv().await });
            std::future::pending::<()>().await;
            receiver.recv().await;
        }
    });
    run(config(1), vec![holding], wait(ms(1)));
    assert_eq!(dropped.get(), 1);
}

#[test]
fn a_paused_node_goes_on_as_a_zombie() {
    let (seen, see) = spy();
    let ticking = boot(move |world: World| {
        let see = see.clone();
        async move {
            let (hearing, told) = (world.clone(), see.clone());
            world.spawn(async move {
                loop {
                    let datagram = hearing.recv().await;
                    told((hearing.now().as_nanos() / MS, datagram.frame[0]));
                }
            });
            loop {
                world.sleep(ms(10)).await;
                see((world.now().as_nanos() / MS, 255));
            }
        }
    });
    let calling = boot(|world| async move {
        for number in 0..4 {
            world.sleep(ms(7)).await;
            world.send(A, vec![number]);
        }
        std::future::pending().await
    });
    let director = direct(|control| async move {
        control.sleep(ms(12)).await;
        control.pause(A).unwrap();
        control.pause(A).unwrap();
        assert!(control.is_up(A));
        control.sleep(ms(26)).await;
        control.resume(A).unwrap();
        control.sleep(ms(15)).await;
    });
    let played = run(sim::Config { schedule_cut: Some(0), ..config(1) }, vec![ticking, calling], director);
    assert_eq!(seen.take(), [(8, 0), (10, 255), (38, 1), (38, 2), (38, 3), (38, 255), (48, 255)]);
    assert_eq!(lives(&played), [(0, 0, 0, "up"), (0, 1, 0, "up")]);
}

#[test]
fn a_kill_ends_a_pause() {
    let (seen, see) = spy();
    let ticking = boot(move |world: World| {
        let see = see.clone();
        async move {
            loop {
                world.sleep(ms(10)).await;
                see((world.incarnation(), world.now().as_nanos() / MS));
            }
        }
    });
    let director = direct(|control| async move {
        control.pause(A).unwrap();
        control.sleep(ms(15)).await;
        control.kill(A).unwrap();
        control.pause(A).unwrap();
        control.restart(A).unwrap();
        control.sleep(ms(25)).await;
    });
    run(config(1), vec![ticking], director);
    assert_eq!(seen.take(), [(1, 25), (1, 35)]);
}

/// Writes eight bytes and syncs, again and again; tells when each is durable.
fn writer(see: Rc<dyn Fn((u32, u64, u64))>) -> sim::Boot {
    boot(move |world: World| {
        let see = see.clone();
        async move {
            loop {
                let disk = world.disk();
                let written = world
                    .offload(move || {
                        let file = disk.open("log", Open::Existing).or_else(|_| disk.open("log", Open::New)).unwrap();
                        let len = file.len().unwrap();
                        file.write_at(len, &[7; 8]).unwrap();
                        file.sync().unwrap();
                        disk.sync_dir().unwrap();
                        len + 8
                    })
                    .await;
                see((world.incarnation(), written, world.now().as_nanos()));
            }
        }
    })
}

#[test]
fn an_offload_ends_with_its_last_disk_operation() {
    let (seen, see) = spy();
    run(config(1), vec![writer(see)], wait(ms(2)));
    let first = seen.borrow()[0];
    let second = seen.borrow()[1];
    assert_eq!(first.1, 8);
    assert!(first.2 >= 805_000, "a write and two syncs took {} ns", first.2);
    assert_eq!(second.2 - first.2, 20_000 + 5_000 + 2 * 400_000, "an open, a write and two syncs");
}

/// For each way to die at operation k: the node never sees that operation's result, and what it saw is kept.
#[test]
fn a_node_dies_at_the_chosen_disk_operation() {
    for power_cut in [false, true] {
        let mut losing = 0;
        for nth in 1..=12 {
            let (seen, see) = spy();
            let director = direct(move |control: Control| async move {
                control.fell_at_disk_operation(A, nth, power_cut).unwrap();
                control.sleep(ms(20)).await;
                assert!(!control.is_up(A));
                assert_eq!(control.disk_operations(A), nth - 1);
                control.restart(A).unwrap();
                control.sleep(ms(20)).await;
            });
            // Of this seed the director's turn comes before the node's first operation, and a cut loses something.
            losing += run(config(6), vec![writer(see)], director).stats.effects.cuts_losing;
            let seen = seen.take();
            let before = seen.iter().filter(|(incarnation, ..)| *incarnation == 0).map(|(_, len, _)| *len).max();
            let after = seen.iter().find(|(incarnation, ..)| *incarnation == 1).unwrap().1;
            assert!(after >= before.unwrap_or(0) + 8, "operation {nth}: {after} after {before:?}");
        }
        // Between a sync and the next write there is nothing to lose, and some cuts keep what there is.
        assert!(if power_cut { (1..=8).contains(&losing) } else { losing == 0 }, "{losing} of 12 lost something");
    }
}

#[test]
fn a_kill_during_an_offload_discards_it() {
    let (seen, see) = spy();
    let director = direct(|control: Control| async move {
        control.sleep(Duration::from_micros(22)).await;
        control.kill(A).unwrap();
        control.restart(A).unwrap();
        control.sleep(ms(2)).await;
    });
    run(config(1), vec![writer(see)], director);
    assert!(seen.borrow().iter().all(|(incarnation, ..)| *incarnation == 1), "{seen:?}");
    assert_eq!(seen.borrow()[0].1, 8, "the write that the kill came before is gone");
}

#[test]
fn healing_ends_every_fault() {
    let (seen, see) = spy();
    let talking = boot(|world| async move {
        loop {
            world.send(B, vec![1]);
            world.sleep(ms(10)).await;
        }
    });
    let hearing = boot(move |world: World| {
        let see = see.clone();
        async move {
            assert_eq!(world.spawn_cancellable(async {}).await, Ok(()));
            let disk = world.disk();
            world.offload(move || disk.list().unwrap()).await;
            loop {
                world.recv().await;
                see(world.incarnation());
            }
        }
    });
    let director = direct(move |control: Control| async move {
        control.sleep(Duration::from_micros(500)).await;
        control.kill(B).unwrap();
        control.pause(A).unwrap();
        control.set_drift(A, 100_000).unwrap();
        control.partition(&Reach::All).unwrap();
        control.set_weather(&Reach::All, sim::LinkWeather { loss_ppm: 1_000_000, ..STEADY }).unwrap();
        control.cancel(B, 1).unwrap();
        control.fell_at_disk_operation(B, 1, true).unwrap();
        control.sleep(ms(100)).await;
        control.heal().unwrap();
        let from = control.now();
        control.sleep(ms(101)).await;
        assert!(control.is_up(A) && control.is_up(B));
        assert_eq!(control.now().since(from), ms(101));
    });
    run(config(1), vec![talking, hearing], director);
    assert_eq!(seen.take(), [1; 10]);
}

#[test]
fn a_cancel_fault_drops_a_task_at_the_chosen_poll() {
    for (nth, expected) in [(1, 0), (2, 1), (3, 2), (5, 4), (6, 5)] {
        let (seen, see) = spy();
        let cancelled = Rc::new(Cell::new(false));
        let told = cancelled.clone();
        let working = boot(move |world: World| {
            let (see, told) = (see.clone(), told.clone());
            async move {
                let own = world.clone();
                world.spawn(async move { own.sleep(ms(2)).await });
                let stepping = world.clone();
                let task = world.spawn_cancellable(async move {
                    for step in 0.. {
                        see(step);
                        stepping.sleep(ms(1)).await;
                    }
                });
                assert_eq!(task.await, Err(Cancelled));
                told.set(true);
            }
        });
        let director = direct(move |control: Control| async move {
            control.cancel(A, nth).unwrap();
            control.sleep(ms(20)).await;
        });
        run(sim::Config { schedule_cut: Some(0), ..config(1) }, vec![working], director);
        assert_eq!(seen.borrow().len(), expected, "poll {nth}");
        assert!(cancelled.get());
    }
}

#[test]
fn a_dismissed_cast_is_dropped_and_leaves_no_trace() {
    struct Held(Rc<Cell<u32>>);
    impl Drop for Held {
        fn drop(&mut self) {
            self.0.set(self.0.get() - 1);
        }
    }
    let ends = |dismissed: bool| {
        let held = Rc::new(Cell::new(0));
        let holding = held.clone();
        let holder = boot(move |world: World| {
            holding.set(holding.get() + 1);
            let holds = Held(holding.clone());
            async move {
                world.recv().await;
                drop(holds);
            }
        });
        let looked = held.clone();
        let director = direct(move |control| async move {
            control.sleep(ms(5)).await;
            assert_eq!(looked.get(), 2);
            if dismissed {
                control.dismiss();
                assert_eq!((looked.get(), control.is_up(A)), (0, false));
            }
        });
        run(config(1), vec![holder.clone(), holder], director).history
    };
    let (stood, dismissed) = (ends(false), ends(true));
    assert_eq!((stood.hash, stood.entries), (dismissed.hash, dismissed.entries));
}
