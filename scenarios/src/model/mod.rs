//! The reference model: budgets, live slots, leases and attempts predicted from the rules alone, and compared with each commit.
//!
//! Each announced batch is decided again, request by request, from the documented rules and the model's own state, and the
//! model's replies and events must be the ledger's, number by number. What an opening brings to light (a durable frame that was
//! never announced) is folded without a prediction: nobody knows what was asked.
//!
//! Where the rules leave an order open, this is the reading that both sides keep to:
//!
//! - A request's own name comes first: numbered 0 (refused, unrecorded), of an older incarnation (stale), acknowledged
//!   (forgotten), decided before (the first answer), then misnumbered (what it acknowledges is not believed), then empty. What
//!   is remembered of a client is kept for each tenant apart. Then its commands in order, all or nothing; what one does the
//!   next one sees.
//! - Authority is asked for by the command that needs it, before all else: another lock or none is `NoAuthority`, a fence below
//!   the highest `Deposed`, and all else but the current grant `NotHolder`. A settle or release under a run's lock names that
//!   run's reservations alone; under none, its own run's lock is the one it needs.
//! - What begins something, a spawn of a run that is not known or a reserve with or without an intent, is asked by `admit` before
//!   all else: the user's quota (depth, runs of the day, what the day may cost), then the halt switches, the ledger's own first;
//!   a dispatch is asked for the halt alone.
//! - A lease: a term (`NoTerm`), somebody to hold it (`Nobody`), the request's own tenant (`OtherTenant`), then the holder's extension,
//!   then `Waits` or `Held`, then `Waits` or `Suspended`, then `WaiterExpired`; a tick expires the earliest end first.
//! - What begins something of a run, or queues it, or suspends the run, asks after the run's end whether it was cancelled or is
//!   suspended; a dispatch after its intent's frame. An end asks for the cancel, or that there was none, before what is running.
//! - A reserve: authority, the run, its end, the price, an amount, the attempt (the first, or the one after a failed or
//!   cancelled or timed-out one, or one that is queued: an unknown outcome is never retried), the caps from
//!   the lowest level up (no cap, over the cap), the slots (`Waits` or `NoSlot` while none is free), and at last the waiter's own term.
//! - A begin: authority, the run, its end, the tool, the key, the attempt, an answer under the key, a leader under it (`Waits` or
//!   `InFlight`), then all that a reserve asks. A dispatch or a commit: authority as for a settle, the intent, the owner's, the
//!   phase, the frame; a dispatch then an answer under the key and another leader, a commit its length. A settle or a release asks
//!   for the reservation's end and the owner's before its intent's phase, and an attempt's end for its money before that.
//! - Who leads a key ends with its attempt or with the lease of its run; an intent that is dispatched without a leader leads.
//! - An attempt ends after its reservation did in the same request; a reservation that a run ended alone disagrees at its end.
//! - Whoever waits and may go is in the next batch, and so is whoever has waited out its term, and a tick
//!   once a lease has ended; see [`waiters`].
//! - Ledger time is the writer's reading on top of the highest time committed when it opened; the first reading is the base.

mod effects;
mod rules;
mod tables;
#[cfg(test)]
mod tests;
mod waiters;

use crate::invariant::{Invariant, Moment, Part, Saw, parts};
use kernel::{
    effect,
    id::{ClientId, ExecutorId, Fence, LedgerTime},
    record::{Event, Record},
    request::{Decision, Reply, Request, Submitted},
    run,
    serve::Announcement,
};
use rules::{Asked, Stop};
use tables::{Client, Tables};
use waiters::Waiters;

/// `model`: what the ledger answers and records is what the rules say, for every request of every batch.
#[derive(Debug, Default)]
pub struct Model {
    tables: Tables,
    next_seq: u64,
    /// The highest ledger time committed.
    highest: LedgerTime,
    /// The writer's first reading since the ledger was opened, and the ledger time it stands for.
    base: Option<(u64, LedgerTime)>,
    waiters: Waiters,
}

/// What the model expects of one request.
struct Expected {
    reply: Reply,
    /// The events it causes, without its `Decided`.
    events: Vec<Event>,
    /// Whether it is decided now.
    decided: bool,
}

