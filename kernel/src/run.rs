//! Where does work stand? Runs and their attempts, as far as a fleet needs.
//!
//! An attempt begins with its reservation and is running while that is open. Its arms: `Running` to `Succeeded`, `Failed`,
//! `Cancelled` or `Indeterminate`; no other. A retry is attempt n+1. A run ends once, when none of its attempts is running.

use crate::id::{ReservationId, RunId, TaskId, UnitId, UserId};
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
    /// Record a new run. Needs no lock; a repeat with the same content is admitted and changes nothing.
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
    #[error("run {run} exists with another user, task, workflow version or purpose; choose another name")]
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
        /// What was asked.
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
