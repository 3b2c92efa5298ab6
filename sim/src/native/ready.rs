//! Which of the tasks that are ready at one instant runs next.
//!
//! The order is a keyed mix of (seed, node, task, wake number) rather than draws from one sequence: a task that is
//! added or taken away leaves the relative order of all others as it was.

use crate::NodeId;
use std::{cmp::Reverse, collections::BinaryHeap};

/// The tasks that wait for their turn.
pub(super) struct Ready {
    seed: u64,
    waiting: BinaryHeap<Reverse<Place>>,
    pushed: u64,
    decisions: u64,
    cut: Option<u64>,
}

/// A task's place in the order: its rank, then first in, first out.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    rank: u64,
    pushed: u64,
    task: u64,
}

/// What a task keeps between its turns.
pub(super) struct Turns {
    salt: u64,
    wakes: u64,
    waits: bool,
}

impl Turns {
    /// The task's turn has come: from here on it can be woken anew.
    pub(super) fn begin(&mut self) {
        self.waits = false;
    }
}

impl Ready {
    pub(super) fn new(seed: u64, cut: Option<u64>) -> Ready {
        Ready { seed, waiting: BinaryHeap::new(), pushed: 0, decisions: 0, cut }
    }

    /// The turns of a new task.
    pub(super) fn turns(&self, node: NodeId, ordinal: u64) -> Turns {
        let salt = mixed(mixed(mixed(self.seed).wrapping_add(u64::from(node.0))).wrapping_add(ordinal));
        Turns { salt, wakes: 0, waits: false }
    }

    /// Lines a task up, unless it already waits.
    #[inline]
    pub(super) fn push(&mut self, task: u64, turns: &mut Turns) {
        if std::mem::replace(&mut turns.waits, true) {
            return;
        }
        turns.wakes += 1;
        let rank = if self.is_cut() { 0 } else { mixed(turns.salt.wrapping_add(turns.wakes)) };
        self.waiting.push(Reverse(Place { rank, pushed: self.pushed, task }));
        self.pushed += 1;
    }

    /// The task whose turn it is. It is a decision if more than one waits.
    #[inline]
    pub(super) fn next(&mut self) -> Option<u64> {
        if self.waiting.len() > 1 {
            if self.cut == Some(self.decisions) {
                self.waiting = self.waiting.drain().map(|Reverse(place)| Reverse(Place { rank: 0, ..place })).collect();
            }
            self.decisions += 1;
        }
        self.waiting.pop().map(|Reverse(place)| place.task)
    }

    pub(super) fn decisions(&self) -> u64 {
        self.decisions
    }

    fn is_cut(&self) -> bool {
        self.cut.is_some_and(|cut| self.decisions >= cut)
    }
}

/// The finaliser of SplitMix64 (Steele, Lea and Flood, 2014): a bijection in which every bit moves every other.
#[inline]
fn mixed(word: u64) -> u64 {
    let mut mixed = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
