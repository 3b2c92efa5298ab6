//! A client's end of the bus: it numbers requests, repeats them until they are answered, and acknowledges.
//!
//! A request is *outstanding* from its first send until it is answered or given up: its time ran out, or its future was
//! dropped at whatever await it stood. Either way its number is never asked again, so that acknowledgement moves on.

use crate::{
    id::{ClientId, TenantId},
    lease::Authority,
    request::{Answer, Command, Decision, FromLedger, Query, Reply, Request, ToLedger},
};
use sim::{MAX_FRAME_BYTES, NodeId, Stream, Time, World};
use std::{cell::RefCell, rc::Rc, time::Duration};
use tokio::sync::Notify;

/// The pause between repeats doubles until it is this many times the first.
const BACKOFF_LIMIT: u32 = 16;
/// A parked request is asked again at least this often: its answer or the ledger's memory of it may be lost.
const PARKED_REPEAT: Duration = Duration::from_secs(5);
/// The stream that repeats are spread by.
const JITTER: u64 = 0x6a69_7474_6572;

/// A connection of one incarnation of one client to the ledger; cheap to clone, any number of requests at once.
///
/// The node's receiving task hands every frame that comes from the ledger to [`Client::deliver`].
#[derive(Clone)]
pub struct Client {
    shared: Rc<Shared>,
}

/// The request was not decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// A newer incarnation of this client is at work.
    #[error("incarnation {newest} of this client has taken over; stop")]
    Stale {
        /// The newest.
        newest: u32,
    },
    /// No answer within the time allowed. The request may have been decided or may be yet, under the same number.
    #[error("the ledger did not answer within {after:?}; what it decided is not known")]
    NoAnswer {
        /// The time allowed.
        after: Duration,
    },
}

/// How a request is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asking {
    /// Whose data.
    pub tenant: TenantId,
    /// Under which grant.
    pub authority: Option<Authority>,
    /// How long to wait for a turn; zero to be refused at once.
    pub wait: Duration,
    /// How long to keep asking altogether; `None` for ever.
    pub patience: Option<Duration>,
}

impl Client {
    /// A client of the ledger at `ledger`, repeating an unanswered request every `retry` at first and at most every
    /// sixteen times that.
    pub fn new(world: World, ledger: NodeId, id: ClientId, retry: Duration) -> Client {
        let incarnation = world.incarnation();
        Client::in_incarnation(world, ledger, id, incarnation, retry)
    }

    /// A client whose process is incarnation `incarnation` of it, wherever it runs: for one that may be started on more than
    /// one node. No two processes of a client may have the same, and a later one has a higher.
    pub fn in_incarnation(world: World, ledger: NodeId, id: ClientId, incarnation: u32, retry: Duration) -> Client {
        assert!(id != ClientId::LEDGER, "client 0 is the ledger itself");
        assert!(!retry.is_zero(), "repeats without a pause would never let the ledger answer");
        let state = RefCell::new(State {
            requests: 0,
            queries: 0,
            acknowledged: 0,
            over: Vec::new(),
            outstanding: Vec::new(),
            waiting_since: Time::ZERO,
            waited_ns: 0,
            jitter: world.stream(JITTER ^ id.0),
        });
        Client { shared: Rc::new(Shared { world, ledger, id, incarnation, retry, state }) }
    }

    /// Hands over a frame from the ledger. What is not for this client, or makes no sense, is dropped.
    pub fn deliver(&self, frame: &[u8]) {
        let Ok(frame) = postcard::from_bytes::<FromLedger>(frame) else { return };
        let own = |client, incarnation| client == self.shared.id && incarnation == self.shared.incarnation;
        match frame {
            FromLedger::Reply { client, incarnation, number, reply } if own(client, incarnation) => {
                self.shared.hand(Key::Request(number), Mail::Reply(reply));
            }
            FromLedger::Waiting { client, incarnation, number } if own(client, incarnation) => {
                self.shared.hand(Key::Request(number), Mail::Waiting);
            }
            FromLedger::Answer { number, answer } => self.shared.hand(Key::Query(number), Mail::Answer(answer)),
            FromLedger::Reply { .. } | FromLedger::Waiting { .. } => {}
        }
    }

