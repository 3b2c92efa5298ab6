//! A scenario, as its file says and as it is played: who, how many, how long, under which caps and weather.

use crate::{cast::Places, workload::Workload};
use faults::Swarm;
use kernel::{
    admit::{DepthTier, Quota},
    money::{MicroUsd, Price, Usage},
    reserve::Level,
};
use serde::{Deserialize, Serialize};
use sim::{DiskSpec, LinkWeather};
use std::time::Duration;

/// The version of the scenario format this code reads.
pub const FORMAT: u32 = 1;

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
    /// Clients beside the agents that break the rules on purpose, to be refused.
    #[serde(default)]
    pub trespassers: u32,
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

/// What passes the edge in front of the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edge {
    /// Calls of one user's key in any window; 1 or more.
    pub per_key: u32,
    /// Calls from one address, an agent's node, in any window; 1 or more.
    pub per_address: u32,
    /// The window, by the edge's own clock; 1 s to 1 h.
    #[serde(with = "humantime_serde")]
    pub window: Duration,
}

impl Edge {
    fn check(&self) -> Result<(), Senseless> {
        within("edge.per_key", self.per_key, 1, MILLION)?;
        within("edge.per_address", self.per_address, 1, MILLION)?;
        lasts_within("edge.window", self.window, Duration::from_secs(1), Duration::from_secs(3_600))
    }
}

/// An agent that has a call made past the ledger, with its user's key, again and again until the agents begin no more runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Runaway {
    /// Which agent; nobody runs away if there are not so many, or on a trace.
    pub agent: u32,
    /// From one call to the next; 10 ms to 1 h.
    #[serde(with = "humantime_serde")]
    pub every: Duration,
    /// What the prompt of each comes to and what the answer does, in tokens.
    pub usage: Usage,
}

impl Runaway {
    fn check(&self) -> Result<(), Senseless> {
        lasts_within("runaway.every", self.every, Duration::from_millis(10), Duration::from_secs(3_600))?;
        within("runaway.usage.input_tokens", self.usage.input_tokens, 0, u64::from(MILLION))?;
        within("runaway.usage.output_tokens", self.usage.output_tokens, 1, u64::from(MILLION))
    }
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
    /// What each user's key may be charged in all, in micro-USD; no limit if it is not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_credit: Option<MicroUsd>,
    /// What a call uses, of a hundred of what the work says: above 100 for a provider that is dearer than was reckoned with.
    #[serde(default = "as_reckoned", skip_serializing_if = "is_as_reckoned")]
    pub usage_percent: u32,
}

fn as_reckoned() -> u32 {
    100
}

fn is_as_reckoned(percent: &u32) -> bool {
    *percent == as_reckoned()
}

impl Provider {
    /// What a call of `usage` takes on a good day.
    pub fn latency(&self, usage: Usage) -> Duration {
        let tokens = u128::from(usage.input_tokens) * u128::from(self.input_token_ns)
            + u128::from(usage.output_tokens) * u128::from(self.output_token_ns);
        let ns = (u128::from(self.base_ns) + tokens) / u128::from(self.speedup.max(1));
        Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
    }
}

/// What the owner can set while runs are live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Setting {
    /// `caps.unit`.
    Unit,
    /// `caps.run`.
    Run,
    /// `caps.user_day`.
    UserDay,
    /// `caps.ledger_day_per_user`.
    LedgerDayPerUser,
    /// `caps.slots`.
    Slots,
    /// `quota.runs_per_day`.
    RunsPerDay,
    /// `quota.micro_usd_per_day`.
    MicroUsdPerDay,
    /// `quota.depth_tier`.
    DepthTier,
}

impl Setting {
    /// The most it may be set to.
    fn most(self) -> u64 {
        match self {
            Setting::Unit | Setting::Run | Setting::UserDay | Setting::LedgerDayPerUser | Setting::MicroUsdPerDay => {
                MOST_CAP
            }
            Setting::Slots => MILLION.into(),
            Setting::RunsPerDay => u32::MAX.into(),
            Setting::DepthTier => u8::MAX.into(),
        }
    }

    pub(crate) fn is_of_quota(self) -> bool {
        matches!(self, Setting::RunsPerDay | Setting::MicroUsdPerDay | Setting::DepthTier)
    }
}

/// A change that the owner makes while runs are live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "WrittenChange")]
pub struct Change {
    /// When the owner is told, from the run's beginning in true time. What is due when the phase is over is not made.
    #[serde(with = "humantime_serde")]
    pub at: Duration,
    /// What it sets.
    pub level: Setting,
    /// To what: micro-USD, or a number.
    pub to: u64,
}

/// A change as a file has it: its range is looked at where its place is known.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenChange {
    #[serde(with = "humantime_serde")]
    at: Duration,
    level: Setting,
    to: u64,
}

