//! Who may write: one accepted writer a lock, under a fence that only rises, for terms that no clock fault shortens.

use super::{Invariant, Moment, Part, Saw, parts};
use crate::{
    fact::Fact,
    maps::{BySeq, Lookup},
};
use kernel::{
    effect,
    id::{ClientId, ExecutorId, Fence, LedgerTime, ReservationId},
    lease::{self, Lock},
    record::{Event, Record},
    request::{Command, Reply},
    reserve, run,
    serve::Announcement,
};
use std::collections::BTreeMap;

/// `one-writer`: per lock fences rise with each grant and only a free lock is granted; what is written in a run, and every
/// command that needs a lock, is under the grant in force by the log.
#[derive(Debug, Default)]
pub struct OneWriter {
    locks: Lookup<Lock, Standing>,
    runs: BySeq<Lock>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Standing {
    highest: Fence,
    holder: Option<(ExecutorId, Fence)>,
}

impl OneWriter {
    fn fold(&mut self, record: &Record) -> Result<(), String> {
        let seq = record.seq;
        match &record.event {
            Event::Lease(lease::Event::Granted { lock, executor, fence, .. }) => {
                let row = self.locks.row(*lock);
                if *fence <= row.highest {
                    return Err(format!(
                        "record {seq} grants {lock:?} under fence {fence}; {} was granted",
                        row.highest
                    ));
                }
                if let Some((holder, held)) = row.holder {
                    return Err(format!(
                        "record {seq} grants {lock:?} to executor {executor} under fence {fence}, and executor {holder} \
                         holds it under {held}"
                    ));
                }
                *row = Standing { highest: *fence, holder: Some((*executor, *fence)) };
            }
            Event::Lease(lease::Event::Renewed { lock, fence, .. }) => self.current(seq, *lock, *fence, "renews")?,
            Event::Lease(lease::Event::Yielded { lock, fence }) => {
                self.current(seq, *lock, *fence, "yields")?;
                self.free(*lock);
            }
            Event::Lease(lease::Event::Expired { lock, fence }) => {
                self.current(seq, *lock, *fence, "expires")?;
                self.free(*lock);
            }
            Event::Reserve(reserve::Event::Reserved { reservation, run, .. }) => {
                self.runs.insert(*reservation, Lock::Run(record.tenant, *run));
            }
            Event::Run(run::Event::Spawned { .. }) | Event::Admit(_) | Event::Effect(_) | Event::Reserve(_) => {}
            Event::Run(_) => {
                let Some(origin) = record.origin else { return Ok(()) };
                let lock = Lock::Run(record.tenant, origin.run);
                let row = self.locks.get(&lock).copied().unwrap_or_default();
                if row.holder != Some((origin.executor, origin.fence)) {
                    return Err(format!(
                        "record {seq} of run {} is written by executor {} under fence {}; {}",
                        origin.run,
                        origin.executor,
                        origin.fence,
                        row.stands()
                    ));
                }
            }
        }
        Ok(())
    }

    fn current(&self, seq: u64, lock: Lock, fence: Fence, what: &str) -> Result<(), String> {
        let row = self.locks.get(&lock).copied().unwrap_or_default();
        if row.holder.is_some_and(|(_, held)| held == fence) {
            return Ok(());
        }
        Err(format!("record {seq} {what} {lock:?} under fence {fence}; {}", row.stands()))
    }

    fn free(&mut self, lock: Lock) {
        if let Some(row) = self.locks.get_mut(&lock) {
            row.holder = None;
        }
    }

