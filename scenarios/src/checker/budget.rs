//! Money, slots, quotas and halts, added up anew from the records: what was in force when each reserve was admitted.

use super::{
    findings::{Findings, Place, Rule},
    tables::Tables,
    wire::{
        Account, AdmitRefusal, Admitted, Budgeted, Effected, Ending, Event, HaltReason, Level, Price, Quota, Ran,
        Record, Refusal, ReserveRefusal, State,
    },
    wire::{Switch, Usage},
};
use std::collections::BTreeMap;

/// What an account holds, in micro-USD; wider than any log can overflow.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    settled: u128,
    live: u128,
}

/// How a reservation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Settled,
    Released,
    ByOwner,
}

/// A reservation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reservation {
    pub tenant: u32,
    pub run: u64,
    pub unit: u32,
    pub attempt: u32,
    user: u32,
    day: u32,
    pub price: Price,
    worst: u64,
    /// The record that ended it.
    pub ended_by: Option<u64>,
    /// How it ended.
    pub end: Option<End>,
    /// What it cost, if it was settled.
    paid: Option<u64>,
    pub indeterminate: bool,
}

impl Reservation {
    fn accounts(&self) -> [Account; 4] {
        accounts(self.tenant, self.run, self.unit, self.user, self.day)
    }
}

/// The accounts that spend counts in, the lowest level first.
fn accounts(tenant: u32, run: u64, unit: u32, user: u32, day: u32) -> [Account; 4] {
    [
        Account::Unit(tenant, run, unit),
        Account::Run(tenant, run),
        Account::UserDay(tenant, user, day),
        Account::LedgerDay(day),
    ]
}

/// What usage costs: exact in millionths of a micro-USD, rounded up once.
pub(super) fn cost(price: &Price, usage: Usage) -> Option<u64> {
    let input = u128::from(usage.input_tokens).checked_mul(u128::from(price.input_per_mtok))?;
    let output = u128::from(usage.output_tokens).checked_mul(u128::from(price.output_per_mtok))?;
    let exact = input.checked_add(output)?;
    let rounded = exact / 1_000_000 + u128::from(!exact.is_multiple_of(1_000_000));
    u64::try_from(rounded).ok()
}

/// What would begin, as the gate sees it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Begins {
    /// A run that is not known yet.
    Run { user: u32, depth: u8 },
    /// A reserve of a known run.
    Call { user: u32, worst: u64 },
}

/// The reckoning so far.
#[derive(Debug, Default)]
pub(super) struct Budget {
    caps: BTreeMap<(u32, Level), u64>,
    slots: BTreeMap<u32, u32>,
    prices: BTreeMap<u32, Price>,
    accounts: BTreeMap<Account, Sums>,
    live: BTreeMap<(u32, u32), u32>,
    reservations: BTreeMap<u64, Reservation>,
    /// How many open reservations of each run have an outcome that is known or awaited.
    awaited: BTreeMap<(u32, u64), u32>,
    running: BTreeMap<(u32, u64, u32, u32), u64>,
    quotas: BTreeMap<(u32, Option<u32>), Quota>,
    taken: BTreeMap<(u32, u32, u32), u32>,
    halts: BTreeMap<u32, u64>,
    /// The last record that set each switch.
    halt_was_set: BTreeMap<u32, u64>,
    /// The record that spawned each run.
    spawned: BTreeMap<(u32, u64), u64>,
    quota_was_set: bool,
    /// Admitted reserves that passed a cap in force.
    pub overspends: u64,
}

impl Budget {
    /// Folds a record.
    pub(super) fn record(&mut self, record: &Record, place: Place, found: &mut Findings) {
        match record.event {
            Event::Admit(event) => self.admitted(event, record.seq, found),
            Event::Reserve(event) => self.budgeted(record, event, place, found),
            Event::Run(event) => self.ran(record, event, place, found),
            Event::Effect(Effected::Decided { outcome: Err(Refusal::Admit(ref refusal)), .. }) => {
                self.told_no(record, refusal, place, found);
            }
            Event::Effect(Effected::Dispatched { intent }) => {
                self.may_begin(record, &format!("the call of {intent} is dispatched"), place, found);
            }
            Event::Lease(_) | Event::Effect(_) => {}
        }
    }

