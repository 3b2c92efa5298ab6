//! The four files of a run's folder, read without believing any of them.

use super::{
    findings::{Findings, Place, Rule},
    told::Stats,
    wire::{Price, Quota},
};
use serde::{Deserialize, Deserializer};
use std::{
    collections::BTreeSet,
    fmt::Debug,
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

/// The capsule format that is known.
const FORMAT: i64 = 1;

/// What one block hash of the result covers, in bytes.
const BLOCK_BYTES: usize = 1 << 20;

/// How a capsule's first line begins.
const DIGEST: &str = "digest = \"";

/// A folder cannot be checked at all.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// There is no folder there.
    #[error("{} is not a folder; give the folder of a recorded run, as `run SCENARIO --out DIR` writes it", path.display())]
    NoFolder {
        /// What was given.
        path: PathBuf,
    },
    /// A file is missing or cannot be read.
    #[error(
        "{}: {source}; a run's folder holds capsule.toml, history.log, events.jsonl and result.json: give one that `run SCENARIO --out DIR` wrote",
        path.display()
    )]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file is not what its name says.
    #[error("{file}, line {line}: {why}; take an undamaged copy of the folder, or play the run again")]
    Unreadable {
        /// Which of the files.
        file: &'static str,
        /// The line, from 1.
        line: usize,
        /// What the parser said.
        why: String,
    },
    /// It was written by another build.
    #[error(
        "capsule.toml: format {found} is not known to this build, which reads format {FORMAT}; use the build that wrote it"
    )]
    Format {
        /// The format found.
        found: i64,
    },
    /// Nothing in it can be checked.
    #[error(
        "the folder holds neither a history nor a log, so that nothing of the run can be checked; play it again with `shakedown repro {}/capsule.toml`",
        path.display()
    )]
    Nothing {
        /// The folder.
        path: PathBuf,
    },
    /// The run ended in a panic.
    #[error(
        "the run ended in a panic, so that its log was never read back from the store and nothing can be checked against it; `shakedown show {path}` prints the history up to the panic",
        path = path.display()
    )]
    Panicked {
        /// The folder.
        path: PathBuf,
    },
}

/// What was broken, as both files tell it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Broken {
    pub invariant: String,
    pub message: String,
    pub time_ns: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Provenance {
    commit: String,
    dirty: bool,
    binary_hash: String,
}

/// What is read of a capsule.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Capsule {
    pub engine: String,
    pub store: String,
    #[serde(deserialize_with = "wide")]
    pub seed: u64,
    pub arrivals: Option<u64>,
    pub verdict: String,
    pub history_hash: String,
    pub broken: Option<Broken>,
    pub provenance: Provenance,
    pub scenario: Scenario,
    pub plan: Plan,
    pub work: Work,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Scenario {
    pub name: String,
    #[serde(default)]
    pub invariants: Vec<String>,
    pub sizes: Sizes,
    pub caps: Caps,
    pub caps_on_arrivals: Option<Caps>,
    pub quota: Option<Quota>,
    pub provider: Provider,
    pub edge: Option<Edge>,
}

/// The caps, in micro-USD, and the slots.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct Caps {
    pub unit: u64,
    pub run: u64,
    pub user_day: u64,
    pub ledger_day_per_user: u64,
    pub slots: u32,
}

/// What may pass the edge.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Edge {
    pub per_key: u32,
    pub per_address: u32,
    #[serde(with = "humantime_serde")]
    pub window: Duration,
}

