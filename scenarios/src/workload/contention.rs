//! Contention: every agent asks for the same amount five times at once, all of them one user's, against one cap.
//!
//! Eight agents make the research ledger's case: forty requests of ten dollars, 400 USD demanded, against a user-day of
//! 100 USD: ten are admitted and thirty refused, whatever the order. Nothing is drawn: the seed decides the order alone.

use super::{Call, Item, Unit, WorkList, Workload, run, user};
use crate::scenario::Sizes;
use kernel::{
    id::UnitId,
    money::{Price, Usage},
};

/// What a scenario names `contention`.
pub const WORKLOAD: Workload = Workload {
    name: "contention",
    does: "every agent asks for the same amount five times at once, against one cap",
    draw: |scenario, _| work(&scenario.sizes, &scenario.provider.price),
};

/// Requests of one agent.
pub const REQUESTS: u32 = 5;

/// What each request asks for and uses, in micro-USD.
pub const AMOUNT: u64 = 10_000_000;

/// Every agent's one run. A call generates the tokens that cost [`AMOUNT`], exactly so if the price divides it.
pub fn work(sizes: &Sizes, price: &Price) -> WorkList {
    let tokens = u128::from(AMOUNT) * 1_000_000 / u128::from(price.output_per_mtok.max(1));
    let usage = Usage { input_tokens: 0, output_tokens: u64::try_from(tokens).unwrap_or(u64::MAX) };
    let unit = |name| Unit { unit: UnitId(name), stage: 0, usage, most: usage, due_ns: 0, call: Call::OWN };
    let item = |index| Item::new(run(index, 0), user(index, sizes.agents_per_user), (0..REQUESTS).map(unit).collect());
    WorkList { agents: (0..sizes.agents).map(|index| vec![item(index)]).collect(), open_loop: false }
}
