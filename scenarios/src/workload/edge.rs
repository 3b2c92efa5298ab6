//! The edge of a cap: many agents, each with one run, at what is left of one level, which the seed picks.
//!
//! With caps of 0.50 USD a unit, 0.50 a run, 1 a user-day and 8 a ledger-day (`catalogue/edge-of-cap.toml`) and calls that use
//! all that is set aside for them, spend lands exactly on each level, and the next call is refused there:
//!
//! | level | whose runs | each asks for | lands on the cap with |
//! |---|---|---|---|
//! | unit | every agent its own user's | 0.50 and, of another unit, one token more | the first; the second is above it |
//! | run | every agent its own user's | 0.25 three times | two calls, the third is refused |
//! | user-day | all one user's | 0.50 | two agents' calls, whoever else asks is refused |
//! | ledger-day | every agent its own user's | 0.50 | sixteen agents' calls |
//!
//! All ask at once, so that every look-up comes before any settlement: sixty-four agents at the last dollar of a user's day,
//! with calls of fifty cents, are admitted twice. A ledger that counts a call only after it lets them all through.

use super::{Call, Item, Unit, WorkList, Workload, run};
use crate::scenario::Sizes;
use kernel::{
    id::{UnitId, UserId},
    money::{Price, Usage},
    reserve::Level,
};
use sim::Stream;

/// What a scenario names `edge`.
pub const WORKLOAD: Workload = Workload {
    name: "edge",
    does: "every agent asks at once for what is left at one level, which the seed picks",
    draw: |scenario, seed| work(&scenario.sizes, &scenario.provider.price, seed),
};

/// The label of this workload's stream.
const EDGE: u64 = 0x6564_6765;

/// Half a dollar, in micro-USD.
const HALF: u64 = 500_000;

/// The level at whose edge the agents of this seed are.
pub fn level(seed: u64) -> Level {
    Level::ALL[Stream::keyed(seed, &[EDGE]).below(Level::ALL.len() as u64) as usize]
}

/// Every agent's one run.
pub fn work(sizes: &Sizes, price: &Price, seed: u64) -> WorkList {
    let level = level(seed);
    let tokens = |amount: u64| (u128::from(amount) * 1_000_000 / u128::from(price.output_per_mtok.max(1))) as u64;
    let calls = match level {
        Level::Unit => vec![tokens(HALF), tokens(HALF) + 1],
        Level::Run => vec![tokens(HALF / 2); 3],
        Level::UserDay | Level::LedgerDay => vec![tokens(HALF)],
    };
    let unit = |(name, output_tokens): (u32, u64)| {
        let usage = Usage { input_tokens: 0, output_tokens };
        Unit { unit: UnitId(name), stage: 0, usage, most: usage, due_ns: 0, call: Call::OWN }
    };
    let item = |index| {
        Item::new(
            run(index, 0),
            if level == Level::UserDay { UserId(0) } else { UserId(index) },
            (0..).zip(calls.clone()).map(unit).collect(),
        )
    };
    WorkList { agents: (0..sizes.agents).map(|index| vec![item(index)]).collect(), open_loop: false }
}
