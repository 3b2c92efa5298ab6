//! Who may write? Run leases with fences, and the owner's lock, which is a lock of its own.
//!
//! A grant carries a fence above every fence the lock has seen, and is valid at the moment of the grant. Expiry binds only
//! once a tick has committed it. A holder counts its lease from before it asked.

use crate::{
    effect,
    id::{ClientId, ExecutorId, Fence, LedgerTime, RunId, TenantId},
    planted,
    planted::{Bug, Planted},
    record::{self, Record},
    request::{self, Notice, Turn},
    room::{Case, Impossible, No, Ruling, Term, ensure},
    run,
    table::{self, HashedTable, Table},
};
use serde::{Deserialize, Serialize};

/// What can be held by one executor at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Lock {
    /// The owner's: caps, prices, resolutions. Held beside live runs.
    Owner,
    /// One run's.
    Run(TenantId, RunId),
}

impl Lock {
    /// Whose the lock is; the owner's is the ledger's own.
    pub fn tenant(self) -> TenantId {
        match self {
            Lock::Owner => TenantId::LEDGER,
            Lock::Run(tenant, _) => tenant,
        }
    }
}

/// Under which grant a request writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Authority {
    /// The lock.
    pub lock: Lock,
    /// Who holds it.
    pub executor: ExecutorId,
    /// The fence of the grant.
    pub fence: Fence,
}

/// What may be asked of this room.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// Take a lock, or extend it if `executor` holds it already. While another holds it, or it is of a run that is suspended,
    /// the request waits as long as its own term allows, and is refused after.
    Acquire {
        /// The lock.
        lock: Lock,
        /// Who would hold it.
        executor: ExecutorId,
        /// How long the lease lasts from its grant, in nanoseconds; at least 1.
        ttl_ns: u64,
    },
    /// Extend a held lease to `ttl_ns` from now.
    Renew {
        /// The grant.
        held: Authority,
        /// How long from now, in nanoseconds; at least 1.
        ttl_ns: u64,
    },
    /// Give a held lease back.
    Yield {
        /// The grant.
        held: Authority,
    },
    /// Let time pass: expire what is due. Sent by the server alone; the only trigger of expiry.
    Tick,
}

/// What this room records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// A lock was granted.
    Granted {
        /// The lock.
        lock: Lock,
        /// To whom.
        executor: ExecutorId,
        /// Which client process asked.
        client: ClientId,
        /// The new fence.
        fence: Fence,
        /// Valid up to and including this time, and after it until a tick commits the expiry.
        until: LedgerTime,
    },
    /// A lease was extended.
    Renewed {
        /// The lock.
        lock: Lock,
        /// Its fence.
        fence: Fence,
        /// Its new end; never earlier than the old.
        until: LedgerTime,
    },
    /// A lease was given back.
    Yielded {
        /// The lock.
        lock: Lock,
        /// Its fence.
        fence: Fence,
    },
    /// A lease ran out.
    Expired {
        /// The lock.
        lock: Lock,
        /// Its fence.
        fence: Fence,
    },
}

impl Event {
    /// The lock it is about.
    pub fn lock(&self) -> Lock {
        match self {
            Event::Granted { lock, .. }
            | Event::Renewed { lock, .. }
            | Event::Yielded { lock, .. }
            | Event::Expired { lock, .. } => *lock,
        }
    }
}

/// What an admitted command gives back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// The lock is held (granted, extended or held already).
    Held {
        /// The fence to write under.
        fence: Fence,
        /// The lease's end in ledger time.
        until: LedgerTime,
    },
    /// Given back.
    Yielded,
    /// Time has passed.
    Ticked,
}

/// Why this room says no.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// Someone else holds the lock, and the request's term left no time to wait.
    #[error("{lock:?} is held by executor {holder} under fence {fence} until {until}")]
    Held {
        /// The lock.
        lock: Lock,
        /// Its holder.
        holder: ExecutorId,
        /// The holder's fence.
        fence: Fence,
        /// The lease's end.
        until: LedgerTime,
    },
    /// The waiter's own term had passed before its turn came.
    #[error("the turn for {lock:?} came at {now}, after the waiter's own term had ended")]
    WaiterExpired {
        /// The lock.
        lock: Lock,
        /// When the turn came.
        now: LedgerTime,
    },
    /// The fence is below the highest the lock has seen: the writer was deposed.
    #[error("{lock:?}: fence {offered} is below the highest seen, {highest}; stop, another executor took over")]
    Deposed {
        /// The lock.
        lock: Lock,
        /// The fence that was offered.
        offered: Fence,
        /// The highest granted.
        highest: Fence,
    },
    /// The executor does not hold the lock: it is another's, given back, expired or never granted.
    #[error("{lock:?} is not held by executor {executor} under fence {fence}; acquire it first")]
    NotHolder {
        /// The lock.
        lock: Lock,
        /// Who asked.
        executor: ExecutorId,
        /// Under which fence.
        fence: Fence,
    },
    /// A command needs a lock that the request does not name.
    #[error("this needs authority over {needed:?}; acquire it and send the request under it")]
    NoAuthority {
        /// The lock that is needed.
        needed: Lock,
    },
    /// A lease of no length was asked for.
    #[error("a lease must last at least 1 ns")]
    NoTerm,
    /// Executor 0 asked for a lock.
    #[error("executor 0 is nobody and cannot hold {lock:?}; ask under an executor's own id")]
    Nobody {
        /// The lock.
        lock: Lock,
    },
    /// The lock is another tenant's than the request.
    #[error("{lock:?} is not of tenant {tenant}, which the request is about")]
    OtherTenant {
        /// The lock.
        lock: Lock,
        /// The request's tenant.
        tenant: TenantId,
    },
    /// The run is suspended.
    #[error("{lock:?} is of a run that is suspended, which nobody holds; have it resumed first")]
    Suspended {
        /// The lock.
        lock: Lock,
    },
}

