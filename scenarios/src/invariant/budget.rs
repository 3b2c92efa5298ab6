//! Money and slots: no admitted reserve passes a cap in force, each reservation ends once, and what may be left open.

use super::{Ended, Invariant, Moment, Rest, Saw};
use crate::maps::{BySeq, Lookup};
use kernel::{
    id::{ModelId, ReservationId, RunId, TenantId, UnitId, UserId},
    money::{Price, Usage},
    record::{Event, Record},
    reserve::{self, Account, Level},
    run::{self, AttemptState},
};
use std::collections::BTreeMap;

/// What `usage` costs by the documented rule: exact in 10^-12 USD, rounded up once to the next micro-USD.
pub(crate) fn cost_of(price: &Price, usage: Usage) -> Option<u64> {
    let of = |tokens: u64, per_mtok: u64| u128::from(tokens) * u128::from(per_mtok);
    let exact =
        of(usage.input_tokens, price.input_per_mtok).checked_add(of(usage.output_tokens, price.output_per_mtok))?;
    let (whole, rest) = (exact / 1_000_000, exact % 1_000_000);
    u64::try_from(whole).ok()?.checked_add(u64::from(rest > 0))
}

/// `caps-hold`: at each admitted reserve `settled + live + asked <= cap in force` at every level, and the user's live
/// reservations are within its slots. An overrun may pass a cap when it settles; it counts from then on.
#[derive(Debug, Default)]
pub struct CapsHold {
    caps: BTreeMap<(TenantId, Level), u64>,
    slots: BTreeMap<TenantId, u32>,
    accounts: Lookup<Account, usize>,
    sums: Vec<Sums>,
    live: Lookup<(TenantId, UserId), u32>,
    open: Lookup<ReservationId, Open>,
    overspends: u64,
}

/// What an account holds, in micro-USD; wide enough that no log can overflow it.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    settled: u128,
    live: u128,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    accounts: [usize; 4],
    worst: u64,
    user: (TenantId, UserId),
}

impl CapsHold {
    /// Admitted reserves so far that passed a cap in force.
    pub fn overspends(&self) -> u64 {
        self.overspends
    }

    fn fold(&mut self, record: &Record) -> Result<(), String> {
        let Event::Reserve(event) = &record.event else { return Ok(()) };
        match *event {
            reserve::Event::CapSet { tenant, level, cap } => {
                self.caps.insert((tenant, level), cap.0);
            }
            reserve::Event::SlotsSet { tenant, slots } => {
                self.slots.insert(tenant, slots);
            }
            reserve::Event::PriceSet(_) => {}
            reserve::Event::Reserved { .. } => return self.reserved(record.tenant, record.time.day(), event),
            reserve::Event::Settled { reservation, cost, .. } => self.end(reservation, cost.0),
            reserve::Event::Released { reservation, .. } => self.end(reservation, 0),
        }
        Ok(())
    }

    fn reserved(&mut self, tenant: TenantId, today: u32, event: &reserve::Event) -> Result<(), String> {
        let reserve::Event::Reserved { reservation, run, unit, user, day, worst, .. } = *event else { return Ok(()) };
        let mut held = Ok(());
        let mut broken = |message: String| {
            if held.is_ok() {
                held = Err(message);
            }
        };
        if day != today {
            broken(format!("reservation {reservation} counts in day {day}, and was made in day {today}"));
        }
        let mut accounts = [0; 4];
        let mut over = false;
        for (index, level) in Level::ALL.into_iter().enumerate() {
            let (account, capped) = match level {
                Level::Unit => (Account::Unit(tenant, run, unit), tenant),
                Level::Run => (Account::Run(tenant, run), tenant),
                Level::UserDay => (Account::UserDay(tenant, user, day), tenant),
                Level::LedgerDay => (Account::LedgerDay(day), TenantId::LEDGER),
            };
            let next = self.sums.len();
            let at = *self.accounts.row_or(account, next);
            if at == next {
                self.sums.push(Sums::default());
            }
            accounts[index] = at;
            let sums = &mut self.sums[at];
            let fits = |cap: &u64| sums.settled + sums.live + u128::from(worst.0) <= u128::from(*cap);
            let cap = self.caps.get(&(capped, level));
            if !cap.is_some_and(fits) {
                over = true;
                let cap = cap.map_or("no cap".to_owned(), |cap| format!("the cap of {cap}"));
                broken(format!(
                    "reservation {reservation} of {} micro-USD passes {cap} of {account:?}: {} settled and {} live before it",
                    worst.0, sums.settled, sums.live
                ));
            }
            sums.live += u128::from(worst.0);
        }
        self.overspends += u64::from(over);
        let user = (tenant, user);
        let live = self.live.row(user);
        *live += 1;
        let slots = self.slots.get(&tenant).copied().unwrap_or(0);
        if *live > slots {
            broken(format!(
                "reservation {reservation} is live reservation {live} of user {} of tenant {tenant}, who has {slots} slots",
                user.1
            ));
        }
        self.open.insert(reservation, Open { accounts, worst: worst.0, user });
        held
    }

