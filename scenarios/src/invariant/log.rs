//! The log itself: dense, chained, durable, and enough to rebuild every table from.

use super::{Invariant, Moment, Rest, Saw};
use crate::{fact::Fact, maps::Lookup};
use kernel::{
    id::{BranchId, ExecutorId, Fence, LedgerTime, RunId, TenantId},
    record::{Class, Event, GENESIS_CHAIN, Hash, Record, SCHEMA},
    run,
    serve::Announcement,
};
use std::collections::BTreeMap;

/// A record's content hash by the documented rule: blake3 over the postcard encoding of every field but the two hashes.
/// `scratch` is room to encode in.
pub(crate) fn content_of(record: &Record, scratch: &mut Vec<u8>) -> Hash {
    let fields = (record.seq, record.schema, record.tenant, record.class, record.time, record.origin, &record.event);
    loop {
        match postcard::to_slice(&fields, scratch) {
            Ok(bytes) => return *blake3::hash(bytes).as_bytes(),
            Err(_) => scratch.resize((scratch.len() * 2).max(256), 0),
        }
    }
}

/// The chain after a record of this content.
pub(crate) fn chain_after(chain: &Hash, content: &Hash) -> Hash {
    let mut both = [0; 64];
    both[..32].copy_from_slice(chain);
    both[32..].copy_from_slice(content);
    *blake3::hash(&both).as_bytes()
}

/// A hash's first bytes, for messages.
fn short(hash: &Hash) -> String {
    hash[..4].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `dense`: sequences, LSNs, both hashes, classes and ledger time are as documented in every record announced.
#[derive(Debug, Default)]
pub struct Dense {
    next_seq: u64,
    chain: Hash,
    time: LedgerTime,
    next_lsn: Lookup<(TenantId, RunId, BranchId), u64>,
    scratch: Vec<u8>,
}

impl Dense {
    fn fold(&mut self, record: &Record) -> Result<(), String> {
        let seq = record.seq;
        if seq != self.next_seq {
            return Err(format!("record {seq} stands where {} should", self.next_seq));
        }
        self.next_seq += 1;
        if record.schema != SCHEMA {
            return Err(format!("record {seq} is of schema {}, and {SCHEMA} is written", record.schema));
        }
        if record.time < self.time {
            return Err(format!("record {seq} is of ledger time {}, after {}", record.time, self.time));
        }
        self.time = record.time;
        let content = content_of(record, &mut self.scratch);
        if content != record.content {
            let (found, right) = (short(&record.content), short(&content));
            return Err(format!("record {seq} carries content hash {found}…, and its fields give {right}…"));
        }
        let chain = chain_after(&self.chain, &content);
        if chain != record.chain {
            let (found, right) = (short(&record.chain), short(&chain));
            return Err(format!("record {seq} carries chain {found}…, and the chain before it gives {right}…"));
        }
        self.chain = chain;
        let class = match record.event {
            Event::Run(run::Event::Resumed { .. } | run::Event::Cancelled { .. }) => Class::Scarce,
            Event::Run(_) => Class::Sequenced,
            Event::Admit(_) | Event::Lease(_) | Event::Effect(_) | Event::Reserve(_) => Class::Scarce,
        };
        if record.class != class {
            return Err(format!("record {seq} is of class {:?}, and its event is {class:?}", record.class));
        }
        self.place(record)
    }

    /// Where a sequenced record stands in its run.
    fn place(&mut self, record: &Record) -> Result<(), String> {
        let seq = record.seq;
        let (Event::Run(event), Class::Sequenced) = (&record.event, record.class) else {
            return match record.origin {
                None => Ok(()),
                Some(origin) => Err(format!("record {seq} is not sequenced, and has the origin {origin:?}")),
            };
        };
        let Some(origin) = record.origin else { return Err(format!("record {seq} is sequenced and has no origin")) };
        let (run, spawns) = match *event {
            run::Event::Spawned { run, .. } => (run, true),
            run::Event::AttemptStarted { run, .. }
            | run::Event::AttemptEnded { run, .. }
            | run::Event::AttemptQueued { run, .. }
            | run::Event::Recalled { run, .. }
            | run::Event::Suspended { run }
            | run::Event::Resumed { run }
            | run::Event::Cancelled { run, .. }
            | run::Event::Ended { run, .. } => (run, false),
        };
        if origin.run != run {
            return Err(format!("record {seq} is about run {run}, and stands in run {}", origin.run));
        }
        let next = self.next_lsn.row((record.tenant, run, origin.branch));
        if origin.lsn != *next {
            return Err(format!(
                "record {seq} has LSN {} in (tenant {}, run {run}, branch {}); the next is {next}",
                origin.lsn, record.tenant, origin.branch
            ));
        }
        if spawns != (origin.lsn == 0 && origin.branch == BranchId(0)) {
            return Err(format!("record {seq} has LSN 0, or spawns run {run}, but not both"));
        }
        let under_no_lease = (origin.executor, origin.fence) == (ExecutorId(0), Fence(0));
        if spawns && !under_no_lease || !spawns && origin.fence == Fence(0) {
            return Err(format!(
                "record {seq} of run {run} is written by executor {} under fence {}; only a spawn needs no lease",
                origin.executor, origin.fence
            ));
        }
        *next += 1;
        Ok(())
    }
}

impl Invariant for Dense {
    fn name(&self) -> &'static str {
        "dense"
    }

    fn states(&self) -> &'static str {
        "sequences and LSNs are dense, hashes and chain are right, ledger time never goes back"
    }

    fn at(&mut self, moment: &Moment<'_>) -> Result<(), String> {
        let Saw::Ledger(announcement, records) = moment.saw else { return Ok(()) };
        if let (Announcement::Committed { .. }, Some(first)) = (announcement, records.first())
            && let Some(other) = records.iter().find(|record| record.time != first.time)
        {
            return Err(format!("records {} and {} of one frame differ in ledger time", first.seq, other.seq));
        }
        records.iter().try_for_each(|record| self.fold(record))
    }
}

