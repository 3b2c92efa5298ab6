//! The rules, as documented with each command and refusal; see the module above for the order they are read in.

use super::{
    effects,
    tables::{AttemptRow, End, LockRow, ReservationRow, RunRow, Stands, Tables, accounts},
};
use crate::invariant::budget::cost_of;
use kernel::{
    admit::{self, DepthTier},
    effect::{self, Phase},
    id::{ClientId, ExecutorId, Fence, LedgerTime, ReservationId, RunId, TenantId, UnitId, UserId},
    lease::{self, Authority, Lock},
    money::{MicroUsd, Usage},
    record::Event,
    request::{Command, Outcome, Refusal, Turn},
    reserve::{self, Account, Level},
    run::{self, AttemptState},
};

/// Who asks, for what, when.
pub(super) struct Asked {
    pub tenant: TenantId,
    pub client: ClientId,
    pub authority: Option<Authority>,
    pub wait_ns: u64,
    pub waits_until_ns: u64,
    pub now_ns: u64,
    pub time: LedgerTime,
    /// Whether this is the ledger's own first request on an empty log, which needs no lock.
    pub genesis: bool,
}

impl Asked {
    pub(super) fn may_wait(&self) -> bool {
        self.wait_ns > 0 && self.now_ns <= self.waits_until_ns
    }

    fn waited_too_long(&self) -> bool {
        self.wait_ns > 0 && self.now_ns > self.waits_until_ns
    }
}

/// Why a request goes no further.
#[derive(Debug)]
pub(super) enum Stop {
    Refused(Refusal),
    Waits(Turn),
}

impl<R: Into<Refusal>> From<R> for Stop {
    fn from(refusal: R) -> Stop {
        Stop::Refused(refusal.into())
    }
}

pub(super) type Made = (Outcome, Vec<Event>);

/// Decides a request's commands in order and folds what they do; if one stops it, nothing has happened.
pub(super) fn decide_all(
    tables: &mut Tables,
    first_seq: u64,
    asked: &Asked,
    commands: &[Command],
) -> Result<(Vec<Outcome>, Vec<Event>), Stop> {
    let (mut outcomes, mut events) = (Vec::with_capacity(commands.len()), Vec::new());
    let mut decided = Ok(());
    for command in commands {
        match decide(tables, first_seq + events.len() as u64, asked, command) {
            Ok((outcome, made)) => {
                made.iter().for_each(|event| tables.fold(asked.tenant, asked.time.day(), event));
                outcomes.push(outcome);
                events.extend(made);
            }
            Err(stop) => {
                decided = Err(stop);
                break;
            }
        }
    }
    match decided.and_then(|()| paired(tables, &events)) {
        Ok(()) => {
            tables.keep();
            Ok((outcomes, events))
        }
        Err(stop) => {
            tables.undo();
            Err(stop)
        }
    }
}

fn decide(tables: &Tables, seq: u64, asked: &Asked, command: &Command) -> Result<Made, Stop> {
    may_begin(tables, asked, command)?;
    match command {
        Command::Admit(command) => set_admission(tables, asked, command),
        Command::Lease(command) => lease(tables, asked, command),
        Command::Reserve(command) => match *command {
            reserve::Command::SetCap { .. } | reserve::Command::SetSlots { .. } | reserve::Command::SetPrice(_) => {
                set(tables, asked, command)
            }
            reserve::Command::Reserve { .. } => reserve(tables, seq, asked, command),
            reserve::Command::Settle { reservation, usage } => {
                let row = of_run(tables, asked, reservation)?;
                effects::may_end(tables, reservation, |phase| phase == Phase::Committed)?;
                end_reservation(tables, reservation, &row, Some(usage), false)
            }
            reserve::Command::Release { reservation } => {
                let row = of_run(tables, asked, reservation)?;
                effects::may_end(tables, reservation, |phase| phase != Phase::Dispatched)?;
                end_reservation(tables, reservation, &row, None, false)
            }
            reserve::Command::Resolve { reservation, charged } => resolve(tables, asked, reservation, charged),
        },
        Command::Run(command) => run(tables, asked, command),
        Command::Effect(command) => effects::decide(tables, seq, asked, command),
    }
}

