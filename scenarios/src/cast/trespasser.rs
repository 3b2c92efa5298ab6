//! A trespasser: a client that breaks the rules on purpose, so that every way in which the ledger says no is walked into.
//!
//! It makes a few tours, each over a run of its own and over whatever run of the fleet is being worked on. In a tour it asks
//! for what makes no sense, writes under what it does not hold or holds no more, gives the owner's orders without the owner's
//! lock, and ends what it may not end. It knows what to expect no better than the ledger does: the model predicts each answer,
//! and the invariants look at what came of it. What it has begun it brings to an end, so that nothing is left of a tour.

use super::{
    Casting, LEDGER, PROVIDER, TENANT, tool,
    wire::{ToProvider, encode},
};
use crate::fact::Fact;
use kernel::{
    admit::{self, DepthTier, Switch},
    effect::{self, Class, Content, Effect, Phase, Response},
    id::{ClientId, ExecutorId, Fence, ModelId, ReservationId, RunId, TaskId, TenantId, ToolId, UnitId, UserId},
    lease::{self, Authority, Lock},
    money::{MicroUsd, Usage},
    request::{Answer, Command, Decision, FromLedger, Outcome, Query, Refusal, Reply, Request, RunStanding, ToLedger},
    reserve::{self, Level},
    run::{self, AttemptState, Ending, HaltReason, Purpose},
};
use sim::World;
use std::{cell::Cell, future::pending, rc::Rc, time::Duration};

/// Tours of one trespasser.
const TOURS: u32 = 3;
/// How long a frame goes unanswered before it is sent again.
const RETRY: Duration = Duration::from_secs(1);
/// A tenant that nobody has set a cap for.
const STRANGER: TenantId = TenantId(2);
/// The most slots of a user that it fills to be refused one more.
const MOST_SLOTS: u32 = 32;
/// What a reservation of its own sets aside, in micro-USD.
const WORST: MicroUsd = MicroUsd(1_000);
/// The unit that makes its one call, behind those that fill its slots.
const CALLED: UnitId = UnitId(900);
/// What that asks.
const CONTENT: Content = Content([7; 16]);
/// What its one call uses: a few micro-USD, whatever the prices.
const USAGE: Usage = Usage { input_tokens: 1, output_tokens: 1 };

/// Makes its tours, then says that it is done.
pub(super) async fn run(world: World, casting: Rc<Casting>, index: u32) {
    let agents = casting.work.agents.len() as u32;
    // Incarnation 0 is what it is stale as.
    let incarnation = world.incarnation() + 1;
    let client = ClientId(u64::from(world.node().0) + 1);
    let me = Trespasser { world, casting, client, incarnation, number: Cell::new(0) };
    for nth in 0..TOURS {
        let most_ns = super::asking::nanos(me.casting.scenario.sizes.lasts) / u64::from(TOURS);
        me.world.sleep(Duration::from_nanos(me.world.random() % most_ns.max(1))).await;
        if me.casting.stage.closing.get() {
            break;
        }
        let run = RunId(u64::from(agents + index) << 32 | u64::from(nth));
        let tour = Tour { me: &me, run, user: UserId(me.casting.users() + index) };
        tour.make().await;
    }
    me.casting.stage.done.borrow_mut().insert(me.world.node());
    pending().await
}

struct Trespasser {
    world: World,
    casting: Rc<Casting>,
    client: ClientId,
    incarnation: u32,
    /// Requests and queries so far.
    number: Cell<u64>,
}

/// How a request is named; all as it should be, but for what a trespasser makes of it.
#[derive(Clone, Copy)]
struct Named {
    incarnation: u32,
    number: u64,
    acknowledged: u64,
}

impl Trespasser {
    /// The name of its next request. Each is asked when those before it were answered.
    fn name(&self) -> Named {
        let number = self.number.get() + 1;
        self.number.set(number);
        Named { incarnation: self.incarnation, number, acknowledged: number - 1 }
    }

    /// Asks as one of the fleet's tenant, without waiting for a turn.
    async fn ask(&self, authority: Option<Authority>, commands: Vec<Command>) -> Option<Decision> {
        self.ask_as(TENANT, self.name(), authority, 0, commands).await
    }

