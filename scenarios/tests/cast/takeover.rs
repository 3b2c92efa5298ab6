//! Runs with agents standing by: a holder dies or is frozen, and another finishes what it left.

use crate::playing::{Play, Seen, fleet};
use kernel::{
    lease::{Event::Granted, Lock},
    planted::Bug,
    record::Event,
    reserve, run,
};
use scenarios::{cast, fact::Fact, workload};
use sim::{NodeId, Reach};
use std::{collections::BTreeMap, time::Duration};

fn play(seed: u64, zombie: bool) -> Seen {
    let mut scenario = fleet();
    scenario.workload = workload::takeover::WORKLOAD;
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
    scenario.workload = workload::takeover::WORKLOAD;
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

/// A holder's call is turned away while it cannot reach the ledger; a standby releases the reservation, and the holder returns.
fn play_late_return(bugs: Vec<Bug>) -> Seen {
    let mut scenario = fleet();
    scenario.workload = workload::takeover::WORKLOAD;
    (scenario.sizes.agents, scenario.sizes.standbys, scenario.sizes.runs_per_agent) = (2, 1, 1);
    let work = workload::draw(&scenario, 7);
    Play { bugs, ..Play::native(scenario, work, 7) }.play_with(move |control, stage| async move {
        stage.provider.set(cast::ProviderWeather { error_ppm: 1_000_000, ..Default::default() });
        control.sleep(Duration::from_secs(20)).await;
        stage.provider.set(cast::ProviderWeather::default());
        let between = Reach::Between(cast::agent(0), cast::LEDGER);
        control.partition(&between).expect("the native engine cuts links");
        control.sleep(Duration::from_secs(80)).await;
        control.mend(&between).expect("the native engine mends links");
    })
}

#[test]
fn a_late_release_is_refused_unless_the_bug_of_releasing_twice_is_on() {
    let cases = [(vec![], 1), (vec![Bug::ReleaseTwice], 2)];
    for (bugs, times) in cases {
        let seen = play_late_return(bugs.clone());
        assert!(seen.at_rest, "{bugs:?}");
        let released = seen.events(|event| matches!(event, Event::Reserve(reserve::Event::Released { .. })));
        assert_eq!(released, times, "{bugs:?}");
        let deposed = seen.events(|event| {
            use kernel::{effect::Event::Decided, lease::Refusal::Deposed, request::Refusal::Lease};
            matches!(event, Event::Effect(Decided { outcome: Err(Lease(Deposed { .. })), .. }))
        });
        assert!(deposed > 0 || !bugs.is_empty(), "nothing was reported late");
    }
}
