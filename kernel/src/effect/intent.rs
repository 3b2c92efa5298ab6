//! Calls out of the ledger, written ahead: tools and their classes, intents and their phases, memo and single-flight.
//!
//! An intent is named by the reservation that pays for it. It is `Pending` once [`Command::Begin`] is durable, `Dispatched` once
//! [`Command::Dispatch`] is, and committed with its raw response by [`Command::Commit`]; only between the last two may its call be
//! on the wire, and no two phases stand in one frame. An idempotent intent has a key, derived from what is asked and nothing
//! else: one intent a key is in flight, and what it was answered is given to whoever asks later. See
//! `docs/decisions/0007-intents-and-memo.md`.

use super::{Event, Outcome, Refusal};
use crate::{
    id::{ModelId, ReservationId, RunId, TenantId, ToolId, UnitId},
    lease::{self, Lock, authorize},
    money::MicroUsd,
    planted,
    planted::{Bug, Planted},
    record::{self, Record},
    request::{self, Notice, Turn},
    reserve,
    room::{Case, Impossible, No, Ruling, Term, ensure},
    run::{self, AttemptState, RunState},
    table,
};
use serde::{Deserialize, Serialize};

/// What a tool's calls do to the world, which decides what may be done after a crash. There is no default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// A repeat under the same [`Key`] is the same call.
    Idempotent,
    /// The provider can be asked whether a request landed.
    Queryable,
    /// Neither: it is sent once.
    Unsafe,
}

impl Class {
    /// Every class.
    pub const ALL: [Class; 3] = [Class::Idempotent, Class::Queryable, Class::Unsafe];
}

/// What is asked, in 128 bits: blake3 over each part with its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Content(pub [u8; 16]);

/// What is asked, in full: all that an answer depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question<'a> {
    /// The kind of step that asks.
    pub step: &'a [u8],
    /// What it is asked about.
    pub input: &'a [u8],
    /// The prompt.
    pub prompt: &'a [u8],
    /// The dated model.
    pub model: ModelId,
    /// Everything else that is sent along, in one fixed form.
    pub parameters: &'a [u8],
}

impl Content {
    /// Of a question. Each part goes in with its length, so that no two questions give the same bytes.
    pub fn of(question: &Question<'_>) -> Content {
        let Question { step, input, prompt, model, parameters } = *question;
        let mut hasher = blake3::Hasher::new();
        for part in [step, input, prompt, &model.0.to_le_bytes(), parameters] {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        Content(half(&hasher))
    }
}

/// An idempotency key: of a tenant's tool and what is asked of it, never of the attempt that asks. 128 bits of blake3; a
/// tenant that could make two contents collide would only spoil its own memo.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Key(pub [u8; 16]);

impl Key {
    /// Derives it.
    pub fn derived(tenant: TenantId, tool: ToolId, content: Content) -> Key {
        let mut hasher = blake3::Hasher::new();
        hasher.update(b"idempotency");
        hasher.update(&tenant.0.to_le_bytes());
        hasher.update(&tool.0.to_le_bytes());
        hasher.update(&content.0);
        Key(half(&hasher))
    }
}

fn half(hasher: &blake3::Hasher) -> [u8; 16] {
    let mut half = [0; 16];
    half.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    half
}

/// The raw bytes of a response, at most [`Response::MOST_BYTES`]. The ledger does not look into them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Response(pub Box<[u8]>);

impl Response {
    /// The longest that a record carries.
    pub const MOST_BYTES: usize = 4096;
}

/// A call as it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Effect {
    /// The tool it goes to.
    pub tool: ToolId,
    /// What is asked of it.
    pub content: Content,
    /// The key it will be sent under: [`Key::derived`] of an idempotent tool's, none of any other's.
    pub key: Option<Key>,
}

/// How far an intent is. The phases come in this order and none is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Its call has not left.
    Pending,
    /// Its call may have left.
    Dispatched,
    /// Its outcome is recorded.
    Committed,
}

impl Phase {
    /// Whether an attempt whose intent is this far may end as `to`.
    pub const fn ends_in(self, to: AttemptState) -> bool {
        match self {
            Phase::Pending => matches!(to, AttemptState::Cancelled | AttemptState::TimedOut),
            Phase::Dispatched => matches!(to, AttemptState::Indeterminate),
            Phase::Committed => !matches!(to, AttemptState::Indeterminate),
        }
    }
}

