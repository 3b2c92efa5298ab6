//! The ledger's end of the bus: it forms batches, parks waiters, sends ticks, and announces what was committed.
//!
//! Two tasks share a [`Desk`]. The receiving one puts on it what arrives, or answers `Busy`; the writer takes a batch off it,
//! moves the ledger into an offload and back, announces, and only then answers. Questions are answered between batches, so
//! they see committed state alone. With nothing on the desk the writer sleeps until the next lease or the next waiter's term
//! ends: an idle ledger does nothing.
//!
//! Whoever waits is served first come, first served for each [`Turn`]: its waiters stand in the batch ahead of what is new,
//! and a new request that would take what this very batch frees stays queued for the batch after.

use crate::{
    effect,
    id::{ClientId, TenantId},
    lease::{self, Lock},
    ledger::{Committed, Ledger, LedgerError},
    planted::Planted,
    request::{Command, FromLedger, Notice, Query, Reply, Request, Submitted, ToLedger, Turn},
    reserve, run,
    store::{Store, StoreError},
};
use serde::{Deserialize, Serialize};
use sim::{NodeId, Task, World};
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet, VecDeque},
    convert::Infallible,
    rc::Rc,
    time::Duration,
};
use tokio::sync::Notify;

/// History kind of [`Announcement`]s.
pub const ANNOUNCEMENT: u16 = 16;

/// History kind of a frame that made no sense and was dropped; its data are the sender's number, as a little-endian `u32`.
pub const GARBAGE: u16 = 17;

/// History kind of a request that was turned away because the queue was full, or because there was no place to wait; its data
/// are the postcard encoding of its client, incarnation and number.
pub const BUSY: u16 = 18;

/// What most announcements fit in, in bytes.
const ANNOUNCEMENT_BYTES: usize = 1000;

/// What most messages to clients fit in, in bytes.
const MESSAGE_BYTES: usize = 64;

/// What the server tells the run's history, for observers. Made when it is true: a commit after it is durable and before any
/// reply leaves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Announcement {
    /// The ledger was opened.
    Opened {
        /// Its next sequence.
        next_seq: u64,
        /// Its chain.
        chain: crate::record::Hash,
        /// The last durable frame: the one that may never have been announced, for at most one can be on its way.
        last_frame: Option<Vec<u8>>,
    },
    /// A batch was committed.
    Committed {
        /// The writer's monotonic reading that it was decided at, in nanoseconds.
        now_ns: u64,
        /// What was decided upon, in order.
        submitted: Vec<Submitted>,
        /// What was answered, in the same order.
        replies: Vec<Reply>,
        /// The frame; `None` if nothing was decided.
        frame: Option<Vec<u8>>,
    },
    /// The ledger broke and the server ends.
    Broke {
        /// What the error said.
        why: String,
    },
}

/// How a server is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The longest batch.
    pub batch_limit: usize,
    /// Requests that may be queued, and as many more that may be parked; one more is answered `Busy`.
    pub queue_limit: usize,
    /// Compute charged per batch, in nanoseconds.
    pub batch_cost_ns: u64,
    /// Compute charged per request, in nanoseconds.
    pub request_cost_ns: u64,
    /// A checkpoint is taken after this many frames; 0 for never.
    pub checkpoint_every: u64,
    /// Caps, slots, prices, quotas and halts committed as the first request of an empty ledger.
    pub genesis: Vec<Command>,
}

/// Opens the store, then serves until the node dies or the ledger breaks.
///
/// # Panics
///
/// When the ledger refuses its own genesis: a cast that cannot be played.
pub async fn serve<S: Store>(
    world: World,
    open: impl FnOnce() -> Result<S, StoreError> + Send + 'static,
    settings: Settings,
    planted: Planted,
) -> Result<(), LedgerError> {
    let Err(error) = serve_until_broken(&world, open, settings, planted).await;
    announce(&world, &Announcement::Broke { why: error.to_string() });
    Err(error)
}

