//! The client against a ledger that answers by script: what it sends, when it repeats, what it acknowledges, and what it
//! believes.

#![allow(clippy::unwrap_used)] // a test that cannot go on says where

mod house;
mod stage;

use kernel::{
    client::{Asking, ClientError},
    id::ClientId,
    request::{Answer, Decision, FromLedger, Query, Reply, Request, ToLedger},
};
use sim::{Boot, LinkWeather, World};
use stage::{client, now, stage};
use std::{
    cell::RefCell,
    future::{Future, poll_fn},
    pin::pin,
    rc::Rc,
    task::Poll,
    time::Duration,
};

/// What arrived at the ledger: when, in milliseconds, and what.
type Heard = Rc<RefCell<Vec<(u64, Request)>>>;

const MS: Duration = Duration::from_millis(1);

/// A ledger that answers the nth request frame (from 0) by `answer`, if it gives one; questions at once.
fn scripted(heard: Heard, answer: impl Fn(usize, &Request) -> Option<Reply> + 'static) -> Boot {
    let answer = Rc::new(answer);
    Rc::new(move |world: World| {
        let (heard, answer) = (heard.clone(), answer.clone());
        Box::pin(async move {
            loop {
                let datagram = world.recv().await;
                let told = match postcard::from_bytes(&datagram.frame).unwrap() {
                    ToLedger::Query { number, .. } => FromLedger::Answer { number, answer: Answer::Run(None) },
                    ToLedger::Request(request) => {
                        let Request { client, incarnation, number, .. } = request;
                        let nth = heard.borrow().len();
                        let reply = answer(nth, &request);
                        heard.borrow_mut().push((world.now().as_nanos() / 1_000_000, request));
                        match reply {
                            None => continue,
                            Some(Reply::Waits(_)) => FromLedger::Waiting { client, incarnation, number },
                            Some(reply) => FromLedger::Reply { client, incarnation, number, reply },
                        }
                    }
                };
                world.send(datagram.from, postcard::to_stdvec(&told).unwrap());
            }
        })
    })
}

fn decided(seq: u64) -> Option<Reply> {
    Some(Reply::Decided(Decision { seq, outcome: Ok(Vec::new()) }))
}

fn plays(answer: impl Fn(usize, &Request) -> Option<Reply> + 'static, client: Boot) -> Vec<(u64, Request)> {
    let heard = Heard::default();
    stage(1, LinkWeather::CALM, scripted(heard.clone(), answer), vec![client], async |_| {});
    heard.take()
}

fn waiting() -> Option<Reply> {
    Some(Reply::Waits(kernel::request::Turn::Lock(house::LOCK)))
}

#[test]
fn an_unanswered_request_is_repeated_less_and_less_often_under_one_number() {
    let asks = client(async |_, client| {
        let decision = client.ask(now(house::TENANT, None), vec![house::spawn(house::RUN)]).await.unwrap();
        assert_eq!(decision.seq, 9);
    });
    let heard = plays(|nth, _| if nth < 9 { [None, Some(Reply::Busy)][nth % 2].clone() } else { decided(9) }, asks);
    let gaps: Vec<u64> = heard.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
    for (gap, longest) in gaps.iter().zip([20, 40, 80, 160, 320, 320, 320, 320, 320]) {
        assert!((longest * 3 / 4 - 1..=longest + 1).contains(gap), "{gaps:?} ms");
    }
    assert_eq!(gaps.len(), 9);
    assert!(heard.iter().all(|(_, request)| (request.number, request.acknowledged) == (1, 0)));
}

#[test]
fn a_parked_request_is_asked_again_slowly_and_for_what_is_left_of_its_term() {
    for (wait, longest) in [(8_000, 2_000), (100_000, 5_000), (40, 20)] {
        let asks = client(async move |_, client| {
            let how = Asking { wait: MS * wait, ..now(house::TENANT, None) };
            client.ask(how, vec![house::acquire(house::LOCK, 1, 5)]).await.unwrap();
        });
        let heard = plays(|nth, _| if nth < 3 { waiting() } else { decided(1) }, asks);
        for pair in heard.windows(2) {
            let gap = pair[1].0 - pair[0].0;
            assert!((longest * 3 / 4 - 1..=longest + 1).contains(&gap), "{gap} ms of a wait of {wait} ms");
        }
        for (at, request) in &heard {
            let left = u64::from(wait).saturating_sub(*at);
            assert!(request.wait_ns / 1_000_000 >= left.saturating_sub(1) && request.wait_ns / 1_000_000 <= left + 1);
        }
    }
}

