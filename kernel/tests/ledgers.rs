//! The thirteen ledgers: what each kind of event may be appended as, kind by kind.

#![allow(clippy::unwrap_used)] // what a test cannot go on without, it panics for

use kernel::{
    admit::{self, DepthTier, Switch},
    effect::{self, Class as ToolClass, Key, Response},
    id::{
        BranchId, ClientId, ExecutorId, Fence, LedgerTime, ModelId, ReservationId, RunId, TaskId, TenantId, ToolId,
        UnitId, UserId,
    },
    lease::{self, Lock},
    money::{MicroUsd, Price, Usage},
    record::{
        Class, Draft, Event, Head, Origin,
        ledgers::{Kind, Ledger, WrongClass},
    },
    reserve::{self, Level},
    run::{self, AttemptState, Ending, Purpose},
};
use std::collections::BTreeSet;

const TENANT: TenantId = TenantId(1);
const RUN: RunId = RunId(9);

/// One event of every kind there is.
fn every_kind() -> Vec<Event> {
    let (run, unit, attempt, lock, fence) = (RUN, UnitId(1), 1, Lock::Run(TENANT, RUN), Fence(1));
    let (until, executor, client) = (LedgerTime(9), ExecutorId(3), ClientId(4));
    let (reservation, intent, tool, key) = (ReservationId(7), ReservationId(7), ToolId(1), Key([5; 16]));
    let (usage, model) = (Usage::default(), ModelId(1));
    let price = Price { model, input_per_mtok: 1, output_per_mtok: 1 };
    let (user, state) = (UserId(2), AttemptState::Succeeded);
    let reserved =
        reserve::Event::Reserved { reservation, run, unit, attempt, user, day: 0, price, worst: MicroUsd(1) };
    let (cost, overrun) = (MicroUsd(1), MicroUsd(0));
    let decided = effect::Event::Decided { client, incarnation: 0, number: 1, acknowledged: 0, outcome: Ok(vec![]) };
    let (task, workflow_version, purpose, depth) = (TaskId(1), 1, Purpose::Work, DepthTier(1));
    vec![
        Event::Admit(admit::Event::HaltSet { tenant: TENANT, switch: Switch::Halted }),
        Event::Admit(admit::Event::QuotaSet { tenant: TENANT, user: None, quota: None }),
        Event::Lease(lease::Event::Granted { lock, executor, client, fence, until }),
        Event::Lease(lease::Event::Renewed { lock, fence, until }),
        Event::Lease(lease::Event::Yielded { lock, fence }),
        Event::Lease(lease::Event::Expired { lock, fence }),
        Event::Effect(decided),
        Event::Effect(effect::Event::ToolRegistered { tenant: TENANT, tool, class: ToolClass::Unsafe }),
        Event::Effect(effect::Event::Intended { intent, tool, class: ToolClass::Unsafe, key: None }),
        Event::Effect(effect::Event::Dispatched { intent }),
        Event::Effect(effect::Event::Committed { intent, response: Response::default() }),
        Event::Reserve(reserve::Event::CapSet { tenant: TENANT, level: Level::Run, cap: MicroUsd(1) }),
        Event::Reserve(reserve::Event::SlotsSet { tenant: TENANT, slots: 1 }),
        Event::Reserve(reserve::Event::PriceSet(price)),
        Event::Reserve(reserved),
        Event::Reserve(reserve::Event::Settled { reservation, usage, cost, overrun, by_owner: false }),
        Event::Reserve(reserve::Event::Released { reservation, by_owner: false }),
        Event::Run(run::Event::Spawned { run, user, task, workflow_version, purpose, depth }),
        Event::Run(run::Event::AttemptStarted { run, unit, attempt, reservation }),
        Event::Run(run::Event::AttemptEnded { run, unit, attempt, state }),
        Event::Run(run::Event::Ended { run, outcome: Ending::Complete }),
        Event::Run(run::Event::AttemptQueued { run, unit, attempt }),
        Event::Run(run::Event::Recalled { run, unit, attempt, key, source: reservation }),
        Event::Run(run::Event::Suspended { run }),
        Event::Run(run::Event::Resumed { run }),
        Event::Run(run::Event::Cancelled { run, running: 0 }),
    ]
}