/// Where a lock stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// The highest fence granted; 0 before the first grant.
    pub highest: Fence,
    /// The grant in force, under that fence.
    pub grant: Option<Grant>,
}

/// A grant in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Who holds it.
    pub executor: ExecutorId,
    /// Which client process asked for it.
    pub client: ClientId,
    /// The lease's end.
    pub until: LedgerTime,
}

/// The tables of this room.
#[derive(Clone, Debug)]
pub struct Tables {
    /// Every lock that was ever granted.
    pub(crate) locks: HashedTable<(TenantId, Lock), Standing>,
    /// The grants in force by their end, under tenant 0 because time passes for all tenants at once.
    pub(crate) ends: Table<(TenantId, LedgerTime, Lock), ()>,
}

impl Default for Tables {
    fn default() -> Tables {
        Tables { locks: Table::new(3, "lease.locks"), ends: Table::new(4, "lease.ends") }
    }
}

impl Tables {
    /// Where a lock stands.
    pub fn standing(&self, lock: Lock) -> Standing {
        self.locks.get(&(lock.tenant(), lock)).copied().unwrap_or_default()
    }

    /// The end of the lease that ends first.
    pub fn first_end(&self) -> Option<LedgerTime> {
        self.ends.iter().next().map(|((_, until, _), ())| *until)
    }
}

/// Whether `authority` is the grant in force of its lock.
pub fn holds(tables: &table::Tables, authority: Authority) -> Result<(), Refusal> {
    let Authority { lock, executor, fence } = authority;
    let Standing { highest, grant } = tables.lease.standing(lock);
    if fence < highest {
        return Err(Refusal::Deposed { lock, offered: fence, highest });
    }
    if fence > highest || grant.is_none_or(|grant| grant.executor != executor) {
        return Err(Refusal::NotHolder { lock, executor, fence });
    }
    Ok(())
}

/// The grant over `needed` that the case is written under.
pub fn authorize(tables: &table::Tables, case: &Case<'_>, needed: Lock) -> Result<Authority, Refusal> {
    let authority = case.authority.filter(|authority| authority.lock == needed);
    let authority = authority.ok_or(Refusal::NoAuthority { needed })?;
    planted!(case.planted, Bug::SkipFence, holds(tables, authority), Ok(())).map(|()| authority)
}

/// Decides a command of this room.
pub fn decide(tables: &table::Tables, case: &Case<'_>, command: &Command) -> Result<Ruling, No> {
    match *command {
        Command::Acquire { lock, executor, ttl_ns } => acquire(tables, case, lock, executor, ttl_ns),
        Command::Renew { held, ttl_ns } => {
            holds(tables, held)?;
            extend(tables, case, held.lock, ttl_ns)
        }
        Command::Yield { held: held @ Authority { lock, fence, .. } } => {
            holds(tables, held)?;
            let mut notices = vec![Notice::TurnCame(Turn::Lock(lock))];
            notices.extend(effect::leaderless(tables, lock));
            Ok(Ruling {
                events: vec![record::Event::Lease(Event::Yielded { lock, fence })],
                outcome: request::Outcome::Lease(Outcome::Yielded),
                notices,
            })
        }
        Command::Tick => tick(tables, case),
    }
}

