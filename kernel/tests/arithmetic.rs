//! The arithmetic's edges: nothing, everything, and sums on either side of what 64 bits hold. Each is a typed outcome, and what
//! is refused leaves every table as it was but for the decision itself.

#![allow(clippy::unwrap_used)] // what a test cannot go on without, it panics for

mod house;

use house::*;
use kernel::{
    admit,
    id::{DAY_NS, ReservationId, RunId, TenantId, UnitId},
    lease::{Authority, Lock},
    money::{MicroUsd, Price, Usage},
    planted::Planted,
    request::{Answer, Command, Outcome, Query, Refusal},
    reserve::{self, Account, Level},
    run::AttemptState,
};
use proptest::prelude::*;

const MOST: u64 = u64::MAX;

/// The tables that a decision is recorded in whatever it is: the head of the log, and what was decided.
const OF_EVERY_DECISION: [&str; 3] = ["record.head", "effect.clients", "effect.answers"];

/// Asks, and sees to it that a refusal touches nothing but what records it.
fn ask(house: &mut House, authority: Authority, commands: Vec<Command>) -> Result<Vec<Outcome>, Refusal> {
    let tables = |house: &House| -> Vec<_> {
        let all = house.ledger.tables().into_iter();
        all.filter(|table| !OF_EVERY_DECISION.contains(&table.name)).map(|table| (table.name, table.hash)).collect()
    };
    let before = tables(house);
    let said = house.ask(Some(authority), commands);
    if said.is_err() {
        let after = tables(house);
        let changed: Vec<&str> =
            before.iter().zip(&after).filter(|(one, other)| one != other).map(|(one, _)| one.0).collect();
        assert!(changed.is_empty(), "{said:?} left something behind in {changed:?}");
    }
    said
}

fn settle_for(reservation: ReservationId, usage: Usage) -> Command {
    Command::Reserve(reserve::Command::Settle { reservation, usage })
}

fn account(house: &House, account: Account) -> (u64, u64) {
    match house.ledger.query(&Query::Account(account)) {
        Answer::Account { settled, live, .. } => (settled.0, live.0),
        other => panic!("{other:?}"),
    }
}

fn over(level: Level, of: Account, cap: u64, settled: u64, live: u64, asked: u64) -> Refusal {
    let [cap, settled, live, asked] = [cap, settled, live, asked].map(MicroUsd);
    reserve::Refusal::OverCap { level, account: of, cap, settled, live, asked }.into()
}

const RUN_ACCOUNT: Account = Account::Run(TENANT, RUN);

fn unit(unit: u32) -> Account {
    Account::Unit(TENANT, RUN, UnitId(unit))
}

#[test]
fn nothing_everything_and_a_cap_of_nothing() {
    let (mut house, held) = House::with(genesis(MOST, MOST, MOST, MOST, 10), Planted::none()).running();
    assert_eq!(ask(&mut house, held, vec![reserve(1, 1, 0)]), Err(reserve::Refusal::Nothing.into()));
    // All there is fits under the highest cap, and then not one more: the lowest exhausted level is named, not an overflow.
    let all = house.reserve(held, 1, 1, MOST);
    assert_eq!(ask(&mut house, held, vec![reserve(2, 1, 1)]), Err(over(Level::Run, RUN_ACCOUNT, MOST, 0, MOST, 1)));
    assert_eq!(
        ask(&mut house, held, vec![reserve(2, 1, MOST)]),
        Err(over(Level::Run, RUN_ACCOUNT, MOST, 0, MOST, MOST))
    );
    house.ok(Some(held), vec![release(all), end_attempt(1, 1, AttemptState::Failed)]);
    // A cap of nothing admits nothing, and what is asked for past any sum is still refused by that cap.
    let owner = house.acquire(Lock::Owner, 8, 1_000_000);
    house.ok(Some(owner), vec![cap(TENANT, Level::Unit, 0)]);
    for asked in [1, MOST] {
        assert_eq!(ask(&mut house, held, vec![reserve(3, 1, asked)]), Err(over(Level::Unit, unit(3), 0, 0, 0, asked)));
    }
    // Usage of nothing costs nothing, and is a settlement.
    house.ok(Some(owner), vec![cap(TENANT, Level::Unit, 5)]);
    let free = house.reserve(held, 4, 1, 5);
    let said = house.ok(Some(held), vec![settle(free, 0), end_attempt(4, 1, AttemptState::Succeeded)]);
    let nothing = reserve::Outcome::Settled { cost: MicroUsd::ZERO, overrun: MicroUsd::ZERO };
    assert_eq!(said[0], Outcome::Reserve(nothing));
    assert_eq!(account(&house, RUN_ACCOUNT), (0, 0));
    house.reopen(Planted::none());
}

