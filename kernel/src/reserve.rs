//! Is there enough? Caps at four levels, live slots, prices; reserve, settle, release, resolve.
//!
//! The rule, checked inside each admitted reserve and with one comparator at every level, lowest level first:
//! `settled + live + asked <= cap in force`, and `live reservations of the user < slots`. Each reservation ends exactly once.
//! Lowering a cap below what is committed admits nothing new and rewrites nothing. Usage above its reservation is settled as
//! it is, reported as an overrun, and counts against every cap.

use crate::{
    effect,
    id::{ModelId, ReservationId, RunId, TenantId, UnitId, UserId},
    lease::{self, Lock, authorize},
    money::{MicroUsd, Price, Usage, left},
    planted,
    planted::{Bug, Planted},
    record::{self, Record},
    request::{self, Notice, Turn},
    room::{Case, Impossible, No, Ruling, Term, ensure},
    run::{self, AttemptState},
    table::{self, HashedTable, Table},
};
use serde::{Deserialize, Serialize};

/// The levels at which spend is capped, lowest first: a refusal names the lowest exhausted one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// One unit of one run, all its attempts together.
    Unit,
    /// One run.
    Run,
    /// One user in one day of ledger time.
    UserDay,
    /// The whole ledger in one day of ledger time, over all tenants.
    LedgerDay,
}

impl Level {
    /// All levels, lowest first.
    pub const ALL: [Level; 4] = [Level::Unit, Level::Run, Level::UserDay, Level::LedgerDay];
}

/// One account that spend is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Account {
    /// A unit of a run.
    Unit(TenantId, RunId, UnitId),
    /// A run.
    Run(TenantId, RunId),
    /// A user's day.
    UserDay(TenantId, UserId, u32),
    /// The ledger's day; kept under tenant 0.
    LedgerDay(u32),
}

impl Account {
    /// The level it is of.
    pub fn level(self) -> Level {
        match self {
            Account::Unit(..) => Level::Unit,
            Account::Run(..) => Level::Run,
            Account::UserDay(..) => Level::UserDay,
            Account::LedgerDay(_) => Level::LedgerDay,
        }
    }

    /// The tenant it is kept under, whose cap is in force for it.
    pub fn tenant(self) -> TenantId {
        match self {
            Account::Unit(tenant, ..) | Account::Run(tenant, _) | Account::UserDay(tenant, ..) => tenant,
            Account::LedgerDay(_) => TenantId::LEDGER,
        }
    }
}

/// What may be asked of this room.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// Set a cap: of `tenant` for the levels `Unit`, `Run` and `UserDay`, of the ledger (tenant 0) for `LedgerDay`.
    /// Under the owner's lock. Without a cap in force nothing is admitted at that level.
    SetCap {
        /// Whose cap.
        tenant: TenantId,
        /// At which level.
        level: Level,
        /// The cap in force from now on.
        cap: MicroUsd,
    },
    /// Set how many reservations a user of `tenant` may have live at once. Under the owner's lock.
    SetSlots {
        /// Whose users.
        tenant: TenantId,
        /// How many.
        slots: u32,
    },
    /// Set a model's price for reservations made from now on. Under the owner's lock.
    SetPrice(Price),
    /// Set money aside for the worst a call can cost, at every level or not at all. Under the run's lock.
    /// Refused for live slots alone, the request waits as long as its own term allows.
    Reserve {
        /// The run.
        run: RunId,
        /// The unit.
        unit: UnitId,
        /// Which attempt of the unit, from 1.
        attempt: u32,
        /// The model that will be called; its price now is the price at settlement.
        model: ModelId,
        /// The worst case, in micro-USD; at least 1.
        worst: MicroUsd,
    },
    /// End a reservation with what the response says was used. Under the run's lock, and if it pays for an intent after that
    /// one's commit.
    Settle {
        /// Which.
        reservation: ReservationId,
        /// The response's own usage.
        usage: Usage,
    },
    /// End a reservation of a call that is known not to have been charged. Under the run's lock; not of an intent that is
    /// dispatched, whose call may be on the wire.
    Release {
        /// Which.
        reservation: ReservationId,
    },
    /// End a reservation whose outcome the run could not learn, from the provider's invoice. Under the owner's lock;
    /// only when its attempt is indeterminate or its run has ended.
    Resolve {
        /// Which.
        reservation: ReservationId,
        /// What the invoice shows: the usage charged under the reservation's key, or nothing.
        charged: Option<Usage>,
    },
}

