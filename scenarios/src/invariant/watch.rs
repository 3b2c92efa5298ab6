//! Decodes the history once and feeds the chosen invariants in order.

use super::{Broken, EndedAttempt, Invariant, Moment, Rest, Saw, all, budget::CapsHold, named};
use crate::{
    fact::{FACT, Fact},
    maps::Lookup,
    panicking::{Whose, caught},
};
use kernel::{
    id::{ClientId, ReservationId, RunId, TenantId, UnitId},
    record::{Event, Frame, GENESIS_CHAIN, Record},
    run,
    serve::{ANNOUNCEMENT, Announcement, BUSY},
};
use sim::{Entry, NodeId, history::kind};

/// The name under which an entry that cannot be read is reported.
pub const READABLE_HISTORY: &str = "readable-history";

/// There is no such invariant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no invariant {name}; `list` names them all")]
pub struct UnknownInvariant {
    /// The name asked for.
    pub name: String,
}

/// An entry as it was read: what a [`Moment`] is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sight {
    /// A node booted.
    Up,
    /// A node went down.
    Down,
    /// An announcement with every record of its frame (of an opening: of its last frame).
    Ledger(Announcement, Vec<Record>),
    /// A fact.
    Fact(Fact),
    /// The ledger turned a request away.
    TurnedAway {
        /// Whose.
        client: ClientId,
        /// Of which incarnation.
        incarnation: u32,
        /// Which.
        number: u64,
    },
    /// An entry that says nothing to invariants, such as a fault.
    Other,
}

/// Reads an entry; the error says what cannot be read.
pub fn decode(entry: &Entry<'_>) -> Result<Sight, String> {
    match entry.kind {
        kind::UP => Ok(Sight::Up),
        kind::DOWN => Ok(Sight::Down),
        FACT => whole(entry.data).map(Sight::Fact).map_err(|why| format!("a fact cannot be read: {why}")),
        ANNOUNCEMENT => {
            let announcement: Announcement =
                whole(entry.data).map_err(|why| format!("an announcement cannot be read: {why}"))?;
            let records = records_of(&announcement)?;
            Ok(Sight::Ledger(announcement, records))
        }
        BUSY => {
            let (client, incarnation, number) =
                whole(entry.data).map_err(|why| format!("a request that was turned away cannot be read: {why}"))?;
            Ok(Sight::TurnedAway { client, incarnation, number })
        }
        _ => Ok(Sight::Other),
    }
}

/// Decodes all of `bytes`: what is left over would be something nobody looked at.
fn whole<'a, T: serde::Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, String> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        Ok((_, left)) => Err(format!("{} bytes are left over", left.len())),
        Err(why) => Err(why.to_string()),
    }
}

fn records_of(announcement: &Announcement) -> Result<Vec<Record>, String> {
    let bytes = match announcement {
        Announcement::Opened { last_frame, .. } => last_frame,
        Announcement::Committed { submitted, replies, frame, .. } => {
            if submitted.len() != replies.len() {
                return Err(format!("{} requests were given {} replies", submitted.len(), replies.len()));
            }
            frame
        }
        Announcement::Broke { .. } => return Ok(Vec::new()),
    };
    let Some(bytes) = bytes else { return Ok(Vec::new()) };
    let frame: Frame = whole(bytes).map_err(|why| format!("a frame cannot be read: {why}"))?;
    if frame.records.is_empty() {
        return Err("a frame holds no record".into());
    }
    if let Some(record) = frame.records.iter().find(|record| record.time != frame.time) {
        return Err(format!("record {} is of {} in a frame of {}", record.seq, record.time, frame.time));
    }
    Ok(frame.records)
}

/// Attempts that are running, with their reservations.
#[derive(Debug, Default)]
struct Running(Lookup<(TenantId, RunId, UnitId, u32), ReservationId>);

impl Running {
    /// Takes in a record; gives the attempt that it ends.
    fn fold(&mut self, record: &Record) -> Option<EndedAttempt> {
        match record.event {
            Event::Run(run::Event::AttemptStarted { run, unit, attempt, reservation }) => {
                self.0.insert((record.tenant, run, unit, attempt), reservation);
                None
            }
            Event::Run(run::Event::AttemptEnded { run, unit, attempt, state }) => {
                let reservation = self.0.remove(&(record.tenant, run, unit, attempt))?;
                Some(EndedAttempt { seq: record.seq, reservation, state })
            }
            _ => None,
        }
    }
}

