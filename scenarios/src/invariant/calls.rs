//! Calls: what left agents and what the provider put on its invoice, against what the ledger says of them.

use super::{Ended, Invariant, Moment, Rest, Saw};
use crate::{
    fact::{Answered, Fact},
    maps::{BySeq, Lookup},
};
use kernel::{
    effect::{self, Class},
    id::{Fence, ReservationId, RunId, TenantId, UnitId, UserId},
    money::Usage,
    record::{Event, Record},
    reserve,
    run::AttemptState,
};
use sim::NodeId;
use std::collections::BTreeMap;

/// The reservation that a record ends, if it ends one.
fn ended_by(record: &Record) -> Option<ReservationId> {
    match record.event {
        Event::Reserve(reserve::Event::Settled { reservation, .. } | reserve::Event::Released { reservation, .. }) => {
            Some(reservation)
        }
        _ => None,
    }
}

/// `unknown-has-cause`: an attempt becomes indeterminate only when its call had left and whoever says so, under its own fence,
/// had got no answer to the last call it sent. A successor may not know what its predecessor learned; nor whether a call that
/// cannot be sent again had left, once it was dispatched.
#[derive(Debug, Default)]
pub struct UnknownHasCause {
    /// Per open key, the last call of each sender.
    calls: Lookup<ReservationId, Vec<LastCall>>,
    /// Open intents of calls that are not idempotent, and whether they may have left.
    once: Lookup<ReservationId, bool>,
}

#[derive(Clone, Copy, Debug)]
struct LastCall {
    sender: (NodeId, u32),
    fence: Fence,
    answered: Option<Answered>,
}

impl UnknownHasCause {
    fn record(&mut self, record: &Record, ended: Ended) -> Result<(), String> {
        if let Some(ended) = ended_by(record) {
            self.calls.remove(&ended);
            self.once.remove(&ended);
        }
        match record.event {
            Event::Effect(effect::Event::Intended { intent, class, .. }) if class != Class::Idempotent => {
                self.once.insert(intent, false);
            }
            Event::Effect(effect::Event::Dispatched { intent }) => {
                if let Some(may_have_left) = self.once.get_mut(&intent) {
                    *may_have_left = true;
                }
            }
            _ => {}
        }
        let Some((key, AttemptState::Indeterminate)) = ended else { return Ok(()) };
        let fence = record.origin.map_or(Fence(0), |origin| origin.fence);
        let Some(calls) = self.calls.get(&key) else {
            if self.once.get(&key) == Some(&true) {
                return Ok(());
            }
            return Err(format!("record {}: the outcome of call {key} is unknown, and it never left", record.seq));
        };
        let own = calls.iter().rev().find(|call| call.fence == fence);
        match own.and_then(|call| Some((call, call.answered?))) {
            None => Ok(()),
            Some((call, answered)) => Err(format!(
                "record {}: the outcome of call {key} is unknown to the writer under fence {fence}, and node {} had got \
                 {answered:?} for it under that fence",
                record.seq, call.sender.0.0
            )),
        }
    }

    fn fact(&mut self, sender: (NodeId, u32), fact: &Fact) {
        match *fact {
            Fact::CallSent { key, fence, .. } => {
                let calls = self.calls.row(key);
                calls.retain(|call| call.sender != sender);
                calls.push(LastCall { sender, fence, answered: None });
            }
            Fact::CallEnded { key, answered } => {
                let calls = self.calls.get_mut(&key);
                if let Some(call) = calls.and_then(|calls| calls.iter_mut().find(|call| call.sender == sender)) {
                    call.answered = answered;
                }
            }
            _ => {}
        }
    }
}

