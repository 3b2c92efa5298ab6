//! A forger's bench: a recorded run taken apart, to be changed anywhere and put together again with every hash made to fit.

use kernel::{
    record::{Event, Frame, GENESIS_CHAIN, Record},
    request::Reply,
    serve::{ANNOUNCEMENT, Announcement},
};
use scenarios::{
    capsule::Capsule,
    catalogue,
    checker::{CheckError, Checked, Status, check},
    fact::{FACT, Fact},
    runner::{Choices, Provenance, play, spec, write_folder},
};
use serde_json::Value;
use sim::{NodeId, Recording, history};
use std::{fs, path::Path, sync::LazyLock};
use tempfile::TempDir;

/// One entry of a history.
#[derive(Clone, Debug)]
pub struct Told {
    pub time_ns: u64,
    pub node: u32,
    pub incarnation: u32,
    pub what: What,
}

/// What it tells.
#[derive(Clone, Debug)]
pub enum What {
    Ledger(Announcement, Option<Frame>),
    Fact(Fact),
    Other(u16, Vec<u8>),
}

/// A folder's files, whole and in parts.
#[derive(Clone, Debug)]
pub struct Folder {
    pub capsule: String,
    pub history: Vec<u8>,
    pub log: String,
    pub result: Value,
}

/// Records a run of a scenario, and reads its folder.
pub fn recorded(scenario: &str, seed: u64, bugs: &[&str]) -> Folder {
    let bugs = bugs.iter().map(|name| kernel::planted::Bug::named(name).expect("a planted bug")).collect();
    recorded_as(scenario, seed, Choices { bugs, ..Choices::default() })
}

/// The same of a run that was chosen otherwise.
pub fn recorded_as(scenario: &str, seed: u64, choices: Choices) -> Folder {
    let scenario = catalogue::find(scenario).expect("shipped");
    let choices = Choices { recording: Recording::Full, ..choices };
    let spec = spec(&scenario, seed, &choices).expect("a spec");
    let run = play(&spec).expect("playable");
    let above = TempDir::new().expect("a folder");
    let folder = above.path().join("run");
    write_folder(&folder, &spec, &run, &Provenance::default()).expect("writable");
    Folder::read(&folder)
}

/// A run that has something for every rule that its scenario can have, found once.
pub static SOUND: LazyLock<Folder> = LazyLock::new(|| {
    let fits = |folder: &Folder| {
        let log = &folder.log;
        let needed = ["\"Released\"", "\"Deposed\"", "\"Expired\"", "\"failed\"", "\"NoSlot\""];
        let some = |figure: &str, more_than: u64| folder.result["figures"][figure].as_u64() > Some(more_than);
        let seen = some("calls_repeated", 0) && some("ledger_opens", 1) && some("lease_takeovers", 0);
        seen && needed.into_iter().all(|event| log.contains(event)) && folder.verdict() == "pass"
    };
    (0..60).map(|seed| recorded("fleet", seed, &[])).find(fits).expect("one of sixty fleets has all of it")
});

impl Folder {
    pub fn read(folder: &Path) -> Folder {
        let text = |name: &str| fs::read_to_string(folder.join(name)).expect("a file of the folder");
        Folder {
            capsule: text("capsule.toml"),
            history: fs::read(folder.join("history.log")).expect("a file of the folder"),
            log: text("events.jsonl"),
            result: serde_json::from_str(&text("result.json")).expect("JSON"),
        }
    }

    pub fn verdict(&self) -> &str {
        self.result["verdict"].as_str().expect("a verdict")
    }

