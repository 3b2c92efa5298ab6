//! One run: a spec becomes a cast, a director carries out its plan and heals, invariants watch, and a report comes out.

use crate::{
    invariant::{Broken, WholeLog},
    scenario::{Scenario, StoreKind},
    workload::WorkList,
};
use faults::Plan;
use kernel::planted::Bug;
use serde::{Deserialize, Serialize};
use sim::{Engine, Recorded, Recording, Stats};
use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

mod director;
mod folder;
mod halts;
mod happening;
mod observe;
mod play;
mod rest;
mod spec;
mod tally;
mod weather;
mod witness;

pub use folder::{BLOCK_BYTES, Provenance, ResultFile, TableAtRest, probe_folder, write_folder};
pub use play::{RunError, play};
pub use spec::{Choices, PlanChoice, SpecError, drawn, drawn_work, spec};
pub use tally::Raw;

/// What came of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Everything held, and everything ended.
    Pass,
    /// An invariant was broken.
    Safety,
    /// After heal, something did not end within the scenario's bound.
    Liveness,
    /// The same spec gave another history.
    Nondeterminism,
}

/// Everything that determines a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunSpec {
    /// The scenario, resolved: its sizes, store and caps are the run's.
    pub scenario: Scenario,
    /// The seed.
    pub seed: u64,
    /// The engine.
    pub engine: Engine,
    /// The plan, drawn or given.
    pub plan: Plan,
    /// The planted bugs that are on.
    pub bugs: Vec<Bug>,
    /// The work, drawn from the seed or read from a trace.
    pub work: Arc<WorkList>,
    /// Rows of the trace, if the work was read from one.
    pub arrivals: Option<u64>,
    /// From this scheduling decision on, plain first in, first out.
    pub schedule_cut: Option<u64>,
    /// How much of the history to keep.
    pub recording: Recording,
    /// Where the real engine keeps its files.
    pub root: Option<PathBuf>,
}

