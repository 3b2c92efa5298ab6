//! Each way of tampering with a folder, and the rule that finds it.

use crate::forge::{Folder, SOUND, line, recorded, seal};
use kernel::record::Record;
use scenarios::checker::{CheckError, Status, check};
use serde_json::Value;
use std::fs;

type Tamper = fn(&mut Folder);
type Exchange = fn(&mut Folder, &Folder);

/// The first line with `text` in it.
fn at(lines: &[String], text: &str) -> usize {
    lines.iter().position(|line| line.contains(text)).unwrap_or_else(|| panic!("no line has {text}"))
}

fn swapped_hash(line: &str, field: &str) -> String {
    let mut value: Value = serde_json::from_str(line).expect("a line");
    let hash = value[field].as_str().expect("a hash").chars().rev().collect::<String>();
    value[field] = hash.into();
    value.to_string()
}

/// From the first settlement on, its cost one more and every hash of the log made to fit.
fn rechained(folder: &mut Folder) {
    let mut chain = [0; 32];
    let mut done = false;
    folder.lines(|lines| {
        for text in lines {
            let mut value: Value = serde_json::from_str(text).expect("a line");
            for field in ["content", "chain"] {
                value[field] = vec![0u8; 32].into();
            }
            if let (Some(cost), false) = (value.pointer_mut("/event/Reserve/Settled/cost"), done) {
                *cost = (cost.as_u64().expect("an amount") + 1).into();
                done = true;
            }
            let mut record: Record = serde_json::from_value(value).expect("a record");
            seal(&mut record, &mut chain);
            *text = line(&record);
        }
    });
}

const FILES: [(&str, Tamper, &str, &str); 28] = [
    ("a changed amount", |f| f.log = f.log.replacen("\"cost\":", "\"cost\":1", 1), "content-hash", "its fields give"),
    ("a changed amount, hashes made to fit", rechained, "announced", "was announced with content"),
    ("a dropped line", |f| f.lines(|lines| drop(lines.remove(40))), "numbering", "a line is lost, repeated or moved"),
    (
        "the first line dropped",
        |f| f.lines(|lines| drop(lines.remove(0))),
        "numbering",
        "record 1 stands where 0 should",
    ),
    ("two swapped lines", |f| f.lines(|lines| lines.swap(50, 51)), "chain", "the chain before it gives"),
    (
        "a repeated line",
        |f| f.lines(|lines| lines.insert(9, lines[9].clone())),
        "numbering",
        "record 9 stands where 10",
    ),
    ("a log cut inside a line", |f| f.log.truncate(f.log.len() - 30), "log-lines", "the file was cut off here"),
    ("a log cut between lines", |f| f.lines(|lines| lines.truncate(lines.len() / 2)), "announced", "is not in the log"),
    ("a log cut at its end", |f| f.lines(|lines| drop(lines.pop())), "head", "the log ends below record"),
    ("an emptied log", |f| f.log.clear(), "announced", "is not in the log"),
    ("an empty line", |f| f.lines(|lines| lines.insert(3, String::new())), "log-lines", "it is no record"),
    ("a line more", |f| f.log.push_str("{}\n"), "log-lines", "it is no record"),
    (
        "a field more",
        |f| f.log = f.log.replacen("{\"chain\"", "{\"note\":1,\"chain\"", 1),
        "log-lines",
        "unknown field",
    ),
    (
        "a forged content hash",
        |f| f.lines(|lines| lines[7] = swapped_hash(&lines[7], "content")),
        "content-hash",
        "record 7",
    ),
    ("a forged chain", |f| f.lines(|lines| lines[7] = swapped_hash(&lines[7], "chain")), "chain", "record 7"),
    (
        "a hash in capitals",
        |f| f.lines(|lines| lines[7] = lines[7].replacen("\"chain\":\"", "\"chain\":\"A", 1)),
        "log-lines",
        "64 digits",
    ),
    (
        "a newer schema",
        |f| f.log = f.log.replacen("\"schema\":1", "\"schema\":2", 1),
        "log-lines",
        "use the build that wrote it",
    ),
    (
        "an unknown kind",
        |f| {
            f.lines(|lines| {
                let at = at(lines, "\"Settled\"");
                lines[at] = lines[at].replace("\"Settled\"", "\"Frozen\"");
            })
        },
        "log-lines",
        "`Reserve.Frozen` holds a kind that this build does not know",
    ),
    ("an unknown room", |f| f.log = f.log.replacen("{\"Lease\"", "{\"Prove\"", 1), "log-lines", "`Prove.Granted`"),
    ("a byte of the history", |f| f.history[5_000] ^= 1, "history-hash", "the history hash is"),
    ("a history cut inside an entry", |f| f.history.truncate(f.history.len() - 9), "history-entries", "it was cut off"),
    (
        "a history that does not end",
        |f| {
            let mut told = f.told();
            told.pop();
            f.retell(told);
        },
        "history-entries",
        "the end is missing",
    ),
    ("an emptied history", |f| f.history.clear(), "history-entries", "the file was emptied"),
    ("a forged history hash", |f| f.result["history_hash"] = "0".repeat(64).into(), "agreement", "history_hash"),
    (
        "one history hash in both files",
        |f| {
            f.result["history_hash"] = "0".repeat(64).into();
            f.recapsule(|capsule| capsule.history_hash = "0".repeat(64));
        },
        "history-hash",
        "history.log gives",
    ),
    (
        "a forged block hash",
        |f| f.result["history_blocks"][0] = "0".repeat(64).into(),
        "history-hash",
        "the hash of block 0",
    ),
    (
        "a block hash less",
        |f| f.result["history_blocks"] = Value::Array(Vec::new()),
        "history-hash",
        "it has 0 block hashes",
    ),
    (
        "an entry out of time",
        |f| {
            let mut told = f.told();
            told[300].time_ns = 0;
            f.retell(told);
        },
        "history-entries",
        "after one of",
    ),
];

