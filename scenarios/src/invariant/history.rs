//! Histories made by hand for tests: valid records with their hashes, encoded as the server and the cast encode them, so that
//! every test goes by way of the decoder.

use super::{Broken, Rest, Watch, WholeLog};
use crate::{
    cast::{LEDGER, agent},
    fact::{Answered, FACT, Fact},
    invariant::log::{chain_after, content_of},
};
use kernel::{
    admit::DepthTier,
    id::{
        BranchId, ClientId, DAY_NS, ExecutorId, Fence, LedgerTime, ModelId, ReservationId, RunId, TaskId, TenantId,
        UnitId, UserId,
    },
    lease::{self, Authority, Lock},
    money::{MicroUsd, Price, Usage},
    record::{Class, Event, Frame, GENESIS_CHAIN, Hash, Origin, Record, SCHEMA},
    request::{Decision, Outcome, Refusal, Reply, Request, Submitted},
    reserve::{self, Level},
    run::{self, AttemptState, Ending, Purpose},
    serve::{ANNOUNCEMENT, Announcement},
    store::StoredFrame,
};
use sim::{Entry, NodeId, history::kind};
use std::collections::BTreeMap;

pub(crate) const TENANT: TenantId = TenantId(1);
pub(crate) const RUN: RunId = RunId(9);
pub(crate) const USER: UserId = UserId(5);
pub(crate) const UNIT: UnitId = UnitId(2);
pub(crate) const LOCK: Lock = Lock::Run(TENANT, RUN);
pub(crate) const TTL_NS: u64 = 1_000_000;
pub(crate) const MODEL: ModelId = ModelId(3);
pub(crate) const PRICE: Price = Price { model: MODEL, input_per_mtok: 1_000_000, output_per_mtok: 2_000_000 };
/// Costs 30 micro-USD at [`PRICE`].
pub(crate) const USAGE: Usage = Usage { input_tokens: 10, output_tokens: 10 };

/// A history as it comes about, watched.
pub(crate) struct Story {
    watch: Watch,
    /// Everything durable.
    pub log: Vec<Record>,
    lsns: BTreeMap<(TenantId, RunId), u64>,
    /// The grant that sequenced events are written under.
    pub under: (ExecutorId, Fence),
    /// Ledger time of the next frame.
    pub ledger_ns: u64,
    /// True time of the next entry.
    pub true_ns: u64,
    /// The next frame's records are changed by this before they are hashed.
    pub before_hashing: Option<fn(&mut Record)>,
    /// And by this after.
    pub after_hashing: Option<fn(&mut Record)>,
    scratch: Vec<u8>,
}

/// A request of a batch, its answer, and the events it caused.
pub(crate) struct Asked {
    pub request: Request,
    pub waits_until_ns: u64,
    pub reply: Answer,
    pub events: Vec<Event>,
}

/// An answer, where the story itself numbers the decisions.
pub(crate) enum Answer {
    Decides(Result<Vec<Outcome>, Refusal>),
    /// Decided, and the record of the decision is left out.
    Unrecorded(Result<Vec<Outcome>, Refusal>),
    Replies(Reply),
}

impl Story {
    /// Watched by these invariants, before anything happened.
    pub(crate) fn watched_by(names: &[&str]) -> Story {
        let mut story = Story {
            watch: Watch::these(names).unwrap(),
            log: Vec::new(),
            lsns: BTreeMap::new(),
            under: (ExecutorId(7), Fence(1)),
            ledger_ns: 0,
            true_ns: 1_000,
            before_hashing: None,
            after_hashing: None,
            scratch: Vec::new(),
        };
        story.opens();
        story
    }

    /// Watched by one, with caps of 1,000 at each level, 2 slots, a price, the run spawned and its lock granted.
    pub(crate) fn begun(name: &str) -> Story {
        let mut story = Story::watched_by(&[name]);
        story.logs(&settings(1_000, 2));
        story.logs(&[granted(LOCK, 7, 1, TTL_NS), spawned(RUN)]);
        story
    }

    pub(crate) fn broken(&self) -> Option<&Broken> {
        self.watch.broken()
    }

    pub(crate) fn overspends(&self) -> u64 {
        self.watch.overspends()
    }

