//! Names of things. Every key of every table begins with a tenant; tenant 0 is the ledger's own.

use serde::{Deserialize, Serialize};

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident($inner:ty);)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl std::fmt::Display for $name {
            fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(out)
            }
        }
    )*};
}

ids! {
    /// Who owns the data. 0 is the ledger itself and holds ledger-wide caps.
    TenantId(u32);
    /// Whom spend is counted against within a tenant.
    UserId(u32);
    /// A run, named by whoever spawns it; unique within a tenant.
    RunId(u64);
    /// A line of history within a run. 0 is the trunk.
    BranchId(u32);
    /// A unit of a run's work, such as one charter line's call; unique within the run.
    UnitId(u32);
    /// What a run is an instance of; recorded from its first event because it cannot be added later.
    TaskId(u64);
    /// A dated model and its price.
    ModelId(u32);
    /// A tool: what a call out of the ledger goes to, such as one provider's model endpoint.
    ToolId(u32);
    /// Who sends requests; one process keeps one client id over all its incarnations.
    ClientId(u64);
    /// Who holds a lease: one incarnation of one process.
    ExecutorId(u64);
    /// A monotonic token: each grant of a lock has a higher one. The first is 1.
    Fence(u64);
    /// A reservation; also the name of the call's intent and of its request at the provider. It is the sequence of the event
    /// that made it.
    ReservationId(u64);
    /// Nanoseconds of ledger time: the writer's monotonic clock on top of the highest time it ever committed.
    LedgerTime(u64);
}

impl TenantId {
    /// The ledger's own tenant.
    pub const LEDGER: TenantId = TenantId(0);
}

impl ClientId {
    /// The ledger itself: the sender of ticks and of the genesis request. Its requests are not deduplicated.
    pub const LEDGER: ClientId = ClientId(0);
}

/// The length of a day of ledger time, in nanoseconds.
pub const DAY_NS: u64 = 86_400_000_000_000;

impl LedgerTime {
    /// The window of ledger time a daily cap counts over: days since the ledger began.
    pub const fn day(self) -> u32 {
        (self.0 / DAY_NS) as u32
    }
}