async fn serve_until_broken<S: Store>(
    world: &World,
    open: impl FnOnce() -> Result<S, StoreError> + Send + 'static,
    settings: Settings,
    planted: Planted,
) -> Result<Infallible, LedgerError> {
    assert!(settings.batch_limit > 1, "a batch holds a tick and at least one request");
    let opening = planted.clone();
    let (ledger, last_frame) = world
        .offload(move || {
            let mut ledger = Box::new(Ledger::open(open()?, opening)?);
            let last_frame = ledger.last_frame()?;
            Ok::<_, LedgerError>((ledger, last_frame))
        })
        .await?;
    let (next_seq, chain) = ledger.head();
    announce(world, &Announcement::Opened { next_seq, chain, last_frame });

    let clock = Rc::new(Clock::started(world.clone(), planted));
    let desk = Rc::new(RefCell::new(Desk::default()));
    let bell = Rc::new(Notify::new());
    let mut writer = Writer {
        world: world.clone(),
        clock: clock.clone(),
        desk: desk.clone(),
        bell: bell.clone(),
        uncheckpointed: 0,
        settings,
    };
    let ledger = writer.begin(ledger, next_seq == 0).await?;
    let receiver = Receiver { world: world.clone(), clock, desk, bell, queue_limit: writer.settings.queue_limit };
    let _receiving = Receiving(world.spawn(receiver.receive()));
    writer.serve(ledger).await
}

fn announce(world: &World, announcement: &Announcement) {
    let bytes = postcard::to_extend(announcement, Vec::with_capacity(ANNOUNCEMENT_BYTES));
    world.note(ANNOUNCEMENT, &bytes.expect("an announcement of plain data can be encoded"));
}

/// The writer's clock, which decides leases and the terms of waiters.
struct Clock {
    world: World,
    planted: Planted,
    /// Both clocks when the server started, for the bug that reads the wrong one.
    #[cfg(feature = "planted")]
    started: (u64, u64),
}

impl Clock {
    fn started(world: World, planted: Planted) -> Clock {
        Clock {
            #[cfg(feature = "planted")]
            started: (world.now().as_nanos(), world.wall_ns()),
            world,
            planted,
        }
    }

    fn now_ns(&self) -> u64 {
        let monotonic_ns = self.world.now().as_nanos();
        crate::planted!(self.planted, crate::planted::Bug::WallClockLease, monotonic_ns, self.by_the_wall_ns())
    }

    #[cfg(feature = "planted")]
    fn by_the_wall_ns(&self) -> u64 {
        let (monotonic_ns, wall_ns) = self.started;
        monotonic_ns.saturating_add_signed(self.world.wall_ns().wrapping_sub(wall_ns).cast_signed())
    }
}

/// What names a request: client, incarnation, number.
type Name = (ClientId, u32, u64);

fn name(request: &Request) -> Name {
    (request.client, request.incarnation, request.number)
}

/// What has arrived and was not answered.
#[derive(Default)]
struct Desk {
    queue: VecDeque<Arrival>,
    questions: VecDeque<Question>,
    parked: Parked,
}

struct Arrival {
    from: NodeId,
    submitted: Submitted,
}

struct Question {
    from: NodeId,
    number: u64,
    query: Query,
}

/// The receiving task.
struct Receiver {
    world: World,
    clock: Rc<Clock>,
    desk: Rc<RefCell<Desk>>,
    bell: Rc<Notify>,
    queue_limit: usize,
}

/// Ends the receiving task with the server, so that nothing receives for a ledger that broke.
struct Receiving(Task<()>);

impl Drop for Receiving {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

impl Receiver {
    async fn receive(self) {
        loop {
            let datagram = self.world.recv().await;
            match postcard::from_bytes(&datagram.frame) {
                Ok(ToLedger::Request(request)) if !is_the_ledgers_own(&request) => self.queue(datagram.from, request),
                Ok(ToLedger::Query { number, query }) => self.ask(Question { from: datagram.from, number, query }),
                Ok(ToLedger::Request(_)) | Err(_) => self.world.note(GARBAGE, &datagram.from.0.to_le_bytes()),
            }
        }
    }

    fn queue(&self, from: NodeId, request: Request) {
        let desk = &mut *self.desk.borrow_mut();
        if desk.parked.holds(&request) {
            send_waiting(&self.world, from, name(&request));
        } else if desk.queue.len() >= self.queue_limit {
            send_busy(&self.world, from, name(&request));
        } else {
            desk.queue.push_back(Arrival { from, submitted: Submitted::arriving(request, self.clock.now_ns()) });
            self.bell.notify_one();
        }
    }

