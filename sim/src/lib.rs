//! The world a node lives in: clock, network, disk, tasks, randomness and history, simulated or real.
//!
//! What is in it:
//! - [`World`], a node's whole view of the outside, passed to every call that needs it;
//! - the `native` engine, a single-threaded discrete-event executor in virtual time, and its faults;
//! - the `real` engine, the same world over tokio, TCP on loopback and real files;
//! - [`Disk`] and [`File`], and the record of a run, [`History`](history).
//!
//! What is deliberately not: no ledger, no message format, no scenario, no fault *plan*. The engine can do each
//! fault; when and to whom is decided above. Nothing here reads the machine's clock or entropy but the `real` engine.

pub mod bus;
pub mod control;
pub mod disk;
pub mod history;
mod native;
pub mod play;
pub mod random;
mod real;
pub mod time;
pub mod world;

pub use bus::{Datagram, MAX_FRAME_BYTES, NodeId};
pub use control::{Control, LinkWeather, Reach, Unsupported};
pub use disk::{Disk, DiskSpec, File, Open};
pub use history::{Entry, Recorded, Recording};
pub use play::{
    Boot, Config, Director, Effects, Engine, EngineError, Fallen, NodeSpec, Observer, Played, Stats, play, play_caught,
};
pub use random::Stream;
pub use time::{Elapsed, Time};
pub use world::{Cancelled, Task, World};
