//! The seven ceilings on a calm day: what each stops is known to the call, and the owner's changes are made when they are due.

use kernel::{
    admit,
    id::TenantId,
    record::Event,
    reserve::{self, Level},
};
use scenarios::{
    catalogue,
    runner::{Choices, PlanChoice, Run, Verdict, play, spec},
    scenario::{Change, Setting},
};
use std::{collections::BTreeMap, time::Duration};

fn calm(changes: Option<Vec<Change>>) -> Run {
    let mut scenario = catalogue::find("ceilings").expect("shipped");
    if let Some(changes) = changes {
        scenario.change = changes;
    }
    let choices = Choices { plan: PlanChoice::None, ..Choices::default() };
    let run = play(&spec(&scenario, 1, &choices).expect("a spec")).expect("playable");
    assert_eq!((run.report.verdict, &run.report.broken), (Verdict::Pass, &None));
    run
}

/// Without faults there is no halt, and everything else is as the workload's table says. Of 800 calls across the minute six
/// hundred pass, the others come again when the first have left the window; the address is stopped in its fourteenth run of nine.
#[test]
fn each_ceiling_binds_for_whom_the_workload_says() {
    let run = calm(None);
    let figures = &run.report.figures;
    let expect = [("key-credit", 3), ("memo", 4), ("settle", 3)];
    let bound = |ceiling: &str| figures.ceilings.get(ceiling).copied().unwrap_or(0);
    for (ceiling, times) in expect {
        assert_eq!(bound(ceiling), times, "{ceiling}: {:?}", figures.ceilings);
    }
    assert!(bound("edge") >= 200 + 6, "{:?}", figures.ceilings);
    assert!(bound("quota") >= 6 && bound("reserve") >= 5, "{:?}", figures.ceilings);
    assert_eq!(figures.runs_halted_by_key, 3, "{:?}", figures.ceilings);
    // Of the calls past the ledger six are what a credit of 100,000 covers, and no record tells of any.
    assert_eq!(figures.strays_micro_usd, 6 * 15_000);
    assert!(figures.strays_refused > 10, "{}", figures.strays_refused);
    assert_eq!((figures.settled_micro_usd, figures.open_micro_usd), (figures.invoice_micro_usd, 0));
    for refused in ["admit.too-deep", "admit.too-many-runs", "admit.too-dear", "reserve.over-cap"] {
        assert!(figures.refusals.contains_key(refused), "{:?}", figures.refusals);
    }
}

/// What the owner set after the genesis, with the second of ledger time.
fn set(run: &Run) -> Vec<(u64, String)> {
    let told = |event: &Event| match *event {
        Event::Reserve(reserve::Event::CapSet { tenant, level, cap }) => Some(format!("{level:?} {tenant} {}", cap.0)),
        Event::Reserve(reserve::Event::SlotsSet { slots, .. }) => Some(format!("slots {slots}")),
        Event::Admit(admit::Event::QuotaSet { quota: Some(quota), .. }) => {
            Some(format!("quota {} {} {}", quota.runs_per_day, quota.micro_usd_per_day.0, quota.depth_tier.0))
        }
        _ => None,
    };
    let records = run.log.records().filter(|record| record.time.0 > 0);
    records.filter_map(|record| Some((record.time.0 / 1_000_000_000, told(&record.event)?))).collect()
}

