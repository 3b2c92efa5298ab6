//! A node's whole view of the outside.

use crate::{Datagram, Disk, Elapsed, NodeId, Stream, Time};
use std::{future::Future, marker::PhantomData, time::Duration};

/// A node's whole view of the outside: its clocks, its bus, its disk, its tasks, its randomness, and the run's history.
///
/// A `World` belongs to one incarnation of one node and is cheap to clone. It is passed explicitly to whatever needs it.
/// Tasks are single-threaded in every engine; only [`Disk`] and offloaded closures are `Send`.
#[derive(Clone)]
pub struct World {
    _stub: PhantomData<()>,
}

/// A spawned task. Dropping the handle leaves the task running; awaiting it gives its result.
pub struct Task<T> {
    _stub: PhantomData<T>,
}

/// The task was dropped before it finished: by [`Task::cancel`] or by a cancel fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the task was cancelled before it finished")]
pub struct Cancelled;

impl<T> Task<T> {
    /// Drops the task's future at once, at whatever await it stands.
    pub fn cancel(&self) {
        todo!()
    }
}

impl<T> Future for Task<T> {
    type Output = Result<T, Cancelled>;
    fn poll(self: std::pin::Pin<&mut Self>, _: &mut std::task::Context<'_>) -> std::task::Poll<Self::Output> {
        todo!()
    }
}

impl World {
    /// This node's address.
    pub fn node(&self) -> NodeId {
        todo!()
    }

    /// How often this node was restarted before: 0 at its first boot.
    pub fn incarnation(&self) -> u32 {
        todo!()
    }

    /// This node's monotonic clock. It follows the node's oscillator, which may drift; it is never stepped.
    pub fn now(&self) -> Time {
        todo!()
    }

    /// This node's wall clock in nanoseconds since the Unix epoch. It may be stepped, backward too; decide nothing by it.
    pub fn wall_ns(&self) -> u64 {
        todo!()
    }

    /// Waits until this node's monotonic clock has moved on by `by`.
    pub async fn sleep(&self, by: Duration) {
        let _ = by;
        todo!()
    }

    /// Runs `work` for at most `limit` of this node's monotonic clock, then drops it.
    pub async fn timeout<F: Future>(&self, limit: Duration, work: F) -> Result<F::Output, Elapsed> {
        let _ = (limit, work);
        todo!()
    }

    /// Spends `ns` nanoseconds of compute on one of the node's cores, waiting while all are busy. Free in the real engine.
    pub async fn charge(&self, ns: u64) {
        let _ = ns;
        todo!()
    }

    /// Sends a frame, which may be lost, repeated, reordered or delayed. Never blocks; see [`crate::bus`] for the bounds.
    pub fn send(&self, to: NodeId, frame: Vec<u8>) {
        let _ = (to, frame);
        todo!()
    }

    /// The next frame for this node. One task of a node receives at a time.
    pub async fn recv(&self) -> Datagram {
        todo!()
    }

    /// This node's disk.
    pub fn disk(&self) -> Disk {
        todo!()
    }

    /// Runs blocking work beside the node's tasks and gives back its result.
    ///
    /// In simulation the closure runs at once, each disk operation in it is stamped with a virtual start and end, and the
    /// result arrives at the last stamp. A kill at time t, or at a chosen operation, discards what was stamped later.
    pub async fn offload<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let _ = work;
        todo!()
    }

    /// Starts a task on this node. It ends with the node's incarnation.
    pub fn spawn<T: 'static>(&self, work: impl Future<Output = T> + 'static) -> Task<T> {
        let _ = work;
        todo!()
    }

    /// Starts a task that a cancel fault may drop at any await.
    pub fn spawn_cancellable<T: 'static>(&self, work: impl Future<Output = T> + 'static) -> Task<T> {
        let _ = work;
        todo!()
    }

    /// The next draw of this incarnation's own stream.
    pub fn random(&self) -> u64 {
        todo!()
    }

    /// A stream of its own for one entity of this node, keyed by `label`: other draws never shift it.
    pub fn stream(&self, label: u64) -> Stream {
        let _ = label;
        todo!()
    }

    /// Appends an entry to the run's history. `kind` is 16 or more; lower ones are the engine's.
    pub fn note(&self, kind: u16, data: &[u8]) {
        let _ = (kind, data);
        todo!()
    }
}