impl Model {
    /// Ledger time at a reading of the writer's clock.
    fn time_at(&mut self, now_ns: u64) -> LedgerTime {
        let (first_ns, base) = *self.base.get_or_insert((now_ns, self.highest));
        self.highest.max(LedgerTime(base.0.saturating_add(now_ns.saturating_sub(first_ns))))
    }

    fn expect(&mut self, submitted: &Submitted, now_ns: u64, time: LedgerTime) -> Expected {
        let request = &submitted.request;
        let undecided = |reply| Expected { reply, events: Vec::new(), decided: false };
        if unrecorded(submitted) && request.client != ClientId::LEDGER {
            let refusal = effect::Refusal::Misnumbered { number: 0, acknowledged: request.acknowledged };
            return undecided(Reply::Decided(Decision { seq: 0, outcome: Err(refusal.into()) }));
        }
        if request.client != ClientId::LEDGER
            && let Some(client) = self.tables.clients.get(&(request.tenant, request.client))
        {
            if request.incarnation < client.incarnation {
                return undecided(Reply::Stale { newest: client.incarnation });
            }
            if request.incarnation == client.incarnation {
                if request.number <= client.acknowledged {
                    return undecided(Reply::Forgotten { acknowledged: client.acknowledged });
                }
                if let Some(first) = client.first(request.number) {
                    return undecided(Reply::Decided(first.clone()));
                }
            }
        }
        let asked = Asked {
            tenant: request.tenant,
            client: request.client,
            authority: request.authority,
            wait_ns: request.wait_ns,
            waits_until_ns: submitted.waits_until_ns,
            now_ns,
            time,
            genesis: self.next_seq == 0 && request.client == ClientId::LEDGER,
        };
        let decided = match misnamed(submitted) {
            Some(refusal) => Err(Stop::Refused(refusal.into())),
            None => rules::decide_all(&mut self.tables, self.next_seq, &asked, &request.commands),
        };
        let (outcome, events) = match decided {
            Ok((outcomes, events)) => (Ok(outcomes), events),
            Err(Stop::Refused(refusal)) => (Err(refusal), Vec::new()),
            Err(Stop::Waits(turn)) => return undecided(Reply::Waits(turn)),
        };
        let seq = self.next_seq + events.len() as u64;
        Expected { reply: Reply::Decided(Decision { seq, outcome }), events, decided: true }
    }

    /// Predicts one request and compares. The model's own prediction is what it goes on from.
    fn compare(&mut self, part: &Part<'_>, now_ns: u64, time: LedgerTime) -> Result<(), String> {
        let request = &part.submitted.request;
        let expected = self.expect(part.submitted, now_ns, time);
        let what = || {
            format!(
                "request {} of client {}.{} at {time} ({:?} under {:?})",
                request.number, request.client, request.incarnation, request.commands, request.authority
            )
        };
        let own = unrecorded(part.submitted);
        let answers_agree = match (&expected.reply, part.reply) {
            (Reply::Decided(right), Reply::Decided(found)) if own => right.outcome == found.outcome,
            (right, found) => right == found,
        };
        if !answers_agree {
            return Err(format!("{}: expected is {:?}, answered {:?}", what(), expected.reply, part.reply));
        }
        let made = expected.events.len() + usize::from(expected.decided && !own);
        if part.records.len() != made {
            let events: Vec<_> = part.records.iter().map(|record| &record.event).collect();
            return Err(format!(
                "{}: expected are {:?}{}, recorded {events:?}",
                what(),
                expected.events,
                if expected.decided { " and its decision" } else { "" }
            ));
        }
        for (right, record) in expected.events.iter().zip(part.records) {
            if *right != record.event {
                return Err(format!(
                    "{}: record {} should be {right:?}, and is {:?}",
                    what(),
                    record.seq,
                    record.event
                ));
            }
            let written_by = match (right, request.authority) {
                (Event::Run(run::Event::Spawned { .. }), _) => Some((ExecutorId(0), Fence(0))),
                (Event::Run(run::Event::Resumed { .. } | run::Event::Cancelled { .. }), _) => None,
                (Event::Run(_), Some(held)) => Some((held.executor, held.fence)),
                _ => None,
            };
            let found = record.origin.map(|origin| (origin.executor, origin.fence));
            if found != written_by {
                return Err(format!("{}: record {} is written by {found:?}, not {written_by:?}", what(), record.seq));
            }
        }
        self.next_seq += part.records.len() as u64;
        if let (true, false, Reply::Decided(decision)) = (expected.decided, own, expected.reply) {
            let right = effect::Event::Decided {
                client: request.client,
                incarnation: request.incarnation,
                number: request.number,
                acknowledged: believed(request),
                outcome: decision.outcome.clone(),
            };
            match part.records.last().map(|record| &record.event) {
                Some(Event::Effect(found)) if *found == right => {}
                found => return Err(format!("{}: its decision should be {right:?}, and is {found:?}", what())),
            }
            let acknowledged = believed(request);
            let client = self.tables.clients.row((request.tenant, request.client));
            client.decided(request.incarnation, request.number, acknowledged, decision);
        }
        Ok(())
    }

