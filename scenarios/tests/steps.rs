//! F10 (langgraph#8039): a result and what supersedes it were written in an order that a crash decided. One agent makes three calls,
//! one after the other, and the ledger is killed, or its power cut, at each single operation of its store.

use faults::{At, Fault, Plan, Planned, Target};
use kernel::{effect::Class, planted::Bug};
use scenarios::{
    catalogue,
    runner::{Choices, PlanChoice, Run, RunSpec, Verdict, play, spec},
    workload::{Call, WorkList},
};
use std::{sync::Arc, time::Duration};

/// One run of three steps, of the class given, on a store with a disk.
fn three_steps(class: Class, bugs: &[Bug]) -> RunSpec {
    let scenario = catalogue::find("crash").expect("shipped");
    let choices = Choices { agents: Some(1), plan: PlanChoice::None, bugs: bugs.to_vec(), ..Choices::default() };
    let mut spec = spec(&scenario, 1, &choices).expect("a spec");
    let mut item = spec.work.agents[0][0].clone();
    item.units.truncate(3);
    assert_eq!(item.units.len(), 3);
    for (unit, stage) in item.units.iter_mut().zip(0..) {
        (unit.stage, unit.call) = (stage, Call { class, shared: None });
    }
    spec.work = Arc::new(WorkList { agents: vec![vec![item]], open_loop: false });
    spec
}

fn crashed(whole: &RunSpec, fault: Fault, nth: u64) -> Run {
    let lasts = Duration::from_secs(2);
    let planned = Planned { at: At::Operation(nth), fault, target: Target::Node("ledger".to_owned()), lasts };
    let spec = RunSpec { plan: Plan { faults: vec![planned], ..Plan::none() }, ..whole.clone() };
    play(&spec).expect("playable")
}

#[test]
fn three_steps_happen_once_wherever_the_ledger_is_felled() {
    for class in [Class::Idempotent, Class::Unsafe] {
        let whole = three_steps(class, &[]);
        let unharmed = play(&whole).expect("playable").report;
        let operations = unharmed.stats.disk_operations;
        assert!(operations > 50, "{operations} operations are hardly a run's");
        let mut felled = 0;
        for fault in [Fault::Kill, Fault::PowerCut] {
            for nth in 1..=operations {
                let report = crashed(&whole, fault.clone(), nth).report;
                let at = format!("{class:?}, {fault:?} at operation {nth} of {operations}");
                assert_eq!(report.verdict, Verdict::Pass, "{at}: {:?}", report.broken);
                let figures = &report.figures;
                assert_eq!((figures.runs_ended, figures.runs_complete), (1, 1), "{at}");
                assert_eq!((figures.calls_charged, figures.calls_charged_again), (3, 0), "{at}");
                assert_eq!(figures.settled_micro_usd, unharmed.figures.settled_micro_usd, "{at}");
                felled += figures.kills;
            }
        }
        assert!(felled >= operations, "of {} runs {felled} were crashed", 2 * operations);
    }
}

/// A ledger that answers before its frame is durable does not come through all of these: what was answered is lost.
#[test]
fn an_answer_before_its_commit_shows_at_some_operation() {
    let whole = three_steps(Class::Idempotent, &[Bug::AcknowledgeEarly]);
    let operations = play(&whole).expect("playable").report.stats.disk_operations;
    let mut shown = (1..=operations).map(|nth| crashed(&whole, Fault::PowerCut, nth).report.verdict);
    assert!(shown.any(|verdict| verdict != Verdict::Pass), "no cut at {operations} operations shows it");
}
