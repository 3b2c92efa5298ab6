//! What the model knows: rows of its own, which a refused request leaves as they were.

use crate::invariant::Lookup;
use kernel::{
    admit::{self, DepthTier, Quota, Switch},
    id::{ClientId, ExecutorId, Fence, LedgerTime, ModelId, ReservationId, RunId, TaskId, TenantId, UnitId, UserId},
    lease::{self, Lock},
    money::{MicroUsd, Price},
    record::Event,
    request::Decision,
    reserve::{self, Account, Level},
    run::{self, AttemptState, Purpose},
};
use std::{collections::BTreeMap, hash::Hash};

/// A map that can go back to what it was when it was last kept.
#[derive(Debug)]
pub(super) struct Journaled<K, V, M = Lookup<K, V>> {
    rows: M,
    before: Vec<(K, Option<V>)>,
}

/// One that can be gone through in key order.
pub(super) type Ordered<K, V> = Journaled<K, V, BTreeMap<K, V>>;

/// What a journaled map is kept in.
pub(super) trait Rows<K, V>: Default {
    fn get(&self, key: &K) -> Option<&V>;
    fn insert(&mut self, key: K, value: V) -> Option<V>;
    fn remove(&mut self, key: &K) -> Option<V>;
}

impl<K: Hash + Eq, V> Rows<K, V> for Lookup<K, V> {
    fn get(&self, key: &K) -> Option<&V> {
        Lookup::get(self, key)
    }

    fn insert(&mut self, key: K, value: V) -> Option<V> {
        Lookup::insert(self, key, value)
    }

    fn remove(&mut self, key: &K) -> Option<V> {
        Lookup::remove(self, key)
    }
}

impl<K: Ord, V> Rows<K, V> for BTreeMap<K, V> {
    fn get(&self, key: &K) -> Option<&V> {
        BTreeMap::get(self, key)
    }

    fn insert(&mut self, key: K, value: V) -> Option<V> {
        BTreeMap::insert(self, key, value)
    }

    fn remove(&mut self, key: &K) -> Option<V> {
        BTreeMap::remove(self, key)
    }
}

impl<K, V, M: Rows<K, V>> Default for Journaled<K, V, M> {
    fn default() -> Journaled<K, V, M> {
        Journaled { rows: M::default(), before: Vec::new() }
    }
}

impl<K: Ord + Copy, V: Copy> Ordered<K, V> {
    pub(super) fn range(&self, keys: impl std::ops::RangeBounds<K>) -> impl DoubleEndedIterator<Item = (K, V)> + '_ {
        self.rows.range(keys).map(|(key, value)| (*key, *value))
    }
}

impl<K: Copy, V: Copy, M: Rows<K, V>> Journaled<K, V, M> {
    pub(super) fn find(&self, key: K) -> Option<V> {
        self.rows.get(&key).copied()
    }

    fn put(&mut self, key: K, value: V) {
        let before = self.rows.insert(key, value);
        self.before.push((key, before));
    }

    fn remove(&mut self, key: K) {
        let before = self.rows.remove(&key);
        self.before.push((key, before));
    }

    fn keep(&mut self) {
        self.before.clear();
    }

