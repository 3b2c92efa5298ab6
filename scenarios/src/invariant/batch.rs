//! A committed batch cut into its requests: which records each of them made.
//!
//! A decided request's records are its events in the order of its commands, then one `Decided` that names it. The ledger's
//! own requests have no `Decided`: a tick makes expiries alone, and the genesis settings alone.

use kernel::{
    effect,
    id::ClientId,
    lease,
    record::{Event, Record},
    request::{Command, Reply, Submitted},
    reserve,
};

/// One request of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part<'a> {
    /// As it was handed to the ledger.
    pub submitted: &'a Submitted,
    /// What was answered.
    pub reply: &'a Reply,
    /// The records it made, its `Decided` last; none if it was decided before, or not at all.
    pub records: &'a [Record],
}

/// The requests of a batch, in order, and then what no request explains.
pub(crate) struct Parts<'a> {
    submitted: std::slice::Iter<'a, Submitted>,
    replies: std::slice::Iter<'a, Reply>,
    /// Records that no request so far explains.
    pub left: &'a [Record],
}

pub(crate) fn parts<'a>(submitted: &'a [Submitted], replies: &'a [Reply], records: &'a [Record]) -> Parts<'a> {
    Parts { submitted: submitted.iter(), replies: replies.iter(), left: records }
}

impl<'a> Iterator for Parts<'a> {
    type Item = Part<'a>;

    fn next(&mut self) -> Option<Part<'a>> {
        let (submitted, reply) = (self.submitted.next()?, self.replies.next()?);
        let length = made_by(submitted, self.left);
        let (records, left) = self.left.split_at(length);
        self.left = left;
        Some(Part { submitted, reply, records })
    }
}

fn made_by(submitted: &Submitted, left: &[Record]) -> usize {
    let request = &submitted.request;
    if request.client == ClientId::LEDGER {
        let ticks = request.commands.iter().any(|command| matches!(command, Command::Lease(lease::Command::Tick)));
        let most = if ticks { usize::MAX } else { request.commands.len() };
        return left
            .iter()
            .take(most)
            .take_while(|record| match &record.event {
                Event::Lease(lease::Event::Expired { .. }) => ticks,
                Event::Admit(_) => !ticks,
                Event::Reserve(event) => !ticks && is_setting(event),
                Event::Effect(effect::Event::ToolRegistered { .. }) => !ticks,
                _ => false,
            })
            .count();
    }
    let decides = |record: &Record| matches!(record.event, Event::Effect(effect::Event::Decided { .. }));
    let decided = left.iter().position(decides);
    decided.map_or(0, |at| match &left[at].event {
        Event::Effect(effect::Event::Decided { client, incarnation, number, .. })
            if (*client, *incarnation, *number) == (request.client, request.incarnation, request.number) =>
        {
            at + 1
        }
        _ => 0,
    })
}

fn is_setting(event: &reserve::Event) -> bool {
    matches!(event, reserve::Event::CapSet { .. } | reserve::Event::SlotsSet { .. } | reserve::Event::PriceSet(_))
}
