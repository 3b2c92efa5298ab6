//! The commands of every page are run, in the order of the page, and give what the page shows.

use crate::page::{Block, Page, fits, pages};
use std::{
    env, fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};
use tempfile::TempDir;

/// What stands for `cargo` where a page is run: it knows how to run shakedown, and nothing else.
const CARGO: &str = r#"#!/bin/sh
case "$1 $2 $3" in
    "run --release --") shift 3; exec shakedown "$@" ;;
    *) echo "a page of the book has a command that is no run of shakedown: cargo $*" >&2; exit 99 ;;
esac
"#;

/// A command of a console block, and what is shown below it.
#[derive(Debug, PartialEq, Eq)]
pub struct Shown {
    pub command: String,
    pub output: Vec<String>,
}

#[test]
#[expect(clippy::print_stdout, reason = "what is not run is named")]
fn the_commands_of_every_page_do_what_it_says() {
    let bin = bin();
    let shakedown = Path::new(env!("CARGO_BIN_EXE_shakedown")).parent().expect("a program is in a folder");
    let (mut run, mut not_run, mut wrong) = (0, Vec::new(), Vec::new());
    for page in pages() {
        let (done, left, complaints) = run_page(&page, &[bin.path(), shakedown]);
        run += done;
        not_run.extend(left);
        wrong.extend(complaints);
    }
    println!("{run} commands of the book were run; {} blocks were not:\n{}", not_run.len(), not_run.join("\n"));
    assert!(wrong.is_empty(), "{} things are not as the book says\n{}", wrong.len(), wrong.join("\n"));
    assert!(run > 30, "only {run} commands were found in the book");
}

/// A folder with what stands for `cargo`.
fn bin() -> TempDir {
    let bin = TempDir::new().expect("a folder for the test");
    let cargo = bin.path().join("cargo");
    fs::write(&cargo, CARGO).expect("it can be written");
    fs::set_permissions(&cargo, fs::Permissions::from_mode(0o755)).expect("it can be made a program");
    bin
}

/// How many commands of the page were run, which blocks were not, and what was not as the page says.
fn run_page(page: &Page, path: &[&Path]) -> (usize, Vec<String>, Vec<String>) {
    let folder = TempDir::new().expect("a folder for the page");
    let (mut run, mut not_run, mut wrong) = (0, Vec::new(), Vec::new());
    for block in page.blocks() {
        let marker = block.marker.as_deref().and_then(|marker| marker.split_once(':'));
        match (block.language.as_str(), marker.map(|(what, says)| (what, says.trim()))) {
            (_, Some(("file", name))) => write_file(folder.path(), name, &block),
            ("console", Some(("not run", reason))) if reason.len() > 10 => {
                not_run.push(format!("  {}: {reason}", block.place))
            }
            ("console", Some(("not run", _))) => wrong.push(format!("{}: say why it is not run", block.place)),
            ("console", _) => {
                let shown = shown(&block);
                run += shown.len();
                wrong.extend(run_block(&block, &shown, folder.path(), path));
            }
            ("sh" | "bash" | "shell" | "", _) => wrong.push(format!(
                "{}: a block of commands is ```console, with `$ ` before each; any other block names its language",
                block.place
            )),
            _ => {}
        }
    }
    (run, not_run, wrong)
}

/// Writes a block that a page says is a file.
pub fn write_file(folder: &Path, name: &str, block: &Block) {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().expect("a file is in a folder")).expect("a folder can be made");
    fs::write(path, block.lines.join("\n") + "\n").expect("a file of the page can be written");
}

/// The commands of a console block.
pub fn shown(block: &Block) -> Vec<Shown> {
    let mut all: Vec<Shown> = Vec::new();
    for line in &block.lines {
        match (line.strip_prefix("$ "), all.last_mut()) {
            (Some(command), _) => all.push(Shown { command: command.to_owned(), output: Vec::new() }),
            (None, Some(last)) if last.command.ends_with('\\') && last.output.is_empty() => {
                last.command = format!("{} {}", last.command.trim_end_matches('\\').trim_end(), line.trim_start());
            }
            (None, Some(last)) => last.output.push(line.clone()),
            (None, None) => panic!("{}: a console block begins with `$ ` and a command", block.place),
        }
    }
    all
}

