//! Runs and attempts: each run ends once with nothing running, and attempts follow their arms in order.

use super::{Invariant, Moment, Rest, Saw};
use crate::{fact::Fact, maps::Lookup};
use kernel::{
    id::{ReservationId, RunId, TenantId, UnitId, UserId},
    record::{Event, Record},
    reserve,
    run::{self, AttemptState, Ending},
};
use std::collections::{BTreeMap, BTreeSet};

/// `runs-end`: a run is spawned once and ends once, with no attempt running and nothing written in it after; its attempts are
/// dense from 1, follow the legal arms, and end as their reservations do; after heal every run has ended.
#[derive(Debug, Default)]
pub struct RunsEnd {
    runs: Lookup<(TenantId, RunId), Run>,
    not_ended: BTreeSet<(TenantId, RunId)>,
    open: Lookup<ReservationId, ()>,
    /// What the frame at hand says of attempts and of reservations; the two must agree at its end.
    attempts_ended: Vec<(ReservationId, AttemptState, u64)>,
    reservations_ended: BTreeMap<ReservationId, bool>,
}

#[derive(Clone, Debug)]
struct Run {
    user: UserId,
    running: u32,
    queued: u32,
    /// The latest attempt of each unit, until the run has ended.
    units: BTreeMap<UnitId, Attempt>,
    /// The record that ended it, and how.
    ended: Option<(u64, Ending)>,
}

#[derive(Clone, Copy, Debug)]
struct Attempt {
    number: u32,
    state: AttemptState,
    reservation: Option<ReservationId>,
}

/// The arms by which an attempt ends.
const ENDS: [(AttemptState, AttemptState); 7] = [
    (AttemptState::Pending, AttemptState::Cancelled),
    (AttemptState::Pending, AttemptState::TimedOut),
    (AttemptState::Running, AttemptState::Succeeded),
    (AttemptState::Running, AttemptState::Failed),
    (AttemptState::Running, AttemptState::TimedOut),
    (AttemptState::Running, AttemptState::Cancelled),
    (AttemptState::Running, AttemptState::Indeterminate),
];

impl RunsEnd {
    fn fold(&mut self, record: &Record) -> Result<(), String> {
        let (seq, tenant) = (record.seq, record.tenant);
        match &record.event {
            Event::Reserve(reserve::Event::Reserved { reservation, run, user, .. }) => {
                self.open.insert(*reservation, ());
                let owner = live(&mut self.runs, seq, (tenant, *run))?.user;
                if owner != *user {
                    return Err(format!("record {seq} reserves for user {user} in run {run}, which is user {owner}'s"));
                }
            }
            Event::Reserve(reserve::Event::Settled { reservation, by_owner, .. }) => {
                self.end_reservation(*reservation, true, *by_owner);
            }
            Event::Reserve(reserve::Event::Released { reservation, by_owner }) => {
                self.end_reservation(*reservation, false, *by_owner);
            }
            Event::Run(event) => return self.in_run(seq, tenant, event),
            Event::Admit(_) | Event::Reserve(_) | Event::Lease(_) | Event::Effect(_) => {}
        }
        Ok(())
    }

    fn end_reservation(&mut self, reservation: ReservationId, settled: bool, by_owner: bool) {
        self.open.remove(&reservation);
        if !by_owner {
            self.reservations_ended.insert(reservation, settled);
        }
    }