/// What was counted and measured in a run. Times are virtual in simulation, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Figures {
    /// Rows of the arrival trace, for a run on one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arrivals: Option<u64>,
    /// Calls settled in the ledger.
    pub calls_served: u64,
    /// Calls that left agents, re-sends included.
    pub calls_sent: u64,
    /// Runs that ended.
    pub runs_ended: u64,
    /// Of those, complete.
    pub runs_complete: u64,
    /// Of those, halted by the owner.
    #[serde(default)]
    pub runs_halted_by_owner: u64,
    /// Of those, halted for the credit limit of the provider's key.
    #[serde(default)]
    pub runs_halted_by_key: u64,
    /// Of those, cancelled.
    #[serde(default)]
    pub runs_cancelled: u64,
    /// Times a run was suspended.
    #[serde(default)]
    pub runs_suspended: u64,
    /// Times a halt was set that was not on.
    #[serde(default)]
    pub halts: u64,
    /// The most runs that were live, spawned and not over, when one was set.
    #[serde(default)]
    pub runs_live_at_halt: u64,
    /// Calls that had been dispatched, and had not ended, when one was set.
    #[serde(default)]
    pub calls_out_at_halt: u64,
    /// Of those, settled by their runs after.
    #[serde(default)]
    pub calls_settled_after_halt: u64,
    /// Reserves and dispatches sequenced while one was on.
    #[serde(default)]
    pub invocations_halted: u64,
    /// Median wall of a run done by one incarnation from beginning to end; `None` without any.
    pub run_wall_p50_ns: Option<u64>,
    /// 99th percentile of the same.
    pub run_wall_p99_ns: Option<u64>,
    /// Calls settled per second of the time from the start to the last settlement, times a thousand.
    pub calls_per_1000_s: u64,
    /// Share of the runs' wall spent doing nothing but waiting for the ledger, in parts per million.
    pub ledger_wait_ppm: u64,
    /// Reservations admitted.
    pub reserves_admitted: u64,
    /// Reservations refused over a cap.
    pub reserves_over_cap: u64,
    /// Reservations that had to wait for a slot.
    pub reserves_waited: u64,
    /// Decided refusals, by room and kind: `reserve.over-cap`.
    #[serde(default)]
    pub refusals: BTreeMap<String, u64>,
    /// What the provider charged to calls that no ledger knows of, in micro-USD; it is no part of `invoice_micro_usd`.
    #[serde(default)]
    pub strays_micro_usd: u64,
    /// Such calls that were refused for their key's credit.
    #[serde(default)]
    pub strays_refused: u64,
    /// How often each of the seven ceilings bound, by its name; see [`crate::ceiling`].
    #[serde(default)]
    pub ceilings: BTreeMap<String, u64>,
    /// Reservations open at rest.
    pub reservations_open: u64,
    /// What they set aside, in micro-USD.
    #[serde(default)]
    pub open_micro_usd: u64,
    /// Admitted reserves that passed a cap in force, by the model's reckoning.
    pub overspends: u64,
    /// Settled, in micro-USD.
    pub settled_micro_usd: u64,
    /// On the provider's invoice, in micro-USD.
    pub invoice_micro_usd: u64,
    /// Calls the provider charged.
    pub calls_charged: u64,
    /// Of those, under a key that it had charged before.
    #[serde(default)]
    pub calls_charged_again: u64,
    /// Calls the provider answered again, free.
    pub calls_repeated: u64,
    /// Replies acted on whose decision was in no commit by then.
    #[serde(default)]
    pub replies_uncommitted: u64,
    /// Units that were given an answer which had been paid for: memo hits. Paid calls are `calls_charged`.
    #[serde(default)]
    pub memo_hits: u64,
    /// Requests that had to wait for the answer to a question that another asked.
    #[serde(default)]
    pub questions_waited: u64,
    /// Calls that left again under their own name: of those sent, the ones beyond the first.
    #[serde(default)]
    pub calls_resent: u64,
    /// Leases granted above the first of each lock.
    pub lease_takeovers: u64,
    /// Writes refused to deposed or other executors.
    pub writes_refused: u64,
    /// Records in the log.
    pub ledger_records: u64,
    /// Commits that wrote a frame.
    pub ledger_commits: u64,
    /// Kills and power cuts that struck a node that was up.
    pub kills: u64,
    /// Times the ledger was opened.
    pub ledger_opens: u64,
}

/// A run's report: its verdict, and what it was and gave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunReport {
    /// The scenario's name.
    pub scenario: String,
    /// The seed.
    pub seed: u64,
    /// Agents.
    pub agents: u32,
    /// The engine.
    pub engine: Engine,
    /// The store.
    pub store: StoreKind,
    /// The verdict.
    pub verdict: Verdict,
    /// What was broken, or what did not end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broken: Option<Broken>,
    /// blake3 of the history, in hexadecimal.
    pub history_hash: String,
    /// Events the engine served.
    pub events: u64,
    /// How long the run lasted on the engine's clock.
    pub virtual_ns: u64,
    /// How long it took on this machine.
    pub wall_ns: u64,
    /// Counts and measures.
    pub figures: Figures,
    /// The engine's counts.
    pub stats: Stats,
    /// Planted bugs that would have made a difference, and how often.
    pub reached: Vec<(String, u64)>,
    /// How many faults the plan held.
    pub faults: u64,
    /// The names of what it reached of [`Sometimes::all`](crate::sometimes::Sometimes::all).
    #[serde(default)]
    pub reached_sometimes: Vec<String>,
}

/// A run that was played.
#[derive(Clone, Debug)]
pub struct Run {
    /// Its verdict and its figures.
    pub report: RunReport,
    /// What its figures were worked out from, for whoever adds runs up.
    pub raw: Raw,
    /// Its history, as much of it as was to be kept.
    pub history: Recorded,
    /// The ledger's whole log, as the store holds it in the end; empty if it could not be read.
    pub log: WholeLog,
    /// The ledger's tables at rest; none if the run was stopped before, or they could not be read.
    pub tables: Vec<TableAtRest>,
}
