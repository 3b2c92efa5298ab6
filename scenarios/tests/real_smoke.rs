//! The same cast on the real engine: TCP on loopback, the machine's clock, provider latency at a thousandth.

mod playing;

use kernel::{record::Event, run};
use playing::{Play, fleet};
use scenarios::workload;
use sim::Engine;
use std::time::Duration;

#[test]
fn eight_agents_complete_their_runs_on_the_real_engine() {
    let root = tempfile::tempdir().expect("a folder for the nodes' files");
    let mut scenario = fleet();
    scenario.provider.speedup = 1_000;
    scenario.sizes.lasts = Duration::from_millis(1_500);
    scenario.heal_bound = Duration::from_secs(60);
    let work = workload::draw(&scenario, 7);
    let play = Play { engine: Engine::Real, root: Some(root.path().to_owned()), ..Play::native(scenario, work, 7) };
    let seen = play.play();
    assert!(seen.at_rest, "not at rest {} ns after the start", seen.elapsed_ns);
    let begun = seen.events(|event| matches!(event, Event::Run(run::Event::Spawned { .. })));
    let complete = seen.events(
        |event| matches!(event, Event::Run(run::Event::Ended { outcome, .. }) if *outcome == run::Ending::Complete),
    );
    assert!(begun >= 8, "{begun} runs began");
    assert_eq!(complete, begun);
    assert_eq!(seen.settled(), seen.invoiced());
}
