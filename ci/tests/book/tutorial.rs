//! The tutorial's workload, invariant and scenario: compiled as a reader compiles them, played, and found to fail as it says.

use crate::{
    commands::{Shown, run_block, shown, write_file},
    page::{Page, root},
};
// What `super` gives a workload in scenarios/src/workload, and an invariant in scenarios/src/invariant.
use scenarios::{
    catalogue,
    invariant::{Broken, Invariant, Moment, Rest, Saw, Watch},
    runner::{self, Choices, PlanChoice},
    workload::{Call, Item, Unit, WorkList, Workload, run, user},
};
use sim::{Recording, history};
use std::{fs, path::Path, process::Command, sync::Arc};
use tempfile::TempDir;

#[path = "../../../docs/tutorial/code/burst.rs"]
mod burst;
#[path = "../../../docs/tutorial/code/few_calls.rs"]
mod few_calls;
#[path = "../../../docs/tutorial/code/few_live.rs"]
mod few_live;

const PAGE: &str = "docs/tutorial/own-workload.md";

/// The first thing that an invariant finds broken when `burst` is played with so many slots.
fn broken(invariant: Box<dyn Invariant>, slots: &str) -> Option<Broken> {
    let text = include_str!("../../../docs/tutorial/code/burst.toml").replacen("slots = 10", slots, 1);
    let known = text.replacen("\"burst\"\nstore", "\"contention\"\nstore", 1).replacen("\"few-calls\", ", "", 1);
    let scenario = catalogue::parse(&known, "burst.toml").expect("all of it but its own names is known");
    let choices = Choices { plan: PlanChoice::None, recording: Recording::Full, ..Choices::default() };
    let mut spec = runner::spec(&scenario, 1, &choices).expect("the choices go together");
    spec.work = Arc::new((burst::WORKLOAD.draw)(&scenario, 1));
    let run = runner::play(&spec).expect("it can be played");
    assert_eq!(run.report.verdict, runner::Verdict::Pass, "{:?}", run.report.broken);
    let mut watch = Watch::new(vec![invariant]);
    for entry in history::read(&run.history.kept) {
        watch.take(&entry.expect("a history that was just made can be read"));
    }
    watch.broken().cloned()
}

#[test]
fn its_invariants_fail_on_its_workload_until_the_ledger_is_told_to_hold_them() {
    let calls = || Box::<few_calls::FewCalls>::default();
    let found = broken(calls(), "slots = 10").expect("six calls of each of two agents are too many");
    assert_eq!(found.invariant, "few-calls");
    assert!(found.message.contains("is number 5 that user 0 has on the wire"), "{}", found.message);
    assert_eq!(broken(calls(), "slots = 4"), None);

    let live = || Box::<few_live::FewLive>::default();
    let first = broken(live(), "slots = 10").expect("each of those calls was reserved for");
    assert_eq!(first.invariant, "few-live");
    assert!(first.message.contains("is number 5 that user 0 has live"), "{}", first.message);
    assert!(first.time_ns <= found.time_ns, "a reservation comes before its call");
    assert_eq!(broken(live(), "slots = 4"), None);
}

/// An edit that the tutorial asks for: the file, the line it goes below, and what is added.
fn edits() -> Vec<(String, String, String)> {
    let edit = |block: crate::page::Block| {
        let (file, line) = block.marker.as_deref()?.strip_prefix("edit: ")?.split_once(", below: ")?;
        Some((file.to_owned(), line.trim_matches('`').to_owned(), block.lines.join("\n")))
    };
    Page::read(PAGE).blocks().into_iter().filter_map(edit).collect()
}

#[test]
fn each_edit_it_asks_for_has_its_one_place() {
    let edits = edits();
    assert_eq!(edits.len(), 6, "a module and a row each for the workload and the two invariants");
    for (file, below, added) in edits {
        let text = fs::read_to_string(root().join(&file)).unwrap_or_else(|error| panic!("{PAGE}: {file}: {error}"));
        let places = text.lines().filter(|line| line.trim() == below).count();
        assert_eq!(places, 1, "{PAGE} puts `{added}` into {file} below `{below}`, which stands there {places} times");
    }
}

/// Does all that the page says, as a reader does: in a copy of the sources, with its files, edits, builds and commands.
#[test]
#[ignore = "builds shakedown in a copy of the sources, which takes minutes; ci/check.sh does it"]
fn whoever_follows_it_to_the_letter_gets_what_it_shows() {
    let copy = TempDir::new().expect("a folder for the copy");
    let files = Command::new("git")
        .args(["ls-files", "-co", "--exclude-standard", "-z"])
        .current_dir(root())
        .output()
        .expect("git lists the sources");
    for name in String::from_utf8(files.stdout).expect("names of sources").split('\0').filter(|name| !name.is_empty()) {
        let to = copy.path().join(name);
        fs::create_dir_all(to.parent().expect("a file is in a folder")).expect("a folder can be made");
        fs::copy(root().join(name), to).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    let target = root().join("target/tutorial");
    for block in Page::read(PAGE).blocks() {
        if let Some(name) = block.marker.as_deref().and_then(|marker| marker.strip_prefix("put: ")) {
            write_file(copy.path(), name, &block);
        }
    }
    for (file, below, added) in edits() {
        let path = copy.path().join(&file);
        let text = fs::read_to_string(&path).expect("the file of an edit");
        let lines =
            text.lines().flat_map(|line| if line.trim() == below { vec![line, added.as_str()] } else { vec![line] });
        fs::write(&path, lines.collect::<Vec<_>>().join("\n") + "\n").expect("an edit can be written");
    }
    build(copy.path(), &target);
    let mut wrong = Vec::new();
    for block in Page::read(PAGE).blocks() {
        if let Some(name) = block.marker.as_deref().and_then(|marker| marker.strip_prefix("file: ")) {
            write_file(copy.path(), name, &block);
        } else if block.language == "console" {
            let commands: Vec<Shown> =
                shown(&block).into_iter().filter(|one| !one.command.starts_with("cargo ")).collect();
            wrong.extend(run_block(&block, &commands, copy.path(), &[&target.join("release")]));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn build(copy: &Path, target: &Path) {
    let built = Command::new(env!("CARGO"))
        .args(["build", "--release", "--quiet"])
        .current_dir(copy)
        .env("CARGO_TARGET_DIR", target)
        .output();
    let built = built.expect("cargo can be started");
    assert!(built.status.success(), "the code does not build\n{}", String::from_utf8_lossy(&built.stderr));
}
