//! The simulated disk: operations stamped in virtual time, kills, power cuts, and a chosen operation that fells the node.
//!
//! The engine brackets each offloaded closure by [`SimDisk::begin_offload`] and [`SimDisk::end_offload`]. In between,
//! operations take effect at once, one after another, each with a start and an end ahead of the engine's clock. They
//! are kept in an undo log until the clock has passed their end, so that a kill at time t takes back, newest first,
//! all that had not ended at t: an operation in progress did not happen, a sync in progress made nothing durable.
//! After a kill the counts and contents are as if the later operations had never been asked for.
//!
//! Every operation but `len` counts and takes time, a failing one too, so that the count is a coordinate: the same run
//! up to operation k makes the same first k operations.

use super::{
    Disk, DiskSpec, File, Handle, Open, OpenFile,
    directory::{Directory, FileId, Undo},
    survival::Survival,
};
use crate::Stream;
use std::{
    collections::VecDeque,
    fmt, io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// A node's simulated disk, over all its incarnations. Clones are the same disk.
#[derive(Clone)]
pub(crate) struct SimDisk {
    state: Arc<Mutex<State>>,
}

/// When an offloaded closure is done with the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offloaded {
    /// The last operation's end; the begin of the offload if it made none.
    pub(crate) finish_ns: u64,
    /// The node is to go down. Told once: by the offload that made the armed operation.
    pub(crate) felled: Option<Felled>,
}

/// An armed operation was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Felled {
    /// When the operation would have started; all before it took effect.
    pub(crate) at_ns: u64,
    /// Whether power goes as well.
    pub(crate) power_cut: bool,
}

struct State {
    spec: DiskSpec,
    directory: Directory,
    /// From an armed operation on, until the engine takes the node down, closures go on over this copy and the real
    /// directory stands still: no kernel code sees the disk fail, and nothing it does then counts.
    ghost: Option<Directory>,
    /// Operations that may still be in the future, oldest first.
    done: VecDeque<Done>,
    operations: u64,
    busy_until_ns: u64,
    offload: Option<Offload>,
    armed: Option<Armed>,
    /// A copy for an observer: no time, no offload, no undo.
    detached: bool,
}

struct Done {
    end_ns: u64,
    undo: Undo,
}

struct Offload {
    finish_ns: u64,
    felled: Option<Felled>,
}

struct Armed {
    left: u64,
    power_cut: bool,
}

/// A file of a simulated disk.
#[derive(Clone)]
pub(super) struct SimFile {
    disk: SimDisk,
    id: FileId,
}

impl SimDisk {
    pub(crate) fn new(spec: DiskSpec) -> SimDisk {
        SimDisk::of(State {
            spec,
            directory: Directory::default(),
            ghost: None,
            done: VecDeque::new(),
            operations: 0,
            busy_until_ns: 0,
            offload: None,
            armed: None,
            detached: false,
        })
    }

    pub(crate) fn disk(&self) -> Disk {
        Disk { handle: Handle::Simulated(self.clone()) }
    }

    /// Operations from here on are stamped from `now_ns` on, or from when the disk is done with earlier offloads.
    pub(crate) fn begin_offload(&self, now_ns: u64) {
        let mut state = self.lock();
        assert!(state.offload.is_none(), "an offloaded closure cannot offload");
        while state.done.front().is_some_and(|done| done.end_ns <= now_ns) {
            state.done.pop_front();
        }
        if state.done.is_empty() && state.ghost.is_none() {
            state.directory.collect();
        }
        state.busy_until_ns = state.busy_until_ns.max(now_ns);
        state.offload = Some(Offload { finish_ns: now_ns, felled: None });
    }

    pub(crate) fn end_offload(&self) -> Offloaded {
        let Offload { finish_ns, felled } = self.lock().offload.take().expect("an offload ends once, after it began");
        Offloaded { finish_ns, felled }
    }

    /// The `nth` operation from here (1 is the next) will fell the node. One arming replaces another, and outlives a kill.
    pub(crate) fn arm_fell(&self, nth: u64, power_cut: bool) {
        assert!(nth > 0, "operations count from 1: 1 is the next");
        self.lock().armed = Some(Armed { left: nth, power_cut });
    }

    pub(crate) fn disarm(&self) {
        self.lock().armed = None;
    }

    /// Takes back all that had not ended at `now_ns`. The page cache keeps the rest.
    pub(crate) fn kill(&self, now_ns: u64) {
        let mut state = self.lock();
        assert!(state.offload.is_none(), "a kill falls between offloads; inside one, arm an operation");
        let ended = state.done.partition_point(|done| done.end_ns <= now_ns);
        for done in std::mem::take(&mut state.done).into_iter().skip(ended).rev() {
            state.directory.undo(done.undo);
            state.operations -= 1;
        }
        state.ghost = None;
        state.busy_until_ns = state.busy_until_ns.min(now_ns);
    }

    /// A kill, after which only what was synced is sure to be left; see [`super::survival`] for the rest. Whether any of
    /// that was lost.
    pub(crate) fn power_cut(&self, now_ns: u64, draws: &mut Stream) -> bool {
        self.kill(now_ns);
        let mut survival = Survival::drawn(draws);
        self.lock().directory.cut(&mut survival);
        survival.has_lost()
    }

