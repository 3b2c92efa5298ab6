//! `report`: makes the records that are missing or stale, within a time budget, then prints the table.
//!
//! What can be made so far: the counts of C3 from contention runs, and the predictions of C9 from fleets without faults. Raw
//! times are read from the facts in each run's history; no figure is taken over from a run's own report unless it is a count.

mod take;

use crate::{
    clock::Stopwatch,
    exit::{Exit, Failure},
    output::{Format, Out},
    provenance::Origin,
};
use anyhow::Context as _;
use indicatif::{ProgressBar, ProgressStyle};
use reports::{
    record::{Record, Records},
    render,
    row::Rows,
    table::{self, Context, Status, Table},
};
use scenarios::runner::Verdict;
use serde::Serialize;
use std::{
    fs, io,
    io::Write as _,
    path::{Path, PathBuf},
    time::Duration,
};
use take::{Take, Taken};

/// How long `report` measures if it is not told.
const BUDGET: Duration = Duration::from_secs(90);

/// Where records are kept between reports.
const RECORDS: &str = "target/shakedown/records.jsonl";

/// What `report` may be told.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Begin no more measuring once this much time has passed; what did not fit is NOT MEASURED.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration, default_value = "90s")]
    budget: Duration,
    /// Where records are kept from report to report.
    #[arg(long, value_name = "FILE", default_value = RECORDS)]
    records: PathBuf,
}

impl Default for Args {
    fn default() -> Args {
        Args { budget: BUDGET, records: PathBuf::from(RECORDS) }
    }
}

/// What `report` says in JSON.
#[derive(Serialize)]
struct Object<'a> {
    #[serde(flatten)]
    table: &'a Table,
    commit: &'a str,
    dirty: bool,
    binary: &'a str,
    /// Records made for this table, the others having been fresh.
    made: usize,
    wall_ns: u64,
}

/// Does it.
pub fn perform(args: &Args, out: &mut Out) -> Result<Exit, Failure> {
    let watch = Stopwatch::start();
    let rows = Rows::built_in().map_err(Failure::defect)?;
    let origin = Origin::find();
    let takes = take::all().map_err(Failure::Defect)?;
    let mut records = read(&args.records).map_err(Failure::Input)?;
    let mut context = Context {
        commit: origin.commit.clone(),
        binary: origin.binary.clone(),
        scenarios: takes.iter().map(Take::scenario).collect(),
        assumptions: take::assumptions(&takes),
        ..Context::default()
    };
    let before = table::render(&rows, &records, &context);
    let wanted: Vec<&Take> = takes.iter().filter(|take| origin.dirty || !is_told(&before, take)).collect();
    let bar = progress(wanted.len());
    let (mut made, mut verdicts) = (0, Vec::new());
    for take in wanted {
        bar.set_message(take.what());
        let taken = if watch.elapsed() < args.budget {
            take.perform(&origin)?
        } else {
            Taken::Nothing {
                verdict: Verdict::Pass,
                reason: format!("did not fit into the budget of {}", humantime::format_duration(args.budget)),
            }
        };
        match taken {
            Taken::Records(taken) => {
                append(&args.records, &taken).map_err(Failure::Input)?;
                made += taken.len();
                records.records.extend(taken);
            }
            Taken::Nothing { verdict, reason } => {
                records.records.retain(|record| !take.feeds(&record.row, record.sizes.get("agents").copied()));
                context.skipped.extend(take.figures().map(|figure| (figure, reason.clone())));
                verdicts.push(verdict);
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let table = table::render(&rows, &records, &context);
    match out.format {
        Format::Json => out.json(&Object {
            table: &table,
            commit: &origin.commit,
            dirty: origin.dirty,
            binary: &origin.binary,
            made,
            wall_ns: watch.elapsed_ns(),
        })?,
        Format::Text => {
            out.text(&render::text(&table, width()))?;
            let changes = if origin.dirty { " with uncommitted changes" } else { "" };
            let binary = origin.binary.get(..16).unwrap_or(&origin.binary);
            out.line(format_args!("\ncommit {}{changes}, binary {binary}", origin.commit))?;
        }
    }
    Ok(Exit::of_all(verdicts))
}

/// Whether every line that a take feeds is there already.
fn is_told(table: &Table, take: &Take) -> bool {
    let mut lines = table.lines.iter().filter(|line| {
        take.figures().any(|(row, figure, rung)| (&row, &figure, rung) == (&line.row, &line.figure, line.rung))
    });
    lines.all(|line| !matches!(line.status, Status::NotMeasured { .. }))
}

/// The width of the terminal, if the environment says it.
fn width() -> u16 {
    let columns = std::env::var_os("COLUMNS").and_then(|columns| columns.to_str()?.parse().ok());
    columns.unwrap_or(render::FALLBACK_WIDTH)
}

fn progress(length: usize) -> ProgressBar {
    let bar = ProgressBar::new(length as u64);
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len}  {msg}");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar.tick();
    bar
}

#[expect(clippy::disallowed_methods, reason = "records are kept on the user's disk")]
fn read(path: &Path) -> anyhow::Result<Records> {
    match fs::read(path) {
        Ok(bytes) => Ok(Records::read(&bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Records::default()),
        Err(error) => Err(error).with_context(|| format!("the records {} cannot be read", path.display())),
    }
}

/// Adds records to the file, each line in one write, so that what is torn is at most the last line.
fn append(path: &Path, records: &[Record]) -> anyhow::Result<()> {
    let cannot = || format!("the records {} cannot be written; give another file with --records", path.display());
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).with_context(cannot)?;
    }
    let mut file = fs::OpenOptions::new().create(true).append(true).open(path).with_context(cannot)?;
    for record in records {
        file.write_all(format!("{}\n", record.to_line()?).as_bytes()).with_context(cannot)?;
    }
    Ok(())
}