    pub(crate) fn next(&self) -> ReservationId {
        ReservationId(self.log.len() as u64)
    }

    fn chain(&self) -> Hash {
        self.log.last().map_or(GENESIS_CHAIN, |record| record.chain)
    }

    fn record(&mut self, tenant: TenantId, event: &Event, under: (ExecutorId, Fence)) -> Record {
        let run = match *event {
            Event::Run(
                run::Event::Spawned { run, .. }
                | run::Event::AttemptStarted { run, .. }
                | run::Event::AttemptEnded { run, .. }
                | run::Event::Suspended { run }
                | run::Event::Ended { run, .. },
            ) => Some(run),
            _ => None,
        };
        let spawns = matches!(event, Event::Run(run::Event::Spawned { .. }));
        let origin = run.map(|run| {
            let lsn = self.lsns.entry((tenant, run)).or_default();
            *lsn += 1;
            let (executor, fence) = if spawns { (ExecutorId(0), Fence(0)) } else { under };
            Origin { run, branch: BranchId(0), executor, fence, lsn: *lsn - 1 }
        });
        let mut record = Record {
            seq: self.log.len() as u64,
            schema: SCHEMA,
            tenant,
            class: if run.is_some() { Class::Sequenced } else { Class::Scarce },
            time: LedgerTime(self.ledger_ns),
            origin,
            event: event.clone(),
            content: GENESIS_CHAIN,
            chain: GENESIS_CHAIN,
        };
        if let Some(change) = self.before_hashing {
            change(&mut record);
        }
        record.content = content_of(&record, &mut self.scratch);
        record.chain = chain_after(&self.chain(), &record.content);
        if let Some(change) = self.after_hashing {
            change(&mut record);
        }
        self.log.push(record.clone());
        record
    }

    fn frame(&self, from: usize) -> Option<Vec<u8>> {
        let records = self.log.get(from..).filter(|records| !records.is_empty())?.to_vec();
        postcard::to_allocvec(&Frame { time: records[0].time, records }).ok()
    }

    pub(crate) fn enter(&mut self, node: NodeId, incarnation: u32, kind: u16, data: &[u8]) {
        self.watch.take(&Entry { time_ns: self.true_ns, node, incarnation, kind, data });
    }

    fn announce(&mut self, announcement: &Announcement) {
        let bytes = postcard::to_allocvec(announcement).unwrap();
        self.enter(LEDGER, 0, ANNOUNCEMENT, &bytes);
    }

    /// A frame is committed and announced, its requests left out.
    pub(crate) fn logs(&mut self, events: &[Event]) -> &mut Story {
        let from = self.log.len();
        let under = self.under;
        events.iter().for_each(|event| {
            self.record(TENANT, event, under);
        });
        let frame = self.frame(from);
        self.announce(&Announcement::Committed { now_ns: self.ledger_ns, submitted: vec![], replies: vec![], frame });
        self
    }

    /// A frame is durable, and nobody is told.
    pub(crate) fn logs_unseen(&mut self, events: &[Event]) -> &mut Story {
        let under = self.under;
        events.iter().for_each(|event| {
            self.record(TENANT, event, under);
        });
        self
    }

    /// A whole batch, with its requests.
    pub(crate) fn commits(&mut self, now_ns: u64, batch: Vec<Asked>) -> &mut Story {
        let from = self.log.len();
        let (mut submitted, mut replies) = (Vec::new(), Vec::new());
        for Asked { request, waits_until_ns, reply, events } in batch {
            let under = request.authority.map_or((ExecutorId(0), Fence(0)), |held| (held.executor, held.fence));
            for event in &events {
                self.record(request.tenant, event, under);
            }
            let seq = self.log.len() as u64;
            replies.push(match reply {
                Answer::Decides(outcome) => {
                    let decided = decided(&request, outcome.clone());
                    self.record(request.tenant, &decided, under);
                    Reply::Decided(Decision { seq, outcome })
                }
                Answer::Unrecorded(outcome) => Reply::Decided(Decision { seq, outcome }),
                Answer::Replies(reply) => reply,
            });
            submitted.push(Submitted { request, waits_until_ns });
        }
        let frame = self.frame(from);
        self.announce(&Announcement::Committed { now_ns, submitted, replies, frame });
        self
    }

