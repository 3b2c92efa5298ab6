//! Effects: what leaves was written ahead phase by phase, what is asked is asked once, and what is given back was paid for.

use super::{Ended, Invariant, Moment, Saw};
use crate::{
    fact::Fact,
    maps::{BySeq, Lookup},
};
use kernel::{
    effect::{self, Class, Key},
    id::{ReservationId, RunId, TenantId},
    lease::{self, Lock},
    record::{Event, Record},
    reserve,
    run::{self, AttemptState},
};

/// How far an intent is, by the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Far {
    Intended,
    Dispatched,
    Committed,
}

/// `intents`: an intent is made with its reservation, dispatched, then committed, no two of these in one frame; its money is
/// settled only after its commit, released never between dispatch and commit; its attempt is in doubt exactly if it was
/// dispatched and not committed.
#[derive(Debug, Default)]
pub struct Intents {
    open: Lookup<ReservationId, Far>,
    /// The intents that the frame at hand moved.
    moved: Vec<ReservationId>,
    /// The reservation that the record before made.
    reserved: Option<ReservationId>,
}

impl Intents {
    fn fold(&mut self, record: &Record, ended: Ended) -> Result<(), String> {
        let seq = record.seq;
        if let Some((intent, state)) = ended
            && let Some(far) = self.open.get(&intent).copied()
        {
            if (state == AttemptState::Indeterminate) != (far == Far::Dispatched) {
                return Err(format!("record {seq} ends an attempt {state:?}, and its intent {intent} is {far:?}"));
            }
            if far != Far::Dispatched {
                self.open.remove(&intent);
            }
        }
        match record.event {
            Event::Reserve(reserve::Event::Reserved { reservation, .. }) => self.reserved = Some(reservation),
            Event::Reserve(
                reserve::Event::Settled { reservation, by_owner: true, .. }
                | reserve::Event::Released { reservation, by_owner: true },
            ) => {
                self.open.remove(&reservation);
            }
            Event::Reserve(reserve::Event::Settled { reservation, .. }) => {
                if let Some(far @ (Far::Intended | Far::Dispatched)) = self.open.get(&reservation) {
                    return Err(format!("record {seq} settles {reservation}, and its intent is {far:?}"));
                }
            }
            Event::Reserve(reserve::Event::Released { reservation, .. })
                if self.open.get(&reservation) == Some(&Far::Dispatched) =>
            {
                return Err(format!("record {seq} releases {reservation}, and its call may be on the wire"));
            }
            Event::Effect(effect::Event::Intended { intent, class, key, .. }) => {
                if self.reserved != Some(intent) {
                    return Err(format!("record {seq} makes intent {intent}, and no reservation was made for it"));
                }
                if (class == Class::Idempotent) != key.is_some() {
                    return Err(format!("record {seq} makes intent {intent}, which is {class:?}, under {key:?}"));
                }
                self.open.insert(intent, Far::Intended);
                self.moved.push(intent);
            }
            Event::Effect(effect::Event::Dispatched { intent }) => {
                self.moves(seq, intent, Far::Intended, Far::Dispatched)?;
            }
            Event::Effect(effect::Event::Committed { intent, .. }) => {
                self.moves(seq, intent, Far::Dispatched, Far::Committed)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn moves(&mut self, seq: u64, intent: ReservationId, from: Far, to: Far) -> Result<(), String> {
        let far = self.open.get_mut(&intent);
        match far {
            Some(far) if *far == from => *far = to,
            far => return Err(format!("record {seq} makes intent {intent} {to:?}, and it is {far:?}")),
        }
        if self.moved.contains(&intent) {
            return Err(format!("record {seq} makes intent {intent} {to:?} in the frame in which it became {from:?}"));
        }
        self.moved.push(intent);
        Ok(())
    }
}

impl Invariant for Intents {
    fn name(&self) -> &'static str {
        "intents"
    }

    fn states(&self) -> &'static str {
        "an intent is pending, dispatched, committed, each in a frame of its own, and its money and its attempt end accordingly"
    }

    fn at(&mut self, moment: &Moment<'_>) -> Result<(), String> {
        let Saw::Ledger(_, records) = moment.saw else { return Ok(()) };
        self.moved.clear();
        records.iter().try_for_each(|record| self.fold(record, moment.ended(record)))
    }
}

/// `dispatched-first`: no call leaves before its intent's dispatch is durable, and none that is not idempotent leaves twice.
#[derive(Debug, Default)]
pub struct DispatchedFirst {
    intents: BySeq<Leaving>,
}

#[derive(Clone, Copy, Debug)]
struct Leaving {
    class: Class,
    may_leave: bool,
    left: bool,
}

impl Invariant for DispatchedFirst {
    fn name(&self) -> &'static str {
        "dispatched-first"
    }