#[test]
fn a_settlement_past_what_can_be_counted_is_refused_and_stays_open() {
    let (mut house, held) = House::with(genesis(MOST, MOST, MOST, MOST, 10), Planted::none()).running();
    let first = house.reserve(held, 1, 1, MOST - 1);
    let second = house.reserve(held, 2, 1, 1);
    let dear = settle_for(first, Usage { input_tokens: MOST, output_tokens: MOST });
    let by_itself = reserve::Refusal::TooMuch { account: unit(1), settled: MicroUsd(0), asked: None };
    assert_eq!(ask(&mut house, held, vec![dear]), Err(by_itself.into()));
    // Above its reservation by one, up to the last micro-USD there is.
    let said = house.ok(Some(held), vec![settle(first, MOST), end_attempt(1, 1, AttemptState::Succeeded)]);
    let overrun = reserve::Outcome::Settled { cost: MicroUsd(MOST), overrun: MicroUsd(1) };
    assert_eq!(said[0], Outcome::Reserve(overrun));
    let full = reserve::Refusal::TooMuch { account: RUN_ACCOUNT, settled: MicroUsd(MOST), asked: Some(MicroUsd(1)) };
    let ends = || vec![settle(second, 1), end_attempt(2, 1, AttemptState::Succeeded)];
    assert_eq!(ask(&mut house, held, ends()), Err(full.into()));
    assert_eq!(account(&house, Account::LedgerDay(0)), (MOST, 1));
    // It can still end at no cost, and the sums can still be gone through.
    house.ok(Some(held), vec![settle(second, 0), end_attempt(2, 1, AttemptState::Succeeded)]);
    assert_eq!(account(&house, Account::LedgerDay(0)), (MOST, 0));
    house.reopen(Planted::none());
}

#[test]
fn an_overrun_counts_against_every_cap_from_then_on() {
    for level in Level::ALL {
        let caps = Level::ALL.map(|of| if of == level { 100 } else { 1_000 });
        let [of_unit, of_run, of_user, of_ledger] = caps;
        let (mut house, held) =
            House::with(genesis(of_unit, of_run, of_user, of_ledger, 10), Planted::none()).running();
        let call = house.reserve(held, 1, 1, 40);
        // The next would fit beside what was set aside, and beside what was used it does not.
        let failed = || end_attempt(1, 1, AttemptState::Failed);
        if level == Level::Unit {
            // Another attempt of the same unit comes only after one that came to nothing: there is none after a settlement.
            house.ok(Some(held), vec![settle(call, 101), end_attempt(1, 1, AttemptState::Succeeded)]);
            assert_eq!(account(&house, unit(1)), (101, 0));
            assert!(matches!(
                ask(&mut house, held, vec![reserve(1, 2, 1)]),
                Err(Refusal::Reserve(reserve::Refusal::WrongAttempt { next: None, .. }))
            ));
            assert!(ask(&mut house, held, vec![failed()]).is_err());
            continue;
        }
        let outcomes = house.ok(Some(held), vec![settle(call, 70), end_attempt(1, 1, AttemptState::Succeeded)]);
        let settled = reserve::Outcome::Settled { cost: MicroUsd(70), overrun: MicroUsd(30) };
        assert_eq!(outcomes[0], Outcome::Reserve(settled));
        let of = match level {
            Level::Run | Level::Unit => RUN_ACCOUNT,
            Level::UserDay => Account::UserDay(TENANT, USER, 0),
            Level::LedgerDay => Account::LedgerDay(0),
        };
        assert_eq!(ask(&mut house, held, vec![reserve(2, 1, 31)]), Err(over(level, of, 100, 70, 0, 31)), "{level:?}");
        house.reserve(held, 2, 1, 30); // and lands on the cap
    }
}