    fn in_run(&mut self, seq: u64, tenant: TenantId, event: &run::Event) -> Result<(), String> {
        match *event {
            run::Event::Spawned { run, user, .. } => {
                let begun = Run { user, running: 0, queued: 0, units: BTreeMap::new(), ended: None };
                self.not_ended.insert((tenant, run));
                if self.runs.insert((tenant, run), begun).is_some() {
                    return Err(format!("record {seq} spawns run {run} of tenant {tenant} again"));
                }
            }
            run::Event::AttemptStarted { run, unit, attempt, reservation } => {
                let was_queued = self.begins(seq, "starts", (tenant, run, unit), attempt)?;
                let row = live(&mut self.runs, seq, (tenant, run))?;
                (row.running, row.queued) = (row.running + 1, row.queued - u32::from(was_queued));
                let reservation = Some(reservation);
                let started = Attempt { number: attempt, state: AttemptState::Running, reservation };
                row.units.insert(unit, started);
            }
            run::Event::AttemptQueued { run, unit, attempt } => {
                if self.begins(seq, "queues", (tenant, run, unit), attempt)? {
                    return Err(format!("record {seq} queues attempt {attempt} of unit {unit} of run {run} again"));
                }
                let row = live(&mut self.runs, seq, (tenant, run))?;
                row.queued += 1;
                row.units.insert(unit, Attempt { number: attempt, state: AttemptState::Pending, reservation: None });
            }
            run::Event::Recalled { run, unit, attempt, .. } => {
                let was_queued = self.begins(seq, "recalls", (tenant, run, unit), attempt)?;
                let row = live(&mut self.runs, seq, (tenant, run))?;
                row.queued -= u32::from(was_queued);
                row.units.insert(unit, Attempt { number: attempt, state: AttemptState::Succeeded, reservation: None });
            }
            run::Event::AttemptEnded { run, unit, attempt, state } => {
                let row = live(&mut self.runs, seq, (tenant, run))?;
                let what = format_args!("record {seq} ends attempt {attempt} of unit {unit} of run {run} {state:?}");
                let was_running = match row.units.get_mut(&unit) {
                    Some(at) if at.number == attempt && ENDS.contains(&(at.state, state)) => {
                        let before = std::mem::replace(&mut at.state, state);
                        at.reservation.filter(|_| before == AttemptState::Running)
                    }
                    Some(at) => return Err(format!("{what}; the latest is {}, {:?}", at.number, at.state)),
                    None => return Err(format!("{what}; none ever started")),
                };
                self.attempts_ended.extend(was_running.map(|reservation| (reservation, state, seq)));
                match was_running {
                    Some(_) => row.running = row.running.saturating_sub(1),
                    None => row.queued = row.queued.saturating_sub(1),
                }
            }
            run::Event::Ended { run, outcome } => {
                let row = live(&mut self.runs, seq, (tenant, run))?;
                row.ended = Some((seq, outcome));
                row.units = BTreeMap::new();
                self.not_ended.remove(&(tenant, run));
                if row.running > 0 {
                    return Err(format!("record {seq} ends run {run}, and {} attempts of it are running", row.running));
                }
                if row.queued > 0 {
                    return Err(format!("record {seq} ends run {run}, and {} attempts of it are queued", row.queued));
                }
            }
            run::Event::Cancelled { run, running } => self.cancels(seq, (tenant, run), running)?,
            run::Event::Suspended { run } => {
                if live(&mut self.runs, seq, (tenant, run))?.running > 0 {
                    return Err(format!("record {seq} suspends run {run}, and attempts of it are running"));
                }
            }
            run::Event::Resumed { run } => drop(live(&mut self.runs, seq, (tenant, run))?),
        }
        Ok(())
    }

    /// A run is cancelled, and over if nothing of it is running.
    fn cancels(&mut self, seq: u64, name: (TenantId, RunId), running: u32) -> Result<(), String> {
        let row = live(&mut self.runs, seq, name)?;
        if row.running != running {
            let (run, right) = (name.1, row.running);
            return Err(format!("record {seq} cancels run {run} with {running} attempts running of {right}"));
        }
        if running == 0 {
            (row.ended, row.units) = (Some((seq, Ending::Cancelled)), BTreeMap::new());
            self.not_ended.remove(&name);
        }
        Ok(())
    }