/// What this room records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// A cap is in force.
    CapSet {
        /// Whose.
        tenant: TenantId,
        /// At which level.
        level: Level,
        /// How much.
        cap: MicroUsd,
    },
    /// A number of slots is in force.
    SlotsSet {
        /// Whose users.
        tenant: TenantId,
        /// How many.
        slots: u32,
    },
    /// A price is in force.
    PriceSet(Price),
    /// Money was set aside.
    Reserved {
        /// The reservation: this event's own sequence.
        reservation: ReservationId,
        /// The run.
        run: RunId,
        /// The unit.
        unit: UnitId,
        /// The attempt.
        attempt: u32,
        /// The user it counts against.
        user: UserId,
        /// The day it counts in, whenever it ends.
        day: u32,
        /// The price it will settle at.
        price: Price,
        /// How much.
        worst: MicroUsd,
    },
    /// A reservation ended with a cost.
    Settled {
        /// Which.
        reservation: ReservationId,
        /// What was used.
        usage: Usage,
        /// What it cost, converted once.
        cost: MicroUsd,
        /// How far `cost` is above what was set aside; zero when within.
        overrun: MicroUsd,
        /// Whether the owner settled it from the invoice.
        by_owner: bool,
    },
    /// A reservation ended without a cost.
    Released {
        /// Which.
        reservation: ReservationId,
        /// Whether the owner released it from the invoice.
        by_owner: bool,
    },
}

impl Event {
    /// Whose the event is, when a request about `tenant` causes it.
    pub(crate) fn tenant(&self, tenant: TenantId) -> TenantId {
        match self {
            Event::CapSet { tenant, .. } | Event::SlotsSet { tenant, .. } => *tenant,
            Event::PriceSet(_) => TenantId::LEDGER,
            Event::Reserved { .. } | Event::Settled { .. } | Event::Released { .. } => tenant,
        }
    }
}

/// What an admitted command gives back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// The setting is in force.
    Set,
    /// Set aside under this reservation, whose number is the idempotency key of the call.
    Reserved(ReservationId),
    /// Ended with this cost.
    Settled {
        /// The cost.
        cost: MicroUsd,
        /// How far it is above what was set aside.
        overrun: MicroUsd,
    },
    /// Ended without a cost.
    Released,
}

