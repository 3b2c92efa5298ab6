//! The architecture's arrows: which crate may know which, and which files of the kernel may know a world at all.
#![expect(clippy::disallowed_methods, reason = "the sources themselves are what is tested")]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// What each crate may depend on, of this workspace.
const ARROWS: [(&str, &[&str]); 7] = [
    (".", &["bench", "faults", "kernel", "reports", "scenarios", "sim"]),
    ("bench", &["faults", "kernel", "reports", "scenarios", "sim"]),
    ("scenarios", &["faults", "kernel", "reports", "sim"]),
    ("faults", &["sim"]),
    ("kernel", &["sim"]),
    ("reports", &[]),
    ("sim", &[]),
];

/// The files of the kernel that may touch a world: its two ends on the bus, and the stores.
const KERNEL_EDGES: [&str; 3] = ["serve.rs", "client.rs", "store/"];

/// What no other file of the kernel may mention, and what to do instead.
const IMPURE: [(&str, &str); 14] = [
    ("sim::", "take what is needed as an argument"),
    ("tokio", "leave waiting to serve.rs"),
    ("async", "decide and apply are plain functions; leave waiting to serve.rs"),
    (".await", "decide and apply are plain functions; leave waiting to serve.rs"),
    ("std::fs", "leave files to store/"),
    ("std::io", "leave files to store/"),
    ("std::net", "leave frames to serve.rs and client.rs"),
    ("std::time", "take ledger time as an argument, in nanoseconds"),
    ("Instant", "take ledger time as an argument, in nanoseconds"),
    ("SystemTime", "take ledger time as an argument, in nanoseconds"),
    ("std::thread", "one writer, no threads; leave blocking work to serve.rs"),
    ("HashMap", "use BTreeMap, whose order is the same in every run"),
    ("HashSet", "use BTreeSet, whose order is the same in every run"),
    ("rand", "nothing in the kernel is drawn"),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn crates_depend_along_the_arrows_alone() {
    let known: BTreeMap<&str, &[&str]> = ARROWS.into();
    let workspace = manifest(".");
    let members = workspace["workspace"]["members"].as_array().expect("the workspace has members");
    for member in members.iter().map(|member| member.as_str().expect("a member is a path")) {
        assert!(
            known.contains_key(member),
            "{member} is a new crate; give it its arrows in ci/tests/arrows.rs and ARCHITECTURE.md"
        );
    }
    for (member, allowed) in known {
        let manifest = manifest(member);
        let tables = ["dependencies", "dev-dependencies", "build-dependencies"].map(|table| manifest.get(table));
        let dependencies =
            tables.into_iter().flatten().filter_map(toml::Value::as_table).flat_map(|table| table.keys());
        for dependency in dependencies.filter(|name| ARROWS.iter().any(|(member, _)| member == name)) {
            assert!(
                allowed.contains(&dependency.as_str()),
                "{member}/Cargo.toml: {member} may not know {dependency}; it may know {allowed:?}. Move the code to the side the arrow comes from"
            );
        }
    }
}

fn manifest(member: &str) -> toml::Table {
    let path = root().join(member).join("Cargo.toml");
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{} cannot be read: {error}", path.display()));
    text.parse().unwrap_or_else(|error| panic!("{} is not TOML: {error}", path.display()))
}

#[test]
fn only_the_edges_of_the_kernel_touch_a_world() {
    let src = root().join("kernel/src");
    let mut folders = vec![src.clone()];
    let (mut complaints, mut pure) = (Vec::new(), 0);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of the kernel can be read") {
            let path = entry.expect("an entry of it can be read").path();
            let name = path.strip_prefix(&src).expect("it is under the kernel").display().to_string();
            if path.is_dir() {
                folders.push(path);
            } else if name.ends_with(".rs") && !is_edge(&name) {
                pure += 1;
                complaints.extend(impurities(&name, &fs::read_to_string(&path).expect("a source can be read")));
            }
        }
    }
    assert!(pure >= 10, "only {pure} pure files were found in {}", src.display());
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

fn is_edge(name: &str) -> bool {
    let edge_folder = |edge: &str| edge.ends_with('/') && name.starts_with(edge);
    KERNEL_EDGES.into_iter().any(|edge| {
        name == edge
            || edge_folder(edge)
            || name.strip_suffix("/mod.rs").is_some_and(|folder| edge == format!("{folder}.rs"))
    }) || ["serve/", "client/"].iter().any(|folder| name.starts_with(folder))
}