#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct Sizes {
    pub agents: u32,
    pub agents_per_user: u32,
    #[serde(default)]
    pub trespassers: u32,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Provider {
    pub price: Price,
    pub key_credit: Option<u64>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Plan {
    #[serde(default)]
    pub faults: Vec<toml::Value>,
}

impl Plan {
    /// Agents that are started twice: each has a node more, after everyone else's.
    pub(super) fn started_twice(&self) -> u32 {
        let twice = self.faults.iter().filter(|planned| {
            planned.get("fault").and_then(toml::Value::as_str).is_some_and(|fault| fault == "double-start")
        });
        let agents: BTreeSet<&str> = twice.filter_map(|planned| planned.get("target")?.get("node")?.as_str()).collect();
        u32::try_from(agents.len()).unwrap_or(u32::MAX)
    }
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Work {
    pub open_loop: bool,
    pub agents: Vec<Vec<Item>>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Item {
    #[serde(deserialize_with = "wide")]
    pub run: u64,
    pub user: u32,
    pub units: Vec<[u64; 7]>,
}

/// A number of 64 bits, of which those above TOML's are written as text.
fn wide<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Small(u64),
        Text(String),
    }
    match Written::deserialize(from)? {
        Written::Small(number) => Ok(number),
        Written::Text(text) => text.parse().map_err(serde::de::Error::custom),
    }
}

/// What is read of a result.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct RunResult {
    pub scenario: String,
    pub seed: u64,
    pub agents: u32,
    pub engine: String,
    pub store: String,
    pub verdict: String,
    pub broken: Option<Broken>,
    pub history_hash: String,
    pub events: u64,
    pub virtual_ns: u64,
    pub figures: serde_json::Map<String, serde_json::Value>,
    pub stats: Stats,
    pub faults: u64,
    pub history_entries: u64,
    pub history_blocks: Vec<String>,
    pub provenance: Provenance,
    #[serde(default)]
    pub tables_at_rest: Vec<TableAtRest>,
}

/// What is noted of a table at rest: its hashes, in hexadecimal.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TableAtRest {
    pub number: u16,
    pub opened: Option<String>,
    pub rebuilt: Option<String>,
}

impl RunResult {
    /// Whether the run is said to have ended in a panic, so that its log was not read back.
    pub(super) fn panicked(&self) -> bool {
        let fatal = ["kernel-panic", "cast-panic", "engine-panic"];
        self.broken.as_ref().is_some_and(|broken| fatal.contains(&broken.invariant.as_str()))
    }
}

/// A folder's files.
#[derive(Debug)]
pub(super) struct Files {
    pub capsule: Capsule,
    pub result: RunResult,
    pub history: Vec<u8>,
    pub log: Vec<u8>,
    capsule_text: String,
}

