//! The seven ceilings that a paid call meets, in their order, and which of them was the one that bound.
//!
//! Two are outside the kernel, the edge and the credit of the provider's key: they are known from what the cast noted. The others
//! are known from the ledger's log.

use crate::fact::{Answered, Fact};
use kernel::{
    admit, effect,
    id::ReservationId,
    money::MicroUsd,
    record::{Event, Record},
    request::Refusal,
    reserve::{self, Account},
    run,
};
use std::collections::{BTreeMap, BTreeSet};

/// A ceiling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ceiling {
    /// Calls of a key, or from an address, in any window.
    Edge,
    /// Runs and dollars a day, and depth, of a user.
    Quota,
    /// The owner's halt.
    Halt,
    /// What was answered before.
    Memo,
    /// Caps on what is set aside.
    Reserve,
    /// What the provider lets a key spend.
    KeyCredit,
    /// What a call turned out to use.
    Settle,
}

impl Ceiling {
    /// Every one, in the order in which a call meets them.
    pub const ALL: [Ceiling; 7] = [
        Ceiling::Edge,
        Ceiling::Quota,
        Ceiling::Halt,
        Ceiling::Memo,
        Ceiling::Reserve,
        Ceiling::KeyCredit,
        Ceiling::Settle,
    ];

    /// Its name, and what it means that it bound.
    pub const fn described(self) -> (&'static str, &'static str) {
        match self {
            Ceiling::Edge => ("edge", "the edge let a call not pass: its key or its address had made all it may"),
            Ceiling::Quota => ("quota", "a user's quota of runs, dollars or depth let nothing begin"),
            Ceiling::Halt => ("halt", "the owner's halt let nothing begin"),
            Ceiling::Memo => ("memo", "a call ended at an answer that was paid for before"),
            Ceiling::Reserve => ("reserve", "a cap let nothing be set aside"),
            Ceiling::KeyCredit => ("key-credit", "the provider refused a call that its key's credit did not cover"),
            Ceiling::Settle => ("settle", "a cap that had room for all that was set aside had none for what was used"),
        }
    }
}

/// Which ceilings a history meets: a fold.
#[derive(Debug, Default)]
pub(crate) struct Met {
    key_credit: Option<MicroUsd>,
    /// The accounts of each open reservation.
    open: BTreeMap<ReservationId, [Account; 4]>,
    /// Calls that the provider refused: a copy is given the same answer.
    refused: BTreeSet<ReservationId>,
    /// How far settlements in each account were above what was set aside.
    overruns: BTreeMap<Account, u64>,
}

impl Met {
    pub(crate) fn fact(&mut self, fact: &Fact) -> Option<Ceiling> {
        match *fact {
            Fact::KeyCredit { limit } => {
                self.key_credit = Some(limit);
                None
            }
            Fact::EdgeRefused { refusal, .. } => (refusal.limit > 0).then_some(Ceiling::Edge),
            // A fault says that there is none, whatever the limit.
            Fact::TurnedAway { key, answered: Answered::NoCredit { limit, .. } } => {
                let is_first = self.refused.insert(key);
                (is_first && self.key_credit == Some(limit)).then_some(Ceiling::KeyCredit)
            }
            _ => None,
        }
    }

    pub(crate) fn record(&mut self, record: &Record) -> Option<Ceiling> {
        match &record.event {
            Event::Effect(effect::Event::Decided { outcome: Err(refusal), .. }) => self.refusal(refusal),
            Event::Run(run::Event::Recalled { .. }) => Some(Ceiling::Memo),
            Event::Reserve(event) => {
                self.reserved(record, event);
                None
            }
            _ => None,
        }
    }

    fn refusal(&self, refusal: &Refusal) -> Option<Ceiling> {
        match *refusal {
            Refusal::Admit(admit::Refusal::Halted { .. }) => Some(Ceiling::Halt),
            Refusal::Admit(
                admit::Refusal::TooManyRuns { .. } | admit::Refusal::TooDear { .. } | admit::Refusal::TooDeep { .. },
            ) => Some(Ceiling::Quota),
            Refusal::Reserve(reserve::Refusal::OverCap { account, cap, settled, live, asked, .. }) => {
                let overrun = self.overruns.get(&account).copied().unwrap_or(0);
                let needed = u128::from(settled.0) + u128::from(live.0) + u128::from(asked.0);
                let had_room = needed <= u128::from(cap.0) + u128::from(overrun);
                Some(if had_room { Ceiling::Settle } else { Ceiling::Reserve })
            }
            _ => None,
        }
    }

