//! Everything at once: kills, pauses, partitions, cancels and a moody provider, drawn from a seed. What must come of it is
//! judged by the invariants elsewhere; here, that the cast comes to rest and that the books agree with the invoice.

use crate::playing::{Play, Seen, fleet};
use kernel::{record::Event, reserve, run};
use scenarios::{
    cast::{LEDGER, OWNER, PROVIDER, ProviderWeather, agent},
    fact::Fact,
    workload::{self, Workload, research, takeover},
};
use sim::{Control, Reach, Stream};
use std::{rc::Rc, time::Duration};

const AGENTS: u32 = 6;

fn storm(seed: u64, workload: Workload) -> Seen {
    let mut scenario = fleet();
    scenario.workload = workload;
    (scenario.sizes.agents, scenario.sizes.standbys, scenario.sizes.runs_per_agent) = (AGENTS, 1, 4);
    scenario.sizes.lasts = Duration::from_secs(400);
    let work = workload::draw(&scenario, seed);
    Play::native(scenario, work, seed).play_with(move |control, stage| blow(seed, control, stage))
}

async fn blow(seed: u64, control: Control, stage: Rc<scenarios::cast::Stage>) {
    let mut draws = Stream::keyed(seed, &[99]);
    let unsupported = "the native engine has every fault";
    for _ in 0..24 {
        control.sleep(Duration::from_millis(draws.between(500, 25_000))).await;
        let victim = match draws.below(10) {
            0 => LEDGER,
            1 => OWNER,
            _ => agent(draws.below(u64::from(AGENTS)) as u32),
        };
        let lasts = Duration::from_millis(draws.between(50, 60_000));
        match draws.below(8) {
            0 => control.kill(victim).expect(unsupported),
            1 => control.pause(victim).expect(unsupported),
            2 => control.partition(&Reach::Between(victim, PROVIDER)).expect(unsupported),
            3 => control.partition(&Reach::Between(victim, LEDGER)).expect(unsupported),
            4 => control.partition(&Reach::OneWay(LEDGER, victim)).expect(unsupported),
            5 | 6 => control.cancel(victim, draws.between(1, 40)).expect(unsupported),
            _ => stage.provider.set(ProviderWeather {
                too_many_ppm: 150_000,
                error_ppm: 50_000,
                slow_factor: draws.between(1, 20) as u32,
                reply_lost_ppm: 300_000,
                ..ProviderWeather::default()
            }),
        }
        let (control, healing) = (control.clone(), stage.clone());
        control.sleep(lasts).await;
        control.mend(&Reach::All).expect(unsupported);
        control.resume(victim).expect(unsupported);
        control.restart(victim).expect(unsupported);
        if draws.below(2) == 0 {
            healing.provider.set(ProviderWeather::default());
        }
    }
    stage.provider.set(ProviderWeather::default());
}

fn check(seed: u64, workload: Workload) -> Seen {
    let seen = storm(seed, workload);
    assert!(seen.at_rest, "seed {seed} of {workload:?} does not come to rest");
    let spawned = seen.events(|event| matches!(event, Event::Run(run::Event::Spawned { .. })));
    let ended = seen.events(|event| matches!(event, Event::Run(run::Event::Ended { .. })));
    assert_eq!(spawned, ended, "seed {seed} of {workload:?}");
    assert_eq!(seen.settled(), seen.invoiced(), "seed {seed} of {workload:?}");
    let reserved = seen.events(|event| matches!(event, Event::Reserve(reserve::Event::Reserved { .. })));
    let closed = seen.events(|event| {
        matches!(event, Event::Reserve(reserve::Event::Settled { .. } | reserve::Event::Released { .. }))
    });
    assert_eq!(reserved, closed, "seed {seed} of {workload:?}");
    seen
}

fn was_refused(event: &Event) -> bool {
    use kernel::{effect::Event::Decided, lease::Refusal::Deposed, request::Refusal};
    matches!(event, Event::Effect(Decided { outcome: Err(Refusal::Lease(Deposed { offered, .. })), .. }) if offered.0 > 0)
}

#[test]
fn the_books_agree_with_the_invoice_after_any_storm() {
    let (mut unknown, mut repeated, mut taken_over, mut refused) = (0, 0, 0, 0);
    for seed in 0..60 {
        for workload in [research::WORKLOAD, takeover::WORKLOAD] {
            let seen = check(seed, workload);
            unknown += seen.events(|event| {
                use run::AttemptState::Indeterminate;
                matches!(event, Event::Run(run::Event::AttemptEnded { state: Indeterminate, .. }))
            });
            repeated += seen.facts(|fact| matches!(fact, Fact::Repeated { .. }));
            refused += seen.events(was_refused);
            taken_over += seen.facts(|fact| matches!(fact, Fact::RunOver { whole: false, .. }));
        }
    }
    assert!(refused > 0 && unknown > 0 && repeated > 0 && taken_over > 0);
}

#[test]
fn a_storm_repeats_exactly() {
    for seed in 0..4 {
        assert_eq!(storm(seed, takeover::WORKLOAD).hash, storm(seed, takeover::WORKLOAD).hash, "seed {seed}");
    }
}
