//! The checker that trusts nobody: from a run's files alone it works every invariant and every figure out again.
//!
//! It shares no code with the kernel's `decide` and `apply`, nor with the invariants and the reference model that watched the
//! run: the forms of the files are set down a second time in [`wire`] and [`told`], and every rule is folded here from the
//! documentation. `ci/tests/arrows.rs` holds these files to that.
//!
//! - [`files`]: the four files, their digests, and whether they are of one run.
//! - [`log`]: the log by itself; [`story`]: the history entry by entry, held against the log and folded in order.
//! - [`budget`], [`writers`], [`turns`], [`runs`], [`effects`], [`calls`], [`ceilings`], [`requests`]: the folds;
//!   [`answers`]: what the rules say to a command; [`commands`]: what it must have made.
//! - [`terms`]: what the ledger was set up with; [`tables`]: the tables at rest, row by row.
//! - [`figures`]: each number of the result; [`verdict`]: what the result says came of it.
//! - [`findings`]: the table. What was not looked at is never said to hold.
//!
//! A new kind of event: a variant in [`wire`], what it does in the folds that it touches, and, if commands make it, an arm in
//! [`commands`]. The compiler names most of the places; a kind that is not here is a violation that says so.

mod answers;
mod budget;
mod calls;
mod ceilings;
mod commands;
mod effects;
mod figures;
mod files;
mod findings;
mod log;
mod requests;
mod runs;
mod story;
mod tables;
mod terms;
mod told;
mod turns;
mod verdict;
mod wire;
mod writers;

pub use figures::Figure;
pub use files::CheckError;
pub use findings::{Check, Place, Status, Violation};
pub use verdict::{Agreement, NO_RULES};

use files::Files;
use findings::{Findings, Rule};
use log::Log;
use serde::Serialize;
use std::path::Path;
use story::Story;

/// What a check gave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Checked {
    /// The scenario's name, as the result tells it.
    pub scenario: String,
    /// The seed.
    pub seed: u64,
    /// Agents.
    pub agents: u32,
    /// What the result says came of the run.
    pub verdict: String,
    /// Whether the files bear the verdict out.
    pub agreement: Agreement,
    /// What the run is said to have broken, if anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broken: Option<String>,
    /// Entries of the history that were read.
    pub entries: u64,
    /// Records of the log.
    pub records: u64,
    /// A row a rule.
    pub checks: Vec<Check>,
    /// The scenario's invariants that there are no rules for: nothing is known of them.
    pub without_rules: Vec<String>,
    /// A row a number of the result.
    pub figures: Vec<Figure>,
}

impl Checked {
    /// How many violations there are, over all rules.
    pub fn violations(&self) -> u64 {
        self.checks.iter().map(|check| check.violations).sum()
    }

    /// Whether nothing is wrong with the files, nor with the run that they tell of, as far as there are rules.
    pub fn is_ok(&self) -> bool {
        self.violations() == 0 && self.verdict == "pass"
    }
}

/// Checks the folder of a recorded run.
pub fn check(folder: &Path) -> Result<Checked, CheckError> {
    let files = Files::read(folder)?;
    let (capsule, result) = (&files.capsule, &files.result);
    if result.panicked() && files.log.is_empty() {
        return Err(CheckError::Panicked { path: folder.to_owned() });
    }
    if files.history.is_empty() && files.log.is_empty() {
        return Err(CheckError::Nothing { path: folder.to_owned() });
    }
    let mut found = Findings::default();
    files.compare(&mut found);
    let log = Log::read(&files.log, &mut found);
    let mut story = Story::new(&log, capsule);
    terms::compare(&log, capsule, &mut found);
    story.read(&files.history, &mut found);
    if files.history.is_empty() {
        found.broken(Rule::Entries, Place::History { entry: 0 }, "there is a log and no history: the file was emptied");
    }
    let overspends = story.budget.overspends;
    let untold = story.untold(&mut found);
    let agreement = verdict::judge(&files, &story, &mut found);
    let sources = figures::Sources {
        capsule,
        result,
        tally: &story.tally,
        bound: &story.ceilings.bound,
        closing: story.closing,
        entries: story.entries,
        overspends,
        uncommitted: story.requests.uncommitted,
        untold,
    };
    let figures = sources.compare(&mut found);
    Ok(Checked {
        scenario: result.scenario.clone(),
        seed: result.seed,
        agents: result.agents,
        verdict: result.verdict.clone(),
        agreement,
        broken: result.broken.as_ref().map(|broken| broken.invariant.clone()),
        entries: story.entries,
        records: log.len(),
        checks: found.checks(),
        without_rules: verdict::without_rules(&files),
        figures,
    })
}
