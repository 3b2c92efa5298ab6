//! `events.jsonl`, line by line: numbers, hashes, chain, classes and positions, each worked out anew.

use super::{
    findings::{Findings, Place, Rule},
    wire::{Class, Event, Hash, Line, Ran, Record, SCHEMA, chain_after, short},
};
use serde::Deserialize;
use std::{collections::BTreeMap, ops::Range};

/// What is remembered of a line: enough to compare it with a frame, and to find it again.
#[derive(Clone, Debug)]
struct Known {
    seq: u64,
    line: u64,
    content: Hash,
    chain: Hash,
    bytes: Range<usize>,
}

/// The log as the file holds it.
#[derive(Debug)]
pub(super) struct Log<'a> {
    bytes: &'a [u8],
    /// By sequence; of two lines of one sequence the first.
    known: Vec<Known>,
}

impl<'a> Log<'a> {
    /// Reads and checks every line.
    pub(super) fn read(bytes: &'a [u8], found: &mut Findings) -> Log<'a> {
        let mut reading = Reading::default();
        let (mut at, mut line) = (0, 0);
        while at < bytes.len() {
            line += 1;
            let place = Place::Log { line };
            let end = bytes[at..].iter().position(|byte| *byte == b'\n').map(|length| at + length);
            if end.is_none() {
                found.broken(Rule::Lines, place, "the last line has no end: the file was cut off here");
            }
            let range = at..end.unwrap_or(bytes.len());
            at = end.map_or(bytes.len(), |end| end + 1);
            found.looked(Rule::Lines, 1);
            match parsed(&bytes[range.clone()]) {
                Ok(record) => reading.take(&record, line, range, found),
                Err(why) => {
                    found.broken(Rule::Lines, place, why);
                    reading.skip();
                }
            }
        }
        let mut known = reading.known;
        known.sort_by_key(|known| known.seq);
        known.dedup_by_key(|known| known.seq);
        Log { bytes, known }
    }

    fn find(&self, seq: u64) -> Option<&Known> {
        let likely = usize::try_from(seq).ok().and_then(|at| self.known.get(at)).filter(|known| known.seq == seq);
        likely.or_else(|| self.known.binary_search_by_key(&seq, |known| known.seq).ok().map(|at| &self.known[at]))
    }

    /// How many records there are.
    pub(super) fn len(&self) -> u64 {
        self.known.len() as u64
    }

    /// The sequence after the last, and the chain there.
    pub(super) fn head(&self) -> (u64, Hash) {
        self.known.last().map_or((0, [0; 32]), |last| (last.seq.saturating_add(1), last.chain))
    }

    /// Where a record stands.
    pub(super) fn place(&self, seq: u64) -> Place {
        Place::Log { line: self.find(seq).map_or(0, |known| known.line) }
    }

    /// Whether the file holds this record as it is; the error says what it holds.
    pub(super) fn holds(&self, record: &Record) -> Result<(), String> {
        let Some(known) = self.find(record.seq) else { return Err(format!("record {} is not in the log", record.seq)) };
        if (known.content, known.chain) == (record.content, record.chain) {
            return Ok(());
        }
        let (ours, theirs) = (short(&known.content), short(&record.content));
        Err(format!("record {} was announced with content {theirs}, and the log holds {ours}", record.seq))
    }

    /// The records from a sequence on, read again.
    pub(super) fn from(&self, seq: u64) -> impl Iterator<Item = (Record, Place)> + use<'_, 'a> {
        let first = self.known.partition_point(|known| known.seq < seq);
        self.known[first..].iter().filter_map(|known| {
            let record = parsed(&self.bytes[known.bytes.clone()]).ok()?;
            Some((record, Place::Log { line: known.line }))
        })
    }
}

/// A line as a record; the error says what it is instead.
fn parsed(line: &[u8]) -> Result<Record, String> {
    match serde_json::from_slice::<Line>(line) {
        Ok(line) => {
            let record = line.record().map_err(|name| format!("its {name} hash is not 64 digits of hexadecimal"))?;
            if record.schema == 0 || record.schema > SCHEMA {
                let found = record.schema;
                return Err(format!(
                    "it is of schema {found}, and this build reads 1 to {SCHEMA}; use the build that wrote it"
                ));
            }
            Ok(record)
        }
        Err(error) => Err(told(line, &error.to_string())),
    }
}

/// Why a line is no record: of a newer schema, of a kind of event that is not known, or damaged.
fn told(line: &[u8], error: &str) -> String {
    #[derive(Deserialize)]
    struct Rough {
        schema: u64,
        event: serde_json::Value,
    }
    let Ok(rough) = serde_json::from_slice::<Rough>(line) else { return format!("it is no record: {error}") };
    if rough.schema > u64::from(SCHEMA) {
        let found = rough.schema;
        return format!("it is of schema {found}, and this build reads up to {SCHEMA}; use the build that wrote it");
    }
    if !error.contains("unknown variant") {
        return format!("it is no record: {error}");
    }
    let mut names = Vec::new();
    let mut value = &rough.event;
    while let (true, Some((name, inner))) = (names.len() < 2, value.as_object().and_then(|fields| fields.iter().next()))
    {
        names.push(name.escape_debug().to_string());
        value = inner;
    }
    format!(
        "the event `{}` holds a kind that this build does not know ({error}); use the build that wrote it, or teach the checker the kind",
        names.join(".")
    )
}

/// The log as far as it was read.
#[derive(Debug, Default)]
struct Reading {
    known: Vec<Known>,
    next_seq: u64,
    /// The chain so far; `None` after a line that could not be read.
    chain: Option<Hash>,
    begun: bool,
    time: u64,
    next_lsn: BTreeMap<(u32, u64, u32), u64>,
}

impl Reading {
    fn skip(&mut self) {
        self.next_seq = self.next_seq.saturating_add(1);
        (self.chain, self.begun) = (None, true);
    }