    /// Asks until it is decided; every repeat carries the same number.
    ///
    /// # Panics
    ///
    /// When the request is longer than a frame may be, and when the ledger says that it was acknowledged.
    pub async fn ask(&self, how: Asking, commands: Vec<Command>) -> Result<Decision, ClientError> {
        let shared = &self.shared;
        let (number, outstanding) = shared.begin_request();
        let mut message = ToLedger::Request(Request {
            tenant: how.tenant,
            client: shared.id,
            incarnation: shared.incarnation,
            number,
            acknowledged: 0,
            authority: how.authority,
            wait_ns: 0,
            commands,
        });
        // A repeat that reaches a restarted ledger is a new arrival there: it must not wait a whole term again.
        let encode = |spent: Duration| {
            if let ToLedger::Request(request) = &mut message {
                request.acknowledged = shared.state.borrow().acknowledged;
                request.wait_ns = nanos(how.wait.saturating_sub(spent));
            }
            encoded(&message)
        };
        match shared.repeat(&outstanding, encode, how.wait, how.patience).await? {
            Mail::Reply(Reply::Decided(decision)) => Ok(decision),
            Mail::Reply(Reply::Stale { newest }) => Err(ClientError::Stale { newest }),
            mail => panic!("request {number}, neither answered nor given up, was answered {mail:?}"),
        }
    }

    /// Asks a question about committed state until it is answered.
    pub async fn query(&self, query: Query, patience: Option<Duration>) -> Result<Answer, ClientError> {
        let (number, outstanding) = self.shared.begin_query();
        let frame = encoded(&ToLedger::Query { number, query });
        match self.shared.repeat(&outstanding, |_| frame.clone(), Duration::ZERO, patience).await? {
            Mail::Answer(answer) => Ok(answer),
            mail => panic!("query {number} was answered {mail:?}"),
        }
    }

    /// Time spent so far with at least one request or query unanswered, in nanoseconds of the node's clock.
    pub fn waited_ns(&self) -> u64 {
        let state = self.shared.state.borrow();
        match state.outstanding.is_empty() {
            true => state.waited_ns,
            false => state.waited_ns + nanos(self.shared.world.now().since(state.waiting_since)),
        }
    }
}

struct Shared {
    world: World,
    ledger: NodeId,
    id: ClientId,
    incarnation: u32,
    retry: Duration,
    state: RefCell<State>,
}

struct State {
    /// Numbers given to requests, and to queries.
    requests: u64,
    queries: u64,
    /// Every request up to this one is over.
    acknowledged: u64,
    /// Requests above it that are over, in any order. It and what is outstanding are a handful: they are gone through.
    over: Vec<u64>,
    outstanding: Vec<(Key, Letterbox)>,
    /// Since when something is outstanding; means nothing while nothing is.
    waiting_since: Time,
    waited_ns: u64,
    jitter: Stream,
}

/// What is outstanding.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Key {
    Request(u64),
    Query(u64),
}

/// Where what comes for it is left.
#[derive(Default)]
struct Letterbox {
    /// Boxed, because it lies there for an instant: an empty letterbox is small.
    mail: Option<Box<Mail>>,
    bell: Rc<Notify>,
}

#[derive(Debug)]
enum Mail {
    Reply(Reply),
    Answer(Answer),
    /// The request is parked.
    Waiting,
}

/// Held while a request or query is outstanding. Dropped, however that comes, it is over.
struct Outstanding {
    shared: Rc<Shared>,
    key: Key,
    bell: Rc<Notify>,
}

impl State {
    fn letterbox(&mut self, key: Key) -> Option<&mut Letterbox> {
        self.outstanding.iter_mut().find(|(of, _)| *of == key).map(|(_, letterbox)| letterbox)
    }
}

impl Shared {
    fn begin_request(self: &Rc<Self>) -> (u64, Outstanding) {
        let number = {
            let state = &mut *self.state.borrow_mut();
            state.requests += 1;
            state.requests
        };
        (number, self.begin(Key::Request(number)))
    }

    /// A query's answer names neither client nor incarnation, so its number must: an answer may reach a later incarnation.
    fn begin_query(self: &Rc<Self>) -> (u64, Outstanding) {
        let number = {
            let state = &mut *self.state.borrow_mut();
            state.queries += 1;
            self.id.0.rotate_right(16) ^ u64::from(self.incarnation) << 32 ^ state.queries
        };
        (number, self.begin(Key::Query(number)))
    }