    /// Whether an attempt that begins was queued. If not it is its unit's next, and the one before came to nothing.
    fn begins(&mut self, seq: u64, how: &str, key: (TenantId, RunId, UnitId), attempt: u32) -> Result<bool, String> {
        let last = live(&mut self.runs, seq, (key.0, key.1))?.units.get(&key.2);
        if last.is_some_and(|last| last.number == attempt && last.state == AttemptState::Pending) {
            return Ok(true);
        }
        let next = last.map_or(1, |last| last.number + 1);
        let what = format_args!("record {seq} {how} attempt {attempt} of unit {} of run {}", key.2, key.1);
        if attempt != next {
            return Err(format!("{what}; the next is {next}"));
        }
        let Some(last) = last else { return Ok(false) };
        let open = last.reservation.is_some_and(|reservation| self.open.contains_key(&reservation));
        let goes_on = matches!(last.state, AttemptState::Running | AttemptState::Pending | AttemptState::Succeeded);
        if goes_on || open {
            let (state, before) = (last.state, last.reservation.map_or(0, |reservation| reservation.0));
            return Err(format!("{what}; the one before is {state:?}, its reservation {before} open: {open}"));
        }
        Ok(false)
    }

    /// Each attempt that this frame ended goes together with its reservation's end, and the other way round.
    fn pair(&mut self) -> Result<(), String> {
        for (reservation, state, seq) in self.attempts_ended.drain(..) {
            let ended = self.reservations_ended.remove(&reservation);
            let agrees = match state {
                AttemptState::Succeeded => ended == Some(true),
                AttemptState::Failed | AttemptState::Cancelled | AttemptState::TimedOut => ended == Some(false),
                AttemptState::Running | AttemptState::Pending | AttemptState::Indeterminate => ended.is_none(),
            };
            if !agrees {
                let how = match ended {
                    Some(true) => "is settled",
                    Some(false) => "is released",
                    None => "has not ended",
                };
                return Err(format!("record {seq} ends an attempt {state:?}, and its reservation {reservation} {how}"));
            }
        }
        match self.reservations_ended.pop_first() {
            Some((reservation, _)) => {
                Err(format!("reservation {reservation} is ended by its run, and its attempt is not"))
            }
            None => Ok(()),
        }
    }
}

/// The run of that key, which has not ended.
fn live(runs: &mut Lookup<(TenantId, RunId), Run>, seq: u64, key: (TenantId, RunId)) -> Result<&mut Run, String> {
    match runs.get_mut(&key) {
        None => Err(format!("record {seq} is of run {} of tenant {}, which was never spawned", key.1, key.0)),
        Some(Run { ended: Some((end, _)), .. }) => {
            Err(format!("record {seq} is of run {} of tenant {}, which record {end} had ended", key.1, key.0))
        }
        Some(run) => Ok(run),
    }
}