/// Why this room says no.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// A cap would be passed. The lowest exhausted level is named.
    #[error("{level:?} cap {cap}: settled {settled} and live {live} leave {}, and {asked} is asked for", left(*cap, *settled, *live))]
    OverCap {
        /// The lowest exhausted level.
        level: Level,
        /// The account at that level.
        account: Account,
        /// The cap in force.
        cap: MicroUsd,
        /// Settled in the account.
        settled: MicroUsd,
        /// Live in the account.
        live: MicroUsd,
        /// What was asked for.
        asked: MicroUsd,
    },
    /// All of the user's slots are taken, and the request's term left no time to wait.
    #[error("user {user} has {live} live reservations of {slots}, which leave {} for one more; settle one first, or wait",
        slots.saturating_sub(*live))]
    NoSlot {
        /// The user.
        user: UserId,
        /// Live now.
        live: u32,
        /// Allowed.
        slots: u32,
    },
    /// The waiter's own term had passed before a slot came free.
    #[error("a slot of user {user} came free after the waiter's own term had ended")]
    WaiterExpired {
        /// The user.
        user: UserId,
    },
    /// No cap is in force at a level, which is none to be had.
    #[error("no {level:?} cap is in force for tenant {tenant}, and {asked} is asked for; the owner sets a cap first")]
    NoCap {
        /// The level.
        level: Level,
        /// The tenant asked for.
        tenant: TenantId,
        /// What was asked for.
        asked: MicroUsd,
    },
    /// The model has no price.
    #[error("model {model} has no price; the owner sets it first")]
    NoPrice {
        /// The model.
        model: ModelId,
    },
    /// Nothing was asked for.
    #[error("a reservation sets at least one micro-USD aside")]
    Nothing,
    /// A settlement would pass the largest amount there is. A reserve is never refused for this: no cap is above that amount.
    #[error("{account:?} holds {settled} settled, which leaves {} to be counted, and {} is to be settled",
        left(MicroUsd::MAX, *settled, MicroUsd::ZERO), asked.map_or("more than that by itself".to_owned(), |asked| asked.to_string()))]
    TooMuch {
        /// The lowest account that cannot hold it.
        account: Account,
        /// Settled in the account.
        settled: MicroUsd,
        /// What the usage costs; `None` if that alone is above [`MicroUsd::MAX`].
        asked: Option<MicroUsd>,
    },
    /// The unit already has a live reservation, or has succeeded, or the attempt is not the next.
    #[error("unit {unit} of run {run} cannot start attempt {attempt}; the next is {next:?}")]
    WrongAttempt {
        /// The run.
        run: RunId,
        /// The unit.
        unit: UnitId,
        /// The attempt asked for.
        attempt: u32,
        /// The attempt that may start, if any may.
        next: Option<u32>,
    },
    /// There is no such reservation in this tenant, or it is another run's.
    #[error("reservation {reservation} is not one of this run's")]
    Unknown {
        /// What was named.
        reservation: ReservationId,
    },
    /// The reservation has ended before.
    #[error("reservation {reservation} has ended already")]
    Ended {
        /// Which.
        reservation: ReservationId,
    },
    /// Only the owner may end it: its attempt is indeterminate.
    #[error("reservation {reservation} awaits the owner: its call's outcome is unknown")]
    AwaitsOwner {
        /// Which.
        reservation: ReservationId,
    },
    /// The owner may not end it: its run is live and still knows the attempt as running.
    #[error("reservation {reservation} belongs to a live attempt; the owner resolves what a run could not")]
    StillLive {
        /// Which.
        reservation: ReservationId,
    },
    /// The tenant of a ledger-wide cap is 0, and of every other not 0.
    #[error("{level:?} caps do not belong to tenant {tenant}")]
    WrongTenant {
        /// The level.
        level: Level,
        /// The tenant named.
        tenant: TenantId,
    },
}

/// What an account holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sums {
    /// The cost of reservations that ended with one.
    pub settled: MicroUsd,
    /// What open reservations set aside.
    pub live: MicroUsd,
}

/// A reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    /// Its run.
    pub run: RunId,
    /// Its unit.
    pub unit: UnitId,
    /// Its attempt.
    pub attempt: u32,
    /// The user it counts against.
    pub user: UserId,
    /// The day it counts in.
    pub day: u32,
    /// The price it settles at.
    pub price: Price,
    /// What it set aside.
    pub worst: MicroUsd,
    /// How it ended; `None` while it is open.
    pub close: Option<Close>,
}

/// How a reservation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Close {
    /// What it cost; `None` if it was released.
    pub cost: Option<MicroUsd>,
    /// Whether the owner ended it from the invoice.
    pub by_owner: bool,
    /// It was released after it had ended: only [`Bug::ReleaseTwice`] does that.
    pub again: bool,
}