fn acquire(
    tables: &table::Tables,
    case: &Case<'_>,
    lock: Lock,
    executor: ExecutorId,
    ttl_ns: u64,
) -> Result<Ruling, No> {
    if ttl_ns == 0 {
        return Err(Refusal::NoTerm.into());
    }
    if executor == ExecutorId(0) {
        return Err(Refusal::Nobody { lock }.into());
    }
    if matches!(lock, Lock::Run(tenant, _) if tenant != case.tenant) {
        return Err(Refusal::OtherTenant { lock, tenant: case.tenant }.into());
    }
    let Standing { highest, grant } = tables.lease.standing(lock);
    if let Some(Grant { executor: holder, until, .. }) = grant {
        return match case.term {
            _ if holder == executor => extend(tables, case, lock, ttl_ns),
            Term::Open => Err(No::Waits(Turn::Lock(lock))),
            Term::None | Term::Ended => Err(Refusal::Held { lock, holder, fence: highest, until }.into()),
        };
    }
    if run::is_suspended(tables, lock) {
        return Err(match case.term {
            Term::Open => No::Waits(Turn::Lock(lock)),
            Term::None | Term::Ended => Refusal::Suspended { lock }.into(),
        });
    }
    let in_time = case.term != Term::Ended;
    if !planted!(case.planted, Bug::GrantExpired, in_time, true) {
        return Err(Refusal::WaiterExpired { lock, now: case.time }.into());
    }
    let fence = planted!(case.planted, Bug::FenceReused, Fence(highest.0 + 1), Fence(highest.0.max(1)));
    let until = LedgerTime(case.time.0.saturating_add(ttl_ns));
    let granted = Event::Granted { lock, executor, client: case.client, fence, until };
    Ok(held(granted, fence, until))
}

/// Extends the grant in force of `lock` to `ttl_ns` from now, never to an earlier end than it has.
fn extend(tables: &table::Tables, case: &Case<'_>, lock: Lock, ttl_ns: u64) -> Result<Ruling, No> {
    if ttl_ns == 0 {
        return Err(Refusal::NoTerm.into());
    }
    let Standing { highest: fence, grant } = tables.lease.standing(lock);
    let asked = LedgerTime(case.time.0.saturating_add(ttl_ns));
    let until = grant.map_or(asked, |grant| grant.until.max(asked));
    Ok(held(Event::Renewed { lock, fence, until }, fence, until))
}

fn held(event: Event, fence: Fence, until: LedgerTime) -> Ruling {
    Ruling {
        events: vec![record::Event::Lease(event)],
        outcome: request::Outcome::Lease(Outcome::Held { fence, until }),
        notices: Vec::new(),
    }
}

/// Expires every lease whose end has passed, the earliest first.
fn tick(tables: &table::Tables, case: &Case<'_>) -> Result<Ruling, No> {
    if case.client != ClientId::LEDGER {
        return Err(Refusal::NoAuthority { needed: Lock::Owner }.into());
    }
    let mut ruling =
        Ruling { events: Vec::new(), outcome: request::Outcome::Lease(Outcome::Ticked), notices: Vec::new() };
    for ((_, _, lock), ()) in tables.lease.ends.range(..(TenantId::LEDGER, case.time, Lock::Owner)) {
        let fence = tables.lease.standing(*lock).highest;
        ruling.events.push(record::Event::Lease(Event::Expired { lock: *lock, fence }));
        ruling.notices.push(Notice::TurnCame(Turn::Lock(*lock)));
        ruling.notices.extend(effect::leaderless(tables, *lock));
    }
    Ok(ruling)
}

/// Folds a record of this room.
pub fn apply(tables: &mut table::Tables, record: &Record, planted: &Planted) -> Result<(), Impossible> {
    let record::Event::Lease(event) = &record.event else { return Ok(()) };
    let lock = event.lock();
    let is_suspended = run::is_suspended(tables, lock);
    let Tables { locks, ends } = &mut tables.lease;
    let Standing { highest, grant } = locks.row(&(lock.tenant(), lock));
    match *event {
        Event::Granted { executor, client, fence, until, .. } => {
            ensure!(grant.is_none(), "{lock:?} is granted while it is held");
            ensure!(!is_suspended, "{lock:?} is granted while its run is suspended");
            let follows = fence.0 == highest.0 + 1 || planted.is_on(Bug::FenceReused);
            ensure!(follows, "{lock:?}: fence {fence} is granted after {highest}");
            ensure!(executor != ExecutorId(0), "{lock:?} is granted to nobody");
            ensure!(until > record.time, "{lock:?} is granted until {until}, which has passed");
            (*highest, *grant) = (fence, Some(Grant { executor, client, until }));
            ends.insert((TenantId::LEDGER, until, lock), ());
        }
        Event::Renewed { fence, until, .. } => {
            ensure!(fence == *highest, "{lock:?}: fence {fence} is renewed, and the highest is {highest}");
            let Some(grant) = grant else { return Err(Impossible(format!("{lock:?} is renewed while it is free"))) };
            ensure!(until >= grant.until, "{lock:?} is shortened from {} to {until}", grant.until);
            ends.remove(&(TenantId::LEDGER, grant.until, lock));
            grant.until = until;
            ends.insert((TenantId::LEDGER, until, lock), ());
        }
        Event::Yielded { fence, .. } | Event::Expired { fence, .. } => {
            ensure!(fence == *highest, "{lock:?}: fence {fence} ends, and the highest is {highest}");
            let Some(ended) = grant.take() else { return Err(Impossible(format!("{lock:?} ends while it is free"))) };
            let due = matches!(event, Event::Yielded { .. }) || ended.until < record.time;
            ensure!(due, "{lock:?} expires at {}, before its end at {}", record.time, ended.until);
            ends.remove(&(TenantId::LEDGER, ended.until, lock));
        }
    }
    Ok(())
}
