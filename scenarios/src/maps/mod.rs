//! Maps for keys that are asked for one at a time, in the place of ordered ones where many rows are kept.

mod by_seq;
mod lookup;

pub(crate) use by_seq::BySeq;
pub(crate) use lookup::{Lookup, Mixer};
