//! The history entry by entry: what it tells is held against the log, and folded in the order in which it came to pass.

use super::{
    answers::{self, Before},
    budget::Budget,
    calls::Calls,
    ceilings::Ceilings,
    commands,
    effects::Effects,
    figures::Tally,
    files::{Capsule, Sizes},
    findings::{Findings, Place, Rule},
    log::{Log, check_content},
    requests::{Part, Requests, parts},
    runs::Runs,
    tables::Tables,
    told::{
        self, ANNOUNCEMENT, Announcement, BUSY, CLOSE, Command, DIRECTOR, DOWN, Entry, FACT, FAULT, Fact, GARBAGE,
        Reply, Stats,
    },
    told::{Submitted, UP},
    turns::{self, Turns},
    wire::{Budgeted, Event, Frame, Hash, Lock, Outcome, Ran, Record, short},
    writers::Writers,
};
use std::collections::{BTreeMap, BTreeSet};

/// What the last entry says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Closing {
    pub stats: Stats,
    pub time_ns: u64,
}

/// The reckoning of a run, as far as it was told.
#[derive(Debug)]
pub(super) struct Story<'a> {
    log: &'a Log<'a>,
    agents: u32,
    /// Nodes after the agents': of clients that break rules on purpose, and of second processes.
    trespassers: u32,
    /// Nodes before those of second processes: the ledger, the provider, the owner, the agents, the trespassers and the edge.
    others: u32,
    started_twice: u32,
    /// The capsule's list: of each run its user and its units.
    work: BTreeMap<u64, (u32, BTreeSet<u64>)>,
    pub budget: Budget,
    pub writers: Writers,
    turns: Turns,
    pub runs: Runs,
    pub effects: Effects,
    pub calls: Calls,
    pub ceilings: Ceilings,
    pub requests: Requests,
    pub tally: Tally,
    /// The sequence after the last record told of, the chain there, and the highest ledger time.
    told: (u64, Hash, u64),
    /// The writer's first reading since the ledger was opened, and the ledger time it stands for.
    base: Option<(u64, u64)>,
    /// Each node's incarnation, and whether it is up.
    nodes: BTreeMap<u32, (u32, bool)>,
    time_ns: u64,
    /// When a node last noted something.
    noted_ns: u64,
    /// Entries read.
    pub entries: u64,
    pub closing: Option<Closing>,
    opened: bool,
}