#[test]
fn a_cap_lowered_below_what_is_committed_rewrites_nothing_and_can_be_raised_again() {
    let (mut house, held) = House::new().running();
    let owner = house.acquire(Lock::Owner, 8, 1_000_000);
    for (level, tenant, of) in [
        (Level::Run, TENANT, RUN_ACCOUNT),
        (Level::UserDay, TENANT, Account::UserDay(TENANT, USER, 0)),
        (Level::LedgerDay, TenantId::LEDGER, Account::LedgerDay(0)),
    ] {
        let (_, before) = account(&house, of);
        let name = 10 + Level::ALL.iter().position(|known| *known == level).unwrap() as u32;
        let live = house.reserve(held, name, 1, 100);
        house.ok(Some(owner), vec![cap(tenant, level, 40)]);
        let refused = ask(&mut house, held, vec![reserve(name + 10, 1, 1)]);
        assert_eq!(refused, Err(over(level, of, 40, 0, before + 100, 1)));
        assert_eq!(account(&house, of), (0, before + 100));
        house.ok(Some(owner), vec![cap(tenant, level, 1_000_000)]);
        house.ok(Some(held), vec![release(live), end_attempt(name, 1, AttemptState::Failed)]);
    }
}

#[test]
fn quotas_at_nothing_and_at_the_most() {
    let mut house = House::with(genesis(MOST, MOST, MOST, MOST, 10), Planted::none());
    let owner = house.acquire(Lock::Owner, 8, 1_000_000);
    let run = |at: u64| RunId(900 + at);
    for (runs, dollars, depth, expect) in [
        (0, MOST, 9, Some("TooManyRuns")),
        (9, 0, 9, Some("TooDear")),
        (9, MOST, 0, Some("TooDeep")),
        (u32::MAX, MOST, u8::MAX, None),
    ] {
        house.ok(Some(owner), vec![quota(None, runs, dollars, depth)]);
        let before = house.ledger.query(&Query::Admission(TENANT, USER));
        let said = ask(&mut house, owner, vec![spawn(run(u64::from(runs % 7)))]).err();
        let name = said.as_ref().map(|refusal| format!("{refusal:?}"));
        assert_eq!(name.is_some(), expect.is_some(), "{name:?}");
        assert!(name.is_none_or(|name| expect.is_some_and(|expect| name.contains(expect))), "{said:?}");
        if expect.is_some() {
            assert_eq!(before, house.ledger.query(&Query::Admission(TENANT, USER)));
        }
    }
    // A user whose day is full to the last micro-USD is asked for more than any sum holds.
    let (mut house, held) = House::with(genesis(MOST, MOST, MOST, MOST, 10), Planted::none()).running();
    let owner = house.acquire(Lock::Owner, 8, 1_000_000);
    house.ok(Some(owner), vec![quota(None, 9, MOST, 9)]);
    house.reserve(held, 1, 1, MOST);
    let said = ask(&mut house, held, vec![reserve(2, 1, MOST)]);
    let (limit, settled, live, asked) = (MicroUsd(MOST), MicroUsd(0), MicroUsd(MOST), MicroUsd(MOST));
    let too_dear = admit::Refusal::TooDear { user: USER, day: 0, limit, settled, live, asked };
    assert_eq!(said, Err(too_dear.into()));
}

#[test]
fn a_refusal_says_the_ceiling_the_limit_what_is_asked_for_and_what_is_left() {
    let [cap, settled, live, asked] = [100, 30, 50, 21].map(MicroUsd);
    let (user, day) = (USER, 4);
    let too_much = |asked| reserve::Refusal::TooMuch { account: RUN_ACCOUNT, settled: MicroUsd(MOST - 2), asked };
    let over_cap = reserve::Refusal::OverCap { level: Level::Run, account: RUN_ACCOUNT, cap, settled, live, asked };
    let past = reserve::Refusal::OverCap {
        level: Level::Run,
        account: RUN_ACCOUNT,
        cap,
        settled: MicroUsd(MOST),
        live: MicroUsd(MOST),
        asked,
    };
    let all: [(Refusal, &[&str]); 8] = [
        (over_cap.into(), &["Run", "0.000100", "leave 0.000020", "0.000021 USD is asked for"]),
        (past.into(), &["leave 0.000000"]),
        (reserve::Refusal::NoSlot { user, live: 3, slots: 3 }.into(), &["3 live", "of 3", "leave 0 for one more"]),
        (reserve::Refusal::NoSlot { user, live: 3, slots: 1 }.into(), &["leave 0 for one more"]),
        (
            reserve::Refusal::NoCap { level: Level::Unit, tenant: TENANT, asked }.into(),
            &["no Unit cap", "0.000021 USD is asked for"],
        ),
        (too_much(Some(asked)).into(), &["leaves 0.000002", "0.000021 USD is to be settled"]),
        (too_much(None).into(), &["more than that by itself"]),
        (
            admit::Refusal::TooDear { user, day, limit: cap, settled, live, asked }.into(),
            &["0.000100", "day 4", "leave 0.000020", "0.000021 USD is asked for"],
        ),
    ];
    for (refusal, parts) in all {
        let said = refusal.to_string();
        for part in parts {
            assert!(said.contains(part), "{said} does not say {part}");
        }
    }
    let many = admit::Refusal::TooManyRuns { user, day, limit: 5, taken: 5 }.to_string();
    assert!(many.contains("5 runs of 5") && many.contains("leave 0 for one more"), "{many}");
}

