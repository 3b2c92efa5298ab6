//! A day: small runs that fall due all day and into the next, so that daily caps are used up, hold, and renew.
//!
//! An agent's runs fall due one in each of as many equal parts of the phase as it has runs, at a drawn moment of its part, in
//! an open loop. What a run asks for does not depend on the hour. With the caps of `catalogue/day.toml` a user's day is used up
//! when about half of it is over; from then on every run is refused, until the ledger's next day begins.

use super::{Call, Item, Unit, WorkList, Workload, run, user};
use crate::scenario::Sizes;
use kernel::{id::UnitId, money::Usage};
use sim::Stream;

/// What a scenario names `day`.
pub const WORKLOAD: Workload = Workload {
    name: "day",
    does: "small runs that fall due all day and into the next, in an open loop",
    draw: |scenario, seed| work(&scenario.sizes, seed),
};

/// The label of this workload's streams.
const DAY: u64 = 0x64_6179;

/// The calls of a run.
const CALLS: u32 = 3;

/// The most a call uses.
const MOST: Usage = Usage { input_tokens: 5_000, output_tokens: 1_000 };

/// Every agent's runs, by the moment they are due.
pub fn work(sizes: &Sizes, seed: u64) -> WorkList {
    let whole_ns = u64::try_from(sizes.lasts.as_nanos()).unwrap_or(u64::MAX);
    let part_ns = whole_ns / u64::from(sizes.runs_per_agent.max(1));
    let list = |index| (0..sizes.runs_per_agent).map(|item| draw(sizes, seed, index, item, part_ns)).collect();
    WorkList { agents: (0..sizes.agents).map(list).collect(), open_loop: true }
}

/// The `item`th run of agent `index`, due within the `item`th part.
fn draw(sizes: &Sizes, seed: u64, index: u32, item: u32, part_ns: u64) -> Item {
    let draws = &mut Stream::keyed(seed, &[DAY, u64::from(index), u64::from(item)]);
    let due_ns = u64::from(item) * part_ns + draws.below(part_ns.max(1));
    let mut unit = |name| {
        let (input_tokens, output_tokens) = (draws.between(3_000, 5_000), draws.between(600, 1_000));
        let usage = Usage { input_tokens, output_tokens };
        Unit { unit: UnitId(name), stage: name, usage, most: MOST, due_ns, call: Call::OWN }
    };
    let units = (0..CALLS).map(&mut unit).collect();
    Item::new(run(index, item), user(index, sizes.agents_per_user), units)
}
