//! The thorough forger: history, log, result and capsule changed together, every hash made to fit. What is left to find it by
//! is what the run says of itself.

use crate::{
    forge::{Folder, SOUND},
    orders, turns,
};
use kernel::{
    admit, effect,
    id::Fence,
    lease,
    money::MicroUsd,
    record::{Class, Event, Record},
    request::{Command, Refusal, Reply},
    reserve::{self, Level},
    run::{self, AttemptState, Ending, HaltReason},
    serve::Announcement,
};
use scenarios::{
    checker::{Check, Status},
    fact::{Answered, Fact},
};
use std::collections::BTreeSet;

/// What a forger does to a folder.
pub type Forge = fn(&mut Folder);

/// Edits the first record whose event `edit` says it edited.
pub fn event(folder: &mut Folder, mut edit: impl FnMut(&mut Event) -> bool) {
    record(folder, |record| edit(&mut record.event));
}

fn record(folder: &mut Folder, mut edit: impl FnMut(&mut Record) -> bool) {
    folder.ledger(|_, frame| frame.iter_mut().flat_map(|frame| &mut frame.records).any(&mut edit));
}

/// Edits the first settlement.
fn settled(folder: &mut Folder, edit: impl Fn(&mut reserve::Event)) {
    event(folder, |event| match event {
        Event::Reserve(event @ reserve::Event::Settled { .. }) => {
            edit(event);
            true
        }
        _ => false,
    });
}

/// Puts a cap, and the request that asked for it, at another amount.
fn cap(folder: &mut Folder, of: Level, to: u64) {
    event(folder, |event| match event {
        Event::Reserve(reserve::Event::CapSet { level, cap, .. }) if *level == of => {
            *cap = MicroUsd(to);
            true
        }
        _ => false,
    });
}

/// Edits the first attempt's end of a state.
fn ended(folder: &mut Folder, from: AttemptState, to: AttemptState) {
    event(folder, |event| match event {
        Event::Run(run::Event::AttemptEnded { state, .. }) if *state == from => {
            *state = to;
            true
        }
        _ => false,
    });
}

/// A refusal for want of a slot with one more live, in the log and in the reply.
fn more_live(folder: &mut Folder) {
    let more = |outcome: &mut Result<_, Refusal>| match outcome {
        Err(Refusal::Reserve(reserve::Refusal::NoSlot { live, .. })) => {
            *live += 1;
            true
        }
        _ => false,
    };
    folder.ledger(|told, frame| {
        let Announcement::Committed { replies, .. } = told else { return false };
        let reply = replies.iter_mut().any(|reply| match reply {
            Reply::Decided(decision) => more(&mut decision.outcome),
            _ => false,
        });
        let records = frame.iter_mut().flat_map(|frame| &mut frame.records);
        reply
            && records.map(|record| &mut record.event).any(|event| match event {
                Event::Effect(effect::Event::Decided { outcome, .. }) => more(outcome),
                _ => false,
            })
    });
}

