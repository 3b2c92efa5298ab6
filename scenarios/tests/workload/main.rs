//! Work lists: what is drawn from a seed, and what is read from a trace.

mod arrivals;
mod drawn;