impl Reservation {
    /// The accounts it counts in, lowest level first.
    pub fn accounts(&self, tenant: TenantId) -> [Account; 4] {
        [
            Account::Unit(tenant, self.run, self.unit),
            Account::Run(tenant, self.run),
            Account::UserDay(tenant, self.user, self.day),
            Account::LedgerDay(self.day),
        ]
    }
}

/// The tables of this room.
#[derive(Clone, Debug)]
pub struct Tables {
    /// Caps in force.
    pub(crate) caps: Table<(TenantId, Level), MicroUsd>,
    /// How many reservations each of a tenant's users may have live.
    pub(crate) slots: Table<TenantId, u32>,
    /// Prices in force, under tenant 0.
    pub(crate) prices: Table<(TenantId, ModelId), Price>,
    /// What each account holds.
    pub(crate) accounts: HashedTable<(TenantId, Account), Sums>,
    /// How many reservations each user has live.
    pub(crate) live: HashedTable<(TenantId, UserId), u32>,
    /// Every reservation.
    pub(crate) reservations: HashedTable<(TenantId, ReservationId), Reservation>,
    /// The open reservations of indeterminate attempts: only the owner can end them.
    pub(crate) awaiting: Table<(TenantId, ReservationId), ()>,
}

impl Default for Tables {
    fn default() -> Tables {
        Tables {
            caps: Table::new(7, "reserve.caps"),
            slots: Table::new(8, "reserve.slots"),
            prices: Table::new(9, "reserve.prices"),
            accounts: Table::new(10, "reserve.accounts"),
            live: Table::new(11, "reserve.live"),
            reservations: Table::new(12, "reserve.reservations"),
            awaiting: Table::new(13, "reserve.awaiting"),
        }
    }
}

impl Tables {
    /// What an account holds.
    pub fn sums(&self, account: Account) -> Sums {
        self.accounts.get(&(account.tenant(), account)).copied().unwrap_or_default()
    }

    /// The cap in force for an account.
    pub fn cap(&self, account: Account) -> Option<MicroUsd> {
        self.caps.get(&(account.tenant(), account.level())).copied()
    }

    /// How many reservations a user has live, and how many it may have.
    pub fn slots(&self, tenant: TenantId, user: UserId) -> (u32, u32) {
        let live = self.live.get(&(tenant, user)).copied().unwrap_or(0);
        (live, self.slots.get(&tenant).copied().unwrap_or(0))
    }
}

/// The most notices that one raise of slots gives to one user's waiters.
const SLOT_NOTICES: u32 = 1024;

/// Decides a command of this room.
pub fn decide(tables: &table::Tables, case: &Case<'_>, command: &Command) -> Result<Ruling, No> {
    match *command {
        Command::SetCap { tenant, level, cap } => {
            by_owner(tables, case)?;
            if (level == Level::LedgerDay) != (tenant == TenantId::LEDGER) {
                return Err(Refusal::WrongTenant { level, tenant }.into());
            }
            Ok(ruling(Event::CapSet { tenant, level, cap }, Outcome::Set))
        }
        Command::SetSlots { tenant, slots } => {
            by_owner(tables, case)?;
            let notices = slots_raised(tables, tenant, slots);
            Ok(Ruling { notices, ..ruling(Event::SlotsSet { tenant, slots }, Outcome::Set) })
        }
        Command::SetPrice(price) => {
            by_owner(tables, case)?;
            Ok(ruling(Event::PriceSet(price), Outcome::Set))
        }
        Command::Reserve { run, unit, attempt, model, worst } => {
            reserve(tables, case, run, unit, attempt, model, worst)
        }
        Command::Settle { reservation, usage } => {
            let row = by_run(tables, case, reservation)?;
            effect::may_settle(tables, case.tenant, reservation)?;
            settle(tables, case, reservation, row, usage, false)
        }
        Command::Release { reservation } => release(tables, case, reservation),
        Command::Resolve { reservation, charged } => resolve(tables, case, reservation, charged),
    }
}

