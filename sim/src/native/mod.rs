//! The native engine: a single-threaded discrete-event executor in virtual time, with every fault.
//!
//! - `executor`: the loop, tasks and timers; `ready`: the order among ready tasks; `heap`: the event queue;
//! - `node`, `clock`, `network`: what a node is made of; `handle`, `control`: what its code and the director hold;
//! - `slab`, `waker`: keys that die with what they name, and the only unsafe code of the workspace.
//!
//! Virtual time is true time: the oscillators of nodes derive from it. A run that panics is not torn down: what is
//! left of it leaks, because dropping futures in the middle of a panic could abort the process.

mod clock;
mod control;
mod executor;
mod handle;
mod heap;
mod network;
mod node;
mod ready;
mod slab;
mod timer;
mod waker;

pub(crate) use control::NativeControl;
pub(crate) use handle::{Handle, NativeTask};

use crate::{Config, Control, Director, EngineError, Fallen, NodeId, NodeSpec, Observer, Played, history::Log};
use executor::{Core, Role, State};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Rc,
};

pub(crate) fn play(
    config: Config,
    cast: Vec<NodeSpec>,
    director: Director,
    observer: Observer,
) -> Result<Result<Played, Fallen>, EngineError> {
    let installed = waker::install();
    let cast_size = u32::try_from(cast.len()).expect("fewer than 2^32 nodes");
    let nodes = cast.into_iter().map(|spec| node::Node::new(spec, config.wall_start_ns)).collect();
    let network = network::Network::new(config.seed, cast_size, config.weather);
    let ready = ready::Ready::new(config.seed, config.schedule_cut);
    let state = State::new(nodes, network, ready, installed.first_generation());
    let core = Rc::new(Core::new(config.seed, state, Log::new(config.recording), observer));
    let ran = catch_unwind(AssertUnwindSafe(|| {
        for node in 0..cast_size {
            core.bring_up(node, 0);
        }
        let conducting = director(Control::native(NativeControl::new(core.clone())));
        core.start(NodeId::DIRECTOR, Role::Director, conducting);
        let ran = core.run();
        let (history, stats) = core.close();
        ran.map(|()| Played { history, elapsed_ns: core.now_ns(), stats })
    }));
    match ran {
        Ok(ran) => ran.map(Ok),
        Err(panic) => Ok(Err(Fallen { history: core.history_so_far(), at_ns: core.now_ns(), panic })),
    }
}
