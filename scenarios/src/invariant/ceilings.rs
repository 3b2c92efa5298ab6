//! The two ceilings outside the kernel, counted again from what was seen: the edge's calls in any window, and what each key of
//! the provider was charged.

use super::{Invariant, Moment, Saw};
use crate::{
    fact::{Answered, EdgeCeiling, EdgeRefusal, Fact},
    maps::{BySeq, Lookup},
};
use kernel::{
    id::{ReservationId, RunId, TenantId, UnitId, UserId},
    money::MicroUsd,
    record::{Event, Record},
    reserve,
    run::{self, Ending, HaltReason},
};
use sim::NodeId;
use std::collections::VecDeque;

/// `edge-holds`: in any window of the edge's clock no more calls pass than its limits say, of a key and from an address; what is
/// refused had none left; the clock is one that a node may have; and of no key are more calls begun than passed. Which of them
/// passed is not told apart: a call that passed and was refused after leaves room for one that did not pass.
#[derive(Debug, Default)]
pub struct EdgeHolds {
    limits: Option<Limits>,
    of_keys: Lookup<UserId, Passed>,
    from_addresses: Lookup<u32, Passed>,
    /// The edge's clock and true time when it last noted something.
    last: Option<(u64, u64)>,
    /// Whose each run is.
    users: Lookup<(TenantId, RunId), UserId>,
    /// Calls that each user begun.
    begun: Lookup<UserId, u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limits {
    per_key: u32,
    per_address: u32,
    window_ns: u64,
}

/// When the calls of the last window passed, oldest first, and how many ever did.
#[derive(Debug, Default)]
struct Passed {
    at_ns: VecDeque<u64>,
    ever: u64,
}

impl Passed {
    /// How many passed in the window that ends at `now_ns`.
    fn in_window(&mut self, now_ns: u64, window_ns: u64) -> u64 {
        while self.at_ns.front().is_some_and(|at| now_ns.saturating_sub(*at) >= window_ns) {
            self.at_ns.pop_front();
        }
        self.at_ns.len() as u64
    }
}

/// How far two clocks that start to run apart may be read apart, in nanoseconds.
const SLACK_NS: u64 = 1_000_000;

impl EdgeHolds {
    /// Whether the edge's clock goes at half to double the true rate, and never back.
    fn clock(&mut self, at_ns: u64, true_ns: u64) -> Result<(), String> {
        let before = self.last.replace((at_ns, true_ns));
        let Some((at_before, true_before)) = before else { return Ok(()) };
        let passed = true_ns.saturating_sub(true_before);
        let (least, most) = ((passed / 2).saturating_sub(SLACK_NS), (passed * 2).saturating_add(SLACK_NS));
        match at_ns.checked_sub(at_before) {
            Some(own) if own >= least && own <= most => Ok(()),
            _ => Err(format!("the edge's clock reads {at_ns} ns {passed} ns after it read {at_before}")),
        }
    }

    fn fact(&mut self, moment: &Moment<'_>, fact: &Fact) -> Result<(), String> {
        match *fact {
            Fact::EdgeUp { per_key, per_address, window_ns } => {
                let now = Limits { per_key, per_address, window_ns };
                match self.limits.replace(now) {
                    Some(before) if before != now => Err(format!("the edge's limits were {before:?}, and are {now:?}")),
                    _ => Ok(()),
                }
            }
            Fact::EdgePassed { user, address, at_ns } => {
                self.clock(at_ns, moment.time_ns)?;
                let Some(limits) = self.limits else { return Err("a call passed an edge that is not up".into()) };
                let of = |passed: &mut Passed, limit: u32, whose: String| {
                    let before = passed.in_window(at_ns, limits.window_ns);
                    passed.at_ns.push_back(at_ns);
                    passed.ever += 1;
                    if before < u64::from(limit) {
                        return Ok(());
                    }
                    let (window, first) = (limits.window_ns, passed.at_ns.front().copied().unwrap_or(at_ns));
                    Err(format!(
                        "call {} {whose} passes the edge in {window} ns, from {first} to {at_ns} ns of its clock; the limit is {limit}",
                        before + 1
                    ))
                };
                of(self.of_keys.row(user), limits.per_key, format!("of the key of user {user}"))?;
                of(self.from_addresses.row(address), limits.per_address, format!("from address {address}"))
            }
            Fact::EdgeRefused { user, address, at_ns, refusal } => {
                self.clock(at_ns, moment.time_ns)?;
                self.refused(moment.incarnation, (user, address), at_ns, &refusal)
            }
            _ => Ok(()),
        }
    }