    /// An admitted request's commands against the grants in force before it.
    fn admitted(&self, part: &Part<'_>) -> Result<(), String> {
        let request = &part.submitted.request;
        let admits = matches!(part.reply, Reply::Decided(decision) if decision.outcome.is_ok());
        if !admits || part.records.is_empty() || request.client == ClientId::LEDGER {
            return Ok(());
        }
        for command in &request.commands {
            let needed = match command {
                Command::Lease(_) | Command::Run(run::Command::Spawn { .. }) => continue,
                Command::Run(
                    run::Command::EndAttempt { run, .. }
                    | run::Command::End { run, .. }
                    | run::Command::Queue { run, .. }
                    | run::Command::Suspend { run },
                )
                | Command::Effect(effect::Command::Begin { run, .. })
                | Command::Reserve(reserve::Command::Reserve { run, .. }) => Lock::Run(request.tenant, *run),
                Command::Reserve(
                    reserve::Command::Settle { reservation, .. } | reserve::Command::Release { reservation },
                )
                | Command::Effect(
                    effect::Command::Dispatch { intent: reservation }
                    | effect::Command::Commit { intent: reservation, .. },
                ) => match self.runs.find(*reservation) {
                    Some(lock) => *lock,
                    None => continue,
                },
                Command::Admit(_)
                | Command::Reserve(_)
                | Command::Effect(effect::Command::Register { .. })
                | Command::Run(run::Command::Resume { .. } | run::Command::Cancel { .. }) => Lock::Owner,
            };
            let row = self.locks.get(&needed).copied().unwrap_or_default();
            let under = request.authority.filter(|authority| authority.lock == needed);
            if row.holder.is_none() || under.map(|held| (held.executor, held.fence)) != row.holder {
                return Err(format!(
                    "request {} of client {}.{} is admitted under {:?}; it needs {needed:?}, and {}",
                    request.number,
                    request.client,
                    request.incarnation,
                    request.authority,
                    row.stands()
                ));
            }
        }
        Ok(())
    }
}

impl Standing {
    fn stands(&self) -> String {
        match self.holder {
            Some((executor, fence)) => format!("executor {executor} holds it under fence {fence}"),
            None => format!("nobody holds it, and fence {} was the last", self.highest),
        }
    }
}

impl Invariant for OneWriter {
    fn name(&self) -> &'static str {
        "one-writer"
    }

    fn states(&self) -> &'static str {
        "a lock has one holder, fences rise, and what needs a lock is written under its current grant"
    }

    fn at(&mut self, moment: &Moment<'_>) -> Result<(), String> {
        match moment.saw {
            Saw::Ledger(Announcement::Committed { submitted, replies, .. }, records) => {
                let mut batch = parts(submitted, replies, records);
                for part in batch.by_ref() {
                    self.admitted(&part)?;
                    part.records.iter().try_for_each(|record| self.fold(record))?;
                }
                batch.left.iter().try_for_each(|record| self.fold(record))
            }
            Saw::Ledger(_, records) => records.iter().try_for_each(|record| self.fold(record)),
            _ => Ok(()),
        }
    }
}

/// The fastest an oscillator may run, against true time; half of it is the slowest.
const FASTEST: u64 = 2;

/// What rounding between clocks may amount to, in nanoseconds.
const SLACK_NS: u64 = 1_000;

/// `lease-terms`: a turn is granted within the waiter's own term (F16), a lease expires after its end, and no sooner in true
/// time than the worst oscillator allows; ledger time goes at an oscillator's rate, over reopenings too (F17).
///
/// When a batch was decided in true time is not announced, but it was after the announcement before it and before its own.
/// Bounds are taken so that no delay between decision and announcement breaks them.
#[derive(Debug, Default)]
pub struct LeaseTerms {
    locks: Lookup<Lock, Term>,
    /// The highest ledger time, and a true time it was not decided before.
    highest: (LedgerTime, u64),
    /// True time of the last announcement.
    announced_ns: u64,
}

#[derive(Clone, Copy, Debug)]
struct Term {
    until: LedgerTime,
    /// Ledger time of the grant or its last extension, and a true time it was not decided before.
    since: (LedgerTime, u64),
}

impl LeaseTerms {
    fn turn_in_term(part: &Part<'_>, now_ns: u64) -> Result<(), String> {
        let (request, until_ns) = (&part.submitted.request, part.submitted.waits_until_ns);
        if request.wait_ns == 0 || now_ns <= until_ns {
            return Ok(());
        }
        let turn = part.records.iter().find(|record| {
            matches!(
                record.event,
                Event::Lease(lease::Event::Granted { .. }) | Event::Reserve(reserve::Event::Reserved { .. })
            )
        });
        match turn {
            None => Ok(()),
            Some(record) => Err(format!(
                "record {} gives client {}.{} its turn at {now_ns} ns of the writer's clock; its own term had ended at \
                 {until_ns}: {:?}",
                record.seq, request.client, request.incarnation, record.event
            )),
        }
    }

