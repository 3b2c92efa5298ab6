//! What runs must be seen to do sometimes beside running through: wait for a decision, be cancelled, be halted.

use crate::scenario::Scenario;
use kernel::{
    id::{RunId, TenantId},
    record::{Event, Record},
    reserve,
    run::{self, Ending, HaltReason},
};
use std::collections::BTreeMap;

/// What became of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stand {
    /// It was suspended.
    Suspended,
    /// It was resumed.
    Resumed,
    /// It was cancelled with attempts running.
    CancelledLive,
    /// It was cancelled with none running.
    CancelledIdle,
    /// It was cancelled while it was suspended.
    CancelledSuspended,
    /// After its cancel a call of it was settled.
    SettledCancelled,
    /// It ended halted by the owner.
    HaltedByOwner,
}

impl Stand {
    /// Every one.
    pub const ALL: [Stand; 7] = [
        Stand::Suspended,
        Stand::Resumed,
        Stand::CancelledLive,
        Stand::CancelledIdle,
        Stand::CancelledSuspended,
        Stand::SettledCancelled,
        Stand::HaltedByOwner,
    ];

    /// Its name and what it says.
    pub(super) const fn described(self) -> (&'static str, &'static str) {
        match self {
            Stand::Suspended => ("suspended", "a run was suspended, and its lease given up"),
            Stand::Resumed => ("resumed", "the owner let a suspended run go on"),
            Stand::CancelledLive => ("cancelled-live", "a run was cancelled while an attempt of it was running"),
            Stand::CancelledIdle => ("cancelled-idle", "a run was cancelled while none of its attempts was running"),
            Stand::CancelledSuspended => ("cancelled-suspended", "a run was cancelled while it was suspended"),
            Stand::SettledCancelled => ("settled-cancelled", "a call of a run that had been cancelled was settled"),
            Stand::HaltedByOwner => ("halted-by-owner", "a run ended halted by the owner"),
        }
    }

    /// Whether runs of the scenario can reach it.
    pub(super) fn is_within(self, scenario: &Scenario) -> bool {
        match self {
            Stand::HaltedByOwner => scenario.name == "halt",
            _ => scenario.workload.name == "effects",
        }
    }
}

/// Where a run stands that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Suspended,
    Cancelled,
}

/// The runs that are suspended or being cancelled, and the run of each open reservation.
#[derive(Debug, Default)]
pub(super) struct Stands {
    at: BTreeMap<(TenantId, RunId), At>,
    open: BTreeMap<u64, (TenantId, RunId)>,
}

impl Stands {
    /// Takes in a record; what it reached.
    pub(super) fn recorded(&mut self, record: &Record) -> impl Iterator<Item = Stand> + use<> {
        let tenant = record.tenant;
        let reached = match record.event {
            Event::Run(run::Event::Suspended { run }) => {
                self.at.insert((tenant, run), At::Suspended);
                Some(Stand::Suspended)
            }
            Event::Run(run::Event::Resumed { run }) => {
                self.at.remove(&(tenant, run));
                Some(Stand::Resumed)
            }
            Event::Run(run::Event::Cancelled { run, running }) => {
                match (self.at.insert((tenant, run), At::Cancelled), running) {
                    (Some(At::Suspended), _) => Some(Stand::CancelledSuspended),
                    (_, 0) => Some(Stand::CancelledIdle),
                    _ => Some(Stand::CancelledLive),
                }
            }
            Event::Run(run::Event::Ended { run, outcome }) => {
                self.at.remove(&(tenant, run));
                (outcome == Ending::Halted(HaltReason::Owner)).then_some(Stand::HaltedByOwner)
            }
            Event::Reserve(reserve::Event::Reserved { reservation, run, .. }) => {
                self.open.insert(reservation.0, (tenant, run));
                None
            }
            Event::Reserve(reserve::Event::Settled { reservation, by_owner, .. }) => {
                let run = self.open.remove(&reservation.0);
                let cancelled = run.and_then(|run| self.at.get(&run)) == Some(&At::Cancelled);
                (cancelled && !by_owner).then_some(Stand::SettledCancelled)
            }
            Event::Reserve(reserve::Event::Released { reservation, .. }) => {
                self.open.remove(&reservation.0);
                None
            }
            _ => None,
        };
        reached.into_iter()
    }
}
