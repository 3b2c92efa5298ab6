//! An arrival trace: when each call arrives, and how many tokens it reads and generates.
//!
//! The format is CSV with a header that names the columns `TIMESTAMP` (`2023-11-16 18:17:03.9799600`, up to nine digits of
//! fraction, no zone), `ContextTokens` and `GeneratedTokens`, in any order and among others, as in the Azure LLM inference
//! traces (Patel et al., "Splitwise", ISCA 2024). Lines end in LF or CRLF, the last one perhaps in neither.

use super::{Call, Item, Unit, WorkList, run, user};
use csv::{ByteRecord, ReaderBuilder};
use kernel::{id::UnitId, money::Usage};
use std::io::Read;

/// Consecutive rows of one agent that make a run.
pub const ROWS_PER_RUN: usize = 10;

/// The most tokens a row may state in one column.
pub const MOST_TOKENS: u64 = 10_000_000;

/// The longest time a trace may span, in nanoseconds: 1,000 hours, as long as a scenario may last.
pub const LONGEST_NS: u64 = 3_600_000_000_000_000;

const TIMESTAMP: &str = "TIMESTAMP";
const CONTEXT: &str = "ContextTokens";
const GENERATED: &str = "GeneratedTokens";

/// One call of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When it arrives, in nanoseconds after the first.
    pub at_ns: u64,
    /// What it uses.
    pub usage: Usage,
}

/// A trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrivals {
    rows: Vec<Arrival>,
    hash: [u8; 32],
}

/// Why a trace cannot be replayed. Lines and columns count from 1; a column counts bytes of its line.
#[derive(Debug, thiserror::Error)]
pub enum ArrivalError {
    /// The file could not be read.
    #[error("cannot read the trace: {0}")]
    Unreadable(#[from] std::io::Error),
    /// There is no row.
    #[error("line {line}, column 1: the trace has no arrivals; give it a header and at least one row")]
    Empty {
        /// Where the first row should be.
        line: u64,
    },
    /// The header lacks a column.
    #[error(
        "line {line}, column 1: the header has no column {name}; name the columns TIMESTAMP, ContextTokens and \
         GeneratedTokens"
    )]
    NoColumn {
        /// Where the header is.
        line: u64,
        /// The column.
        name: &'static str,
    },
    /// The header has a column twice.
    #[error("line {line}, column {column}: the header names {name} twice; leave one")]
    TwiceNamed {
        /// Where the header is.
        line: u64,
        /// Where the second stands.
        column: u64,
        /// The column.
        name: &'static str,
    },
    /// A row has more or fewer fields than the header.
    #[error(
        "line {line}, column {column}: the row has {found} fields and the header {expected}; complete or remove it"
    )]
    Fields {
        /// Where.
        line: u64,
        /// Where the row ends, or its first field too many begins.
        column: u64,
        /// How many fields it has.
        found: usize,
        /// How many it should have.
        expected: usize,
    },
    /// A count is not a whole number from 0 to [`MOST_TOKENS`].
    #[error("line {line}, column {column}: {name} is {found:?}; give a whole number from 0 to 10000000")]
    Count {
        /// Where.
        line: u64,
        /// Where its field begins.
        column: u64,
        /// The column's name.
        name: &'static str,
        /// What stands there, shortened.
        found: String,
    },
    /// A timestamp is none.
    #[error(
        "line {line}, column {column}: {TIMESTAMP} is {found:?}: {why}; give a time such as 2023-11-16 18:17:03.9799600"
    )]
    Timestamp {
        /// Where.
        line: u64,
        /// Where its field begins.
        column: u64,
        /// What stands there, shortened.
        found: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A row is earlier than the one before.
    #[error("line {line}, column {column}: {found} is before the row above; sort the trace by {TIMESTAMP}")]
    OutOfOrder {
        /// Where.
        line: u64,
        /// Where its field begins.
        column: u64,
        /// The earlier time.
        found: String,
    },
    /// A row is too long after the first.
    #[error("line {line}, column {column}: {found} is more than 1000 h after the first row; cut the trace")]
    TooLong {
        /// Where.
        line: u64,
        /// Where its field begins.
        column: u64,
        /// The time.
        found: String,
    },
}