#[test]
fn the_owner_makes_the_changes_of_the_scenario_when_they_are_due() {
    let change = |at, level, to| Change { at: Duration::from_secs(at), level, to };
    let run = calm(Some(vec![
        change(20, Setting::Unit, 1),
        change(10, Setting::LedgerDayPerUser, 2_000_000),
        change(30, Setting::RunsPerDay, 3),
        change(30, Setting::DepthTier, 1),
        change(40, Setting::Slots, 77),
        change(100_000, Setting::Run, 5), // the phase is over by then
    ]));
    let ledger = TenantId::LEDGER;
    let due = [
        (10, format!("{:?} {ledger} {}", Level::LedgerDay, 12_000_000)), // of six shares
        (20, "Unit 1 1".to_owned()),
        (30, "quota 3 10000000 1".to_owned()),
        (40, "slots 77".to_owned()),
    ];
    let set = set(&run);
    let told: BTreeMap<&str, u64> = set.iter().map(|(at, what)| (what.as_str(), *at)).collect();
    for (at, what) in &due {
        let when = told.get(what.as_str()).unwrap_or_else(|| panic!("{what} is not set: {set:?}"));
        assert!((*at..*at + 3).contains(when), "{what} is due at {at} s and set at {when} s");
    }
    assert!(!told.contains_key("Run 1 5"), "{set:?}");
}

/// A fault takes its share of what is set by the time it begins, and what is set while it is on is restored when it ends.
#[test]
fn a_lowered_cap_is_a_share_of_what_the_owner_has_set_by_then() {
    let mut scenario = catalogue::find("ceilings").expect("shipped");
    let change = |at, level, to| Change { at: Duration::from_secs(at), level, to };
    scenario.change = vec![change(10, Setting::Run, 40_000), change(35, Setting::Run, 60_000)];
    let plan = "format = 1\n[[faults]]\nat = { time = \"20s\" }\nfault = { cap-lowered = { level = \"run\", percent = 50 } }\n\
                target = \"all\"\nfor = \"30s\"\n";
    let plan = PlanChoice::Given(faults::Plan::from_toml(plan).expect("a plan"));
    let choices = Choices { agents: Some(12), plan, ..Choices::default() };
    let run = play(&spec(&scenario, 1, &choices).expect("a spec")).expect("playable");
    assert_eq!((run.report.verdict, &run.report.broken), (Verdict::Pass, &None));
    let set = set(&run);
    let caps: Vec<(u64, &str)> = set.iter().map(|(at, what)| (*at, what.as_str())).collect();
    let expect = [(10, "Run 1 40000"), (20, "Run 1 20000"), (35, "Run 1 30000"), (50, "Run 1 60000")];
    assert_eq!(caps.iter().map(|(_, what)| *what).collect::<Vec<_>>(), expect.map(|(_, what)| what));
    for ((at, _), (due, what)) in caps.iter().zip(expect) {
        assert!((due..due + 3).contains(at), "{what} is due at {due} s and set at {at} s");
    }
}

/// Seeds 1011 and 2068 of `ceilings`: a lane that had heard that its key has no credit was dropped before it had told the run.
/// The report was made all the same, the run was read again, and its failed attempt was followed by another call. What is heard
/// is kept where a dropped lane cannot take it along, and the run ends halted, whichever await the lane is dropped at.
#[test]
fn who_heard_that_there_is_no_credit_calls_no_more_wherever_its_lane_is_dropped() {
    let mut scenario = catalogue::find("ceilings").expect("shipped");
    scenario.provider.key_credit = Some(kernel::money::MicroUsd(20_000)); // the second run's first call is refused
    scenario.change.clear();
    let mut halted = 0;
    for nth in 1..=90 {
        let plan = format!(
            "format = 1\n[[faults]]\nat = {{ event = {{ what = \"turned-away\", nth = 1 }} }}\nfault = {{ cancel = {{ nth = {nth} }} }}\n\
             target = {{ node = \"agent-1\" }}\nfor = \"1s\"\n"
        );
        let plan = PlanChoice::Given(faults::Plan::from_toml(&plan).expect("a plan"));
        let choices = Choices { agents: Some(2), lasts: Some(Duration::from_secs(20)), plan, ..Choices::default() };
        let report = play(&spec(&scenario, 1, &choices).expect("a spec")).expect("playable").report;
        assert_eq!((report.verdict, &report.broken), (Verdict::Pass, &None), "dropped at await {nth}");
        halted += u64::from(report.figures.runs_halted_by_key > 0);
    }
    assert_eq!(halted, 90);
}