impl Invariant for RunsEnd {
    fn name(&self) -> &'static str {
        "runs-end"
    }

    fn states(&self) -> &'static str {
        "attempts follow their arms in order, a run ends once with none running, and after heal every run has ended"
    }

    fn at(&mut self, moment: &Moment<'_>) -> Result<(), String> {
        match moment.saw {
            Saw::Ledger(_, records) => {
                records.iter().try_for_each(|record| self.fold(record))?;
                self.pair()
            }
            Saw::Fact(Fact::RunOver { tenant, run, ending, .. }) => {
                let ended = self.runs.get(&(*tenant, *run)).and_then(|row| row.ended);
                match ended {
                    Some((_, recorded)) if recorded == *ending => Ok(()),
                    _ => Err(format!(
                        "run {run} of tenant {tenant} is said to be over, {ending:?}; recorded is {ended:?}"
                    )),
                }
            }
            _ => Ok(()),
        }
    }

    fn at_rest(&mut self, rest: &Rest<'_>) -> Result<(), String> {
        if !rest.converged {
            return Ok(());
        }
        match self.not_ended.first() {
            Some((tenant, run)) => {
                let more = self.not_ended.len() - 1;
                Err(format!("at rest run {run} of tenant {tenant} has not ended; {more} more have not"))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::history::*;
    use super::*;

    /// A failed attempt, a successful one, and the run's end.
    fn legal() -> Story {
        let mut story = Story::begun("runs-end");
        let first = story.next();
        story.logs(&reserves(first, 1, 40)).logs(&[released(first), attempt_ended(1, AttemptState::Failed)]);
        let second = story.next();
        story.logs(&reserves(second, 2, 40)).logs(&[attempt_ended(2, AttemptState::Succeeded), settled(second)]);
        story.logs(&[ended()]);
        story
    }

    #[test]
    fn a_legal_history_passes() {
        let mut story = legal();
        story.rests().holds();
    }

    #[test]
    fn a_run_ends_once_with_nothing_running() {
        let mut story = legal();
        story.logs(&[ended()]).breaks_by("runs-end", &["which record 16 had ended"]);
        let mut story = legal();
        story.logs(&[spawned(RUN)]).breaks_by("runs-end", &["spawns run 9 of tenant 1 again"]);
        let mut story = Story::begun("runs-end");
        let next = story.next();
        story.logs(&reserves(next, 1, 40)).logs(&[ended()]);
        story.breaks_by("runs-end", &["1 attempts of it are running"]);
        let mut story = Story::begun("runs-end");
        story.rests().breaks_by("runs-end", &["at rest run 9 of tenant 1 has not ended"]);
        let mut story = Story::watched_by(&["runs-end"]);
        story.logs(&[ended()]).breaks_by("runs-end", &["was never spawned"]);
    }

    #[test]
    fn attempts_follow_their_arms() {
        let open = ReservationId(8);
        let next = ReservationId(10);
        let [other, again] = reserves(next, 2, 1);
        let succeeded = || attempt_ended(1, AttemptState::Succeeded);
        let cases: [(&str, Vec<Event>, &str); 9] = [
            ("a retry of what runs", vec![other.clone(), again.clone()], "the one before is Running"),
            ("a skipped number", vec![reserved(next, UNIT.0, 3, 1), started(next, UNIT.0, 3)], "the next is 2"),
            ("an end that is none", vec![attempt_ended(1, AttemptState::Running)], "the latest is 1, Running"),
            ("another attempt's end", vec![attempt_ended(2, AttemptState::Failed)], "the latest is 1, Running"),
            ("succeeded unpaid", vec![succeeded()], "reservation 8 has not ended"),
            ("succeeded and released", vec![released(open), succeeded()], "reservation 8 is released"),
            (
                "failed and paid",
                vec![settled(open), attempt_ended(1, AttemptState::Failed)],
                "reservation 8 is settled",
            ),
            ("unknown and paid", vec![settled(open), attempt_ended(1, AttemptState::Indeterminate)], "is settled"),
            ("paid alone", vec![settled(open)], "and its attempt is not"),
        ];
        for (case, events, message) in cases {
            let mut story = Story::begun("runs-end");
            story.logs(&reserves(open, 1, 40));
            story.holds();
            story.logs(&events);
            assert!(story.broken().is_some(), "{case} passes");
            story.breaks_by("runs-end", &[message]);
        }
        let mut story = Story::begun("runs-end");
        story.logs(&reserves(open, 1, 40)).logs(&[settled(open), succeeded()]);
        let after = story.next();
        story.logs(&reserves(after, 2, 40)).breaks_by("runs-end", &["the one before is Succeeded"]);
        let mut story = Story::begun("runs-end");
        story.logs(&reserves(open, 1, 40)).logs(&[attempt_ended(1, AttemptState::Indeterminate)]);
        let after = story.next();
        story.logs(&reserves(after, 2, 40)).breaks_by("runs-end", &["its reservation 8 open: true"]);
    }

    #[test]
    fn a_run_is_over_as_the_log_says() {
        let over = |ending| Fact::RunOver {
            tenant: TENANT,
            run: RUN,
            ending,
            wall_ns: 0,
            ledger_wait_ns: 0,
            calls: 0,
            whole: true,
        };
        legal().fact(0, over(Ending::Complete)).holds();
        legal().fact(0, over(Ending::Incomplete)).breaks_by("runs-end", &["recorded is Some((16, Complete))"]);
        Story::begun("runs-end").fact(0, over(Ending::Complete)).breaks_by("runs-end", &["recorded is None"]);
    }

    #[test]
    fn a_reservation_counts_against_its_runs_user() {
        let mut story = Story::begun("runs-end");
        let mut event = reserved(story.next(), 1, 1, 1);
        if let Event::Reserve(reserve::Event::Reserved { user, .. }) = &mut event {
            *user = UserId(77);
        }
        story.logs(&[event]).breaks_by("runs-end", &["reserves for user 77 in run 9, which is user 5's"]);
    }
}