const WORDS: [(&str, Tamper, &str, &str); 16] = [
    ("a changed verdict", |f| f.result["verdict"] = "safety".into(), "agreement", "verdict is \"safety\""),
    (
        "one changed verdict in both files",
        |f| {
            f.result["verdict"] = "safety".into();
            f.recapsule(|capsule| capsule.verdict = scenarios::runner::Verdict::Safety);
        },
        "verdict",
        "and not what is broken",
    ),
    ("a verdict that is none", |f| f.result["verdict"] = "fine".into(), "verdict", "there is no verdict `fine`"),
    (
        "an edited capsule",
        |f| f.capsule = f.capsule.replacen("seed = ", "seed = 1", 1),
        "capsule",
        "does not fit the digest",
    ),
    (
        "an edited capsule without its digest",
        |f| f.capsule = f.capsule.split_once('\n').expect("lines").1.to_owned(),
        "capsule",
        "is no digest",
    ),
    ("another seed", |f| f.recapsule(|capsule| capsule.seed ^= 1), "agreement", "seed is"),
    (
        "another price",
        |f| f.recapsule(|capsule| capsule.scenario.provider.price.output_per_mtok += 1_000_000),
        "calls",
        "by the provider's price",
    ),
    (
        "other caps",
        |f| f.recapsule(|capsule| capsule.scenario.caps.user_day.0 += 1),
        "terms",
        "level: UserDay, cap: 20000000 }), and the capsule says",
    ),
    ("a slot more", |f| f.recapsule(|capsule| capsule.scenario.caps.slots += 1), "terms", "and the capsule says"),
    (
        "no quota any more",
        |f| f.recapsule(|capsule| capsule.scenario.quota = None),
        "terms",
        "and the capsule does not say so",
    ),
    (
        "more users than there are",
        |f| f.recapsule(|capsule| capsule.scenario.sizes.agents_per_user = 1),
        "terms",
        "level: LedgerDay",
    ),
    (
        "less work",
        |f| f.recapsule(|capsule| drop(capsule.work.agents[0].remove(0))),
        "work",
        "the capsule has no such work",
    ),
    (
        "another user's work",
        |f| f.recapsule(|capsule| capsule.work.agents[0][0].user += 1),
        "work",
        "the capsule has no such work",
    ),
    ("a fault less", |f| f.recapsule(|capsule| drop(capsule.plan.faults.pop())), "agreement", "faults is"),
    ("another engine's counts", |f| f.result["stats"]["polls"] = 1.into(), "figures", "stats is"),
    ("an agent more", |f| f.result["agents"] = 99.into(), "agreement", "agents is 99"),
];

