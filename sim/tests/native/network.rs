//! Weather, partitions and bounds.

use crate::cast::*;
use sim::{Boot, Config, Control, LinkWeather, MAX_FRAME_BYTES, NodeId, Played, Reach, World, bus::MAX_LINK_FRAMES};
use std::time::Duration;

const C: NodeId = NodeId(2);

/// Sends `count` numbered frames to each of `to`, one every `every`.
fn chatter(to: &'static [NodeId], count: u32, every: Duration) -> Boot {
    boot(move |world| async move {
        for number in 0..count {
            for &to in to {
                world.send(to, number.to_le_bytes().to_vec());
            }
            world.sleep(every).await;
        }
        std::future::pending().await
    })
}

/// Who got it, from whom, its number, and when.
type Arrived = (NodeId, NodeId, u32, u64);
type Arrivals = Seen<Arrived>;

/// A node that writes down what arrives. Its clock does not drift here, so that it reads true time.
fn listener(see: &std::rc::Rc<dyn Fn(Arrived)>) -> Boot {
    let see = see.clone();
    boot(move |world: World| {
        let see = see.clone();
        async move {
            loop {
                let datagram = world.recv().await;
                let number = u32::from_le_bytes(datagram.frame.try_into().unwrap());
                see((world.node(), datagram.from, number, world.now().as_nanos()));
            }
        }
    })
}

/// A and B send 200 frames each to C, one a millisecond.
fn two_to_one<F: Future<Output = ()> + 'static>(
    weather: LinkWeather,
    conduct: impl FnOnce(Control) -> F + 'static,
) -> (Played, Vec<(NodeId, u32, u64)>) {
    let (seen, see): (Arrivals, _) = spy();
    let boots = vec![chatter(&[C], 200, ms(1)), chatter(&[C], 200, ms(1)), listener(&see)];
    let director = direct(|control| async move {
        conduct(control.clone()).await;
        control.sleep(ms(1_000)).await;
    });
    let played = run(Config { weather, ..config(9) }, boots, director);
    (played, seen.take().into_iter().map(|(_, from, number, at_ns)| (from, number, at_ns)).collect())
}

fn of(from: NodeId, arrivals: &[(NodeId, u32, u64)]) -> Vec<(u32, u64)> {
    arrivals.iter().filter(|arrival| arrival.0 == from).map(|&(_, number, at_ns)| (number, at_ns)).collect()
}

const ROUGH: LinkWeather = LinkWeather {
    latency_min_ns: 100_000,
    latency_max_ns: 5 * MS,
    loss_ppm: 100_000,
    repeat_ppm: 100_000,
    reorder_ppm: 100_000,
    spike_ppm: 50_000,
    spike_ns: 30 * MS,
    bytes_per_s: 0,
};

#[test]
fn a_fault_on_one_link_shifts_no_draw_of_another() {
    let (_, plain) = two_to_one(ROUGH, |_| async {});
    let (_, faulty) = two_to_one(ROUGH, |control| async move {
        control.set_weather(&Reach::OneWay(B, C), LinkWeather { loss_ppm: 900_000, ..ROUGH }).unwrap();
        control.sleep(ms(25)).await;
        control.set_weather(&Reach::OneWay(B, C), STEADY).unwrap();
        control.sleep(ms(25)).await;
        control.partition(&Reach::OneWay(B, C)).unwrap();
        control.sleep(ms(50)).await;
        control.mend(&Reach::All).unwrap();
        control.set_weather(&Reach::OneWay(B, C), ROUGH).unwrap();
    });
    assert_eq!(of(A, &plain), of(A, &faulty));
    assert_ne!(of(B, &plain), of(B, &faulty));
    let late = |arrivals: &[(NodeId, u32, u64)]| {
        of(B, arrivals).into_iter().filter(|&(number, _)| number >= 160).collect::<Vec<_>>()
    };
    assert_eq!(late(&plain), late(&faulty), "a fault shifted its own link's later draws");
}

