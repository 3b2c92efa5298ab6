//! Requests and their answers: each is decided once, and every repeat gets the first answer.

use super::{Invariant, Moment, Saw, parts};
use crate::{
    fact::Fact,
    maps::{Lookup, Mixer},
};
use kernel::{
    effect,
    id::{ClientId, TenantId},
    record::{Event, Record},
    request::{Outcome, Refusal, Reply},
    serve::Announcement,
};
use std::{collections::BTreeMap, hash::Hasher};

/// `decided-once`: at most one decision a request in the whole log; every reply given is that decision; nothing of an older
/// incarnation, nor acknowledged, is decided again; and no record is there that no request explains.
#[derive(Debug, Default)]
pub struct DecidedOnce {
    /// What is remembered of each client, for each tenant apart.
    clients: Lookup<(TenantId, ClientId), Client>,
    /// The record that decided each request, by client, of all tenants and incarnations.
    decided_by: Lookup<ClientId, Decided>,
}

/// Which record decided each of a client's requests. Numbers of an incarnation are mostly decided in rising order and without
/// gaps, so that eight bytes a request are enough.
#[derive(Debug, Default)]
struct Decided(Vec<OfIncarnation>);

#[derive(Debug)]
struct OfIncarnation {
    incarnation: u32,
    /// The record of each number from 1 on, plus one; 0 for none yet.
    by: Vec<u64>,
    /// The records of numbers that are far above the others.
    far: BTreeMap<u64, u64>,
}

impl Decided {
    /// Numbers are kept side by side as long as no gap among them is longer than this.
    const LONGEST_GAP: u64 = 64;

    fn by(&self, incarnation: u32, number: u64) -> Option<u64> {
        let of = self.0.iter().rev().find(|of| of.incarnation == incarnation)?;
        let near = number.checked_sub(1).and_then(|at| of.by.get(usize::try_from(at).ok()?));
        near.and_then(|after| after.checked_sub(1)).or_else(|| of.far.get(&number).copied())
    }

    /// Adds a request that was not decided.
    fn insert(&mut self, incarnation: u32, number: u64, seq: u64) {
        let at = self.0.iter().rposition(|of| of.incarnation == incarnation).unwrap_or_else(|| {
            self.0.push(OfIncarnation { incarnation, by: Vec::new(), far: BTreeMap::new() });
            self.0.len() - 1
        });
        let OfIncarnation { by, far, .. } = &mut self.0[at];
        match number.checked_sub(1) {
            Some(at) if at < by.len() as u64 + Self::LONGEST_GAP => {
                by.resize(by.len().max(at as usize + 1), 0);
                by[at as usize] = seq + 1;
            }
            _ => _ = far.insert(number, seq),
        }
    }
}

#[derive(Debug, Default)]
struct Client {
    newest: u32,
    acknowledged: u64,
    /// Answers above `acknowledged`, of the newest incarnation, by number: a handful.
    answers: Vec<First>,
}

/// A first answer.
#[derive(Clone, Copy, Debug)]
struct First {
    number: u64,
    seq: u64,
    digest: u64,
}

/// What tells one outcome from another.
fn digest(outcome: &Result<Vec<Outcome>, Refusal>) -> u64 {
    let mut mixer = postcard::to_extend(outcome, Mixed::default()).expect("an outcome of plain data can be encoded");
    mixer.0.write_u64(mixer.1);
    mixer.0.finish()
}

/// Mixes the bytes it is extended by, and counts them.
#[derive(Default)]
struct Mixed(Mixer, u64);

impl Extend<u8> for Mixed {
    fn extend<T: IntoIterator<Item = u8>>(&mut self, bytes: T) {
        for byte in bytes {
            self.0.write_u8(byte);
            self.1 += 1;
        }
    }
}

impl Client {
    fn first(&self, number: u64) -> Option<&First> {
        self.answers.iter().find(|first| first.number == number)
    }
}

