//! The events that faults begin at, as the observer sees them.

use crate::{fact::Fact, invariant::Sight};
use faults::Happening;
use kernel::{effect, lease, record, record::Record, reserve, run, serve::Announcement};

/// What happened in one sight, in its order; `news` are the records that no sight told of before.
pub(super) fn happenings<'a>(sight: &'a Sight, news: &'a [Record]) -> impl Iterator<Item = Happening> + 'a {
    let itself = match sight {
        Sight::Ledger(Announcement::Opened { .. }, _) => Some(Happening::Open),
        Sight::Ledger(Announcement::Committed { frame: Some(_), .. }, _) => Some(Happening::Commit),
        Sight::Fact(fact) => stated(fact),
        Sight::Down => Some(Happening::Down),
        Sight::Ledger(..) | Sight::Up | Sight::TurnedAway { .. } | Sight::Other => None,
    };
    itself.into_iter().chain(news.iter().filter_map(|record| recorded(&record.event)))
}

fn stated(fact: &Fact) -> Option<Happening> {
    match fact {
        Fact::CallSent { .. } => Some(Happening::CallSent),
        Fact::Charged { .. } => Some(Happening::Charged),
        Fact::Repeated { .. } => Some(Happening::Repeated),
        Fact::TurnedAway { .. } => Some(Happening::TurnedAway),
        _ => None,
    }
}

fn recorded(event: &record::Event) -> Option<Happening> {
    match event {
        record::Event::Lease(lease::Event::Granted { .. }) => Some(Happening::Grant),
        record::Event::Lease(lease::Event::Renewed { .. }) => Some(Happening::Renew),
        record::Event::Lease(lease::Event::Yielded { .. }) => Some(Happening::Yield),
        record::Event::Lease(lease::Event::Expired { .. }) => Some(Happening::Expire),
        record::Event::Reserve(reserve::Event::Reserved { .. }) => Some(Happening::Reserve),
        record::Event::Reserve(reserve::Event::Settled { .. }) => Some(Happening::Settle),
        record::Event::Reserve(reserve::Event::Released { .. }) => Some(Happening::Release),
        record::Event::Reserve(reserve::Event::CapSet { .. }) => Some(Happening::CapSet),
        record::Event::Run(run::Event::Spawned { .. }) => Some(Happening::Spawn),
        record::Event::Run(run::Event::AttemptEnded { .. }) => Some(Happening::AttemptEnd),
        record::Event::Run(run::Event::Ended { .. }) => Some(Happening::RunEnd),
        record::Event::Effect(effect::Event::Decided { outcome: Err(_), .. }) => Some(Happening::Refusal),
        _ => None,
    }
}
