//! The ledger's commands, each decided, applied, encoded and committed to the memory store by itself.

use crate::operation::{Doing, Operation};
use kernel::{
    admit::DepthTier,
    id::{ClientId, ExecutorId, ModelId, ReservationId, RunId, TaskId, TenantId, UnitId, UserId},
    lease::{self, Authority, Lock},
    ledger::Ledger,
    money::{MicroUsd, Price, Usage},
    planted::Planted,
    request::{Command, Outcome, Reply, Request, Submitted},
    reserve::{self, Level},
    run::{self, AttemptState, Purpose},
    store::{StoredFrame, memory::MemoryStore},
};

/// Runs in the ledger when an operation begins, each with a client of its own.
const RUNS: u64 = 1_000;

/// Runs that share a user.
const RUNS_PER_USER: u64 = 8;

const TENANT: TenantId = TenantId(1);
const MODEL: ModelId = ModelId(1);
const UNIT: UnitId = UnitId(1);
const USAGE: Usage = Usage { input_tokens: 1_000, output_tokens: 1_000 };
const WORST: MicroUsd = MicroUsd(10_000);
const TTL_NS: u64 = 3_600_000_000_000;

/// How far a run has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Spawned,
    Held,
    Reserved,
}

/// Asks something for a run.
type Ask = fn(&mut Desk, u64);

/// One operation a command.
pub fn operations() -> Vec<Operation> {
    let one = |name: &str, until: Option<Stage>, command: Ask| {
        let prepare = move || -> Doing {
            let (mut desk, mut run) = (Desk::with_runs(until), 0);
            Box::new(move || {
                command(&mut desk, run);
                run += 1;
            })
        };
        Operation::new(format!("commit/{name}"), (1, "commits"), RUNS as usize, prepare)
    };
    vec![
        one("spawn", None, Desk::spawn),
        one("acquire", Some(Stage::Spawned), Desk::acquire),
        one("renew", Some(Stage::Held), Desk::renew),
        one("reserve", Some(Stage::Held), Desk::reserve),
        one("settle and end", Some(Stage::Reserved), Desk::settle_and_end),
        one("repeat", Some(Stage::Reserved), Desk::repeat),
    ]
}

/// The log of a ledger in which every run was begun and had one paid call, a frame a commit.
pub fn log() -> Vec<StoredFrame> {
    let mut desk = Desk::with_runs(Some(Stage::Reserved));
    for run in 0..RUNS {
        desk.settle_and_end(run);
    }
    kernel::store::Store::log(&mut desk.ledger.into_store(), 0).expect("a store in memory can be read")
}

/// A ledger on the memory store, with whoever asks it.
struct Desk {
    ledger: Ledger<MemoryStore>,
    now_ns: u64,
    grants: Vec<Authority>,
    reservations: Vec<ReservationId>,
}

impl Desk {
    /// With every run as far as `until`; with none for none.
    fn with_runs(until: Option<Stage>) -> Desk {
        let ledger = Ledger::open(MemoryStore::new(), Planted::none()).expect("an empty store can be opened");
        let mut desk = Desk { ledger, now_ns: 0, grants: Vec::new(), reservations: Vec::new() };
        let far = MicroUsd(1_000_000_000_000);
        let cap = |tenant, level| Command::Reserve(reserve::Command::SetCap { tenant, level, cap: far });
        desk.commit(Request::genesis(vec![
            cap(TENANT, Level::Unit),
            cap(TENANT, Level::Run),
            cap(TENANT, Level::UserDay),
            cap(TenantId::LEDGER, Level::LedgerDay),
            Command::Reserve(reserve::Command::SetSlots { tenant: TENANT, slots: 1_000_000 }),
            Command::Reserve(reserve::Command::SetPrice(Price {
                model: MODEL,
                input_per_mtok: 3_000_000,
                output_per_mtok: 15_000_000,
            })),
        ]));
        let steps: [(Stage, Ask); 3] =
            [(Stage::Spawned, Desk::spawn), (Stage::Held, Desk::acquire), (Stage::Reserved, Desk::reserve)];
        for (_, step) in steps.into_iter().filter(|(stage, _)| until.is_some_and(|until| *stage <= until)) {
            for run in 0..RUNS {
                step(&mut desk, run);
            }
        }
        desk
    }

    fn spawn(&mut self, run: u64) {
        let (task, workflow_version, purpose) = (TaskId(1), 1, Purpose::Work);
        let user = UserId(u32::try_from(run / RUNS_PER_USER).expect("there are few users"));
        let spawn = run::Command::Spawn { run: RunId(run), user, task, workflow_version, purpose, depth: DepthTier(1) };
        self.ask(run, 1, None, vec![Command::Run(spawn)]);
    }

    fn acquire(&mut self, run: u64) {
        let (lock, executor) = (Lock::Run(TENANT, RunId(run)), ExecutorId(run + 1)); // 0 is nobody
        let acquire = lease::Command::Acquire { lock, executor, ttl_ns: TTL_NS };
        match self.ask(run, 2, None, vec![Command::Lease(acquire)])[..] {
            [Outcome::Lease(lease::Outcome::Held { fence, .. })] => {
                self.grants.push(Authority { lock, executor, fence })
            }
            ref other => panic!("a free lock is held at once: {other:?}"),
        }
    }

    fn renew(&mut self, run: u64) {
        let held = self.grants[run as usize];
        self.ask(run, 3, None, vec![Command::Lease(lease::Command::Renew { held, ttl_ns: TTL_NS })]);
    }

    fn reserve(&mut self, run: u64) {
        let held = self.grants[run as usize];
        match self.ask(run, 3, Some(held), vec![reserve_for(run)])[..] {
            [Outcome::Reserve(reserve::Outcome::Reserved(reservation))] => self.reservations.push(reservation),
            ref other => panic!("there is enough: {other:?}"),
        }
    }

    fn settle_and_end(&mut self, run: u64) {
        let (held, reservation) = (self.grants[run as usize], self.reservations[run as usize]);
        let state = AttemptState::Succeeded;
        let settle = Command::Reserve(reserve::Command::Settle { reservation, usage: USAGE });
        let end = Command::Run(run::Command::EndAttempt { run: RunId(run), unit: UNIT, attempt: 1, state });
        self.ask(run, 4, Some(held), vec![settle, end]);
    }

    /// What was decided is asked once more.
    fn repeat(&mut self, run: u64) {
        let held = self.grants[run as usize];
        self.ask(run, 3, Some(held), vec![reserve_for(run)]);
    }

    /// Asks for the client of a run, who has had an answer to every request before this one.
    fn ask(&mut self, run: u64, number: u64, authority: Option<Authority>, commands: Vec<Command>) -> Vec<Outcome> {
        self.commit(Request {
            tenant: TENANT,
            client: ClientId(run + 1),
            incarnation: 0,
            number,
            acknowledged: number - 1,
            authority,
            wait_ns: 0,
            commands,
        })
    }

    fn commit(&mut self, request: Request) -> Vec<Outcome> {
        self.now_ns += 1_000;
        let batch = vec![Submitted::arriving(request, self.now_ns)];
        let mut committed = self.ledger.commit(self.now_ns, &batch).expect("a store in memory does not break");
        match committed.replies.pop() {
            Some(Reply::Decided(decision)) => decision.outcome.expect("nothing is refused"),
            other => panic!("a request is decided at once: {other:?}"),
        }
    }
}

fn reserve_for(run: u64) -> Command {
    Command::Reserve(reserve::Command::Reserve { run: RunId(run), unit: UNIT, attempt: 1, model: MODEL, worst: WORST })
}
