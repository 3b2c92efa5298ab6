//! Work lists: what is drawn from a seed, what is read from a trace, and the rules that all of them keep.

mod arrivals;
mod drawn;
mod lists;
