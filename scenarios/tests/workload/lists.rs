//! The rules of work lists: each one broken, by a list that is sound otherwise, and told with the place.

use kernel::id::{RunId, UnitId};
use scenarios::{
    catalogue,
    runner::{Choices, SpecError, spec},
    workload::{Item, Place, Unruly, WorkList, run},
};
use std::sync::Arc;

/// A change that breaks one rule.
type Breaking = fn(&mut Vec<Vec<Item>>);

/// Whether it is the rule that was broken, at the place where it was.
type Told = Box<dyn Fn(Unruly) -> bool>;

/// What is said of takeover's work with one thing changed.
fn refused(change: Breaking) -> Result<(), SpecError> {
    let scenario = catalogue::find("partition").expect("shipped");
    let mut spec = spec(&scenario, 1, &Choices::default()).expect("a spec");
    let mut work = WorkList::clone(&spec.work);
    change(&mut work.agents);
    spec.work = Arc::new(work);
    spec.check()
}

#[test]
fn a_list_that_breaks_a_rule_is_refused_with_workload_agent_run_and_unit() {
    let at = |agent, run, unit: Option<u32>| Place { agent, run, unit: unit.map(UnitId) };
    let first = run(0, 0);
    let cases: [(&str, Breaking, Told, &str); 7] = [
        (
            "above most",
            |agents| agents[0][0].units[2].usage.output_tokens = 1_000_000,
            Box::new(move |why| matches!(why, Unruly::AboveMost { place, .. } if place == at(0, first, Some(2)))),
            "agent 0, run 0, unit 2: it uses ",
        ),
        (
            "unit twice",
            |agents| agents[0][0].units[3].unit = UnitId(1),
            Box::new(move |why| matches!(why, Unruly::UnitTwice { place } if place == at(0, first, Some(1)))),
            "two units of that name",
        ),
        (
            "stages",
            |agents| agents[0][0].units[0].stage = 9,
            Box::new(
                move |why| matches!(why, Unruly::Backwards { place, stage: 1, before: 9 } if place == at(0, first, Some(1))),
            ),
            "list the units by stage",
        ),
        (
            "run twice",
            |agents| {
                let again = agents[0][0].clone();
                agents[0].push(Item { stands_by: true, ..again });
            },
            Box::new(move |why| matches!(why, Unruly::RunTwice { place } if place == at(0, first, None))),
            "on this agent's list twice",
        ),
        (
            "run shared",
            |agents| {
                let shared = agents[1].iter_mut().find(|item| item.run == RunId(0)).expect("it stands by");
                shared.stands_by = false;
            },
            Box::new(move |why| matches!(why, Unruly::RunShared { place, other: 0 } if place == at(1, first, None))),
            "agent 0 has the run too",
        ),
        (
            "too few",
            |agents| drop(agents.pop()),
            Box::new(|why| matches!(why, Unruly::Lists { lists, agents } if lists as u32 + 1 == agents)),
            "give one to each",
        ),
        (
            "none at all",
            |agents| agents.clear(),
            Box::new(|why| matches!(why, Unruly::Lists { lists: 0, .. })),
            "it has lists for 0 agents",
        ),
    ];
    assert_eq!(refused(|_| {}), Ok(()));
    for (case, change, expected, says) in cases {
        let error = refused(change).expect_err(case);
        let said = error.to_string();
        assert!(said.starts_with("the workload `takeover`: ") && said.contains(says), "{case}: {said}");
        assert!(matches!(error, SpecError::Work { why, .. } if expected(why)), "{case}: {said}");
    }
}

#[test]
fn a_capsule_whose_lists_break_a_rule_is_refused_as_well() {
    let scenario = catalogue::find("contention").expect("shipped");
    let spec = spec(&scenario, 1, &Choices::default()).expect("a spec");
    let run = scenarios::runner::play(&spec).expect("playable");
    let mut capsule = scenarios::capsule::Capsule::of(&spec, &run.report, &Default::default());
    assert!(capsule.spec().is_ok());
    capsule.work.agents[2][0].units[1][0] = 0;
    let said = capsule.spec().expect_err("two units of one name").to_string();
    for part in ["the workload `contention`", "agent 2", "unit 0", "two units of that name"] {
        assert!(said.contains(part), "{part}: {said}");
    }
}
