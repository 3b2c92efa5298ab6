//! What a power cut lets through of what was not synced: the draws, and their fixed order.
//!
//! One word a cut, then one word an item, whether the item needs it or not:
//! 1. the cut: of eight cuts one loses every unsynced item, one keeps them all, and six go item by item;
//! 2. each name change since the last directory sync, oldest first: its lowest bit, survives or not;
//! 3. each file with unsynced content, in order of making: its length, by the lowest bit; then each dirty page, in
//!    order: of four one is old, one new, and two are torn, each sector by a bit of its own.
//!
//! Whole pages, and whole cuts, are drawn so often on purpose: fair coins a sector would tear every page of every cut,
//! and never show a store the reordering of whole writes that disks commonly do.

use crate::Stream;

pub(super) struct Survival<'a> {
    draws: &'a mut Stream,
    rule: Rule,
    /// Whether any of it was lost so far.
    has_lost: bool,
}

enum Rule {
    Nothing,
    Everything,
    ByItem,
}

impl Survival<'_> {
    pub(super) fn drawn(draws: &mut Stream) -> Survival<'_> {
        let rule = match draws.next_u64() & 7 {
            0 => Rule::Nothing,
            1 => Rule::Everything,
            _ => Rule::ByItem,
        };
        Survival { draws, rule, has_lost: false }
    }

    /// Whether a name change, or a change of length, survives.
    pub(super) fn survives(&mut self) -> bool {
        let word = self.draws.next_u64();
        let survives = match self.rule {
            Rule::Nothing => false,
            Rule::Everything => true,
            Rule::ByItem => word & 1 == 1,
        };
        self.has_lost |= !survives;
        survives
    }

    /// Which sectors of a page are new, the lowest bit for the first.
    pub(super) fn sectors(&mut self) -> u8 {
        let word = self.draws.next_u64();
        let sectors = match (&self.rule, word & 3) {
            (Rule::Nothing, _) | (Rule::ByItem, 0) => 0,
            (Rule::Everything, _) | (Rule::ByItem, 1) => u8::MAX,
            (Rule::ByItem, _) => word.to_le_bytes()[1],
        };
        self.has_lost |= sectors != u8::MAX;
        sectors
    }

    /// Whether anything that it was asked about is lost.
    pub(super) fn has_lost(&self) -> bool {
        self.has_lost
    }
}
