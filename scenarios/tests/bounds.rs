//! What scenarios promise of bounds: producers are never turned away, and a day's caps renew when the ledger's day does.

use kernel::{
    effect,
    record::{Event, Record},
    request::Refusal,
    reserve::{self, Level},
};
use scenarios::{
    catalogue,
    runner::{Choices, PlanChoice, Run, Verdict, play, spec},
    workload::producers,
};

fn played(name: &str, seed: u64, plan: PlanChoice) -> Run {
    let scenario = catalogue::find(name).expect("shipped");
    let run = play(&spec(&scenario, seed, &Choices { plan, ..Choices::default() }).expect("a spec")).expect("playable");
    assert_eq!(run.report.verdict, Verdict::Pass, "{name} {seed}: {:?}", run.report.broken);
    run
}

#[test]
fn however_many_producers_there_are_nothing_is_refused_nor_turned_away_as_busy() {
    for writers in [1, 4, 16, 64] {
        let seed = (0..).find(|seed| producers::writers(*seed) == writers).expect("some seed picks each");
        let calm = played("producers", seed, PlanChoice::None);
        let refusals = calm.report.reached_sometimes.iter().filter(|name| name.starts_with("refused-"));
        assert_eq!(refusals.collect::<Vec<_>>(), [""; 0], "{writers} writers");
        assert_eq!(calm.report.figures.reserves_admitted, u64::from(writers) * 12);
        let stormy = played("producers", seed, PlanChoice::Swarm);
        assert!(!stormy.report.reached_sometimes.iter().any(|name| name == "refused-busy"), "{writers} writers");
    }
    // The condition can be seen: a queue of one turns all but one away.
    let mut scenario = catalogue::find("producers").expect("shipped");
    scenario.ledger.queue_limit = 1;
    let seed = (0..).find(|seed| producers::writers(*seed) == 64).expect("some seed picks it");
    let choices = Choices { plan: PlanChoice::None, ..Choices::default() };
    let short = play(&spec(&scenario, seed, &choices).expect("a spec")).expect("playable");
    assert!(short.report.reached_sometimes.iter().any(|name| name == "refused-busy"));
}

/// Of each day when something was admitted, and when something was refused over the user's day, in the order of the log.
#[derive(Debug, Default)]
struct Day {
    admissions: Vec<u64>,
    refusals: Vec<u64>,
}

fn days(run: &Run) -> [Day; 2] {
    let mut days: [Day; 2] = Default::default();
    for Record { time, event, .. } in run.log.records() {
        let day = &mut days[time.day() as usize];
        match event {
            Event::Reserve(reserve::Event::Reserved { day: counted, .. }) => {
                assert_eq!(counted, time.day(), "a reservation counts in the day it is made");
                day.admissions.push(time.0);
            }
            Event::Effect(effect::Event::Decided {
                outcome: Err(Refusal::Reserve(reserve::Refusal::OverCap { level: Level::UserDay, .. })),
                ..
            }) => day.refusals.push(time.0),
            _ => {}
        }
    }
    days
}

#[test]
fn daily_caps_renew_at_the_end_of_the_ledgers_day_and_not_before() {
    for seed in 0..4 {
        let run = played("day", seed, PlanChoice::None);
        let [first, second] = days(&run);
        let (used_up, last) = (first.refusals[0], first.refusals[first.refusals.len() - 1]);
        assert!(used_up < 20 * 3_600_000_000_000, "seed {seed}: the day is used up at {used_up} ns");
        assert!(first.admissions.iter().all(|at| *at < last), "seed {seed}: the day ends refused");
        let begins = 86_400_000_000_000;
        assert!(!second.admissions.is_empty(), "seed {seed}: the next day admits nothing");
        assert!(second.refusals.is_empty(), "seed {seed}: a new day has room");
        let hours_after = (second.admissions[0] - begins) / 3_600_000_000_000;
        assert!(hours_after < 2, "seed {seed}: admitted again only {hours_after} hours into the day");
    }
}
