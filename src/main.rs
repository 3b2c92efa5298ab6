//! The `shakedown` command: one file a subcommand, parsing apart from doing.
//!
//! Arguments are parsed purely, into values that can only be right; then a subcommand does what they ask and gives back the
//! [`Exit`] of the process. Data goes to standard output, progress and errors to standard error.
//!
//! What is deliberately not here: no rule of the ledger, no fault and no invariant. This crate reads files, plays what
//! `scenarios` prepares on as many threads as it is told, and writes down what came of it.

mod check;
mod choices;
mod clock;
mod exit;
mod failing;
mod gate;
mod inputs;
mod junit;
mod list;
mod output;
mod provenance;
mod report;
mod repro;
mod run;
mod show;
mod sometimes;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use exit::{Exit, Failure};
use output::{FormatName, Out};
use std::{panic, process::ExitCode, sync::Mutex};

/// Plays fleets of agents against one ledger, in bad weather on purpose, and says what was measured and what was not.
#[derive(Debug, Parser)]
#[command(name = "shakedown", version, max_term_width = 100, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,

    /// How results are written to standard output.
    #[arg(long, global = true, value_enum, default_value_t = FormatName::Text)]
    format: FormatName,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure what has no fresh record, then print the table (this is what no command at all does).
    Report(report::Args),
    /// Name the scenarios, engines, fault kinds, invariants, planted bugs and rows.
    List,
    /// Play one run: its verdict, figures and history hash.
    Run(run::Args),
    /// Play many seeds of many scenarios side by side.
    Gate(gate::Args),
    /// Play a saved run again and say whether it still fails: 0 gone, 1 same, 125 cannot be played.
    Repro(repro::Args),
    /// Show the history of a kept run: what was seen, when, on which node.
    Show(show::Args),
    /// Work a recorded run out again from its files alone, and say whether they hold up.
    Check(check::Args),
}

fn main() -> ExitCode {
    // A panic inside a run is caught there and is a verdict; only one that comes up to here is a defect of shakedown.
    static PANIC: Mutex<String> = Mutex::new(String::new());
    panic::set_hook(Box::new(|panic| {
        if let Ok(mut last) = PANIC.lock() {
            *last = panic.to_string();
        }
    }));
    let parsed = command().try_get_matches().and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) => {
            let exit = if error.use_stderr() { Exit::Usage } else { Exit::Pass };
            let _ = error.print();
            return exit.into();
        }
    };
    let done = panic::catch_unwind(|| perform(cli));
    let exit = match done {
        Ok(Ok(exit)) => exit,
        Ok(Err(failure)) => {
            output::note(&failure.to_string());
            failure.exit()
        }
        Err(_) => {
            output::note(&format!(
                "error: shakedown is broken: {}",
                PANIC.lock().map(|last| last.clone()).unwrap_or_default()
            ));
            output::note("this is a defect of shakedown itself; report it with the command that showed it");
            Exit::Defect
        }
    };
    exit.into()
}

/// The command, in which `report` alone offers the formats of a table.
fn command() -> clap::Command {
    let mut command = Cli::command();
    let others: Vec<String> =
        command.get_subcommands().map(|one| one.get_name().to_owned()).filter(|name| name != "report").collect();
    for name in others {
        command = command.mut_subcommand(name, |one| one.arg(output::plain_format()));
    }
    command
}

fn perform(cli: Cli) -> Result<Exit, Failure> {
    let out = || cli.format.without_table().map(Out::new);
    match cli.command.unwrap_or_else(|| Command::Report(report::Args::default())) {
        Command::Report(args) => report::perform(&args, cli.format),
        Command::List => list::perform(&mut out()?),
        Command::Run(args) => run::perform(&args, &mut out()?),
        Command::Gate(args) => gate::perform(&args, &mut out()?),
        Command::Repro(args) => repro::perform(&args, &mut out()?),
        Command::Show(args) => show::perform(&args, &mut out()?),
        Command::Check(args) => check::perform(&args, &mut out()?),
    }
}
