//! The real engine: the same world over tokio, TCP on loopback, real files and the machine's clocks, in one process.
//!
//! - `run`: what the nodes of a run share, and its record; `bus`: frames over TCP; `task`: tasks and their cancelling.
//!
//! Everything runs on one thread but offloaded closures, which have threads of their own. Timers are tokio's: to the
//! millisecond, rounded up. Nodes boot once, as incarnation 0, and no fault can be made to happen; `charge` is free.
//! A node's files stay in `root` from play to play, as a machine's do.

mod bus;
mod run;
mod task;
#[cfg(test)]
mod tests;

pub(crate) use task::RealTask;

use crate::{
    Config, Control, Datagram, Director, Disk, Engine, EngineError, LinkWeather, NodeId, NodeSpec, Observer, Played,
    Reach, Stream, Time, Unsupported, World, random::domain,
};
use run::{Failure, Run};
use std::{
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    rc::Rc,
    task::Poll,
    time::Duration,
};
use tokio::{
    net::TcpListener,
    runtime::{Builder, Runtime},
    task::{LocalSet, spawn_blocking},
};

/// Nodes of this engine are never restarted.
const INCARNATION: u32 = 0;

pub(crate) fn play(
    config: Config,
    cast: Vec<NodeSpec>,
    director: Director,
    observer: Observer,
) -> Result<Played, EngineError> {
    Stage::set(&config, &cast, observer)?.play(cast, director)
}

/// A run that is ready to begin.
struct Stage {
    runtime: Runtime,
    run: Rc<Run>,
    listeners: Vec<TcpListener>,
}

impl Stage {
    fn set(config: &Config, cast: &[NodeSpec], observer: Observer) -> Result<Stage, EngineError> {
        let cast_size = u32::try_from(cast.len()).expect("fewer than 2^32 nodes");
        let runtime = Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .map_err(|source| EngineError::Machine { doing: "start its event loop", source })?;
        let (run, listeners) = {
            let _context = runtime.enter();
            Run::prepare(config, cast_size, observer)?
        };
        Ok(Stage { runtime, run, listeners })
    }

    fn play(self, cast: Vec<NodeSpec>, director: Director) -> Result<Played, EngineError> {
        let Stage { runtime, run, listeners } = self;
        let tasks = LocalSet::new();
        let failure = tasks.block_on(&runtime, conduct(&run, cast, listeners, director));
        let elapsed_ns = run.end();
        drop(tasks);
        // Waits for offloaded closures that still run, so that no file changes after the play.
        drop(runtime);
        let (history, stats) = run.close(elapsed_ns);
        match failure {
            None => Ok(Played { history, elapsed_ns, stats }),
            Some(Failure::Engine(error)) => Err(error),
            Some(Failure::Panicked(panic)) => resume_unwind(panic),
        }
    }
}

/// Boots the cast and waits for the director; gives what made the run end before that.
async fn conduct(
    run: &Rc<Run>,
    cast: Vec<NodeSpec>,
    listeners: Vec<TcpListener>,
    director: Director,
) -> Option<Failure> {
    for ((node, spec), listener) in (0..).map(NodeId).zip(cast).zip(listeners) {
        let world = World::real(Handle { run: run.clone(), node });
        let boot = async move { (spec.boot)(world).await };
        run.bring_up(node, listener, Box::pin(boot));
    }
    let control = Control::real(RealControl { run: run.clone() });
    let mut conducting = Box::pin(async move { director(control).await });
    poll_fn(|cx| {
        if let Poll::Ready(failure) = run.poll_failure(cx) {
            return Poll::Ready(Some(failure));
        }
        match catch_unwind(AssertUnwindSafe(|| conducting.as_mut().poll(cx))) {
            Ok(polled) => polled.map(|()| None),
            Err(panic) => Poll::Ready(Some(Failure::Panicked(panic))),
        }
    })
    .await
}

/// What a [`World`] holds: one node.
#[derive(Clone)]
pub(crate) struct Handle {
    run: Rc<Run>,
    node: NodeId,
}

impl Handle {
    pub(crate) fn node(&self) -> NodeId {
        self.node
    }

    pub(crate) fn incarnation(&self) -> u32 {
        INCARNATION
    }

    pub(crate) fn now(&self) -> Time {
        Time(self.run.elapsed_ns())
    }

    pub(crate) fn wall_ns(&self) -> u64 {
        wall_ns()
    }

    pub(crate) async fn sleep(&self, by: Duration) {
        sleep(&self.run, by).await;
    }

    pub(crate) async fn charge(&self, _ns: u64) {}

    pub(crate) fn send(&self, to: NodeId, frame: Vec<u8>) {
        if self.run.is_live(self.node) {
            bus::send(&self.run, self.node, to, frame);
        }
    }

    pub(crate) async fn recv(&self) -> Datagram {
        poll_fn(|cx| self.own().poll_recv(cx)).await.release()
    }

    pub(crate) fn disk(&self) -> Disk {
        self.own().disk.clone()
    }

