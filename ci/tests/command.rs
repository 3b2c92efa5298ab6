//! The command from outside: exit codes, messages that say what to type, the shape of its data, and one hash for one run.
#![expect(clippy::disallowed_methods, reason = "the command is given files, and what it leaves is looked at")]

#[path = "command/files.rs"]
mod files;
#[path = "command/stamp.rs"]
mod stamp;

use serde_json::Value;
use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};
use tempfile::TempDir;

/// What one call of the command gave.
struct Said {
    exit: i32,
    out: String,
    err: String,
}

impl Said {
    fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error} in {}\n{}", self.out, self.err))
    }
}

/// Calls the command in a folder of its own.
fn shakedown(folder: &Path, arguments: &str) -> Said {
    let output = command(folder, arguments).output().expect("the command can be started");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("the command writes UTF-8");
    let exit = output.status.code().expect("the command ends by itself");
    Said { exit, out: text(output.stdout), err: text(output.stderr) }
}

fn command(folder: &Path, arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shakedown"));
    command.current_dir(folder).args(arguments.split_whitespace()).env_remove("COLUMNS").env_remove("CARGO");
    command
}

fn folder_with(files: &[(&str, &str)]) -> TempDir {
    let folder = TempDir::new().expect("a folder for the test");
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("a file is in a folder")).expect("a folder for the test");
        fs::write(path, text).expect("a file for the test");
    }
    folder
}

/// A refusal: the exit, what the message says among other things, nothing on standard output, and nothing left behind.
#[track_caller]
fn refuses(files: &[(&str, &str)], arguments: &str, exit: i32, says: &[&str]) {
    let folder = folder_with(files);
    let said = shakedown(folder.path(), arguments);
    assert_eq!(said.exit, exit, "`{arguments}` said:\n{}{}", said.out, said.err);
    for words in says {
        assert!(said.err.contains(words), "`{arguments}` does not say `{words}` but:\n{}", said.err);
    }
    assert_eq!(said.out, "", "`{arguments}` wrote data although it refused");
    assert!(!said.err.contains("panicked"), "`{arguments}` panicked:\n{}", said.err);
    for left in ["target", "out"] {
        assert!(
            !folder.path().join(left).exists() || files.iter().any(|(file, _)| file.starts_with(left)),
            "`{arguments}` left {left}/"
        );
    }
}

#[test]
fn bad_usage_is_answered_with_what_to_type() {
    for (arguments, says) in [
        ("sail", "unrecognized subcommand 'sail'"),
        ("run", "<SCENARIO>"),
        ("run armada", "there is no scenario `armada`"),
        ("run fleat", "did you mean `fleet`?"),
        ("run fleet --seed -1", "a whole number from 0 to 18446744073709551615"),
        ("run fleet --seed 18446744073709551616", "a whole number from 0 to 18446744073709551615"),
        ("run fleet --agents 0", "from 1 to 65536"),
        ("run fleet --agents 99999999999999999999", "from 1 to 65536"),
        ("run fleet --agents many", "from 1 to 65536"),
        ("run fleet --for 0s", "from 1s to 1000h"),
        ("run fleet --for 9999999h", "from 1s to 1000h"),
        ("run fleet --for soon", "write a time such as 90s"),
        ("run fleet --bug skip-fense", "did you mean `skip-fence`?"),
        ("run fleet --bug gremlin", "`list` names them"),
        ("run fleet --store tape", "possible values: memory, redb"),
        ("run fleet --engine steam", "possible values: native, real"),
        ("run fleet --format yaml", "possible values: text, json"),
        ("run fleet --format csv", "possible values: text, json"),
        ("report --format yaml", "possible values: text, markdown, csv, json"),
        ("--format csv run fleet", "only `report` writes a table; give --format text or --format json"),
        ("list --format markdown", "possible values: text, json"),
        ("run fleet --agents-per-user 0", "from 1 to 65536"),
        ("run fleet --engine real --plan swarm", "--plan none"),
        ("run fleet --plan nowhere.toml", "nowhere.toml cannot be read; give a file, `swarm` or `none`"),
        ("run nowhere.toml", "nowhere.toml"),
        ("gate armada", "there is no scenario `armada`"),
        ("gate --seeds 5", "such as 0..200"),
        ("gate --seeds 5..5", "such as 0..200"),
        ("gate --seeds 9..5", "such as 0..200"),
        ("gate --seeds 0..99999999999", "at most 10000000 seeds"),
        ("gate --jobs 0", "a number of jobs from 1 to 1024"),
        ("gate --jobs 99999", "a number of jobs from 1 to 1024"),
        ("gate --jobs -1", "a number of jobs from 1 to 1024"),
        ("gate --jobs all", "a number of jobs from 1 to 1024"),
        ("gate --partition 3/2", "such as 1/4"),
        ("gate --partition 0/2", "such as 1/4"),
        ("gate --budget soon", "--budget"),
        ("gate --junit nowhere/gate.xml", "a folder that exists"),
        ("report --budget soon", "--budget"),
        ("check", "<RUN_DIR>"),
        ("check nowhere", "give the folder of a recorded run"),
    ] {
        refuses(&[], arguments, 2, &[says]);
    }
}