    /// The ledger is opened; its last frame is the log's last `tail` records.
    pub(crate) fn opens_with(&mut self, tail: usize) -> &mut Story {
        let opened = Announcement::Opened {
            next_seq: self.log.len() as u64,
            chain: self.chain(),
            last_frame: self.frame(self.log.len() - tail),
        };
        self.announce(&opened);
        self
    }

    pub(crate) fn opens(&mut self) -> &mut Story {
        self.opens_with(usize::from(!self.log.is_empty()))
    }

    pub(crate) fn breaks(&mut self) -> &mut Story {
        self.announce(&Announcement::Broke { why: "the disk is gone".into() });
        self
    }

    /// An agent's first incarnation states a fact.
    pub(crate) fn fact(&mut self, of_agent: u32, fact: Fact) -> &mut Story {
        let bytes = postcard::to_allocvec(&fact).unwrap();
        self.enter(agent(of_agent), 0, FACT, &bytes);
        self
    }

    /// An agent's call leaves for what its key was reserved for, or for the first attempt of [`UNIT`] under a key of no one's.
    pub(crate) fn sends(&mut self, of_agent: u32, key: ReservationId, fence: u64) -> &mut Story {
        let made_for = self.log.iter().find_map(|record| match record.event {
            Event::Reserve(reserve::Event::Reserved { reservation, run, unit, attempt, .. }) if reservation == key => {
                Some((run, unit, attempt))
            }
            _ => None,
        });
        let (run, unit, attempt) = made_for.unwrap_or((RUN, UNIT, 1));
        self.fact(of_agent, Fact::CallSent { tenant: TENANT, run, unit, attempt, user: USER, key, fence: Fence(fence) })
    }

    pub(crate) fn hears(&mut self, of_agent: u32, key: ReservationId, answered: Option<Answered>) -> &mut Story {
        self.fact(of_agent, Fact::CallEnded { key, answered })
    }

    /// The provider charges 30 micro-USD.
    pub(crate) fn charges(&mut self, key: ReservationId) -> &mut Story {
        self.fact(0, Fact::Charged { key, usage: USAGE, cost: MicroUsd(30) })
    }

    pub(crate) fn downs(&mut self, of_agent: u32) -> &mut Story {
        self.enter(agent(of_agent), 0, kind::DOWN, &[1]);
        self
    }

    /// The run at rest, converged, its log as durable, its tables equal.
    pub(crate) fn rests(&mut self) -> &mut Story {
        let log = whole(&self.log);
        self.rests_as(&Rest { log: &log, opened: &[], rebuilt: &[], converged: true })
    }

    pub(crate) fn rests_as(&mut self, rest: &Rest<'_>) -> &mut Story {
        self.watch.at_rest(rest);
        self
    }

    /// That the history is legal so far.
    #[track_caller]
    pub(crate) fn holds(&self) {
        assert_eq!(self.broken(), None);
    }

    /// That `name` is what is broken, and that its message holds each of `parts`.
    #[track_caller]
    pub(crate) fn breaks_by(&self, name: &str, parts: &[&str]) {
        let broken = self.broken().unwrap_or_else(|| panic!("{name} holds, and should not: {parts:?}"));
        assert_eq!(broken.invariant, name, "{broken:?}");
        for part in parts {
            assert!(broken.message.contains(part), "{part:?} is not in {:?}", broken.message);
        }
    }
}

pub(crate) fn decided(request: &Request, outcome: Result<Vec<Outcome>, Refusal>) -> Event {
    let Request { client, incarnation, number, acknowledged, .. } = *request;
    Event::Effect(kernel::effect::Event::Decided { client, incarnation, number, acknowledged, outcome })
}

/// A cap at each level, slots and a price.
pub(crate) fn settings(cap: u64, slots: u32) -> Vec<Event> {
    let caps = Level::ALL.map(|level| cap_set(level, cap));
    let rest = [reserve::Event::SlotsSet { tenant: TENANT, slots }, reserve::Event::PriceSet(PRICE)];
    caps.into_iter().chain(rest.map(Event::Reserve)).collect()
}