/// Whether `admit` lets in what a command would begin, if it would begin anything.
fn may_begin(tables: &Tables, asked: &Asked, command: &Command) -> Result<(), Stop> {
    let tenant = asked.tenant;
    match *command {
        Command::Run(run::Command::Spawn { run, user, depth, .. }) => {
            if tables.runs.find((tenant, run)).is_some() {
                return Ok(());
            }
            may_spawn(tables, asked, user, depth)?;
        }
        Command::Reserve(reserve::Command::Reserve { run, worst, .. })
        | Command::Effect(effect::Command::Begin { run, worst, .. }) => {
            if let Some(row) = tables.runs.find((tenant, run)) {
                may_spend(tables, asked, row.user, worst)?;
            }
        }
        Command::Effect(effect::Command::Dispatch { .. }) => {}
        _ => return Ok(()),
    }
    for switch in [TenantId::LEDGER, tenant] {
        if tables.halts.find(switch).is_some() {
            return Err(admit::Refusal::Halted { tenant: switch }.into());
        }
    }
    Ok(())
}

fn quota_of(tables: &Tables, tenant: TenantId, user: UserId) -> Option<admit::Quota> {
    tables.quotas.find((tenant, Some(user))).or(tables.quotas.find((tenant, None)))
}

fn may_spawn(tables: &Tables, asked: &Asked, user: UserId, depth: DepthTier) -> Result<(), Stop> {
    let Some(quota) = quota_of(tables, asked.tenant, user) else { return Ok(()) };
    let deepest = quota.depth_tier;
    if deepest < depth {
        return Err(admit::Refusal::TooDeep { user, deepest, asked: depth }.into());
    }
    let (day, limit) = (asked.time.day(), quota.runs_per_day);
    let taken = tables.taken.find((asked.tenant, user, day)).unwrap_or(0);
    if limit <= taken {
        return Err(admit::Refusal::TooManyRuns { user, day, limit, taken }.into());
    }
    may_spend(tables, asked, user, MicroUsd(1))
}

fn may_spend(tables: &Tables, asked: &Asked, user: UserId, amount: MicroUsd) -> Result<(), Stop> {
    let Some(quota) = quota_of(tables, asked.tenant, user) else { return Ok(()) };
    let (day, limit) = (asked.time.day(), quota.micro_usd_per_day);
    let sums = tables.accounts.find(Account::UserDay(asked.tenant, user, day)).unwrap_or_default();
    if u128::from(sums.settled) + u128::from(sums.live) + u128::from(amount.0) > u128::from(limit.0) {
        let (settled, live) = (MicroUsd(sums.settled), MicroUsd(sums.live));
        return Err(admit::Refusal::TooDear { user, day, limit, settled, live, asked: amount }.into());
    }
    Ok(())
}

fn set_admission(tables: &Tables, asked: &Asked, command: &admit::Command) -> Result<Made, Stop> {
    if !asked.genesis {
        authority(tables, asked, Lock::Owner)?;
    }
    let event = match *command {
        admit::Command::SetHalt { tenant, switch } => admit::Event::HaltSet { tenant, switch },
        admit::Command::SetQuota { tenant: TenantId::LEDGER, .. } => return Err(admit::Refusal::NoUsers.into()),
        admit::Command::SetQuota { tenant, user, quota } => admit::Event::QuotaSet { tenant, user, quota },
    };
    Ok((Outcome::Admit(admit::Outcome::Set), vec![Event::Admit(event)]))
}

/// Whether the request writes under the current grant of `needed`.
pub(super) fn authority(tables: &Tables, asked: &Asked, needed: Lock) -> Result<(), Stop> {
    match asked.authority {
        Some(held) if held.lock == needed => holds(tables, held).map(|_| ()),
        _ => Err(lease::Refusal::NoAuthority { needed }.into()),
    }
}

