//! The run itself: what is ready, what comes next, and how virtual time moves.
//!
//! Everything due at an instant happens before any task is polled at it; then ready tasks are polled one by one, in
//! seeded order, and whatever they cause at the same instant happens before the next is chosen. Time moves only when
//! no task is ready. Futures and foreign wakers are polled, woken and dropped while nothing here is borrowed, because
//! each of them may call back in.

use super::{
    heap::{Event, EventHeap, What},
    network::Network,
    node::{Down, Node},
    ready::Ready,
    slab::Slab,
    timer::{Due, TimerSlot},
    waker,
};
use crate::{EngineError, Entry, NodeId, Observer, Stats, history::Log};
use std::{
    cell::{Cell, RefCell},
    future::Future,
    pin::Pin,
    task::{Context, Poll, Waker},
};

/// What a task runs.
pub(super) type Work = Pin<Box<dyn Future<Output = ()>>>;

/// One run.
pub(super) struct Core {
    pub(super) seed: u64,
    now_ns: Cell<u64>,
    ended: Cell<bool>,
    pub(super) state: RefCell<State>,
    log: RefCell<Option<Log>>,
    observer: RefCell<Option<Observer>>,
}

/// Everything that changes in a run.
pub(super) struct State {
    pub(super) nodes: Vec<Node>,
    pub(super) network: Network,
    pub(super) events: EventHeap,
    pub(super) stats: Stats,
    timers: Slab<TimerSlot>,
    /// Events on the queue whose timer is gone.
    dead_events: usize,
    tasks: Slab<TaskSlot>,
    ready: Ready,
    /// Polls since virtual time last moved.
    polls_at_instant: u64,
    digest: u64,
}

/// A task that has not finished.
pub(super) struct TaskSlot {
    node: NodeId,
    /// How many tasks this node, over all its incarnations, had started before.
    ordinal: u64,
    role: Role,
    /// None while it is being polled.
    work: Option<Work>,
    turns: super::ready::Turns,
}

/// What a task is to the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Its end is the end of the run.
    Director,
    /// Its end is the end of its node's incarnation.
    Boot,
    /// Any other.
    Plain,
    /// Any other, which a cancel fault may drop.
    Cancellable,
}

/// Below this many dead events the queue is left alone.
const DEAD_EVENTS_WORTH_DROPPING: usize = 1024;

/// So many polls at one instant are an endless loop, which would hang the run.
const POLLS_AT_INSTANT_BOUND: u64 = 20_000_000;

impl Core {
    pub(super) fn new(seed: u64, state: State, log: Log, observer: Observer) -> Core {
        Core {
            seed,
            now_ns: Cell::new(0),
            ended: Cell::new(false),
            state: RefCell::new(state),
            log: RefCell::new(Some(log)),
            observer: RefCell::new(Some(observer)),
        }
    }

    /// True time.
    #[inline]
    pub(super) fn now_ns(&self) -> u64 {
        self.now_ns.get()
    }

    /// Whether the run is over, and what is left of it merely being dropped.
    pub(super) fn has_ended(&self) -> bool {
        self.ended.get()
    }

    /// Plays until the director's task ends.
    pub(super) fn run(&self) -> Result<(), EngineError> {
        let mut woken = Vec::new();
        loop {
            self.fire_due();
            waker::take_woken(&mut woken);
            let next = {
                let state = &mut *self.state.borrow_mut();
                for task in woken.drain(..) {
                    state.make_ready(task);
                }
                state.ready.next()
            };
            match next {
                Some(task) => {
                    if self.poll(task) == Some(Role::Director) {
                        return Ok(());
                    }
                }
                None => {
                    let event = self.state.borrow_mut().next_live_event();
                    let Some(event) = event else { return Err(EngineError::Stuck { at_ns: self.now_ns() }) };
                    self.now_ns.set(event.time_ns());
                    self.fire(event);
                }
            }
        }
    }

    /// Lets everything that is due by now happen.
    #[inline]
    fn fire_due(&self) {
        loop {
            let event = {
                let state = &mut *self.state.borrow_mut();
                match state.events.peek() {
                    Some(event) if event.time_ns() <= self.now_ns() => state.next_live_event_until(self.now_ns()),
                    _ => None,
                }
            };
            match event {
                Some(event) => self.fire(event),
                None => return,
            }
        }
    }

