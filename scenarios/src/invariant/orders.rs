//! What the owner decides about live work: after a cancel nothing begins, a suspended run rests, and a halt keeps calls at home.

use super::{Invariant, Moment, Rest, Saw};
use crate::{
    fact::Fact,
    maps::{BySeq, Lookup},
};
use kernel::{
    admit::{self, Switch},
    effect,
    id::{ReservationId, RunId, TenantId},
    lease::{self, Lock},
    record::{Event, Record},
    reserve,
    run::{self, Ending},
};
use std::collections::BTreeMap;

/// A run's name.
type Name = (TenantId, RunId);

/// The run of which a record begins or ends something; reservations are known by then.
fn begins(record: &Record, runs: &BySeq<RunId>) -> Option<(RunId, &'static str)> {
    Some(match record.event {
        Event::Reserve(reserve::Event::Reserved { run, .. }) => (run, "reserves"),
        Event::Run(run::Event::AttemptQueued { run, .. }) => (run, "queues an attempt"),
        Event::Run(run::Event::Recalled { run, .. }) => (run, "recalls an answer"),
        Event::Run(run::Event::Suspended { run }) => (run, "is suspended"),
        Event::Effect(effect::Event::Dispatched { intent }) => (*runs.find(intent)?, "dispatches a call"),
        _ => return None,
    })
}

/// `cancel-holds`: from the record that cancels a run on, nothing of it begins: no attempt, no call, no suspension; it ends
/// cancelled, and no later record says otherwise.
#[derive(Debug, Default)]
pub struct CancelHolds {
    /// The record that cancelled each run.
    cancelled: Lookup<Name, u64>,
    runs: BySeq<RunId>,
}

impl CancelHolds {
    fn fold(&mut self, record: &Record) -> Result<(), String> {
        let (seq, tenant) = (record.seq, record.tenant);
        if let Event::Reserve(reserve::Event::Reserved { reservation, run, .. }) = record.event {
            self.runs.insert(reservation, run);
        }
        if let Some((run, what)) = begins(record, &self.runs)
            && let Some(before) = self.cancelled.get(&(tenant, run))
        {
            return Err(format!("record {seq}: run {run} {what}, and record {before} had cancelled it"));
        }
        match record.event {
            Event::Run(run::Event::Cancelled { run, .. }) => match self.cancelled.insert((tenant, run), seq) {
                Some(before) => Err(format!("record {seq} cancels run {run}, which record {before} had cancelled")),
                None => Ok(()),
            },
            Event::Run(run::Event::Ended { run, outcome }) => {
                let cancelled = self.cancelled.get(&(tenant, run)).copied();
                match (cancelled, outcome) {
                    (Some(_), Ending::Cancelled) => Ok(()),
                    (None, Ending::Cancelled) => Err(format!("record {seq} ends run {run} cancelled, and nobody did")),
                    (Some(before), _) => {
                        Err(format!("record {seq} ends run {run} {outcome:?}, and record {before} had cancelled it"))
                    }
                    (None, _) => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }
}

impl Invariant for CancelHolds {
    fn name(&self) -> &'static str {
        "cancel-holds"
    }

    fn states(&self) -> &'static str {
        "of a run that was cancelled nothing begins, and no later end overwrites the cancel"
    }

    fn at(&mut self, moment: &Moment<'_>) -> Result<(), String> {
        let Saw::Ledger(_, records) = moment.saw else { return Ok(()) };
        records.iter().try_for_each(|record| self.fold(record))
    }
}

/// `suspended-rests`: a run is suspended with its lease given up in the next record, and until its owner resumes or cancels it
/// its lease is granted to nobody and nothing of it begins or ends.
#[derive(Debug, Default)]
pub struct SuspendedRests {
    /// The record that suspended each run that is.
    suspended: Lookup<Name, u64>,
    /// The run that the record before suspended.
    last: Option<Name>,
    runs: BySeq<RunId>,
}

impl SuspendedRests {
    fn fold(&mut self, record: &Record) -> Result<(), String> {
        let (seq, tenant) = (record.seq, record.tenant);
        if let Event::Reserve(reserve::Event::Reserved { reservation, run, .. }) = record.event {
            self.runs.insert(reservation, run);
        }
        if let Some((tenant, run)) = self.last.take() {
            let lock = Lock::Run(tenant, run);
            let gives = matches!(record.event, Event::Lease(lease::Event::Yielded { lock: of, .. }) if of == lock);
            if !gives {
                return Err(format!("run {run} is suspended, and record {seq} does not give its lease up"));
            }
        }
        let disturbed = match record.event {
            Event::Lease(lease::Event::Granted { lock: Lock::Run(tenant, run), .. }) => {
                Some(((tenant, run), "is granted to somebody"))
            }
            Event::Run(run::Event::Ended { run, .. }) => Some(((tenant, run), "ends")),
            Event::Run(run::Event::AttemptEnded { run, .. }) => Some(((tenant, run), "ends an attempt")),
            _ => begins(record, &self.runs).map(|(run, what)| ((tenant, run), what)),
        };
        if let Some((name, what)) = disturbed
            && let Some(before) = self.suspended.get(&name)
        {
            return Err(format!("record {seq}: run {} {what}, and record {before} had suspended it", name.1));
        }
        match record.event {
            Event::Run(run::Event::Suspended { run }) => {
                self.suspended.insert((tenant, run), seq);
                self.last = Some((tenant, run));
            }
            Event::Run(run::Event::Cancelled { run, .. }) => drop(self.suspended.remove(&(tenant, run))),
            Event::Run(run::Event::Resumed { run }) if self.suspended.remove(&(tenant, run)).is_none() => {
                return Err(format!("record {seq} resumes run {run}, which is not suspended"));
            }
            _ => {}
        }
        Ok(())
    }
}

impl Invariant for SuspendedRests {
    fn name(&self) -> &'static str {
        "suspended-rests"
    }

