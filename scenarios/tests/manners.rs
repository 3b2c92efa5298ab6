//! What agents do that they should not, as a plan has them do it: they are started twice, ask anew, report again.

use faults::Plan;
use kernel::{
    admit, effect,
    lease::{self, Lock},
    record::{Event, Record},
    request::Refusal,
    reserve, run,
};
use scenarios::{
    catalogue,
    runner::{Choices, PlanChoice, Run, Verdict, play, spec},
    scenario::Scenario,
};
use std::collections::BTreeSet;

fn under(scenario: &Scenario, seed: u64, fault: &str, target: &str, lasts: &str) -> Run {
    planned(scenario, seed, &[("10s", fault, target, lasts)])
}

/// A run under faults: when each begins, which it is, what it is aimed at, and how long it lasts.
fn planned(scenario: &Scenario, seed: u64, faults: &[(&str, &str, &str, &str)]) -> Run {
    let mut text = "format = 1\n".to_owned();
    for (at, fault, target, lasts) in faults {
        text +=
            &format!("[[faults]]\nat = {{ time = \"{at}\" }}\nfault = {fault}\ntarget = {target}\nfor = \"{lasts}\"\n");
    }
    let plan = PlanChoice::Given(Plan::from_toml(&text).expect("a plan"));
    let run = play(&spec(scenario, seed, &Choices { plan, ..Choices::default() }).expect("a spec")).expect("playable");
    assert_eq!(run.report.verdict, Verdict::Pass, "{faults:?}: {:?}", run.report.broken);
    run
}

fn shipped(name: &str) -> Scenario {
    catalogue::find(name).expect("shipped")
}

fn has_reached(run: &Run, name: &str) -> bool {
    run.report.reached_sometimes.iter().any(|reached| reached == name)
}

/// Refusals of decided requests that `which` picks.
fn refused(run: &Run, which: impl Fn(&Refusal) -> bool) -> usize {
    let is_it = |record: &Record| matches!(&record.event, Event::Effect(effect::Event::Decided { outcome: Err(refusal), .. }) if which(refusal));
    run.log.records().filter(is_it).count()
}

#[test]
fn of_two_processes_of_an_agent_the_newer_takes_its_runs_over_and_the_older_ends() {
    let run = under(&shipped("fleet"), 5, "\"double-start\"", "{ node = \"agent-1\" }", "2m");
    assert!(has_reached(&run, "felt-double-start") && has_reached(&run, "healed-double-start"));
    assert!(has_reached(&run, "refused-stale"));
    // Client 5 is agent-1: its processes are told apart by their incarnations, the first, the second, and the first again.
    let of_agent = |record: Record| match record.event {
        Event::Lease(lease::Event::Granted { client, executor, .. }) if client.0 == 5 => Some(executor),
        _ => None,
    };
    let executors: BTreeSet<_> = run.log.records().filter_map(of_agent).collect();
    assert_eq!(executors.len(), 3, "{executors:?}");
    let decided = run.log.records().filter_map(|record| match record.event {
        Event::Effect(effect::Event::Decided { client, incarnation, .. }) if client.0 == 5 => Some(incarnation),
        _ => None,
    });
    let incarnations: Vec<u32> = decided.collect();
    assert!(incarnations.is_sorted() && incarnations.last() == Some(&2), "{:?}", incarnations.last());
    assert_eq!(run.report.figures.runs_ended, run.report.figures.runs_complete);
}

