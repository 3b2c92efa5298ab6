//! Counts the instructions of every operation under callgrind, where valgrind is present.
//!
//! The program starts itself under valgrind, twice an operation: once doing it a few times and once doing it twice as often,
//! after one and the same preparation. The difference is the operation, and nothing of starting and preparing is in it.
#![expect(clippy::print_stdout, clippy::disallowed_methods, reason = "a program of its own, that starts programs")]

use bench::operation::Operation;
use std::{
    env,
    path::Path,
    process::{Command, ExitCode},
};

/// How often an operation is done in the first of two programs.
const TIMES: usize = 8;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match &arguments[..] {
        [name, times] => {
            let operation = bench::named(name).expect("an operation is named");
            let mut doing = operation.prepare();
            (0..times.parse().expect("a number of times")).for_each(|_| doing());
            ExitCode::SUCCESS
        }
        _ => count_all(),
    }
}

fn count_all() -> ExitCode {
    if let Err(why) = Command::new("valgrind").arg("--version").output() {
        println!("NOT MEASURED: valgrind cannot be started: {why}");
        return ExitCode::SUCCESS;
    }
    println!("{:<36} {:>16} {:>14}", "operation", "instructions", "of");
    let mut exit = ExitCode::SUCCESS;
    for operation in bench::all() {
        match instructions(&operation) {
            Ok(each) => println!("{:<36} {each:>16} {:>14}", operation.name, one(operation.of)),
            Err(why) => {
                println!("{:<36} NOT MEASURED: {why}", operation.name);
                exit = ExitCode::FAILURE;
            }
        }
    }
    exit
}

/// Instructions of one element of the operation.
fn instructions(operation: &Operation) -> Result<u64, String> {
    let once = program(&operation.name, TIMES)?;
    let twice = program(&operation.name, 2 * TIMES)?;
    let difference = twice.checked_sub(once).ok_or("doing it more often took fewer instructions")?;
    Ok(difference / (TIMES as u64 * operation.elements))
}

/// Instructions of this program, doing the operation so often.
fn program(name: &str, times: usize) -> Result<u64, String> {
    let said = |error: std::io::Error| error.to_string();
    let folder = tempfile::tempdir().map_err(said)?;
    let own = env::current_exe().map_err(said)?;
    let kept = folder.path().join("callgrind.out");
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", &format!("--callgrind-out-file={}", kept.display())])
        .arg(own)
        .args([name, &times.to_string()])
        .output()
        .map_err(said)?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{}: {}", output.status, text.lines().last().unwrap_or_default()));
    }
    total(&kept)
}

/// The total that callgrind wrote: `summary:` or `totals:`, then instructions.
fn total(kept: &Path) -> Result<u64, String> {
    let text = std::fs::read_to_string(kept).map_err(|error| error.to_string())?;
    let line = text.lines().find_map(|line| line.strip_prefix("summary: ").or_else(|| line.strip_prefix("totals: ")));
    line.and_then(|count| count.trim().parse().ok()).ok_or_else(|| "callgrind wrote no total".to_owned())
}

/// One of what is named in the plural.
fn one(plural: &str) -> &str {
    plural.strip_suffix('s').unwrap_or(plural)
}
