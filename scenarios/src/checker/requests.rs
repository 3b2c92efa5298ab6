//! Requests and their answers: each decided once, each answer the log's, each acted on once and not too soon.

use super::{
    findings::{Findings, Place, Rule},
    tables::Tables,
    told::{Decision, Reply, Request, Submitted},
    wire::{Effected, Event, Outcome, Record, Refusal},
};
use std::collections::{BTreeMap, BTreeSet};

/// A request's name: client, incarnation, number.
type Name = (u64, u32, u64);

#[derive(Debug, Default)]
struct Client {
    newest: u32,
    acknowledged: u64,
    /// Decisions above `acknowledged`, of the newest incarnation.
    answers: BTreeMap<u64, Decision>,
}

/// The reckoning so far.
#[derive(Debug, Default)]
pub(super) struct Requests {
    clients: BTreeMap<(u32, u64), Client>,
    /// The record that decided each request.
    decided_by: BTreeMap<Name, u64>,
    acted_on: BTreeSet<Name>,
    /// Replies acted on whose decision was not durable by then.
    pub uncommitted: u64,
}

impl Requests {
    /// Folds a record.
    pub(super) fn record(&mut self, record: &Record, place: Place, found: &mut Findings) {
        let Event::Effect(Effected::Decided { client, incarnation, number, acknowledged, outcome }) = &record.event
        else {
            return;
        };
        let (seq, name) = (record.seq, (*client, *incarnation, *number));
        let row = self.clients.entry((record.tenant, *client)).or_default();
        let before = self.decided_by.get(&name).copied();
        let what = || format!("record {seq}: request {number} of client {client}.{incarnation} is decided");
        found.must(Rule::DecidedOnce, place, before.is_none(), || {
            format!("{} again; record {} had decided it", what(), before.unwrap_or_default())
        });
        if *client == 0 || *number == 0 || acknowledged >= number {
            found.broken(Rule::DecidedOnce, place, format!("{}, which no request may be called", what()));
        }
        if *incarnation < row.newest {
            found.broken(Rule::DecidedOnce, place, format!("{}, and incarnation {} had been seen", what(), row.newest));
            return;
        }
        if *incarnation > row.newest {
            *row = Client { newest: *incarnation, ..Client::default() };
        }
        if *number <= row.acknowledged {
            found.broken(Rule::DecidedOnce, place, format!("{}, and {} was acknowledged", what(), row.acknowledged));
        }
        self.decided_by.entry(name).or_insert(seq);
        row.answers.entry(*number).or_insert_with(|| Decision { seq, outcome: outcome.clone() });
        if *acknowledged > row.acknowledged {
            row.acknowledged = *acknowledged;
            row.answers = row.answers.split_off(&acknowledged.saturating_add(1));
        }
    }

    /// An answer to a request, after the records it made were folded.
    pub(super) fn answered(
        &self,
        request: &Request,
        reply: &Reply,
        made: &[Record],
        place: Place,
        found: &mut Findings,
    ) {
        if request.is_own() || request.number == 0 {
            return;
        }
        let complaint = match reply {
            Reply::Decided(decision) => {
                let row = self.clients.get(&(request.tenant, request.client));
                let row = row.filter(|row| row.newest == request.incarnation);
                match row.and_then(|row| row.answers.get(&request.number)) {
                    Some(first) if first == decision => None,
                    Some(first) => Some(format!("{request} is answered {decision:?}; the log decided {first:?}")),
                    None => Some(format!("{request} is answered {decision:?}, and no record in force decides it")),
                }
            }
            undecided if !made.is_empty() => {
                Some(format!("{request} is answered {undecided:?}, and made record {}", made[0].seq))
            }
            Reply::Stale { newest } => {
                let seen = self.clients.get(&(request.tenant, request.client)).map_or(0, |row| row.newest);
                let fits = *newest == seen && request.incarnation < seen;
                (!fits).then(|| format!("{request} is answered stale for {newest}; the newest incarnation is {seen}"))
            }
            Reply::Forgotten { acknowledged } => {
                let known = self.clients.get(&(request.tenant, request.client)).map_or(0, |row| row.acknowledged);
                let fits = *acknowledged == known && request.number <= known;
                (!fits)
                    .then(|| format!("{request} is answered forgotten up to {acknowledged}; acknowledged is {known}"))
            }
            Reply::Waits(_) | Reply::Busy => {
                let name = (request.client, request.incarnation, request.number);
                let before = self.decided_by.get(&name);
                before.map(|seq| format!("{request} is answered {reply:?}, and record {seq} had decided it"))
            }
        };
        found.looked(Rule::Replies, 1);
        if let Some(complaint) = complaint {
            found.broken(Rule::Replies, place, complaint);
        }
    }

