//! The choices that `run` and `gate` share: how many, how long, which store, engine, plan and bugs.

use crate::exit::Failure;
use anyhow::Context as _;
use clap::ValueEnum;
use faults::Plan;
use kernel::planted::Bug;
use scenarios::{
    caps::CapsFile,
    catalogue, file,
    runner::{Choices, PlanChoice, SpecError},
    scenario::StoreKind,
};
use sim::Engine;
use std::{
    path::{Path, PathBuf},
    time::Duration,
};

/// The most agents a run may have.
const MOST_AGENTS: u32 = 65_536;
/// The shortest and the longest time a run may last.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(3_600_000);

/// What `run` and `gate` may be told about how to play.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "How to play")]
pub struct Shared {
    /// How many agents, 1 to 65,536 [default: the scenario's].
    #[arg(long, value_name = "N", value_parser = agents)]
    pub agents: Option<u32>,
    /// How many agents share one user, and so that user's caps and slots, 1 to 65,536 [default: the scenario's].
    #[arg(long, value_name = "N", value_parser = agents)]
    pub agents_per_user: Option<u32>,
    /// How long agents begin new runs, such as 10m, in virtual time [default: the scenario's].
    #[arg(long = "for", value_name = "TIME", value_parser = lasts)]
    pub lasts: Option<Duration>,
    /// A file of caps, quotas and limits in place of the scenario's, and of changes that the owner makes while runs are live.
    #[arg(long, value_name = "FILE")]
    pub caps: Option<PathBuf>,
    /// Where the ledger keeps its frames [default: the scenario's].
    #[arg(long, value_enum, value_name = "STORE")]
    pub store: Option<StoreName>,
    /// Which world is played in.
    #[arg(long, value_enum, value_name = "ENGINE", default_value_t = EngineName::Native)]
    pub engine: EngineName,
    /// What goes wrong: `swarm` (drawn from the seed), `none`, or a plan file [default: swarm; none on arrivals and on
    /// the real engine].
    #[arg(long, value_name = "FILE|swarm|none", value_parser = plan)]
    pub plan: Option<PlanName>,
    /// A planted bug to switch on; may be given more than once. `list` names them.
    #[arg(long = "bug", value_name = "NAME", value_parser = bug)]
    pub bugs: Vec<Bug>,
}

/// A store, by its name on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StoreName {
    /// In memory that outlives the ledger's process.
    Memory,
    /// redb on the node's disk.
    Redb,
}

impl From<StoreName> for StoreKind {
    fn from(name: StoreName) -> StoreKind {
        match name {
            StoreName::Memory => StoreKind::Memory,
            StoreName::Redb => StoreKind::Redb,
        }
    }
}

/// An engine, by its name on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EngineName {
    /// Virtual time, every fault, one history a seed.
    Native,
    /// tokio, TCP on loopback and real files; no fault can be injected.
    Real,
}

impl From<EngineName> for Engine {
    fn from(name: EngineName) -> Engine {
        match name {
            EngineName::Native => Engine::Native,
            EngineName::Real => Engine::Real,
        }
    }
}

/// A plan, by its name on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanName {
    /// Drawn from the seed.
    Swarm,
    /// Nothing goes wrong.
    None,
    /// From a file.
    File(PathBuf),
}

impl Shared {
    /// The choices as the runner takes them. Reads the plan's file and the caps'.
    pub fn resolve(&self, on_arrivals: bool) -> Result<Choices, Failure> {
        let unsaid = if on_arrivals || self.engine == EngineName::Real { PlanName::None } else { PlanName::Swarm };
        let plan = match self.plan.as_ref().unwrap_or(&unsaid) {
            PlanName::Swarm => PlanChoice::Swarm,
            PlanName::None => PlanChoice::None,
            PlanName::File(path) => PlanChoice::Given(read_plan(path).map_err(Failure::Input)?),
        };
        let caps = self.caps.as_deref().map(CapsFile::load).transpose().map_err(Failure::input)?;
        Ok(Choices {
            caps,
            agents: self.agents,
            agents_per_user: self.agents_per_user,
            lasts: self.lasts,
            store: self.store.map(StoreKind::from),
            engine: self.engine.into(),
            plan,
            bugs: self.bugs.clone(),
            ..Choices::default()
        })
    }

