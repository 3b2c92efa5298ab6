//! How long a run did nothing but wait for the ledger.

use super::asking::nanos;
use sim::{Time, World};
use std::{cell::Cell, rc::Rc};

/// Counts the time in which something was asked of the ledger for a run while none of its calls was on the wire.
pub(super) struct Meter {
    world: World,
    asks: Cell<u32>,
    calls: Cell<u32>,
    since: Cell<Time>,
    waited_ns: Cell<u64>,
}

impl Meter {
    /// Nothing asked, nothing on the wire.
    pub(super) fn new(world: World) -> Meter {
        let since = Cell::new(world.now());
        Meter { world, asks: Cell::new(0), calls: Cell::new(0), since, waited_ns: Cell::new(0) }
    }

    /// Something is asked of the ledger until what this gives back is dropped.
    pub(super) fn ask(self: &Rc<Self>) -> Metered {
        self.begin(|meter| &meter.asks)
    }

    /// A call is on the wire until what this gives back is dropped.
    pub(super) fn call(self: &Rc<Self>) -> Metered {
        self.begin(|meter| &meter.calls)
    }

    /// Nanoseconds counted so far.
    pub(super) fn waited_ns(&self) -> u64 {
        self.turn();
        self.waited_ns.get()
    }

    fn begin(self: &Rc<Self>, count: fn(&Meter) -> &Cell<u32>) -> Metered {
        self.turn();
        count(self).set(count(self).get() + 1);
        Metered { meter: self.clone(), count }
    }

    fn turn(&self) {
        let now = self.world.now();
        if self.asks.get() > 0 && self.calls.get() == 0 {
            self.waited_ns.set(self.waited_ns.get() + nanos(now.since(self.since.get())));
        }
        self.since.set(now);
    }
}

/// Something that is being counted; it ends when this is dropped, however that comes.
pub(super) struct Metered {
    meter: Rc<Meter>,
    count: fn(&Meter) -> &Cell<u32>,
}

impl Drop for Metered {
    fn drop(&mut self) {
        self.meter.turn();
        let count = (self.count)(&self.meter);
        count.set(count.get() - 1);
    }
}
