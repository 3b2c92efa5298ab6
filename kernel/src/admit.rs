//! May it come in? Quotas of users, and the owner's halt switch.
//!
//! Asked before any other room at the commands that begin something: the spawn of a run that is not known yet, a reserve with
//! or without an intent, and, for the halt alone, an intent's dispatch. Quota first, halt second; the first that refuses is the
//! answer, and no table is written.
//!
//! - A quota is one user's, or the default of its tenant's users; without either nothing is limited. Runs a day and depth are
//!   asked at the spawn, dollars a day at both. A run takes its place in the day by its own `Spawned` record and by nothing
//!   else, so that a refused request takes none.
//! - A halt is a tenant's, or under tenant 0 the whole ledger's. While it is on nothing new begins; what has begun settles,
//!   ends and changes hands as ever.

use crate::{
    effect,
    id::{RunId, TenantId, UserId},
    lease::{self, Lock, authorize},
    money::{MicroUsd, left},
    planted,
    planted::{Bug, Planted},
    record::{self, Record},
    request,
    reserve::{self, Account, Sums},
    room::{Case, Impossible, No, Ruling, ensure},
    run,
    table::{self, Table},
};
use serde::{Deserialize, Serialize};

/// How deep a run's research goes; a higher tier asks more of everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DepthTier(pub u8);

/// What a user may have of each day of ledger time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quota {
    /// Runs it may spawn in a day.
    pub runs_per_day: u32,
    /// What its calls of a day may come to, settled and live together.
    pub micro_usd_per_day: MicroUsd,
    /// The deepest tier its runs may be of.
    pub depth_tier: DepthTier,
}

/// How a halt switch stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Switch {
    /// Nothing new begins.
    Halted,
    /// What comes in is not stopped here.
    Open,
}

/// What may be asked of this room. All of it under the owner's lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// Set the halt switch of a tenant, or with tenant 0 that of the whole ledger. Setting it as it stands is admitted.
    SetHalt {
        /// Whose.
        tenant: TenantId,
        /// How it stands from now on.
        switch: Switch,
    },
    /// Set a quota, which counts what the current day already holds.
    SetQuota {
        /// Whose user; not 0.
        tenant: TenantId,
        /// Which user; `None` for every user of the tenant that has none of its own.
        user: Option<UserId>,
        /// The quota in force from now on; `None` for none.
        quota: Option<Quota>,
    },
}

/// What this room records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// A halt switch was set.
    HaltSet {
        /// Whose; 0 for the whole ledger.
        tenant: TenantId,
        /// How it stands.
        switch: Switch,
    },
    /// A quota was set.
    QuotaSet {
        /// Whose user.
        tenant: TenantId,
        /// Which; `None` for the default of the tenant's users.
        user: Option<UserId>,
        /// The quota, if any.
        quota: Option<Quota>,
    },
}

impl Event {
    /// Whose the event is.
    pub(crate) fn tenant(&self) -> TenantId {
        match self {
            Event::HaltSet { tenant, .. } | Event::QuotaSet { tenant, .. } => *tenant,
        }
    }
}

/// What an admitted command gives back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// The setting is in force.
    Set,
}

/// Why this room says no.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// A halt is on.
    #[error("tenant {tenant} is halted{}; nothing new begins until the owner lifts it",
        if *tenant == TenantId::LEDGER { ", and with it the whole ledger" } else { "" })]
    Halted {
        /// Whose switch; 0 for the whole ledger's.
        tenant: TenantId,
    },
    /// The user's runs of the day are taken.
    #[error("user {user} has spawned {taken} runs of {limit} in day {day}, which leave {} for one more; come back the day after",
        limit.saturating_sub(*taken))]
    TooManyRuns {
        /// The user.
        user: UserId,
        /// The day of ledger time.
        day: u32,
        /// Runs a day it may spawn.
        limit: u32,
        /// Runs it has spawned in it.
        taken: u32,
    },
    /// The user's dollars of the day would be passed.
    #[error("user {user} has {limit} in day {day}: settled {settled} and live {live} leave {}, and {asked} is asked for",
        left(*limit, *settled, *live))]
    TooDear {
        /// The user.
        user: UserId,
        /// The day of ledger time.
        day: u32,
        /// What its calls of a day may come to.
        limit: MicroUsd,
        /// Settled in the day.
        settled: MicroUsd,
        /// Live in the day.
        live: MicroUsd,
        /// What was asked for: a reserve's worst case, or the least that a run can cost.
        asked: MicroUsd,
    },
    /// The run is deeper than its user's runs may be.
    #[error("a run of depth {} is deeper than user {user} may go, which is {}", asked.0, deepest.0)]
    TooDeep {
        /// The user.
        user: UserId,
        /// The deepest tier it may have.
        deepest: DepthTier,
        /// The run's.
        asked: DepthTier,
    },
    /// Tenant 0 has no users.
    #[error("tenant 0 is the ledger's own and has no users; name the tenant whose user it is")]
    NoUsers,
}

