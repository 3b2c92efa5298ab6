//! The native engine: clients that each call one server, wait for its answer, and call again.

use crate::operation::Operation;
use sim::{Boot, Config, Director, DiskSpec, Engine, LinkWeather, NodeId, NodeSpec, Observer, Recording, World, play};
use std::{cell::Cell, future::Future, rc::Rc};
use tokio::sync::Notify;

/// How many clients call.
const CLIENTS: [u32; 3] = [64, 256, 1_024];

/// Calls in one operation, over all clients.
const CALLS: u32 = 16_384;

/// The server.
const SERVER: NodeId = NodeId(0);

/// One operation a number of clients.
pub fn operations() -> Vec<Operation> {
    let operation = |clients: u32| {
        let done = move || assert_eq!(calls(clients, CALLS / clients), u64::from(CALLS), "every call is answered");
        Operation::new(format!("engine/calls of {clients} clients"), (CALLS.into(), "calls"), 64, move || {
            Box::new(done)
        })
    };
    CLIENTS.map(operation).into()
}

/// Plays a run in which each client makes so many calls, one after the other; gives back how many were answered.
pub fn calls(clients: u32, each: u32) -> u64 {
    let (answered, done) = (Rc::new(Cell::new(0_u64)), Rc::new(Notify::new()));
    let server = boot(|world| async move {
        loop {
            let call = world.recv().await;
            world.send(call.from, call.frame);
        }
    });
    let mut cast = vec![node("server", server)];
    for _ in 0..clients {
        let (answered, done) = (answered.clone(), done.clone());
        let client = boot(move |world| {
            let (answered, done) = (answered.clone(), done.clone());
            async move {
                for number in 0..each {
                    world.send(SERVER, number.to_le_bytes().to_vec());
                    let answer = world.recv().await;
                    assert_eq!(answer.frame, number.to_le_bytes(), "a call is answered before the next is made");
                    answered.set(answered.get() + 1);
                }
                if answered.get() == u64::from(clients) * u64::from(each) {
                    done.notify_one();
                }
                std::future::pending().await
            }
        });
        cast.push(node("client", client));
    }
    let config = Config {
        seed: 1,
        schedule_cut: None,
        recording: Recording::HashOnly { tail: 0 },
        weather: LinkWeather::CALM,
        wall_start_ns: 0,
        root: None,
    };
    let director: Director = Box::new(move |_| Box::pin(async move { done.notified().await }));
    let unobserved: Observer = Box::new(|_| {});
    play(Engine::Native, config, cast, director, unobserved).expect("the run ends when every call is answered");
    answered.get()
}

fn node(name: &str, boot: Boot) -> NodeSpec {
    NodeSpec { name: name.to_owned(), cores: 1, disk: DiskSpec::FLASH, boot }
}

fn boot<F: Future<Output = ()> + 'static>(code: impl Fn(World) -> F + 'static) -> Boot {
    Rc::new(move |world| Box::pin(code(world)))
}