    fn time_passes(&mut self, time: LedgerTime, moment_ns: u64) -> Result<(), String> {
        let (highest, since_ns) = self.highest;
        let most_ns = moment_ns.saturating_sub(since_ns).saturating_mul(FASTEST).saturating_add(SLACK_NS);
        let passed_ns = time.0.saturating_sub(highest.0);
        if passed_ns > most_ns {
            return Err(format!(
                "ledger time goes from {highest} to {time}, by {passed_ns} ns, within {} ns of true time",
                moment_ns.saturating_sub(since_ns)
            ));
        }
        if time >= highest {
            self.highest = (time, self.announced_ns);
        }
        Ok(())
    }

    fn fold(&mut self, record: &Record, moment_ns: u64) -> Result<(), String> {
        let Event::Lease(event) = &record.event else { return Ok(()) };
        let since = (record.time, self.announced_ns);
        match *event {
            lease::Event::Granted { lock, until, .. } => {
                if until < record.time {
                    let (seq, time) = (record.seq, record.time);
                    return Err(format!("record {seq} grants {lock:?} until {until}, and it is {time}"));
                }
                self.locks.insert(lock, Term { until, since });
            }
            lease::Event::Renewed { lock, until, .. } => {
                if let Some(term) = self.locks.get(&lock).filter(|term| until < term.until) {
                    let (seq, old) = (record.seq, term.until);
                    return Err(format!("record {seq} renews {lock:?} until {until}; it was held until {old}"));
                }
                self.locks.insert(lock, Term { until, since });
            }
            lease::Event::Yielded { lock, .. } => {
                self.locks.remove(&lock);
            }
            lease::Event::Expired { lock, fence } => {
                let Some(term) = self.locks.remove(&lock) else { return Ok(()) };
                if record.time <= term.until {
                    return Err(format!(
                        "record {} expires {lock:?} under fence {fence} at ledger time {}; it is valid until {}",
                        record.seq, record.time, term.until
                    ));
                }
                let (granted, granted_ns) = term.since;
                let passed_ns = moment_ns.saturating_sub(granted_ns);
                let least_ns = term.until.0.saturating_sub(granted.0) / FASTEST;
                if passed_ns.saturating_add(SLACK_NS) < least_ns {
                    return Err(format!(
                        "record {} expires {lock:?} under fence {fence} at most {passed_ns} ns of true time after it was \
                         extended; its lease is {} ns, which no oscillator passes in less than {least_ns}",
                        record.seq,
                        term.until.0.saturating_sub(granted.0)
                    ));
                }
            }
        }
        Ok(())
    }
}

impl Invariant for LeaseTerms {
    fn name(&self) -> &'static str {
        "lease-terms"
    }

    fn states(&self) -> &'static str {
        "turns are given within the waiter's term, and ledger time and leases pass at an oscillator's rate, never a wall clock's"
    }

    fn at(&mut self, moment: &Moment<'_>) -> Result<(), String> {
        let Saw::Ledger(announcement, records) = moment.saw else { return Ok(()) };
        if let Announcement::Committed { now_ns, submitted, replies, .. } = announcement {
            parts(submitted, replies, records).try_for_each(|part| LeaseTerms::turn_in_term(&part, *now_ns))?;
        }
        if let Some(record) = records.last() {
            self.time_passes(record.time, moment.time_ns)?;
        }
        records.iter().try_for_each(|record| self.fold(record, moment.time_ns))?;
        self.announced_ns = moment.time_ns;
        Ok(())
    }
}

/// `believed-holders`: whoever acts on a lease was granted it, and no call leaves on a reservation that was admitted under a
/// fence after a higher one had been granted. That two believe at once is no breach: drift and pauses make it so, and fences
/// are there for it.
#[derive(Debug, Default)]
pub struct BelievedHolders {
    grants: Lookup<Lock, Vec<(Fence, ExecutorId)>>,
    /// Reservations admitted under a fence that was no longer the highest: theirs, and the highest then.
    late: BTreeMap<ReservationId, (Fence, Fence)>,
}

impl BelievedHolders {
    fn fold(&mut self, record: &Record) {
        match record.event {
            Event::Lease(lease::Event::Granted { lock, executor, fence, .. }) => {
                self.grants.row(lock).push((fence, executor));
            }
            Event::Run(run::Event::AttemptStarted { run, reservation, .. }) => {
                let fence = record.origin.map_or(Fence(0), |origin| origin.fence);
                let grants = self.grants.get(&Lock::Run(record.tenant, run));
                let highest = grants.and_then(|grants| grants.last()).map_or(Fence(0), |(fence, _)| *fence);
                if fence < highest {
                    self.late.insert(reservation, (fence, highest));
                }
            }
            _ => {}
        }
    }

