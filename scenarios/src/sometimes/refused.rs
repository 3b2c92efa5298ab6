//! The answers by which the ledger says no, and which scenarios have to be given each.

use super::{Standing, USUAL_RUNS, contends, works_on};
use crate::{scenario::Scenario, workload};
use faults::Kind;
use kernel::{admit, effect, lease, request::Refusal, reserve, reserve::Level, run};

/// How the ledger says no.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "each stands for the refusal or reply of the same name; see Refused::described")]
pub enum Refused {
    Halted,
    TooManyRuns,
    TooDear,
    TooDeep,
    NoUsers,
    Held,
    LockWaiterExpired,
    Deposed,
    NotHolder,
    NoAuthority,
    NoTerm,
    Nobody,
    OtherTenant,
    OverUnitCap,
    OverRunCap,
    OverUserDayCap,
    OverLedgerDayCap,
    NoSlot,
    SlotWaiterExpired,
    NoCap,
    NoPrice,
    Nothing,
    TooMuch,
    WrongAttempt,
    ReservationUnknown,
    ReservationEnded,
    AwaitsOwner,
    StillLive,
    WrongTenant,
    RunUnknown,
    RunTaken,
    RunEnded,
    IllegalArm,
    ReservationDisagrees,
    IntentDisagrees,
    AttemptRunning,
    NoClass,
    UnknownTool,
    WrongKey,
    InFlight,
    AnsweredMeanwhile,
    UnknownIntent,
    WrongPhase,
    SameFrame,
    TooLong,
    Empty,
    Misnumbered,
    Stale,
    Forgotten,
    Busy,
    RunCancelled,
    NotCancelled,
    RunSuspended,
    NotSuspended,
    LockSuspended,
}

fn takes_over(scenario: &Scenario) -> bool {
    scenario.workload == workload::takeover::WORKLOAD
}

/// Whether an agent that is started again is likely to have something on its way: not one of two hundred.
fn restarts_agents(scenario: &Scenario) -> bool {
    works_on(scenario) && scenario.workload != workload::ceilings::WORKLOAD
}

fn researches(scenario: &Scenario) -> bool {
    scenario.workload == workload::research::WORKLOAD
}

fn lowers_caps(scenario: &Scenario) -> bool {
    works_on(scenario) && scenario.swarm.kinds.contains(&Kind::CapLowered)
}

fn halts(scenario: &Scenario) -> bool {
    works_on(scenario) && scenario.swarm.kinds.contains(&Kind::Halted)
}

fn changes_quotas(scenario: &Scenario) -> bool {
    works_on(scenario) && scenario.swarm.kinds.contains(&Kind::QuotaChanged)
}

/// Whether somebody walks into every refusal there is.
fn trespasses(scenario: &Scenario) -> bool {
    scenario.sizes.trespassers > 0
}

fn trespasses_under_quota(scenario: &Scenario) -> bool {
    trespasses(scenario) && scenario.quota.is_some()
}

/// Whether reports that were taken are made again.
fn reports_again(scenario: &Scenario) -> bool {
    trespasses(scenario) || works_on(scenario) && scenario.swarm.kinds.contains(&Kind::DuplicateReport)
}

/// Whether the ledger's queue is too short for every agent to ask at once.
fn is_short_of_queue(scenario: &Scenario) -> bool {
    scenario.ledger.queue_limit < scenario.sizes.agents as usize
}

impl Refused {
    /// Every one.
    pub const ALL: [Refused; 55] = [
        Refused::Halted,
        Refused::TooManyRuns,
        Refused::TooDear,
        Refused::TooDeep,
        Refused::NoUsers,
        Refused::Held,
        Refused::LockWaiterExpired,
        Refused::Deposed,
        Refused::NotHolder,
        Refused::NoAuthority,
        Refused::NoTerm,
        Refused::Nobody,
        Refused::OtherTenant,
        Refused::OverUnitCap,
        Refused::OverRunCap,
        Refused::OverUserDayCap,
        Refused::OverLedgerDayCap,
        Refused::NoSlot,
        Refused::SlotWaiterExpired,
        Refused::NoCap,
        Refused::NoPrice,
        Refused::Nothing,
        Refused::TooMuch,
        Refused::WrongAttempt,
        Refused::ReservationUnknown,
        Refused::ReservationEnded,
        Refused::AwaitsOwner,
        Refused::StillLive,
        Refused::WrongTenant,
        Refused::RunUnknown,
        Refused::RunTaken,
        Refused::RunEnded,
        Refused::IllegalArm,
        Refused::ReservationDisagrees,
        Refused::IntentDisagrees,
        Refused::AttemptRunning,
        Refused::NoClass,
        Refused::UnknownTool,
        Refused::WrongKey,
        Refused::InFlight,
        Refused::AnsweredMeanwhile,
        Refused::UnknownIntent,
        Refused::WrongPhase,
        Refused::SameFrame,
        Refused::TooLong,
        Refused::Empty,
        Refused::Misnumbered,
        Refused::Stale,
        Refused::Forgotten,
        Refused::Busy,
        Refused::RunCancelled,
        Refused::NotCancelled,
        Refused::RunSuspended,
        Refused::NotSuspended,
        Refused::LockSuspended,
    ];