impl<'a> Story<'a> {
    /// Before anything happened.
    pub(super) fn new(log: &'a Log<'a>, capsule: &'a Capsule) -> Story<'a> {
        let mut work: BTreeMap<u64, (u32, BTreeSet<u64>)> = BTreeMap::new();
        for item in capsule.work.agents.iter().flatten() {
            let units = &mut work.entry(item.run).or_insert_with(|| (item.user, BTreeSet::new())).1;
            units.extend(item.units.iter().map(|[unit, ..]| *unit));
        }
        let Sizes { agents, trespassers, .. } = capsule.scenario.sizes;
        let edges = u32::from(capsule.scenario.edge.is_some());
        let others = 3_u32.saturating_add(agents).saturating_add(trespassers).saturating_add(edges);
        Story {
            log,
            agents,
            trespassers,
            others,
            started_twice: capsule.plan.started_twice(),
            work,
            budget: Budget::default(),
            writers: Writers::default(),
            turns: Turns::default(),
            runs: Runs::default(),
            effects: Effects::default(),
            calls: Calls::of(capsule.scenario.provider.price),
            ceilings: Ceilings::of(capsule, others.saturating_sub(u32::from(capsule.scenario.edge.is_some()))),
            requests: Requests::default(),
            tally: Tally::default(),
            told: (0, [0; 32], 0),
            base: None,
            nodes: BTreeMap::new(),
            time_ns: 0,
            noted_ns: 0,
            entries: 0,
            closing: None,
            opened: false,
        }
    }

    /// Reads a whole history.
    pub(super) fn read(&mut self, bytes: &[u8], found: &mut Findings) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let place = Place::History { entry: self.entries };
            let body = rest.split_first_chunk::<4>().and_then(|(length, after)| {
                let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
                Some((after.get(..length)?, &after[length..]))
            });
            let Some((body, after)) = body else {
                let at = bytes.len() - rest.len();
                found.broken(
                    Rule::Entries,
                    place,
                    format!("the history ends inside the entry at byte {at}: it was cut off"),
                );
                break;
            };
            rest = after;
            self.entries += 1;
            found.looked(Rule::Entries, 1);
            match told::whole::<Entry<'_>>(body) {
                Ok(entry) => self.entry(&entry, place, found),
                Err(why) => found.broken(Rule::Entries, place, format!("it cannot be read: {why}")),
            }
        }
        let last = Place::History { entry: self.entries.saturating_sub(1) };
        if !bytes.is_empty() && self.closing.is_none() {
            found.broken(Rule::Entries, last, "it is the last, and does not close the run: the end is missing");
        }
    }

    fn entry(&mut self, entry: &Entry<'_>, place: Place, found: &mut Findings) {
        let Entry { time_ns, node, incarnation, kind, data } = *entry;
        if time_ns < self.time_ns {
            found.broken(Rule::Entries, place, format!("it is of {time_ns} ns, after one of {} ns", self.time_ns));
        }
        if self.closing.is_some() {
            found.broken(Rule::Entries, place, "it comes after the one that closes the run");
        }
        let nodes = self.others.saturating_add(self.started_twice);
        if node != DIRECTOR && node >= nodes {
            found.broken(Rule::Entries, place, format!("there is no node {node} in a cast of {} agents", self.agents));
        }
        self.time_ns = self.time_ns.max(time_ns);
        if matches!(kind, FACT | ANNOUNCEMENT) {
            self.noted_ns = time_ns;
        }
        self.presence(entry, place, found);
        self.tally.entry(kind, time_ns);
        let read = match kind {
            UP | FAULT | GARBAGE => Ok(()),
            BUSY => told::whole::<turns::Name>(data).map(|name| self.turns.leaves(name)),
            DOWN => {
                self.tally.down(node, data);
                self.calls.down((node, incarnation));
                Ok(())
            }
            CLOSE => {
                told::whole::<(Stats, u64)>(data).map(|(stats, _)| self.closing = Some(Closing { stats, time_ns }))
            }
            FACT => told::whole::<Fact>(data).map(|fact| self.fact((node, incarnation), &fact, place, found)),
            ANNOUNCEMENT => {
                told::whole::<Announcement>(data).and_then(|announcement| self.announced(announcement, place, found))
            }
            kind => Err(format!(
                "kind {kind} is not known to this build; use the build that wrote it, or teach the checker the kind"
            )),
        };
        if let Err(why) = read {
            found.broken(Rule::Entries, place, format!("an entry of kind {kind} cannot be read: {why}"));
        }
    }

    /// Whether who notes something is up, as the incarnation that it says it is.
    fn presence(&mut self, entry: &Entry<'_>, place: Place, found: &mut Findings) {
        let Entry { node, incarnation, kind, .. } = *entry;
        if node == DIRECTOR {
            return;
        }
        let before = self.nodes.get(&node).copied();
        let fits = match (kind, before) {
            (UP, None) => true,
            (UP, Some((last, is_up))) => !is_up && incarnation > last,
            (_, Some((last, is_up))) => is_up && incarnation == last,
            (_, None) => false,
        };
        if !fits {
            let complaint =
                format!("node {node}.{incarnation} notes kind {kind}, and was (incarnation, up) {before:?}");
            found.broken(Rule::Entries, place, complaint);
        }
        self.nodes.insert(node, (incarnation, kind != DOWN));
    }

    fn fact(&mut self, sender: (u32, u32), fact: &Fact, place: Place, found: &mut Findings) {
        self.tally.fact(fact);
        self.calls.fact(sender, fact, place, found);
        self.ceilings.fact(sender, fact, self.time_ns, place, found);
        match *fact {
            Fact::Holds { lock, executor, fence } | Fact::LetGo { lock, executor, fence } => {
                self.writers.holds(lock, executor, fence, place, found)
            }
            Fact::ActedOn { client, incarnation, number, seq } => {
                self.requests.acted((client, incarnation, number), seq, self.told.0, place, found);
            }
            Fact::CallSent { tenant, run, key, fence, .. } => {
                self.writers.call((tenant, run), key, fence, place, found);
            }
            Fact::RunOver { tenant, run, ending, .. } => self.runs.over(tenant, run, ending, place, found),
            _ => {}
        }
    }

    fn announced(&mut self, announcement: Announcement, place: Place, found: &mut Findings) -> Result<(), String> {
        match announcement {
            Announcement::Opened { next_seq, chain, last_frame } => {
                let records = frame_of(last_frame.as_deref())?;
                self.opened(next_seq, chain, &records, place, found);
            }
            Announcement::Committed { now_ns, submitted, replies, frame } => {
                if submitted.len() != replies.len() {
                    return Err(format!("{} requests were given {} replies", submitted.len(), replies.len()));
                }
                let records = frame_of(frame.as_deref())?;
                self.committed(now_ns, &submitted, &replies, &records, place, found);
            }
            Announcement::Broke { why } => {
                found.must(Rule::Head, place, false, || format!("the ledger broke: {}", why.escape_debug()));
            }
        }
        self.writers.announced(self.time_ns);
        Ok(())
    }

    fn opened(&mut self, next_seq: u64, chain: Hash, records: &[Record], place: Place, found: &mut Findings) {
        self.opened = true;
        self.turns.opened();
        self.tally.opens += 1;
        let told = self.told.0;
        let fresh = &records[records.partition_point(|record| record.seq < told)..];
        found.must(Rule::Announced, place, next_seq == told.saturating_add(fresh.len() as u64), || {
            format!(
                "the ledger opens with the records below {next_seq}; announced were those below {told}, and its last frame tells of {} more",
                fresh.len()
            )
        });
        if let Some(last) = fresh.last() {
            self.writers.time_passes(last.time, self.time_ns, place, found);
        }
        self.effects.frame_begins();
        for record in fresh {
            self.hold(record, place, found);
            self.fold(record, self.log.place(record.seq), found);
        }
        self.runs.frame_ends(found);
        let own = self.told.1;
        found.must(Rule::Head, place, own == chain, || {
            format!("the ledger opens at record {next_seq} with chain {}, not {}", short(&chain), short(&own))
        });
        self.base = None;
    }

    fn committed(
        &mut self,
        now_ns: u64,
        submitted: &[Submitted],
        replies: &[Reply],
        records: &[Record],
        place: Place,
        found: &mut Findings,
    ) {
        let highest = self.told.2;
        let (first_ns, base) = *self.base.get_or_insert((now_ns, highest));
        let time = highest.max(base.saturating_add(now_ns.saturating_sub(first_ns)));
        self.tally.committed(submitted, replies, !records.is_empty());
        if let Some(last) = records.last() {
            found.must(Rule::LedgerTime, place, last.time == time, || {
                format!("record {} is of ledger time {}; at the writer's {now_ns} ns it is {time}", last.seq, last.time)
            });
            self.writers.time_passes(last.time, self.time_ns, place, found);
        }
        records.iter().for_each(|record| self.hold(record, place, found));
        self.effects.frame_begins();
        let (parts, left) = parts(submitted, replies, records);
        for part in parts {
            self.part(&part, time, now_ns, place, found);
        }
        self.turns.batch_ends();
        for record in left {
            let complaint = format!("record {} comes of no request: {:?}", record.seq, record.event);
            found.broken(Rule::Commands, place, complaint);
            self.fold(record, self.log.place(record.seq), found);
        }
        self.runs.frame_ends(found);
    }

    /// One request of a batch: judged by what was known before it, then folded, command by command.
    fn part(&mut self, part: &Part<'_>, time: u64, now_ns: u64, place: Place, found: &mut Findings) {
        let request = &part.asked.request;
        let mut left = part.made;
        self.writers.turn(part.asked, now_ns, part.made, place, found);
        self.turns.part(part.asked, part.reply, part.made, now_ns, place, found);
        if let Some(outcomes) = part.admitted() {
            found.looked(Rule::Commands, 1);
            if outcomes.len() != request.commands.len() {
                let complaint =
                    format!("{request} of {} commands has {} outcomes", request.commands.len(), outcomes.len());
                found.broken(Rule::Commands, place, complaint);
            }
            let mut events = part.events();
            for (command, outcome) in request.commands.iter().zip(outcomes) {
                let Some(count) = self.command(command, outcome, events, part, (time, now_ns), place, found) else {
                    break;
                };
                (events, left) = (&events[count..], &left[count..]);
            }
            if let Some(record) = events.first() {
                let complaint =
                    format!("{request} made record {}: {:?}, which its commands do not say", record.seq, record.event);
                found.broken(Rule::Commands, place, complaint);
            }
        } else {
            let Story { budget, runs, writers, effects, .. } = &*self;
            let judged = answers::judged(part, &Before { budget, runs, writers, effects, time, now_ns });
            if let Some(judged) = judged {
                found.must(Rule::Answers, place, judged.is_ok(), || judged.err().unwrap_or_default());
            }
        }
        for record in left {
            self.fold(record, self.log.place(record.seq), found);
        }
        self.requests.answered(request, part.reply, part.made, place, found);
    }

    /// One command of an admitted request: how many records it made, which are folded; `None` if it made something else.
    #[expect(clippy::too_many_arguments, reason = "a command, what came of it, and where and when")]
    fn command(
        &mut self,
        command: &Command,
        outcome: &Outcome,
        events: &[Record],
        part: &Part<'_>,
        (time, now_ns): (u64, u64),
        place: Place,
        found: &mut Findings,
    ) -> Option<usize> {
        let request = &part.asked.request;
        let lock_of = |id| self.budget.reservation(id).map(|row| Lock::Run(row.tenant, row.run));
        self.writers.admitted(request, command, lock_of, place, found);
        let Story { budget, runs, writers, effects, .. } = &*self;
        let before = Before { budget, runs, writers, effects, time, now_ns };
        if !request.is_own() {
            let against = answers::against(command, part.asked, &before);
            found.must(Rule::Answers, place, against.is_none(), || {
                format!("{request} is admitted with {command:?}; due is {against:?}")
            });
        }
        let count = commands::made(command, outcome, events, part, &before);
        let Some(made) = count.and_then(|count| events.get(..count)) else {
            let complaint =
                format!("{request} is admitted with {command:?} and answered {outcome:?}; recorded is something else");
            found.broken(Rule::Commands, place, complaint);
            return None;
        };
        for record in made {
            self.fold(record, self.log.place(record.seq), found);
        }
        count
    }

    /// A record as it is told for the first time, against the log.
    fn hold(&mut self, record: &Record, place: Place, found: &mut Findings) {
        let (told, _, highest) = self.told;
        check_content(record, place, found);
        let held = self.log.holds(record);
        let in_order = record.seq == told;
        found.must(Rule::Announced, place, in_order && held.is_ok(), || {
            held.err().unwrap_or_else(|| format!("record {} is announced, and {told} is the next", record.seq))
        });
        self.told = (record.seq.saturating_add(1), record.chain, highest.max(record.time));
    }

    fn fold(&mut self, record: &Record, place: Place, found: &mut Findings) {
        self.tally.record(record, self.time_ns);
        self.ceilings.tally(record);
        self.after_tally(record, place, found);
    }

    fn after_tally(&mut self, record: &Record, place: Place, found: &mut Findings) {
        let begun = match record.event {
            Event::Run(Ran::Spawned { run, user, .. }) => Some((run, user, None)),
            Event::Reserve(Budgeted::Reserved { run, user, unit, .. }) => Some((run, user, Some(unit))),
            _ => None,
        };
        if let Some((run, user, unit)) = begun {
            let listed = self
                .work
                .get(&run)
                .is_some_and(|(of, units)| *of == user && unit.is_none_or(|unit| units.contains(&u64::from(unit))));
            // A trespasser's runs are its own affair; they are named after the place it has behind the agents.
            let places = u64::from(self.agents)..u64::from(self.agents) + u64::from(self.trespassers);
            found.must(Rule::Work, place, listed || places.contains(&(run >> 32)), || {
                format!(
                    "record {} begins run {run}, unit {unit:?}, for user {user}; the capsule has no such work",
                    record.seq
                )
            });
        }
        self.budget.record(record, place, found);
        self.writers.record(record, self.time_ns, place, found);
        self.runs.record(record, place, found);
        self.effects.record(record, place, found);
        self.calls.record(record, place, found);
        self.ceilings.record(record, place, found);
        self.requests.record(record, place, found);
    }

    /// What the log holds beyond what was told: durable, and never announced. Figures do not count it.
    pub(super) fn untold(&mut self, found: &mut Findings) -> u64 {
        let (told, chain, mut highest) = self.told;
        let mut untold = 0;
        self.effects.frame_begins();
        let (mut time, mut last) = (None, (told, chain));
        for (record, place) in self.log.from(told) {
            untold += 1;
            let frame_time = *time.get_or_insert(record.time);
            if self.opened && record.time != frame_time {
                let complaint = format!(
                    "record {} was never announced, nor was one of another frame before it; one frame may be on its way, not two",
                    record.seq
                );
                found.broken(Rule::Announced, place, complaint);
            }
            last = (record.seq.saturating_add(1), record.chain);
            highest = highest.max(record.time);
            self.after_tally(&record, place, found);
        }
        self.runs.frame_ends(found);
        self.told = (last.0, last.1, highest);
        if self.opened {
            let head = self.log.head();
            found.must(Rule::Head, self.log.place(last.0.saturating_sub(1)), head == last, || {
                format!("the log ends below record {}, and announced were those below {}", head.0, last.0)
            });
        }
        untold
    }

    /// Whether nobody noted anything in the run's last moments: it was not stopped at what somebody noted.
    pub(super) fn ended_idle(&self) -> bool {
        self.closing.is_some_and(|closing| closing.time_ns > self.noted_ns)
    }

    /// The ledger's tables as the whole log gives them.
    pub(super) fn tables(&self) -> Tables {
        let mut tables = Tables::new();
        let (next_seq, chain, time) = self.told;
        if next_seq > 0 {
            tables.row(1, 0u32, (next_seq, chain, time));
        }
        self.runs.tables(&mut tables);
        self.writers.tables(&mut tables);
        self.requests.tables(&mut tables);
        self.budget.tables(&mut tables);
        self.effects.tables(&mut tables);
        tables
    }

    /// Ends: what must have come to rest has.
    pub(super) fn at_rest(&self, found: &mut Findings) {
        let place = self.log.place(self.told.0.saturating_sub(1));
        self.budget.at_rest(place, found);
        self.runs.at_rest(place, found);
        self.calls.at_rest(place, found);
    }
}

fn frame_of(bytes: Option<&[u8]>) -> Result<Vec<Record>, String> {
    let Some(bytes) = bytes else { return Ok(Vec::new()) };
    let frame: Frame = told::whole(bytes).map_err(|why| {
        format!("a frame cannot be read: {why}; if it holds a kind of event that is newer than this build, use the build that wrote it")
    })?;
    if frame.records.is_empty() {
        return Err("a frame holds no record".into());
    }
    if let Some(record) = frame.records.iter().find(|record| record.time != frame.time) {
        return Err(format!("record {} is of {} in a frame of {}", record.seq, record.time, frame.time));
    }
    Ok(frame.records)
}
