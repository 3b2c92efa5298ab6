//! A scenario, as its file says and as it is played: who, how many, how long, under which caps and weather.

use faults::Swarm;
use kernel::money::{MicroUsd, Price};
use serde::{Deserialize, Serialize};
use sim::{DiskSpec, LinkWeather};
use std::time::Duration;

/// The version of the scenario format this code reads.
pub const FORMAT: u32 = 1;

/// What the agents do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// Research runs: a plan, charter lines read side by side, a report; about ten paid calls each.
    Research,
    /// Every agent asks for the same amount many times against one cap.
    Contention,
    /// Research runs, each with agents standing by that wait for its lease and take over when it is lost.
    Takeover,
}

/// Where the ledger keeps its frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StoreKind {
    /// In memory that outlives the ledger's process; for scenarios that are not about the disk.
    Memory,
    /// redb on the node's disk.
    Redb,
}

/// How many and how long.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sizes {
    /// Agents; 1 to 65,536.
    pub agents: u32,
    /// How long agents begin new runs, which is also the safety phase; 1 s to 1,000 h.
    #[serde(rename = "for", with = "humantime_serde")]
    pub lasts: Duration,
    /// Agents that share one user's caps; 1 or more.
    pub agents_per_user: u32,
    /// Runs an agent has on its list at most; an agent also stops beginning runs when `for` is over.
    pub runs_per_agent: u32,
    /// Agents standing by for each run (workload `takeover`).
    #[serde(default)]
    pub standbys: u32,
}

/// The caps in force from the first moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Caps {
    /// Of a unit, all its attempts together, in micro-USD.
    pub unit: MicroUsd,
    /// Of a run.
    pub run: MicroUsd,
    /// Of a user in a day.
    pub user_day: MicroUsd,
    /// Of the whole ledger in a day, for each user there is: the cap in force is this times the number of users.
    pub ledger_day_per_user: MicroUsd,
    /// Live reservations a user may have.
    pub slots: u32,
}

/// How the provider behaves on a good day.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Provider {
    /// Latency of any call, in nanoseconds.
    pub base_ns: u64,
    /// Latency per token read.
    pub input_token_ns: u64,
    /// Latency per token generated.
    pub output_token_ns: u64,
    /// Divides every latency; 1 in simulation, 1,000 for a smoke test in real time.
    pub speedup: u64,
    /// What a model costs; the ledger is given the same prices at its genesis.
    pub price: Price,
}

/// How the ledger is run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LedgerTerms {
    /// How long a run lease lasts.
    #[serde(with = "humantime_serde")]
    pub lease: Duration,
    /// The longest batch.
    pub batch_limit: usize,
    /// Requests queued or parked at most.
    pub queue_limit: usize,
    /// Compute per batch, in nanoseconds.
    pub batch_cost_ns: u64,
    /// Compute per request, in nanoseconds.
    pub request_cost_ns: u64,
    /// Frames between checkpoints; 0 for none.
    pub checkpoint_every: u64,
}

/// A scenario.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// [`FORMAT`].
    pub format: u32,
    /// Its name: lower case, digits and hyphens.
    pub name: String,
    /// What it is, in one line.
    pub title: String,
    /// What the agents do.
    pub workload: Workload,
    /// Where the ledger keeps its frames.
    pub store: StoreKind,
    /// How many and how long.
    pub sizes: Sizes,
    /// The caps.
    pub caps: Caps,
    /// The caps for a run on an arrival trace, sized not to bind; none if the scenario plays no trace.
    #[serde(default)]
    pub caps_on_arrivals: Option<Caps>,
    /// The provider.
    pub provider: Provider,
    /// The ledger.
    pub ledger: LedgerTerms,
    /// The links on a good day.
    pub weather: LinkWeather,
    /// The ledger's disk.
    pub disk: DiskSpec,
    /// What the swarm may draw.
    pub swarm: Swarm,
    /// The names of the invariants that must hold, in the order they are checked; see `list`.
    pub invariants: Vec<String>,
    /// The rows of the table that its runs feed.
    pub rows: Vec<String>,
    /// After the faults end, everything must have come to rest within this time.
    #[serde(with = "humantime_serde")]
    pub heal_bound: Duration,
}
