//! What the table is about: rows and their figures, as `rows.toml` states them.

use serde::{Deserialize, Serialize};

/// The version of the row format this code reads.
pub const FORMAT: u32 = 2;

/// The rows that ship with shakedown.
const ROWS: &str = include_str!("../rows.toml");

/// What a figure may claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A time, rate or size of the machine; only a record from the real engine will do.
    Measured,
    /// A count that does not depend on the machine; any engine will do.
    Counted,
    /// A time or rate of the simulation; it stands for no measurement.
    Predicted,
}

/// How the raw sample becomes a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Statistic {
    /// The median of times.
    P50,
    /// The 95th percentile of times.
    P95,
    /// The 99th percentile of times.
    P99,
    /// Every seed's count; each must meet the target.
    Each,
    /// The counts of all seeds together.
    Total,
    /// A part per second of a whole in nanoseconds.
    PerSecond,
    /// A part of a whole.
    Share,
}

/// How a number is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Nanoseconds, written in milliseconds.
    Ms,
    /// Nanoseconds, written in seconds.
    S,
    /// A plain count.
    Count,
    /// Thousandths per second, written per second.
    PerSecond,
    /// Parts per million, written in per cent.
    Percent,
    /// Bytes, written in megabytes of a million.
    Mb,
}

impl Unit {
    /// The word after a number; empty for a plain count.
    pub fn word(self) -> &'static str {
        match self {
            Unit::Ms => "ms",
            Unit::S => "s",
            Unit::Count => "",
            Unit::PerSecond => "/s",
            Unit::Percent => "%",
            Unit::Mb => "MB",
        }
    }

    /// The unit of the raw number.
    pub fn raw(self) -> &'static str {
        match self {
            Unit::Ms | Unit::S => "ns",
            Unit::Count => "count",
            Unit::PerSecond => "per 1000 s",
            Unit::Percent => "ppm",
            Unit::Mb => "byte",
        }
    }

    /// How many raw ones are one of the word.
    pub fn scale(self) -> u64 {
        match self {
            Unit::Ms | Unit::Mb => 1_000_000,
            Unit::S => 1_000_000_000,
            Unit::Count => 1,
            Unit::PerSecond => 1_000,
            Unit::Percent => 10_000,
        }
    }
}

/// What a number has to be, in the raw unit of its statistic: nanoseconds, counts, thousandths per second, parts per million, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// Not above.
    AtMost(u64),
    /// Not below.
    AtLeast(u64),
    /// Exactly.
    Equals(u64),
}

/// The sizes a figure is wanted at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ladder {
    /// Which size, by its name in records and in the plural, such as `agents`.
    pub of: String,
    /// The rungs.
    pub at: Vec<u64>,
    /// The conditions that it is climbed under, each from the first rung to the last; one climb without a name if there are none.
    #[serde(default)]
    pub under: Vec<String>,
}

/// One number of a row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// Its name in records.
    pub name: String,
    /// What it is, in a few words.
    pub what: String,
    /// What it may claim.
    pub kind: Kind,
    /// How the raw sample becomes a number.
    pub statistic: Statistic,
    /// How the number is written.
    pub unit: Unit,
    /// What it has to be.
    #[serde(default)]
    pub target: Option<Target>,
    /// What heads its column where a ladder stands in a table of its own; its unit is added.
    #[serde(default)]
    pub short: Option<String>,
    /// The sizes it is wanted at, a line of the table each.
    #[serde(default)]
    pub ladder: Option<Ladder>,
    /// What it is taken over, where that is not what the row says.
    #[serde(default)]
    pub over: Option<String>,
    /// Why there is none, as long as nothing can make its record.
    #[serde(default)]
    pub unmeasured: Option<String>,
}

impl Ladder {
    /// Every rung of every climb.
    pub fn rungs(&self) -> impl Iterator<Item = (Option<&String>, u64)> {
        let unnamed = self.under.is_empty().then_some(None);
        let climbs = unnamed.into_iter().chain(self.under.iter().map(Some));
        climbs.flat_map(|under| self.at.iter().map(move |size| (under, *size)))
    }
}

/// One row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Its name, such as `C9`.
    pub id: String,
    /// What it is about, in a few words.
    pub what: String,
    /// What it is taken over.
    pub over: String,
    /// The number that was published, as it was published.
    pub published: String,
    /// Where that comes from.
    pub source: String,
    /// Its figures, in the table's order.
    #[serde(rename = "figure")]
    pub figures: Vec<Figure>,
}

/// The rows of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rows {
    /// [`FORMAT`].
    pub format: u32,
    /// The rows, in the table's order.
    #[serde(rename = "row")]
    pub rows: Vec<Row>,
}

/// The rows cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RowError {
    /// Not rows.
    #[error("not a file of rows: {0}")]
    Unreadable(#[from] toml::de::Error),
    /// From another version.
    #[error("row format {found} is not known to this build, which reads format {FORMAT}")]
    Format {
        /// The format found.
        found: u32,
    },
}

impl Rows {
    /// The rows that ship with shakedown.
    pub fn built_in() -> Result<Rows, RowError> {
        Rows::from_toml(ROWS)
    }

    /// Reads rows.
    pub fn from_toml(text: &str) -> Result<Rows, RowError> {
        let rows: Rows = toml::from_str(text)?;
        if rows.format == FORMAT { Ok(rows) } else { Err(RowError::Format { found: rows.format }) }
    }
}