    /// Its name and what it says.
    pub(super) const fn described(self) -> (&'static str, &'static str) {
        match self {
            Refused::Halted => ("halted", "the owner's halt was on"),
            Refused::TooManyRuns => ("too-many-runs", "a user's runs of the day were taken"),
            Refused::TooDear => ("too-dear", "a user's dollars of the day would have been passed"),
            Refused::TooDeep => ("too-deep", "a run was deeper than its user may go"),
            Refused::NoUsers => ("no-users", "a quota was set for tenant 0, which has no users"),
            Refused::Held => ("held", "a lock was another's, and there was no time to wait"),
            Refused::LockWaiterExpired => ("lock-waiter-expired", "a lock came free after its waiter's term"),
            Refused::Deposed => ("deposed", "a writer's fence was below the highest seen"),
            Refused::NotHolder => ("not-holder", "a writer did not hold the lock"),
            Refused::NoAuthority => ("no-authority", "a request did not name the lock that it needs"),
            Refused::NoTerm => ("no-term", "a lease of no length was asked for"),
            Refused::Nobody => ("nobody", "executor 0 asked for a lock"),
            Refused::OtherTenant => ("other-tenant", "a lock was another tenant's"),
            Refused::OverUnitCap => ("over-unit-cap", "a unit's cap would have been passed"),
            Refused::OverRunCap => ("over-run-cap", "a run's cap would have been passed"),
            Refused::OverUserDayCap => ("over-user-day-cap", "a user's day would have been passed"),
            Refused::OverLedgerDayCap => ("over-ledger-day-cap", "the ledger's day would have been passed"),
            Refused::NoSlot => ("no-slot", "a user's slots were taken, and there was no time to wait"),
            Refused::SlotWaiterExpired => ("slot-waiter-expired", "a slot came free after its waiter's term"),
            Refused::NoCap => ("no-cap", "no cap was in force"),
            Refused::NoPrice => ("no-price", "a model had no price"),
            Refused::Nothing => ("nothing", "nothing was asked for"),
            Refused::TooMuch => ("too-much", "an amount was past what a ledger counts"),
            Refused::WrongAttempt => ("wrong-attempt", "an attempt was not the next of its unit"),
            Refused::ReservationUnknown => ("reservation-unknown", "a reservation was not one of the run's"),
            Refused::ReservationEnded => ("reservation-ended", "a reservation had ended"),
            Refused::AwaitsOwner => ("awaits-owner", "a reservation awaited the owner"),
            Refused::StillLive => ("still-live", "the owner resolved what a run still held"),
            Refused::WrongTenant => ("wrong-tenant", "caps of a level belong to another tenant"),
            Refused::RunUnknown => ("run-unknown", "there was no such run"),
            Refused::RunTaken => ("run-taken", "a run of that name had other content"),
            Refused::RunEnded => ("run-ended", "a run had ended"),
            Refused::IllegalArm => ("illegal-arm", "an attempt could not go there from where it stood"),
            Refused::ReservationDisagrees => {
                ("reservation-disagrees", "an attempt's end and its reservation's disagreed")
            }
            Refused::IntentDisagrees => ("intent-disagrees", "an attempt's end and its intent disagreed"),
            Refused::AttemptRunning => ("attempt-running", "a run could not end under a running attempt"),
            Refused::NoClass => ("no-class", "a tool stated no class"),
            Refused::UnknownTool => ("unknown-tool", "a tool was not registered"),
            Refused::WrongKey => ("wrong-key", "a call's key was not the derived one"),
            Refused::InFlight => ("in-flight", "another asked the same question, and there was no time to wait"),
            Refused::AnsweredMeanwhile => ("answered-meanwhile", "a question was answered before its call left"),
            Refused::UnknownIntent => ("unknown-intent", "an intent was not an open one of the run's"),
            Refused::WrongPhase => ("wrong-phase", "an intent was not as far as that, or further"),
            Refused::SameFrame => ("same-frame", "an intent's last phase was not durable yet"),
            Refused::TooLong => ("too-long", "a response was longer than a record"),
            Refused::Empty => ("empty", "a request carried no command"),
            Refused::Misnumbered => ("misnumbered", "a request's numbers made no sense"),
            Refused::Stale => ("stale", "a request came from an incarnation that was not the newest"),
            Refused::Forgotten => ("forgotten", "a request's number had been acknowledged"),
            Refused::Busy => ("busy", "the server's queue was full"),
            Refused::RunCancelled => ("run-cancelled", "something of a run would have begun after its cancel"),
            Refused::NotCancelled => ("not-cancelled", "a run that was not cancelled would have ended so"),
            Refused::RunSuspended => ("run-suspended", "something of a run would have begun while it was suspended"),
            Refused::NotSuspended => ("not-suspended", "a run was resumed that was not suspended"),
            Refused::LockSuspended => {
                ("lock-suspended", "a lock was of a run that is suspended, and there was no time to wait")
            }
        }
    }

