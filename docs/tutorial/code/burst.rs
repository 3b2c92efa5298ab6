//! Burst: every agent has one run, whose calls are all made at once.

use super::{Call, Item, Unit, WorkList, Workload, run, user};
use crate::scenario::Scenario;
use kernel::{id::UnitId, money::Usage};
use sim::Stream;

/// What a scenario names `burst`.
pub const WORKLOAD: Workload =
    Workload { name: "burst", does: "every agent makes all calls of its one run at once", draw };

/// The label of this workload's streams: any number that no other workload has.
const BURST: u64 = 0x62_7572_7374;

/// The calls of a run.
const CALLS: u32 = 6;

/// The most that a call uses, and so what is reserved for it.
const MOST: Usage = Usage { input_tokens: 2_000, output_tokens: 400 };

fn draw(scenario: &Scenario, seed: u64) -> WorkList {
    let sizes = &scenario.sizes;
    let item = |index| {
        // One stream an agent: adding an agent shifts nobody else's draws.
        let draws = &mut Stream::keyed(seed, &[BURST, u64::from(index)]);
        let mut unit = |name| {
            let usage = Usage { input_tokens: draws.between(1_000, 2_000), output_tokens: draws.between(100, 400) };
            // All of them are of stage 0: nothing comes before any.
            Unit { unit: UnitId(name), stage: 0, usage, most: MOST, due_ns: 0, call: Call::OWN }
        };
        Item::new(run(index, 0), user(index, sizes.agents_per_user), (0..CALLS).map(&mut unit).collect())
    };
    WorkList { agents: (0..sizes.agents).map(|index| vec![item(index)]).collect(), open_loop: false }
}