/// What of one file is impure. Comments and the file's own tests do not count.
fn impurities(name: &str, text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    for (index, line) in text.lines().enumerate().take_while(|(_, line)| line.trim() != "#[cfg(test)]") {
        let code = line.split("//").next().unwrap_or_default();
        for (word, remedy) in IMPURE {
            if mentions(code, word) {
                complaints.push(format!("kernel/src/{name}:{}: `{word}` in a pure file; {remedy}", index + 1));
            }
        }
    }
    complaints
}

/// Whether code mentions a word as a word of its own.
fn mentions(code: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word).any(|(at, _)| {
        let before = code[..at].chars().next_back().is_some_and(part);
        let after = code[at + word.len()..].chars().next().is_some_and(part);
        let open_ended = !word.ends_with(part) || !after;
        let open_fronted = !word.starts_with(part) || !before;
        open_ended && open_fronted
    })
}

#[test]
fn the_rules_see_what_they_forbid() {
    for (code, impure) in [
        ("use sim::World;", true),
        ("    let now = Instant::now();", true),
        ("pub async fn decide() {}", true),
        ("use std::collections::HashMap;", true),
        ("use rand::Rng;", true),
        ("// the engine's sim::World is not for here", false),
        ("let operand = simulate(asynchronous);", false),
        ("#[cfg(test)]\nuse sim::World;", false),
    ] {
        assert_eq!(!impurities("lease.rs", code).is_empty(), impure, "{code}");
    }
    for (name, edge) in [
        ("serve.rs", true),
        ("serve/batch.rs", true),
        ("store/redb.rs", true),
        ("lease.rs", false),
        ("storekeeper.rs", false),
    ] {
        assert_eq!(is_edge(name), edge, "{name}");
    }
}

/// What the checker may not mention, and why: it is to share no code with what it checks.
const NOT_FOR_THE_CHECKER: [(&str, &str); 5] = [
    ("kernel", "what decided and applied a record does not say whether it was right; set the form down in wire.rs"),
    ("sim", "read entries by their documented form; told.rs has it"),
    ("faults", "a plan is read from the capsule as text"),
    ("reports", "the checker makes findings; who prints them is src/check.rs"),
    ("crate", "invariants, model, cast and runner made what is checked; fold the rule anew"),
];

#[test]
fn the_checker_shares_no_code_with_what_it_checks() {
    let folder = root().join("scenarios/src/checker");
    let (mut complaints, mut files) = (Vec::new(), 0);
    for entry in fs::read_dir(&folder).expect("the checker has a folder of its own") {
        let path = entry.expect("an entry of it can be read").path();
        assert!(path.is_file(), "{}: look into it here as well", path.display());
        files += 1;
        let name = path.file_name().expect("a file has a name").to_string_lossy().into_owned();
        complaints.extend(shared(&name, &fs::read_to_string(&path).expect("a source can be read")));
    }
    assert!(files >= 10, "only {files} files were found in {}", folder.display());
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

/// What one file of the checker shares. Paths count, words in comments do not.
fn shared(name: &str, text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let code = line.split("//").next().unwrap_or_default();
        for (root, remedy) in NOT_FOR_THE_CHECKER {
            let paths = [format!("{root}::"), format!("use {root};"), format!("{root} as ")];
            if paths.iter().any(|path| mentions(code, path)) {
                complaints
                    .push(format!("scenarios/src/checker/{name}:{}: `{root}` in the checker; {remedy}", index + 1));
            }
        }
    }
    complaints
}

#[test]
fn what_the_checker_would_share_is_seen() {
    for (code, seen) in [
        ("use kernel::record::Record;", true),
        ("use crate::invariant::Watch;", true),
        ("    let cost = crate::invariant::budget::cost_of(price, usage);", true),
        ("use sim as world;", true),
        ("pub(crate) use super::wire;", false),
        ("use super::told::Fact; // not kernel::Fact", false),
        ("Broken { invariant: \"kernel-panic\".to_owned() }", false),
    ] {
        assert_eq!(!shared("log.rs", code).is_empty(), seen, "{code}");
    }
}

/// Named so that a reader who looks for the pure files finds their home.
#[test]
fn the_front_of_the_kernel_says_where_budgets_are_checked() {
    let lib: PathBuf = root().join("kernel/src/lib.rs");
    let text = fs::read_to_string(lib).expect("the kernel's front can be read");
    assert!(text.contains("budgets are checked here"), "kernel/src/lib.rs no longer says where a budget is checked");
}