/// Runs the commands of a block in a folder; gives what is not as it is shown.
pub fn run_block(block: &Block, shown: &[Shown], folder: &Path, path: &[&Path]) -> Vec<String> {
    let inherited = env::var_os("PATH").unwrap_or_default();
    let path =
        env::join_paths(path.iter().map(PathBuf::from).chain(env::split_paths(&inherited))).expect("folders of a path");
    let mut wrong = Vec::new();
    for (index, Shown { command, output }) in shown.iter().enumerate() {
        if command == "echo $?" {
            continue;
        }
        let next = shown.get(index + 1).filter(|next| next.command == "echo $?");
        let expected: i32 = next.map_or(0, |next| next.output.first().and_then(|code| code.parse().ok()).unwrap_or(-1));
        let said = Command::new("sh")
            .args(["-c", &format!("{{ {command}\n}} 2>&1")])
            .current_dir(folder)
            .env("PATH", &path)
            .env_remove("CARGO")
            .env_remove("COLUMNS")
            .output()
            .expect("a shell can be started");
        let text = String::from_utf8_lossy(&said.stdout).into_owned();
        let place = format!("{}: `{command}`", block.place);
        if said.status.code() != Some(expected) {
            let code = said.status.code().map_or_else(|| "a signal".to_owned(), |code| code.to_string());
            wrong.push(format!("{place} exits with {code} and should with {expected}; it wrote\n{text}"));
        } else if !output.is_empty()
            && let Some(why) = differs(output, &text)
        {
            wrong.push(format!("{place} {why}; it wrote\n{text}"));
        }
    }
    wrong
}

/// What is shown and was not written, or was written and is not shown.
fn differs(shown: &[String], written: &str) -> Option<String> {
    let mut left: Vec<&str> = written.lines().map(str::trim_end).collect();
    let mut gap = false;
    for pattern in shown.iter().map(|line| line.trim_end()) {
        if pattern == "…" {
            gap = true;
            continue;
        }
        let within = if gap { left.len() } else { left.len().min(1) };
        match left[..within].iter().position(|line| fits(pattern, line)) {
            Some(at) => drop(left.drain(..=at)),
            None => return Some(format!("does not write `{pattern}` where the page shows it")),
        }
        gap = false;
    }
    (!gap && !left.is_empty())
        .then(|| format!("writes more than the page shows, from `{}` on; let `…` stand for it", left[0]))
}

#[test]
fn what_is_shown_is_compared_line_by_line() {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    for (shown, written, is_right) in [
        ("a\nb", "a\nb\n", true),
        ("a\nb", "a\nx\nb\n", false),
        ("a\n…\nb", "a\nx\nb\n", true),
        ("a", "a\nb\n", false),
        ("a\n…", "a\nb\n", true),
        ("…\nb…", "a\nbc\n", true),
        ("…\nz", "a\nb\n", false),
    ] {
        assert_eq!(differs(&lines(shown), written).is_none(), is_right, "{shown:?} for {written:?}");
    }
}

#[test]
fn a_page_that_is_wrong_is_found_wrong() {
    let page = |text: &str| Page { name: "page.md".to_owned(), lines: text.lines().map(str::to_owned).collect() };
    for (text, says) in [
        ("```console\n$ exit 3\n```", "exits with 3 and should with 0"),
        ("```console\n$ exit 3\n$ echo $?\n4\n```", "exits with 3 and should with 4"),
        ("```console\n$ echo one\ntwo\n```", "does not write `two`"),
        ("```console\n$ cargo build\n```", "no run of shakedown"),
        ("```sh\nls\n```", "a block of commands is ```console"),
        ("<!-- not run: -->\n```console\n$ ls\n```", "say why"),
    ] {
        let (_, _, wrong) = run_page(&page(text), &[bin().path()]);
        assert!(matches!(&wrong[..], [one] if one.contains(says)), "{text}: {wrong:?}");
    }
    let right = "<!-- file: a/b.txt -->\n```text\nhello\n```\n```console\n$ cat \\\n  a/b.txt\nhel…\n$ exit 3\n$ echo $?\n3\n```";
    assert_eq!(run_page(&page(right), &[]), (3, vec![], vec![]));
}
