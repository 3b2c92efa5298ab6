//! What callers and the provider say to each other, in postcard.
//!
//! A request is named by its reservation. The provider gives an idempotent request one outcome for ever, so that an answer to any
//! copy of a call, or to a predecessor's call under the same name, answers them all.

use crate::fact::{Answered, EdgeRefusal};
use kernel::{
    effect::{Content, Key, Response},
    id::{ModelId, ReservationId, UserId},
    money::Usage,
};
use serde::{Deserialize, Serialize};

/// A frame to the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToProvider {
    /// A paid call.
    Call {
        /// The request.
        key: ReservationId,
        /// The number of this transmission, which only a copy that the network made shares.
        transmission: u64,
        /// What the provider may do about another request or transmission: an idempotency key, or none.
        idempotency: Option<Key>,
        /// Whose key of the provider it is made with, and is charged to.
        user: UserId,
        /// Which model.
        model: ModelId,
        /// What is asked.
        content: Content,
        /// The prompt, as far as a simulation needs one: what answering it will use.
        usage: Usage,
    },
    /// The owner asks what the invoice shows for a request. From then on it is closed: what was not accepted before never
    /// will be, so that "nothing charged" stays true.
    Close {
        /// The request.
        key: ReservationId,
    },
    /// A caller asks whether a request landed. If it did, it is answered; if not, it is closed.
    Look {
        /// The request.
        key: ReservationId,
    },
    /// A call that no ledger knows of, under no name; nobody waits for its answer.
    Stray {
        /// Whose key of the provider it is made with, and is charged to.
        user: UserId,
        /// What answering it will use.
        usage: Usage,
    },
}

/// What an answer says, as far as a simulation needs it: the beginning of the hash of what was asked.
pub type Body = [u8; 8];

/// What the answer to `content` says.
pub fn body_of(content: Content) -> Body {
    let mut body = [0; 8];
    body.copy_from_slice(&content.0[..8]);
    body
}

/// A frame from the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromProvider {
    /// A call's answer.
    Answer {
        /// The request.
        key: ReservationId,
        /// The answer.
        answer: CallAnswer,
    },
    /// What the invoice shows, now and for ever.
    Closed {
        /// The request.
        key: ReservationId,
        /// What was charged under it.
        charged: Option<Usage>,
    },
}

/// What a call is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallAnswer {
    /// How it was answered.
    pub answered: Answered,
    /// What it is charged; nothing unless it was answered `Ok`, and nothing if another request was charged for it.
    pub usage: Usage,
    /// What it says; zeros unless it was answered `Ok`.
    pub body: Body,
}

impl CallAnswer {
    /// The raw bytes that a caller records before it looks into them.
    pub fn raw(&self) -> Response {
        Response(encode(self).into())
    }

    /// What raw bytes say; `None` if they make no sense.
    pub fn read(raw: &Response) -> Option<CallAnswer> {
        decode(&raw.0)
    }
}

/// A question to the edge: may a call pass?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToEdge {
    /// Whose key it comes with.
    pub user: UserId,
    /// Its number among the sender's incarnation's, from 1.
    pub number: u64,
}

/// The edge's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FromEdge {
    /// The question's number.
    pub number: u64,
    /// 429 with this; none if the call may pass.
    pub refusal: Option<EdgeRefusal>,
}

/// What every message fits in, in bytes.
const MESSAGE_BYTES: usize = 128;

/// A message's bytes.
pub fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    postcard::to_extend(message, Vec::with_capacity(MESSAGE_BYTES))
        .expect("messages hold nothing that postcard cannot write")
}

/// The message in a frame; `None` if it makes no sense.
pub fn decode<'a, T: Deserialize<'a>>(frame: &'a [u8]) -> Option<T> {
    postcard::from_bytes(frame).ok()
}
