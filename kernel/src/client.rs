//! A client's end of the bus: it numbers requests, repeats them until they are answered, and acknowledges.

use crate::{
    id::{ClientId, TenantId},
    lease::Authority,
    request::{Answer, Command, Decision, Query},
};
use sim::{NodeId, World};
use std::{marker::PhantomData, time::Duration};

/// A connection of one incarnation of one client to the ledger; cheap to clone, any number of requests at once.
///
/// The node's receiving task hands every frame that comes from the ledger to [`Client::deliver`].
#[derive(Clone)]
pub struct Client {
    _stub: PhantomData<std::rc::Rc<()>>,
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
        let _ = (world, ledger, id, retry);
        todo!()
    }

    /// Hands over a frame from the ledger. What is not for this client, or makes no sense, is dropped.
    pub fn deliver(&self, frame: &[u8]) {
        let _ = frame;
        todo!()
    }

    /// Asks until it is decided; every repeat carries the same number.
    pub async fn ask(&self, how: Asking, commands: Vec<Command>) -> Result<Decision, ClientError> {
        let _ = (how, commands);
        todo!()
    }

    /// Asks a question about committed state until it is answered.
    pub async fn query(&self, query: Query, patience: Option<Duration>) -> Result<Answer, ClientError> {
        let _ = (query, patience);
        todo!()
    }

    /// Time spent so far with at least one request or query unanswered, in nanoseconds of the node's clock.
    pub fn waited_ns(&self) -> u64 {
        todo!()
    }
}