impl Files {
    /// Reads them; an error is what makes a check impossible.
    #[expect(
        clippy::disallowed_methods,
        reason = "a run's folder is on the machine's disk, read after the run is over"
    )]
    pub(super) fn read(folder: &Path) -> Result<Files, CheckError> {
        if !folder.is_dir() {
            return Err(CheckError::NoFolder { path: folder.to_owned() });
        }
        let bytes = |name: &str| {
            let path = folder.join(name);
            let read = match fs::metadata(&path) {
                Ok(there) if !there.is_file() => Err(io::Error::other("it is no regular file")), // a pipe has no end
                _ => fs::read(&path),
            };
            read.map_err(|source| CheckError::File { path, source })
        };
        let text = |name: &'static str| {
            String::from_utf8(bytes(name)?).map_err(|error| {
                let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
                let line = 1 + good.iter().filter(|byte| **byte == b'\n').count();
                CheckError::Unreadable { file: name, line, why: "it is not UTF-8".to_owned() }
            })
        };
        let capsule_text = text("capsule.toml")?;
        let result = text("result.json")?;
        let result = serde_json::from_str(&result).map_err(|error| CheckError::Unreadable {
            file: "result.json",
            line: error.line(),
            why: error.to_string(),
        })?;
        let capsule = capsule(&capsule_text)?;
        Ok(Files { capsule, result, history: bytes("history.log")?, log: bytes("events.jsonl")?, capsule_text })
    }

    /// What can be said of the files before they are understood: digests, and whether they are of one run.
    pub(super) fn compare(&self, found: &mut Findings) {
        let digest = self.capsule_text.strip_prefix(DIGEST).and_then(|text| text.split_once("\"\n"));
        match digest {
            Some((digest, rest)) => {
                let fits = digest == blake3::hash(rest.as_bytes()).to_hex().as_str();
                found.must(Rule::Capsule, Place::Capsule, fits, || {
                    "its text does not fit the digest in its first line: it was changed since it was written".into()
                });
            }
            None => {
                let why = "its first line is no digest, which every recorded capsule begins with: it was edited";
                found.must(Rule::Capsule, Place::Capsule, false, || why.into());
            }
        }
        self.agree(found);
        self.hashes(found);
    }

    /// Field by field, what both files say of the run.
    fn agree(&self, found: &mut Findings) {
        let Files { capsule, result, .. } = self;
        let agents = capsule.work.agents.len() as u32;
        let faults = capsule.plan.faults.len() as u64;
        let fields: [(&str, &dyn Debug, &dyn Debug); 11] = [
            ("scenario", &capsule.scenario.name, &result.scenario),
            ("seed", &capsule.seed, &result.seed),
            ("agents", &capsule.scenario.sizes.agents, &result.agents),
            ("agents", &agents, &result.agents),
            ("engine", &capsule.engine, &result.engine),
            ("store", &capsule.store, &result.store),
            ("verdict", &capsule.verdict, &result.verdict),
            ("broken", &capsule.broken, &result.broken),
            ("history_hash", &capsule.history_hash, &result.history_hash),
            ("faults", &faults, &result.faults),
            ("provenance", &capsule.provenance, &result.provenance),
        ];
        for (field, one, other) in fields {
            let (one, other) = (format!("{one:?}"), format!("{other:?}"));
            found.must(Rule::Agreement, Place::Result, one == other, || {
                format!("{field} is {other}, and in capsule.toml {one}: one was changed, or is of another run")
            });
        }
    }

    /// The history against its hashes.
    fn hashes(&self, found: &mut Findings) {
        let Files { capsule, result, history, .. } = self;
        let whole = blake3::hash(history).to_hex();
        for (place, stated) in [(Place::Result, &result.history_hash), (Place::Capsule, &capsule.history_hash)] {
            found.must(Rule::HistoryHash, place, stated == whole.as_str(), || {
                format!("the history hash is {stated}, and history.log gives {whole}")
            });
        }
        let blocks: Vec<&[u8]> = history.chunks(BLOCK_BYTES).collect();
        found.must(Rule::HistoryHash, Place::Result, blocks.len() == result.history_blocks.len(), || {
            format!("it has {} block hashes, and history.log has {} blocks", result.history_blocks.len(), blocks.len())
        });
        for (number, (block, stated)) in blocks.iter().zip(&result.history_blocks).enumerate() {
            let own = blake3::hash(block).to_hex();
            found.must(Rule::HistoryHash, Place::Result, stated == own.as_str(), || {
                let from = number * BLOCK_BYTES;
                format!("the hash of block {number} is {stated}, and history.log gives {own} from byte {from} on")
            });
        }
    }
}

/// The capsule, a newer format named as such and not as an unknown field.
fn capsule(text: &str) -> Result<Capsule, CheckError> {
    #[derive(Deserialize)]
    struct Head {
        format: i64,
    }
    let unreadable = |error: toml::de::Error| {
        let before = error.span().map_or(0, |span| span.start).min(text.len());
        let line = 1 + text.as_bytes()[..before].iter().filter(|byte| **byte == b'\n').count();
        CheckError::Unreadable { file: "capsule.toml", line, why: error.message().to_owned() }
    };
    let head: Head = toml::from_str(text).map_err(unreadable)?;
    if head.format != FORMAT {
        return Err(CheckError::Format { found: head.format });
    }
    toml::from_str(text).map_err(unreadable)
}
