//! The provider: it answers paid calls, keeps its own invoice, and honours idempotency keys.
//!
//! The first copy of an idempotent request to arrive decides the request for good. If it is accepted it is charged at once and
//! answered after a latency that follows from its tokens; every later copy is free and gets the same answer, joining the
//! first while that is still being worked on. If it is turned away, so is every later copy: otherwise one that the network
//! held back could be charged after its caller had released the money. Of all requests under one idempotency key at most one is
//! accepted; the others are given its answer, at no charge.
//!
//! A request without a key is accepted, and charged, as often as it is transmitted; only a copy that the network made is known
//! for what it is. A caller may ask whether its request landed, which closes it if it had not.
//!
//! Each user has a key of its own, which may have a credit limit. A call that would take what the key was charged past it is
//! refused for good, with the limit, what it would have cost and what was left. So is a call that no ledger knows of, which stands
//! on the invoice under no request.
//!
//! The invoice is the provider's own database: it outlives the process.

use super::{
    Casting, ProviderWeather,
    wire::{Body, CallAnswer, FromProvider, ToProvider, body_of, decode, encode},
};
use crate::{
    fact::{Answered, Fact},
    maps::BySeq,
};
use faults::Kind;
use kernel::{
    effect::Key,
    id::{ReservationId, UserId},
    money::{MicroUsd, Usage},
};
use sim::{Datagram, NodeId, World};
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    time::Duration,
};

/// Everything the provider knows of each request.
#[derive(Debug, Default)]
pub(super) struct Invoice {
    lines: RefCell<BySeq<Line>>,
    /// The request that was accepted under each idempotency key.
    accepted: RefCell<BTreeMap<Key, ReservationId>>,
    /// Transmissions of requests without a key.
    transmissions: RefCell<BTreeSet<(ReservationId, u64)>>,
    /// What each user's key was charged.
    charged: RefCell<BTreeMap<UserId, MicroUsd>>,
}

/// What the provider knows of one request.
#[derive(Debug)]
struct Line {
    /// What every copy of the call is answered. It is charged if that is `Ok`, from its acceptance on.
    answer: CallAnswer,
    /// Who waits for the answer, while it is being worked on.
    waiting: Option<Vec<NodeId>>,
    /// Copies of the call that arrived.
    arrivals: u16,
}

/// A call that arrived.
#[derive(Clone, Copy, Debug)]
struct Arrived {
    from: NodeId,
    key: ReservationId,
    transmission: u64,
    idempotency: Option<Key>,
    user: UserId,
    usage: Usage,
    body: Body,
}

/// What the weather does to one copy of a call.
#[derive(Clone, Copy, Debug, Default)]
struct Luck {
    /// Taken, and heard of no more: the key stays as it was.
    hangs: bool,
    turned_away: Option<Answered>,
    /// The key's credit is taken for exhausted, whatever its limit.
    credit_is_gone: bool,
    reply_lost: bool,
}

