//! What the rules say to a command: nothing against it, a refusal with its numbers, or that it waits.
//!
//! Where the rules leave an order open: the gate first (quota, then halt), then authority, then what each command asks in the
//! order of its arms below; a reserve its caps from the lowest level up, and its slots after them. Of a request of several
//! commands that was refused only the first command is predicted: what a later one met is not recorded.

use super::{
    budget::{Begins, Budget, End},
    effects::{Effects, ends_in},
    requests::Part,
    runs::{Runs, is_end},
    told::{
        AdmitCommand, Authority, Command, EffectCommand, LeaseCommand, Reply, Request, ReserveCommand, RunCommand,
        Submitted, Turn,
    },
    wire::{
        AdmitRefusal, DAY_NS, EffectRefusal, Ending, LeaseRefusal, Level, Lock, Phase, Refusal, ReserveRefusal,
        RunRefusal, State,
    },
    writers::Writers,
};

/// What is known before a command.
pub(super) struct Before<'a> {
    pub budget: &'a Budget,
    pub runs: &'a Runs,
    pub writers: &'a Writers,
    pub effects: &'a Effects,
    /// Ledger time of the batch, and the writer's reading.
    pub time: u64,
    pub now_ns: u64,
}

/// What the rules have against a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum No {
    Refused(Refusal),
    Waits(Turn),
}

impl From<ReserveRefusal> for No {
    fn from(refusal: ReserveRefusal) -> No {
        No::Refused(Refusal::Reserve(refusal))
    }
}

impl From<EffectRefusal> for No {
    fn from(refusal: EffectRefusal) -> No {
        No::Refused(Refusal::Effect(refusal))
    }
}

impl From<LeaseRefusal> for No {
    fn from(refusal: LeaseRefusal) -> No {
        No::Refused(Refusal::Lease(refusal))
    }
}

impl From<RunRefusal> for No {
    fn from(refusal: RunRefusal) -> No {
        No::Refused(Refusal::Run(refusal))
    }
}

impl From<AdmitRefusal> for No {
    fn from(refusal: AdmitRefusal) -> No {
        No::Refused(Refusal::Admit(refusal))
    }
}

/// Whether a request that was refused, or waits, rightly was; `None` if it was neither, or it does not show.
pub(super) fn judged(part: &Part<'_>, before: &Before<'_>) -> Option<Result<(), String>> {
    let request = &part.asked.request;
    let given = match part.reply {
        Reply::Waits(turn) => No::Waits(*turn),
        _ => No::Refused(part.refused()?.clone()),
    };
    let misnamed = request.number == 0 || request.acknowledged >= request.number;
    let (number, acknowledged) = (request.number, request.acknowledged);
    let due = if misnamed {
        Some(No::Refused(Refusal::Effect(EffectRefusal::Misnumbered { number, acknowledged })))
    } else {
        match &request.commands[..] {
            [] => Some(No::Refused(Refusal::Effect(EffectRefusal::Empty))),
            [first, ..] => against(first, part.asked, before),
        }
    };
    let due = match (due, &request.commands[..]) {
        (None, [alone]) => unpaired(alone, request, before),
        (None, _) => return None,
        (due, _) => due,
    };
    if due.as_ref() == Some(&given) {
        return Some(Ok(()));
    }
    Some(Err(format!("{request} ({:?}) is answered {given:?}; due is {due:?}", request.commands)))
}

/// What the rules have against a command as things stand.
pub(super) fn against(command: &Command, asked: &Submitted, before: &Before<'_>) -> Option<No> {
    let tenant = asked.request.tenant;
    match *command {
        Command::Admit(command) => before.authority(&asked.request, Lock::Owner).or(match command {
            AdmitCommand::SetQuota { tenant: 0, .. } => Some(AdmitRefusal::NoUsers.into()),
            AdmitCommand::SetQuota { .. } | AdmitCommand::SetHalt { .. } => None,
        }),
        Command::Lease(command) => before.lease(command, asked),
        Command::Reserve(ReserveCommand::Reserve { run, unit, attempt, model, worst }) => {
            let gate = match before.runs.run(tenant, run) {
                Some(run) => before.budget.gate(tenant, Begins::Call { user: run.user, worst }, before.day()),
                None => before.budget.halted(tenant),
            };
            gate.map(No::from)
                .or_else(|| before.authority(&asked.request, Lock::Run(tenant, run)))
                .or_else(|| before.going(tenant, run))
                .or_else(|| before.reserve(asked, (run, unit, attempt), model, worst))
        }
        Command::Reserve(command) => before.money(command, &asked.request),
        Command::Run(command) => before.run(command, &asked.request),
        Command::Effect(ref command) => before.effect(command, asked),
    }
}

