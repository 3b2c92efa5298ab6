//! Waiting for a point in true time or on a node's own clock.

use super::executor::Core;
use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, Waker},
};

/// What a timer waits for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Due {
    /// A point in true time.
    True(u64),
    /// A reading of a node's monotonic clock, whose rate may change meanwhile.
    Monotonic { node: u32, at_ns: u64 },
}

/// A timer somebody waits for.
pub(super) struct TimerSlot {
    pub(super) due: Due,
    pub(super) waker: Waker,
    /// Whether an event is on the queue for it; a clock that stands still gets none.
    pub(super) armed: bool,
}

/// Ready once it is due; it leaves nothing but a dead event behind when it is dropped before.
pub(super) struct Timer<'a> {
    core: &'a Core,
    due: Due,
    /// Its place in the slab, which outlives a re-arming; its word does not.
    index: Option<u32>,
}

impl Timer<'_> {
    pub(super) fn new(core: &Core, due: Due) -> Timer<'_> {
        Timer { core, due, index: None }
    }
}

impl Future for Timer<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.core.is_due(self.due) {
            self.release();
            return Poll::Ready(());
        }
        match self.index {
            Some(index) => self.core.rewait(index, cx.waker()),
            None => self.index = Some(self.core.wait(self.due, cx.waker())),
        }
        Poll::Pending
    }
}

impl Timer<'_> {
    fn release(&mut self) {
        if let Some(index) = self.index.take() {
            self.core.unwait(index);
        }
    }
}

impl Drop for Timer<'_> {
    fn drop(&mut self) {
        self.release();
    }
}