    fn undo(&mut self) {
        for (key, value) in self.before.drain(..).rev() {
            match value {
                Some(value) => self.rows.insert(key, value),
                None => self.rows.remove(&key),
            };
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LockRow {
    pub highest: Fence,
    pub holder: Option<Holder>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Holder {
    pub executor: ExecutorId,
    pub fence: Fence,
    pub until: LedgerTime,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RunRow {
    pub user: UserId,
    pub task: TaskId,
    pub workflow_version: u32,
    pub purpose: Purpose,
    pub depth: DepthTier,
    pub ended: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct AttemptRow {
    pub state: AttemptState,
    pub reservation: ReservationId,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct ReservationRow {
    pub tenant: TenantId,
    pub run: RunId,
    pub unit: UnitId,
    pub attempt: u32,
    pub user: UserId,
    pub day: u32,
    pub price: Price,
    pub worst: MicroUsd,
    pub end: Option<End>,
}

/// How a reservation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Settled,
    Released,
    ByOwner,
}

impl ReservationRow {
    /// The accounts it counts in, lowest level first.
    pub(super) fn accounts(&self) -> [Account; 4] {
        accounts(self.tenant, self.run, self.unit, self.user, self.day)
    }
}

/// The accounts that spend counts in, lowest level first.
pub(super) fn accounts(tenant: TenantId, run: RunId, unit: UnitId, user: UserId, day: u32) -> [Account; 4] {
    [
        Account::Unit(tenant, run, unit),
        Account::Run(tenant, run),
        Account::UserDay(tenant, user, day),
        Account::LedgerDay(day),
    ]
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    pub settled: u64,
    pub live: u64,
}

/// What is remembered of a client's requests.
#[derive(Debug, Default)]
pub(super) struct Client {
    pub incarnation: u32,
    pub acknowledged: u64,
    pub answers: BTreeMap<u64, Decision>,
}

impl Client {
    /// Remembers a decision and forgets what the client has acknowledged.
    pub(super) fn decided(&mut self, incarnation: u32, number: u64, acknowledged: u64, decision: Decision) {
        if incarnation > self.incarnation {
            *self = Client { incarnation, ..Client::default() };
        }
        self.answers.insert(number, decision);
        if acknowledged > self.acknowledged {
            self.acknowledged = acknowledged;
            while self.answers.first_key_value().is_some_and(|(number, _)| *number <= acknowledged) {
                self.answers.pop_first();
            }
        }
    }
}

/// Attempts by tenant, run, unit and number.
pub(super) type AttemptKey = (TenantId, RunId, UnitId, u32);

/// All the model knows.
#[derive(Debug, Default)]
pub(super) struct Tables {
    pub clients: Lookup<(TenantId, ClientId), Client>,
    /// Halt switches that are on.
    pub halts: Journaled<TenantId, ()>,
    /// Quotas in force, a tenant's default under no user.
    pub quotas: Journaled<(TenantId, Option<UserId>), Quota>,
    /// Runs spawned by a user in a day.
    pub taken: Journaled<(TenantId, UserId, u32), u32>,
    pub locks: Journaled<Lock, LockRow>,
    /// Leases in force by their ends.
    pub ends: Ordered<(LedgerTime, Lock), ()>,
    pub caps: Journaled<(TenantId, Level), MicroUsd>,
    pub slots: Journaled<TenantId, u32>,
    pub prices: Journaled<ModelId, Price>,
    pub accounts: Journaled<Account, Sums>,
    pub live: Journaled<(TenantId, UserId), u32>,
    pub reservations: Ordered<ReservationId, ReservationRow>,
    pub runs: Journaled<(TenantId, RunId), RunRow>,
    pub attempts: Ordered<AttemptKey, AttemptRow>,
}

impl Tables {
    /// What was folded since the last keeping stands.
    pub(super) fn keep(&mut self) {
        self.halts.keep();
        self.quotas.keep();
        self.taken.keep();
        self.locks.keep();
        self.ends.keep();
        self.caps.keep();
        self.slots.keep();
        self.prices.keep();
        self.accounts.keep();
        self.live.keep();
        self.reservations.keep();
        self.runs.keep();
        self.attempts.keep();
    }

    /// What was folded since the last keeping never happened.
    pub(super) fn undo(&mut self) {
        self.halts.undo();
        self.quotas.undo();
        self.taken.undo();
        self.locks.undo();
        self.ends.undo();
        self.caps.undo();
        self.slots.undo();
        self.prices.undo();
        self.accounts.undo();
        self.live.undo();
        self.reservations.undo();
        self.runs.undo();
        self.attempts.undo();
    }

    /// The latest attempt of a unit.
    pub(super) fn latest(&self, tenant: TenantId, run: RunId, unit: UnitId) -> Option<(u32, AttemptRow)> {
        let all = (tenant, run, unit, 0)..=(tenant, run, unit, u32::MAX);
        self.attempts.range(all).next_back().map(|((.., attempt), row)| (attempt, row))
    }

    /// Takes in a domain event of `day`. What names rows that are not there changes nothing: the comparison has said so already.
    pub(super) fn fold(&mut self, tenant: TenantId, day: u32, event: &Event) {
        match event {
            Event::Admit(event) => self.fold_admit(event),
            Event::Lease(event) => self.fold_lease(event),
            Event::Reserve(event) => self.fold_reserve(tenant, event),
            Event::Run(event) => self.fold_run(tenant, day, event),
            Event::Effect(_) => {}
        }
    }

    fn fold_admit(&mut self, event: &admit::Event) {
        match *event {
            admit::Event::HaltSet { tenant, switch: Switch::Halted } => self.halts.put(tenant, ()),
            admit::Event::HaltSet { tenant, switch: Switch::Open } => self.halts.remove(tenant),
            admit::Event::QuotaSet { tenant, user, quota: Some(quota) } => self.quotas.put((tenant, user), quota),
            admit::Event::QuotaSet { tenant, user, quota: None } => self.quotas.remove((tenant, user)),
        }
    }

    fn fold_lease(&mut self, event: &lease::Event) {
        let (lease::Event::Granted { lock, .. }
        | lease::Event::Renewed { lock, .. }
        | lease::Event::Yielded { lock, .. }
        | lease::Event::Expired { lock, .. }) = *event;
        let row = self.locks.find(lock).unwrap_or_default();
        if let Some(holder) = row.holder {
            self.ends.remove((holder.until, lock));
        }
        let row = match *event {
            lease::Event::Granted { executor, fence, until, .. } => {
                LockRow { highest: fence, holder: Some(Holder { executor, fence, until }) }
            }
            lease::Event::Renewed { until, .. } => {
                LockRow { holder: row.holder.map(|holder| Holder { until, ..holder }), ..row }
            }
            lease::Event::Yielded { .. } | lease::Event::Expired { .. } => LockRow { holder: None, ..row },
        };
        if let Some(holder) = row.holder {
            self.ends.put((holder.until, lock), ());
        }
        self.locks.put(lock, row);
    }

    fn fold_reserve(&mut self, tenant: TenantId, event: &reserve::Event) {
        match *event {
            reserve::Event::CapSet { tenant, level, cap } => self.caps.put((tenant, level), cap),
            reserve::Event::SlotsSet { tenant, slots } => self.slots.put(tenant, slots),
            reserve::Event::PriceSet(price) => self.prices.put(price.model, price),
            reserve::Event::Reserved { reservation, run, unit, attempt, user, day, price, worst } => {
                let row = ReservationRow { tenant, run, unit, attempt, user, day, price, worst, end: None };
                for account in row.accounts() {
                    let sums = self.accounts.find(account).unwrap_or_default();
                    self.accounts.put(account, Sums { live: sums.live.saturating_add(worst.0), ..sums });
                }
                let live = self.live.find((tenant, user)).unwrap_or(0);
                self.live.put((tenant, user), live + 1);
                self.reservations.put(reservation, row);
            }
            reserve::Event::Settled { reservation, cost, by_owner, .. } => {
                self.end(reservation, cost, if by_owner { End::ByOwner } else { End::Settled });
            }
            reserve::Event::Released { reservation, by_owner } => {
                self.end(reservation, MicroUsd::ZERO, if by_owner { End::ByOwner } else { End::Released });
            }
        }
    }

    fn end(&mut self, reservation: ReservationId, cost: MicroUsd, end: End) {
        let Some(row) = self.reservations.find(reservation).filter(|row| row.end.is_none()) else { return };
        for account in row.accounts() {
            let Sums { settled, live } = self.accounts.find(account).unwrap_or_default();
            let sums = Sums { settled: settled.saturating_add(cost.0), live: live.saturating_sub(row.worst.0) };
            self.accounts.put(account, sums);
        }
        let user = (row.tenant, row.user);
        self.live.put(user, self.live.find(user).unwrap_or(0).saturating_sub(1));
        self.reservations.put(reservation, ReservationRow { end: Some(end), ..row });
    }

    fn fold_run(&mut self, tenant: TenantId, day: u32, event: &run::Event) {
        match *event {
            run::Event::Spawned { run, user, task, workflow_version, purpose, depth } => {
                self.runs.put((tenant, run), RunRow { user, task, workflow_version, purpose, depth, ended: false });
                self.taken.put((tenant, user, day), self.taken.find((tenant, user, day)).unwrap_or(0) + 1);
            }
            run::Event::AttemptStarted { run, unit, attempt, reservation } => {
                let row = AttemptRow { state: AttemptState::Running, reservation };
                self.attempts.put((tenant, run, unit, attempt), row);
            }
            run::Event::AttemptEnded { run, unit, attempt, state } => {
                let key = (tenant, run, unit, attempt);
                if let Some(row) = self.attempts.find(key) {
                    self.attempts.put(key, AttemptRow { state, ..row });
                }
            }
            run::Event::Ended { run, .. } => {
                if let Some(row) = self.runs.find((tenant, run)) {
                    self.runs.put((tenant, run), RunRow { ended: true, ..row });
                }
            }
        }
    }
}
