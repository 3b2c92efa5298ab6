//! Forty requests of ten dollars against a user-day of a hundred.

use crate::playing::{Play, fleet};
use kernel::{
    id::ModelId,
    money::{MicroUsd, Price},
    record::Event,
    request::Refusal,
    reserve::{self, Level},
};
use scenarios::{scenario::Scenario, workload};

/// A fleet of eight turned into the contention scenario.
fn contention() -> Scenario {
    let mut scenario = fleet();
    scenario.workload = workload::contention::WORKLOAD;
    scenario.quota = None; // the fleet's, which would bind before the cap does
    scenario.provider.price = Price { model: ModelId(1), input_per_mtok: 2_000_000, output_per_mtok: 10_000_000 };
    scenario.provider.output_token_ns = 1_000;
    let caps = &mut scenario.caps;
    (caps.unit, caps.run, caps.user_day) = (MicroUsd(10_000_000), MicroUsd(50_000_000), MicroUsd(100_000_000));
    (caps.ledger_day_per_user, caps.slots) = (MicroUsd(100_000_000), 64);
    scenario
}

#[test]
fn ten_are_admitted_and_thirty_refused_whatever_the_order() {
    for seed in 0..20 {
        let scenario = contention();
        let work = workload::draw(&scenario, seed);
        let seen = Play::native(scenario, work, seed).play();
        assert!(seen.at_rest, "seed {seed}");
        let reserved = |event: &Event| matches!(event, Event::Reserve(reserve::Event::Reserved { .. }));
        let refused = |event: &Event| {
            use kernel::effect::Event::Decided;
            let over = |refusal: &Refusal| {
                matches!(refusal, Refusal::Reserve(reserve::Refusal::OverCap { level: Level::UserDay, .. }))
            };
            matches!(event, Event::Effect(Decided { outcome: Err(refusal), .. }) if over(refusal))
        };
        assert_eq!((seen.events(reserved), seen.events(refused)), (10, 30), "seed {seed}");
        assert_eq!((seen.settled(), seen.invoiced()), (100_000_000, 100_000_000), "seed {seed}");
    }
}