fn holds(tables: &Tables, held: Authority) -> Result<LockRow, Stop> {
    let row = tables.locks.find(held.lock).unwrap_or_default();
    if held.fence < row.highest {
        let refusal = lease::Refusal::Deposed { lock: held.lock, offered: held.fence, highest: row.highest };
        return Err(refusal.into());
    }
    match row.holder {
        Some(holder) if (holder.executor, holder.fence) == (held.executor, held.fence) => Ok(row),
        _ => {
            let Authority { lock, executor, fence } = held;
            Err(lease::Refusal::NotHolder { lock, executor, fence }.into())
        }
    }
}

fn is_suspended(tables: &Tables, lock: Lock) -> bool {
    let Lock::Run(tenant, run) = lock else { return false };
    tables.runs.find((tenant, run)).is_some_and(|row| row.stands == Stands::Suspended)
}

fn lease(tables: &Tables, asked: &Asked, command: &lease::Command) -> Result<Made, Stop> {
    let end = |ttl_ns: u64| LedgerTime(asked.time.0.saturating_add(ttl_ns));
    let held = |fence, until| Outcome::Lease(lease::Outcome::Held { fence, until });
    match *command {
        lease::Command::Acquire { ttl_ns: 0, .. } => Err(lease::Refusal::NoTerm.into()),
        lease::Command::Acquire { lock, executor: ExecutorId(0), .. } => Err(lease::Refusal::Nobody { lock }.into()),
        lease::Command::Acquire { lock: lock @ Lock::Run(of, _), .. } if of != asked.tenant => {
            Err(lease::Refusal::OtherTenant { lock, tenant: asked.tenant }.into())
        }
        lease::Command::Acquire { lock, executor, ttl_ns } => {
            let row = tables.locks.find(lock).unwrap_or_default();
            match row.holder {
                Some(holder) if holder.executor == executor => {
                    let (fence, until) = (holder.fence, end(ttl_ns).max(holder.until));
                    let renewed = lease::Event::Renewed { lock, fence, until };
                    Ok((held(fence, until), vec![Event::Lease(renewed)]))
                }
                Some(_) if asked.may_wait() => Err(Stop::Waits(Turn::Lock(lock))),
                Some(holder) => {
                    let (fence, until) = (holder.fence, holder.until);
                    Err(lease::Refusal::Held { lock, holder: holder.executor, fence, until }.into())
                }
                None if is_suspended(tables, lock) => match asked.may_wait() {
                    true => Err(Stop::Waits(Turn::Lock(lock))),
                    false => Err(lease::Refusal::Suspended { lock }.into()),
                },
                None if asked.waited_too_long() => Err(lease::Refusal::WaiterExpired { lock, now: asked.time }.into()),
                None => {
                    let (fence, until) = (Fence(row.highest.0 + 1), end(ttl_ns));
                    let granted = lease::Event::Granted { lock, executor, client: asked.client, fence, until };
                    Ok((held(fence, until), vec![Event::Lease(granted)]))
                }
            }
        }
        lease::Command::Renew { held: grant, ttl_ns } => {
            let row = holds(tables, grant)?;
            if ttl_ns == 0 {
                return Err(lease::Refusal::NoTerm.into());
            }
            let before = row.holder.map_or(asked.time, |holder| holder.until);
            let (lock, fence, until) = (grant.lock, grant.fence, end(ttl_ns).max(before));
            Ok((held(fence, until), vec![Event::Lease(lease::Event::Renewed { lock, fence, until })]))
        }
        lease::Command::Yield { held: grant } => {
            holds(tables, grant)?;
            let yielded = lease::Event::Yielded { lock: grant.lock, fence: grant.fence };
            Ok((Outcome::Lease(lease::Outcome::Yielded), vec![Event::Lease(yielded)]))
        }
        lease::Command::Tick if asked.client != ClientId::LEDGER => {
            Err(lease::Refusal::NoAuthority { needed: Lock::Owner }.into())
        }
        lease::Command::Tick => {
            let due = tables.ends.range(..(asked.time, Lock::Owner)).map(|((_, lock), ())| {
                let fence = tables.locks.find(lock).unwrap_or_default().highest;
                Event::Lease(lease::Event::Expired { lock, fence })
            });
            Ok((Outcome::Lease(lease::Outcome::Ticked), due.collect()))
        }
    }
}