    /// Whether a refusal was due, and tells what it should.
    fn refused(
        &mut self,
        incarnation: u32,
        (user, address): (UserId, u32),
        at_ns: u64,
        refusal: &EdgeRefusal,
    ) -> Result<(), String> {
        let Some(limits) = self.limits else { return Err("an edge refuses that is not up".into()) };
        let EdgeRefusal { ceiling, limit, asked, left, .. } = *refusal;
        let (right, passed) = match ceiling {
            EdgeCeiling::Key => (limits.per_key, self.of_keys.row(user)),
            EdgeCeiling::Address => (limits.per_address, self.from_addresses.row(address)),
            EdgeCeiling::Unsure if incarnation > 0 => return Ok(()),
            EdgeCeiling::Unsure => return Err("an edge that was never down does not know what it let through".into()),
        };
        let in_window = passed.in_window(at_ns, limits.window_ns);
        let is_left = u64::from(limit).saturating_sub(in_window);
        if limit != right || u64::from(left) != is_left || left >= asked {
            return Err(format!(
                "user {user} at address {address} is refused for {refusal:?}: {in_window} passed of {right}"
            ));
        }
        Ok(())
    }

    fn record(&mut self, record: &Record) -> Result<(), String> {
        let user = match record.event {
            Event::Run(run::Event::Spawned { run, user, .. }) => {
                self.users.insert((record.tenant, run), user);
                return Ok(());
            }
            Event::Reserve(reserve::Event::Reserved { user, .. }) => Some(user),
            Event::Run(run::Event::Recalled { run, .. }) => self.users.get(&(record.tenant, run)).copied(),
            _ => None,
        };
        let (Some(user), Some(_)) = (user, self.limits) else { return Ok(()) };
        let begun = self.begun.row(user);
        *begun += 1;
        let passed = self.of_keys.get(&user).map_or(0, |passed| passed.ever);
        if *begun > passed {
            let seq = record.seq;
            return Err(format!("record {seq} begins call {begun} of user {user}, of whom {passed} passed the edge"));
        }
        Ok(())
    }
}

impl Invariant for EdgeHolds {
    fn name(&self) -> &'static str {
        "edge-holds"
    }

    fn states(&self) -> &'static str {
        "in any window no more calls of a key or from an address pass the edge than its limits say, and no more are begun than pass"
    }

    fn at(&mut self, moment: &Moment<'_>) -> Result<(), String> {
        match moment.saw {
            Saw::Ledger(_, records) => records.iter().try_for_each(|record| self.record(record)),
            Saw::Fact(fact) => self.fact(moment, fact),
            _ => Ok(()),
        }
    }
}

/// `key-credit`: no key of the provider is charged past its limit; a refusal for it tells the numbers; the process that heard one
/// does not make the call again; and a run is said to be halted by it only if one of its calls was refused for it. A successor
/// has heard nothing, and may call again.
#[derive(Debug, Default)]
pub struct KeyCredit {
    limit: Option<MicroUsd>,
    charged: Lookup<UserId, u128>,
    /// Of each call that left: whose, and which.
    calls: BySeq<Call>,
    /// Calls that were refused, so that a copy's answer is not judged by what was charged since.
    refused: Lookup<ReservationId, ()>,
    /// Runs that had a call refused.
    runs: Lookup<(TenantId, RunId), ()>,
    /// Units whose refusal each process heard, and of which call.
    heard: Lookup<(NodeId, u32, RunId, UnitId), ReservationId>,
}

#[derive(Clone, Copy, Debug)]
struct Call {
    user: UserId,
    tenant: TenantId,
    run: RunId,
    unit: UnitId,
}

