//! What the cast tells the omniscient observer: facts, noted in the run's history when they are true.

use kernel::{
    id::{ClientId, ExecutorId, Fence, ReservationId, RunId, TenantId, UnitId, UserId},
    lease::Lock,
    money::{MicroUsd, Usage},
    run::Ending,
};
use serde::{Deserialize, Serialize};
use sim::World;

/// History kind of [`Fact`]s.
pub const FACT: u16 = 32;

/// How the provider answered a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answered {
    /// With a result and its usage.
    Ok,
    /// 429: nothing was charged.
    TooManyRequests,
    /// 500: nothing was charged.
    ServerError,
    /// 402, the credit of the provider's key does not cover the call: nothing was charged, and asking again is no use.
    NoCredit {
        /// What the key may be charged in all.
        limit: MicroUsd,
        /// What the call would have cost.
        asked: MicroUsd,
        /// What was left of the limit.
        left: MicroUsd,
    },
    /// Asked whether the call had landed: it had not, nothing was charged, and it never will be.
    NeverLanded,
}

/// What the edge says no for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EdgeCeiling {
    /// The calls of a user's key.
    Key,
    /// The calls from an address.
    Address,
    /// It has been up for less than a window, and does not know what it let through before.
    Unsure,
}

/// The edge's 429.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EdgeRefusal {
    /// What for.
    pub ceiling: EdgeCeiling,
    /// Calls that may pass in any window.
    pub limit: u32,
    /// Calls that were to pass.
    pub asked: u32,
    /// What was left of the limit.
    pub left: u32,
    /// When to ask again, in nanoseconds from now.
    pub again_ns: u64,
}

/// One thing that is true from now on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fact {
    /// An agent acts on a lease it believes it holds.
    Holds {
        /// Which lock.
        lock: Lock,
        /// As whom.
        executor: ExecutorId,
        /// Under which fence.
        fence: Fence,
    },
    /// An agent has stopped acting on a lease: it yielded it, learned that it lost it, or its own clock ran out.
    LetGo {
        /// Which lock.
        lock: Lock,
        /// As whom.
        executor: ExecutorId,
        /// Under which fence.
        fence: Fence,
    },
    /// An agent or the owner acts on a decision of the ledger.
    ActedOn {
        /// Its client.
        client: ClientId,
        /// Its incarnation.
        incarnation: u32,
        /// The request's number.
        number: u64,
        /// The decision's sequence.
        seq: u64,
    },
    /// A call leaves an agent.
    CallSent {
        /// Whose run.
        tenant: TenantId,
        /// Which run.
        run: RunId,
        /// Which unit.
        unit: UnitId,
        /// Which attempt.
        attempt: u32,
        /// Whom it counts against.
        user: UserId,
        /// Its reservation, which is its intent and the request's name at the provider.
        key: ReservationId,
        /// Under which fence.
        fence: Fence,
    },
    /// An agent stopped waiting for a call: it was answered, or given up for unknown (`None`).
    CallEnded {
        /// Its key.
        key: ReservationId,
        /// The answer, if any came.
        answered: Option<Answered>,
    },
    /// The provider accepted a call and put it on its invoice.
    Charged {
        /// The key it came under.
        key: ReservationId,
        /// What it used.
        usage: Usage,
        /// What it costs, by the provider's own reckoning.
        cost: MicroUsd,
    },
    /// The provider had charged the key before and gave the first answer again, free.
    Repeated {
        /// The key.
        key: ReservationId,
    },
    /// The provider turned a call away, uncharged.
    TurnedAway {
        /// The key.
        key: ReservationId,
        /// How.
        answered: Answered,
    },
    /// An agent saw a run to its end and knows that the ledger has recorded it.
    RunOver {
        /// Whose.
        tenant: TenantId,
        /// Which.
        run: RunId,
        /// How it ended.
        ending: Ending,
        /// From the start of work (or the first arrival) in this incarnation to its end, in nanoseconds of the agent's clock.
        wall_ns: u64,
        /// Of that, nanoseconds in which the run did nothing but wait for the ledger: some request or query of it was
        /// unanswered and none of its calls was on the wire.
        ledger_wait_ns: u64,
        /// Calls of it that this incarnation settled.
        calls: u32,
        /// Whether this incarnation did all of it, so that `wall_ns` is the whole run's.
        whole: bool,
    },
    /// The provider had charged the question under another request, and gave that one's answer to this one, free.
    Replayed {
        /// The request it answered.
        key: ReservationId,
        /// The request it had charged.
        of: ReservationId,
    },
    /// A caller asked the provider whether a request had landed.
    Looked {
        /// The request.
        key: ReservationId,
        /// Whether it had; if not, it never will.
        landed: bool,
    },
    /// A unit was given an answer that is not the answer to its question.
    Misled {
        /// Whose run.
        tenant: TenantId,
        /// Which run.
        run: RunId,
        /// Which unit.
        unit: UnitId,
        /// The reservation that paid for the answer.
        source: ReservationId,
    },
    /// The provider is up, and no key of it may be charged more than this in all.
    KeyCredit {
        /// The limit of each key.
        limit: MicroUsd,
    },
    /// The edge is up, with these limits.
    EdgeUp {
        /// Calls of one user's key that may pass in any window.
        per_key: u32,
        /// Calls from one address that may pass in any window.
        per_address: u32,
        /// The window, in nanoseconds of the edge's clock.
        window_ns: u64,
    },
    /// The edge let a call pass.
    EdgePassed {
        /// Whose key.
        user: UserId,
        /// The node that it came from.
        address: u32,
        /// When, in nanoseconds of the edge's clock.
        at_ns: u64,
    },
    /// The edge let a call not pass.
    EdgeRefused {
        /// Whose key.
        user: UserId,
        /// The node that it came from.
        address: u32,
        /// When, in nanoseconds of the edge's clock.
        at_ns: u64,
        /// With what answer.
        refusal: EdgeRefusal,
    },
    /// The provider accepted a call that no ledger knows of, and put it on its invoice under no request.
    StrayCharged {
        /// Whose key it came with.
        user: UserId,
        /// What it costs.
        cost: MicroUsd,
    },
    /// The provider turned such a call away, for its key's credit does not cover it.
    StrayRefused {
        /// Whose key it came with.
        user: UserId,
        /// What the key may be charged in all.
        limit: MicroUsd,
        /// What the call would have cost.
        asked: MicroUsd,
        /// What was left of the limit.
        left: MicroUsd,
    },
}

/// What every fact fits in, in bytes, as its fields are today.
const FACT_BYTES: usize = 64;

impl Fact {
    /// Reads a fact back from its entry's data.
    pub fn read(data: &[u8]) -> Result<Fact, postcard::Error> {
        postcard::from_bytes(data)
    }

    /// Notes the fact in the run's history.
    pub fn note(&self, world: &World) {
        let bytes = postcard::to_extend(self, Vec::with_capacity(FACT_BYTES))
            .expect("facts hold nothing that postcard cannot write");
        world.note(FACT, &bytes);
    }
}