/// What may be asked of this room; the first under the owner's lock, the others under the run's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// Let a tenant's runs call a tool, or change its class for intents from now on.
    Register {
        /// Whose runs.
        tenant: TenantId,
        /// The tool.
        tool: ToolId,
        /// Its class; without one it is refused.
        class: Option<Class>,
    },
    /// Begin a unit's attempt that makes a call: given the answer if the question was answered before; waiting as long as the
    /// request's own term allows while another asks it or no slot is free; else set aside, running, and its intent pending.
    Begin {
        /// The run.
        run: RunId,
        /// The unit.
        unit: UnitId,
        /// Which attempt of the unit, from 1.
        attempt: u32,
        /// The call.
        effect: Effect,
        /// What it is priced at.
        model: ModelId,
        /// The worst it can cost, in micro-USD; at least 1.
        worst: MicroUsd,
    },
    /// State that the call is about to leave. It may, once this is durable.
    Dispatch {
        /// The intent.
        intent: ReservationId,
    },
    /// Record what came back, whatever it says, before anyone looks into it.
    Commit {
        /// The intent.
        intent: ReservationId,
        /// The raw bytes.
        response: Response,
    },
}

/// An intent as far as it has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    /// Its run.
    pub run: RunId,
    /// Its tool's class when it was made.
    pub class: Class,
    /// Its key, if it is idempotent.
    pub key: Option<Key>,
    /// How far it is.
    pub phase: Phase,
    /// The sequence of the record that brought it there.
    pub since: u64,
    /// What came back, from its commit until its attempt ends.
    pub response: Option<Response>,
}

/// What a question was answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remembered {
    /// The reservation that paid for it.
    pub source: ReservationId,
    /// The raw bytes.
    pub response: Response,
}

/// Decides a command of this room.
pub fn decide(tables: &table::Tables, case: &Case<'_>, command: &Command) -> Result<Ruling, No> {
    match *command {
        Command::Register { tenant, tool, class } => {
            if !case.genesis {
                authorize(tables, case, Lock::Owner)?;
            }
            let class = class.ok_or(Refusal::NoClass { tool })?;
            Ok(ruling(Event::ToolRegistered { tenant, tool, class }, Outcome::Registered))
        }
        Command::Begin { run, unit, attempt, effect, model, worst } => {
            let reserve = reserve::Command::Reserve { run, unit, attempt, model, worst };
            begin(tables, case, run, unit, attempt, effect, &reserve)
        }
        Command::Dispatch { intent } => dispatch(tables, case, intent),
        Command::Commit { intent, ref response } => {
            by_run(tables, case, intent, Phase::Dispatched)?;
            let bytes = response.0.len();
            if bytes > Response::MOST_BYTES {
                return Err(Refusal::TooLong { bytes: bytes as u64 }.into());
            }
            Ok(ruling(Event::Committed { intent, response: response.clone() }, Outcome::Committed))
        }
    }
}

fn ruling(event: Event, outcome: Outcome) -> Ruling {
    let outcome = request::Outcome::Effect(outcome);
    Ruling { events: vec![record::Event::Effect(event)], outcome, notices: Vec::new() }
}

