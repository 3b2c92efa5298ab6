//! What the kernel's tests share: a ledger in memory with caps and prices, and short ways to ask it.
#![allow(clippy::unwrap_used)] // what a test cannot go on without, it panics for
#![allow(dead_code)] // each test file uses its own part

use kernel::{
    admit::{self, DepthTier, Quota, Switch},
    effect::{self, Class, Content, Effect, Key, Question, Response},
    id::{ClientId, ExecutorId, Fence, ModelId, ReservationId, RunId, TaskId, TenantId, ToolId, UnitId, UserId},
    lease::{self, Authority, Lock},
    ledger::{Committed, Ledger},
    money::{MicroUsd, Price, Usage},
    planted::Planted,
    request::{Command, Notice, Outcome, Refusal, Reply, Request, Submitted},
    reserve::{self, Level},
    run::{self, AttemptState, Ending, Purpose},
    store::memory::MemoryStore,
};

/// The tenant of the tests.
pub const TENANT: TenantId = TenantId(1);
/// Its user.
pub const USER: UserId = UserId(7);
/// The run of the tests.
pub const RUN: RunId = RunId(100);
/// The model of the tests: 1 micro-USD a token, in and out.
pub const MODEL: ModelId = ModelId(3);
/// The lock of the run.
pub const LOCK: Lock = Lock::Run(TENANT, RUN);

/// A ledger with one client that numbers its requests.
pub struct House {
    pub ledger: Ledger<MemoryStore>,
    pub store: MemoryStore,
    pub now_ns: u64,
    pub notices: Vec<Notice>,
    numbers: std::collections::BTreeMap<ClientId, u64>,
}

/// The genesis of the tests: caps by level, slots, and the model's price.
pub fn genesis(unit: u64, run: u64, user_day: u64, ledger_day: u64, slots: u32) -> Vec<Command> {
    vec![
        cap(TENANT, Level::Unit, unit),
        cap(TENANT, Level::Run, run),
        cap(TENANT, Level::UserDay, user_day),
        cap(TenantId::LEDGER, Level::LedgerDay, ledger_day),
        Command::Reserve(reserve::Command::SetSlots { tenant: TENANT, slots }),
        Command::Reserve(reserve::Command::SetPrice(price())),
    ]
}

pub fn price() -> Price {
    Price { model: MODEL, input_per_mtok: 1_000_000, output_per_mtok: 1_000_000 }
}

pub fn cap(tenant: TenantId, level: Level, cap: u64) -> Command {
    Command::Reserve(reserve::Command::SetCap { tenant, level, cap: MicroUsd(cap) })
}

pub fn halt(tenant: TenantId, switch: Switch) -> Command {
    Command::Admit(admit::Command::SetHalt { tenant, switch })
}

/// A quota of one of the tests' users, or with none their default.
pub fn quota(user: Option<UserId>, runs_per_day: u32, micro_usd_per_day: u64, depth_tier: u8) -> Command {
    let (micro_usd_per_day, depth_tier) = (MicroUsd(micro_usd_per_day), DepthTier(depth_tier));
    let quota = Some(Quota { runs_per_day, micro_usd_per_day, depth_tier });
    Command::Admit(admit::Command::SetQuota { tenant: TENANT, user, quota })
}

pub fn usage(tokens: u64) -> Usage {
    Usage { input_tokens: 0, output_tokens: tokens }
}

pub fn spawn(run: RunId) -> Command {
    spawn_for(run, USER)
}

pub fn spawn_for(run: RunId, user: UserId) -> Command {
    spawn_deep(run, user, 1)
}

pub fn spawn_deep(run: RunId, user: UserId, depth: u8) -> Command {
    let (task, workflow_version, purpose, depth) = (TaskId(1), 1, Purpose::Work, DepthTier(depth));
    Command::Run(run::Command::Spawn { run, user, task, workflow_version, purpose, depth })
}

pub fn acquire(lock: Lock, executor: u64, ttl_ns: u64) -> Command {
    Command::Lease(lease::Command::Acquire { lock, executor: ExecutorId(executor), ttl_ns })
}

