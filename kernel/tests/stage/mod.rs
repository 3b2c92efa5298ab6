//! A ledger and its clients on the native engine: what the tests of the server and of the client share.
#![allow(dead_code, clippy::unwrap_used)] // each test file uses its own part; a test that cannot go on says where

use kernel::{
    client::{Asking, Client},
    id::{ClientId, TenantId},
    lease::Authority,
    planted::Planted,
    serve::{ANNOUNCEMENT, Announcement, GARBAGE, Settings, serve},
    store::{Store, StoreError},
};
use sim::{Boot, Config, Control, DiskSpec, Engine, LinkWeather, NodeId, NodeSpec, Played, Recording, World, play};
use std::{cell::RefCell, future::Future, pin::Pin, rc::Rc, time::Duration};

/// The ledger's node; client i is node i and has id i.
pub const LEDGER: NodeId = NodeId(0);

/// The first pause between repeats.
pub const RETRY: Duration = Duration::from_millis(20);

/// A day on which a tenth of all frames is lost, a tenth comes twice and a tenth overtakes.
pub const FOUL: LinkWeather = LinkWeather {
    latency_min_ns: 100_000,
    latency_max_ns: 3_000_000,
    loss_ppm: 100_000,
    repeat_ppm: 100_000,
    reorder_ppm: 100_000,
    spike_ppm: 20_000,
    spike_ns: 60_000_000,
    bytes_per_s: 0,
};

pub type Work = Pin<Box<dyn Future<Output = ()>>>;

/// A client's node that does `work`; its end is the node's end.
pub fn client(work: impl AsyncFn(World, Client) + 'static) -> Boot {
    let work = Rc::new(work);
    Rc::new(move |world: World| {
        let client = Client::new(world.clone(), LEDGER, ClientId(u64::from(world.node().0)), RETRY);
        let (receiving, delivering, work) = (world.clone(), client.clone(), work.clone());
        drop(world.spawn(async move {
            loop {
                delivering.deliver(&receiving.recv().await.frame);
            }
        }));
        Box::pin(async move { work(world, client).await })
    })
}

pub fn settings(genesis: Vec<kernel::request::Command>) -> Settings {
    Settings {
        batch_limit: 16,
        queue_limit: 256,
        batch_cost_ns: 20_000,
        request_cost_ns: 2_000,
        checkpoint_every: 7,
        genesis,
    }
}

/// A node that serves the store that `open` opens.
pub fn ledger<S: Store, O>(open: impl Fn(World) -> O + 'static, settings: Settings, planted: Planted) -> Boot
where
    O: FnOnce() -> Result<S, StoreError> + Send + 'static,
{
    Rc::new(move |world| {
        let serving = serve(world.clone(), open(world), settings.clone(), planted.clone());
        Box::pin(async move { drop(serving.await) })
    })
}

/// What a run showed.
pub struct Shown {
    /// What the server announced, and when.
    pub announced: Vec<(u64, Announcement)>,
    /// How many frames the server dropped as garbage.
    pub garbage: usize,
    pub played: Played,
}

/// Plays until `director` and all clients are done; an hour of virtual time is too long.
pub fn stage(
    seed: u64,
    weather: LinkWeather,
    ledger: Boot,
    clients: Vec<Boot>,
    director: impl AsyncFnOnce(&Control) + 'static,
) -> Shown {
    let node = |name: &str, boot| NodeSpec { name: name.to_owned(), cores: 1, disk: DiskSpec::FLASH, boot };
    let mut cast = vec![node("ledger", ledger)];
    cast.extend(clients.into_iter().map(|boot| node("client", boot)));
    let clients = 1..cast.len() as u32;
    let conducted = async move |control: Control| {
        director(&control).await;
        while clients.clone().any(|client| control.is_up(NodeId(client))) {
            control.sleep(Duration::from_millis(10)).await;
            assert!(control.now().as_nanos() < 3_600_000_000_000, "a client was not done after an hour");
        }
    };
    let shown = Rc::new(RefCell::new((Vec::new(), 0)));
    let seen = shown.clone();
    let config = Config {
        seed,
        schedule_cut: None,
        recording: Recording::HashOnly { tail: 0 },
        weather,
        wall_start_ns: 1_700_000_000_000_000_000,
        root: None,
    };
    let observer = Box::new(move |entry: &sim::Entry<'_>| {
        let (announced, garbage) = &mut *seen.borrow_mut();
        match entry.kind {
            ANNOUNCEMENT => announced.push((entry.time_ns, postcard::from_bytes(entry.data).unwrap())),
            GARBAGE => *garbage += 1,
            _ => {}
        }
    });
    let director = Box::new(|control| Box::pin(conducted(control)) as Work);
    let played = play(Engine::Native, config, cast, director, observer).unwrap();
    let (announced, garbage) = shown.take();
    Shown { announced, garbage, played }
}

/// For ever, and at once or not at all.
pub fn now(tenant: TenantId, authority: Option<Authority>) -> Asking {
    Asking { tenant, authority, wait: Duration::ZERO, patience: None }
}
