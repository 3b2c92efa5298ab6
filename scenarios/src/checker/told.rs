//! What a history tells: the ledger's announcements with what was asked and answered, and the facts that the cast noted.
//!
//! Like [`super::wire`] this is the documented form set down a second time. A new fact is a new last variant.

use super::wire::{
    AdmitOutcome, EffectClass, EffectOutcome, Hash, Key, LeaseOutcome, Outcome, Refusal, ReserveOutcome, RunOutcome,
};
use super::wire::{Ending, Level, Lock, Price, Purpose, Quota, Ran, State, Switch, Usage};
use serde::{Deserialize, Serialize};

/// A node booted; no data.
pub(super) const UP: u16 = 0;
/// A node went down; one byte: 0 it ended, 1 killed, 2 power cut.
pub(super) const DOWN: u16 = 1;
/// A fault was applied or lifted; UTF-8 text.
pub(super) const FAULT: u16 = 2;
/// The last entry: the engine's counts and a digest of every scheduling decision.
pub(super) const CLOSE: u16 = 3;
/// An [`Announcement`].
pub(super) const ANNOUNCEMENT: u16 = 16;
/// A frame that made no sense; its data are the sender's number.
pub(super) const GARBAGE: u16 = 17;
/// A request that was turned away because the queue was full; its data are the sender's number.
pub(super) const BUSY: u16 = 18;
/// A [`Fact`].
pub(super) const FACT: u16 = 32;

/// The director's number among nodes.
pub(super) const DIRECTOR: u32 = u32::MAX;
/// The ledger's number among nodes.
pub(super) const LEDGER: u32 = 0;