    fn end(&mut self, reservation: ReservationId, cost: u64) {
        let Some(open) = self.open.remove(&reservation) else { return };
        for at in open.accounts {
            self.sums[at].live -= u128::from(open.worst);
            self.sums[at].settled += u128::from(cost);
        }
        if let Some(live) = self.live.get_mut(&open.user) {
            *live -= 1;
        }
    }
}

impl Invariant for CapsHold {
    fn name(&self) -> &'static str {
        "caps-hold"
    }

    fn states(&self) -> &'static str {
        "no admitted reserve passes a cap in force, at any of the four levels, nor its user's slots"
    }

    fn at(&mut self, moment: &Moment<'_>) -> Result<(), String> {
        let Saw::Ledger(_, records) = moment.saw else { return Ok(()) };
        // Every record is folded even after a broken one, so that overspends are counted on.
        records.iter().map(|record| self.fold(record)).fold(Ok(()), Result::and)
    }
}

/// `ends-once`: a reservation is made once, at the price in force, and ends at most once, at what its usage costs; once its
/// attempt is indeterminate only the owner ends it.
#[derive(Debug, Default)]
pub struct EndsOnce {
    prices: BTreeMap<ModelId, Price>,
    open: Lookup<ReservationId, Reservation>,
    /// What ended each of the others.
    ended_by: BySeq<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Reservation {
    price: Price,
    worst: u64,
    indeterminate: bool,
}

impl EndsOnce {
    fn fold(&mut self, record: &Record, ended: Ended) -> Result<(), String> {
        if let Some((reservation, AttemptState::Indeterminate)) = ended
            && let Some(row) = self.open.get_mut(&reservation)
        {
            row.indeterminate = true;
        }
        let Event::Reserve(event) = &record.event else { return Ok(()) };
        match *event {
            reserve::Event::PriceSet(price) => {
                self.prices.insert(price.model, price);
            }
            reserve::Event::Reserved { reservation, price, worst, .. } => {
                if reservation.0 != record.seq {
                    return Err(format!("record {} makes reservation {reservation}, not its own sequence", record.seq));
                }
                if self.prices.get(&price.model) != Some(&price) {
                    let known = self.prices.get(&price.model);
                    return Err(format!("reservation {reservation} is made at {price:?}; in force is {known:?}"));
                }
                if worst.0 == 0 {
                    return Err(format!("reservation {reservation} sets nothing aside"));
                }
                self.open.insert(reservation, Reservation { price, worst: worst.0, indeterminate: false });
            }
            reserve::Event::Settled { reservation, usage, cost, overrun, by_owner } => {
                let row = self.end(record.seq, reservation, by_owner, "settled")?;
                let expected = cost_of(&row.price, usage);
                if expected != Some(cost.0) {
                    return Err(format!(
                        "reservation {reservation} settles {usage:?} at {:?} for {} micro-USD, and it costs {expected:?}",
                        row.price, cost.0
                    ));
                }
                let above = cost.0.saturating_sub(row.worst);
                if overrun.0 != above {
                    return Err(format!(
                        "reservation {reservation} of {} micro-USD settles for {}: the overrun is {above}, not {}",
                        row.worst, cost.0, overrun.0
                    ));
                }
            }
            reserve::Event::Released { reservation, by_owner } => {
                self.end(record.seq, reservation, by_owner, "released")?;
            }
            reserve::Event::CapSet { .. } | reserve::Event::SlotsSet { .. } => {}
        }
        Ok(())
    }

