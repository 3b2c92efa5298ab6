//! How a process asks the ledger, holds a lock of it by its own clock, and calls the provider.

use super::{
    Casting, LEDGER, PROVIDER, Stage, TENANT,
    manners::{Abandoned, Manners},
    wire::{CallAnswer, FromEdge, FromProvider, ToProvider, decode, encode},
};
use crate::{
    fact::{EdgeRefusal, Fact},
    maps::BySeq,
};
use faults::Kind;
use kernel::{
    client::{Asking, Client, ClientError},
    id::{ClientId, ExecutorId, Fence, ReservationId},
    lease::{self, Authority, Lock},
    request::{Answer, Command, FromLedger, Outcome, Query, Refusal, Reply},
};
use sim::{Datagram, NodeId, Time, World};
use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    future::{Future, pending},
    pin::Pin,
    rc::Rc,
    time::Duration,
};
use tokio::sync::{Notify, oneshot};

/// How long a request to the ledger goes unanswered before it is repeated for the first time.
const RETRY: Duration = Duration::from_millis(500);

/// How often the time that a request goes unanswered before it is made anew doubles at most.
const MOST_DOUBLINGS: u32 = 16;

/// One incarnation's lines to the ledger and the provider.
pub(super) struct Lines {
    pub(super) world: World,
    pub(super) stage: Rc<Stage>,
    /// Whose process it is: the node that a client and its executors are named after, which need not be the one it runs on.
    of: NodeId,
    pub(super) incarnation: u32,
    client: Client,
    id: ClientId,
    /// Set once a newer incarnation is known to be at work: this one does nothing more.
    pub(super) stale: Notify,
    abandoned: Abandoned,
    /// Requests made so far, which is the number of the last: a client numbers from 1 in the order it is asked.
    asked: Cell<u64>,
    /// Who waits for the provider's answer under each key: the latest to have asked.
    calls: RefCell<BySeq<Waiter>>,
    /// The last answer under each key that its waiter has not taken up.
    heard: RefCell<BTreeMap<ReservationId, FromProvider>>,
    /// Answers to calls that cannot be made again, for as long as the process lasts.
    known: RefCell<BTreeMap<ReservationId, CallAnswer>>,
    /// Waiters so far, which tells one from the next under the same key.
    waiters: Cell<u64>,
    /// Calls transmitted so far, which tells one transmission from the next.
    sent: Cell<u64>,
    /// Where the edge is, for those whose calls have to pass one.
    pub(super) edge: Option<NodeId>,
    /// Questions to the edge so far, and who waits for the answer to each.
    questions: Cell<u64>,
    passing: RefCell<BTreeMap<u64, oneshot::Sender<Option<EdgeRefusal>>>>,
}

/// Someone who waits for the provider's answer.
struct Waiter {
    number: u64,
    answer: oneshot::Sender<FromProvider>,
}

/// What the ledger said to a request.
pub(super) type Said = Result<Vec<Outcome>, Refusal>;

impl Lines {
    /// Opens them for a process of `of` and starts the node's receiving task.
    pub(super) fn open(casting: &Casting, world: World, of: NodeId, incarnation: u32) -> Rc<Lines> {
        let (stage, edge) = (casting.stage.clone(), casting.scenario.places().edge());
        let id = ClientId(u64::from(of.0) + 1);
        let client = Client::in_incarnation(world.clone(), LEDGER, id, incarnation, RETRY);
        let lines = Rc::new(Lines {
            world,
            stage,
            of,
            incarnation,
            client,
            id,
            stale: Notify::new(),
            abandoned: Abandoned::default(),
            asked: Cell::new(0),
            calls: RefCell::default(),
            heard: RefCell::default(),
            known: RefCell::default(),
            waiters: Cell::new(0),
            sent: Cell::new(0),
            edge,
            questions: Cell::new(0),
            passing: RefCell::default(),
        });
        let receiving = lines.clone();
        lines.world.spawn(async move {
            loop {
                receiving.dispatch(receiving.world.recv().await);
            }
        });
        lines
    }

    /// This incarnation as a holder of locks. 0 is nobody.
    pub(super) fn executor(&self) -> ExecutorId {
        ExecutorId((u64::from(self.of.0) << 32 | u64::from(self.incarnation)) + 1)
    }

    /// How its process is to behave now.
    pub(super) fn manners(&self) -> Manners {
        self.stage.manners.borrow().get(&self.of).copied().unwrap_or_default()
    }