#[track_caller]
fn finds(what: &str, folder: &Folder, rule: &str, says: &str) {
    let checked = folder.check().unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(!checked.is_ok(), "{what} passes");
    let found = checked.checks.iter().find(|check| check.name == rule).expect("a rule");
    assert_eq!(found.status, Status::Failed, "{what}: {rule} holds; failed are {:?}", folder.broken());
    let told: Vec<String> =
        found.first.iter().map(|violation| format!("{}: {}", violation.place, violation.message)).collect();
    assert!(told.iter().any(|told| told.contains(says)), "{what}: {rule} does not say `{says}`, but {told:?}");
}

#[test]
fn each_way_of_tampering_is_found_by_its_rule() {
    assert!(SOUND.check().expect("it can be checked").is_ok(), "{:?}", SOUND.broken());
    for (what, tamper, rule, says) in FILES.into_iter().chain(WORDS) {
        let mut folder = SOUND.clone();
        tamper(&mut folder);
        finds(what, &folder, rule, says);
    }
}

#[test]
fn places_are_named_by_line_and_entry() {
    let mut folder = SOUND.clone();
    folder.lines(|lines| lines[41] = "{".to_owned());
    finds("a torn line", &folder, "log-lines", "events.jsonl:42: ");
    let mut folder = SOUND.clone();
    let mut told = folder.told();
    told[300].time_ns = 0;
    folder.retell(told);
    finds("an entry out of time", &folder, "history-entries", "history.log entry 300: ");
}

#[test]
fn each_changed_figure_is_found_by_its_name() {
    let figures = SOUND.result["figures"].as_object().expect("figures").clone();
    let mut changed = 0;
    for (name, value) in figures.iter().chain(
        ["events", "virtual_ns", "history_entries"]
            .map(|name| (name.to_owned(), SOUND.result[name].clone()))
            .iter()
            .map(|(n, v)| (n, v)),
    ) {
        let mut folder = SOUND.clone();
        let place = match folder.result["figures"].get(name) {
            Some(_) => &mut folder.result["figures"][name],
            None => &mut folder.result[name],
        };
        match (value.as_u64(), value.as_object()) {
            (Some(number), _) => *place = (number + 1).into(),
            (None, Some(_)) => place["reserve.over-cap"] = 1_000_000.into(),
            (None, None) => *place = 1.into(),
        }
        let checked = folder.check().expect("it can be checked");
        let row = checked.figures.iter().find(|figure| figure.name == *name).expect("a row a figure");
        assert_eq!(row.status, Status::Failed, "{name} may be changed unnoticed: {row:?}");
        changed += 1;
    }
    assert!(changed > 28, "only {changed} figures were changed");
    let mut folder = SOUND.clone();
    folder.result["figures"].as_object_mut().expect("figures").remove("kills");
    finds("a figure less", &folder, "figures", "kills is null");
    let mut folder = SOUND.clone();
    folder.result["figures"]["fame"] = 3.into();
    let checked = folder.check().expect("it can be checked");
    let row = checked.figures.iter().find(|figure| figure.name == "fame").expect("a row");
    assert!(row.not_derivable.as_ref().is_some_and(|why| why.contains("knows no figure of that name")), "{row:?}");
}

