//! What is kept of a run that failed, and the one command that plays it again.

use crate::provenance;
use anyhow::Context as _;
use scenarios::runner::{self, Provenance, Run, RunSpec};
use std::path::{Path, PathBuf};

/// Where runs are kept that no one named a folder for, below the working directory.
const KEPT: &str = "target/shakedown";

/// Characters of the history hash in a folder's name.
const HASH_CHARS: usize = 8;

/// Keeps a failing run, recorded in full, where no one named a folder for it. The folder is named after the scenario, the
/// seed and the history, so that what is there already is the same run, and nothing else is ever replaced.
pub fn keep(spec: &RunSpec, run: &Run, provenance: &Provenance) -> anyhow::Result<PathBuf> {
    let report = &run.report;
    let hash = report.history_hash.get(..HASH_CHARS).unwrap_or(&report.history_hash);
    let folder = Path::new(KEPT).join(format!("{}-{}-{hash}", report.scenario, report.seed));
    let is_there = || folder.join("capsule.toml").is_file();
    if is_there() {
        return Ok(folder);
    }
    match runner::write_folder(&folder, spec, run, provenance) {
        Err(_) if is_there() => Ok(folder), // another process kept the same run meanwhile
        written => written.map(|()| folder).context("the failing run is not kept; play it again where there is room"),
    }
}

/// The command that plays the run in `folder` again.
pub fn repro(folder: &Path) -> String {
    let capsule = folder.join("capsule.toml").display().to_string();
    provenance::command(["repro", capsule.as_str()])
}

/// The command that plays one seed of a scenario again with the same flags.
pub fn rerun(scenario: &str, seed: u64, flags: &[String]) -> String {
    let seed = seed.to_string();
    let fixed = ["run", scenario, "--seed", seed.as_str()];
    provenance::command(fixed.into_iter().chain(flags.iter().map(String::as_str)))
}