    /// Requests made so far.
    pub(super) fn asked(&self) -> u64 {
        self.asked.get()
    }

    fn dispatch(&self, datagram: Datagram) {
        match datagram.from {
            LEDGER => {
                if self.abandoned.any() {
                    self.look_for_abandoned(&datagram.frame);
                }
                self.client.deliver(&datagram.frame);
            }
            PROVIDER => {
                let Some(message) = decode(&datagram.frame) else { return };
                let (FromProvider::Answer { key, .. } | FromProvider::Closed { key, .. }) = message;
                let waiting = self.calls.borrow_mut().remove(key);
                if let Some(waiting) = waiting {
                    self.heard.borrow_mut().insert(key, message);
                    let _gone = waiting.answer.send(message);
                }
            }
            from if Some(from) == self.edge => {
                let Some(FromEdge { number, refusal }) = decode(&datagram.frame) else { return };
                if let Some(waiting) = self.passing.borrow_mut().remove(&number) {
                    let _gone = waiting.send(refusal);
                }
            }
            _ => {}
        }
    }

    /// Listens for what the edge says to the next question, which gets this number.
    pub(super) fn listen_to_edge(self: &Rc<Self>) -> (u64, Questioned, oneshot::Receiver<Option<EdgeRefusal>>) {
        let number = self.questions.get() + 1;
        self.questions.set(number);
        let (answer, answered) = oneshot::channel();
        self.passing.borrow_mut().insert(number, answer);
        (number, Questioned { lines: self.clone(), number }, answered)
    }

    /// Whether a frame says that a request was decided after it had been made again under another number.
    fn look_for_abandoned(&self, frame: &[u8]) {
        let Ok(FromLedger::Reply { client, incarnation, number, reply: Reply::Decided(_) }) =
            postcard::from_bytes(frame)
        else {
            return;
        };
        if (client, incarnation) == (self.id, self.incarnation) && self.abandoned.take(number) {
            self.stage.felt(Kind::RetryAnew);
        }
    }