/// An invariant that was chosen; the one that also counts overspends for the figures is held by the watch itself.
enum Chosen {
    Caps,
    Other(Box<dyn Invariant>),
}

/// Watches a run: takes every entry as it is made, and the run at rest; keeps what was broken first.
pub struct Watch {
    chosen: Vec<Chosen>,
    caps: CapsHold,
    /// The sequence after the last record told of.
    told: u64,
    running: Running,
    /// Attempts that the records at hand end.
    ended: Vec<EndedAttempt>,
    /// Entries of the history so far, those that say nothing included.
    entries: u64,
    /// The last time of the run.
    now_ns: u64,
    broken: Option<Broken>,
}

impl Watch {
    /// Watches these.
    pub fn new(invariants: Vec<Box<dyn Invariant>>) -> Watch {
        let caps = CapsHold::default();
        let chosen = invariants
            .into_iter()
            .map(|invariant| if invariant.name() == caps.name() { Chosen::Caps } else { Chosen::Other(invariant) })
            .collect();
        Watch {
            chosen,
            caps,
            told: 0,
            running: Running::default(),
            ended: Vec::new(),
            entries: 0,
            now_ns: 0,
            broken: None,
        }
    }

    /// Watches all there are.
    pub fn everything() -> Watch {
        Watch::new(all())
    }

    /// Watches those of these names, in this order.
    pub fn these<S: AsRef<str>>(names: &[S]) -> Result<Watch, UnknownInvariant> {
        let find = |name: &S| named(name.as_ref()).ok_or_else(|| UnknownInvariant { name: name.as_ref().to_owned() });
        Ok(Watch::new(names.iter().map(find).collect::<Result<_, _>>()?))
    }

    /// Takes in the next entry of the history.
    pub fn take(&mut self, entry: &Entry<'_>) {
        self.entries += 1;
        self.now_ns = entry.time_ns;
        match decode(entry) {
            Ok(sight) => self.take_in(entry.node, entry.incarnation, &sight),
            Err(message) => self.keep(READABLE_HISTORY, message),
        }
    }

    /// Counts the next entry of the history, which says nothing to invariants.
    pub fn skip(&mut self) {
        self.entries += 1;
    }

    /// Takes in the next entry of the history, already decoded.
    pub fn take_decoded(&mut self, entry: &Entry<'_>, sight: &Sight) {
        self.entries += 1;
        self.now_ns = entry.time_ns;
        self.take_in(entry.node, entry.incarnation, sight);
    }

    fn take_in(&mut self, node: NodeId, incarnation: u32, sight: &Sight) {
        match sight {
            Sight::Up => self.feed(node, incarnation, Saw::Up),
            Sight::Down => self.feed(node, incarnation, Saw::Down),
            Sight::Fact(fact) => self.feed(node, incarnation, Saw::Fact(fact)),
            Sight::TurnedAway { client, incarnation: of, number } => {
                let (client, number) = (*client, *number);
                self.feed(node, incarnation, Saw::TurnedAway { client, incarnation: *of, number });
            }
            Sight::Ledger(announcement, records) => {
                let known = match announcement {
                    Announcement::Opened { .. } => records.iter().take_while(|record| record.seq < self.told).count(),
                    _ => 0,
                };
                self.feed(node, incarnation, Saw::Ledger(announcement, &records[known..]));
            }
            Sight::Other => {}
        }
    }

