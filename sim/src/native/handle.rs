//! What a [`World`] and a [`Task`](crate::Task) hold in this engine.
//!
//! A handle outlives its node's incarnation when something keeps it, such as a destructor that runs in a kill. It is
//! mute then: what it sends, notes or starts is dropped, and no frame, compute or offload comes to it.

use super::{
    executor::{Core, Role, State, Work},
    heap::What,
    timer::{Due, Timer},
};
use crate::{Cancelled, Datagram, Disk, NodeId, Stream, Time, disk::Felled, history::assert_free_kind, random::domain};
use pin_project_lite::pin_project;
use std::{
    cell::Cell,
    future::{Future, pending, poll_fn},
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

/// What a [`World`](crate::World) holds: one incarnation of one node.
#[derive(Clone)]
pub(crate) struct Handle {
    core: Rc<Core>,
    node: NodeId,
    incarnation: u32,
}

impl Handle {
    pub(super) fn new(core: Rc<Core>, node: NodeId, incarnation: u32) -> Handle {
        Handle { core, node, incarnation }
    }

    pub(crate) fn node(&self) -> NodeId {
        self.node
    }

    pub(crate) fn incarnation(&self) -> u32 {
        self.incarnation
    }

    pub(crate) fn now(&self) -> Time {
        let state = self.core.state.borrow();
        Time(state.nodes[self.index()].clock.monotonic_ns(self.core.now_ns()))
    }

    pub(crate) fn wall_ns(&self) -> u64 {
        self.core.state.borrow().nodes[self.index()].clock.wall_ns(self.core.now_ns())
    }

    pub(crate) async fn sleep(&self, by: Duration) {
        let at_ns = self.now().plus(by).as_nanos();
        Timer::new(&self.core, Due::Monotonic { node: self.node.0, at_ns }).await;
    }

    pub(crate) async fn charge(&self, ns: u64) {
        if ns == 0 {
            return;
        }
        let done_ns = {
            let state = &mut *self.core.state.borrow_mut();
            self.is_live(state).then(|| state.nodes[self.index()].compute(self.core.now_ns(), ns))
        };
        match done_ns {
            Some(done_ns) => Timer::new(&self.core, Due::True(done_ns)).await,
            None => pending().await,
        }
    }

    pub(crate) fn send(&self, to: NodeId, frame: Vec<u8>) {
        let state = &mut *self.core.state.borrow_mut();
        if self.is_live(state) {
            let from = (self.node, self.incarnation);
            state.network.send(self.core.now_ns(), from, to, frame, &mut state.events, &mut state.stats);
        }
    }

    pub(crate) async fn recv(&self) -> Datagram {
        poll_fn(|cx| self.poll_recv(cx)).await
    }

    fn poll_recv(&self, cx: &mut Context<'_>) -> Poll<Datagram> {
        let _replaced: Option<Waker>;
        let state = &mut *self.core.state.borrow_mut();
        if !self.is_live(state) {
            return Poll::Pending;
        }
        let node = &mut state.nodes[self.index()];
        if let Some(parcel) = node.inbox.pop_front() {
            return Poll::Ready(state.network.release(parcel));
        }
        if !node.receiver.as_ref().is_some_and(|receiver| receiver.will_wake(cx.waker())) {
            _replaced = node.receiver.replace(cx.waker().clone());
        }
        Poll::Pending
    }

    pub(crate) fn disk(&self) -> Disk {
        self.core.state.borrow().nodes[self.index()].disk.disk()
    }

    pub(crate) async fn offload<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let disk = {
            let state = self.core.state.borrow();
            self.is_live(&state).then(|| state.nodes[self.index()].disk.clone())
        };
        let Some(disk) = disk else { return pending().await };
        disk.begin_offload(self.core.now_ns());
        let result = work();
        let done = disk.end_offload();
        match done.felled {
            None => {
                Timer::new(&self.core, Due::True(done.finish_ns)).await;
                result
            }
            Some(felled) => {
                drop(result);
                self.fell(felled);
                pending().await
            }
        }
    }

    fn fell(&self, Felled { at_ns, power_cut }: Felled) {
        let what = What::Fell { node: self.node.0, incarnation: self.incarnation, power_cut };
        self.core.state.borrow_mut().events.push(at_ns.max(self.core.now_ns()), what);
    }

    pub(crate) fn spawn<T: 'static>(&self, work: impl Future<Output = T> + 'static) -> NativeTask<T> {
        self.start(Role::Plain, work)
    }

    pub(crate) fn spawn_cancellable<T: 'static>(&self, work: impl Future<Output = T> + 'static) -> NativeTask<T> {
        self.start(Role::Cancellable, work)
    }

    fn start<T: 'static>(&self, role: Role, work: impl Future<Output = T> + 'static) -> NativeTask<T> {
        let join = Rc::new(Join { outcome: Cell::new(Outcome::Awaited), waker: Cell::new(None) });
        let unfinished = Unfinished { join: join.clone() };
        let work: Work = Box::pin(Settling { work: Some(work), unfinished });
        let live = self.is_live(&self.core.state.borrow());
        let task = if live { Some(self.core.start(self.node, role, work)) } else { None };
        NativeTask { core: self.core.clone(), task, join }
    }

    pub(crate) fn random(&self) -> u64 {
        let state = &mut *self.core.state.borrow_mut();
        if !self.is_live(state) {
            return 0;
        }
        let path = [domain::NODE, u64::from(self.node.0), u64::from(self.incarnation)];
        let draws = &mut state.nodes[self.index()].draws;
        draws.get_or_insert_with(|| Stream::keyed(self.core.seed, &path)).next_u64()
    }

    pub(crate) fn stream(&self, label: u64) -> Stream {
        let path = [domain::ENTITY, u64::from(self.node.0), u64::from(self.incarnation), label];
        Stream::keyed(self.core.seed, &path)
    }

    pub(crate) fn note(&self, kind: u16, data: &[u8]) {
        assert_free_kind(kind);
        {
            let state = &mut *self.core.state.borrow_mut();
            if !self.is_live(state) {
                return;
            }
            let now_ns = self.core.now_ns();
            state.nodes[self.index()].clock.note(now_ns, &mut state.stats.effects);
        }
        self.core.record(self.node, self.incarnation, kind, data);
    }

    fn is_live(&self, state: &State) -> bool {
        let node = &state.nodes[self.index()];
        node.up && node.incarnation == self.incarnation && !self.core.has_ended()
    }

    fn index(&self) -> usize {
        self.node.0 as usize
    }
}