/// Receives calls and invoice queries until the node dies.
pub(super) async fn run(world: World, casting: Rc<Casting>, invoice: Rc<Invoice>) {
    // What an earlier incarnation was working on has no one working on it; its answer is in the database.
    invoice.lines.borrow_mut().values_mut().for_each(|line| line.waiting = None);
    if let Some(limit) = casting.scenario.provider.key_credit {
        Fact::KeyCredit { limit }.note(&world);
    }
    let provider = Rc::new(Provider { world: world.clone(), casting, invoice });
    loop {
        let Datagram { from, frame, .. } = world.recv().await;
        match decode(&frame) {
            Some(ToProvider::Call { key, transmission, idempotency, user, content, usage, .. }) => {
                let body = body_of(content);
                provider.call(&Arrived { from, key, transmission, idempotency, user, usage, body });
            }
            Some(ToProvider::Close { key }) => provider.close(from, key),
            Some(ToProvider::Look { key }) => provider.look(from, key),
            Some(ToProvider::Stray { user, usage }) => provider.stray(user, usage),
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
    fn call(self: &Rc<Self>, call: &Arrived) {
        let &Arrived { from, key, idempotency, .. } = call;
        if idempotency.is_none() && !self.invoice.transmissions.borrow_mut().insert((key, call.transmission)) {
            return; // the network's copy of what arrived
        }
        let arrivals = self.invoice.lines.borrow().find(key).map_or(0, |line| line.arrivals);
        let luck = self.luck(key, arrivals);
        if luck.hangs {
            self.casting.stage.felt(Kind::Hang);
            return;
        }
        let before = self.invoice.lines.borrow().find(key).map(|line| line.answer.answered);
        // A request without a key is done again by each transmission, unless it was turned away or closed.
        let again = idempotency.is_none() && before == Some(Answered::Ok);
        if before.is_none() || again {
            let line = self.decide(call, &luck);
            self.invoice.lines.borrow_mut().insert(key, line);
        }
        let mut lines = self.invoice.lines.borrow_mut();
        let line = lines.find_mut(key).expect("a request that arrives has a line, made above if not before");
        line.arrivals = arrivals.saturating_add(1);
        match line.answer.answered {
            Answered::Ok if before.is_none() || again => {}
            Answered::Ok => Fact::Repeated { key }.note(&self.world),
            answered => Fact::TurnedAway { key, answered }.note(&self.world),
        }
        let is_charged = line.answer.answered == Answered::Ok;
        if is_charged && luck.reply_lost {
            self.casting.stage.felt(Kind::ReplyLost);
            return;
        }
        self.give_or_join(&mut lines, from, key);
    }

    /// Answers who asks for a request, now or when the work on it is done.
    fn give_or_join(&self, lines: &mut BySeq<Line>, to: NodeId, key: ReservationId) {
        let Some(line) = lines.find_mut(key) else { return };
        match &mut line.waiting {
            None => self.answer(to, key, line.answer),
            Some(waiting) if !waiting.contains(&to) => waiting.push(to),
            Some(_) => {}
        }
    }

    /// Why the call's key may not be charged `cost`, which is nothing for an answer given before.
    fn no_credit(&self, user: UserId, cost: MicroUsd, is_gone: bool) -> Option<Answered> {
        let charged = self.invoice.charged.borrow().get(&user).copied().unwrap_or_default();
        let limit = if is_gone { Some(charged) } else { self.casting.scenario.provider.key_credit };
        let left = limit?.checked_sub(charged).unwrap_or_default();
        let is_covered = cost <= left && !is_gone;
        (!is_covered).then_some(Answered::NoCredit { limit: limit?, asked: cost, left })
    }

    fn charge(&self, user: UserId, cost: MicroUsd) {
        let mut charged = self.invoice.charged.borrow_mut();
        let sum = charged.entry(user).or_default();
        *sum = sum.checked_add(cost).unwrap_or(MicroUsd::MAX);
    }

    /// A call that no ledger knows of: its key's credit is all that stops it.
    fn stray(&self, user: UserId, usage: Usage) {
        let cost = self.casting.scenario.provider.price.cost(usage).unwrap_or(MicroUsd::MAX);
        match self.no_credit(user, cost, self.casting.stage.provider.get().credit_exhausted) {
            Some(Answered::NoCredit { limit, asked, left }) => {
                Fact::StrayRefused { user, limit, asked, left }.note(&self.world);
            }
            _ => {
                self.charge(user, cost);
                Fact::StrayCharged { user, cost }.note(&self.world);
            }
        }
    }

    /// Decides a request for good. A 429 or 402 is said at once; a 500 only after the time the answer would have taken.
    fn decide(self: &Rc<Self>, call: &Arrived, luck: &Luck) -> Line {
        let (stage, key) = (&self.casting.stage, call.key);
        let usage = self.used(call.usage);
        let known = call.idempotency.and_then(|key| self.invoice.accepted.borrow().get(&key).copied());
        let cost = self.casting.scenario.provider.price.cost(usage).unwrap_or(MicroUsd::MAX);
        let to_pay = if known.is_some() { MicroUsd::ZERO } else { cost };
        let no_credit = self.no_credit(call.user, to_pay, luck.credit_is_gone);
        let turned_away = match no_credit {
            Some(_) if luck.credit_is_gone => no_credit,
            _ => luck.turned_away.or(no_credit),
        };
        let answered = turned_away.unwrap_or(Answered::Ok);
        match answered {
            Answered::Ok | Answered::NeverLanded => {}
            Answered::TooManyRequests => stage.felt(Kind::TooManyRequests),
            Answered::ServerError => stage.felt(Kind::ServerError),
            Answered::NoCredit { .. } if luck.credit_is_gone => stage.felt(Kind::CreditExhausted),
            Answered::NoCredit { .. } => {}
        }
        let mut answer = CallAnswer { answered, usage: Usage::default(), body: Body::default() };
        let mut latency = latency(&self.casting, stage.provider.get().slow_factor, usage);
        if answered == Answered::Ok {
            answer.body = call.body;
            match known {
                Some(of) => {
                    Fact::Replayed { key, of }.note(&self.world);
                    let done = self.invoice.lines.borrow().find(of).is_none_or(|line| line.waiting.is_none());
                    latency = if done { Duration::ZERO } else { latency };
                }
                None => {
                    answer.usage = usage;
                    self.invoice.accepted.borrow_mut().extend(call.idempotency.map(|idempotency| (idempotency, key)));
                    self.charge(call.user, cost);
                    Fact::Charged { key, usage, cost }.note(&self.world);
                }
            }
        }
        let is_worked_on = matches!(answered, Answered::Ok | Answered::ServerError);
        if is_worked_on {
            let provider = self.clone();
            if latency > self::latency(&self.casting, 1, usage) {
                stage.felt(Kind::Slow);
            }
            self.world.spawn(async move {
                provider.world.sleep(latency).await;
                provider.finish(key);
            });
        }
        Line { answer, waiting: is_worked_on.then(Vec::new), arrivals: 0 }
    }

    /// What a call uses of which the work says `usage`.
    fn used(&self, usage: Usage) -> Usage {
        let usage = share(usage, self.casting.scenario.provider.usage_percent);
        let Some(percent) = self.casting.stage.provider.get().usage_percent else { return usage };
        let used = share(usage, percent);
        if used != usage {
            self.casting.stage.felt(Kind::UsageUnlike);
        }
        used
    }

    fn finish(&self, key: ReservationId) {
        let mut lines = self.invoice.lines.borrow_mut();
        let Some(line) = lines.find_mut(key) else { return };
        for to in line.waiting.take().into_iter().flatten() {
            self.answer(to, key, line.answer);
        }
    }

    /// Closes a request that has not landed; whether it had.
    fn closed(&self, key: ReservationId) -> bool {
        let answer = CallAnswer { answered: Answered::NeverLanded, usage: Usage::default(), body: Body::default() };
        let mut lines = self.invoice.lines.borrow_mut();
        if lines.find(key).is_none() {
            lines.insert(key, Line { answer, waiting: None, arrivals: 0 });
        }
        lines.find(key).is_some_and(|line| line.answer.answered != Answered::NeverLanded)
    }

    fn close(&self, from: NodeId, key: ReservationId) {
        self.closed(key);
        let lines = self.invoice.lines.borrow();
        let charged = lines.find(key).map(|line| line.answer).filter(|answer| answer.answered == Answered::Ok);
        let charged = charged.map(|answer| answer.usage);
        self.world.send(from, encode(&FromProvider::Closed { key, charged }));
    }

    fn look(&self, from: NodeId, key: ReservationId) {
        let landed = self.closed(key);
        Fact::Looked { key, landed }.note(&self.world);
        self.give_or_join(&mut self.invoice.lines.borrow_mut(), from, key);
    }

    fn answer(&self, to: NodeId, key: ReservationId, answer: CallAnswer) {
        self.world.send(to, encode(&FromProvider::Answer { key, answer }));
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
            (true, _) => Some(Answered::TooManyRequests),
            (false, true) => Some(Answered::ServerError),
            (false, false) => None,
        };
        let reply_lost = draws.chance_ppm(reply_lost_ppm);
        Luck { hangs: draws.chance_ppm(hang_ppm), turned_away, credit_is_gone: credit_exhausted, reply_lost }
    }
}

/// So many of a hundred of what a call uses, rounded up.
fn share(usage: Usage, percent: u32) -> Usage {
    let of = |tokens: u64| match percent {
        100 => tokens,
        percent => tokens.saturating_mul(u64::from(percent)).div_ceil(100),
    };
    Usage { input_tokens: of(usage.input_tokens), output_tokens: of(usage.output_tokens) }
}

/// How long a call of `usage` takes at `slow_factor` times the usual.
pub(super) fn latency(casting: &Casting, slow_factor: u32, usage: Usage) -> Duration {
    casting.scenario.provider.latency(usage).saturating_mul(slow_factor.max(1))
}