/// The tables of this room.
#[derive(Clone, Debug)]
pub struct Tables {
    /// The halt switches that are on.
    pub(crate) halts: Table<TenantId, ()>,
    /// Quotas in force: of a user, or under `None` of every other user of the tenant.
    pub(crate) quotas: Table<(TenantId, Option<UserId>), Quota>,
    /// Runs spawned by each user on each day.
    pub(crate) taken: Table<(TenantId, UserId, u32), u32>,
}

impl Default for Tables {
    fn default() -> Tables {
        Tables {
            halts: Table::new(16, "admit.halts"),
            quotas: Table::new(17, "admit.quotas"),
            taken: Table::new(18, "admit.taken"),
        }
    }
}

impl Tables {
    /// The switch that stops what `tenant` begins, if one is on: the whole ledger's before its own.
    pub fn halted(&self, tenant: TenantId) -> Option<TenantId> {
        [TenantId::LEDGER, tenant].into_iter().find(|switch| self.halts.get(switch).is_some())
    }

    /// The quota in force for a user.
    pub fn quota(&self, tenant: TenantId, user: UserId) -> Option<Quota> {
        let own = self.quotas.get(&(tenant, Some(user)));
        own.or_else(|| self.quotas.get(&(tenant, None))).copied()
    }

    /// How many runs a user has spawned in a day.
    pub fn taken(&self, tenant: TenantId, user: UserId, day: u32) -> u32 {
        self.taken.get(&(tenant, user, day)).copied().unwrap_or(0)
    }
}

/// Whether a command, of any room, may come in at all.
pub fn admit(tables: &table::Tables, case: &Case<'_>, command: &request::Command) -> Result<(), Refusal> {
    let tenant = case.tenant;
    let halted = tables.admit.halted(tenant);
    let halted = match *command {
        request::Command::Run(run::Command::Spawn { run, user, depth, .. }) if is_new(tables, tenant, run) => {
            begins_within_quota(tables, case, user, depth)?;
            halted
        }
        request::Command::Reserve(reserve::Command::Reserve { run, worst, .. })
        | request::Command::Effect(effect::Command::Begin { run, worst, .. }) => {
            if let Some(row) = tables.run.runs.get(&(tenant, run)) {
                costs_within_quota(tables, case, row.user, worst)?;
            }
            planted!(case.planted, Bug::HaltIgnored, halted, None)
        }
        request::Command::Effect(effect::Command::Dispatch { .. }) => {
            planted!(case.planted, Bug::HaltIgnored, halted, None)
        }
        _ => None,
    };
    halted.map_or(Ok(()), |tenant| Err(Refusal::Halted { tenant }))
}

fn is_new(tables: &table::Tables, tenant: TenantId, run: RunId) -> bool {
    tables.run.runs.get(&(tenant, run)).is_none()
}

/// Whether the user may spawn one more run, and one of that depth.
fn begins_within_quota(tables: &table::Tables, case: &Case<'_>, user: UserId, depth: DepthTier) -> Result<(), Refusal> {
    let Some(quota) = tables.admit.quota(case.tenant, user) else { return Ok(()) };
    if depth > quota.depth_tier {
        return Err(Refusal::TooDeep { user, deepest: quota.depth_tier, asked: depth });
    }
    let day = case.time.day();
    let (taken, limit) = (tables.admit.taken(case.tenant, user, day), quota.runs_per_day);
    if taken >= limit {
        return Err(Refusal::TooManyRuns { user, day, limit, taken });
    }
    costs_within_quota(tables, case, user, MicroUsd(1))
}

