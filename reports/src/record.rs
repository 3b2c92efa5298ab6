//! A record: what one measurement gave, raw, with everything that must be equal for it to count as fresh.
//!
//! A record is one line of JSON that ends in its seal, the blake3 of all that stands before it. Reading is defensive: a line
//! that is torn, foreign, edited or senseless is set aside with its number and a reason, and whatever it meant to report is
//! simply not measured. Nobody can know which figure such a line was the newest of, so the records before it are not used
//! either. The seal detects editing, not forgery: it has no secret, and whoever can compute a blake3 can write a line that fits.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hdrhistogram::{
    Histogram,
    serialization::{Deserializer, Serializer, V2Serializer},
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The version of the record format this code reads and writes.
pub const FORMAT: u32 = 2;

/// What stands between a record's content and its seal, and what follows the seal.
const SEAL: (&str, &str) = (",\"seal\":\"", "\"}");

/// Hexadecimal digits of a seal.
const SEAL_DIGITS: usize = 64;

/// Significant decimal digits that a histogram keeps of each value.
const DIGITS: u8 = 3;

/// Where a record was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// In simulation: times are virtual.
    Simulated,
    /// On the machine itself.
    Real,
}

/// The raw outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Sample {
    /// Times in nanoseconds, as an HdrHistogram in its V2 encoding, in base64.
    HistogramNs(String),
    /// One count a seed, in the order of the seeds.
    Counts(Vec<u64>),
    /// A part of a whole, such as calls in so many nanoseconds.
    Part {
        /// The part.
        of: u64,
        /// The whole; zero is no sample at all.
        whole: u64,
    },
}

impl Sample {
    /// A histogram of times in nanoseconds, three digits of each kept.
    pub fn times(times_ns: impl IntoIterator<Item = u64>) -> Result<Sample, RecordError> {
        let mut histogram = empty()?;
        for time_ns in times_ns {
            histogram.record(time_ns).map_err(senseless)?;
        }
        encoded(&histogram)
    }

    /// All times of some histograms of nanoseconds, three digits of each kept.
    pub fn histograms<'a>(all: impl IntoIterator<Item = &'a Histogram<u64>>) -> Result<Sample, RecordError> {
        let mut sum = empty()?;
        for histogram in all {
            sum.add(histogram).map_err(senseless)?;
        }
        encoded(&sum)
    }
}

fn empty() -> Result<Histogram<u64>, RecordError> {
    Histogram::new(DIGITS).map_err(senseless)
}

fn encoded(histogram: &Histogram<u64>) -> Result<Sample, RecordError> {
    let mut bytes = Vec::new();
    let cannot = |error| RecordError::Senseless { why: format!("the histogram cannot be written: {error:?}") };
    V2Serializer::new().serialize(histogram, &mut bytes).map_err(cannot)?;
    Ok(Sample::HistogramNs(STANDARD.encode(bytes)))
}

fn senseless(why: impl std::fmt::Display) -> RecordError {
    RecordError::Senseless { why: why.to_string() }
}

/// Reads a histogram back from its base64.
pub(crate) fn histogram(text: &str) -> Result<Histogram<u64>, RecordError> {
    let senseless = |why: String| RecordError::Senseless { why: format!("the histogram does not decode: {why}") };
    let bytes = STANDARD.decode(text).map_err(|error| senseless(error.to_string()))?;
    Deserializer::new().deserialize(&mut bytes.as_slice()).map_err(|error| senseless(error.to_string()))
}

/// How much was asked for and how much of it was done, in the unit the record's row counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Work {
    /// Asked for.
    pub offered: u64,
    /// Done; not more than `offered`.
    pub done: u64,
}

/// What must be equal for a record to speak of the code and settings at hand. blake3, in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hashes {
    /// Of the binary that made it.
    pub binary: String,
    /// Of `Cargo.lock` as it was built with.
    pub lock: String,
    /// Of the features it was built with.
    pub features: String,
    /// Of the resolved scenario.
    pub scenario: String,
    /// Of what the machine says it is.
    pub machine: String,
}

