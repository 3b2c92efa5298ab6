//! Stamps the binary with what it is built from: the commit, and whether the sources that go into it are as committed there.
//!
//! Asked when it is built and not when it runs: by then the tree may be another. Without git, or outside of a repository of its
//! own, the commit is `unknown` and nothing is claimed of the sources.

use std::{path::Path, process::Command};

/// What is said of a commit that cannot be learned.
const UNKNOWN: &str = "unknown";

/// What goes into the binary. A change of anything else makes no other binary, and no dirty one.
const SOURCES: [&str; 17] = [
    "Cargo.lock",
    "Cargo.toml",
    "build.rs",
    "faults/Cargo.toml",
    "faults/src",
    "kernel/Cargo.toml",
    "kernel/src",
    "reports/Cargo.toml",
    "reports/rows.toml",
    "reports/src",
    "scenarios/Cargo.toml",
    "scenarios/catalogue",
    "scenarios/soonest.toml",
    "scenarios/src",
    "sim/Cargo.toml",
    "sim/src",
    "src",
];

/// What moves when a commit is made or another is checked out. The index is not among them: it moves when someone looks.
const MOVES: [&str; 3] = ["HEAD", "logs/HEAD", "packed-refs"];

fn main() {
    let root = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| ".".into());
    let root = Path::new(&root);
    let (commit, dirty) = stamp(root);
    println!("cargo:rustc-env=SHAKEDOWN_COMMIT={commit}");
    println!("cargo:rustc-env=SHAKEDOWN_DIRTY={dirty}");
    let branch = git(root, &["symbolic-ref", "--quiet", "HEAD"]);
    let moves = MOVES.iter().map(|path| (*path).to_owned()).chain(branch);
    let moves = moves.filter_map(|path| git(root, &["rev-parse", "--git-path", &path]));
    // A path that is not there would have this run again at every build.
    for path in SOURCES.map(str::to_owned).into_iter().chain(moves).filter(|path| root.join(path).exists()) {
        println!("cargo:rerun-if-changed={path}");
    }
}

/// The commit of the sources in `root`, and whether they differ from it.
pub fn stamp(root: &Path) -> (String, bool) {
    let is_own = git(root, &["rev-parse", "--show-prefix"]).is_some_and(|prefix| prefix.is_empty());
    let Some(commit) = git(root, &["rev-parse", "HEAD"]).filter(|_| is_own) else { return (UNKNOWN.to_owned(), true) };
    let status = [["--no-optional-locks", "status", "--porcelain", "--"].as_slice(), &SOURCES].concat();
    let dirty = git(root, &status).is_none_or(|changes| !changes.is_empty());
    (commit, dirty)
}

/// What git says in `root`, whatever repository the caller is at work in.
fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let mut git = Command::new("git");
    for variable in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX"] {
        git.env_remove(variable);
    }
    let output = git.arg("-C").arg(root).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