impl Arrivals {
    /// Reads a whole trace.
    pub fn read(mut reader: impl Read) -> Result<Arrivals, ArrivalError> {
        let mut text = Vec::new();
        reader.read_to_end(&mut text)?;
        let mut csv = ReaderBuilder::new().has_headers(false).flexible(true).from_reader(text.as_slice());
        let mut record = ByteRecord::new();
        if !next_record(&mut csv, &mut record)? {
            return Err(ArrivalError::Empty { line: 1 });
        }
        let columns = Columns::of(&Row::new(&text, &record))?;
        let mut rows: Vec<Arrival> = Vec::new();
        let mut first_ns = None;
        while next_record(&mut csv, &mut record)? {
            let row = Row::new(&text, &record);
            rows.push(columns.arrival(&row, &mut first_ns, rows.last())?);
        }
        if rows.is_empty() {
            return Err(ArrivalError::Empty { line: 1 + line_ends(&text) });
        }
        Ok(Arrivals { rows, hash: *blake3::hash(&text).as_bytes() })
    }

    /// The rows, in the order of their times.
    pub fn rows(&self) -> &[Arrival] {
        &self.rows
    }

    /// When the last call arrives, in nanoseconds after the first.
    pub fn span_ns(&self) -> u64 {
        self.rows.last().map_or(0, |last| last.at_ns)
    }

    /// blake3 of the file.
    pub fn hash(&self) -> [u8; 32] {
        self.hash
    }
}

/// Deals a trace over `agents` agents: row i goes to agent i mod `agents`, and ten consecutive rows of an agent make a run.
/// Each call is due at its time after the first row, and the most it can use is what it uses.
pub fn work(arrivals: &Arrivals, agents: u32, agents_per_user: u32) -> WorkList {
    let agents = agents.max(1);
    let list = |index: u32| {
        let mine: Vec<&Arrival> = arrivals.rows.iter().skip(index as usize).step_by(agents as usize).collect();
        let item = |(item, rows): (u32, &[&Arrival])| {
            Item::new(
                run(index, item),
                user(index, agents_per_user),
                (0..).zip(rows).map(|(name, row)| unit(name, row)).collect(),
            )
        };
        (0..).zip(mine.chunks(ROWS_PER_RUN)).map(item).collect()
    };
    WorkList { agents: (0..agents).map(list).collect(), open_loop: true }
}

fn unit(name: u32, row: &Arrival) -> Unit {
    Unit { unit: UnitId(name), stage: 0, usage: row.usage, most: row.usage, due_ns: row.at_ns, call: Call::OWN }
}

fn next_record(csv: &mut csv::Reader<&[u8]>, record: &mut ByteRecord) -> Result<bool, ArrivalError> {
    csv.read_byte_record(record).map_err(|error| ArrivalError::Unreadable(error.into()))
}

fn line_ends(text: &[u8]) -> u64 {
    text.iter().filter(|byte| **byte == b'\n').count() as u64
}

/// A record and where it stands in the text.
struct Row<'a> {
    text: &'a [u8],
    record: &'a ByteRecord,
    /// Where its first byte stands.
    start: usize,
}

impl<'a> Row<'a> {
    fn new(text: &'a [u8], record: &'a ByteRecord) -> Row<'a> {
        let said = record.position().map_or(0, |position| position.byte() as usize).min(text.len());
        // The reader counts a line end or an empty line to the record after it.
        let skipped = text[said..].iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
        Row { text, record, start: said + skipped }
    }

    /// Line and column of field `index`, or of the end of the row if it has no such field.
    fn place(&self, index: usize) -> (u64, u64) {
        let (mut field, mut quoted, mut at) = (0, false, self.start);
        while field < index && at < self.text.len() {
            match self.text[at] {
                b'"' => quoted = !quoted,
                b',' if !quoted => field += 1,
                b'\r' | b'\n' if !quoted => break,
                _ => {}
            }
            at += 1;
        }
        let before = &self.text[..at];
        let line_start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        (1 + line_ends(before), 1 + (at - line_start) as u64)
    }

    fn shown(&self, index: usize) -> String {
        let field = &self.record[index];
        let mut shown = String::from_utf8_lossy(&field[..field.len().min(40)]).into_owned();
        if field.len() > 40 {
            shown.push('…');
        }
        shown
    }
}

/// Which field holds what.
struct Columns {
    count: usize,
    timestamp: usize,
    context: usize,
    generated: usize,
}