/// What is against the end of a reservation by its run, if its attempt does not end with it.
fn unpaired(command: &Command, request: &Request, before: &Before<'_>) -> Option<No> {
    let Command::Reserve(ReserveCommand::Settle { reservation, .. } | ReserveCommand::Release { reservation }) =
        *command
    else {
        return None;
    };
    let row = before.budget.reservation(reservation)?;
    let state = before.runs.state((request.tenant, row.run, row.unit, row.attempt))?;
    let (unit, attempt, to) = (row.unit, row.attempt, State::Running);
    (state == State::Running).then(|| RunRefusal::ReservationDisagrees { unit, attempt, to }.into())
}

impl Before<'_> {
    fn day(&self) -> u32 {
        u32::try_from(self.time / DAY_NS).unwrap_or(u32::MAX)
    }

    /// What is against writing under a grant.
    fn holds(&self, held: Authority) -> Option<No> {
        let Authority { lock, executor, fence } = held;
        let highest = self.writers.highest(lock);
        if fence < highest {
            return Some(LeaseRefusal::Deposed { lock, offered: fence, highest }.into());
        }
        let is_holder = fence == highest && self.writers.grant(lock).is_some_and(|grant| grant.executor == executor);
        (!is_holder).then(|| LeaseRefusal::NotHolder { lock, executor, fence }.into())
    }

    fn authority(&self, request: &Request, needed: Lock) -> Option<No> {
        match request.authority {
            Some(held) if held.lock == needed => self.holds(held),
            _ => Some(LeaseRefusal::NoAuthority { needed }.into()),
        }
    }

    fn open(&self, tenant: u32, run: u64) -> Option<No> {
        match self.runs.run(tenant, run) {
            None => Some(RunRefusal::Unknown { run }.into()),
            Some(row) => row.ended.is_some().then(|| RunRefusal::Ended { run }.into()),
        }
    }

    /// What is against beginning something of a run.
    fn going(&self, tenant: u32, run: u64) -> Option<No> {
        self.open(tenant, run).or_else(|| {
            let row = self.runs.run(tenant, run)?;
            match (row.suspended, row.cancelled) {
                (true, _) => Some(RunRefusal::Suspended { run }.into()),
                (false, Some(_)) => Some(RunRefusal::Cancelled { run }.into()),
                (false, None) => None,
            }
        })
    }

    fn running(&self, tenant: u32, run: u64) -> Option<No> {
        let (unit, attempt) = self.runs.running(tenant, run)?;
        Some(RunRefusal::AttemptRunning { run, unit, attempt }.into())
    }

    fn lease(&self, command: LeaseCommand, asked: &Submitted) -> Option<No> {
        let tenant = asked.request.tenant;
        let (lock, executor) = match command {
            LeaseCommand::Tick => return Some(LeaseRefusal::NoAuthority { needed: Lock::Owner }.into()),
            LeaseCommand::Yield { held } => return self.holds(held),
            LeaseCommand::Renew { held, ttl_ns } => {
                return self.holds(held).or((ttl_ns == 0).then(|| LeaseRefusal::NoTerm.into()));
            }
            LeaseCommand::Acquire { ttl_ns: 0, .. } => return Some(LeaseRefusal::NoTerm.into()),
            LeaseCommand::Acquire { lock, executor: 0, .. } => return Some(LeaseRefusal::Nobody { lock }.into()),
            LeaseCommand::Acquire { lock, executor, .. } => (lock, executor),
        };
        if matches!(lock, Lock::Run(of, _) if of != tenant) {
            return Some(LeaseRefusal::OtherTenant { lock, tenant }.into());
        }
        let waits = asked.request.wait_ns > 0;
        let in_term = self.now_ns <= asked.waits_until_ns;
        match self.writers.grant(lock) {
            Some(grant) if grant.executor == executor => None,
            Some(_) if waits && in_term => Some(No::Waits(Turn::Lock(lock))),
            Some(grant) => {
                let (holder, fence, until) = (grant.executor, self.writers.highest(lock), grant.until);
                Some(LeaseRefusal::Held { lock, holder, fence, until }.into())
            }
            None if matches!(lock, Lock::Run(of, run) if self.runs.run(of, run).is_some_and(|row| row.suspended)) => {
                Some(match waits && in_term {
                    true => No::Waits(Turn::Lock(lock)),
                    false => LeaseRefusal::Suspended { lock }.into(),
                })
            }
            None => (waits && !in_term).then(|| LeaseRefusal::WaiterExpired { lock, now: self.time }.into()),
        }
    }

    fn reserve(&self, asked: &Submitted, of: (u64, u32, u32), model: u32, worst: u64) -> Option<No> {
        let ((run, unit, attempt), tenant) = (of, asked.request.tenant);
        let user = self.runs.run(tenant, run)?.user;
        if self.budget.price(model).is_none() {
            return Some(ReserveRefusal::NoPrice { model }.into());
        }
        if worst == 0 {
            return Some(ReserveRefusal::Nothing.into());
        }
        let next = self.runs.next_attempt(tenant, run, unit);
        if next != Some(attempt) {
            return Some(ReserveRefusal::WrongAttempt { run, unit, attempt, next }.into());
        }
        if let Some(refusal) = self.budget.over(tenant, (run, unit), user, self.day(), worst) {
            return Some(refusal.into());
        }
        let (live, slots) = self.budget.slots(tenant, user);
        let waits = asked.request.wait_ns > 0;
        let in_term = self.now_ns <= asked.waits_until_ns;
        match live >= slots {
            true if waits && in_term => Some(No::Waits(Turn::Slot(tenant, user))),
            true => Some(ReserveRefusal::NoSlot { user, live, slots }.into()),
            false => (waits && !in_term).then(|| ReserveRefusal::WaiterExpired { user }.into()),
        }
    }

    /// Settings, and the ends of reservations.
    fn money(&self, command: ReserveCommand, request: &Request) -> Option<No> {
        match command {
            ReserveCommand::SetCap { tenant, level, .. } => self.authority(request, Lock::Owner).or_else(|| {
                let fits = (level == Level::LedgerDay) == (tenant == 0);
                (!fits).then(|| ReserveRefusal::WrongTenant { level, tenant }.into())
            }),
            ReserveCommand::SetSlots { .. } | ReserveCommand::SetPrice(_) => self.authority(request, Lock::Owner),
            ReserveCommand::Settle { reservation, usage } => self.by_run(reservation, request).or_else(|| {
                let phase = self.effects.phase(reservation).filter(|phase| *phase != Phase::Committed);
                if let Some(phase) = phase {
                    return Some(EffectRefusal::WrongPhase { intent: reservation, phase }.into());
                }
                self.budget.uncountable(reservation, usage).map(No::from)
            }),
            ReserveCommand::Release { reservation } => self.by_run(reservation, request).or_else(|| {
                let phase = self.effects.phase(reservation).filter(|phase| *phase == Phase::Dispatched)?;
                Some(EffectRefusal::WrongPhase { intent: reservation, phase }.into())
            }),
            ReserveCommand::Resolve { reservation, charged } => self.authority(request, Lock::Owner).or_else(|| {
                let row = self.budget.reservation(reservation).filter(|row| row.tenant == request.tenant);
                let Some(row) = row else { return Some(ReserveRefusal::Unknown { reservation }.into()) };
                if row.ended_by.is_some() {
                    return Some(ReserveRefusal::Ended { reservation }.into());
                }
                let is_left = row.indeterminate || self.open(row.tenant, row.run).is_some();
                let uncountable = || charged.and_then(|usage| self.budget.uncountable(reservation, usage));
                let live = (!is_left).then_some(ReserveRefusal::StillLive { reservation });
                live.or_else(uncountable).map(No::from)
            }),
            ReserveCommand::Reserve { .. } => None,
        }
    }

    /// What is against the end of a reservation by its run.
    fn by_run(&self, reservation: u64, request: &Request) -> Option<No> {
        let tenant = request.tenant;
        let row = self.budget.reservation(reservation).filter(|row| row.tenant == tenant);
        let run = match (request.authority.map(|held| held.lock), row) {
            (Some(Lock::Run(of, run)), _) if of == tenant => run,
            (_, Some(row)) => row.run,
            (_, None) => return Some(ReserveRefusal::Unknown { reservation }.into()),
        };
        self.authority(request, Lock::Run(tenant, run)).or_else(|| {
            let Some(row) = row.filter(|row| row.run == run) else {
                return Some(ReserveRefusal::Unknown { reservation }.into());
            };
            if row.ended_by.is_some() {
                return Some(ReserveRefusal::Ended { reservation }.into());
            }
            row.indeterminate.then(|| ReserveRefusal::AwaitsOwner { reservation }.into())
        })
    }

    fn run(&self, command: RunCommand, request: &Request) -> Option<No> {
        let tenant = request.tenant;
        match command {
            RunCommand::Spawn { run, user, depth, .. } => match self.runs.run(tenant, run) {
                None => self.budget.gate(tenant, Begins::Run { user, depth }, self.day()).map(No::from),
                Some(known) => (known.spawned != command.spawned()?).then(|| RunRefusal::Taken { run }.into()),
            },
            RunCommand::EndAttempt { run, unit, attempt, state: to } => {
                let from = self.runs.state((tenant, run, unit, attempt));
                let authority = self.authority(request, Lock::Run(tenant, run));
                authority.or_else(|| self.open(tenant, run)).or_else(|| {
                    if !from.is_some_and(|from| is_end(from, to)) {
                        return Some(RunRefusal::IllegalArm { unit, attempt, from, to }.into());
                    }
                    let reservation = self.runs.reservation_of((tenant, run, unit, attempt))?;
                    let end = self.budget.reservation(reservation).and_then(|row| row.end);
                    let right = match to {
                        State::Succeeded => Some(End::Settled),
                        State::Failed | State::Cancelled | State::TimedOut => Some(End::Released),
                        State::Running | State::Pending | State::Indeterminate => None,
                    };
                    if end != right {
                        return Some(RunRefusal::ReservationDisagrees { unit, attempt, to }.into());
                    }
                    let phase = self.effects.phase(reservation).filter(|phase| !ends_in(*phase, to))?;
                    Some(RunRefusal::IntentDisagrees { unit, attempt, to, phase }.into())
                })
            }
            RunCommand::Queue { run, unit, attempt } => {
                let authority = self.authority(request, Lock::Run(tenant, run));
                authority.or_else(|| self.going(tenant, run)).or_else(|| {
                    let is_new = self.runs.state((tenant, run, unit, attempt)).is_none();
                    let next = self.runs.next_attempt(tenant, run, unit).filter(|_| is_new);
                    let wrong = ReserveRefusal::WrongAttempt { run, unit, attempt, next };
                    (next != Some(attempt)).then(|| wrong.into())
                })
            }
            RunCommand::End { run, outcome } => {
                let authority = self.authority(request, Lock::Run(tenant, run));
                authority.or_else(|| self.open(tenant, run)).or_else(|| {
                    let cancelled = self.runs.run(tenant, run).is_some_and(|row| row.cancelled.is_some());
                    match (cancelled, outcome == Ending::Cancelled) {
                        (true, false) => Some(RunRefusal::Cancelled { run }.into()),
                        (false, true) => Some(RunRefusal::NotCancelled { run }.into()),
                        _ => self.running(tenant, run),
                    }
                })
            }
            RunCommand::Suspend { run } => {
                let authority = self.authority(request, Lock::Run(tenant, run));
                authority.or_else(|| self.going(tenant, run)).or_else(|| self.running(tenant, run))
            }
            RunCommand::Resume { run } => {
                self.authority(request, Lock::Owner).or_else(|| self.open(tenant, run)).or_else(|| {
                    let suspended = self.runs.run(tenant, run).is_some_and(|row| row.suspended);
                    (!suspended).then(|| RunRefusal::NotSuspended { run }.into())
                })
            }
            RunCommand::Cancel { run } => self.authority(request, Lock::Owner).or_else(|| self.open(tenant, run)),
        }
    }

    fn effect(&self, command: &EffectCommand, asked: &Submitted) -> Option<No> {
        let (request, tenant) = (&asked.request, asked.request.tenant);
        match *command {
            EffectCommand::Register { tool, class, .. } => self
                .authority(request, Lock::Owner)
                .or_else(|| class.is_none().then(|| EffectRefusal::NoClass { tool }.into())),
            EffectCommand::Begin { run, unit, attempt, effect, model, worst } => {
                let gate = match self.runs.run(tenant, run) {
                    Some(run) => self.budget.gate(tenant, Begins::Call { user: run.user, worst }, self.day()),
                    None => self.budget.halted(tenant),
                };
                gate.map(No::from)
                    .or_else(|| self.authority(request, Lock::Run(tenant, run)))
                    .or_else(|| self.going(tenant, run))
                    .or_else(|| self.begin(asked, (run, unit, attempt), effect, model, worst))
            }
            EffectCommand::Dispatch { intent } => {
                let halted = self.budget.halted(tenant).map(No::from);
                halted
                    .or_else(|| self.movable(request, intent, Phase::Pending))
                    .or_else(|| self.going(tenant, self.effects.intent(intent)?.made_for.1))
                    .or_else(|| {
                        let key = self.effects.intent(intent)?.key?;
                        if let Some((answered_by, _)) = self.effects.answer(tenant, key) {
                            return Some(EffectRefusal::AnsweredMeanwhile { key, answered_by: *answered_by }.into());
                        }
                        let leader = self.effects.leader(tenant, key).filter(|leader| *leader != intent)?;
                        Some(EffectRefusal::InFlight { key, leader }.into())
                    })
            }
            EffectCommand::Commit { intent, ref response } => {
                self.movable(request, intent, Phase::Dispatched).or_else(|| {
                    let bytes = response.len() as u64;
                    (bytes > MOST_RESPONSE_BYTES).then(|| EffectRefusal::TooLong { bytes }.into())
                })
            }
        }
    }

    /// What is against a call that its run may make: its tool, its key, its attempt, another who asks, and then its money.
    fn begin(
        &self,
        asked: &Submitted,
        of: (u64, u32, u32),
        effect: super::told::Effect,
        model: u32,
        worst: u64,
    ) -> Option<No> {
        let ((run, unit, attempt), tenant) = (of, asked.request.tenant);
        let super::told::Effect { tool, key, .. } = effect;
        let Some(class) = self.effects.class(tenant, tool) else {
            return Some(EffectRefusal::UnknownTool { tool }.into());
        };
        let right = self.effects.key(tenant, class, &effect);
        if key != right {
            return Some(EffectRefusal::WrongKey { tool, class, right }.into());
        }
        let next = self.runs.next_attempt(tenant, run, unit);
        if next != Some(attempt) {
            return Some(ReserveRefusal::WrongAttempt { run, unit, attempt, next }.into());
        }
        if let Some(key) = key {
            if self.effects.answer(tenant, key).is_some() {
                return None;
            }
            if let Some(leader) = self.effects.leader(tenant, key) {
                let in_term = asked.request.wait_ns > 0 && self.now_ns <= asked.waits_until_ns;
                return Some(match in_term {
                    true => No::Waits(Turn::Answer(tenant, key)),
                    false => EffectRefusal::InFlight { key, leader }.into(),
                });
            }
        }
        self.reserve(asked, of, model, worst)
    }

    /// What is against taking an intent on from a phase.
    fn movable(&self, request: &Request, intent: u64, from: Phase) -> Option<No> {
        let tenant = request.tenant;
        let row = self.effects.intent(intent).filter(|row| row.made_for.0 == tenant);
        let run = match (request.authority.map(|held| held.lock), row) {
            (Some(Lock::Run(of, run)), _) if of == tenant => run,
            (_, Some(row)) => row.made_for.1,
            (_, None) => return Some(EffectRefusal::UnknownIntent { intent }.into()),
        };
        self.authority(request, Lock::Run(tenant, run)).or_else(|| {
            let Some(row) = row.filter(|row| row.made_for.1 == run) else {
                return Some(EffectRefusal::UnknownIntent { intent }.into());
            };
            if self.budget.reservation(intent).is_some_and(|row| row.indeterminate) {
                return Some(ReserveRefusal::AwaitsOwner { reservation: intent }.into());
            }
            let phase = row.phase;
            if phase != from {
                return Some(EffectRefusal::WrongPhase { intent, phase }.into());
            }
            self.effects.is_moved(intent).then(|| EffectRefusal::SameFrame { intent, phase }.into())
        })
    }
}

/// The longest response that a record carries.
const MOST_RESPONSE_BYTES: u64 = 4096;