    /// A question past the limit is dropped: it will be asked again.
    fn ask(&self, question: Question) {
        let desk = &mut *self.desk.borrow_mut();
        if desk.questions.len() < self.queue_limit {
            desk.questions.push_back(question);
            self.bell.notify_one();
        }
    }
}

/// Nobody but the ledger may speak in its name or let its time pass.
fn is_the_ledgers_own(request: &Request) -> bool {
    request.client == ClientId::LEDGER
        || request.commands.iter().any(|command| matches!(command, Command::Lease(lease::Command::Tick)))
}

fn send(world: &World, to: NodeId, message: &FromLedger) {
    let frame = postcard::to_extend(message, Vec::with_capacity(MESSAGE_BYTES));
    world.send(to, frame.expect("a message of plain data can be encoded"));
}

fn send_reply(world: &World, to: NodeId, (client, incarnation, number): Name, reply: Reply) {
    send(world, to, &FromLedger::Reply { client, incarnation, number, reply });
}

fn send_busy(world: &World, to: NodeId, name: Name) {
    world.note(BUSY, &postcard::to_allocvec(&name).expect("a message of plain data can be encoded"));
    send_reply(world, to, name, Reply::Busy);
}

fn send_waiting(world: &World, to: NodeId, (client, incarnation, number): Name) {
    send(world, to, &FromLedger::Waiting { client, incarnation, number });
}

/// A place in the queue of a turn; over all turns, a later one is higher.
type Place = (Turn, u64);

/// Requests that wait for their turns.
#[derive(Default)]
struct Parked {
    waiters: BTreeMap<Place, Arrival>,
    names: BTreeSet<Name>,
    /// When each waiter's term ends.
    terms: BTreeSet<(u64, Place)>,
    /// How many waiters of each turn may go.
    came: BTreeMap<Turn, usize>,
    places: u64,
}

/// A waiter that goes into a batch.
#[derive(Clone, Copy)]
struct Called {
    place: Place,
    /// Its turn has come; else its term has ended.
    in_turn: bool,
}

impl Parked {
    fn len(&self) -> usize {
        self.waiters.len()
    }

    fn holds(&self, request: &Request) -> bool {
        self.names.contains(&name(request))
    }

    fn awaits(&self, turn: Turn) -> bool {
        self.waiting_for(turn).next().is_some()
    }

    fn awaits_slot_of(&self, tenant: TenantId) -> bool {
        let first = Turn::Slot(tenant, crate::id::UserId(0));
        let next = self.waiters.range((first, 0)..).next();
        next.is_some_and(|((turn, _), _)| matches!(turn, Turn::Slot(of, _) if *of == tenant))
    }

    fn waiting_for(&self, turn: Turn) -> impl Iterator<Item = (&Place, &Arrival)> {
        self.waiters.range((turn, 0)..=(turn, u64::MAX))
    }

    /// Parks a request at the end of its turn's queue.
    fn park(&mut self, turn: Turn, waiter: Arrival) {
        self.places += 1;
        self.park_at((turn, self.places), waiter);
    }

    fn park_at(&mut self, place: Place, waiter: Arrival) {
        self.names.insert(name(&waiter.submitted.request));
        self.terms.insert((waiter.submitted.waits_until_ns, place));
        self.waiters.insert(place, waiter);
    }

    /// Every waiter of `turn` may go.
    fn come_all(&mut self, turn: Turn) {
        let waiters = self.waiting_for(turn).count();
        if waiters > 0 {
            self.came.insert(turn, waiters);
        }
    }

    /// One more waiter of `turn` may go, if there is one.
    fn come(&mut self, turn: Turn) {
        if self.awaits(turn) {
            *self.came.entry(turn).or_default() += 1;
        }
    }

    /// The end of the first term to end.
    fn first_end_ns(&self) -> Option<u64> {
        self.terms.first().map(|(ends_ns, _)| ends_ns.saturating_add(1))
    }

