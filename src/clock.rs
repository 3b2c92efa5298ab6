//! The machine's clock, for how long things take here and when a record was made. Nothing that is played reads it.
#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "wall time of the command itself")]

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Runs from its making.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts.
    pub fn start() -> Stopwatch {
        Stopwatch(Instant::now())
    }

    /// The time since the start.
    pub fn elapsed(self) -> Duration {
        self.0.elapsed()
    }

    /// The same in nanoseconds.
    pub fn elapsed_ns(self) -> u64 {
        u64::try_from(self.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Seconds since the Unix epoch.
pub fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
