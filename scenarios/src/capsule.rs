//! A run as a file: everything needed to play it again, and what came of it.
//!
//! A capsule holds the scenario as it was resolved and the work as it was drawn, so it plays the same run after the catalogue
//! or the drawing of work has changed. It says what build made it and what came of it, so that a replay can be compared.

use crate::{
    file,
    invariant::Broken,
    runner::{Provenance, RunReport, RunSpec, SpecError, Verdict},
    scenario::{Scenario, StoreKind},
    workload::{Call, Item, Orders, Unit, WorkList},
};
use faults::{Plan, parsing::explained};
use kernel::{
    effect::Class,
    id::{RunId, UnitId, UserId},
    money::Usage,
    planted::Bug,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sim::{Engine, Recording};
use std::{io, path::Path, sync::Arc};

/// The version of the capsule format this code reads and writes.
pub const FORMAT: u32 = 1;

/// A capsule cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CapsuleError {
    /// The file cannot be read or written.
    #[error("cannot {doing} the capsule {path}: {source}")]
    File {
        /// `read` or `write`.
        doing: &'static str,
        /// Its path.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// Not a capsule, or a damaged one.
    #[error("not a capsule, or a damaged one: {why}")]
    Unreadable {
        /// What the parser said, with line and column.
        why: String,
    },
    /// From another build.
    #[error(
        "capsule format {found} is not known to this build, which reads format {FORMAT}; use the build that wrote it"
    )]
    Format {
        /// The format found.
        found: i64,
    },
    /// Its text is not what was written.
    #[error(
        "the capsule was changed since it was written: its text does not fit its digest; take an unchanged copy, or remove its first line if you changed it on purpose"
    )]
    Changed,
    /// It names a bug that this build cannot plant.
    #[error("there is no planted bug `{name}` in this build; known are {}", Bug::ALL.map(Bug::name).join(", "))]
    UnknownBug {
        /// The name.
        name: String,
    },
    /// A number is above what TOML can hold.
    #[error("the run cannot be written as a capsule: {why}")]
    Unwritable {
        /// What the writer said.
        why: String,
    },
    /// Its parts do not go together.
    #[error("the capsule makes no run: {0}")]
    Spec(#[from] SpecError),
}

/// A run as a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capsule {
    /// [`FORMAT`].
    pub format: u32,
    /// The engine.
    pub engine: Engine,
    /// The store; also in the scenario, and the same there.
    pub store: StoreKind,
    /// The seed.
    #[serde(with = "wide")]
    pub seed: u64,
    /// The planted bugs that were on, by name.
    pub bugs: Vec<String>,
    /// From this scheduling decision on, plain first in, first out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule_cut: Option<u64>,
    /// Rows of the trace that the work was read from, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrivals: Option<u64>,
    /// What came of it.
    pub verdict: Verdict,
    /// blake3 of its history, in hexadecimal.
    pub history_hash: String,
    /// What was broken, or did not end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broken: Option<Broken>,
    /// Which build played it.
    pub provenance: Provenance,
    /// The scenario, resolved.
    pub scenario: Scenario,
    /// What went wrong.
    pub plan: Plan,
    /// Who did what.
    pub work: Work,
}

/// The work, an agent at a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Work {
    /// As in [`WorkList::open_loop`].
    pub open_loop: bool,
    /// The agents' lists, in the order of the agents.
    pub agents: Vec<Vec<WrittenItem>>,
}

/// A run on an agent's list, as it is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WrittenItem {
    /// The run.
    #[serde(with = "wide")]
    pub run: u64,
    /// Whom it counts against.
    pub user: u32,
    /// As in [`Item::stands_by`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stands_by: bool,
    /// As in [`Item::orders`].
    #[serde(default, skip_serializing_if = "Orders::is_none")]
    pub orders: Orders,
    /// A row a call: unit, stage, input and output tokens it will use, the same at most, and when it is due in nanoseconds.
    pub units: Vec<[u64; 7]>,
    /// A row a call that is not an idempotent one of its unit's own: its place among the units, the number of its class (1 for
    /// idempotent, 2 for queryable, 3 for unsafe), and 1 more than the question it shares, or 0.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<[u64; 3]>,
}