fn ruling(event: Event, outcome: Outcome) -> Ruling {
    let outcome = request::Outcome::Reserve(outcome);
    Ruling { events: vec![record::Event::Reserve(event)], outcome, notices: Vec::new() }
}

fn by_owner(tables: &table::Tables, case: &Case<'_>) -> Result<(), lease::Refusal> {
    if case.genesis { Ok(()) } else { authorize(tables, case, Lock::Owner).map(|_| ()) }
}

/// One notice for each slot that comes free to each user with an open run.
fn slots_raised(tables: &table::Tables, tenant: TenantId, slots: u32) -> Vec<Notice> {
    let open = tables.run.runs.iter().filter(|((of, _), run)| *of == tenant && run.state.ended().is_none());
    let users: std::collections::BTreeSet<UserId> = open.map(|(_, run)| run.user).collect();
    let mut notices = Vec::new();
    for user in users {
        let (live, before) = tables.reserve.slots(tenant, user);
        let freed = slots.saturating_sub(live.max(before)).min(SLOT_NOTICES);
        notices.extend((0..freed).map(|_| Notice::TurnCame(Turn::Slot(tenant, user))));
    }
    notices
}

fn reserve(
    tables: &table::Tables,
    case: &Case<'_>,
    run: RunId,
    unit: UnitId,
    attempt: u32,
    model: ModelId,
    worst: MicroUsd,
) -> Result<Ruling, No> {
    let tenant = case.tenant;
    authorize(tables, case, Lock::Run(tenant, run))?;
    let user = tables.run.going(case, run)?.user;
    let price = *tables.reserve.prices.get(&(TenantId::LEDGER, model)).ok_or(Refusal::NoPrice { model })?;
    if worst == MicroUsd::ZERO {
        return Err(Refusal::Nothing.into());
    }
    let next = tables.run.next_attempt(tenant, run, unit);
    if next != Some(attempt) {
        return Err(Refusal::WrongAttempt { run, unit, attempt, next }.into());
    }
    let day = case.time.day();
    let asked = Reservation { run, unit, attempt, user, day, price, worst, close: None };
    fits_caps(tables, case.planted, &asked.accounts(tenant), worst)?;
    let (live, slots) = tables.reserve.slots(tenant, user);
    match case.term {
        Term::Open if live >= slots => return Err(No::Waits(Turn::Slot(tenant, user))),
        _ if live >= slots => return Err(Refusal::NoSlot { user, live, slots }.into()),
        Term::Ended => return Err(Refusal::WaiterExpired { user }.into()),
        Term::None | Term::Open => {}
    }
    let reservation = ReservationId(tables.record.head().next_seq);
    let reserved = Event::Reserved { reservation, run, unit, attempt, user, day, price, worst };
    let mut ruling = ruling(reserved, Outcome::Reserved(reservation));
    ruling.events.push(record::Event::Run(run::Event::AttemptStarted { run, unit, attempt, reservation }));
    Ok(ruling)
}

/// What the cap check looks at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Counting {
    /// Everything.
    All,
    /// As [`Bug::CheckAfterCall`] has it.
    SettledOnly,
    /// As [`Bug::SkipLevel`] has it.
    AllButRun,
}

/// Whether `asked` fits under the cap in force of every account, the lowest level first.
fn fits_caps(
    tables: &table::Tables,
    planted: &Planted,
    accounts: &[Account; 4],
    asked: MicroUsd,
) -> Result<(), Refusal> {
    let fits = fits_caps_counting(tables, accounts, asked, Counting::All);
    if fits.is_ok() {
        return fits; // neither mistake refuses what is right
    }
    let forgetful = planted!(
        planted,
        Bug::CheckAfterCall,
        fits.clone(),
        fits_caps_counting(tables, accounts, asked, Counting::SettledOnly)
    );
    let skipping =
        planted!(planted, Bug::SkipLevel, fits, fits_caps_counting(tables, accounts, asked, Counting::AllButRun));
    forgetful.or(skipping)
}

