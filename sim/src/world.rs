//! A node's whole view of the outside.

use crate::{Datagram, Disk, Elapsed, NodeId, Stream, Time, native, real};
use std::{
    future::Future,
    pin::{Pin, pin},
    task::{Context, Poll},
    time::Duration,
};

/// A node's whole view of the outside: its clocks, its bus, its disk, its tasks, its randomness, and the run's history.
///
/// A `World` belongs to one incarnation of one node and is cheap to clone. It is passed explicitly to whatever needs it.
/// Tasks are single-threaded in every engine; only [`Disk`] and offloaded closures are `Send`.
#[derive(Clone)]
pub struct World {
    inner: Inner,
}

#[derive(Clone)]
enum Inner {
    Native(native::Handle),
    Real(real::Handle),
}

/// A spawned task. Dropping the handle leaves the task running; awaiting it gives its result.
pub struct Task<T> {
    inner: TaskInner<T>,
}

enum TaskInner<T> {
    Native(native::NativeTask<T>),
    Real(real::RealTask<T>),
}

/// The task was dropped before it finished: by [`Task::cancel`] or by a cancel fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the task was cancelled before it finished")]
pub struct Cancelled;

impl<T> Task<T> {
    /// Drops the task's future at once, at whatever await it stands.
    pub fn cancel(&self) {
        match &self.inner {
            TaskInner::Native(task) => task.cancel(),
            TaskInner::Real(task) => task.cancel(),
        }
    }
}

impl<T> Future for Task<T> {
    type Output = Result<T, Cancelled>;
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.get_mut().inner {
            TaskInner::Native(task) => Pin::new(task).poll(cx),
            TaskInner::Real(task) => Pin::new(task).poll(cx),
        }
    }
}

impl World {
    pub(crate) fn native(handle: native::Handle) -> World {
        World { inner: Inner::Native(handle) }
    }

    pub(crate) fn real(handle: real::Handle) -> World {
        World { inner: Inner::Real(handle) }
    }

    /// This node's address.
    pub fn node(&self) -> NodeId {
        match &self.inner {
            Inner::Native(handle) => handle.node(),
            Inner::Real(handle) => handle.node(),
        }
    }

    /// How often this node was restarted before: 0 at its first boot.
    pub fn incarnation(&self) -> u32 {
        match &self.inner {
            Inner::Native(handle) => handle.incarnation(),
            Inner::Real(handle) => handle.incarnation(),
        }
    }

    /// This node's monotonic clock. It follows the node's oscillator, which may drift; it is never stepped.
    pub fn now(&self) -> Time {
        match &self.inner {
            Inner::Native(handle) => handle.now(),
            Inner::Real(handle) => handle.now(),
        }
    }

    /// This node's wall clock in nanoseconds since the Unix epoch. It may be stepped, backward too; decide nothing by it.
    pub fn wall_ns(&self) -> u64 {
        match &self.inner {
            Inner::Native(handle) => handle.wall_ns(),
            Inner::Real(handle) => handle.wall_ns(),
        }
    }

    /// Waits until this node's monotonic clock has moved on by `by`.
    pub async fn sleep(&self, by: Duration) {
        match &self.inner {
            Inner::Native(handle) => handle.sleep(by).await,
            Inner::Real(handle) => Box::pin(handle.sleep(by)).await, // far larger than the other, and in most futures
        }
    }

    /// Runs `work` for at most `limit` of this node's monotonic clock, then drops it.
    ///
    /// Work that is ready at the very instant the limit runs out wins.
    pub async fn timeout<F: Future>(&self, limit: Duration, work: F) -> Result<F::Output, Elapsed> {
        let mut work = pin!(work);
        let mut limit_reached = pin!(self.sleep(limit));
        std::future::poll_fn(|cx| {
            if let Poll::Ready(output) = work.as_mut().poll(cx) {
                return Poll::Ready(Ok(output));
            }
            limit_reached.as_mut().poll(cx).map(|()| Err(Elapsed { after: limit }))
        })
        .await
    }

    /// Spends `ns` nanoseconds of compute on one of the node's cores, waiting while all are busy. Free in the real engine.
    pub async fn charge(&self, ns: u64) {
        match &self.inner {
            Inner::Native(handle) => handle.charge(ns).await,
            Inner::Real(handle) => handle.charge(ns).await,
        }
    }

    /// Sends a frame, which may be lost, repeated, reordered or delayed. Never blocks; see [`crate::bus`] for the bounds.
    pub fn send(&self, to: NodeId, frame: Vec<u8>) {
        match &self.inner {
            Inner::Native(handle) => handle.send(to, frame),
            Inner::Real(handle) => handle.send(to, frame),
        }
    }

    /// The next frame for this node. One task of a node receives at a time.
    pub async fn recv(&self) -> Datagram {
        match &self.inner {
            Inner::Native(handle) => handle.recv().await,
            Inner::Real(handle) => handle.recv().await,
        }
    }

    /// This node's disk.
    pub fn disk(&self) -> Disk {
        match &self.inner {
            Inner::Native(handle) => handle.disk(),
            Inner::Real(handle) => handle.disk(),
        }
    }

    /// Runs blocking work beside the node's tasks and gives back its result.
    ///
    /// In simulation the closure runs at once, each disk operation in it is stamped with a virtual start and end, and the
    /// result arrives at the last stamp. A kill at time t, or at a chosen operation, discards what was stamped later.
    pub async fn offload<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        match &self.inner {
            Inner::Native(handle) => handle.offload(work).await,
            Inner::Real(handle) => handle.offload(work).await,
        }
    }

    /// Starts a task on this node. It ends with the node's incarnation.
    pub fn spawn<T: 'static>(&self, work: impl Future<Output = T> + 'static) -> Task<T> {
        let inner = match &self.inner {
            Inner::Native(handle) => TaskInner::Native(handle.spawn(work)),
            Inner::Real(handle) => TaskInner::Real(handle.spawn(work)),
        };
        Task { inner }
    }

    /// Starts a task that a cancel fault may drop at any await.
    pub fn spawn_cancellable<T: 'static>(&self, work: impl Future<Output = T> + 'static) -> Task<T> {
        let inner = match &self.inner {
            Inner::Native(handle) => TaskInner::Native(handle.spawn_cancellable(work)),
            Inner::Real(handle) => TaskInner::Real(handle.spawn_cancellable(work)),
        };
        Task { inner }
    }

    /// The next draw of this incarnation's own stream.
    pub fn random(&self) -> u64 {
        match &self.inner {
            Inner::Native(handle) => handle.random(),
            Inner::Real(handle) => handle.random(),
        }
    }

    /// A stream of its own for one entity of this node, keyed by `label`: other draws never shift it.
    pub fn stream(&self, label: u64) -> Stream {
        match &self.inner {
            Inner::Native(handle) => handle.stream(label),
            Inner::Real(handle) => handle.stream(label),
        }
    }

    /// Appends an entry to the run's history. `kind` is 16 or more; lower ones are the engine's.
    pub fn note(&self, kind: u16, data: &[u8]) {
        match &self.inner {
            Inner::Native(handle) => handle.note(kind, data),
            Inner::Real(handle) => handle.note(kind, data),
        }
    }
}
