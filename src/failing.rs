//! What is kept of a run that failed, and the one command that plays it again.

use crate::{output, provenance};
use anyhow::{Context as _, anyhow};
use scenarios::{
    capsule::Capsule,
    runner::{self, Provenance, Run, RunSpec},
};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Where runs are kept that no one named a folder for, below the working directory.
const KEPT: &str = "target/shakedown";

/// Characters of the history hash in a folder's name.
const HASH_CHARS: usize = 8;

/// Runs of one scenario, seed and history that are kept side by side: of several builds, as a rule.
const MOST_NAMESAKES: u32 = 100;

/// Keeps a failing run, recorded in full, where no one named a folder for it. The folder is named after the scenario, the
/// seed and the history; where another run has that name already, a number is added. Nothing is ever replaced.
pub fn keep(spec: &RunSpec, run: &Run, provenance: &Provenance) -> anyhow::Result<PathBuf> {
    let report = &run.report;
    let hash = report.history_hash.get(..HASH_CHARS).unwrap_or(&report.history_hash);
    let name = format!("{}-{}-{hash}", report.scenario, report.seed);
    let capsule = Capsule::of(spec, report, provenance).to_toml()?;
    let is_kept = |folder: &Path| holds(folder, &capsule, run);
    for namesake in 1..=MOST_NAMESAKES {
        let suffix = if namesake == 1 { String::new() } else { format!("-{namesake}") };
        let folder = Path::new(KEPT).join(format!("{name}{suffix}"));
        if is_kept(&folder) {
            return Ok(folder);
        }
        if !is_taken(&folder) {
            match runner::write_folder(&folder, spec, run, provenance) {
                Err(_) if is_kept(&folder) => return Ok(folder), // another process kept the same run meanwhile
                Err(_) if is_taken(&folder) => {}
                written => return written.map(|()| folder).context("the failing run is not kept"),
            }
        }
        output::note(&format!(
            "note: {} holds something else than this run, which is kept beside it",
            folder.display()
        ));
    }
    Err(anyhow!("the failing run is not kept: {MOST_NAMESAKES} others have its name in {KEPT}; remove some of them"))
}

/// Whether a folder holds this very run, byte for byte where that can be told: its result says how long it took here.
#[expect(clippy::disallowed_methods, reason = "a run that was kept is read from the user's disk")]
fn holds(folder: &Path, capsule: &str, run: &Run) -> bool {
    let is = |name: &str, bytes: &[u8]| fs::read(folder.join(name)).is_ok_and(|there| there == bytes);
    let is_whole = ["events.jsonl", "result.json"].iter().all(|name| folder.join(name).is_file());
    is_whole && is("capsule.toml", capsule.as_bytes()) && is("history.log", &run.history.kept)
}

/// Whether anything is in the way of a folder.
fn is_taken(folder: &Path) -> bool {
    match fs::read_dir(folder) {
        Ok(mut entries) => entries.next().is_some(),
        Err(_) => folder.symlink_metadata().is_ok(),
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