    #[inline]
    fn fire(&self, event: Event) {
        match event.what {
            What::Timer(word) => {
                let waker = self.state.borrow_mut().expire(word, self.now_ns());
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
            What::Frame(word) => {
                let receiver = self.state.borrow_mut().deliver(word);
                if let Some(receiver) = receiver {
                    receiver.wake();
                }
            }
            What::Fell { node, incarnation, power_cut } => {
                let is_same = self.state.borrow().nodes[node as usize].incarnation == incarnation;
                if is_same {
                    self.bring_down(node, if power_cut { Down::PowerCut } else { Down::Killed });
                }
            }
        }
    }

    /// Polls a task once; its role if that was its end.
    #[inline]
    fn poll(&self, task: u64) -> Option<Role> {
        let turn = self.state.borrow_mut().begin_poll(task);
        let (mut work, node, role) = match turn {
            Turn::Poll { work, node, role } => (work, node, role),
            Turn::Cancel(slot) => {
                drop(slot);
                return None;
            }
            Turn::Pass => return None,
        };
        let waker = waker::waker(task);
        let polled = work.as_mut().poll(&mut Context::from_waker(&waker));
        let (finished, _dropped) = {
            let state = &mut *self.state.borrow_mut();
            match (polled, state.tasks.get_mut(task)) {
                (Poll::Pending, Some(slot)) => {
                    slot.work = Some(work);
                    return None;
                }
                (Poll::Ready(()), Some(_)) => (true, (state.tasks.remove(task), work)),
                (_, None) => (false, (None, work)),
            }
        };
        if finished && role == Role::Boot {
            self.bring_down(node.0, Down::Ended);
        }
        finished.then_some(role)
    }

    /// Starts a task, ready at once.
    pub(super) fn start(&self, node: NodeId, role: Role, work: Work) -> u64 {
        let task = {
            let state = &mut *self.state.borrow_mut();
            let ordinal = state.nodes.get_mut(node.0 as usize).map_or(0, Node::next_ordinal);
            let turns = state.ready.turns(node, ordinal);
            state.tasks.insert(TaskSlot { node, ordinal, role, work: Some(work), turns })
        };
        waker::wake(task);
        task
    }

    /// Drops a task at whatever await it stands; nothing if it is gone.
    pub(super) fn stop(&self, task: u64) {
        let slot = self.state.borrow_mut().tasks.remove(task);
        drop(slot);
    }

    /// Ends the run: the last entry is made and everything that is left is dropped.
    pub(super) fn close(&self) -> (crate::Recorded, Stats) {
        let (stats, digest) = {
            let state = &mut *self.state.borrow_mut();
            state.stats.disk_operations = state.nodes.iter().map(|node| node.disk.operations()).sum();
            state.stats.decisions = state.ready.decisions();
            (state.stats, state.digest)
        };
        let closing = postcard::to_stdvec(&(stats, digest)).expect("plain integers can be encoded");
        self.record(NodeId::DIRECTOR, 0, crate::history::kind::CLOSE, &closing);
        self.ended.set(true);
        let doomed = {
            let state = &mut *self.state.borrow_mut();
            state.events.clear();
            let receivers: Vec<_> = state.nodes.iter_mut().filter_map(|node| node.receiver.take()).collect();
            (state.take_tasks(|_| true), receivers)
        };
        drop(doomed);
        let observer = self.observer.borrow_mut().take();
        drop(observer);
        let log = self.log.borrow_mut().take().expect("a run is closed once");
        (log.finish(), stats)
    }

    /// What was made of the history before a panic, without a close; `None` if the panic came out of the log itself.
    pub(super) fn history_so_far(&self) -> Option<crate::Recorded> {
        let log = self.log.try_borrow_mut().ok()?.take()?;
        self.ended.set(true);
        Some(log.finish())
    }

    /// Makes a history entry and shows it to the observer.
    ///
    /// # Panics
    ///
    /// When the observer itself is the caller.
    pub(super) fn record(&self, node: NodeId, incarnation: u32, kind: u16, data: &[u8]) {
        if self.has_ended() {
            return;
        }
        let Ok(mut observer) = self.observer.try_borrow_mut() else {
            panic!("the observer made a history entry while it was shown one");
        };
        let entry = Entry { time_ns: self.now_ns(), node, incarnation, kind, data };
        if let Some(log) = self.log.borrow_mut().as_mut() {
            log.append(&entry);
        }
        if let Some(observer) = observer.as_mut() {
            observer(&entry);
        }
    }

    pub(super) fn is_due(&self, due: Due) -> bool {
        match due {
            Due::True(at_ns) => at_ns <= self.now_ns(),
            Due::Monotonic { .. } => self.state.borrow().is_due(due, self.now_ns()),
        }
    }

    /// Has `waker` woken when `due` comes; the answer is the timer's place.
    pub(super) fn wait(&self, due: Due, waker: &Waker) -> u32 {
        self.state.borrow_mut().wait(due, waker)
    }

    /// Has another task woken by a timer that already waits.
    pub(super) fn rewait(&self, index: u32, waker: &Waker) {
        let _replaced = {
            let state = &mut *self.state.borrow_mut();
            let word = state.timers.word_at(index);
            let slot = state.timers.get_mut(word).expect("a waiting timer is in the slab");
            (!slot.waker.will_wake(waker)).then(|| std::mem::replace(&mut slot.waker, waker.clone()))
        };
    }

    /// Forgets a timer.
    pub(super) fn unwait(&self, index: u32) {
        let slot = self.state.borrow_mut().unwait(index);
        drop(slot);
    }
}

/// What to do with a task whose turn it is.
enum Turn {
    Poll { work: Work, node: NodeId, role: Role },
    Cancel(Option<TaskSlot>),
    Pass,
}

impl State {
    pub(super) fn new(nodes: Vec<Node>, network: Network, ready: Ready, first_generation: u32) -> State {
        State {
            nodes,
            network,
            events: EventHeap::default(),
            stats: Stats::default(),
            timers: Slab::new(0),
            dead_events: 0,
            tasks: Slab::new(first_generation),
            ready,
            polls_at_instant: 0,
            digest: 0,
        }
    }

