//! Is there enough? Caps at four levels, live slots, prices; reserve, settle, release, resolve.
//!
//! The rule, checked inside each admitted reserve and with one comparator at every level, lowest level first:
//! `settled + live + asked <= cap in force`, and `live reservations of the user < slots`. Each reservation ends exactly once.
//! Lowering a cap below what is committed admits nothing new and rewrites nothing. Usage above its reservation is settled as
//! it is, reported as an overrun, and counts against every cap.

use crate::{
    id::{ModelId, ReservationId, RunId, TenantId, UnitId, UserId},
    money::{MicroUsd, Price, Usage},
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
    /// End a reservation with what the response says was used. Under the run's lock.
    Settle {
        /// Which.
        reservation: ReservationId,
        /// The response's own usage.
        usage: Usage,
    },
    /// End a reservation of a call that is known not to have been charged. Under the run's lock.
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
    #[error("{level:?} cap {cap}: settled {settled} and live {live} leave no room for {asked}")]
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
    #[error("user {user} has {live} live reservations of {slots}; settle one first, or wait")]
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
    /// No cap is in force at a level.
    #[error("no {level:?} cap is in force for tenant {tenant}; the owner sets it first")]
    NoCap {
        /// The level.
        level: Level,
        /// The tenant asked for.
        tenant: TenantId,
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
    /// A sum would pass the largest amount.
    #[error("the amount is past what a ledger can count")]
    TooMuch,
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