    /// Who has waited out its term and is to learn it, then whoever may go, in order of arrival at each turn; at most `limit`.
    fn call(&mut self, now_ns: u64, limit: usize) -> Vec<(Called, Arrival)> {
        let mut called = Vec::new();
        while called.len() < limit
            && let Some(&(ends_ns, place)) = self.terms.first()
            && ends_ns < now_ns
        {
            called.push((Called { place, in_turn: false }, self.leave(place)));
        }
        while called.len() < limit
            && let Some((&turn, _)) = self.came.first_key_value()
        {
            let Some(place) = self.waiting_for(turn).next().map(|(place, _)| *place) else {
                self.came.remove(&turn);
                continue;
            };
            called.push((Called { place, in_turn: true }, self.leave(place)));
            let left = self.came.get_mut(&turn).expect("the turn that was read has come");
            *left -= 1;
            if *left == 0 {
                self.came.remove(&turn);
            }
        }
        called
    }

    fn leave(&mut self, place: Place) -> Arrival {
        let waiter = self.waiters.remove(&place).expect("a place that was read is taken");
        self.names.remove(&name(&waiter.submitted.request));
        self.terms.remove(&(waiter.submitted.waits_until_ns, place));
        waiter
    }
}

/// A batch as it is formed: what is submitted, and beside it where each came from.
#[derive(Default)]
struct Batch {
    submitted: Vec<Submitted>,
    origins: Vec<Origin>,
}

/// What comes back from a commit: the ledger and the batch that went into it, and what became of the batch.
struct Durable<S: Store> {
    ledger: Box<Ledger<S>>,
    submitted: Vec<Submitted>,
    committed: Result<Committed, LedgerError>,
    /// Whether the replies have left already, which only a bug lets them.
    answered: bool,
}

/// Where a submitted request came from.
#[derive(Clone, Copy)]
enum Origin {
    Ledger,
    Client(NodeId),
    Waiter(NodeId, Called),
}

impl Batch {
    fn push(&mut self, (origin, submitted): (Origin, Submitted)) {
        self.submitted.push(submitted);
        self.origins.push(origin);
    }
}

/// What the earlier requests of a batch may free, or leave, for those who wait.
#[derive(Default)]
struct Freed {
    by_expiry: bool,
    locks: BTreeSet<Lock>,
    slots_of: BTreeSet<TenantId>,
    /// Attempts that may have led a question end.
    answers: bool,
    /// The turns of those who were called: they wait still if there is nothing for them to take.
    called: BTreeSet<Turn>,
}

impl Freed {
    fn add(&mut self, request: &Request) {
        for command in &request.commands {
            match command {
                Command::Lease(lease::Command::Yield { held }) => {
                    self.locks.insert(held.lock);
                }
                Command::Reserve(
                    reserve::Command::Settle { .. }
                    | reserve::Command::Release { .. }
                    | reserve::Command::Resolve { .. }
                    | reserve::Command::SetSlots { .. },
                ) => {
                    self.slots_of.insert(request.tenant);
                }
                Command::Run(run::Command::EndAttempt { .. }) => self.answers = true,
                // A suspended run's lock comes free with these.
                Command::Run(run::Command::Resume { run } | run::Command::Cancel { run }) => {
                    self.locks.insert(Lock::Run(request.tenant, *run));
                }
                _ => {}
            }
        }
    }

    /// Whoever is called need not take its turn: it may be forgotten by now, or refused. It is then the next waiter's.
    fn may_be_left(&mut self, turn: Turn) {
        self.called.insert(turn);
        match turn {
            Turn::Lock(lock) => _ = self.locks.insert(lock),
            Turn::Slot(tenant, _) => _ = self.slots_of.insert(tenant),
            Turn::Answer(..) => self.answers = true,
        }
    }

