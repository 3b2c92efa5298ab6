//! Clocks that drift and step, and compute that queues.

use crate::cast::*;
use sim::{Control, EngineError, World};
use std::time::Duration;

/// True times at which a node's `sleep(10 ms)`, begun at 0, ends under what the director does.
fn sleeps_until<F: Future<Output = ()> + 'static>(conduct: impl FnOnce(Control) -> F + 'static) -> Vec<(u64, u64)> {
    let (seen, see) = spy();
    let sleeper = boot(move |world: World| {
        let see = see.clone();
        async move {
            world.sleep(ms(10)).await;
            world.note(16, &[]);
            see(world.now().as_nanos());
            std::future::pending().await
        }
    });
    let played = run(
        config(1),
        vec![sleeper],
        direct(|control| async move {
            conduct(control.clone()).await;
            control.sleep(ms(100)).await;
        }),
    );
    let noted = sim::history::read(&played.history.kept).map(|entry| entry.unwrap());
    let times: Vec<u64> = noted.filter(|entry| entry.kind == 16).map(|entry| entry.time_ns).collect();
    times.into_iter().zip(seen.take()).collect()
}

async fn drift_at(control: &Control, at_ms: u64, rate_ppm: u32) {
    let now_ms = control.now().as_nanos() / MS;
    control.sleep(ms(at_ms - now_ms)).await;
    control.set_drift(A, rate_ppm).unwrap();
}

#[test]
fn a_sleep_follows_the_oscillator_through_its_changes() {
    type Changes = &'static [(u64, u32)];
    let table: &[(Changes, Option<u64>)] = &[
        (&[], Some(10_000)),
        (&[(0, 2_000_000)], Some(5_000)),
        (&[(0, 500_000)], Some(20_000)),
        (&[(4, 2_000_000)], Some(7_000)),
        (&[(4, 500_000)], Some(16_000)),
        (&[(4, 2_000_000), (5, 500_000)], Some(13_000)),
        (&[(4, 0)], None),
        (&[(4, 0), (14, 1_000_000)], Some(20_000)),
        (&[(0, 3_000_000)], Some(3_333)),
    ];
    for &(changes, expected_us) in table {
        let ended = sleeps_until(move |control| async move {
            for &(at_ms, rate_ppm) in changes {
                drift_at(&control, at_ms, rate_ppm).await;
            }
        });
        let ended_us: Vec<u64> = ended.iter().map(|(true_ns, _)| true_ns / 1_000).collect();
        assert_eq!(ended_us, Vec::from_iter(expected_us), "{changes:?}");
        assert!(ended.iter().all(|(_, own_ns)| (10 * MS..=10 * MS + 3).contains(own_ns)), "{changes:?}: {ended:?}");
    }
}

#[test]
fn a_clock_that_stands_still_leaves_the_run_stuck() {
    let stuck = try_run(
        config(1),
        vec![boot(|world| async move { world.sleep(ms(10)).await })],
        direct(|control| async move {
            control.set_drift(A, 0).unwrap();
            std::future::pending().await
        }),
    );
    assert!(matches!(stuck, Err(EngineError::Stuck { .. })), "{stuck:?}");
}

#[test]
fn wall_steps_leave_the_monotonic_clock_alone() {
    let (seen, see) = spy();
    let reader = boot(move |world| {
        let see = see.clone();
        async move {
            loop {
                see((world.now().as_nanos() / MS, world.wall_ns() / MS));
                world.sleep(ms(10)).await;
            }
        }
    });
    let step = direct(|control| async move {
        control.sleep(ms(5)).await;
        control.step_wall(A, 3_000 * MS as i64).unwrap();
        control.sleep(ms(10)).await;
        control.step_wall(A, -4_000 * MS as i64).unwrap();
        control.sleep(ms(10)).await;
        control.kill(A).unwrap();
        control.restart(A).unwrap();
        control.sleep(ms(1)).await;
    });
    run(config(1), vec![reader], step);
    assert_eq!(seen.take(), [(0, 1_000_000), (10, 1_003_010), (20, 999_020), (25, 999_025)]);
}

#[test]
fn compute_queues_for_the_cores() {
    let (seen, see) = spy();
    let busy = boot(move |world| {
        let see = see.clone();
        async move {
            for job_ms in [10, 10, 10, 5, 0] {
                let (see, working) = (see.clone(), world.clone());
                world.spawn(async move {
                    working.charge(job_ms * MS).await;
                    see((job_ms, working.now().as_nanos() / MS));
                });
            }
            std::future::pending().await
        }
    });
    run(sim::Config { schedule_cut: Some(0), ..config(1) }, vec![busy], wait(ms(100)));
    assert_eq!(seen.take(), [(0, 0), (10, 10), (10, 10), (5, 15), (10, 20)], "two cores");
}

#[test]
fn a_timeout_gives_up_exactly_at_its_limit() {
    let (seen, see) = spy();
    let impatient = boot(move |world| {
        let see = see.clone();
        async move {
            for work_ms in [3, 7, 5] {
                let done = world.timeout(ms(5), world.sleep(ms(work_ms))).await;
                see((done.is_ok(), world.now().as_nanos() / MS));
            }
        }
    });
    run(config(1), vec![impatient], wait(Duration::from_secs(1)));
    assert_eq!(seen.take(), [(true, 3), (false, 8), (true, 13)]);
}

#[test]
fn a_frozen_wall_clock_stands_still_until_it_is_thawed_or_healed() {
    let (seen, see) = spy();
    let reader = boot(move |world| {
        let see = see.clone();
        async move {
            loop {
                see((world.now().as_nanos() / MS, world.wall_ns() / MS));
                world.note(16, &[]);
                world.sleep(ms(10)).await;
            }
        }
    });
    let freeze = direct(|control| async move {
        for thaw_by_heal in [false, true] {
            control.sleep(ms(5)).await;
            control.freeze_wall(A).unwrap();
            control.sleep(ms(10)).await;
            if thaw_by_heal {
                control.heal().unwrap();
            } else {
                control.thaw_wall(A).unwrap();
            }
            control.sleep(ms(5)).await;
        }
    });
    let played = run(config(1), vec![reader], freeze);
    assert_eq!(seen.take()[..4], [(0, 1_000_000), (10, 1_000_005), (20, 1_000_020), (30, 1_000_025)]);
    assert_eq!(played.stats.effects.notes_frozen, 2);
    assert_eq!((played.stats.effects.notes_stepped, played.stats.effects.notes_drifting), (0, 0));
}