const FORGED: [(&str, Forge, &str); 46] = [
    ("a unit's cap lower than what was reserved", |f| cap(f, Level::Unit, 1), "caps"),
    ("a run's cap lower", |f| cap(f, Level::Run, 1), "caps"),
    ("a user's day's cap lower", |f| cap(f, Level::UserDay, 1), "caps"),
    ("the ledger's day's cap lower", |f| cap(f, Level::LedgerDay, 1), "caps"),
    ("a setting that nobody asked for", |f| cap(f, Level::Unit, 99_999_999), "commands"),
    ("a ledger set up with a higher cap", |f| cap(f, Level::LedgerDay, 99_999_999_999), "terms"),
    (
        "fewer slots",
        |f| {
            event(f, |event| match event {
                Event::Reserve(reserve::Event::SlotsSet { slots, .. }) => {
                    *slots = 0;
                    true
                }
                _ => false,
            })
        },
        "slots",
    ),
    (
        "fewer slots than calls on the wire",
        |f| {
            event(f, |event| match event {
                Event::Reserve(reserve::Event::SlotsSet { slots, .. }) => {
                    *slots = 0;
                    true
                }
                _ => false,
            })
        },
        "live-calls",
    ),
    (
        "a smaller quota",
        |f| {
            event(f, |event| match event {
                Event::Admit(admit::Event::QuotaSet { quota: Some(quota), .. }) => {
                    quota.runs_per_day = 0;
                    true
                }
                _ => false,
            })
        },
        "quota",
    ),
    (
        "a poorer quota",
        |f| {
            event(f, |event| match event {
                Event::Admit(admit::Event::QuotaSet { quota: Some(quota), .. }) => {
                    quota.micro_usd_per_day = MicroUsd(1);
                    true
                }
                _ => false,
            })
        },
        "quota",
    ),
    (
        "a halt over everything",
        |f| {
            event(f, |event| match event {
                Event::Admit(set @ admit::Event::QuotaSet { .. }) => {
                    *set = admit::Event::HaltSet { tenant: kernel::id::TenantId(1), switch: admit::Switch::Halted };
                    true
                }
                _ => false,
            })
        },
        "halt",
    ),
    (
        "a run that is said to be halted, and nobody had halted",
        |f| {
            event(f, |event| match event {
                Event::Run(run::Event::Ended { outcome: outcome @ Ending::Complete, .. }) => {
                    *outcome = Ending::Halted(HaltReason::Owner);
                    true
                }
                _ => false,
            })
        },
        "halt",
    ),
    (
        "a settlement dearer than its usage",
        |f| {
            settled(f, |event| {
                if let reserve::Event::Settled { cost, .. } = event {
                    cost.0 += 1
                }
            })
        },
        "price",
    ),
    (
        "an overrun that was none",
        |f| {
            settled(f, |event| {
                if let reserve::Event::Settled { overrun, .. } = event {
                    overrun.0 += 1
                }
            })
        },
        "price",
    ),
    (
        "a settlement for other usage",
        |f| {
            settled(f, |event| {
                if let reserve::Event::Settled { usage, .. } = event {
                    usage.input_tokens += 1
                }
            })
        },
        "invoice",
    ),
    (
        "a reservation that ends twice",
        |f| {
            let mut first = None;
            event(f, |event| match (event, first) {
                (Event::Reserve(reserve::Event::Settled { reservation, .. }), None) => {
                    first = Some(*reservation);
                    false
                }
                (Event::Reserve(reserve::Event::Settled { reservation, .. }), Some(first)) => {
                    *reservation = first;
                    true
                }
                _ => false,
            });
        },
        "ends-once",
    ),
    (
        "a reservation left open at its run's end",
        |f| {
            let mut first = None;
            event(f, |event| match (event, first) {
                (Event::Reserve(reserve::Event::Settled { reservation, .. }), None) => {
                    first = Some(*reservation);
                    false
                }
                (Event::Reserve(reserve::Event::Settled { reservation, .. }), Some(first)) => {
                    *reservation = first;
                    true
                }
                _ => false,
            });
        },
        "none-open",
    ),
    (
        "a reservation under another price",
        |f| {
            event(f, |event| match event {
                Event::Reserve(reserve::Event::Reserved { price, .. }) => {
                    price.input_per_mtok += 1;
                    true
                }
                _ => false,
            })
        },
        "ends-once",
    ),
    (
        "a reservation in another day",
        |f| {
            event(f, |event| match event {
                Event::Reserve(reserve::Event::Reserved { day, .. }) => {
                    *day += 1;
                    true
                }
                _ => false,
            })
        },
        "ends-once",
    ),
    (
        "a reservation for work that nobody has",
        |f| {
            event(f, |event| match event {
                Event::Reserve(reserve::Event::Reserved { unit, .. }) => {
                    unit.0 += 5_000;
                    true
                }
                _ => false,
            })
        },
        "work",
    ),
    (
        "a write under another fence",
        |f| {
            record(f, |record| match (&record.event, &mut record.origin) {
                (Event::Run(run::Event::AttemptEnded { .. }), Some(origin)) => {
                    origin.fence.0 += 1;
                    true
                }
                _ => false,
            })
        },
        "one-writer",
    ),
    (
        "a write by another executor",
        |f| {
            record(f, |record| match (&record.event, &mut record.origin) {
                (Event::Run(run::Event::AttemptEnded { .. }), Some(origin)) => {
                    origin.executor.0 += 1;
                    true
                }
                _ => false,
            })
        },
        "one-writer",
    ),
    (
        "a fence granted again",
        |f| {
            event(f, |event| match event {
                Event::Lease(lease::Event::Granted { fence, .. }) if *fence > Fence(1) => {
                    *fence = Fence(1);
                    true
                }
                _ => false,
            })
        },
        "one-writer",
    ),
    (
        "a lease granted in the past",
        |f| {
            event(f, |event| match event {
                Event::Lease(lease::Event::Granted { until, .. }) => {
                    until.0 = 0;
                    true
                }
                _ => false,
            })
        },
        "lease-terms",
    ),
    (
        "a lease that expires before its end",
        |f| {
            event(f, |event| match event {
                Event::Lease(lease::Event::Renewed { until, .. } | lease::Event::Granted { until, .. }) => {
                    until.0 += 3_600_000_000_000;
                    true
                }
                _ => false,
            })
        },
        "lease-terms",
    ),
    ("a waiter whom all others pass", turns::passed_by_all, "turns"),
    ("an attempt that failed and was settled", |f| ended(f, AttemptState::Succeeded, AttemptState::Failed), "arms"),
    (
        "an unknown outcome of an answered call",
        |f| ended(f, AttemptState::Succeeded, AttemptState::Indeterminate),
        "unknown-has-cause",
    ),
    (
        "an attempt out of turn",
        |f| {
            event(f, |event| match event {
                Event::Run(run::Event::AttemptStarted { attempt, .. }) => {
                    *attempt += 1;
                    true
                }
                _ => false,
            })
        },
        "arms",
    ),
    (
        "another ending",
        |f| {
            event(f, |event| match event {
                Event::Run(run::Event::Ended { outcome, .. }) if *outcome == Ending::Complete => {
                    *outcome = Ending::Incomplete;
                    true
                }
                _ => false,
            })
        },
        "runs-end",
    ),
    (
        "a run that has not ended",
        |f| {
            event(f, |event| match event {
                Event::Run(set @ run::Event::Ended { .. }) => {
                    let run = set.run();
                    *set = run::Event::AttemptEnded {
                        run,
                        unit: kernel::id::UnitId(0),
                        attempt: 1,
                        state: AttemptState::Succeeded,
                    };
                    true
                }
                _ => false,
            })
        },
        "runs-end",
    ),
    (
        "another class",
        |f| {
            record(f, |record| {
                record.class = Class::Mergeable;
                true
            })
        },
        "class",
    ),
    (
        "another tenant",
        |f| {
            record(f, |record| {
                record.tenant.0 += 1;
                true
            })
        },
        "class",
    ),
    (
        "a gap in a run's own order",
        |f| {
            record(f, |record| match &mut record.origin {
                Some(origin) if origin.lsn == 2 => {
                    origin.lsn = 3;
                    true
                }
                _ => false,
            })
        },
        "lsn",
    ),
    (
        "ledger time that runs ahead",
        |f| {
            f.ledger(|_, frame| match frame {
                Some(frame) if frame.records[0].seq > 100 => {
                    frame.time.0 += 1;
                    frame.records.iter_mut().for_each(|record| record.time.0 += 1);
                    true
                }
                _ => false,
            })
        },
        "ledger-time",
    ),
    (
        "a request decided twice",
        |f| {
            let mut first = None;
            event(f, |event| match (event, first) {
                (Event::Effect(effect::Event::Decided { client, incarnation, number, .. }), None) => {
                    first = Some((*client, *incarnation, *number));
                    false
                }
                (Event::Effect(effect::Event::Decided { client, incarnation, number, .. }), Some((of, life, one)))
                    if (*client, *incarnation) == (of, life) && *number > one =>
                {
                    *number = one;
                    true
                }
                _ => false,
            });
        },
        "decided-once",
    ),
    (
        "a reply that was not decided",
        |f| {
            f.replies(|reply| match reply {
                Reply::Decided(decision) if decision.seq > 50 => {
                    decision.seq += 1;
                    true
                }
                _ => false,
            })
        },
        "replies",
    ),
    (
        "an extra reply",
        |f| {
            f.facts(|fact| match fact {
                Fact::LetGo { .. } => {
                    *fact = Fact::ActedOn { client: kernel::id::ClientId(5), incarnation: 0, number: 9_999, seq: 3 };
                    true
                }
                _ => false,
            })
        },
        "acted-on",
    ),
    (
        "a reply acted on twice",
        |f| {
            let mut first = None;
            f.facts(|fact| match (&fact, &first) {
                (Fact::ActedOn { .. }, None) => {
                    first = Some(fact.clone());
                    false
                }
                (Fact::LetGo { .. }, Some(acted)) => {
                    *fact = acted.clone();
                    true
                }
                _ => false,
            });
        },
        "acted-on",
    ),
    ("a refusal with other numbers", more_live, "answers"),
    (
        "an opening at another chain",
        |f| {
            f.ledger(|told, _| match told {
                Announcement::Opened { next_seq, .. } if *next_seq > 0 => {
                    *next_seq += 1;
                    true
                }
                _ => false,
            })
        },
        "announced",
    ),
    (
        "a request for something else",
        |f| {
            f.ledger(|told, _| match told {
                Announcement::Committed { submitted, .. } => {
                    submitted.iter_mut().flat_map(|asked| &mut asked.request.commands).any(|command| match command {
                        Command::Effect(effect::Command::Begin { worst, .. }) => {
                            worst.0 += 1;
                            true
                        }
                        _ => false,
                    })
                }
                _ => false,
            })
        },
        "commands",
    ),
    (
        "a dispatch of what was not intended",
        |f| {
            event(f, |event| match event {
                Event::Effect(effect::Event::Dispatched { intent }) => {
                    intent.0 += 1;
                    true
                }
                _ => false,
            })
        },
        "arms",
    ),
    (
        "a call under another key",
        |f| {
            event(f, |event| match event {
                Event::Effect(effect::Event::Intended { key: Some(key), .. }) => {
                    key.0[0] ^= 1;
                    true
                }
                _ => false,
            })
        },
        "commands",
    ),
    (
        "a response that nobody gave",
        |f| {
            event(f, |event| match event {
                Event::Effect(effect::Event::Committed { response, .. }) => {
                    response.0[0] ^= 1;
                    true
                }
                _ => false,
            })
        },
        "commands",
    ),
    (
        "a broken ledger",
        |f| {
            f.ledger(|told, frame| match told {
                Announcement::Opened { next_seq, .. } if *next_seq > 0 => {
                    (*told, *frame) = (Announcement::Broke { why: "no".to_owned() }, None);
                    true
                }
                _ => false,
            })
        },
        "head",
    ),
];