#[test]
fn files_that_make_no_sense_are_refused_with_where_and_why() {
    let scenario = include_str!("../../scenarios/catalogue/fleet.toml");
    let truncated = &scenario[..scenario.len() / 2];
    let future = scenario.replacen("format = 1", "format = 99", 1);
    let unknown_field = format!("surprise = 1\n{scenario}");
    for (text, says) in [
        ("", "own.toml"),
        ("\u{0}\u{1}\u{2}", "own.toml"),
        (truncated, "own.toml"),
        (&future, "format 99"),
        (&unknown_field, "surprise"),
    ] {
        refuses(&[("own.toml", text)], "run own.toml", 2, &[says]);
        refuses(&[("own.toml", text)], "gate own.toml", 2, &[says]);
    }
    for (text, says) in [
        ("", "plan.toml"),
        ("format = ", "plan.toml"),
        ("format = 99", "plan format 99 is not known"),
        ("format = 1\n[[faults]]\nat = 3", "plan.toml"),
        (
            "format = 1\n[[faults]]\nat = { time = \"1s\" }\nfault = { loss = { ppm = 2000000 } }\ntarget = \"all\"\nfor = \"1s\"",
            "fault 1",
        ),
        (
            "format = 1\n[[faults]]\nat = { time = \"1s\" }\nfault = \"kill\"\ntarget = { node = \"agent-99\" }\nfor = \"1s\"",
            "agent-99",
        ),
    ] {
        refuses(&[("plan.toml", text)], "run fleet --plan plan.toml --out out", 2, &[says]);
    }
    for (text, says) in [
        ("", "caps.toml is not a caps file"),
        ("format = 3", "caps format 3, and this build reads format 1"),
        ("format = 1\n[caps]\nrum = 5", "line 3, column 1"),
        ("format = 1\n[caps]\nslots = 0", "0 is out of range; it is 1 to 1000000"),
        ("format = 1\n[edge]\nper_key = 5", "edge.per_address"),
        ("format = 1\n[[change]]\nat = \"1s\"\nlevel = \"unti\"\nto = 5", "unknown variant `unti`"),
    ] {
        refuses(&[("caps.toml", text)], "run stampede --caps caps.toml --out out", 2, &["caps.toml", says]);
        refuses(&[("caps.toml", text)], "gate stampede --caps caps.toml", 2, &["caps.toml", says]);
    }
    refuses(&[], "run fleet --caps nowhere.toml", 2, &["the caps file nowhere.toml cannot be read"]);
}

/// Caps from a file are in the capsule, so that it plays the same without the file.
#[test]
fn caps_from_a_file_bind_and_are_kept_with_the_run() {
    let folder = folder_with(&[("caps.toml", "format = 1\n[caps]\nuser_day = 30_000_000\n")]);
    let said = shakedown(folder.path(), "run contention --plan none --caps caps.toml --out out --format json");
    assert_eq!((said.exit, &said.json()["figures"]["reserves_admitted"]), (0, &3.into()), "{}", said.err);
    fs::remove_file(folder.path().join("caps.toml")).expect("it was there");
    let capsule = fs::read_to_string(folder.path().join("out/capsule.toml")).expect("a capsule");
    assert!(capsule.contains("user_day = 30000000"), "{capsule}");
    let again = shakedown(folder.path(), "repro out/capsule.toml");
    assert_eq!(again.exit, 0, "{}{}", again.out, again.err);
}

