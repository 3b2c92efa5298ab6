//! Forgeries of what the owner decides about live work: cancels, suspensions and halts.

use crate::{
    forge::{Folder, Told, What, recorded},
    semantic::{Forge, event},
};
use kernel::{
    effect, lease,
    record::Event,
    request::{Refusal, Reply},
    reserve,
    run::{self, Ending},
    serve::Announcement,
};
use std::sync::LazyLock;

/// A run in which runs were suspended, resumed, and cancelled with and without anything running.
pub static SOUND: LazyLock<Folder> = LazyLock::new(|| {
    let fits = |folder: &Folder| {
        let log = &folder.log;
        let needed = [
            "\"outcome\":\"cancelled\"",
            "\"Resumed\"",
            "\"running\":0",
            "{\"Suspended\":{\"lock\"",
            "\"Released\":{\"by_owner\":true",
        ];
        let refuses = |told: &Told| matches!(&told.what, What::Ledger(told, _) if alone_refused(told).is_some());
        needed.into_iter().all(|event| log.contains(event))
            && folder.verdict() == "pass"
            && folder.told().iter().any(refuses)
    };
    (0..60).map(|seed| recorded("effects", seed, &[])).find(fits).expect("one of sixty has all of it")
});

/// What is done to it, and the rule that finds it.
pub const FORGED: [(&str, Forge, &str); 8] = [
    (
        "what was in doubt was never resolved",
        |f| {
            let mut first = None;
            event(f, |event| match event {
                Event::Reserve(reserve::Event::Released { reservation, by_owner: true }) => {
                    std::mem::replace(reservation, first.unwrap_or(*reservation)) != *reservation
                }
                Event::Reserve(
                    reserve::Event::Settled { reservation, by_owner: false, .. }
                    | reserve::Event::Released { reservation, by_owner: false },
                ) => {
                    first = first.or(Some(*reservation));
                    false
                }
                _ => false,
            });
        },
        "none-open",
    ),
    ("a cancel overwritten by a success", |f| run_event(f, |event| overwritten(event, Ending::Complete)), "cancel"),
    (
        "a resumption told as a cancel",
        |f| {
            run_event(f, |event| match *event {
                run::Event::Resumed { run } => {
                    *event = run::Event::Cancelled { run, running: 0 };
                    true
                }
                _ => false,
            })
        },
        "cancel",
    ),
    (
        "a cancel with more running than there were",
        |f| {
            run_event(f, |event| match event {
                run::Event::Cancelled { running, .. } => {
                    *running += 1;
                    true
                }
                _ => false,
            })
        },
        "arms",
    ),
    (
        "a run resumed that was not suspended",
        |f| {
            run_event(f, |event| match event {
                run::Event::Resumed { run } => {
                    run.0 ^= 1 << 32;
                    true
                }
                _ => false,
            })
        },
        "arms",
    ),
    (
        "a run that was not suspended, and gave its lease up",
        |f| {
            run_event(f, |event| match *event {
                run::Event::Suspended { run } => {
                    let (unit, attempt) = (kernel::id::UnitId(77), 1);
                    *event = run::Event::AttemptQueued { run, unit, attempt };
                    true
                }
                _ => false,
            })
        },
        "commands",
    ),
    ("a suspended run's lock said to be nobody's to ask for", refused_otherwise, "answers"),
    (
        "a lease granted while its run is suspended",
        |f| {
            run_event(f, |event| match *event {
                run::Event::Resumed { run } => {
                    *event = run::Event::Cancelled { run: kernel::id::RunId(run.0 ^ 1 << 32), running: 0 };
                    true
                }
                _ => false,
            })
        },
        "one-writer",
    ),
];

/// Edits the first event of a run that `edit` says it edited.
fn run_event(folder: &mut Folder, mut edit: impl FnMut(&mut run::Event) -> bool) {
    event(folder, |event| match event {
        Event::Run(event) => edit(event),
        _ => false,
    });
}

fn overwritten(event: &mut run::Event, by: Ending) -> bool {
    match event {
        run::Event::Ended { outcome, .. } if *outcome == Ending::Cancelled => {
            *outcome = by;
            true
        }
        _ => false,
    }
}

/// Which request of a batch was refused a suspended run's lock and asked for nothing else: of more than one command the files do not
/// show which was refused.
fn alone_refused(told: &Announcement) -> Option<usize> {
    let Announcement::Committed { submitted, replies, .. } = told else { return None };
    submitted.iter().zip(replies).position(|(one, reply)| match reply {
        Reply::Decided(decision) => {
            let refused = matches!(decision.outcome, Err(Refusal::Lease(lease::Refusal::Suspended { .. })));
            refused && one.request.commands.len() == 1
        }
        _ => false,
    })
}

/// A refusal over a suspended run's lock, as one over a lease of no length.
fn refused_otherwise(folder: &mut Folder) {
    let other: Result<Vec<_>, Refusal> = Err(lease::Refusal::NoTerm.into());
    folder.ledger(|told, frame| {
        let Some(at) = alone_refused(told) else { return false };
        let Announcement::Committed { submitted, replies, .. } = told else { return false };
        let Reply::Decided(decision) = &mut replies[at] else { return false };
        decision.outcome = other.clone();
        let asked = &submitted[at].request;
        let records = frame.iter_mut().flat_map(|frame| &mut frame.records);
        records.map(|record| &mut record.event).any(|event| match event {
            Event::Effect(effect::Event::Decided { client, number, outcome, .. })
                if (*client, *number) == (asked.client, asked.number) =>
            {
                *outcome = other.clone();
                true
            }
            _ => false,
        })
    });
}