    /// Asks until it is decided, or for as long as `patience`; `None` when that ran out and what was decided is not known.
    ///
    /// With good manners a request keeps its number. With bad ones it is made anew when no answer comes, again and again.
    ///
    /// What it takes to ask is far more than what waits around it, and lasts far shorter: kept apart, the few requests on their
    /// way at a time use the same memory again and again, and the many that wait for something else stay small.
    pub(super) fn ask(
        &self,
        authority: Option<Authority>,
        wait: Duration,
        patience: Option<Duration>,
        commands: Vec<Command>,
    ) -> Pin<Box<dyn Future<Output = Option<Said>> + '_>> {
        match self.manners().anew_after {
            None => Box::pin(self.ask_once(authority, wait, patience, commands)),
            Some(_) => Box::pin(self.ask_with_bad_manners(authority, wait, patience, commands)),
        }
    }

    async fn ask_with_bad_manners(
        &self,
        authority: Option<Authority>,
        wait: Duration,
        patience: Option<Duration>,
        commands: Vec<Command>,
    ) -> Option<Said> {
        let (begun, mut anew) = (self.world.now(), 0);
        while let Some(after) = self.manners().anew_after {
            let spent = self.world.now().since(begun);
            let left = patience.map(|patience| patience.saturating_sub(spent));
            let limit = after.saturating_mul(1 << anew).min(left.unwrap_or(Duration::MAX));
            let (left_to_wait, again) = (wait.saturating_sub(spent), commands.clone());
            if let said @ Some(_) = self.ask_once(authority, left_to_wait, Some(limit), again).await {
                return said;
            }
            if left.is_some_and(|left| left <= limit) {
                return None;
            }
            self.abandoned.add(self.asked.get());
            anew = (anew + 1).min(MOST_DOUBLINGS);
        }
        let spent = self.world.now().since(begun);
        let left = patience.map(|patience| patience.saturating_sub(spent));
        self.ask_once(authority, wait.saturating_sub(spent), left, commands).await
    }

    async fn ask_once(
        &self,
        authority: Option<Authority>,
        wait: Duration,
        patience: Option<Duration>,
        commands: Vec<Command>,
    ) -> Option<Said> {
        let number = self.asked.get() + 1;
        self.asked.set(number);
        match self.client.ask(Asking { tenant: TENANT, authority, wait, patience }, commands).await {
            Ok(decision) => {
                let (client, incarnation) = (self.id, self.incarnation);
                Fact::ActedOn { client, incarnation, number, seq: decision.seq }.note(&self.world);
                Some(decision.outcome)
            }
            Err(ClientError::NoAnswer { .. }) => None,
            Err(ClientError::Stale { .. }) => {
                self.stage.felt(Kind::DoubleStart); // a process that is not the newest and yet runs: no other fault leaves one
                self.stale.notify_one();
                pending().await
            }
        }
    }

    /// Asks a question; `None` when `patience` ran out.
    pub(super) async fn query(&self, query: Query, patience: Option<Duration>) -> Option<Answer> {
        self.client.query(query, patience).await.ok()
    }

    /// Listens for what the provider says under `key`, in the place of whoever listened before.
    pub(super) fn listen(self: &Rc<Self>, key: ReservationId) -> (Listed, oneshot::Receiver<FromProvider>) {
        let number = self.waiters.get() + 1;
        self.waiters.set(number);
        let (answer, answered) = oneshot::channel();
        self.calls.borrow_mut().insert(key, Waiter { number, answer });
        (Listed { lines: self.clone(), key, number }, answered)
    }

    /// An answer that came and was taken up by nobody: its waiter was dropped meanwhile.
    pub(super) fn heard_by_nobody(&self, key: ReservationId) -> Option<FromProvider> {
        self.heard.borrow_mut().remove(&key)
    }

    /// Remembers the answer to a call that cannot be made again.
    pub(super) fn remember(&self, key: ReservationId, answer: CallAnswer) {
        self.known.borrow_mut().insert(key, answer);
    }

    /// The answer to a call, if it is remembered or was taken up by nobody.
    pub(super) fn known(&self, key: ReservationId) -> Option<CallAnswer> {
        let known = self.known.borrow().get(&key).copied();
        known.or_else(|| answered(self.heard_by_nobody(key)))
    }

    /// Says `message` to the provider under `key` and waits for what it says to that, saying it again after each of `limits`
    /// but the last; `before` is run before each copy and may call it off. `None` when nothing came or it was called off.
    pub(super) async fn tell_provider(
        self: &Rc<Self>,
        key: ReservationId,
        message: &mut ToProvider,
        limits: &[Duration],
        mut before: impl FnMut() -> bool,
    ) -> Option<FromProvider> {
        let (listed, mut answered) = self.listen(key);
        let _listed = listed;
        for limit in limits {
            if !before() {
                return None;
            }
            if let ToProvider::Call { transmission, .. } = message {
                let (node, incarnation) = (self.world.node().0, self.world.incarnation());
                *transmission = u64::from(node) << 40 ^ u64::from(incarnation) << 24 ^ self.sent.get();
                self.sent.set(self.sent.get() + 1);
            }
            self.world.send(PROVIDER, encode(message));
            if let Ok(answer) = self.world.timeout(*limit, &mut answered).await {
                self.heard.borrow_mut().remove(&key);
                return answer.ok();
            }
        }
        None
    }
}

/// Takes a call off the list of those that wait for an answer, however its future ends, unless another waits by then.
pub(super) struct Listed {
    lines: Rc<Lines>,
    key: ReservationId,
    number: u64,
}

impl Drop for Listed {
    fn drop(&mut self) {
        let mut calls = self.lines.calls.borrow_mut();
        if calls.find(self.key).is_some_and(|waiter| waiter.number == self.number) {
            calls.remove(self.key);
        }
    }
}

/// Takes a question to the edge off the list of those that wait for an answer, however its future ends.
pub(super) struct Questioned {
    lines: Rc<Lines>,
    number: u64,
}

impl Drop for Questioned {
    fn drop(&mut self) {
        self.lines.passing.borrow_mut().remove(&self.number);
    }
}

/// How the provider answered a call; `None` if it did not.
pub(super) fn answered(said: Option<FromProvider>) -> Option<CallAnswer> {
    match said {
        Some(FromProvider::Answer { answer, .. }) => Some(answer),
        Some(FromProvider::Closed { .. }) | None => None,
    }
}

/// A lock held, by the holder's own clock.
pub(super) struct Hold {
    lines: Rc<Lines>,
    authority: Authority,
    ttl: Duration,
    /// The last moment at which it may be acted on: its term, counted from before it was asked for.
    until: Cell<Time>,
    let_go: Cell<bool>,
}