#[test]
fn what_is_given_up_is_acknowledged_like_what_is_answered() {
    let asks = client(async |world, client| {
        let ask = |patience| {
            let how = Asking { patience, ..now(house::TENANT, None) };
            client.ask(how, vec![house::spawn(house::RUN)])
        };
        assert_eq!(ask(Some(5 * MS)).await, Err(ClientError::NoAnswer { after: 5 * MS })); // 1, given up
        {
            let mut dropped = pin!(ask(None)); // 2, dropped at its await
            assert!(poll_fn(|cx| Poll::Ready(dropped.as_mut().poll(cx).is_pending())).await);
        }
        drop(ask(None)); // never polled: never numbered
        let mut late = pin!(ask(None)); // 3, outstanding while 4 is asked
        assert!(poll_fn(|cx| Poll::Ready(late.as_mut().poll(cx).is_pending())).await);
        ask(None).await.unwrap(); // 4
        world.sleep(MS).await;
        late.await.unwrap();
        ask(None).await.unwrap(); // 5
    });
    let heard = plays(|nth, request| if request.number > 2 && nth != 2 { decided(1) } else { None }, asks);
    let mut first: Vec<(u64, u64)> = Vec::new();
    for (_, request) in &heard {
        if first.iter().all(|(number, _)| *number != request.number) {
            first.push((request.number, request.acknowledged));
        }
    }
    assert_eq!(first, [(1, 0), (2, 1), (3, 2), (4, 2), (5, 4)]);
}

#[test]
fn only_its_own_answers_are_believed() {
    let asks = client(async |world, client| {
        let reply = |client, incarnation, number, seq| {
            let reply = decided(seq).unwrap();
            postcard::to_stdvec(&FromLedger::Reply { client, incarnation, number, reply }).unwrap()
        };
        let mut asked = pin!(client.ask(now(house::TENANT, None), vec![house::spawn(house::RUN)]));
        assert!(poll_fn(|cx| Poll::Ready(asked.as_mut().poll(cx).is_pending())).await);
        let own = ClientId(u64::from(world.node().0));
        client.deliver(b"no frame at all");
        client.deliver(&reply(ClientId(77), 0, 1, 1));
        client.deliver(&reply(own, 1, 1, 2));
        client.deliver(&reply(own, 0, 2, 3));
        client.deliver(&reply(own, 0, 1, 4));
        client.deliver(&reply(own, 0, 1, 5));
        assert_eq!(asked.await.unwrap().seq, 4);
    });
    plays(|_, _| None, asks);
}

#[test]
fn a_newer_incarnation_ends_the_older_ones_asking() {
    let asks = client(async |_, client| {
        let stale = client.ask(now(house::TENANT, None), vec![house::spawn(house::RUN)]).await;
        assert_eq!(stale, Err(ClientError::Stale { newest: 3 }));
    });
    plays(|_, _| Some(Reply::Stale { newest: 3 }), asks);
}

#[test]
fn time_waited_is_the_union_of_what_is_outstanding() {
    let asks = client(async |world, client| {
        let begun = world.now();
        let give_up = async |after: Duration| {
            let how = Asking { patience: Some(after), ..now(house::TENANT, None) };
            client.ask(how, vec![house::spawn(house::RUN)]).await.unwrap_err();
        };
        {
            let mut long = pin!(give_up(30 * MS));
            assert!(poll_fn(|cx| Poll::Ready(long.as_mut().poll(cx).is_pending())).await);
            give_up(10 * MS).await; // inside the long one
            assert_eq!(client.waited_ns(), world.now().since(begun).as_nanos() as u64);
            long.await;
        }
        assert_eq!(client.waited_ns(), 30_000_000);
        world.sleep(100 * MS).await;
        give_up(5 * MS).await;
        assert_eq!(client.waited_ns(), 35_000_000);
        let head = client.query(Query::Head, None).await.unwrap();
        assert_eq!(head, Answer::Run(None));
        assert!(client.waited_ns() > 35_000_000);
    });
    plays(|_, _| None, asks);
}

#[test]
fn a_request_cancelled_at_any_await_neither_blocks_acknowledgement_nor_counts_as_waiting() {
    for nth in 1..40 {
        let asks = client(async |world, client| {
            let (working, asking) = (world.clone(), client.clone());
            let work = world.spawn_cancellable(async move {
                for _ in 0..4 {
                    asking.ask(now(house::TENANT, None), vec![house::spawn(house::RUN)]).await.unwrap();
                    working.sleep(MS).await;
                }
            });
            let _done_or_cancelled = work.await;
            let waited_ns = client.waited_ns();
            world.sleep(MS).await;
            let begun = world.now();
            assert_eq!(client.waited_ns(), waited_ns, "nothing is outstanding");
            client.ask(now(house::TENANT, None), vec![house::spawn(house::RUN)]).await.unwrap();
            let waited = client.waited_ns() - waited_ns;
            assert_eq!(waited, world.now().since(begun).as_nanos() as u64);
        });
        let heard = Heard::default();
        // Every other frame goes unanswered, so that a request stands at each of its awaits.
        let answers = scripted(heard.clone(), |at, _| if at % 2 == 1 { decided(1) } else { None });
        stage(nth, LinkWeather::CALM, answers, vec![asks], async move |control| {
            control.cancel(sim::NodeId(1), nth).unwrap();
        });
        let heard = heard.take();
        let (_, last) = heard.last().unwrap();
        assert_eq!(last.acknowledged, last.number - 1, "cancelled at poll {nth}");
    }
}