/// One measurement or count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// [`FORMAT`].
    pub format: u32,
    /// The row it feeds, such as `C9`.
    pub row: String,
    /// The figure of that row.
    pub figure: String,
    /// The engine that played it, by name.
    pub engine: String,
    /// What that engine's times are.
    pub origin: Origin,
    /// The raw outcome.
    pub sample: Sample,
    /// Work offered and done.
    pub work: Work,
    /// The scenario, by name.
    pub scenario: String,
    /// Sizes by name, such as `agents`.
    pub sizes: BTreeMap<String, u64>,
    /// The conditions it was made under, one of those that its figure's ladder names; none without such a ladder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub under: Option<String>,
    /// The seeds, in the order they were played.
    pub seeds: Vec<u64>,
    /// The commit, or `unknown`.
    pub commit: String,
    /// Whether the tree had changes that the commit has not.
    pub dirty: bool,
    /// What must be equal.
    pub hashes: Hashes,
    /// The command that makes it again.
    pub command: String,
    /// When it was made, in seconds since the Unix epoch.
    pub made_unix_s: u64,
}

/// A line is no record.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// Not the JSON of a record.
    #[error("not a record: {0}")]
    Unreadable(#[from] serde_json::Error),
    /// From another version.
    #[error("record format {found} is not known to this build, which reads format {FORMAT}")]
    Format {
        /// The format found.
        found: u32,
    },
    /// Without a seal at its end.
    #[error("it does not end in a seal; it is torn, or was not written by shakedown")]
    Unsealed,
    /// Its seal is of another content.
    #[error("it does not fit its seal; it was changed after it was written")]
    Edited,
    /// Well-formed, and meaningless.
    #[error("{why}")]
    Senseless {
        /// What is wrong.
        why: String,
    },
}

impl Record {
    /// The record as one line, sealed, without its end.
    pub fn to_line(&self) -> Result<String, RecordError> {
        let mut line = serde_json::to_string(self)?;
        let seal = blake3::hash(line.as_bytes()).to_hex();
        assert_eq!(line.pop(), Some('}'), "a record is an object");
        line.extend([SEAL.0, seal.as_str(), SEAL.1]);
        Ok(line)
    }

    /// The record a line holds, if the line is to the byte what was written.
    pub fn from_line(line: &str) -> Result<Record, RecordError> {
        #[derive(Deserialize)]
        struct Version {
            format: u32,
        }
        let Version { format } = serde_json::from_str(line)?;
        if format != FORMAT {
            return Err(RecordError::Format { found: format });
        }
        let content = unsealed(line)?;
        let record: Record = serde_json::from_str(&content)?;
        record.check()?;
        Ok(record)
    }

    fn check(&self) -> Result<(), RecordError> {
        let senseless = |why: String| Err(RecordError::Senseless { why });
        if self.work.done > self.work.offered {
            return senseless(format!("{} done of {} offered", self.work.done, self.work.offered));
        }
        match &self.sample {
            Sample::HistogramNs(text) => histogram(text).map(drop),
            Sample::Counts(counts) if counts.len() != self.seeds.len() => {
                senseless(format!("{} counts for {} seeds", counts.len(), self.seeds.len()))
            }
            Sample::Counts(_) | Sample::Part { .. } => Ok(()),
        }
    }
}

/// The content of a sealed line.
fn unsealed(line: &str) -> Result<String, RecordError> {
    let sealed = line.strip_suffix(SEAL.1).and_then(|line| line.split_at_checked(line.len().checked_sub(SEAL_DIGITS)?));
    let (head, seal) = sealed.ok_or(RecordError::Unsealed)?;
    let mut content = head.strip_suffix(SEAL.0).ok_or(RecordError::Unsealed)?.to_owned();
    content.push('}');
    if blake3::hash(content.as_bytes()).to_hex().as_str() == seal { Ok(content) } else { Err(RecordError::Edited) }
}

/// What a file of records holds.
#[derive(Debug, Default)]
pub struct Records {
    /// The records, oldest first.
    pub records: Vec<Record>,
    /// The lines that hold none: line number from 1, and why.
    pub unreadable: Vec<(usize, String)>,
    /// How many of the records, from the first on, stand before the last line that holds none: they are not used, because that
    /// line may have been the newest word on any of their figures.
    pub doubtful: usize,
}

impl Records {
    /// Reads a file of records. Never fails: what cannot be read is set aside.
    pub fn read(bytes: &[u8]) -> Records {
        let mut read = Records::default();
        for (index, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
            let line = String::from_utf8_lossy(line);
            if line.trim().is_empty() {
                continue;
            }
            match Record::from_line(&line) {
                Ok(record) => read.records.push(record),
                Err(error) => {
                    read.unreadable.push((index + 1, error.to_string()));
                    read.doubtful = read.records.len();
                }
            }
        }
        read
    }
}
