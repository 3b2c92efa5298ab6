//! A node of the cast: its clocks, cores, disk and inbox, and its way up and down.

use super::{
    clock::Clock,
    executor::{Core, Role, Work},
    handle::Handle,
    network::Parcel,
};
use crate::{Boot, NodeId, NodeSpec, Stream, World, disk::SimDisk, history::kind, random::domain};
use std::{collections::VecDeque, rc::Rc, task::Waker};

pub(super) struct Node {
    boot: Boot,
    pub(super) disk: SimDisk,
    pub(super) clock: Clock,
    pub(super) up: bool,
    /// How often it was restarted.
    pub(super) incarnation: u32,
    pub(super) paused: bool,
    /// Tasks whose turn came during a pause.
    pub(super) held: Vec<u64>,
    pub(super) inbox: VecDeque<Parcel>,
    /// The task that waits for a frame.
    pub(super) receiver: Option<Waker>,
    /// When each core is free again, in true time.
    cores: Vec<u64>,
    started: u64,
    /// This incarnation's own stream, once it has drawn.
    pub(super) draws: Option<Stream>,
    /// For each armed cancel fault, the polls of cancellable tasks until it strikes.
    pub(super) cancels: Vec<u64>,
}

/// How a node goes down; the byte of its history entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Down {
    /// Its boot future returned.
    Ended = 0,
    /// Its process was killed.
    Killed = 1,
    /// Its power was cut.
    PowerCut = 2,
}

impl Node {
    pub(super) fn new(spec: NodeSpec, wall_start_ns: u64) -> Node {
        Node {
            boot: spec.boot,
            disk: SimDisk::new(spec.disk),
            clock: Clock::new(wall_start_ns),
            up: false,
            incarnation: 0,
            paused: false,
            held: Vec::new(),
            inbox: VecDeque::new(),
            receiver: None,
            cores: vec![0; spec.cores.max(1) as usize],
            started: 0,
            draws: None,
            cancels: Vec::new(),
        }
    }

    pub(super) fn next_ordinal(&mut self) -> u64 {
        self.started += 1;
        self.started - 1
    }

    /// Queues `ns` of compute on the core that is free first; when it is done.
    pub(super) fn compute(&mut self, now_ns: u64, ns: u64) -> u64 {
        let core = self.cores.iter_mut().min().expect("a node has at least one core");
        *core = (*core).max(now_ns).saturating_add(ns);
        *core
    }

    /// Counts a poll of a cancellable task; whether an armed cancel fault strikes at it.
    pub(super) fn cancel_hits(&mut self) -> bool {
        for polls_left in &mut self.cancels {
            *polls_left -= 1;
        }
        let armed = self.cancels.len();
        self.cancels.retain(|&polls_left| polls_left > 0);
        self.cancels.len() < armed
    }
}

impl Core {
    /// Boots a node that is down: the first time as incarnation 0, then as the next.
    pub(super) fn bring_up(self: &Rc<Self>, node: u32, incarnation: u32) {
        let boot = {
            let state = &mut *self.state.borrow_mut();
            let starting = &mut state.nodes[node as usize];
            assert!(!starting.up, "a node that is up cannot boot");
            starting.up = true;
            starting.incarnation = incarnation;
            starting.draws = None;
            starting.boot.clone()
        };
        self.record(NodeId(node), incarnation, kind::UP, &[]);
        let work: Work = boot(World::native(Handle::new(self.clone(), NodeId(node), incarnation)));
        self.start(NodeId(node), Role::Boot, work);
    }

    /// Takes a node down with all its tasks; nothing if it is down already.
    pub(super) fn bring_down(&self, node: u32, how: Down) {
        let now_ns = self.now_ns();
        let (incarnation, doomed) = {
            let state = &mut *self.state.borrow_mut();
            let ending = &mut state.nodes[node as usize];
            if !ending.up {
                return;
            }
            ending.up = false;
            ending.paused = false;
            ending.held.clear();
            ending.cores.fill(0);
            let receiver = ending.receiver.take();
            for parcel in ending.inbox.drain(..) {
                state.network.release(parcel);
            }
            match how {
                Down::Ended | Down::Killed => ending.disk.kill(now_ns),
                Down::PowerCut => {
                    let path = [domain::POWER, u64::from(node), u64::from(ending.incarnation)];
                    let has_lost = ending.disk.power_cut(now_ns, &mut Stream::keyed(self.seed, &path));
                    state.stats.effects.cuts_losing += u64::from(has_lost);
                }
            }
            (ending.incarnation, (state.take_tasks(|owner| owner == NodeId(node)), receiver))
        };
        self.record(NodeId(node), incarnation, kind::DOWN, &[how as u8]);
        drop(doomed);
    }
}
