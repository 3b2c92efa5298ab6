//! Where does work stand? Runs and their attempts, as far as a fleet needs.
//!
//! An attempt is queued, or admitted at once with its reservation, and is running while that is open. It has seven states and
//! eight arms between them, see [`AttemptState::may_become`]. A retry is attempt n+1. A run ends once, when none of its attempts
//! is running; attempts that are still queued are cancelled with it. What state it may go to from which is in
//! [`RunState::may_become`].
//!
//! A run that waits for a decision from outside is suspended and gives its lease up in the same commit; nobody can hold it until
//! the owner resumes or cancels it. A cancel is the owner's too, and needs no lease of the run: from its record on nothing of the
//! run begins. If nothing is running the run has ended with that record; else what is running ends as it would have, and the
//! run, recorded as cancelled, with the last of it. See `docs/decisions/0009-suspend-cancel-and-halt.md`.

mod order;
mod state;

pub use state::{AttemptState, Ending, HaltReason, RunState};

use crate::{
    admit::DepthTier,
    effect::{self, Key, Phase},
    id::{ReservationId, RunId, TaskId, TenantId, UnitId, UserId},
    lease::{Lock, authorize},
    planted,
    planted::{Bug, Planted},
    record::{self, Record},
    request,
    reserve::{self, Close},
    room::{Case, Impossible, No, Ruling, ensure},
    table::{self, HashedTable, Table},
};
use serde::{Deserialize, Serialize};

/// What may be asked of this room.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// Record a new run. Needs no lock; a repeat with the same content is admitted and changes nothing, whatever `admit`
    /// says to new ones.
    Spawn {
        /// Its name.
        run: RunId,
        /// The user it is for.
        user: UserId,
        /// What it is an instance of.
        task: TaskId,
        /// The version of the workflow it follows.
        workflow_version: u32,
        /// What its cost is for.
        purpose: Purpose,
        /// How deep its research goes.
        depth: DepthTier,
    },
    /// Record how an attempt ended. Under the run's lock. Of a running one it travels with the `Settle` (for `Succeeded`) or the
    /// `Release` (for `Failed`, `TimedOut` and `Cancelled`) of its reservation in one request; alone for `Indeterminate` and of
    /// one that is queued.
    EndAttempt {
        /// The run.
        run: RunId,
        /// The unit.
        unit: UnitId,
        /// The attempt, from 1.
        attempt: u32,
        /// A terminal state.
        state: AttemptState,
    },
    /// End the run. Under its lock, with no attempt running; what is queued is cancelled.
    End {
        /// The run.
        run: RunId,
        /// How it ended.
        outcome: Ending,
    },
    /// Record that the next attempt of a unit waits to be admitted. Under the run's lock.
    Queue {
        /// The run.
        run: RunId,
        /// The unit.
        unit: UnitId,
        /// The attempt, from 1.
        attempt: u32,
    },
    /// Have the run wait for a decision from outside, and give its lease up. Under the run's lock, with no attempt running.
    Suspend {
        /// The run.
        run: RunId,
    },
    /// Let a suspended run be worked on again, by whoever takes its lease next. Under the owner's lock.
    Resume {
        /// The run.
        run: RunId,
    },
    /// Stop a run that has not ended. Under the owner's lock. One that is being cancelled already is left as it is.
    Cancel {
        /// The run.
        run: RunId,
    },
}

/// What a run's cost is for; metering keeps them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    /// The work itself.
    Work,
    /// Checking or grading other work.
    Grading,
}