/// Numbers of 64 bits, of which TOML holds 63: those above are written as text.
mod wide {
    use super::*;

    pub(super) fn serialize<S: Serializer>(number: &u64, to: S) -> Result<S::Ok, S::Error> {
        match i64::try_from(*number) {
            Ok(small) => to.serialize_i64(small),
            Err(_) => to.serialize_str(&number.to_string()),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
        #[derive(Deserialize)]
        #[serde(
            untagged,
            expecting = "a whole number from 0 to 18446744073709551615 is wanted, and above 9223372036854775807 in quotes"
        )]
        enum Written {
            Small(u64),
            Text(String),
        }
        match Written::deserialize(from)? {
            Written::Small(number) => Ok(number),
            Written::Text(text) => text.parse().map_err(|_| {
                let text: String = text.chars().take(32).collect();
                serde::de::Error::custom(format!("{text:?} is no whole number from 0 to {}", u64::MAX))
            }),
        }
    }
}

impl WrittenItem {
    fn of(item: &Item) -> WrittenItem {
        let row = |unit: &Unit| {
            let Unit { unit, stage, usage, most, due_ns, .. } = *unit;
            let Usage { input_tokens, output_tokens } = usage;
            [
                u64::from(unit.0),
                u64::from(stage),
                input_tokens,
                output_tokens,
                most.input_tokens,
                most.output_tokens,
                due_ns,
            ]
        };
        let units = item.units.iter().map(row).collect();
        let calls = item.units.iter().zip(0..).filter(|(unit, _)| unit.call != Call::OWN).map(|(unit, place)| {
            let Call { class, shared } = unit.call;
            [place, class as u64 + 1, shared.map_or(0, |question| u64::from(question) + 1)]
        });
        let Item { run, user, stands_by, orders, .. } = *item;
        WrittenItem { run: run.0, user: user.0, stands_by, orders, units, calls: calls.collect() }
    }

    fn item(&self) -> Result<Item, CapsuleError> {
        let narrow = |number: u64| {
            let why = format!("run {}: {number} is no unit or stage, which are below 2^32", self.run);
            u32::try_from(number).map_err(|_| CapsuleError::Unreadable { why })
        };
        let unit = |row: &[u64; 7]| {
            let [unit, stage, input_tokens, output_tokens, most_input, most_output, due_ns] = *row;
            Ok(Unit {
                unit: UnitId(narrow(unit)?),
                stage: narrow(stage)?,
                usage: Usage { input_tokens, output_tokens },
                most: Usage { input_tokens: most_input, output_tokens: most_output },
                due_ns,
                call: Call::OWN,
            })
        };
        let mut units = self.units.iter().map(unit).collect::<Result<Vec<_>, CapsuleError>>()?;
        for &[place, class, question] in &self.calls {
            let place = usize::try_from(place).ok().and_then(|place| units.get_mut(place));
            let class = class.checked_sub(1).and_then(|number| Class::ALL.get(usize::try_from(number).ok()?));
            let (Some(unit), Some(class)) = (place, class) else {
                let why = format!("run {}: a row of calls names no unit of it, or no class", self.run);
                return Err(CapsuleError::Unreadable { why });
            };
            let shared = question.checked_sub(1).map(narrow).transpose()?;
            unit.call = Call { class: *class, shared };
        }
        let (stands_by, orders) = (self.stands_by, self.orders);
        Ok(Item { run: RunId(self.run), user: UserId(self.user), units, stands_by, orders })
    }
}

impl Capsule {
    /// The capsule of a run that was played.
    pub fn of(spec: &RunSpec, report: &RunReport, provenance: &Provenance) -> Capsule {
        Capsule {
            format: FORMAT,
            engine: spec.engine,
            store: spec.scenario.store,
            seed: spec.seed,
            bugs: spec.bugs.iter().map(|bug| bug.name().to_owned()).collect(),
            schedule_cut: spec.schedule_cut,
            arrivals: spec.arrivals,
            verdict: report.verdict,
            history_hash: report.history_hash.clone(),
            broken: report.broken.clone(),
            provenance: provenance.clone(),
            scenario: spec.scenario.clone(),
            plan: spec.plan.clone(),
            work: Work {
                open_loop: spec.work.open_loop,
                agents: spec.work.agents.iter().map(|items| items.iter().map(WrittenItem::of).collect()).collect(),
            },
        }
    }

