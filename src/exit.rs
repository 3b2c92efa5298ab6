//! How the process ends: exit codes, and the failures that are no verdict.

use crate::output;
use scenarios::runner::{RunError, Verdict};
use sim::EngineError;
use std::{fmt, process::ExitCode};

/// What the process's exit code says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Everything held; for `repro`, the failure is gone.
    Pass = 0,
    /// An invariant was broken; for `repro`, it still fails; for `report`, a counted figure missed its target.
    Safety = 1,
    /// Bad usage or input.
    Usage = 2,
    /// Something did not end.
    Liveness = 3,
    /// The same spec gave another history.
    Nondeterminism = 4,
    /// A gate that was large enough never reached what must be reached sometimes.
    Unreached = 5,
    /// A defect of shakedown itself.
    Defect = 70,
    /// Stopped by the user before a failure was found.
    Interrupted = 130,
    /// For `repro`: the capsule cannot be played.
    CannotPlay = 125,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

impl Exit {
    /// The exit of one verdict.
    pub fn of(verdict: Verdict) -> Exit {
        match verdict {
            Verdict::Pass => Exit::Pass,
            Verdict::Safety => Exit::Safety,
            Verdict::Liveness => Exit::Liveness,
            Verdict::Nondeterminism => Exit::Nondeterminism,
        }
    }

    /// This verdict, although what it was to be told by could not be done: a failed run stays one on a full disk. A pass that
    /// cannot be told is no pass.
    pub fn despite(self, trouble: Result<(), Failure>) -> Result<Exit, Failure> {
        match (self, trouble) {
            (_, Ok(())) => Ok(self),
            (Exit::Safety | Exit::Liveness | Exit::Nondeterminism | Exit::Unreached, Err(failure)) => {
                output::note(&format!("warning: {}", chain(failure.error())));
                Ok(self)
            }
            (_, Err(failure)) => Err(failure),
        }
    }

    /// The exit of many verdicts: the gravest. Nondeterminism comes first, because it puts every other verdict in doubt.
    pub fn of_all(verdicts: impl IntoIterator<Item = Verdict>) -> Exit {
        let gravity = |verdict: &Verdict| match verdict {
            Verdict::Pass => 0,
            Verdict::Liveness => 1,
            Verdict::Safety => 2,
            Verdict::Nondeterminism => 3,
        };
        verdicts.into_iter().max_by_key(gravity).map_or(Exit::Pass, Exit::of)
    }
}

/// The command could not do what it was asked to.
#[derive(Debug)]
pub enum Failure {
    /// What it was given cannot be used; the message says what to do about it.
    Input(anyhow::Error),
    /// What it was given is a capsule that cannot be played.
    CannotPlay(anyhow::Error),
    /// Something that ought not to happen did.
    Defect(anyhow::Error),
}

impl Failure {
    /// An input that cannot be used.
    pub fn input(error: impl Into<anyhow::Error>) -> Failure {
        Failure::Input(error.into())
    }

    /// A defect.
    pub fn defect(error: impl Into<anyhow::Error>) -> Failure {
        Failure::Defect(error.into())
    }

    /// A run that could not be played: the input's fault, the machine's, or shakedown's own.
    pub fn of_run(error: RunError) -> Failure {
        match error {
            RunError::Spec(_) | RunError::Engine(EngineError::Machine { .. } | EngineError::NoRoot) => {
                Failure::input(error)
            }
            RunError::Engine(EngineError::Stuck { .. }) => Failure::defect(error),
        }
    }

    /// Why.
    pub fn error(&self) -> &anyhow::Error {
        match self {
            Failure::Input(error) | Failure::CannotPlay(error) | Failure::Defect(error) => error,
        }
    }

    /// What is the matter, in one line.
    pub fn why(&self) -> String {
        match self {
            Failure::Input(error) | Failure::CannotPlay(error) => chain(error),
            Failure::Defect(error) => format!("shakedown is broken: {}", chain(error)),
        }
    }

    /// The exit it leads to.
    pub fn exit(&self) -> Exit {
        match self {
            Failure::Input(_) => Exit::Usage,
            Failure::CannotPlay(_) => Exit::CannotPlay,
            Failure::Defect(_) => Exit::Defect,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.why())
    }
}

/// An error and its causes in one line, without those that an error above them has told already.
pub fn chain(error: &anyhow::Error) -> String {
    let mut told = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if told.is_empty() {
            told = cause;
        } else if !told.contains(&cause) {
            told = format!("{told}: {cause}");
        }
    }
    told
}
