//! A gate: many seeds dealt over scenarios, each played once, a sample of them twice, every failure once more with all of its
//! history. Nothing here is parallel: whoever has threads plays the deals on them in any order.

use crate::{
    invariant::Broken,
    runner::{Choices, Run, RunError, RunReport, RunSpec, Verdict, drawn_work, play, spec},
    scenario::Scenario,
};
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

/// What is reported as broken in a run whose work or plan is another one when it is drawn again.
pub const DRAWN_AGAIN: &str = "drawn-again";

/// Plays the run of a seed, as [`play_checked`] does, and whenever it is played twice draws its work and its plan twice as
/// well: a list that depends on anything but scenario and seed is nondeterminism, whatever the runs of it give.
pub fn play_drawn(
    scenario: &Scenario,
    first: &RunSpec,
    choices: &Choices,
    twice: bool,
) -> Result<(Run, Option<Divergence>), RunError> {
    let (mut run, parted) = play_checked(first, twice)?;
    if run.report.verdict == Verdict::Pass && !twice {
        return Ok((run, parted));
    }
    if let Some(why) = drawn_otherwise(scenario, first, choices) {
        if run.report.verdict == Verdict::Pass {
            run = play(&RunSpec { recording: Recording::Full, ..first.clone() })?;
        }
        differs(&mut run.report, why);
    }
    Ok((run, parted))
}

/// Plays a run again that was once found to be [`DRAWN_AGAIN`]: its workload draws twice, and the lists are compared.
pub fn play_drawn_again(spec: &RunSpec) -> Result<Run, RunError> {
    let mut run = play(spec)?;
    let (one, other) = (drawn_work(&spec.scenario, spec.seed)?, drawn_work(&spec.scenario, spec.seed)?);
    if let Some(parting) = one.parting(&other) {
        differs(&mut run.report, other_list(spec, &parting));
    }
    Ok(run)
}

fn differs(report: &mut RunReport, message: String) {
    report.verdict = Verdict::Nondeterminism;
    report.broken = Some(Broken { invariant: DRAWN_AGAIN.to_owned(), message, time_ns: 0 });
}

fn other_list(spec: &RunSpec, parting: &str) -> String {
    let (workload, seed) = (spec.scenario.workload.name, spec.seed);
    format!(
        "the workload `{workload}` draws another list the second time from seed {seed}: {parting}; a list may depend on nothing but scenario and seed"
    )
}

/// What is different when the run is drawn anew from its seed.
fn drawn_otherwise(scenario: &Scenario, first: &RunSpec, choices: &Choices) -> Option<String> {
    let again = match spec(scenario, first.seed, choices) {
        Ok(again) => again,
        Err(error) => {
            return Some(format!("drawn a second time from seed {}, it cannot be played: {error}", first.seed));
        }
    };
    if let Some(parting) = first.work.parting(&again.work) {
        return Some(other_list(first, &parting));
    }
    let index = first.plan.faults.iter().zip(&again.plan.faults).position(|(one, other)| one != other);
    (first.plan != again.plan).then(|| {
        let fault = index.unwrap_or(first.plan.faults.len().min(again.plan.faults.len())) + 1;
        let seed = first.seed;
        format!(
            "the swarm of {} draws another plan the second time from seed {seed}: fault {fault} differs",
            scenario.name
        )
    })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        catalogue,
        runner::PlanChoice,
        workload::{WorkList, Workload, contention},
    };
    use std::sync::atomic::{AtomicU64, Ordering};

    /// Draws from a counter of the process, which no seed knows of: agent 1's user is another one each time.
    fn of_a_counter(scenario: &Scenario, _: u64) -> WorkList {
        static DRAWN: AtomicU64 = AtomicU64::new(0);
        let mut list = contention::work(&scenario.sizes, &scenario.provider.price);
        list.agents[1][0].user.0 = DRAWN.fetch_add(1, Ordering::Relaxed) as u32;
        list
    }

    #[test]
    fn a_workload_that_draws_from_more_than_its_seed_is_nondeterminism_with_its_name_and_the_agent() {
        let mut scenario = catalogue::find("contention").expect("shipped");
        let choices = Choices { plan: PlanChoice::None, ..Choices::default() };
        let sound = spec(&scenario, 3, &choices).expect("a spec");
        let (run, _) = play_drawn(&scenario, &sound, &choices, true).expect("playable");
        assert_eq!((run.report.verdict, run.report.broken), (Verdict::Pass, None));

        scenario.workload = Workload { name: "counter", does: "draws from a counter", draw: of_a_counter };
        let unsound = spec(&scenario, 3, &choices).expect("a spec");
        let (run, _) = play_drawn(&scenario, &unsound, &choices, true).expect("playable");
        let again = play_drawn_again(&unsound).expect("playable");
        for report in [run.report, again.report] {
            assert_eq!(report.verdict, Verdict::Nondeterminism);
            let broken = report.broken.expect("says what differs");
            assert_eq!(broken.invariant, DRAWN_AGAIN);
            for part in ["workload `counter`", "seed 3", "agent 1 is given run"] {
                assert!(broken.message.contains(part), "{part}: {}", broken.message);
            }
        }
        assert!(!run.history.kept.is_empty(), "it is kept like any other failure");
    }
}
