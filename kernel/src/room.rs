//! What all rooms share: the case a command is decided in, what `decide` gives back, and what `apply` objects to.
//!
//! `decide` is a plain function over the tables and gives a [`Ruling`] or a [`No`]; it changes nothing. `apply` folds one
//! record into the tables and gives [`Impossible`] for a record that cannot follow from those before it.

use crate::{
    admit, effect,
    id::{ClientId, LedgerTime, TenantId},
    lease::{self, Authority},
    planted::Planted,
    record::Event,
    request::{Notice, Outcome, Refusal, Submitted, Turn},
    reserve, run,
};

/// Under which circumstances a request's commands are decided.
#[derive(Clone, Copy, Debug)]
pub struct Case<'a> {
    /// Whose data the request is about.
    pub tenant: TenantId,
    /// Who asks.
    pub client: ClientId,
    /// The grant it writes under.
    pub authority: Option<Authority>,
    /// Whether it may wait.
    pub term: Term,
    /// Ledger time now.
    pub time: LedgerTime,
    /// The first sequence of the frame that is being written: what is older is durable.
    pub frame_from: u64,
    /// The first request of an empty ledger, by the ledger itself: it sets what later needs the owner's lock.
    pub genesis: bool,
    /// Which mistakes are on.
    pub planted: &'a Planted,
}

impl<'a> Case<'a> {
    /// The case of `submitted`, decided at `now_ns` of the writer's clock and `time` of the ledger, in a frame that begins at
    /// `frame_from`.
    pub fn new(
        submitted: &Submitted,
        now_ns: u64,
        time: LedgerTime,
        frame_from: u64,
        planted: &'a Planted,
    ) -> Case<'a> {
        let request = &submitted.request;
        let term = match request.wait_ns {
            0 => Term::None,
            _ if now_ns <= submitted.waits_until_ns => Term::Open,
            _ => Term::Ended,
        };
        Case {
            tenant: request.tenant,
            client: request.client,
            authority: request.authority,
            term,
            time,
            frame_from,
            genesis: request.client == ClientId::LEDGER && frame_from == 0,
            planted,
        }
    }
}

/// How a request's own term for waiting stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Term {
    /// It does not wait.
    None,
    /// It waits, and may still be granted its turn.
    Open,
    /// It waited, and may no longer be granted its turn.
    Ended,
}

/// An admitted command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ruling {
    /// What to record, in order.
    pub events: Vec<Event>,
    /// What to answer.
    pub outcome: Outcome,
    /// Whose turns have come once this is durable.
    pub notices: Vec<Notice>,
}

/// A command that is not admitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum No {
    /// Ever: this is the request's answer.
    Refused(Refusal),
    /// Yet: the request waits for its turn.
    Waits(Turn),
}

impl From<admit::Refusal> for No {
    fn from(refusal: admit::Refusal) -> No {
        No::Refused(refusal.into())
    }
}

impl From<lease::Refusal> for No {
    fn from(refusal: lease::Refusal) -> No {
        No::Refused(refusal.into())
    }
}

impl From<reserve::Refusal> for No {
    fn from(refusal: reserve::Refusal) -> No {
        No::Refused(refusal.into())
    }
}

impl From<effect::Refusal> for No {
    fn from(refusal: effect::Refusal) -> No {
        No::Refused(refusal.into())
    }
}

impl From<run::Refusal> for No {
    fn from(refusal: run::Refusal) -> No {
        No::Refused(refusal.into())
    }
}

/// Why a record cannot follow from those before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Impossible(pub String);

/// Returns [`Impossible`] with the message unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err($crate::room::Impossible(format!($($message)+)));
        }
    };
}
pub(crate) use ensure;