    fn states(&self) -> &'static str {
        "no call leaves before its dispatch is durable, and none that is not idempotent leaves twice"
    }

    fn at(&mut self, moment: &Moment<'_>) -> Result<(), String> {
        match moment.saw {
            Saw::Ledger(_, records) => {
                for record in records {
                    match record.event {
                        Event::Effect(effect::Event::Intended { intent, class, .. }) => {
                            self.intents.insert(intent, Leaving { class, may_leave: false, left: false });
                        }
                        Event::Effect(effect::Event::Dispatched { intent }) => {
                            if let Some(row) = self.intents.find_mut(intent) {
                                row.may_leave = true;
                            }
                        }
                        _ => {}
                    }
                }
                Ok(())
            }
            Saw::Fact(Fact::CallSent { key, run, unit, .. }) => {
                let what = format_args!("the call of unit {unit} of run {run} leaves under {key}");
                match self.intents.find_mut(*key) {
                    Some(row) if !row.may_leave => Err(format!("{what}, whose intent is not dispatched")),
                    Some(Leaving { class, left: true, .. }) if *class != Class::Idempotent => {
                        Err(format!("{what} again, and is {class:?}"))
                    }
                    Some(row) => {
                        row.left = true;
                        Ok(())
                    }
                    None => Err(format!("{what}, which is no intent")),
                }
            }
            _ => Ok(()),
        }
    }
}

/// `asked-once`: of all requests under one key the provider charges one at most; what was answered is not asked again; and what
/// is recalled was committed and succeeded before under the same key, and is the answer to the question.
#[derive(Debug, Default)]
pub struct AskedOnce {
    /// Open intents under a key, and whether they are committed.
    open: Lookup<ReservationId, (TenantId, Key, bool)>,
    keys: Lookup<(TenantId, Key), Known>,
}

/// What is known of a key; 0 for nothing, which is no reservation.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    charged: u64,
    answered: u64,
}

impl AskedOnce {
    fn fold(&mut self, record: &Record, ended: Ended) -> Result<(), String> {
        let seq = record.seq;
        if let Some((intent, state)) = ended
            && let Some((tenant, key, committed)) = self.open.get(&intent).copied()
        {
            if state != AttemptState::Indeterminate {
                self.open.remove(&intent);
            }
            let known = self.keys.row((tenant, key));
            if state == AttemptState::Succeeded && committed && known.answered == 0 {
                known.answered = intent.0;
            }
        }
        match record.event {
            Event::Effect(effect::Event::Intended { intent, key: Some(key), .. }) => {
                self.open.insert(intent, (record.tenant, key, false));
                match self.keys.get(&(record.tenant, key)) {
                    Some(Known { answered: answered @ 1.., .. }) => {
                        Err(format!("record {seq} asks under {intent} what {answered} has answered"))
                    }
                    _ => Ok(()),
                }
            }
            Event::Effect(effect::Event::Committed { intent, .. }) => {
                if let Some((.., committed)) = self.open.get_mut(&intent) {
                    *committed = true;
                }
                Ok(())
            }
            Event::Reserve(
                reserve::Event::Settled { reservation, by_owner: true, .. }
                | reserve::Event::Released { reservation, by_owner: true },
            ) => {
                self.open.remove(&reservation);
                Ok(())
            }
            Event::Run(run::Event::Recalled { run, unit, key, source, .. }) => {
                let answered = self.keys.get(&(record.tenant, key)).map_or(0, |known| known.answered);
                if answered == source.0 && answered > 0 {
                    return Ok(());
                }
                Err(format!(
                    "record {seq} gives unit {unit} of run {run} what {source} was answered; under its key answered {answered}"
                ))
            }
            _ => Ok(()),
        }
    }
}

