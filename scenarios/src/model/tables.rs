//! What the model knows: rows of its own, which a refused request leaves as they were.

use crate::maps::{BySeq, Lookup};
use kernel::{
    admit::{self, DepthTier, Quota, Switch},
    effect::{self, Class, Key, Phase, Response},
    id::{
        ClientId, ExecutorId, Fence, LedgerTime, ModelId, ReservationId, RunId, TaskId, TenantId, ToolId, UnitId,
        UserId,
    },
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

impl<V> Rows<ReservationId, V> for BySeq<V> {
    fn get(&self, key: &ReservationId) -> Option<&V> {
        self.find(*key)
    }

    fn insert(&mut self, key: ReservationId, value: V) -> Option<V> {
        BySeq::insert(self, key, value)
    }

    fn remove(&mut self, key: &ReservationId) -> Option<V> {
        BySeq::remove(self, *key)
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

    fn forget_all(&mut self) {
        (self.rows, self.before) = (M::default(), Vec::new());
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
    pub stands: Stands,
}

/// Where a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stands {
    Open,
    Suspended,
    /// Cancelled, and some of it running yet.
    Cancelling,
    Over,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct AttemptRow {
    pub state: AttemptState,
    pub reservation: Option<ReservationId>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct IntentRow {
    pub tenant: TenantId,
    pub run: RunId,
    pub key: Option<Key>,
    pub phase: Phase,
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
    /// By number.
    pub answers: Vec<(u64, Decision)>,
}

impl Client {
    /// Remembers a decision and forgets what the client has acknowledged.
    pub(super) fn decided(&mut self, incarnation: u32, number: u64, acknowledged: u64, decision: Decision) {
        if incarnation > self.incarnation {
            *self = Client { incarnation, ..Client::default() };
        }
        match self.answers.binary_search_by_key(&number, |(number, _)| *number) {
            Ok(at) => self.answers[at].1 = decision,
            Err(at) => self.answers.insert(at, (number, decision)),
        }
        if acknowledged > self.acknowledged {
            self.acknowledged = acknowledged;
            self.answers.drain(..self.answers.partition_point(|(number, _)| *number <= acknowledged));
        }
    }

    /// What was decided of the request of that number, if it is remembered.
    pub(super) fn first(&self, number: u64) -> Option<&Decision> {
        let at = self.answers.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        Some(&self.answers[at].1)
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
    pub reservations: Journaled<ReservationId, ReservationRow, BySeq<ReservationRow>>,
    pub runs: Journaled<(TenantId, RunId), RunRow>,
    pub attempts: Ordered<AttemptKey, AttemptRow>,
    pub tools: Journaled<(TenantId, ToolId), Class>,
    /// Intents whose attempts run or await the owner.
    pub intents: Journaled<ReservationId, IntentRow>,
    /// Intents that the frame at hand moved.
    pub moved: Journaled<ReservationId, ()>,
    /// Who asks under each key.
    pub leaders: Journaled<(TenantId, Key), ReservationId>,
    /// Under which reservation each key was answered.
    pub answered: Journaled<(TenantId, Key), ReservationId>,
    /// What open intents and answered ones came back with. What a request that is undone brought is overwritten by the next.
    pub responses: BTreeMap<ReservationId, Response>,
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
        self.tools.keep();
        self.intents.keep();
        self.moved.keep();
        self.leaders.keep();
        self.answered.keep();
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
        self.tools.undo();
        self.intents.undo();
        self.moved.undo();
        self.leaders.undo();
        self.answered.undo();
    }

    /// A new frame begins.
    pub(super) fn begin_frame(&mut self) {
        self.moved.forget_all();
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
            Event::Effect(event) => self.fold_effect(tenant, event),
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
        match (row.holder, lock) {
            (Some(holder), _) => self.ends.put((holder.until, lock), ()),
            (None, Lock::Run(tenant, run)) => self.leads_no_more(tenant, run),
            (None, Lock::Owner) => {}
        }
        self.locks.put(lock, row);
    }

    /// A run whose lock nobody holds asks nothing.
    fn leads_no_more(&mut self, tenant: TenantId, run: RunId) {
        let all = (tenant, run, UnitId(0), 0)..=(tenant, run, UnitId(u32::MAX), u32::MAX);
        let running = self.attempts.range(all).filter(|(_, row)| row.state == AttemptState::Running);
        let intents: Vec<ReservationId> = running.filter_map(|(_, row)| row.reservation).collect();
        intents.into_iter().for_each(|intent| self.asks_no_more(intent));
    }

    fn asks_no_more(&mut self, intent: ReservationId) {
        let Some(row) = self.intents.find(intent) else { return };
        if let Some(key) = row.key
            && self.leaders.find((row.tenant, key)) == Some(intent)
        {
            self.leaders.remove((row.tenant, key));
        }
    }

    fn fold_effect(&mut self, tenant: TenantId, event: &effect::Event) {
        match *event {
            effect::Event::Decided { .. } => {}
            effect::Event::ToolRegistered { tenant, tool, class } => self.tools.put((tenant, tool), class),
            effect::Event::Intended { intent, key, .. } => {
                let Some(run) = self.reservations.find(intent).map(|row| row.run) else { return };
                self.intents.put(intent, IntentRow { tenant, run, key, phase: Phase::Pending });
                self.moved.put(intent, ());
                if let Some(key) = key {
                    self.leaders.put((tenant, key), intent);
                }
            }
            effect::Event::Dispatched { intent } => {
                let Some(row) = self.intents.find(intent) else { return };
                self.intents.put(intent, IntentRow { phase: Phase::Dispatched, ..row });
                self.moved.put(intent, ());
                if let Some(key) = row.key {
                    self.leaders.put((tenant, key), intent);
                }
            }
            effect::Event::Committed { intent, ref response } => {
                let Some(row) = self.intents.find(intent) else { return };
                self.intents.put(intent, IntentRow { phase: Phase::Committed, ..row });
                self.moved.put(intent, ());
                if row.key.is_some() {
                    self.responses.insert(intent, response.clone());
                }
            }
        }
    }

    /// An attempt that ran ends: its intent with it, unless its outcome is unknown; what it was answered is remembered.
    fn end_intent(&mut self, intent: ReservationId, state: AttemptState) {
        self.asks_no_more(intent);
        let Some(row) = self.intents.find(intent).filter(|_| state != AttemptState::Indeterminate) else { return };
        self.intents.remove(intent);
        match row.key {
            Some(key) if state == AttemptState::Succeeded && self.answered.find((row.tenant, key)).is_none() => {
                self.answered.put((row.tenant, key), intent);
            }
            _ => _ = self.responses.remove(&intent),
        }
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
        if end == End::ByOwner && self.intents.find(reservation).is_some() {
            self.intents.remove(reservation);
        }
    }

    fn fold_run(&mut self, tenant: TenantId, day: u32, event: &run::Event) {
        match *event {
            run::Event::Spawned { run, user, task, workflow_version, purpose, depth } => {
                self.runs
                    .put((tenant, run), RunRow { user, task, workflow_version, purpose, depth, stands: Stands::Open });
                self.taken.put((tenant, user, day), self.taken.find((tenant, user, day)).unwrap_or(0) + 1);
            }
            run::Event::AttemptStarted { run, unit, attempt, reservation } => {
                let row = AttemptRow { state: AttemptState::Running, reservation: Some(reservation) };
                self.attempts.put((tenant, run, unit, attempt), row);
            }
            run::Event::AttemptEnded { run, unit, attempt, state } => {
                let key = (tenant, run, unit, attempt);
                if let Some(row) = self.attempts.find(key) {
                    self.attempts.put(key, AttemptRow { state, ..row });
                    row.reservation.into_iter().for_each(|intent| self.end_intent(intent, state));
                }
            }
            run::Event::AttemptQueued { run, unit, attempt } => {
                let row = AttemptRow { state: AttemptState::Pending, reservation: None };
                self.attempts.put((tenant, run, unit, attempt), row);
            }
            run::Event::Recalled { run, unit, attempt, source, .. } => {
                let row = AttemptRow { state: AttemptState::Succeeded, reservation: Some(source) };
                self.attempts.put((tenant, run, unit, attempt), row);
            }
            run::Event::Ended { run, .. } => {
                self.stand(tenant, run, Stands::Over);
            }
            run::Event::Suspended { run } => self.stand(tenant, run, Stands::Suspended),
            run::Event::Resumed { run } => self.stand(tenant, run, Stands::Open),
            run::Event::Cancelled { run, running: 0 } => {
                self.stand(tenant, run, Stands::Over);
                for (key, row) in self.of_run(tenant, run, AttemptState::Pending) {
                    self.attempts.put(key, AttemptRow { state: AttemptState::Cancelled, ..row });
                }
            }
            run::Event::Cancelled { run, .. } => self.stand(tenant, run, Stands::Cancelling),
        }
    }

    fn stand(&mut self, tenant: TenantId, run: RunId, stands: Stands) {
        if let Some(row) = self.runs.find((tenant, run)) {
            self.runs.put((tenant, run), RunRow { stands, ..row });
        }
    }

    /// The attempts of a run that are in a state.
    pub(super) fn of_run(&self, tenant: TenantId, run: RunId, state: AttemptState) -> Vec<(AttemptKey, AttemptRow)> {
        let all = (tenant, run, UnitId(0), 0)..=(tenant, run, UnitId(u32::MAX), u32::MAX);
        self.attempts.range(all).filter(|(_, row)| row.state == state).collect()
    }
}