fn begin(
    tables: &table::Tables,
    case: &Case<'_>,
    run: RunId,
    unit: UnitId,
    attempt: u32,
    effect: Effect,
    reserve: &reserve::Command,
) -> Result<Ruling, No> {
    let (tenant, Effect { tool, content, key }) = (case.tenant, effect);
    authorize(tables, case, Lock::Run(tenant, run))?;
    tables.run.going(case, run)?;
    let class = *tables.effect.tools.get(&(tenant, tool)).ok_or(Refusal::UnknownTool { tool })?;
    let right = (class == Class::Idempotent).then(|| Key::derived(tenant, tool, content));
    if key != right {
        return Err(Refusal::WrongKey { tool, class, right }.into());
    }
    let next = tables.run.next_attempt(tenant, run, unit);
    if next != Some(attempt) {
        return Err(reserve::Refusal::WrongAttempt { run, unit, attempt, next }.into());
    }
    if let Some(key) = key {
        if let Some(Remembered { source, response }) = tables.effect.memo.get(&(tenant, key)) {
            let recalled = run::Event::Recalled { run, unit, attempt, key, source: *source };
            let outcome = Outcome::Recalled { source: *source, response: response.clone() };
            let events = vec![record::Event::Run(recalled)];
            return Ok(Ruling { events, outcome: request::Outcome::Effect(outcome), notices: Vec::new() });
        }
        let leader = tables.effect.flights.get(&(tenant, key)).copied();
        if let Some(leader) = planted!(case.planted, Bug::LeadTwice, leader, None) {
            return Err(match case.term {
                Term::Open => No::Waits(Turn::Answer(tenant, key)),
                Term::None | Term::Ended => Refusal::InFlight { key, leader }.into(),
            });
        }
    }
    let mut ruling = reserve::decide(tables, case, reserve)?;
    let request::Outcome::Reserve(reserve::Outcome::Reserved(intent)) = ruling.outcome else {
        unreachable!("an admitted reserve gives its reservation")
    };
    ruling.events.push(record::Event::Effect(Event::Intended { intent, tool, class, key }));
    ruling.outcome = request::Outcome::Effect(Outcome::Begun(intent));
    Ok(ruling)
}

/// The intent, if it is `phase` far, since an earlier frame than this one, and its run may write under the case's authority.
fn by_run<'a>(
    tables: &'a table::Tables,
    case: &Case<'_>,
    intent: ReservationId,
    phase: Phase,
) -> Result<&'a Intent, No> {
    let tenant = case.tenant;
    let row = tables.effect.intents.get(&(tenant, intent));
    let run = match (case.authority.map(|authority| authority.lock), row) {
        (Some(Lock::Run(of, run)), _) if of == tenant => run,
        (_, Some(row)) => row.run,
        (_, None) => return Err(Refusal::UnknownIntent { intent }.into()),
    };
    authorize(tables, case, Lock::Run(tenant, run))?;
    let row = row.filter(|row| row.run == run).ok_or(Refusal::UnknownIntent { intent })?;
    if tables.reserve.awaiting.get(&(tenant, intent)).is_some() {
        return Err(reserve::Refusal::AwaitsOwner { reservation: intent }.into());
    }
    if row.phase != phase {
        return Err(Refusal::WrongPhase { intent, phase: row.phase }.into());
    }
    if row.since >= case.frame_from {
        return Err(Refusal::SameFrame { intent, phase: row.phase }.into());
    }
    Ok(row)
}

fn dispatch(tables: &table::Tables, case: &Case<'_>, intent: ReservationId) -> Result<Ruling, No> {
    let row = by_run(tables, case, intent, Phase::Pending)?;
    tables.run.going(case, row.run)?;
    if let Some(key) = row.key {
        if let Some(Remembered { source, .. }) = tables.effect.memo.get(&(case.tenant, key)) {
            return Err(Refusal::AnsweredMeanwhile { key, answered_by: *source }.into());
        }
        let leader = tables.effect.flights.get(&(case.tenant, key)).copied().filter(|leader| *leader != intent);
        if let Some(leader) = planted!(case.planted, Bug::LeadTwice, leader, None) {
            return Err(Refusal::InFlight { key, leader }.into());
        }
    }
    Ok(ruling(Event::Dispatched { intent }, Outcome::Dispatched))
}

/// Whether a run may settle the reservation, as far as its intent goes.
pub(crate) fn may_settle(tables: &table::Tables, tenant: TenantId, intent: ReservationId) -> Result<(), Refusal> {
    match tables.effect.intents.get(&(tenant, intent)) {
        Some(row) if row.phase != Phase::Committed => Err(Refusal::WrongPhase { intent, phase: row.phase }),
        _ => Ok(()),
    }
}

/// Whether a run may release the reservation, as far as its intent goes: not while its call may be on the wire.
pub(crate) fn may_release(tables: &table::Tables, tenant: TenantId, intent: ReservationId) -> Result<(), Refusal> {
    match tables.effect.intents.get(&(tenant, intent)) {
        Some(row) if row.phase == Phase::Dispatched => Err(Refusal::WrongPhase { intent, phase: row.phase }),
        _ => Ok(()),
    }
}

