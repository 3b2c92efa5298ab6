//! What is asked of the ledger and what it answers: requests, replies, notices, queries.

use crate::{
    admit, effect,
    id::{ClientId, LedgerTime, ReservationId, RunId, TenantId, UnitId, UserId},
    lease::{self, Authority, Lock},
    money::MicroUsd,
    reserve, run,
};
use serde::{Deserialize, Serialize};

/// One command to one room.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// To `admit`.
    Admit(admit::Command),
    /// To `lease`.
    Lease(lease::Command),
    /// To `reserve`.
    Reserve(reserve::Command),
    /// To `run`.
    Run(run::Command),
    /// To `effect`.
    Effect(effect::Command),
}

/// One or more commands of one client, all or nothing.
///
/// (client, incarnation, number) names it: whatever was decided first is answered to every repeat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Whose data it is about.
    pub tenant: TenantId,
    /// Who asks.
    pub client: ClientId,
    /// Which incarnation of it.
    pub incarnation: u32,
    /// The request's number within the incarnation, from 1.
    pub number: u64,
    /// Every number up to this one has been answered to the client and will not be asked again; below `number`.
    pub acknowledged: u64,
    /// The grant it writes under, if its commands need one.
    pub authority: Option<Authority>,
    /// How long the client will wait for its turn from the request's arrival, in nanoseconds of the writer's clock;
    /// 0 to be refused at once.
    pub wait_ns: u64,
    /// What to do. Not empty.
    pub commands: Vec<Command>,
}

impl Request {
    /// The ledger's own: lets time pass.
    pub fn tick() -> Request {
        Request::own(vec![Command::Lease(lease::Command::Tick)])
    }

    /// The ledger's own: caps, slots, prices, quotas and halts, as the first request of an empty ledger.
    pub fn genesis(commands: Vec<Command>) -> Request {
        Request::own(commands)
    }

    fn own(commands: Vec<Command>) -> Request {
        Request {
            tenant: TenantId::LEDGER,
            client: ClientId::LEDGER,
            incarnation: 0,
            number: 0,
            acknowledged: 0,
            authority: None,
            wait_ns: 0,
            commands,
        }
    }
}

/// A request as the server hands it to the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Submitted {
    /// What was asked.
    pub request: Request,
    /// The writer's monotonic reading, in nanoseconds, after which the request may no longer be granted a turn:
    /// its arrival plus `wait_ns`. Equal to its arrival if it does not wait.
    pub waits_until_ns: u64,
}

impl Submitted {
    /// `request` as it arrives at `now_ns` of the writer's clock.
    pub fn arriving(request: Request, now_ns: u64) -> Submitted {
        Submitted { waits_until_ns: now_ns.saturating_add(request.wait_ns), request }
    }
}

/// What an admitted command gives back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// From `admit`.
    Admit(admit::Outcome),
    /// From `lease`.
    Lease(lease::Outcome),
    /// From `reserve`.
    Reserve(reserve::Outcome),
    /// From `run`.
    Run(run::Outcome),
    /// From `effect`.
    Effect(effect::Outcome),
}

