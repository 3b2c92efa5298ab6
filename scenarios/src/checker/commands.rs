//! What a command says against what it made, record by record: nothing more, nothing less, and the answer says so.

use super::{
    answers::Before,
    requests::Part,
    told::{AdmitCommand, Command, EffectCommand, LeaseCommand, ReserveCommand, RunCommand, plain_outcome},
    wire::{
        Admitted, Budgeted, EffectOutcome, Effected, Ending, Event, LeaseOutcome, Leased, Lock, Outcome, Ran, Record,
        ReserveOutcome, State,
    },
};

/// How many of the records at the head of `left` the command made, if they and the outcome are what it says.
pub(super) fn made(
    command: &Command,
    outcome: &Outcome,
    left: &[Record],
    part: &Part<'_>,
    before: &Before<'_>,
) -> Option<usize> {
    let event = left.first().map(|record| &record.event);
    if let Some(plain) = plain_outcome(command)
        && *outcome != plain
    {
        return None;
    }
    let one = |fits: bool| fits.then_some(1);
    match *command {
        Command::Admit(AdmitCommand::SetHalt { tenant, switch }) => {
            one(event == Some(&Event::Admit(Admitted::HaltSet { tenant, switch })))
        }
        Command::Admit(AdmitCommand::SetQuota { tenant, user, quota }) => {
            one(event == Some(&Event::Admit(Admitted::QuotaSet { tenant, user, quota })))
        }
        Command::Lease(LeaseCommand::Tick) => Some(left.len()),
        Command::Lease(command) => one(leased(command, outcome, event?, part, before)),
        Command::Reserve(command) => reserved(command, outcome, left, part, before),
        Command::Run(command @ RunCommand::Spawn { run, .. }) => {
            let spawned = command.spawned()?;
            match before.runs.run(part.asked.request.tenant, run) {
                Some(known) => (known.spawned == spawned).then_some(0),
                None => one(event == Some(&Event::Run(spawned))),
            }
        }
        Command::Run(RunCommand::EndAttempt { run, unit, attempt, state }) => {
            let tenant = part.asked.request.tenant;
            let row = before.runs.run(tenant, run)?;
            let ran = before.runs.state((tenant, run, unit, attempt)) == Some(State::Running);
            let mut right = vec![Event::Run(Ran::AttemptEnded { run, unit, attempt, state })];
            if row.cancelled.is_some() && ran && row.running == 1 {
                right.extend(ending(before, tenant, run, Ending::Cancelled));
            }
            all(left, &right)
        }
        Command::Run(RunCommand::Suspend { run }) => {
            let lock = Lock::Run(part.asked.request.tenant, run);
            let fence = before.writers.highest(lock);
            all(left, &[Event::Run(Ran::Suspended { run }), Event::Lease(Leased::Yielded { lock, fence })])
        }
        Command::Run(RunCommand::Resume { run }) => one(event == Some(&Event::Run(Ran::Resumed { run }))),
        Command::Run(RunCommand::Cancel { run }) => {
            let row = before.runs.run(part.asked.request.tenant, run)?;
            let cancelled = Event::Run(Ran::Cancelled { run, running: row.running });
            if row.cancelled.is_some() { Some(0) } else { one(event == Some(&cancelled)) }
        }
        Command::Run(RunCommand::Queue { run, unit, attempt }) => {
            one(event == Some(&Event::Run(Ran::AttemptQueued { run, unit, attempt })))
        }
        Command::Run(RunCommand::End { run, outcome }) => {
            all(left, &ending(before, part.asked.request.tenant, run, outcome))
        }
        Command::Effect(ref command) => effected(command, outcome, left, part, before),
    }
}

/// How many records there should be, if those are at the head of what is left.
fn all(left: &[Record], right: &[Event]) -> Option<usize> {
    let fits = left.len() >= right.len() && left.iter().zip(right).all(|(found, right)| found.event == *right);
    fits.then_some(right.len())
}

/// What ends a run: its queued attempts go first.
fn ending(before: &Before<'_>, tenant: u32, run: u64, outcome: Ending) -> Vec<Event> {
    let state = State::Cancelled;
    let queued = before.runs.queued(tenant, run);
    let cancelled = queued.map(|(unit, attempt)| Ran::AttemptEnded { run, unit, attempt, state });
    cancelled.chain([Ran::Ended { run, outcome }]).map(Event::Run).collect()
}

