//! A recorded run as a folder: `capsule.toml`, `history.log`, `events.jsonl`, `result.json`.
//!
//! The folder is written beside its place and renamed into it, so that whoever finds it finds all of it.
#![expect(
    clippy::disallowed_methods,
    reason = "a run's folder is on the machine's disk, written after the run is over"
)]

use super::{Run, RunReport, RunSpec};
use crate::capsule::Capsule;
use kernel::record::Record;
use serde::{Deserialize, Serialize};
use std::{
    ffi::OsString,
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

/// Writes the folder of a run that was recorded in full. An empty folder in its place is replaced; anything else is refused.
pub fn write_folder(dir: &Path, spec: &RunSpec, run: &Run, provenance: &Provenance) -> io::Result<()> {
    let beside = beside(dir)?;
    if beside.exists() {
        fs::remove_dir_all(&beside)?;
    }
    fs::create_dir_all(&beside)?;
    let written = write_files(&beside, spec, run, provenance).and_then(|()| fs::rename(&beside, dir));
    if written.is_err() {
        let _ = fs::remove_dir_all(&beside);
    }
    written.map_err(|error| {
        io::Error::new(error.kind(), format!("cannot write the run's folder {}: {error}", dir.display()))
    })
}

/// A name beside `path`, on the same file system, that no other process writes.
pub(crate) fn beside(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or_else(|| io::Error::other(format!("{} names no file", path.display())))?;
    let mut hidden = OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".{}.partial", std::process::id()));
    Ok(path.with_file_name(hidden))
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
