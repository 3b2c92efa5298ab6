//! Arrivals replayed in an open loop.
#![allow(clippy::print_stdout, reason = "a test that is skipped says so")]

use crate::playing::{Play, fleet};
use kernel::{record::Event, reserve};
use scenarios::workload::arrivals::{self, Arrivals};
use std::path::Path;

/// The real trace, if it lies beside the project.
pub fn real_trace() -> Option<Arrivals> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/traces/azure-llm-code-2023.csv");
    #[allow(clippy::disallowed_methods, reason = "a test reads its input from the machine's disk")]
    let file = std::fs::File::open(&path);
    match file {
        Ok(file) => Some(Arrivals::read(file).expect("the trace is well formed")),
        Err(error) => {
            println!("SKIPPED: no trace at {}: {error}; this test needs the shared folder", path.display());
            None
        }
    }
}

#[test]
fn the_real_trace_is_served_whole() {
    let Some(trace) = real_trace() else { return };
    assert_eq!(trace.rows().len(), 8_819);
    let mut scenario = fleet();
    scenario.sizes.agents = 64;
    scenario.sizes.lasts = std::time::Duration::from_nanos(trace.span_ns());
    let work = arrivals::work(&trace, 64, 8);
    assert_eq!(work.agents.iter().flatten().map(|item| item.units.len()).sum::<usize>(), 8_819);
    let seen = Play::native(scenario, work, 7).play();
    assert!(seen.at_rest);
    let settled = seen.events(|event| matches!(event, Event::Reserve(reserve::Event::Settled { .. })));
    assert_eq!(settled, 8_819);
    assert_eq!(seen.settled(), seen.invoiced());
}