impl Columns {
    fn of(header: &Row<'_>) -> Result<Columns, ArrivalError> {
        let find = |name: &'static str| {
            let mut found =
                (0..header.record.len()).filter(|index| header.record[*index].trim_ascii() == name.as_bytes());
            let line = header.place(0).0;
            let first = found.next().ok_or(ArrivalError::NoColumn { line, name })?;
            match found.next() {
                None => Ok(first),
                Some(second) => {
                    let (line, column) = header.place(second);
                    Err(ArrivalError::TwiceNamed { line, column, name })
                }
            }
        };
        Ok(Columns {
            count: header.record.len(),
            timestamp: find(TIMESTAMP)?,
            context: find(CONTEXT)?,
            generated: find(GENERATED)?,
        })
    }

    fn arrival(
        &self,
        row: &Row<'_>,
        first_ns: &mut Option<i128>,
        last: Option<&Arrival>,
    ) -> Result<Arrival, ArrivalError> {
        let found = row.record.len();
        if found != self.count {
            let (line, column) = row.place(self.count);
            return Err(ArrivalError::Fields { line, column, found, expected: self.count });
        }
        let (line, column) = row.place(self.timestamp);
        let shown = || row.shown(self.timestamp);
        let time_ns = timestamp_ns(row.record[self.timestamp].trim_ascii()).map_err(|why| ArrivalError::Timestamp {
            line,
            column,
            found: shown(),
            why,
        })?;
        let after_ns = time_ns - *first_ns.get_or_insert(time_ns);
        let earliest_ns = last.map_or(0, |last| last.at_ns);
        if after_ns < i128::from(earliest_ns) {
            return Err(ArrivalError::OutOfOrder { line, column, found: shown() });
        }
        let at_ns = u64::try_from(after_ns).ok().filter(|at_ns| *at_ns <= LONGEST_NS);
        let at_ns = at_ns.ok_or_else(|| ArrivalError::TooLong { line, column, found: shown() })?;
        let usage = Usage {
            input_tokens: count(row, self.context, CONTEXT)?,
            output_tokens: count(row, self.generated, GENERATED)?,
        };
        Ok(Arrival { at_ns, usage })
    }
}

fn count(row: &Row<'_>, index: usize, name: &'static str) -> Result<u64, ArrivalError> {
    number(row.record[index].trim_ascii()).filter(|count| *count <= MOST_TOKENS).ok_or_else(|| {
        let (line, column) = row.place(index);
        ArrivalError::Count { line, column, name, found: row.shown(index) }
    })
}

/// A number of ASCII digits alone, at most eighteen.
fn number(digits: &[u8]) -> Option<u64> {
    let digits = Some(digits).filter(|digits| (1..=18).contains(&digits.len()))?;
    digits.iter().try_fold(0, |sum, digit| digit.is_ascii_digit().then(|| sum * 10 + u64::from(digit - b'0')))
}

/// Nanoseconds since the first of January of year 0, by the Gregorian calendar.
fn timestamp_ns(text: &[u8]) -> Result<i128, &'static str> {
    const SHAPE: &str = "it is not of the form YYYY-MM-DD hh:mm:ss with an optional fraction";
    let (whole, fraction) = match text.iter().position(|byte| *byte == b'.') {
        Some(point) => (&text[..point], Some(&text[point + 1..])),
        None => (text, None),
    };
    let separators = [(4, b'-'), (7, b'-'), (10, b' '), (13, b':'), (16, b':')];
    if whole.len() != 19 || separators.iter().any(|(at, byte)| whole[*at] != *byte) {
        return Err(SHAPE);
    }
    let part = |from, to| number(&whole[from..to]).ok_or(SHAPE);
    let (year, month, day) = (part(0, 4)?, part(5, 7)?, part(8, 10)?);
    let (hour, minute, second) = (part(11, 13)?, part(14, 16)?, part(17, 19)?);
    if !(1..=12).contains(&month) || !(1..=days_in(year, month)).contains(&day) {
        return Err("there is no such day");
    }
    if hour > 23 || minute > 59 || second > 59 {
        return Err("there is no such time of day");
    }
    let fraction_ns = match fraction {
        None => 0,
        Some(digits) if digits.len() <= 9 => {
            number(digits).ok_or("its fraction is not a number")? * 10_u64.pow(9 - digits.len() as u32)
        }
        Some(_) => return Err("its fraction has more than nine digits, or a zone follows it"),
    };
    let seconds = ((days_before(year, month) + day - 1) * 24 + hour) * 3_600 + minute * 60 + second;
    Ok(i128::from(seconds) * 1_000_000_000 + i128::from(fraction_ns))
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn days_in(year: u64, month: u64) -> u64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from the first of January of year 0 to the first of `month` of `year`.
fn days_before(year: u64, month: u64) -> u64 {
    let leaps = year.div_ceil(4) - year.div_ceil(100) + year.div_ceil(400);
    year * 365 + leaps + (1..month).map(|month| days_in(year, month)).sum::<u64>()
}
