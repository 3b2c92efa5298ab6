//! What must hold: folds over what the observer saw, each touching only the keys that a moment names.

use crate::fact::Fact;
use kernel::{record::Record, serve::Announcement};
use serde::{Deserialize, Serialize};
use sim::NodeId;

/// What the observer saw at one moment.
#[derive(Clone, Copy, Debug)]
pub enum Saw<'a> {
    /// A node booted.
    Up,
    /// A node went down.
    Down,
    /// The ledger's server announced something; with the records of its frame, decoded once for all invariants.
    Ledger(&'a Announcement, &'a [Record]),
    /// The cast stated a fact.
    Fact(&'a Fact),
}

/// One moment of a run.
#[derive(Clone, Copy, Debug)]
pub struct Moment<'a> {
    /// True time, in nanoseconds.
    pub time_ns: u64,
    /// Who.
    pub node: NodeId,
    /// Which incarnation.
    pub incarnation: u32,
    /// What.
    pub saw: Saw<'a>,
}

/// The run at rest, after faults have ended and everything has converged (or failed to).
#[derive(Clone, Copy, Debug)]
pub struct Rest<'a> {
    /// The whole log as the store holds it, read after a last power cut of the ledger (if its store has a disk).
    pub log: &'a [Record],
    /// The tables' hashes as the store's own opening (checkpoint and suffix) gives them: (table number, hash).
    pub opened: &'a [(u16, [u8; 32])],
    /// The tables' hashes as a rebuild from the whole log gives them.
    pub rebuilt: &'a [(u16, [u8; 32])],
    /// Whether every agent finished its list. If not, invariants about rest do not apply.
    pub converged: bool,
}

/// An invariant does not hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Broken {
    /// Its name.
    pub invariant: String,
    /// What was seen and what should have been, with the numbers.
    pub message: String,
    /// When, in true nanoseconds.
    pub time_ns: u64,
}

/// Something that must hold at every moment, and at rest.
pub trait Invariant {
    /// Its name, in lower case with hyphens.
    fn name(&self) -> &'static str;
    /// What it states, in one line.
    fn states(&self) -> &'static str;
    /// Takes in one moment; an error is what is broken.
    fn at(&mut self, moment: &Moment<'_>) -> Result<(), String>;
    /// Looks at the run at rest.
    fn at_rest(&mut self, rest: &Rest<'_>) -> Result<(), String>;
}
