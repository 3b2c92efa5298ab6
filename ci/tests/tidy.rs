//! The house style, as far as a machine can see it. Each complaint names the file, the line and what to do.
#![expect(clippy::disallowed_methods, reason = "the sources themselves are what is tested")]

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The longest file.
const MOST_LINES: usize = 800;
/// The longest function, from its signature to its closing brace.
const MOST_FUNCTION_LINES: usize = 70;

/// Names that say nothing about what is in a file.
const EMPTY_NAMES: [&str; 9] = [
    "utils.rs",
    "util.rs",
    "helpers.rs",
    "common.rs",
    "types.rs",
    "misc.rs",
    "manager.rs",
    "handler.rs",
    "processor.rs",
];

/// What a comment says when it narrates, praises or apologises.
const BANNED_WORDS: [&str; 9] = [
    "now we ",
    "instead of the old",
    "as before",
    "blazing",
    "elegant",
    "world-class",
    "hopefully",
    "for some reason",
    "quick hack",
];

/// What stands although a rule forbids it: file, what the complaint begins with, and why it stands.
const EXCEPTIONS: [(&str, &str, &str); 1] =
    [("scenarios/src/model/tests.rs", "function of", "a table of ten mistakes, each with what the model says of it")];

#[test]
fn the_house_is_tidy() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = sources(root);
    assert!(files.len() > 20, "only {} sources were found under {}", files.len(), root.display());
    let mut complaints = Vec::new();
    let mut used = [false; EXCEPTIONS.len()];
    for file in files {
        let name = file.strip_prefix(root).expect("sources are under the root").display().to_string();
        let text = fs::read_to_string(&file).expect("a source can be read");
        for (line, complaint) in look(&name, &text) {
            match EXCEPTIONS.iter().position(|(file, what, _)| *file == name && complaint.starts_with(what)) {
                Some(exception) => used[exception] = true,
                None => complaints.push(format!("{name}:{line}: {complaint}")),
            }
        }
    }
    let unused = EXCEPTIONS.iter().zip(used).filter(|(_, used)| !used);
    complaints.extend(
        unused.map(|((file, what, _), _)| format!("{file}: nothing is `{what}` any more; take the exception out")),
    );
    assert!(complaints.is_empty(), "{} complaints\n{}", complaints.len(), complaints.join("\n"));
}

