//! Tasks, their handles, and channels of tokio's between them.

use crate::cast::*;
use sim::{Cancelled, World};
use std::{rc::Rc, time::Duration};
use tokio::sync::{Notify, mpsc, oneshot};

#[test]
fn a_handle_gives_the_result_or_says_cancelled() {
    let (seen, see) = spy();
    let parent = boot(move |world: World| {
        let see = see.clone();
        async move {
            see(("value", world.spawn(async { 7 }).await));
            let sleeping = world.clone();
            let slow = world.spawn(async move {
                sleeping.sleep(ms(50)).await;
                8
            });
            world.sleep(ms(1)).await;
            slow.cancel();
            slow.cancel();
            see(("cancelled", slow.await));
            let unpolled = world.spawn(async { 9 });
            unpolled.cancel();
            see(("unpolled", unpolled.await));
            let left = world.clone();
            drop(world.spawn(async move { left.note(16, b"detached") }));
            world.sleep(ms(1)).await;
        }
    });
    let played = run(config(1), vec![parent], wait(ms(100)));
    assert_eq!(seen.take(), [("value", Ok(7)), ("cancelled", Err(Cancelled)), ("unpolled", Err(Cancelled))]);
    let noted = sim::history::read(&played.history.kept).any(|entry| entry.unwrap().data == b"detached");
    assert!(noted, "dropping a handle leaves the task running");
}

#[test]
fn a_task_may_cancel_itself() {
    let (seen, see) = spy();
    let parent = boot(move |world: World| {
        let see = see.clone();
        async move {
            let (give, take) = oneshot::channel::<Rc<sim::Task<()>>>();
            let task = Rc::new(world.spawn(async move {
                take.await.unwrap().cancel();
                std::future::pending().await
            }));
            let _ = give.send(task.clone());
            world.sleep(ms(1)).await;
            let task = Rc::into_inner(task).expect("the task dropped its handle on itself");
            see(task.await);
        }
    });
    run(config(1), vec![parent], wait(ms(100)));
    assert_eq!(seen.take(), [Err(Cancelled)]);
}

#[test]
fn channels_of_tokio_work_between_tasks() {
    let (seen, see) = spy();
    let node = boot(move |world: World| {
        let see = see.clone();
        async move {
            let (sender, mut receiver) = mpsc::channel::<(u32, oneshot::Sender<u32>)>(2);
            let done = Rc::new(Notify::new());
            for number in 0..5 {
                let (sender, world, done) = (sender.clone(), world.clone(), done.clone());
                let asking = async move {
                    let (reply, answer) = oneshot::channel();
                    sender.send((number, reply)).await.unwrap();
                    assert_eq!(answer.await, Ok(number * 2));
                    done.notify_one();
                };
                world.spawn(asking);
            }
            drop(sender);
            let serving = world.clone();
            let served = world.spawn(async move {
                let mut served = 0;
                while let Some((number, reply)) = receiver.recv().await {
                    serving.sleep(ms(1)).await;
                    reply.send(number * 2).unwrap();
                    served += 1;
                }
                served
            });
            done.notified().await;
            see((served.await.unwrap(), world.now().as_nanos() / MS));
        }
    });
    run(config(1), vec![node], wait(ms(100)));
    assert_eq!(seen.take(), [(5, 5)]);
}

#[test]
fn randomness_is_keyed_by_node_incarnation_and_label() {
    let (seen, see) = spy();
    let drawing = boot(move |world: World| {
        let see = see.clone();
        async move {
            let by_label = [0, 1].map(|label| world.stream(label).next_u64());
            see([world.random(), world.random(), by_label[0], by_label[1]]);
            assert_eq!(world.stream(1).next_u64(), by_label[1]);
            std::future::pending().await
        }
    });
    let director = || {
        direct(|control| async move {
            control.sleep(ms(1)).await;
            control.kill(A).unwrap();
            control.restart(A).unwrap();
            control.sleep(ms(1)).await;
        })
    };
    run(config(1), vec![drawing.clone(), drawing.clone()], director());
    let first = seen.take();
    run(config(1), vec![drawing.clone(), drawing.clone()], director());
    assert_eq!(first, seen.take());
    run(config(2), vec![drawing.clone(), drawing], director());
    let mut all: Vec<u64> = first.into_iter().chain(seen.take()).flatten().collect();
    let drawn = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!((all.len(), drawn), (24, 24), "every draw differs");
}

#[test]
fn a_waker_that_outlives_its_run_wakes_nothing() {
    let (leak, leaked) = std::sync::mpsc::channel();
    let leaking = boot(move |_| {
        let leak = leak.clone();
        async move {
            std::future::poll_fn::<(), _>(|cx| {
                leak.send(cx.waker().clone()).unwrap();
                std::task::Poll::Pending
            })
            .await
        }
    });
    run(config(1), vec![leaking], wait(ms(1)));
    let stale = leaked.recv().unwrap();
    let (seen, see) = spy();
    let counting = boot(move |_| {
        let (see, stale) = (see.clone(), stale.clone());
        async move {
            std::future::poll_fn::<(), _>(|_| {
                see(());
                stale.wake_by_ref();
                std::task::Poll::Pending
            })
            .await
        }
    });
    run(config(1), vec![counting], wait(Duration::from_secs(1)));
    assert_eq!(seen.borrow().len(), 1);
}