fn set(tables: &Tables, asked: &Asked, command: &reserve::Command) -> Result<Made, Stop> {
    if !asked.genesis {
        authority(tables, asked, Lock::Owner)?;
    }
    let event = match *command {
        reserve::Command::SetCap { tenant, level, cap } => {
            if (tenant == TenantId::LEDGER) != (level == Level::LedgerDay) {
                return Err(reserve::Refusal::WrongTenant { level, tenant }.into());
            }
            reserve::Event::CapSet { tenant, level, cap }
        }
        reserve::Command::SetSlots { tenant, slots } => reserve::Event::SlotsSet { tenant, slots },
        reserve::Command::SetPrice(price) => reserve::Event::PriceSet(price),
        _ => unreachable!("only settings are set"),
    };
    Ok((Outcome::Reserve(reserve::Outcome::Set), vec![Event::Reserve(event)]))
}

/// A run that was spawned and has not ended.
pub(super) fn live_run(tables: &Tables, tenant: TenantId, run: RunId) -> Result<RunRow, Stop> {
    match tables.runs.find((tenant, run)) {
        None => Err(run::Refusal::Unknown { run }.into()),
        Some(row) if row.stands == Stands::Over => Err(run::Refusal::Ended { run }.into()),
        Some(row) => Ok(row),
    }
}

/// A run of which something may begin.
pub(super) fn going_run(tables: &Tables, tenant: TenantId, run: RunId) -> Result<RunRow, Stop> {
    let row = live_run(tables, tenant, run)?;
    match row.stands {
        Stands::Cancelling => Err(run::Refusal::Cancelled { run }.into()),
        Stands::Suspended => Err(run::Refusal::Suspended { run }.into()),
        Stands::Open | Stands::Over => Ok(row),
    }
}

pub(super) fn reserve(tables: &Tables, seq: u64, asked: &Asked, command: &reserve::Command) -> Result<Made, Stop> {
    let reserve::Command::Reserve { run, unit, attempt, model, worst } = *command else {
        unreachable!("only a reserve reserves")
    };
    let tenant = asked.tenant;
    authority(tables, asked, Lock::Run(tenant, run))?;
    let user = going_run(tables, tenant, run)?.user;
    let price = tables.prices.find(model).ok_or(reserve::Refusal::NoPrice { model })?;
    if worst == MicroUsd::ZERO {
        return Err(reserve::Refusal::Nothing.into());
    }
    is_next(tables, tenant, run, unit, attempt)?;
    let day = asked.time.day();
    for (level, account) in Level::ALL.into_iter().zip(accounts(tenant, run, unit, user, day)) {
        let of = if level == Level::LedgerDay { TenantId::LEDGER } else { tenant };
        let sums = tables.accounts.find(account).unwrap_or_default();
        let no_cap = reserve::Refusal::NoCap { level, tenant: of, asked: worst };
        let cap = tables.caps.find((of, level)).ok_or(no_cap)?;
        if u128::from(sums.settled) + u128::from(sums.live) + u128::from(worst.0) > u128::from(cap.0) {
            let (settled, live) = (MicroUsd(sums.settled), MicroUsd(sums.live));
            return Err(reserve::Refusal::OverCap { level, account, cap, settled, live, asked: worst }.into());
        }
    }
    let live = tables.live.find((tenant, user)).unwrap_or(0);
    let slots = tables.slots.find(tenant).unwrap_or(0);
    if live >= slots {
        return Err(match asked.may_wait() {
            true => Stop::Waits(Turn::Slot(tenant, user)),
            false => reserve::Refusal::NoSlot { user, live, slots }.into(),
        });
    }
    if asked.waited_too_long() {
        return Err(reserve::Refusal::WaiterExpired { user }.into());
    }
    let reservation = ReservationId(seq);
    let reserved = reserve::Event::Reserved { reservation, run, unit, attempt, user, day, price, worst };
    let started = run::Event::AttemptStarted { run, unit, attempt, reservation };
    let outcome = Outcome::Reserve(reserve::Outcome::Reserved(reservation));
    Ok((outcome, vec![Event::Reserve(reserved), Event::Run(started)]))
}

