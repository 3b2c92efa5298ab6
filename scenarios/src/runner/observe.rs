//! What the observer sees: each history entry decoded once, shown to the tally and to the invariants.

use super::{
    director::{News, WentDown},
    happening::happenings,
    tally::Tally,
};
use crate::{
    invariant::{Sight, Watch, decode},
    sometimes::Seen,
};
use kernel::serve::BUSY;
use sim::{Entry, history::kind};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

/// What [`kind::DOWN`] says of a node whose process ended of itself.
const ENDED: u8 = 0;

/// The observer's state, shared with whoever plays the run.
pub(super) struct Observed {
    pub tally: RefCell<Tally>,
    pub watch: RefCell<Watch>,
    pub seen: RefCell<Seen>,
    /// The sequence after the last record told of.
    told: Cell<u64>,
    /// Entries so far, and the time of the last: how far a run came that ended in a panic.
    pub entries: Cell<u64>,
    pub last_ns: Cell<u64>,
}

impl Observed {
    pub(super) fn new(watch: Watch, seen: Seen) -> Observed {
        Observed {
            tally: RefCell::new(Tally::new()),
            watch: RefCell::new(watch),
            seen: RefCell::new(seen),
            told: Cell::new(0),
            entries: Cell::new(0),
            last_ns: Cell::new(0),
        }
    }

    /// Takes one entry in, and rings for the director when it has to do something about it.
    pub(super) fn entry(&self, entry: &Entry<'_>, news: &Rc<News>) {
        self.entries.set(self.entries.get() + 1);
        self.last_ns.set(entry.time_ns);
        if news.at_rest.get() {
            return;
        }
        if entry.kind == kind::DOWN {
            let by_itself = entry.data.first().is_none_or(|how| *how == ENDED);
            if !by_itself {
                self.tally.borrow_mut().killed();
            }
            news.down.borrow_mut().push_back(WentDown { node: entry.node, by_itself });
            news.ring.notify_one();
        }
        if entry.kind == BUSY {
            self.seen.borrow_mut().turned_away();
        }
        let mut watch = self.watch.borrow_mut();
        match decode(entry) {
            Ok(Sight::Other) => return watch.skip(),
            Ok(sight) => {
                self.tally.borrow_mut().at(entry.time_ns, &sight);
                self.tell(&sight, news);
                watch.take_decoded(entry, &sight);
            }
            Err(_) => watch.take(entry),
        }
        if watch.broken().is_some() && !news.broken.replace(true) {
            news.ring.notify_one();
        }
    }

    /// Tells what was reached and what happened, each record once: a frame may be seen twice, when it was made and when the
    /// ledger was opened after it.
    fn tell(&self, sight: &Sight, news: &News) {
        let records = match sight {
            Sight::Ledger(_, records) => records.as_slice(),
            _ => &[],
        };
        let fresh = &records[records.partition_point(|record| record.seq < self.told.get())..];
        if let Some(last) = fresh.last() {
            self.told.set(last.seq + 1);
        }
        self.seen.borrow_mut().at(sight, fresh);
        happenings(sight, fresh).for_each(|what| news.happened(what));
    }
}
