//! F8 (authorino#668): N identical misses were N paid calls, and who waited died with the one who asked. Here 100 agents ask one
//! question, and whoever asks it is killed with the call on the wire.

use crate::playing::{Play, Seen};
use kernel::{
    planted::Bug,
    record::Event,
    run::{self, Ending},
};
use scenarios::{fact::Fact, scenario::Scenario, workload};
use sim::NodeId;
use std::{collections::BTreeSet, time::Duration};

const AGENTS: u32 = 100;

/// Plays with each of these killed at its time, all of them to be started again once the last has been dead for a while.
fn asked(deaths: &[(u64, NodeId)], bugs: &[Bug]) -> Seen {
    let mut scenario: Scenario =
        toml::from_str(include_str!("../../catalogue/stampede.toml")).expect("the catalogue's own files can be read");
    (scenario.sizes.agents, scenario.sizes.agents_per_user, scenario.sizes.runs_per_agent) = (AGENTS, AGENTS, 1);
    scenario.caps.slots = AGENTS;
    let work = workload::draw(&scenario, 4);
    let mut play = Play::native(scenario, work, 4);
    play.bugs = bugs.to_vec();
    let deaths = deaths.to_vec();
    play.play_with(|control, _| async move {
        let mut now_ns = 0;
        for (at_ns, victim) in &deaths {
            control.sleep(Duration::from_nanos(at_ns - now_ns)).await;
            now_ns = *at_ns;
            control.kill(*victim).expect("the native engine kills");
        }
        control.sleep(Duration::from_secs(60)).await;
        for (_, victim) in &deaths {
            control.restart(*victim).expect("the native engine restarts");
        }
    })
}

/// Calls that left, each request of one once, in their order: when the first copy did, and whose it was.
fn calls(seen: &Seen) -> Vec<(u64, NodeId)> {
    let mut known = BTreeSet::new();
    let left = seen.facts.iter().filter_map(|(time_ns, node, fact)| match fact {
        Fact::CallSent { key, .. } => known.insert(*key).then_some((*time_ns, *node)),
        _ => None,
    });
    left.collect()
}

#[test]
fn a_hundred_who_ask_one_question_make_one_call_and_one_more_a_death() {
    let mut deaths: Vec<(u64, NodeId)> = Vec::new();
    // The first call is answered after 11 seconds, and whoever asks later is given that answer at once: there is no third to kill.
    for died in 0..3 {
        let seen = asked(&deaths, &[]);
        assert!(seen.at_rest, "{died} deaths");
        let left = calls(&seen);
        assert_eq!(left.len(), 1 + died, "each death promotes one follower, and no more: {left:?}");
        let complete = |event: &Event| matches!(event, Event::Run(run::Event::Ended { outcome: Ending::Complete, .. }));
        assert_eq!(seen.events(complete), AGENTS as usize, "whoever waited outlives {died} deaths");
        assert_eq!(seen.facts(|fact| matches!(fact, Fact::Charged { .. })), 1, "and all of it is charged once");
        assert_eq!(seen.settled(), seen.invoiced());
        // The next to die is the last who asked, a moment after its call left.
        deaths.extend(left.last().map(|(at_ns, node)| (at_ns + 50_000_000, *node)));
    }
}

/// The same without the rule: everybody asks.
#[test]
fn without_single_flight_a_hundred_make_many_calls() {
    let seen = asked(&[], &[Bug::LeadTwice]);
    assert!(calls(&seen).len() > 1, "{:?}", calls(&seen).len());
}