    /// Whether a gate has to reach it.
    pub fn standing(self) -> Standing {
        let required = |of_runs, able| Standing::Required { of_runs, able };
        match self {
            Refused::Halted => required(USUAL_RUNS, halts),
            Refused::TooManyRuns => required(450, changes_quotas),
            Refused::TooDear | Refused::TooDeep => required(USUAL_RUNS, trespasses_under_quota),
            Refused::Held | Refused::Deposed => required(USUAL_RUNS, works_on),
            Refused::LockWaiterExpired | Refused::NotHolder => required(USUAL_RUNS, takes_over),
            Refused::OverRunCap | Refused::OverUserDayCap | Refused::AttemptRunning => required(USUAL_RUNS, contends),
            Refused::OverUnitCap => required(USUAL_RUNS, lowers_caps),
            Refused::OverLedgerDayCap => required(200, lowers_caps),
            Refused::ReservationEnded | Refused::RunEnded => required(USUAL_RUNS, reports_again),
            Refused::Stale => required(USUAL_RUNS, restarts_agents),
            Refused::Forgotten => required(200, researches),
            Refused::Busy => required(USUAL_RUNS, is_short_of_queue),
            Refused::NoUsers
            | Refused::NoAuthority
            | Refused::OtherTenant
            | Refused::WrongTenant
            | Refused::NoTerm
            | Refused::Nobody
            | Refused::NoSlot
            | Refused::SlotWaiterExpired
            | Refused::NoCap
            | Refused::NoPrice
            | Refused::Nothing
            | Refused::TooMuch
            | Refused::WrongAttempt
            | Refused::ReservationUnknown
            | Refused::AwaitsOwner
            | Refused::StillLive
            | Refused::RunUnknown
            | Refused::RunTaken
            | Refused::IllegalArm
            | Refused::ReservationDisagrees
            | Refused::Empty
            | Refused::Misnumbered
            | Refused::NoClass
            | Refused::UnknownTool
            | Refused::WrongKey
            | Refused::WrongPhase
            | Refused::IntentDisagrees
            | Refused::TooLong => required(USUAL_RUNS, trespasses),
            Refused::InFlight => required(USUAL_RUNS, |scenario| scenario.workload.name == "stampede"),
            Refused::UnknownIntent => required(USUAL_RUNS, |scenario| scenario.workload.name == "effects"),
            Refused::AnsweredMeanwhile => {
                Standing::Rare("a leader has to die between its begin and its dispatch, with a follower at its heels")
            }
            Refused::SameFrame => Standing::ByConstruction("an agent waits for the answer to each phase"),
            Refused::RunCancelled | Refused::LockSuspended => {
                required(USUAL_RUNS, |scenario| scenario.workload.name == "effects")
            }
            Refused::NotCancelled | Refused::NotSuspended => required(USUAL_RUNS, trespasses),
            Refused::RunSuspended => Standing::ByConstruction("nobody holds the lease that it would be asked under"),
        }
    }