    /// Puts down the rows of the ledger's tables about requests.
    pub(super) fn tables(&self, tables: &mut Tables) {
        for ((tenant, client), row) in &self.clients {
            tables.row(5, (tenant, client), (row.newest, row.acknowledged));
            for (number, decision) in &row.answers {
                tables.row(6, (tenant, client, number), decision);
            }
        }
    }

    /// Somebody acts on a decision, when the records below `durable` are known to be.
    pub(super) fn acted(&mut self, name: Name, seq: u64, durable: u64, place: Place, found: &mut Findings) {
        let (client, incarnation, number) = name;
        let decided = self.decided_by.get(&name).copied();
        let again = !self.acted_on.insert(name);
        self.uncommitted += u64::from(decided.is_none() || seq >= durable);
        found.must(Rule::ActedOn, place, decided == Some(seq) && seq < durable && !again, || {
            let what =
                format!("client {client}.{incarnation} acts on record {seq} as the answer to its request {number}");
            match decided {
                _ if again => format!("{what}, and had acted on an answer to it before"),
                Some(other) if other != seq => format!("{what}; record {other} decides it"),
                _ => format!("{what}; durable are the records below {durable}, and none of them decides it"),
            }
        });
    }
}

/// One request of a batch, with the records it made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part<'a> {
    pub asked: &'a Submitted,
    pub reply: &'a Reply,
    pub made: &'a [Record],
}

impl<'a> Part<'a> {
    /// The outcomes it was admitted with, if it was decided here and admitted.
    pub(super) fn admitted(&self) -> Option<&'a [Outcome]> {
        match self.reply {
            Reply::Decided(Decision { outcome: Ok(outcomes), .. }) if self.is_decided_here() => Some(outcomes),
            _ => None,
        }
    }

    /// Why it was refused, if it was decided here and refused.
    pub(super) fn refused(&self) -> Option<&'a Refusal> {
        match self.reply {
            Reply::Decided(Decision { outcome: Err(refusal), .. }) if self.is_decided_here() => Some(refusal),
            _ => None,
        }
    }

    fn is_decided_here(&self) -> bool {
        self.asked.request.is_own() || !self.made.is_empty()
    }

    /// Its records but the decision.
    pub(super) fn events(&self) -> &'a [Record] {
        match self.made {
            [events @ .., last] if matches!(last.event, Event::Effect(Effected::Decided { .. })) => events,
            all => all,
        }
    }
}

/// Cuts a batch into its requests; gives them and the records that no request explains.
pub(super) fn parts<'a>(
    submitted: &'a [Submitted],
    replies: &'a [Reply],
    records: &'a [Record],
) -> (Vec<Part<'a>>, &'a [Record]) {
    let mut left = records;
    let mut parts = Vec::with_capacity(submitted.len());
    for (asked, reply) in submitted.iter().zip(replies) {
        let (made, rest) = left.split_at(made_by(&asked.request, left));
        left = rest;
        parts.push(Part { asked, reply, made });
    }
    (parts, left)
}

fn made_by(request: &Request, left: &[Record]) -> usize {
    if request.is_own() {
        let fits = |record: &&Record| match &record.event {
            Event::Lease(super::wire::Leased::Expired { .. }) => request.is_tick(),
            event => event.is_setting() && !request.is_tick(),
        };
        let most = if request.is_tick() { usize::MAX } else { request.commands.len() };
        return left.iter().take(most).take_while(fits).count();
    }
    let decision = left.iter().enumerate().find_map(|(at, record)| match &record.event {
        Event::Effect(Effected::Decided { client, incarnation, number, .. }) => {
            Some((at, (*client, *incarnation, *number)))
        }
        _ => None,
    });
    match decision {
        Some((at, name)) if name == (request.client, request.incarnation, request.number) => at + 1,
        _ => 0,
    }
}
