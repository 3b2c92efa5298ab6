//! The checker from outside: sound runs pass, each way of tampering is found by the rule it breaks, planted bugs show in the
//! files, and nothing makes it panic.
#![expect(clippy::disallowed_methods, reason = "folders are tampered with on the machine's disk")]

mod ceilings;
mod forge;
mod mangled;
mod orders;
mod semantic;
mod tampered;
mod turns;

use forge::{Folder, recorded, recorded_as};
use kernel::planted::Bug;
use scenarios::{
    catalogue,
    checker::{Agreement, Status},
    runner::{Choices, PlanChoice},
    soonest,
    workload::arrivals::Arrivals,
};
use std::sync::Arc;

#[test]
fn sound_runs_of_every_scenario_hold_up() {
    for scenario in catalogue::names() {
        for seed in [1, 2, 3] {
            let folder = recorded(scenario, seed, &[]);
            let checked = folder.check().expect("it can be checked");
            let failed: Vec<_> = checked.checks.iter().filter(|check| check.status == Status::Failed).collect();
            assert!(checked.is_ok(), "{scenario}, seed {seed}: {failed:?}");
            assert_eq!(checked.agreement, Agreement::Agrees, "{scenario}, seed {seed}");
            let unended = checked.checks.iter().find(|check| check.status == Status::Ok && check.not_checked.is_some());
            assert_eq!(unended, None, "{scenario}, seed {seed}: said to hold, and not looked at to the end");
            let held = checked.checks.iter().filter(|check| check.status == Status::Ok).count();
            assert!(held > 25, "{scenario}, seed {seed}: only {held} rules had anything to look at");
        }
    }
}

/// A trace has caps of its own and no quota, whatever its scenario says of others.
#[test]
fn a_sound_run_on_a_trace_holds_up() {
    let trace = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,48,10\n";
    let arrivals = Some(Arc::new(Arrivals::read(trace.as_bytes()).expect("a trace")));
    let folder = recorded_as("fleet", 1, Choices { arrivals, plan: PlanChoice::None, ..Choices::default() });
    assert_eq!(folder.broken(), Vec::<&str>::new());
    assert!(folder.check().expect("it can be checked").is_ok());
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

/// A folder whose scenario names an invariant that this build does not know: somebody's own.
fn with_an_invariant_of_their_own(folder: &Folder) -> Folder {
    let mut folder = folder.clone();
    let (_, text) = folder.capsule.split_once('\n').expect("a digest above the rest");
    let text = text.replacen("invariants = [", "invariants = [\"few-calls\", ", 1);
    folder.capsule = format!("digest = \"{}\"\n{text}", blake3::hash(text.as_bytes()).to_hex());
    folder
}

#[test]
fn an_invariant_without_rules_is_named_and_the_verdict_is_neither_borne_out_nor_denied() {
    let passed = with_an_invariant_of_their_own(&recorded("contention", 1, &[]));
    let checked = passed.check().expect("it can be checked");
    assert_eq!(checked.without_rules, ["few-calls"]);
    assert!(checked.is_ok(), "{checked:?}");
    let Agreement::NotShown(why) = &checked.agreement else { panic!("{:?}", checked.agreement) };
    assert!(why.contains("few-calls held is not known"), "{why}");

    let mut failed = passed.clone();
    let broken = r#"{"invariant":"few-calls","message":"too many","time_ns":7}"#;
    failed.result["verdict"] = "safety".into();
    failed.result["broken"] = serde_json::from_str(broken).expect("JSON");
    let (_, text) = failed.capsule.split_once('\n').expect("a digest above the rest");
    let mut capsule: toml::Table = toml::from_str(text).expect("TOML");
    capsule["verdict"] = "safety".into();
    let broken: toml::Value = serde_json::from_str(broken).expect("JSON");
    capsule.insert("broken".to_owned(), broken);
    let text = toml::to_string(&capsule).expect("writable");
    failed.capsule = format!("digest = \"{}\"\n{text}", blake3::hash(text.as_bytes()).to_hex());
    let checked = failed.check().expect("it can be checked");
    assert_eq!(checked.violations(), 0, "{:?}", checked.checks);
    assert!(!checked.is_ok(), "a run that is recorded as failed is not ok");
    let Agreement::NotShown(why) = &checked.agreement else { panic!("{:?}", checked.agreement) };
    assert_eq!(why, "few-calls is said to be broken, and check has no rules for this invariant");
}

/// Whoever adds an invariant that ships writes its rules down a second time.
#[test]
fn there_are_rules_for_every_invariant_that_a_shipped_scenario_names() {
    for scenario in catalogue::names() {
        let checked = recorded(scenario, 0, &[]).check().expect("it can be checked");
        assert_eq!(
            checked.without_rules, [""; 0],
            "{scenario}: add the rules, and the name to RULED of checker/verdict.rs"
        );
    }
}

/// Of such a run there is a history and no log.
#[test]
fn a_run_that_panicked_is_refused_with_the_way_to_its_history() {
    let mut folder = recorded("contention", 1, &[]);
    folder.log.clear();
    folder.result["broken"] = serde_json::json!({ "invariant": "cast-panic", "message": "no", "time_ns": 7 });
    let error = folder.check().expect_err("nothing to check against").to_string();
    assert!(error.contains("ended in a panic") && error.contains("shakedown show"), "{error}");
}