impl Invariant for AskedOnce {
    fn name(&self) -> &'static str {
        "asked-once"
    }

    fn states(&self) -> &'static str {
        "one request a key is charged, what was answered is not asked again, and what is recalled was answered before"
    }

    fn at(&mut self, moment: &Moment<'_>) -> Result<(), String> {
        match moment.saw {
            Saw::Ledger(_, records) => records.iter().try_for_each(|record| self.fold(record, moment.ended(record))),
            Saw::Fact(Fact::Charged { key: request, .. }) => {
                let Some((tenant, key, _)) = self.open.get(request).copied() else { return Ok(()) };
                let charged = &mut self.keys.row((tenant, key)).charged;
                if *charged != 0 && *charged != request.0 {
                    return Err(format!("{request} is charged for what {charged} was charged for under the same key"));
                }
                *charged = request.0;
                Ok(())
            }
            Saw::Fact(Fact::Misled { run, unit, source, .. }) => {
                Err(format!("unit {unit} of run {run} was given the answer of {source}, which is to another question"))
            }
            _ => Ok(()),
        }
    }
}

/// `one-flight`: of all intents under one key, one at most is held by a run whose lease is in force since the intent was made, or
/// has left since then.
#[derive(Debug, Default)]
pub struct OneFlight {
    leaders: Lookup<(TenantId, Key), ReservationId>,
    /// Open intents under a key, and whose they are.
    open: Lookup<ReservationId, (TenantId, RunId, Key)>,
    of_run: Lookup<(TenantId, RunId), Vec<ReservationId>>,
    /// The run that the record before reserved in.
    reserving: RunId,
}

