//! One run of the real engine: its nodes, its record, and what can end it early.

use super::{
    bus::{self, Link, Parcel},
    task::{Polled, RealTask, Work},
};
use crate::{Config, Disk, EngineError, Entry, NodeId, Observer, Recorded, Stats, Stream, history, random::domain};
use std::{
    any::Any,
    cell::{Cell, RefCell},
    collections::{BTreeMap, VecDeque},
    future::Future,
    net::SocketAddr,
    path::PathBuf,
    rc::Rc,
    task::{Context, Poll, Waker},
};
use tokio::{net::TcpListener, task::JoinSet};

#[expect(clippy::disallowed_types, reason = "the real engine runs on the machine's clock")]
type Instant = std::time::Instant;

/// What everything in a run shares.
pub(super) struct Run {
    pub(super) seed: u64,
    /// Tells this run from others on the machine.
    pub(super) token: u64,
    started: Instant,
    nodes: Vec<Node>,
    pub(super) links: RefCell<BTreeMap<(NodeId, NodeId), Rc<Link>>>,
    wires: RefCell<JoinSet<()>>,
    stats: RefCell<Stats>,
    record: RefCell<Option<Record>>,
    /// From the director's end on nothing is heard of any node.
    ended: Cell<bool>,
    failure: RefCell<Option<Failure>>,
    conductor: RefCell<Option<Waker>>,
}

/// A process of the cast.
pub(super) struct Node {
    pub(super) address: SocketAddr,
    pub(super) folder: PathBuf,
    pub(super) disk: Disk,
    pub(super) draws: RefCell<Stream>,
    up: Cell<bool>,
    tasks: RefCell<JoinSet<()>>,
    inbox: RefCell<VecDeque<Parcel>>,
    receiver: RefCell<Option<Waker>>,
}

struct Record {
    log: history::Log,
    observer: Observer,
}

/// Why a run ends before its director does.
pub(super) enum Failure {
    /// Code of the cast panicked; the panic goes on once the run is torn down.
    Panicked(Box<dyn Any + Send>),
    Engine(EngineError),
}

impl Run {
    /// A run of `cast_size` nodes, none of them booted, and the sockets at which they will be reached. In a runtime's context.
    pub(super) fn prepare(
        config: &Config,
        cast_size: u32,
        observer: Observer,
    ) -> Result<(Rc<Run>, Vec<TcpListener>), EngineError> {
        let root = config.root.as_ref().ok_or(EngineError::NoRoot)?;
        let mut listeners = Vec::new();
        let mut nodes = Vec::new();
        for node in 0..cast_size {
            let folder = root.join(format!("node-{node}"));
            let disk =
                Disk::at(&folder).map_err(|source| EngineError::Machine { doing: "make a node's folder", source })?;
            let (listener, address) =
                bus::listen().map_err(|source| EngineError::Machine { doing: "listen on loopback", source })?;
            listeners.push(listener);
            let path = [domain::NODE, u64::from(node), u64::from(super::INCARNATION)];
            nodes.push(Node {
                address,
                folder,
                disk,
                draws: RefCell::new(Stream::keyed(config.seed, &path)),
                up: Cell::new(false),
                tasks: RefCell::default(),
                inbox: RefCell::default(),
                receiver: RefCell::default(),
            });
        }
        let run = Run {
            seed: config.seed,
            token: super::wall_ns(),
            started: now(),
            nodes,
            links: RefCell::default(),
            wires: RefCell::default(),
            stats: RefCell::default(),
            record: RefCell::new(Some(Record { log: history::Log::new(config.recording), observer })),
            ended: Cell::new(false),
            failure: RefCell::default(),
            conductor: RefCell::default(),
        };
        Ok((Rc::new(run), listeners))
    }