/// An amount, often at an edge.
fn amount() -> impl Strategy<Value = u64> {
    let edges = [0, 1, 2, MOST / 2, MOST / 2 + 1, MOST - 2, MOST - 1, MOST];
    prop_oneof![4 => prop::sample::select(edges.to_vec()), 1 => any::<u64>(), 1 => 0..100u64]
}

/// A step of a run at the edge.
#[derive(Clone, Debug)]
enum Step {
    Cap(usize, u64),
    Reserve(u64),
    Settle(usize, u64, u64),
    Release(usize),
    NextDay,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (0..4usize, amount()).prop_map(|(level, cap)| Step::Cap(level, cap)),
        4 => amount().prop_map(Step::Reserve),
        3 => (0..4usize, amount(), amount()).prop_map(|(which, input, output)| Step::Settle(which, input, output)),
        1 => (0..4usize).prop_map(Step::Release),
        1 => Just(Step::NextDay),
    ]
}

/// The same arithmetic in 128 bits, where nothing here overflows.
#[derive(Default)]
struct Wide {
    caps: [u64; 4],
    sums: std::collections::BTreeMap<Account, (u128, u128)>,
    open: Vec<(u32, ReservationId, [Account; 4], u64)>,
}

impl Wide {
    fn sums(&self, of: Account) -> (u128, u128) {
        self.sums.get(&of).copied().unwrap_or_default()
    }

    fn first_over(&self, accounts: &[Account; 4], asked: u64) -> Option<Account> {
        let is_over = |(account, cap): &(&Account, &u64)| {
            let (settled, live) = self.sums(**account);
            settled + live + u128::from(asked) > u128::from(**cap)
        };
        accounts.iter().zip(&self.caps).find(is_over).map(|(account, _)| *account)
    }

    /// What usage costs, in 256 bits of two halves: the price a million tokens, and the remainder.
    fn cost(price: &Price, input: u64, output: u64) -> Option<u128> {
        let part = |tokens: u64, per_mtok: u64| {
            let exact = u128::from(tokens) * u128::from(per_mtok);
            (exact / 1_000_000, exact % 1_000_000)
        };
        let ((a, b), (c, d)) = (part(input, price.input_per_mtok), part(output, price.output_per_mtok));
        Some(a + c + (b + d).div_ceil(1_000_000)).filter(|cost| *cost <= u128::from(MOST))
    }
}

/// A run at the edge, and the same in wider arithmetic.
struct Pair {
    house: House,
    held: Authority,
    owner: Authority,
    price: Price,
    wide: Wide,
    next: u32,
    day: u32,
}