/// Whose turns come when an attempt ends as `to`: after an answer that is remembered every follower's, else the next one's if
/// it led.
pub(crate) fn flight_over(
    tables: &table::Tables,
    tenant: TenantId,
    intent: ReservationId,
    to: AttemptState,
) -> Vec<Notice> {
    let key = tables.effect.intents.get(&(tenant, intent)).and_then(|row| row.key);
    let Some(key) = key else { return Vec::new() };
    let turn = Turn::Answer(tenant, key);
    let led = tables.effect.flights.get(&(tenant, key)) == Some(&intent);
    match to {
        AttemptState::Succeeded => vec![Notice::AllTurnsCame(turn)],
        _ if led => vec![Notice::TurnCame(turn)],
        _ => Vec::new(),
    }
}

/// The flights that a run leads.
fn led_by(tables: &table::Tables, tenant: TenantId, run: RunId) -> Vec<Key> {
    if tables.run.runs.get(&(tenant, run)).is_none_or(|row| row.running == 0) {
        return Vec::new();
    }
    let running = tables.run.attempts_of(tenant, run).filter(|(.., row)| row.state == AttemptState::Running);
    let led = running.filter_map(|(.., row)| {
        let intent = row.reservation?;
        let key = tables.effect.intents.get(&(tenant, intent))?.key?;
        (tables.effect.flights.get(&(tenant, key)) == Some(&intent)).then_some(key)
    });
    led.collect()
}

/// Whose turns come when a lock is not held any more: one follower's for each flight that its run led.
pub(crate) fn leaderless(tables: &table::Tables, lock: Lock) -> Vec<Notice> {
    let Lock::Run(tenant, run) = lock else { return Vec::new() };
    let keys = led_by(tables, tenant, run);
    keys.into_iter().map(|key| Notice::TurnCame(Turn::Answer(tenant, key))).collect()
}

/// The turn that a refused `Begin` passes on, if nobody leads: the question is the next follower's to ask.
pub(crate) fn turn_passed_on(tables: &table::Tables, tenant: TenantId, effect: &Effect) -> Option<Turn> {
    let key = effect.key?;
    tables.effect.flights.get(&(tenant, key)).is_none().then_some(Turn::Answer(tenant, key))
}

/// Folds a record of tools, intents and flights, and what ends them: an attempt's end, the owner's resolution, a lost lease.
pub(super) fn apply(tables: &mut table::Tables, record: &Record, planted: &Planted) -> Result<(), Impossible> {
    let tenant = record.tenant;
    match record.event {
        record::Event::Effect(Event::ToolRegistered { tenant, tool, class }) => {
            tables.effect.tools.insert((tenant, tool), class);
        }
        record::Event::Effect(Event::Intended { intent, tool, class, key }) => {
            apply_intended(tables, planted, record, intent, tool, (class, key))?;
        }
        record::Event::Effect(Event::Dispatched { intent }) => apply_dispatched(tables, planted, record, intent)?,
        record::Event::Effect(Event::Committed { intent, ref response }) => {
            let row = tables.effect.intents.get_mut(&(tenant, intent)).filter(|row| row.phase == Phase::Dispatched);
            let Some(row) = row else {
                return Err(Impossible(format!("intent {intent} is committed and is not dispatched")));
            };
            (row.phase, row.since, row.response) = (Phase::Committed, record.seq, Some(response.clone()));
        }
        record::Event::Run(run::Event::AttemptEnded { run, unit, attempt, state }) => {
            let row = tables.run.attempts.get(&(tenant, run, unit, attempt));
            if let Some(intent) = row.and_then(|row| row.reservation) {
                apply_ended(tables, planted, tenant, intent, state)?;
            }
        }
        record::Event::Run(run::Event::Recalled { key, source, .. }) => {
            let known = tables.effect.memo.get(&(tenant, key));
            ensure!(known.is_some_and(|known| known.source == source), "{source} is recalled and is not remembered");
        }
        record::Event::Reserve(
            reserve::Event::Settled { reservation, by_owner: true, .. }
            | reserve::Event::Released { reservation, by_owner: true },
        ) => {
            tables.effect.intents.remove(&(tenant, reservation));
        }
        record::Event::Lease(
            lease::Event::Yielded { lock: Lock::Run(tenant, run), .. }
            | lease::Event::Expired { lock: Lock::Run(tenant, run), .. },
        ) => {
            for key in led_by(tables, tenant, run) {
                tables.effect.flights.remove(&(tenant, key));
            }
        }
        _ => {}
    }
    Ok(())
}

