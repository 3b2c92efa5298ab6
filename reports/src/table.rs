//! The table: rows and records become lines, and each line's status is worked out afresh.
//!
//! A figure passes on the strength of a fresh, whole, sensible record of the right origin alone. Whatever else there is (no
//! record, a stale one, one without work, one before a line that was edited or torn) is `NOT MEASURED` with its reason, never
//! a pass.

use crate::{
    record::{Origin, Record, Records, Sample, histogram},
    row::{Figure, Kind, Row, Rows, Statistic, Target, Unit},
};
use serde::Serialize;
use std::collections::BTreeMap;

/// What the records of a build say that could not hash itself: it speaks of no build at all.
pub const UNKNOWN: &str = "unknown";

/// One line's place in the table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Spot {
    /// The row.
    pub row: String,
    /// The figure.
    pub figure: String,
    /// The conditions, for a figure whose ladder names some.
    pub under: Option<String>,
    /// The rung, for a figure with a ladder.
    pub rung: Option<u64>,
}

/// What is at hand, to tell fresh records from stale ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Context {
    /// The commit, or `unknown`.
    pub commit: String,
    /// The binary's hash.
    pub binary: String,
    /// The hash of what this machine says it is.
    pub machine: String,
    /// The hash of each scenario at each number of agents under each condition, by `(name, agents, under)`.
    pub scenarios: BTreeMap<(String, u64, Option<String>), String>,
    /// Why nothing could make a record of a figure at this time.
    pub skipped: BTreeMap<Spot, String>,
    /// What the predictions assume, one a line.
    pub assumptions: Vec<String>,
}

/// Whether a number is what it has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Met {
    /// It is.
    Pass,
    /// It is not.
    Fail,
    /// Nothing is asked of it.
    NoTarget,
}

/// What a line claims.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "status", rename_all = "kebab-case")]
pub enum Status {
    /// A time, rate or size from the real engine.
    Measured {
        /// Whether it is what it has to be.
        met: Met,
    },
    /// A count that does not depend on the machine.
    Counted {
        /// Whether it is what it has to be.
        met: Met,
    },
    /// A time or rate from simulation.
    Predicted,
    /// Nothing.
    NotMeasured {
        /// Why.
        reason: String,
    },
}

/// One line: one figure of one row, at one rung if it has a ladder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Line {
    /// The row.
    pub row: String,
    /// What the row is about.
    pub about: String,
    /// The figure.
    pub figure: String,
    /// The conditions, for a figure whose ladder names some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub under: Option<String>,
    /// The rung, for a figure with a ladder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rung: Option<u64>,
    /// Column *what*.
    pub what: String,
    /// Column *number*; none if there is none.
    pub number: Option<String>,
    /// The same as the least and the most of what was found, in the raw unit of its statistic: nanoseconds, counts, thousandths
    /// per second, parts per million, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raw: Option<[u64; 2]>,
    /// How the number is written.
    pub unit: Unit,
    /// What heads its column where its ladder stands in a table of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub short: Option<String>,
    /// Column *measured over*.
    pub over: String,
    /// How many seeds the record was taken over; none without a record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seeds: Option<usize>,
    /// The number that was published for the row.
    pub published: String,
    /// What the number has to be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Column *status*.
    #[serde(flatten)]
    pub status: Status,
    /// The command that makes the record again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

impl Line {
    /// Its place in the table.
    pub fn spot(&self) -> Spot {
        Spot { row: self.row.clone(), figure: self.figure.clone(), under: self.under.clone(), rung: self.rung }
    }
}

/// The table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Table {
    /// The lines, in the order of the rows.
    pub lines: Vec<Line>,
    /// What the predictions assume.
    pub assumptions: Vec<String>,
    /// Lines of the records' file that could not be read: number, and why.
    pub unreadable: Vec<(usize, String)>,
}

/// Works the table out.
pub fn render(rows: &Rows, records: &Records, context: &Context) -> Table {
    let mut lines = Vec::new();
    for row in &rows.rows {
        for figure in &row.figures {
            let spot = |under: Option<&String>, rung| Spot {
                row: row.id.clone(),
                figure: figure.name.clone(),
                under: under.cloned(),
                rung,
            };
            match &figure.ladder {
                None => lines.push(line(row, figure, spot(None, None), records, context)),
                Some(ladder) => lines.extend(
                    ladder.rungs().map(|(under, size)| line(row, figure, spot(under, Some(size)), records, context)),
                ),
            }
        }
    }
    Table { lines, assumptions: context.assumptions.clone(), unreadable: records.unreadable.clone() }
}