impl Pair {
    fn new(caps: [u64; 4], price: Price) -> Pair {
        let mut all = genesis(caps[0], caps[1], caps[2], caps[3], 1_000);
        all.push(Command::Reserve(reserve::Command::SetPrice(price)));
        let (mut house, held) = House::with(all, Planted::none()).running();
        let owner = house.acquire(Lock::Owner, 8, MOST);
        assert_eq!(house.acquire(LOCK, 5, MOST), held); // for as many days as there are
        Pair { house, held, owner, price, wide: Wide { caps, ..Wide::default() }, next: 0, day: 0 }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::NextDay => {
                self.house.tick(DAY_NS);
                self.day += 1;
            }
            Step::Cap(at, amount) => {
                let level = Level::ALL[at];
                let tenant = if level == Level::LedgerDay { TenantId::LEDGER } else { TENANT };
                self.house.ok(Some(self.owner), vec![cap(tenant, level, amount)]);
                self.wide.caps[at] = amount;
            }
            Step::Reserve(worst) => self.reserve(worst),
            Step::Settle(which, input_tokens, output_tokens) => {
                self.settle(which, Usage { input_tokens, output_tokens })
            }
            Step::Release(which) => {
                let Some((name, id, accounts, worst)) = self.wide.open.get(which).copied() else { return };
                self.wide.open.remove(which);
                self.house.ok(Some(self.held), vec![release(id), end_attempt(name, 1, AttemptState::Failed)]);
                for account in accounts {
                    self.wide.sums.entry(account).or_default().1 -= u128::from(worst);
                }
            }
        }
    }

    fn reserve(&mut self, worst: u64) {
        self.next += 1;
        let (next, day, wide) = (self.next, self.day, &mut self.wide);
        let accounts = [unit(next), RUN_ACCOUNT, Account::UserDay(TENANT, USER, day), Account::LedgerDay(day)];
        match (ask(&mut self.house, self.held, vec![reserve(next, 1, worst)]), wide.first_over(&accounts, worst)) {
            (Err(refusal), _) if worst == 0 => assert_eq!(refusal, reserve::Refusal::Nothing.into()),
            (Ok(outcomes), None) => {
                wide.open.push((next, reserved(&outcomes), accounts, worst));
                for account in accounts {
                    wide.sums.entry(account).or_default().1 += u128::from(worst);
                }
            }
            (Err(Refusal::Reserve(reserve::Refusal::OverCap { account, settled, live, .. })), Some(first)) => {
                let (of_wide, sums) = (wide.sums(first), (settled.0.into(), live.0.into()));
                assert_eq!((account, sums), (first, of_wide));
            }
            (said, first) => panic!("{worst}: {said:?}, and {first:?} is over"),
        }
    }

    fn settle(&mut self, which: usize, usage: Usage) {
        let wide = &mut self.wide;
        let Some(&(name, id, accounts, worst)) = wide.open.get(which) else { return };
        let cost = Wide::cost(&self.price, usage.input_tokens, usage.output_tokens);
        let fits = |account: &Account| cost.is_some_and(|cost| wide.sums(*account).0 + cost <= MOST.into());
        let first_full = accounts.iter().find(|account| !fits(account)).copied();
        let ends = vec![settle_for(id, usage), end_attempt(name, 1, AttemptState::Succeeded)];
        match (ask(&mut self.house, self.held, ends), first_full) {
            (Ok(outcomes), None) => {
                let cost = cost.unwrap();
                let said: [u128; 2] = match outcomes[0] {
                    Outcome::Reserve(reserve::Outcome::Settled { cost, overrun }) => [cost.0.into(), overrun.0.into()],
                    _ => panic!("{outcomes:?}"),
                };
                assert_eq!(said, [cost, cost.saturating_sub(worst.into())]);
                for account in accounts {
                    let sums = wide.sums.entry(account).or_default();
                    *sums = (sums.0 + cost, sums.1 - u128::from(worst));
                }
                wide.open.remove(which);
            }
            (Err(Refusal::Reserve(reserve::Refusal::TooMuch { account, asked, .. })), Some(first)) => {
                assert_eq!((account, asked.map(|asked| u128::from(asked.0))), (first, cost));
            }
            (said, first) => panic!("{usage:?}: {said:?}, and {first:?} is full"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn every_outcome_is_that_of_wider_arithmetic(
        caps in prop_oneof![prop::array::uniform4(amount()), Just([MOST; 4])],
        per_mtok in (amount(), amount()),
        steps in prop::collection::vec(step(), 1..40),
    ) {
        let price = Price { input_per_mtok: per_mtok.0, output_per_mtok: per_mtok.1, ..price() };
        let mut pair = Pair::new(caps, price);
        steps.into_iter().for_each(|step| pair.take(step));
        for (of, (settled, live)) in &pair.wide.sums {
            let (said_settled, said_live) = account(&pair.house, *of);
            prop_assert_eq!((u128::from(said_settled), u128::from(said_live)), (*settled, *live));
        }
        pair.house.reopen(Planted::none());
    }
}
