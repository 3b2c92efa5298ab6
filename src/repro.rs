//! `repro`: plays a saved run again and says whether it still fails, in the words of `git bisect run`.

use crate::{
    exit::{Exit, Failure},
    output::{Format, Out},
    run,
};
use anyhow::Context as _;
use scenarios::{
    capsule::Capsule,
    runner::{self, RunReport, Verdict},
};
use serde::Serialize;
use std::{fs, path::PathBuf};

/// What `repro` may be told.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A capsule, as a run's folder holds it.
    capsule: PathBuf,
    /// The arrival trace that the run was played on; the capsule holds its hash alone.
    #[arg(long, value_name = "CSV")]
    arrivals: Option<PathBuf>,
}

/// How what came out compares with what was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Outcome {
    /// It passes, as it did.
    Passes,
    /// It failed and passes now.
    Gone,
    /// It fails as it did.
    Same,
    /// It fails, and not as it did.
    FailsOtherwise,
}

/// What `repro` says in JSON.
#[derive(Serialize)]
struct Object<'a> {
    outcome: Outcome,
    same_history: bool,
    recorded: &'a Recorded,
    #[serde(flatten)]
    report: &'a RunReport,
}

/// What the capsule says came out.
#[derive(Serialize)]
struct Recorded {
    verdict: Verdict,
    #[serde(skip_serializing_if = "Option::is_none")]
    invariant: Option<String>,
    history_hash: String,
    commit: String,
}

/// Does it.
pub fn perform(args: &Args, out: &mut Out) -> Result<Exit, Failure> {
    let capsule = read(args).map_err(Failure::CannotPlay)?;
    todo!()
}