/// Every Rust source of the workspace, in order.
fn sources(root: &Path) -> Vec<PathBuf> {
    let mut folders = vec![root.to_owned()];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of the repository can be read") {
            let path = entry.expect("an entry of it can be read").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() && !name.starts_with('.') && name != "target" {
                folders.push(path);
            } else if name.ends_with(".rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

/// What is wrong with one file: line from 1, and a complaint with its remedy.
fn look(name: &str, text: &str) -> Vec<(usize, String)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut complaints = Vec::new();
    let file_name = name.rsplit('/').next().unwrap_or(name);
    if EMPTY_NAMES.contains(&file_name) {
        complaints.push((1, format!("`{file_name}` says nothing; name the file after what is in it")));
    }
    if lines.len() > MOST_LINES {
        complaints.push((
            MOST_LINES,
            format!("file of {} lines; split it by what it holds, {MOST_LINES} are enough", lines.len()),
        ));
    }
    if !lines.first().is_some_and(|line| line.starts_with("//!")) {
        complaints.push((1, "no module docs; begin the file with `//!` and its purpose".to_owned()));
    }
    let is_front = file_name == "lib.rs" || name == "src/main.rs";
    let docs: Vec<&str> = lines.iter().copied().take_while(|line| line.starts_with("//!")).collect();
    if is_front && !docs.join(" ").to_lowercase().contains("deliberately not") {
        complaints
            .push((1, "silent about what is absent; say in its docs what is deliberately not in the crate".to_owned()));
    }
    for (index, line) in lines.iter().enumerate() {
        complaints.extend(look_at_comment(line).map(|complaint| (index + 1, complaint)));
    }
    complaints.extend(functions(&lines).into_iter().filter(|(_, length)| *length > MOST_FUNCTION_LINES).map(
        |(at, length)| {
            (at, format!("function of {length} lines; let it read as steps, {MOST_FUNCTION_LINES} lines are enough"))
        },
    ));
    complaints
}

fn look_at_comment(line: &str) -> Option<String> {
    let (code, comment) = line.split_once("//")?;
    if code.matches('"').count() % 2 == 1 {
        return None; // the slashes are inside a string
    }
    let comment = comment.to_lowercase();
    if let Some(word) = BANNED_WORDS.iter().find(|word| comment.contains(*word)) {
        return Some(format!("comment says `{}`; say why the code is as it is, once, or nothing", word.trim()));
    }
    let owed = ["todo", "fixme", "xxx"]
        .into_iter()
        .find(|word| comment.split(|c: char| !c.is_alphanumeric()).any(|own| own == *word))?;
    let issue = comment.split('#').skip(1).any(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    (!issue).then(|| format!("{owed} without an issue; open one and write its number, as in #12"))
}

/// The functions of formatted code: line of the signature from 1, and length. A function ends at a closing brace that stands
/// as far in as its signature.
fn functions(lines: &[&str]) -> Vec<(usize, usize)> {
    let mut functions = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let indent = &line[..line.len() - code.len()];
        let words: Vec<&str> =
            code.split(' ').take_while(|word| !word.contains('(') || word.starts_with("pub(")).collect();
        let keywords = ["pub", "const", "async", "unsafe", "fn"];
        let is_function = words.contains(&"fn") || code.contains(" fn ") || code.starts_with("fn ");
        let begins = code.split(' ').next().is_some_and(|word| keywords.contains(&word) || word.starts_with("pub("));
        if !is_function || !begins || code.ends_with('}') || code.ends_with(';') {
            continue;
        }
        let end = lines[start..].iter().position(|line| {
            let rest = line.strip_prefix(indent).unwrap_or("");
            rest == "}" || (rest.starts_with(')') && rest.ends_with(';'))
        });
        functions.extend(end.map(|length| (start + 1, length + 1)));
    }
    functions
}

#[test]
fn each_rule_sees_what_it_forbids() {
    let long = format!("//! A file.\npub fn long() {{\n{}}}\n", "    step();\n".repeat(MOST_FUNCTION_LINES));
    let huge = format!("//! A file.\n{}", "\n".repeat(MOST_LINES));
    for (name, text, line, complaint) in [
        ("sim/src/utils.rs", "//! A file.\n", 1, "`utils.rs` says nothing"),
        ("sim/src/disk.rs", "use std::io;\n", 1, "no module docs"),
        ("sim/src/lib.rs", "//! A crate.\n", 1, "silent about what is absent"),
        ("sim/src/disk.rs", "//! A file.\n\n// Now we open it.\n", 3, "comment says `now we`"),
        ("sim/src/disk.rs", "//! A file.\nfn f() {} // TODO: close it\n", 2, "todo without an issue"),
        ("sim/src/disk.rs", &long, 2, "function of 72 lines"),
        ("sim/src/disk.rs", &huge, MOST_LINES, "file of 801 lines"),
    ] {
        let found = look(name, text);
        assert!(matches!(&found[..], [(at, what)] if *at == line && what.starts_with(complaint)), "{name}: {found:?}");
    }
    for text in [
        "//! A file. What is deliberately not here: nothing else.\n",
        "//! Deliberately not a stub.\n// TODO(#12): close it\npub(crate) fn f(\n    a: u8,\n) -> u8 {\n    a\n}\n",
        "//! What is deliberately not here.\ntrait T {\n    fn f(\n        a: u8,\n    ) -> u8;\n}\n",
    ] {
        assert_eq!(look("sim/src/lib.rs", text), [], "{text}");
    }
}
