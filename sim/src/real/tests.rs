//! What the real engine promises, played on this machine. Nothing here depends on how fast it is.

use super::*;
use crate::{
    Boot, Cancelled, DiskSpec, Elapsed, Entry, MAX_FRAME_BYTES, Open, Recording, Stats, bus::MAX_LINK_FRAMES, history,
    history::kind,
};
use std::{
    cell::RefCell,
    io::{Read, Write},
    path::Path,
};
use tokio::sync::Semaphore;

/// A place that nodes report to and a director waits at.
#[derive(Clone)]
struct Gate(Rc<Semaphore>);

impl Gate {
    fn shut() -> Gate {
        Gate(Rc::new(Semaphore::new(0)))
    }

    fn report(&self) {
        self.0.add_permits(1);
    }

    async fn reports(&self, n: u32) {
        self.0.acquire_many(n).await.unwrap().forget();
    }
}

fn node<F: Future<Output = ()> + 'static>(boot: impl Fn(World) -> F + 'static) -> NodeSpec {
    let boot: Boot = Rc::new(move |world| Box::pin(boot(world)));
    NodeSpec { name: "node".to_owned(), cores: 1, disk: DiskSpec::FLASH, boot }
}

fn director<F: Future<Output = ()> + 'static>(conduct: impl FnOnce(Control) -> F + 'static) -> Director {
    Box::new(move |control| Box::pin(conduct(control)))
}

fn config(root: &Path) -> Config {
    Config {
        seed: 7,
        schedule_cut: None,
        recording: Recording::Full,
        weather: LinkWeather::CALM,
        wall_start_ns: 0,
        root: Some(root.to_owned()),
    }
}

fn played(cast: Vec<NodeSpec>, director: Director) -> Played {
    let root = tempfile::tempdir().unwrap();
    play(config(root.path()), cast, director, Box::new(|_| {})).unwrap()
}

/// Plays one node until its boot is done.
fn alone<F: Future<Output = ()> + 'static>(boot: impl Fn(World) -> F + 'static) -> Played {
    let (gate, done) = (Gate::shut(), Rc::new(boot));
    let reported = gate.clone();
    let cast = node(move |world| {
        let (gate, done) = (gate.clone(), done.clone());
        async move {
            done(world).await;
            gate.report();
        }
    });
    played(vec![cast], director(move |_| async move { reported.reports(1).await }))
}

async fn echo(world: World) {
    loop {
        let Datagram { from, frame, .. } = world.recv().await;
        world.send(from, frame);
    }
}

#[test]
fn frames_go_round_three_nodes_in_the_order_sent() {
    let gate = Gate::shut();
    let reported = gate.clone();
    let asking = node(move |world| {
        let gate = gate.clone();
        async move {
            for number in 0..100u32 {
                world.send(NodeId(1 + number % 2), number.to_le_bytes().to_vec());
            }
            let mut answers = [Vec::new(), Vec::new(), Vec::new()];
            for _ in 0..100 {
                let Datagram { from, incarnation, frame } = world.recv().await;
                assert_eq!(incarnation, 0);
                answers[from.0 as usize].push(u32::from_le_bytes(frame.try_into().unwrap()));
            }
            let expected = |first| (first..100).step_by(2).collect::<Vec<u32>>();
            assert_eq!(answers, [vec![], expected(0), expected(1)]);
            gate.report();
        }
    });
    let Played { stats, .. } =
        played(vec![asking, node(echo), node(echo)], director(move |_| async move { reported.reports(1).await }));
    assert_eq!((stats.frames_sent, stats.frames_delivered), (200, 200));
    assert_eq!((stats.frames_lost, stats.frames_overflowed), (0, 0));
}

#[test]
fn a_node_can_send_to_itself() {
    alone(|world| async move {
        world.send(world.node(), b"note to self".to_vec());
        let expected = Datagram { from: NodeId(0), incarnation: 0, frame: b"note to self".to_vec() };
        assert_eq!(world.recv().await, expected);
    });
}

#[test]
fn the_longest_frame_passes_and_a_longer_one_is_refused() {
    let Played { stats, .. } = alone(|world| async move {
        world.send(world.node(), vec![1; MAX_FRAME_BYTES + 1]);
        world.send(world.node(), vec![2; MAX_FRAME_BYTES]);
        world.send(world.node(), vec![]);
        assert!(world.recv().await.frame == vec![2; MAX_FRAME_BYTES]);
        assert!(world.recv().await.frame.is_empty());
    });
    assert_eq!((stats.frames_sent, stats.frames_overflowed, stats.frames_delivered), (3, 1, 2));
}

