//! Each planted bug is caught within two hundred seeds of the gate, and by the very run that `list` names for it.

use kernel::planted::Bug;
use scenarios::{
    catalogue,
    gate::{self, Partition},
    runner::{Choices, RunReport, Verdict, play, spec},
    soonest,
};

fn played(scenario: &scenarios::scenario::Scenario, seed: u64, bug: Bug) -> RunReport {
    let choices = Choices { bugs: vec![bug], ..Choices::default() };
    play(&spec(scenario, seed, &choices).expect("the catalogue is in order")).expect("played").report
}

/// The first seed of the gate whose run does not pass with the bug on, with the scenario, and in how many it was reached.
fn first_catch(bug: Bug) -> Result<(u64, String), u64> {
    let scenarios = catalogue::all();
    let mut reached = 0;
    for deal in gate::deals(scenarios.len(), 0..200, Partition::WHOLE) {
        let report = played(&scenarios[deal.scenario], deal.seed, bug);
        reached += u64::from(report.reached.iter().any(|(name, _)| name == bug.name()));
        if report.verdict != Verdict::Pass {
            return Ok((deal.seed, report.scenario));
        }
    }
    Err(reached)
}

#[test]
fn every_planted_bug_is_caught_within_two_hundred_seeds() {
    let uncaught: Vec<String> = Bug::ALL
        .into_iter()
        .filter_map(|bug| {
            let reached = first_catch(bug).err()?;
            Some(format!("{} (reached in {reached} seeds)", bug.name()))
        })
        .collect();
    assert!(uncaught.is_empty(), "not caught: {}", uncaught.join(", "));
}

#[test]
fn every_planted_bug_is_caught_by_the_run_that_is_named_for_it() {
    let named: Vec<String> = soonest::all().into_iter().map(|row| row.name).collect();
    assert_eq!(named, Bug::ALL.map(Bug::name), "one row a bug, in their order");
    for (bug, row) in Bug::ALL.into_iter().zip(soonest::all()) {
        let scenario = catalogue::find(&row.scenario).expect("a shipped scenario");
        let report = played(&scenario, row.seed, bug);
        assert!(report.reached.iter().any(|(name, _)| name == bug.name()), "{row:?} does not reach it; measure again");
        let command = row.command();
        let broken = report.broken.map(|broken| broken.invariant);
        assert_eq!(broken, Some(row.invariant), "{command} shows something else; measure again");
    }
}

/// Prints the table anew: for each bug the earliest failure of 500 seeds of the gate.
#[test]
#[expect(clippy::print_stdout, reason = "what is measured is what it is run for")]
#[ignore = "a measurement: it plays 7,500 runs"]
fn measure_what_shows_each_bug_soonest() {
    let scenarios = catalogue::all();
    for bug in Bug::ALL {
        let caught = gate::deals(scenarios.len(), 5_000..5_500, Partition::WHOLE).filter_map(|deal| {
            let report = played(&scenarios[deal.scenario], deal.seed, bug);
            let is_reached = report.reached.iter().any(|(name, _)| name == bug.name());
            let broken = report.broken.filter(|_| is_reached && report.verdict != Verdict::Pass)?;
            Some((broken.time_ns, deal.seed, report.scenario, broken.invariant))
        });
        let Some((_, seed, scenario, invariant)) = caught.min() else { panic!("{} is not caught", bug.name()) };
        println!("\n[[bug]]\nname = \"{}\"\nscenario = \"{scenario}\"", bug.name());
        println!("seed = {seed}\ninvariant = \"{invariant}\"");
    }
}