impl DecidedOnce {
    fn fold(&mut self, record: &Record) -> Result<(), String> {
        let Event::Effect(effect::Event::Decided { client, incarnation, number, acknowledged, outcome }) =
            &record.event
        else {
            return Ok(());
        };
        let row = self.clients.row((record.tenant, *client));
        let decided_by = self.decided_by.row(*client);
        let what = format_args!("record {}: request {number} of client {client}.{incarnation}", record.seq);
        if let Some(before) = decided_by.by(*incarnation, *number) {
            return Err(format!("{what} is decided again; record {before} had decided it"));
        }
        if *incarnation < row.newest {
            return Err(format!("{what} is decided, and incarnation {} had been seen", row.newest));
        }
        if *incarnation > row.newest {
            row.newest = *incarnation;
            row.acknowledged = 0;
            row.answers.clear();
        }
        if *number <= row.acknowledged {
            return Err(format!("{what} is decided, and the client had acknowledged {}", row.acknowledged));
        }
        decided_by.insert(*incarnation, *number, record.seq);
        row.answers.push(First { number: *number, seq: record.seq, digest: digest(outcome) });
        if *acknowledged > row.acknowledged {
            row.acknowledged = *acknowledged;
            row.answers.retain(|first| first.number > *acknowledged);
        }
        Ok(())
    }

    fn decided_by(&self, client: ClientId, incarnation: u32, number: u64) -> Option<u64> {
        self.decided_by.get(&client)?.by(incarnation, number)
    }

    fn answered(&self, part: &super::Part<'_>) -> Result<(), String> {
        let request = &part.submitted.request;
        if request.client == ClientId::LEDGER || request.number == 0 {
            return Ok(());
        }
        let what = format_args!("request {} of client {}.{}", request.number, request.client, request.incarnation);
        if let (Some(record), Reply::Waits(_) | Reply::Stale { .. } | Reply::Forgotten { .. } | Reply::Busy) =
            (part.records.first(), part.reply)
        {
            return Err(format!("{what} is answered {:?}, and made record {}", part.reply, record.seq));
        }
        let row = self.clients.get(&(request.tenant, request.client));
        let before = self.decided_by(request.client, request.incarnation, request.number);
        match part.reply {
            Reply::Decided(decision) => {
                let current = row.filter(|row| row.newest == request.incarnation);
                let Some(first) = current.and_then(|row| row.first(request.number)) else {
                    let kept = before.map_or("no record decides it".to_owned(), |seq| {
                        format!("record {seq} decided it, and its client is past it")
                    });
                    return Err(format!("{what} is answered {decision:?}; {kept}"));
                };
                if (first.seq, first.digest) != (decision.seq, digest(&decision.outcome)) {
                    return Err(format!("{what} is answered {decision:?}; record {} had decided otherwise", first.seq));
                }
            }
            Reply::Stale { newest } => {
                let seen = row.map_or(0, |row| row.newest);
                if *newest != seen || request.incarnation >= seen {
                    return Err(format!(
                        "{what} is answered stale for incarnation {newest}; the newest seen is {seen}"
                    ));
                }
            }
            Reply::Forgotten { acknowledged } => {
                let known = row.map_or(0, |row| row.acknowledged);
                if *acknowledged != known || request.number > known {
                    return Err(format!("{what} is answered forgotten below {acknowledged}; acknowledged is {known}"));
                }
            }
            Reply::Waits(_) | Reply::Busy => {
                if let Some(seq) = before {
                    return Err(format!("{what} is answered {:?}, and record {seq} had decided it", part.reply));
                }
            }
        }
        Ok(())
    }
}