impl TryFrom<WrittenChange> for Change {
    type Error = Senseless;

    fn try_from(written: WrittenChange) -> Result<Change, Senseless> {
        let WrittenChange { at, level, to } = written;
        let change = Change { at, level, to };
        change.check().map(|()| change)
    }
}

impl Change {
    fn check(&self) -> Result<(), Senseless> {
        lasts_within("change.at", self.at, Duration::ZERO, Duration::from_secs(3_600_000))?;
        within("change.to", self.to, 0, self.level.most())
    }
}

/// What the owner can set, as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The caps.
    pub caps: Caps,
    /// The quota of each user.
    pub quota: Option<Quota>,
}

impl Settings {
    /// Makes a change; one of a quota where there is none is not made.
    pub fn make(&mut self, change: &Change) {
        let Settings { caps, quota } = self;
        let amount = MicroUsd(change.to);
        match (change.level, quota) {
            (Setting::Unit, _) => caps.unit = amount,
            (Setting::Run, _) => caps.run = amount,
            (Setting::UserDay, _) => caps.user_day = amount,
            (Setting::LedgerDayPerUser, _) => caps.ledger_day_per_user = amount,
            (Setting::Slots, _) => caps.slots = u32::try_from(change.to).unwrap_or(u32::MAX),
            (Setting::RunsPerDay, Some(quota)) => quota.runs_per_day = u32::try_from(change.to).unwrap_or(u32::MAX),
            (Setting::MicroUsdPerDay, Some(quota)) => quota.micro_usd_per_day = amount,
            (Setting::DepthTier, Some(quota)) => {
                quota.depth_tier = DepthTier(u8::try_from(change.to).unwrap_or(u8::MAX));
            }
            (Setting::RunsPerDay | Setting::MicroUsdPerDay | Setting::DepthTier, None) => {}
        }
    }

    /// The cap of a level. The ledger-wide one scales with the users there are.
    pub fn cap(&self, level: Level, users: u32) -> MicroUsd {
        let Caps { unit, run, user_day, ledger_day_per_user, .. } = self.caps;
        match level {
            Level::Unit => unit,
            Level::Run => run,
            Level::UserDay => user_day,
            Level::LedgerDay => MicroUsd(ledger_day_per_user.0.saturating_mul(u64::from(users))),
        }
    }

    /// Of each cap and each limit of the quota the lower one.
    fn lower(self, other: &Settings) -> Settings {
        let (caps, theirs) = (self.caps, &other.caps);
        let caps = Caps {
            unit: caps.unit.min(theirs.unit),
            run: caps.run.min(theirs.run),
            user_day: caps.user_day.min(theirs.user_day),
            ledger_day_per_user: caps.ledger_day_per_user.min(theirs.ledger_day_per_user),
            slots: caps.slots.min(theirs.slots),
        };
        let quota = self.quota.zip(other.quota).map(|(one, other)| Quota {
            runs_per_day: one.runs_per_day.min(other.runs_per_day),
            micro_usd_per_day: one.micro_usd_per_day.min(other.micro_usd_per_day),
            depth_tier: one.depth_tier.min(other.depth_tier),
        });
        Settings { caps, quota }
    }
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
    /// What the agents do, by its name.
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
    /// What each user may have of a day from the first moment; none if nothing is limited. A trace is replayed without.
    #[serde(default)]
    pub quota: Option<Quota>,
    /// The edge that every call passes first; none if there is none.
    #[serde(default)]
    pub edge: Option<Edge>,
    /// Who makes calls past the ledger; none if nobody does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runaway: Option<Runaway>,
    /// What the owner changes while runs are live, in this order at equal times.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub change: Vec<Change>,
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

/// A number of a scenario makes no sense, or a name in it is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {why}")]
pub struct Senseless {
    /// The field, as the file names it: `sizes.agents`.
    pub field: &'static str,
    /// What is wrong and what would be right.
    pub why: String,
}

/// Whether `value` lies in `range`.
fn within<T: PartialOrd + std::fmt::Display>(
    field: &'static str,
    value: T,
    least: T,
    most: T,
) -> Result<(), Senseless> {
    if value < least || value > most {
        return Err(Senseless { field, why: format!("{value} is out of range; it is {least} to {most}") });
    }
    Ok(())
}

/// Whether a time lies in a range of whole seconds.
fn lasts_within(field: &'static str, value: Duration, least: Duration, most: Duration) -> Result<(), Senseless> {
    if value < least || value > most {
        let why = format!("{value:?} is out of range; it is {} to {}", spoken(least), spoken(most));
        return Err(Senseless { field, why });
    }
    Ok(())
}

fn spoken(time: Duration) -> String {
    match (time.as_secs(), time.as_millis()) {
        (0, milliseconds) => format!("{milliseconds}ms"),
        (seconds, _) if seconds % 3_600 == 0 => format!("{}h", seconds / 3_600),
        (seconds, _) => format!("{seconds}s"),
    }
}

/// A hundred million dollars: caps above it are taken for a slip, and sums over every user stay within what a ledger counts.
pub(crate) const MOST_CAP: u64 = 100_000_000_000_000;
const HOUR_NS: u64 = 3_600_000_000_000;
const MINUTE_NS: u64 = 60_000_000_000;
pub(crate) const MILLION: u32 = 1_000_000;

impl Sizes {
    /// Users there are: each has `agents_per_user` agents, the last one perhaps fewer.
    pub fn users(&self) -> u32 {
        self.agents.div_ceil(self.agents_per_user.max(1)).max(1)
    }