/// The attempt of a unit that may be admitted: the first, one that is queued, or the one after an attempt that came to nothing.
fn next_of(tables: &Tables, tenant: TenantId, run: RunId, unit: UnitId) -> Option<u32> {
    use AttemptState::{Cancelled, Failed, Indeterminate, Pending, Running, Succeeded, TimedOut};
    match tables.latest(tenant, run, unit).map(|(latest, row)| (latest, row.state)) {
        None => Some(1),
        Some((latest, Pending)) => Some(latest),
        Some((latest, Failed | Cancelled | TimedOut)) => Some(latest + 1),
        Some((_, Running | Succeeded | Indeterminate)) => None,
    }
}

pub(super) fn is_next(tables: &Tables, tenant: TenantId, run: RunId, unit: UnitId, attempt: u32) -> Result<(), Stop> {
    let next = next_of(tables, tenant, run, unit);
    if next != Some(attempt) {
        return Err(reserve::Refusal::WrongAttempt { run, unit, attempt, next }.into());
    }
    Ok(())
}

/// The attempt that a reservation was made for.
fn attempt_of(tables: &Tables, row: &ReservationRow) -> Option<AttemptRow> {
    tables.attempts.find((row.tenant, row.run, row.unit, row.attempt))
}

/// A reservation that the run writing this request may end. The lock is that of the run whose authority is offered, or else
/// of the run whose reservation it is.
fn of_run(tables: &Tables, asked: &Asked, reservation: ReservationId) -> Result<ReservationRow, Stop> {
    let known = tables.reservations.find(reservation).filter(|row| row.tenant == asked.tenant);
    let offered = asked.authority.and_then(|held| match held.lock {
        Lock::Run(tenant, run) => (tenant == asked.tenant).then_some(run),
        Lock::Owner => None,
    });
    let unknown = reserve::Refusal::Unknown { reservation };
    let run = offered.or(known.map(|row| row.run)).ok_or(unknown.clone())?;
    authority(tables, asked, Lock::Run(asked.tenant, run))?;
    let row = known.filter(|row| row.run == run).ok_or(unknown)?;
    if row.end.is_some() {
        return Err(reserve::Refusal::Ended { reservation }.into());
    }
    if attempt_of(tables, &row).is_some_and(|attempt| attempt.state == AttemptState::Indeterminate) {
        return Err(reserve::Refusal::AwaitsOwner { reservation }.into());
    }
    Ok(row)
}

fn end_reservation(
    tables: &Tables,
    reservation: ReservationId,
    row: &ReservationRow,
    charged: Option<Usage>,
    by_owner: bool,
) -> Result<Made, Stop> {
    let Some(usage) = charged else {
        let released = reserve::Event::Released { reservation, by_owner };
        return Ok((Outcome::Reserve(reserve::Outcome::Released), vec![Event::Reserve(released)]));
    };
    let asked = cost_of(&row.price, usage);
    for account in row.accounts() {
        let settled = tables.accounts.find(account).unwrap_or_default().settled;
        if asked.is_none_or(|cost| settled > u64::MAX - cost) {
            let (settled, asked) = (MicroUsd(settled), asked.map(MicroUsd));
            return Err(reserve::Refusal::TooMuch { account, settled, asked }.into());
        }
    }
    let cost = asked.unwrap_or(u64::MAX);
    let (cost, overrun) = (MicroUsd(cost), MicroUsd(cost.saturating_sub(row.worst.0)));
    let settled = reserve::Event::Settled { reservation, usage, cost, overrun, by_owner };
    Ok((Outcome::Reserve(reserve::Outcome::Settled { cost, overrun }), vec![Event::Reserve(settled)]))
}