    fn granted(&self, lock: Lock, fence: Fence) -> Option<ExecutorId> {
        let grants = self.grants.get(&lock)?;
        grants.iter().rev().find(|(granted, _)| *granted == fence).map(|(_, executor)| *executor)
    }
}

impl Invariant for BelievedHolders {
    fn name(&self) -> &'static str {
        "believed-holders"
    }

    fn states(&self) -> &'static str {
        "who acts on a lease was granted it, and no call leaves on what a deposed holder reserved"
    }

    fn at(&mut self, moment: &Moment<'_>) -> Result<(), String> {
        match moment.saw {
            Saw::Ledger(_, records) => records.iter().for_each(|record| self.fold(record)),
            Saw::Fact(Fact::Holds { lock, executor, fence }) => {
                let granted = self.granted(*lock, *fence);
                if granted != Some(*executor) {
                    return Err(format!(
                        "executor {executor} acts on {lock:?} under fence {fence}, which was granted to {granted:?}"
                    ));
                }
            }
            Saw::Fact(Fact::CallSent { tenant, run, key, fence, .. }) => {
                if self.granted(Lock::Run(*tenant, *run), *fence).is_none() {
                    return Err(format!("call {key} of run {run} leaves under fence {fence}, which was never granted"));
                }
                if let Some((admitted, highest)) = self.late.get(key) {
                    return Err(format!(
                        "call {key} of run {run} leaves; it was reserved under fence {admitted} after {highest} was granted"
                    ));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::history::*;
    use super::*;
    use kernel::{
        id::TenantId,
        lease::Authority,
        money::MicroUsd,
        request::{Outcome, Request},
        reserve::Level,
        run::{AttemptState, Ending},
    };

    fn asked(request: Request, outcome: Outcome, events: Vec<Event>) -> Asked {
        Asked { request, waits_until_ns: 0, reply: Answer::Decides(Ok(vec![outcome])), events }
    }

    fn set_cap(authority: Option<Authority>) -> Asked {
        let (tenant, level, cap) = (TENANT, Level::Run, MicroUsd(5));
        let command = Command::Reserve(reserve::Command::SetCap { tenant, level, cap });
        let outcome = Outcome::Reserve(reserve::Outcome::Set);
        asked(request(1, authority, vec![command]), outcome, vec![cap_set(level, 5)])
    }

    fn settle(number: u64, reservation: ReservationId, authority: Authority) -> Asked {
        let (cost, overrun) = (MicroUsd(30), MicroUsd::ZERO);
        let command = Command::Reserve(reserve::Command::Settle { reservation, usage: USAGE });
        let outcome = Outcome::Reserve(reserve::Outcome::Settled { cost, overrun });
        asked(request(number, Some(authority), vec![command]), outcome, vec![settled(reservation)])
    }

    const OWNERS: Authority = Authority { lock: Lock::Owner, executor: ExecutorId(4), fence: Fence(1) };

    #[test]
    fn a_legal_history_passes() {
        for name in ["one-writer", "lease-terms", "believed-holders"] {
            let mut story = Story::begun(name);
            let (lock, executor, fence) = (LOCK, ExecutorId(7), Fence(1));
            story.fact(0, Fact::Holds { lock, executor, fence });
            let key = story.next();
            story
                .logs(&[granted(Lock::Owner, 4, 1, TTL_NS), renewed(LOCK, 1, TTL_NS)])
                .commits(0, vec![set_cap(Some(OWNERS))]);
            let other = story.next();
            story.logs(&reserves(other, 1, 40)).sends(0, other, 1);
            story.commits(0, vec![settle(2, other, held(7, 1))]);
            story.true_ns += TTL_NS / 2;
            story.ledger_ns = TTL_NS + 1;
            story.logs(&[expired(LOCK, 1), expired(Lock::Owner, 1)]).opens();
            story.logs(&[granted(LOCK, 8, 2, 2 * TTL_NS)]).rests();
            story.fact(1, Fact::Holds { lock, executor: ExecutorId(8), fence: Fence(2) });
            story.fact(0, Fact::LetGo { lock, executor, fence });
            assert_ne!(key, other);
            story.holds();
        }
    }

    #[test]
    fn a_lock_has_one_holder_and_its_fences_rise() {
        let cases: [(&str, Vec<Event>, &str); 7] = [
            ("held", vec![granted(LOCK, 8, 2, TTL_NS)], "executor 7 holds it under 1"),
            ("the same fence", vec![yielded(LOCK, 1), granted(LOCK, 8, 1, TTL_NS)], "under fence 1; 1 was granted"),
            (
                "a lower fence",
                vec![yielded(LOCK, 1), granted(LOCK, 8, 3, 9), yielded(LOCK, 3), granted(LOCK, 8, 2, 9)],
                "3 was granted",
            ),
            ("renewed while free", vec![yielded(LOCK, 1), renewed(LOCK, 1, TTL_NS)], "nobody holds it"),
            ("another fence yields", vec![yielded(LOCK, 4)], "yields Run(TenantId(1), RunId(9)) under fence 4"),
            ("expires twice", vec![expired(LOCK, 1), expired(LOCK, 1)], "expires"),
            (
                "written after it is given back",
                vec![yielded(LOCK, 1), ended()],
                "is written by executor 7 under fence 1; nobody",
            ),
        ];
        for (case, events, message) in cases {
            let mut story = Story::begun("one-writer");
            story.logs(&events);
            assert!(story.broken().is_some(), "{case} passes");
            story.breaks_by("one-writer", &[message]);
        }
    }

    #[test]
    fn nothing_is_written_by_another_executor_or_under_another_fence() {
        for (executor, fence) in [(8, 1), (7, 2), (7, 0)] {
            let mut story = Story::begun("one-writer");
            story.under = (ExecutorId(executor), Fence(fence));
            story.logs(&[ended()]);
            story.breaks_by("one-writer", &["executor 7 holds it under fence 1"]);
        }
    }

    #[test]
    fn what_needs_a_lock_is_admitted_under_its_current_grant() {
        for authority in [None, Some(held(7, 1)), Some(Authority { fence: Fence(2), ..OWNERS })] {
            let mut story = Story::begun("one-writer");
            story.logs(&[granted(Lock::Owner, 4, 1, TTL_NS)]).commits(0, vec![set_cap(authority)]);
            story.breaks_by("one-writer", &["it needs Owner, and executor 4 holds it under fence 1"]);
        }
        let mut story = Story::begun("one-writer");
        let key = story.next();
        story.logs(&reserves(key, 1, 40)).logs(&[yielded(LOCK, 1), granted(LOCK, 8, 2, TTL_NS)]);
        story.commits(0, vec![settle(1, key, held(7, 1))]);
        story.breaks_by("one-writer", &["request 1 of client 7.0 is admitted", "executor 8 holds it under fence 2"]);

        let mut story = Story::begun("one-writer");
        let end = Command::Run(run::Command::End { run: RUN, outcome: Ending::Complete });
        let mut refused = asked(request(1, None, vec![end]), Outcome::Run(run::Outcome::Ended), vec![]);
        refused.reply = Answer::Decides(Err(lease::Refusal::NoAuthority { needed: LOCK }.into()));
        story.commits(0, vec![refused]).holds();
    }

    fn waits(events: Vec<Event>, waits_until_ns: u64, wait_ns: u64) -> Asked {
        let command = lease::Command::Acquire { lock: LOCK, executor: ExecutorId(8), ttl_ns: TTL_NS };
        let request = Request { wait_ns, ..request(1, None, vec![Command::Lease(command)]) };
        let outcome = Outcome::Lease(lease::Outcome::Held { fence: Fence(2), until: LedgerTime(TTL_NS) });
        Asked { waits_until_ns, ..asked(request, outcome, events) }
    }

    #[test]
    fn a_turn_is_given_within_the_waiters_own_term() {
        for (now_ns, wait_ns, breaks) in [(500, 400, false), (501, 400, true), (501, 0, false)] {
            for turn in [granted(LOCK, 8, 2, TTL_NS), reserved(ReservationId(9), 1, 1, 1)] {
                let mut story = Story::begun("lease-terms");
                story.logs(&[yielded(LOCK, 1)]).commits(now_ns, vec![waits(vec![turn], 500, wait_ns)]);
                assert_eq!(story.broken().is_some(), breaks, "at {now_ns}, waiting {wait_ns}");
            }
        }
        let mut story = Story::begun("lease-terms");
        story.commits(501, vec![waits(vec![renewed(LOCK, 1, TTL_NS)], 500, 400)]).holds();
    }

    #[test]
    fn a_lease_expires_after_its_end_in_ledger_and_in_true_time() {
        let at_end = |ledger_ns, true_ns| {
            let mut story = Story::begun("lease-terms");
            (story.ledger_ns, story.true_ns) = (ledger_ns, true_ns);
            story.logs(&[expired(LOCK, 1)]);
            story
        };
        at_end(TTL_NS, 2 * TTL_NS).breaks_by("lease-terms", &["it is valid until 1000000"]);
        at_end(TTL_NS + 1, TTL_NS / 2 + 1_000).holds();
        let mut story = Story::begun("lease-terms");
        story.true_ns = TTL_NS;
        story.opens();
        story.logs(&[renewed(LOCK, 1, 10 * TTL_NS)]);
        story.ledger_ns = 2 * TTL_NS;
        story.true_ns = 2 * TTL_NS;
        story.logs(&[granted(Lock::Owner, 1, 1, 3 * TTL_NS)]).holds();
        story.logs(&[renewed(LOCK, 1, 5 * TTL_NS)]).breaks_by("lease-terms", &["it was held until 10000000"]);
    }

    #[test]
    fn ledger_time_goes_at_an_oscillators_rate() {
        for (by_ns, breaks) in [(4_000, false), (4_000 + 2 * SLACK_NS, true)] {
            let mut story = Story::begun("lease-terms");
            story.true_ns += 1_000;
            story.opens();
            story.true_ns += 1_000;
            story.ledger_ns = by_ns;
            story.logs(&[yielded(LOCK, 1)]);
            assert_eq!(story.broken().is_some(), breaks, "{by_ns}");
        }
        let mut story = Story::begun("lease-terms");
        story.true_ns += 50;
        story.ledger_ns = 3_600_000_000_000;
        story.logs_unseen(&[yielded(LOCK, 1)]).opens();
        story.breaks_by("lease-terms", &["ledger time goes from 0 to 3600000000000"]);
    }

    #[test]
    fn a_lease_is_never_granted_in_the_past() {
        let mut story = Story::begun("lease-terms");
        story.ledger_ns = 10;
        story.logs(&[yielded(LOCK, 1), granted(LOCK, 8, 2, 9)]).breaks_by("lease-terms", &["until 9, and it is 10"]);
    }

    #[test]
    fn who_acts_on_a_lease_was_granted_it() {
        let holds = |executor, fence| Fact::Holds { lock: LOCK, executor: ExecutorId(executor), fence: Fence(fence) };
        for (executor, fence) in [(8, 1), (7, 2)] {
            Story::begun("believed-holders")
                .fact(0, holds(executor, fence))
                .breaks_by("believed-holders", &["acts on Run(TenantId(1), RunId(9))"]);
        }
        let mut story = Story::begun("believed-holders");
        let key = story.next();
        story.logs(&reserves(key, 1, 40)).sends(0, key, 2);
        story.breaks_by("believed-holders", &["under fence 2, which was never granted"]);
    }

    #[test]
    fn no_call_leaves_on_what_a_deposed_holder_reserved() {
        let mut story = Story::begun("believed-holders");
        let early = story.next();
        story.logs(&reserves(early, 1, 40)).logs(&[yielded(LOCK, 1), granted(LOCK, 8, 2, TTL_NS)]);
        story.sends(0, early, 1).holds();
        let late = story.next();
        story.logs(&[reserved(late, 6, 1, 1), started(late, 6, 1)]).holds();
        story.sends(0, late, 1).breaks_by("believed-holders", &["reserved under fence 1 after 2 was granted"]);
    }

    #[test]
    fn an_attempts_end_is_written_under_the_grant_too() {
        let mut story = Story::begun("one-writer");
        let key = story.next();
        story.logs(&reserves(key, 1, 40)).holds();
        story.under = (ExecutorId(8), Fence(1));
        story.logs(&[attempt_ended(1, AttemptState::Indeterminate)]);
        story.breaks_by("one-writer", &["record 10 of run 9 is written by executor 8"]);
        assert_eq!(TENANT, TenantId(1));
    }
}
