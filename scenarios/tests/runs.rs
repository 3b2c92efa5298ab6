//! Runs end to end: the same history however it is kept and wherever it is played, plans carried out as they say, failures
//! with a verdict each, and folders that are whole.

use faults::{Plan, PlanError};
use kernel::{
    id::RunId,
    planted::Bug,
    record::Event,
    run::{self, Ending, HaltReason},
};
use scenarios::{
    caps::CapsFile,
    capsule::Capsule,
    catalogue,
    gate::{self, Partition},
    runner::{Choices, PlanChoice, Provenance, Run, RunSpec, SpecError, Verdict, play, spec, write_folder},
    scenario::{Scenario, StoreKind},
};
use sim::{Engine, Entry, Recording, history::kind};
use std::time::Duration;

fn scenario(name: &str) -> Scenario {
    catalogue::find(name).expect("shipped")
}

fn full() -> Choices {
    Choices { recording: Recording::Full, ..Choices::default() }
}

fn played(spec: &RunSpec) -> Run {
    play(spec).expect("playable")
}

/// A run of `crash` under a plan, recorded in full.
fn under(plan: &str) -> Run {
    let plan = PlanChoice::Given(Plan::from_toml(plan).expect("a plan"));
    played(&spec(&scenario("crash"), 3, &Choices { plan, ..full() }).expect("a spec"))
}

/// What the director did and when nodes came and went: (milliseconds, text), without what happens at the start.
fn told(run: &Run) -> Vec<(u64, String)> {
    let mut left = &run.history.kept[..];
    let mut told = Vec::new();
    while let Some((length, rest)) = left.split_first_chunk::<4>() {
        let (entry, rest) = rest.split_at(u32::from_le_bytes(*length) as usize);
        left = rest;
        let entry: Entry<'_> = postcard::from_bytes(entry).expect("an entry");
        let text = match entry.kind {
            kind::UP => format!("up {}", entry.node.0),
            kind::DOWN => format!("down {}", entry.node.0),
            kind::FAULT => String::from_utf8(entry.data.to_vec()).expect("text"),
            _ => continue,
        };
        if entry.time_ns > 0 {
            told.push((entry.time_ns / 1_000_000, text));
        }
    }
    told
}

/// What was told in a stretch of seconds.
fn between(run: &Run, from_s: u64, to_s: u64) -> Vec<(u64, String)> {
    told(run).into_iter().filter(|(at, _)| (from_s * 1_000..to_s * 1_000).contains(at)).collect()
}

fn lines(told: &[(u64, &str)]) -> Vec<(u64, String)> {
    told.iter().map(|(at, text)| (*at, (*text).to_owned())).collect()
}