/// One entry of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry<'a> {
    pub time_ns: u64,
    pub node: u32,
    pub incarnation: u32,
    pub kind: u16,
    #[serde(borrow)]
    pub data: &'a [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Authority {
    pub lock: Lock,
    pub executor: u64,
    pub fence: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Command {
    Admit(AdmitCommand),
    Lease(LeaseCommand),
    Reserve(ReserveCommand),
    Run(RunCommand),
    Effect(EffectCommand),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum AdmitCommand {
    SetHalt { tenant: u32, switch: Switch },
    SetQuota { tenant: u32, user: Option<u32>, quota: Option<Quota> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum LeaseCommand {
    Acquire { lock: Lock, executor: u64, ttl_ns: u64 },
    Renew { held: Authority, ttl_ns: u64 },
    Yield { held: Authority },
    Tick,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ReserveCommand {
    SetCap { tenant: u32, level: Level, cap: u64 },
    SetSlots { tenant: u32, slots: u32 },
    SetPrice(Price),
    Reserve { run: u64, unit: u32, attempt: u32, model: u32, worst: u64 },
    Settle { reservation: u64, usage: Usage },
    Release { reservation: u64 },
    Resolve { reservation: u64, charged: Option<Usage> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum RunCommand {
    Spawn { run: u64, user: u32, task: u64, workflow_version: u32, purpose: Purpose, depth: u8 },
    EndAttempt { run: u64, unit: u32, attempt: u32, state: State },
    End { run: u64, outcome: Ending },
    Queue { run: u64, unit: u32, attempt: u32 },
    Suspend { run: u64 },
    Resume { run: u64 },
    Cancel { run: u64 },
}

/// A call as it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Effect {
    pub tool: u32,
    pub content: [u8; 16],
    pub key: Option<Key>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum EffectCommand {
    Register { tenant: u32, tool: u32, class: Option<EffectClass> },
    Begin { run: u64, unit: u32, attempt: u32, effect: Effect, model: u32, worst: u64 },
    Dispatch { intent: u64 },
    Commit { intent: u64, response: Vec<u8> },
}

impl RunCommand {
    /// What a spawn records.
    pub(super) fn spawned(self) -> Option<Ran> {
        match self {
            RunCommand::Spawn { run, user, task, workflow_version, purpose, depth } => {
                Some(Ran::Spawned { run, user, task, workflow_version, purpose, depth })
            }
            RunCommand::EndAttempt { .. }
            | RunCommand::End { .. }
            | RunCommand::Queue { .. }
            | RunCommand::Suspend { .. }
            | RunCommand::Resume { .. }
            | RunCommand::Cancel { .. } => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Request {
    pub tenant: u32,
    pub client: u64,
    pub incarnation: u32,
    pub number: u64,
    pub acknowledged: u64,
    pub authority: Option<Authority>,
    pub wait_ns: u64,
    pub commands: Vec<Command>,
}

impl Request {
    /// Whether it is the ledger's own, which no decision is recorded of.
    pub(super) fn is_own(&self) -> bool {
        self.client == 0
    }

    pub(super) fn is_tick(&self) -> bool {
        self.commands.contains(&Command::Lease(LeaseCommand::Tick))
    }
}

impl std::fmt::Display for Request {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "request {} of client {}.{}", self.number, self.client, self.incarnation)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Submitted {
    pub request: Request,
    pub waits_until_ns: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Decision {
    pub seq: u64,
    pub outcome: Result<Vec<Outcome>, Refusal>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum Turn {
    Lock(Lock),
    Slot(u32, u32),
    Answer(u32, Key),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Reply {
    Decided(Decision),
    Waits(Turn),
    Stale { newest: u32 },
    Forgotten { acknowledged: u64 },
    Busy,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Announcement {
    Opened { next_seq: u64, chain: Hash, last_frame: Option<Vec<u8>> },
    Committed { now_ns: u64, submitted: Vec<Submitted>, replies: Vec<Reply>, frame: Option<Vec<u8>> },
    Broke { why: String },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Answered {
    Ok,
    TooManyRequests,
    ServerError,
    NoCredit { limit: u64, asked: u64, left: u64 },
    NeverLanded,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum EdgeCeiling {
    Key,
    Address,
    Unsure,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct EdgeRefusal {
    pub ceiling: EdgeCeiling,
    pub limit: u32,
    pub asked: u32,
    pub left: u32,
    pub again_ns: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Fact {
    Holds { lock: Lock, executor: u64, fence: u64 },
    LetGo { lock: Lock, executor: u64, fence: u64 },
    ActedOn { client: u64, incarnation: u32, number: u64, seq: u64 },
    CallSent { tenant: u32, run: u64, unit: u32, attempt: u32, user: u32, key: u64, fence: u64 },
    CallEnded { key: u64, answered: Option<Answered> },
    Charged { key: u64, usage: Usage, cost: u64 },
    Repeated { key: u64 },
    TurnedAway { key: u64, answered: Answered },
    RunOver { tenant: u32, run: u64, ending: Ending, wall_ns: u64, ledger_wait_ns: u64, calls: u32, whole: bool },
    Replayed { key: u64, of: u64 },
    Looked { key: u64, landed: bool },
    Misled { tenant: u32, run: u64, unit: u32, source: u64 },
    KeyCredit { limit: u64 },
    EdgeUp { per_key: u32, per_address: u32, window_ns: u64 },
    EdgePassed { user: u32, address: u32, at_ns: u64 },
    EdgeRefused { user: u32, address: u32, at_ns: u64, refusal: EdgeRefusal },
    StrayCharged { user: u32, cost: u64 },
    StrayRefused { user: u32, limit: u64, asked: u64, left: u64 },
}

/// The engine's counts, as the last entry and `result.json` give them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stats {
    pub events: u64,
    pub polls: u64,
    pub frames_sent: u64,
    pub frames_delivered: u64,
    pub frames_lost: u64,
    pub frames_overflowed: u64,
    pub frames_repeated: u64,
    pub disk_operations: u64,
    pub decisions: u64,
    pub effects: Effects,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Effects {
    pub frames_lost: u64,
    pub frames_cut: u64,
    pub frames_repeated: u64,
    pub frames_overtaking: u64,
    pub frames_spiked: u64,
    pub frames_queued: u64,
    pub tasks_cancelled: u64,
    pub tasks_held: u64,
    pub notes_stepped: u64,
    pub notes_frozen: u64,
    pub notes_drifting: u64,
    pub cuts_losing: u64,
}

/// Reads all of `bytes`: what is left over would be something nobody looked at.
pub(super) fn whole<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, String> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        Ok((_, left)) => Err(format!("{} bytes are left over", left.len())),
        Err(why) => Err(why.to_string()),
    }
}

/// The outcome that says nothing but that a command of its kind was admitted, for commands whose records say the rest.
pub(super) fn plain_outcome(command: &Command) -> Option<Outcome> {
    Some(match command {
        Command::Admit(_) => Outcome::Admit(AdmitOutcome::Set),
        Command::Lease(LeaseCommand::Yield { .. }) => Outcome::Lease(LeaseOutcome::Yielded),
        Command::Lease(LeaseCommand::Tick) => Outcome::Lease(LeaseOutcome::Ticked),
        Command::Reserve(
            ReserveCommand::SetCap { .. } | ReserveCommand::SetSlots { .. } | ReserveCommand::SetPrice(_),
        ) => Outcome::Reserve(ReserveOutcome::Set),
        Command::Reserve(ReserveCommand::Release { .. }) => Outcome::Reserve(ReserveOutcome::Released),
        Command::Run(RunCommand::Spawn { .. }) => Outcome::Run(RunOutcome::Spawned),
        Command::Run(RunCommand::EndAttempt { .. }) => Outcome::Run(RunOutcome::AttemptEnded),
        Command::Run(RunCommand::End { .. }) => Outcome::Run(RunOutcome::Ended),
        Command::Run(RunCommand::Queue { .. }) => Outcome::Run(RunOutcome::Queued),
        Command::Run(RunCommand::Suspend { .. }) => Outcome::Run(RunOutcome::Suspended),
        Command::Run(RunCommand::Resume { .. }) => Outcome::Run(RunOutcome::Resumed),
        Command::Run(RunCommand::Cancel { .. }) => Outcome::Run(RunOutcome::Cancelled),
        Command::Effect(EffectCommand::Register { .. }) => Outcome::Effect(EffectOutcome::Registered),
        Command::Effect(EffectCommand::Dispatch { .. }) => Outcome::Effect(EffectOutcome::Dispatched),
        Command::Effect(EffectCommand::Commit { .. }) => Outcome::Effect(EffectOutcome::Committed),
        Command::Lease(_) | Command::Reserve(_) | Command::Effect(_) => return None,
    })
}