    async fn ask_as(
        &self,
        tenant: TenantId,
        Named { incarnation, number, acknowledged }: Named,
        authority: Option<Authority>,
        wait_ns: u64,
        commands: Vec<Command>,
    ) -> Option<Decision> {
        let client = self.client;
        let request = Request { tenant, client, incarnation, number, acknowledged, authority, wait_ns, commands };
        self.hear(&ToLedger::Request(request), |said| match said {
            FromLedger::Reply { client, incarnation: of, number: to, reply } => {
                let is_it = (client, of, to) == (self.client, incarnation, number) && reply != Reply::Busy;
                is_it.then_some(match reply {
                    Reply::Decided(decision) => Some(decision),
                    _ => None,
                })
            }
            _ => None,
        })
        .await
    }

    async fn standing(&self, run: RunId) -> Option<RunStanding> {
        // Queries have numbers of their own, far above those of requests.
        let own = self.client.0 << 48 | self.name().number;
        let heard = |said| match said {
            FromLedger::Answer { number, answer: Answer::Run(standing) } if number == own => Some(standing),
            _ => None,
        };
        self.hear(&ToLedger::Query { number: own, query: Query::Run(TENANT, run) }, heard).await
    }

    /// Sends a frame until `heard` finds the answer to it; all else that arrives is dropped.
    async fn hear<T>(&self, message: &ToLedger, heard: impl Fn(FromLedger) -> Option<T>) -> T {
        let frame = encode(message);
        loop {
            self.world.send(LEDGER, frame.clone());
            let again_at = self.world.now().plus(RETRY);
            loop {
                let left = again_at.since(self.world.now());
                let Ok(datagram) = self.world.timeout(left, self.world.recv()).await else { break };
                let said = postcard::from_bytes(&datagram.frame).ok().filter(|_| datagram.from == LEDGER);
                if let Some(answer) = said.and_then(&heard) {
                    return answer;
                }
            }
        }
    }

    /// As one of its two executors.
    fn executor(&self, which: u64) -> ExecutorId {
        ExecutorId((u64::from(self.world.node().0) << 32) + 1 + which)
    }

    fn acquire(&self, lock: Lock, executor: ExecutorId) -> Command {
        let ttl_ns = super::asking::nanos(self.casting.scenario.ledger.lease);
        Command::Lease(lease::Command::Acquire { lock, executor, ttl_ns })
    }

    /// Takes a lock as one of its executors; `None` if it is another's.
    async fn take(&self, lock: Lock, which: u64) -> Option<Authority> {
        let executor = self.executor(which);
        let decision = self.ask(None, vec![self.acquire(lock, executor)]).await?;
        match decision.outcome.ok()?.first() {
            Some(Outcome::Lease(lease::Outcome::Held { fence, .. })) => {
                Some(Authority { lock, executor, fence: *fence })
            }
            _ => None,
        }
    }

    async fn give(&self, held: Authority) {
        self.ask(None, vec![Command::Lease(lease::Command::Yield { held })]).await;
    }

    /// Asks for each by itself.
    async fn try_each(&self, authority: Option<Authority>, all: Vec<Vec<Command>>) {
        for commands in all {
            self.ask(authority, commands).await;
        }
    }
}

/// One tour, over one run of the trespasser's own.
struct Tour<'a> {
    me: &'a Trespasser,
    run: RunId,
    user: UserId,
}