#[test]
fn a_bad_trace_is_refused_at_its_line_and_column_and_leaves_no_folder() {
    const HEAD: &str = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n";
    for (text, says) in [
        ("", "line 1"),
        (HEAD, "line 2"),
        ("TIMESTAMP,ContextTokens\r\n2023-11-16 18:17:03.9799600,4808\r\n", "GeneratedTokens"),
        (&format!("{HEAD}2023-11-16 18:17:03.9799600,-1,10"), "line 2, column 29"),
        (&format!("{HEAD}2023-11-16 18:17:03.9799600,4808,ten"), "line 2, column 34"),
        (&format!("{HEAD}2023-11-16 18:17:03.9799600,4808"), "line 2, column"),
        (&format!("{HEAD}2023-11-31 18:17:03.9799600,4808,10"), "line 2, column 1"),
        (&format!("{HEAD}yesterday,4808,10"), "line 2, column 1"),
        (&format!("{HEAD}2023-11-16 18:17:04.0000000,1,1\r\n2023-11-16 18:17:03.0000000,1,1"), "line 3, column 1"),
    ] {
        refuses(&[("trace.csv", text)], "run fleet --arrivals trace.csv --out out", 2, &["trace.csv", says]);
    }
    refuses(&[], "run fleet --arrivals nowhere.csv", 2, &["nowhere.csv cannot be read"]);
    let trace = format!("{HEAD}2023-11-16 18:17:03.9799600,4808,10");
    refuses(&[("trace.csv", &trace)], "run contention --arrivals trace.csv", 2, &["plays no arrival trace"]);
}

#[test]
fn a_folder_that_holds_something_is_not_written_into() {
    refuses(&[("out/letter.txt", "dear")], "run fleet --out out", 2, &["out is not empty", "--out"]);
    refuses(&[("out", "a file")], "run fleet --out out", 2, &["out is not a folder", "--out"]);
    refuses(&[], "run fleet --out .", 2, &["no name of its own", "--out"]);
    refuses(&[("above", "a file")], "run fleet --out above/out", 2, &["--out"]);
}

#[test]
fn a_capsule_that_cannot_be_played_is_125() {
    let folder = folder_with(&[]);
    let run = shakedown(folder.path(), "run contention --seed 3 --plan none --out kept");
    assert_eq!(run.exit, 0, "{}{}", run.out, run.err);
    let capsule = fs::read_to_string(folder.path().join("kept/capsule.toml")).expect("the run left its capsule");
    let again = shakedown(folder.path(), "repro kept/capsule.toml --format json");
    assert_eq!((again.exit, &again.json()["outcome"]), (0, &Value::from("passes")), "{}{}", again.out, again.err);
    assert_eq!(again.json()["same_history"], Value::from(true));
    for text in [
        "",
        "\u{0}",
        &capsule[..capsule.len() / 2],
        &capsule.replacen("format = 1", "format = 99", 1),
        &capsule.replacen("seed = 3", "seed = \"three\"", 1),
        &capsule.replacen("bugs = []", "bugs = [\"gremlin\"]", 1),
    ] {
        refuses(&[("capsule.toml", text)], "repro capsule.toml", 125, &["capsule"]);
    }
    refuses(&[], "repro nowhere.toml", 125, &["nowhere.toml"]);
}