impl Invariant for DecidedOnce {
    fn name(&self) -> &'static str {
        "decided-once"
    }

    fn states(&self) -> &'static str {
        "a request is decided at most once, every repeat gets the first answer, and no record lacks a request"
    }

    fn at(&mut self, moment: &Moment<'_>) -> Result<(), String> {
        match moment.saw {
            Saw::Ledger(Announcement::Committed { submitted, replies, .. }, records) => {
                let mut batch = parts(submitted, replies, records);
                for part in batch.by_ref() {
                    part.records.iter().try_for_each(|record| self.fold(record))?;
                    self.answered(&part)?;
                }
                match batch.left.first() {
                    Some(record) => Err(format!("record {} ({:?}) comes of no request", record.seq, record.event)),
                    None => Ok(()),
                }
            }
            Saw::Ledger(_, records) => records.iter().try_for_each(|record| self.fold(record)),
            Saw::Fact(Fact::ActedOn { client, incarnation, number, seq }) => {
                let decided = self.decided_by(*client, *incarnation, *number);
                if decided == Some(*seq) {
                    return Ok(());
                }
                let found = decided.map_or("no record decides it".to_owned(), |seq| format!("record {seq} decides it"));
                Err(format!(
                    "client {client}.{incarnation} acts on record {seq} as the answer to its request {number}; {found}"
                ))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::history::*;
    use super::*;
    use kernel::{
        id::RunId,
        request::{Command, Decision, Request, Turn},
        run,
    };

    fn spawn(number: u64) -> Request {
        let (user, task, purpose) = (USER, kernel::id::TaskId(1), run::Purpose::Work);
        let spawn = run::Command::Spawn {
            run: RunId(number),
            user,
            task,
            workflow_version: 1,
            purpose,
            depth: kernel::admit::DepthTier(1),
        };
        request(number, None, vec![Command::Run(spawn)])
    }

    fn outcome() -> Result<Vec<Outcome>, Refusal> {
        Ok(vec![Outcome::Run(run::Outcome::Spawned)])
    }

    fn asked(request: Request, reply: Answer, events: Vec<Event>) -> Asked {
        Asked { request, waits_until_ns: 0, reply, events }
    }

    /// Request 1 decided by record 1, request 2 by record 3; 2 acknowledges 1 if asked to.
    fn two_decided(acknowledged: u64) -> Story {
        let mut story = Story::watched_by(&["decided-once"]);
        story.commits(0, vec![asked(spawn(1), Answer::Decides(outcome()), vec![spawned(RunId(1))])]);
        let second = Request { acknowledged, ..spawn(2) };
        story.commits(0, vec![asked(second, Answer::Decides(outcome()), vec![spawned(RunId(2))])]);
        story.holds();
        story
    }

    fn answers(request: Request, reply: Reply) -> Vec<Asked> {
        vec![asked(request, Answer::Replies(reply), vec![])]
    }

    #[test]
    fn who_decided_is_found_however_far_the_numbers_lie() {
        let mut decided = Decided::default();
        let names = [(0, 1), (0, 3), (0, 2), (0, 900), (0, u64::MAX), (0, 66), (2, 1), (1, 0), (0, 901)];
        for (name, seq) in names.into_iter().zip(0..) {
            assert_eq!(decided.by(name.0, name.1), None, "{name:?} before");
            decided.insert(name.0, name.1, seq);
        }
        for (name, seq) in names.into_iter().zip(0..) {
            assert_eq!(decided.by(name.0, name.1), Some(seq), "{name:?}");
        }
        assert_eq!([decided.by(0, 4), decided.by(0, 0), decided.by(3, 1), decided.by(2, 2)], [None; 4]);
    }

    #[test]
    fn a_legal_history_passes() {
        let mut story = two_decided(0);
        let first = Decision { seq: 1, outcome: outcome() };
        story.commits(0, answers(spawn(1), Reply::Decided(first)));
        story.fact(0, Fact::ActedOn { client: ClientId(7), incarnation: 0, number: 1, seq: 1 });
        let newer = Request { incarnation: 1, ..spawn(1) };
        story.commits(
            0,
            vec![
                asked(spawn(9), Answer::Replies(Reply::Waits(Turn::Lock(LOCK))), vec![]),
                asked(newer, Answer::Decides(outcome()), vec![]),
                asked(spawn(3), Answer::Replies(Reply::Stale { newest: 1 }), vec![]),
            ],
        );
        story.rests().holds();
        let mut story = two_decided(1);
        story.commits(0, answers(spawn(1), Reply::Forgotten { acknowledged: 1 })).holds();
    }

    #[test]
    fn nothing_is_decided_twice_or_out_of_its_time() {
        let again = |request: Request| asked(request, Answer::Decides(outcome()), vec![]);
        let mut story = two_decided(0);
        story.commits(0, vec![again(spawn(1))]).breaks_by("decided-once", &["is decided again; record 1 had"]);
        let mut story = two_decided(1);
        story.commits(0, vec![again(spawn(1))]).breaks_by("decided-once", &["is decided again"]);
        let mut story = two_decided(0);
        let seventh = Request { acknowledged: 5, ..spawn(7) };
        story.commits(0, vec![again(seventh)]).holds();
        story.commits(0, vec![again(spawn(4))]).breaks_by("decided-once", &["the client had acknowledged 5"]);
        let mut story = two_decided(0);
        story.commits(0, vec![again(Request { incarnation: 2, ..spawn(1) })]).holds();
        story.commits(0, vec![again(spawn(3))]).breaks_by("decided-once", &["incarnation 2 had been seen"]);
    }

    #[test]
    fn every_answer_is_the_decision() {
        let refused = || Err(run::Refusal::Taken { run: RunId(1) }.into());
        let waits = Reply::Waits(Turn::Lock(LOCK));
        let cases: [(&str, Request, Reply, &str); 8] = [
            (
                "another outcome",
                spawn(1),
                Reply::Decided(Decision { seq: 1, outcome: refused() }),
                "record 1 had decided otherwise",
            ),
            (
                "another record",
                spawn(1),
                Reply::Decided(Decision { seq: 0, outcome: outcome() }),
                "record 1 had decided otherwise",
            ),
            ("no record", spawn(5), Reply::Decided(Decision { seq: 4, outcome: outcome() }), "no record decides it"),
            ("stale, and is not", spawn(5), Reply::Stale { newest: 1 }, "the newest seen is 0"),
            ("stale for its own", spawn(5), Reply::Stale { newest: 0 }, "the newest seen is 0"),
            ("forgotten, and is not", spawn(2), Reply::Forgotten { acknowledged: 2 }, "acknowledged is 0"),
            ("waits after it was decided", spawn(2), waits, "record 3 had decided it"),
            ("busy after it was decided", spawn(2), Reply::Busy, "record 3 had decided it"),
        ];
        for (case, request, reply, message) in cases {
            let mut story = two_decided(0);
            story.commits(0, answers(request, reply));
            assert!(story.broken().is_some(), "{case} passes");
            story.breaks_by("decided-once", &[message]);
        }
        let mut story = two_decided(1);
        let first = Decision { seq: 1, outcome: outcome() };
        story.commits(0, answers(spawn(1), Reply::Decided(first)));
        story.breaks_by("decided-once", &["record 1 decided it, and its client is past it"]);
    }

    #[test]
    fn a_new_decision_is_recorded_and_answered_alike() {
        let mut story = two_decided(0);
        story.commits(0, vec![asked(spawn(3), Answer::Unrecorded(outcome()), vec![])]);
        story.breaks_by("decided-once", &["no record decides it"]);
        let mut story = two_decided(0);
        story.commits(0, vec![asked(spawn(1), Answer::Unrecorded(outcome()), vec![spawned(RunId(4))])]);
        assert!(story.broken().is_some(), "a repeat with a second effect");
        let mut story = two_decided(0);
        story.logs(&[spawned(RunId(4))]).breaks_by("decided-once", &["record 4", "comes of no request"]);
        let mut story = two_decided(0);
        let third = spawn(3);
        let decision = decided(&third, outcome());
        let waits = Answer::Replies(Reply::Waits(Turn::Lock(LOCK)));
        story.commits(0, vec![asked(third, waits, vec![decision])]);
        story.breaks_by("decided-once", &["is answered Waits", "made record 4"]);
    }

    #[test]
    fn what_is_acted_on_is_the_decision() {
        for (number, seq, message) in [(1, 3, "record 1 decides it"), (9, 3, "no record decides it")] {
            let mut story = two_decided(0);
            story.fact(0, Fact::ActedOn { client: ClientId(7), incarnation: 0, number, seq });
            story.breaks_by("decided-once", &[message]);
        }
    }

    #[test]
    fn ticks_and_the_genesis_explain_their_own_records() {
        let own = |commands| Request { client: ClientId::LEDGER, number: 0, ..request(0, None, commands) };
        let tick = own(vec![Command::Lease(kernel::lease::Command::Tick)]);
        let ticked = || Answer::Unrecorded(Ok(vec![Outcome::Lease(kernel::lease::Outcome::Ticked)]));
        let mut story = Story::watched_by(&["decided-once"]);
        story.commits(
            0,
            vec![
                asked(tick.clone(), ticked(), vec![expired(LOCK, 1), expired(LOCK, 2)]),
                asked(spawn(1), Answer::Decides(outcome()), vec![spawned(RunId(1))]),
                asked(tick.clone(), ticked(), vec![]),
            ],
        );
        story.holds();
        story.commits(0, vec![asked(tick, ticked(), vec![cap_set(kernel::reserve::Level::Run, 1)])]);
        story.breaks_by("decided-once", &["comes of no request"]);
    }
}
