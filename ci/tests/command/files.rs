//! Files that the command is given and files that it leaves: whole, where they were asked for, and never over what it reads.

use super::{command, folder_with, refuses, shakedown};
use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    process::{Command, Output, Stdio},
    thread,
};

/// A gate that passes, and one that fails.
const PASSES: &str = "gate contention --seeds 0..2 --plan none";
const FAILS: &str = "gate contention --seeds 0..2 --plan none --bug check-after-call";

/// A shell's line in a folder, in which `$S` is the command.
fn shell(folder: &Path, line: &str) -> Output {
    let mut shell = Command::new("sh");
    shell.current_dir(folder).args(["-c", line]).env("S", env!("CARGO_BIN_EXE_shakedown"));
    shell.output().expect("there is a shell")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[cfg(unix)]
#[test]
fn what_is_no_regular_file_is_written_through_and_a_link_is_followed() {
    use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _, symlink};
    let folder = folder_with(&[("deep/old.xml", "old"), ("closed.xml", "old")]);
    let at = |name: &str| folder.path().join(name);
    assert!(shell(folder.path(), "mkfifo pipe").status.success(), "a pipe can be made");
    symlink("deep/old.xml", at("link.xml")).expect("a link");
    symlink("deep/new.xml", at("dangling.xml")).expect("a link");
    fs::set_permissions(at("closed.xml"), fs::Permissions::from_mode(0o600)).expect("it is ours");
    let pipe = at("pipe");
    let reader = thread::spawn(move || fs::read_to_string(pipe));
    for file in ["pipe", "link.xml", "dangling.xml", "closed.xml", "fresh.xml"] {
        let gate = shell(folder.path(), &format!("umask 027; exec \"$S\" {PASSES} --junit {file}"));
        assert_eq!(gate.status.code(), Some(0), "{file}: {}", said(&gate));
    }
    assert!(fs::metadata(at("pipe")).expect("still there").file_type().is_fifo(), "else its reader waits for ever");
    let read = reader.join().expect("the reader ends").expect("the pipe can be read");
    assert!(read.ends_with("</testsuites>\n"), "{read}");
    for (link, leads_to) in [("link.xml", "deep/old.xml"), ("dangling.xml", "deep/new.xml")] {
        assert!(at(link).is_symlink(), "{link} is a link as before");
        assert!(fs::read_to_string(at(leads_to)).expect("written").ends_with("</testsuites>\n"), "{leads_to}");
    }
    let mode = |name: &str| fs::metadata(at(name)).expect("written").permissions().mode() & 0o777;
    assert_eq!((mode("fresh.xml"), mode("deep/new.xml"), mode("closed.xml")), (0o640, 0o640, 0o600));
    let report = shell(folder.path(), "umask 022; exec \"$S\" report --budget 0s --out kept");
    assert_eq!(report.status.code(), Some(0), "{}", said(&report));
    assert_eq!(mode("kept/table.md"), 0o644);
    let left: Vec<String> = fs::read_dir(folder.path())
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with('.'))
        .collect();
    assert_eq!(left, [""; 0], "nothing is left beside the files");
}

/// A safety failure once left with 2 when its JUnit file met a full disk, which CI reads as bad usage.
#[cfg(target_os = "linux")]
#[test]
fn a_verdict_outlives_a_full_disk() {
    let folder = folder_with(&[]);
    let full = "trap '' XFSZ; ulimit -f 0; exec \"$S\""; // no file takes a byte, and the signal is not heard
    for (arguments, exit) in [(FAILS, 1), (PASSES, 2)] {
        let gate = shell(folder.path(), &format!("{full} {arguments} --junit gate.xml"));
        assert_eq!(gate.status.code(), Some(exit), "{arguments}: {}", said(&gate));
        assert!(said(&gate).contains("--junit: gate.xml cannot be written: File too large"), "{}", said(&gate));
        assert!(String::from_utf8_lossy(&gate.stdout).contains("runs of seeds 0..2"), "what was played is told");
    }
    let kept = shakedown(folder.path(), "run contention --seed 1 --bug check-after-call --plan none --out kept");
    assert_eq!(kept.exit, 1, "{}", kept.err);
    for (arguments, exit) in [
        (FAILS, 1),
        ("run contention --seed 1 --bug check-after-call --plan none", 1),
        ("run contention --seed 1 --plan none", 2),
        ("repro kept", 1),
        ("check kept", 1),
        ("list", 2),
    ] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("a device that is always full");
        let output = command(folder.path(), arguments).stdout(Stdio::from(full)).output().expect("it can be started");
        assert_eq!(output.status.code(), Some(exit), "{arguments}: {}", said(&output));
        assert!(said(&output).contains("standard output cannot be written"), "{arguments}: {}", said(&output));
    }
}