/// Every figure that a run has is worked out again in some run: none is only listed.
#[test]
fn every_figure_is_worked_out_again() {
    for figure in SOUND.check().expect("it can be checked").figures {
        let excused = ["wall_ns", "reached", "reached_sometimes"].contains(&figure.name.as_str());
        assert_eq!(figure.recomputed.is_none(), excused, "{figure:?}");
    }
}

#[test]
fn a_file_from_another_run_is_found() {
    let other = recorded("fleet", 1_000, &[]);
    let swaps: [(&str, Exchange, &str); 4] = [
        ("capsule.toml", |f, other| f.capsule.clone_from(&other.capsule), "agreement"),
        ("result.json", |f, other| f.result = other.result.clone(), "history-hash"),
        ("history.log", |f, other| f.history.clone_from(&other.history), "announced"),
        ("events.jsonl", |f, other| f.log.clone_from(&other.log), "announced"),
    ];
    for (file, swap, rule) in swaps {
        let mut folder = SOUND.clone();
        swap(&mut folder, &other);
        assert!(folder.broken().contains(&rule), "{file} of another run: {:?}", folder.broken());
    }
}

/// A failing run that is said to pass, and a passing one that is said to have broken something that the files would show.
#[test]
fn a_verdict_is_held_against_the_files() {
    use scenarios::runner::Verdict;
    let mut folder = recorded("contention", 5_097, &["check-after-call"]);
    assert_eq!(folder.verdict(), "safety");
    folder.result["verdict"] = "pass".into();
    folder.result.as_object_mut().expect("a result").remove("broken");
    folder.recapsule(|capsule| (capsule.verdict, capsule.broken) = (Verdict::Pass, None));
    finds("a failure that is said to pass", &folder, "verdict", "it is said to pass");

    for (verdict, says) in [("safety", "the files show nothing broken"), ("liveness", "")] {
        let mut folder = SOUND.clone();
        folder.result["verdict"] = verdict.into();
        folder.result["broken"] = serde_json::json!({ "invariant": "caps-hold", "message": "no", "time_ns": 1 });
        folder.recapsule(|capsule| {
            capsule.verdict = if verdict == "safety" { Verdict::Safety } else { Verdict::Liveness };
            capsule.broken =
                Some(scenarios::invariant::Broken { invariant: "caps-hold".into(), message: "no".into(), time_ns: 1 });
        });
        match says {
            "" => {
                assert!(!folder.check().expect("it can be checked").is_ok(), "a run that did not end is said to be ok")
            }
            says => finds("a pass that is said to fail", &folder, "verdict", says),
        }
    }
}

#[test]
fn what_is_no_run_folder_is_refused_with_a_remedy() {
    let above = tempfile::TempDir::new().expect("a folder");
    let refused = |says: &str| {
        let error = check(&above.path().join("run")).expect_err(says).to_string();
        assert!(error.contains(says), "`{error}` does not say `{says}`");
    };
    refused("give the folder of a recorded run");
    fs::write(above.path().join("run"), "").expect("writable");
    refused("is not a folder");
    fs::remove_file(above.path().join("run")).expect("removable");
    fs::create_dir(above.path().join("run")).expect("a folder");
    refused("a run's folder holds capsule.toml, history.log, events.jsonl and result.json");
    let put = |name: &str, text: &str| fs::write(above.path().join("run").join(name), text).expect("writable");
    put("capsule.toml", &SOUND.capsule);
    refused("result.json");
    put("result.json", "{\n\"scenario\": 3}");
    refused("result.json, line 2: ");
    put("result.json", &SOUND.result.to_string());
    put("capsule.toml", &SOUND.capsule.replacen("format = 1", "format = 7", 1));
    refused("format 7 is not known to this build");
    put("capsule.toml", "format = 1\nengine = ");
    refused("capsule.toml, line 2: ");
    put("capsule.toml", &SOUND.capsule);
    refused("history.log");
    put("history.log", "");
    refused("events.jsonl");
    put("events.jsonl", "");
    refused("nothing of the run can be checked");
    assert!(matches!(check(&above.path().join("run")), Err(CheckError::Nothing { .. })));
}
