//! The rules of intents, memo and single-flight, as documented with each command and refusal.

use super::{
    rules::{Asked, Made, Stop, authority, going_run, is_next, reserve},
    tables::{IntentRow, Tables},
};
use kernel::{
    effect::{self, Class, Effect, Key, Phase, Response},
    id::{ReservationId, TenantId, ToolId},
    lease::Lock,
    record::Event,
    request::{Outcome, Turn},
    reserve as money, run,
};

pub(super) fn decide(tables: &Tables, seq: u64, asked: &Asked, command: &effect::Command) -> Result<Made, Stop> {
    match *command {
        effect::Command::Register { tenant, tool, class } => {
            if !asked.genesis {
                authority(tables, asked, Lock::Owner)?;
            }
            let class = class.ok_or(effect::Refusal::NoClass { tool })?;
            Ok(made(effect::Outcome::Registered, effect::Event::ToolRegistered { tenant, tool, class }))
        }
        effect::Command::Begin { .. } => begin(tables, seq, asked, command),
        effect::Command::Dispatch { intent } => {
            let row = movable(tables, asked, intent, Phase::Pending)?;
            going_run(tables, row.tenant, row.run)?;
            if let Some(key) = row.key {
                if let Some(answered_by) = tables.answered.find((row.tenant, key)) {
                    return Err(effect::Refusal::AnsweredMeanwhile { key, answered_by }.into());
                }
                match tables.leaders.find((row.tenant, key)) {
                    Some(leader) if leader != intent => return Err(effect::Refusal::InFlight { key, leader }.into()),
                    _ => {}
                }
            }
            Ok(made(effect::Outcome::Dispatched, effect::Event::Dispatched { intent }))
        }
        effect::Command::Commit { intent, ref response } => {
            movable(tables, asked, intent, Phase::Dispatched)?;
            let Response(bytes) = response;
            if bytes.len() > Response::MOST_BYTES {
                return Err(effect::Refusal::TooLong { bytes: bytes.len() as u64 }.into());
            }
            Ok(made(effect::Outcome::Committed, effect::Event::Committed { intent, response: response.clone() }))
        }
    }
}

fn made(outcome: effect::Outcome, event: effect::Event) -> Made {
    (Outcome::Effect(outcome), vec![Event::Effect(event)])
}

/// The key of an idempotent call, by its documented making.
fn key_of(tenant: TenantId, tool: ToolId, content: [u8; 16]) -> Key {
    let parts: [&[u8]; 4] = [b"idempotency", &tenant.0.to_le_bytes(), &tool.0.to_le_bytes(), &content];
    let hash = blake3::hash(&parts.concat());
    Key(std::array::from_fn(|at| hash.as_bytes()[at]))
}

fn begin(tables: &Tables, seq: u64, asked: &Asked, command: &effect::Command) -> Result<Made, Stop> {
    let effect::Command::Begin { run, unit, attempt, effect, model, worst } = *command else {
        unreachable!("only a begin begins")
    };
    let (tenant, Effect { tool, content, key }) = (asked.tenant, effect);
    authority(tables, asked, Lock::Run(tenant, run))?;
    going_run(tables, tenant, run)?;
    let class = tables.tools.find((tenant, tool)).ok_or(effect::Refusal::UnknownTool { tool })?;
    let right = match class {
        Class::Idempotent => Some(key_of(tenant, tool, content.0)),
        Class::Queryable | Class::Unsafe => None,
    };
    if key != right {
        return Err(effect::Refusal::WrongKey { tool, class, right }.into());
    }
    is_next(tables, tenant, run, unit, attempt)?;
    if let Some(key) = key {
        if let Some(source) = tables.answered.find((tenant, key)) {
            let response = tables.responses.get(&source).cloned().unwrap_or_default();
            let recalled = run::Event::Recalled { run, unit, attempt, key, source };
            let outcome = Outcome::Effect(effect::Outcome::Recalled { source, response });
            return Ok((outcome, vec![Event::Run(recalled)]));
        }
        if let Some(leader) = tables.leaders.find((tenant, key)) {
            return Err(match asked.may_wait() {
                true => Stop::Waits(Turn::Answer(tenant, key)),
                false => effect::Refusal::InFlight { key, leader }.into(),
            });
        }
    }
    let reserved = money::Command::Reserve { run, unit, attempt, model, worst };
    let (_, mut events) = reserve(tables, seq, asked, &reserved)?;
    let intent = ReservationId(seq);
    events.push(Event::Effect(effect::Event::Intended { intent, tool, class, key }));
    Ok((Outcome::Effect(effect::Outcome::Begun(intent)), events))
}

/// An intent that the run writing this request may take on from `phase`. The lock is that of the run whose authority is offered,
/// or else of the run whose intent it is.
fn movable(tables: &Tables, asked: &Asked, intent: ReservationId, phase: Phase) -> Result<IntentRow, Stop> {
    let known = tables.intents.find(intent).filter(|row| row.tenant == asked.tenant);
    let offered = asked.authority.and_then(|held| match held.lock {
        Lock::Run(tenant, run) => (tenant == asked.tenant).then_some(run),
        Lock::Owner => None,
    });
    let unknown = effect::Refusal::UnknownIntent { intent };
    let run = offered.or(known.map(|row| row.run)).ok_or(unknown.clone())?;
    authority(tables, asked, Lock::Run(asked.tenant, run))?;
    let row = known.filter(|row| row.run == run).ok_or(unknown)?;
    let made_for = tables.reservations.find(intent).and_then(|row| {
        let attempt = tables.attempts.find((row.tenant, row.run, row.unit, row.attempt))?;
        Some(attempt.state)
    });
    if made_for == Some(run::AttemptState::Indeterminate) {
        return Err(money::Refusal::AwaitsOwner { reservation: intent }.into());
    }
    if row.phase != phase {
        return Err(effect::Refusal::WrongPhase { intent, phase: row.phase }.into());
    }
    if tables.moved.find(intent).is_some() {
        return Err(effect::Refusal::SameFrame { intent, phase }.into());
    }
    Ok(row)
}

/// Whether a run may end a reservation while its intent, if it has one, is as far as it is.
pub(super) fn may_end(
    tables: &Tables,
    intent: ReservationId,
    right: impl Fn(Phase) -> bool,
) -> Result<(), effect::Refusal> {
    match tables.intents.find(intent).map(|row| row.phase) {
        Some(phase) if !right(phase) => Err(effect::Refusal::WrongPhase { intent, phase }),
        _ => Ok(()),
    }
}