impl KeyCredit {
    fn fact(&mut self, (node, incarnation): (NodeId, u32), fact: &Fact) -> Result<(), String> {
        match *fact {
            Fact::KeyCredit { limit } => self.limit = Some(limit),
            Fact::CallSent { tenant, run, unit, user, key, .. } => {
                if let Some(before) = self.heard.get(&(node, incarnation, run, unit))
                    && *before != key
                {
                    return Err(format!(
                        "unit {unit} of run {run} is called again, under {key}, by who heard that {before} has no credit"
                    ));
                }
                self.calls.insert(key, Call { user, tenant, run, unit });
            }
            Fact::Charged { key, cost, .. } => {
                let Some(call) = self.calls.find(key) else { return Ok(()) };
                return self.charge(call.user, cost);
            }
            Fact::StrayCharged { user, cost } => return self.charge(user, cost),
            Fact::TurnedAway { key, answered: Answered::NoCredit { limit, asked, left } } => {
                let Some(&Call { user, tenant, run, .. }) = self.calls.find(key) else { return Ok(()) };
                self.runs.insert((tenant, run), ());
                if self.refused.insert(key, ()).is_some() {
                    return Ok(());
                }
                return self.refuse(&key, user, [limit, asked, left]);
            }
            Fact::StrayRefused { user, limit, asked, left } => {
                return self.refuse(&"a call past the ledger", user, [limit, asked, left]);
            }
            Fact::CallEnded { key, answered: Some(Answered::NoCredit { .. }) } => {
                if let Some(call) = self.calls.find(key) {
                    self.heard.insert((node, incarnation, call.run, call.unit), key);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn charge(&mut self, user: UserId, cost: MicroUsd) -> Result<(), String> {
        let sum = self.charged.row(user);
        *sum += u128::from(cost.0);
        match self.limit {
            Some(limit) if *sum > u128::from(limit.0) => {
                Err(format!("the key of user {user} is charged {sum} micro-USD, and its limit is {limit}"))
            }
            _ => Ok(()),
        }
    }

    /// A refusal tells what was left: of the limit, or nothing where the credit is taken for gone.
    fn refuse(
        &self,
        what: &dyn std::fmt::Display,
        user: UserId,
        [limit, asked, left]: [MicroUsd; 3],
    ) -> Result<(), String> {
        let charged = self.charged.get(&user).copied().unwrap_or(0);
        let of_limit = u128::from(limit.0).saturating_sub(charged);
        // Short of its limit a key has none left only where the provider takes its credit for gone.
        let is_gone = u128::from(limit.0) == charged && left == MicroUsd::ZERO;
        let is_due = is_gone || (self.limit == Some(limit) && asked > left);
        if u128::from(left.0) != of_limit || !is_due {
            return Err(format!(
                "{what} is refused for {asked} of {limit}, of which {left} is said to be left; charged is {charged}"
            ));
        }
        Ok(())
    }

    fn record(&self, record: &Record) -> Result<(), String> {
        let Event::Run(run::Event::Ended { run, outcome: Ending::Halted(HaltReason::Key) }) = record.event else {
            return Ok(());
        };
        if self.runs.contains_key(&(record.tenant, run)) {
            return Ok(());
        }
        Err(format!(
            "record {}: run {run} is halted for want of credit, and no call of it was refused for it",
            record.seq
        ))
    }
}

impl Invariant for KeyCredit {
    fn name(&self) -> &'static str {
        "key-credit"
    }

    fn states(&self) -> &'static str {
        "no key is charged past its credit limit; who heard a refusal for it does not call again, and nothing else halts a run for it"
    }

    fn at(&mut self, moment: &Moment<'_>) -> Result<(), String> {
        match moment.saw {
            Saw::Ledger(_, records) => records.iter().try_for_each(|record| self.record(record)),
            Saw::Fact(fact) => self.fact((moment.node, moment.incarnation), fact),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::history::{LOCK, RUN, Story, TENANT, TTL_NS, UNIT, USAGE, USER, granted, reserves, settings, spawned},
        *,
    };
    use kernel::run::Event::Ended;

    const SECOND: u64 = 1_000_000_000;

    fn up(per_key: u32, per_address: u32) -> Fact {
        Fact::EdgeUp { per_key, per_address, window_ns: 60 * SECOND }
    }

    /// Calls of a user from an address at a moment, by the edge's clock, which is true.
    fn passes(story: &mut Story, user: u32, address: u32, at_ns: u64, calls: u32) {
        for _ in 0..calls {
            story.true_ns = at_ns;
            story.fact(0, Fact::EdgePassed { user: UserId(user), address, at_ns });
        }
    }

    fn refuses(story: &mut Story, at_ns: u64, ceiling: EdgeCeiling, limit: u32, left: u32) {
        let refusal = EdgeRefusal { ceiling, limit, asked: 1, left, again_ns: 1 };
        story.true_ns = at_ns;
        story.fact(0, Fact::EdgeRefused { user: UserId(1), address: 4, at_ns, refusal });
    }

    fn edged(per_key: u32, per_address: u32) -> Story {
        let mut story = Story::watched_by(&["edge-holds"]);
        story.fact(0, up(per_key, per_address));
        story
    }

    /// kong#10559: as many before a window's boundary as after it are twice the limit in a second.
    #[test]
    fn calls_are_counted_in_every_window_and_not_from_one_boundary_to_the_next() {
        let mut story = edged(3, 9);
        passes(&mut story, 1, 4, 59 * SECOND, 3);
        passes(&mut story, 1, 4, 59 * SECOND + 60 * SECOND, 3); // the first is a whole window ago
        story.holds();
        let mut story = edged(3, 9);
        passes(&mut story, 1, 4, 59 * SECOND, 3);
        passes(&mut story, 1, 4, 61 * SECOND, 1);
        story
            .breaks_by("edge-holds", &["call 4 of the key of user 1", "from 59000000000 to 61000000000", "limit is 3"]);
        let mut story = edged(9, 2);
        passes(&mut story, 1, 4, SECOND, 2);
        passes(&mut story, 2, 5, SECOND, 2);
        story.holds();
        passes(&mut story, 3, 4, 2 * SECOND, 1);
        story.breaks_by("edge-holds", &["call 3 from address 4", "limit is 2"]);
    }

    #[test]
    fn a_refusal_is_due_and_the_clock_is_a_clock() {
        let mut story = edged(1, 9);
        passes(&mut story, 1, 4, SECOND, 1);
        refuses(&mut story, 2 * SECOND, EdgeCeiling::Key, 1, 0);
        story.holds();
        for (ceiling, limit, left) in [
            (EdgeCeiling::Key, 2, 0),
            (EdgeCeiling::Key, 1, 1),
            (EdgeCeiling::Address, 9, 0),
            (EdgeCeiling::Unsure, 0, 0),
        ] {
            let mut story = edged(1, 9);
            passes(&mut story, 1, 4, SECOND, 1);
            refuses(&mut story, 2 * SECOND, ceiling, limit, left);
            story.breaks_by("edge-holds", &[]);
        }
        for (at_ns, true_ns) in [(SECOND, 30 * SECOND), (9 * SECOND, 10 * SECOND), (40 * SECOND, 12 * SECOND)] {
            let mut story = edged(9, 9);
            passes(&mut story, 1, 4, 10 * SECOND, 1);
            story.true_ns = true_ns;
            story.fact(0, Fact::EdgePassed { user: UserId(1), address: 4, at_ns });
            story.breaks_by("edge-holds", &["the edge's clock"]);
        }
        let mut story = edged(9, 9);
        story.fact(0, up(9, 8));
        story.breaks_by("edge-holds", &["limits were"]);
    }

    #[test]
    fn no_call_goes_past_the_edge() {
        let mut story = Story::begun("edge-holds");
        let key = story.next();
        story.logs(&reserves(key, 1, 10)).holds(); // there is none
        let mut story = Story::watched_by(&["edge-holds"]);
        story.fact(0, up(9, 9));
        story.logs(&settings(1_000, 2)).logs(&[granted(LOCK, 7, 1, TTL_NS), spawned(RUN)]);
        passes(&mut story, USER.0, 4, SECOND, 1);
        let key = story.next();
        story.logs(&reserves(key, 1, 10)).holds();
        let key = story.next();
        story.logs(&reserves(key, 2, 10)).breaks_by("edge-holds", &["begins call 2 of user 5, of whom 1 passed"]);
    }

    /// One call on the wire, of a key that may be charged so much.
    fn with_credit(limit: u64) -> (Story, ReservationId) {
        let mut story = Story::begun("key-credit");
        story.fact(0, Fact::KeyCredit { limit: MicroUsd(limit) });
        let key = story.next();
        story.logs(&reserves(key, 1, 40)).sends(0, key, 1);
        (story, key)
    }

    fn no_credit(limit: u64, asked: u64, left: u64) -> Answered {
        let [limit, asked, left] = [limit, asked, left].map(MicroUsd);
        Answered::NoCredit { limit, asked, left }
    }

    #[test]
    fn no_key_is_charged_past_its_limit_and_a_refusal_tells_its_numbers() {
        let (mut story, key) = with_credit(30);
        story.charges(key).holds();
        story.fact(0, Fact::Charged { key, usage: USAGE, cost: MicroUsd(1) });
        story.breaks_by("key-credit", &["is charged 31 micro-USD", "limit is 0.000030"]);
        for (limit, asked, left, is_right) in
            [(30, 31, 30, true), (0, 9, 0, true), (30, 31, 29, false), (30, 30, 30, false), (29, 31, 29, false)]
        {
            let (mut story, key) = with_credit(30);
            story.fact(0, Fact::TurnedAway { key, answered: no_credit(limit, asked, left) });
            assert_eq!(story.broken().is_none(), is_right, "{asked} of {limit}, {left} left: {:?}", story.broken());
        }
    }

    #[test]
    fn what_is_called_past_the_ledger_counts_against_the_same_limit() {
        let stray = |cost| Fact::StrayCharged { user: USER, cost: MicroUsd(cost) };
        let refused = |asked, left| {
            let [limit, asked, left] = [40, asked, left].map(MicroUsd);
            Fact::StrayRefused { user: USER, limit, asked, left }
        };
        let (mut story, key) = with_credit(40);
        story.charges(key).fact(0, stray(10));
        story.fact(0, refused(1, 0)).holds();
        story.fact(0, stray(1));
        story.breaks_by("key-credit", &["is charged 41 micro-USD"]);
        for (asked, left) in [(10, 10), (11, 9), (11, 11)] {
            let (mut story, key) = with_credit(40);
            story.charges(key).fact(0, refused(asked, left));
            story.breaks_by("key-credit", &["a call past the ledger is refused"]);
        }
    }

    #[test]
    fn what_was_refused_is_not_asked_again_and_is_why_a_run_is_halted() {
        let halted = |story: &mut Story, by| {
            let outcome = Ending::Halted(by);
            story.logs(&[Event::Run(Ended { run: RUN, outcome })]);
        };
        let again = |story: &mut Story, agent| {
            let (tenant, run, unit, attempt, user) = (TENANT, RUN, UNIT, 2, USER);
            let (key, fence) = (ReservationId(99), kernel::id::Fence(1));
            story.fact(agent, Fact::CallSent { tenant, run, unit, attempt, user, key, fence });
        };
        let refused = || {
            let (mut story, key) = with_credit(5);
            let answered = no_credit(5, 30, 5);
            story.fact(0, Fact::TurnedAway { key, answered }).hears(0, key, Some(answered));
            story
        };
        let mut story = refused();
        again(&mut story, 1); // a successor does not know
        halted(&mut story, HaltReason::Key);
        story.holds();
        let mut story = refused();
        again(&mut story, 0);
        story.breaks_by("key-credit", &["is called again, under 99"]);
        let (mut story, _) = with_credit(5);
        halted(&mut story, HaltReason::Owner);
        story.holds();
        let (mut story, _) = with_credit(5);
        halted(&mut story, HaltReason::Key);
        story.breaks_by("key-credit", &["no call of it was refused"]);
    }
}
