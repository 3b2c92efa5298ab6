//! A node's clocks as functions of true time, in integers.

use crate::Effects;

/// True speed, in millionths of itself.
pub(super) const TRUE_RATE_PPM: u32 = 1_000_000;

/// A monotonic clock that is piecewise linear in true time, and a wall clock a stepped offset away from it.
///
/// Both go on while the node is down or paused. A rate of zero stops them.
#[derive(Clone, Debug)]
pub(super) struct Clock {
    since_true_ns: u64,
    since_monotonic_ns: u64,
    rate_ppm: u32,
    wall_start_ns: u64,
    wall_offset_ns: i128,
    /// What the wall clock reads while it stands still.
    frozen_wall_ns: Option<u64>,
}

impl Clock {
    pub(super) fn new(wall_start_ns: u64) -> Clock {
        Clock {
            since_true_ns: 0,
            since_monotonic_ns: 0,
            rate_ppm: TRUE_RATE_PPM,
            wall_start_ns,
            wall_offset_ns: 0,
            frozen_wall_ns: None,
        }
    }

    /// What the monotonic clock reads at `true_ns`, which is not before the last change of rate.
    #[inline]
    pub(super) fn monotonic_ns(&self, true_ns: u64) -> u64 {
        let passed = true_ns - self.since_true_ns;
        if self.rate_ppm == TRUE_RATE_PPM {
            return self.since_monotonic_ns.saturating_add(passed);
        }
        let passed_here = u128::from(passed) * u128::from(self.rate_ppm) / u128::from(TRUE_RATE_PPM);
        saturated(u128::from(self.since_monotonic_ns) + passed_here)
    }

    /// The first true instant at which the monotonic clock reads `monotonic_ns` or more at the present rate; none while
    /// the clock stands still.
    #[inline]
    pub(super) fn true_ns(&self, monotonic_ns: u64) -> Option<u64> {
        let ahead = monotonic_ns.saturating_sub(self.since_monotonic_ns);
        match self.rate_ppm {
            TRUE_RATE_PPM => Some(self.since_true_ns.saturating_add(ahead)),
            0 if ahead > 0 => None,
            0 => Some(self.since_true_ns),
            rate => {
                let ahead_true = (u128::from(ahead) * u128::from(TRUE_RATE_PPM)).div_ceil(u128::from(rate));
                Some(saturated(u128::from(self.since_true_ns) + ahead_true))
            }
        }
    }

    pub(super) fn rate_ppm(&self) -> u32 {
        self.rate_ppm
    }

    pub(super) fn set_rate(&mut self, true_ns: u64, rate_ppm: u32) {
        self.since_monotonic_ns = self.monotonic_ns(true_ns);
        self.since_true_ns = true_ns;
        self.rate_ppm = rate_ppm;
    }

    pub(super) fn wall_ns(&self, true_ns: u64) -> u64 {
        if let Some(frozen_ns) = self.frozen_wall_ns {
            return frozen_ns;
        }
        self.going_ns(true_ns, self.wall_offset_ns)
    }

    /// What a wall clock that goes, stepped by so much, reads.
    fn going_ns(&self, true_ns: u64, offset_ns: i128) -> u64 {
        let unstepped = u128::from(self.wall_start_ns) + u128::from(self.monotonic_ns(true_ns));
        saturated(unstepped.saturating_add_signed(offset_ns))
    }

    pub(super) fn step_wall(&mut self, by_ns: i64) {
        self.wall_offset_ns += i128::from(by_ns);
    }

    /// Stops the wall clock; whether it went.
    pub(super) fn freeze_wall(&mut self, true_ns: u64) -> bool {
        let went = self.frozen_wall_ns.is_none();
        self.frozen_wall_ns = Some(self.wall_ns(true_ns));
        went
    }

    /// Lets the wall clock go on; whether it stood still.
    pub(super) fn thaw_wall(&mut self) -> bool {
        self.frozen_wall_ns.take().is_some()
    }

    /// Takes every step back.
    pub(super) fn unstep_wall(&mut self) {
        self.wall_offset_ns = 0;
    }

    /// Whether the oscillator runs at true speed, and the wall clock with it.
    pub(super) fn is_true(&self) -> bool {
        self.rate_ppm == TRUE_RATE_PPM && self.wall_offset_ns == 0 && self.frozen_wall_ns.is_none()
    }

