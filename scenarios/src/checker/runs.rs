//! Runs and attempts, worked out anew: legal arms, one end each, and money that ends as its attempt does.

use super::{
    findings::{Findings, Place, Rule},
    tables::Tables,
    wire::{Budgeted, Effected, Ending, Event, Ran, Record, Standing, State},
};
use std::collections::{BTreeMap, BTreeSet};

/// A run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub spawned: Ran,
    pub user: u32,
    pub running: u32,
    queued: u32,
    /// The record that ended it, and how.
    pub ended: Option<(u64, Ending)>,
    pub suspended: bool,
    suspensions: u32,
    /// The record that cancelled it.
    pub cancelled: Option<u64>,
}

impl Run {
    fn standing(&self) -> Standing {
        match (self.ended, self.suspended, self.cancelled) {
            (Some((_, how)), ..) => Standing::Ended(how),
            (None, true, _) => Standing::Suspended,
            (None, false, Some(_)) => Standing::Cancelling,
            (None, false, None) => Standing::Open,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Attempt {
    state: State,
    reservation: Option<u64>,
}

/// Whether an attempt may end so: with the start of a queued one, the eight arms.
pub(super) fn is_end(from: State, to: State) -> bool {
    match from {
        State::Pending => matches!(to, State::Cancelled | State::TimedOut),
        State::Running => !matches!(to, State::Pending | State::Running),
        _ => false,
    }
}

/// An attempt's name: tenant, run, unit, number.
type AttemptName = (u32, u64, u32, u32);

/// How a reservation ended in the frame at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Money {
    Settled,
    Released,
}

/// The reckoning so far.
#[derive(Debug, Default)]
pub(super) struct Runs {
    runs: BTreeMap<(u32, u64), Run>,
    attempts: BTreeMap<AttemptName, Attempt>,
    open: BTreeSet<u64>,
    /// The run of each reservation.
    of: BTreeMap<u64, u64>,
    /// The next position in each run and branch.
    next_lsn: BTreeMap<(u32, u64, u32), u64>,
    attempts_ended: Vec<(u64, State, u64, Place)>,
    money_ended: BTreeMap<u64, (Money, Place)>,
}

impl Runs {
    /// Folds a record. [`Runs::frame_ends`] ends a frame.
    pub(super) fn record(&mut self, record: &Record, place: Place, found: &mut Findings) {
        let (seq, tenant) = (record.seq, record.tenant);
        match record.event {
            Event::Reserve(Budgeted::Reserved { reservation, run, user, .. }) => {
                self.open.insert(reservation);
                self.of.insert(reservation, run);
                if let Some(row) = self.live(seq, (tenant, run), place, found)
                    && row.user != user
                {
                    let complaint = format!("record {seq} reserves for user {user} in run {run} of user {}", row.user);
                    found.broken(Rule::Arms, place, complaint);
                }
            }
            Event::Reserve(Budgeted::Settled { reservation, by_owner, .. }) => {
                self.money(reservation, Money::Settled, by_owner, place);
            }
            Event::Reserve(Budgeted::Released { reservation, by_owner }) => {
                self.money(reservation, Money::Released, by_owner, place);
            }
            Event::Effect(Effected::Dispatched { intent }) => {
                if let Some(run) = self.of.get(&intent).copied() {
                    self.goes_on(seq, tenant, run, place, found);
                }
            }
            Event::Run(event) => {
                if let Some(origin) = record.origin {
                    self.next_lsn.insert((tenant, origin.run, origin.branch), origin.lsn.saturating_add(1));
                }
                self.ran(seq, tenant, event, place, found);
            }
            _ => {}
        }
    }

    fn money(&mut self, reservation: u64, how: Money, by_owner: bool, place: Place) {
        self.open.remove(&reservation);
        if !by_owner {
            self.money_ended.insert(reservation, (how, place));
        }
    }

    fn live(&mut self, seq: u64, key: (u32, u64), place: Place, found: &mut Findings) -> Option<&mut Run> {
        match self.runs.get_mut(&key) {
            None => {
                found.broken(Rule::Arms, place, format!("record {seq} is of run {}, which was never spawned", key.1));
                None
            }
            Some(Run { ended: Some((end, _)), .. }) => {
                let complaint = format!("record {seq} is of run {}, which record {end} had ended", key.1);
                found.broken(Rule::RunsEnd, place, complaint);
                None
            }
            Some(run) => Some(run),
        }
    }

    fn ran(&mut self, seq: u64, tenant: u32, event: Ran, place: Place, found: &mut Findings) {
        match event {
            Ran::Spawned { run, user, .. } => {
                let row = Run {
                    spawned: event,
                    user,
                    running: 0,
                    queued: 0,
                    ended: None,
                    suspended: false,
                    suspensions: 0,
                    cancelled: None,
                };
                let again = self.runs.insert((tenant, run), row).is_some();
                found.must(Rule::RunsEnd, place, !again, || format!("record {seq} spawns run {run} again"));
            }
            Ran::AttemptStarted { run, unit, attempt, reservation } => {
                let open = self.open.contains(&reservation);
                self.begins(seq, (tenant, run, unit, attempt), (State::Running, Some(reservation)), open, place, found);
            }
            Ran::AttemptQueued { run, unit, attempt } => {
                let is_new = self.state((tenant, run, unit, attempt)).is_none();
                self.begins(seq, (tenant, run, unit, attempt), (State::Pending, None), is_new, place, found);
            }
            Ran::Recalled { run, unit, attempt, source, .. } => {
                self.begins(seq, (tenant, run, unit, attempt), (State::Succeeded, Some(source)), true, place, found);
            }
            Ran::AttemptEnded { run, unit, attempt, state } => {
                let row = self.attempts.get_mut(&(tenant, run, unit, attempt));
                let from = row.as_ref().map(|row| row.state);
                found.must(Rule::Arms, place, from.is_some_and(|from| is_end(from, state)), || {
                    format!("record {seq} ends attempt {attempt} of unit {unit} of run {run} {state:?}; it is {from:?}")
                });
                if let Some(row) = row {
                    row.state = state;
                    let ran = row.reservation.filter(|_| from == Some(State::Running));
                    self.attempts_ended.extend(ran.map(|reservation| (reservation, state, seq, place)));
                }
                if let Some(row) = self.live(seq, (tenant, run), place, found) {
                    row.running = row.running.saturating_sub(u32::from(from == Some(State::Running)));
                    row.queued = row.queued.saturating_sub(u32::from(from == Some(State::Pending)));
                }
            }
            Ran::Suspended { .. } | Ran::Resumed { .. } | Ran::Cancelled { .. } => {
                self.stands(seq, tenant, event, place, found);
            }
            Ran::Ended { run, outcome } => {
                let Some(row) = self.live(seq, (tenant, run), place, found) else { return };
                row.ended = Some((seq, outcome));
                let (running, queued, cancelled) = (row.running, row.queued, row.cancelled);
                let fits = cancelled.is_some() == (outcome == Ending::Cancelled);
                if cancelled.is_some() || !fits {
                    found.must(Rule::Cancel, place, fits, || {
                        format!("record {seq} ends run {run} {outcome:?}; it was cancelled by {cancelled:?}")
                    });
                }
                found.must(Rule::RunsEnd, place, running == 0 && queued == 0, || {
                    format!("record {seq} ends run {run}, and {running} attempts of it are running, {queued} queued")
                });
            }
        }
    }

    /// A run is suspended, resumed or cancelled.
    fn stands(&mut self, seq: u64, tenant: u32, event: Ran, place: Place, found: &mut Findings) {
        let run = event.run();
        let Some(row) = self.live(seq, (tenant, run), place, found) else { return };
        let (suspended, cancelled, running) = (row.suspended, row.cancelled.is_some(), row.running);
        let fits = match event {
            Ran::Suspended { .. } => {
                (row.suspended, row.suspensions) = (true, row.suspensions.saturating_add(1));
                !suspended && !cancelled && running == 0
            }
            Ran::Resumed { .. } => std::mem::take(&mut row.suspended),
            Ran::Cancelled { running: told, .. } => {
                (row.suspended, row.cancelled) = (false, Some(seq));
                if running == 0 {
                    (row.ended, row.queued) = (Some((seq, Ending::Cancelled)), 0);
                }
                told == running && !cancelled
            }
            _ => false,
        };
        found.must(Rule::Arms, place, fits, || {
            format!("record {seq} says {event:?}; suspended: {suspended}, cancelled: {cancelled}, {running} running")
        });
        if let Ran::Cancelled { running: 0, .. } = event {
            let all = (tenant, run, 0, 0)..=(tenant, run, u32::MAX, u32::MAX);
            let queued = self.attempts.range_mut(all).filter(|(_, attempt)| attempt.state == State::Pending);
            queued.for_each(|(_, attempt)| attempt.state = State::Cancelled);
        }
    }

    /// Something of a run begins.
    fn goes_on(&self, seq: u64, tenant: u32, run: u64, place: Place, found: &mut Findings) {
        let Some(row) = self.run(tenant, run) else { return };
        if row.cancelled.is_some() || row.suspended {
            let complaint = format!("record {seq} begins something of run {run}, which is {:?}", row.standing());
            found.must(Rule::Cancel, place, false, || complaint);
        }
    }

    /// An attempt comes to be at `now`, as its unit's next.
    fn begins(
        &mut self,
        seq: u64,
        name: AttemptName,
        (now, reservation): (State, Option<u64>),
        fits: bool,
        place: Place,
        found: &mut Findings,
    ) {
        let (tenant, run, unit, attempt) = name;
        let was_queued = self.state(name) == Some(State::Pending);
        self.goes_on(seq, tenant, run, place, found);
        if let Some(row) = self.live(seq, (tenant, run), place, found) {
            row.queued = row.queued.saturating_sub(u32::from(was_queued)) + u32::from(now == State::Pending);
            row.running += u32::from(now == State::Running);
        }
        let next = self.next_attempt(tenant, run, unit);
        found.must(Rule::Arms, place, next == Some(attempt) && fits, || {
            format!("record {seq} starts attempt {attempt} of unit {unit} of run {run}; the next is {next:?}")
        });
        self.attempts.insert(name, Attempt { state: now, reservation });
    }

    /// Each attempt that the frame ended goes together with its reservation's end, and the other way round.
    pub(super) fn frame_ends(&mut self, found: &mut Findings) {
        for (reservation, state, seq, place) in self.attempts_ended.drain(..) {
            let ended = self.money_ended.remove(&reservation).map(|(how, _)| how);
            let right = match state {
                State::Succeeded => Some(Money::Settled),
                State::Failed | State::Cancelled | State::TimedOut => Some(Money::Released),
                State::Running | State::Pending | State::Indeterminate => None,
            };
            if ended != right {
                let complaint =
                    format!("record {seq} ends an attempt {state:?}; its reservation {reservation} is {ended:?}");
                found.broken(Rule::Arms, place, complaint);
            }
        }
        for (reservation, (how, place)) in std::mem::take(&mut self.money_ended) {
            found.broken(
                Rule::Arms,
                place,
                format!("reservation {reservation} is {how:?} by its run, and its attempt goes on"),
            );
        }
    }

    /// Puts down the rows of the ledger's tables about runs.
    pub(super) fn tables(&self, tables: &mut Tables) {
        self.next_lsn.iter().for_each(|(key, next)| tables.row(2, key, next));
        for (key, row) in &self.runs {
            let Ran::Spawned { user, task, workflow_version, purpose, depth, .. } = row.spawned else { continue };
            let standing = row.standing();
            let counts = (row.running, row.queued, standing, row.suspensions);
            tables.row(14, key, (user, task, workflow_version, purpose, depth, counts));
            if row.suspended {
                tables.row(23, key, ());
            }
        }
        self.attempts.iter().for_each(|(key, row)| tables.row(15, key, (row.state, row.reservation)));
    }

    /// The attempt of a unit that may start, if any may.
    pub(super) fn next_attempt(&self, tenant: u32, run: u64, unit: u32) -> Option<u32> {
        let mut all = self.attempts.range((tenant, run, unit, 0)..=(tenant, run, unit, u32::MAX));
        let Some(((.., number), latest)) = all.next_back() else { return Some(1) };
        match latest.state {
            State::Pending => Some(*number),
            State::Failed | State::Cancelled | State::TimedOut => number.checked_add(1),
            State::Running | State::Succeeded | State::Indeterminate => None,
        }
    }

    /// Where an attempt stands, if it was started.
    pub(super) fn state(&self, name: AttemptName) -> Option<State> {
        self.attempts.get(&name).map(|row| row.state)
    }

    /// The reservation of an attempt.
    pub(super) fn reservation_of(&self, name: AttemptName) -> Option<u64> {
        self.attempts.get(&name)?.reservation
    }

    /// The first attempt of a run that is running: its unit and number.
    pub(super) fn running(&self, tenant: u32, run: u64) -> Option<(u32, u32)> {
        let mut all = self.attempts.range((tenant, run, 0, 0)..=(tenant, run, u32::MAX, u32::MAX));
        all.find(|(_, row)| row.state == State::Running).map(|((_, _, unit, number), _)| (*unit, *number))
    }

    /// The attempts of a run that are queued: unit and number.
    pub(super) fn queued(&self, tenant: u32, run: u64) -> impl Iterator<Item = (u32, u32)> {
        let all = self.attempts.range((tenant, run, 0, 0)..=(tenant, run, u32::MAX, u32::MAX));
        all.filter(|(_, row)| row.state == State::Pending).map(|((_, _, unit, number), _)| (*unit, *number))
    }

    /// A run, if it was spawned.
    pub(super) fn run(&self, tenant: u32, run: u64) -> Option<&Run> {
        self.runs.get(&(tenant, run))
    }

    /// Runs that have not ended.
    pub(super) fn unended(&self) -> impl Iterator<Item = u64> {
        self.runs.iter().filter(|(_, run)| run.ended.is_none()).map(|((_, run), _)| *run)
    }

    /// Somebody says that a run is over.
    pub(super) fn over(&self, tenant: u32, run: u64, ending: Ending, place: Place, found: &mut Findings) {
        let ended = self.run(tenant, run).and_then(|row| row.ended);
        found.must(Rule::RunsEnd, place, ended.is_some_and(|(_, how)| how == ending), || {
            format!("run {run} is said to be over, {ending:?}; recorded is {ended:?}")
        });
    }

    /// At rest every run has ended.
    pub(super) fn at_rest(&self, place: Place, found: &mut Findings) {
        if self.runs.is_empty() {
            return;
        }
        let unended: Vec<u64> = self.unended().collect();
        found.must(Rule::RunsEnd, place, unended.is_empty(), || {
            format!("at rest {} runs have not ended; the first is {}", unended.len(), unended[0])
        });
    }
}