#[test]
fn a_plan_is_never_saved_over_what_the_run_reads_or_what_is_no_plan() {
    let scenario = include_str!("../../../scenarios/catalogue/contention.toml");
    let plan = "format = 1\n# mine\n";
    let trace = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,48,10\n";
    let caps = "format = 1\nchange = []\n";
    let files =
        [("own.toml", scenario), ("plan.toml", plan), ("caps.toml", caps), ("trace.csv", trace), ("letter", "dear")];
    let other = "own.toml is an input of this run";
    for (arguments, says) in [
        ("run own.toml --save-plan own.toml", other),
        ("run own.toml --save-plan deep/../own.toml", "deep/../own.toml is own.toml, an input of this run"),
        ("run contention --plan plan.toml --save-plan plan.toml", "plan.toml is an input of this run"),
        ("run fleet --arrivals trace.csv --save-plan trace.csv", "trace.csv is an input of this run"),
        ("run contention --save-plan letter", "letter is there and is not a plan"),
        ("run contention --caps caps.toml --save-plan caps.toml", "caps.toml is an input of this run"),
        ("gate own.toml --seeds 0..2 --junit own.toml", other),
        ("gate contention --seeds 0..2 --plan plan.toml --junit plan.toml", "plan.toml is an input of this run"),
        ("gate contention --seeds 0..2 --caps caps.toml --junit caps.toml", "caps.toml is an input of this run"),
    ] {
        let folder = folder_with(&files);
        fs::create_dir(folder.path().join("deep")).expect("a folder");
        let refused = shakedown(folder.path(), arguments);
        assert_eq!((refused.exit, refused.out.as_str()), (2, ""), "{arguments}: {}", refused.err);
        assert!(refused.err.contains(says) && refused.err.contains("give --"), "{arguments}: {}", refused.err);
        for (name, text) in files {
            assert_eq!(
                fs::read_to_string(folder.path().join(name)).expect("there"),
                text,
                "{arguments} changed {name}"
            );
        }
    }
    let folder = folder_with(&[("old.toml", plan), ("empty.toml", "")]);
    for file in ["old.toml", "empty.toml"] {
        let saved = shakedown(folder.path(), &format!("run contention --seed 4 --plan swarm --save-plan {file}"));
        assert_eq!(saved.exit, 0, "{}", saved.err);
        assert_ne!(fs::read_to_string(folder.path().join(file)).expect("a plan"), plan);
    }
}

#[cfg(unix)]
#[test]
fn a_folder_that_cannot_be_is_found_out_before_the_run_and_named() {
    let folder = folder_with(&[("letter", "dear")]);
    let at = |name: &str| folder.path().join(name);
    std::os::unix::fs::symlink("nowhere", at("dangling")).expect("a link");
    std::os::unix::fs::symlink("room", at("link")).expect("a link");
    fs::create_dir(at("room")).expect("a folder");
    for (arguments, says) in [
        ("run contention --plan none --out dangling", "dangling is a link to nowhere, where nothing is"),
        ("run contention --plan none --out dangling/kept", "--out: dangling/kept cannot be written: "),
        ("run contention --plan none --out letter/kept", "--out: letter/kept cannot be written: Not a directory"),
        ("report --out letter", "--out: letter cannot be written: "),
        ("report --out dangling", "--out: dangling cannot be written: "),
    ] {
        let refused = shakedown(folder.path(), arguments);
        assert_eq!((refused.exit, refused.out.as_str()), (2, ""), "{arguments}: {}", refused.err);
        assert!(refused.err.contains(says), "{arguments}: {}", refused.err);
        assert!(!refused.err.contains("partial") && !refused.err.contains("room"), "{arguments}: {}", refused.err);
    }
    let full = "trap '' XFSZ; ulimit -f 0; exec \"$S\" run contention --plan none --out full";
    let refused = shell(folder.path(), full);
    assert_eq!((refused.status.code(), refused.stdout.len()), (Some(2), 0), "{}", said(&refused));
    assert!(said(&refused).contains("--out: full cannot be written: ") && said(&refused).contains("a disk with room"));
    for out in ["deep/er/kept", "link"] {
        let kept = shakedown(folder.path(), &format!("run contention --plan none --out {out}"));
        assert_eq!(kept.exit, 0, "{}", kept.err);
        let mut names: Vec<String> = fs::read_dir(at(out))
            .expect("the run's folder")
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        assert_eq!(names, ["capsule.toml", "events.jsonl", "history.log", "result.json"], "{out}");
    }
    assert!(at("link").is_symlink() && at("room/capsule.toml").is_file());
}

