//! Effects: runs whose calls are idempotent, queryable and unsafe, side by side and one after the other, with agents standing by.
//!
//! Agents form groups as in `takeover`. A few of the idempotent calls are asked by every group, so that some are recalled. One run in
//! four waits for an approval before its second stage, suspended; one in four is cancelled, some of them while they wait.

use super::{Approval, Call, Item, Orders, Unit, WorkList, Workload, run, user};
use crate::scenario::Sizes;
use kernel::{effect::Class, id::UnitId, money::Usage};
use sim::Stream;

/// What a scenario names `effects`.
pub const WORKLOAD: Workload = Workload {
    name: "effects",
    does: "calls of all three classes, side by side and one after the other, with agents standing by",
    draw: |scenario, seed| work(&scenario.sizes, seed),
};

/// The label of this workload's streams.
const EFFECTS: u64 = 0x6566_6665_6374;

/// The most that a call uses.
const MOST: Usage = Usage { input_tokens: 1_000, output_tokens: 150 };

/// The classes of a run's calls by stage: what waits for what fails, so that each class stands in the first.
const STAGES: [&[Class]; 2] = [
    &[Class::Idempotent, Class::Queryable, Class::Unsafe, Class::Idempotent, Class::Queryable, Class::Unsafe],
    &[Class::Unsafe, Class::Queryable, Class::Idempotent],
];

/// Every agent's runs, its own or those it stands by for.
pub fn work(sizes: &Sizes, seed: u64) -> WorkList {
    let group = sizes.standbys.saturating_add(1);
    let list = |index: u32| {
        let worker = index - index % group;
        (0..sizes.runs_per_agent).map(|nth| item(sizes, seed, worker, nth, index != worker)).collect()
    };
    WorkList { agents: (0..sizes.agents).map(list).collect(), open_loop: false }
}

/// An approval takes up to so long, many terms of a lease.
const LONGEST_APPROVAL_NS: u64 = 40_000_000_000;

/// A run is cancelled up to so long after it was begun: about as long as it takes.
const LATEST_CANCEL_NS: u64 = 12_000_000_000;

/// What the owner decides about a run. Words are drawn whatever comes of it.
fn orders(draws: &mut Stream) -> Orders {
    let (approved, takes_ns) = (draws.chance_ppm(250_000), draws.between(1, LONGEST_APPROVAL_NS));
    let (cancelled, after_ns) = (draws.chance_ppm(250_000), draws.between(0, LATEST_CANCEL_NS));
    Orders {
        approval: approved.then_some(Approval { before_stage: 1, takes_ns }),
        cancelled_after_ns: cancelled.then_some(after_ns),
    }
}

/// The `nth` run of the agent that works at it.
fn item(sizes: &Sizes, seed: u64, worker: u32, nth: u32, stands_by: bool) -> Item {
    let draws = &mut Stream::keyed(seed, &[EFFECTS, u64::from(worker), u64::from(nth)]);
    let mut units = Vec::new();
    for (classes, stage) in STAGES.into_iter().zip(0..) {
        for class in classes {
            let usage = Usage {
                input_tokens: draws.between(100, MOST.input_tokens),
                output_tokens: draws.between(20, MOST.output_tokens),
            };
            let unit = UnitId(units.len() as u32);
            // The last call is everybody's: one question a run of the list.
            let is_shared = stage == 1 && *class == Class::Idempotent;
            let call = Call { class: *class, shared: is_shared.then_some(nth) };
            let usage = if is_shared { MOST } else { usage };
            units.push(Unit { unit, stage, usage, most: MOST, due_ns: 0, call });
        }
    }
    let orders = orders(draws);
    Item { run: run(worker, nth), user: user(worker, sizes.agents_per_user), units, stands_by, orders }
}