/// `durable`: what was acted on had been announced as durable, and what was announced is there after every opening and at rest.
#[derive(Debug)]
pub struct Durable {
    next_seq: u64,
    chain: Hash,
    /// The beginning of each announced record's content hash, by sequence: enough to name the first that differs. That none does
    /// is the chain's to say.
    contents: Vec<u32>,
    scratch: Vec<u8>,
}

impl Default for Durable {
    fn default() -> Durable {
        Durable { next_seq: 0, chain: GENESIS_CHAIN, contents: Vec::new(), scratch: Vec::new() }
    }
}

/// The first four bytes of a hash.
fn beginning(hash: &Hash) -> u32 {
    hash[..4].iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte))
}

impl Durable {
    fn fold(&mut self, records: &[Record]) {
        for record in records {
            self.contents.push(beginning(&record.content));
            self.next_seq = record.seq.saturating_add(1);
            self.chain = record.chain;
        }
    }
}

impl Invariant for Durable {
    fn name(&self) -> &'static str {
        "durable"
    }

    fn states(&self) -> &'static str {
        "nothing is acted on before it is durable, and nothing durable is missing after a kill, a cut, or at rest"
    }

    fn at(&mut self, moment: &Moment<'_>) -> Result<(), String> {
        match moment.saw {
            Saw::Fact(Fact::ActedOn { client, incarnation, number, seq }) if *seq >= self.next_seq => Err(format!(
                "client {client}.{incarnation} acts on the answer to its request {number}, decided by record {seq}; durable \
                 are the records below {}",
                self.next_seq
            )),
            Saw::Ledger(Announcement::Committed { .. }, records) => {
                self.fold(records);
                Ok(())
            }
            Saw::Ledger(Announcement::Opened { next_seq, chain, .. }, records) => {
                if *next_seq < self.next_seq {
                    return Err(format!(
                        "the ledger opens with the records below {next_seq}; announced were those below {}",
                        self.next_seq
                    ));
                }
                if *next_seq != self.next_seq.saturating_add(records.len() as u64) {
                    return Err(format!(
                        "the ledger opens with the records below {next_seq}; announced were those below {}, its last frame \
                         tells of {} more, and more than one frame cannot have been on its way",
                        self.next_seq,
                        records.len()
                    ));
                }
                self.fold(records);
                if *chain != self.chain {
                    let (found, right) = (short(chain), short(&self.chain));
                    return Err(format!("the ledger opens at record {next_seq} with chain {found}…, not {right}…"));
                }
                Ok(())
            }
            Saw::Ledger(Announcement::Broke { why }, _) => Err(format!("the ledger broke: {why}")),
            _ => Ok(()),
        }
    }

    fn at_rest(&mut self, rest: &Rest<'_>) -> Result<(), String> {
        if rest.log.len() != self.contents.len() {
            let (found, known) = (rest.log.len(), self.contents.len());
            return Err(format!("at rest the log holds {found} records, and {known} were announced"));
        }
        let mut chain = GENESIS_CHAIN;
        for (record, announced) in rest.log.records().zip(&self.contents) {
            let content = content_of(&record, &mut self.scratch);
            chain = chain_after(&chain, &content);
            if beginning(&content) != *announced || chain != record.chain {
                return Err(format!("at rest record {} is not the one that was announced", record.seq));
            }
        }
        if chain != self.chain {
            let (found, right) = (short(&chain), short(&self.chain));
            return Err(format!("at rest the log's chain is {found}…; what was announced has {right}…"));
        }
        Ok(())
    }
}