    fn states(&self) -> &'static str {
        "a suspended run's lease is given up, and until the owner decides nobody is granted it and nothing of the run begins"
    }

    fn at(&mut self, moment: &Moment<'_>) -> Result<(), String> {
        let Saw::Ledger(_, records) = moment.saw else { return Ok(()) };
        records.iter().try_for_each(|record| self.fold(record))
    }

    fn at_rest(&mut self, _: &Rest<'_>) -> Result<(), String> {
        match self.last {
            Some((_, run)) => Err(format!("run {run} is suspended by the last record, and its lease is not given up")),
            None => Ok(()),
        }
    }
}

/// `halted-calls-stay`: no call leaves an agent whose dispatch the log does not hold, or holds between the record that set a
/// halt and the one that lifted it.
///
/// That is what `halt-holds` and `dispatched-first` say together, and nothing more: whatever breaks it breaks one of them too. It
/// stands for itself because it is what the owner of a switch is promised, seen where calls leave and not in the log.
#[derive(Debug, Default)]
pub struct HaltedCallsStay {
    /// The switches that are on, each with the record that set it.
    halts: BTreeMap<TenantId, u64>,
    /// Dispatched intents: the record that had halted them, if any had.
    dispatched: BySeq<Option<u64>>,
}

impl HaltedCallsStay {
    fn fold(&mut self, record: &Record) {
        match record.event {
            Event::Admit(admit::Event::HaltSet { tenant, switch: Switch::Halted }) => {
                self.halts.entry(tenant).or_insert(record.seq);
            }
            Event::Admit(admit::Event::HaltSet { tenant, switch: Switch::Open }) => drop(self.halts.remove(&tenant)),
            Event::Effect(effect::Event::Dispatched { intent }) => {
                let halted = [TenantId::LEDGER, record.tenant].iter().find_map(|switch| self.halts.get(switch));
                self.dispatched.insert(intent, halted.copied());
            }
            _ => {}
        }
    }

    fn leaves(&self, key: ReservationId) -> Result<(), String> {
        match self.dispatched.find(key) {
            None => Err(format!("call {key} leaves, and no record dispatches it")),
            Some(Some(halt)) => Err(format!("call {key} leaves, dispatched during the halt that record {halt} set")),
            Some(None) => Ok(()),
        }
    }
}