    #[inline]
    fn next_live_event(&mut self) -> Option<Event> {
        self.polls_at_instant = 0;
        self.next_live_event_until(u64::MAX)
    }

    #[inline]
    fn next_live_event_until(&mut self, until_ns: u64) -> Option<Event> {
        loop {
            self.events.peek().filter(|event| event.time_ns() <= until_ns)?;
            let event = self.events.pop()?;
            let target = match event.what {
                What::Timer(word) if self.timers.get(word).is_none() => {
                    self.dead_events -= 1;
                    continue;
                }
                What::Timer(word) => word,
                What::Frame(word) => !word,
                What::Fell { node, incarnation, .. } => u64::from(incarnation) << 32 | u64::from(node),
            };
            self.stats.events += 1;
            self.digest_in(event.time_ns());
            self.digest_in(event.sequence());
            self.digest_in(target);
            return Some(event);
        }
    }

    #[inline]
    fn digest_in(&mut self, word: u64) {
        let product = u128::from(self.digest ^ word ^ 0xa076_1d64_78bd_642f) * 0xe703_7ed1_a0b4_28db;
        self.digest = (product >> 64) as u64 ^ product as u64;
    }

    fn make_ready(&mut self, task: u64) {
        if let Some(slot) = self.tasks.get_mut(task) {
            self.ready.push(task, &mut slot.turns);
        }
    }

