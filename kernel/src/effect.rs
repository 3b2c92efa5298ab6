//! Has it happened already? The first answer to each request is kept until its client acknowledges it.

use crate::{
    id::ClientId,
    request::{Outcome, Refusal as AnyRefusal},
};
use serde::{Deserialize, Serialize};

/// What this room records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// A request was decided; the last record of its decision.
    Decided {
        /// Who asked.
        client: ClientId,
        /// Which incarnation.
        incarnation: u32,
        /// The request's number.
        number: u64,
        /// What the client had acknowledged: answers up to this number are dropped.
        acknowledged: u64,
        /// What was decided.
        outcome: Result<Vec<Outcome>, AnyRefusal>,
    },
}

/// Why this room says no.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// A request without commands.
    #[error("a request carries at least one command")]
    Empty,
    /// Number 0, or acknowledged at or above the number.
    #[error("request {number} acknowledges {acknowledged}; numbers begin at 1 and acknowledge only lower ones")]
    Misnumbered {
        /// The number.
        number: u64,
        /// What it acknowledges.
        acknowledged: u64,
    },
}