/// What a [`Task`](crate::Task) holds.
pub(crate) struct NativeTask<T> {
    core: Rc<Core>,
    /// None if its node was down when it was started.
    task: Option<u64>,
    join: Rc<Join<T>>,
}

/// Where a task leaves its result.
struct Join<T> {
    outcome: Cell<Outcome<T>>,
    waker: Cell<Option<Waker>>,
}

enum Outcome<T> {
    Awaited,
    Settled(Result<T, Cancelled>),
    Taken,
}

/// Inside a task's future: if it is dropped before the task has settled, the task was cancelled.
struct Unfinished<T> {
    join: Rc<Join<T>>,
}

pin_project! {
    /// A task's future, which leaves its result where the task's handle finds it. An async block would hold `work` twice, as
    /// what it captured and as what it awaits, and the state of tasks is most of what a node is.
    struct Settling<T, F> {
        #[pin]
        work: Option<F>,
        unfinished: Unfinished<T>,
    }
}

impl<T, F: Future<Output = T>> Future for Settling<T, F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        let work = this.work.as_mut().as_pin_mut().expect("a task that has settled is not polled again");
        let result = ready!(work.poll(cx));
        this.work.set(None);
        this.unfinished.join.settle(Ok(result));
        Poll::Ready(())
    }
}

impl<T> Join<T> {
    fn settle(&self, result: Result<T, Cancelled>) {
        self.outcome.set(Outcome::Settled(result));
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl<T> Drop for Unfinished<T> {
    fn drop(&mut self) {
        match self.join.outcome.replace(Outcome::Taken) {
            Outcome::Awaited => self.join.settle(Err(Cancelled)),
            outcome => self.join.outcome.set(outcome),
        }
    }
}

impl<T> NativeTask<T> {
    pub(crate) fn cancel(&self) {
        if let Some(task) = self.task {
            self.core.stop(task);
        }
    }
}

impl<T> Future for NativeTask<T> {
    type Output = Result<T, Cancelled>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.join.outcome.replace(Outcome::Taken) {
            Outcome::Settled(result) => Poll::Ready(result),
            Outcome::Awaited => {
                self.join.outcome.set(Outcome::Awaited);
                self.join.waker.set(Some(cx.waker().clone()));
                Poll::Pending
            }
            Outcome::Taken => panic!("a task's result was awaited again after it was given"),
        }
    }
}
