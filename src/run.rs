//! `run`: one run, its verdict, its figures and its history hash.

use crate::{
    choices::Shared,
    exit::{Exit, Failure},
    failing,
    output::{self, Format, Out},
    provenance::{self, Origin},
};
use anyhow::{Context as _, anyhow};
use reports::table::grouped;
use scenarios::{
    catalogue,
    runner::{self, Choices, Run, RunReport, RunSpec, Verdict},
    workload::arrivals::Arrivals,
};
use serde::Serialize;
use sim::{Engine, Recording};
use std::{
    fs,
    io::BufReader,
    path::{Path, PathBuf},
    sync::Arc,
};

/// What `run` may be told.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A scenario by name, or a file of your own by its path ending in .toml; `list` names the ones that ship.
    scenario: String,
    /// The seed that every draw of the run derives from.
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// An arrival trace to replay: columns TIMESTAMP, ContextTokens, GeneratedTokens.
    #[arg(long, value_name = "CSV")]
    arrivals: Option<PathBuf>,
    /// A new or empty folder to write the run into; without it only a failing run is kept, under target/shakedown.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
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
    let root = real_root(&mut choices)?;
    if args.out.is_some() || root.is_some() {
        choices.recording = Recording::Full;
    }
    let spec = runner::spec(&scenario, args.seed, &choices).map_err(Failure::input)?;
    let run = runner::play(&spec).map_err(Failure::defect)?;
    let (spec, run) = match (run.report.verdict, spec.recording) {
        (Verdict::Pass, _) | (_, Recording::Full) => (spec, run),
        (_, Recording::HashOnly { .. }) => failing::recorded(&spec, &run.report)?,
    };
    let folder = keep(args, &spec, &run)?;
    tell(args, &run.report, folder.as_deref(), out)?;
    Ok(Exit::of(run.report.verdict))
}

/// Publishes the run if it failed or a folder was named for it.
fn keep(args: &Args, spec: &RunSpec, run: &Run) -> Result<Option<PathBuf>, Failure> {
    let folder = match (&args.out, run.report.verdict) {
        (Some(folder), _) => folder.clone(),
        (None, Verdict::Pass) => return Ok(None),
        (None, _) => failing::folder(&run.report.scenario, run.report.seed),
    };
    let command = failing::rerun(&args.scenario, args.seed, &flags(args));
    failing::publish(&folder, spec, run, &Origin::find().provenance(command))?;
    Ok(Some(folder))
}

/// The flags that play the run again, its seed apart.
fn flags(args: &Args) -> Vec<String> {
    let arrivals = args.arrivals.iter().flat_map(|path| ["--arrivals".to_owned(), path.display().to_string()]);
    args.shared.flags().into_iter().chain(arrivals).collect()
}

fn tell(args: &Args, report: &RunReport, folder: Option<&Path>, out: &mut Out) -> Result<(), Failure> {
    let repro = (report.verdict != Verdict::Pass).then(|| match folder {
        Some(folder) if report.engine == Engine::Native => failing::repro(folder, args.arrivals.as_deref()),
        _ => failing::rerun(&args.scenario, args.seed, &flags(args)),
    });
    match out.format {
        Format::Json => out.json(&Object { report, folder, repro }),
        Format::Text => {
            out.text(&text(report))?;
            if let Some(folder) = folder {
                out.line(format_args!("kept in    {}", folder.display()))?;
            }
            repro.map_or(Ok(()), |repro| out.line(format_args!("\nplay it again:\n  {repro}")))
        }
    }
}