impl Hold {
    /// Holds `lock`, granted with `fence` to a request that was made at `asked`; `None` if its term is over already.
    pub(super) fn begun(lines: &Rc<Lines>, lock: Lock, fence: Fence, ttl: Duration, asked: Time) -> Option<Rc<Hold>> {
        let authority = Authority { lock, executor: lines.executor(), fence };
        let until = Cell::new(asked.plus(ttl));
        let hold = Hold { lines: lines.clone(), authority, ttl, until, let_go: Cell::new(false) };
        if lines.world.now() >= hold.until.get() {
            return None;
        }
        Fact::Holds { lock, executor: authority.executor, fence }.note(&lines.world);
        Some(Rc::new(hold))
    }

    /// The grant.
    pub(super) fn authority(&self) -> Authority {
        self.authority
    }

    /// Whether it may still be acted on.
    pub(super) fn is_current(&self) -> bool {
        !self.let_go.get() && self.lines.world.now() < self.until.get()
    }

    /// States that it is not acted on any more; once.
    pub(super) fn let_go(&self) {
        if !self.let_go.replace(true) {
            let Authority { lock, executor, fence } = self.authority;
            Fact::LetGo { lock, executor, fence }.note(&self.lines.world);
        }
    }

    /// Renews it at each third of its term; ends when it is lost, by the ledger's word or by the holder's own clock, and
    /// has let it go then.
    pub(super) async fn keep(self: Rc<Self>) {
        let world = &self.lines.world;
        let ttl_ns = nanos(self.ttl);
        while self.is_current() {
            let left = self.until.get().since(world.now());
            world.sleep(left.saturating_sub(self.ttl * 2 / 3)).await;
            let asked = world.now();
            if !self.is_current() {
                break;
            }
            let renew = Command::Lease(lease::Command::Renew { held: self.authority, ttl_ns });
            let patience = self.until.get().since(asked);
            match self.lines.ask(None, Duration::ZERO, Some(patience), vec![renew]).await {
                Some(Ok(_)) => self.until.set(asked.plus(self.ttl)),
                Some(Err(_)) | None => break,
            }
        }
        self.let_go();
    }

    /// Asks under it, whatever the clock says: a process may be frozen between any look at the clock and the write, so the
    /// ledger's fence has to be enough. `None` when `patience` ran out.
    pub(super) async fn ask(
        &self,
        wait: Duration,
        patience: Option<Duration>,
        commands: Vec<Command>,
    ) -> Result<Option<Said>, Lost> {
        match self.lines.ask(Some(self.authority), wait, patience, commands).await {
            Some(Err(refusal)) if is_loss(&refusal) => Err(Lost),
            said => Ok(said),
        }
    }

    /// Asks under it for as long as it lasts.
    pub(super) async fn ask_while_held(&self, commands: Vec<Command>) -> Result<Said, Lost> {
        while self.is_current() {
            let left = self.until.get().since(self.lines.world.now());
            if let Some(said) = self.ask(Duration::ZERO, Some(left), commands.clone()).await? {
                return Ok(said);
            }
            // A keeper may have prolonged the term meanwhile.
        }
        Err(Lost)
    }

    /// Lets it go and gives it back, in the background: if the ledger cannot be reached it runs out by itself.
    pub(super) fn give_back(self: Rc<Self>) {
        self.let_go();
        let world = self.lines.world.clone();
        world.spawn(async move {
            let give = Command::Lease(lease::Command::Yield { held: self.authority });
            self.lines.ask(None, Duration::ZERO, Some(self.ttl), vec![give]).await
        });
    }
}

/// The lock is not held any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lost;

/// Whether a refusal says that the lock is not held.
fn is_loss(refusal: &Refusal) -> bool {
    use lease::Refusal::{Deposed, NoAuthority, NotHolder};
    matches!(refusal, Refusal::Lease(Deposed { .. } | NotHolder { .. } | NoAuthority { .. }))
}

/// The fence with which the last of a request's commands, an acquisition, was granted.
pub(super) fn granted(outcomes: &[Outcome]) -> Option<Fence> {
    match outcomes.last() {
        Some(Outcome::Lease(lease::Outcome::Held { fence, .. })) => Some(*fence),
        _ => None,
    }
}

/// A duration in nanoseconds, up to the 584 years that fit.
pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