    fn begin(self: &Rc<Self>, key: Key) -> Outstanding {
        let state = &mut *self.state.borrow_mut();
        if state.outstanding.is_empty() {
            state.waiting_since = self.world.now();
        }
        let letterbox = Letterbox::default();
        let bell = letterbox.bell.clone();
        state.outstanding.push((key, letterbox));
        Outstanding { shared: self.clone(), key, bell }
    }

    fn hand(&self, key: Key, mail: Mail) {
        let state = &mut *self.state.borrow_mut();
        let Some(letterbox) = state.letterbox(key) else { return };
        // Busy is no news: the next repeat is its answer. What decides is not overwritten by what came late.
        let is_news = !matches!(mail, Mail::Reply(Reply::Busy));
        if is_news && matches!(letterbox.mail.as_deref(), None | Some(Mail::Waiting)) {
            letterbox.mail = Some(Box::new(mail));
            letterbox.bell.notify_one();
        }
    }

    fn take(&self, key: Key) -> Option<Mail> {
        self.state.borrow_mut().letterbox(key)?.mail.take().map(|mail| *mail)
    }

    /// Sends what `encode` gives for the time spent so far, again and again, until something decides.
    async fn repeat(
        &self,
        outstanding: &Outstanding,
        mut encode: impl FnMut(Duration) -> Vec<u8>,
        wait: Duration,
        patience: Option<Duration>,
    ) -> Result<Mail, ClientError> {
        let begun = self.world.now();
        let longest = self.retry.saturating_mul(BACKOFF_LIMIT);
        let parked_pause = self.retry.max(PARKED_REPEAT.min(wait / 4));
        let (mut pause, mut parked) = (self.retry, false);
        loop {
            self.world.send(self.ledger, encode(self.world.now().since(begun)));
            let mut repeat_at = self.world.now().plus(self.jittered(pause));
            loop {
                let now = self.world.now();
                if let Some(after) = patience.filter(|patience| now.since(begun) >= *patience) {
                    return Err(ClientError::NoAnswer { after });
                }
                if now >= repeat_at {
                    break;
                }
                let next = patience.map_or(repeat_at, |patience| repeat_at.min(begun.plus(patience)));
                let _rang = self.world.timeout(next.since(now), outstanding.bell.notified()).await;
                match self.take(outstanding.key) {
                    None => {}
                    Some(Mail::Waiting) => {
                        parked = true;
                        repeat_at = self.world.now().plus(parked_pause);
                    }
                    Some(mail) => return Ok(mail),
                }
            }
            pause = if parked { parked_pause } else { longest.min(pause.saturating_mul(2)) };
        }
    }

    /// Up to a quarter less, so that clients that failed together do not return together.
    fn jittered(&self, pause: Duration) -> Duration {
        let pause_ns = nanos(pause);
        let less_ns = self.state.borrow_mut().jitter.below(pause_ns / 4 + 1);
        Duration::from_nanos(pause_ns - less_ns)
    }
}

impl Drop for Outstanding {
    fn drop(&mut self) {
        let now = self.shared.world.now();
        let state = &mut *self.shared.state.borrow_mut();
        state.outstanding.retain(|(key, _)| *key != self.key);
        if let Key::Request(number) = self.key {
            state.over.push(number);
            while let Some(at) = state.over.iter().position(|over| *over == state.acknowledged + 1) {
                state.over.swap_remove(at);
                state.acknowledged += 1;
            }
        }
        if state.outstanding.is_empty() {
            state.waited_ns += nanos(now.since(state.waiting_since));
        }
    }
}

/// What most messages fit in, in bytes: a frame that need not grow as it is written.
const MESSAGE_BYTES: usize = 128;

fn encoded(message: &ToLedger) -> Vec<u8> {
    let frame = postcard::to_extend(message, Vec::with_capacity(MESSAGE_BYTES))
        .expect("a message of plain data can be encoded");
    assert!(frame.len() <= MAX_FRAME_BYTES, "a message of {} bytes; a frame carries {MAX_FRAME_BYTES}", frame.len());
    frame
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