fn fits_caps_counting(
    tables: &table::Tables,
    accounts: &[Account; 4],
    asked: MicroUsd,
    counting: Counting,
) -> Result<(), Refusal> {
    for &account in accounts {
        let level = account.level();
        let Sums { settled, live } = tables.reserve.sums(account);
        if counting == Counting::AllButRun && level == Level::Run {
            continue;
        }
        let counted = if counting == Counting::SettledOnly { MicroUsd::ZERO } else { live };
        // Three amounts never pass what 128 bits hold, and a sum that 64 bits do not hold is above any cap.
        let sum = [settled, counted, asked].iter().map(|amount| u128::from(amount.0)).sum::<u128>();
        let cap = tables.reserve.cap(account).ok_or(Refusal::NoCap { level, tenant: account.tenant(), asked })?;
        if sum > u128::from(cap.0) {
            return Err(Refusal::OverCap { level, account, cap, settled, live, asked });
        }
    }
    Ok(())
}

/// The open reservation, if the run may end it under the case's authority.
fn by_run<'a>(tables: &'a table::Tables, case: &Case<'_>, reservation: ReservationId) -> Result<&'a Reservation, No> {
    let tenant = case.tenant;
    let row = tables.reserve.reservations.get(&(tenant, reservation));
    let run = match (case.authority.map(|authority| authority.lock), row) {
        (Some(Lock::Run(of, run)), _) if of == tenant => run,
        (_, Some(row)) => row.run,
        (_, None) => return Err(Refusal::Unknown { reservation }.into()),
    };
    authorize(tables, case, Lock::Run(tenant, run))?;
    let row = row.filter(|row| row.run == run).ok_or(Refusal::Unknown { reservation })?;
    if row.close.is_some() {
        return Err(Refusal::Ended { reservation }.into());
    }
    if tables.reserve.awaiting.get(&(tenant, reservation)).is_some() {
        return Err(Refusal::AwaitsOwner { reservation }.into());
    }
    Ok(row)
}

fn settle(
    tables: &table::Tables,
    case: &Case<'_>,
    reservation: ReservationId,
    row: &Reservation,
    usage: Usage,
    by_owner: bool,
) -> Result<Ruling, No> {
    let tenant = case.tenant;
    let cost = row.price.cost(usage);
    for account in row.accounts(tenant) {
        let settled = tables.reserve.sums(account).settled;
        if cost.and_then(|cost| settled.checked_add(cost)).is_none() {
            return Err(Refusal::TooMuch { account, settled, asked: cost }.into());
        }
    }
    let cost = planted!(case.planted, Bug::SettleAtEstimate, cost.unwrap_or(MicroUsd::MAX), row.worst);
    let overrun = cost.checked_sub(row.worst).unwrap_or(MicroUsd::ZERO);
    let settled = Event::Settled { reservation, usage, cost, overrun, by_owner };
    let notices = slot_freed(tables, tenant, row.user);
    Ok(Ruling { notices, ..ruling(settled, Outcome::Settled { cost, overrun }) })
}

/// A notice if the end of one of the user's reservations leaves a slot free.
pub(crate) fn slot_freed(tables: &table::Tables, tenant: TenantId, user: UserId) -> Vec<Notice> {
    let (live, slots) = tables.reserve.slots(tenant, user);
    if live.saturating_sub(1) < slots { vec![Notice::TurnCame(Turn::Slot(tenant, user))] } else { Vec::new() }
}