/// What this room records. What its holder does is sequenced in the run; what the owner decides is not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// A run exists.
    Spawned {
        /// Its name.
        run: RunId,
        /// The user it is for.
        user: UserId,
        /// What it is an instance of.
        task: TaskId,
        /// The version of its workflow.
        workflow_version: u32,
        /// What its cost is for.
        purpose: Purpose,
        /// How deep its research goes.
        depth: DepthTier,
    },
    /// An attempt is running; recorded with its reservation. One that was not queued was pending up to this record.
    AttemptStarted {
        /// The run.
        run: RunId,
        /// The unit.
        unit: UnitId,
        /// The attempt.
        attempt: u32,
        /// Its reservation.
        reservation: ReservationId,
    },
    /// An attempt ended.
    AttemptEnded {
        /// The run.
        run: RunId,
        /// The unit.
        unit: UnitId,
        /// The attempt.
        attempt: u32,
        /// How.
        state: AttemptState,
    },
    /// The run ended.
    Ended {
        /// The run.
        run: RunId,
        /// How.
        outcome: Ending,
    },
    /// An attempt is pending.
    AttemptQueued {
        /// The run.
        run: RunId,
        /// The unit.
        unit: UnitId,
        /// The attempt.
        attempt: u32,
    },
    /// An attempt was admitted, ran and succeeded at once: its question had been answered before. Nothing was set aside and
    /// nothing left.
    Recalled {
        /// The run.
        run: RunId,
        /// The unit.
        unit: UnitId,
        /// The attempt.
        attempt: u32,
        /// The question's key.
        key: Key,
        /// The reservation under which it was answered.
        source: ReservationId,
    },
    /// The run waits for a decision; its lease is given up in the same frame.
    Suspended {
        /// The run.
        run: RunId,
    },
    /// The owner lets a suspended run go on.
    Resumed {
        /// The run.
        run: RunId,
    },
    /// The owner cancelled the run.
    Cancelled {
        /// The run.
        run: RunId,
        /// How many of its attempts are running. With none the run ends here, and attempts that are queued with it.
        running: u32,
    },
}

impl Event {
    /// The run it is of.
    pub fn run(&self) -> RunId {
        match self {
            Event::Spawned { run, .. }
            | Event::AttemptStarted { run, .. }
            | Event::AttemptEnded { run, .. }
            | Event::Ended { run, .. }
            | Event::AttemptQueued { run, .. }
            | Event::Recalled { run, .. }
            | Event::Suspended { run }
            | Event::Resumed { run }
            | Event::Cancelled { run, .. } => *run,
        }
    }
}

/// What an admitted command gives back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// The run exists.
    Spawned,
    /// Recorded.
    AttemptEnded,
    /// The run has ended.
    Ended,
    /// The attempt is queued.
    Queued,
    /// The run is suspended, and its lease given up.
    Suspended,
    /// The run may be worked on again.
    Resumed,
    /// Nothing more of the run begins.
    Cancelled,
}

/// Why this room says no.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// There is no such run.
    #[error("run {run} is not known; spawn it first")]
    Unknown {
        /// What was named.
        run: RunId,
    },
    /// A run of that name exists with other content.
    #[error("run {run} exists with another user, task, workflow version, purpose or depth; choose another name")]
    Taken {
        /// The name.
        run: RunId,
    },
    /// The run has ended.
    #[error("run {run} has ended")]
    Ended {
        /// Which.
        run: RunId,
    },
    /// The arm is not legal.
    #[error("attempt {attempt} of unit {unit} cannot go from {from:?} to {to:?}")]
    IllegalArm {
        /// The unit.
        unit: UnitId,
        /// The attempt.
        attempt: u32,
        /// Where it stands; `None` if it never started.
        from: Option<AttemptState>,
        /// What was asked.
        to: AttemptState,
    },
    /// The attempt's end and its reservation's end do not go together in the request.
    #[error("attempt {attempt} of unit {unit} cannot end {to:?} while its reservation stands as it does")]
    ReservationDisagrees {
        /// The unit.
        unit: UnitId,
        /// The attempt.
        attempt: u32,
        /// What was asked; `Running` if its reservation ended and nothing was asked of the attempt.
        to: AttemptState,
    },
    /// An attempt is running.
    #[error("run {run} cannot end, nor be suspended: attempt {attempt} of unit {unit} is running")]
    AttemptRunning {
        /// The run.
        run: RunId,
        /// The unit.
        unit: UnitId,
        /// The attempt.
        attempt: u32,
    },
    /// The attempt's end and its intent do not go together.
    #[error(
        "attempt {attempt} of unit {unit} cannot end {to:?} while its intent is {phase:?}; commit or resolve that first"
    )]
    IntentDisagrees {
        /// The unit.
        unit: UnitId,
        /// The attempt.
        attempt: u32,
        /// What was asked.
        to: AttemptState,
        /// How far its intent is.
        phase: Phase,
    },
    /// The run was cancelled.
    #[error("run {run} was cancelled: nothing more of it begins, and it ends so with what is running")]
    Cancelled {
        /// Which.
        run: RunId,
    },
    /// The run was not cancelled.
    #[error("run {run} was not cancelled, and cannot end so; have the owner cancel it")]
    NotCancelled {
        /// Which.
        run: RunId,
    },
    /// The run is suspended.
    #[error("run {run} is suspended; have the owner resume it first")]
    Suspended {
        /// Which.
        run: RunId,
    },
    /// The run is not suspended.
    #[error("run {run} is not suspended, and cannot be resumed")]
    NotSuspended {
        /// Which.
        run: RunId,
    },
}

