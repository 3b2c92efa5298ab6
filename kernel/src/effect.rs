//! Has it happened already? The first answer to each request is kept until its client acknowledges it.

use crate::{
    id::{ClientId, TenantId},
    planted,
    planted::{Bug, Planted},
    record::{self, Record},
    request::{Decision, Outcome, Refusal as AnyRefusal, Reply, Request},
    room::{Impossible, ensure},
    table::{self, Table},
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

/// How far a client has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// The highest incarnation seen.
    pub incarnation: u32,
    /// Every number up to this one is forgotten; it never goes back within an incarnation.
    pub acknowledged: u64,
}

/// The tables of this room.
#[derive(Clone, Debug)]
pub struct Tables {
    /// Each client's standing.
    pub(crate) clients: Table<(TenantId, ClientId), Seen>,
    /// The first answer to each request number of a client's newest incarnation, until acknowledged.
    pub(crate) answers: Table<(TenantId, ClientId, u64), Decision>,
}

impl Default for Tables {
    fn default() -> Tables {
        Tables { clients: Table::new(5, "effect.clients"), answers: Table::new(6, "effect.answers") }
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
    planted!(planted, Bug::DropDedup, first, None).cloned().map(Reply::Decided)
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
pub fn decided(request: &Request, outcome: Result<Vec<Outcome>, AnyRefusal>) -> Event {
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
        return Ok(());
    };
    let (tenant, client, number) = (record.tenant, *client, *number);
    ensure!(client != ClientId::LEDGER, "the ledger's own requests are not answered");
    ensure!(*acknowledged < number, "request {number} acknowledges {acknowledged}");
    let Tables { clients, answers } = &mut tables.effect;
    let seen = clients.row(&(tenant, client));
    ensure!(*incarnation >= seen.incarnation, "incarnation {incarnation} is stale after {}", seen.incarnation);
    if *incarnation > seen.incarnation {
        *seen = Seen { incarnation: *incarnation, acknowledged: 0 };
        answers.remove_range((tenant, client, 0)..=(tenant, client, u64::MAX));
    }
    if *acknowledged > seen.acknowledged {
        seen.acknowledged = *acknowledged;
        answers.remove_range((tenant, client, 0)..=(tenant, client, *acknowledged));
    }
    ensure!(number > seen.acknowledged, "request {number} was acknowledged, as all up to {}", seen.acknowledged);
    let repeated = answers.get(&(tenant, client, number)).is_some();
    ensure!(!repeated || planted.is_on(Bug::DropDedup), "request {number} of client {client} is decided twice");
    answers.insert((tenant, client, number), Decision { seq: record.seq, outcome: outcome.clone() });
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
