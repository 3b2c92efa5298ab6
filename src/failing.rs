//! What is done about a run that failed: it is played again with everything recorded, which is itself a check that it is
//! deterministic; its folder is published; and the one command that plays it again is made.

use crate::{exit::Failure, provenance};
use anyhow::Context as _;
use scenarios::{
    runner::{self, Provenance, Run, RunReport, RunSpec, Verdict},
    invariant::Broken,
};
use sim::{Engine, Recording};
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// Where runs are kept that no one named a folder for.
pub const KEPT: &str = "target/shakedown";

/// The folder of a failing run that no one named a folder for.
pub fn folder(scenario: &str, seed: u64) -> PathBuf {
    Path::new(KEPT).join(format!("{scenario}-{seed}"))
}

/// Plays a spec again with everything recorded. If what comes out is not what `first` was, the verdict is nondeterminism.
///
/// A run on the real engine cannot be played again; it has to have been recorded the first time.
pub fn recorded(spec: &RunSpec, first: &RunReport) -> Result<(RunSpec, Run), Failure> {
    let spec = RunSpec { recording: Recording::Full, ..spec.clone() };
    let mut run = runner::play(&spec).map_err(Failure::defect)?;
    if spec.engine == Engine::Native {
        doubt(&mut run.report, first);
    }
    Ok((spec, run))
}

/// Turns a report's verdict into nondeterminism if `first`, of the same spec, says otherwise.
pub fn doubt(report: &mut RunReport, first: &RunReport) {
    if report.history_hash == first.history_hash && report.verdict == first.verdict {
        return;
    }
    report.broken = Some(Broken {
        invariant: "same-spec-same-history".to_owned(),
        message: format!(
            "played twice, the run gave {:?} with history {} and {:?} with history {}",
            first.verdict, first.history_hash, report.verdict, report.history_hash
        ),
        time_ns: 0,
    });
    report.verdict = Verdict::Nondeterminism;
}

/// Publishes a run's folder: it is written beside its place and moved there whole. A folder that an earlier run left in
/// [`KEPT`] is replaced.
#[expect(clippy::disallowed_methods, reason = "a run's folder is on the user's disk")]
pub fn publish(folder: &Path, spec: &RunSpec, run: &Run, provenance: &Provenance) -> Result<(), Failure> {
    let parent = folder.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let publish = || -> anyhow::Result<()> {
        fs::create_dir_all(parent)?;
        let beside = tempfile::Builder::new().prefix(".unfinished-").tempdir_in(parent)?;
        runner::write_folder(beside.path(), spec, run, provenance)?;
        if folder.starts_with(KEPT) {
            or_absent(fs::remove_dir_all(folder))?;
        } else {
            or_absent(fs::remove_dir(folder))?;
        }
        fs::rename(beside.keep(), folder)?;
        Ok(())
    };
    publish().with_context(|| format!("the folder {} cannot be written", folder.display())).map_err(Failure::Input)
}

fn or_absent(removed: io::Result<()>) -> io::Result<()> {
    removed.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
}

/// The command that plays the run in `folder` again, on the arrivals it was played on.
pub fn repro(folder: &Path, arrivals: Option<&Path>) -> String {
    let capsule = folder.join("capsule.toml").display().to_string();
    let arrivals = arrivals.map(|arrivals| arrivals.display().to_string());
    let trace = arrivals.as_deref().into_iter().flat_map(|arrivals| ["--arrivals", arrivals]);
    provenance::command(["repro", capsule.as_str()].into_iter().chain(trace))
}

/// The command that plays one seed of a scenario again with the same flags.
pub fn rerun(scenario: &str, seed: u64, flags: &[String]) -> String {
    let seed = seed.to_string();
    let fixed = ["run", scenario, "--seed", seed.as_str()];
    provenance::command(fixed.into_iter().chain(flags.iter().map(String::as_str)))
}
