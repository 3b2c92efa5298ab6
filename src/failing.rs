//! What is kept of a run that failed, and the one command that plays it again.

use crate::{exit::Failure, provenance};
use anyhow::Context as _;
use scenarios::runner::{self, Provenance, Run, RunSpec};
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// Where runs are kept that no one named a folder for.
const KEPT: &str = "target/shakedown";

/// The folder of a failing run that no one named a folder for.
pub fn folder(scenario: &str, seed: u64) -> PathBuf {
    Path::new(KEPT).join(format!("{scenario}-{seed}"))
}

/// Publishes the folder of a run that was recorded in full. What an earlier run left in [`KEPT`] is replaced.
pub fn publish(folder: &Path, spec: &RunSpec, run: &Run, provenance: &Provenance) -> Result<(), Failure> {
    if folder.starts_with(KEPT)
        && let Err(error) = fs::remove_dir_all(folder)
        && error.kind() != io::ErrorKind::NotFound
    {
        let cannot = format!("the folder {} of an earlier run cannot be replaced; remove it", folder.display());
        return Err(Failure::Input(anyhow::Error::new(error).context(cannot)));
    }
    runner::write_folder(folder, spec, run, provenance)
        .context("give a folder on a disk with room to --out")
        .map_err(Failure::Input)
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
