//! The cast played on the native engine, without the runner and its invariants: what the processes do by themselves.

#[path = "../playing/mod.rs"]
mod playing;

mod contention;
mod edge;
mod fleet;
mod questions;
mod storms;
mod takeover;
mod trace;
