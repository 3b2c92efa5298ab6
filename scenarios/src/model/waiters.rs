//! Who waits, and whose turn has come: each of them is in the next batch. So is a tick, once a lease has ended.
//!
//! A lock that is free has one of its waiters called, a user's free slots as many as there are, a question that nobody asks one,
//! and one that is answered all. Whoever has waited out its term is called to learn it. Called ones go before what is new, so
//! that a batch without any of the new may have been full before it came to the others.

use super::tables::{Stands, Tables};
use crate::invariant::Part;
use kernel::{
    effect::Key,
    id::{ClientId, LedgerTime, TenantId, UserId},
    lease::{self, Lock},
    record::{Event, Record},
    request::{Command, Reply, Request, Submitted, Turn},
    reserve, run,
};
use std::collections::{BTreeMap, BTreeSet};

/// What names a request: client, incarnation, number.
type Name = (ClientId, u32, u64);

fn name(request: &Request) -> Name {
    (request.client, request.incarnation, request.number)
}

/// Who waits for what.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    of: BTreeMap<Turn, BTreeSet<Name>>,
    /// And until when on the writer's clock, in nanoseconds.
    named: BTreeMap<Name, (Turn, u64)>,
    by_term: BTreeSet<(u64, Name)>,
    /// Locks and slots that may have come free, and have waiters. Questions are few, and looked at each time.
    freed: BTreeSet<Turn>,
    /// The writer's reading of the last batch: the next is formed later.
    formed_after_ns: u64,
}

/// Whether a batch lets time pass, if the time committed before it is past the end of a lease.
pub(super) fn ticks_when_due(tables: &Tables, highest: LedgerTime, batch: &[Submitted]) -> Result<(), String> {
    let first = tables.ends.range(..).next().map(|(end, ())| end);
    let Some((until, lock)) = first.filter(|(until, _)| *until < highest) else { return Ok(()) };
    let tick = Command::Lease(lease::Command::Tick);
    match batch.iter().any(|submitted| submitted.request.commands.contains(&tick)) {
        true => Ok(()),
        false => Err(format!(
            "the lease of {lock:?} ended at {until}, ledger time had come to {highest}, and no tick expires it"
        )),
    }
}

/// How many waiters may go, of `waiting`.
fn may_go(tables: &Tables, turn: Turn, waiting: usize) -> usize {
    match turn {
        Turn::Lock(lock) => {
            let held = tables.locks.find(lock).is_some_and(|row| row.holder.is_some());
            let suspended = match lock {
                Lock::Run(tenant, run) => {
                    tables.runs.find((tenant, run)).is_some_and(|row| row.stands == Stands::Suspended)
                }
                Lock::Owner => false,
            };
            usize::from(!held && !suspended)
        }
        Turn::Slot(tenant, user) => {
            let live = tables.live.find((tenant, user)).unwrap_or(0);
            waiting.min(tables.slots.find(tenant).unwrap_or(0).saturating_sub(live) as usize)
        }
        Turn::Answer(tenant, key) if tables.answered.find((tenant, key)).is_some() => waiting,
        Turn::Answer(tenant, key) => usize::from(tables.leaders.find((tenant, key)).is_none()),
    }
}

/// What may come free with a record, if that is a lock or a user's slot.
fn freed(tables: &Tables, record: &Record) -> Option<Turn> {
    match record.event {
        Event::Lease(lease::Event::Yielded { lock, .. } | lease::Event::Expired { lock, .. }) => Some(Turn::Lock(lock)),
        Event::Run(run::Event::Resumed { run } | run::Event::Cancelled { run, .. }) => {
            Some(Turn::Lock(Lock::Run(record.tenant, run)))
        }
        Event::Reserve(reserve::Event::Settled { reservation, .. } | reserve::Event::Released { reservation, .. }) => {
            let row = tables.reservations.find(reservation)?;
            Some(Turn::Slot(row.tenant, row.user))
        }
        _ => None,
    }
}