/// A folder goes by the history's hash, and one that was there was once taken for the run's without a look.
#[test]
fn a_failing_run_is_not_said_to_be_kept_where_another_is() {
    let folder = folder_with(&[]);
    let run = "run contention --seed 1 --bug check-after-call --plan none --format json";
    let kept_in = || {
        let said = shakedown(folder.path(), run);
        assert_eq!(said.exit, 1, "{}", said.err);
        (said.json()["folder"].as_str().expect("it is kept").to_owned(), said.err)
    };
    let (first, err) = kept_in();
    assert_eq!(err, "");
    assert_eq!(kept_in(), (first.clone(), String::new()), "the same run is kept once");
    for (file, other) in [("capsule.toml", "another"), ("history.log", "")] {
        let path = folder.path().join(&first).join(file);
        let own = fs::read(&path).expect("kept");
        fs::write(&path, other).expect("it can be changed");
        let (second, err) = kept_in();
        assert_eq!(second, format!("{first}-2"), "{file}");
        assert!(err.contains(&format!("{first} holds something else")), "{file}: {err}");
        assert_eq!(fs::read(folder.path().join(&second).join(file)).expect("kept"), own, "{file}");
        assert_eq!(fs::read(&path).expect("there"), other.as_bytes(), "what is there is left alone");
        fs::remove_dir_all(folder.path().join(second)).expect("it is ours");
        fs::write(&path, own).expect("it can be changed back");
    }
    fs::remove_dir_all(folder.path().join(&first)).expect("it is ours");
    fs::write(folder.path().join(&first), "a file").expect("written");
    assert_eq!(kept_in().0, format!("{first}-2"), "a file is in the way");
}

#[test]
fn messages_say_what_to_write() {
    let plan = |fault: &str, target: &str, lasts: &str| {
        format!("format = 1\n[[faults]]\nat = {{ time = \"1s\" }}\nfault = {fault}\ntarget = {target}\nfor = {lasts}\n")
    };
    for (text, says) in [
        (plan("\"loss\"", "\"all\"", "\"1s\""), "write such as fault = { loss = { ppm = 1000 } }"),
        (plan("\"kill\"", "{ link = [\"ledger\"] }", "\"1s\""), "{ link = [\"agent-0\", \"ledger\"] }"),
        (plan("\"kill\"", "\"all\"", "3"), "a time in quotes, such as \"3m\""),
        (plan("\"kill\"", "{ node = \"agent-99\" }", "\"1s\""), "the plan plan.toml: fault 1 strikes `agent-99`"),
    ] {
        refuses(&[("plan.toml", &text)], "run fleet --plan plan.toml", 2, &["the plan plan.toml", says]);
        refuses(&[("plan.toml", &text)], "gate fleet --plan plan.toml", 2, &["the plan plan.toml", says]);
    }
    let scenario = include_str!("../../../scenarios/catalogue/fleet.toml");
    let line = scenario.lines().find(|line| line.starts_with("for = ")).expect("a scenario lasts");
    refuses(&[("own.toml", &scenario.replacen(line, "for = 3", 1))], "run own.toml", 2, &["such as \"3m\""]);
    let folder = folder_with(&[("own.toml", &scenario.replacen(line, &format!("for = [{}", "1, ".repeat(99_999)), 1))]);
    let long = shakedown(folder.path(), "run own.toml");
    assert!(long.exit == 2 && long.err.len() < 1_500, "{} bytes", long.err.len());
    let escape = scenario.replacen(line, "for = \u{1b}[31m", 1);
    let folder = folder_with(&[("own.toml", &escape)]);
    let raw = shakedown(folder.path(), "run own.toml");
    assert!(raw.exit == 2 && !raw.err.contains('\u{1b}'), "{}", raw.err);
    for arguments in ["show .", "check ."] {
        let twice = shakedown(folder.path(), arguments);
        assert_eq!((twice.exit, twice.err.matches("os error").count()), (2, 1), "{}", twice.err);
    }
    for arguments in ["report --budget nope", "gate --budget nope", "run fleet --for nope"] {
        refuses(&[], arguments, 2, &["write a time such as 90s, 10m or 2h"]);
    }
}