#[test]
fn a_failing_run_is_kept_and_its_repro_follows_the_code() {
    let folder = folder_with(&[]);
    let failed = shakedown(folder.path(), "run contention --seed 1 --bug check-after-call --plan none --format json");
    assert_eq!(failed.exit, 1, "{}{}", failed.out, failed.err);
    let object = failed.json();
    assert_eq!(object["verdict"], "safety");
    let hash = object["history_hash"].as_str().expect("a run has a history hash");
    let kept = format!("target/shakedown/contention-1-{}", &hash[..8]);
    assert_eq!(object["folder"], kept.as_str());
    let repro = object["repro"].as_str().expect("a failing run says how it is played again");
    let (binary, arguments) = repro.split_once(' ').expect("a command has arguments");
    assert_eq!(binary, env!("CARGO_BIN_EXE_shakedown"));
    assert_eq!(arguments, format!("repro {kept}/capsule.toml"));
    let same = shakedown(folder.path(), &format!("{arguments} --format json"));
    assert_eq!((same.exit, &same.json()["outcome"]), (1, &Value::from("same")), "{}{}", same.out, same.err);
    assert_eq!(same.json()["history_hash"], object["history_hash"]);
    for file in ["capsule.toml", "history.log", "events.jsonl", "result.json"] {
        assert!(folder.path().join(&kept).join(file).is_file(), "{file} is missing");
    }
    let path = folder.path().join(&kept).join("capsule.toml");
    let mended =
        fs::read_to_string(&path).expect("the capsule").replacen("bugs = [\"check-after-call\"]", "bugs = []", 1);
    fs::write(&path, &mended).expect("the capsule can be changed");
    let damaged = shakedown(folder.path(), arguments);
    assert_eq!(damaged.exit, 125, "{}{}", damaged.out, damaged.err);
    assert!(damaged.err.contains("remove its first line"), "{}", damaged.err);
    let (_digest, mended) = mended.split_once('\n').expect("a capsule has lines");
    fs::write(&path, mended).expect("the capsule can be changed");
    let gone = shakedown(folder.path(), &format!("{arguments} --format json"));
    assert_eq!((gone.exit, &gone.json()["outcome"]), (0, &Value::from("gone")), "{}{}", gone.out, gone.err);
}

#[test]
fn one_spec_has_one_hash_in_any_process_and_at_any_jobs() {
    let folder = folder_with(&[]);
    let run = |seed: u64| {
        let said = shakedown(folder.path(), &format!("run fleet --agents 6 --for 1m --seed {seed} --format json"));
        said.json()
    };
    let (first, second) = (run(7), run(7));
    for key in [
        "scenario",
        "seed",
        "agents",
        "engine",
        "verdict",
        "history_hash",
        "events",
        "virtual_ns",
        "wall_ns",
        "figures",
    ] {
        assert!(!first[key].is_null(), "a run's object has no `{key}`: {first}");
    }
    assert_eq!(first["history_hash"], second["history_hash"]);
    assert_ne!(first["history_hash"], run(8)["history_hash"]);
    for jobs in [1, 2, 4] {
        let gate = format!("gate fleet --agents 6 --for 1m --seeds 5..9 --jobs {jobs} --format json");
        let gate = shakedown(folder.path(), &gate).json();
        let results = gate["results"].as_array().expect("a gate has results");
        let seeds: Vec<u64> = results.iter().filter_map(|result| result["seed"].as_u64()).collect();
        assert_eq!(seeds, [5, 6, 7, 8], "at {jobs} jobs");
        assert_eq!(results[2]["history_hash"], first["history_hash"], "at {jobs} jobs");
        for key in ["runs", "failed", "wall_ns", "runs_per_s", "virtual_hours_per_wall_hour", "seeds", "doubled"] {
            assert!(!gate[key].is_null(), "a gate's object has no `{key}`: {gate}");
        }
    }
}