    /// Counts an entry that is made by this clock: by what it reads, not by how it is set, which may come to nothing.
    pub(super) fn note(&self, true_ns: u64, effects: &mut Effects) {
        if self.is_true() {
            return;
        }
        let (reads_ns, passed_ns) = (self.wall_ns(true_ns), true_ns - self.since_true_ns);
        if self.frozen_wall_ns.is_some() {
            effects.notes_frozen += u64::from(reads_ns != self.going_ns(true_ns, self.wall_offset_ns));
        } else {
            effects.notes_stepped += u64::from(reads_ns != self.going_ns(true_ns, 0));
        }
        let drifts = self.monotonic_ns(true_ns) != self.since_monotonic_ns.saturating_add(passed_ns);
        effects.notes_drifting += u64::from(drifts);
    }
}

fn saturated(ns: u128) -> u64 {
    u64::try_from(ns).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_never_goes_back_and_due_times_are_exact(
            rates in prop::collection::vec((0u64..10_000_000_000, 0u32..4_000_000), 1..8),
            ahead_ns in 0u64..5_000_000_000,
        ) {
            let mut clock = Clock::new(0);
            let (mut now, mut read) = (0, 0);
            for (after_ns, rate_ppm) in rates {
                now += after_ns;
                clock.set_rate(now, rate_ppm);
                prop_assert!(clock.monotonic_ns(now) >= read);
                read = clock.monotonic_ns(now);
            }
            match clock.true_ns(read + ahead_ns) {
                None => prop_assert!(clock.rate_ppm() == 0 && ahead_ns > 0),
                Some(due) => {
                    prop_assert!(clock.monotonic_ns(due) >= read + ahead_ns);
                    prop_assert!(due == now || clock.monotonic_ns(due - 1) < read + ahead_ns);
                }
            }
        }
    }

    #[test]
    fn a_frozen_wall_clock_stands_still_and_catches_up() {
        let mut clock = Clock::new(1_000);
        assert!(clock.freeze_wall(5));
        assert!(!clock.freeze_wall(9));
        assert_eq!((clock.wall_ns(7), clock.wall_ns(99), clock.monotonic_ns(99)), (1_005, 1_005, 99));
        clock.step_wall(100);
        assert_eq!(clock.wall_ns(100), 1_005);
        assert!(clock.thaw_wall());
        assert!(!clock.thaw_wall());
        assert_eq!(clock.wall_ns(100), 1_200);
    }

    #[test]
    fn entries_are_counted_by_what_the_clock_reads() {
        let counts = |clock: &Clock, true_ns| {
            let mut effects = Effects::default();
            clock.note(true_ns, &mut effects);
            (effects.notes_stepped, effects.notes_frozen, effects.notes_drifting)
        };
        let mut clock = Clock::new(1_000);
        assert_eq!(counts(&clock, 5), (0, 0, 0));
        clock.step_wall(7);
        assert_eq!(counts(&clock, 5), (1, 0, 0));
        clock.step_wall(-7);
        assert_eq!(counts(&clock, 5), (0, 0, 0), "two steps that come to nothing");
        clock.freeze_wall(5);
        assert_eq!((counts(&clock, 5), counts(&clock, 6)), ((0, 0, 0), (0, 1, 0)));
        clock.thaw_wall();
        clock.set_rate(10, 2 * TRUE_RATE_PPM);
        assert_eq!((counts(&clock, 10), counts(&clock, 11)), ((0, 0, 0), (0, 0, 1)));
        clock.set_rate(20, TRUE_RATE_PPM);
        assert_eq!(counts(&clock, 30), (0, 0, 0), "what it gained it keeps, and runs true");
    }

    #[test]
    fn wall_steps_saturate_at_the_epoch() {
        let mut clock = Clock::new(1_000);
        clock.step_wall(-500);
        assert_eq!(clock.wall_ns(0), 500);
        clock.step_wall(-5_000);
        assert_eq!((clock.wall_ns(0), clock.wall_ns(4_600)), (0, 100));
        clock.step_wall(i64::MAX);
        assert_eq!(clock.wall_ns(0), i64::MAX as u64 - 4_500);
    }
}
