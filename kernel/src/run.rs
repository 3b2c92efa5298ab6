//! Where does work stand? Runs and their attempts, as far as a fleet needs.
//!
//! An attempt begins with its reservation and is running while that is open. Its arms: `Running` to `Succeeded`, `Failed`,
//! `Cancelled` or `Indeterminate`; no other. A retry is attempt n+1. A run ends once, when none of its attempts is running.

use crate::{
    admit::DepthTier,
    id::{ReservationId, RunId, TaskId, TenantId, UnitId, UserId},
    lease::{Lock, authorize},
    planted::Bug,
    record::{self, Record},
    request,
    reserve::{self, Close},
    room::{Case, Impossible, No, Ruling, ensure},
    table::{self, Table},
};
use serde::{Deserialize, Serialize};

/// Where an attempt stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AttemptState {
    /// Its reservation is open and its call may be on the wire.
    Running,
    /// Its call was answered and settled.
    Succeeded,
    /// Its call is known to have failed.
    Failed,
    /// It was given up before its call left.
    Cancelled,
    /// Whether its call was charged is not known; its reservation stays open until the owner resolves it.
    Indeterminate,
}

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
    /// Record how an attempt ended. Under the run's lock. It travels with the `Settle` (for `Succeeded`) or the `Release`
    /// (for `Failed` and `Cancelled`) of its reservation in one request; alone for `Indeterminate`.
    EndAttempt {
        /// The run.
        run: RunId,
        /// The unit.
        unit: UnitId,
        /// The attempt, from 1.
        attempt: u32,
        /// Any state but `Running`.
        state: AttemptState,
    },
    /// End the run. Under its lock, with no attempt running.
    End {
        /// The run.
        run: RunId,
        /// How it ended.
        outcome: Ending,
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

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ending {
    /// Every unit succeeded.
    Complete,
    /// Some unit was refused, failed for good, or is indeterminate.
    Incomplete,
    /// It was stopped by a halt; what was on the wire was settled.
    Halted,
}

/// What this room records. All of it is sequenced in the run.
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
    /// An attempt is running; recorded with its reservation.
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
}

