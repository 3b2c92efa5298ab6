//! A recorded run as a folder: `capsule.toml`, `history.log`, `events.jsonl`, `result.json`.
//!
//! The folder is written beside its place and renamed into it, so that whoever finds it finds all of it.
#![expect(
    clippy::disallowed_methods,
    reason = "a run's folder is on the machine's disk, written after the run is over"
)]

use super::{Run, RunReport, RunSpec};
use crate::{
    capsule::Capsule,
    file::{Unpublished, beside},
};
use kernel::record::Record;
use serde::{Deserialize, Serialize};
use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

/// How many bytes of the history one block hash of `result.json` covers; the last block may be shorter.
pub const BLOCK_BYTES: usize = 1 << 20;

/// Which build played a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Provenance {
    /// The commit, in hexadecimal; empty outside a repository.
    pub commit: String,
    /// Whether the work tree differed from it.
    pub dirty: bool,
    /// blake3 of the binary, in hexadecimal.
    pub binary_hash: String,
}

/// What `result.json` holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResultFile {
    /// The report.
    #[serde(flatten)]
    pub report: RunReport,
    /// Entries of the history.
    pub history_entries: u64,
    /// blake3 of each [`BLOCK_BYTES`] of `history.log`, in hexadecimal.
    pub history_blocks: Vec<String>,
    /// Which build.
    pub provenance: Provenance,
    /// The ledger's tables at rest; none if the run was stopped before.
    #[serde(default)]
    pub tables_at_rest: Vec<TableAtRest>,
}

/// A table of the ledger at rest, by the hashes that it came to: whoever has the log can say whether they are right.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableAtRest {
    /// Its stable number.
    pub number: u16,
    /// Its hash as an opening of the store gives it, in hexadecimal.
    pub opened: Option<String>,
    /// Its hash as a rebuild from the whole log gives it, in hexadecimal.
    pub rebuilt: Option<String>,
}

/// Writes the folder of a run that was recorded in full. An empty folder in its place is replaced, and a link to one is
/// followed; anything else is refused.
pub fn write_folder(dir: &Path, spec: &RunSpec, run: &Run, provenance: &Provenance) -> Result<(), Unpublished> {
    let write = |beside: &Path, place: &Path| {
        write_files(beside, spec, run, provenance).and_then(|()| fs::rename(beside, place))
    };
    with_folder_beside(dir, write)
}

/// Whether a run's folder can be written at `dir`, found out by making what is above it, and one beside it with a file in it,
/// which is removed again.
pub fn probe_folder(dir: &Path) -> Result<(), Unpublished> {
    with_folder_beside(dir, |beside, _| {
        fs::write(beside.join("probe"), "there is room")?;
        fs::remove_dir_all(beside)
    })
}

/// Makes a folder beside `dir`, or beside what it is a link to, and lets `fill` do the rest; it is gone if that fails.
fn with_folder_beside(dir: &Path, fill: impl Fn(&Path, &Path) -> io::Result<()>) -> Result<(), Unpublished> {
    let begin = || {
        let place = if dir.is_symlink() { fs::canonicalize(dir)? } else { dir.to_owned() };
        let beside = beside(&place)?;
        if beside.exists() {
            fs::remove_dir_all(&beside)?;
        }
        fs::create_dir_all(&beside)?;
        Ok((place, beside))
    };
    let filled = begin().and_then(|(place, beside): (PathBuf, PathBuf)| {
        fill(&beside, &place).inspect_err(|_| {
            let _ = fs::remove_dir_all(&beside);
        })
    });
    filled.map_err(|source| Unpublished { path: dir.to_owned(), source })
}

fn write_files(dir: &Path, spec: &RunSpec, run: &Run, provenance: &Provenance) -> io::Result<()> {
    let capsule = Capsule::of(spec, &run.report, provenance).to_toml().map_err(io::Error::other)?;
    fs::write(dir.join("capsule.toml"), capsule)?;
    fs::write(dir.join("history.log"), &run.history.kept)?;
    let mut events = io::BufWriter::new(fs::File::create(dir.join("events.jsonl"))?);
    for record in run.log.records() {
        serde_json::to_writer(&mut events, &line(&record)?)?;
        events.write_all(b"\n")?;
    }
    events.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
    let result = ResultFile {
        report: run.report.clone(),
        history_entries: run.history.entries,
        history_blocks: run
            .history
            .kept
            .chunks(BLOCK_BYTES)
            .map(|block| blake3::hash(block).to_hex().to_string())
            .collect(),
        provenance: provenance.clone(),
        tables_at_rest: run.tables.clone(),
    };
    let mut text = serde_json::to_string_pretty(&result)?;
    text.push('\n');
    fs::write(dir.join("result.json"), text)
}

/// A record as one line: its hashes in hexadecimal, all else as it is.
fn line(record: &Record) -> io::Result<serde_json::Value> {
    let mut line = serde_json::to_value(record)?;
    for (field, hash) in [("content", record.content), ("chain", record.chain)] {
        line[field] = blake3::Hash::from_bytes(hash).to_hex().as_str().into();
    }
    Ok(line)
}