    /// The files that the choices are read from.
    pub fn files(&self) -> impl Iterator<Item = PathBuf> {
        self.plan_file().into_iter().chain(&self.caps).cloned()
    }

    /// The plan's file, if there is one.
    fn plan_file(&self) -> Option<&PathBuf> {
        match &self.plan {
            Some(PlanName::File(path)) => Some(path),
            _ => None,
        }
    }

    /// Names the plan's file in a refusal that is about a fault of it.
    pub fn refused(&self, error: SpecError) -> Failure {
        let is_of_plan =
            matches!(error, SpecError::NotInCast { .. } | SpecError::Plan(_) | SpecError::RealFaults { .. });
        let is_of_caps = matches!(error, SpecError::Caps(_));
        let error = anyhow::Error::new(error);
        Failure::Input(match (self.plan_file().filter(|_| is_of_plan), self.caps.as_ref().filter(|_| is_of_caps)) {
            (Some(path), _) => error.context(format!("the plan {}", path.display())),
            (None, Some(path)) => error.context(format!("the caps file {}", path.display())),
            (None, None) => error,
        })
    }

    /// The flags that make the same choices.
    pub fn flags(&self) -> Vec<String> {
        let mut flags = Vec::new();
        let mut flag = |name: &str, value: String| flags.extend([name.to_owned(), value]);
        if let Some(agents) = self.agents {
            flag("--agents", agents.to_string());
        }
        if let Some(agents) = self.agents_per_user {
            flag("--agents-per-user", agents.to_string());
        }
        if let Some(lasts) = self.lasts {
            flag("--for", humantime::format_duration(lasts).to_string().replace(' ', ""));
        }
        if let Some(caps) = &self.caps {
            flag("--caps", caps.display().to_string());
        }
        if let Some(store) = self.store.and_then(|store| store.to_possible_value()) {
            flag("--store", store.get_name().to_owned());
        }
        if self.engine != EngineName::Native {
            flag("--engine", "real".to_owned());
        }
        match &self.plan {
            None => {}
            Some(PlanName::Swarm) => flag("--plan", "swarm".to_owned()),
            Some(PlanName::None) => flag("--plan", "none".to_owned()),
            Some(PlanName::File(path)) => flag("--plan", path.display().to_string()),
        }
        for bug in &self.bugs {
            flag("--bug", bug.name().to_owned());
        }
        flags
    }
}

fn read_plan(path: &Path) -> anyhow::Result<Plan> {
    let text = file::read_text(path, file::MOST_BYTES)
        .with_context(|| format!("the plan {} cannot be read; give a file, `swarm` or `none`", path.display()))?;
    Plan::from_toml(&text).with_context(|| format!("the plan {}", path.display()))
}

/// A seed: any number that has a place in 64 bits.
pub fn seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("give a whole number from 0 to {}", u64::MAX))
}

fn agents(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(agents @ 1..=MOST_AGENTS) => Ok(agents),
        _ => Err("give a number of agents from 1 to 65536".to_owned()),
    }
}

/// A time as people write it.
pub fn time(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|error| format!("{error}; write a time such as 90s, 10m or 2h"))
}

fn lasts(text: &str) -> Result<Duration, String> {
    let lasts = time(text)?;
    if (SHORTEST..=LONGEST).contains(&lasts) { Ok(lasts) } else { Err("give a time from 1s to 1000h".to_owned()) }
}

fn plan(text: &str) -> Result<PlanName, String> {
    match text {
        "" => Err("give a plan file, `swarm` or `none`".to_owned()),
        "swarm" => Ok(PlanName::Swarm),
        "none" => Ok(PlanName::None),
        path => Ok(PlanName::File(PathBuf::from(path))),
    }
}

fn bug(text: &str) -> Result<Bug, String> {
    let near = || {
        catalogue::nearest(text, &Bug::ALL.map(Bug::name))
            .map_or_else(String::new, |near| format!("; did you mean `{near}`?"))
    };
    Bug::named(text).ok_or_else(|| format!("no such bug{}; `list` names them", near()))
}