    /// Puts the files down and has them checked.
    pub fn check(&self) -> Result<Checked, CheckError> {
        let folder = TempDir::new().expect("a folder");
        let put = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).expect("writable");
        put("capsule.toml", self.capsule.as_bytes());
        put("history.log", &self.history);
        put("events.jsonl", self.log.as_bytes());
        put("result.json", self.result.to_string().as_bytes());
        check(folder.path())
    }

    /// The names of the rules that are broken.
    pub fn broken(&self) -> Vec<&'static str> {
        let checked = self.check().expect("it can be checked");
        checked.checks.iter().filter(|check| check.status == Status::Failed).map(|check| check.name).collect()
    }

    /// Edits the log line by line.
    pub fn lines(&mut self, edit: impl FnOnce(&mut Vec<String>)) {
        let mut lines: Vec<String> = self.log.lines().map(str::to_owned).collect();
        edit(&mut lines);
        self.log = lines.join("\n") + "\n";
    }

    /// Takes the history apart.
    pub fn told(&self) -> Vec<Told> {
        let told = |entry: sim::Entry<'_>| {
            let what = match entry.kind {
                FACT => What::Fact(Fact::read(entry.data).expect("a fact")),
                ANNOUNCEMENT => {
                    let told: Announcement = postcard::from_bytes(entry.data).expect("an announcement");
                    let frame = match &told {
                        Announcement::Committed { frame, .. } => frame.as_ref(),
                        Announcement::Opened { last_frame, .. } => last_frame.as_ref(),
                        Announcement::Broke { .. } => None,
                    };
                    let frame = frame.map(|bytes| postcard::from_bytes(bytes).expect("a frame"));
                    What::Ledger(told, frame)
                }
                kind => What::Other(kind, entry.data.to_vec()),
            };
            Told { time_ns: entry.time_ns, node: entry.node.0, incarnation: entry.incarnation, what }
        };
        history::read(&self.history).map(|entry| told(entry.expect("a sound history"))).collect()
    }

    /// Puts a history together, and makes everything fit it that can be made to: frames chained anew, the log written from
    /// them, openings at the chain they were left at, hashes of history, result and capsule.
    pub fn retell(&mut self, mut told: Vec<Told>) {
        let (mut chain, mut log, mut next_seq) = (GENESIS_CHAIN, Vec::new(), 0);
        for entry in &mut told {
            let What::Ledger(told, frame) = &mut entry.what else { continue };
            for record in frame.iter_mut().flat_map(|frame| &mut frame.records) {
                if record.seq < next_seq {
                    *record = Record::clone(&log[record.seq as usize]);
                    continue;
                }
                seal(record, &mut chain);
                next_seq = record.seq + 1;
                log.push(record.clone());
            }
            let bytes = frame.as_ref().map(|frame| postcard::to_stdvec(frame).expect("a frame"));
            match told {
                Announcement::Committed { frame, .. } => *frame = bytes,
                Announcement::Opened { last_frame, chain: opened, .. } => (*last_frame, *opened) = (bytes, chain),
                Announcement::Broke { .. } => {}
            }
        }
        self.log = log.iter().map(|record| line(record) + "\n").collect();
        self.history.clear();
        for Told { time_ns, node, incarnation, what } in &told {
            let (kind, data) = match what {
                What::Fact(fact) => (FACT, postcard::to_stdvec(fact).expect("a fact")),
                What::Ledger(told, _) => (ANNOUNCEMENT, postcard::to_stdvec(told).expect("an announcement")),
                What::Other(kind, data) => (*kind, data.clone()),
            };
            let (node, incarnation) = (NodeId(*node), *incarnation);
            let entry = sim::Entry { time_ns: *time_ns, node, incarnation, kind, data: &data };
            let bytes = postcard::to_stdvec(&entry).expect("an entry");
            self.history.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
            self.history.extend_from_slice(&bytes);
        }
        self.result["history_entries"] = told.len().into();
        self.rehash();
    }

    /// Makes the hashes of the history fit it, in the result and in the capsule.
    pub fn rehash(&mut self) {
        let hash = blake3::hash(&self.history).to_hex().to_string();
        let blocks: Vec<String> =
            self.history.chunks(1 << 20).map(|block| blake3::hash(block).to_hex().to_string()).collect();
        self.result["history_hash"] = hash.clone().into();
        self.result["history_blocks"] = blocks.into();
        self.recapsule(|capsule| capsule.history_hash = hash);
    }

    /// Edits the capsule, and makes its digest fit.
    pub fn recapsule(&mut self, edit: impl FnOnce(&mut Capsule)) {
        let mut capsule = Capsule::from_toml(&self.capsule).expect("a capsule");
        edit(&mut capsule);
        self.capsule = capsule.to_toml().expect("writable");
    }

    /// Edits the first announcement that `edit` says it edited, with its frame.
    pub fn ledger(&mut self, mut edit: impl FnMut(&mut Announcement, &mut Option<Frame>) -> bool) {
        let mut told = self.told();
        let done = told.iter_mut().any(|entry| match &mut entry.what {
            What::Ledger(told, frame) => edit(told, frame),
            _ => false,
        });
        assert!(done, "nothing was there to be edited");
        self.retell(told);
    }

    /// Edits the first fact that `edit` says it edited.
    pub fn facts(&mut self, mut edit: impl FnMut(&mut Fact) -> bool) {
        let mut told = self.told();
        let done = told.iter_mut().any(|entry| match &mut entry.what {
            What::Fact(fact) => edit(fact),
            _ => false,
        });
        assert!(done, "nothing was there to be edited");
        self.retell(told);
    }

    /// Edits the first reply that `edit` says it edited.
    pub fn replies(&mut self, mut edit: impl FnMut(&mut Reply) -> bool) {
        self.ledger(|told, _| match told {
            Announcement::Committed { replies, .. } => replies.iter_mut().any(&mut edit),
            _ => false,
        });
    }
}

/// Makes a record's hashes fit what it says.
pub fn seal(record: &mut Record, chain: &mut [u8; 32]) {
    let Record { seq, schema, tenant, class, time, origin, ref event, .. } = *record;
    let body: (_, _, _, _, _, _, &Event) = (seq, schema, tenant, class, time, origin, event);
    record.content = *blake3::hash(&postcard::to_stdvec(&body).expect("a record")).as_bytes();
    *chain = *blake3::Hasher::new().update(&chain[..]).update(&record.content).finalize().as_bytes();
    record.chain = *chain;
}

/// A record as a line of the log.
pub fn line(record: &Record) -> String {
    let mut line = serde_json::to_value(record).expect("JSON");
    for (field, hash) in [("content", record.content), ("chain", record.chain)] {
        line[field] = blake3::Hash::from_bytes(hash).to_hex().as_str().into();
    }
    line.to_string()
}
