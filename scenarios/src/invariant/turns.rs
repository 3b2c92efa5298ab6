//! Who waits for the same thing is served in the order in which it began to wait.

use super::{Invariant, Moment, Part, Saw, parts};
use kernel::{
    effect,
    id::ClientId,
    lease,
    record::{Event, Record},
    request::{Reply, Request, Turn},
    reserve,
    serve::Announcement,
};
use std::collections::{BTreeMap, VecDeque};

/// What names a request: client, incarnation, number.
type Name = (ClientId, u32, u64);

/// `turns`: whoever is given a lock, a user's slot, or a question to ask had waited for it longest of all whose terms had not
/// ended, and nobody who did not wait is given it before one who does. A wait begins once the batch is durable in which the
/// request was told to wait, and is over with the ledger's process: who waits is not recorded, and asks again.
#[derive(Debug, Default)]
pub struct Turns {
    waiting: BTreeMap<Turn, VecDeque<Waiter>>,
    /// What each of them waits for.
    named: BTreeMap<Name, Turn>,
    /// Who was told to wait in the batch at hand, and for what.
    told: Vec<(Turn, Waiter)>,
}

#[derive(Clone, Copy, Debug)]
struct Waiter {
    name: Name,
    until_ns: u64,
}

fn name(request: &Request) -> Name {
    (request.client, request.incarnation, request.number)
}

/// What others may have waited for and a record gives.
fn given(record: &Record) -> Option<Turn> {
    match record.event {
        Event::Lease(lease::Event::Granted { lock, .. }) => Some(Turn::Lock(lock)),
        Event::Reserve(reserve::Event::Reserved { user, .. }) => Some(Turn::Slot(record.tenant, user)),
        Event::Effect(effect::Event::Intended { key: Some(key), .. }) => Some(Turn::Answer(record.tenant, key)),
        _ => None,
    }
}

impl Turns {
    fn part(&mut self, part: &Part<'_>, now_ns: u64) -> Result<(), String> {
        let request = &part.submitted.request;
        let name = name(request);
        if request.client == ClientId::LEDGER {
            return Ok(());
        }
        for turn in part.records.iter().filter_map(given) {
            self.passes_nobody(name, turn, now_ns)?;
        }
        match part.reply {
            Reply::Waits(turn) if self.named.get(&name) == Some(turn) => {}
            Reply::Waits(turn) => {
                self.leave(name);
                self.told.push((*turn, Waiter { name, until_ns: part.submitted.waits_until_ns }));
            }
            Reply::Decided(_) | Reply::Stale { .. } | Reply::Forgotten { .. } | Reply::Busy => self.leave(name),
        }
        Ok(())
    }

    fn passes_nobody(&self, name: Name, turn: Turn, now_ns: u64) -> Result<(), String> {
        let Some(queue) = self.waiting.get(&turn) else { return Ok(()) };
        let before = queue.iter().take_while(|waiter| waiter.name != name);
        let Some(passed) = before.clone().find(|waiter| waiter.until_ns >= now_ns) else { return Ok(()) };
        let ((client, incarnation, number), (other, of, its)) = (name, passed.name);
        let waited = if before.count() == queue.len() { "which did not wait" } else { "which waited less long" };
        Err(format!(
            "request {number} of client {client}.{incarnation}, {waited}, is given {turn:?} at {now_ns} ns before request {its} of \
             client {other}.{of}, whose term lasts until {} ns",
            passed.until_ns
        ))
    }

    fn leave(&mut self, name: Name) {
        let Some(turn) = self.named.remove(&name) else { return };
        let Some(queue) = self.waiting.get_mut(&turn) else { return };
        queue.retain(|waiter| waiter.name != name);
        if queue.is_empty() {
            self.waiting.remove(&turn);
        }
    }
}