    fn reserved(&mut self, record: &Record, event: &reserve::Event) {
        match *event {
            reserve::Event::Reserved { reservation, run, unit, user, day, .. } => {
                let tenant = record.tenant;
                let (unit, run) = (Account::Unit(tenant, run, unit), Account::Run(tenant, run));
                let accounts = [unit, run, Account::UserDay(tenant, user, day), Account::LedgerDay(day)];
                self.open.insert(reservation, accounts);
            }
            reserve::Event::Settled { reservation, overrun, .. } => {
                for account in self.open.remove(&reservation).into_iter().flatten().filter(|_| overrun.0 > 0) {
                    let sum = self.overruns.entry(account).or_default();
                    *sum = sum.saturating_add(overrun.0);
                }
            }
            reserve::Event::Released { reservation, .. } => _ = self.open.remove(&reservation),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel::{
        id::{ClientId, LedgerTime, ModelId, RunId, TenantId, UnitId, UserId},
        money::{Price, Usage},
        record::{Class, GENESIS_CHAIN, SCHEMA},
        reserve::Level,
    };

    const ACCOUNT: Account = Account::Run(TenantId(1), RunId(9));

    fn record(event: Event) -> Record {
        let (tenant, class, time) = (TenantId(1), Class::Scarce, LedgerTime(0));
        let [content, chain] = [GENESIS_CHAIN; 2];
        Record { seq: 0, schema: SCHEMA, tenant, class, time, origin: None, event, content, chain }
    }

    fn over_cap(cap: u64, settled: u64, live: u64, asked: u64) -> Record {
        let [cap, settled, live, asked] = [cap, settled, live, asked].map(MicroUsd);
        let refusal = reserve::Refusal::OverCap { level: Level::Run, account: ACCOUNT, cap, settled, live, asked };
        let (client, incarnation, number, acknowledged) = (ClientId(1), 0, 1, 0);
        let outcome = Err(refusal.into());
        record(Event::Effect(effect::Event::Decided { client, incarnation, number, acknowledged, outcome }))
    }

    /// A call that set 10 aside and used 15 made all the difference, some of it, or none; and numbers that a ledger gave which is
    /// wrong about its sums are no reason to fall over.
    #[test]
    fn what_was_used_beyond_what_was_set_aside_is_the_ceiling_where_it_made_the_difference() {
        let mut met = Met::default();
        let (reservation, run, unit, user, day) = (ReservationId(7), RunId(9), UnitId(1), UserId(1), 0);
        let price = Price { model: ModelId(1), input_per_mtok: 1, output_per_mtok: 1 };
        let worst = MicroUsd(10);
        let reserved = reserve::Event::Reserved { reservation, run, unit, attempt: 1, user, day, price, worst };
        assert_eq!(met.record(&record(Event::Reserve(reserved))), None);
        assert_eq!(met.record(&over_cap(20, 0, 10, 11)), Some(Ceiling::Reserve));
        let (cost, overrun) = (MicroUsd(15), MicroUsd(5));
        let settled = reserve::Event::Settled { reservation, usage: Usage::default(), cost, overrun, by_owner: false };
        assert_eq!(met.record(&record(Event::Reserve(settled))), None);
        for (asked, ceiling) in [(6, Ceiling::Settle), (10, Ceiling::Settle), (11, Ceiling::Reserve)] {
            assert_eq!(met.record(&over_cap(20, 15, 0, asked)), Some(ceiling), "{asked} more");
        }
        assert_eq!(met.record(&over_cap(0, 0, 0, 1)), Some(Ceiling::Settle));
        assert_eq!(met.record(&over_cap(0, u64::MAX, u64::MAX, u64::MAX)), Some(Ceiling::Reserve));
    }
}