#[test]
fn a_link_holds_so_many_frames_and_no_more_until_some_are_read() {
    let Played { stats, .. } = alone(|world| async move {
        let send = |number: usize| world.send(world.node(), number.to_le_bytes().to_vec());
        (0..MAX_LINK_FRAMES + 5).for_each(send);
        assert_eq!(world.recv().await.frame, 0usize.to_le_bytes());
        send(MAX_LINK_FRAMES);
        send(MAX_LINK_FRAMES + 1);
        for number in 1..=MAX_LINK_FRAMES {
            assert_eq!(world.recv().await.frame, number.to_le_bytes());
        }
    });
    assert_eq!(stats.frames_overflowed, 6);
    assert_eq!(stats.frames_delivered as usize, MAX_LINK_FRAMES + 1);
}

#[test]
fn frames_to_a_node_that_ended_or_never_was_are_lost() {
    let gate = Gate::shut();
    let reported = gate.clone();
    let sending = node(move |world| {
        let gate = gate.clone();
        async move {
            world.send(NodeId(1), b"the last you hear".to_vec());
            world.send(NodeId(9), b"nobody".to_vec());
            assert_eq!(world.recv().await.frame, b"goodbye");
            // The other end hangs up some time after its last frame: a frame until then may reach it unread.
            world.send(NodeId(1), b"too late".to_vec());
            gate.report();
            std::future::pending().await
        }
    });
    let ending = node(|world| async move {
        world.recv().await;
        world.send(NodeId(0), b"goodbye".to_vec());
    });
    let Played { stats, history, .. } = played(
        vec![sending, ending],
        director(move |control| async move {
            reported.reports(1).await;
            while control.is_up(NodeId(1)) {
                tokio::task::yield_now().await;
            }
            assert!(control.is_up(NodeId(0)));
        }),
    );
    assert_eq!((stats.frames_sent, stats.frames_overflowed), (4, 0));
    assert!(stats.frames_lost >= 1);
    let downs: Vec<_> = entries(&history.kept).into_iter().filter(|entry| entry.1 == kind::DOWN).collect();
    assert_eq!(downs, [(NodeId(1), kind::DOWN, vec![0])]);
}

type Noted = (NodeId, u16, Vec<u8>);

fn entries(kept: &[u8]) -> Vec<Noted> {
    history::read(kept).map(Result::unwrap).map(|entry| (entry.node, entry.kind, entry.data.to_vec())).collect()
}

#[test]
fn the_end_of_a_boot_ends_the_tasks_it_left() {
    let gate = Gate::shut();
    let reported = gate.clone();
    let leaving = node(move |world| {
        let on_drop = OnDrop::report_to(&gate);
        async move {
            drop(world.spawn(async move {
                let _on_drop = on_drop;
                std::future::pending::<()>().await
            }));
        }
    });
    played(vec![leaving], director(move |_| async move { reported.reports(1).await }));
}

struct OnDrop(Gate);

impl OnDrop {
    fn report_to(gate: &Gate) -> OnDrop {
        OnDrop(gate.clone())
    }
}

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.report();
    }
}

#[test]
fn an_offloaded_closure_uses_the_disk_and_the_director_sees_it() {
    let gate = Gate::shut();
    let reported = gate.clone();
    let writing = node(move |world| {
        let gate = gate.clone();
        async move {
            let disk = world.disk();
            let len = world.offload(move || {
                let file = disk.open("a", Open::New).unwrap();
                file.write_at(2, b"new").unwrap();
                file.sync().unwrap();
                disk.sync_dir().unwrap();
                file.len().unwrap()
            });
            assert_eq!(len.await, 5);
            gate.report();
            std::future::pending().await
        }
    });
    let Played { stats, .. } = played(
        vec![node(|_| async {}), writing],
        director(move |control| async move {
            reported.reports(1).await;
            let image = control.disk_image(NodeId(1));
            let mut content = [9; 5];
            image.open("a", Open::Existing).unwrap().read_at(0, &mut content).unwrap();
            assert_eq!(&content, b"\0\0new");
            assert!(control.disk_image(NodeId(0)).list().unwrap().is_empty());
            assert_eq!((control.disk_operations(NodeId(0)), control.disk_operations(NodeId(1))), (0, 4));
        }),
    );
    assert_eq!(stats.disk_operations, 4);
}