pub fn reserve(unit: u32, attempt: u32, worst: u64) -> Command {
    reserve_in(RUN, unit, attempt, worst)
}

pub fn reserve_in(run: RunId, unit: u32, attempt: u32, worst: u64) -> Command {
    let (unit, worst) = (UnitId(unit), MicroUsd(worst));
    Command::Reserve(reserve::Command::Reserve { run, unit, attempt, model: MODEL, worst })
}

pub fn settle(reservation: ReservationId, tokens: u64) -> Command {
    Command::Reserve(reserve::Command::Settle { reservation, usage: usage(tokens) })
}

pub fn release(reservation: ReservationId) -> Command {
    Command::Reserve(reserve::Command::Release { reservation })
}

pub fn resolve(reservation: ReservationId, charged: Option<u64>) -> Command {
    Command::Reserve(reserve::Command::Resolve { reservation, charged: charged.map(usage) })
}

pub fn end_attempt(unit: u32, attempt: u32, state: AttemptState) -> Command {
    Command::Run(run::Command::EndAttempt { run: RUN, unit: UnitId(unit), attempt, state })
}

/// One tool of each class.
pub const IDEMPOTENT: ToolId = ToolId(1);
pub const QUERYABLE: ToolId = ToolId(2);
pub const UNSAFE: ToolId = ToolId(3);

/// Registers one tool of each class, as its number says.
pub fn tools() -> Vec<Command> {
    let all = [IDEMPOTENT, QUERYABLE, UNSAFE].into_iter().zip(Class::ALL);
    all.map(|(tool, class)| register(tool, Some(class))).collect()
}

pub fn register(tool: ToolId, class: Option<Class>) -> Command {
    Command::Effect(effect::Command::Register { tenant: TENANT, tool, class })
}

pub fn content(question: u8) -> Content {
    let prompt = [question];
    Content::of(&Question { step: b"line", input: b"", prompt: &prompt, model: MODEL, parameters: b"" })
}

pub fn key(question: u8) -> Key {
    Key::derived(TENANT, IDEMPOTENT, content(question))
}

/// The first attempt of a unit, asking a tool a question under the key it should have.
pub fn begin(unit: u32, attempt: u32, tool: ToolId, question: u8) -> Command {
    begin_in(RUN, unit, attempt, tool, question, 10)
}

pub fn begin_in(run: RunId, unit: u32, attempt: u32, tool: ToolId, question: u8, worst: u64) -> Command {
    let content = content(question);
    let key = (tool == IDEMPOTENT).then(|| Key::derived(TENANT, tool, content));
    let (unit, worst, effect) = (UnitId(unit), MicroUsd(worst), Effect { tool, content, key });
    Command::Effect(effect::Command::Begin { run, unit, attempt, effect, model: MODEL, worst })
}

pub fn dispatch(intent: ReservationId) -> Command {
    Command::Effect(effect::Command::Dispatch { intent })
}

pub fn commit(intent: ReservationId, bytes: &[u8]) -> Command {
    Command::Effect(effect::Command::Commit { intent, response: Response(bytes.into()) })
}

pub fn begun(outcomes: &[Outcome]) -> ReservationId {
    match outcomes {
        [Outcome::Effect(effect::Outcome::Begun(intent)), ..] => *intent,
        other => panic!("not begun: {other:?}"),
    }
}

pub fn queue(unit: u32, attempt: u32) -> Command {
    Command::Run(run::Command::Queue { run: RUN, unit: UnitId(unit), attempt })
}

pub fn end(outcome: Ending) -> Command {
    Command::Run(run::Command::End { run: RUN, outcome })
}

pub fn request(client: u64, number: u64, authority: Option<Authority>, commands: Vec<Command>) -> Request {
    Request {
        tenant: TENANT,
        client: ClientId(client),
        incarnation: 1,
        number,
        acknowledged: 0,
        authority,
        wait_ns: 0,
        commands,
    }
}

impl House {
    /// Caps far away and a thousand slots.
    pub fn new() -> House {
        House::with(genesis(1_000_000, 1_000_000, 1_000_000, 1_000_000, 1000), Planted::none())
    }