    /// Looks at the run at rest. Reading the log is one more opening: what was durable and never announced is told first.
    pub fn at_rest(&mut self, rest: &Rest<'_>) {
        let last = rest.log.records().next_back();
        let opened = Announcement::Opened {
            next_seq: last.as_ref().map_or(0, |record| record.seq.saturating_add(1)),
            chain: last.map_or(GENESIS_CHAIN, |record| record.chain),
            last_frame: None,
        };
        let untold = rest.log.records_from(self.told);
        self.feed(crate::cast::LEDGER, u32::MAX, Saw::Ledger(&opened, &untold));
        for index in 0..self.chosen.len() {
            if self.broken.is_some() {
                return;
            }
            let Watch { chosen, caps, .. } = self;
            let (name, looked) = match &mut chosen[index] {
                Chosen::Caps => (caps.name(), caught(|| caps.at_rest(rest))),
                Chosen::Other(invariant) => (invariant.name(), caught(|| invariant.at_rest(rest))),
            };
            match looked {
                Ok(Ok(())) => {}
                Ok(Err(message)) => self.keep(name, message),
                Err(panic) => {
                    self.keep(Whose::Invariant.name(), format!("{name}, asked about the run at rest, {panic}"))
                }
            }
        }
    }

    /// What was broken first.
    pub fn broken(&self) -> Option<&Broken> {
        self.broken.as_ref()
    }

    /// Admitted reserves that passed a cap in force, counted to the end whatever was broken before.
    pub fn overspends(&self) -> u64 {
        self.caps.overspends()
    }

    /// Once something is broken only overspends are counted on: what follows from a broken moment explains nothing.
    fn feed(&mut self, node: NodeId, incarnation: u32, saw: Saw<'_>) {
        let mut ended = std::mem::take(&mut self.ended);
        if let Saw::Ledger(_, records) = saw {
            ended.clear();
            ended.extend(records.iter().filter_map(|record| self.running.fold(record)));
        }
        let moment = Moment { time_ns: self.now_ns, node, incarnation, saw, ended: &ended };
        self.show(&moment);
        self.ended = ended;
    }

    fn show(&mut self, moment: &Moment<'_>) {
        let mut caps = Some(caught(|| self.caps.at(moment)));
        if let Saw::Ledger(_, [.., last]) = moment.saw {
            self.told = self.told.max(last.seq.saturating_add(1));
        }
        for index in 0..self.chosen.len() {
            if self.broken.is_some() {
                return;
            }
            let (name, held) = match &mut self.chosen[index] {
                Chosen::Caps => (self.caps.name(), caps.take().unwrap_or(Ok(Ok(())))),
                Chosen::Other(invariant) => (invariant.name(), caught(|| invariant.at(moment))),
            };
            match held {
                Ok(Ok(())) => {}
                Ok(Err(message)) => self.keep(name, message),
                Err(panic) => {
                    let message = format!("{name}, asked about entry {} of the history, {panic}", self.entries);
                    self.keep(Whose::Invariant.name(), message);
                }
            }
        }
    }

    fn keep(&mut self, invariant: &str, message: String) {
        if self.broken.is_none() {
            self.broken = Some(Broken { invariant: invariant.to_owned(), message, time_ns: self.now_ns });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::taken, *};

    fn entry(kind: u16, data: &[u8]) -> Entry<'_> {
        Entry { time_ns: 77, node: NodeId(4), incarnation: 1, kind, data }
    }

    #[test]
    fn an_entry_that_cannot_be_read_is_broken_history() {
        let torn_frame = Announcement::Opened { next_seq: 1, chain: GENESIS_CHAIN, last_frame: Some(vec![1, 2, 3]) };
        let unpaired = Announcement::Committed {
            now_ns: 0,
            submitted: vec![],
            replies: vec![kernel::request::Reply::Busy],
            frame: None,
        };
        let empty = Frame { time: kernel::id::LedgerTime(1), records: vec![] };
        let hollow =
            Announcement::Opened { next_seq: 0, chain: GENESIS_CHAIN, last_frame: postcard::to_allocvec(&empty).ok() };
        let bytes = |announcement: &Announcement| postcard::to_allocvec(announcement).unwrap();
        let mut trailing = bytes(&Announcement::Broke { why: "no".into() });
        trailing.push(0);
        for (case, kind, data) in [
            ("no fact", FACT, vec![250]),
            ("no announcement", ANNOUNCEMENT, vec![]),
            ("torn frame", ANNOUNCEMENT, bytes(&torn_frame)),
            ("unpaired replies", ANNOUNCEMENT, bytes(&unpaired)),
            ("hollow frame", ANNOUNCEMENT, bytes(&hollow)),
            ("left over", ANNOUNCEMENT, trailing),
        ] {
            let mut watch = Watch::new(Vec::new());
            watch.take(&entry(kind, &data));
            let broken = watch.broken().unwrap_or_else(|| panic!("{case} passes"));
            assert_eq!((broken.invariant.as_str(), broken.time_ns), (READABLE_HISTORY, 77), "{case}");
        }
        let mut watch = Watch::everything();
        for kind in [kind::UP, kind::DOWN, kind::FAULT, kind::CLOSE] {
            watch.take(&entry(kind, b"anything"));
        }
        assert_eq!(watch.broken(), None);
    }