/// A run as far as it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// The user it is for.
    pub user: UserId,
    /// What it is an instance of.
    pub task: TaskId,
    /// The version of its workflow.
    pub workflow_version: u32,
    /// What its cost is for.
    pub purpose: Purpose,
    /// How deep its research goes.
    pub depth: DepthTier,
    /// How many of its attempts are running.
    pub running: u32,
    /// How many of its attempts are queued.
    pub queued: u32,
    /// Where it stands.
    pub state: RunState,
    /// How often it was suspended.
    pub suspensions: u32,
}

impl Run {
    /// One that was just spawned.
    const fn new(user: UserId, task: TaskId, workflow_version: u32, purpose: Purpose, depth: DepthTier) -> Run {
        let state = RunState::Open;
        Run { user, task, workflow_version, purpose, depth, running: 0, queued: 0, state, suspensions: 0 }
    }
}

/// An attempt as far as it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// Where it stands.
    pub state: AttemptState,
    /// Its reservation, or of one whose question had been answered before the reservation under which it was; none while it
    /// is queued, nor after if it never came further.
    pub reservation: Option<ReservationId>,
}

/// The tables of this room.
#[derive(Clone, Debug)]
pub struct Tables {
    /// Every run.
    pub(crate) runs: HashedTable<(TenantId, RunId), Run>,
    /// Every attempt of every unit.
    pub(crate) attempts: Table<(TenantId, RunId, UnitId, u32), Attempt>,
    /// The runs that are suspended.
    pub(crate) suspended: Table<(TenantId, RunId), ()>,
}

impl Default for Tables {
    fn default() -> Tables {
        Tables {
            runs: Table::new(14, "run.runs"),
            attempts: Table::new(15, "run.attempts"),
            suspended: Table::new(23, "run.suspended"),
        }
    }
}

impl Tables {
    /// The run, if it was spawned and has not ended.
    pub fn open(&self, tenant: TenantId, run: RunId) -> Result<&Run, Refusal> {
        let row = self.runs.get(&(tenant, run)).ok_or(Refusal::Unknown { run })?;
        if row.state.ended().is_some() { Err(Refusal::Ended { run }) } else { Ok(row) }
    }

    /// The run, if something of it may begin: an attempt, or a call.
    pub(crate) fn going(&self, case: &Case<'_>, run: RunId) -> Result<&Run, Refusal> {
        let row = self.open(case.tenant, run)?;
        match planted!(case.planted, Bug::CancelIgnored, row.state, as_if_open(row.state)) {
            RunState::Cancelling => Err(Refusal::Cancelled { run }),
            RunState::Suspended => Err(Refusal::Suspended { run }),
            RunState::Open | RunState::Ended(_) => Ok(row),
        }
    }

    /// The attempt of `unit` that may start, if any may: the first, one that is queued, or the one after an attempt that failed,
    /// timed out or was cancelled.
    pub fn next_attempt(&self, tenant: TenantId, run: RunId, unit: UnitId) -> Option<u32> {
        let latest = self.attempts.range((tenant, run, unit, 0)..=(tenant, run, unit, u32::MAX)).next_back();
        let Some(((.., number), attempt)) = latest else { return Some(1) };
        match attempt.state {
            AttemptState::Pending => Some(*number),
            state if state.may_be_retried() => number.checked_add(1),
            _ => None,
        }
    }

    /// Every attempt of a run, by unit and number.
    pub fn attempts_of(
        &self,
        tenant: TenantId,
        run: RunId,
    ) -> impl DoubleEndedIterator<Item = (UnitId, u32, &Attempt)> {
        let all = (tenant, run, UnitId(0), 0)..=(tenant, run, UnitId(u32::MAX), u32::MAX);
        self.attempts.range(all).map(|((_, _, unit, number), attempt)| (*unit, *number, attempt))
    }
}

/// What [`Bug::CancelIgnored`] takes a state for.
#[cfg(feature = "planted")]
fn as_if_open(state: RunState) -> RunState {
    if state == RunState::Cancelling { RunState::Open } else { state }
}