/// What a command about an effect made.
fn effected(
    command: &EffectCommand,
    outcome: &Outcome,
    left: &[Record],
    part: &Part<'_>,
    before: &Before<'_>,
) -> Option<usize> {
    let (event, tenant) = (&left.first()?.event, part.asked.request.tenant);
    let one = |right: Effected| (*event == Event::Effect(right)).then_some(1);
    match *command {
        EffectCommand::Register { tenant, tool, class } => {
            one(Effected::ToolRegistered { tenant, tool, class: class? })
        }
        EffectCommand::Dispatch { intent } => one(Effected::Dispatched { intent }),
        EffectCommand::Commit { intent, ref response } => {
            one(Effected::Committed { intent, response: response.clone() })
        }
        EffectCommand::Begin { run, unit, attempt, effect, model, worst } => {
            if let Some((key, (source, response))) =
                effect.key.and_then(|key| Some((key, before.effects.answer(tenant, key)?)))
            {
                let recalled = Event::Run(Ran::Recalled { run, unit, attempt, key, source: *source });
                let right = EffectOutcome::Recalled { source: *source, response: response.clone() };
                return (*event == recalled && *outcome == Outcome::Effect(right)).then_some(1);
            }
            let Outcome::Effect(EffectOutcome::Begun(intent)) = *outcome else { return None };
            let reserve = ReserveCommand::Reserve { run, unit, attempt, model, worst };
            let set_aside = Outcome::Reserve(ReserveOutcome::Reserved(intent));
            let count = reserved(reserve, &set_aside, left, part, before)?;
            let class = before.effects.class(tenant, effect.tool)?;
            let intended = Effected::Intended { intent, tool: effect.tool, class, key: effect.key };
            (left.get(count)?.event == Event::Effect(intended)).then_some(count + 1)
        }
    }
}

/// A lease's record and outcome.
fn leased(command: LeaseCommand, outcome: &Outcome, event: &Event, part: &Part<'_>, before: &Before<'_>) -> bool {
    let held = |fence, until| *outcome == Outcome::Lease(LeaseOutcome::Held { fence, until });
    let extended = |lock, ttl_ns: u64, found: (_, u64, u64)| {
        let asked = before.time.saturating_add(ttl_ns);
        let old = before.writers.grant(lock).map_or(0, |grant| grant.until);
        found.0 == lock && found.2 == old.max(asked) && held(found.1, found.2)
    };
    match (command, event) {
        (
            LeaseCommand::Acquire { lock, executor, ttl_ns },
            Event::Lease(Leased::Granted { lock: on, executor: to, client, fence, until }),
        ) => {
            let term = before.time.saturating_add(ttl_ns);
            (lock, executor, part.asked.request.client, term) == (*on, *to, *client, *until) && held(*fence, *until)
        }
        (
            LeaseCommand::Acquire { lock, executor, ttl_ns },
            Event::Lease(Leased::Renewed { lock: on, fence, until }),
        ) => {
            let own = before.writers.grant(lock).is_some_and(|grant| grant.executor == executor);
            own && extended(lock, ttl_ns, (*on, *fence, *until))
        }
        (LeaseCommand::Renew { held, ttl_ns }, Event::Lease(Leased::Renewed { lock, fence, until })) => {
            extended(held.lock, ttl_ns, (*lock, *fence, *until)) && held.fence == *fence
        }
        (LeaseCommand::Yield { held }, Event::Lease(Leased::Yielded { lock, fence })) => {
            (held.lock, held.fence) == (*lock, *fence)
        }
        _ => false,
    }
}

/// What a command about money made.
fn reserved(
    command: ReserveCommand,
    outcome: &Outcome,
    left: &[Record],
    part: &Part<'_>,
    before: &Before<'_>,
) -> Option<usize> {
    let Event::Reserve(event) = left.first()?.event else { return None };
    let one = |fits: bool| fits.then_some(1);
    let settled = |reservation, usage, owner| match event {
        Budgeted::Settled { reservation: id, usage: used, cost, overrun, by_owner } => {
            (id, used, by_owner) == (reservation, usage, owner)
                && *outcome == Outcome::Reserve(ReserveOutcome::Settled { cost, overrun })
        }
        _ => false,
    };
    match command {
        ReserveCommand::SetCap { tenant, level, cap } => one(event == Budgeted::CapSet { tenant, level, cap }),
        ReserveCommand::SetSlots { tenant, slots } => one(event == Budgeted::SlotsSet { tenant, slots }),
        ReserveCommand::SetPrice(price) => one(event == Budgeted::PriceSet(price)),
        ReserveCommand::Reserve { run, unit, attempt, model, worst } => {
            let Budgeted::Reserved { reservation, price, user, day, .. } = event else { return None };
            let right = Budgeted::Reserved { reservation, run, unit, attempt, user, day, price, worst };
            let known = before.runs.run(part.asked.request.tenant, run).is_some_and(|run| run.user == user);
            let started = Event::Run(Ran::AttemptStarted { run, unit, attempt, reservation });
            let fits = event == right
                && known
                && before.budget.price(model) == Some(price)
                && left.get(1).is_some_and(|record| record.event == started)
                && *outcome == Outcome::Reserve(ReserveOutcome::Reserved(reservation));
            fits.then_some(2)
        }
        ReserveCommand::Settle { reservation, usage } => one(settled(reservation, usage, false)),
        ReserveCommand::Release { reservation } => one(event == Budgeted::Released { reservation, by_owner: false }),
        ReserveCommand::Resolve { reservation, charged: Some(usage) } => one(settled(reservation, usage, true)),
        ReserveCommand::Resolve { reservation, charged: None } => {
            let released = *outcome == Outcome::Reserve(ReserveOutcome::Released);
            one(released && event == Budgeted::Released { reservation, by_owner: true })
        }
    }
}
