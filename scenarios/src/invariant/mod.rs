//! What must hold: folds over what the observer saw, each touching only the keys that a moment names.
//!
//! [`Watch`] decodes the history once and feeds the chosen invariants. Each of them keeps its own reckoning, written from the
//! rules: none calls the kernel's `decide` or `apply`, nor reads its tables. What they share with it are types and codecs.
//!
//! - [`admission`]: halts and quotas.
//! - [`budget`]: caps and slots, each reservation's one end, what is open.
//! - [`effects`]: intents, memo and single-flight.
//! - [`calls`]: what left agents and what the provider charged, against what the ledger says.
//! - [`ceilings`]: the edge, and the credit of the provider's keys.
//! - [`writers`]: locks, fences and lease terms.
//! - [`log`]: sequence, hashes, durability, rebuild.
//! - [`replies`]: one decision a request.
//! - [`orders`]: cancels, suspensions, and calls under a halt.
//! - [`runs`]: runs and attempts.
//! - [`turns`]: who waits, and is served in which order.
//! - [`crate::model`]: the reference model, an invariant like the others.

pub mod admission;
mod batch;
pub mod budget;
pub mod calls;
pub mod ceilings;
pub mod effects;
#[cfg(test)]
pub(crate) mod history;
pub mod log;
pub mod orders;
pub mod replies;
pub mod runs;
pub mod turns;
mod watch;
mod whole_log;
pub mod writers;

pub(crate) use batch::{Part, parts};
pub use watch::{READABLE_HISTORY, Sight, UnknownInvariant, Watch, decode};
pub use whole_log::WholeLog;

use crate::{fact::Fact, gate::DRAWN_AGAIN, model::Model, panicking::Whose};
use kernel::{
    id::{ClientId, ReservationId},
    record::Record,
    run::AttemptState,
    serve::Announcement,
};
use serde::{Deserialize, Serialize};
use sim::NodeId;

/// What the observer saw at one moment.
#[derive(Clone, Copy, Debug)]
pub enum Saw<'a> {
    /// A node booted.
    Up,
    /// A node went down.
    Down,
    /// The ledger's server announced something; with the records that it is the first to tell of, decoded once for all
    /// invariants: a committed frame's, or of an opening's last frame those that no announcement told of before.
    Ledger(&'a Announcement, &'a [Record]),
    /// The cast stated a fact.
    Fact(&'a Fact),
    /// The ledger had no room for a request: it told its client to come again.
    TurnedAway {
        /// Whose.
        client: ClientId,
        /// Of which incarnation.
        incarnation: u32,
        /// Which.
        number: u64,
    },
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
    /// The attempts that the records told of end.
    ended: &'a [EndedAttempt],
}

/// An attempt that a record ends, worked out once for all invariants.
#[derive(Clone, Copy, Debug)]
struct EndedAttempt {
    seq: u64,
    reservation: ReservationId,
    state: AttemptState,
}

/// The reservation of the attempt that a record ends, and how it ends.
type Ended = Option<(ReservationId, AttemptState)>;

impl Moment<'_> {
    /// What `record`, one of those told of, ends.
    fn ended(&self, record: &Record) -> Ended {
        let ended = self.ended.iter().find(|ended| ended.seq == record.seq)?;
        Some((ended.reservation, ended.state))
    }
}

/// The run at rest, after faults have ended and everything has converged (or failed to).
#[derive(Clone, Copy, Debug)]
pub struct Rest<'a> {
    /// The whole log as the store holds it, read after a last power cut of the ledger (if its store has a disk).
    pub log: &'a WholeLog,
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
    /// Looks at the run at rest; most have said all they have to say by then.
    fn at_rest(&mut self, _: &Rest<'_>) -> Result<(), String> {
        Ok(())
    }
}

/// Every invariant, fresh, in the order in which they explain a failure best: the sharpest statement first.
pub fn all() -> Vec<Box<dyn Invariant>> {
    vec![
        Box::<log::Dense>::default(),
        Box::<log::Durable>::default(),
        Box::<budget::CapsHold>::default(),
        Box::<admission::HaltHolds>::default(),
        Box::<admission::QuotaHolds>::default(),
        Box::<orders::CancelHolds>::default(),
        Box::<orders::SuspendedRests>::default(),
        Box::<budget::EndsOnce>::default(),
        Box::<budget::NoneOpenAtRest>::default(),
        Box::<writers::OneWriter>::default(),
        Box::<writers::LeaseTerms>::default(),
        Box::<writers::BelievedHolders>::default(),
        Box::<replies::DecidedOnce>::default(),
        Box::<turns::Turns>::default(),
        Box::<effects::Intents>::default(),
        Box::<effects::DispatchedFirst>::default(),
        Box::<orders::HaltedCallsStay>::default(),
        Box::<effects::OneFlight>::default(),
        Box::<effects::AskedOnce>::default(),
        Box::<calls::UnknownHasCause>::default(),
        Box::<calls::ReleasedUncharged>::default(),
        Box::<calls::Invoice>::default(),
        Box::<calls::LiveCalls>::default(),
        Box::<ceilings::EdgeHolds>::default(),
        Box::<ceilings::KeyCredit>::default(),
        Box::<runs::RunsEnd>::default(),
        Box::<Model>::default(),
        Box::<log::Rebuild>::default(),
    ]
}

/// The invariant of that name, fresh.
pub fn named(name: &str) -> Option<Box<dyn Invariant>> {
    all().into_iter().find(|invariant| invariant.name() == name)
}

/// What is reported as broken without being an invariant: no invariant may go by these names.
const RESERVED: [&str; 9] = [
    READABLE_HISTORY,
    "store-reads-back",
    "comes-to-rest",
    DRAWN_AGAIN,
    Whose::Kernel.name(),
    Whose::Cast.name(),
    Whose::Invariant.name(),
    Whose::Workload.name(),
    Whose::Engine.name(),
];

/// The first name that is another's already, in the order of the list.
pub fn taken(invariants: &[Box<dyn Invariant>]) -> Option<&'static str> {
    let names: Vec<&'static str> = invariants.iter().map(|invariant| invariant.name()).collect();
    let is_taken = |(index, name): &(usize, &&str)| RESERVED.contains(*name) || names[..*index].contains(*name);
    names.iter().enumerate().find(is_taken).map(|(_, name)| *name)
}
