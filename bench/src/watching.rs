//! The invariants and the reference model: one run's history watched from its first entry to its last.

use crate::operation::{Doing, Operation};
use scenarios::{
    catalogue,
    invariant::Watch,
    runner::{self, Choices, PlanChoice},
};
use sim::{Recording, history};
use std::{rc::Rc, time::Duration};

/// The run that is watched: so many agents, for so long.
const AGENTS: u32 = 64;
const LASTS: Duration = Duration::from_secs(120);

/// Times that one preparation serves.
const MOST: usize = 64;

/// All invariants, and the model alone.
pub fn operations() -> Vec<Operation> {
    let scenario = catalogue::find("fleet").expect("it ships");
    let choices = Choices {
        agents: Some(AGENTS),
        lasts: Some(LASTS),
        plan: PlanChoice::None,
        recording: Recording::Full,
        ..Choices::default()
    };
    let spec = runner::spec(&scenario, 1, &choices).expect("the choices go together");
    let run = runner::play(&spec).expect("a run can be played");
    let (records, kept) = (run.report.figures.ledger_records, Rc::new(run.history.kept));
    let operation = |name: &str, fresh: fn() -> Watch| {
        let kept = kept.clone();
        let prepare = move || -> Doing {
            let kept = kept.clone();
            Box::new(move || watch(&kept, fresh()))
        };
        Operation::new(format!("watch/{name}"), (records, "records"), MOST, prepare)
    };
    let model = || Watch::these(&["model"]).expect("there is one");
    vec![operation("every invariant", Watch::everything), operation("model", model)]
}

fn watch(kept: &[u8], mut watch: Watch) {
    for entry in history::read(kept) {
        watch.take(&entry.expect("a history that was just made can be read"));
    }
    assert!(watch.broken().is_none(), "{:?}", watch.broken());
}
