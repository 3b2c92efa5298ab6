//! A gate: many seeds dealt over scenarios, each played once, a sample of them twice, every failure once more with all of its
//! history. Nothing here is parallel: whoever has threads plays the deals on them in any order and adds up the outcomes.

use crate::{
    runner::{Choices, Run, RunError, RunReport, RunSpec, SpecError, Verdict, play, spec},
    scenario::Scenario,
};
use serde::Serialize;
use sim::{Entry, NodeId, Recorded, Recording};
use std::{collections::BTreeMap, ops::Range};

/// One run of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deal {
    /// Which of the gate's scenarios, from 0.
    pub scenario: usize,
    /// The seed.
    pub seed: u64,
    /// Whether it is played twice even if it passes.
    pub twice: bool,
}

/// One part of a gate that is spread over machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Which part, from 1.
    pub part: u32,
    /// Of how many.
    pub of: u32,
}

impl Partition {
    /// All of the gate.
    pub const WHOLE: Partition = Partition { part: 1, of: 1 };
}

/// Every this many rounds over the scenarios, a passing seed is played twice.
const TWICE_EVERY: u64 = 16;

/// The most runs one gate deals.
pub const MOST_RUNS: u64 = 10_000_000;

/// The gate makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GateError {
    /// No scenarios or no seeds.
    #[error("a gate of {scenarios} scenarios over seeds {from}..{to} plays nothing; the end is not included")]
    Nothing {
        /// Scenarios.
        scenarios: usize,
        /// The first seed.
        from: u64,
        /// The seed after the last.
        to: u64,
    },
    /// Too many seeds.
    #[error("{runs} runs are more than {MOST_RUNS}; play fewer seeds at a time")]
    TooMany {
        /// How many.
        runs: u64,
    },
    /// No such part.
    #[error("there is no part {part} of {of}; parts are 1 to {of}, of at least 1")]
    NoPart {
        /// Which.
        part: u32,
        /// Of how many.
        of: u32,
    },
}

/// Deals seeds over scenarios: seed s plays scenario s mod n. A part takes every `of`-th round over the scenarios, so that
/// each part plays all of them.
pub fn deal(scenarios: usize, seeds: Range<u64>, partition: Partition) -> Result<Vec<Deal>, GateError> {
    let Partition { part, of } = partition;
    if part == 0 || part > of {
        return Err(GateError::NoPart { part, of });
    }
    if scenarios == 0 || seeds.is_empty() {
        return Err(GateError::Nothing { scenarios, from: seeds.start, to: seeds.end });
    }
    let runs = seeds.end - seeds.start;
    if runs > MOST_RUNS {
        return Err(GateError::TooMany { runs });
    }
    let n = scenarios as u64;
    let mine = |seed: &u64| (seed / n) % u64::from(of) == u64::from(part - 1);
    let deal = |seed| Deal { scenario: (seed % n) as usize, seed, twice: (seed / n) % TWICE_EVERY == TWICE_EVERY - 1 };
    Ok(seeds.filter(mine).map(deal).collect())
}

/// What came of one deal.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The deal.
    pub deal: Deal,
    /// What was played.
    pub spec: RunSpec,
    /// The run; recorded in full if it failed.
    pub run: Run,
    /// Where two plays of the same spec parted, if they did; the verdict is then [`Verdict::Nondeterminism`].
    pub parted: Option<Divergence>,
}

/// A deal could not be played.
#[derive(Debug, thiserror::Error)]
pub enum DealError {
    /// The scenario and the choices give no run.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The run could not be played.
    #[error(transparent)]
    Run(#[from] RunError),
}

/// Plays one deal: once for its hash; again with all of its history if it failed; twice if it is of the sample.
pub fn play_deal(scenarios: &[Scenario], deal: Deal, choices: &Choices) -> Result<Outcome, DealError> {
    let spec = spec(&scenarios[deal.scenario], deal.seed, choices)?;
    let (run, parted) = play_checked(&spec, deal.twice)?;
    Ok(Outcome { deal, spec, run, parted })
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

/// What a gate adds up to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// Runs.
    pub runs: u64,
    /// Runs that did not pass.
    pub failed: u64,
    /// Runs of each scenario, by name, and of them how many did not pass.
    pub scenarios: BTreeMap<String, Played>,
    /// Virtual time played, in nanoseconds.
    pub virtual_ns: u128,
    /// Events the engines served.
    pub events: u64,
    /// How often each planted bug would have made a difference, and in how many runs.
    pub reached: BTreeMap<String, Played>,
    /// Faults in all plans.
    pub faults: u64,
    /// The gravest verdict.
    pub worst: Option<Verdict>,
}

/// How often something was played, and failed or was met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Played {
    /// Runs.
    pub runs: u64,
    /// Of a scenario: runs that did not pass. Of a planted bug: places where it would have made a difference.
    pub count: u64,
}

impl Totals {
    /// Adds one run.
    pub fn add(&mut self, report: &RunReport) {
        let failed = u64::from(report.verdict != Verdict::Pass);
        self.runs += 1;
        self.failed += failed;
        let of = self.scenarios.entry(report.scenario.clone()).or_default();
        of.runs += 1;
        of.count += failed;
        self.virtual_ns += u128::from(report.virtual_ns);
        self.events = self.events.saturating_add(report.events);
        self.faults = self.faults.saturating_add(report.faults);
        for (bug, count) in &report.reached {
            let of = self.reached.entry(bug.clone()).or_default();
            of.runs += 1;
            of.count = of.count.saturating_add(*count);
        }
        let gravest = self.worst.map_or(report.verdict, |worst| graver(worst, report.verdict));
        self.worst = Some(gravest);
    }

    /// Virtual hours played, in thousandths.
    pub fn virtual_milli_hours(&self) -> u128 {
        self.virtual_ns / 3_600_000_000
    }
}

/// The verdict that a gate of both ends in: safety, then nondeterminism, then liveness.
pub fn graver(one: Verdict, other: Verdict) -> Verdict {
    let gravity = |verdict| match verdict {
        Verdict::Pass => 0,
        Verdict::Liveness => 1,
        Verdict::Nondeterminism => 2,
        Verdict::Safety => 3,
    };
    if gravity(other) > gravity(one) { other } else { one }
}