    fn end(&mut self, seq: u64, id: ReservationId, by_owner: bool, how: &str) -> Result<Reservation, String> {
        let Some(row) = self.open.remove(&id) else {
            return Err(match self.ended_by.find(id) {
                Some(before) => format!("record {seq}: reservation {id} is {how}, and record {before} had ended it"),
                None => format!("record {seq}: reservation {id} is {how} and was never made"),
            });
        };
        if row.indeterminate && !by_owner {
            return Err(format!("record {seq}: reservation {id} is {how} by its run after its outcome became unknown"));
        }
        self.ended_by.insert(id, seq);
        Ok(row)
    }
}

impl Invariant for EndsOnce {
    fn name(&self) -> &'static str {
        "ends-once"
    }

    fn states(&self) -> &'static str {
        "each reservation ends at most once, at what its usage costs; after an unknown outcome by the owner alone"
    }

    fn at(&mut self, moment: &Moment<'_>) -> Result<(), String> {
        let Saw::Ledger(_, records) = moment.saw else { return Ok(()) };
        records.iter().try_for_each(|record| self.fold(record, moment.ended(record)))
    }
}

/// `none-open-at-rest`: a run that has ended leaves no reservation open whose outcome is known, and the whole cast none at all once
/// everything has converged, for by then the owner has resolved what was in doubt.
#[derive(Debug, Default)]
pub struct NoneOpenAtRest {
    open: BTreeMap<ReservationId, OpenInRun>,
    /// How many open reservations of each run have a known or awaited outcome.
    awaited: Lookup<(TenantId, RunId), u32>,
}

#[derive(Clone, Copy, Debug)]
struct OpenInRun {
    run: (TenantId, RunId),
    unit: UnitId,
    attempt: u32,
    indeterminate: bool,
}

