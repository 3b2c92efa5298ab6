//! `report`: makes the records that are missing or stale, within a time budget, then prints the table.
//!
//! What can be made so far: the counts of C3 from contention runs, and the ladder of C9 from fleets, with faults and without,
//! under the published caps and under caps scaled to n. Its raw times are those the runs' figures were worked out from.

mod spent;
mod take;

use crate::{
    choices,
    clock::Stopwatch,
    exit::{Exit, Failure},
    output::{self, Format, FormatName, Out},
    provenance::{self, Origin},
};
use anyhow::{Context as _, anyhow};
use indicatif::{ProgressBar, ProgressStyle};
use reports::{
    plot,
    record::{Record, Records},
    render,
    row::Rows,
    table::{self, Context, Met, Spot, Status, Table},
};
use scenarios::{
    file::{self, Unpublished},
    runner::Verdict,
};
use serde::Serialize;
use spent::Spent;
use std::{
    fs, io,
    io::{Read as _, Seek as _, Write as _},
    path::{Path, PathBuf},
    time::Duration,
};
use take::{Take, Taken};

/// How long `report` measures if it is not told.
const BUDGET: Duration = Duration::from_secs(90);

/// Where records are kept between reports.
const RECORDS: &str = "target/shakedown/records.jsonl";

/// Where the table and the plots are written.
const OUT: &str = "target/shakedown/report";

/// What `report` may be told.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Begin nothing that is not expected to be done in this much time; what does not fit is NOT MEASURED.
    #[arg(long, value_name = "TIME", value_parser = choices::time, default_value = "90s")]
    budget: Duration,
    /// Where records are kept from report to report.
    #[arg(long, value_name = "FILE", default_value = RECORDS)]
    records: PathBuf,
    /// Where the table, as Markdown and as CSV, and the plots are written.
    #[arg(long, value_name = "DIR", default_value = OUT)]
    out: PathBuf,
}

