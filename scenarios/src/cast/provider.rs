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
use faults::Kind;
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
    /// What every copy of the call is answered. It is charged if that is `Ok`, from its acceptance on.
    answered: Answered,
    /// What it used; nothing unless it is charged.
    usage: Usage,
    /// Who waits for the answer, while it is being worked on.
    waiting: Option<Vec<NodeId>>,
    /// Copies of the call that arrived.
    arrivals: u16,
}

/// What the weather does to one copy of a call.
#[derive(Clone, Copy, Debug, Default)]
struct Luck {
    /// Taken, and heard of no more: the key stays as it was.
    hangs: bool,
    turned_away: Option<Answered>,
    reply_lost: bool,
}

/// Receives calls and invoice queries until the node dies.
pub(super) async fn run(world: World, casting: Rc<Casting>, invoice: Rc<Invoice>) {
    // What an earlier incarnation was working on has no one working on it; its answer is in the database.
    invoice.keys.borrow_mut().values_mut().for_each(|line| line.waiting = None);
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
        let arrivals = keys.get(&key).map_or(0, |line| line.arrivals);
        let luck = self.luck(key, arrivals);
        if luck.hangs {
            self.casting.stage.felt(Kind::Hang);
            return;
        }
        let is_first = !keys.contains_key(&key);
        let line = keys.entry(key).or_insert_with(|| self.decide(key, usage, luck.turned_away));
        line.arrivals = line.arrivals.saturating_add(1);
        match line.answered {
            Answered::Ok if is_first => {}
            Answered::Ok => Fact::Repeated { key }.note(&self.world),
            answered => Fact::TurnedAway { key, answered }.note(&self.world),
        }
        let is_charged = line.answered == Answered::Ok;
        if is_charged && luck.reply_lost {
            self.casting.stage.felt(Kind::ReplyLost);
            return;
        }
        match &mut line.waiting {
            None => self.answer(from, key, line.answered, line.usage),
            Some(waiting) if !waiting.contains(&from) => waiting.push(from),
            Some(_) => {}
        }
    }

    /// Decides a key for good. A 429 or 402 is said at once; a 500 only after the time the answer would have taken.
    fn decide(self: &Rc<Self>, key: ReservationId, usage: Usage, turned_away: Option<Answered>) -> Line {
        let stage = &self.casting.stage;
        let answered = turned_away.unwrap_or(Answered::Ok);
        match answered {
            Answered::Ok => {}
            Answered::TooManyRequests => stage.felt(Kind::TooManyRequests),
            Answered::ServerError => stage.felt(Kind::ServerError),
            Answered::NoCredit => stage.felt(Kind::CreditExhausted),
        }
        let usage = self.used(usage);
        let charged = if answered == Answered::Ok { usage } else { Usage::default() };
        if answered == Answered::Ok {
            let cost = self.casting.scenario.provider.price.cost(usage).unwrap_or(MicroUsd::MAX);
            Fact::Charged { key, usage, cost }.note(&self.world);
        }
        let is_worked_on = matches!(answered, Answered::Ok | Answered::ServerError);
        if is_worked_on {
            let provider = self.clone();
            let factor = stage.provider.get().slow_factor;
            let latency = latency(&self.casting, factor, usage);
            if factor > 1 {
                stage.felt(Kind::Slow);
            }
            self.world.spawn(async move {
                provider.world.sleep(latency).await;
                provider.finish(key);
            });
        }
        Line { answered, usage: charged, waiting: is_worked_on.then(Vec::new), arrivals: 0 }
    }

    /// What a call uses that should use `usage`.
    fn used(&self, usage: Usage) -> Usage {
        let Some(percent) = self.casting.stage.provider.get().usage_percent else { return usage };
        let share = |tokens: u64| tokens.saturating_mul(u64::from(percent)).div_ceil(100);
        let used = Usage { input_tokens: share(usage.input_tokens), output_tokens: share(usage.output_tokens) };
        if used != usage {
            self.casting.stage.felt(Kind::UsageUnlike);
        }
        used
    }

    fn finish(&self, key: ReservationId) {
        let mut keys = self.invoice.keys.borrow_mut();
        let Some(line) = keys.get_mut(&key) else { return };
        for to in line.waiting.take().into_iter().flatten() {
            self.answer(to, key, line.answered, line.usage);
        }
    }

    fn close(&self, from: NodeId, key: ReservationId) {
        let never = Line { answered: Answered::ServerError, usage: Usage::default(), waiting: None, arrivals: 0 };
        let mut keys = self.invoice.keys.borrow_mut();
        let line = keys.entry(key).or_insert(never);
        let charged = (line.answered == Answered::Ok).then_some(line.usage);
        self.world.send(from, encode(&FromProvider::Closed { key, charged }));
    }

    fn answer(&self, to: NodeId, key: ReservationId, answered: Answered, usage: Usage) {
        self.world.send(to, encode(&FromProvider::Answer { key, answered, usage }));
    }

    /// Drawn from a stream of this copy's own, four words whatever the weather, so that no draw shifts another.
    fn luck(&self, key: ReservationId, arrival: u16) -> Luck {
        let ProviderWeather { too_many_ppm, error_ppm, reply_lost_ppm, hang_ppm, credit_exhausted, .. } =
            self.casting.stage.provider.get();
        if [too_many_ppm, error_ppm, reply_lost_ppm, hang_ppm] == [0; 4] && !credit_exhausted {
            return Luck::default();
        }
        let mut draws = self.world.stream(key.0 << 16 | u64::from(arrival));
        let (too_many, error) = (draws.chance_ppm(too_many_ppm), draws.chance_ppm(error_ppm));
        let turned_away = match (too_many, error) {
            _ if credit_exhausted => Some(Answered::NoCredit),
            (true, _) => Some(Answered::TooManyRequests),
            (false, true) => Some(Answered::ServerError),
            (false, false) => None,
        };
        let reply_lost = draws.chance_ppm(reply_lost_ppm);
        Luck { hangs: draws.chance_ppm(hang_ppm), turned_away, reply_lost }
    }
}

/// How long a call of `usage` takes at `slow_factor` times the usual.
pub(super) fn latency(casting: &Casting, slow_factor: u32, usage: Usage) -> Duration {
    casting.scenario.provider.latency(usage).saturating_mul(slow_factor.max(1))
}