    fn fold(&mut self, record: &Record) {
        self.next_seq = record.seq.saturating_add(1);
        self.highest = self.highest.max(record.time);
        match &record.event {
            Event::Effect(effect::Event::Decided { client, incarnation, number, acknowledged, outcome }) => {
                let decision = Decision { seq: record.seq, outcome: outcome.clone() };
                let row: &mut Client = self.tables.clients.row((record.tenant, *client));
                row.decided(*incarnation, *number, *acknowledged, decision);
            }
            event => self.tables.fold(record.tenant, record.time.day(), event),
        }
        self.tables.keep();
    }
}

/// Whether no decision is recorded of a request: the ledger's own, or one that has no number to be remembered by.
fn unrecorded(submitted: &Submitted) -> bool {
    submitted.request.client == ClientId::LEDGER || submitted.request.number == 0
}

/// What a request acknowledges, if that makes sense.
fn believed(request: &Request) -> u64 {
    if request.acknowledged < request.number { request.acknowledged } else { 0 }
}

/// What is wrong with a request's own name or shape.
fn misnamed(submitted: &Submitted) -> Option<effect::Refusal> {
    let request = &submitted.request;
    if request.client != ClientId::LEDGER && (request.number == 0 || request.acknowledged >= request.number) {
        return Some(effect::Refusal::Misnumbered { number: request.number, acknowledged: request.acknowledged });
    }
    request.commands.is_empty().then_some(effect::Refusal::Empty)
}

impl Invariant for Model {
    fn name(&self) -> &'static str {
        "model"
    }

    fn states(&self) -> &'static str {
        "every answer and event of a batch is what the rules say, and whose turn has come is in it, by an independent model"
    }

    fn at(&mut self, moment: &Moment<'_>) -> Result<(), String> {
        match moment.saw {
            Saw::Ledger(Announcement::Opened { .. }, records) => {
                records.iter().for_each(|record| self.fold(record));
                (self.base, self.waiters) = (None, Waiters::default());
                Ok(())
            }
            Saw::Ledger(Announcement::Committed { now_ns, submitted, replies, .. }, records) => {
                waiters::ticks_when_due(&self.tables, self.highest, submitted)?;
                self.waiters.called(&self.tables, submitted, *now_ns)?;
                self.tables.begin_frame();
                let time = self.time_at(*now_ns);
                if let Some(record) = records.iter().find(|record| record.time != time) {
                    return Err(format!(
                        "record {} is of ledger time {}; at the writer's {now_ns} ns it is {time}",
                        record.seq, record.time
                    ));
                }
                let mut batch = parts(submitted, replies, records);
                for part in batch.by_ref() {
                    self.compare(&part, *now_ns, time)?;
                    self.waiters.answered(&part);
                }
                self.waiters.recorded(&self.tables, records);
                if let Some(record) = batch.left.first() {
                    return Err(format!("record {} was not expected: {:?}", record.seq, record.event));
                }
                if !records.is_empty() {
                    self.highest = time;
                }
                Ok(())
            }
            Saw::TurnedAway { client, incarnation, number } => {
                self.waiters.leaves((client, incarnation, number));
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
