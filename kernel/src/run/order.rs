//! A run suspended by its holder, and resumed or cancelled by its owner.

use super::{Event, Outcome, Refusal, Run, RunState, ruling};
use crate::{
    id::{RunId, TenantId},
    lease::{self, Lock, authorize},
    record,
    request::{Notice, Turn},
    room::{Case, No, Ruling},
    run::AttemptState,
    table,
};

/// The first attempt of a run that is running, as the reason why it can neither end nor be suspended.
fn none_running(tables: &table::Tables, tenant: TenantId, run: RunId) -> Result<(), Refusal> {
    let running = tables.run.attempts_of(tenant, run).find(|(.., row)| row.state == AttemptState::Running);
    running.map_or(Ok(()), |(unit, attempt, _)| Err(Refusal::AttemptRunning { run, unit, attempt }))
}

pub(super) fn suspend(tables: &table::Tables, case: &Case<'_>, run: RunId) -> Result<Ruling, No> {
    let tenant = case.tenant;
    let held = authorize(tables, case, Lock::Run(tenant, run))?;
    tables.run.going(case, run)?;
    none_running(tables, tenant, run)?;
    let yielded = lease::Event::Yielded { lock: held.lock, fence: held.fence };
    let events = vec![record::Event::Run(Event::Suspended { run }), record::Event::Lease(yielded)];
    Ok(ruling(events, Outcome::Suspended))
}

pub(super) fn resume(tables: &table::Tables, case: &Case<'_>, run: RunId) -> Result<Ruling, No> {
    authorize(tables, case, Lock::Owner)?;
    if tables.run.open(case.tenant, run)?.state != RunState::Suspended {
        return Err(Refusal::NotSuspended { run }.into());
    }
    let resumed = record::Event::Run(Event::Resumed { run });
    let notices = vec![Notice::TurnCame(Turn::Lock(Lock::Run(case.tenant, run)))];
    Ok(Ruling { notices, ..ruling(vec![resumed], Outcome::Resumed) })
}

pub(super) fn cancel(tables: &table::Tables, case: &Case<'_>, run: RunId) -> Result<Ruling, No> {
    authorize(tables, case, Lock::Owner)?;
    let Run { state, running, .. } = *tables.run.open(case.tenant, run)?;
    if state == RunState::Cancelling {
        return Ok(ruling(Vec::new(), Outcome::Cancelled));
    }
    let cancelled = record::Event::Run(Event::Cancelled { run, running });
    let mut ruling = ruling(vec![cancelled], Outcome::Cancelled);
    if state == RunState::Suspended {
        ruling.notices.push(Notice::TurnCame(Turn::Lock(Lock::Run(case.tenant, run))));
    }
    Ok(ruling)
}