/// Where the turns of questions begin, in the order of turns.
const QUESTIONS: Turn = Turn::Answer(TenantId(0), Key([0; 16]));

impl Waiters {
    /// Whether a batch decided at `now_ns`, of which nothing is folded yet, holds everybody whose turn has come.
    pub(super) fn called(&mut self, tables: &Tables, batch: &[Submitted], now_ns: u64) -> Result<(), String> {
        let formed_after_ns = std::mem::replace(&mut self.formed_after_ns, now_ns);
        if self.named.is_empty() {
            return Ok(());
        }
        let asked =
            || batch.iter().map(|submitted| &submitted.request).filter(|asked| asked.client != ClientId::LEDGER);
        let called: Vec<Name> = asked().map(name).filter(|name| self.named.contains_key(name)).collect();
        if !called.is_empty() && called.len() == asked().count() {
            return Ok(());
        }
        let due: Vec<Turn> =
            self.freed.iter().copied().chain(self.of.range(QUESTIONS..).map(|(turn, _)| *turn)).collect();
        for turn in due {
            let Some(waiters) = self.of.get(&turn) else {
                self.freed.remove(&turn);
                continue;
            };
            let may_go = may_go(tables, turn, waiters.len());
            let go = called.iter().filter(|name| waiters.contains(name)).count();
            if go < may_go
                && let Some(left) = waiters.iter().find(|name| !called.contains(name))
            {
                let why = format!("{may_go} of {} who wait for it may go, {go} of them are called", waiters.len());
                return Err(self.left_out(*left, now_ns, &why));
            }
            if may_go == 0 {
                self.freed.remove(&turn);
            }
        }
        let ended = self.by_term.iter().take_while(|(until_ns, _)| *until_ns < formed_after_ns);
        match ended.map(|(_, name)| *name).find(|name| !called.contains(name)) {
            Some(left) => Err(self.left_out(left, now_ns, "its term is over")),
            None => Ok(()),
        }
    }

    fn left_out(&self, name: Name, now_ns: u64, why: &str) -> String {
        let (client, incarnation, number) = name;
        let (turn, until_ns) = self.named[&name];
        format!(
            "request {number} of client {client}.{incarnation} waits for {turn:?} until {until_ns} ns, and is not in the batch of \
             {now_ns} ns: {why}"
        )
    }

    /// Takes in what a batch recorded, once the tables have folded it.
    pub(super) fn recorded(&mut self, tables: &Tables, records: &[Record]) {
        if self.named.is_empty() {
            return;
        }
        for record in records {
            if let Event::Reserve(reserve::Event::SlotsSet { tenant, .. }) = record.event {
                let of_tenant = Turn::Slot(tenant, UserId(0))..=Turn::Slot(tenant, UserId(u32::MAX));
                self.freed.extend(self.of.range(of_tenant).map(|(turn, _)| *turn));
            }
            self.freed.extend(freed(tables, record).filter(|turn| self.of.contains_key(turn)));
        }
    }

    /// Takes in what a request was answered.
    pub(super) fn answered(&mut self, part: &Part<'_>) {
        let name = name(&part.submitted.request);
        self.leaves(name);
        if let Reply::Waits(turn) = part.reply {
            let until_ns = part.submitted.waits_until_ns;
            self.named.insert(name, (*turn, until_ns));
            self.of.entry(*turn).or_default().insert(name);
            self.by_term.insert((until_ns, name));
        }
    }

    /// Waits no more: it was answered, or there was no place to wait in.
    pub(super) fn leaves(&mut self, name: Name) {
        let Some((turn, until_ns)) = self.named.remove(&name) else { return };
        self.by_term.remove(&(until_ns, name));
        let Some(waiters) = self.of.get_mut(&turn) else { return };
        waiters.remove(&name);
        if waiters.is_empty() {
            self.of.remove(&turn);
        }
    }
}