/// A report as people read it.
fn text(report: &RunReport) -> String {
    let RunReport { scenario, seed, agents, engine, store, faults, figures, .. } = report;
    let name = |value: &dyn std::fmt::Debug| format!("{value:?}").to_lowercase();
    let verdict = match report.verdict {
        Verdict::Pass => "pass".to_owned(),
        failed => output::alarm(&name(&failed)),
    };
    let mut lines = vec![
        format!(
            "{scenario}, seed {seed}, {} agents, {} engine, {} store, {} faults planned",
            grouped(u64::from(*agents)),
            name(engine),
            name(store),
            grouped(*faults)
        ),
        format!("verdict    {verdict}"),
    ];
    if let Some(broken) = &report.broken {
        lines.push(format!("broken     {} at {}: {}", broken.invariant, output::span(broken.time_ns), broken.message));
    }
    lines.push(format!("history    {}", report.history_hash));
    let took = output::span(report.wall_ns);
    lines.push(format!("played     {} in {took}, {} events", output::span(report.virtual_ns), grouped(report.events)));
    match figures.arrivals {
        Some(arrivals) => lines.push(format!("served     {} of {}", grouped(figures.calls_served), grouped(arrivals))),
        None => lines.push(format!("served     {} calls", grouped(figures.calls_served))),
    }
    lines.push(format!("runs       {} ended, {} complete", grouped(figures.runs_ended), grouped(figures.runs_complete)));
    if let (Some(p50), Some(p99)) = (figures.run_wall_p50_ns, figures.run_wall_p99_ns) {
        lines.push(format!("run wall   p50 {}, p99 {}", output::span(p50), output::span(p99)));
    }
    let wait = figures.ledger_wait_ppm;
    lines.push(format!("waiting    {}.{:04} % of run wall for the ledger", wait / 10_000, wait % 10_000));
    lines.push(format!(
        "reserves   {} admitted, {} over a cap, {} waited, {} open at rest",
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
    let reached: Vec<String> =
        report.reached.iter().filter(|(_, times)| *times > 0).map(|(bug, times)| format!("{bug} {times}x")).collect();
    if !reached.is_empty() {
        lines.push(format!("reached    {}", reached.join(", ")));
    }
    lines.push(String::new());
    lines.join("\n")
}

fn dollars(micro_usd: u64) -> String {
    format!("{}.{:06} USD", grouped(micro_usd / 1_000_000), micro_usd % 1_000_000)
}

/// A folder for the real engine's files, gone when it is dropped.
pub fn real_root(choices: &mut Choices) -> Result<Option<tempfile::TempDir>, Failure> {
    if choices.engine != Engine::Real {
        return Ok(None);
    }
    let root = tempfile::tempdir()
        .context("the real engine needs a folder for its files; set TMPDIR to a writable one")
        .map_err(Failure::Input)?;
    choices.root = Some(root.path().to_owned());
    Ok(Some(root))
}

/// Reads an arrival trace.
#[expect(clippy::disallowed_methods, reason = "a trace that the user names is read from the user's disk")]
pub fn read_arrivals(path: &Path) -> anyhow::Result<Arrivals> {
    let named = || format!("the arrivals {}", path.display());
    let file = fs::File::open(path).with_context(|| format!("{} cannot be read", named()))?;
    Arrivals::read(BufReader::new(file)).with_context(named)
}

/// Whether a folder can be made at `folder`: nothing may be there but an empty folder, and it must have somewhere to be.
fn must_be_free(folder: &Path) -> anyhow::Result<()> {
    if let Some(mut entries) = folder.exists().then(|| fs::read_dir(folder)).transpose().with_context(|| {
        format!("{} is not a folder; give a new or empty one to --out", folder.display())
    })? {
        return match entries.next() {
            None => Ok(()),
            Some(_) => Err(anyhow!("the folder {} is not empty; give a new or empty one to --out", folder.display())),
        };
    }
    let above = folder.ancestors().skip(1).find(|above| above.exists()).unwrap_or(Path::new("."));
    let writable = above.is_dir() && fs::metadata(above).is_ok_and(|above| !above.permissions().readonly());
    if writable || above.as_os_str().is_empty() {
        Ok(())
    } else {
        Err(anyhow!("no folder can be made in {}; give another one to --out", above.display()))
    }
}
