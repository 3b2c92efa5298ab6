//! Requests and their answers: each is decided once, and every repeat gets the first answer.

use super::{Invariant, Moment, Rest, Saw, parts};
use crate::fact::Fact;
use kernel::{
    effect,
    id::{ClientId, TenantId},
    record::{Event, Record},
    request::{Outcome, Refusal, Reply},
    serve::Announcement,
};
use std::collections::BTreeMap;

/// `decided-once`: at most one decision a request in the whole log; every reply given is that decision; nothing of an older
/// incarnation, nor acknowledged, is decided again; and no record is there that no request explains.
#[derive(Debug, Default)]
pub struct DecidedOnce {
    /// What is remembered of each client, for each tenant apart.
    clients: BTreeMap<(TenantId, ClientId), Client>,
    /// The record that decided each request, by client, incarnation and number, of all tenants and incarnations.
    decided_by: BTreeMap<ClientId, BTreeMap<(u32, u64), u64>>,
}

#[derive(Debug, Default)]
struct Client {
    newest: u32,
    acknowledged: u64,
    /// Answers above `acknowledged`, of the newest incarnation.
    answers: BTreeMap<u64, Answer>,
}

#[derive(Debug)]
struct Answer {
    seq: u64,
    outcome: Result<Vec<Outcome>, Refusal>,
}

impl DecidedOnce {
    fn fold(&mut self, record: &Record) -> Result<(), String> {
        let Event::Effect(effect::Event::Decided { client, incarnation, number, acknowledged, outcome }) =
            &record.event
        else {
            return Ok(());
        };
        let row = self.clients.entry((record.tenant, *client)).or_default();
        let decided_by = self.decided_by.entry(*client).or_default();
        let what = format_args!("record {}: request {number} of client {client}.{incarnation}", record.seq);
        if let Some(before) = decided_by.get(&(*incarnation, *number)) {
            return Err(format!("{what} is decided again; record {before} had decided it"));
        }
        if *incarnation < row.newest {
            return Err(format!("{what} is decided, and incarnation {} had been seen", row.newest));
        }
        if *incarnation > row.newest {
            row.newest = *incarnation;
            row.acknowledged = 0;
            row.answers.clear();
        }
        if *number <= row.acknowledged {
            return Err(format!("{what} is decided, and the client had acknowledged {}", row.acknowledged));
        }
        decided_by.insert((*incarnation, *number), record.seq);
        row.answers.insert(*number, Answer { seq: record.seq, outcome: outcome.clone() });
        if *acknowledged > row.acknowledged {
            row.acknowledged = *acknowledged;
            row.answers = row.answers.split_off(&(acknowledged.saturating_add(1)));
        }
        Ok(())
    }

    fn decided_by(&self, client: ClientId, incarnation: u32, number: u64) -> Option<u64> {
        self.decided_by.get(&client)?.get(&(incarnation, number)).copied()
    }

    fn answered(&self, part: &super::Part<'_>) -> Result<(), String> {
        let request = &part.submitted.request;
        if request.client == ClientId::LEDGER || request.number == 0 {
            return Ok(());
        }
        let what = format_args!("request {} of client {}.{}", request.number, request.client, request.incarnation);
        if let (Some(record), Reply::Waits(_) | Reply::Stale { .. } | Reply::Forgotten { .. } | Reply::Busy) =
            (part.records.first(), part.reply)
        {
            return Err(format!("{what} is answered {:?}, and made record {}", part.reply, record.seq));
        }
        let row = self.clients.get(&(request.tenant, request.client));
        let before = self.decided_by(request.client, request.incarnation, request.number);
        match part.reply {
            Reply::Decided(decision) => {
                let current = row.filter(|row| row.newest == request.incarnation);
                let Some(first) = current.and_then(|row| row.answers.get(&request.number)) else {
                    let kept = before.map_or("no record decides it".to_owned(), |seq| {
                        format!("record {seq} decided it, and its client is past it")
                    });
                    return Err(format!("{what} is answered {decision:?}; {kept}"));
                };
                if (first.seq, &first.outcome) != (decision.seq, &decision.outcome) {
                    return Err(format!(
                        "{what} is answered {decision:?}; record {} had decided {:?}",
                        first.seq, first.outcome
                    ));
                }
            }
            Reply::Stale { newest } => {
                let seen = row.map_or(0, |row| row.newest);
                if *newest != seen || request.incarnation >= seen {
                    return Err(format!(
                        "{what} is answered stale for incarnation {newest}; the newest seen is {seen}"
                    ));
                }
            }
            Reply::Forgotten { acknowledged } => {
                let known = row.map_or(0, |row| row.acknowledged);
                if *acknowledged != known || request.number > known {
                    return Err(format!("{what} is answered forgotten below {acknowledged}; acknowledged is {known}"));
                }
            }
            Reply::Waits(_) | Reply::Busy => {
                if let Some(seq) = before {
                    return Err(format!("{what} is answered {:?}, and record {seq} had decided it", part.reply));
                }
            }
        }
        Ok(())
    }
}

impl Invariant for DecidedOnce {
    fn name(&self) -> &'static str {
        "decided-once"
    }

    fn states(&self) -> &'static str {
        "a request is decided at most once, every repeat gets the first answer, and no record lacks a request"
    }

    fn at(&mut self, moment: &Moment<'_>) -> Result<(), String> {
        match moment.saw {
            Saw::Ledger(Announcement::Committed { submitted, replies, .. }, records) => {
                let mut batch = parts(submitted, replies, records);
                for part in batch.by_ref() {
                    part.records.iter().try_for_each(|record| self.fold(record))?;
                    self.answered(&part)?;
                }
                match batch.left.first() {
                    Some(record) => Err(format!("record {} ({:?}) comes of no request", record.seq, record.event)),
                    None => Ok(()),
                }
            }
            Saw::Ledger(_, records) => records.iter().try_for_each(|record| self.fold(record)),
            Saw::Fact(Fact::ActedOn { client, incarnation, number, seq }) => {
                let decided = self.decided_by(*client, *incarnation, *number);
                if decided == Some(*seq) {
                    return Ok(());
                }
                let found = decided.map_or("no record decides it".to_owned(), |seq| format!("record {seq} decides it"));
                Err(format!(
                    "client {client}.{incarnation} acts on record {seq} as the answer to its request {number}; {found}"
                ))
            }
            _ => Ok(()),
        }
    }

    fn at_rest(&mut self, _: &Rest<'_>) -> Result<(), String> {
        Ok(())
    }
}
