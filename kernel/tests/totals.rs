//! Totals (langfuse#14754): parents counted their children twice, and hits of a cache were charged. Here every level's total is
//! the sum of its own unique settlements, whatever was reported again, and an answer that was paid for before is free.

#![allow(clippy::unwrap_used)] // what a test cannot go on without, it panics for

mod house;

use house::*;
use kernel::{
    effect::{self, Class},
    id::{ReservationId, RunId, UnitId},
    lease::{Authority, Lock},
    planted::Planted,
    request::{Answer, Command, Outcome, Query, Refusal, Reply},
    reserve::Account,
    run::{self, AttemptState},
};
use std::collections::BTreeMap;

fn settled(house: &House, account: Account) -> u64 {
    match house.ledger.query(&Query::Account(account)) {
        Answer::Account { settled, live, .. } => {
            assert_eq!(live.0, 0, "{account:?}");
            settled.0
        }
        other => panic!("{other:?}"),
    }
}

fn report(run: RunId, unit: u32, intent: ReservationId, tokens: u64) -> Vec<Command> {
    let (unit, attempt, state) = (UnitId(unit), 1, AttemptState::Succeeded);
    let end = Command::Run(run::Command::EndAttempt { run, unit, attempt, state });
    vec![commit(intent, b"yes"), settle(intent, tokens), end]
}

/// Asks a question in a run, reports what it used three times over, and gives what was paid: nothing for a hit.
fn ask_and_report(house: &mut House, held: Authority, run: RunId, unit: u32, question: u8, tokens: u64) -> u64 {
    let begun = house.ok(Some(held), vec![begin_in(run, unit, 1, IDEMPOTENT, question, tokens + 1)]);
    let intent = match begun[..] {
        [Outcome::Effect(effect::Outcome::Recalled { .. })] => return 0,
        [Outcome::Effect(effect::Outcome::Begun(intent))] => intent,
        _ => panic!("{begun:?}"),
    };
    house.ok(Some(held), vec![dispatch(intent)]);
    let once = house.next(Some(held), report(run, unit, intent, tokens));
    let first = house.one(once.clone());
    assert!(matches!(&first, Reply::Decided(decision) if decision.outcome.is_ok()), "{first:?}");
    assert_eq!(house.one(once), first, "a repeat is answered as it was");
    let anew = house.no(Some(held), report(run, unit, intent, tokens));
    assert!(matches!(anew, Refusal::Effect(effect::Refusal::UnknownIntent { .. })), "{anew:?}");
    tokens
}

#[test]
fn every_level_counts_each_settlement_once_and_a_hit_is_free() {
    assert_eq!(Class::ALL[0], Class::Idempotent);
    let mut house = House::with_tools(Planted::none());
    let (mut by_account, mut hits) = (BTreeMap::<Account, u64>::new(), 0);
    for nth in 1..=5u8 {
        let run = RunId(nth.into());
        house.ok(None, vec![spawn(run)]);
        let held = house.acquire(Lock::Run(TENANT, run), 5, 1_000_000);
        // One question that every run asks, one that this and the next ask, and one of its own; each costs something else.
        for (unit, question) in [(1, 200), (2, 100 + nth / 2), (3, nth)] {
            let tokens = 7 * u64::from(nth) + u64::from(unit);
            let paid = ask_and_report(&mut house, held, run, unit, question, tokens);
            hits += u32::from(paid == 0);
            let of_unit = Account::Unit(TENANT, run, UnitId(unit));
            for account in
                [of_unit, Account::Run(TENANT, run), Account::UserDay(TENANT, USER, 0), Account::LedgerDay(0)]
            {
                *by_account.entry(account).or_default() += paid;
            }
        }
    }
    assert_eq!(hits, 4 + 2);
    for (account, total) in &by_account {
        assert_eq!(settled(&house, *account), *total, "{account:?}");
    }
    house.reopen(Planted::none());
    for (account, total) in &by_account {
        assert_eq!(settled(&house, *account), *total, "{account:?}, rebuilt");
    }
}