    /// Whether `request` would take any of it before somebody who waits for it.
    fn would_be_taken_by(&self, request: &Request, parked: &Parked) -> bool {
        request.commands.iter().any(|command| match command {
            Command::Lease(lease::Command::Acquire { lock, .. }) => {
                (self.by_expiry || self.locks.contains(lock)) && self.awaited(Turn::Lock(*lock), parked)
            }
            Command::Reserve(reserve::Command::Reserve { .. }) => self.would_take_slot(request, parked),
            Command::Effect(effect::Command::Begin { effect, .. }) => {
                let led = self.answers || self.by_expiry || !self.locks.is_empty();
                let awaited = |key| self.awaited(Turn::Answer(request.tenant, key), parked);
                self.would_take_slot(request, parked) || led && effect.key.is_some_and(awaited)
            }
            _ => false,
        })
    }

    fn would_take_slot(&self, request: &Request, parked: &Parked) -> bool {
        let called = |turn: &Turn| matches!(turn, Turn::Slot(of, _) if *of == request.tenant);
        self.slots_of.contains(&request.tenant)
            && (parked.awaits_slot_of(request.tenant) || self.called.iter().any(called))
    }

    fn awaited(&self, turn: Turn, parked: &Parked) -> bool {
        parked.awaits(turn) || self.called.contains(&turn)
    }
}

/// The writing task. The ledger goes from hand to hand in a box: it is some kilobytes of tables' heads, and moves often.
struct Writer {
    world: World,
    clock: Rc<Clock>,
    desk: Rc<RefCell<Desk>>,
    bell: Rc<Notify>,
    settings: Settings,
    /// Frames since the last checkpoint.
    uncheckpointed: u64,
}

impl Writer {
    /// The genesis of an empty ledger, and a tick at once: it fixes the clock onto the highest ledger time committed.
    async fn begin<S: Store>(&mut self, ledger: Box<Ledger<S>>, is_empty: bool) -> Result<Box<Ledger<S>>, LedgerError> {
        let mut batch = Batch::default();
        let has_genesis = is_empty && !self.settings.genesis.is_empty();
        if has_genesis {
            batch.push(self.own(Request::genesis(self.settings.genesis.clone())));
        }
        batch.push(self.own(Request::tick()));
        let (ledger, replies) = self.commit(ledger, batch).await?;
        if has_genesis && let Some(Reply::Decided(decision)) = replies.first() {
            assert!(decision.outcome.is_ok(), "the genesis was refused: {:?}", decision.outcome);
        }
        Ok(ledger)
    }

    async fn serve<S: Store>(mut self, mut ledger: Box<Ledger<S>>) -> Result<Infallible, LedgerError> {
        loop {
            self.answer_questions(&ledger).await;
            let batch = self.form_batch(ledger.tick_due_ns());
            if batch.submitted.is_empty() {
                self.idle(ledger.tick_due_ns()).await;
                continue;
            }
            (ledger, _) = self.commit(ledger, batch).await?;
            if self.settings.checkpoint_every > 0 && self.uncheckpointed >= self.settings.checkpoint_every {
                ledger = self.checkpoint(ledger).await?;
            }
        }
    }

    async fn answer_questions<S: Store>(&self, ledger: &Ledger<S>) {
        let questions = std::mem::take(&mut self.desk.borrow_mut().questions);
        if questions.is_empty() {
            return;
        }
        self.world.charge(self.settings.request_cost_ns.saturating_mul(questions.len() as u64)).await;
        for Question { from, number, query } in questions {
            send(&self.world, from, &FromLedger::Answer { number, answer: ledger.query(&query) });
        }
    }

    /// Sleeps until there is something to do. The bell keeps a ring that came while the writer was busy.
    async fn idle(&self, tick_due_ns: Option<u64>) {
        let first_end_ns = self.desk.borrow().parked.first_end_ns();
        match tick_due_ns.into_iter().chain(first_end_ns).min() {
            None => self.bell.notified().await,
            Some(due_ns) => {
                let limit = Duration::from_nanos(due_ns.saturating_sub(self.clock.now_ns()));
                let _rang = self.world.timeout(limit, self.bell.notified()).await;
            }
        }
    }

    /// A request in the ledger's own name.
    fn own(&self, request: Request) -> (Origin, Submitted) {
        (Origin::Ledger, Submitted::arriving(request, self.clock.now_ns()))
    }