    /// What was refused took nothing: whoever is refused for its runs of the day is told as many as the log has. This shows
    /// without the request, which is not known of a frame that was never announced.
    fn told_no(&self, record: &Record, refusal: &AdmitRefusal, place: Place, found: &mut Findings) {
        let AdmitRefusal::TooManyRuns { user, day, limit, taken } = *refusal else { return };
        let own = self.taken.get(&(record.tenant, user, day)).copied().unwrap_or(0);
        let quota = self.quota(record.tenant, user).map(|quota| quota.runs_per_day);
        found.must(Rule::Quota, place, (own, quota) == (taken, Some(limit)), || {
            format!(
                "record {}: user {user} is refused for {taken} runs of {limit} on day {day}, and has spawned {own} of {quota:?}",
                record.seq
            )
        });
    }

    fn admitted(&mut self, event: Admitted, seq: u64, found: &mut Findings) {
        match event {
            Admitted::HaltSet { tenant, switch: Switch::Halted } => {
                self.halt_was_set.insert(tenant, seq);
                found.looked(Rule::Halt, 1);
                self.halts.entry(tenant).or_insert(seq);
            }
            Admitted::HaltSet { tenant, switch: Switch::Open } => {
                self.halts.remove(&tenant);
            }
            Admitted::QuotaSet { tenant, user, quota } => {
                self.quota_was_set = true;
                match quota {
                    Some(quota) => self.quotas.insert((tenant, user), quota),
                    None => self.quotas.remove(&(tenant, user)),
                };
            }
        }
    }

    fn budgeted(&mut self, record: &Record, event: Budgeted, place: Place, found: &mut Findings) {
        match event {
            Budgeted::CapSet { tenant, level, cap } => {
                self.caps.insert((tenant, level), cap);
            }
            Budgeted::SlotsSet { tenant, slots } => {
                self.slots.insert(tenant, slots);
            }
            Budgeted::PriceSet(price) => {
                self.prices.insert(price.model, price);
            }
            Budgeted::Reserved { reservation, run, unit, attempt, user, day, price, worst } => {
                let tenant = record.tenant;
                let row = Reservation {
                    tenant,
                    run,
                    unit,
                    attempt,
                    user,
                    day,
                    price,
                    worst,
                    ended_by: None,
                    end: None,
                    paid: None,
                    indeterminate: false,
                };
                self.may_begin(record, &format!("unit {unit} of run {run} reserves"), place, found);
                self.made(record, reservation, &row, place, found);
                self.fits(reservation, &row, place, found);
                *self.awaited.entry((tenant, run)).or_default() += 1;
                self.reservations.insert(reservation, row);
            }
            Budgeted::Settled { reservation, usage, cost: paid, overrun, by_owner } => {
                let Some(row) = self.end(record.seq, reservation, Some(paid), by_owner, place, found) else { return };
                let right = cost(&row.price, usage);
                let above = paid.saturating_sub(row.worst);
                found.must(Rule::Price, place, right == Some(paid) && above == overrun, || {
                    format!(
                        "reservation {reservation} settles {usage:?} for {paid} micro-USD, {overrun} over the {} set aside; by its \
                         price that costs {right:?}, and is {above} over",
                        row.worst
                    )
                });
            }
            Budgeted::Released { reservation, by_owner } => {
                self.end(record.seq, reservation, None, by_owner, place, found);
            }
        }
    }

    /// A new reservation by itself: its name, its day, its price.
    fn made(&self, record: &Record, id: u64, row: &Reservation, place: Place, found: &mut Findings) {
        let in_force = self.prices.get(&row.price.model);
        let complaint = if id != record.seq {
            Some(format!("record {} makes reservation {id}, which is not its own sequence", record.seq))
        } else if row.day != record.day() {
            Some(format!("reservation {id} counts in day {}, and was made in day {}", row.day, record.day()))
        } else if in_force != Some(&row.price) {
            Some(format!("reservation {id} is made at {:?}; in force is {in_force:?}", row.price))
        } else if row.worst == 0 {
            Some(format!("reservation {id} sets nothing aside"))
        } else {
            None
        };
        found.looked(Rule::EndsOnce, 1);
        if let Some(complaint) = complaint {
            found.broken(Rule::EndsOnce, place, complaint);
        }
    }