    pub(super) fn of(refusal: &Refusal) -> Refused {
        match refusal {
            Refusal::Admit(refusal) => match refusal {
                admit::Refusal::Halted { .. } => Refused::Halted,
                admit::Refusal::TooManyRuns { .. } => Refused::TooManyRuns,
                admit::Refusal::TooDear { .. } => Refused::TooDear,
                admit::Refusal::TooDeep { .. } => Refused::TooDeep,
                admit::Refusal::NoUsers => Refused::NoUsers,
            },
            Refusal::Lease(refusal) => match refusal {
                lease::Refusal::Held { .. } => Refused::Held,
                lease::Refusal::WaiterExpired { .. } => Refused::LockWaiterExpired,
                lease::Refusal::Deposed { .. } => Refused::Deposed,
                lease::Refusal::NotHolder { .. } => Refused::NotHolder,
                lease::Refusal::NoAuthority { .. } => Refused::NoAuthority,
                lease::Refusal::NoTerm => Refused::NoTerm,
                lease::Refusal::Nobody { .. } => Refused::Nobody,
                lease::Refusal::OtherTenant { .. } => Refused::OtherTenant,
                lease::Refusal::Suspended { .. } => Refused::LockSuspended,
            },
            Refusal::Effect(refusal) => Refused::of_effect(refusal),
            Refusal::Reserve(refusal) => Refused::of_reserve(refusal),
            Refusal::Run(refusal) => match refusal {
                run::Refusal::Unknown { .. } => Refused::RunUnknown,
                run::Refusal::Taken { .. } => Refused::RunTaken,
                run::Refusal::Ended { .. } => Refused::RunEnded,
                run::Refusal::IllegalArm { .. } => Refused::IllegalArm,
                run::Refusal::ReservationDisagrees { .. } => Refused::ReservationDisagrees,
                run::Refusal::IntentDisagrees { .. } => Refused::IntentDisagrees,
                run::Refusal::AttemptRunning { .. } => Refused::AttemptRunning,
                run::Refusal::Cancelled { .. } => Refused::RunCancelled,
                run::Refusal::NotCancelled { .. } => Refused::NotCancelled,
                run::Refusal::Suspended { .. } => Refused::RunSuspended,
                run::Refusal::NotSuspended { .. } => Refused::NotSuspended,
            },
        }
    }

    fn of_effect(refusal: &effect::Refusal) -> Refused {
        match refusal {
            effect::Refusal::Empty => Refused::Empty,
            effect::Refusal::Misnumbered { .. } => Refused::Misnumbered,
            effect::Refusal::NoClass { .. } => Refused::NoClass,
            effect::Refusal::UnknownTool { .. } => Refused::UnknownTool,
            effect::Refusal::WrongKey { .. } => Refused::WrongKey,
            effect::Refusal::InFlight { .. } => Refused::InFlight,
            effect::Refusal::AnsweredMeanwhile { .. } => Refused::AnsweredMeanwhile,
            effect::Refusal::UnknownIntent { .. } => Refused::UnknownIntent,
            effect::Refusal::WrongPhase { .. } => Refused::WrongPhase,
            effect::Refusal::SameFrame { .. } => Refused::SameFrame,
            effect::Refusal::TooLong { .. } => Refused::TooLong,
        }
    }

    fn of_reserve(refusal: &reserve::Refusal) -> Refused {
        match refusal {
            reserve::Refusal::OverCap { level: Level::Unit, .. } => Refused::OverUnitCap,
            reserve::Refusal::OverCap { level: Level::Run, .. } => Refused::OverRunCap,
            reserve::Refusal::OverCap { level: Level::UserDay, .. } => Refused::OverUserDayCap,
            reserve::Refusal::OverCap { level: Level::LedgerDay, .. } => Refused::OverLedgerDayCap,
            reserve::Refusal::NoSlot { .. } => Refused::NoSlot,
            reserve::Refusal::WaiterExpired { .. } => Refused::SlotWaiterExpired,
            reserve::Refusal::NoCap { .. } => Refused::NoCap,
            reserve::Refusal::NoPrice { .. } => Refused::NoPrice,
            reserve::Refusal::Nothing => Refused::Nothing,
            reserve::Refusal::TooMuch { .. } => Refused::TooMuch,
            reserve::Refusal::WrongAttempt { .. } => Refused::WrongAttempt,
            reserve::Refusal::Unknown { .. } => Refused::ReservationUnknown,
            reserve::Refusal::Ended { .. } => Refused::ReservationEnded,
            reserve::Refusal::AwaitsOwner { .. } => Refused::AwaitsOwner,
            reserve::Refusal::StillLive { .. } => Refused::StillLive,
            reserve::Refusal::WrongTenant { .. } => Refused::WrongTenant,
        }
    }
}