/// Whether a lock is of a run that is suspended.
pub(crate) fn is_suspended(tables: &table::Tables, lock: Lock) -> bool {
    matches!(lock, Lock::Run(tenant, run) if tables.run.suspended.get(&(tenant, run)).is_some())
}

/// Decides a command of this room.
pub fn decide(tables: &table::Tables, case: &Case<'_>, command: &Command) -> Result<Ruling, No> {
    match *command {
        Command::Spawn { run, user, task, workflow_version, purpose, depth } => {
            spawn(tables, case, run, Run::new(user, task, workflow_version, purpose, depth))
        }
        Command::EndAttempt { run, unit, attempt, state } => end_attempt(tables, case, run, unit, attempt, state),
        Command::End { run, outcome } => end(tables, case, run, outcome),
        Command::Queue { run, unit, attempt } => queue(tables, case, run, unit, attempt),
        Command::Suspend { run } => order::suspend(tables, case, run),
        Command::Resume { run } => order::resume(tables, case, run),
        Command::Cancel { run } => order::cancel(tables, case, run),
    }
}

/// Whether every reservation that `commands` ended has an attempt that ended with it.
pub fn agree(tables: &table::Tables, tenant: TenantId, commands: &[request::Command]) -> Result<(), Refusal> {
    for command in commands {
        let request::Command::Reserve(
            reserve::Command::Settle { reservation, .. } | reserve::Command::Release { reservation },
        ) = command
        else {
            continue;
        };
        let Some(row) = tables.reserve.reservations.get(&(tenant, *reservation)) else { continue };
        let attempt = tables.run.attempts.get(&(tenant, row.run, row.unit, row.attempt));
        if attempt.is_some_and(|attempt| attempt.state == AttemptState::Running) {
            let (unit, attempt) = (row.unit, row.attempt);
            return Err(Refusal::ReservationDisagrees { unit, attempt, to: AttemptState::Running });
        }
    }
    Ok(())
}

fn ruling(events: Vec<record::Event>, outcome: Outcome) -> Ruling {
    Ruling { events, outcome: request::Outcome::Run(outcome), notices: Vec::new() }
}

fn spawn(tables: &table::Tables, case: &Case<'_>, run: RunId, new: Run) -> Result<Ruling, No> {
    let Run { user, task, workflow_version, purpose, depth, .. } = new;
    match tables.run.runs.get(&(case.tenant, run)) {
        None => {
            let spawned = Event::Spawned { run, user, task, workflow_version, purpose, depth };
            Ok(ruling(vec![record::Event::Run(spawned)], Outcome::Spawned))
        }
        Some(known) if Run { running: 0, queued: 0, state: RunState::Open, suspensions: 0, ..*known } == new => {
            Ok(ruling(Vec::new(), Outcome::Spawned))
        }
        Some(_) => Err(Refusal::Taken { run }.into()),
    }
}

fn queue(tables: &table::Tables, case: &Case<'_>, run: RunId, unit: UnitId, attempt: u32) -> Result<Ruling, No> {
    let tenant = case.tenant;
    authorize(tables, case, Lock::Run(tenant, run))?;
    tables.run.going(case, run)?;
    let is_new = tables.run.attempts.get(&(tenant, run, unit, attempt)).is_none();
    let next = tables.run.next_attempt(tenant, run, unit);
    if next != Some(attempt) || !is_new {
        let next = next.filter(|_| is_new);
        return Err(reserve::Refusal::WrongAttempt { run, unit, attempt, next }.into());
    }
    Ok(ruling(vec![record::Event::Run(Event::AttemptQueued { run, unit, attempt })], Outcome::Queued))
}