    pub fn with(genesis: Vec<Command>, planted: Planted) -> House {
        let store = MemoryStore::new();
        let ledger = Ledger::open(store.clone(), planted).unwrap();
        let mut house = House { ledger, store, now_ns: 1_000, notices: Vec::new(), numbers: Default::default() };
        let [reply] = house.batch(vec![Request::genesis(genesis)]).replies.try_into().unwrap();
        assert!(matches!(&reply, Reply::Decided(decision) if decision.outcome.is_ok()), "{reply:?}");
        house
    }

    /// Caps far away, a thousand slots, and one tool of each class.
    pub fn with_tools(planted: Planted) -> House {
        let mut commands = genesis(1_000_000, 1_000_000, 1_000_000, 1_000_000, 1000);
        commands.extend(tools());
        House::with(commands, planted)
    }

    /// A run with its lock held by executor 5.
    pub fn running(self) -> (House, Authority) {
        let mut house = self;
        house.ok(None, vec![spawn(RUN)]);
        let authority = house.acquire(LOCK, 5, 1_000_000_000_000);
        (house, authority)
    }

    pub fn batch(&mut self, requests: Vec<Request>) -> Committed {
        let now_ns = self.now_ns;
        let batch = requests.into_iter().map(|request| Submitted::arriving(request, now_ns)).collect();
        self.submit(batch)
    }

    pub fn submit(&mut self, batch: Vec<Submitted>) -> Committed {
        let committed = self.ledger.commit(self.now_ns, &batch).unwrap();
        self.notices.extend(&committed.notices);
        committed
    }

    pub fn one(&mut self, request: Request) -> Reply {
        let [reply] = self.batch(vec![request]).replies.try_into().unwrap();
        reply
    }

    /// The next request of client 1.
    pub fn next(&mut self, authority: Option<Authority>, commands: Vec<Command>) -> Request {
        let number = self.numbers.entry(ClientId(1)).or_default();
        *number += 1;
        request(1, *number, authority, commands)
    }

    /// What is decided of a fresh request of client 1.
    pub fn ask(&mut self, authority: Option<Authority>, commands: Vec<Command>) -> Result<Vec<Outcome>, Refusal> {
        let request = self.next(authority, commands);
        decided(self.one(request))
    }

    pub fn ok(&mut self, authority: Option<Authority>, commands: Vec<Command>) -> Vec<Outcome> {
        self.ask(authority, commands).unwrap()
    }

    pub fn no(&mut self, authority: Option<Authority>, commands: Vec<Command>) -> Refusal {
        self.ask(authority, commands).unwrap_err()
    }

    pub fn acquire(&mut self, lock: Lock, executor: u64, ttl_ns: u64) -> Authority {
        Authority {
            lock,
            executor: ExecutorId(executor),
            fence: held(&self.ok(None, vec![acquire(lock, executor, ttl_ns)])),
        }
    }

    pub fn reserve(&mut self, authority: Authority, unit: u32, attempt: u32, worst: u64) -> ReservationId {
        reserved(&self.ok(Some(authority), vec![reserve(unit, attempt, worst)]))
    }

    pub fn tick(&mut self, after_ns: u64) {
        self.now_ns += after_ns;
        self.batch(vec![Request::tick()]);
    }

    /// Opens the same store again, as after a kill.
    pub fn reopen(&mut self, planted: Planted) {
        self.ledger = Ledger::open(self.store.clone(), planted).unwrap();
    }
}

pub fn decided(reply: Reply) -> Result<Vec<Outcome>, Refusal> {
    match reply {
        Reply::Decided(decision) => decision.outcome,
        other => panic!("not decided: {other:?}"),
    }
}

pub fn held(outcomes: &[Outcome]) -> Fence {
    match outcomes {
        [Outcome::Lease(lease::Outcome::Held { fence, .. }), ..] => *fence,
        other => panic!("not held: {other:?}"),
    }
}

pub fn reserved(outcomes: &[Outcome]) -> ReservationId {
    match outcomes {
        [Outcome::Reserve(reserve::Outcome::Reserved(reservation)), ..] => *reservation,
        other => panic!("not reserved: {other:?}"),
    }
}
