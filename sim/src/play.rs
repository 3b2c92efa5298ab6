//! One run of one cast: the nodes, the director who decides how long it lasts, and what came of it.

use crate::{Control, DiskSpec, Entry, LinkWeather, Recorded, Recording, World};
use serde::{Deserialize, Serialize};
use std::{
    any::Any,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    path::PathBuf,
    pin::Pin,
    rc::Rc,
};

/// Which implementation of [`World`] plays the cast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    /// Virtual time on our own discrete-event executor; every fault, and the same history from the same seed.
    Native,
    /// tokio, TCP on loopback, real files, one process; no fault can be injected.
    Real,
}

/// A process of the cast: what runs when it boots and again after each restart.
pub type Boot = Rc<dyn Fn(World) -> Pin<Box<dyn Future<Output = ()>>>>;

/// Called with each history entry as it is made, inside the run; it must not block or re-enter the engine.
pub type Observer = Box<dyn FnMut(&Entry<'_>)>;

/// Conducts the run from outside every node: it sleeps in true time, injects faults through [`Control`],
/// and its end is the end of the run.
pub type Director = Box<dyn FnOnce(Control) -> Pin<Box<dyn Future<Output = ()>>>>;

/// One node of a cast.
pub struct NodeSpec {
    /// A name for people, such as `ledger` or `agent-3`.
    pub name: String,
    /// How many [`World::charge`]s run side by side; at least 1.
    pub cores: u32,
    /// How its disk behaves.
    pub disk: DiskSpec,
    /// What it runs.
    pub boot: Boot,
}

/// What a run is given beside its cast.
#[derive(Clone, Debug)]
pub struct Config {
    /// Every random draw of the run derives from it.
    pub seed: u64,
    /// From this scheduling decision on, ready tasks run first in, first out; `None` keeps the seeded order throughout.
    pub schedule_cut: Option<u64>,
    /// How much of the history is kept.
    pub recording: Recording,
    /// The weather of every link until a fault changes it.
    pub weather: LinkWeather,
    /// What [`World::wall_ns`] reads at the start, in nanoseconds since the Unix epoch (native engine only).
    pub wall_start_ns: u64,
    /// Where the `real` engine keeps each node's files, one folder a node; unused by `native`.
    pub root: Option<PathBuf>,
}

/// What came of a run.
#[derive(Debug)]
pub struct Played {
    /// The history: its hash, its end, and all of it if that was asked for.
    pub history: Recorded,
    /// How long the run lasted on the engine's own clock, in nanoseconds.
    pub elapsed_ns: u64,
    /// Counts kept by the engine.
    pub stats: Stats,
}

/// What is left of a run that panicked.
#[derive(Debug)]
pub struct Fallen {
    /// The history up to the panic, without a [`kind::CLOSE`](crate::history::kind::CLOSE); `None` on the real engine, or if
    /// the panic came out of the making of the history.
    pub history: Option<Recorded>,
    /// When, on the engine's own clock, in nanoseconds; 0 on the real engine.
    pub at_ns: u64,
    /// What the panic carried.
    pub panic: Box<dyn Any + Send>,
}

/// Counts kept by an engine over one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// Events taken off the queue (native) or frames and timers served (real).
    pub events: u64,
    /// Task polls.
    pub polls: u64,
    /// Frames handed to [`World::send`].
    pub frames_sent: u64,
    /// Frames that reached a node.
    pub frames_delivered: u64,
    /// Frames lost to weather, partitions or dead nodes.
    pub frames_lost: u64,
    /// Frames lost because a bound was reached: too long, or the link was full.
    pub frames_overflowed: u64,
    /// Extra copies delivered.
    pub frames_repeated: u64,
    /// Disk operations that took effect.
    pub disk_operations: u64,
    /// Scheduling decisions: how often more than one task was ready (native). [`Config::schedule_cut`] counts in them.
    pub decisions: u64,
    /// What faults did (native).
    #[serde(default)]
    pub effects: Effects,
}

/// How often faults made a difference, by their causes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Effects {
    /// Frames lost by the weather of their link.
    pub frames_lost: u64,
    /// Frames lost because their link was cut when they were sent, or since.
    pub frames_cut: u64,
    /// Second copies of frames that arrived.
    pub frames_repeated: u64,
    /// Frames that arrived before one that was sent ahead of them on the same link.
    pub frames_overtaking: u64,
    /// Frames held back by a spike.
    pub frames_spiked: u64,
    /// Frames that waited for, or were lost at, a link that passes only so many bytes a second.
    pub frames_queued: u64,
    /// Tasks dropped at an await.
    pub tasks_cancelled: u64,
    /// Tasks whose turn came while their node was paused, and that went on when it was resumed.
    pub tasks_held: u64,
    /// Entries noted by a node whose wall clock read other than it would have without a step.
    pub notes_stepped: u64,
    /// Entries noted by a node whose wall clock read other than it would have, had it not stood still.
    pub notes_frozen: u64,
    /// Entries noted by a node whose monotonic clock read other than at true speed since the last change.
    pub notes_drifting: u64,
    /// Power cuts that lost something which was written and not synced.
    #[serde(default)]
    pub cuts_losing: u64,
}

/// The run could not be played.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The real engine could not use the machine.
    #[error("the real engine cannot {doing}: {source}")]
    Machine {
        /// What it was about to do.
        doing: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// The real engine needs a folder for files.
    #[error("the real engine needs a folder for its files: set Config::root")]
    NoRoot,
    /// Every task is asleep for ever and the director is not done: the run can make no progress.
    #[error("nothing can happen any more at {at_ns} ns, and the director still waits")]
    Stuck {
        /// Virtual time of the last event.
        at_ns: u64,
    },
}

/// Plays `cast` on `engine` until the director is done.
///
/// Native runs are deterministic: the same binary, config, cast and director give a byte-identical history.
/// A panic in the run goes on.
pub fn play(
    engine: Engine,
    config: Config,
    cast: Vec<NodeSpec>,
    director: Director,
    observer: Observer,
) -> Result<Played, EngineError> {
    play_caught(engine, config, cast, director, observer)?.map_err(|fallen| resume_unwind(fallen.panic))
}

/// As [`play`], and a panic in the run is caught, with what there is of the history by then.
pub fn play_caught(
    engine: Engine,
    config: Config,
    cast: Vec<NodeSpec>,
    director: Director,
    observer: Observer,
) -> Result<Result<Played, Fallen>, EngineError> {
    match engine {
        Engine::Native => crate::native::play(config, cast, director, observer),
        Engine::Real => {
            let played = catch_unwind(AssertUnwindSafe(|| crate::real::play(config, cast, director, observer)));
            match played {
                Ok(played) => played.map(Ok),
                Err(panic) => Ok(Err(Fallen { history: None, at_ns: 0, panic })),
            }
        }
    }
}
