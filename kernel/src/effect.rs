//! Has it happened already? The first answer to each request is kept until its client acknowledges it; what leaves the ledger
//! is written ahead, and what it was answered is remembered: see [`intent`].

pub mod intent;

pub use intent::{Class, Command, Content, Effect, Intent, Key, Phase, Question, Remembered, Response};
pub(crate) use intent::{flight_over, leaderless, may_release, may_settle, turn_passed_on};

use crate::{
    id::{ClientId, ReservationId, TenantId, ToolId},
    planted,
    planted::{Bug, Planted},
    record::{self, Record},
    request::{Decision, Outcome as AnyOutcome, Refusal as AnyRefusal, Reply, Request},
    room::{Impossible, ensure},
    table::{self, Hashed, HashedTable, Rows, Table},
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
        outcome: Result<Vec<AnyOutcome>, AnyRefusal>,
    },
    /// A tool may be called.
    ToolRegistered {
        /// By whose runs.
        tenant: TenantId,
        /// Which.
        tool: ToolId,
        /// What its calls do.
        class: Class,
    },
    /// An intent is pending; recorded with the reservation that it is named by.
    Intended {
        /// Which.
        intent: ReservationId,
        /// The tool it will call.
        tool: ToolId,
        /// The tool's class.
        class: Class,
        /// The key it will be sent under, if it is idempotent.
        key: Option<Key>,
    },
    /// An intent's call may leave from now on.
    Dispatched {
        /// Which.
        intent: ReservationId,
    },
    /// An intent's call came back.
    Committed {
        /// Which.
        intent: ReservationId,
        /// The raw bytes, which nobody has looked into.
        response: Response,
    },
}

impl Event {
    /// Whose the event is, when a request about `tenant` causes it.
    pub(crate) fn tenant(&self, tenant: TenantId) -> TenantId {
        match self {
            Event::ToolRegistered { tenant, .. } => *tenant,
            Event::Decided { .. } | Event::Intended { .. } | Event::Dispatched { .. } | Event::Committed { .. } => {
                tenant
            }
        }
    }
}

/// What an admitted command gives back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// The tool may be called.
    Registered,
    /// The attempt is running and its intent pending: its name, and that of its reservation.
    Begun(ReservationId),
    /// The question had been answered, and the attempt has succeeded with that answer at no cost.
    Recalled {
        /// The reservation that paid for it.
        source: ReservationId,
        /// The raw bytes.
        response: Response,
    },
    /// The call may leave.
    Dispatched,
    /// What came back is recorded.
    Committed,
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
    /// A tool without a class.
    #[error("tool {tool} states no class; say whether its calls are idempotent, queryable or unsafe")]
    NoClass {
        /// The tool.
        tool: ToolId,
    },
    /// A tool that may not be called.
    #[error("tool {tool} is not registered; the owner registers it with its class first")]
    UnknownTool {
        /// The tool.
        tool: ToolId,
    },
    /// The key is not the one that the tool's class and the content give.
    #[error(
        "a call of tool {tool}, which is {class:?}, goes under {right:?}; derive the key from tenant, tool and content"
    )]
    WrongKey {
        /// The tool.
        tool: ToolId,
        /// Its class.
        class: Class,
        /// The key it has to carry.
        right: Option<Key>,
    },
    /// Another asks the same question now, and the request's term left no time to wait.
    #[error("intent {leader} asks the same question; wait for its answer")]
    InFlight {
        /// The question's key.
        key: Key,
        /// Who asks.
        leader: ReservationId,
    },
    /// The question was answered after the intent was made.
    #[error("the question was answered under {answered_by}; cancel the attempt, and the next is given the answer")]
    AnsweredMeanwhile {
        /// The question's key.
        key: Key,
        /// The reservation that paid for the answer.
        answered_by: ReservationId,
    },
    /// There is no such intent in this tenant, it is another run's, or its attempt has ended.
    #[error("intent {intent} is not an open one of this run's")]
    UnknownIntent {
        /// What was named.
        intent: ReservationId,
    },
    /// The intent is not as far as that, or further.
    #[error("intent {intent} is {phase:?}; it goes from pending by dispatch to commit, and then its money ends")]
    WrongPhase {
        /// Which.
        intent: ReservationId,
        /// How far it is.
        phase: Phase,
    },
    /// The intent's last phase is not durable yet.
    #[error("intent {intent} became {phase:?} in this very frame; wait for the answer to that, then ask again")]
    SameFrame {
        /// Which.
        intent: ReservationId,
        /// How far it is.
        phase: Phase,
    },
    /// The response is longer than a record carries.
    #[error("a response of {bytes} bytes; a record carries {}", Response::MOST_BYTES)]
    TooLong {
        /// Its length.
        bytes: u64,
    },
}

/// How far a client has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// The highest incarnation seen.
    pub incarnation: u32,
    /// Every number up to this one is forgotten; it never goes back within an incarnation.
    pub acknowledged: u64,
}

/// Boxed, for rows come and go with each request, and the last is moved to the place of one that goes.
type Answers = HashedTable<(TenantId, ClientId, u64), Box<Decision>>;

