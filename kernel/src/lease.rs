//! Who may write? Run leases with fences, and the owner's lock, which is a lock of its own.
//!
//! A grant carries a fence above every fence the lock has seen, and is valid at the moment of the grant. Expiry binds only
//! once a tick has committed it. A holder counts its lease from before it asked.

use crate::id::{ClientId, ExecutorId, Fence, LedgerTime, RunId, TenantId};
use serde::{Deserialize, Serialize};

/// What can be held by one executor at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Lock {
    /// The owner's: caps, prices, resolutions. Held beside live runs.
    Owner,
    /// One run's.
    Run(TenantId, RunId),
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
    /// Take a lock, or extend it if `executor` holds it already. While another holds it the request waits as long as its
    /// own term allows, and is refused after.
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
}
