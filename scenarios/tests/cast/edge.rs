//! Many agents at one cap's edge, every look-up before any settlement (F1, F4).

use crate::playing::{Play, Seen};
use kernel::{
    record::Event,
    request::Refusal,
    reserve::{self, Level},
};
use scenarios::{
    catalogue,
    workload::{self, edge},
};

fn admitted(seen: &Seen) -> usize {
    seen.events(|event| matches!(event, Event::Reserve(reserve::Event::Reserved { .. })))
}

fn refused_at(seen: &Seen, at: Level) -> usize {
    seen.events(|event| {
        use kernel::effect::Event::Decided;
        let over = |refusal: &Refusal| {
            matches!(refusal, Refusal::Reserve(reserve::Refusal::OverCap { level, .. }) if *level == at)
        };
        matches!(event, Event::Effect(Decided { outcome: Err(refusal), .. }) if over(refusal))
    })
}

/// A seed for each level, and what comes of it without faults: admissions and settled micro-USD, and the least refusals there.
#[test]
fn spend_lands_on_the_cap_and_the_next_call_is_refused_at_that_level() {
    let cases = [
        (Level::Unit, 16, 8_000_000, 16),
        (Level::Run, 32, 8_000_000, 8),
        (Level::UserDay, 2, 1_000_000, 62),
        (Level::LedgerDay, 16, 8_000_000, 48),
    ];
    for (level, admissions, settled, refusals) in cases {
        let seed = (0..).find(|seed| edge::level(*seed) == level).expect("some seed picks each level");
        let scenario = catalogue::find("edge-of-cap").expect("it is in the catalogue");
        let work = workload::draw(&scenario, seed);
        let seen = Play::native(scenario, work, seed).play();
        assert!(seen.at_rest, "{level:?}");
        assert_eq!((admitted(&seen), seen.settled(), seen.invoiced()), (admissions, settled, settled), "{level:?}");
        assert!(refused_at(&seen, level) >= refusals, "{level:?}: {} refused there", refused_at(&seen, level));
    }
}