pub(crate) fn cap_set(level: Level, cap: u64) -> Event {
    let tenant = if level == Level::LedgerDay { TenantId::LEDGER } else { TENANT };
    Event::Reserve(reserve::Event::CapSet { tenant, level, cap: MicroUsd(cap) })
}

pub(crate) fn spawned(run: RunId) -> Event {
    let (task, workflow_version, purpose, depth) = (TaskId(1), 1, Purpose::Work, DepthTier(1));
    Event::Run(run::Event::Spawned { run, user: USER, task, workflow_version, purpose, depth })
}

pub(crate) fn granted(lock: Lock, executor: u64, fence: u64, until: u64) -> Event {
    let (executor, client) = (ExecutorId(executor), ClientId(executor));
    Event::Lease(lease::Event::Granted { lock, executor, client, fence: Fence(fence), until: LedgerTime(until) })
}

pub(crate) fn renewed(lock: Lock, fence: u64, until: u64) -> Event {
    Event::Lease(lease::Event::Renewed { lock, fence: Fence(fence), until: LedgerTime(until) })
}

pub(crate) fn yielded(lock: Lock, fence: u64) -> Event {
    Event::Lease(lease::Event::Yielded { lock, fence: Fence(fence) })
}

pub(crate) fn expired(lock: Lock, fence: u64) -> Event {
    Event::Lease(lease::Event::Expired { lock, fence: Fence(fence) })
}

pub(crate) fn reserved(reservation: ReservationId, unit: u32, attempt: u32, worst: u64) -> Event {
    let (run, unit, user, day) = (RUN, UnitId(unit), USER, 0);
    let (price, worst) = (PRICE, MicroUsd(worst));
    Event::Reserve(reserve::Event::Reserved { reservation, run, unit, attempt, user, day, price, worst })
}

pub(crate) fn started(reservation: ReservationId, unit: u32, attempt: u32) -> Event {
    Event::Run(run::Event::AttemptStarted { run: RUN, unit: UnitId(unit), attempt, reservation })
}

/// A reservation of unit 2's `attempt` and the attempt's start.
pub(crate) fn reserves(reservation: ReservationId, attempt: u32, worst: u64) -> [Event; 2] {
    [reserved(reservation, UNIT.0, attempt, worst), started(reservation, UNIT.0, attempt)]
}

/// Settled for [`USAGE`] as it stands.
pub(crate) fn settled(reservation: ReservationId) -> Event {
    let (usage, cost) = (USAGE, MicroUsd(30));
    Event::Reserve(reserve::Event::Settled { reservation, usage, cost, overrun: MicroUsd::ZERO, by_owner: false })
}

pub(crate) fn released(reservation: ReservationId) -> Event {
    Event::Reserve(reserve::Event::Released { reservation, by_owner: false })
}

pub(crate) fn released_by_owner(reservation: ReservationId) -> Event {
    Event::Reserve(reserve::Event::Released { reservation, by_owner: true })
}

pub(crate) fn attempt_ended(attempt: u32, state: AttemptState) -> Event {
    Event::Run(run::Event::AttemptEnded { run: RUN, unit: UNIT, attempt, state })
}

pub(crate) fn ended() -> Event {
    Event::Run(run::Event::Ended { run: RUN, outcome: Ending::Complete })
}

pub(crate) fn held(executor: u64, fence: u64) -> Authority {
    Authority { lock: LOCK, executor: ExecutorId(executor), fence: Fence(fence) }
}

/// A request of client 7's first incarnation that does not wait.
pub(crate) fn request(number: u64, authority: Option<Authority>, commands: Vec<kernel::request::Command>) -> Request {
    let (tenant, client) = (TENANT, ClientId(7));
    Request { tenant, client, incarnation: 0, number, acknowledged: 0, authority, wait_ns: 0, commands }
}

pub(crate) const NEXT_DAY_NS: u64 = DAY_NS;

/// A log as a store would hold these records, each in a frame of its own.
pub(crate) fn whole(records: &[Record]) -> WholeLog {
    let stored = |record: &Record| StoredFrame {
        first_seq: record.seq,
        next_seq: record.seq + 1,
        bytes: postcard::to_allocvec(&Frame { time: record.time, records: vec![record.clone()] }).unwrap().into(),
    };
    WholeLog::of(records.iter().map(stored).collect()).unwrap()
}