#[test]
fn a_closure_that_is_still_at_work_is_waited_for() {
    let root = tempfile::tempdir().unwrap();
    let gate = Gate::shut();
    let reported = gate.clone();
    let writing = node(move |world| {
        let gate = gate.clone();
        async move {
            let disk = world.disk();
            let (begun, begins) = tokio::sync::oneshot::channel();
            let work = world.spawn({
                let world = world.clone();
                async move {
                    let write = move || {
                        begun.send(()).unwrap();
                        for block in 0..200 {
                            disk.open(&format!("{block}"), Open::New).unwrap().write_at(0, &[1; 4096]).unwrap();
                        }
                    };
                    world.offload(write).await
                }
            });
            begins.await.unwrap();
            gate.report();
            work.await.unwrap();
        }
    });
    let over = director(move |_| async move { reported.reports(1).await });
    play(config(root.path()), vec![writing], over, Box::new(|_| {})).unwrap();
    assert_eq!(Disk::at(&root.path().join("node-0")).unwrap().list().unwrap().len(), 200);
}

#[test]
fn timers_wait_and_time_out() {
    let limit = Duration::from_millis(5);
    alone(move |world| async move {
        let before = world.now();
        world.sleep(limit).await;
        assert!(world.now().since(before) >= limit);
        assert_eq!(world.timeout(limit, std::future::pending::<()>()).await, Err(Elapsed { after: limit }));
        assert_eq!(world.timeout(Duration::ZERO, async { 5 }).await, Ok(5));
        world.charge(u64::MAX).await;
        assert!(world.wall_ns() > 1_500_000_000_000_000_000, "this machine's clock is past 2017");
    });
}

#[test]
fn the_directors_clock_is_the_runs() {
    let sleep = Duration::from_millis(5);
    let Played { elapsed_ns, .. } = played(
        vec![],
        director(move |control| async move {
            let before = control.now();
            control.sleep(sleep).await;
            assert!(control.now().since(before) >= sleep);
        }),
    );
    assert!(u128::from(elapsed_ns) >= sleep.as_nanos());
}

#[test]
fn a_task_gives_its_result_and_outlives_its_handle() {
    alone(|world| async move {
        let inner = world.clone();
        assert_eq!(world.spawn(async move { inner.spawn_cancellable(async { 5 }).await }).await, Ok(Ok(5)));
        let gate = Gate::shut();
        let reported = gate.clone();
        drop(world.spawn(async move { gate.report() }));
        reported.reports(1).await;
    });
}

#[test]
fn a_cancelled_task_is_dropped_at_once() {
    alone(|world| async move {
        let gate = Gate::shut();
        let held = |gate: &Gate| {
            let on_drop = OnDrop::report_to(gate);
            async move {
                let _on_drop = on_drop;
                std::future::pending::<()>().await
            }
        };
        let never_polled = world.spawn(held(&gate));
        never_polled.cancel();
        assert_eq!(gate.0.available_permits(), 1);
        assert_eq!(never_polled.await, Err(Cancelled));

        let under_way = world.spawn(held(&gate));
        world.sleep(Duration::from_millis(1)).await;
        under_way.cancel();
        under_way.cancel();
        assert_eq!(gate.0.available_permits(), 2);
        assert_eq!(under_way.await, Err(Cancelled));

        let finished = world.spawn(async { 5 });
        world.sleep(Duration::from_millis(1)).await;
        finished.cancel();
        assert_eq!(finished.await, Ok(5));
    });
}

#[test]
fn a_task_that_cancels_itself_ends_at_its_next_await() {
    alone(|world| async move {
        let own: Rc<RefCell<Option<crate::Task<()>>>> = Rc::default();
        let (gate, task) = (Gate::shut(), own.clone());
        let on_drop = OnDrop::report_to(&gate);
        let started = world.spawn(async move {
            task.borrow().as_ref().unwrap().cancel();
            let _on_drop = on_drop;
            std::future::pending().await
        });
        *own.borrow_mut() = Some(started);
        gate.reports(1).await;
        let cancelled = own.take().unwrap().await;
        assert_eq!(cancelled, Err(Cancelled));
    });
}