#[test]
fn a_small_gate_passes_and_repeats_itself() {
    let scenarios = catalogue::all();
    let mut failures = Vec::new();
    for deal in gate::deals(scenarios.len(), 0..200, Partition::WHOLE) {
        let spec = spec(&scenarios[deal.scenario], deal.seed, &Choices::default()).expect("a spec");
        let (run, parted) = gate::play_checked(&spec, gate::is_doubled(deal.seed)).expect("playable");
        if run.report.verdict != Verdict::Pass {
            failures.push((deal, run.report.verdict, run.report.broken, parted));
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
fn the_history_is_the_same_however_it_is_kept_and_wherever_it_is_played() {
    for (name, seed) in [("fleet", 7), ("contention", 1), ("partition", 2), ("crash", 3)] {
        let whole = spec(&scenario(name), seed, &full()).expect("a spec");
        let hashed = RunSpec { recording: Recording::HashOnly { tail: 3 }, ..whole.clone() };
        let (here, brief) = (played(&whole), played(&hashed));
        let there = std::thread::scope(|threads| threads.spawn(|| played(&whole)).join().expect("played"));
        assert_eq!(here.history, there.history, "{name}");
        assert_eq!(here.history.hash, brief.history.hash, "{name}");
        assert_eq!(blake3::hash(&here.history.kept), blake3::Hash::from_bytes(here.history.hash), "{name}");
        assert_eq!((&here.report.figures, &here.log), (&brief.report.figures, &brief.log), "{name}");
    }
}

#[test]
fn a_capsule_plays_the_same_run() {
    for (bugs, name) in [(vec![], "partition"), (vec![Bug::DropDedup], "fleet")] {
        let spec = spec(&scenario(name), 5, &Choices { bugs, ..full() }).expect("a spec");
        let run = played(&spec);
        let written = Capsule::of(&spec, &run.report, &Provenance::default()).to_toml().expect("writable");
        let read = Capsule::from_toml(&written).expect("readable");
        assert_eq!(read.spec().expect("a run"), spec);
        assert_eq!(read.history_hash, run.report.history_hash);
        let again = played(&read.spec().expect("a run"));
        assert!(gate::same(&run.report, &again.report));
        assert_eq!(gate::parting(&run.history, &again.history), None);
    }
}

#[test]
fn histories_that_part_are_told_apart() {
    let at = |seed| played(&spec(&scenario("contention"), seed, &full()).expect("a spec")).history;
    let (one, other) = (at(1), at(2));
    let parted = gate::parting(&one, &other).expect("other seeds, other histories");
    assert!(parted.entry >= 1 && parted.one != parted.other, "{parted:?}");
    let mut cut = one.clone();
    cut.kept.truncate(one.kept.len() - 1);
    assert!(gate::parting(&one, &cut).is_some());
}

#[test]
fn a_kill_of_a_node_that_is_down_does_nothing_and_a_pause_goes_on_as_a_zombie() {
    let run = under(
        r#"
        format = 1
        faults = [
            { at = { time = "10s" }, fault = "kill", target = { node = "agent-0" }, for = "5s" },
            { at = { time = "12s" }, fault = "power-cut", target = { node = "agent-0" }, for = "20s" },
            { at = { time = "13s" }, fault = "pause", target = { node = "agent-1" }, for = "4s" },
            { at = { time = "14s" }, fault = "pause", target = { node = "agent-1" }, for = "9s" },
        ]
        "#,
    );
    let expect = [
        (10_000, "kill node 3"),
        (10_000, "down 3"),
        (13_000, "pause node 4"),
        (15_000, "restart node 3"),
        (15_000, "up 3"),
        (17_000, "resume node 4"),
    ];
    assert_eq!(between(&run, 1, 60), lines(&expect));
    assert_eq!((run.report.verdict, run.report.figures.kills), (Verdict::Pass, 1));
}

#[test]
fn the_end_of_a_partition_leaves_the_others_cut() {
    let run = under(
        r#"
        format = 1
        faults = [
            { at = { time = "10s" }, fault = "partition", target = { node = "ledger" }, for = "5s" },
            { at = { time = "12s" }, fault = "partition-one-way", target = { link = ["ledger", "agent-2"] }, for = "5s" },
        ]
        "#,
    );
    let expect = [
        (10_000, "cut the links of node 0"),
        (12_000, "cut the link from node 0 to node 5"),
        (15_000, "mend the links of node 0"),
        (15_000, "cut the link from node 0 to node 5"),
        (17_000, "mend the link from node 0 to node 5"),
    ];
    assert_eq!(between(&run, 1, 60), lines(&expect));
    assert_eq!(run.report.verdict, Verdict::Pass);
}

#[test]
fn kills_at_disk_operations_strike_in_their_order_and_end_in_a_restart() {
    let run = under(
        r#"
        format = 1
        faults = [
            { at = { operation = 400 }, fault = "power-cut", target = { node = "ledger" }, for = "3s" },
            { at = { operation = 200 }, fault = "kill", target = { node = "ledger" }, for = "2s" },
        ]
        "#,
    );
    let told = told(&run);
    let at = |text: &str| told.iter().filter(|(_, told)| told == text).map(|(at, _)| *at).collect::<Vec<_>>();
    let (down, up) = (at("down 0"), at("up 0"));
    assert_eq!((down.len(), up.len()), (3, 2), "two faults and the cut at rest: {told:?}");
    assert_eq!((up[0] - down[0], up[1] - down[1]), (2_000, 3_000));
    assert_eq!((run.report.verdict, run.report.figures.kills, run.report.figures.ledger_opens), (Verdict::Pass, 2, 3));
}

#[test]
fn a_lowered_cap_is_ordered_and_restored() {
    let run = under(
        r#"
        format = 1
        [[faults]]
        at = { time = "10s" }
        fault = { cap-lowered = { level = "user-day", percent = 0 } }
        target = "all"
        for = "60s"
        "#,
    );
    let caps: Vec<u64> = run
        .log
        .records()
        .filter_map(|record| match &record.event {
            kernel::record::Event::Reserve(kernel::reserve::Event::CapSet { level, cap, .. }) => {
                (*level == kernel::reserve::Level::UserDay).then_some(cap.0)
            }
            _ => None,
        })
        .collect();
    assert_eq!(caps, [20_000_000, 0, 20_000_000]);
    assert!(run.report.figures.reserves_over_cap > 0);
    assert_eq!(run.report.verdict, Verdict::Pass);
}

/// A unit of the run was given up for good while another had met the halt: the run was asked to end at once, and to end incomplete,
/// though what stopped it was the halt.
#[test]
fn a_run_that_met_a_halt_ends_halted_though_a_unit_of_it_is_given_up_too() {
    let run = played(&spec(&scenario("effects"), 161, &Choices::default()).expect("a spec"));
    let met_both = RunId(4 << 32 | 1);
    let ended = run.log.records().find_map(|record| match record.event {
        Event::Run(run::Event::Ended { run, outcome }) if run == met_both => Some(outcome),
        _ => None,
    });
    assert_eq!(ended, Some(Ending::Halted(HaltReason::Owner)));
}

#[test]
fn what_does_not_end_within_the_bound_is_a_liveness_failure_that_names_it() {
    let mut short = scenario("fleet");
    short.heal_bound = Duration::from_secs(1);
    short.sizes.lasts = Duration::from_secs(5);
    let choices = Choices { plan: PlanChoice::None, ..Choices::default() };
    let report = played(&spec(&short, 1, &choices).expect("a spec")).report;
    let broken = report.broken.expect("says what");
    assert_eq!((report.verdict, broken.invariant.as_str()), (Verdict::Liveness, "comes-to-rest"));
    assert!(broken.message.contains("8 of 8 agents are not done: agent-0, agent-1"), "{}", broken.message);
    assert_eq!(broken.time_ns, 6_000_000_000);
}

#[test]
fn choices_that_make_no_run_are_refused_with_a_remedy() {
    let plan = |target: &str| {
        let text = format!(
            "format = 1\n[[faults]]\nat = {{ time = \"1s\" }}\nfault = \"kill\"\ntarget = {target}\nfor = \"1s\""
        );
        PlanChoice::Given(Plan::from_toml(&text).expect("a plan"))
    };
    let senseless = PlanChoice::Given(Plan { format: 9, faults: Vec::new() });
    let table = [
        (Choices { agents: Some(0), ..Choices::default() }, "sizes.agents: 0 is out of range; it is 1 to 65536"),
        (Choices { agents: Some(65_537), ..Choices::default() }, "sizes.agents"),
        (Choices { lasts: Some(Duration::MAX), ..Choices::default() }, "sizes.for"),
        (Choices { plan: plan("{ node = \"agent-4\" }"), ..Choices::default() }, "agent-0 to agent-3"),
        (Choices { plan: plan("{ node = \"venue\" }"), ..Choices::default() }, "`venue`, which is not in the cast"),
        (Choices { plan: senseless, ..Choices::default() }, "plan format 9"),
        (Choices { engine: Engine::Real, plan: plan("\"all\""), ..Choices::default() }, "--plan none"),
        (Choices { engine: Engine::Real, plan: PlanChoice::None, ..Choices::default() }, "needs a folder"),
    ];
    for (choices, expect) in table {
        let error = spec(&scenario("crash"), 0, &choices).expect_err(expect).to_string();
        assert!(error.contains(expect), "{error}\nwithout: {expect}");
    }
    let trace = scenarios::workload::arrivals::Arrivals::read(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,4808,10".as_bytes(),
    );
    let arrivals = Some(std::sync::Arc::new(trace.expect("a trace")));
    let error = spec(&scenario("crash"), 0, &Choices { arrivals: arrivals.clone(), ..Choices::default() });
    assert!(matches!(error, Err(SpecError::NoTrace { .. })));
    // A trace is replayed without quotas: one that is asked for is not passed over in silence.
    for (text, expect) in [
        ("format = 1\n[caps]\nrun = 5\n", None),
        ("format = 1\n[[change]]\nat = \"1s\"\nlevel = \"slots\"\nto = 5\n", None),
        ("format = 1\n[quota]\ndepth_tier = 1\n", Some("quota: a trace is replayed without quotas")),
        ("format = 1\n[[change]]\nat = \"1s\"\nlevel = \"depth-tier\"\nto = 5\n", Some("change.level")),
    ] {
        let caps = Some(CapsFile::parse(text, "caps.toml").expect("a caps file"));
        let said = spec(&scenario("fleet"), 0, &Choices { arrivals: arrivals.clone(), caps, ..full() });
        let said = said.err().map(|error| error.to_string());
        assert_eq!(said.is_some(), expect.is_some(), "{text}: {said:?}");
        assert!(said.iter().all(|said| expect.is_some_and(|expect| said.contains(expect))), "{text}: {said:?}");
    }
    assert!(matches!(Plan::from_toml("format = 9"), Err(PlanError::Format { found: 9 })));
}

#[test]
fn a_trace_is_served_whole() {
    let mut text = String::from("TIMESTAMP,ContextTokens,GeneratedTokens\r\n");
    for row in 0..300 {
        text += &format!("2023-11-16 18:{:02}:{:02}.5,{},{}\r\n", row / 60, row % 60, 10 + row, 1 + row % 90);
    }
    let trace = scenarios::workload::arrivals::Arrivals::read(text.trim_end().as_bytes()).expect("a trace");
    let arrivals = Some(std::sync::Arc::new(trace));
    let choices = Choices { arrivals, plan: PlanChoice::None, ..full() };
    let spec = spec(&scenario("fleet"), 0, &choices).expect("a spec");
    let run = played(&spec);
    assert_eq!(run.report.verdict, Verdict::Pass, "{:?}", run.report.broken);
    assert_eq!((run.report.figures.arrivals, run.report.figures.calls_served), (Some(300), 300));
    let capsule = Capsule::of(&spec, &run.report, &Provenance::default());
    assert!(gate::same(&run.report, &played(&capsule.spec().expect("a run")).report));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a run's folder is on the machine's disk")]
fn a_runs_folder_is_whole_or_not_there() {
    let root = tempfile::tempdir().expect("a folder");
    let spec = spec(&scenario("crash"), 1, &full()).expect("a spec");
    let run = played(&spec);
    let dir = root.path().join("run");
    std::fs::create_dir(&dir).expect("made");
    write_folder(&dir, &spec, &run, &Provenance::default()).expect("written over an empty folder");
    let read = |name: &str| std::fs::read(dir.join(name)).expect(name);
    assert_eq!(blake3::hash(&read("history.log")).to_hex().as_str(), run.report.history_hash);
    assert_eq!(Capsule::load(&dir.join("capsule.toml")).expect("readable").spec().expect("a run"), spec);
    let events = String::from_utf8(read("events.jsonl")).expect("text");
    assert_eq!(events.lines().count(), run.log.len());
    let last: serde_json::Value = serde_json::from_str(events.lines().last().expect("events")).expect("JSON");
    let chain = run.log.records().next_back().expect("events").chain;
    assert_eq!(last["chain"], blake3::Hash::from_bytes(chain).to_hex().as_str());
    let result: serde_json::Value = serde_json::from_slice(&read("result.json")).expect("JSON");
    assert_eq!(result["history_hash"], run.report.history_hash.as_str());
    assert_eq!(result["verdict"], "pass");
    let error = write_folder(&dir, &spec, &run, &Provenance::default()).expect_err("not over a run that is there");
    assert!(error.to_string().contains("run"), "{error}");
    assert_eq!(std::fs::read_dir(root.path()).expect("listed").count(), 1, "nothing is left beside it");
}

#[test]
fn deals_reach_every_scenario_in_every_part_and_each_seed_once() {
    let part = |part| gate::deals(4, 3..1_003, Partition { part, of: 4 }).collect::<Vec<_>>();
    let mut all: Vec<_> = (1..=4).flat_map(part).collect();
    for number in 1..=4 {
        for scenario in 0..4 {
            assert!(part(number).iter().any(|deal| deal.scenario == scenario));
        }
    }
    all.sort_by_key(|deal| deal.seed);
    assert_eq!(all, gate::deals(4, 3..1_003, Partition::WHOLE).collect::<Vec<_>>());
    assert_eq!(all.len(), 1_000);
    assert_eq!(gate::deals(4, 0..100, Partition { part: 5, of: 4 }).count(), 0);
    let doubled = (0..4_000).filter(|seed| gate::is_doubled(*seed));
    let mut by_scenario = [0; 4];
    doubled.for_each(|seed| by_scenario[gate::deal(seed, 4)] += 1);
    assert!(by_scenario.iter().all(|count| (40..90).contains(count)), "{by_scenario:?}");
}

#[test]
fn redb_and_memory_are_both_played_to_rest() {
    for store in [StoreKind::Memory, StoreKind::Redb] {
        let choices = Choices { store: Some(store), ..Choices::default() };
        let report = played(&spec(&scenario("partition"), 4, &choices).expect("a spec")).report;
        assert_eq!((report.verdict, report.store), (Verdict::Pass, store), "{:?}", report.broken);
        assert_eq!(report.stats.disk_operations > 0, store == StoreKind::Redb);
    }
}

#[test]
fn the_real_engine_plays_to_rest_too() {
    let mut quick = scenario("fleet");
    quick.provider.speedup = 1_000;
    quick.sizes.lasts = Duration::from_secs(1);
    for store in [StoreKind::Memory, StoreKind::Redb] {
        let root = tempfile::tempdir().expect("a folder");
        let root = Some(root.path().to_owned());
        let choices = Choices { engine: Engine::Real, plan: PlanChoice::None, store: Some(store), root, ..full() };
        let run = played(&spec(&quick, 1, &choices).expect("a spec"));
        assert_eq!(run.report.verdict, Verdict::Pass, "{store:?}: {:?}", run.report.broken);
        assert!(run.report.figures.runs_complete >= 8 && !run.log.is_empty(), "{:?}", run.report.figures);
    }
}

#[test]
fn raw_sums_are_those_of_the_figures_and_a_user_is_shared_as_chosen() {
    let lasts = Some(Duration::from_secs(300));
    let of = |agents_per_user| {
        let choices =
            Choices { agents: Some(32), agents_per_user, lasts, plan: PlanChoice::None, ..Choices::default() };
        played(&spec(&scenario("fleet"), 1, &choices).expect("a spec"))
    };
    let (scaled, shared) = (of(None), of(Some(32)));
    for Run { report, raw, .. } in [&scaled, &shared] {
        let figures = &report.figures;
        assert_eq!((raw.calls, raw.runs), (figures.calls_served, figures.runs_ended));
        assert_eq!(raw.over_cap.iter().sum::<u64>(), figures.reserves_over_cap);
        assert_eq!(Some(raw.walls_ns.value_at_quantile(0.99)), figures.run_wall_p99_ns);
        assert!(raw.last_settled_ns <= raw.last_ended_ns && raw.ledger_wait_ns <= raw.wall_ns);
    }
    // Thirty-two agents on one user's ten slots wait for each other; on four users' forty they hardly do.
    let waits = |run: &Run| run.report.figures.ledger_wait_ppm;
    assert!(waits(&shared) > 2 * waits(&scaled), "{} and {}", waits(&shared), waits(&scaled));
    assert_eq!(shared.report.verdict, Verdict::Pass);
}

/// A run of a scenario under one fault, in full.
fn under_one(scenario_name: &str, at: &str, fault: &str, target: &str, lasts: &str) -> Run {
    let text = format!("format = 1\n[[faults]]\nat = {at}\nfault = {fault}\ntarget = {target}\nfor = \"{lasts}\"\n");
    let plan = PlanChoice::Given(Plan::from_toml(&text).expect("a plan"));
    played(&spec(&scenario(scenario_name), 5, &Choices { plan, ..full() }).expect("a spec"))
}

#[test]
fn each_kind_makes_its_difference_and_is_healed() {
    let (soon, ledger, agent) = ("{ time = \"10s\" }", "{ node = \"ledger\" }", "{ node = \"agent-1\" }");
    for (kind, fault, target) in [
        ("clog", "{ clog = { bytes_per_s = 300 } }", ledger),
        ("bridge", "{ bridge = { split = 1 } }", ledger),
        ("flap", "{ flap = { up = \"2s\", down = \"1s\" } }", ledger),
        ("crash-loop", "{ crash-loop = { every = \"4s\" } }", ledger),
        ("clock-freeze", "\"clock-freeze\"", ledger),
        ("clock-step", "{ clock-step = { by_ms = -3600000 } }", ledger),
        ("clock-drift", "{ clock-drift = { rate_ppm = 2000000 } }", ledger),
        ("pause", "\"pause\"", agent),
        ("slow", "{ slow = { factor = 3 } }", "\"all\""),
        ("reply-lost", "{ reply-lost = { ppm = 900000 } }", "\"all\""),
        ("too-many-requests", "{ too-many-requests = { ppm = 900000 } }", "\"all\""),
        ("double-start", "\"double-start\"", agent),
        ("retry-anew", "{ retry-anew = { after = \"100us\" } }", agent),
        ("duplicate-report", "{ duplicate-report = { ppm = 1000000 } }", "\"all\""),
    ] {
        let report = under_one("crash", soon, fault, target, "30s").report;
        assert_eq!(report.verdict, Verdict::Pass, "{kind}: {:?}", report.broken);
        for reached in [format!("felt-{kind}"), format!("healed-{kind}")] {
            assert!(report.reached_sometimes.contains(&reached), "{reached}: {:?}", report.reached_sometimes);
        }
    }
    // What was not synced is lost by a cut in the middle of a commit, and there is nothing to lose between commits.
    for (at, is_felt) in [("{ operation = 120 }", true), (soon, false)] {
        let plan =
            format!("format = 1\n[[faults]]\nat = {at}\nfault = \"power-cut\"\ntarget = {ledger}\nfor = \"30s\"\n");
        let plan = PlanChoice::Given(Plan::from_toml(&plan).expect("a plan"));
        let report = played(&spec(&scenario("crash"), 4, &Choices { plan, ..full() }).expect("a spec")).report;
        assert_eq!((report.verdict, report.figures.kills), (Verdict::Pass, 1), "{at}: {:?}", report.broken);
        for reached in ["felt-power-cut", "healed-power-cut"] {
            assert_eq!(report.reached_sometimes.iter().any(|one| one == reached), is_felt, "{at}: {reached}");
        }
    }
    let calm = played(&spec(&scenario("crash"), 5, &Choices { plan: PlanChoice::None, ..full() }).expect("a spec"));
    let felt = |name: &&String| name.starts_with("felt") || name.starts_with("healed") || name.starts_with("begun");
    assert_eq!(calm.report.reached_sometimes.iter().find(felt), None);
}

#[test]
fn a_crash_loop_kills_again_and_a_flapping_link_is_cut_again() {
    let crashing =
        under_one("crash", "{ time = \"10s\" }", "{ crash-loop = { every = \"4s\" } }", "{ node = \"agent-1\" }", "9s");
    let (kill, restart, down, up) = ("kill node 4", "restart node 4", "down 4", "up 4");
    let expect = [
        (10_000, kill),
        (10_000, down),
        (11_000, restart),
        (11_000, up),
        (14_000, kill),
        (14_000, down),
        (15_000, restart),
        (15_000, up),
        (18_000, kill),
        (18_000, down),
        (19_000, restart),
        (19_000, up),
    ];
    assert_eq!(between(&crashing, 9, 40), lines(&expect));
    let flapping = under_one(
        "fleet",
        "{ time = \"10s\" }",
        "{ flap = { up = \"3s\", down = \"1s\" } }",
        "{ link = [\"agent-1\", \"ledger\"] }",
        "5s",
    );
    let (cut, mend) = ("cut the links between nodes 4 and 0", "mend the links between nodes 4 and 0");
    let expect = [(10_000, cut), (11_000, mend), (14_000, cut), (15_000, mend), (15_000, mend)];
    let told = between(&flapping, 9, 40);
    assert_eq!(told.len().clamp(4, 5), told.len());
    assert_eq!(told[..4], lines(&expect)[..4]);
}

#[test]
fn a_fault_begins_at_its_event() {
    let at = "{ event = { what = \"settle\", nth = 3 } }";
    let run = under_one("fleet", at, "\"kill\"", "{ node = \"ledger\" }", "2s");
    assert!(run.report.reached_sometimes.contains(&"begun-at-event".to_owned()));
    let settled = |record: &kernel::record::Record| {
        matches!(record.event, kernel::record::Event::Reserve(kernel::reserve::Event::Settled { .. }))
    };
    let third = run.log.records().filter(settled).nth(2).expect("three were settled");
    let kills: Vec<u64> = told(&run).into_iter().filter(|(_, text)| text == "kill node 0").map(|(at, _)| at).collect();
    let committed_ms = third.time.0 / 1_000_000;
    assert_eq!(kills.len(), 1);
    assert!(kills[0].abs_diff(committed_ms) <= 2, "killed at {} ms, settled at {committed_ms} ms", kills[0]);
    let never = under_one(
        "contention",
        "{ event = { what = \"settle\", nth = 1000000 } }",
        "\"kill\"",
        "{ node = \"ledger\" }",
        "2s",
    );
    assert_eq!((never.report.verdict, never.report.figures.kills), (Verdict::Pass, 0));
}