#[test]
fn only_what_is_drawn_to_be_reordered_overtakes() {
    let (_, arrivals) = two_to_one(LinkWeather { reorder_ppm: 0, ..ROUGH }, |_| async {});
    let numbers: Vec<u32> = of(A, &arrivals).into_iter().map(|(number, _)| number).collect();
    let is_first = |&(at, number): &(usize, &u32)| !numbers[..at].contains(number);
    assert!(numbers.iter().enumerate().filter(is_first).map(|(_, number)| number).is_sorted(), "a copy overtook");
    let (_, arrivals) = two_to_one(LinkWeather { repeat_ppm: 0, ..ROUGH }, |_| async {});
    assert!(!of(A, &arrivals).is_sorted());
}

#[test]
fn the_rates_are_met() {
    let weather = LinkWeather { loss_ppm: 250_000, repeat_ppm: 100_000, ..STEADY };
    let (seen, see): (Arrivals, _) = spy();
    let boots = vec![chatter(&[B], 20_000, ms(2)), listener(&see)];
    let played = run(Config { weather, ..config(2) }, boots, wait(ms(60_000)));
    let stats = played.stats;
    assert_eq!(stats.frames_sent, 20_000);
    assert!((4_700..5_300).contains(&stats.frames_lost), "{stats:?}");
    assert!((1_350..1_650).contains(&stats.frames_repeated), "{stats:?}");
    assert_eq!(stats.frames_sent, stats.frames_lost + stats.frames_delivered - stats.frames_repeated);
    assert_eq!(seen.borrow().len() as u64, stats.frames_delivered);
}

#[test]
fn latencies_and_spikes_stay_within_their_bounds() {
    let weather =
        LinkWeather { latency_min_ns: MS, latency_max_ns: 3 * MS, spike_ppm: 100_000, spike_ns: 40 * MS, ..STEADY };
    let (seen, see): (Arrivals, _) = spy();
    let every = ms(100);
    let boots = vec![chatter(&[B], 2_000, every), listener(&see)];
    run(Config { weather, ..config(2) }, boots, wait(every * 2_001));
    let latencies: Vec<u64> =
        seen.take().into_iter().map(|(_, _, number, at_ns)| at_ns - u64::from(number) * 100 * MS).collect();
    let (spiked, plain): (Vec<u64>, Vec<u64>) = latencies.iter().partition(|&&latency| latency > 4 * MS);
    assert!(plain.iter().all(|latency| (MS..=3 * MS).contains(latency)));
    assert!(spiked.iter().all(|latency| (41 * MS..=43 * MS).contains(latency)));
    assert!((150..250).contains(&spiked.len()), "{}", spiked.len());
    assert!(plain.iter().min() < Some(&(MS + 20_000)) && plain.iter().max() > Some(&(3 * MS - 20_000)));
}

#[test]
fn a_partition_loses_what_is_sent_and_what_is_on_its_way() {
    let ways: &[(Reach, bool, bool)] = &[
        (Reach::OneWay(A, B), false, true),
        (Reach::OneWay(B, A), true, false),
        (Reach::Between(B, A), false, false),
        (Reach::Node(A), false, false),
        (Reach::Node(C), true, true),
        (Reach::All, false, false),
    ];
    for (reach, there, back) in ways.iter().cloned() {
        let (seen, see): (Arrivals, _) = spy();
        let pair = |to| {
            let (see, talk) = (listener(&see), chatter(to, 30, ms(1)));
            boot(move |world: World| {
                let (listening, talking) = (see(world.clone()), talk(world.clone()));
                async move {
                    world.spawn(listening);
                    talking.await;
                }
            })
        };
        let boots = vec![pair(&[B]), pair(&[A]), sink()];
        let cut = reach.clone();
        let director = direct(move |control| async move {
            control.sleep(Duration::from_micros(10_500)).await;
            control.partition(&cut).unwrap();
            control.sleep(Duration::from_micros(200)).await;
            control.mend(&cut).unwrap();
            control.sleep(Duration::from_micros(9_800)).await;
            control.partition(&cut).unwrap();
            control.sleep(ms(4)).await;
            control.mend(&Reach::All).unwrap();
            control.sleep(ms(100)).await;
        });
        run(config(1), boots, director);
        let seen = seen.take();
        let to = |to| seen.iter().filter(|arrival| arrival.0 == to).map(|arrival| arrival.2).collect::<Vec<u32>>();
        let all: Vec<u32> = (0..30).collect();
        let pierced: Vec<u32> =
            all.iter().copied().filter(|&number| number != 10 && !(20..=24).contains(&number)).collect();
        assert_eq!(to(B), if there { all.clone() } else { pierced.clone() }, "{reach:?} there");
        assert_eq!(to(A), if back { all } else { pierced }, "{reach:?} back");
    }
}