    /// A detached copy of the page cache as the last operation left it, its stamp passed or not.
    pub(crate) fn image(&self) -> Disk {
        let state = self.lock();
        let image = State {
            spec: state.spec,
            directory: state.directory.clone(),
            ghost: None,
            done: VecDeque::new(),
            operations: 0,
            busy_until_ns: 0,
            offload: None,
            armed: None,
            detached: true,
        };
        SimDisk::of(image).disk()
    }

    /// Operations that took effect, over all incarnations.
    pub(crate) fn operations(&self) -> u64 {
        self.lock().operations
    }

    /// Files that are kept, named or not.
    #[cfg(test)]
    pub(super) fn files(&self) -> usize {
        self.lock().directory.files()
    }

    pub(super) fn open(&self, name: &str, how: Open) -> io::Result<File> {
        let id = self.operate(how.cost(), |directory| directory.open(name, how))?;
        Ok(File { handle: OpenFile::Simulated(SimFile { disk: self.clone(), id }) })
    }

    pub(super) fn list(&self) -> io::Result<Vec<String>> {
        self.operate(Cost::Read, |directory| Ok((directory.list(), Undo::Nothing)))
    }

    pub(super) fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.change(Cost::Write, |directory| directory.rename(from, to))
    }

    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        self.change(Cost::Write, |directory| directory.remove(name))
    }

    pub(super) fn sync_dir(&self) -> io::Result<()> {
        self.change(Cost::Sync, |directory| Ok(directory.sync_names()))
    }

    fn change(&self, cost: Cost, act: impl FnOnce(&mut Directory) -> io::Result<Undo>) -> io::Result<()> {
        self.operate(cost, |directory| Ok(((), act(directory)?)))
    }

    /// The one gate every counted operation passes: it counts it, stamps it and remembers how to take it back.
    fn operate<T>(&self, cost: Cost, act: impl FnOnce(&mut Directory) -> io::Result<(T, Undo)>) -> io::Result<T> {
        let mut guard = self.lock();
        let state = &mut *guard;
        if state.detached {
            return act(&mut state.directory).map(|(value, _)| value);
        }
        state.wait_turn();
        state.fell_if_due();
        if let Some(ghost) = &mut state.ghost {
            return act(ghost).map(|(value, _)| value);
        }
        let end_ns = state.busy_until_ns.saturating_add(cost.of(&state.spec));
        state.busy_until_ns = end_ns;
        state.wait_turn();
        state.operations += 1;
        let (outcome, undo) = match act(&mut state.directory) {
            Ok((value, undo)) => (Ok(value), undo),
            Err(error) => (Err(error), Undo::Nothing),
        };
        state.done.push_back(Done { end_ns, undo });
        outcome
    }

    fn of(state: State) -> SimDisk {
        SimDisk { state: Arc::new(Mutex::new(state)) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SimFile {
    pub(super) fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.disk.operate(Cost::Read, |directory| Ok((directory.read(*self.id, offset, into)?, Undo::Nothing)))
    }

    pub(super) fn write_at(&self, offset: u64, from: &[u8]) -> io::Result<()> {
        self.disk.change(Cost::Write, |directory| directory.write(*self.id, offset, from))
    }

    /// Free of time and not counted, but answered in its turn: the length may be that of an operation still ahead.
    pub(super) fn len(&self) -> io::Result<u64> {
        let mut state = self.disk.lock();
        if !state.detached {
            state.wait_turn();
        }
        state.ghost.as_ref().unwrap_or(&state.directory).len(*self.id)
    }

    pub(super) fn set_len(&self, len: u64) -> io::Result<()> {
        self.disk.change(Cost::Write, |directory| directory.set_len(*self.id, len))
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        self.disk.change(Cost::Sync, |directory| directory.sync(*self.id))
    }
}

impl fmt::Debug for SimFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimFile({})", self.id)
    }
}

impl State {
    /// The closure has now seen the disk as it is when all operations so far have ended: its result is due no sooner.
    fn wait_turn(&mut self) {
        let offload = self.offload.as_mut().expect("a simulated disk is used only inside World::offload");
        offload.finish_ns = self.busy_until_ns;
    }

    fn fell_if_due(&mut self) {
        let Some(armed) = &mut self.armed else { return };
        if self.ghost.is_some() {
            return;
        }
        armed.left -= 1;
        if armed.left == 0 {
            let felled = Felled { at_ns: self.busy_until_ns, power_cut: armed.power_cut };
            self.armed = None;
            self.ghost = Some(self.directory.clone());
            self.offload.as_mut().expect("operations are offloaded").felled = Some(felled);
        }
    }
}

/// Which figure of the [`DiskSpec`] an operation takes.
#[derive(Clone, Copy)]
enum Cost {
    Read,
    Write,
    Sync,
}

impl Cost {
    fn of(self, spec: &DiskSpec) -> u64 {
        match self {
            Cost::Read => spec.read_ns,
            Cost::Write => spec.write_ns,
            Cost::Sync => spec.sync_ns,
        }
    }
}

impl Open {
    fn cost(self) -> Cost {
        match self {
            Open::Existing => Cost::Read,
            Open::New => Cost::Write,
        }
    }
}