fn line(row: &Row, figure: &Figure, spot: Spot, records: &Records, context: &Context) -> Line {
    let over = figure.over.as_ref().unwrap_or(&row.over);
    let found = number(&spot, figure, records, context);
    let mut what = figure.what.clone();
    if let (Some(ladder), Some(size)) = (&figure.ladder, spot.rung) {
        what.push_str(&format!("; {}: {size}", ladder.of));
    }
    let mut line = Line {
        row: spot.row,
        about: row.what.clone(),
        figure: spot.figure,
        under: spot.under,
        rung: spot.rung,
        what,
        number: None,
        raw: None,
        unit: figure.unit,
        short: figure.short.clone(),
        over: over.clone(),
        seeds: None,
        published: row.published.clone(),
        target: figure.target.map(|target| write_target(target, figure.unit)),
        status: Status::NotMeasured { reason: String::new() },
        command: None,
    };
    match found {
        Ok((record, (least, most))) => {
            let met = figure.target.map_or(Met::NoTarget, |target| met(target, least, most));
            line.status = match figure.kind {
                Kind::Measured => Status::Measured { met },
                Kind::Counted => Status::Counted { met },
                Kind::Predicted => Status::Predicted,
            };
            let written = |value| write_number(value, figure.unit);
            line.number =
                Some(if least == most { written(least) } else { format!("{} to {}", written(least), written(most)) });
            line.raw = Some([least, most]);
            line.over = format!("{over}; {}", taken_over(record));
            line.seeds = Some(record.seeds.len());
            line.command = Some(record.command.clone());
        }
        Err(reason) => line.status = Status::NotMeasured { reason },
    }
    line
}

/// The figure's number, as the least and the most of what the newest record gives, or why there is none.
fn number<'a>(
    spot: &Spot,
    figure: &Figure,
    records: &'a Records,
    context: &Context,
) -> Result<(&'a Record, (u64, u64)), String> {
    let of = figure.ladder.as_ref().map(|ladder| &ladder.of);
    let newest = records.records.iter().enumerate().rev().find(|(_, record)| {
        record.row == spot.row
            && record.figure == spot.figure
            && record.under == spot.under
            && of.is_none_or(|of| record.sizes.get(of).copied() == spot.rung)
    });
    let Some((index, record)) = newest else {
        let skipped = context.skipped.get(spot);
        let mut reason = skipped.or(figure.unmeasured.as_ref()).cloned().unwrap_or_else(|| "no record".to_owned());
        if skipped.is_none() && figure.unmeasured.is_none() && !records.unreadable.is_empty() {
            reason.push_str(&format!("; {} lines of the records cannot be used", records.unreadable.len()));
        }
        return Err(reason);
    };
    if index < records.doubtful {
        let line = records.unreadable.last().map_or(0, |(line, _)| *line);
        return Err(format!("line {line} of the records, after its own, cannot be used and may have been a newer one"));
    }
    usable(record, figure, context)?;
    Ok((record, value(&record.sample, figure.statistic)?))
}

/// Whether a record may speak for a figure.
fn usable(record: &Record, figure: &Figure, context: &Context) -> Result<(), String> {
    if record.commit != context.commit {
        return Err(format!("stale: recorded at commit {}", short(&record.commit)));
    }
    if record.hashes.binary == UNKNOWN {
        return Err("stale: nobody knows which build recorded it".to_owned());
    }
    if record.hashes.binary != context.binary {
        return Err("stale: recorded by another build".to_owned());
    }
    let agents = record.sizes.get("agents").copied().unwrap_or(0);
    let scenario = context.scenarios.get(&(record.scenario.clone(), agents, record.under.clone()));
    if scenario != Some(&record.hashes.scenario) {
        return Err(format!("stale: the scenario {} has changed", record.scenario));
    }
    if record.origin == Origin::Real && record.hashes.machine != context.machine {
        return Err("stale: measured on another machine".to_owned());
    }
    if record.work.done == 0 {
        return Err(format!("nothing was done of {} offered", grouped(record.work.offered)));
    }
    match (figure.kind, record.origin) {
        (Kind::Measured, Origin::Simulated) => {
            Err(format!("the record is from the {} engine; a measurement needs the real one", record.engine))
        }
        (Kind::Predicted, Origin::Real) => Err("the record is a measurement, and no prediction".to_owned()),
        _ => Ok(()),
    }
}

