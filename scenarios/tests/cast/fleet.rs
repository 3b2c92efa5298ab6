//! Research runs, unloaded and as a fleet.

use crate::playing::{Play, Seen, fleet};
use kernel::{record::Event, run};
use scenarios::{fact::Fact, workload};

fn ended(seen: &Seen, outcome: run::Ending) -> usize {
    seen.events(|event| matches!(event, Event::Run(run::Event::Ended { outcome: how, .. }) if *how == outcome))
}

#[test]
fn an_unloaded_run_takes_93_6_seconds() {
    let mut scenario = fleet();
    (scenario.sizes.agents, scenario.sizes.runs_per_agent) = (1, 51);
    scenario.sizes.lasts = std::time::Duration::from_secs(6_000);
    let work = workload::draw(&scenario, 7);
    let seen = Play::native(scenario, work, 7).play();
    assert!(seen.at_rest);
    let walls = seen.walls_ns();
    assert_eq!(walls.len(), 51);
    let p50_ns = walls[walls.len() / 2];
    assert!((92_600_000_000..94_600_000_000).contains(&p50_ns), "p50 is {p50_ns} ns");
}

#[test]
fn eight_agents_complete_all_their_runs() {
    let scenario = fleet();
    let work = workload::draw(&scenario, 7);
    let seen = Play::native(scenario, work, 7).play();
    assert!(seen.at_rest);
    let walls = seen.walls_ns();
    assert_eq!(ended(&seen, run::Ending::Incomplete), 0);
    assert_eq!(ended(&seen, run::Ending::Complete), walls.len());
    assert!(walls.len() >= 40, "{} runs", walls.len());
    let p50_ns = walls[walls.len() / 2];
    assert!((93_000_000_000..110_000_000_000).contains(&p50_ns), "p50 is {p50_ns} ns");
    assert_eq!(seen.settled(), seen.invoiced());
    assert_eq!(seen.facts(|fact| matches!(fact, Fact::Repeated { .. })), 0);
}
