//! Where does work stand? Runs and their attempts, as far as a fleet needs.
//!
//! An attempt is queued, or admitted at once with its reservation, and is running while that is open. It has seven states and
//! eight arms between them, see [`AttemptState::may_become`]. A retry is attempt n+1. A run ends once, when none of its attempts
//! is running; attempts that are still queued are cancelled with it.

use crate::{
    admit::DepthTier,
    effect::{self, Key, Phase},
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
    /// It is queued: nothing is set aside for it and nothing has left.
    Pending,
    /// Its deadline passed, in the queue or with nothing outside in doubt.
    TimedOut,
}

impl AttemptState {
    /// Every state.
    pub const ALL: [AttemptState; 7] = [
        AttemptState::Pending,
        AttemptState::Running,
        AttemptState::Succeeded,
        AttemptState::Failed,
        AttemptState::TimedOut,
        AttemptState::Cancelled,
        AttemptState::Indeterminate,
    ];

    /// Whether an attempt may go from here to `to`: eight arms, and nothing leaves a terminal state. After the durable agent
    /// framework, section 5.1.
    pub const fn may_become(self, to: AttemptState) -> bool {
        use AttemptState::{Cancelled, Failed, Indeterminate, Pending, Running, Succeeded, TimedOut};
        match self {
            Pending => matches!(to, Running | Cancelled | TimedOut),
            Running => matches!(to, Succeeded | Failed | TimedOut | Cancelled | Indeterminate),
            Succeeded | Failed | TimedOut | Cancelled | Indeterminate => false,
        }
    }

    /// Whether the next attempt of the unit may begin after this one.
    pub const fn may_be_retried(self) -> bool {
        matches!(self, AttemptState::Failed | AttemptState::Cancelled | AttemptState::TimedOut)
    }
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
    /// It was stopped; what was on the wire was settled.
    Halted(HaltReason),
}

/// What stopped a run that ended halted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HaltReason {
    /// The owner's halt switch.
    Owner,
    /// The credit limit of the provider's key, which is outside the ledger.
    Key,
}

impl HaltReason {
    /// Every reason.
    pub const ALL: [HaltReason; 2] = [HaltReason::Owner, HaltReason::Key];
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
            | Event::Recalled { run, .. } => *run,
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
    /// How it ended, if it has.
    pub ended: Option<Ending>,
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

/// Decides a command of this room.
pub fn decide(tables: &table::Tables, case: &Case<'_>, command: &Command) -> Result<Ruling, No> {
    match *command {
        Command::Spawn { run, user, task, workflow_version, purpose, depth } => spawn(
            tables,
            case,
            run,
            Run { user, task, workflow_version, purpose, depth, running: 0, queued: 0, ended: None },
        ),
        Command::EndAttempt { run, unit, attempt, state } => end_attempt(tables, case, run, unit, attempt, state),
        Command::End { run, outcome } => end(tables, case, run, outcome),
        Command::Queue { run, unit, attempt } => queue(tables, case, run, unit, attempt),
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
        Some(known) if Run { running: 0, queued: 0, ended: None, ..*known } == new => {
            Ok(ruling(Vec::new(), Outcome::Spawned))
        }
        Some(_) => Err(Refusal::Taken { run }.into()),
    }
}

fn queue(tables: &table::Tables, case: &Case<'_>, run: RunId, unit: UnitId, attempt: u32) -> Result<Ruling, No> {
    let tenant = case.tenant;
    authorize(tables, case, Lock::Run(tenant, run))?;
    tables.run.open(tenant, run)?;
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
    tables.run.open(tenant, run)?;
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
    Ok(ruling)
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
    let user = tables.run.open(tenant, run)?.user;
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

/// Folds a record of this room.
pub fn apply(tables: &mut table::Tables, record: &Record) -> Result<(), Impossible> {
    let record::Event::Run(event) = &record.event else { return Ok(()) };
    let tenant = record.tenant;
    let table::Tables { run: Tables { runs, attempts }, reserve, .. } = tables;
    match *event {
        Event::Spawned { run, user, task, workflow_version, purpose, depth } => {
            ensure!(runs.get(&(tenant, run)).is_none(), "run {run} is spawned twice");
            runs.insert(
                (tenant, run),
                Run { user, task, workflow_version, purpose, depth, running: 0, queued: 0, ended: None },
            );
        }
        Event::AttemptStarted { run, unit, attempt, reservation } => {
            let reserved = reserve.reservations.get(&(tenant, reservation));
            let fits = reserved.is_some_and(|row| (row.run, row.unit, row.attempt) == (run, unit, attempt));
            ensure!(fits, "attempt {attempt} of unit {unit} starts without reservation {reservation}");
            let was_queued = begins(attempts, (tenant, run, unit, attempt))?;
            let row = Attempt { state: AttemptState::Running, reservation: Some(reservation) };
            attempts.insert((tenant, run, unit, attempt), row);
            let run = open_row(runs, tenant, run)?;
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
            open_row(runs, tenant, run)?.queued += 1;
        }
        Event::Recalled { run, unit, attempt, source, .. } => {
            let was_queued = begins(attempts, (tenant, run, unit, attempt))?;
            let row = Attempt { state: AttemptState::Succeeded, reservation: Some(source) };
            attempts.insert((tenant, run, unit, attempt), row);
            open_row(runs, tenant, run)?.queued -= u32::from(was_queued);
        }
        Event::Ended { run, outcome } => {
            let row = open_row(runs, tenant, run)?;
            ensure!(row.running == 0, "run {run} ends with {} attempts running", row.running);
            ensure!(row.queued == 0, "run {run} ends with {} attempts queued", row.queued);
            row.ended = Some(outcome);
        }
    }
    Ok(())
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

fn open_row(runs: &mut Table<(TenantId, RunId), Run>, tenant: TenantId, run: RunId) -> Result<&mut Run, Impossible> {
    let open = runs.get_mut(&(tenant, run)).filter(|row| row.ended.is_none());
    open.ok_or_else(|| Impossible(format!("run {run} is not open")))
}
