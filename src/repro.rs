//! `repro`: plays a saved run again and says whether it still fails, in the words of `git bisect run`.

use crate::{
    exit::{self, Exit, Failure},
    output::{self, Format, Out},
    run,
};
use scenarios::{
    capsule::Capsule,
    gate::{self, Divergence},
    runner::{self, RunReport, Verdict},
};
use serde::Serialize;
use sim::Engine;
use std::path::PathBuf;

/// What `repro` may be told.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A capsule, or the folder of a run, which holds one.
    capsule: PathBuf,
}

/// How what came out compares with what was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Outcome {
    /// It passed, and passes.
    Passes,
    /// It failed, and passes now.
    Gone,
    /// It fails as it did.
    Same,
    /// It fails, and not as it did.
    Otherwise,
}

/// What `repro` says in JSON.
#[derive(Serialize)]
struct Object<'a> {
    outcome: Outcome,
    same_history: bool,
    recorded: &'a Recorded,
    #[serde(skip_serializing_if = "Option::is_none")]
    parted: Option<&'a Divergence>,
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
    let path = if args.capsule.is_dir() { args.capsule.join("capsule.toml") } else { args.capsule.clone() };
    let cannot_play =
        |error: anyhow::Error| Failure::CannotPlay(error.context(format!("{} cannot be played", path.display())));
    let capsule = Capsule::load(&path).map_err(|error| cannot_play(error.into()))?;
    let mut spec = capsule.spec().map_err(|error| cannot_play(error.into()))?;
    let root = run::real_root(spec.engine).map_err(|failure| match failure {
        Failure::Input(error) => cannot_play(error),
        failure => failure,
    })?;
    spec.root = root.as_ref().map(|root| root.path().to_owned());
    let was_drawn_again = capsule.broken.as_ref().is_some_and(|broken| broken.invariant == gate::DRAWN_AGAIN);
    let (run, parted) = match spec.engine {
        Engine::Native if was_drawn_again => gate::play_drawn_again(&spec).map(|run| (run, None)),
        Engine::Native => gate::play_checked(&spec, capsule.verdict == Verdict::Nondeterminism),
        Engine::Real => runner::play(&spec).map(|run| (run, None)),
    }
    .map_err(|error| cannot_play(error.into()))?;
    let recorded = Recorded {
        verdict: capsule.verdict,
        invariant: capsule.broken.map(|broken| broken.invariant),
        history_hash: capsule.history_hash,
        commit: capsule.provenance.commit,
    };
    let outcome = compare(&recorded, &run.report);
    let same_history = recorded.history_hash == run.report.history_hash;
    let told = match out.format {
        Format::Json => out.json(&Object {
            outcome,
            same_history,
            recorded: &recorded,
            parted: parted.as_ref(),
            report: &run.report,
        }),
        Format::Text => {
            let said = said(outcome, same_history, &recorded.commit);
            out.text(&format!("{said}\n{}", run::text(&spec, &run.report, parted.as_ref())))
        }
    };
    if let Err(failure) = told {
        output::note(&format!("warning: {}", exit::chain(failure.error()))); // a bisection goes by the exit, which any other would mislead
    }
    Ok(match outcome {
        Outcome::Passes | Outcome::Gone => Exit::Pass,
        Outcome::Same | Outcome::Otherwise => Exit::Safety,
    })
}

fn compare(recorded: &Recorded, report: &RunReport) -> Outcome {
    let invariant = report.broken.as_ref().map(|broken| &broken.invariant);
    match (recorded.verdict, report.verdict) {
        (Verdict::Pass, Verdict::Pass) => Outcome::Passes,
        (_, Verdict::Pass) => Outcome::Gone,
        (then, now) if then == now && recorded.invariant.as_ref() == invariant => Outcome::Same,
        _ => Outcome::Otherwise,
    }
}

fn said(outcome: Outcome, same_history: bool, commit: &str) -> String {
    let word = match outcome {
        Outcome::Passes => "passes, as it did",
        Outcome::Gone => "gone: it failed, and passes now",
        Outcome::Same => "same: it fails as it did",
        Outcome::Otherwise => "fails, and not as it did",
    };
    let history = if same_history { "the same history" } else { "another history" };
    let commit = if commit.is_empty() { "an unknown commit" } else { commit };
    let word =
        if matches!(outcome, Outcome::Same | Outcome::Otherwise) { output::alarm(word) } else { word.to_owned() };
    format!("{word}, with {history} (recorded at {commit})\n")
}