    /// The capsule as TOML, which [`Capsule::from_toml`] reads back equal. Its first line is the digest of the others.
    pub fn to_toml(&self) -> Result<String, CapsuleError> {
        let text = toml::to_string(self).map_err(|error| CapsuleError::Unwritable { why: error.to_string() })?;
        Ok(format!("{DIGEST}{}\"\n{text}", blake3::hash(text.as_bytes()).to_hex()))
    }

    /// Reads a capsule and checks every value of it, and its digest if it has one: whoever changes a capsule on purpose
    /// removes that line.
    pub fn from_toml(text: &str) -> Result<Capsule, CapsuleError> {
        /// What is read first, so that a newer format is named as such and not as an unknown field.
        #[derive(Deserialize)]
        struct Head {
            format: i64,
        }
        let unreadable = |text: &str, error: toml::de::Error| CapsuleError::Unreadable { why: explained(text, &error) };
        let head: Head = toml::from_str(text).map_err(|error| unreadable(text, error))?;
        if head.format != i64::from(FORMAT) {
            return Err(CapsuleError::Format { found: head.format });
        }
        let text = undigested(text)?;
        let capsule: Capsule = toml::from_str(text).map_err(|error| unreadable(text, error))?;
        capsule.spec()?;
        Ok(capsule)
    }

    /// The run to play again: recorded in full, and without a folder for the real engine, which whoever plays it sets.
    pub fn spec(&self) -> Result<RunSpec, CapsuleError> {
        let bug = |name: &String| {
            Bug::named(name).ok_or_else(|| CapsuleError::UnknownBug { name: name.escape_debug().to_string() })
        };
        let list = |items: &Vec<WrittenItem>| items.iter().map(WrittenItem::item).collect::<Result<Vec<_>, _>>();
        if self.store != self.scenario.store {
            let why = "store and scenario.store differ; a capsule names one store".to_owned();
            return Err(CapsuleError::Unreadable { why });
        }
        let spec = RunSpec {
            scenario: self.scenario.clone(),
            seed: self.seed,
            engine: self.engine,
            plan: self.plan.clone(),
            bugs: self.bugs.iter().map(bug).collect::<Result<_, _>>()?,
            work: Arc::new(WorkList {
                agents: self.work.agents.iter().map(list).collect::<Result<_, _>>()?,
                open_loop: self.work.open_loop,
            }),
            arrivals: self.arrivals,
            schedule_cut: self.schedule_cut,
            recording: Recording::Full,
            root: None,
        };
        match spec.check() {
            Ok(()) | Err(SpecError::NoRoot) => Ok(spec),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads the capsule in a file.
    pub fn load(path: &Path) -> Result<Capsule, CapsuleError> {
        let bytes = file::read(path, file::MOST_BYTES).map_err(|source| unfiled("read", path, source))?;
        let text = String::from_utf8(bytes).map_err(|error| CapsuleError::Unreadable { why: error.to_string() })?;
        Capsule::from_toml(&text)
    }

    /// Saves the capsule, replacing what was there.
    pub fn save(&self, path: &Path) -> Result<(), CapsuleError> {
        let saved = file::publish(path, self.to_toml()?.as_bytes());
        saved.map_err(|unpublished| unfiled("write", path, unpublished.source))
    }
}

/// How a capsule's first line begins.
const DIGEST: &str = "digest = \"";

/// The text without its digest, which must fit it.
fn undigested(text: &str) -> Result<&str, CapsuleError> {
    let Some((digest, rest)) = text.strip_prefix(DIGEST).and_then(|text| text.split_once("\"\n")) else {
        return Ok(text);
    };
    if digest == blake3::hash(rest.as_bytes()).to_hex().as_str() { Ok(rest) } else { Err(CapsuleError::Changed) }
}

fn unfiled(doing: &'static str, path: &Path, source: io::Error) -> CapsuleError {
    CapsuleError::File { doing, path: path.display().to_string(), source }
}