impl Default for Args {
    fn default() -> Args {
        Args { budget: BUDGET, records: PathBuf::from(RECORDS), out: PathBuf::from(OUT) }
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
pub fn perform(args: &Args, format: FormatName) -> Result<Exit, Failure> {
    let watch = Stopwatch::start();
    let rows = Rows::built_in().map_err(Failure::defect)?;
    let origin = Origin::find();
    let takes = take::all().map_err(Failure::Defect)?;
    let mut records = read(&args.records).map_err(Failure::Input)?;
    begin(&args.out).map_err(Failure::Input)?;
    let mut context = Context {
        commit: origin.commit.clone(),
        binary: origin.binary.clone(),
        machine: provenance::machine(),
        scenarios: takes.iter().map(Take::scenario).collect(),
        assumptions: take::assumptions(&takes),
        ..Context::default()
    };
    let before = table::render(&rows, &records, &context);
    let wanted: Vec<&Take> = takes.iter().filter(|take| origin.dirty || !is_told(&before, take)).collect();
    let Made { made, verdicts, unsaved } = make(args, watch, &wanted, &origin, &mut records, &mut context)?;
    let table = table::render(&rows, &records, &context);
    let published = publish(&args.out, &table).map_err(Failure::Input);
    let mut out = Out::new(if format == FormatName::Json { Format::Json } else { Format::Text });
    let changes = if origin.dirty { " with uncommitted changes" } else { "" };
    let binary = origin.binary.get(..16).unwrap_or(&origin.binary);
    let of = format!("commit {}{changes}, binary {binary}", origin.commit);
    let told = match format {
        FormatName::Text => out.text(&format!("{}\n{of}\n", render::text(&table, width()))),
        FormatName::Markdown => out.text(&format!("{}\n{of}\n", render::markdown(&table))),
        FormatName::Csv => out.text(&render::csv(&table).map_err(Failure::defect)?),
        FormatName::Json => out.json(&Object {
            table: &table,
            commit: &origin.commit,
            dirty: origin.dirty,
            binary: &origin.binary,
            made,
            wall_ns: watch.elapsed_ns(),
        }),
    };
    if published.is_ok() {
        output::note(&format!("table and plots are in {}", args.out.display()));
    }
    let unsaved = unsaved.map_or(Ok(()), |error| Err(Failure::Input(error)));
    exit(verdicts, &table).despite(unsaved)?.despite(published)?.despite(told)
}

/// What came of making records.
struct Made {
    /// How many there are.
    made: usize,
    /// Of runs that gave none.
    verdicts: Vec<Verdict>,
    /// Why records could not be kept for the next report, if so; they are in this one.
    unsaved: Option<anyhow::Error>,
}

/// Makes the records of `wanted`, as far as the budget goes.
fn make(
    args: &Args,
    watch: Stopwatch,
    wanted: &[&Take],
    origin: &Origin,
    records: &mut Records,
    context: &mut Context,
) -> Result<Made, Failure> {
    let bar = progress(wanted.len());
    let (mut made, mut verdicts, mut spent, mut unsaved) = (0, Vec::new(), Spent::default(), None);
    for take in wanted {
        bar.set_message(take.what());
        let left = args.budget.saturating_sub(watch.elapsed());
        let taken = match spent.refuses(take, left) {
            None => {
                let began = Stopwatch::start();
                let taken = take.perform(origin)?;
                spent.add(take, began.elapsed());
                taken
            }
            Some(about) => Taken::Nothing {
                verdict: Verdict::Pass,
                reason: format!("did not fit into the budget of {}{about}", humantime::format_duration(args.budget)),
            },
        };
        match taken {
            Taken::Records(taken) => {
                unsaved = unsaved.or_else(|| append(&args.records, &taken).err());
                made += taken.len();
                records.records.extend(taken);
            }
            Taken::Nothing { verdict, reason } => {
                let kept = |record: &Record| !take.feeds(record);
                let doubtful = records.records.iter().take(records.doubtful).filter(|record| kept(record)).count();
                records.records.retain(kept);
                records.doubtful = doubtful;
                context.skipped.extend(take.spots().map(|spot| (spot, reason.clone())));
                verdicts.push(verdict);
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(Made { made, verdicts, unsaved })
}

/// The gravest verdict of the runs; of runs that all passed, whether what they counted is what it has to be.
fn exit(verdicts: Vec<Verdict>, table: &Table) -> Exit {
    let missed = table.lines.iter().any(|line| line.status == Status::Counted { met: Met::Fail });
    match Exit::of_all(verdicts) {
        Exit::Pass if missed => Exit::Safety,
        exit => exit,
    }
}

/// Makes the folder and tries whether a table can be written there, so that nothing is measured in vain.
fn begin(folder: &Path) -> anyhow::Result<()> {
    let made = fs::create_dir_all(folder).map_err(|source| Unpublished { path: folder.to_owned(), source });
    made.and_then(|()| file::probe(&folder.join("table.md"))).context("--out")
}

/// Writes the table and its plots.
fn publish(folder: &Path, table: &Table) -> anyhow::Result<()> {
    let mut files =
        vec![("table.md".to_owned(), render::markdown(table)), ("table.csv".to_owned(), render::csv(table)?)];
    files.extend(plot::plots(table)?.into_iter().map(|plot| (plot.name, plot.svg)));
    for (name, text) in files {
        file::publish(&folder.join(name), text.as_bytes()).context("--out")?;
    }
    Ok(())
}

/// Whether every line that a take feeds is there already.
fn is_told(table: &Table, take: &Take) -> bool {
    let spots: Vec<Spot> = take.spots().collect();
    let mut lines = table.lines.iter().filter(|line| spots.contains(&line.spot()));
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

/// The records that are there. Others are added to the file, so it has to be one of records: damaged ones are named in the
/// table, and what is no record at all is somebody's letter.
fn read(path: &Path) -> anyhow::Result<Records> {
    let read = match fs::metadata(path) {
        Ok(there) if !there.is_file() => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Records::default()),
        _ => file::read(path, file::MOST_BYTES),
    };
    let cannot = || format!("the records {} cannot be read; give another file with --records", path.display());
    let bytes = read.with_context(cannot)?;
    let mut lines =
        bytes.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty()).peekable();
    if lines.peek().is_some() && !lines.any(|line| line.starts_with(b"{")) {
        return Err(anyhow!("it holds something else, which records would be added to")).with_context(cannot);
    }
    Ok(Records::read(&bytes))
}

/// Adds records to the file, each line in one write, so that what is torn is at most the last line; after a torn line a new
/// one is begun.
fn append(path: &Path, records: &[Record]) -> anyhow::Result<()> {
    let cannot = || format!("the records {} cannot be written; give another file with --records", path.display());
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).with_context(cannot)?;
    }
    let mut file = fs::OpenOptions::new().create(true).read(true).append(true).open(path).with_context(cannot)?;
    let torn = match file.seek(io::SeekFrom::End(-1)) {
        Ok(_) => {
            let mut last = [0];
            file.read_exact(&mut last).with_context(cannot)?;
            last != *b"\n"
        }
        Err(_) => false, // it is empty
    };
    if torn {
        file.write_all(b"\n").with_context(cannot)?;
    }
    for record in records {
        file.write_all(format!("{}\n", record.to_line()?).as_bytes()).with_context(cannot)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_that_misses_its_target_is_exit_1_unless_a_run_failed_worse() {
        let rows = Rows::built_in().expect("the rows that ship can be read");
        let mut table = table::render(&rows, &Records::default(), &Context::default());
        assert_eq!(exit(Vec::new(), &table), Exit::Pass);
        table.lines[0].status = Status::Counted { met: Met::Pass };
        assert_eq!(exit(vec![Verdict::Pass], &table), Exit::Pass);
        table.lines[0].status = Status::Counted { met: Met::Fail };
        assert_eq!(exit(vec![Verdict::Pass], &table), Exit::Safety);
        assert_eq!(exit(vec![Verdict::Liveness], &table), Exit::Liveness);
        table.lines[0].status = Status::Measured { met: Met::Fail };
        assert_eq!(exit(Vec::new(), &table), Exit::Pass);
    }

    #[test]
    fn what_follows_a_torn_line_is_a_line_of_its_own() {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let path = folder.path().join("deep/records.jsonl");
        append(&path, &[]).expect("a file can be begun");
        let mut file = fs::OpenOptions::new().append(true).open(&path).expect("it is there");
        file.write_all(b"{\"format\":2,\"row").expect("a torn line");
        let take = take::all().expect("the takes can be prepared").swap_remove(0);
        let Ok(Taken::Records(records)) = take.perform(&Origin::find()) else { panic!("contention gives records") };
        append(&path, &records).expect("more can be added");
        let read = read(&path).expect("it can be read");
        assert_eq!((read.records, read.doubtful), (records, 0));
        assert_eq!(read.unreadable.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [1]);
    }
}
