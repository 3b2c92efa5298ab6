//! The checker from outside: sound runs pass, each way of tampering is found by the rule it breaks, planted bugs show in the
//! files, and nothing makes it panic.
#![expect(clippy::disallowed_methods, reason = "folders are tampered with on the machine's disk")]

mod forge;
mod mangled;
mod semantic;
mod tampered;

use forge::recorded;
use kernel::planted::Bug;
use scenarios::{
    catalogue,
    checker::{Agreement, Status},
    soonest,
};

#[test]
fn sound_runs_of_every_scenario_hold_up() {
    for scenario in catalogue::names() {
        for seed in [1, 2, 3] {
            let folder = recorded(scenario, seed, &[]);
            let checked = folder.check().expect("it can be checked");
            let failed: Vec<_> = checked.checks.iter().filter(|check| check.status == Status::Failed).collect();
            assert!(checked.is_ok(), "{scenario}, seed {seed}: {failed:?}");
            assert_eq!(checked.agreement, Agreement::Agrees, "{scenario}, seed {seed}");
            let held = checked.checks.iter().filter(|check| check.status == Status::Ok).count();
            assert!(held > 25, "{scenario}, seed {seed}: only {held} rules had anything to look at");
        }
    }
}

/// Each planted bug shows in the files of the run that shows it soonest.
#[test]
fn planted_bugs_show_in_the_files() {
    let rows = soonest::all();
    assert_eq!(rows.len(), Bug::ALL.len());
    for row in rows {
        let checked = recorded(&row.scenario, row.seed, &[&row.name]).check().expect("it can be checked");
        assert!(!checked.is_ok(), "{} passes", row.name);
        assert!(
            checked.figures.iter().all(|figure| figure.status != Status::Failed),
            "{}: {:?}",
            row.name,
            checked.figures
        );
        assert_eq!(checked.agreement, Agreement::Agrees, "{}", row.name);
    }
}
