//! `run`: one run, its verdict, its figures and its history hash.

use crate::{
    choices::{self, Shared},
    exit::{Exit, Failure},
    failing, inputs,
    output::{self, Format, Out},
    provenance::Origin,
};
use anyhow::{Context as _, anyhow};
use faults::{Kind, Plan};
use reports::table::grouped;
use scenarios::{
    catalogue, file,
    gate::{self, Divergence},
    runner::{self, Choices, Figures, Run, RunError, RunReport, RunSpec, Verdict},
    scenario::Scenario,
    workload::arrivals::Arrivals,
};
use serde::Serialize;
use sim::{Engine, Recording};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

/// What `run` may be told.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A scenario by name, or a file of your own by its path ending in .toml; `list` names the ones that ship.
    scenario: String,
    /// The seed that every draw of the run derives from.
    #[arg(long, value_name = "N", value_parser = choices::seed, default_value_t = 0, allow_negative_numbers = true)]
    seed: u64,
    /// An arrival trace to replay: columns TIMESTAMP, ContextTokens, GeneratedTokens.
    #[arg(long, value_name = "CSV")]
    arrivals: Option<PathBuf>,
    /// A new or empty folder to write the run into; without it only a failing run is kept, under target/shakedown.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// A file to write the run's plan into, drawn or given, which `--plan FILE` plays to the same history; an older one is
    /// replaced.
    #[arg(long, value_name = "FILE")]
    save_plan: Option<PathBuf>,
    #[command(flatten)]
    shared: Shared,
}

/// A run's JSON object: its report, and where it is kept.
#[derive(Serialize)]
struct Object<'a> {
    #[serde(flatten)]
    report: &'a RunReport,
    #[serde(skip_serializing_if = "Option::is_none")]
    folder: Option<&'a Path>,
    #[serde(skip_serializing_if = "Option::is_none")]
    repro: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parted: Option<&'a Divergence>,
}

/// Does it.
pub fn perform(args: &Args, out: &mut Out) -> Result<Exit, Failure> {
    let scenario = catalogue::find(&args.scenario).map_err(Failure::input)?;
    let mut choices = args.shared.resolve(args.arrivals.is_some())?;
    if let Some(path) = &args.arrivals {
        choices.arrivals = Some(Arc::new(read_arrivals(path).map_err(Failure::Input)?));
    }
    if let Some(folder) = &args.out {
        must_be_free(folder).map_err(Failure::Input)?;
    }
    if let Some(path) = &args.save_plan {
        let read = [Some(PathBuf::from(&args.scenario)), args.arrivals.clone()].into_iter().flatten();
        inputs::must_not_be("--save-plan", path, read.chain(args.shared.files())).map_err(Failure::Input)?;
        inputs::must_be_a_plan_or_nothing("--save-plan", path).map_err(Failure::Input)?;
    }
    let root = real_root(choices.engine)?;
    choices.root = root.as_ref().map(|root| root.path().to_owned());
    let spec = runner::spec(&scenario, args.seed, &choices).map_err(|error| args.shared.refused(error))?;
    if let Some(folder) = &args.out {
        runner::probe_folder(folder).context("--out").map_err(Failure::Input)?;
    }
    if let Some(path) = &args.save_plan {
        file::publish(path, spec.plan.to_toml().as_bytes()).context("--save-plan").map_err(Failure::Input)?;
    }
    let (run, parted) = play(&scenario, &spec, &choices, args.out.is_some()).map_err(Failure::of_run)?;
    let kept = match (&args.out, run.report.verdict) {
        (Some(folder), _) => write(folder, &spec, &run).map(|()| Some(folder.clone())),
        (None, Verdict::Pass) => Ok(None),
        (None, _) => failing::keep(&spec, &run, &Origin::find().provenance()).map(Some),
    };
    let (folder, unkept) = match kept {
        Ok(folder) => (folder, None),
        Err(error) => (None, Some(error)),
    };
    let exit = Exit::of(run.report.verdict);
    let repro = (exit != Exit::Pass).then(|| match &folder {
        Some(folder) if spec.engine == Engine::Native => failing::repro(folder),
        _ => failing::rerun(&args.scenario, args.seed, &flags(args)),
    });
    let object = Object { report: &run.report, folder: folder.as_deref(), repro, parted: parted.as_ref() };
    let told = match out.format {
        Format::Json => out.json(&object),
        Format::Text => out.text(&whole_text(&spec, &object)),
    };
    exit.despite(unkept.map_or(Ok(()), |error| Err(Failure::Input(error))))?.despite(told)
}