    /// Whether the sizes make sense.
    pub fn check(&self) -> Result<(), Senseless> {
        within("sizes.agents", self.agents, 1, 65_536)?;
        lasts_within("sizes.for", self.lasts, Duration::from_secs(1), Duration::from_secs(3_600_000))?;
        within("sizes.agents_per_user", self.agents_per_user, 1, 65_536)?;
        within("sizes.runs_per_agent", self.runs_per_agent, 1, 1_000_000)?;
        within("sizes.standbys", self.standbys, 0, 64)?;
        within("sizes.trespassers", self.trespassers, 0, 64)?;
        let runs = u64::from(self.agents) * u64::from(self.runs_per_agent);
        if runs > 10_000_000 {
            let why = format!("{runs} runs over all agents are more than 10000000; lower it or sizes.agents");
            return Err(Senseless { field: "sizes.runs_per_agent", why });
        }
        Ok(())
    }
}

impl Caps {
    fn check(&self) -> Result<(), Senseless> {
        within("caps.unit", self.unit.0, 0, MOST_CAP)?;
        within("caps.run", self.run.0, 0, MOST_CAP)?;
        within("caps.user_day", self.user_day.0, 0, MOST_CAP)?;
        within("caps.ledger_day_per_user", self.ledger_day_per_user.0, 0, MOST_CAP)?;
        within("caps.slots", self.slots, 1, MILLION)
    }
}

impl Provider {
    fn check(&self) -> Result<(), Senseless> {
        within("provider.base_ns", self.base_ns, 0, HOUR_NS)?;
        within("provider.input_token_ns", self.input_token_ns, 0, 1_000_000_000)?;
        within("provider.output_token_ns", self.output_token_ns, 0, 1_000_000_000)?;
        within("provider.speedup", self.speedup, 1, 1_000_000)?;
        within("provider.key_credit", self.key_credit.unwrap_or_default().0, 0, MOST_CAP)?;
        within("provider.usage_percent", self.usage_percent, 1, 1_000)?;
        within("provider.price.input_per_mtok", self.price.input_per_mtok, 0, 1_000_000_000_000)?;
        within("provider.price.output_per_mtok", self.price.output_per_mtok, 0, 1_000_000_000_000)
    }
}

impl LedgerTerms {
    fn check(&self) -> Result<(), Senseless> {
        lasts_within("ledger.lease", self.lease, Duration::from_millis(1), Duration::from_secs(24 * 3_600))?;
        within("ledger.batch_limit", self.batch_limit, 2, 65_536)?;
        within("ledger.queue_limit", self.queue_limit, 1, 10_000_000)?;
        within("ledger.batch_cost_ns", self.batch_cost_ns, 0, MINUTE_NS)?;
        within("ledger.request_cost_ns", self.request_cost_ns, 0, MINUTE_NS)?;
        within("ledger.checkpoint_every", self.checkpoint_every, 0, 1_000_000_000)
    }
}

fn check_weather(weather: &LinkWeather) -> Result<(), Senseless> {
    within("weather.latency_max_ns", weather.latency_max_ns, 0, MINUTE_NS)?;
    within("weather.latency_min_ns", weather.latency_min_ns, 0, weather.latency_max_ns)?;
    within("weather.loss_ppm", weather.loss_ppm, 0, MILLION)?;
    within("weather.repeat_ppm", weather.repeat_ppm, 0, MILLION)?;
    within("weather.reorder_ppm", weather.reorder_ppm, 0, MILLION)?;
    within("weather.spike_ppm", weather.spike_ppm, 0, MILLION)?;
    within("weather.spike_ns", weather.spike_ns, 0, HOUR_NS)?;
    within("weather.bytes_per_s", weather.bytes_per_s, 0, 1_000_000_000_000)
}

fn check_disk(disk: &DiskSpec) -> Result<(), Senseless> {
    within("disk.read_ns", disk.read_ns, 0, MINUTE_NS)?;
    within("disk.write_ns", disk.write_ns, 0, MINUTE_NS)?;
    within("disk.sync_ns", disk.sync_ns, 0, MINUTE_NS)
}

/// Whether a list names only what is known, and nothing twice. A new one is registered in `home`.
fn check_names(field: &'static str, names: &[String], known: &[&str], home: &str) -> Result<(), Senseless> {
    for (index, name) in names.iter().enumerate() {
        if !known.contains(&name.as_str()) {
            let why = format!(
                "`{}` is not known; known are {}, and a new one has its row in {home}",
                name.escape_debug(),
                known.join(", ")
            );
            return Err(Senseless { field, why });
        }
        if names[..index].contains(name) {
            return Err(Senseless { field, why: format!("`{name}` is named twice; name it once") });
        }
    }
    Ok(())
}

impl Scenario {
    /// Where everyone of its cast is.
    pub fn places(&self) -> Places {
        let Sizes { agents, trespassers, .. } = self.sizes;
        Places { agents, trespassers, has_edge: self.edge.is_some() }
    }

