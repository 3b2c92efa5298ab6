//! Runs with agents standing by: a holder dies or is frozen, and another finishes what it left.

use crate::playing::{Play, Seen, fleet};
use kernel::{
    lease::{Event::Granted, Lock},
    planted::Bug,
    record::Event,
    run,
};
use scenarios::{cast, fact::Fact, scenario::Workload, workload};
use sim::NodeId;
use std::{collections::BTreeMap, time::Duration};

fn play(seed: u64, zombie: bool) -> Seen {
    let mut scenario = fleet();
    scenario.workload = Workload::Takeover;
    (scenario.sizes.agents, scenario.sizes.standbys, scenario.sizes.runs_per_agent) = (6, 2, 3);
    let work = workload::draw(&scenario, seed);
    Play::native(scenario, work, seed).play_with(move |control, _| async move {
        control.sleep(Duration::from_secs(40)).await;
        let worker = cast::agent(0);
        if zombie {
            control.pause(worker).expect("the native engine pauses");
        } else {
            control.kill(worker).expect("the native engine kills");
        }
        control.sleep(Duration::from_secs(100)).await;
        if zombie {
            control.resume(worker).expect("the native engine resumes");
        } else {
            control.restart(worker).expect("the native engine restarts");
        }
    })
}

#[test]
fn a_standby_takes_over_from_a_dead_holder_and_from_a_frozen_one() {
    for (seed, zombie) in [(1, false), (2, true), (3, false), (4, true)] {
        let seen = play(seed, zombie);
        assert!(seen.at_rest, "seed {seed}");
        let ended = seen.events(|event| matches!(event, Event::Run(run::Event::Ended { .. })));
        let spawned = seen.events(|event| matches!(event, Event::Run(run::Event::Spawned { .. })));
        assert_eq!(ended, spawned, "seed {seed}");
        assert_eq!(seen.settled(), seen.invoiced(), "seed {seed}");
        let taken = |(_, node, fact): &(u64, NodeId, Fact)| {
            matches!(fact, Fact::RunOver { run, .. } if run.0 == 0) && *node != cast::agent(0)
        };
        assert!(seen.facts.iter().any(taken), "seed {seed}: nobody took the first run over");
    }
}

/// Records written under a fence below the highest granted before them.
fn stale(seen: &Seen) -> usize {
    let mut highest = BTreeMap::new();
    let is_stale = |record: &&kernel::record::Record| {
        if let Event::Lease(Granted { lock: Lock::Run(_, run), fence, .. }) = &record.event {
            highest.insert(*run, *fence);
        }
        let origin = record.origin.as_ref().filter(|origin| origin.fence.0 > 0);
        origin.is_some_and(|origin| highest.get(&origin.run).is_some_and(|highest| origin.fence < *highest))
    };
    seen.records.iter().filter(is_stale).count()
}

/// A holder dies while its requests wait for a slot; the slots come free when another holds the run.
fn play_with_waiters(seed: u64, bugs: Vec<Bug>) -> Seen {
    let mut scenario = fleet();
    scenario.workload = Workload::Takeover;
    (scenario.sizes.agents, scenario.sizes.standbys, scenario.sizes.runs_per_agent) = (8, 1, 3);
    scenario.caps.slots = 3;
    let work = workload::draw(&scenario, seed);
    Play { bugs, ..Play::native(scenario, work, seed) }.play_with(move |control, _| async move {
        control.sleep(Duration::from_secs(20 + 4 * seed)).await;
        control.kill(cast::agent(0)).expect("the native engine kills");
        control.sleep(Duration::from_secs(45)).await;
        control.restart(cast::agent(0)).expect("the native engine restarts");
    })
}

#[test]
fn no_slot_goes_to_a_waiter_that_was_deposed_unless_the_fence_is_skipped() {
    let seeds = 0..20;
    for seed in seeds.clone() {
        let seen = play_with_waiters(seed, Vec::new());
        assert!(seen.at_rest && stale(&seen) == 0, "seed {seed}");
    }
    let caught = seeds.filter(|seed| stale(&play_with_waiters(*seed, vec![Bug::SkipFence])) > 0).count();
    assert!(caught > 0, "the fence is never needed");
}
