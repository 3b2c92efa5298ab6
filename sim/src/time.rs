//! Points of monotonic time, in integer nanoseconds.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A reading of a monotonic clock: nanoseconds since the engine started. Readings of two nodes do not compare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Time(pub u64);

impl Time {
    /// The engine's start.
    pub const ZERO: Time = Time(0);

    /// This reading in nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to `self`; zero when `earlier` is later.
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// `self` moved on by `by`; stops at the last representable instant, 584 years in.
    pub fn plus(self, by: Duration) -> Time {
        Time(self.0.saturating_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// A [`World::timeout`](crate::World::timeout) ran out first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("timed out after {after:?}")]
pub struct Elapsed {
    /// The time that was allowed.
    pub after: Duration,
}