fn resolve(tables: &Tables, asked: &Asked, reservation: ReservationId, charged: Option<Usage>) -> Result<Made, Stop> {
    authority(tables, asked, Lock::Owner)?;
    let known = tables.reservations.find(reservation).filter(|row| row.tenant == asked.tenant);
    let row = known.ok_or(reserve::Refusal::Unknown { reservation })?;
    if row.end.is_some() {
        return Err(reserve::Refusal::Ended { reservation }.into());
    }
    let unknown = attempt_of(tables, &row).is_some_and(|attempt| attempt.state == AttemptState::Indeterminate);
    let over = tables.runs.find((row.tenant, row.run)).is_some_and(|run| run.stands == Stands::Over);
    if !unknown && !over {
        return Err(reserve::Refusal::StillLive { reservation }.into());
    }
    end_reservation(tables, reservation, &row, charged, true)
}

fn run(tables: &Tables, asked: &Asked, command: &run::Command) -> Result<Made, Stop> {
    let tenant = asked.tenant;
    match *command {
        run::Command::Spawn { run, user, task, workflow_version, purpose, depth } => {
            let outcome = Outcome::Run(run::Outcome::Spawned);
            let asked_for = RunRow { user, task, workflow_version, purpose, depth, stands: Stands::Open };
            match tables.runs.find((tenant, run)) {
                None => {
                    let spawned = run::Event::Spawned { run, user, task, workflow_version, purpose, depth };
                    Ok((outcome, vec![Event::Run(spawned)]))
                }
                Some(known) if RunRow { stands: Stands::Open, ..known } == asked_for => Ok((outcome, Vec::new())),
                Some(_) => Err(run::Refusal::Taken { run }.into()),
            }
        }
        run::Command::EndAttempt { run, unit, attempt, state } => end_attempt(tables, asked, run, unit, attempt, state),
        run::Command::Queue { run, unit, attempt } => {
            authority(tables, asked, Lock::Run(tenant, run))?;
            going_run(tables, tenant, run)?;
            if tables.attempts.find((tenant, run, unit, attempt)).is_some() {
                return Err(reserve::Refusal::WrongAttempt { run, unit, attempt, next: None }.into());
            }
            is_next(tables, tenant, run, unit, attempt)?;
            let queued = run::Event::AttemptQueued { run, unit, attempt };
            Ok((Outcome::Run(run::Outcome::Queued), vec![Event::Run(queued)]))
        }
        run::Command::End { run, outcome } => {
            authority(tables, asked, Lock::Run(tenant, run))?;
            let stands = live_run(tables, tenant, run)?.stands;
            match (stands == Stands::Cancelling, outcome == run::Ending::Cancelled) {
                (true, false) => return Err(run::Refusal::Cancelled { run }.into()),
                (false, true) => return Err(run::Refusal::NotCancelled { run }.into()),
                _ => {}
            }
            none_running(tables, tenant, run)?;
            Ok((Outcome::Run(run::Outcome::Ended), ending(tables, tenant, run, outcome)))
        }
        run::Command::Suspend { run } => {
            let lock = Lock::Run(tenant, run);
            authority(tables, asked, lock)?;
            going_run(tables, tenant, run)?;
            none_running(tables, tenant, run)?;
            let fence = tables.locks.find(lock).unwrap_or_default().highest;
            let events =
                vec![Event::Run(run::Event::Suspended { run }), Event::Lease(lease::Event::Yielded { lock, fence })];
            Ok((Outcome::Run(run::Outcome::Suspended), events))
        }
        run::Command::Resume { run } => {
            authority(tables, asked, Lock::Owner)?;
            if live_run(tables, tenant, run)?.stands != Stands::Suspended {
                return Err(run::Refusal::NotSuspended { run }.into());
            }
            Ok((Outcome::Run(run::Outcome::Resumed), vec![Event::Run(run::Event::Resumed { run })]))
        }
        run::Command::Cancel { run } => {
            authority(tables, asked, Lock::Owner)?;
            let again = live_run(tables, tenant, run)?.stands == Stands::Cancelling;
            let running = tables.of_run(tenant, run, AttemptState::Running).len() as u32;
            let cancelled = Event::Run(run::Event::Cancelled { run, running });
            Ok((Outcome::Run(run::Outcome::Cancelled), if again { Vec::new() } else { vec![cancelled] }))
        }
    }
}