fn release(tables: &table::Tables, case: &Case<'_>, reservation: ReservationId) -> Result<Ruling, No> {
    let tenant = case.tenant;
    let released = |row: &Reservation| {
        let notices = slot_freed(tables, tenant, row.user);
        Ruling { notices, ..ruling(Event::Released { reservation, by_owner: false }, Outcome::Released) }
    };
    if let Some(row) = tables.reserve.reservations.get(&(tenant, reservation))
        && row.close.is_some()
    {
        case.planted.reach(Bug::ReleaseTwice);
        if case.planted.is_on(Bug::ReleaseTwice) {
            return Ok(released(row));
        }
    }
    let row = by_run(tables, case, reservation)?;
    effect::may_release(tables, tenant, reservation)?;
    Ok(released(row))
}

fn resolve(
    tables: &table::Tables,
    case: &Case<'_>,
    reservation: ReservationId,
    charged: Option<Usage>,
) -> Result<Ruling, No> {
    let tenant = case.tenant;
    authorize(tables, case, Lock::Owner)?;
    let row = tables.reserve.reservations.get(&(tenant, reservation)).ok_or(Refusal::Unknown { reservation })?;
    if row.close.is_some() {
        return Err(Refusal::Ended { reservation }.into());
    }
    let run_ended = tables.run.open(tenant, row.run).is_err();
    if !run_ended && tables.reserve.awaiting.get(&(tenant, reservation)).is_none() {
        return Err(Refusal::StillLive { reservation }.into());
    }
    if let Some(usage) = charged {
        return settle(tables, case, reservation, row, usage, true);
    }
    let notices = slot_freed(tables, tenant, row.user);
    Ok(Ruling { notices, ..ruling(Event::Released { reservation, by_owner: true }, Outcome::Released) })
}

/// Folds a record of this room, and an attempt's becoming indeterminate.
pub fn apply(tables: &mut table::Tables, record: &Record, planted: &Planted) -> Result<(), Impossible> {
    let tenant = record.tenant;
    match record.event {
        record::Event::Reserve(ref event) => match *event {
            Event::CapSet { tenant, level, cap } => tables.reserve.caps.insert((tenant, level), cap),
            Event::SlotsSet { tenant, slots } => tables.reserve.slots.insert(tenant, slots),
            Event::PriceSet(price) => tables.reserve.prices.insert((TenantId::LEDGER, price.model), price),
            Event::Reserved { reservation, run, unit, attempt, user, day, price, worst } => {
                ensure!(reservation.0 == record.seq, "reservation {reservation} is not named after its record");
                ensure!(day == record.time.day(), "reservation {reservation} counts in day {day}, not in its own");
                let row = Reservation { run, unit, attempt, user, day, price, worst, close: None };
                apply_reserved(tables, tenant, reservation, row)?;
            }
            Event::Settled { reservation, usage, cost, overrun, by_owner } => {
                let row = tables.reserve.reservations.get(&(tenant, reservation));
                let right = row.and_then(|row| Some((row.price.cost(usage)?, row.worst)));
                let fits = right.is_some_and(|(right, worst)| {
                    let priced = right == cost || planted.is_on(Bug::SettleAtEstimate);
                    priced && overrun.0 == cost.0.saturating_sub(worst.0)
                });
                ensure!(fits, "reservation {reservation} is settled at {cost}, {overrun} over: not its price's");
                apply_close(tables, planted, tenant, reservation, Close { cost: Some(cost), by_owner, again: false })?;
            }
            Event::Released { reservation, by_owner } => {
                let again = planted.is_on(Bug::ReleaseTwice) && give_slot_back_again(tables, tenant, reservation);
                if !again {
                    apply_close(tables, planted, tenant, reservation, Close { cost: None, by_owner, again: false })?;
                }
            }
        },
        record::Event::Run(run::Event::AttemptEnded { run, unit, attempt, state: AttemptState::Indeterminate }) => {
            let Some(row) = tables.run.attempts.get(&(tenant, run, unit, attempt)) else {
                return Err(Impossible(format!("attempt {attempt} of unit {unit} ends and never started")));
            };
            let Some(reservation) = row.reservation else {
                return Err(Impossible(format!("attempt {attempt} of unit {unit} is in doubt and never ran")));
            };
            tables.reserve.awaiting.insert((tenant, reservation), ());
        }
        _ => {}
    }
    Ok(())
}