/// The ledger said no; nothing but the decision itself is recorded. Not an error: nothing broke.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// By `admit`.
    #[error(transparent)]
    Admit(#[from] admit::Refusal),
    /// By `lease`.
    #[error(transparent)]
    Lease(#[from] lease::Refusal),
    /// By `effect`.
    #[error(transparent)]
    Effect(#[from] effect::Refusal),
    /// By `reserve`.
    #[error(transparent)]
    Reserve(#[from] reserve::Refusal),
    /// By `run`.
    #[error(transparent)]
    Run(#[from] run::Refusal),
}

/// What was decided of a request, once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// Sequence of the `Decided` record: the decision is durable once the ledger's head is past it.
    pub seq: u64,
    /// One outcome a command, or the first refusal.
    pub outcome: Result<Vec<Outcome>, Refusal>,
}

/// What waits for what: a key of the queues that the server keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Turn {
    /// For a lock to come free.
    Lock(Lock),
    /// For a user's live slot to come free.
    Slot(TenantId, UserId),
    /// For the answer to a question that another asks.
    Answer(TenantId, effect::Key),
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// Decided, now or before.
    Decided(Decision),
    /// Not decided: the request waits for its turn. Nothing is recorded; never sent to a client.
    Waits(Turn),
    /// Not decided: a newer incarnation of the client has been seen.
    Stale {
        /// The newest.
        newest: u32,
    },
    /// Not decided: the client had acknowledged the number.
    Forgotten {
        /// Acknowledged up to here.
        acknowledged: u64,
    },
    /// Not decided: the server's queue is full; ask again later.
    Busy,
}

/// Something that others wait for has happened; leaves only after the commit that made it true is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Notice {
    /// The turn of whoever waits first for this has come.
    TurnCame(Turn),
    /// The turn of everyone who waits for this has come.
    AllTurnsCame(Turn),
}

/// A question about committed state. Never commits anything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Query {
    /// Where a run stands.
    Run(TenantId, RunId),
    /// Every open reservation of a tenant that only the owner can end: its attempt is indeterminate or its run has ended.
    AwaitsOwner(TenantId),
    /// Every run of a tenant that is suspended, by its name.
    Suspended(TenantId),
    /// What a user may still begin today, the day of the highest ledger time committed.
    Admission(TenantId, UserId),
    /// What an account holds.
    Account(reserve::Account),
    /// The head of the log.
    Head,
}

/// A unit of a run as far as it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitStanding {
    /// The unit.
    pub unit: UnitId,
    /// Its latest attempt.
    pub attempt: u32,
    /// Where that stands.
    pub state: run::AttemptState,
    /// Its reservation, if it has one; of an attempt that was given an answer the one that paid for that.
    pub reservation: Option<ReservationId>,
    /// Whether the reservation is open.
    pub open: bool,
    /// What was set aside.
    pub worst: MicroUsd,
    /// Its intent, while it is open.
    pub intent: Option<IntentStanding>,
}

/// An open intent as far as it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IntentStanding {
    /// What may be done about it.
    pub class: effect::Class,
    /// How far it is.
    pub phase: effect::Phase,
}

/// The answer to a query.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// Where a run stands; `None` if it was never spawned.
    Run(Option<RunStanding>),
    /// Reservations for the owner to resolve, oldest first, at most a thousand.
    AwaitsOwner(Vec<ReservationId>),
    /// Runs that are suspended, by name, at most a thousand.
    Suspended(Vec<RunId>),
    /// What a user may begin.
    Admission {
        /// Whose halt switch stops it, if one is on; 0 is the whole ledger's.
        halted: Option<TenantId>,
        /// The quota in force for it, if any.
        quota: Option<admit::Quota>,
        /// The day of ledger time.
        day: u32,
        /// Runs it has spawned in it.
        taken: u32,
    },
    /// An account's sums.
    Account {
        /// Settled in it.
        settled: MicroUsd,
        /// Live in it.
        live: MicroUsd,
        /// The cap in force for it, if any.
        cap: Option<MicroUsd>,
    },
    /// The head of the log.
    Head {
        /// The next sequence.
        next_seq: u64,
        /// The chain so far.
        chain: crate::record::Hash,
        /// The highest ledger time committed.
        time: LedgerTime,
    },
}

/// Where a run stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunStanding {
    /// Its state.
    pub state: run::RunState,
    /// How often it was suspended.
    pub suspensions: u32,
    /// Its units that have begun, by unit.
    pub units: Vec<UnitStanding>,
}

/// A frame from a client to the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToLedger {
    /// A request.
    Request(Request),
    /// A query, with the client's own number for it.
    Query {
        /// Echoed in the answer.
        number: u64,
        /// The question.
        query: Query,
    },
}

/// A frame from the server to a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromLedger {
    /// The answer to a request.
    Reply {
        /// The client.
        client: ClientId,
        /// Its incarnation.
        incarnation: u32,
        /// The request's number.
        number: u64,
        /// The answer; never `Waits`.
        reply: Reply,
    },
    /// The request waits in the server's queue; ask again before its term ends if nothing comes.
    Waiting {
        /// The client.
        client: ClientId,
        /// Its incarnation.
        incarnation: u32,
        /// The request's number.
        number: u64,
    },
    /// The answer to a query.
    Answer {
        /// The number the query came with.
        number: u64,
        /// The answer.
        answer: Answer,
    },
}
