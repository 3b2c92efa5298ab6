//! What the binary says it was built from: told when it is built, whatever the tree is by the time it runs.

#[path = "../../../build.rs"]
#[expect(dead_code, clippy::print_stdout, reason = "cargo alone runs a build to its end, and listens to it")]
mod build;

use super::{command, folder_with};
use serde_json::Value;
use std::{fs, path::Path, process::Command};

/// A binary that was built from a changed tree once said that it was not, if it ran when the tree was clean again.
#[test]
fn a_run_says_what_it_was_built_from_without_asking_anyone() {
    let folder = folder_with(&[]);
    let mut gate = command(folder.path(), "gate contention --seeds 0..1 --plan none --format json");
    let output = gate.env("PATH", "").output().expect("the command can be started");
    let told: Value = serde_json::from_slice(&output.stdout).expect("an object");
    assert_eq!(told["commit"], env!("SHAKEDOWN_COMMIT"));
    assert_eq!(told["dirty"].to_string(), env!("SHAKEDOWN_DIRTY"));
}

fn git(folder: &Path, arguments: &str) {
    let mut git = Command::new("git");
    git.current_dir(folder).args(["-c", "user.name=a", "-c", "user.email=a@example.invalid"]);
    git.env_remove("GIT_DIR").env_remove("GIT_INDEX_FILE");
    let output = git.args(arguments.split_whitespace()).output().expect("git is there");
    assert!(output.status.success(), "git {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn only_sources_make_a_build_dirty_and_without_a_repository_nothing_is_claimed() {
    let folder = folder_with(&[("src/main.rs", "fn main() {}"), ("docs/page.md", "a page"), ("copy/src/main.rs", "")]);
    let write = |file: &str, text: &str| fs::write(folder.path().join(file), text).expect("it can be written");
    let stamp = || build::stamp(folder.path());
    let unknown = ("unknown".to_owned(), true);
    assert_eq!(stamp(), unknown, "no repository");
    git(folder.path(), "init --quiet");
    assert_eq!(stamp(), unknown, "no commit");
    git(folder.path(), "add .");
    git(folder.path(), "commit --quiet --message one");
    let (commit, dirty) = stamp();
    assert!(commit.len() == 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit()), "{commit}");
    assert!(!dirty, "as committed");
    write("docs/page.md", "another page");
    assert_eq!(stamp(), (commit.clone(), false), "a page is in no binary");
    write("src/new.rs", "");
    assert_eq!(stamp(), (commit.clone(), true), "a new source");
    fs::remove_file(folder.path().join("src/new.rs")).expect("it is ours");
    write("src/main.rs", "fn main() { }");
    assert_eq!(stamp(), (commit.clone(), true), "a changed source");
    git(folder.path(), "commit --quiet --all --message two");
    let (second, dirty) = stamp();
    assert!(second != commit && !dirty);
    assert_eq!(build::stamp(&folder.path().join("copy")), unknown, "a copy inside of another repository");
}