    /// One that asks for a key which is not there.
    #[derive(Debug)]
    struct Careless {
        at_rest: bool,
    }

    impl Invariant for Careless {
        fn name(&self) -> &'static str {
            "careless"
        }

        fn states(&self) -> &'static str {
            "nothing: it panics"
        }

        fn at(&mut self, moment: &Moment<'_>) -> Result<(), String> {
            let none: &[u32] = &[];
            if !self.at_rest && matches!(moment.saw, Saw::Down) {
                assert_eq!(none[moment.node.0 as usize], 0);
            }
            Ok(())
        }

        fn at_rest(&mut self, _: &Rest<'_>) -> Result<(), String> {
            if self.at_rest { panic!("no rest for the wicked") } else { Ok(()) }
        }
    }

    #[test]
    fn an_invariant_that_panics_is_named_with_the_entry_it_was_asked_about_and_the_place() {
        let mut watch = Watch::new(vec![Box::new(Careless { at_rest: false })]);
        watch.take(&entry(kind::UP, b""));
        watch.skip();
        watch.take(&entry(kind::DOWN, b""));
        let broken = watch.broken().expect("a panic is a failure").clone();
        assert_eq!((broken.invariant.as_str(), broken.time_ns), ("invariant-panic", 77));
        for part in
            ["careless, asked about entry 3 of the history", "scenarios/src/invariant/watch.rs:", "the len is 0"]
        {
            assert!(broken.message.contains(part), "{part}: {}", broken.message);
        }
        let mut watch = Watch::new(vec![Box::new(Careless { at_rest: true })]);
        watch.at_rest(&Rest { log: &super::super::WholeLog::default(), opened: &[], rebuilt: &[], converged: true });
        let broken = watch.broken().expect("a panic is a failure");
        for part in ["careless, asked about the run at rest", "no rest for the wicked"] {
            assert!(broken.message.contains(part), "{part}: {}", broken.message);
        }
    }

    #[test]
    fn a_name_is_taken_by_the_one_before_and_by_what_is_reported_without_being_an_invariant() {
        assert_eq!(taken(&all()), None);
        let mut twice = all();
        twice.push(Box::<CapsHold>::default());
        assert_eq!(taken(&twice), Some("caps-hold"));

        #[derive(Debug)]
        struct Named(&'static str);
        impl Invariant for Named {
            fn name(&self) -> &'static str {
                self.0
            }
            fn states(&self) -> &'static str {
                "nothing"
            }
            fn at(&mut self, _: &Moment<'_>) -> Result<(), String> {
                Ok(())
            }
            fn at_rest(&mut self, _: &Rest<'_>) -> Result<(), String> {
                Ok(())
            }
        }
        for (name, expect) in [("few-calls", None), ("kernel-panic", Some("kernel-panic"))] {
            assert_eq!(taken(&[Box::new(Named(name))]), expect);
        }
    }

    #[test]
    fn every_invariant_is_found_by_its_name_and_no_other_is() {
        let names: Vec<&str> = all().iter().map(|invariant| invariant.name()).collect();
        let mut distinct = names.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), names.len());
        for name in &names {
            assert!(named(name).is_some_and(|found| found.name() == *name && !found.states().is_empty()), "{name}");
        }
        assert!(Watch::these(&names).is_ok());
        assert_eq!(Watch::these(&["nothing"]).err(), Some(UnknownInvariant { name: "nothing".into() }));
    }
}