/// `rebuild`: every table rebuilt from the whole log equals the table that opening gives.
#[derive(Debug, Default)]
pub struct Rebuild;

impl Invariant for Rebuild {
    fn name(&self) -> &'static str {
        "rebuild"
    }

    fn states(&self) -> &'static str {
        "at rest every table rebuilt from the log equals the one that opening gives"
    }

    fn at(&mut self, _: &Moment<'_>) -> Result<(), String> {
        Ok(())
    }

    fn at_rest(&mut self, rest: &Rest<'_>) -> Result<(), String> {
        let opened: BTreeMap<u16, Hash> = rest.opened.iter().copied().collect();
        let mut rebuilt: BTreeMap<u16, Hash> = rest.rebuilt.iter().copied().collect();
        for (table, hash) in &opened {
            match rebuilt.remove(table) {
                Some(other) if other == *hash => {}
                Some(other) => {
                    let (found, right) = (short(hash), short(&other));
                    return Err(format!("table {table} opens as {found}…, and the log rebuilds it as {right}…"));
                }
                None => return Err(format!("table {table} is opened, and no rebuild gives it")),
            }
        }
        match rebuilt.first_key_value() {
            Some((table, _)) => Err(format!("table {table} is rebuilt, and no opening gives it")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::history::*;
    use super::*;
    use kernel::{id::ClientId, record::Origin, run::AttemptState};

    fn legal(name: &str) -> Story {
        let mut story = Story::begun(name);
        story.ledger_ns = 5;
        let first = story.next();
        story.logs(&reserves(first, 1, 40)).opens_with(1).opens_with(2);
        story.logs(&[settled(first), attempt_ended(1, AttemptState::Succeeded)]);
        story.logs_unseen(&[ended()]).opens().rests();
        story
    }

    #[test]
    fn a_legal_history_passes() {
        for name in ["dense", "durable", "rebuild"] {
            legal(name).holds();
        }
    }

    #[test]
    fn every_field_that_is_not_as_documented_is_found() {
        type Change = fn(&mut Record);
        let lsn: Change = |record| record.origin = record.origin.map(|origin| Origin { lsn: origin.lsn + 1, ..origin });
        let unled: Change = |record| record.origin = record.origin.map(|origin| Origin { fence: Fence(0), ..origin });
        let elsewhere: Change = |record| record.origin = record.origin.map(|origin| Origin { run: RunId(1), ..origin });
        let cases: [(&str, Change, bool, &str); 9] = [
            ("a gap", |record| record.seq += 1, false, "stands where 8 should"),
            ("another schema", |record| record.schema += 1, false, "is of schema 2"),
            ("an event changed", |record| record.tenant = TenantId(6), true, "carries content hash"),
            ("a chain broken", |record| record.chain[31] ^= 1, true, "carries chain"),
            ("another class", |record| record.class = Class::Mergeable, false, "is of class Mergeable"),
            ("an LSN skipped", lsn, false, "has LSN 2 in (tenant 1, run 9, branch 0); the next is 1"),
            ("no lease", unled, false, "only a spawn needs no lease"),
            ("another run's place", elsewhere, false, "is about run 9, and stands in run 1"),
            ("no place", |record| record.origin = None, false, "is sequenced and has no origin"),
        ];
        for (case, change, after, message) in cases {
            let mut story = Story::begun("dense");
            story.holds();
            if after {
                story.after_hashing = Some(change);
            } else {
                story.before_hashing = Some(change);
            }
            story.logs(&[ended()]);
            assert!(story.broken().is_some(), "{case} passes");
            story.breaks_by("dense", &[message]);
        }
    }

    #[test]
    fn a_run_begins_with_its_spawn() {
        let mut story = Story::watched_by(&["dense"]);
        story.logs(&[ended()]).breaks_by("dense", &["record 0 has LSN 0, or spawns run 9, but not both"]);
    }

    #[test]
    fn ledger_time_never_goes_back() {
        let mut story = Story::begun("dense");
        story.ledger_ns = 9;
        story.logs(&[yielded(LOCK, 1)]);
        story.ledger_ns = 8;
        story.logs(&[granted(LOCK, 7, 2, 99)]).breaks_by("dense", &["is of ledger time 8, after 9"]);
    }

    fn acts_on(seq: u64) -> Fact {
        Fact::ActedOn { client: ClientId(7), incarnation: 0, number: 1, seq }
    }

    #[test]
    fn acknowledged_is_durable_first() {
        let mut story = Story::begun("durable");
        story.fact(0, acts_on(7)).holds();
        story.fact(0, acts_on(8)).breaks_by("durable", &["decided by record 8; durable are the records below 8"]);
    }

    #[test]
    fn an_opening_brings_back_what_was_announced() {
        let mut story = Story::begun("durable");
        story.log.pop();
        story.opens().breaks_by("durable", &["records below 7; announced were those below 8"]);

        let mut story = Story::begun("durable");
        story.logs_unseen(&[yielded(LOCK, 1)]).opens().holds();
        story.fact(0, acts_on(8)).holds();

        let mut story = Story::begun("durable");
        story.logs_unseen(&[yielded(LOCK, 1), granted(LOCK, 7, 2, 99)]).opens_with(1);
        story.breaks_by("durable", &["more than one frame cannot have been on its way"]);

        let mut story = Story::begun("durable");
        story.log.last_mut().unwrap().chain[0] ^= 1;
        story.opens().breaks_by("durable", &["opens at record 8 with chain"]);

        Story::begun("durable").breaks().breaks_by("durable", &["the disk is gone"]);
    }

    #[test]
    fn at_rest_the_log_is_what_was_announced() {
        let mut story = Story::begun("durable");
        let mut log = story.log.clone();
        log[3].tenant = TenantId(6);
        story.rests_as(&Rest { log: &whole(&log), opened: &[], rebuilt: &[], converged: false });
        story.breaks_by("durable", &["record 3 is not the one that was announced"]);

        let mut story = Story::begun("durable");
        let log = story.log[..7].to_vec();
        story.rests_as(&Rest { log: &whole(&log), opened: &[], rebuilt: &[], converged: false });
        story.breaks_by("durable", &["records below 7"]);
    }

    #[test]
    fn rebuilt_tables_are_the_opened_ones() {
        const ONE: Hash = [1; 32];
        const TWO: Hash = [2; 32];
        type Hashes = &'static [(u16, Hash)];
        let cases: [(Hashes, Hashes, &str); 3] = [
            (&[(1, ONE), (2, ONE)], &[(1, ONE), (2, TWO)], "table 2 opens as 01010101…"),
            (&[(1, ONE)], &[], "table 1 is opened"),
            (&[], &[(4, ONE)], "table 4 is rebuilt"),
        ];
        for (opened, rebuilt, message) in cases {
            let mut story = Story::watched_by(&["rebuild"]);
            story
                .rests_as(&Rest { log: &whole(&[]), opened, rebuilt, converged: false })
                .breaks_by("rebuild", &[message]);
        }
        let same = [(1, ONE), (2, TWO)];
        let mut story = Story::watched_by(&["rebuild"]);
        story.rests_as(&Rest { log: &whole(&[]), opened: &same, rebuilt: &same, converged: false }).holds();
    }
}