impl Event {
    /// The run it is of.
    pub fn run(&self) -> RunId {
        match self {
            Event::Spawned { run, .. }
            | Event::AttemptStarted { run, .. }
            | Event::AttemptEnded { run, .. }
            | Event::Ended { run, .. } => *run,
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
    #[error("run {run} cannot end: attempt {attempt} of unit {unit} is running")]
    AttemptRunning {
        /// The run.
        run: RunId,
        /// The unit.
        unit: UnitId,
        /// The attempt.
        attempt: u32,
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
    /// How it ended, if it has.
    pub ended: Option<Ending>,
}

/// An attempt as far as it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// Where it stands.
    pub state: AttemptState,
    /// Its reservation.
    pub reservation: ReservationId,
}

/// The tables of this room.
#[derive(Clone, Debug)]
pub struct Tables {
    /// Every run.
    pub(crate) runs: Table<(TenantId, RunId), Run>,
    /// Every attempt of every unit.
    pub(crate) attempts: Table<(TenantId, RunId, UnitId, u32), Attempt>,
}

impl Default for Tables {
    fn default() -> Tables {
        Tables { runs: Table::new(14, "run.runs"), attempts: Table::new(15, "run.attempts") }
    }
}

impl Tables {
    /// The run, if it was spawned and has not ended.
    pub fn open(&self, tenant: TenantId, run: RunId) -> Result<&Run, Refusal> {
        let row = self.runs.get(&(tenant, run)).ok_or(Refusal::Unknown { run })?;
        if row.ended.is_some() { Err(Refusal::Ended { run }) } else { Ok(row) }
    }

    /// The attempt of `unit` that may start, if any may: the first, or the one after a failed or cancelled one.
    pub fn next_attempt(&self, tenant: TenantId, run: RunId, unit: UnitId) -> Option<u32> {
        let latest = self.attempts.range((tenant, run, unit, 0)..=(tenant, run, unit, u32::MAX)).next_back();
        let Some(((.., number), attempt)) = latest else { return Some(1) };
        match attempt.state {
            AttemptState::Failed | AttemptState::Cancelled => number.checked_add(1),
            AttemptState::Running | AttemptState::Succeeded | AttemptState::Indeterminate => None,
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

/// Decides a command of this room.
pub fn decide(tables: &table::Tables, case: &Case<'_>, command: &Command) -> Result<Ruling, No> {
    match *command {
        Command::Spawn { run, user, task, workflow_version, purpose, depth } => {
            spawn(tables, case, run, Run { user, task, workflow_version, purpose, depth, running: 0, ended: None })
        }
        Command::EndAttempt { run, unit, attempt, state } => end_attempt(tables, case, run, unit, attempt, state),
        Command::End { run, outcome } => end(tables, case, run, outcome),
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
        Some(known) if Run { running: 0, ended: None, ..*known } == new => Ok(ruling(Vec::new(), Outcome::Spawned)),
        Some(_) => Err(Refusal::Taken { run }.into()),
    }
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
    let close = row.and_then(|row| tables.reserve.reservations.get(&(tenant, row.reservation))?.close);
    let running = row.is_some_and(|row| row.state == AttemptState::Running);
    if case.planted.is_on(Bug::ReleaseTwice) && !running && close.is_some_and(|close| close.again) {
        return Ok(ruling(Vec::new(), Outcome::AttemptEnded));
    }
    authorize(tables, case, Lock::Run(tenant, run))?;
    tables.run.open(tenant, run)?;
    let from = row.map(|row| row.state);
    if !running || to == AttemptState::Running {
        return Err(Refusal::IllegalArm { unit, attempt, from, to }.into());
    }
    if !pairs(to, close) {
        return Err(Refusal::ReservationDisagrees { unit, attempt, to }.into());
    }
    let ended = Event::AttemptEnded { run, unit, attempt, state: to };
    Ok(ruling(vec![record::Event::Run(ended)], Outcome::AttemptEnded))
}

/// Whether an attempt may end as `to` while its reservation stands so.
fn pairs(to: AttemptState, close: Option<Close>) -> bool {
    match to {
        AttemptState::Running => false,
        AttemptState::Succeeded => close.is_some_and(|close| close.cost.is_some() && !close.by_owner),
        AttemptState::Failed | AttemptState::Cancelled => {
            close.is_some_and(|close| close.cost.is_none() && !close.by_owner)
        }
        AttemptState::Indeterminate => close.is_none(),
    }
}

fn end(tables: &table::Tables, case: &Case<'_>, run: RunId, outcome: Ending) -> Result<Ruling, No> {
    let tenant = case.tenant;
    authorize(tables, case, Lock::Run(tenant, run))?;
    let user = tables.run.open(tenant, run)?.user;
    let (mut events, mut notices) = (Vec::new(), Vec::new());
    for (unit, attempt, row) in tables.run.attempts_of(tenant, run) {
        if row.state != AttemptState::Running {
            continue;
        }
        case.planted.reach(Bug::BlanketRelease);
        if !case.planted.is_on(Bug::BlanketRelease) {
            return Err(Refusal::AttemptRunning { run, unit, attempt }.into());
        }
        let released = reserve::Event::Released { reservation: row.reservation, by_owner: false };
        events.push(record::Event::Reserve(released));
        notices.extend(reserve::slot_freed(tables, tenant, user));
        let state = AttemptState::Cancelled;
        events.push(record::Event::Run(Event::AttemptEnded { run, unit, attempt, state }));
    }
    events.push(record::Event::Run(Event::Ended { run, outcome }));
    Ok(Ruling { notices, ..ruling(events, Outcome::Ended) })
}

/// Folds a record of this room.
pub fn apply(tables: &mut table::Tables, record: &Record) -> Result<(), Impossible> {
    let record::Event::Run(event) = &record.event else { return Ok(()) };
    let tenant = record.tenant;
    let table::Tables { run: Tables { runs, attempts }, reserve, .. } = tables;
    match *event {
        Event::Spawned { run, user, task, workflow_version, purpose, depth } => {
            ensure!(runs.get(&(tenant, run)).is_none(), "run {run} is spawned twice");
            runs.insert((tenant, run), Run { user, task, workflow_version, purpose, depth, running: 0, ended: None });
        }
        Event::AttemptStarted { run, unit, attempt, reservation } => {
            let reserved = reserve.reservations.get(&(tenant, reservation));
            let fits = reserved.is_some_and(|row| (row.run, row.unit, row.attempt) == (run, unit, attempt));
            ensure!(fits, "attempt {attempt} of unit {unit} starts without reservation {reservation}");
            ensure!(
                attempts.get(&(tenant, run, unit, attempt)).is_none(),
                "attempt {attempt} of unit {unit} starts twice"
            );
            attempts.insert((tenant, run, unit, attempt), Attempt { state: AttemptState::Running, reservation });
            open_row(runs, tenant, run)?.running += 1;
        }
        Event::AttemptEnded { run, unit, attempt, state } => {
            let Some(row) = attempts.get_mut(&(tenant, run, unit, attempt)) else {
                return Err(Impossible(format!("attempt {attempt} of unit {unit} ends and never started")));
            };
            ensure!(row.state == AttemptState::Running, "attempt {attempt} of unit {unit} ends after {:?}", row.state);
            let close = reserve.reservations.get(&(tenant, row.reservation)).and_then(|reserved| reserved.close);
            ensure!(
                pairs(state, close),
                "attempt {attempt} of unit {unit} ends {state:?} while its money stands otherwise"
            );
            row.state = state;
            open_row(runs, tenant, run)?.running -= 1;
        }
        Event::Ended { run, outcome } => {
            let row = open_row(runs, tenant, run)?;
            ensure!(row.running == 0, "run {run} ends with {} attempts running", row.running);
            row.ended = Some(outcome);
        }
    }
    Ok(())
}

fn open_row(runs: &mut Table<(TenantId, RunId), Run>, tenant: TenantId, run: RunId) -> Result<&mut Run, Impossible> {
    let open = runs.get_mut(&(tenant, run)).filter(|row| row.ended.is_none());
    open.ok_or_else(|| Impossible(format!("run {run} is not open")))
}