fn none_running(tables: &Tables, tenant: TenantId, run: RunId) -> Result<(), Stop> {
    match tables.of_run(tenant, run, AttemptState::Running).first() {
        Some(((.., unit, attempt), _)) => {
            Err(run::Refusal::AttemptRunning { run, unit: *unit, attempt: *attempt }.into())
        }
        None => Ok(()),
    }
}

/// What ends a run: its queued attempts go first.
fn ending(tables: &Tables, tenant: TenantId, run: RunId, outcome: run::Ending) -> Vec<Event> {
    let queued = tables.of_run(tenant, run, AttemptState::Pending).into_iter();
    let cancelled = queued.map(|((.., unit, attempt), _)| {
        Event::Run(run::Event::AttemptEnded { run, unit, attempt, state: AttemptState::Cancelled })
    });
    cancelled.chain([Event::Run(run::Event::Ended { run, outcome })]).collect()
}

fn end_attempt(
    tables: &Tables,
    asked: &Asked,
    run: RunId,
    unit: UnitId,
    attempt: u32,
    to: AttemptState,
) -> Result<Made, Stop> {
    let tenant = asked.tenant;
    authority(tables, asked, Lock::Run(tenant, run))?;
    let stands = live_run(tables, tenant, run)?.stands;
    let row = tables.attempts.find((tenant, run, unit, attempt));
    let from = row.map(|row| row.state);
    let right = match (from, to) {
        (Some(AttemptState::Pending), AttemptState::Cancelled | AttemptState::TimedOut) => None,
        (Some(AttemptState::Running), AttemptState::Succeeded) => Some(End::Settled),
        (Some(AttemptState::Running), AttemptState::Failed | AttemptState::Cancelled | AttemptState::TimedOut) => {
            Some(End::Released)
        }
        (Some(AttemptState::Running), AttemptState::Indeterminate) => None,
        _ => return Err(run::Refusal::IllegalArm { unit, attempt, from, to }.into()),
    };
    let reservation = row.and_then(|row| row.reservation);
    if reservation.and_then(|reservation| tables.reservations.find(reservation)?.end) != right {
        return Err(run::Refusal::ReservationDisagrees { unit, attempt, to }.into());
    }
    if let Some(phase) = reservation.and_then(|intent| tables.intents.find(intent)).map(|row| row.phase) {
        let right = match to {
            AttemptState::Cancelled | AttemptState::TimedOut => phase != Phase::Dispatched,
            AttemptState::Indeterminate => phase == Phase::Dispatched,
            _ => phase == Phase::Committed,
        };
        if !right {
            return Err(run::Refusal::IntentDisagrees { unit, attempt, to, phase }.into());
        }
    }
    let mut events = vec![Event::Run(run::Event::AttemptEnded { run, unit, attempt, state: to })];
    let was_running = from == Some(AttemptState::Running);
    if stands == Stands::Cancelling && was_running && tables.of_run(tenant, run, AttemptState::Running).len() == 1 {
        events.extend(ending(tables, tenant, run, run::Ending::Cancelled));
    }
    Ok((Outcome::Run(run::Outcome::AttemptEnded), events))
}

/// Whether every reservation that a run's request ended has an attempt that ended with it.
fn paired(tables: &Tables, events: &[Event]) -> Result<(), Stop> {
    for event in events {
        let Event::Reserve(
            reserve::Event::Settled { reservation, by_owner: false, .. }
            | reserve::Event::Released { reservation, by_owner: false },
        ) = *event
        else {
            continue;
        };
        let Some(row) = tables.reservations.find(reservation) else { continue };
        if attempt_of(tables, &row).is_some_and(|attempt| attempt.state == AttemptState::Running) {
            let (unit, attempt, to) = (row.unit, row.attempt, AttemptState::Running);
            return Err(run::Refusal::ReservationDisagrees { unit, attempt, to }.into());
        }
    }
    Ok(())
}
