//! Tasks of a node, each inside a tokio task of its own.

use super::run::{Failure, Run};
use crate::Cancelled;
use pin_project_lite::pin_project;
use std::{
    cell::{Cell, RefCell},
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker, ready},
};
use tokio::sync::oneshot;

/// What is polled: the work itself and whatever hands its result on.
pub(super) type Work = Pin<Box<dyn Future<Output = ()>>>;

/// What a [`Task`](crate::Task) holds.
pub(crate) struct RealTask<T> {
    body: Rc<Body>,
    result: oneshot::Receiver<T>,
}

/// The work, within reach of whoever may cancel it: tokio's own abort would drop it some time later.
#[derive(Default)]
struct Body {
    /// None while it is polled, and when it is over.
    work: RefCell<Option<Work>>,
    cancelled: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

/// The future that tokio polls.
pub(super) struct Polled {
    run: Rc<Run>,
    body: Rc<Body>,
}

impl Polled {
    pub(super) fn new(run: Rc<Run>, work: Work) -> Polled {
        Polled { run, body: Rc::new(Body { work: RefCell::new(Some(work)), ..Body::default() }) }
    }

    /// `work` as a task, and the hold on it.
    pub(super) fn joined<T: 'static>(run: Rc<Run>, work: impl Future<Output = T> + 'static) -> (Polled, RealTask<T>) {
        let (done, result) = oneshot::channel();
        let polled = Polled::new(run, Box::pin(Sending { work, done: Some(done) }));
        let task = RealTask { body: polled.body.clone(), result };
        (polled, task)
    }
}

pin_project! {
    /// A task's future, which sends its result. An async block would hold `work` twice, as captured and as awaited.
    struct Sending<T, F> {
        #[pin]
        work: F,
        done: Option<oneshot::Sender<T>>,
    }
}

impl<T, F: Future<Output = T>> Future for Sending<T, F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        let result = ready!(this.work.poll(cx));
        if let Some(done) = this.done.take() {
            let _handle_dropped = done.send(result);
        }
        Poll::Ready(())
    }
}

impl Future for Polled {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(mut work) = self.body.take() else { return Poll::Ready(()) };
        self.run.count(|stats| stats.polls += 1);
        match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx))) {
            Err(panic) => {
                self.run.fail(Failure::Panicked(panic));
                Poll::Ready(())
            }
            Ok(Poll::Pending) if !self.body.cancelled.get() => {
                *self.body.work.borrow_mut() = Some(work);
                self.body.waker.borrow_mut().replace(cx.waker().clone());
                Poll::Pending
            }
            Ok(_) => Poll::Ready(()),
        }
    }
}

impl Drop for Polled {
    /// A task's handle may sit inside another task, and so outlive this: the work ends here all the same.
    fn drop(&mut self) {
        drop(self.body.take());
    }
}

impl Body {
    fn take(&self) -> Option<Work> {
        self.work.borrow_mut().take()
    }
}

impl<T> RealTask<T> {
    pub(crate) fn cancel(&self) {
        self.body.cancelled.set(true);
        drop(self.body.take());
        let waker = self.body.waker.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Future for RealTask<T> {
    type Output = Result<T, Cancelled>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.result).poll(cx).map_err(|_| Cancelled)
    }
}