fn apply_reserved(
    tables: &mut table::Tables,
    tenant: TenantId,
    reservation: ReservationId,
    row: Reservation,
) -> Result<(), Impossible> {
    let run = tables.run.runs.get(&(tenant, row.run)).filter(|run| run.state.ended().is_none());
    ensure!(run.is_some_and(|run| run.user == row.user), "run {} of user {} is not open", row.run, row.user);
    ensure!(row.worst > MicroUsd::ZERO, "reservation {reservation} sets nothing aside");
    let price = tables.reserve.prices.get(&(TenantId::LEDGER, row.price.model));
    ensure!(price == Some(&row.price), "reservation {reservation} is not at the price in force");
    let next = tables.run.next_attempt(tenant, row.run, row.unit);
    ensure!(next == Some(row.attempt), "attempt {} of unit {} is not the next", row.attempt, row.unit);
    let Tables { accounts, live, reservations, .. } = &mut tables.reserve;
    for account in row.accounts(tenant) {
        let sums = accounts.row(&(account.tenant(), account));
        // A unit has at most one open reservation, so this account's live sum is known without adding any up.
        let alone = account.level() != Level::Unit || sums.live == MicroUsd::ZERO;
        ensure!(alone, "{account:?} holds {} live before its only reservation", sums.live);
        let Some(sum) = sums.live.checked_add(row.worst) else {
            return Err(Impossible(format!("{account:?} would hold more than can be counted")));
        };
        sums.live = sum;
    }
    *live.row(&(tenant, row.user)) += 1;
    reservations.insert((tenant, reservation), row);
    Ok(())
}

fn apply_close(
    tables: &mut table::Tables,
    planted: &Planted,
    tenant: TenantId,
    reservation: ReservationId,
    close: Close,
) -> Result<(), Impossible> {
    let Tables { accounts, live, reservations, awaiting, .. } = &mut tables.reserve;
    let Some(row) = reservations.get_mut(&(tenant, reservation)) else {
        return Err(Impossible(format!("reservation {reservation} ends and was never made")));
    };
    ensure!(row.close.is_none(), "reservation {reservation} ends twice");
    row.close = Some(close);
    for account in row.accounts(tenant) {
        let sums = accounts.row(&(account.tenant(), account));
        let left = sums.live.checked_sub(row.worst);
        let settled = sums.settled.checked_add(close.cost.unwrap_or(MicroUsd::ZERO));
        let (Some(left), Some(settled)) = (left, settled) else {
            return Err(Impossible(format!("{account:?} cannot give {} of {} back", row.worst, sums.live)));
        };
        let alone = account.level() != Level::Unit || left == MicroUsd::ZERO;
        ensure!(alone, "{account:?} holds {left} live after its only reservation");
        *sums = Sums { settled, live: left };
    }
    let live = live.row(&(tenant, row.user));
    ensure!(*live > 0 || planted.is_on(Bug::ReleaseTwice), "user {} gives a slot back that was not taken", row.user);
    *live = live.saturating_sub(1);
    let awaited = awaiting.remove(&(tenant, reservation)).is_some();
    ensure!(!awaited || close.by_owner, "reservation {reservation} awaits the owner and ends without");
    Ok(())
}

/// [`Bug::ReleaseTwice`] at work: whether the reservation had ended, in which case only the slot is given back again.
fn give_slot_back_again(tables: &mut table::Tables, tenant: TenantId, reservation: ReservationId) -> bool {
    let Tables { live, reservations, .. } = &mut tables.reserve;
    let Some(row) = reservations.get_mut(&(tenant, reservation)) else { return false };
    let Some(close) = &mut row.close else { return false };
    close.again = true;
    let live = live.row(&(tenant, row.user));
    *live = live.saturating_sub(1);
    true
}
