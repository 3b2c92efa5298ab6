//! `show`: the history of a kept run, entry by entry, as people read it or as JSON lines.

use crate::{
    exit::{Exit, Failure},
    output::{self, Format, Out},
};
use anyhow::Context as _;
use kernel::{
    record::Record,
    serve::{ANNOUNCEMENT, Announcement, BUSY, GARBAGE},
};
use scenarios::{
    capsule::Capsule,
    cast::{Names, Places},
    fact::{FACT, Fact},
    invariant::{Sight, decode},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sim::{Entry, history, history::kind};
use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

/// What `show` may be told.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The folder of a run, as `--out` writes it or a failing run leaves it.
    #[arg(value_name = "RUN_DIR")]
    folder: PathBuf,
}

/// One line of JSON: an entry of the history, or one record that an entry tells of.
#[derive(Serialize)]
struct Line {
    time_ns: u64,
    node: String,
    incarnation: u32,
    saw: &'static str,
    /// The sequence of the record, if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    seq: Option<u64>,
    data: Value,
}

/// Does it.
pub fn perform(args: &Args, out: &mut Out) -> Result<Exit, Failure> {
    let path = args.folder.join("history.log");
    let bytes = read(&path)
        .with_context(|| format!("{} cannot be read; give the folder of a kept run", path.display()))
        .map_err(Failure::Input)?;
    if let Some(doubt) = doubt(&args.folder, &bytes) {
        output::note(&format!("warning: {} {doubt}", path.display()));
    }
    let names = names(&args.folder);
    for entry in history::read(&bytes) {
        let entry = entry.with_context(|| format!("{} is damaged", path.display())).map_err(Failure::Input)?;
        let lines = lines(&entry, &names).map_err(|why| {
            Failure::Input(anyhow::anyhow!("{why}; {} is damaged, or of another build", path.display()))
        })?;
        for line in lines {
            match out.format {
                Format::Json => out.json(&line)?,
                Format::Text => out.line(text(&line))?,
            }
        }
    }
    Ok(Exit::Pass)
}

/// Reads a file of a run's folder; one that is no regular file could be waited for without end.
#[expect(clippy::disallowed_methods, reason = "a run that was kept is read from the user's disk")]
fn read(path: &Path) -> io::Result<Vec<u8>> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
    }
    fs::read(path)
}

/// Why a history may not be that of its run.
fn doubt(folder: &Path, history: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Stated {
        history_hash: String,
    }
    if history.is_empty() {
        return Some("is empty: nothing was kept of the run, or it was lost since".to_owned());
    }
    let hash = blake3::hash(history).to_hex();
    let stated = read(&folder.join("result.json")).map_err(|error| error.to_string());
    match stated.and_then(|text| serde_json::from_slice::<Stated>(&text).map_err(|error| error.to_string())) {
        Ok(Stated { history_hash }) if history_hash == hash.as_str() => None,
        Ok(Stated { history_hash }) => {
            Some(format!("gives the hash {hash}, and result.json says {history_hash}: one of them was changed"))
        }
        Err(why) => Some(format!("cannot be compared with the hash in result.json: {why}")),
    }
}

/// What the nodes of the run go by: its capsule says who was in the cast. Without it agents go by the numbers of their nodes.
fn names(folder: &Path) -> Names {
    let path = folder.join("capsule.toml");
    match Capsule::load(&path) {
        Ok(capsule) => {
            let agents = u32::try_from(capsule.work.agents.len()).unwrap_or(u32::MAX);
            let places = Places { agents, ..capsule.scenario.places() };
            Names::new(places, &places.twins(&capsule.plan))
        }
        Err(why) => {
            output::note(&format!("warning: agents are shown by their nodes' numbers, for {why}"));
            Names::new(Places::default(), &BTreeMap::new())
        }
    }
}

fn text(line: &Line) -> String {
    let Line { time_ns, node, incarnation, saw, seq, data } = line;
    let seq = seq.map_or_else(String::new, |seq| format!("{seq} "));
    let data = if data.is_null() { String::new() } else { format!("  {seq}{}", output::printable(&data.to_string())) };
    format!("{:>14}  {:12}  {saw:9}{data}", output::moment(*time_ns), format!("{node}/{incarnation}"))
}

/// The lines of an entry: a commit has one for each of its records, and what was answered without being recorded.
fn lines(entry: &Entry<'_>, names: &Names) -> Result<Vec<Line>, String> {
    let line = |saw, seq, data| Line {
        time_ns: entry.time_ns,
        node: names.of(entry.node),
        incarnation: entry.incarnation,
        saw,
        seq,
        data,
    };
    let told = |record: &Record| -> Result<Line, String> {
        Ok(line("record", Some(record.seq), serde_json::to_value(&record.event).map_err(|why| why.to_string())?))
    };
    let one = |saw, data| Ok(vec![line(saw, None, data)]);
    match (entry.kind, decode(entry)?) {
        (_, Sight::Up) => one("up", Value::Null),
        (_, Sight::Down) => one("down", how_it_went(entry.data).into()),
        (FACT, Sight::Fact(fact)) => one("fact", named(&fact)?),
        (ANNOUNCEMENT, Sight::Ledger(Announcement::Committed { replies, .. }, records)) => {
            let mut lines: Vec<Line> = records.iter().map(told).collect::<Result<_, _>>()?;
            for reply in replies.iter().filter(|reply| !matches!(reply, kernel::request::Reply::Decided(_))) {
                lines.push(line("answer", None, serde_json::to_value(reply).map_err(|why| why.to_string())?));
            }
            Ok(lines)
        }
        (ANNOUNCEMENT, Sight::Ledger(Announcement::Opened { next_seq, .. }, _)) => {
            one("opened", json!({ "next_seq": next_seq }))
        }
        (ANNOUNCEMENT, Sight::Ledger(Announcement::Broke { why }, _)) => one("broke", why.into()),
        (kind::FAULT, _) => one("fault", String::from_utf8_lossy(entry.data).into()),
        (kind::CLOSE, _) => one("close", Value::Null),
        (GARBAGE, _) => one("garbage", Value::Null),
        (BUSY, _) => one("busy", Value::Null),
        (other, _) => one("other", json!({ "kind": other, "bytes": entry.data.len() })),
    }
}

fn named(fact: &Fact) -> Result<Value, String> {
    serde_json::to_value(fact).map_err(|why| why.to_string())
}

/// What the engine noted of a node that went down.
fn how_it_went(data: &[u8]) -> &'static str {
    match data {
        [1] => "killed",
        [2] => "power cut",
        _ => "ended",
    }
}