#[test]
fn a_gate_plays_its_part_and_writes_junit() {
    let folder = folder_with(&[]);
    let arguments = "gate contention --seeds 0..8 --partition 1/2 --bug check-after-call --plan none --junit gate.xml";
    let said = shakedown(folder.path(), &format!("{arguments} --format json"));
    assert_eq!(said.exit, 1, "{}", said.err);
    let gate = said.json();
    let results = gate["results"].as_array().expect("a gate has results");
    assert_eq!((gate["runs"].as_u64(), gate["dealt"].as_u64(), results.len()), (Some(4), Some(4), 4));
    let repros =
        results.iter().filter(|result| result["verdict"] != "pass").filter_map(|result| result["repro"].as_str());
    assert_eq!(repros.count() as u64, gate["failed"].as_u64().expect("a gate counts"));
    assert_eq!(gate["doubled"], gate["failed"], "every failure was played twice");
    let failed = results.iter().find(|result| result["verdict"] != "pass").expect("check-after-call is caught");
    let (binary, rerun) = failed["repro"].as_str().and_then(|repro| repro.split_once(' ')).expect("a command");
    assert_eq!(binary, env!("CARGO_BIN_EXE_shakedown"));
    let again = shakedown(folder.path(), &format!("{rerun} --format json"));
    assert_eq!((again.exit, &again.json()["history_hash"]), (1, &failed["history_hash"]), "{rerun}: {}", again.err);
    let xml = fs::read_to_string(folder.path().join("gate.xml")).expect("the JUnit file");
    assert!(xml.starts_with("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites "), "{xml}");
    assert_eq!((xml.matches("<testcase ").count(), xml.matches("</testsuite>").count()), (4, 1), "{xml}");
    assert_eq!(xml.matches("<failure ").count() as u64, gate["failed"].as_u64().expect("a gate counts"), "{xml}");
    let other = shakedown(folder.path(), &format!("{} --format json", arguments.replace("1/2", "2/2"))).json();
    let seeds = |gate: &Value| -> Vec<u64> {
        gate["results"].as_array().into_iter().flatten().filter_map(|result| result["seed"].as_u64()).collect()
    };
    let mut both = [seeds(&gate), seeds(&other)].concat();
    both.sort_unstable();
    assert_eq!(both, [0, 1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn a_name_that_two_scenarios_share_is_refused() {
    let folder = folder_with(&[]);
    let said = shakedown(folder.path(), "gate contention contention --seeds 0..2");
    assert_eq!((said.exit, said.err.contains("`contention`")), (2, true), "{}{}", said.out, said.err);
}

#[test]
fn a_failure_that_cannot_be_kept_is_told_all_the_same() {
    let folder = folder_with(&[("target", "")]);
    for command in ["run contention --seed 1", "gate contention --seeds 0..4"] {
        let said = shakedown(folder.path(), &format!("{command} --bug check-after-call --plan none"));
        assert_eq!(said.exit, 1, "{}{}", said.out, said.err);
        assert!(said.out.contains("caps-hold") && said.err.contains("warning"), "{}{}", said.out, said.err);
    }
}

#[test]
fn a_spent_budget_is_said() {
    let folder = folder_with(&[]);
    let said = shakedown(folder.path(), "gate --seeds 0..10 --budget 0s");
    assert_eq!(said.exit, 2, "what was not played does not pass: {}{}", said.out, said.err);
    assert!(said.err.contains("nothing was played"), "{}", said.err);
    assert!(said.out.contains("the budget of 0s was spent: 0 of 10 were played"), "{}", said.out);
    let report = shakedown(folder.path(), "report --budget 0s --format json");
    assert_eq!(report.exit, 0, "{}", report.err);
    let lines = report.json()["lines"].as_array().cloned().expect("a table has lines");
    assert!(lines.iter().all(|line| line["status"] == "not-measured"), "{}", report.out);
    assert!(report.out.contains("did not fit into the budget of 0s"), "{}", report.out);
}

#[test]
fn the_table_is_written_in_every_format_and_kept_beside_its_plots() {
    let folder = folder_with(&[]);
    for (format, begins) in [
        ("text", "| what "),
        ("markdown", "| what | number | measured over | status |\n|---|"),
        ("csv", "row,figure,under,rung,what,number,"),
    ] {
        let said = shakedown(folder.path(), &format!("report --budget 0s --out kept --format {format}"));
        assert_eq!(said.exit, 0, "{}", said.err);
        assert!(said.out.starts_with(begins) && said.out.contains("NOT MEASURED"), "{format}: {}", said.out);
    }
    for file in ["table.md", "table.csv"] {
        assert!(folder.path().join("kept").join(file).is_file(), "{file} is missing");
    }
    refuses(&[("out", "a file")], "report --budget 0s --out out", 2, &["--out: out cannot be written", "above it"]);
}

#[test]
fn a_record_that_was_edited_is_named_and_never_passes() {
    let seal = "0".repeat(64);
    let edited = format!("{{\"format\":2,\"row\":\"C3\",\"seal\":\"{seal}\"}}\n");
    let folder = folder_with(&[("records.jsonl", &edited)]);
    let said = shakedown(folder.path(), "report --budget 0s --records records.jsonl --out out");
    assert_eq!(said.exit, 0, "{}", said.err);
    assert!(said.out.contains("line 1 of the records was not used: it does not fit its seal"), "{}", said.out);
    assert!(!said.out.contains("pass"), "{}", said.out);
    let letter = [("letter", "Dear all,\n\nit floats.\n")];
    let says = ["letter cannot be read; give another file with --records", "it holds something else"];
    refuses(&letter, "report --budget 1s --records letter --out out", 2, &says);
    refuses(
        &[],
        "report --budget 1s --records /dev/zero --out out",
        2,
        &["/dev/zero cannot be read", "no regular file"],
    );
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let folder = folder_with(&[]);
    for arguments in ["list", "list --format json", "--help", "run contention --plan none"] {
        let mut child = command(folder.path(), arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command can be started");
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("the command ends");
        assert_eq!(output.status.code(), Some(0), "`{arguments}`: {}", String::from_utf8_lossy(&output.stderr));
        assert!(output.stderr.is_empty(), "`{arguments}`: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn everything_is_listed() {
    let folder = folder_with(&[]);
    let list = shakedown(folder.path(), "list --format json").json();
    for kind in ["scenarios", "workloads", "engines", "stores", "faults", "invariants", "sometimes", "bugs", "rows"] {
        let names = list[kind].as_array().unwrap_or_else(|| panic!("no {kind} are listed"));
        assert!(
            names.iter().all(|named| named["summary"].as_str().is_some_and(|summary| !summary.is_empty())),
            "{kind}"
        );
        assert!(!names.is_empty(), "{kind}");
    }
}

#[test]
#[expect(clippy::print_stdout, reason = "a test that is skipped says so")]
fn the_published_trace_is_served_whole() {
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/traces/azure-llm-code-2023.csv");
    if !trace.is_file() {
        println!("skipped: there is no trace at {}", trace.display());
        return;
    }
    let folder = folder_with(&[]);
    let arguments = format!("run fleet --arrivals {}", trace.display());
    let said = shakedown(folder.path(), &format!("{arguments} --format json"));
    let figures = &said.json()["figures"];
    assert_eq!(said.exit, 0, "{}{}", said.out, said.err);
    assert_eq!((figures["arrivals"].as_u64(), figures["calls_served"].as_u64()), (Some(8_819), Some(8_819)));
    let said = shakedown(folder.path(), &arguments);
    assert!(said.out.contains("8,819 of 8,819"), "{}", said.out);
}

#[test]
fn help_reads_as_it_did() {
    let folder = folder_with(&[]);
    for subcommand in ["", "report", "list", "run", "gate", "repro", "show", "check"] {
        let said = shakedown(folder.path(), &format!("{subcommand} --help"));
        assert_eq!(said.exit, 0, "{}", said.err);
        let name = if subcommand.is_empty() { "help.txt".to_owned() } else { format!("help-{subcommand}.txt") };
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("ci/golden").join(&name);
        if std::env::var_os("SHAKEDOWN_BLESS").is_some() {
            fs::write(&path, &said.out).expect("the golden file can be written");
        }
        let expected = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            said.out == expected,
            "{name} is not as it was; if it shall be so, run with SHAKEDOWN_BLESS=1. Found:\n{}",
            said.out
        );
    }
}

#[test]
fn a_saved_plan_plays_to_the_same_history() {
    let folder = TempDir::new().expect("a folder for the test");
    let drawn = shakedown(folder.path(), "run crash --seed 11 --save-plan plan.toml --format json");
    assert_eq!(drawn.exit, 0, "{}", drawn.err);
    let text = fs::read_to_string(folder.path().join("plan.toml")).expect("a plan");
    assert!(text.contains("[[faults]]"), "{text}");
    let given = shakedown(folder.path(), "run crash --seed 11 --plan plan.toml --format json");
    assert_eq!(given.json()["history_hash"], drawn.json()["history_hash"]);
    assert_eq!(given.json()["reached_sometimes"], drawn.json()["reached_sometimes"]);
    refuses(&[], "run crash --save-plan nowhere/plan.toml", 2, &["a folder that exists"]);
}

#[test]
fn a_kept_run_is_shown_entry_by_entry() {
    let folder = folder_with(&[]);
    let run = shakedown(folder.path(), "run contention --seed 1 --bug check-after-call --plan none --out kept");
    assert_eq!(run.exit, 1, "{}", run.err);
    let shown = shakedown(folder.path(), "show kept");
    assert_eq!(shown.exit, 0, "{}", shown.err);
    // A reservation is numbered after the record that made it.
    let mut reserved = shown.out.lines().filter(|line| line.contains(r#""Reserved":{""#)).map(|line| {
        let number =
            |from: &str| line.split_once(from)?.1.trim_start().split([',', ' ', '}']).next()?.parse::<u64>().ok();
        (number("ledger/0      record"), number(r#""reservation":"#))
    });
    assert!(reserved.nth(10).is_some_and(|(record, id)| record.is_some() && record == id), "{}", shown.out);
    let lines = shakedown(folder.path(), "show kept --format json").out;
    let first: Value = serde_json::from_str(lines.lines().next().expect("a history has entries")).expect("JSON lines");
    assert_eq!((&first["node"], &first["saw"]), (&Value::from("ledger"), &Value::from("up")));
    assert_eq!(lines.lines().count(), shown.out.lines().count());
    let history = fs::read(folder.path().join("kept/history.log")).expect("the run left its history");
    fs::write(folder.path().join("kept/history.log"), &history[..history.len() - 1]).expect("it can be cut short");
    let cut = shakedown(folder.path(), "show kept");
    assert_eq!((cut.exit, cut.err.contains("kept/history.log is damaged")), (2, true), "{}", cut.err);
    refuses(&[], "show nowhere", 2, &["nowhere/history.log cannot be read; give the folder of a kept run"]);
    fs::write(folder.path().join("kept/history.log"), &history).expect("it can be written back");
    fs::remove_file(folder.path().join("kept/capsule.toml")).expect("the run left its capsule");
    let unnamed = shakedown(folder.path(), "show kept");
    assert_eq!((unnamed.exit, unnamed.err.contains("kept/capsule.toml")), (0, true), "{}", unnamed.err);
    assert!(unnamed.out.contains("node-3/0"), "{}", unnamed.out);
}

/// Second processes and trespassers were shown as agents past the last one, which are in no plan and in no list of work.
#[test]
fn a_kept_run_names_second_processes_and_trespassers() {
    let plan = "format = 1\n[[faults]]\nat = { time = \"10s\" }\nfault = \"double-start\"\ntarget = { node = \"agent-1\" }\nfor = \"1m\"\n";
    let folder = folder_with(&[("twice.toml", plan)]);
    let run = shakedown(folder.path(), "run partition --seed 5 --plan twice.toml --out kept");
    assert_eq!(run.exit, 0, "{}", run.err);
    let shown = shakedown(folder.path(), "show kept --format json").out;
    let node = |line: &str| serde_json::from_str::<Value>(line).expect("JSON lines")["node"].clone();
    let names: std::collections::BTreeSet<String> =
        shown.lines().map(|line| node(line).as_str().expect("a name").to_owned()).collect();
    let agents = names.iter().filter(|name| name.starts_with("agent-") && !name.ends_with("-again")).count();
    assert!(names.contains("agent-1-again") && names.contains("trespasser-0"), "{names:?}");
    assert!(agents > 1 && names.contains(&format!("agent-{}", agents - 1)), "{names:?}");
    assert!(!names.iter().any(|name| name.starts_with("node-")), "{names:?}");
}