fn apply_intended(
    tables: &mut table::Tables,
    planted: &Planted,
    record: &Record,
    intent: ReservationId,
    tool: ToolId,
    (class, key): (Class, Option<Key>),
) -> Result<(), Impossible> {
    let tenant = record.tenant;
    let registered = tables.effect.tools.get(&(tenant, tool)) == Some(&class);
    ensure!(registered, "intent {intent} is of tool {tool}, which is not registered as {class:?}");
    ensure!((class == Class::Idempotent) == key.is_some(), "intent {intent} is {class:?} under {key:?}");
    let reserved = tables.reserve.reservations.get(&(tenant, intent)).filter(|row| row.close.is_none());
    let Some(run) = reserved.map(|row| row.run) else {
        return Err(Impossible(format!("intent {intent} has no open reservation")));
    };
    let effect = &mut tables.effect;
    ensure!(effect.intents.get(&(tenant, intent)).is_none(), "intent {intent} is made twice");
    if let Some(key) = key {
        ensure!(effect.memo.get(&(tenant, key)).is_none(), "intent {intent} asks what was answered");
        let led = effect.flights.get(&(tenant, key));
        let alone = led.is_none() || planted.is_on(Bug::LeadTwice);
        ensure!(alone, "intent {intent} leads where {led:?} does");
        effect.flights.insert((tenant, key), intent);
    }
    let row = Intent { run, class, key, phase: Phase::Pending, since: record.seq, response: None };
    effect.intents.insert((tenant, intent), row);
    Ok(())
}

fn apply_dispatched(
    tables: &mut table::Tables,
    planted: &Planted,
    record: &Record,
    intent: ReservationId,
) -> Result<(), Impossible> {
    let (tenant, effect) = (record.tenant, &mut tables.effect);
    let row = effect.intents.get_mut(&(tenant, intent)).filter(|row| row.phase == Phase::Pending);
    let Some(row) = row else { return Err(Impossible(format!("intent {intent} is dispatched and is not pending"))) };
    let goes_on = tables.run.runs.get(&(tenant, row.run)).is_some_and(|run| run.state == RunState::Open);
    ensure!(goes_on || planted.is_on(Bug::CancelIgnored), "intent {intent} is dispatched and its run was cancelled");
    (row.phase, row.since) = (Phase::Dispatched, record.seq);
    let Some(key) = row.key else { return Ok(()) };
    ensure!(effect.memo.get(&(tenant, key)).is_none(), "intent {intent} leaves after its question was answered");
    match effect.flights.get(&(tenant, key)) {
        None => effect.flights.insert((tenant, key), intent),
        Some(leader) => {
            let leads = *leader == intent || planted.is_on(Bug::LeadTwice);
            ensure!(leads, "intent {intent} leaves while {leader} leads");
        }
    }
    Ok(())
}

/// An attempt ends: its flight is over, and its intent unless it is left to the owner. What succeeded is remembered, the first
/// to do so if there were two.
fn apply_ended(
    tables: &mut table::Tables,
    planted: &Planted,
    tenant: TenantId,
    intent: ReservationId,
    state: AttemptState,
) -> Result<(), Impossible> {
    let effect = &mut tables.effect;
    let Some(row) = effect.intents.get(&(tenant, intent)) else { return Ok(()) };
    let (phase, key) = (row.phase, row.key);
    let fits = phase.ends_in(state) || planted.is_on(Bug::BlanketRelease);
    ensure!(fits, "intent {intent} is {phase:?}, and its attempt ends {state:?}");
    if let Some(key) = key
        && effect.flights.get(&(tenant, key)) == Some(&intent)
    {
        effect.flights.remove(&(tenant, key));
    }
    if state == AttemptState::Indeterminate {
        return Ok(());
    }
    let row = effect.intents.remove(&(tenant, intent));
    if let (AttemptState::Succeeded, Some(key), Some(response)) = (state, key, row.and_then(|row| row.response))
        && effect.memo.get(&(tenant, key)).is_none()
    {
        effect.memo.insert((tenant, key), Remembered { source: intent, response });
    }
    Ok(())
}
