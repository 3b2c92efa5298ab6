//! Runs with agents standing by: a holder dies or is frozen, and another finishes what it left.

use crate::playing::{Play, fleet};
use kernel::{record::Event, run};
use scenarios::{cast, fact::Fact, scenario::Workload, workload};
use sim::NodeId;
use std::time::Duration;

fn play(seed: u64, zombie: bool) -> crate::playing::Seen {
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
        if zombie {
            let refused = |event: &Event| {
                use kernel::{effect::Event::Decided, lease::Refusal::Deposed, request::Refusal};
                matches!(event, Event::Effect(Decided { outcome: Err(Refusal::Lease(Deposed { .. })), .. }))
            };
            println!("seed {seed}: {} refused", seen.events(refused));
        }
    }
}