#[test]
fn a_link_first_used_after_a_fault_has_it() {
    let (seen, see): (Arrivals, _) = spy();
    let late = boot(|world| async move {
        world.sleep(ms(10)).await;
        chatter(&[B, C], 5, ms(10))(world).await;
    });
    let slow = LinkWeather { latency_min_ns: 3 * MS, latency_max_ns: 3 * MS, ..STEADY };
    let director = direct(move |control| async move {
        control.set_weather(&Reach::Node(B), slow).unwrap();
        control.partition(&Reach::All).unwrap();
        control.mend(&Reach::Node(B)).unwrap();
        control.sleep(ms(35)).await;
        control.heal().unwrap();
        control.sleep(ms(100)).await;
    });
    run(config(1), vec![late, listener(&see), listener(&see)], director);
    let mut seen: Vec<_> = seen.take().into_iter().map(|(to, _, number, at_ns)| (to, number, at_ns / MS)).collect();
    seen.sort_by_key(|&(to, number, _)| (number, to));
    assert_eq!(seen, [(B, 0, 13), (B, 1, 23), (B, 2, 33), (B, 3, 41), (C, 3, 41), (B, 4, 51), (C, 4, 51)]);
}

#[test]
fn bounds_are_kept_and_counted() {
    let flood = boot(|world| async move {
        for _ in 0..MAX_LINK_FRAMES + 10 {
            world.send(B, vec![0; 4]);
        }
        world.send(C, vec![0; MAX_FRAME_BYTES]);
        world.send(C, vec![0; MAX_FRAME_BYTES + 1]);
        world.send(NodeId(77), vec![]);
        world.sleep(ms(50)).await;
        world.send(B, vec![0; 4]);
        world.sleep(ms(100)).await;
        world.send(B, vec![0; 4]);
        std::future::pending().await
    });
    let sleepy = boot(|world| async move {
        world.sleep(ms(100)).await;
        loop {
            world.recv().await;
        }
    });
    let stats = run(config(1), vec![flood, sleepy, sink()], wait(ms(500))).stats;
    assert_eq!(stats.frames_overflowed, 10 + 1 + 1, "ten too many, one too long, one while nothing was read");
    assert_eq!(stats.frames_lost, 1, "to nobody");
    assert_eq!(stats.frames_delivered, MAX_LINK_FRAMES as u64 + 2);
}

#[test]
fn a_dead_nodes_frames_are_lost_and_a_new_incarnation_gets_the_late_ones() {
    let (seen, see) = spy();
    let hearing = boot(move |world: World| {
        let see = see.clone();
        async move {
            loop {
                let datagram = world.recv().await;
                see((datagram.frame[0], datagram.incarnation, world.incarnation()));
            }
        }
    });
    let calling = boot(|world| async move {
        for number in 0..6 {
            world.send(B, vec![number]);
            world.sleep(ms(10)).await;
        }
        std::future::pending().await
    });
    let director = direct(|control| async move {
        control.sleep(Duration::from_micros(10_200)).await;
        control.kill(B).unwrap();
        control.restart(B).unwrap();
        control.sleep(ms(9)).await;
        control.kill(B).unwrap();
        control.sleep(ms(10)).await;
        control.restart(B).unwrap();
        control.kill(A).unwrap();
        control.restart(A).unwrap();
        control.sleep(ms(15)).await;
    });
    run(config(1), vec![calling, hearing], director);
    assert_eq!(seen.take(), [(0, 0, 0), (1, 0, 1), (0, 1, 2), (1, 1, 2)]);
}