fn value(sample: &Sample, statistic: Statistic) -> Result<(u64, u64), String> {
    let quantile = |text: &str, quantile: f64| {
        let histogram = histogram(text).map_err(|error| error.to_string())?;
        if histogram.is_empty() {
            return Err("the record holds no times".to_owned());
        }
        let value = histogram.value_at_quantile(quantile);
        Ok((value, value))
    };
    let scaled = |of: u64, whole: u64, scale: u128| {
        let value = (u128::from(of) * scale).checked_div(u128::from(whole)).ok_or("the record holds no time")?;
        let value = u64::try_from(value).map_err(|_| "the record's number is past what can be written")?;
        Ok((value, value))
    };
    match (statistic, sample) {
        (Statistic::P50, Sample::HistogramNs(text)) => quantile(text, 0.50),
        (Statistic::P95, Sample::HistogramNs(text)) => quantile(text, 0.95),
        (Statistic::P99, Sample::HistogramNs(text)) => quantile(text, 0.99),
        (Statistic::Each, Sample::Counts(counts)) => match (counts.iter().min(), counts.iter().max()) {
            (Some(least), Some(most)) => Ok((*least, *most)),
            _ => Err("the record holds no counts".to_owned()),
        },
        (Statistic::Total, Sample::Counts(counts)) if !counts.is_empty() => {
            let total = counts.iter().try_fold(0u64, |sum, count| sum.checked_add(*count));
            let total = total.ok_or("the record's counts come to more than can be written")?;
            Ok((total, total))
        }
        (Statistic::PerSecond, Sample::Part { of, whole }) => scaled(*of, *whole, 1_000_000_000_000),
        (Statistic::Share, Sample::Part { of, whole }) => scaled(*of, *whole, 1_000_000),
        _ => Err("the record holds another kind of sample than the figure needs".to_owned()),
    }
}

fn met(target: Target, least: u64, most: u64) -> Met {
    let met = match target {
        Target::AtMost(limit) => most <= limit,
        Target::AtLeast(limit) => least >= limit,
        Target::Equals(wanted) => least == wanted && most == wanted,
    };
    if met { Met::Pass } else { Met::Fail }
}

/// What a record was taken over: engine, seeds, work, and whether the tree was as committed.
fn taken_over(record: &Record) -> String {
    let seeds = match record.seeds.as_slice() {
        [] => "no seed".to_owned(),
        [one] => format!("seed {one}"),
        [first, .., last] => format!("{} seeds, {first} to {last}", record.seeds.len()),
    };
    let work = format!("{} of {}", grouped(record.work.done), grouped(record.work.offered));
    let dirty = if record.dirty { "; uncommitted changes" } else { "" };
    format!("{} engine, {seeds}, {work} done{dirty}", record.engine)
}

fn write_target(target: Target, unit: Unit) -> String {
    match target {
        Target::AtMost(limit) => format!("at most {}", write_number(limit, unit)),
        Target::AtLeast(limit) => format!("at least {}", write_number(limit, unit)),
        Target::Equals(wanted) => format!("exactly {}", write_number(wanted, unit)),
    }
}

fn write_number(value: u64, unit: Unit) -> String {
    match unit {
        Unit::Ms => format!("{}.{:03} ms", grouped(value / 1_000_000), value / 1_000 % 1_000),
        Unit::S => format!("{}.{:03} s", grouped(value / 1_000_000_000), value / 1_000_000 % 1_000),
        Unit::Count => grouped(value),
        Unit::PerSecond => format!("{}.{:03} /s", grouped(value / 1_000), value % 1_000),
        Unit::Percent => format!("{}.{:04} %", value / 10_000, value % 10_000),
        Unit::Mb => format!("{}.{} MB", grouped(value / 1_000_000), value / 100_000 % 10),
    }
}

/// A number with commas between its thousands.
pub fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

fn short(commit: &str) -> &str {
    commit.get(..12).unwrap_or(commit)
}