    fn begin_poll(&mut self, task: u64) -> Turn {
        let Some(slot) = self.tasks.get_mut(task) else { return Turn::Pass };
        slot.turns.begin();
        let (node, role, ordinal) = (slot.node, slot.role, slot.ordinal);
        if let Some(owner) = self.nodes.get_mut(node.0 as usize) {
            if owner.paused {
                owner.held.push(task);
                return Turn::Pass;
            }
            if role == Role::Cancellable && owner.cancel_hits() {
                self.stats.effects.tasks_cancelled += 1;
                self.digest_in(!ordinal);
                return Turn::Cancel(self.tasks.remove(task));
            }
        }
        let Some(work) = self.tasks.get_mut(task).and_then(|slot| slot.work.take()) else { return Turn::Pass };
        self.stats.polls += 1;
        self.polls_at_instant += 1;
        assert!(
            self.polls_at_instant < POLLS_AT_INSTANT_BOUND,
            "node {} keeps virtual time from moving: tasks wake each other without an end",
            node.0
        );
        self.digest_in(u64::from(node.0) << 32 ^ ordinal);
        Turn::Poll { work, node, role }
    }

    /// Removes the tasks of the nodes chosen, in the order of their nodes and then of their start.
    pub(super) fn take_tasks(&mut self, of: impl Fn(NodeId) -> bool) -> Vec<TaskSlot> {
        let words: Vec<u64> = self.tasks.words().collect();
        let mut taken: Vec<TaskSlot> = Vec::new();
        for word in words {
            if self.tasks.get(word).is_some_and(|slot| of(slot.node)) {
                taken.extend(self.tasks.remove(word));
            }
        }
        taken.sort_by_key(|slot| (slot.node, slot.ordinal));
        taken
    }

    fn is_due(&self, due: Due, now_ns: u64) -> bool {
        match due {
            Due::True(at_ns) => at_ns <= now_ns,
            Due::Monotonic { node, at_ns } => self.nodes[node as usize].clock.monotonic_ns(now_ns) >= at_ns,
        }
    }

    fn wait(&mut self, due: Due, waker: &Waker) -> u32 {
        let word = self.timers.insert(TimerSlot { due, waker: waker.clone(), armed: false });
        self.arm(word);
        word as u32
    }

    /// Puts an event on the queue for a timer that has none.
    fn arm(&mut self, word: u64) {
        let Some(slot) = self.timers.get_mut(word) else { return };
        let at_ns = match slot.due {
            Due::True(at_ns) => Some(at_ns),
            Due::Monotonic { node, at_ns } => self.nodes[node as usize].clock.true_ns(at_ns),
        };
        slot.armed = at_ns.is_some();
        if let Some(at_ns) = at_ns {
            self.events.push(at_ns, What::Timer(word));
        }
    }

    /// Moves the events of all timers on a node's clock to where its present rate puts them.
    pub(super) fn rearm(&mut self, of: u32) {
        let words: Vec<u64> = self.timers.words().collect();
        for word in words {
            let Some(slot) = self.timers.get_mut(word) else { continue };
            if !matches!(slot.due, Due::Monotonic { node, .. } if node == of) {
                continue;
            }
            self.dead_events += usize::from(slot.armed);
            if let Some(renewed) = self.timers.renew(word) {
                self.arm(renewed);
            }
        }
    }

    /// A timer's event has come: whom to wake, unless it came early.
    #[inline]
    fn expire(&mut self, word: u64, now_ns: u64) -> Option<Waker> {
        let slot = self.timers.get_mut(word)?;
        slot.armed = false;
        let due = slot.due;
        let waker = slot.waker.clone();
        if self.is_due(due, now_ns) {
            return Some(waker);
        }
        self.arm(word);
        None
    }

    fn unwait(&mut self, index: u32) -> Option<TimerSlot> {
        let slot = self.timers.remove(self.timers.word_at(index))?;
        self.dead_events += usize::from(slot.armed);
        if self.dead_events > DEAD_EVENTS_WORTH_DROPPING && self.dead_events * 2 > self.events.len() {
            let timers = &self.timers;
            self.events.retain(|event| !matches!(event.what, What::Timer(word) if timers.get(word).is_none()));
            self.dead_events = 0;
        }
        Some(slot)
    }

    /// A frame arrives: the task that waits for it.
    #[inline]
    fn deliver(&mut self, frame: u64) -> Option<Waker> {
        let nodes = &self.nodes;
        let arrival = self.network.arrive(frame, |to| nodes[to as usize].up, &mut self.stats)?;
        let node = &mut self.nodes[arrival.to as usize];
        node.inbox.push_back(arrival.parcel);
        node.receiver.take()
    }
}