    fn take(&mut self, record: &Record, line: u64, bytes: Range<usize>, found: &mut Findings) {
        let (place, seq) = (Place::Log { line }, record.seq);
        let next_seq = self.next_seq;
        found.must(Rule::Numbering, place, seq == next_seq, || {
            format!("record {seq} stands where {next_seq} should: a line is lost, repeated or moved")
        });
        self.next_seq = seq.saturating_add(1);
        check_content(record, place, found);
        let before = if self.begun { self.chain } else { Some([0; 32]) };
        self.begun = true;
        if let Some(before) = before {
            let right = chain_after(&before, &record.content);
            found.must(Rule::Chain, place, right == record.chain, || {
                let (stated, right) = (short(&record.chain), short(&right));
                format!("record {seq} carries chain {stated}, and the chain before it gives {right}")
            });
        }
        self.chain = Some(record.chain);
        let time = self.time;
        found.must(Rule::LedgerTime, place, record.time >= time, || {
            format!("record {seq} is of ledger time {}, after {time}", record.time)
        });
        self.time = self.time.max(record.time);
        check_class(record, place, found);
        self.position(record, place, found);
        let (content, chain) = (record.content, record.chain);
        self.known.push(Known { seq, line, content, chain, bytes });
    }

    /// Where a sequenced record stands in its run.
    fn position(&mut self, record: &Record, place: Place, found: &mut Findings) {
        let (Event::Run(event), Some(origin)) = (&record.event, record.origin) else { return };
        let (seq, run) = (record.seq, event.run());
        let next = self.next_lsn.entry((record.tenant, run, origin.branch)).or_default();
        let expected = *next;
        *next = origin.lsn.saturating_add(1);
        found.must(Rule::Lsn, place, origin.lsn == expected, || {
            format!(
                "record {seq} has LSN {} in run {run}, branch {}; the next is {expected}",
                origin.lsn, origin.branch
            )
        });
        let spawns = matches!(event, Ran::Spawned { .. });
        if spawns != (origin.lsn == 0 && origin.branch == 0) {
            found.broken(Rule::Lsn, place, format!("record {seq} has LSN 0, or spawns run {run}, but not both"));
        }
    }
}

/// A record against its own content hash.
pub(super) fn check_content(record: &Record, place: Place, found: &mut Findings) {
    let own = record.own_content();
    found.must(Rule::Content, place, own == Some(record.content), || {
        let own = own.as_ref().map_or("none".to_owned(), short);
        format!("record {} carries content hash {}, and its fields give {own}", record.seq, short(&record.content))
    });
}

/// Class, tenant and origin, as the kind of event has them.
fn check_class(record: &Record, place: Place, found: &mut Findings) {
    let Record { seq, tenant, class, ref event, origin, .. } = *record;
    let complaint = if class != event.class() {
        Some(format!("record {seq} is of class {class:?}, and its event is {:?}", event.class()))
    } else if event.tenant().is_some_and(|own| own != tenant) {
        Some(format!("record {seq} is of tenant {tenant}, and its event is of tenant {:?}", event.tenant()))
    } else if (class == Class::Sequenced) != origin.is_some() {
        Some(format!("record {seq} is {class:?}, and its origin is {origin:?}"))
    } else {
        match (event, origin) {
            (Event::Run(event), Some(origin)) if origin.run != event.run() => {
                Some(format!("record {seq} is about run {}, and stands in run {}", event.run(), origin.run))
            }
            (Event::Run(Ran::Spawned { .. }), Some(origin)) if (origin.executor, origin.fence) != (0, 0) => {
                Some(format!("record {seq} spawns under fence {}; a spawn needs no lease", origin.fence))
            }
            _ => None,
        }
    };
    found.looked(Rule::Class, 1);
    if let Some(complaint) = complaint {
        found.broken(Rule::Class, place, complaint);
    }
}