    pub(crate) async fn offload<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        match spawn_blocking(work).await {
            Ok(result) => result,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                // The event loop is being torn down and took no more closures; the caller goes with it.
                Err(_) => std::future::pending().await,
            },
        }
    }

    pub(crate) fn spawn<T: 'static>(&self, work: impl Future<Output = T> + 'static) -> RealTask<T> {
        self.run.spawn(self.node, work)
    }

    pub(crate) fn spawn_cancellable<T: 'static>(&self, work: impl Future<Output = T> + 'static) -> RealTask<T> {
        self.run.spawn(self.node, work)
    }

    pub(crate) fn random(&self) -> u64 {
        self.own().draws.borrow_mut().next_u64()
    }

    pub(crate) fn stream(&self, label: u64) -> Stream {
        let path = [domain::ENTITY, u64::from(self.node.0), u64::from(INCARNATION), label];
        Stream::keyed(self.run.seed, &path)
    }

    pub(crate) fn note(&self, kind: u16, data: &[u8]) {
        crate::history::assert_free_kind(kind);
        if self.run.is_live(self.node) {
            self.run.record(self.node, INCARNATION, kind, data);
        }
    }

    fn own(&self) -> &run::Node {
        self.run.node(self.node).expect("a handle's node is of the cast")
    }
}

/// What a [`Control`] holds.
#[derive(Clone)]
pub(crate) struct RealControl {
    run: Rc<Run>,
}

impl RealControl {
    pub(crate) fn now(&self) -> Time {
        Time(self.run.elapsed_ns())
    }

    pub(crate) async fn sleep(&self, by: Duration) {
        sleep(&self.run, by).await;
    }

    pub(crate) fn kill(&self, _: NodeId) -> Result<(), Unsupported> {
        unsupported("kill")
    }

    pub(crate) fn power_cut(&self, _: NodeId) -> Result<(), Unsupported> {
        unsupported("power cut")
    }

    pub(crate) fn fell_at_disk_operation(&self, _: NodeId, _: u64, _: bool) -> Result<(), Unsupported> {
        unsupported("felling at a disk operation")
    }

    pub(crate) fn restart(&self, _: NodeId) -> Result<(), Unsupported> {
        unsupported("restart")
    }

    pub(crate) fn is_up(&self, node: NodeId) -> bool {
        self.node(node).is_up()
    }

    pub(crate) fn pause(&self, _: NodeId) -> Result<(), Unsupported> {
        unsupported("pause")
    }

    pub(crate) fn resume(&self, _: NodeId) -> Result<(), Unsupported> {
        unsupported("resume")
    }

    pub(crate) fn step_wall(&self, _: NodeId, _: i64) -> Result<(), Unsupported> {
        unsupported("step of the wall clock")
    }

    pub(crate) fn freeze_wall(&self, _: NodeId) -> Result<(), Unsupported> {
        unsupported("freeze of the wall clock")
    }

    pub(crate) fn thaw_wall(&self, _: NodeId) -> Result<(), Unsupported> {
        unsupported("freeze of the wall clock")
    }

    pub(crate) fn set_drift(&self, _: NodeId, _: u32) -> Result<(), Unsupported> {
        unsupported("clock drift")
    }

    pub(crate) fn set_weather(&self, _: &Reach, _: LinkWeather) -> Result<(), Unsupported> {
        unsupported("link weather")
    }

    pub(crate) fn partition(&self, _: &Reach) -> Result<(), Unsupported> {
        unsupported("partition")
    }

    pub(crate) fn mend(&self, _: &Reach) -> Result<(), Unsupported> {
        unsupported("mending of links")
    }

    pub(crate) fn cancel(&self, _: NodeId, _: u64) -> Result<(), Unsupported> {
        unsupported("cancel at an await")
    }

    pub(crate) fn heal(&self) -> Result<(), Unsupported> {
        Ok(())
    }

    pub(crate) fn disk_image(&self, node: NodeId) -> Disk {
        let folder = &self.node(node).folder;
        Disk::at(folder).unwrap_or_else(|error| panic!("the folder {} is gone: {error}", folder.display()))
    }

    pub(crate) fn disk_operations(&self, node: NodeId) -> u64 {
        self.node(node).disk.operations()
    }

    pub(crate) fn note(&self, kind: u16, data: &[u8]) {
        crate::history::assert_free_kind(kind);
        self.run.record(NodeId::DIRECTOR, 0, kind, data);
    }

    fn node(&self, node: NodeId) -> &run::Node {
        self.run.node(node).unwrap_or_else(|| panic!("there is no node {} in the cast", node.0))
    }
}

fn unsupported(fault: &'static str) -> Result<(), Unsupported> {
    Err(Unsupported { fault, engine: Engine::Real })
}

#[expect(clippy::disallowed_methods, reason = "the real engine sleeps on the machine's clock")]
async fn sleep(run: &Run, by: Duration) {
    tokio::time::sleep(by).await;
    run.count(|stats| stats.events += 1);
}

#[expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "the real engine reads the machine's clock")]
fn wall_ns() -> u64 {
    let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_epoch.as_nanos()).unwrap_or(u64::MAX)
}
