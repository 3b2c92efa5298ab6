//! Plans are read back as written, refused with a remedy, and drawn within the promises.

use faults::{At, Fault, Ground, Happening, Kind, Plan, PlanError, Planned, Swarm, Target};
use proptest::prelude::*;
use std::time::Duration;

fn ground(agents: u32, secs: u64) -> Ground {
    Ground { agents, has_edge: false, lasts: Duration::from_secs(secs), disk_operations: 20_000 }
}

fn everything() -> Swarm {
    Swarm { kinds: Kind::ALL.to_vec(), always: Vec::new(), most_per_kind: 5 }
}

fn one(at: &str, fault: &str, target: &str) -> String {
    format!("format = 1\n[[faults]]\nat = {at}\nfault = {fault}\ntarget = {target}\nfor = \"1s\"\n")
}

#[test]
fn senseless_plans_are_refused_with_a_remedy() {
    let time = "{ time = \"1s\" }";
    let table: &[(String, &str)] = &[
        ("".into(), "format"),
        ("format = 2\nnew_field = 1".into(), "format 2 is not known"),
        ("format = -1".into(), "is not known"),
        ("format = 1\nfalts = []".into(), "line 2, column 1"),
        ("format = 1\n[[faults]]\nat =".into(), "line 3"),
        (one(time, "{ loss = { ppm = 1000001 } }", "\"all\""), "0 to 1000000"),
        (one(time, "{ loss = { ppm = -1 } }", "\"all\""), "line 4"),
        (one(time, "\"explode\"", "\"all\""), "explode"),
        (one("{ time = \"9999h\" }", "\"kill\"", "{ node = \"ledger\" }"), "at most 1000h"),
        (one("{ operation = 0 }", "\"kill\"", "{ node = \"ledger\" }"), "count from 1"),
        (one("{ operation = 5 }", "\"kill\"", "{ node = \"agent-0\" }"), "only the ledger"),
        (one("{ operation = 5 }", "\"pause\"", "{ node = \"ledger\" }"), "only kill and power-cut"),
        (one(time, "{ clock-drift = { rate_ppm = 100 } }", "{ node = \"ledger\" }"), "500000 to 2000000"),
        (
            one(time, "{ cap-lowered = { level = \"moon\", percent = 5 } }", "\"all\""),
            "unit, run, user-day, ledger-day",
        ),
        (one(time, "{ cap-lowered = { level = \"run\", percent = 100 } }", "\"all\""), "0 to 99"),
        (one(time, "{ slow = { factor = 1 } }", "\"all\""), "2 to 100"),
        (one("{ event = { what = \"settle\", nth = 0 } }", "\"kill\"", "{ node = \"ledger\" }"), "count from 1"),
        (one("{ event = { what = \"sneeze\", nth = 1 } }", "\"kill\"", "{ node = \"ledger\" }"), "sneeze"),
        (one(time, "{ clog = { bytes_per_s = 0 } }", "\"all\""), "1 to 1000000000"),
        (one(time, "{ bridge = { split = 0 } }", "{ node = \"ledger\" }"), "number of other nodes"),
        (one(time, "{ bridge = { split = 1 } }", "\"all\""), "a bridge is one node"),
        (one(time, "{ flap = { up = \"0s\", down = \"1s\" } }", "{ node = \"ledger\" }"), "1ms to 1h"),
        (one(time, "{ crash-loop = { every = \"1ms\" } }", "{ node = \"ledger\" }"), "every 10ms to 1h"),
        (one(time, "{ crash-loop = { every = \"1s\" } }", "{ node = \"provider\" }"), "use server-error"),
        (one(time, "\"clock-freeze\"", "{ link = [\"ledger\", \"owner\"] }"), "strikes a node"),
        (one(time, "{ hang = { ppm = 1000001 } }", "\"all\""), "0 to 1000000"),
        (one(time, "{ usage-unlike = { percent = 100 } }", "\"all\""), "as reckoned"),
        (one(time, "{ usage-unlike = { percent = 1001 } }", "\"all\""), "1 to 1000"),
        (one(time, "\"credit-exhausted\"", "{ node = \"ledger\" }"), "no target to choose"),
        (one(time, "\"halted\"", "{ node = \"ledger\" }"), "no target to choose"),
        (one(time, "{ quota-changed = { percent = 100 } }", "\"all\""), "0 to 99"),
        (one(time, "\"double-start\"", "\"all\""), "what an agent does"),
        (one(time, "\"double-start\"", "{ node = \"ledger\" }"), "what an agent does"),
        (one(time, "{ retry-anew = { after = \"9us\" } }", "\"all\""), "10us to 1h"),
        (one(time, "{ retry-anew = { after = \"1s\" } }", "{ node = \"owner\" }"), "what an agent does"),
        (one(time, "{ duplicate-report = { ppm = 1000001 } }", "\"all\""), "0 to 1000000"),
        (one(time, "{ duplicate-report = { ppm = 1 } }", "{ link = [\"agent-0\", \"ledger\"] }"), "what an agent does"),
        (one(time, "{ cancel = { nth = 0 } }", "{ node = \"agent-0\" }"), "count from 1"),
        (one(time, "\"kill\"", "{ node = \"provider\" }"), "use server-error"),
        (one(time, "\"kill\"", "{ link = [\"ledger\", \"owner\"] }"), "strikes a node"),
        (one(time, "\"partition-one-way\"", "{ node = \"ledger\" }"), "needs a link"),
        (one(time, "\"partition\"", "{ link = [\"ledger\", \"ledger\"] }"), "between two nodes"),
        (one(time, "{ slow = { factor = 2 } }", "{ node = \"ledger\" }"), "target = \"all\""),
    ];
    for (text, expect) in table {
        let error = Plan::from_toml(text).expect_err(text);
        assert!(error.to_string().contains(expect), "{text}\ngave: {error}\nwithout: {expect}");
    }
    assert!(matches!(Plan::from_toml("format = 7"), Err(PlanError::Format { found: 7 })));
}

