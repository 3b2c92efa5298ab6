//! Research runs: one call that plans, six to eight charter lines read side by side, one report and often its abstract.
//!
//! The token tables are chosen together with the provider's latencies and prices of `catalogue/fleet.toml` (1 s a call,
//! 0.1 ms a token read, 25 ms a token generated; 3 and 15 USD per million tokens):
//!
//! | call | runs have | tokens read | generated | latency, mean | cost, mean | set aside |
//! |---|---|---|---|---|---|---|
//! | plan | 1 | 1,200-1,800 | 1,000-1,200 | 28.7 s | 0.0210 USD | 0.0285 USD |
//! | charter line | 6, 7 or 8 (as often as both) | 2,100-4,100 | 42-90 | 3.0 s | 0.0103 USD | 0.0180 USD |
//! | report | 1 | 4,000-6,000 | 2,300-2,500 | 61.5 s | 0.0510 USD | 0.0690 USD |
//! | abstract | 3 of 4 | 2,500-3,500 | 220-300 | 7.8 s | 0.0129 USD | 0.0195 USD |
//!
//! An unloaded run takes the plan, the slowest charter line and the report: p50 near 93.6 s. It has ten calls in the mean and
//! costs 0.156 USD, 0.0156 USD a call. The worst a run can have committed at once is 0.261 USD, below its cap of 0.40, and no
//! unit passes 0.10: a run without faults is never refused. Over its length a run keeps 1.2 reservations live in the mean, so
//! that eight agents of one user nearly fill ten slots and sometimes wait for one.

use super::{Call, Item, Unit, WorkList, Workload, run, user};
use crate::scenario::Sizes;
use kernel::{id::UnitId, money::Usage};
use sim::Stream;

/// What a scenario names `research`.
pub const WORKLOAD: Workload = Workload {
    name: "research",
    does: "a plan, charter lines read side by side, a report: about ten paid calls a run",
    draw: |scenario, seed| work(&scenario.sizes, seed),
};

/// The label of this workload's streams.
const RESEARCH: u64 = 0x7265_7365_6172_6368;

/// The most charter lines a run has; all are drawn, and some are dropped.
const MOST_LINES: usize = 8;

/// How many charter lines a run has, each as often as it stands here.
const LINES: [usize; 4] = [6, 7, 8, 8];

/// The tokens of one kind of call.
struct Tokens {
    input: (u64, u64),
    output: (u64, u64),
    most: Usage,
}

const PLAN: Tokens = Tokens { input: (1_200, 1_800), output: (1_000, 1_200), most: usage(2_000, 1_500) };
const LINE: Tokens = Tokens { input: (2_100, 4_100), output: (42, 90), most: usage(5_000, 200) };
const REPORT: Tokens = Tokens { input: (4_000, 6_000), output: (2_300, 2_500), most: usage(8_000, 3_000) };
const ABSTRACT: Tokens = Tokens { input: (2_500, 3_500), output: (220, 300), most: usage(4_000, 500) };

const fn usage(input_tokens: u64, output_tokens: u64) -> Usage {
    Usage { input_tokens, output_tokens }
}

/// Every agent's runs, as many as the sizes say.
pub fn work(sizes: &Sizes, seed: u64) -> WorkList {
    let list = |index| (0..sizes.runs_per_agent).map(|item| draw(sizes, seed, index, item)).collect();
    WorkList { agents: (0..sizes.agents).map(list).collect(), open_loop: false }
}

/// The `item`th run of agent `index`.
pub(super) fn draw(sizes: &Sizes, seed: u64, index: u32, item: u32) -> Item {
    let draws = &mut Stream::keyed(seed, &[RESEARCH, u64::from(index), u64::from(item)]);
    let lines = LINES[draws.below(LINES.len() as u64) as usize];
    let has_abstract = draws.below(4) > 0;
    let mut units = Vec::with_capacity(MOST_LINES + 3);
    units.push(PLAN.draw(draws, 0));
    let all_lines: [Unit; MOST_LINES] = std::array::from_fn(|_| LINE.draw(draws, 1));
    units.extend(&all_lines[..lines]);
    units.push(REPORT.draw(draws, 2));
    let last = ABSTRACT.draw(draws, 2);
    units.extend(has_abstract.then_some(last));
    for (unit, name) in units.iter_mut().zip(0..) {
        unit.unit = UnitId(name);
    }
    Item::new(run(index, item), user(index, sizes.agents_per_user), units)
}

impl Tokens {
    fn draw(&self, draws: &mut Stream, stage: u32) -> Unit {
        let usage = usage(draws.between(self.input.0, self.input.1), draws.between(self.output.0, self.output.1));
        Unit { unit: UnitId(0), stage, usage, most: self.most, due_ns: 0, call: Call::OWN }
    }
}