const CLAIMED: [(&str, Forge, &str); 12] = [
    ("a table that opened otherwise", |f| f.result["tables_at_rest"][5]["opened"] = "0".repeat(64).into(), "tables"),
    (
        "tables of another log",
        |f| {
            for how in ["opened", "rebuilt"] {
                f.result["tables_at_rest"][9][how] = f.result["tables_at_rest"][8][how].clone();
            }
        },
        "tables",
    ),
    (
        "a lease that was never granted",
        |f| {
            f.facts(|fact| match fact {
                Fact::Holds { fence, .. } => {
                    fence.0 += 99;
                    true
                }
                _ => false,
            })
        },
        "believed-holders",
    ),
    (
        "a call under a fence that was never granted",
        |f| {
            f.facts(|fact| match fact {
                Fact::CallSent { fence, .. } => {
                    fence.0 += 99;
                    true
                }
                _ => false,
            })
        },
        "believed-holders",
    ),
    (
        "a call for another unit",
        |f| {
            f.facts(|fact| match fact {
                Fact::CallSent { unit, .. } => {
                    unit.0 += 1;
                    true
                }
                _ => false,
            })
        },
        "calls",
    ),
    (
        "a call that leaves undispatched",
        |f| {
            f.facts(|fact| match fact {
                Fact::CallSent { key, .. } => {
                    key.0 += 1;
                    true
                }
                _ => false,
            })
        },
        "calls",
    ),
    (
        "an answer to another question",
        |f| {
            f.facts(|fact| match *fact {
                Fact::CallSent { tenant, run, unit, key, .. } => {
                    *fact = Fact::Misled { tenant, run, unit, source: key };
                    true
                }
                _ => false,
            })
        },
        "calls",
    ),
    (
        "a call charged twice",
        |f| {
            let mut first = None;
            f.facts(|fact| match (&fact, &first) {
                (Fact::Charged { .. }, None) => {
                    first = Some(fact.clone());
                    false
                }
                (Fact::Repeated { .. }, Some(charged)) => {
                    *fact = charged.clone();
                    true
                }
                _ => false,
            });
        },
        "calls",
    ),
    (
        "a call charged more",
        |f| {
            f.facts(|fact| match fact {
                Fact::Charged { cost, .. } => {
                    cost.0 += 1;
                    true
                }
                _ => false,
            })
        },
        "calls",
    ),
    (
        "an invoice for other usage",
        |f| {
            f.facts(|fact| match fact {
                Fact::Charged { usage, .. } => {
                    usage.output_tokens += 1;
                    true
                }
                _ => false,
            })
        },
        "invoice",
    ),
    (
        "a charge for what was turned away and released",
        |f| {
            f.facts(|fact| match *fact {
                Fact::TurnedAway { key, answered } if answered != Answered::NeverLanded => {
                    *fact = Fact::Charged { key, usage: kernel::money::Usage::default(), cost: MicroUsd(0) };
                    true
                }
                _ => false,
            })
        },
        "released-uncharged",
    ),
    (
        "another ending claimed",
        |f| {
            f.facts(|fact| match fact {
                Fact::RunOver { ending, .. } => {
                    *ending = Ending::Halted(HaltReason::Owner);
                    true
                }
                _ => false,
            })
        },
        "runs-end",
    ),
];