fn end_attempt(
    tables: &table::Tables,
    case: &Case<'_>,
    run: RunId,
    unit: UnitId,
    attempt: u32,
    to: AttemptState,
) -> Result<Ruling, No> {
    let tenant = case.tenant;
    let row = tables.run.attempts.get(&(tenant, run, unit, attempt));
    let reservation = row.and_then(|row| row.reservation);
    let close = reservation.and_then(|reservation| tables.reserve.reservations.get(&(tenant, reservation))?.close);
    let running = row.is_some_and(|row| row.state == AttemptState::Running);
    if case.planted.is_on(Bug::ReleaseTwice) && !running && close.is_some_and(|close| close.again) {
        return Ok(ruling(Vec::new(), Outcome::AttemptEnded));
    }
    authorize(tables, case, Lock::Run(tenant, run))?;
    let run_row = tables.run.open(tenant, run)?;
    let from = row.map(|row| row.state);
    if to == AttemptState::Running || from.is_none_or(|from| !from.may_become(to)) {
        return Err(Refusal::IllegalArm { unit, attempt, from, to }.into());
    }
    let ended = Event::AttemptEnded { run, unit, attempt, state: to };
    let mut ruling = ruling(vec![record::Event::Run(ended)], Outcome::AttemptEnded);
    if let Some(reservation) = reservation {
        if !pairs(to, close) {
            return Err(Refusal::ReservationDisagrees { unit, attempt, to }.into());
        }
        let phase = tables.effect.intents.get(&(tenant, reservation)).map(|intent| intent.phase);
        if let Some(phase) = phase.filter(|phase| !phase.ends_in(to)) {
            return Err(Refusal::IntentDisagrees { unit, attempt, to, phase }.into());
        }
        ruling.notices = effect::flight_over(tables, tenant, reservation, to);
    }
    if run_row.state == RunState::Cancelling && running && run_row.running == 1 {
        ruling.events.extend(queued_cancelled(tables, tenant, run));
        ruling.events.push(record::Event::Run(Event::Ended { run, outcome: Ending::Cancelled }));
    }
    Ok(ruling)
}

/// What ends the attempts of a run that are queued.
fn queued_cancelled(tables: &table::Tables, tenant: TenantId, run: RunId) -> impl Iterator<Item = record::Event> {
    let queued = tables.run.attempts_of(tenant, run).filter(|(.., row)| row.state == AttemptState::Pending);
    queued.map(move |(unit, attempt, _)| {
        record::Event::Run(Event::AttemptEnded { run, unit, attempt, state: AttemptState::Cancelled })
    })
}

/// Whether a running attempt may end as `to` while its reservation stands so.
fn pairs(to: AttemptState, close: Option<Close>) -> bool {
    match to {
        AttemptState::Running | AttemptState::Pending => false,
        AttemptState::Succeeded => close.is_some_and(|close| close.cost.is_some() && !close.by_owner),
        AttemptState::Failed | AttemptState::Cancelled | AttemptState::TimedOut => {
            close.is_some_and(|close| close.cost.is_none() && !close.by_owner)
        }
        AttemptState::Indeterminate => close.is_none(),
    }
}

fn end(tables: &table::Tables, case: &Case<'_>, run: RunId, outcome: Ending) -> Result<Ruling, No> {
    let tenant = case.tenant;
    authorize(tables, case, Lock::Run(tenant, run))?;
    let overwrites = may_overwrite(tables, case, run, outcome);
    if overwrites && case.planted.is_on(Bug::CancelOverwritten) {
        return Ok(ruling(vec![record::Event::Run(Event::Ended { run, outcome })], Outcome::Ended));
    }
    let Run { user, state, .. } = *tables.run.open(tenant, run)?;
    match (state, outcome) {
        (RunState::Cancelling, Ending::Cancelled) => {}
        (RunState::Cancelling, _) => return Err(Refusal::Cancelled { run }.into()),
        (_, Ending::Cancelled) => return Err(Refusal::NotCancelled { run }.into()),
        _ => {}
    }
    let (mut events, mut notices) = (Vec::new(), Vec::new());
    for (unit, attempt, row) in tables.run.attempts_of(tenant, run) {
        let state = AttemptState::Cancelled;
        if row.state == AttemptState::Pending {
            events.push(record::Event::Run(Event::AttemptEnded { run, unit, attempt, state }));
        }
        let (AttemptState::Running, Some(reservation)) = (row.state, row.reservation) else { continue };
        case.planted.reach(Bug::BlanketRelease);
        if !case.planted.is_on(Bug::BlanketRelease) {
            return Err(Refusal::AttemptRunning { run, unit, attempt }.into());
        }
        let released = reserve::Event::Released { reservation, by_owner: false };
        events.push(record::Event::Reserve(released));
        notices.extend(reserve::slot_freed(tables, tenant, user));
        notices.extend(effect::flight_over(tables, tenant, reservation, state));
        events.push(record::Event::Run(Event::AttemptEnded { run, unit, attempt, state }));
    }
    events.push(record::Event::Run(Event::Ended { run, outcome }));
    Ok(Ruling { notices, ..ruling(events, Outcome::Ended) })
}

