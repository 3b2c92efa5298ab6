//! The states of runs and attempts, how a run ends, and which may follow which.

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

/// Where a run stands. Of the states that verifying and grading will ask for none is here yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunState {
    /// It was spawned; whether anybody works on it is its lease's to say.
    Open,
    /// It waits for a decision from outside, and nobody holds its lease.
    Suspended,
    /// It was cancelled while attempts of it were running: nothing more begins, and it ends with the last of them.
    Cancelling,
    /// It is over.
    Ended(Ending),
}

impl RunState {
    /// Every state.
    pub const ALL: [RunState; 8] = [
        RunState::Open,
        RunState::Suspended,
        RunState::Cancelling,
        RunState::Ended(Ending::Complete),
        RunState::Ended(Ending::Incomplete),
        RunState::Ended(Ending::Halted(HaltReason::Owner)),
        RunState::Ended(Ending::Halted(HaltReason::Key)),
        RunState::Ended(Ending::Cancelled),
    ];

    /// Whether a run may go from here to `to`. Nothing leaves an end, and a cancel can be reached from wherever there is none.
    pub const fn may_become(self, to: RunState) -> bool {
        match self {
            RunState::Open => !matches!(to, RunState::Open),
            RunState::Suspended => matches!(to, RunState::Open | RunState::Ended(Ending::Cancelled)),
            RunState::Cancelling => matches!(to, RunState::Ended(Ending::Cancelled)),
            RunState::Ended(_) => false,
        }
    }

    /// How it ended, if it has.
    pub const fn ended(self) -> Option<Ending> {
        match self {
            RunState::Ended(how) => Some(how),
            RunState::Open | RunState::Suspended | RunState::Cancelling => None,
        }
    }
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
    /// Its owner cancelled it; what was on the wire was settled, or is in doubt.
    Cancelled,
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