    /// A tick if one is due or anybody is called, then who is called, then what is new.
    ///
    /// A request is in at most one place, parked or in one batch: a repeat carries what is left of its wait, and a copy that
    /// may no longer wait must not be refused while the other still does.
    fn form_batch(&self, tick_due_ns: Option<u64>) -> Batch {
        let now_ns = self.clock.now_ns();
        let limit = self.settings.batch_limit;
        let mut batch = Batch::default();
        let mut freed = Freed { by_expiry: tick_due_ns.is_some_and(|due_ns| due_ns <= now_ns), ..Freed::default() };
        let called = self.desk.borrow_mut().parked.call(now_ns, limit - 1);
        if freed.by_expiry || !called.is_empty() {
            freed.by_expiry = true; // what is not due yet may be by the time the batch is decided
            batch.push(self.own(Request::tick()));
        }
        let mut names: Vec<Name> = Vec::new();
        for (called, Arrival { from, submitted }) in called {
            names.push(name(&submitted.request));
            freed.add(&submitted.request);
            if called.in_turn {
                freed.may_be_left(called.place.0);
            }
            batch.push((Origin::Waiter(from, called), submitted));
        }
        let desk = &mut *self.desk.borrow_mut();
        let mut held_back = Vec::new();
        while batch.submitted.len() < limit
            && let Some(arrival) = desk.queue.pop_front()
        {
            let request = &arrival.submitted.request;
            if desk.parked.holds(request) {
                send_waiting(&self.world, arrival.from, name(request));
            } else if freed.would_be_taken_by(request, &desk.parked) {
                held_back.push(arrival);
            } else if !names.contains(&name(request)) {
                names.push(name(request));
                freed.add(request);
                batch.push((Origin::Client(arrival.from), arrival.submitted));
            }
        }
        for arrival in held_back.into_iter().rev() {
            desk.queue.push_front(arrival);
        }
        batch
    }

    /// Makes a batch durable, announces it, answers it and parks who must wait.
    async fn commit<S: Store>(
        &mut self,
        ledger: Box<Ledger<S>>,
        batch: Batch,
    ) -> Result<(Box<Ledger<S>>, Vec<Reply>), LedgerError> {
        let Batch { submitted, origins } = batch;
        let requests_ns = self.settings.request_cost_ns.saturating_mul(submitted.len() as u64);
        self.world.charge(self.settings.batch_cost_ns.saturating_add(requests_ns)).await;
        let now_ns = self.clock.now_ns();
        let Durable { ledger, submitted, committed, answered } =
            self.make_durable(ledger, now_ns, submitted, &origins).await;
        let Committed { replies, notices, frame } = committed?;
        assert_eq!(replies.len(), submitted.len(), "each request has one reply");
        let ticked = origins.iter().any(|origin| matches!(origin, Origin::Ledger));
        let due_ns = ledger.tick_due_ns();
        assert!(!ticked || due_ns.is_none_or(|due_ns| due_ns > now_ns), "a tick at {now_ns} left {due_ns:?} due");
        self.uncheckpointed += u64::from(frame.is_some());

        let announcement = Announcement::Committed { now_ns, submitted, replies, frame };
        announce(&self.world, &announcement);
        let Announcement::Committed { submitted, replies, .. } = announcement else { unreachable!("as it was made") };
        if !answered {
            self.send_replies(&origins, &submitted, &replies);
        }
        self.park_and_call(origins, submitted, &replies, &notices);
        Ok((ledger, replies))
    }

    fn send_replies(&self, origins: &[Origin], submitted: &[Submitted], replies: &[Reply]) {
        for ((origin, submitted), reply) in origins.iter().zip(submitted).zip(replies) {
            let (Origin::Client(from) | Origin::Waiter(from, _)) = *origin else { continue };
            if !matches!(reply, Reply::Waits(_)) {
                send_reply(&self.world, from, name(&submitted.request), reply.clone());
            }
        }
    }