#[test]
fn what_a_dead_node_had_not_read_no_longer_fills_its_links() {
    let filling = boot(|world| async move {
        for _ in 0..2 {
            (0..MAX_LINK_FRAMES).for_each(|_| world.send(B, vec![]));
            world.sleep(ms(10)).await;
        }
        std::future::pending().await
    });
    let deaf = boot(|_| std::future::pending());
    let director = direct(|control| async move {
        control.sleep(ms(5)).await;
        control.kill(B).unwrap();
        control.restart(B).unwrap();
        control.sleep(ms(20)).await;
    });
    let stats = run(config(1), vec![filling, deaf], director).stats;
    assert_eq!((stats.frames_overflowed, stats.frames_delivered), (0, 2 * MAX_LINK_FRAMES as u64));
}

#[test]
fn a_clogged_link_passes_its_bytes_one_after_another_and_no_more_than_its_queue() {
    let clogged = |bytes_per_s| {
        two_to_one(STEADY, move |control| async move {
            control.set_weather(&Reach::OneWay(B, C), LinkWeather { bytes_per_s, ..STEADY }).unwrap();
            control.sleep(ms(100)).await;
            control.set_weather(&Reach::OneWay(B, C), STEADY).unwrap();
        })
    };
    let (_, plain) = two_to_one(STEADY, |_| async {});
    // Four bytes take two milliseconds, and one frame is sent each: half of the hundred are still queued at the end.
    let (played, arrivals) = clogged(2_000);
    assert_eq!(of(A, &plain), of(A, &arrivals));
    let from_b = of(B, &arrivals);
    assert_eq!(from_b.len(), 200);
    assert_eq!(&from_b[..3], [(0, 3 * MS), (1, 5 * MS), (2, 7 * MS)]);
    assert!(from_b.is_sorted());
    assert!((95..=100).contains(&played.stats.effects.frames_queued), "{:?}", played.stats);
    assert_eq!(from_b.last(), Some(&(199, 203 * MS)), "nothing overtakes what the clog had queued");
    // A frame takes two seconds: five fit into the queue.
    let (played, _) = clogged(2);
    assert!(played.stats.frames_overflowed > 90, "{:?}", played.stats);
    assert_eq!(clogged(2_000).0.history.hash, clogged(2_000).0.history.hash);
}

#[test]
fn halves_reach_each_other_only_by_the_bridge() {
    let all: &[NodeId] = &[A, B, C, NodeId(3)];
    let pairs = |bridge, split| {
        let (seen, see): (Arrivals, _) = spy();
        let boots = (0..4).map(|_| {
            let see = see.clone();
            boot(move |world: World| {
                let see = see.clone();
                async move {
                    world.sleep(ms(2)).await;
                    all.iter().filter(|to| **to != world.node()).for_each(|to| world.send(*to, vec![0; 4]));
                    loop {
                        let datagram = world.recv().await;
                        see((world.node(), datagram.from, 0, 0));
                    }
                }
            })
        });
        let director = direct(move |control| async move {
            let reach = Reach::Across { bridge, split };
            control.partition(&reach).unwrap();
            control.sleep(ms(10)).await;
            control.mend(&reach).unwrap();
        });
        let played = run(config(1), boots.collect(), director);
        let mut pairs: Vec<(u32, u32)> = seen.take().into_iter().map(|(to, from, ..)| (from.0, to.0)).collect();
        pairs.sort_unstable();
        (pairs, played.stats.effects.frames_cut)
    };
    let expect = [(0, 1), (0, 2), (1, 0), (1, 2), (1, 3), (2, 0), (2, 1), (3, 1)];
    let (through_b, cut) = pairs(B, 2);
    assert_eq!((through_b.as_slice(), cut), (expect.as_slice(), 4));
    assert_eq!(pairs(B, 3).1, 0, "one half is empty");
}