    /// What the owner can set, as it is from the first moment.
    pub fn settings(&self) -> Settings {
        Settings { caps: self.caps.clone(), quota: self.quota }
    }

    /// Of each of them the lowest that the scenario ever has.
    pub fn lowest_settings(&self) -> Settings {
        let mut now = self.settings();
        let mut changes: Vec<&Change> = self.change.iter().collect();
        changes.sort_by_key(|change| change.at);
        changes.into_iter().fold(now.clone(), |lowest, change| {
            now.make(change);
            lowest.lower(&now)
        })
    }

    /// Whether every number is in its range and every name is known.
    pub fn check(&self) -> Result<(), Senseless> {
        let letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if self.name.is_empty() || self.name.len() > 64 || !self.name.bytes().all(letter) {
            let why = "a name is 1 to 64 lower case letters, digits and hyphens".to_owned();
            return Err(Senseless { field: "name", why });
        }
        if self.title.is_empty() || self.title.len() > 200 || self.title.chars().any(char::is_control) {
            return Err(Senseless { field: "title", why: "a title is one line of 1 to 200 bytes".to_owned() });
        }
        self.sizes.check()?;
        self.caps.check()?;
        if let Some(caps) = &self.caps_on_arrivals {
            caps.check()?;
        }
        if let Some(edge) = &self.edge {
            edge.check()?;
            if self.sizes.trespassers > 0 {
                let why =
                    "there is an edge, and trespassers do not pass one; set it to 0, or leave [edge] out".to_owned();
                return Err(Senseless { field: "sizes.trespassers", why });
            }
        }
        if let Some(runaway) = &self.runaway {
            runaway.check()?;
            if self.provider.key_credit.is_none() {
                let why = "no credit limit stops it; set provider.key_credit, or leave [runaway] out".to_owned();
                return Err(Senseless { field: "runaway", why });
            }
        }
        if let Some(quota) = &self.quota {
            within("quota.micro_usd_per_day", quota.micro_usd_per_day.0, 0, MOST_CAP)?;
        }
        for change in &self.change {
            change.check()?;
            if change.level.is_of_quota() && self.quota.is_none() {
                let why = "it changes a quota, and there is none; add [quota], or leave the change out".to_owned();
                return Err(Senseless { field: "change.level", why });
            }
        }
        self.provider.check()?;
        self.ledger.check()?;
        check_weather(&self.weather)?;
        check_disk(&self.disk)?;
        within("swarm.most_per_kind", self.swarm.most_per_kind, 1, 1_000)?;
        let kinds: Vec<String> = self.swarm.kinds.iter().map(|kind| kind.name().to_owned()).collect();
        check_names("swarm.kinds", &kinds, &faults::Kind::ALL.map(faults::Kind::name), "faults/src/kind.rs")?;
        let always: Vec<String> = self.swarm.always.iter().map(|kind| kind.name().to_owned()).collect();
        let drawn: Vec<&str> = kinds.iter().map(String::as_str).collect();
        check_names("swarm.always", &always, &drawn, "swarm.kinds")?;
        if self.invariants.is_empty() {
            let why = "a scenario names at least one invariant; `shakedown list` shows them".to_owned();
            return Err(Senseless { field: "invariants", why });
        }
        if let Some(taken) = crate::invariant::taken(&crate::invariant::all()) {
            let why = format!(
                "`{taken}` is another's name already; give the invariant that was added in scenarios/src/invariant/mod.rs one of its own"
            );
            return Err(Senseless { field: "invariants", why });
        }
        check_names(
            "invariants",
            &self.invariants,
            &crate::catalogue::known_invariants(),
            "scenarios/src/invariant/mod.rs",
        )?;
        check_names("rows", &self.rows, &crate::catalogue::known_rows(), "scenarios/src/catalogue.rs")?;
        lasts_within("heal_bound", self.heal_bound, Duration::from_secs(1), Duration::from_secs(3_600_000))
    }
}
