//! Who plays and what must hold: cast, workloads, catalogue, facts, invariants, reference model, capsules, runner.
//!
//! - [`cast`]: the processes, async code on [`sim::World`], the same in every engine: ledger, agents, provider, owner.
//! - [`workload`]: what each agent is to do, as an explicit list; drawn from a seed or read from an arrival trace.
//! - [`scenario`] and [`catalogue`]: a scenario as a file, its caps, prices, sizes, swarm and bounds; [`caps`]: caps as a file.
//! - [`ceiling`]: the seven ceilings of a paid call, and which of them bound.
//! - [`fact`] and [`invariant`]: what the omniscient observer saw, and what must hold of it; [`model`] is the independent
//!   reference that predicts budgets and leases after each commit.
//! - [`runner`]: one run from a [`runner::RunSpec`] to its verdict; [`capsule`]: a run as a file that plays it again;
//!   [`gate`]: many seeds dealt over scenarios, and what they add up to.
//! - [`file`]: files of the machine, read within a limit and published whole.
//! - [`panicking`]: whose code a panic came out of, and where.
//! - [`checker`]: a kept run worked out again from its files alone, by code that shares nothing with all of the above.
//!
//! What is deliberately not here: no rule of the ledger (those are in `kernel`), no fault mechanism (`sim`) and no drawing of
//! plans (`faults`), no threads, and no printing. Invariants read facts and the ledger's log, never kernel memory.

pub mod caps;
pub mod capsule;
pub mod cast;
pub mod catalogue;
pub mod ceiling;
pub mod checker;
pub mod fact;
pub mod file;
pub mod gate;
pub mod invariant;
mod maps;
pub mod model;
pub mod panicking;
pub mod runner;
pub mod scenario;
pub mod sometimes;
pub mod soonest;
pub mod workload;
