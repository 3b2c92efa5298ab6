//! Whether faults made a difference: by the engine's counts where a kind has one of its own, and act by act where several
//! kinds share one.

use crate::{cast::Stage, sometimes::Sometimes};
use faults::Kind;
use sim::{Control, Effects};
use std::{cell::RefCell, collections::BTreeSet};

/// What is known so far.
#[derive(Debug, Default)]
pub(super) struct Witness {
    /// The kinds that began.
    pub begun: RefCell<BTreeSet<Kind>>,
    /// What acts were seen to do.
    pub felt: RefCell<BTreeSet<Sometimes>>,
}

impl Witness {
    pub(super) fn felt(&self, kind: Kind) {
        self.felt.borrow_mut().insert(Sometimes::Felt(kind));
    }

    /// Everything felt, once the run is over.
    pub(super) fn all(&self, effects: &Effects, stage: &Stage) -> BTreeSet<Sometimes> {
        let mut all = self.felt.borrow().clone();
        all.extend(stage.felt_kinds.borrow().iter().map(|kind| Sometimes::Felt(*kind)));
        let counted = |kind: &&Kind| counted(**kind, effects) > 0;
        all.extend(self.begun.borrow().iter().filter(counted).map(|kind| Sometimes::Felt(*kind)));
        all
    }
}

/// The engine's count that no other kind adds to; 0 for those that have none.
fn counted(kind: Kind, effects: &Effects) -> u64 {
    match kind {
        Kind::Loss => effects.frames_lost,
        Kind::Repeat => effects.frames_repeated,
        Kind::Reorder => effects.frames_overtaking,
        Kind::DelaySpike => effects.frames_spiked,
        Kind::Clog => effects.frames_queued,
        Kind::Cancel => effects.tasks_cancelled,
        Kind::Pause => effects.tasks_held,
        Kind::ClockStep => effects.notes_stepped,
        Kind::ClockFreeze => effects.notes_frozen,
        Kind::ClockDrift => effects.notes_drifting,
        Kind::PowerCut => effects.cuts_losing,
        _ => 0,
    }
}

/// Whether nothing of any fault is left, in the engine or on the stage.
pub(super) fn is_over(control: &Control, stage: &Stage) -> bool {
    let is_mannered = stage.manners.borrow().is_empty() && !stage.starts.any_twice();
    control.is_calm() && is_mannered && stage.provider.get() == Default::default() && stage.orders.borrow().is_empty()
}