/// Whether [`Bug::CancelOverwritten`] would make a difference: a run that was cancelled is to end otherwise.
fn may_overwrite(tables: &table::Tables, case: &Case<'_>, run: RunId, outcome: Ending) -> bool {
    let state = tables.run.runs.get(&(case.tenant, run)).map(|row| row.state);
    let overwrites = outcome != Ending::Cancelled && state == Some(RunState::Ended(Ending::Cancelled));
    if overwrites {
        case.planted.reach(Bug::CancelOverwritten);
    }
    overwrites
}

/// Folds a record of this room.
pub fn apply(tables: &mut table::Tables, record: &Record, planted: &Planted) -> Result<(), Impossible> {
    let record::Event::Run(event) = &record.event else { return Ok(()) };
    let tenant = record.tenant;
    let Tables { runs, attempts, suspended } = &mut tables.run;
    match *event {
        Event::Spawned { run, user, task, workflow_version, purpose, depth } => {
            ensure!(runs.get(&(tenant, run)).is_none(), "run {run} is spawned twice");
            runs.insert((tenant, run), Run::new(user, task, workflow_version, purpose, depth));
        }
        Event::AttemptStarted { .. }
        | Event::AttemptEnded { .. }
        | Event::AttemptQueued { .. }
        | Event::Recalled { .. } => apply_attempt(tables, planted, tenant, event)?,
        Event::Ended { run, outcome } => {
            let row = known_row(runs, tenant, run)?;
            let overwritten = planted.is_on(Bug::CancelOverwritten) && row.state == RunState::Ended(Ending::Cancelled);
            let legal = match outcome {
                Ending::Cancelled => row.state == RunState::Cancelling,
                _ => row.state == RunState::Open || overwritten,
            };
            ensure!(legal, "run {run} goes from {:?} to {outcome:?}", row.state);
            ensure!(row.running == 0, "run {run} ends with {} attempts running", row.running);
            ensure!(row.queued == 0, "run {run} ends with {} attempts queued", row.queued);
            row.state = RunState::Ended(outcome);
        }
        Event::Suspended { run } => {
            let row = becomes(runs, tenant, run, RunState::Suspended)?;
            ensure!(row.running == 0, "run {run} is suspended with {} attempts running", row.running);
            row.suspensions = row.suspensions.saturating_add(1);
            suspended.insert((tenant, run), ());
        }
        Event::Resumed { run } => {
            becomes(runs, tenant, run, RunState::Open)?;
            suspended.remove(&(tenant, run));
        }
        Event::Cancelled { run, running } => {
            let to = if running == 0 { RunState::Ended(Ending::Cancelled) } else { RunState::Cancelling };
            let row = becomes(runs, tenant, run, to)?;
            ensure!(
                row.running == running,
                "run {run} is cancelled with {} attempts running, not {running}",
                row.running
            );
            suspended.remove(&(tenant, run));
            if running == 0 && std::mem::take(&mut row.queued) > 0 {
                cancel_queued(attempts, tenant, run);
            }
        }
    }
    Ok(())
}

