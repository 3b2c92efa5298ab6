//! The seven ceilings: agents of whom each is stopped by another one, and a burst at the edge across the boundary of its window.
//!
//! The first twelve agents have a user each and one ceiling to meet; all others are one user's, and each asks for four small calls,
//! two just before the edge's clock reads a minute and two just after it (kong#10559: a limiter that counts from one minute
//! to the next lets both through). With the numbers of `catalogue/ceilings.toml`, where calls cost a micro-USD a token and use half
//! as much again as the work says:
//!
//! | agent | what it does | what stops it |
//! |---|---|---|
//! | 0 | 144 calls as fast as it can | the edge, by address: 120 a minute |
//! | 1 | runs of two calls of 9,000 | the credit of its key: 100,000 |
//! | 2 | runs of eleven calls | quota: the depth tier |
//! | 3 | eight runs over the whole phase | quota: runs a day, once the owner has lowered them |
//! | 4 | 27,000 in two runs, and 9,000 more late | quota: dollars a day, once the owner has lowered them to 30,000 |
//! | 5 | a call every two seconds | a halt, whenever there is one |
//! | 6, 7 | the same four questions, the second agent later | the memo: the second pays for none |
//! | 8 | runs of four calls that set 9,000 aside each | reserve: the run's cap of 30,000 |
//! | 9 | a call that sets aside more than a unit may, and others past the ledger | reserve: the unit's cap; the credit of its key |
//! | 10 | runs of three calls that use more than they set aside | settle: two overruns leave no room for the third |
//! | 11 | 36,000, and later more | reserve: the user's day, while the owner has it at 40,000 |
//! | others | a burst across the minute | the edge, by key: 600 a minute |

use super::{Call, Item, Unit, WorkList, Workload, run};
use crate::scenario::Sizes;
use kernel::{
    effect::Class,
    id::{UnitId, UserId},
    money::Usage,
};
use sim::Stream;

/// What a scenario names `ceilings`.
pub const WORKLOAD: Workload = Workload {
    name: "ceilings",
    does: "each of twelve agents meets another ceiling, and all others burst across the boundary of the edge's window",
    draw: |scenario, seed| work(&scenario.sizes, seed),
};

/// The label of this workload's streams.
const CEILINGS: u64 = 0x6365_696c;

/// Agents with a ceiling of their own.
const SINGLED_OUT: u32 = 12;

const SECOND_NS: u64 = 1_000_000_000;

/// Calls of one agent on each side of the boundary, and how long before and after it they are due.
const BURST: u32 = 2;
const BEFORE_NS: u64 = 59_300_000_000;
const AFTER_NS: u64 = 60_050_000_000;
const SPREAD_NS: u64 = 500_000_000;

/// Every agent's runs.
pub fn work(sizes: &Sizes, seed: u64) -> WorkList {
    WorkList { agents: (0..sizes.agents).map(|index| list(index, seed)).collect(), open_loop: false }
}

/// A call that should use so many tokens, and for which so many are set aside.
fn call(tokens: u64, most: u64) -> Unit {
    let usage = |output_tokens| Usage { input_tokens: 0, output_tokens };
    Unit { unit: UnitId(0), stage: 0, usage: usage(tokens), most: usage(most), due_ns: 0, call: Call::OWN }
}

/// `calls` one after the other, or side by side if they share a stage, named in their order.
fn item(index: u32, nth: u32, calls: impl IntoIterator<Item = Unit>) -> Item {
    let named = |(name, unit)| Unit { unit: UnitId(name), ..unit };
    let user = if index < SINGLED_OUT { UserId(1 + index) } else { UserId(0) };
    Item::new(run(index, nth), user, (0..).zip(calls).map(named).collect())
}

fn list(index: u32, seed: u64) -> Vec<Item> {
    let runs = |many: u32, of: &dyn Fn(u32) -> Vec<Unit>| (0..many).map(|nth| item(index, nth, of(nth))).collect();
    let stages = |many: u32, unit: Unit| (0..many).map(|stage| Unit { stage, ..unit }).collect::<Vec<_>>();
    let due = |seconds: u32, unit: Unit| Unit { due_ns: u64::from(seconds) * SECOND_NS, ..unit };
    match index {
        0 => runs(16, &|_| vec![call(10, 20); 9]),
        1 => runs(8, &|_| stages(2, call(6_000, 9_000))),
        2 => runs(2, &|_| vec![call(10, 20); 11]),
        3 => runs(8, &|nth| vec![due(18 * nth, call(10, 20))]),
        4 => runs(2, &|nth| {
            let late = Unit { stage: 1, ..due(105 * nth, call(6_000, 9_000)) };
            vec![call(6_000, 9_000), late]
        }),
        5 => runs(8, &|nth| (0..9).map(|at| Unit { stage: at, ..due(18 * nth + 2 * at, call(10, 20)) }).collect()),
        6 | 7 => runs(4, &|nth| {
            let shared = Some(nth);
            vec![Unit { call: Call { class: Class::Idempotent, shared }, ..due(10 * (index - 6), call(100, 150)) }]
        }),
        8 => runs(3, &|_| stages(4, call(6_000, 9_000))),
        9 => runs(1, &|_| vec![call(14_000, 20_001)]),
        10 => runs(3, &|_| stages(3, call(9_000, 9_000))),
        11 => runs(6, &|nth| stages(2, due(if nth < 2 { 0 } else { 45 + 10 * nth }, call(6_000, 9_000)))),
        _ => {
            let draws = &mut Stream::keyed(seed, &[CEILINGS, u64::from(index)]);
            let mut at = |from_ns| Unit { due_ns: from_ns + draws.below(SPREAD_NS), ..call(10, 20) };
            let calls = (0..2 * BURST).map(|nth| at(if nth < BURST { BEFORE_NS } else { AFTER_NS }));
            vec![item(index, 0, calls.collect::<Vec<_>>())]
        }
    }
}