    pub(super) fn elapsed_ns(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    pub(super) fn node(&self, node: NodeId) -> Option<&Node> {
        self.nodes.get(node.0 as usize)
    }

    pub(super) fn count(&self, add: impl FnOnce(&mut Stats)) {
        add(&mut self.stats.borrow_mut());
    }

    /// Whether the node is up and the run goes on.
    pub(super) fn is_live(&self, node: NodeId) -> bool {
        !self.ended.get() && self.node(node).is_some_and(Node::is_up)
    }

    pub(super) fn bring_up(self: &Rc<Self>, node: NodeId, listener: TcpListener, boot: Work) {
        self.nodes[node.0 as usize].up.set(true);
        self.record(node, super::INCARNATION, history::kind::UP, &[]);
        self.start(node, bus::accept(self.clone(), node, listener));
        let run = self.clone();
        self.start(node, async move {
            boot.await;
            run.bring_down(node);
        });
    }

    fn bring_down(&self, node: NodeId) {
        const ENDED: u8 = 0;
        self.record(node, super::INCARNATION, history::kind::DOWN, &[ENDED]);
        let ending = &self.nodes[node.0 as usize];
        ending.up.set(false);
        ending.receiver.take();
        for parcel in ending.inbox.take() {
            parcel.release();
        }
        drop(ending.tasks.take());
    }

    /// Starts a task that ends with the node. In the context of the run's `LocalSet`.
    pub(super) fn start(self: &Rc<Self>, node: NodeId, work: impl Future<Output = ()> + 'static) {
        start_in(&self.nodes[node.0 as usize].tasks, Polled::new(self.clone(), Box::pin(work)));
    }

    /// Starts a task that ends with the run.
    pub(super) fn start_wire(self: &Rc<Self>, work: impl Future<Output = ()> + 'static) {
        start_in(&self.wires, Polled::new(self.clone(), Box::pin(work)));
    }

    /// Starts a node's own task; on a node that is down it is dropped, and so cancelled.
    pub(super) fn spawn<T: 'static>(
        self: &Rc<Self>,
        node: NodeId,
        work: impl Future<Output = T> + 'static,
    ) -> RealTask<T> {
        let (polled, task) = Polled::joined(self.clone(), work);
        if self.is_live(node) {
            start_in(&self.nodes[node.0 as usize].tasks, polled);
        }
        task
    }

    pub(super) fn deliver(&self, to: NodeId, parcel: Parcel) {
        let node = &self.nodes[to.0 as usize];
        self.count(|stats| {
            stats.events += 1;
            stats.frames_delivered += 1;
        });
        node.inbox.borrow_mut().push_back(parcel);
        let receiver = node.receiver.take();
        if let Some(receiver) = receiver {
            receiver.wake();
        }
    }

    /// Makes a history entry and shows it to the observer.
    ///
    /// # Panics
    ///
    /// When the observer itself is the caller.
    pub(super) fn record(&self, node: NodeId, incarnation: u32, kind: u16, data: &[u8]) {
        if self.ended.get() {
            return;
        }
        let Ok(mut record) = self.record.try_borrow_mut() else {
            panic!("the observer made a history entry while it was shown one");
        };
        if let Some(record) = record.as_mut() {
            record.append(&Entry { time_ns: self.elapsed_ns(), node, incarnation, kind, data });
        }
    }

    /// Ends the run; the first failure counts.
    pub(super) fn fail(&self, failure: Failure) {
        self.failure.borrow_mut().get_or_insert(failure);
        let conductor = self.conductor.take();
        if let Some(conductor) = conductor {
            conductor.wake();
        }
    }

    /// Whether the run has failed, or else a wake-up when it does.
    pub(super) fn poll_failure(&self, cx: &mut Context<'_>) -> Poll<Failure> {
        match self.failure.take() {
            Some(failure) => Poll::Ready(failure),
            None => {
                self.conductor.replace(Some(cx.waker().clone()));
                Poll::Pending
            }
        }
    }

    /// From here on the nodes are mute; gives how long the run lasted.
    pub(super) fn end(&self) -> u64 {
        self.ended.set(true);
        self.elapsed_ns()
    }

    /// Makes the last entry, once everything is dropped and no file is written any more.
    pub(super) fn close(&self, elapsed_ns: u64) -> (Recorded, Stats) {
        self.count(|stats| stats.disk_operations = self.nodes.iter().map(|node| node.disk.operations()).sum());
        let stats = *self.stats.borrow();
        // The same form as the native engine's, whose second part digests its scheduling decisions; there are none here.
        let closing = postcard::to_stdvec(&(stats, 0u64)).expect("plain integers can be encoded");
        let mut record = self.record.take().expect("a run is closed once");
        let (node, kind) = (NodeId::DIRECTOR, history::kind::CLOSE);
        record.append(&Entry { time_ns: elapsed_ns, node, incarnation: 0, kind, data: &closing });
        (record.log.finish(), stats)
    }
}

impl Node {
    pub(super) fn is_up(&self) -> bool {
        self.up.get()
    }

    /// The oldest frame not read yet.
    pub(super) fn poll_recv(&self, cx: &mut Context<'_>) -> Poll<Parcel> {
        let parcel = self.inbox.borrow_mut().pop_front();
        match parcel {
            Some(parcel) => Poll::Ready(parcel),
            None => {
                self.receiver.replace(Some(cx.waker().clone()));
                Poll::Pending
            }
        }
    }
}

impl Record {
    fn append(&mut self, entry: &Entry<'_>) {
        self.log.append(entry);
        (self.observer)(entry);
    }
}

fn start_in(tasks: &RefCell<JoinSet<()>>, polled: Polled) {
    let mut tasks = tasks.borrow_mut();
    // A set remembers finished tasks until they are joined.
    while tasks.try_join_next().is_some() {}
    tasks.spawn_local(polled);
}

#[expect(clippy::disallowed_methods, reason = "the real engine runs on the machine's clock")]
fn now() -> Instant {
    Instant::now()
}
