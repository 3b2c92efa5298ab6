//! Stampede: every agent asks the same questions, one a run, all at the same time.
//!
//! Without faults a question is paid for once, whoever asks first, and all the others are given its answer.

use super::{Call, Item, Unit, WorkList, Workload, run, user};
use crate::scenario::Sizes;
use kernel::{effect::Class, id::UnitId, money::Usage};
use sim::Stream;

/// What a scenario names `stampede`.
pub const WORKLOAD: Workload = Workload {
    name: "stampede",
    does: "every agent asks the same questions at the same time, one a run",
    draw: |scenario, seed| work(&scenario.sizes, seed),
};

/// The label of this workload's streams.
const STAMPEDE: u64 = 0x7374_616d_7065;

/// The most that a question uses.
const MOST: Usage = Usage { input_tokens: 2_000, output_tokens: 400 };

/// Every agent's runs: the `item`th of each asks question `item`.
pub fn work(sizes: &Sizes, seed: u64) -> WorkList {
    let usages: Vec<Usage> = (0..sizes.runs_per_agent).map(|question| usage(seed, question)).collect();
    let item = |index, item: u32| {
        let call = Call { class: Class::Idempotent, shared: Some(item) };
        let unit = Unit { unit: UnitId(0), stage: 0, usage: usages[item as usize], most: MOST, due_ns: 0, call };
        let (run, user) = (run(index, item), user(index, sizes.agents_per_user));
        Item::new(run, user, vec![unit])
    };
    let list = |index| (0..sizes.runs_per_agent).map(|nth| item(index, nth)).collect();
    WorkList { agents: (0..sizes.agents).map(list).collect(), open_loop: false }
}

/// What answering a question uses, whoever asks it.
fn usage(seed: u64, question: u32) -> Usage {
    let draws = &mut Stream::keyed(seed, &[STAMPEDE, u64::from(question)]);
    Usage {
        input_tokens: draws.between(1_000, MOST.input_tokens),
        output_tokens: draws.between(100, MOST.output_tokens),
    }
}