/// The kinds of each ledger and its class, as the documentation lists them and not as the kernel does.
const TABLE: [(&str, Class, &[&str]); 13] = [
    ("runs", Class::Sequenced, &["run.spawned", "run.ended", "run.suspended"]),
    ("attempts", Class::Sequenced, &["run.attempt-started", "run.attempt-ended", "run.attempt-queued", "run.recalled"]),
    ("branches", Class::Sequenced, &[]),
    ("leases", Class::Scarce, &["lease.granted", "lease.renewed", "lease.yielded", "lease.expired"]),
    ("orders", Class::Scarce, &["admit.halt-set", "run.resumed", "run.cancelled"]),
    (
        "settings",
        Class::Scarce,
        &["admit.quota-set", "effect.tool-registered", "reserve.cap-set", "reserve.slots-set", "reserve.price-set"],
    ),
    ("spend", Class::Scarce, &["reserve.reserved", "reserve.settled", "reserve.released"]),
    ("intents", Class::Scarce, &["effect.intended", "effect.dispatched", "effect.committed"]),
    ("decisions", Class::Scarce, &["effect.decided"]),
    ("anchors", Class::Sequenced, &[]),
    ("verdicts", Class::Sequenced, &[]),
    ("knowledge", Class::Mergeable, &[]),
    ("bodies", Class::Mergeable, &[]),
];

#[test]
fn every_kind_is_in_one_ledger_of_thirteen() {
    let found = Ledger::ALL.map(|ledger| {
        let kinds: Vec<&str> = ledger.kinds().map(Kind::name).collect();
        (ledger.name(), ledger.class(), kinds)
    });
    for ((name, class, kinds), found) in TABLE.iter().zip(&found) {
        assert_eq!((*name, *class, kinds.to_vec()), *found);
    }
    let events = every_kind();
    let kinds: BTreeSet<Kind> = events.iter().map(Kind::of).collect();
    assert_eq!(kinds, Kind::ALL.iter().copied().collect(), "the test has an event of every kind");
    assert_eq!(kinds.len(), events.len());
    for event in &events {
        let spelt = format!("{event:?}");
        let mut words = spelt.split(['(', ' ']);
        let (room, what) = (words.next().unwrap(), words.next().unwrap());
        let name = Kind::of(event).name().replace(['.', '-'], "");
        assert_eq!(name, format!("{room}{what}").to_lowercase(), "a kind goes by the name of its event");
    }
}

/// Every kind, offered as each class, at its own place in a run, at another run's, and at none: exactly one way is written, and
/// each other is refused by its own name with nothing written.
#[test]
fn what_is_appended_under_the_wrong_class_is_refused_before_anything_is_written() {
    let at = |run| Origin { run, branch: BranchId(0), executor: ExecutorId(3), fence: Fence(1), lsn: 4 };
    let (own, other) = (at(RUN), at(RunId(77)));
    let mut written = 0;
    for event in every_kind() {
        let kind = Kind::of(&event);
        let right = kind.ledger().class();
        for class in [Class::Sequenced, Class::Mergeable, Class::Scarce] {
            for origin in [None, Some(own), Some(other)] {
                let mut draft = Draft::new(Head::default(), LedgerTime(1));
                let said = draft.append(Head::default(), TENANT, (class, origin), event.clone());
                let expected = match (class == right, right, origin) {
                    (false, ..) => Some(WrongClass::Class { kind, right, offered: class }),
                    (true, Class::Sequenced, None) => Some(WrongClass::NoOrigin { kind }),
                    (true, Class::Sequenced, Some(origin)) if origin.run != RUN => {
                        Some(WrongClass::OtherRun { kind, own: RUN, run: origin.run })
                    }
                    (true, Class::Sequenced, Some(_)) | (true, _, None) => None,
                    (true, class, Some(origin)) => Some(WrongClass::HasOrigin { kind, class, run: origin.run }),
                };
                assert_eq!(draft.is_empty(), expected.is_some(), "{kind} as {class:?} at {origin:?}");
                written += u32::from(expected.is_none());
                match said {
                    Ok(record) => assert_eq!((record.class, record.origin, expected), (right, origin, None)),
                    Err(wrong) => {
                        assert_eq!(Some(wrong), expected);
                        assert!(wrong.to_string().contains(kind.name()), "{wrong}");
                    }
                }
            }
        }
    }
    assert_eq!(written, every_kind().len() as u32, "one way a kind");
}