/// A run as people read it, with where it is kept and what plays it again.
fn whole_text(spec: &RunSpec, object: &Object<'_>) -> String {
    let mut whole = text(spec, object.report, object.parted);
    if let Some(folder) = object.folder {
        whole.push_str(&format!("kept in    {}\n", folder.display()));
    }
    if let Some(repro) = &object.repro {
        whole.push_str(&format!("\nplay it again:\n  {repro}\n"));
    }
    whole
}

fn write(folder: &Path, spec: &RunSpec, run: &Run) -> anyhow::Result<()> {
    runner::write_folder(folder, spec, run, &Origin::find().provenance()).context("--out")
}

/// Plays a spec. A simulated run that fails is played once more in full, which is itself a check that it is deterministic; a
/// real one cannot be played again and is recorded at once.
fn play(
    scenario: &Scenario,
    spec: &RunSpec,
    choices: &Choices,
    keep: bool,
) -> Result<(Run, Option<Divergence>), RunError> {
    if keep || spec.engine == Engine::Real {
        let run = runner::play(&RunSpec { recording: Recording::Full, ..spec.clone() })?;
        if run.report.verdict == Verdict::Pass || spec.engine == Engine::Real {
            return Ok((run, None));
        }
    }
    gate::play_drawn(scenario, spec, choices, false)
}

/// The flags that play the run again, its seed apart.
fn flags(args: &Args) -> Vec<String> {
    let arrivals = args.arrivals.iter().flat_map(|path| ["--arrivals".to_owned(), path.display().to_string()]);
    args.shared.flags().into_iter().chain(arrivals).collect()
}

/// A run as people read it.
pub fn text(spec: &RunSpec, report: &RunReport, parted: Option<&Divergence>) -> String {
    let RunReport { scenario, seed, agents, engine, store, figures, .. } = report;
    let name = |value: &dyn std::fmt::Debug| format!("{value:?}").to_lowercase();
    let verdict = match report.verdict {
        Verdict::Pass => "pass".to_owned(),
        failed => output::alarm(&name(&failed)),
    };
    let mut lines = vec![
        format!(
            "{scenario}, seed {seed}, {} agents, {} engine, {} store",
            grouped(u64::from(*agents)),
            name(engine),
            name(store)
        ),
        format!("plan       {}", planned(&spec.plan)),
        format!("verdict    {verdict}"),
    ];
    if let Some(broken) = &report.broken {
        lines.push(format!(
            "broken     {} at {}: {}",
            broken.invariant,
            output::span(broken.time_ns),
            output::printable(&broken.message)
        ));
    }
    if let Some(Divergence { entry, one, other }) = parted {
        let [one, other] = [one, other].map(|entry| output::printable(entry));
        lines.push(format!("parted     at entry {entry}: {one}\n                        {other}"));
    }
    lines.push(format!("history    {}", report.history_hash));
    let took = output::span(report.wall_ns);
    lines.push(format!("played     {} in {took}, {} events", output::span(report.virtual_ns), grouped(report.events)));
    match figures.arrivals {
        Some(arrivals) => lines.push(format!("served     {} of {}", grouped(figures.calls_served), grouped(arrivals))),
        None => lines.push(format!("served     {} calls", grouped(figures.calls_served))),
    }
    lines.push(format!(
        "runs       {} ended, {} complete",
        grouped(figures.runs_ended),
        grouped(figures.runs_complete)
    ));
    if let (Some(p50), Some(p99)) = (figures.run_wall_p50_ns, figures.run_wall_p99_ns) {
        lines.push(format!("run wall   p50 {}, p99 {}", output::span(p50), output::span(p99)));
    }
    let wait = figures.ledger_wait_ppm;
    lines.push(format!("waiting    {}.{:04} % of run wall for the ledger", wait / 10_000, wait % 10_000));
    lines.push(format!(
        "reserves   {} admitted, {} refused over a cap, {} waited, {} open at rest",
        grouped(figures.reserves_admitted),
        grouped(figures.reserves_over_cap),
        grouped(figures.reserves_waited),
        grouped(figures.reservations_open)
    ));
    lines.push(format!(
        "money      {} settled, {} invoiced, {} overspends",
        dollars(figures.settled_micro_usd),
        dollars(figures.invoice_micro_usd),
        grouped(figures.overspends)
    ));
    lines.extend(stopped(figures));
    let is_on = |name: &str| spec.bugs.iter().any(|bug| bug.name() == name);
    for (said, on) in [("reached    ", true), ("would differ under ", false)] {
        let these = report.reached.iter().filter(|(bug, times)| *times > 0 && is_on(bug) == on);
        let these: Vec<String> = these.map(|(bug, times)| format!("{bug} {times}x")).collect();
        lines.extend((!these.is_empty()).then(|| format!("{said}{}", these.join(", "))));
    }
    lines.push(String::new());
    lines.join("\n")
}