    /// A new reservation under the caps, slots and quota in force.
    fn fits(&mut self, id: u64, row: &Reservation, place: Place, found: &mut Findings) {
        let asked = u128::from(row.worst);
        let mut over = false;
        for (level, account) in Level::ALL.into_iter().zip(row.accounts()) {
            let capped = if level == Level::LedgerDay { 0 } else { row.tenant };
            let cap = self.caps.get(&(capped, level)).copied();
            let sums = self.accounts.entry(account).or_default();
            let fits = cap.is_some_and(|cap| sums.settled + sums.live + asked <= u128::from(cap));
            over |= !fits;
            found.must(Rule::Caps, place, fits, || {
                format!(
                    "reservation {id} of {asked} micro-USD passes the cap of {account:?}, {cap:?}: {} settled and {} live before it",
                    sums.settled, sums.live
                )
            });
            sums.live += asked;
        }
        self.overspends += u64::from(over);
        let slots = self.slots.get(&row.tenant).copied().unwrap_or(0);
        let live = self.live.entry((row.tenant, row.user)).or_default();
        *live += 1;
        found.must(Rule::Slots, place, *live <= slots, || {
            format!("reservation {id} is live reservation {live} of user {}, who has {slots} slots", row.user)
        });
        if let Some(quota) = self.quota(row.tenant, row.user) {
            let spent = self.sums(Account::UserDay(row.tenant, row.user, row.day));
            let spent = spent.settled + spent.live;
            found.must(Rule::Quota, place, spent <= u128::from(quota.micro_usd_per_day), || {
                format!(
                    "reservation {id} brings the day of user {} to {spent} micro-USD; its quota is {quota:?}",
                    row.user
                )
            });
        }
    }

    /// Ends a reservation, and gives it back if it was there.
    fn end(
        &mut self,
        seq: u64,
        id: u64,
        paid: Option<u64>,
        by_owner: bool,
        place: Place,
        found: &mut Findings,
    ) -> Option<Reservation> {
        let Some(row) = self.reservations.get_mut(&id) else {
            found.broken(Rule::EndsOnce, place, format!("record {seq} ends reservation {id}, which was never made"));
            return None;
        };
        let ended = *row;
        if let Some(before) = row.ended_by {
            found.broken(
                Rule::EndsOnce,
                place,
                format!("record {seq} ends reservation {id}, and record {before} had ended it"),
            );
            return Some(ended);
        }
        if row.indeterminate && !by_owner {
            let complaint = format!("record {seq}: the run ends reservation {id} after its outcome became unknown");
            found.broken(Rule::EndsOnce, place, complaint);
        }
        row.ended_by = Some(seq);
        row.paid = paid;
        row.end = Some(match paid {
            _ if by_owner => End::ByOwner,
            Some(_) => End::Settled,
            None => End::Released,
        });
        for account in ended.accounts() {
            let sums = self.accounts.entry(account).or_default();
            sums.live = sums.live.saturating_sub(u128::from(ended.worst));
            sums.settled += u128::from(paid.unwrap_or(0));
        }
        let live = self.live.entry((ended.tenant, ended.user)).or_default();
        *live = live.saturating_sub(1);
        if !ended.indeterminate {
            self.await_less((ended.tenant, ended.run));
        }
        Some(ended)
    }

    fn ran(&mut self, record: &Record, event: Ran, place: Place, found: &mut Findings) {
        let tenant = record.tenant;
        match event {
            Ran::Spawned { run, user, depth, .. } => {
                self.may_begin(record, &format!("run {run} is spawned"), place, found);
                self.spawned.insert((tenant, run), record.seq);
                let quota = self.quota(tenant, user);
                let taken = self.taken.entry((tenant, user, record.day())).or_default();
                *taken += 1;
                if let Some(quota) = quota {
                    let fits = *taken <= quota.runs_per_day && depth <= quota.depth_tier;
                    found.must(Rule::Quota, place, fits, || {
                        format!("run {run} of depth {depth} is run {taken} of user {user} on its day; its quota is {quota:?}")
                    });
                }
            }
            Ran::AttemptStarted { run, unit, attempt, reservation } => {
                self.running.insert((tenant, run, unit, attempt), reservation);
            }
            Ran::AttemptEnded { run, unit, attempt, state } => {
                let ended = self.running.remove(&(tenant, run, unit, attempt));
                let row = ended.and_then(|reservation| self.reservations.get_mut(&reservation));
                if let (State::Indeterminate, Some(row)) = (state, row)
                    && row.ended_by.is_none()
                    && !row.indeterminate
                {
                    row.indeterminate = true;
                    self.await_less((tenant, run));
                }
            }
            Ran::AttemptQueued { .. } | Ran::Recalled { .. } | Ran::Suspended { .. } | Ran::Resumed { .. } => {}
            Ran::Cancelled { running: 1.., .. } => {}
            Ran::Ended { run, .. } | Ran::Cancelled { run, .. } => {
                if let Ran::Ended { outcome: Ending::Halted(HaltReason::Owner), .. } = event {
                    self.was_halted(record, run, place, found);
                }
                let open = self.awaited.get(&(tenant, run)).copied().unwrap_or(0);
                found.must(Rule::NoneOpen, place, open == 0, || {
                    format!("run {run} ends with {open} reservations open whose outcome is not unknown")
                });
            }
        }
    }

