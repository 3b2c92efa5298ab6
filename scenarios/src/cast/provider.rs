//! The provider: it answers paid calls, keeps its own invoice, and honours idempotency keys.
//!
//! The first copy of a call to arrive under a key decides the key for good. If it is accepted it is charged at once and
//! answered after a latency that follows from its tokens; every later copy is free and gets the same answer, joining the
//! first while that is still being worked on. If it is turned away, so is every later copy: otherwise one that the network
//! held back could be charged after its caller had released the money.
//!
//! The invoice is the provider's own database: it outlives the process.

use super::{
    Casting, ProviderWeather,
    wire::{FromProvider, ToProvider, decode, encode},
};
use crate::fact::{Answered, Fact};
use kernel::{id::ReservationId, money::MicroUsd, money::Usage};
use sim::{Datagram, NodeId, World};
use std::{cell::RefCell, collections::BTreeMap, rc::Rc, time::Duration};

/// Everything the provider knows of each key.
#[derive(Debug, Default)]
pub(super) struct Invoice {
    keys: RefCell<BTreeMap<ReservationId, Line>>,
}

/// What the provider knows of one key.
#[derive(Debug)]
struct Line {
    state: State,
    /// Copies of the call that arrived.
    arrivals: u16,
}

#[derive(Debug)]
enum State {
    /// Charged, and being worked on for those who wait.
    Working { usage: Usage, waiting: Vec<NodeId> },
    /// Charged, and the answer is there.
    Ready { usage: Usage },
    /// Not charged and never to be.
    Refused { answered: Answered },
}

/// What the weather does to one copy of a call.
#[derive(Clone, Copy, Debug, Default)]
struct Luck {
    turned_away: Option<Answered>,
    reply_lost: bool,
}

/// Receives calls and invoice queries until the node dies.
pub(super) async fn run(world: World, casting: Rc<Casting>, invoice: Rc<Invoice>) {
    // What an earlier incarnation was working on has no one working on it; its answer is in the database.
    for line in invoice.keys.borrow_mut().values_mut() {
        if let State::Working { usage, .. } = line.state {
            line.state = State::Ready { usage };
        }
    }
    let provider = Rc::new(Provider { world: world.clone(), casting, invoice });
    loop {
        let Datagram { from, frame, .. } = world.recv().await;
        match decode(&frame) {
            Some(ToProvider::Call { key, usage, .. }) => provider.call(from, key, usage),
            Some(ToProvider::Close { key }) => provider.close(from, key),
            None => {}
        }
    }
}

struct Provider {
    world: World,
    casting: Rc<Casting>,
    invoice: Rc<Invoice>,
}

impl Provider {
    fn call(self: &Rc<Self>, from: NodeId, key: ReservationId, usage: Usage) {
        let mut keys = self.invoice.keys.borrow_mut();
        let arrival = keys.get(&key).map_or(0, |line| line.arrivals);
        let luck = self.luck(key, arrival);
        let Some(line) = keys.get_mut(&key) else {
            let state = match luck.turned_away {
                Some(answered) => self.turn_away(from, key, answered),
                None => self.accept(from, key, usage, luck.reply_lost),
            };
            keys.insert(key, Line { state, arrivals: 1 });
            return;
        };
        line.arrivals = line.arrivals.saturating_add(1);
        match &mut line.state {
            State::Refused { answered } => {
                self.turn_away(from, key, *answered);
            }
            State::Ready { usage } => {
                Fact::Repeated { key }.note(&self.world);
                if !luck.reply_lost {
                    self.answer(from, key, Answered::Ok, *usage);
                }
            }
            State::Working { waiting, .. } => {
                Fact::Repeated { key }.note(&self.world);
                if !luck.reply_lost && !waiting.contains(&from) {
                    waiting.push(from);
                }
            }
        }
    }

    fn accept(self: &Rc<Self>, from: NodeId, key: ReservationId, usage: Usage, reply_lost: bool) -> State {
        let cost = self.casting.scenario.provider.price.cost(usage).unwrap_or(MicroUsd::MAX);
        Fact::Charged { key, usage, cost }.note(&self.world);
        let provider = self.clone();
        let latency = latency(&self.casting, self.casting.stage.provider.get().slow_factor, usage);
        self.world.spawn(async move {
            provider.world.sleep(latency).await;
            provider.finish(key);
        });
        State::Working { usage, waiting: if reply_lost { Vec::new() } else { vec![from] } }
    }

    fn finish(&self, key: ReservationId) {
        let mut keys = self.invoice.keys.borrow_mut();
        let Some(line) = keys.get_mut(&key) else { return };
        let State::Working { usage, waiting } = &mut line.state else { return };
        let usage = *usage;
        for to in std::mem::take(waiting) {
            self.answer(to, key, Answered::Ok, usage);
        }
        line.state = State::Ready { usage };
    }

    fn turn_away(&self, from: NodeId, key: ReservationId, answered: Answered) -> State {
        Fact::TurnedAway { key, answered }.note(&self.world);
        self.answer(from, key, answered, Usage::default());
        State::Refused { answered }
    }

    fn close(&self, from: NodeId, key: ReservationId) {
        let mut keys = self.invoice.keys.borrow_mut();
        let line =
            keys.entry(key).or_insert(Line { state: State::Refused { answered: Answered::ServerError }, arrivals: 0 });
        let charged = match line.state {
            State::Working { usage, .. } | State::Ready { usage } => Some(usage),
            State::Refused { .. } => None,
        };
        self.world.send(from, encode(&FromProvider::Closed { key, charged }));
    }

    fn answer(&self, to: NodeId, key: ReservationId, answered: Answered, usage: Usage) {
        self.world.send(to, encode(&FromProvider::Answer { key, answered, usage }));
    }

    /// Drawn from a stream of this copy's own, three words whatever the weather, so that no draw shifts another.
    fn luck(&self, key: ReservationId, arrival: u16) -> Luck {
        let ProviderWeather { too_many_ppm, error_ppm, reply_lost_ppm, .. } = self.casting.stage.provider.get();
        if too_many_ppm == 0 && error_ppm == 0 && reply_lost_ppm == 0 {
            return Luck::default();
        }
        let mut draws = self.world.stream(key.0 << 16 | u64::from(arrival));
        let (too_many, error) = (draws.chance_ppm(too_many_ppm), draws.chance_ppm(error_ppm));
        let turned_away = match (too_many, error) {
            (true, _) => Some(Answered::TooManyRequests),
            (false, true) => Some(Answered::ServerError),
            (false, false) => None,
        };
        Luck { turned_away, reply_lost: draws.chance_ppm(reply_lost_ppm) }
    }
}

/// How long a call of `usage` takes at `slow_factor` times the usual.
pub(super) fn latency(casting: &Casting, slow_factor: u32, usage: Usage) -> Duration {
    let terms = &casting.scenario.provider;
    let tokens = u128::from(usage.input_tokens) * u128::from(terms.input_token_ns)
        + u128::from(usage.output_tokens) * u128::from(terms.output_token_ns);
    let usual_ns = (u128::from(terms.base_ns) + tokens) / u128::from(terms.speedup.max(1));
    let ns = usual_ns.saturating_mul(u128::from(slow_factor.max(1)));
    Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
}
