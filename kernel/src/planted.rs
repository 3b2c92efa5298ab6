//! Planted bugs: known mistakes compiled in behind the `planted` feature, each off until named, so that a gate's power to
//! find them is measured and not guessed. Without the feature only the right branch is compiled.

/// A known mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Bug {
    /// A write under a fence below the highest seen, or under another's lease, is accepted (F14).
    SkipFence,
    /// The cap check forgets what is live, as if a call were charged only after it (F1).
    CheckAfterCall,
    /// Repeats are decided afresh.
    DropDedup,
    /// Replies leave before the commit is durable.
    AcknowledgeEarly,
    /// The client does not release a failed call's reservation (F2).
    ForgetRelease,
    /// The run-level cap is skipped (F4).
    SkipLevel,
    /// A lock is granted to a waiter whose own term has ended (F16).
    GrantExpired,
    /// Ledger time follows the wall clock (F17).
    WallClockLease,
    /// A reservation that has ended is released again and its slot given back twice (F19).
    ReleaseTwice,
    /// Ending a run releases all its reservations, those with a settle on its way too (F3).
    BlanketRelease,
    /// A run that is refused takes its place in its user's day all the same (F22).
    QuotaLeak,
    /// A reserve does not read the halt switch (F24).
    HaltIgnored,
    /// A lock that comes free is granted under the fence it was last held under (F14).
    FenceReused,
    /// A call is settled at what was set aside for it.
    SettleAtEstimate,
    /// The last frame's decisions are lost when the ledger is opened.
    LostDecided,
    /// A question that is being asked is asked again, each asker paying for it (F8).
    LeadTwice,
    /// A call that is unsafe to send twice is sent again when its outcome is not known (F6).
    UnsafeRetried,
    /// The edge counts from one multiple of its window to the next, so that a burst across one passes twice (F23).
    FixedWindow,
    /// What begins something of a run does not look whether it was cancelled (F24).
    CancelIgnored,
    /// The end that a worker states overwrites a run's cancel (F24).
    CancelOverwritten,
    /// A call leaves before its dispatch is durable.
    LeaveEarly,
}

impl Bug {
    /// Every planted bug.
    pub const ALL: [Bug; 21] = [
        Bug::SkipFence,
        Bug::CheckAfterCall,
        Bug::DropDedup,
        Bug::AcknowledgeEarly,
        Bug::ForgetRelease,
        Bug::SkipLevel,
        Bug::GrantExpired,
        Bug::WallClockLease,
        Bug::ReleaseTwice,
        Bug::BlanketRelease,
        Bug::QuotaLeak,
        Bug::HaltIgnored,
        Bug::FenceReused,
        Bug::SettleAtEstimate,
        Bug::LostDecided,
        Bug::LeadTwice,
        Bug::UnsafeRetried,
        Bug::FixedWindow,
        Bug::CancelIgnored,
        Bug::CancelOverwritten,
        Bug::LeaveEarly,
    ];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Bug::SkipFence => "skip-fence",
            Bug::CheckAfterCall => "check-after-call",
            Bug::DropDedup => "drop-dedup",
            Bug::AcknowledgeEarly => "acknowledge-early",
            Bug::ForgetRelease => "forget-release",
            Bug::SkipLevel => "skip-level",
            Bug::GrantExpired => "grant-expired",
            Bug::WallClockLease => "wall-clock-lease",
            Bug::ReleaseTwice => "release-twice",
            Bug::BlanketRelease => "blanket-release",
            Bug::QuotaLeak => "quota-leak",
            Bug::HaltIgnored => "halt-ignored",
            Bug::FenceReused => "fence-reused",
            Bug::SettleAtEstimate => "settle-at-estimate",
            Bug::LostDecided => "lost-decided",
            Bug::LeadTwice => "lead-twice",
            Bug::UnsafeRetried => "unsafe-retried",
            Bug::FixedWindow => "fixed-window",
            Bug::CancelIgnored => "cancel-ignored",
            Bug::CancelOverwritten => "cancel-overwritten",
            Bug::LeaveEarly => "leave-early",
        }
    }

    /// What goes wrong, in one line.
    pub const fn summary(self) -> &'static str {
        match self {
            Bug::SkipFence => "a write under a deposed fence or another's lease is accepted",
            Bug::CheckAfterCall => "the cap check forgets what is live",
            Bug::DropDedup => "a repeated request is decided afresh",
            Bug::AcknowledgeEarly => "replies leave before the commit is durable",
            Bug::ForgetRelease => "a failed call's reservation is not released",
            Bug::SkipLevel => "the run-level cap is not checked",
            Bug::GrantExpired => "a lock is granted to a waiter whose own term has ended",
            Bug::WallClockLease => "ledger time follows the wall clock",
            Bug::ReleaseTwice => "an ended reservation is released again, and its slot given back twice",
            Bug::BlanketRelease => "ending a run releases reservations whose settle is on its way",
            Bug::QuotaLeak => "a run that is refused takes its place in its user's day all the same",
            Bug::HaltIgnored => "a reserve does not read the halt switch",
            Bug::FenceReused => "a lock that comes free is granted under its last fence again",
            Bug::SettleAtEstimate => "a call is settled at what was set aside, not at what it used",
            Bug::LostDecided => "an opening forgets the decisions of the last frame",
            Bug::LeadTwice => "a question that is being asked is asked and paid for again",
            Bug::UnsafeRetried => "a call that is unsafe to send twice is sent again after a crash",
            Bug::FixedWindow => {
                "the edge counts anew at each multiple of its window, and a burst across one passes twice"
            }
            Bug::CancelIgnored => "an attempt or a call begins although its run was cancelled",
            Bug::CancelOverwritten => "a run that was cancelled ends as its worker says",
            Bug::LeaveEarly => "a call leaves before its dispatch is durable",
        }
    }

    /// The bug of that name.
    pub fn named(name: &str) -> Option<Bug> {
        Bug::ALL.into_iter().find(|bug| bug.name() == name)
    }
}