#[test]
fn a_readable_plan_is_read_as_it_says() {
    let time = "{ time = \"1s\" }";
    let at_time = || At::Time(Duration::from_secs(1));
    let node = |name: &str| Target::Node(name.to_owned());
    let (ledger, agent) = ("{ node = \"ledger\" }", "{ node = \"agent-0\" }");
    let millis = Duration::from_millis;
    let table: &[(String, At, Fault, Target)] = &[
        (one("{ operation = 5 }", "\"power-cut\"", ledger), At::Operation(5), Fault::PowerCut, node("ledger")),
        (
            one("{ event = { what = \"run-end\", nth = 3 } }", "\"pause\"", agent),
            At::Event { what: Happening::RunEnd, nth: 3 },
            Fault::Pause,
            node("agent-0"),
        ),
        (
            one(time, "{ clog = { bytes_per_s = 900 } }", "\"all\""),
            at_time(),
            Fault::Clog { bytes_per_s: 900 },
            Target::All,
        ),
        (one(time, "{ bridge = { split = 2 } }", ledger), at_time(), Fault::Bridge { split: 2 }, node("ledger")),
        (
            one(time, "{ flap = { up = \"2ms\", down = \"1ms\" } }", agent),
            at_time(),
            Fault::Flap { up: millis(2), down: millis(1) },
            node("agent-0"),
        ),
        (
            one(time, "{ crash-loop = { every = \"10ms\" } }", agent),
            at_time(),
            Fault::CrashLoop { every: millis(10) },
            node("agent-0"),
        ),
        (one(time, "\"clock-freeze\"", ledger), at_time(), Fault::ClockFreeze, node("ledger")),
        (one(time, "{ hang = { ppm = 1 } }", "\"all\""), at_time(), Fault::Hang { ppm: 1 }, Target::All),
        (
            one(time, "{ usage-unlike = { percent = 250 } }", "\"all\""),
            at_time(),
            Fault::UsageUnlike { percent: 250 },
            Target::All,
        ),
        (one(time, "\"credit-exhausted\"", "\"all\""), at_time(), Fault::CreditExhausted, Target::All),
        (one(time, "\"halted\"", "\"all\""), at_time(), Fault::Halted, Target::All),
        (one(time, "\"double-start\"", agent), at_time(), Fault::DoubleStart, node("agent-0")),
        (
            one(time, "{ retry-anew = { after = \"10us\" } }", "\"all\""),
            at_time(),
            Fault::RetryAnew { after: Duration::from_micros(10) },
            Target::All,
        ),
        (
            one(time, "{ duplicate-report = { ppm = 7 } }", agent),
            at_time(),
            Fault::DuplicateReport { ppm: 7 },
            node("agent-0"),
        ),
        (
            one(time, "{ quota-changed = { percent = 0 } }", "\"all\""),
            at_time(),
            Fault::QuotaChanged { percent: 0 },
            Target::All,
        ),
    ];
    for (text, at, fault, target) in table {
        let plan = Plan::from_toml(text).unwrap_or_else(|error| panic!("{text}\n{error}"));
        let lasts = Duration::from_secs(1);
        assert_eq!(plan.faults, [Planned { at: at.clone(), fault: fault.clone(), target: target.clone(), lasts }]);
        assert_eq!(Plan::from_toml(&plan.to_toml()), Ok(plan));
    }
}

#[test]
fn every_kind_has_a_name_of_its_own_and_is_drawn() {
    for kind in Kind::ALL {
        assert_eq!(Kind::named(kind.name()), Some(kind));
        let quoted = toml::Value::try_from(kind).expect("a string").to_string();
        assert_eq!(quoted, format!("\"{}\"", kind.name()));
        let drawn = |seed| everything().draw(seed, &ground(4, 300)).plan.faults;
        assert!(
            (0..64).any(|seed| drawn(seed).iter().any(|planned| planned.fault.kind() == kind)),
            "{kind} never drawn"
        );
    }
}