#[test]
fn nothing_outlives_a_play() {
    let (gate, reported) = (Gate::shut(), Gate::shut());
    let (held, reporting) = (gate.clone(), reported.clone());
    let booting = node(move |world| {
        let (held, reporting) = (held.clone(), reporting.clone());
        async move {
            let own: Rc<RefCell<Option<crate::Task<()>>>> = Rc::default();
            let kept = own.clone();
            let holding_itself = world.spawn(async move {
                let _held = (held, kept);
                std::future::pending().await
            });
            *own.borrow_mut() = Some(holding_itself);
            world.send(NodeId(1), vec![]);
            world.recv().await;
            reporting.report();
            std::future::pending().await
        }
    });
    played(vec![booting, node(echo)], director(move |_| async move { reported.reports(1).await }));
    assert_eq!(Rc::strong_count(&gate.0), 1);
}

#[test]
fn plays_on_one_folder_follow_each_other_and_give_up_their_ports() {
    let root = tempfile::tempdir().unwrap();
    for play in 0..2u8 {
        let gate = Gate::shut();
        let reported = gate.clone();
        let booting = node(move |world| {
            let gate = gate.clone();
            async move {
                let disk = world.disk();
                world.offload(move || drop(disk.open(&play.to_string(), Open::New).unwrap())).await;
                world.send(NodeId(1), vec![play]);
                world.recv().await;
                gate.report();
            }
        });
        let cast = vec![booting, node(echo)];
        let stage = Stage::set(&config(root.path()), &cast, Box::new(|_| {})).unwrap();
        let addresses = [0, 1].map(|node| stage.run.node(NodeId(node)).unwrap().address);
        let hello = [&stage.run.token.to_le_bytes()[..], &[0; 8]].concat();
        stage.play(cast, director(move |_| async move { reported.reports(1).await })).unwrap();
        for address in addresses {
            // Nobody listens there now, or another test's play, which hangs up on this one's hello.
            if let Ok(mut stream) = std::net::TcpStream::connect(address) {
                let sent = stream.write_all(&hello);
                assert!(sent.is_err() || !matches!(stream.read(&mut [0]), Ok(1)));
            }
        }
    }
    assert_eq!(Disk::at(&root.path().join("node-0")).unwrap().list().unwrap(), ["0", "1"]);
}

#[test]
fn draws_are_those_of_the_native_engine() {
    let drawn = |engine| {
        let root = tempfile::tempdir().unwrap();
        let draws: Rc<RefCell<Vec<u64>>> = Rc::default();
        let gate = Gate::shut();
        let (drawing, reported) = (draws.clone(), gate.clone());
        let drawing = node(move |world| {
            let (draws, gate) = (drawing.clone(), gate.clone());
            async move {
                let own = [world.random(), world.random(), world.stream(3).next_u64(), world.stream(4).next_u64()];
                draws.borrow_mut().extend(own);
                gate.report();
            }
        });
        let cast = vec![node(|_| async {}), drawing];
        let over = director(move |_| async move { reported.reports(1).await });
        crate::play(engine, config(root.path()), cast, over, Box::new(|_| {})).unwrap();
        draws.take()
    };
    let draws = drawn(Engine::Real);
    assert_eq!(draws.len(), 4);
    assert_eq!(draws, drawn(Engine::Native));
}

#[test]
fn history_is_what_was_noted_in_that_order_with_rising_times() {
    let root = tempfile::tempdir().unwrap();
    let seen: Rc<RefCell<Vec<Noted>>> = Rc::default();
    let gate = Gate::shut();
    let (reported, seeing) = (gate.clone(), seen.clone());
    let noting = node(move |world| {
        let gate = gate.clone();
        async move {
            world.note(32, b"first");
            world.note(33, b"second");
            gate.report();
            std::future::pending().await
        }
    });
    let over = director(move |control| async move {
        reported.reports(1).await;
        control.note(34, b"third");
    });
    let observer = move |entry: &Entry<'_>| seeing.borrow_mut().push((entry.node, entry.kind, entry.data.to_vec()));
    let Played { history, stats, elapsed_ns } =
        play(config(root.path()), vec![noting], over, Box::new(observer)).unwrap();
    let expected = [
        (NodeId(0), kind::UP, vec![]),
        (NodeId(0), 32, b"first".to_vec()),
        (NodeId(0), 33, b"second".to_vec()),
        (NodeId::DIRECTOR, 34, b"third".to_vec()),
        (NodeId::DIRECTOR, kind::CLOSE, postcard::to_stdvec(&(stats, 0u64)).unwrap()),
    ];
    assert_eq!(seen.take(), expected);
    assert_eq!(entries(&history.kept), expected);
    assert_eq!(history.entries, 5);
    let times: Vec<u64> = history::read(&history.kept).map(|entry| entry.unwrap().time_ns).collect();
    assert!(times.is_sorted() && times.last() == Some(&elapsed_ns));
}