#[cfg(feature = "planted")]
mod switch {
    use super::Bug;
    use std::sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    };

    /// Which bugs are on in one run, and how often each was reached. Clones share the counts.
    #[derive(Clone, Debug, Default)]
    pub struct Planted {
        on: u32,
        reached: Arc<[AtomicU64; Bug::ALL.len()]>,
    }

    impl Planted {
        /// None.
        pub fn none() -> Planted {
            Planted::default()
        }

        /// These.
        pub fn these(bugs: &[Bug]) -> Planted {
            Planted { on: bugs.iter().fold(0, |on, bug| on | 1 << *bug as u32), reached: Arc::default() }
        }

        /// Whether the bug is on.
        pub fn is_on(&self, bug: Bug) -> bool {
            self.on & (1 << bug as u32) != 0
        }

        /// Counts one place where the bug, on or not, would have made a difference.
        pub fn reach(&self, bug: Bug) {
            self.reached[bug as usize].fetch_add(1, Ordering::Relaxed);
        }

        /// How often the bug would have made a difference.
        pub fn reached(&self, bug: Bug) -> u64 {
            self.reached[bug as usize].load(Ordering::Relaxed)
        }
    }
}

#[cfg(not(feature = "planted"))]
mod switch {
    use super::Bug;

    /// Nothing can be planted in this build.
    #[derive(Clone, Debug, Default)]
    pub struct Planted;

    impl Planted {
        /// None.
        pub fn none() -> Planted {
            Planted
        }

        /// Never.
        pub const fn is_on(&self, _: Bug) -> bool {
            false
        }

        /// Counts nothing.
        pub const fn reach(&self, _: Bug) {}
    }
}

pub use switch::Planted;

/// `planted!(planted, Bug::X, right, wrong)`: the value of `right`, or of `wrong` while the bug is on. Both are evaluated, so
/// neither may have an effect of its own, and the bug counts as reached when they differ.
#[cfg(feature = "planted")]
#[macro_export]
macro_rules! planted {
    ($planted:expr, $bug:expr, $right:expr, $wrong:expr) => {{
        let (right, wrong) = ($right, $wrong);
        if right != wrong {
            $planted.reach($bug);
        }
        if $planted.is_on($bug) { wrong } else { right }
    }};
}

/// Without the feature: `right`.
#[cfg(not(feature = "planted"))]
#[macro_export]
macro_rules! planted {
    ($planted:expr, $bug:expr, $right:expr, $wrong:expr) => {{
        let _ = (&$planted, $bug);
        $right
    }};
}