impl Tour<'_> {
    async fn make(&self) {
        let spawned = self.me.ask(None, vec![self.spawn(self.run, self.user, DepthTier(1))]).await;
        if spawned.is_some_and(|decision| decision.outcome.is_ok()) {
            self.trespass().await;
            self.clear_up().await;
        }
        self.disturb().await;
        self.be_a_stranger().await;
    }

    async fn trespass(&self) {
        let lock = Lock::Run(TENANT, self.run);
        self.misname().await;
        self.misask_for_locks().await;
        let Some(first) = self.me.take(lock, 0).await else { return };
        let Some(key) = self.reserve(first, UnitId(0)).await else { return };
        self.misuse(first, key).await;
        self.pretend_to_own(first, key).await;
        self.fill_slots(first).await;
        self.me.give(first).await;
        let Some(second) = self.me.take(lock, 1).await else { return };
        self.write_late(first, second, key).await;
        self.leave_unknown(second, key).await;
        let end = self.end(Ending::Incomplete);
        self.me.ask(Some(second), vec![end.clone()]).await;
        let after = [end, self.end_attempt(UnitId(0), 1, AttemptState::Failed), self.reserving(UnitId(1), 1, WORST)];
        self.me.try_each(Some(second), after.map(|command| vec![command]).to_vec()).await;
    }

    /// Requests whose own name makes no sense, or that carry nothing.
    async fn misname(&self) {
        let me = self.me;
        let nothing = || vec![self.spawn(self.run, self.user, DepthTier(1))];
        me.ask(None, Vec::new()).await;
        let named = me.name();
        let ahead = Named { acknowledged: named.number, ..named };
        let (unnamed, stale) = (Named { number: 0, ..me.name() }, Named { incarnation: 0, ..me.name() });
        let forgotten = Named { number: 1, acknowledged: 0, ..me.name() };
        for named in [ahead, unnamed, stale, forgotten] {
            me.ask_as(TENANT, named, None, 0, nothing()).await;
        }
    }

    /// Locks for nobody, for no time, of another tenant, or when it is too late to wait for one.
    async fn misask_for_locks(&self) {
        let (me, lock, executor) = (self.me, Lock::Run(TENANT, self.run), self.me.executor(0));
        let acquire = |lock, executor, ttl_ns| Command::Lease(lease::Command::Acquire { lock, executor, ttl_ns });
        let all = [
            acquire(lock, executor, 0),
            acquire(lock, ExecutorId(0), 1),
            acquire(Lock::Run(STRANGER, self.run), executor, 1),
        ];
        me.try_each(None, all.map(|command| vec![command]).to_vec()).await;
        // Its term is over before anything can be decided.
        me.ask_as(TENANT, me.name(), None, 1, vec![me.acquire(lock, executor)]).await;
        // A lock may be had for a run that is not there; nothing can be written under it.
        let nowhere = RunId(self.run.0 | 1 << 31);
        if let Some(held) = me.take(Lock::Run(TENANT, nowhere), 0).await {
            me.ask(Some(held), vec![Command::Run(run::Command::End { run: nowhere, outcome: Ending::Complete })]).await;
            me.give(held).await;
        }
    }

    /// What a holder may not do with its own run and its own reservation `key`.
    async fn misuse(&self, held: Authority, key: ReservationId) {
        let settle = |reservation, usage| Command::Reserve(reserve::Command::Settle { reservation, usage });
        let succeeded = self.end_attempt(UnitId(0), 1, AttemptState::Succeeded);
        let most = Usage { input_tokens: u64::MAX, output_tokens: u64::MAX };
        let (run, unit, model) = (self.run, UnitId(1), ModelId(u32::MAX));
        let unpriced = Command::Reserve(reserve::Command::Reserve { run, unit, attempt: 1, model, worst: WORST });
        let mut all = vec![
            vec![self.spawn(run, UserId(u32::MAX), DepthTier(1))],
            vec![unpriced],
            vec![self.reserving(unit, 1, MicroUsd::ZERO)],
            vec![self.reserving(unit, 1, MicroUsd::MAX)],
            vec![self.reserving(unit, 7, WORST)],
            vec![self.reserving(UnitId(0), 1, WORST)],
            vec![settle(key, USAGE)],
            vec![succeeded.clone()],
            vec![self.end_attempt(UnitId(0), 1, AttemptState::Running)],
            vec![settle(key, most), succeeded],
            vec![settle(ReservationId(u64::MAX), USAGE)],
            vec![self.end(Ending::Complete)],
            vec![self.end(Ending::Cancelled)],
            vec![Command::Run(run::Command::Suspend { run })],
        ];
        // Without a quota a run may be as deep as it likes.
        let deepest = self.me.casting.quota().map(|quota| quota.depth_tier).filter(|tier| *tier < DepthTier(u8::MAX));
        all.extend(deepest.map(|_| vec![self.spawn(RunId(run.0 | 1 << 30), self.user, DepthTier(u8::MAX))]));
        self.me.try_each(Some(held), all).await;
        self.me.try_each(None, vec![vec![self.end(Ending::Complete)], vec![settle(key, USAGE)]]).await;
        self.me.ask_as(TENANT, self.me.name(), Some(held), 1, vec![self.reserving(unit, 1, WORST)]).await;
    }

    /// The owner's orders, without the owner's lock, with it where even the owner may not, and after it was given back.
    async fn pretend_to_own(&self, held: Authority, live: ReservationId) {
        let halt = Command::Admit(admit::Command::SetHalt { tenant: TENANT, switch: Switch::Halted });
        let cap = |level| Command::Reserve(reserve::Command::SetCap { tenant: TENANT, level, cap: MicroUsd::ZERO });
        let resolve = Command::Reserve(reserve::Command::Resolve { reservation: live, charged: None });
        let (cancel, resume) = (run::Command::Cancel { run: self.run }, run::Command::Resume { run: self.run });
        let (cancel, resume) = (Command::Run(cancel), Command::Run(resume));
        let orders = || {
            vec![
                vec![halt.clone()],
                vec![cap(Level::Unit)],
                vec![resolve.clone()],
                vec![cancel.clone()],
                vec![resume.clone()],
            ]
        };
        self.me.try_each(Some(held), orders()).await;
        let Some(owner) = self.me.take(Lock::Owner, 0).await else { return };
        let classless = effect::Command::Register { tenant: TENANT, tool: ToolId(u32::MAX), class: None };
        let classless = Command::Effect(classless);
        let quota = Command::Admit(admit::Command::SetQuota { tenant: TenantId::LEDGER, user: None, quota: None });
        self.me
            .try_each(
                Some(owner),
                vec![
                    vec![resolve.clone()],
                    vec![cap(Level::LedgerDay)],
                    vec![quota],
                    vec![classless],
                    vec![resume.clone()],
                ],
            )
            .await;
        self.me.give(owner).await;
        self.me.try_each(Some(owner), orders()).await;
    }

    /// Takes every slot of its user and asks for one more, then gives them back.
    async fn fill_slots(&self, held: Authority) {
        let slots = self.me.casting.caps().slots;
        if slots > MOST_SLOTS {
            return;
        }
        let mut taken = Vec::new();
        for unit in (1..=slots).map(UnitId) {
            taken.extend(self.reserve(held, unit).await.map(|key| (unit, key)));
        }
        for (unit, key) in taken {
            self.me.ask(Some(held), self.give_up(unit, 1, key)).await;
        }
    }

    /// What a holder that was deposed still writes, and what it writes as itself under its successor's fence.
    async fn write_late(&self, old: Authority, new: Authority, key: ReservationId) {
        let settle = Command::Reserve(reserve::Command::Settle { reservation: key, usage: USAGE });
        let late = || {
            vec![
                vec![self.end_attempt(UnitId(0), 1, AttemptState::Indeterminate)],
                vec![self.end(Ending::Incomplete)],
                vec![settle.clone()],
                vec![settle.clone(), self.end_attempt(UnitId(0), 1, AttemptState::Succeeded)],
                self.give_up(UnitId(0), 1, key),
                vec![self.reserving(UnitId(1), 2, WORST)],
            ]
        };
        let renew = |held| vec![Command::Lease(lease::Command::Renew { held, ttl_ns: 1 })];
        let give = |held| vec![Command::Lease(lease::Command::Yield { held })];
        for authority in [old, Authority { executor: old.executor, ..new }] {
            self.me.try_each(Some(authority), late()).await;
            self.me.try_each(None, vec![renew(authority), give(authority)]).await;
        }
    }

    /// What a holder may not do with an intent that has not left: skip a phase, end it as if it had left, or make another of no
    /// tool's or under no key.
    async fn misuse_intent(&self, held: Authority, intent: ReservationId) {
        let commit = Command::Effect(effect::Command::Commit { intent, response: Response::default() });
        let settle = Command::Reserve(reserve::Command::Settle { reservation: intent, usage: USAGE });
        let unkeyed = Effect { tool: tool(Class::Idempotent), content: CONTENT, key: None };
        let unknown = Effect { tool: ToolId(u32::MAX), ..unkeyed };
        let nothing = ReservationId(u64::MAX);
        let all = vec![
            vec![commit],
            vec![settle, self.end_attempt(CALLED, 1, AttemptState::Succeeded)],
            vec![self.end_attempt(CALLED, 1, AttemptState::Indeterminate)],
            self.give_up(CALLED, 1, intent),
            vec![self.beginning(UnitId(CALLED.0 + 1), unkeyed)],
            vec![self.beginning(UnitId(CALLED.0 + 1), unknown)],
            vec![Command::Effect(effect::Command::Dispatch { intent: nothing })],
            vec![Command::Run(run::Command::Queue { run: self.run, unit: CALLED, attempt: 1 })],
        ];
        self.me.try_each(Some(held), all).await;
    }

    /// Makes its one call, does not listen, and says that its outcome is unknown; then tries to end it all the same.
    async fn leave_unknown(&self, held: Authority, reserved: ReservationId) {
        let me = self.me;
        me.ask(Some(held), self.give_up(UnitId(0), 1, reserved)).await;
        let unsafe_one = Effect { tool: tool(Class::Unsafe), content: CONTENT, key: None };
        let begun = me.ask(Some(held), vec![self.beginning(CALLED, unsafe_one)]).await;
        let Some(Outcome::Effect(effect::Outcome::Begun(key))) =
            begun.and_then(|decision| decision.outcome.ok()?.first().cloned())
        else {
            return;
        };
        self.misuse_intent(held, key).await;
        let dispatch = Command::Effect(effect::Command::Dispatch { intent: key });
        let dispatched = me.ask(Some(held), vec![dispatch.clone()]).await;
        if dispatched.is_none_or(|decision| decision.outcome.is_err()) {
            return;
        }
        let long = Response(vec![0; Response::MOST_BYTES + 1].into());
        let commit = Command::Effect(effect::Command::Commit { intent: key, response: long });
        me.try_each(Some(held), vec![vec![dispatch], vec![commit], self.give_up(CALLED, 1, key)]).await;
        let (run, unit, attempt, user, fence) = (self.run, CALLED, 1, self.user, held.fence);
        Fact::CallSent { tenant: TENANT, run, unit, attempt, user, key, fence }.note(&me.world);
        let model = me.casting.scenario.provider.price.model;
        let transmission = u64::from(me.world.node().0) << 40 ^ me.world.random() >> 40;
        let call =
            ToProvider::Call { key, transmission, idempotency: None, user, model, content: CONTENT, usage: USAGE };
        me.world.send(PROVIDER, encode(&call));
        Fact::CallEnded { key, answered: None }.note(&me.world);
        me.casting.stage.leave_to_owner();
        let settle = Command::Reserve(reserve::Command::Settle { reservation: key, usage: USAGE });
        let all = vec![
            vec![self.end_attempt(unit, 1, AttemptState::Indeterminate)],
            vec![self.end_attempt(unit, 1, AttemptState::Failed)],
            vec![settle, self.end_attempt(unit, 1, AttemptState::Succeeded)],
            self.give_up(unit, 1, key),
            vec![self.reserving(unit, 2, WORST)],
        ];
        me.try_each(Some(held), all).await;
    }

    /// Ends whatever is left of its own run.
    async fn clear_up(&self) {
        while let Some(RunStanding { state, units, .. }) = self.me.standing(self.run).await
            && state.ended().is_none()
        {
            let Some(held) = self.me.take(Lock::Run(TENANT, self.run), 1).await else {
                self.me.world.sleep(self.me.casting.scenario.ledger.lease / 3).await;
                continue;
            };
            for at in units.iter().filter(|at| at.state == AttemptState::Running) {
                let Some(reservation) = at.reservation else { continue };
                let release = Command::Reserve(reserve::Command::Release { reservation });
                let commands = match at.intent.map(|intent| intent.phase) {
                    None => self.give_up(at.unit, at.attempt, reservation),
                    Some(Phase::Pending) => {
                        vec![release, self.end_attempt(at.unit, at.attempt, AttemptState::Cancelled)]
                    }
                    Some(Phase::Dispatched | Phase::Committed) => {
                        vec![self.end_attempt(at.unit, at.attempt, AttemptState::Indeterminate)]
                    }
                };
                self.me.ask(Some(held), commands).await;
            }
            self.me.ask(Some(held), vec![self.end(Ending::Incomplete)]).await;
        }
    }

    /// Writes in a run that another works on, as itself under that one's fence, and would end its reservations.
    async fn disturb(&self) {
        let (me, lists) = (self.me, &self.me.casting.work.agents);
        let list = &lists[(me.world.random() % lists.len() as u64) as usize];
        for item in list.iter().take(2) {
            let standing = me.standing(item.run).await.filter(|standing| standing.state.ended().is_none());
            let Some(RunStanding { units, .. }) = standing else { continue };
            let Some(open) = units.iter().find(|at| at.open) else { continue };
            let Some(reservation) = open.reservation else { continue };
            let (lock, executor) = (Lock::Run(TENANT, item.run), me.executor(0));
            let said = me.ask(None, vec![me.acquire(lock, executor)]).await;
            let fence = match said.map(|decision| decision.outcome) {
                Some(Err(Refusal::Lease(lease::Refusal::Held { fence, .. }))) => fence,
                Some(Ok(outcomes)) => {
                    let held = super::asking::granted(&outcomes).unwrap_or_default();
                    me.give(Authority { lock, executor, fence: held }).await;
                    held
                }
                _ => Fence(0),
            };
            let run = item.run;
            let state = AttemptState::Indeterminate;
            let (unit, attempt) = (open.unit, open.attempt);
            let release = Command::Reserve(reserve::Command::Release { reservation });
            let resolve = Command::Reserve(reserve::Command::Resolve { reservation, charged: None });
            let all = vec![
                vec![Command::Run(run::Command::End { run, outcome: Ending::Halted(HaltReason::Owner) })],
                vec![Command::Run(run::Command::EndAttempt { run, unit, attempt, state })],
                vec![release],
                vec![resolve],
            ];
            me.try_each(Some(Authority { lock, executor, fence }), all).await;
        }
    }

    /// Works for a tenant that no cap is in force for.
    async fn be_a_stranger(&self) {
        let me = self.me;
        let (lock, executor) = (Lock::Run(STRANGER, self.run), me.executor(0));
        let begin = vec![self.spawn(self.run, self.user, DepthTier(1)), me.acquire(lock, executor)];
        let begun = me.ask_as(STRANGER, me.name(), None, 0, begin).await;
        let Some(fence) = begun.and_then(|decision| super::asking::granted(&decision.outcome.ok()?)) else { return };
        let held = Some(Authority { lock, executor, fence });
        me.ask_as(STRANGER, me.name(), held, 0, vec![self.reserving(UnitId(0), 1, WORST)]).await;
        // Its lease may have run out meanwhile, again and again; nobody else wants it.
        while let Some(decision) = me.ask_as(STRANGER, me.name(), None, 0, vec![me.acquire(lock, executor)]).await {
            let fence =
                decision.outcome.ok().and_then(|outcomes| super::asking::granted(&outcomes)).unwrap_or_default();
            let held = Authority { lock, executor, fence };
            let end = vec![self.end(Ending::Incomplete), Command::Lease(lease::Command::Yield { held })];
            let said = me.ask_as(STRANGER, me.name(), Some(held), 0, end).await;
            if said.is_none_or(|decision| !matches!(decision.outcome, Err(Refusal::Lease(_)))) {
                return;
            }
        }
    }

    fn spawn(&self, run: RunId, user: UserId, depth: DepthTier) -> Command {
        let (task, workflow_version, purpose) = (TaskId(1), 1, Purpose::Work);
        Command::Run(run::Command::Spawn { run, user, task, workflow_version, purpose, depth })
    }

    fn reserving(&self, unit: UnitId, attempt: u32, worst: MicroUsd) -> Command {
        let (run, model) = (self.run, self.me.casting.scenario.provider.price.model);
        Command::Reserve(reserve::Command::Reserve { run, unit, attempt, model, worst })
    }

    fn beginning(&self, unit: UnitId, effect: Effect) -> Command {
        let (run, model) = (self.run, self.me.casting.scenario.provider.price.model);
        Command::Effect(effect::Command::Begin { run, unit, attempt: 1, effect, model, worst: WORST })
    }

    async fn reserve(&self, held: Authority, unit: UnitId) -> Option<ReservationId> {
        let decision = self.me.ask(Some(held), vec![self.reserving(unit, 1, WORST)]).await?;
        match decision.outcome.ok()?.first() {
            Some(Outcome::Reserve(reserve::Outcome::Reserved(key))) => Some(*key),
            _ => None,
        }
    }

    fn end_attempt(&self, unit: UnitId, attempt: u32, state: AttemptState) -> Command {
        Command::Run(run::Command::EndAttempt { run: self.run, unit, attempt, state })
    }

    fn give_up(&self, unit: UnitId, attempt: u32, reservation: ReservationId) -> Vec<Command> {
        let release = Command::Reserve(reserve::Command::Release { reservation });
        vec![release, self.end_attempt(unit, attempt, AttemptState::Failed)]
    }

    fn end(&self, outcome: Ending) -> Command {
        Command::Run(run::Command::End { run: self.run, outcome })
    }
}
