//! A gate: many seeds dealt over scenarios, each played once, a sample of them twice, every failure once more with all of its
//! history. Nothing here is parallel: whoever has threads plays the deals on them in any order.

use crate::runner::{Run, RunError, RunReport, RunSpec, Verdict, play};
use serde::Serialize;
use sim::{Entry, NodeId, Recorded, Recording};
use std::ops::Range;

/// One run of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deal {
    /// Which of the gate's scenarios, from 0.
    pub scenario: usize,
    /// The seed.
    pub seed: u64,
}

/// One part of a gate that is spread over machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Which part, from 1.
    pub part: u64,
    /// Of how many.
    pub of: u64,
}

impl Partition {
    /// All of the gate.
    pub const WHOLE: Partition = Partition { part: 1, of: 1 };
}

/// The scenario that a seed plays: seed s plays scenario s mod n.
pub fn deal(seed: u64, scenarios: usize) -> usize {
    (seed % scenarios.max(1) as u64) as usize
}

/// The deals of one part of a gate, in the order of their seeds. A part takes every `of`-th round over the scenarios, so that
/// each part plays all of them. None if there is no such part.
pub fn deals(scenarios: usize, seeds: Range<u64>, partition: Partition) -> impl Iterator<Item = Deal> + Clone {
    let Partition { part, of } = partition;
    let round = move |seed: u64| seed / scenarios.max(1) as u64;
    let mine = move |seed: &u64| of > 0 && round(*seed) % of + 1 == part;
    seeds.filter(mine).map(move |seed| Deal { scenario: deal(seed, scenarios), seed })
}

/// Whether a seed is of the sample, about one in sixteen, that is played twice even if it passes. Mixed, so that the sample
/// takes from every scenario.
pub fn is_doubled(seed: u64) -> bool {
    seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60 == 0
}

/// Plays a spec for its hash, and if it failed, or `twice` asks for it, again in full to compare.
pub fn play_checked(spec: &RunSpec, twice: bool) -> Result<(Run, Option<Divergence>), RunError> {
    let first = play(&RunSpec { recording: Recording::HashOnly { tail: 0 }, ..spec.clone() })?;
    if first.report.verdict == Verdict::Pass && !twice {
        return Ok((first, None));
    }
    let full = RunSpec { recording: Recording::Full, ..spec.clone() };
    let mut second = play(&full)?;
    if same(&first.report, &second.report) {
        let run = if first.report.verdict == Verdict::Pass { first } else { second };
        return Ok((run, None));
    }
    // A third play in full may show where they part; if it is as the second was, only the hashes can say.
    let third = play(&full)?;
    let parted = parting(&second.history, &third.history).unwrap_or_else(|| Divergence {
        entry: 0,
        one: format!("hash {} ({:?})", first.report.history_hash, first.report.verdict),
        other: format!("hash {} ({:?})", second.report.history_hash, second.report.verdict),
    });
    second.report.verdict = Verdict::Nondeterminism;
    Ok((second, Some(parted)))
}

/// Whether two plays gave the same run.
pub fn same(one: &RunReport, other: &RunReport) -> bool {
    one.history_hash == other.history_hash && one.verdict == other.verdict && one.broken == other.broken
}

/// The first entry in which two histories differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Divergence {
    /// Its number, from 1; 0 if only the hashes are known to differ.
    pub entry: u64,
    /// It in the one history, or that history's end.
    pub one: String,
    /// It in the other.
    pub other: String,
}

/// Where two histories that were kept in full part; `None` if they do not.
pub fn parting(one: &Recorded, other: &Recorded) -> Option<Divergence> {
    let (mut left, mut right) = (&one.kept[..], &other.kept[..]);
    let mut entry = 0;
    loop {
        entry += 1;
        let (a, b) = (next_entry(&mut left), next_entry(&mut right));
        if a != b {
            return Some(Divergence { entry, one: described(a), other: described(b) });
        }
        a?;
    }
}

/// The bytes of the next entry; all that is left if it is cut short.
fn next_entry<'a>(from: &mut &'a [u8]) -> Option<&'a [u8]> {
    if from.is_empty() {
        return None;
    }
    let length = from.first_chunk::<4>().map_or(usize::MAX, |bytes| u32::from_le_bytes(*bytes) as usize);
    let (entry, rest) = from.split_at(length.saturating_add(4).min(from.len()));
    *from = rest;
    Some(entry)
}

fn described(entry: Option<&[u8]>) -> String {
    let Some(bytes) = entry else { return "the end".to_owned() };
    let read: Option<Entry<'_>> = bytes.get(4..).and_then(|bytes| postcard::from_bytes(bytes).ok());
    let Some(entry) = read else { return format!("{} unreadable bytes", bytes.len()) };
    let node = match entry.node {
        NodeId(u32::MAX) => "the director".to_owned(),
        NodeId(node) => format!("node {node}"),
    };
    let digest = blake3::hash(entry.data).to_hex();
    format!("{} ns, {node}, kind {}, {} bytes, blake3 {}", entry.time_ns, entry.kind, entry.data.len(), &digest[..16])
}