/// Whether the user's day leaves room for `asked`.
fn costs_within_quota(tables: &table::Tables, case: &Case<'_>, user: UserId, asked: MicroUsd) -> Result<(), Refusal> {
    let Some(quota) = tables.admit.quota(case.tenant, user) else { return Ok(()) };
    let (day, limit) = (case.time.day(), quota.micro_usd_per_day);
    let Sums { settled, live } = tables.reserve.sums(Account::UserDay(case.tenant, user, day));
    let sum = settled.checked_add(live).and_then(|sum| sum.checked_add(asked));
    if sum.is_none_or(|sum| sum > limit) {
        return Err(Refusal::TooDear { user, day, limit, settled, live, asked });
    }
    Ok(())
}

/// Decides a command of this room.
pub fn decide(tables: &table::Tables, case: &Case<'_>, command: &Command) -> Result<Ruling, No> {
    by_owner(tables, case)?;
    let event = match *command {
        Command::SetHalt { tenant, switch } => Event::HaltSet { tenant, switch },
        Command::SetQuota { tenant: TenantId::LEDGER, .. } => return Err(Refusal::NoUsers.into()),
        Command::SetQuota { tenant, user, quota } => Event::QuotaSet { tenant, user, quota },
    };
    let outcome = request::Outcome::Admit(Outcome::Set);
    Ok(Ruling { events: vec![record::Event::Admit(event)], outcome, notices: Vec::new() })
}

fn by_owner(tables: &table::Tables, case: &Case<'_>) -> Result<(), lease::Refusal> {
    if case.genesis { Ok(()) } else { authorize(tables, case, Lock::Owner).map(|_| ()) }
}

/// [`Bug::QuotaLeak`]: what a refused request would have taken is taken all the same.
pub(crate) fn leak(tables: &mut table::Tables, case: &Case<'_>, commands: &[request::Command]) {
    for command in commands {
        let request::Command::Run(run::Command::Spawn { user, .. }) = *command else { continue };
        case.planted.reach(Bug::QuotaLeak);
        if case.planted.is_on(Bug::QuotaLeak) {
            *tables.admit.taken.row(&(case.tenant, user, case.time.day())) += 1;
        }
    }
}

/// Folds a record of this room, and what a run takes of its user's day. Nothing that is recorded began during a halt.
pub fn apply(tables: &mut table::Tables, record: &Record, planted: &Planted) -> Result<(), Impossible> {
    let tenant = record.tenant;
    let halted = tables.admit.halted(tenant);
    match record.event {
        record::Event::Admit(Event::HaltSet { tenant, switch: Switch::Halted }) => {
            tables.admit.halts.insert(tenant, ());
        }
        record::Event::Admit(Event::HaltSet { tenant, switch: Switch::Open }) => {
            tables.admit.halts.remove(&tenant);
        }
        record::Event::Admit(Event::QuotaSet { tenant, user, quota: Some(quota) }) => {
            ensure!(tenant != TenantId::LEDGER, "a quota is of tenant 0, which has no users");
            tables.admit.quotas.insert((tenant, user), quota);
        }
        record::Event::Admit(Event::QuotaSet { tenant, user, quota: None }) => {
            tables.admit.quotas.remove(&(tenant, user));
        }
        record::Event::Run(run::Event::Spawned { run, user, depth, .. }) => {
            ensure!(halted.is_none(), "run {run} is spawned during a halt");
            let quota = tables.admit.quota(tenant, user);
            let taken = tables.admit.taken.row(&(tenant, user, record.time.day()));
            let fits = quota.is_none_or(|quota| *taken < quota.runs_per_day && depth <= quota.depth_tier);
            ensure!(fits, "run {run} of depth {} is spawned after {taken} others, past {quota:?}", depth.0);
            *taken += 1;
        }
        record::Event::Reserve(reserve::Event::Reserved { reservation, .. }) => {
            let held = halted.is_none() || planted.is_on(Bug::HaltIgnored);
            ensure!(held, "reservation {reservation} is made during a halt");
        }
        record::Event::Effect(effect::Event::Dispatched { intent }) => {
            let held = halted.is_none() || planted.is_on(Bug::HaltIgnored);
            ensure!(held, "intent {intent} is dispatched during a halt");
        }
        _ => {}
    }
    Ok(())
}
