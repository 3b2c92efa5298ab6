//! A forger of queues: somebody who waits, and is passed.

use crate::forge::{Folder, Told, What};
use kernel::{
    id::UserId,
    record::{Event, Frame},
    request::{Reply, Turn},
    reserve,
    serve::Announcement,
};

/// Has a request wait for a slot of the user who is given one in the very next commit.
pub fn passed_by_all(f: &mut Folder) {
    let reserving = |frame: &Frame| {
        frame.records.iter().find_map(|record| match record.event {
            Event::Reserve(reserve::Event::Reserved { user, .. }) => Some(user),
            _ => None,
        })
    };
    let mut told = f.told();
    let mut last = None;
    for at in 0..told.len() {
        let What::Ledger(Announcement::Committed { submitted, .. }, frame) = &told[at].what else {
            last = last.filter(|_| !matches!(told[at].what, What::Ledger(..)));
            continue;
        };
        if let (Some(before), Some(user)) = (last, frame.as_ref().and_then(reserving)) {
            waits_for_a_slot(&mut told[before], user);
            return f.retell(told);
        }
        last = submitted.iter().any(|one| one.request.number > 0).then_some(at);
    }
    panic!("two commits in a row, the second with a reservation");
}

/// Adds a request to a commit that waits for a slot of `user` for ever.
fn waits_for_a_slot(told: &mut Told, user: UserId) {
    let What::Ledger(Announcement::Committed { submitted, replies, .. }, _) = &mut told.what else { return };
    let Some(mut waiter) = submitted.iter().find(|one| one.request.number > 0).cloned() else { return };
    (waiter.request.number, waiter.waits_until_ns) = (1_000_000, u64::MAX);
    replies.push(Reply::Waits(Turn::Slot(waiter.request.tenant, user)));
    submitted.push(waiter);
}
