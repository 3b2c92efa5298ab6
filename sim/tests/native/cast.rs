//! Building small casts.

use sim::{
    Boot, Config, Control, Director, DiskSpec, Engine, EngineError, LinkWeather, NodeId, NodeSpec, Observer, Played,
    Recording, World, play,
};
use std::{cell::RefCell, future::Future, rc::Rc, time::Duration};

/// Something that happened, in the order in which it did.
pub type Seen<T> = Rc<RefCell<Vec<T>>>;

pub const MS: u64 = 1_000_000;

/// A link on which every frame takes one millisecond.
pub const STEADY: LinkWeather = LinkWeather { latency_min_ns: MS, latency_max_ns: MS, ..LinkWeather::CALM };

pub fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

pub fn config(seed: u64) -> Config {
    Config {
        seed,
        schedule_cut: None,
        recording: Recording::Full,
        weather: STEADY,
        wall_start_ns: 1_000_000 * MS,
        root: None,
    }
}

pub fn boot<F: Future<Output = ()> + 'static>(code: impl Fn(World) -> F + 'static) -> Boot {
    Rc::new(move |world| Box::pin(code(world)))
}

/// A node that only takes what it is sent.
pub fn sink() -> Boot {
    boot(|world| async move {
        loop {
            world.recv().await;
        }
    })
}

pub fn direct<F: Future<Output = ()> + 'static>(conduct: impl FnOnce(Control) -> F + 'static) -> Director {
    Box::new(move |control| Box::pin(conduct(control)))
}

/// A director that only lets time pass.
pub fn wait(by: Duration) -> Director {
    direct(move |control| async move { control.sleep(by).await })
}

pub fn unobserved() -> Observer {
    Box::new(|_| {})
}

pub fn nodes(boots: Vec<Boot>) -> Vec<NodeSpec> {
    let named = boots.into_iter().enumerate();
    named.map(|(at, boot)| NodeSpec { name: format!("node-{at}"), cores: 2, disk: DiskSpec::FLASH, boot }).collect()
}

pub fn try_run(config: Config, boots: Vec<Boot>, director: Director) -> Result<Played, EngineError> {
    play(Engine::Native, config, nodes(boots), director, unobserved())
}

pub fn run(config: Config, boots: Vec<Boot>, director: Director) -> Played {
    try_run(config, boots, director).unwrap()
}

/// A closure that appends to what was seen.
pub fn spy<T: 'static>() -> (Seen<T>, Rc<dyn Fn(T)>) {
    let seen = Seen::<T>::default();
    let writer = seen.clone();
    (seen, Rc::new(move |item| writer.borrow_mut().push(item)))
}

pub const A: NodeId = NodeId(0);
pub const B: NodeId = NodeId(1);