/// What ceilings and halts stopped and what went past the ledger, as far as there was any.
fn stopped(figures: &Figures) -> impl Iterator<Item = String> {
    let bound: Vec<String> = figures.ceilings.iter().map(|(ceiling, times)| format!("{ceiling} {times}x")).collect();
    let ceilings = (!bound.is_empty()).then(|| format!("ceilings   {}", bound.join(", ")));
    let halts = (figures.halts > 0).then(|| {
        format!(
            "halts      {}, amid {} runs; {} calls were out, {} of them settled, {} invoked while it was on",
            grouped(figures.halts),
            grouped(figures.runs_live_at_halt),
            grouped(figures.calls_out_at_halt),
            grouped(figures.calls_settled_after_halt),
            grouped(figures.invocations_halted)
        )
    });
    let strays = (figures.strays_micro_usd > 0 || figures.strays_refused > 0).then(|| {
        let (charged, refused) = (dollars(figures.strays_micro_usd), grouped(figures.strays_refused));
        format!("strays     {charged} charged past the ledger, {refused} calls stopped by their key's credit")
    });
    ceilings.into_iter().chain(halts).chain(strays)
}

/// A plan in one line: how many faults of each kind.
fn planned(plan: &Plan) -> String {
    let mut kinds: BTreeMap<Kind, u64> = BTreeMap::new();
    for planned in &plan.faults {
        *kinds.entry(planned.fault.kind()).or_default() += 1;
    }
    let kinds: Vec<String> = kinds.iter().map(|(kind, times)| format!("{} {times}", kind.name())).collect();
    if kinds.is_empty() {
        "no faults".to_owned()
    } else {
        format!("{} faults: {}", plan.faults.len(), kinds.join(", "))
    }
}

fn dollars(micro_usd: u64) -> String {
    format!("{}.{:06} USD", grouped(micro_usd / 1_000_000), micro_usd % 1_000_000)
}

/// A folder for the real engine's files, gone when it is dropped.
pub fn real_root(engine: Engine) -> Result<Option<tempfile::TempDir>, Failure> {
    let needed = engine == Engine::Real;
    let root = needed.then(tempfile::tempdir).transpose();
    root.context("the real engine needs a folder for its files; set TMPDIR to a writable one").map_err(Failure::Input)
}

/// Reads an arrival trace.
fn read_arrivals(path: &Path) -> anyhow::Result<Arrivals> {
    let named = || format!("the arrivals {}", path.display());
    let bytes = file::read(path, file::MOST_BYTES).with_context(|| format!("{} cannot be read", named()))?;
    Arrivals::read(bytes.as_slice()).with_context(named)
}

/// Whether nothing is at `folder` but an empty folder, or a link to one.
fn must_be_free(folder: &Path) -> anyhow::Result<()> {
    if folder.file_name().is_none() {
        return Err(anyhow!("{} has no name of its own; give a new or empty folder to --out", folder.display()));
    }
    if let Some(mut entries) = folder
        .exists()
        .then(|| fs::read_dir(folder))
        .transpose()
        .with_context(|| format!("{} is not a folder; give a new or empty one to --out", folder.display()))?
    {
        return match entries.next() {
            None => Ok(()),
            Some(_) => Err(anyhow!("the folder {} is not empty; give a new or empty one to --out", folder.display())),
        };
    }
    match fs::read_link(folder) {
        Ok(to) => Err(anyhow!(
            "{} is a link to {}, where nothing is; make that folder, or give another one to --out",
            folder.display(),
            to.display()
        )),
        Err(_) => Ok(()),
    }
}
