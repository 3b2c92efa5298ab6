//! A kind of fault is felt by what it did, not by being on: each kind is on here in a way that can change nothing, as if the
//! code that carries it out were gone. A gate that unites such runs never reaches the kind's *sometimes*, and says so.

use faults::{Kind, Plan};
use scenarios::{
    catalogue,
    runner::{Choices, PlanChoice, Verdict, play, spec},
    scenario::Scenario,
};

/// How each kind can be on and change nothing: at, fault, target, for.
const IDLE: [(&str, &str, &str, &str); Kind::ALL.len()] = [
    (SOON, "{ loss = { ppm = 0 } }", ALL, LONG),
    (SOON, "{ repeat = { ppm = 0 } }", ALL, LONG),
    (SOON, "{ reorder = { ppm = 0 } }", ALL, LONG),
    (SOON, "{ delay-spike = { ppm = 0, by = \"2s\" } }", ALL, LONG),
    (SOON, "\"partition\"", LINK, LONG),
    (SOON, "\"partition-one-way\"", LINK, LONG),
    (NEVER, "\"kill\"", LEDGER, LONG),
    (SOON, "\"power-cut\"", AGENT, SHORT), // of what is on no disk nothing is lost
    (SOON, "\"pause\"", PROVIDER, INSTANT),
    (SOON, "{ clock-step = { by_ms = 0 } }", ALL, LONG),
    (SOON, "{ clock-drift = { rate_ppm = 1000000 } }", ALL, LONG),
    (SOON, "{ cap-lowered = { level = \"ledger-day\", percent = 99 } }", ALL, LONG), // nobody comes near it
    (SOON, "{ too-many-requests = { ppm = 0 } }", ALL, LONG),
    (SOON, "{ server-error = { ppm = 0 } }", ALL, LONG),
    (SOON, "{ slow = { factor = 2 } }", ALL, INSTANT),
    (SOON, "{ reply-lost = { ppm = 0 } }", ALL, LONG),
    (SOON, "{ cancel = { nth = 1000000000 } }", ALL, LONG),
    (SOON, "{ clog = { bytes_per_s = 1000 } }", LINK, LONG),
    (SOON, "{ bridge = { split = 1 } }", LEDGER, INSTANT),
    (SOON, "{ flap = { up = \"1h\", down = \"1ms\" } }", AGENT, LONG), // cut once
    (SOON, "{ crash-loop = { every = \"1h\" } }", AGENT, SHORT),       // killed once
    (SOON, "\"clock-freeze\"", ALL, INSTANT),
    (SOON, "{ hang = { ppm = 0 } }", ALL, LONG),
    (SOON, "{ usage-unlike = { percent = 150 } }", ALL, INSTANT),
    (SOON, "\"credit-exhausted\"", ALL, INSTANT),
    (SOON, "\"halted\"", ALL, INSTANT),
    (SOON, "{ quota-changed = { percent = 99 } }", ALL, INSTANT), // a trespasser is refused over the scenario's own
    (LATE, "\"double-start\"", AGENT, SHORT),                     // the first process has nothing left to ask
    (SOON, "{ retry-anew = { after = \"1h\" } }", ALL, LONG),
    (SOON, "{ duplicate-report = { ppm = 0 } }", ALL, LONG),
];

const SOON: &str = "{ time = \"10s\" }";
const LATE: &str = "{ time = \"200s\" }";
const NEVER: &str = "{ operation = 1000000000 }";
const ALL: &str = "\"all\"";
const LEDGER: &str = "{ node = \"ledger\" }";
const PROVIDER: &str = "{ node = \"provider\" }";
const AGENT: &str = "{ node = \"agent-1\" }";
/// Agents have nothing to say to each other.
const LINK: &str = "{ link = [\"agent-0\", \"agent-1\"] }";
const LONG: &str = "2m";
const SHORT: &str = "5s";
/// Over before anything else happens.
const INSTANT: &str = "1ns";

#[test]
fn a_fault_that_is_on_and_changes_nothing_is_not_felt() {
    let scenario: Scenario = catalogue::find("partition").expect("shipped");
    assert!(scenario.sizes.trespassers > 0 && scenario.quota.is_some(), "somebody is refused without any fault");
    for (kind, (at, fault, target, lasts)) in Kind::ALL.into_iter().zip(IDLE) {
        let text =
            format!("format = 1\n[[faults]]\nat = {at}\nfault = {fault}\ntarget = {target}\nfor = \"{lasts}\"\n");
        let plan = Plan::from_toml(&text).unwrap_or_else(|why| panic!("{kind}: {why}"));
        assert_eq!(plan.faults[0].fault.kind(), kind, "the list is in the order of the kinds");
        let choices = Choices { plan: PlanChoice::Given(plan), ..Choices::default() };
        let report = play(&spec(&scenario, 5, &choices).expect("a spec")).expect("playable").report;
        assert_eq!(report.verdict, Verdict::Pass, "{kind}: {:?}", report.broken);
        let of_it = [format!("felt-{kind}"), format!("healed-{kind}")];
        let reached = report.reached_sometimes.iter().find(|reached| of_it.contains(reached));
        assert_eq!(reached, None, "{kind} changed nothing");
    }
}