#[test]
fn a_capsule_is_played_from_its_folder_and_says_what_a_seed_is() {
    let folder = folder_with(&[]);
    let run = shakedown(folder.path(), "run contention --seed 3 --plan none --out kept");
    assert_eq!(run.exit, 0, "{}", run.err);
    let again = shakedown(folder.path(), "repro kept --format json");
    assert_eq!((again.exit, again.json()["same_history"].as_bool()), (0, Some(true)), "{}", again.err);
    let path = folder.path().join("kept/capsule.toml");
    let text = fs::read_to_string(&path).expect("a capsule");
    let (_digest, text) = text.split_once('\n').expect("a capsule has lines");
    for (seed, says) in
        [("-1", "a whole number from 0 to 18446744073709551615"), ("\"three\"", "\"three\" is no whole number")]
    {
        let text = text.replacen("seed = 3", &format!("seed = {seed}"), 1);
        refuses(&[("capsule.toml", &text)], "repro capsule.toml", 125, &["capsule.toml cannot be played", says]);
    }
}

#[cfg(unix)]
#[test]
fn a_history_that_is_not_its_runs_is_shown_with_a_warning() {
    let folder = folder_with(&[]);
    let run = shakedown(folder.path(), "run contention --plan none --out kept");
    assert_eq!(run.exit, 0, "{}", run.err);
    let at = |name: &str| folder.path().join("kept").join(name);
    let show = || shakedown(folder.path(), "show kept");
    let whole = show();
    assert_eq!((whole.exit, whole.err.as_str()), (0, ""));
    let history = fs::read(at("history.log")).expect("kept");
    let first = 4 + u32::from_le_bytes(history[..4].try_into().expect("a length")) as usize;
    fs::write(at("history.log"), &history[..first]).expect("it can be changed");
    let cut = show();
    assert_eq!((cut.exit, cut.out.lines().count()), (0, 1), "{}", cut.err);
    assert!(cut.err.contains("gives the hash") && cut.err.contains("result.json says"), "{}", cut.err);
    fs::remove_file(at("result.json")).expect("it is ours");
    assert!(show().err.contains("cannot be compared"), "{}", show().err);
    fs::write(at("history.log"), "").expect("it can be changed");
    let empty = show();
    assert_eq!((empty.exit, empty.out.as_str()), (0, ""));
    assert!(empty.err.contains("kept/history.log is empty"), "{}", empty.err);
    fs::remove_file(at("history.log")).expect("it is ours");
    assert!(shell(folder.path(), "mkfifo kept/history.log").status.success(), "a pipe can be made");
    let pipe = show();
    assert_eq!((pipe.exit, pipe.err.contains("it is no regular file")), (2, true), "{}", pipe.err);
    assert!(shell(folder.path(), "mkfifo kept/result.json").status.success(), "a pipe can be made");
    let pipe = shakedown(folder.path(), "check kept");
    assert_eq!((pipe.exit, pipe.err.contains("it is no regular file")), (2, true), "{}", pipe.err);
}

#[test]
fn a_check_sets_its_figures_in_columns() {
    let folder = folder_with(&[]);
    let run = shakedown(folder.path(), "run contention --plan none --out kept");
    assert_eq!(run.exit, 0, "{}", run.err);
    let checked = shakedown(folder.path(), "check kept");
    let figures: Vec<&str> = checked.out.lines().filter_map(|line| line.strip_prefix("recomputed")).collect();
    assert!(figures.len() > 40, "{}", checked.out);
    let places = figures.iter().map(|line| {
        let name = line.trim_start().split(' ').next().unwrap_or_default();
        let value = line.rsplit_once(&format!("{name} ")).map_or("", |(_, value)| value);
        line.len() - value.trim_start().len()
    });
    let places: BTreeSet<usize> = places.collect();
    assert_eq!(places.len(), 1, "each value stands in one column, apart from its name:\n{}", checked.out);
}

#[test]
fn a_file_without_end_is_not_read_to_the_end() {
    let folder = folder_with(&[]);
    let long = fs::File::create(folder.path().join("long.txt")).expect("a file");
    long.set_len(1 + (256 << 20)).expect("a file may have a hole");
    for (arguments, exit) in
        [("run fleet --plan long.txt", 2), ("run fleet --arrivals long.txt", 2), ("repro long.txt", 125)]
    {
        let refused = shakedown(folder.path(), arguments);
        assert_eq!(
            (refused.exit, refused.err.contains("longer than 268435456 bytes")),
            (exit, true),
            "{}",
            refused.err
        );
    }
}