    fn await_less(&mut self, run: (u32, u64)) {
        if let Some(count) = self.awaited.get_mut(&run) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.awaited.remove(&run);
            }
        }
    }

    /// Whether a run that is said to be halted by the owner lived under a halt: none is spawned under one.
    fn was_halted(&self, record: &Record, run: u64, place: Place, found: &mut Findings) {
        let spawned = self.spawned.get(&(record.tenant, run));
        let last = [0, record.tenant].iter().filter_map(|switch| self.halt_was_set.get(switch)).max();
        found.must(Rule::Halt, place, last > spawned, || {
            format!(
                "record {} halts run {run}, spawned by {spawned:?}, and the last halt was set by {last:?}",
                record.seq
            )
        });
    }

    /// Whether a halt stops what begins here.
    fn may_begin(&self, record: &Record, began: &str, place: Place, found: &mut Findings) {
        if self.halt_was_set.is_empty() {
            return;
        }
        let since = [0, record.tenant].into_iter().find_map(|switch| Some((switch, *self.halts.get(&switch)?)));
        found.must(Rule::Halt, place, since.is_none(), || {
            let (switch, seq) = since.unwrap_or_default();
            format!("record {}: {began}, and record {seq} had halted tenant {switch}", record.seq)
        });
    }

    fn quota(&self, tenant: u32, user: u32) -> Option<Quota> {
        self.quotas.get(&(tenant, Some(user))).or_else(|| self.quotas.get(&(tenant, None))).copied()
    }

    fn sums(&self, account: Account) -> Sums {
        self.accounts.get(&account).copied().unwrap_or_default()
    }

    /// A reservation, if it was made.
    pub(super) fn reservation(&self, id: u64) -> Option<&Reservation> {
        self.reservations.get(&id)
    }

    /// The price in force for a model.
    pub(super) fn price(&self, model: u32) -> Option<Price> {
        self.prices.get(&model).copied()
    }

    /// Live reservations of a user, and how many it may have.
    pub(super) fn slots(&self, tenant: u32, user: u32) -> (u32, u32) {
        let live = self.live.get(&(tenant, user)).copied().unwrap_or(0);
        (live, self.slots.get(&tenant).copied().unwrap_or(0))
    }

    /// Open reservations, and what they set aside.
    pub(super) fn open(&self) -> (u64, u128) {
        let open = self.reservations.values().filter(|row| row.ended_by.is_none());
        open.fold((0, 0), |(count, sum), row| (count + 1, sum + u128::from(row.worst)))
    }

    /// Puts down the rows of the ledger's tables about admission and money.
    pub(super) fn tables(&self, tables: &mut Tables) {
        self.caps.iter().for_each(|(key, cap)| tables.row(7, key, cap));
        self.slots.iter().for_each(|(tenant, slots)| tables.row(8, tenant, slots));
        self.prices.iter().for_each(|(model, price)| tables.row(9, (0u32, model), price));
        for (account, sums) in &self.accounts {
            let narrow = |sum: u128| u64::try_from(sum).unwrap_or(u64::MAX);
            tables.row(10, (account.tenant(), account), (narrow(sums.settled), narrow(sums.live)));
        }
        self.live.iter().for_each(|(user, live)| tables.row(11, user, live));
        for (id, row) in &self.reservations {
            let Reservation { tenant, run, unit, attempt, user, day, price, worst, end, paid, .. } = *row;
            let close = end.map(|end| (paid, end == End::ByOwner, false));
            tables.row(12, (tenant, id), (run, unit, attempt, user, day, price, worst, close));
            if row.indeterminate && row.ended_by.is_none() {
                tables.row(13, (tenant, id), ());
            }
        }
        self.halts.keys().for_each(|tenant| tables.row(16, tenant, ()));
        self.quotas.iter().for_each(|(key, quota)| tables.row(17, key, quota));
        self.taken.iter().for_each(|(key, taken)| tables.row(18, key, taken));
    }

    /// At rest nothing is open: what was in doubt the owner has resolved.
    pub(super) fn at_rest(&self, place: Place, found: &mut Findings) {
        if self.reservations.is_empty() {
            return;
        }
        let mut open = self.reservations.iter().filter(|(_, row)| row.ended_by.is_none());
        let first = open.next();
        found.must(Rule::NoneOpen, place, first.is_none(), || {
            let (id, doubtful) = first.map_or((0, false), |(id, row)| (*id, row.indeterminate));
            let why = if doubtful { "in doubt, and the owner has nothing left to resolve" } else { "not in doubt" };
            format!("at rest reservation {id} is open and {why}; {} more are open", open.count())
        });
    }

    /// The refusal that is due at the gate, before any other room is asked, to what would begin on a day: quota, then halt.
    pub(super) fn gate(&self, tenant: u32, begins: Begins, day: u32) -> Option<AdmitRefusal> {
        let (user, asked) = match begins {
            Begins::Run { user, .. } => (user, 1),
            Begins::Call { user, worst } => (user, worst),
        };
        if let Some(quota) = self.quota(tenant, user) {
            if let Begins::Run { depth, .. } = begins {
                let (deepest, limit) = (quota.depth_tier, quota.runs_per_day);
                if depth > deepest {
                    return Some(AdmitRefusal::TooDeep { user, deepest, asked: depth });
                }
                let taken = self.taken.get(&(tenant, user, day)).copied().unwrap_or(0);
                if taken >= limit {
                    return Some(AdmitRefusal::TooManyRuns { user, day, limit, taken });
                }
            }
            let Sums { settled, live } = self.sums(Account::UserDay(tenant, user, day));
            let limit = quota.micro_usd_per_day;
            if settled + live + u128::from(asked) > u128::from(limit) {
                let narrow = |sum: u128| u64::try_from(sum).unwrap_or(u64::MAX);
                let (settled, live) = (narrow(settled), narrow(live));
                return Some(AdmitRefusal::TooDear { user, day, limit, settled, live, asked });
            }
        }
        self.halted(tenant)
    }

    /// The refusal that is due to whatever begins while a halt is on.
    pub(super) fn halted(&self, tenant: u32) -> Option<AdmitRefusal> {
        let switch = [0, tenant].into_iter().find(|switch| self.halts.contains_key(switch))?;
        Some(AdmitRefusal::Halted { tenant: switch })
    }

    /// What is against one more reserve at the caps in force, the lowest level first.
    pub(super) fn over(&self, tenant: u32, of: (u64, u32), user: u32, day: u32, asked: u64) -> Option<ReserveRefusal> {
        for (level, account) in Level::ALL.into_iter().zip(accounts(tenant, of.0, of.1, user, day)) {
            let Sums { settled, live } = self.sums(account);
            let capped = if level == Level::LedgerDay { 0 } else { tenant };
            let Some(cap) = self.caps.get(&(capped, level)).copied() else {
                return Some(ReserveRefusal::NoCap { level, tenant: capped, asked });
            };
            if settled + live + u128::from(asked) > u128::from(cap) {
                let narrow = |sum: u128| u64::try_from(sum).unwrap_or(u64::MAX);
                let (settled, live) = (narrow(settled), narrow(live));
                return Some(ReserveRefusal::OverCap { level, account, cap, settled, live, asked });
            }
        }
        None
    }

    /// What is against settling an open reservation for `usage`: that its cost cannot be counted, the lowest account first.
    pub(super) fn uncountable(&self, reservation: u64, usage: Usage) -> Option<ReserveRefusal> {
        let row = self.reservation(reservation)?;
        let asked = cost(&row.price, usage);
        for account in accounts(row.tenant, row.run, row.unit, row.user, row.day) {
            let Sums { settled, .. } = self.sums(account);
            if asked.is_none_or(|cost| settled + u128::from(cost) > u128::from(u64::MAX)) {
                let settled = u64::try_from(settled).unwrap_or(u64::MAX);
                return Some(ReserveRefusal::TooMuch { account, settled, asked });
            }
        }
        None
    }
}