impl OneFlight {
    fn fold(&mut self, record: &Record, ended: Ended) -> Result<(), String> {
        if let Some((intent, _)) = ended
            && let Some((tenant, run, key)) = self.open.remove(&intent)
        {
            if self.leaders.get(&(tenant, key)) == Some(&intent) {
                self.leaders.remove(&(tenant, key));
            }
            if let Some(intents) = self.of_run.get_mut(&(tenant, run)) {
                intents.retain(|other| *other != intent);
                if intents.is_empty() {
                    self.of_run.remove(&(tenant, run));
                }
            }
        }
        match record.event {
            Event::Reserve(reserve::Event::Reserved { run, .. }) => self.reserving = run,
            Event::Effect(effect::Event::Intended { intent, key: Some(key), .. }) => {
                let (tenant, run) = (record.tenant, self.reserving);
                self.open.insert(intent, (tenant, run, key));
                self.of_run.row((tenant, run)).push(intent);
                self.leads(record.seq, (tenant, key), intent)?;
            }
            Event::Effect(effect::Event::Dispatched { intent }) => {
                if let Some((tenant, _, key)) = self.open.get(&intent).copied() {
                    self.leads(record.seq, (tenant, key), intent)?;
                }
            }
            Event::Lease(
                lease::Event::Yielded { lock: Lock::Run(tenant, run), .. }
                | lease::Event::Expired { lock: Lock::Run(tenant, run), .. },
            ) => {
                for intent in self.of_run.get(&(tenant, run)).into_iter().flatten() {
                    let Some((tenant, _, key)) = self.open.get(intent) else { continue };
                    if self.leaders.get(&(*tenant, *key)) == Some(intent) {
                        self.leaders.remove(&(*tenant, *key));
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn leads(&mut self, seq: u64, key: (TenantId, Key), intent: ReservationId) -> Result<(), String> {
        match self.leaders.insert(key, intent) {
            Some(leader) if leader != intent => {
                Err(format!("record {seq} has {intent} ask what {leader} asks under the same key"))
            }
            _ => Ok(()),
        }
    }
}

impl Invariant for OneFlight {
    fn name(&self) -> &'static str {
        "one-flight"
    }

    fn states(&self) -> &'static str {
        "of all who would ask one question one does, as long as its run is held; the others wait for its answer"
    }

    fn at(&mut self, moment: &Moment<'_>) -> Result<(), String> {
        let Saw::Ledger(_, records) = moment.saw else { return Ok(()) };
        records.iter().try_for_each(|record| self.fold(record, moment.ended(record)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::history::*;
    use super::*;
    use kernel::{
        effect::Response,
        id::{ToolId, UnitId},
    };

    const NAMES: [&str; 4] = ["intents", "dispatched-first", "asked-once", "one-flight"];
    const KEY: Option<Key> = Some(Key([7; 16]));

    fn intended(intent: ReservationId, class: Class) -> Event {
        let key = KEY.filter(|_| class == Class::Idempotent);
        Event::Effect(effect::Event::Intended { intent, tool: ToolId(1), class, key })
    }

    fn dispatched(intent: ReservationId) -> Event {
        Event::Effect(effect::Event::Dispatched { intent })
    }

    fn committed(intent: ReservationId) -> Event {
        Event::Effect(effect::Event::Committed { intent, response: Response(b"yes".as_slice().into()) })
    }

    fn recalled(unit: u32, source: ReservationId) -> Event {
        let key = Key([7; 16]);
        Event::Run(run::Event::Recalled { run: RUN, unit: UnitId(unit), attempt: 1, key, source })
    }

    fn begun(name: &str, class: Class) -> (Story, ReservationId) {
        let mut story = Story::begun(name);
        let key = story.next();
        let [reserved, started] = reserves(key, 1, 40);
        story.logs(&[reserved, started, intended(key, class)]);
        (story, key)
    }

    #[test]
    fn a_legal_history_passes() {
        for name in NAMES {
            let (mut story, key) = begun(name, Class::Idempotent);
            story.logs(&[dispatched(key)]).sends(0, key, 1).sends(0, key, 1).charges(key);
            story.logs(&[committed(key), settled(key), attempt_ended(1, AttemptState::Succeeded)]);
            story.logs(&[recalled(5, key)]);
            let next = story.next();
            story.logs(&[reserved(next, 6, 1, 10), started(next, 6, 1), intended(next, Class::Unsafe)]);
            story.logs(&[dispatched(next)]).sends(0, next, 1).rests().holds();
        }
    }

    #[test]
    fn phases_come_in_order_each_in_its_frame() {
        type Tell = fn(&mut Story, ReservationId);
        let cases: [(&str, Tell, &str); 8] = [
            ("committed at once", |story, key| _ = story.logs(&[committed(key)]), "and it is Some(Intended)"),
            (
                "two phases in a frame",
                |story, key| _ = story.logs(&[dispatched(key), committed(key)]),
                "in the frame in which it became Dispatched",
            ),
            (
                "dispatched twice",
                |story, key| _ = story.logs(&[dispatched(key)]).logs(&[dispatched(key)]),
                "and it is Some(Dispatched)",
            ),
            ("settled unsent", |story, key| _ = story.logs(&[settled(key)]), "its intent is Intended"),
            (
                "settled uncommitted",
                |story, key| _ = story.logs(&[dispatched(key)]).logs(&[settled(key)]),
                "its intent is Dispatched",
            ),
            (
                "released on the wire",
                |story, key| _ = story.logs(&[dispatched(key)]).logs(&[released(key)]),
                "its call may be on the wire",
            ),
            (
                "in doubt and never left",
                |story, _| _ = story.logs(&[attempt_ended(1, AttemptState::Indeterminate)]),
                "is Intended",
            ),
            (
                "cancelled and in doubt",
                |story, key| {
                    let cancelled = attempt_ended(1, AttemptState::Cancelled);
                    story.logs(&[dispatched(key)]).logs(&[cancelled]);
                },
                "Cancelled, and its intent 8 is Dispatched",
            ),
        ];
        for (case, tell, message) in cases {
            let (mut story, key) = begun("intents", Class::Idempotent);
            story.holds();
            tell(&mut story, key);
            assert!(story.broken().is_some(), "{case} passes");
            story.breaks_by("intents", &[message]);
        }
        let mut story = Story::begun("intents");
        story.logs(&[intended(ReservationId(3), Class::Unsafe)]);
        story.breaks_by("intents", &["no reservation was made for it"]);
    }

    #[test]
    fn a_call_leaves_after_its_dispatch_and_once_unless_it_is_idempotent() {
        let (mut story, key) = begun("dispatched-first", Class::Idempotent);
        story.sends(0, key, 1).breaks_by("dispatched-first", &["whose intent is not dispatched"]);
        for class in [Class::Queryable, Class::Unsafe] {
            let (mut story, key) = begun("dispatched-first", class);
            story.logs(&[dispatched(key)]).sends(0, key, 1).holds();
            story.sends(1, key, 2).breaks_by("dispatched-first", &["again, and is"]);
        }
        let mut story = Story::begun("dispatched-first");
        let key = story.next();
        story.logs(&reserves(key, 1, 40)).sends(0, key, 1).breaks_by("dispatched-first", &["which is no intent"]);
    }

    #[test]
    fn a_question_is_charged_once_and_recalled_only_after_it_was_answered() {
        let (mut story, key) = begun("asked-once", Class::Idempotent);
        story.logs(&[recalled(5, key)]).breaks_by("asked-once", &["under its key answered 0"]);

        let (mut story, key) = begun("asked-once", Class::Idempotent);
        let other = story.next();
        story.logs(&[reserved(other, 6, 1, 10), started(other, 6, 1), intended(other, Class::Idempotent)]);
        story.charges(key).charges(other).breaks_by("asked-once", &["is charged for what 8 was charged for"]);

        let (mut story, key) = begun("asked-once", Class::Idempotent);
        story.logs(&[dispatched(key)]);
        story.logs(&[committed(key), settled(key), attempt_ended(1, AttemptState::Succeeded)]);
        let other = story.next();
        story.logs(&[reserved(other, 6, 1, 10), started(other, 6, 1), intended(other, Class::Idempotent)]);
        story.breaks_by("asked-once", &["what 8 has answered"]);

        let (mut story, key) = begun("asked-once", Class::Idempotent);
        let (tenant, run, unit, source) = (TENANT, RUN, UNIT, key);
        story.fact(0, Fact::Misled { tenant, run, unit, source }).breaks_by("asked-once", &["to another question"]);
    }

    #[test]
    fn one_leads_until_its_attempt_or_its_lease_ends() {
        let second = |story: &mut Story| {
            let other = story.next();
            story.logs(&[reserved(other, 6, 1, 10), started(other, 6, 1), intended(other, Class::Idempotent)]);
        };
        let (mut story, _) = begun("one-flight", Class::Idempotent);
        second(&mut story);
        story.breaks_by("one-flight", &["asks under the same key"]);
        let (mut story, _) = begun("one-flight", Class::Idempotent);
        story.logs(&[yielded(LOCK, 1), granted(LOCK, 7, 2, TTL_NS)]);
        second(&mut story);
        story.holds();
        let (mut story, key) = begun("one-flight", Class::Idempotent);
        story.logs(&[released(key), attempt_ended(1, AttemptState::Cancelled)]);
        second(&mut story);
        story.holds();
    }
}