impl NoneOpenAtRest {
    fn fold(&mut self, record: &Record, ended: Ended) -> Result<(), String> {
        if let Some((reservation, AttemptState::Indeterminate)) = ended
            && let Some(open) = self.open.get_mut(&reservation)
            && !open.indeterminate
        {
            open.indeterminate = true;
            let run = open.run;
            self.await_less(run);
        }
        match record.event {
            Event::Reserve(reserve::Event::Reserved { reservation, run, unit, attempt, .. }) => {
                let run = (record.tenant, run);
                self.open.insert(reservation, OpenInRun { run, unit, attempt, indeterminate: false });
                *self.awaited.row(run) += 1;
            }
            Event::Reserve(
                reserve::Event::Settled { reservation, .. } | reserve::Event::Released { reservation, .. },
            ) => {
                if let Some(ended) = self.open.remove(&reservation)
                    && !ended.indeterminate
                {
                    self.await_less(ended.run);
                }
            }
            Event::Run(run::Event::Ended { run, .. }) => {
                let run = (record.tenant, run);
                if self.awaited.contains_key(&run) {
                    return Err(format!(
                        "run {} of tenant {} has ended, and {}",
                        run.1,
                        run.0,
                        self.first_open(Some(run))
                    ));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn await_less(&mut self, run: (TenantId, RunId)) {
        if let Some(count) = self.awaited.get_mut(&run) {
            *count -= 1;
            if *count == 0 {
                self.awaited.remove(&run);
            }
        }
    }

    fn first_open(&self, of: Option<(TenantId, RunId)>) -> String {
        let mut open = self.open.iter().filter(|(_, row)| !row.indeterminate && of.is_none_or(|run| run == row.run));
        let Some((id, row)) = open.next() else { return "none is open".into() };
        format!(
            "reservation {id} (run {}, unit {}, attempt {}) is open and its outcome is not unknown; {} more are",
            row.run.1,
            row.unit,
            row.attempt,
            open.count()
        )
    }
}

impl Invariant for NoneOpenAtRest {
    fn name(&self) -> &'static str {
        "none-open-at-rest"
    }

    fn states(&self) -> &'static str {
        "no reservation is open at its run's end unless its call's outcome is unknown, and none at rest: the owner resolves those"
    }

    fn at(&mut self, moment: &Moment<'_>) -> Result<(), String> {
        let Saw::Ledger(_, records) = moment.saw else { return Ok(()) };
        records.iter().try_for_each(|record| self.fold(record, moment.ended(record)))
    }

    fn at_rest(&mut self, rest: &Rest<'_>) -> Result<(), String> {
        if rest.converged && !self.awaited.is_empty() {
            return Err(format!("at rest {}", self.first_open(None)));
        }
        match self.open.first_key_value() {
            Some((id, row)) if rest.converged => Err(format!(
                "at rest reservation {id} (run {}, unit {}, attempt {}) is in doubt, and the owner has nothing left to resolve; {} are",
                row.run.1,
                row.unit,
                row.attempt,
                self.open.len()
            )),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::history::*;
    use super::*;
    use kernel::money::MicroUsd;

    /// Two calls, one settled, one whose outcome is unknown and which the owner releases, and the run's end.
    fn legal(name: &str) -> Story {
        let mut story = Story::begun(name);
        let first = story.next();
        story.logs(&reserves(first, 1, 40)).logs(&[settled(first), attempt_ended(1, AttemptState::Succeeded)]);
        let second = story.next();
        story.logs(&[reserved(second, 3, 1, 40), started(second, 3, 1)]);
        let unknown =
            run::Event::AttemptEnded { run: RUN, unit: UnitId(3), attempt: 1, state: AttemptState::Indeterminate };
        story.logs(&[Event::Run(unknown), ended()]).logs(&[released_by_owner(second)]).rests();
        story
    }

    #[test]
    fn a_legal_history_passes() {
        for name in ["caps-hold", "ends-once", "none-open-at-rest"] {
            legal(name).holds();
        }
    }

    #[test]
    fn no_reserve_passes_a_cap_at_any_level() {
        for level in Level::ALL {
            for (cap, passes) in [(100, false), (99, true)] {
                let mut story = Story::begun("caps-hold");
                story.logs(&[cap_set(level, cap)]);
                let first = story.next();
                story.logs(&reserves(first, 1, 60)).logs(&[settled(first)]);
                let second = story.next();
                story.logs(&reserves(second, 2, 70));
                assert_eq!(story.overspends(), u64::from(passes), "{level:?} {cap}");
                match passes {
                    false => story.holds(),
                    true => {
                        story.breaks_by("caps-hold", &["of 70 micro-USD passes the cap of 99", "30 settled and 0 live"])
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_live_counts_and_so_does_an_overrun() {
        let mut story = Story::begun("caps-hold");
        story.logs(&[cap_set(Level::Run, 100)]);
        let first = story.next();
        story.logs(&reserves(first, 1, 60));
        let second = story.next();
        story.logs(&[reserved(second, 4, 1, 41)]);
        story.breaks_by("caps-hold", &["passes the cap of 100", "0 settled and 60 live"]);

        let mut story = Story::begun("caps-hold");
        story.logs(&[cap_set(Level::Run, 100)]);
        let first = story.next();
        let overrun = reserve::Event::Settled {
            reservation: first,
            usage: USAGE,
            cost: MicroUsd(500),
            overrun: MicroUsd(440),
            by_owner: false,
        };
        story.logs(&reserves(first, 1, 60)).logs(&[Event::Reserve(overrun)]);
        story.holds();
        let second = story.next();
        story.logs(&[reserved(second, 4, 1, 1)]);
        story.breaks_by("caps-hold", &["500 settled"]);
        let third = story.next();
        story.logs(&[reserved(third, 5, 1, 1)]);
        assert_eq!(story.overspends(), 2, "counted on after the first broken moment");
    }

    #[test]
    fn a_day_is_a_window_of_its_own() {
        let mut story = Story::begun("caps-hold");
        story.logs(&[cap_set(Level::UserDay, 100), cap_set(Level::LedgerDay, 100)]);
        let first = story.next();
        story.logs(&reserves(first, 1, 100));
        story.ledger_ns = NEXT_DAY_NS;
        let second = story.next();
        story.logs(&[reserved(second, 4, 1, 100)]);
        story.breaks_by("caps-hold", &["counts in day 0, and was made in day 1"]);
    }

    #[test]
    fn slots_and_missing_caps_hold_too() {
        let mut story = Story::begun("caps-hold");
        for unit in 1..=3 {
            let next = story.next();
            story.logs(&[reserved(next, unit, 1, 1)]);
        }
        story.breaks_by("caps-hold", &["live reservation 3", "2 slots"]);

        let mut story = Story::watched_by(&["caps-hold"]);
        story.logs(&[spawned(RUN)]);
        let next = story.next();
        story.logs(&[reserved(next, 1, 1, 1)]);
        story.breaks_by("caps-hold", &["passes no cap"]);
    }

    #[test]
    fn a_reservation_ends_once() {
        let seven = ReservationId(8);
        let dear = |cost, overrun| {
            let (reservation, usage, by_owner) = (seven, USAGE, false);
            let (cost, overrun) = (MicroUsd(cost), MicroUsd(overrun));
            Event::Reserve(reserve::Event::Settled { reservation, usage, cost, overrun, by_owner })
        };
        let unknown = attempt_ended(1, AttemptState::Indeterminate);
        let cases: [(&str, Vec<Event>, &str); 8] = [
            ("settled twice", vec![settled(seven), settled(seven)], "had ended it"),
            ("released after settled", vec![settled(seven), released(seven)], "had ended it"),
            ("released twice", vec![released(seven), released(seven)], "had ended it"),
            ("never made", vec![released(ReservationId(3))], "was never made"),
            ("by its run once unknown", vec![unknown.clone(), settled(seven)], "after its outcome became unknown"),
            ("too dear", vec![dear(31, 0)], "it costs Some(30)"),
            ("a forgotten overrun", vec![dear(30, 1)], "the overrun is 0, not 1"),
            ("named after another", vec![reserved(ReservationId(1), 4, 1, 1)], "not its own sequence"),
        ];
        for (case, events, message) in cases {
            let mut story = Story::begun("ends-once");
            assert_eq!(story.next(), seven, "the story begins with 8 records");
            story.logs(&reserves(seven, 1, 40));
            story.holds();
            story.logs(&events);
            assert!(story.broken().is_some(), "{case} passes");
            story.breaks_by("ends-once", &[message]);
        }
        let mut story = Story::begun("ends-once");
        let other = Price { model: MODEL, input_per_mtok: 5, output_per_mtok: 5 };
        story.logs(&[Event::Reserve(reserve::Event::PriceSet(other))]);
        let next = story.next();
        story.logs(&reserves(next, 1, 40));
        story.breaks_by("ends-once", &["in force is"]);
    }

    #[test]
    fn cost_is_rounded_up_once_at_the_end() {
        let price = Price { model: MODEL, input_per_mtok: 1, output_per_mtok: 1 };
        let usage = |input_tokens, output_tokens| Usage { input_tokens, output_tokens };
        for (tokens, cost) in [((0, 0), 0), ((1, 0), 1), ((500_000, 500_000), 1), ((500_000, 500_001), 2)] {
            assert_eq!(cost_of(&price, usage(tokens.0, tokens.1)), Some(cost), "{tokens:?}");
        }
        let most = Price { model: MODEL, input_per_mtok: u64::MAX, output_per_mtok: u64::MAX };
        assert_eq!(cost_of(&most, usage(u64::MAX, u64::MAX)), None);
    }

    #[test]
    fn nothing_known_is_left_open() {
        let mut story = Story::begun("none-open-at-rest");
        let next = story.next();
        story.logs(&reserves(next, 1, 40));
        story.holds();
        story.logs(&[ended()]);
        story.breaks_by("none-open-at-rest", &["run 9 of tenant 1 has ended, and reservation 8"]);

        for (converged, breaks) in [(true, true), (false, false)] {
            let mut story = Story::begun("none-open-at-rest");
            let next = story.next();
            story.logs(&reserves(next, 1, 40));
            let log = story.log.clone();
            story.rests_as(&Rest { log: &whole(&log), opened: &[], rebuilt: &[], converged });
            assert_eq!(story.broken().is_some(), breaks, "converged {converged}");
        }
        let mut story = Story::begun("none-open-at-rest");
        let next = story.next();
        story.logs(&reserves(next, 1, 40)).logs(&[attempt_ended(1, AttemptState::Indeterminate), ended()]);
        story.holds();
        story.rests().breaks_by("none-open-at-rest", &["at rest reservation 8", "is in doubt"]);
        let mut story = Story::begun("none-open-at-rest");
        let next = story.next();
        story.logs(&reserves(next, 1, 40)).logs(&[attempt_ended(1, AttemptState::Indeterminate), ended()]);
        story.logs(&[released_by_owner(next)]).rests().holds();
    }
}
