//! The native engine, seen from outside: what nodes and directors can tell about it.
#![allow(clippy::unwrap_used)]

mod cast;
mod clocks;
mod determinism;
mod faults;
mod history;
mod network;
mod tasks;