/// Forges a sound folder in each way, and gives the rules that found them; each has to be found by its own.
#[track_caller]
fn found(
    sound: &Folder,
    forgeries: impl IntoIterator<Item = (&'static str, Forge, &'static str)>,
) -> BTreeSet<&'static str> {
    let mut fired: BTreeSet<&str> = BTreeSet::new();
    let mut silent = Vec::new();
    for (what, forge, rule) in forgeries {
        let mut folder = sound.clone();
        forge(&mut folder);
        let checked = folder.check().unwrap_or_else(|error| panic!("{what}: {error}"));
        let failed: Vec<&Check> = checked.checks.iter().filter(|check| check.status == Status::Failed).collect();
        for outer in ["history-hash", "capsule", "agreement", "content-hash", "chain", "log-lines", "numbering"] {
            assert!(
                !failed.iter().any(|check| check.name == outer),
                "{what}: the forgery itself is botched: {failed:?}"
            );
        }
        if !failed.iter().any(|check| check.name == rule) {
            silent
                .push(format!("{what}: {rule} holds; {:?}", failed.iter().map(|check| check.name).collect::<Vec<_>>()));
        }
        fired.insert(rule);
    }
    assert!(silent.is_empty(), "{}", silent.join("\n"));
    fired
}

#[test]
fn the_thorough_forger_is_found_by_what_the_run_says_of_itself() {
    let mut fired = found(&SOUND, FORGED.into_iter().chain(CLAIMED));
    fired.extend(found(&orders::SOUND, orders::FORGED));
    fired.extend(crate::ceilings::FORGED.map(|(_, _, rule)| rule));
    let of_the_run = SOUND.check().expect("it can be checked").checks.into_iter().map(|check| check.name);
    let outer =
        ["capsule", "agreement", "history-hash", "history-entries", "log-lines", "numbering", "content-hash", "chain"];
    let words = ["figures", "verdict"];
    let unfired: Vec<&str> =
        of_the_run.filter(|name| !fired.contains(name) && !outer.contains(name) && !words.contains(name)).collect();
    assert!(unfired.is_empty(), "no forgery is found by {unfired:?}: a rule that cannot fail says nothing");
}

/// A forgery that changes nothing is none: the bench itself leaves no trace.
#[test]
fn a_run_told_again_as_it_was_holds_up() {
    let mut folder = SOUND.clone();
    let told = folder.told();
    folder.retell(told);
    assert_eq!((&folder.history, &folder.log, &folder.capsule), (&SOUND.history, &SOUND.log, &SOUND.capsule));
    assert_eq!(folder.broken(), Vec::<&str>::new());
}