/// The tables of this room.
#[derive(Clone, Debug)]
pub struct Tables {
    /// Each client's standing.
    pub(crate) clients: HashedTable<(TenantId, ClientId), Seen>,
    /// The first answer to each request number of a client's newest incarnation, until acknowledged.
    pub(crate) answers: Answers,
    /// The numbers of each client's answers, in order. Derived from `answers`: what a client acknowledges is looked for among its
    /// own and nobody else's.
    held: Hashed<(TenantId, ClientId), Vec<u64>>,
    /// The tools that a tenant's runs may call.
    pub(crate) tools: Table<(TenantId, ToolId), Class>,
    /// The intents whose attempts run, or await the owner.
    pub(crate) intents: HashedTable<(TenantId, ReservationId), Intent>,
    /// Who asks what: at most one intent a key.
    pub(crate) flights: HashedTable<(TenantId, Key), ReservationId>,
    /// What was asked and answered.
    pub(crate) memo: HashedTable<(TenantId, Key), Remembered>,
}

impl Default for Tables {
    fn default() -> Tables {
        Tables {
            clients: Table::new(5, "effect.clients"),
            answers: Table::new(6, "effect.answers"),
            held: Hashed::default(),
            tools: Table::new(19, "effect.tools"),
            intents: Table::new(20, "effect.intents"),
            flights: Table::new(21, "effect.flights"),
            memo: Table::new(22, "effect.memo"),
        }
    }
}

impl Tables {
    /// Derives each client's numbers from the answers, which were loaded row by row.
    pub(crate) fn index(&mut self) {
        self.held = Hashed::default();
        for ((tenant, client, number), _) in self.answers.iter() {
            self.held.find_or_insert((*tenant, *client), Vec::new).0.push(*number);
        }
        self.held.values_mut().for_each(|numbers| numbers.sort_unstable());
    }
}

/// Whether a request has been answered for good: its reply if so, `None` if it is to be decided.
pub fn decide(tables: &table::Tables, request: &Request, planted: &Planted) -> Option<Reply> {
    if request.number == 0 {
        let refusal = Refusal::Misnumbered { number: 0, acknowledged: request.acknowledged };
        let seq = tables.record.head().next_seq.saturating_sub(1);
        return Some(Reply::Decided(Decision { seq, outcome: Err(refusal.into()) }));
    }
    let seen = tables.effect.clients.get(&(request.tenant, request.client))?;
    if request.incarnation < seen.incarnation {
        return Some(Reply::Stale { newest: seen.incarnation });
    }
    if request.incarnation > seen.incarnation {
        return None;
    }
    if request.number <= seen.acknowledged {
        return Some(Reply::Forgotten { acknowledged: seen.acknowledged });
    }
    let first = tables.effect.answers.get(&(request.tenant, request.client, request.number));
    planted!(planted, Bug::DropDedup, first, None).map(|decision| Reply::Decided(Decision::clone(decision)))
}

/// Whether a request is well made.
pub fn admit(request: &Request) -> Result<(), Refusal> {
    let (number, acknowledged) = (request.number, request.acknowledged);
    if acknowledged >= number {
        return Err(Refusal::Misnumbered { number, acknowledged });
    }
    if request.commands.is_empty() {
        return Err(Refusal::Empty);
    }
    Ok(())
}

/// The event that records what was decided of `request`. What a misnumbered request acknowledges is not believed.
pub fn decided(request: &Request, outcome: Result<Vec<AnyOutcome>, AnyRefusal>) -> Event {
    Event::Decided {
        client: request.client,
        incarnation: request.incarnation,
        number: request.number,
        acknowledged: if request.acknowledged < request.number { request.acknowledged } else { 0 },
        outcome,
    }
}

/// Folds a record of this room.
pub fn apply(tables: &mut table::Tables, record: &Record, planted: &Planted) -> Result<(), Impossible> {
    let record::Event::Effect(Event::Decided { client, incarnation, number, acknowledged, outcome }) = &record.event
    else {
        return intent::apply(tables, record, planted);
    };
    let (tenant, client, number) = (record.tenant, *client, *number);
    ensure!(client != ClientId::LEDGER, "the ledger's own requests are not answered");
    ensure!(*acknowledged < number, "request {number} acknowledges {acknowledged}");
    let Tables { clients, answers, held, .. } = &mut tables.effect;
    let (held, _) = held.find_or_insert((tenant, client), Vec::new);
    let mut forget = |number| drop(answers.remove(&(tenant, client, number)));
    let seen = clients.row(&(tenant, client));
    ensure!(*incarnation >= seen.incarnation, "incarnation {incarnation} is stale after {}", seen.incarnation);
    if *incarnation > seen.incarnation {
        *seen = Seen { incarnation: *incarnation, acknowledged: 0 };
        held.drain(..).for_each(&mut forget);
    }
    if *acknowledged > seen.acknowledged {
        seen.acknowledged = *acknowledged;
        held.drain(..held.partition_point(|held| held <= acknowledged)).for_each(&mut forget);
    }
    ensure!(number > seen.acknowledged, "request {number} was acknowledged, as all up to {}", seen.acknowledged);
    let repeated = answers.get(&(tenant, client, number)).is_some();
    ensure!(!repeated || planted.is_on(Bug::DropDedup), "request {number} of client {client} is decided twice");
    if let Err(at) = held.binary_search(&number) {
        held.insert(at, number);
    }
    answers.insert((tenant, client, number), Box::new(Decision { seq: record.seq, outcome: outcome.clone() }));
    Ok(())
}

/// [`Bug::LostDecided`]: an opening forgets what was decided in the last frame.
pub(crate) fn lose(tables: &mut table::Tables, records: &[Record], planted: &Planted) {
    for record in records {
        let record::Event::Effect(Event::Decided { client, number, .. }) = record.event else { continue };
        planted.reach(Bug::LostDecided);
        if planted.is_on(Bug::LostDecided) {
            tables.effect.answers.remove(&(record.tenant, client, number));
        }
    }
}