/// While a quota was low the first process of an agent was refused every run that was left, and called its list done. Its second,
/// started by then and not yet answered, came when the quota was what it had been, and began one of those runs; when it was
/// stopped nobody took that up, for the list was done. Now a process that is not the newest is no judge of that: it ends.
#[test]
fn a_list_is_done_when_the_newest_process_says_so() {
    let (ledger, agent, all) = ("{ node = \"ledger\" }", "{ node = \"agent-3\" }", "\"all\"");
    let faults = [
        ("43s 870ms", "\"power-cut\"", ledger, "7s 928ms"),
        ("28s", "{ quota-changed = { percent = 62 } }", all, "2m 1s"),
        ("1m 54s 807ms", "\"power-cut\"", ledger, "33s 248ms"),
        ("2m 20s 302ms", "\"pause\"", agent, "10s 56ms"),
        ("2m 23s 522ms", "\"double-start\"", agent, "31s 641ms"),
    ];
    let run = planned(&shipped("fleet"), 5_090_150, &faults);
    let too_deep = |refusal: &Refusal| matches!(refusal, Refusal::Admit(admit::Refusal::TooDeep { .. }));
    assert!(refused(&run, too_deep) > 0);
    // Who held which run of agent-3, by the process: what the second held, another held after it.
    let held = |record: Record| match record.event {
        Event::Lease(lease::Event::Granted { lock: Lock::Run(_, run), executor, .. }) if executor.0 >> 32 == 6 => {
            Some((run, (executor.0 - 1) as u32))
        }
        _ => None,
    };
    let held: Vec<_> = run.log.records().filter_map(held).collect();
    let handed_on = |(run, process): &(_, u32)| *process == 1 && held.iter().any(|(of, by)| of == run && *by > 1);
    assert!(held.iter().any(handed_on), "{held:?}");
    assert_eq!(run.report.figures.reservations_open, 0);
}

#[test]
fn what_is_asked_anew_under_another_number_comes_to_the_same_thing_or_is_refused() {
    let run = under(&shipped("fleet"), 5, "{ retry-anew = { after = \"100us\" } }", "\"all\"", "4m");
    assert!(has_reached(&run, "felt-retry-anew") && has_reached(&run, "healed-retry-anew"));
    let taken = |refusal: &Refusal| matches!(refusal, Refusal::Reserve(reserve::Refusal::WrongAttempt { .. }));
    let settled = |refusal: &Refusal| matches!(refusal, Refusal::Effect(effect::Refusal::UnknownIntent { .. }));
    let over = |refusal: &Refusal| matches!(refusal, Refusal::Run(run::Refusal::Ended { .. }));
    assert!(refused(&run, taken) > 0 && refused(&run, settled) > 0 && refused(&run, over) > 0);
    let figures = &run.report.figures;
    assert_eq!((figures.settled_micro_usd, figures.calls_repeated), (figures.invoice_micro_usd, 0));
    let patient = under(&shipped("fleet"), 5, "{ retry-anew = { after = \"1h\" } }", "\"all\"", "4m");
    assert!(!has_reached(&patient, "felt-retry-anew"), "everything is answered within the hour");
}

/// A lane that had asked for a slot anew left the reservation of its first asking open, which took a slot, and its sisters
/// waited for one: with all slots of a user so taken, all of them waited for ever. A wait that comes to nothing now ends the
/// round, and what is open is seen to.
#[test]
fn reservations_that_nobody_knows_of_do_not_keep_a_users_slots_for_ever() {
    for seed in 0..8 {
        let mut scenario = shipped("fleet");
        scenario.caps.slots = 3;
        let run = under(&scenario, seed, "{ retry-anew = { after = \"100ms\" } }", "\"all\"", "5m");
        assert!(has_reached(&run, "felt-retry-anew"), "seed {seed}");
    }
}

#[test]
fn a_report_that_was_taken_is_refused_when_it_is_made_again() {
    let run = under(&shipped("fleet"), 5, "{ duplicate-report = { ppm = 1000000 } }", "\"all\"", "9m");
    assert!(has_reached(&run, "felt-duplicate-report") && has_reached(&run, "healed-duplicate-report"));
    let settled = |refusal: &Refusal| matches!(refusal, Refusal::Effect(effect::Refusal::UnknownIntent { .. }));
    assert!(refused(&run, settled) > 100, "{}", refused(&run, settled));
    assert!(refused(&run, |refusal| matches!(refusal, Refusal::Run(run::Refusal::Ended { .. }))) > 0);
    let never = under(&shipped("fleet"), 5, "{ duplicate-report = { ppm = 0 } }", "\"all\"", "9m");
    assert!(!has_reached(&never, "felt-duplicate-report") && refused(&never, settled) == 0);
}
