//! What callers and the provider say to each other, in postcard.
//!
//! A call's key is also its request id: the provider gives a key one outcome for ever, so that an answer to any copy of a
//! call, or to a predecessor's call under the same key, answers them all.

use crate::fact::Answered;
use kernel::{
    id::{ModelId, ReservationId},
    money::Usage,
};
use serde::{Deserialize, Serialize};

/// A frame to the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToProvider {
    /// A paid call.
    Call {
        /// Its idempotency key.
        key: ReservationId,
        /// Which model.
        model: ModelId,
        /// The prompt, as far as a simulation needs one: what answering it will use.
        usage: Usage,
    },
    /// The owner asks what the invoice shows for a key. From then on the key is closed: a call under it that was not
    /// accepted before never will be, so that "nothing charged" stays true.
    Close {
        /// The key.
        key: ReservationId,
    },
}

/// A frame from the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromProvider {
    /// A call's answer.
    Answer {
        /// The call's key.
        key: ReservationId,
        /// How it was answered.
        answered: Answered,
        /// What it used; nothing unless it was answered `Ok`.
        usage: Usage,
    },
    /// What the invoice shows, now and for ever.
    Closed {
        /// The key.
        key: ReservationId,
        /// What was charged under it.
        charged: Option<Usage>,
    },
}

/// What every message fits in, in bytes.
const MESSAGE_BYTES: usize = 64;

/// A message's bytes.
pub fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    postcard::to_extend(message, Vec::with_capacity(MESSAGE_BYTES))
        .expect("messages hold nothing that postcard cannot write")
}

/// The message in a frame; `None` if it makes no sense.
pub fn decode<'a, T: Deserialize<'a>>(frame: &'a [u8]) -> Option<T> {
    postcard::from_bytes(frame).ok()
}