impl Invariant for Turns {
    fn name(&self) -> &'static str {
        "turns"
    }

    fn states(&self) -> &'static str {
        "a lock, a slot or a question goes to whoever waited for it longest, and nobody passes one who waits"
    }

    fn at(&mut self, moment: &Moment<'_>) -> Result<(), String> {
        match moment.saw {
            Saw::Ledger(Announcement::Committed { now_ns, submitted, replies, .. }, records) => {
                parts(submitted, replies, records).try_for_each(|part| self.part(&part, *now_ns))?;
                for (turn, waiter) in self.told.drain(..) {
                    self.named.insert(waiter.name, turn);
                    self.waiting.entry(turn).or_default().push_back(waiter);
                }
                Ok(())
            }
            Saw::Ledger(Announcement::Opened { .. }, _) => {
                *self = Turns::default();
                Ok(())
            }
            // Told to wait, and then there was no place to wait in.
            Saw::TurnedAway { client, incarnation, number } => {
                self.leave((client, incarnation, number));
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::history::*;
    use super::*;
    use crate::cast::LEDGER;
    use kernel::{
        id::{ExecutorId, Fence, LedgerTime},
        request::{Command, Outcome},
        serve::BUSY,
    };

    fn acquires(client: u64) -> Request {
        let command = lease::Command::Acquire { lock: LOCK, executor: ExecutorId(client), ttl_ns: TTL_NS };
        Request { client: ClientId(client), ..request(1, None, vec![Command::Lease(command)]) }
    }

    fn waits(client: u64, waits_until_ns: u64) -> Asked {
        let reply = Answer::Replies(Reply::Waits(Turn::Lock(LOCK)));
        Asked { request: acquires(client), waits_until_ns, reply, events: vec![] }
    }

    fn takes(client: u64, fence: u64) -> Asked {
        let held = Outcome::Lease(lease::Outcome::Held { fence: Fence(fence), until: LedgerTime(TTL_NS) });
        let events = vec![granted(LOCK, client, fence, TTL_NS)];
        Asked { request: acquires(client), waits_until_ns: 900, reply: Answer::Decides(Ok(vec![held])), events }
    }

    fn two_wait() -> Story {
        let mut story = Story::begun("turns");
        story.commits(10, vec![waits(2, 500), waits(3, 900)]).logs(&[yielded(LOCK, 1)]);
        story
    }

    #[test]
    fn who_waited_longest_is_given_it() {
        two_wait().commits(100, vec![takes(2, 2)]).logs(&[yielded(LOCK, 2)]).commits(200, vec![takes(3, 3)]).holds();
        two_wait().commits(501, vec![takes(3, 2)]).holds(); // the first's term is over
        for (client, how) in [(3, "waited less long"), (4, "did not wait")] {
            let mut story = two_wait();
            let passed = "before request 1 of client 2.0, whose term lasts until 500 ns";
            story.commits(500, vec![takes(client, 2)]).breaks_by("turns", &[how, passed]);
        }
    }

    #[test]
    fn a_place_is_kept_until_the_request_is_answered() {
        let mut story = two_wait();
        story.commits(100, vec![waits(2, 500), waits(3, 900)]).commits(200, vec![takes(3, 2)]);
        story.breaks_by("turns", &["waited less long"]);
        let late = Asked { reply: Answer::Replies(Reply::Forgotten { acknowledged: 1 }), ..waits(2, 500) };
        two_wait().commits(100, vec![late, takes(3, 2)]).holds();
    }

    #[test]
    fn nobody_waits_in_the_batch_that_tells_it_to_nor_past_an_opening_nor_without_a_place() {
        let mut story = Story::begun("turns");
        story.logs(&[yielded(LOCK, 1)]).commits(10, vec![waits(2, 500), takes(3, 2)]).holds();
        two_wait().opens().commits(100, vec![takes(3, 2)]).holds();
        let mut story = two_wait();
        story.enter(LEDGER, 0, BUSY, &postcard::to_allocvec(&(ClientId(2), 0u32, 1u64)).unwrap());
        story.commits(100, vec![takes(3, 2)]).holds();
    }
}