#[test]
#[should_panic(expected = "a defect of the cast")]
fn a_panic_of_a_task_is_the_plays() {
    let panicking = node(|world| async move { world.spawn(async { panic!("a defect of the cast") }).await.unwrap() });
    played(vec![panicking], director(|_| std::future::pending()));
}

#[test]
#[should_panic(expected = "a defect of the store")]
fn a_panic_of_an_offloaded_closure_is_the_plays() {
    let panicking = node(|world| async move { world.offload(|| panic!("a defect of the store")).await });
    played(vec![panicking], director(|_| std::future::pending()));
}

#[test]
#[should_panic(expected = "a defect of the director")]
fn a_panic_of_the_director_is_the_plays() {
    played(vec![node(echo)], director(|_| async { panic!("a defect of the director") }));
}

#[test]
fn faults_are_refused_by_name_and_healing_is_not() {
    type Fault = fn(&Control) -> Result<(), Unsupported>;
    const NODE: NodeId = NodeId(0);
    let faults: [(&str, Fault); 12] = [
        ("kill", |control| control.kill(NODE)),
        ("power cut", |control| control.power_cut(NODE)),
        ("felling at a disk operation", |control| control.fell_at_disk_operation(NODE, 1, false)),
        ("restart", |control| control.restart(NODE)),
        ("pause", |control| control.pause(NODE)),
        ("resume", |control| control.resume(NODE)),
        ("step of the wall clock", |control| control.step_wall(NODE, 1)),
        ("clock drift", |control| control.set_drift(NODE, 1)),
        ("link weather", |control| control.set_weather(&Reach::All, LinkWeather::CALM)),
        ("partition", |control| control.partition(&Reach::All)),
        ("mending of links", |control| control.mend(&Reach::All)),
        ("cancel at an await", |control| control.cancel(NODE, 1)),
    ];
    played(
        vec![node(echo)],
        director(move |control| async move {
            for (fault, apply) in faults {
                assert_eq!(apply(&control), Err(Unsupported { fault, engine: Engine::Real }));
            }
            assert_eq!(control.heal(), Ok(()));
            assert!(control.is_up(NODE));
        }),
    );
}

#[test]
fn a_play_without_a_folder_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let config = Config { root: None, ..config(root.path()) };
    let refused = play(config, vec![], director(|_| std::future::pending()), Box::new(|_| {}));
    assert!(matches!(refused, Err(EngineError::NoRoot)));
}

#[test]
fn frames_from_strangers_are_not_heard() {
    let gate = Gate::shut();
    let reported = gate.clone();
    let hearing = node(move |world| {
        let gate = gate.clone();
        async move {
            world.send(NodeId(0), b"own".to_vec());
            assert_eq!(world.recv().await.frame, b"own");
            gate.report();
            world.recv().await;
            panic!("a frame of another run");
        }
    });
    let cast = vec![hearing];
    let root = tempfile::tempdir().unwrap();
    let stage = Stage::set(&config(root.path()), &cast, Box::new(|_| {})).unwrap();
    let (address, token) = (stage.run.node(NodeId(0)).unwrap().address, stage.run.token);
    let over = director(move |_| async move {
        reported.reports(1).await;
        let frame = [&1u32.to_le_bytes()[..], b"x"].concat();
        let hellos = [(token ^ 1, 0u32), (token, 5)];
        for (token, from) in hellos {
            use tokio::io::{AsyncReadExt, AsyncWriteExt};
            let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
            let hello = [&token.to_le_bytes()[..], &from.to_le_bytes(), &0u32.to_le_bytes()].concat();
            stream.write_all(&[hello, frame.clone()].concat()).await.unwrap();
            // The end of the stream, or its reset, is the node's hanging up.
            assert!(!matches!(stream.read(&mut [0]).await, Ok(1)));
        }
    });
    let Played { stats, .. } = stage.play(cast, over).unwrap();
    let Stats { frames_delivered, .. } = stats;
    assert_eq!(frames_delivered, 1);
}
