//! The queues of those who wait, worked out anew: nobody passes one whose term lasts.

use super::{
    findings::{Findings, Place, Rule},
    told::{Reply, Submitted, Turn},
    wire::{Budgeted, Effected, Event, Leased, Record},
};
use std::collections::BTreeMap;

/// A request, by client, incarnation and number.
pub(super) type Name = (u64, u32, u64);

/// The reckoning so far.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// Who waits for what, first come first; and until when, on the writer's clock.
    queues: BTreeMap<Turn, Vec<(Name, u64)>>,
    /// In which queue each of them stands.
    waiting: BTreeMap<Name, Turn>,
    /// Who was told to wait in the batch at hand.
    told: Vec<(Name, Turn, u64)>,
}

impl Turns {
    /// One request of a batch decided at `now_ns` of the writer's clock, with the records it made.
    pub(super) fn part(
        &mut self,
        asked: &Submitted,
        reply: &Reply,
        made: &[Record],
        now_ns: u64,
        place: Place,
        found: &mut Findings,
    ) {
        let request = &asked.request;
        if request.is_own() {
            return;
        }
        let name = (request.client, request.incarnation, request.number);
        for (turn, record) in made.iter().filter_map(|record| Some((given(record)?, record))) {
            let Some(queue) = self.queues.get(&turn) else { continue };
            let passed = queue.iter().take_while(|(of, _)| *of != name).find(|(_, until_ns)| *until_ns >= now_ns);
            found.must(Rule::Turns, place, passed.is_none(), || {
                let ((client, incarnation, number), until_ns) = passed.copied().unwrap_or((name, 0));
                format!(
                    "record {} gives {request} what request {number} of client {client}.{incarnation} waited for before it, until \
                     {until_ns} ns of the writer's clock",
                    record.seq
                )
            });
        }
        match reply {
            Reply::Waits(turn) if self.waiting.get(&name) == Some(turn) => {}
            Reply::Waits(turn) => {
                self.leaves(name);
                self.told.push((name, *turn, asked.waits_until_ns));
            }
            _ => self.leaves(name),
        }
    }

    /// The batch at hand is over: whoever was told to wait in it waits.
    pub(super) fn batch_ends(&mut self) {
        for (name, turn, until_ns) in self.told.drain(..) {
            self.queues.entry(turn).or_default().push((name, until_ns));
            self.waiting.insert(name, turn);
        }
    }

    /// There was no place to wait in.
    pub(super) fn leaves(&mut self, name: Name) {
        let Some(turn) = self.waiting.remove(&name) else { return };
        let queue = self.queues.entry(turn).or_default();
        queue.retain(|(of, _)| *of != name);
        if queue.is_empty() {
            self.queues.remove(&turn);
        }
    }

    /// The ledger's process began: nobody waits.
    pub(super) fn opened(&mut self) {
        *self = Turns::default();
    }
}

/// What others may have waited for and a record gives.
fn given(record: &Record) -> Option<Turn> {
    match record.event {
        Event::Lease(Leased::Granted { lock, .. }) => Some(Turn::Lock(lock)),
        Event::Reserve(Budgeted::Reserved { user, .. }) => Some(Turn::Slot(record.tenant, user)),
        Event::Effect(Effected::Intended { key: Some(key), .. }) => Some(Turn::Answer(record.tenant, key)),
        _ => None,
    }
}
