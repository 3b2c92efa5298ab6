//! Producers: 1, 4, 16 or 64 agents, as the seed picks, write many small requests at once, each call a few tokens.
//!
//! Agents beyond that number have nothing to do. With caps and slots that do not bind, every request is admitted: what is looked
//! at is the ledger's one writer, its batches and the dense sequence that comes of them.

use super::{Call, Item, Unit, WorkList, Workload, run, user};
use crate::scenario::Sizes;
use kernel::{id::UnitId, money::Usage};
use sim::Stream;

/// What a scenario names `producers`.
pub const WORKLOAD: Workload = Workload {
    name: "producers",
    does: "1, 4, 16 or 64 agents, as the seed picks, with many small requests at once",
    draw: |scenario, seed| work(&scenario.sizes, seed),
};

/// The label of this workload's stream.
const PRODUCERS: u64 = 0x7072_6f64;

/// How many agents write.
const WRITERS: [u32; 4] = [1, 4, 16, 64];

/// Calls of a run, eight of them side by side.
const CALLS: u32 = 12;

/// What each call uses and asks for.
const USAGE: Usage = Usage { input_tokens: 10, output_tokens: 10 };

/// How many agents of this seed write, if there are as many.
pub fn writers(seed: u64) -> u32 {
    WRITERS[Stream::keyed(seed, &[PRODUCERS]).below(WRITERS.len() as u64) as usize]
}

/// Every agent's runs; none for those that do not write.
pub fn work(sizes: &Sizes, seed: u64) -> WorkList {
    let writers = writers(seed);
    let unit = |name| Unit { unit: UnitId(name), stage: 0, usage: USAGE, most: USAGE, due_ns: 0, call: Call::OWN };
    let item =
        |index, item| Item::new(run(index, item), user(index, sizes.agents_per_user), (0..CALLS).map(unit).collect());
    let list = |index| match index < writers {
        true => (0..sizes.runs_per_agent).map(|nth| item(index, nth)).collect(),
        false => Vec::new(),
    };
    WorkList { agents: (0..sizes.agents).map(list).collect(), open_loop: false }
}