    /// Parks first, so that a notice of this very batch finds who was told to wait in it. Whoever was called and did not
    /// take its turn passes it on; that of a refused one is in the ledger's own notices. As many may be parked as may be queued,
    /// apart from those: were the two counted together, whoever waits would keep out the request that it waits for.
    fn park_and_call(&self, origins: Vec<Origin>, submitted: Vec<Submitted>, replies: &[Reply], notices: &[Notice]) {
        let parked = &mut self.desk.borrow_mut().parked;
        let mut passed_on = Vec::new();
        for ((origin, submitted), reply) in origins.into_iter().zip(submitted).zip(replies) {
            match (origin, reply) {
                (Origin::Client(from), Reply::Waits(turn)) => {
                    let holds = parked.holds(&submitted.request);
                    if !holds && parked.len() >= self.settings.queue_limit {
                        send_busy(&self.world, from, name(&submitted.request));
                        continue;
                    }
                    send_waiting(&self.world, from, name(&submitted.request));
                    if !holds {
                        parked.park(*turn, Arrival { from, submitted });
                    }
                }
                (Origin::Waiter(from, Called { place, .. }), Reply::Waits(turn)) if *turn == place.0 => {
                    parked.park_at(place, Arrival { from, submitted });
                }
                (Origin::Waiter(from, called), Reply::Waits(turn)) => {
                    parked.park(*turn, Arrival { from, submitted });
                    passed_on.extend(called.in_turn.then_some(called.place.0));
                }
                (Origin::Waiter(_, called), Reply::Stale { .. } | Reply::Forgotten { .. }) => {
                    passed_on.extend(called.in_turn.then_some(called.place.0));
                }
                (Origin::Ledger, Reply::Waits(turn)) => panic!("the ledger told itself to wait for {turn:?}"),
                _ => {}
            }
        }
        passed_on.into_iter().for_each(|turn| parked.come(turn));
        for notice in notices {
            match *notice {
                Notice::TurnCame(turn) => parked.come(turn),
                Notice::AllTurnsCame(turn) => parked.come_all(turn),
            }
        }
    }

    #[cfg(not(feature = "planted"))]
    async fn make_durable<S: Store>(
        &self,
        mut ledger: Box<Ledger<S>>,
        now_ns: u64,
        submitted: Vec<Submitted>,
        _origins: &[Origin],
    ) -> Durable<S> {
        let work = move || {
            let committed = ledger.commit(now_ns, &submitted);
            Durable { ledger, submitted, committed, answered: false }
        };
        self.world.offload(work).await
    }

    /// Commits in an offload.
    #[cfg(feature = "planted")]
    async fn make_durable<S: Store>(
        &self,
        mut ledger: Box<Ledger<S>>,
        now_ns: u64,
        submitted: Vec<Submitted>,
        origins: &[Origin],
    ) -> Durable<S> {
        use crate::planted::Bug;
        use std::{
            future::poll_fn,
            pin::pin,
            sync::{Arc, Mutex, PoisonError},
            task::Poll,
        };
        let decided = Arc::new(Mutex::new(Vec::new()));
        let glimpse = self.clock.planted.is_on(Bug::AcknowledgeEarly).then(|| decided.clone());
        let asked = glimpse.as_ref().map_or_else(Vec::new, |_| submitted.clone());
        let mut work = pin!(self.world.offload(move || {
            let committed = ledger.commit(now_ns, &submitted);
            if let (Some(glimpse), Ok(committed)) = (glimpse, &committed) {
                *glimpse.lock().unwrap_or_else(PoisonError::into_inner) = committed.replies.clone();
            }
            Durable { ledger, submitted, committed, answered: false }
        }));
        // In simulation the closure has run once the offload was polled, and its disk operations end later.
        if let Poll::Ready(durable) = poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx))).await {
            return durable;
        }
        let answers_clients = origins.iter().any(|origin| !matches!(origin, Origin::Ledger));
        let early = crate::planted!(self.clock.planted, Bug::AcknowledgeEarly, false, answers_clients);
        if early {
            let replies = std::mem::take(&mut *decided.lock().unwrap_or_else(PoisonError::into_inner));
            self.send_replies(origins, &asked, &replies);
        }
        Durable { answered: early, ..work.await }
    }

    async fn checkpoint<S: Store>(&mut self, mut ledger: Box<Ledger<S>>) -> Result<Box<Ledger<S>>, LedgerError> {
        self.uncheckpointed = 0;
        self.world
            .offload(move || {
                ledger.checkpoint()?;
                Ok(ledger)
            })
            .await
    }
}