impl Invariant for HaltedCallsStay {
    fn name(&self) -> &'static str {
        "halted-calls-stay"
    }

    fn states(&self) -> &'static str {
        "no call leaves that was dispatched while a halt was on"
    }

    fn at(&mut self, moment: &Moment<'_>) -> Result<(), String> {
        match moment.saw {
            Saw::Ledger(_, records) => records.iter().for_each(|record| self.fold(record)),
            Saw::Fact(Fact::CallSent { key, .. }) => return self.leaves(*key),
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
        effect::Class,
        id::{ToolId, UnitId},
        run::{AttemptState, HaltReason},
    };

    const CANCELLED: Event = Event::Run(run::Event::Cancelled { run: RUN, running: 1 });
    const SUSPENDED: Event = Event::Run(run::Event::Suspended { run: RUN });
    const RESUMED: Event = Event::Run(run::Event::Resumed { run: RUN });

    fn ends(outcome: Ending) -> Event {
        Event::Run(run::Event::Ended { run: RUN, outcome })
    }

    fn dispatched(intent: ReservationId) -> Event {
        Event::Effect(effect::Event::Dispatched { intent })
    }

    fn halted(switch: Switch) -> Event {
        Event::Admit(admit::Event::HaltSet { tenant: TENANT, switch })
    }

    /// An attempt with an intent that is pending.
    fn pending(story: &mut Story) -> ReservationId {
        let intent = story.next();
        let [reserved, started] = reserves(intent, 1, 40);
        let made = effect::Event::Intended { intent, tool: ToolId(1), class: Class::Unsafe, key: None };
        story.logs(&[reserved, started, Event::Effect(made)]);
        intent
    }

    #[test]
    fn a_cancelled_run_drains_and_ends_cancelled() {
        let mut story = Story::begun("cancel-holds");
        let intent = pending(&mut story);
        story.logs(&[dispatched(intent)]).logs(&[CANCELLED]);
        story.logs(&[settled(intent), attempt_ended(1, AttemptState::Succeeded), ends(Ending::Cancelled)]).holds();
        let other = RunId(77);
        story.logs(&[spawned(other)]).holds();
    }

    #[test]
    fn nothing_of_a_cancelled_run_begins_and_its_cancel_stands() {
        let unit = UnitId(5);
        let recalled =
            run::Event::Recalled { run: RUN, unit, attempt: 1, key: effect::Key([1; 16]), source: ReservationId(1) };
        let queued = Event::Run(run::Event::AttemptQueued { run: RUN, unit, attempt: 1 });
        let cases = [
            (reserved(ReservationId(11), 5, 1, 1), "run 9 reserves, and record 11 had cancelled it"),
            (queued, "queues an attempt"),
            (Event::Run(recalled), "recalls an answer"),
            (SUSPENDED, "is suspended"),
            (dispatched(ReservationId(8)), "dispatches a call"),
            (CANCELLED, "which record 11 had cancelled"),
            (ends(Ending::Complete), "Complete, and record 11 had cancelled it"),
            (ends(Ending::Halted(HaltReason::Owner)), "and record 11 had cancelled it"),
        ];
        for (event, message) in cases {
            let mut story = Story::begun("cancel-holds");
            assert_eq!(pending(&mut story), ReservationId(8));
            story.logs(&[CANCELLED]).holds();
            story.logs(std::slice::from_ref(&event));
            assert!(story.broken().is_some(), "{event:?} passes");
            story.breaks_by("cancel-holds", &[message]);
        }
        let mut story = Story::begun("cancel-holds");
        story.logs(&[ends(Ending::Cancelled)]).breaks_by("cancel-holds", &["and nobody did"]);
    }

    #[test]
    fn a_suspended_run_rests() {
        let mut story = Story::begun("suspended-rests");
        story.logs(&[SUSPENDED, yielded(LOCK, 1)]).holds();
        story.logs(&[RESUMED]).logs(&[granted(LOCK, 7, 2, TTL_NS)]);
        pending(&mut story);
        story.holds();
        let mut story = Story::begun("suspended-rests");
        story.logs(&[SUSPENDED, yielded(LOCK, 1)]).logs(&[CANCELLED]).logs(&[granted(LOCK, 7, 2, TTL_NS)]).holds();

        let cases = [
            (granted(LOCK, 7, 2, TTL_NS), "is granted to somebody, and record 8 had suspended it"),
            (reserved(ReservationId(10), 5, 1, 1), "run 9 reserves"),
            (attempt_ended(1, AttemptState::TimedOut), "ends an attempt"),
            (ends(Ending::Complete), "run 9 ends"),
        ];
        for (event, message) in cases {
            let mut story = Story::begun("suspended-rests");
            story.logs(&[SUSPENDED, yielded(LOCK, 1)]).holds();
            story.logs(std::slice::from_ref(&event));
            assert!(story.broken().is_some(), "{event:?} passes");
            story.breaks_by("suspended-rests", &[message]);
        }
        let mut story = Story::begun("suspended-rests");
        story.logs(&[SUSPENDED, spawned(RunId(1))]).breaks_by("suspended-rests", &["does not give its lease up"]);
        let mut story = Story::begun("suspended-rests");
        story.logs(&[SUSPENDED]).holds();
        story.rests().breaks_by("suspended-rests", &["run 9 is suspended by the last record"]);
        let mut story = Story::begun("suspended-rests");
        story.logs(&[RESUMED]).breaks_by("suspended-rests", &["resumes run 9, which is not suspended"]);
    }

    #[test]
    fn a_call_leaves_only_on_a_dispatch_that_no_halt_forbids() {
        let mut story = Story::begun("halted-calls-stay");
        let intent = pending(&mut story);
        story.logs(&[dispatched(intent)]).logs(&[halted(Switch::Halted)]).sends(0, intent, 1).holds();
        let mut story = Story::begun("halted-calls-stay");
        let intent = pending(&mut story);
        story.logs(&[halted(Switch::Halted)]).logs(&[halted(Switch::Open)]).logs(&[dispatched(intent)]);
        story.sends(0, intent, 1).holds();

        let mut story = Story::begun("halted-calls-stay");
        let intent = pending(&mut story);
        story.sends(0, intent, 1).breaks_by("halted-calls-stay", &["no record dispatches it"]);
        let mut story = Story::begun("halted-calls-stay");
        let intent = pending(&mut story);
        story.logs(&[halted(Switch::Halted)]).logs(&[dispatched(intent)]).logs(&[halted(Switch::Open)]).holds();
        story.sends(0, intent, 1).breaks_by("halted-calls-stay", &["during the halt that record 11 set"]);
    }
}