impl Invariant for UnknownHasCause {
    fn name(&self) -> &'static str {
        "unknown-has-cause"
    }

    fn states(&self) -> &'static str {
        "an outcome is unknown only of a call that left, or may have left but once, and whose sender got no answer"
    }

    fn at(&mut self, moment: &Moment<'_>) -> Result<(), String> {
        match moment.saw {
            Saw::Ledger(_, records) => records.iter().try_for_each(|record| self.record(record, moment.ended(record))),
            Saw::Fact(fact) => {
                self.fact((moment.node, moment.incarnation), fact);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// `released-uncharged`: what was released is never on the invoice, whichever of the two comes first.
#[derive(Debug, Default)]
pub struct ReleasedUncharged {
    keys: BySeq<Key>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Key {
    released_by: Option<u64>,
    charged_ns: Option<u64>,
}

impl ReleasedUncharged {
    fn row(&mut self, key: ReservationId) -> Option<&mut Key> {
        if self.keys.find(key).is_none() {
            self.keys.insert(key, Key::default());
        }
        self.keys.find_mut(key)
    }
}

impl Invariant for ReleasedUncharged {
    fn name(&self) -> &'static str {
        "released-uncharged"
    }

    fn states(&self) -> &'static str {
        "a reservation that was released is never on the provider's invoice"
    }

    fn at(&mut self, moment: &Moment<'_>) -> Result<(), String> {
        match moment.saw {
            Saw::Ledger(_, records) => {
                for record in records {
                    let Event::Reserve(reserve::Event::Released { reservation, .. }) = record.event else { continue };
                    let Some(row) = self.row(reservation) else { continue };
                    row.released_by = Some(record.seq);
                    if let Some(at_ns) = row.charged_ns {
                        let seq = record.seq;
                        return Err(format!("record {seq} releases {reservation}, which was charged at {at_ns} ns"));
                    }
                }
                Ok(())
            }
            Saw::Fact(Fact::Charged { key, cost, .. }) => {
                let Some(row) = self.row(*key) else { return Ok(()) };
                row.charged_ns = Some(moment.time_ns);
                match row.released_by {
                    Some(seq) => Err(format!("{key} is charged {cost}, and record {seq} had released it")),
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }
}

/// `invoice`: a call leaves under a reservation, is charged at most once and after it left, and settles for the usage that was
/// charged; at rest settled <= invoice <= settled + open.
#[derive(Debug, Default)]
pub struct Invoice {
    keys: BySeq<Billed>,
    settled: u128,
    invoice: u128,
    open: u128,
}

#[derive(Clone, Copy, Debug)]
struct Billed {
    /// The run, unit and attempt it was reserved for.
    made_for: (RunId, UnitId, u32),
    worst: u64,
    open: bool,
    sent: bool,
    charged: Option<Usage>,
}

impl Invoice {
    fn record(&mut self, record: &Record) -> Result<(), String> {
        match record.event {
            Event::Reserve(reserve::Event::Reserved { reservation, run, unit, attempt, worst, .. }) => {
                let made_for = (run, unit, attempt);
                let row = Billed { made_for, worst: worst.0, open: true, sent: false, charged: None };
                if self.keys.insert(reservation, row).is_none() {
                    self.open += u128::from(worst.0);
                }
            }
            Event::Reserve(reserve::Event::Settled { reservation, usage, cost, .. }) => {
                self.end(reservation);
                self.settled += u128::from(cost.0);
                let charged = self.keys.find(reservation).and_then(|row| row.charged);
                if charged != Some(usage) {
                    let seq = record.seq;
                    return Err(format!("record {seq} settles {reservation} for {usage:?}; charged is {charged:?}"));
                }
            }
            Event::Reserve(reserve::Event::Released { reservation, .. }) => self.end(reservation),
            _ => {}
        }
        Ok(())
    }

    fn end(&mut self, reservation: ReservationId) {
        if let Some(row) = self.keys.find_mut(reservation).filter(|row| row.open) {
            row.open = false;
            self.open -= u128::from(row.worst);
        }
    }

    fn fact(&mut self, fact: &Fact) -> Result<(), String> {
        match *fact {
            Fact::CallSent { key, run, unit, attempt, .. } => match self.keys.find_mut(key) {
                Some(row) if row.made_for == (run, unit, attempt) => row.sent = true,
                Some(row) => {
                    let (of_run, of_unit, of_attempt) = row.made_for;
                    return Err(format!(
                        "attempt {attempt} of unit {unit} of run {run} leaves under {key}, which was reserved for attempt \
                         {of_attempt} of unit {of_unit} of run {of_run}"
                    ));
                }
                None => {
                    return Err(format!("a call of run {run}, unit {unit} leaves under {key}, which is not reserved"));
                }
            },
            Fact::Charged { key, usage, cost } => {
                self.invoice += u128::from(cost.0);
                match self.keys.find_mut(key) {
                    Some(row) if row.sent => {
                        if let Some(before) = row.charged.replace(usage) {
                            return Err(format!("{key} is charged again, for {usage:?}; it was for {before:?}"));
                        }
                    }
                    Some(_) => return Err(format!("{key} is charged {cost}, and no call left under it")),
                    None => return Err(format!("{key} is charged {cost}, and is not reserved")),
                }
            }
            Fact::Replayed { key, .. } => {
                if let Some(row) = self.keys.find_mut(key) {
                    row.charged = Some(Usage::default());
                }
            }
            Fact::Repeated { key } if self.keys.find(key).is_none_or(|row| row.charged.is_none()) => {
                return Err(format!("{key} is answered free as if charged before, and never was"));
            }
            _ => {}
        }
        Ok(())
    }
}

impl Invariant for Invoice {
    fn name(&self) -> &'static str {
        "invoice"
    }

    fn states(&self) -> &'static str {
        "a call leaves under its own reservation's key, which is charged at most once and settles for what was charged; settled <= invoice <= settled + open at rest"
    }

    fn at(&mut self, moment: &Moment<'_>) -> Result<(), String> {
        match moment.saw {
            Saw::Ledger(_, records) => records.iter().try_for_each(|record| self.record(record)),
            Saw::Fact(fact) => self.fact(fact),
            _ => Ok(()),
        }
    }

    fn at_rest(&mut self, rest: &Rest<'_>) -> Result<(), String> {
        let Invoice { settled, invoice, open, .. } = *self;
        if rest.converged && !(settled <= invoice && invoice <= settled + open) {
            return Err(format!(
                "at rest the invoice is {invoice} micro-USD; settled are {settled} and open {open}, so that it should be \
                 from {settled} to {}",
                settled + open
            ));
        }
        Ok(())
    }
}

/// `live-calls`: the calls of a user on the wire, counted by open reservation, never exceed the most slots it ever had. A node
/// that goes down waits for nothing any more.
#[derive(Debug, Default)]
pub struct LiveCalls {
    most_slots: BTreeMap<TenantId, u32>,
    /// Open reservations and whose they are.
    open: Lookup<ReservationId, (TenantId, UserId)>,
    /// Who waits for which open key, and how often each key is waited for.
    waiting: BTreeMap<(NodeId, u32, ReservationId), ()>,
    waiters: Lookup<ReservationId, u32>,
    on_the_wire: Lookup<(TenantId, UserId), u32>,
}

impl LiveCalls {
    fn record(&mut self, record: &Record) {
        match record.event {
            Event::Reserve(reserve::Event::SlotsSet { tenant, slots }) => {
                let most = self.most_slots.entry(tenant).or_default();
                *most = slots.max(*most);
            }
            Event::Reserve(reserve::Event::Reserved { reservation, user, .. }) => {
                self.open.insert(reservation, (record.tenant, user));
            }
            _ => {
                let Some(key) = ended_by(record) else { return };
                if let Some(user) = self.open.remove(&key)
                    && self.waiters.remove(&key).is_some()
                {
                    self.off_the_wire(user);
                }
            }
        }
    }

    fn off_the_wire(&mut self, user: (TenantId, UserId)) {
        if let Some(count) = self.on_the_wire.get_mut(&user) {
            *count -= 1;
        }
    }

    fn sent(&mut self, sender: (NodeId, u32), key: ReservationId) -> Result<(), String> {
        let Some(user) = self.open.get(&key).copied() else { return Ok(()) };
        if self.waiting.insert((sender.0, sender.1, key), ()).is_some() {
            return Ok(());
        }
        let waiters = self.waiters.row(key);
        *waiters += 1;
        if *waiters > 1 {
            return Ok(());
        }
        let count = self.on_the_wire.row(user);
        *count += 1;
        let slots = self.most_slots.get(&user.0).copied().unwrap_or(0);
        if *count > slots {
            return Err(format!(
                "call {key} is call {count} of user {} of tenant {} on the wire at once; slots are {slots}",
                user.1, user.0
            ));
        }
        Ok(())
    }

    fn answered(&mut self, sender: (NodeId, u32), key: ReservationId) {
        if self.waiting.remove(&(sender.0, sender.1, key)).is_none() {
            return;
        }
        let Some(waiters) = self.waiters.get_mut(&key) else { return };
        *waiters -= 1;
        if *waiters == 0 {
            self.waiters.remove(&key);
            if let Some(user) = self.open.get(&key).copied() {
                self.off_the_wire(user);
            }
        }
    }

    fn down(&mut self, sender: (NodeId, u32)) {
        let of = (sender.0, sender.1, ReservationId(0))..=(sender.0, sender.1, ReservationId(u64::MAX));
        let keys: Vec<ReservationId> = self.waiting.range(of).map(|((.., key), ())| *key).collect();
        for key in keys {
            self.answered(sender, key);
        }
    }
}

impl Invariant for LiveCalls {
    fn name(&self) -> &'static str {
        "live-calls"
    }

    fn states(&self) -> &'static str {
        "the calls of a user on the wire at once never exceed its slots"
    }

    fn at(&mut self, moment: &Moment<'_>) -> Result<(), String> {
        let sender = (moment.node, moment.incarnation);
        match moment.saw {
            Saw::Ledger(_, records) => records.iter().for_each(|record| self.record(record)),
            Saw::Fact(Fact::CallSent { key, .. }) => return self.sent(sender, *key),
            Saw::Fact(Fact::CallEnded { key, .. }) => self.answered(sender, *key),
            Saw::Down => self.down(sender),
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::history::*;
    use super::*;
    use kernel::money::MicroUsd;

    const OK: Option<Answered> = Some(Answered::Ok);
    const BUSY: Option<Answered> = Some(Answered::TooManyRequests);

    fn with_call(name: &str) -> (Story, ReservationId) {
        let mut story = Story::begun(name);
        let key = story.next();
        story.logs(&reserves(key, 1, 40));
        (story, key)
    }

    fn unknown() -> Event {
        attempt_ended(1, AttemptState::Indeterminate)
    }

    #[test]
    fn a_legal_history_passes() {
        for name in ["unknown-has-cause", "released-uncharged", "invoice", "live-calls"] {
            let (mut story, key) = with_call(name);
            story.sends(0, key, 1).charges(key).hears(0, key, OK);
            story.logs(&[settled(key), attempt_ended(1, AttemptState::Succeeded)]);
            let lost = story.next();
            story.logs(&[reserved(lost, UNIT.0, 2, 40), started(lost, UNIT.0, 2)]);
            story.sends(0, lost, 1).charges(lost).hears(0, lost, None);
            story.logs(&[attempt_ended(2, AttemptState::Indeterminate)]).rests();
            story.holds();
        }
    }

    #[test]
    fn an_outcome_is_unknown_only_of_a_call_that_left_and_was_not_answered() {
        let (mut story, _) = with_call("unknown-has-cause");
        story.logs(&[unknown()]).breaks_by("unknown-has-cause", &["call 8 is unknown, and it never left"]);

        let (mut story, key) = with_call("unknown-has-cause");
        story.sends(0, key, 1).hears(0, key, BUSY).logs(&[unknown()]);
        story.breaks_by("unknown-has-cause", &["node 3 had got TooManyRequests for it under that fence"]);

        let (mut story, key) = with_call("unknown-has-cause");
        story.sends(0, key, 1).hears(0, key, BUSY).sends(0, key, 1).hears(0, key, None).logs(&[unknown()]).holds();
    }

    #[test]
    fn a_successor_may_not_know_what_its_predecessor_heard() {
        let (mut story, key) = with_call("unknown-has-cause");
        story.sends(0, key, 1).sends(1, key, 2).hears(0, key, OK).hears(1, key, None);
        story.logs(&[yielded(LOCK, 1), granted(LOCK, 8, 2, TTL_NS)]);
        story.under = (kernel::id::ExecutorId(8), Fence(2));
        story.logs(&[unknown()]).holds();
    }

    #[test]
    fn what_is_released_is_never_charged() {
        let (mut story, key) = with_call("released-uncharged");
        story.sends(0, key, 1).charges(key).logs(&[released(key)]);
        story.breaks_by("released-uncharged", &["record 10 releases 8, which was charged at 1000 ns"]);
        let (mut story, key) = with_call("released-uncharged");
        story.logs(&[released(key)]).holds();
        story.charges(key).breaks_by("released-uncharged", &["8 is charged", "record 10 had released it"]);
    }

    #[test]
    fn the_invoice_and_the_ledger_tell_one_story() {
        let key = ReservationId(8);
        let usage = Usage { input_tokens: 1, output_tokens: 1 };
        type Tell = fn(&mut Story);
        let cases: [(&str, Tell, &str); 8] = [
            (
                "repeated uncharged",
                |story| _ = story.fact(0, Fact::Repeated { key: ReservationId(8) }),
                "as if charged before, and never was",
            ),
            ("sent unreserved", |story| _ = story.sends(0, ReservationId(99), 1), "leaves under 99"),
            ("charged unsent", |story| _ = story.charges(ReservationId(8)), "no call left under it"),
            ("charged unreserved", |story| _ = story.charges(ReservationId(99)), "99 is charged 0.000030 USD"),
            (
                "charged twice",
                |story| _ = story.sends(0, ReservationId(8), 1).charges(ReservationId(8)).charges(ReservationId(8)),
                "8 is charged again",
            ),
            ("settled uncharged", |story| _ = story.logs(&[settled(ReservationId(8))]), "charged is None"),
            (
                "charged more than was set aside",
                |story| {
                    let (key, cost) = (ReservationId(8), MicroUsd(41));
                    story.sends(0, key, 1).fact(0, Fact::Charged { key, usage: USAGE, cost }).rests();
                },
                "at rest the invoice is 41 micro-USD; settled are 0 and open 40",
            ),
            (
                "charged less than was settled",
                |story| {
                    let (key, cost) = (ReservationId(8), MicroUsd(29));
                    story
                        .sends(0, key, 1)
                        .fact(0, Fact::Charged { key, usage: USAGE, cost })
                        .logs(&[settled(key)])
                        .rests();
                },
                "should be from 30 to 30",
            ),
        ];
        for (case, tell, message) in cases {
            let (mut story, _) = with_call("invoice");
            tell(&mut story);
            assert!(story.broken().is_some(), "{case} passes");
            story.breaks_by("invoice", &[message]);
        }
        let (mut story, _) = with_call("invoice");
        story.sends(0, key, 1).fact(0, Fact::Charged { key, usage, cost: MicroUsd(3) }).logs(&[settled(key)]);
        story.breaks_by("invoice", &["record 10 settles 8", "charged is Some"]);
        let (mut story, key) = with_call("invoice");
        let (tenant, run, unit, user, fence) = (TENANT, RUN, UNIT, USER, Fence(1));
        story.fact(0, Fact::CallSent { tenant, run, unit, attempt: 2, user, key, fence });
        story.breaks_by("invoice", &["attempt 2 of unit", "reserved for attempt 1"]);
    }

    #[test]
    fn calls_on_the_wire_are_within_the_slots() {
        let three = |story: &mut Story| {
            let first = story.next();
            let keys = [first, ReservationId(first.0 + 1), ReservationId(first.0 + 2)];
            story.logs(&[reserved(keys[0], 3, 1, 1), reserved(keys[1], 4, 1, 1), reserved(keys[2], 5, 1, 1)]);
            keys
        };
        let mut story = Story::begun("live-calls");
        let keys = three(&mut story);
        story.sends(0, keys[0], 1).sends(1, keys[1], 1).sends(1, keys[1], 1).sends(2, keys[1], 1).holds();
        story.sends(0, keys[2], 1).breaks_by("live-calls", &["is call 3 of user 5 of tenant 1", "slots are 2"]);

        type Free = fn(&mut Story, ReservationId);
        let frees: [(&str, Free); 3] = [
            ("answered", |story, key| _ = story.hears(1, key, OK)),
            ("its sender dead", |story, _| _ = story.downs(1)),
            ("its reservation ended", |story, key| _ = story.logs(&[released(key)])),
        ];
        for (case, free) in frees {
            let mut story = Story::begun("live-calls");
            let keys = three(&mut story);
            story.sends(0, keys[0], 1).sends(1, keys[1], 1);
            free(&mut story, keys[1]);
            story.sends(0, keys[2], 1);
            assert_eq!(story.broken(), None, "{case}");
        }
    }
}