/// Folds what befell an attempt.
fn apply_attempt(
    tables: &mut table::Tables,
    planted: &Planted,
    tenant: TenantId,
    event: &Event,
) -> Result<(), Impossible> {
    let table::Tables { run: Tables { runs, attempts, .. }, reserve, .. } = tables;
    match *event {
        Event::AttemptStarted { run, unit, attempt, reservation } => {
            let reserved = reserve.reservations.get(&(tenant, reservation));
            let fits = reserved.is_some_and(|row| (row.run, row.unit, row.attempt) == (run, unit, attempt));
            ensure!(fits, "attempt {attempt} of unit {unit} starts without reservation {reservation}");
            let was_queued = begins(attempts, (tenant, run, unit, attempt))?;
            let row = Attempt { state: AttemptState::Running, reservation: Some(reservation) };
            attempts.insert((tenant, run, unit, attempt), row);
            let run = going_row(runs, planted, tenant, run)?;
            run.running += 1;
            run.queued -= u32::from(was_queued);
        }
        Event::AttemptEnded { run, unit, attempt, state } => {
            let Some(row) = attempts.get_mut(&(tenant, run, unit, attempt)) else {
                return Err(Impossible(format!("attempt {attempt} of unit {unit} ends and never started")));
            };
            let legal = row.state.may_become(state) && state != AttemptState::Running;
            ensure!(legal, "attempt {attempt} of unit {unit} goes from {:?} to {state:?}", row.state);
            let was_queued = row.state == AttemptState::Pending;
            let close = row.reservation.and_then(|id| reserve.reservations.get(&(tenant, id))?.close);
            ensure!(
                was_queued || pairs(state, close),
                "attempt {attempt} of unit {unit} ends {state:?} while its money stands otherwise"
            );
            row.state = state;
            let run = open_row(runs, tenant, run)?;
            run.running -= u32::from(!was_queued);
            run.queued -= u32::from(was_queued);
        }
        Event::AttemptQueued { run, unit, attempt } => {
            let is_new = attempts.get(&(tenant, run, unit, attempt)).is_none();
            ensure!(is_new, "attempt {attempt} of unit {unit} is queued after it began");
            attempts.insert((tenant, run, unit, attempt), Attempt { state: AttemptState::Pending, reservation: None });
            going_row(runs, planted, tenant, run)?.queued += 1;
        }
        Event::Recalled { run, unit, attempt, source, .. } => {
            let was_queued = begins(attempts, (tenant, run, unit, attempt))?;
            let row = Attempt { state: AttemptState::Succeeded, reservation: Some(source) };
            attempts.insert((tenant, run, unit, attempt), row);
            going_row(runs, planted, tenant, run)?.queued -= u32::from(was_queued);
        }
        Event::Spawned { .. }
        | Event::Ended { .. }
        | Event::Suspended { .. }
        | Event::Resumed { .. }
        | Event::Cancelled { .. } => {}
    }
    Ok(())
}

/// Every attempt of a run that is queued ends cancelled.
fn cancel_queued(attempts: &mut Table<(TenantId, RunId, UnitId, u32), Attempt>, tenant: TenantId, run: RunId) {
    let all = (tenant, run, UnitId(0), 0)..=(tenant, run, UnitId(u32::MAX), u32::MAX);
    let queued = attempts.range(all).filter(|(_, row)| row.state == AttemptState::Pending).map(|(key, _)| *key);
    for key in queued.collect::<Vec<_>>() {
        attempts.insert(key, Attempt { state: AttemptState::Cancelled, reservation: None });
    }
}

/// Whether an attempt that begins to run was queued; it had no other state.
fn begins(
    attempts: &Table<(TenantId, RunId, UnitId, u32), Attempt>,
    key: (TenantId, RunId, UnitId, u32),
) -> Result<bool, Impossible> {
    let state = attempts.get(&key).map(|row| row.state);
    ensure!(
        state.is_none_or(|state| state.may_become(AttemptState::Running)),
        "attempt {} of unit {} starts from {state:?}",
        key.3,
        key.2
    );
    Ok(state.is_some())
}

type Runs = HashedTable<(TenantId, RunId), Run>;

fn known_row(runs: &mut Runs, tenant: TenantId, run: RunId) -> Result<&mut Run, Impossible> {
    runs.get_mut(&(tenant, run)).ok_or_else(|| Impossible(format!("run {run} was never spawned")))
}

/// A run that has not ended.
fn open_row(runs: &mut Runs, tenant: TenantId, run: RunId) -> Result<&mut Run, Impossible> {
    let row = known_row(runs, tenant, run)?;
    ensure!(row.state.ended().is_none(), "run {run} has ended");
    Ok(row)
}

/// A run of which something may begin.
fn going_row<'a>(
    runs: &'a mut Runs,
    planted: &Planted,
    tenant: TenantId,
    run: RunId,
) -> Result<&'a mut Run, Impossible> {
    let row = open_row(runs, tenant, run)?;
    let goes_on = row.state == RunState::Open || planted.is_on(Bug::CancelIgnored);
    ensure!(goes_on, "something of run {run} begins, which is {:?}", row.state);
    Ok(row)
}

/// A run that has gone to another state.
fn becomes(runs: &mut Runs, tenant: TenantId, run: RunId, to: RunState) -> Result<&mut Run, Impossible> {
    let row = known_row(runs, tenant, run)?;
    ensure!(row.state.may_become(to), "run {run} goes from {:?} to {to:?}", row.state);
    row.state = to;
    Ok(row)
}
