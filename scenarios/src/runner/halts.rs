//! What a halt met and what it stopped, counted from the log.

use super::Figures;
use kernel::{
    admit::{self, Switch},
    effect,
    id::{ReservationId, RunId, TenantId},
    record::{Event, Record},
    reserve, run,
};
use std::collections::{BTreeMap, BTreeSet};

/// Halts, and what is live that one could meet.
#[derive(Debug, Default)]
pub(super) struct Halts {
    on: BTreeSet<TenantId>,
    live: BTreeSet<(TenantId, RunId)>,
    /// Calls that are dispatched and have not ended: whose, and whether a halt met them.
    out: BTreeMap<ReservationId, (TenantId, bool)>,
}

impl Halts {
    pub(super) fn recorded(&mut self, record: &Record, figures: &mut Figures) {
        let tenant = record.tenant;
        match record.event {
            Event::Admit(admit::Event::HaltSet { tenant, switch: Switch::Halted }) if self.on.insert(tenant) => {
                self.met(tenant, figures);
            }
            Event::Admit(admit::Event::HaltSet { tenant, switch: Switch::Open }) => drop(self.on.remove(&tenant)),
            Event::Run(run::Event::Spawned { run, .. }) => drop(self.live.insert((tenant, run))),
            Event::Run(run::Event::Ended { run, .. } | run::Event::Cancelled { run, running: 0 }) => {
                self.live.remove(&(tenant, run));
            }
            Event::Reserve(reserve::Event::Reserved { .. }) => {
                figures.invocations_halted += u64::from(self.is_on(tenant))
            }
            Event::Effect(effect::Event::Dispatched { intent }) => {
                figures.invocations_halted += u64::from(self.is_on(tenant));
                self.out.insert(intent, (tenant, false));
            }
            Event::Reserve(reserve::Event::Settled { reservation, by_owner, .. }) => {
                let met = self.out.remove(&reservation).is_some_and(|(_, met)| met);
                figures.calls_settled_after_halt += u64::from(met && !by_owner);
            }
            Event::Reserve(reserve::Event::Released { reservation, .. }) => drop(self.out.remove(&reservation)),
            _ => {}
        }
    }

    fn is_on(&self, tenant: TenantId) -> bool {
        self.on.contains(&tenant) || self.on.contains(&TenantId::LEDGER)
    }

    /// A halt is set.
    fn met(&mut self, switch: TenantId, figures: &mut Figures) {
        let is_met = |tenant: TenantId| switch == TenantId::LEDGER || tenant == switch;
        let live = self.live.iter().filter(|(tenant, _)| is_met(*tenant)).count() as u64;
        figures.halts += 1;
        figures.runs_live_at_halt = figures.runs_live_at_halt.max(live);
        for (_, met) in self.out.values_mut().filter(|(tenant, met)| is_met(*tenant) && !met) {
            *met = true;
            figures.calls_out_at_halt += 1;
        }
    }
}