#[test]
fn a_kind_that_is_on_in_half_the_seeds_is_on_in_about_half() {
    for kind in Kind::ALL {
        let on = (0..1_000).filter(|seed| everything().draw(*seed, &ground(4, 300)).on.contains(&kind)).count();
        assert!((420..=580).contains(&on), "{kind} is on in {on} of 1000 seeds");
    }
}

#[test]
fn a_kind_that_is_always_on_is_on_in_every_seed_and_shifts_no_other() {
    let always = Swarm { always: vec![Kind::Flap, Kind::Loss], kinds: vec![Kind::Flap, Kind::Kill], most_per_kind: 3 };
    let chance = Swarm { always: Vec::new(), ..always.clone() };
    for seed in 0..64 {
        let (drawn, other) = (always.draw(seed, &ground(4, 300)), chance.draw(seed, &ground(4, 300)));
        assert!(drawn.on.contains(&Kind::Flap), "seed {seed}");
        assert!(!drawn.on.contains(&Kind::Loss), "seed {seed}: loss is not among the kinds");
        let kills = |plan: &Plan| {
            let kills = plan.faults.iter().filter(|planned| planned.fault.kind() == Kind::Kill);
            kills.cloned().collect::<Vec<_>>()
        };
        assert_eq!(kills(&drawn.plan), kills(&other.plan), "seed {seed}");
    }
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "\\PC*") {
        let _ = Plan::from_toml(&text);
    }

    #[test]
    fn any_damage_to_a_plan_is_read_or_refused(seed: u64, cut in 0usize..2_000, byte: u8) {
        let text = everything().draw(seed, &ground(4, 300)).plan.to_toml();
        let mut bytes = text.into_bytes();
        let at = cut.min(bytes.len());
        if let Some(damaged) = bytes.get_mut(at) {
            *damaged = byte;
        }
        let _ = Plan::from_toml(&String::from_utf8_lossy(&bytes));
        let _ = Plan::from_toml(&String::from_utf8_lossy(&bytes[..at]));
    }

    #[test]
    fn a_drawn_plan_makes_sense_is_survivable_and_reads_back(seed: u64, agents in 1u32..40, secs in 1u64..100_000) {
        let ground = ground(agents, secs);
        let plan = everything().draw(seed, &ground).plan;
        plan.check().expect("drawn within the ranges");
        prop_assert_eq!(&Plan::from_toml(&plan.to_toml()).expect("as written"), &plan);
        for planned in &plan.faults {
            if let At::Time(at) = planned.at {
                prop_assert!(at + planned.lasts <= ground.lasts);
            }
        }
        let stops = |planned: &&Planned| planned.fault.kind().stops();
        let spans: Vec<_> = plan.faults.iter().filter(stops).filter_map(|planned| match (&planned.at, &planned.target) {
            (At::Time(at), Target::Node(name)) => Some((*at, *at + planned.lasts, name.clone())),
            _ => None,
        }).collect();
        for (begin, _, name) in &spans {
            let at_once = spans.iter().filter(|(b, e, n)| b <= begin && begin <= e && (n == name || n.starts_with("agent-")));
            let ledger = at_once.clone().filter(|(.., n)| n == "ledger").count();
            prop_assert!(ledger <= 1);
            let agents_down: std::collections::BTreeSet<_> = at_once.filter(|(.., n)| n.starts_with("agent-")).map(|(.., n)| n).collect();
            prop_assert!(agents == 1 || agents_down.len() < agents as usize);
        }
        let doubles: Vec<_> = plan.faults.iter().filter(|planned| planned.fault == Fault::DoubleStart).collect();
        for (nth, one) in doubles.iter().enumerate() {
            let At::Time(begins) = one.at else { continue };
            let again = doubles[nth + 1..].iter().filter(|other| other.target == one.target);
            for other in again {
                let At::Time(at) = other.at else { continue };
                prop_assert!(begins + one.lasts < at || at + other.lasts < begins);
            }
        }
    }

    #[test]
    fn turning_a_kind_off_leaves_the_others_as_they_were(seed: u64, off in 0usize..Kind::ALL.len()) {
        // Without a limit in play: only kinds that never compete for a node.
        let calm = |kind: &Kind| !kind.stops() && *kind != Kind::DoubleStart;
        let all: Vec<Kind> = Kind::ALL.into_iter().filter(calm).collect();
        let fewer: Vec<Kind> = all.iter().copied().filter(|kind| *kind != Kind::ALL[off]).collect();
        let draw = |kinds| Swarm { kinds, always: Vec::new(), most_per_kind: 5 }.draw(seed, &ground(4, 300)).plan.faults;
        let mut expect = draw(all);
        expect.retain(|planned| planned.fault.kind() != Kind::ALL[off]);
        prop_assert_eq!(draw(fewer), expect);
    }
}
