//! The single writer: batches of requests become one frame, one durable commit, then replies and notices.
//!
//! A request is decided command by command: each room's `decide` reads the tables, `apply` folds its events at once, and
//! the next command, or the next request, is decided on what that made. A request of several commands that is refused or
//! has to wait takes back what its earlier commands did. Nothing leaves before the store has the frame; when the store
//! fails, memory may be ahead of it, so the ledger is poisoned and must be opened again.

use crate::{
    admit, effect,
    id::{ClientId, LedgerTime, RunId},
    lease::{self, Lock},
    money::MicroUsd,
    planted::Planted,
    prove,
    record::{Draft, Event, Hash, Head, LogError, Verifier},
    request::{
        Answer, Command, Decision, IntentStanding, Notice, Outcome, Query, Reply, Request, RunStanding, Submitted,
        Turn, UnitStanding,
    },
    reserve,
    room::{Case, No, Ruling, Term},
    run,
    store::{Store, StoreError},
    table::{TableHash, Tables},
};

/// The ledger: its tables in memory, its frames in `S`.
#[derive(Debug)]
pub struct Ledger<S: Store> {
    store: S,
    tables: Tables,
    planted: Planted,
    clock: Clock,
    poisoned: bool,
}

/// What a commit gives back: one reply a request, in order, and the notices, all of them true and durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// The replies, in the order of the requests.
    pub replies: Vec<Reply>,
    /// Whose turns have come.
    pub notices: Vec<Notice>,
    /// The frame as stored; `None` if nothing was decided.
    pub frame: Option<Vec<u8>>,
}

/// The ledger broke.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// Its store broke; the ledger is poisoned and must be reopened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Its log makes no sense.
    #[error(transparent)]
    Log(#[from] LogError),
    /// An earlier commit failed.
    #[error("an earlier commit failed; open the ledger again to read what is there")]
    Poisoned,
    /// The tables that a checkpoint gave are not those that its digest was taken of.
    #[error("the checkpoint at {next_seq} does not fit its digest; drop the checkpoint and fold the whole log")]
    CheckpointForged {
        /// The sequence it was taken at.
        next_seq: u64,
    },
}

/// Ledger time from the writer's monotonic clock.
#[derive(Clone, Copy, Debug)]
struct Clock {
    /// The highest ledger time committed when the ledger was opened.
    base: LedgerTime,
    /// The first reading after opening, which is fixed onto `base`: the ledger's downtime does not count.
    first_ns: Option<u64>,
}

impl Clock {
    fn read(&mut self, now_ns: u64) -> LedgerTime {
        let first_ns = *self.first_ns.get_or_insert(now_ns);
        LedgerTime(self.base.0.saturating_add(now_ns.saturating_sub(first_ns)))
    }
}

impl<S: Store> Ledger<S> {
    /// Opens what the store holds: rows as of its checkpoint, and every frame after it folded with `apply`.
    pub fn open(mut store: S, planted: Planted) -> Result<Ledger<S>, LedgerError> {
        let loaded = store.load()?;
        let mut tables = Tables::default();
        let is_bare = loaded.rows.is_empty();
        for row in loaded.rows {
            tables.load(&row).map_err(|what| StoreError::Damaged { what })?;
        }
        tables.effect.index();
        let head = tables.record.head();
        let fits = match loaded.digest {
            Some(digest) => digest == tables.digest_as_loaded() && head.next_seq == loaded.checkpoint,
            None => is_bare && loaded.checkpoint == 0,
        };
        if !fits {
            return Err(LedgerError::CheckpointForged { next_seq: loaded.checkpoint });
        }
        let mut verifier = Verifier::after(head);
        let mut last = None;
        for stored in loaded.frames {
            let first_seq = verifier.head().next_seq;
            last = Some(prove::fold(&mut tables, &mut verifier, &stored.bytes, &planted)?);
            let next_seq = verifier.head().next_seq;
            if (stored.first_seq, stored.next_seq) != (first_seq, next_seq) {
                return Err(LogError::OutOfSequence { expected: next_seq, found: stored.next_seq }.into());
            }
        }
        if let Some(frame) = last {
            effect::lose(&mut tables, &frame.records, &planted);
        }
        let Head { next_seq, time: base, .. } = tables.record.head();
        prove::conserves(&tables, &planted).map_err(|why| LogError::Impossible { seq: next_seq, why: why.0 })?;
        Ok(Ledger { store, tables, planted, clock: Clock { base, first_ns: None }, poisoned: false })
    }

    /// Decides a batch in order, makes it durable as one frame, then answers. `now_ns` is the writer's monotonic clock; the
    /// first reading after opening is fixed onto the highest ledger time committed.
    pub fn commit(&mut self, now_ns: u64, batch: &[Submitted]) -> Result<Committed, LedgerError> {
        if self.poisoned {
            return Err(LedgerError::Poisoned);
        }
        let head = self.tables.record.head();
        let time = self.clock.read(now_ns).max(head.time);
        let mut work = Work { draft: Draft::new(head, time), notices: Vec::new() };
        let replies = batch.iter().map(|submitted| self.answer(submitted, now_ns, time, &mut work)).collect();
        let Work { draft, notices } = work;
        if draft.is_empty() {
            return Ok(Committed { replies, notices, frame: None });
        }
        let frame = draft.finish();
        assert_eq!(frame.next_seq, self.tables.record.head().next_seq, "what was applied is what is stored");
        if let Err(broken) = self.store.commit(&frame) {
            self.poisoned = true;
            return Err(broken.into());
        }
        Ok(Committed { replies, notices, frame: Some(frame.bytes.to_vec()) })
    }

    /// Answers from committed state.
    pub fn query(&self, query: &Query) -> Answer {
        let reserve = &self.tables.reserve;
        match *query {
            Query::Run(tenant, run) => {
                let row = self.tables.run.runs.get(&(tenant, run));
                let standing = |row: &run::Run| {
                    let units = units(&self.tables, tenant, run);
                    RunStanding { state: row.state, suspensions: row.suspensions, units }
                };
                Answer::Run(row.map(standing))
            }
            Query::AwaitsOwner(tenant) => {
                let all = (tenant, crate::id::ReservationId(0))..=(tenant, crate::id::ReservationId(u64::MAX));
                Answer::AwaitsOwner(reserve.awaiting.range(all).map(|((_, id), ())| *id).take(AWAITS_AT_MOST).collect())
            }
            Query::Suspended(tenant) => {
                let all = (tenant, RunId(0))..=(tenant, RunId(u64::MAX));
                let suspended = self.tables.run.suspended.range(all);
                Answer::Suspended(suspended.map(|((_, run), ())| *run).take(AWAITS_AT_MOST).collect())
            }
            Query::Admission(tenant, user) => {
                let admit = &self.tables.admit;
                let day = self.tables.record.head().time.day();
                let (halted, quota) = (admit.halted(tenant), admit.quota(tenant, user));
                Answer::Admission { halted, quota, day, taken: admit.taken(tenant, user, day) }
            }
            Query::Account(account) => {
                let reserve::Sums { settled, live } = reserve.sums(account);
                Answer::Account { settled, live, cap: reserve.cap(account) }
            }
            Query::Head => {
                let Head { next_seq, chain, time } = self.tables.record.head();
                Answer::Head { next_seq, chain, time }
            }
        }
    }

    /// When, on the writer's monotonic clock, a tick is next due: a lease ends. `None` while nothing can expire. Before the
    /// first commit after opening it is due at once, because only a reading tells what ledger time it is.
    pub fn tick_due_ns(&self) -> Option<u64> {
        let until = self.tables.lease.first_end()?;
        let Some(first_ns) = self.clock.first_ns else { return Some(0) };
        // A lease binds up to and including its end, so it is due one nanosecond later.
        let after_base = until.0.saturating_add(1).saturating_sub(self.clock.base.0);
        Some(first_ns.saturating_add(after_base))
    }

    /// The next sequence and the chain so far.
    pub fn head(&self) -> (u64, Hash) {
        let Head { next_seq, chain, .. } = self.tables.record.head();
        (next_seq, chain)
    }

    /// Saves the rows changed since the last checkpoint.
    pub fn checkpoint(&mut self) -> Result<(), LedgerError> {
        if self.poisoned {
            return Err(LedgerError::Poisoned);
        }
        let next_seq = self.tables.record.head().next_seq;
        let (changed, digest) = self.tables.save();
        if let Err(broken) = self.store.checkpoint(next_seq, &changed, digest) {
            self.poisoned = true; // the rows count as saved, and may not be
            return Err(broken.into());
        }
        Ok(())
    }

    /// One hash a table, by its stable number, over all of its rows.
    pub fn table_hashes(&self) -> Vec<(u16, Hash)> {
        self.tables.hashes().into_iter().map(|table| (table.number, table.hash)).collect()
    }

    /// Every table's number, name, number of rows and hash.
    pub fn tables(&self) -> Vec<TableHash> {
        self.tables.hashes()
    }

    /// The store, for whoever reads the log or opens it again.
    pub fn into_store(self) -> S {
        self.store
    }

    /// The last frame as stored, `None` of an empty log: the one frame that may be durable and never announced.
    pub fn last_frame(&mut self) -> Result<Option<Vec<u8>>, LedgerError> {
        let Some(last_seq) = self.head().0.checked_sub(1) else { return Ok(None) };
        Ok(self.store.log(last_seq)?.pop().map(|frame| frame.bytes.to_vec()))
    }

    /// Decides one request and records its decision.
    fn answer(&mut self, submitted: &Submitted, now_ns: u64, time: LedgerTime, work: &mut Work) -> Reply {
        let request = &submitted.request;
        let own = request.client == ClientId::LEDGER;
        if !own && let Some(reply) = effect::decide(&self.tables, request, &self.planted) {
            return reply;
        }
        let planted = self.planted.clone();
        let case = Case::new(submitted, now_ns, time, work.draft.first_seq(), &planted);
        let outcome = match self.attempt(&case, request, work) {
            Ok(outcomes) => Ok(outcomes),
            Err(No::Refused(refusal)) => {
                admit::leak(&mut self.tables, &case, &request.commands);
                work.notices.extend(self.turns_passed_on(&case, &request.commands));
                Err(refusal)
            }
            Err(No::Waits(turn)) => return Reply::Waits(turn),
        };
        if !own {
            let decided = Event::Effect(effect::decided(request, outcome.clone()));
            self.append(&case, decided, work);
        }
        let seq = self.tables.record.head().next_seq.saturating_sub(1);
        Reply::Decided(Decision { seq, outcome })
    }

    /// Applies all of a request's commands, or none.
    fn attempt(&mut self, case: &Case<'_>, request: &Request, work: &mut Work) -> Result<Vec<Outcome>, No> {
        let own = case.client == ClientId::LEDGER;
        if own && !request.commands.iter().all(|command| is_own(case, command)) {
            return Err(lease::Refusal::NoAuthority { needed: Lock::Owner }.into());
        }
        if !own {
            effect::admit(request).map_err(|refusal| No::Refused(refusal.into()))?;
        }
        // A lone command is decided before anything is applied, and no agreement can refuse it but a settle's or a release's.
        let one_way = matches!(
            request.commands[..],
            [Command::Admit(_)
                | Command::Lease(_)
                | Command::Run(_)
                | Command::Effect(_)
                | Command::Reserve(reserve::Command::Reserve { .. })]
        );
        if one_way {
            return self.all(case, &request.commands, work);
        }
        let (mark, turns) = (work.draft.mark(), work.notices.len());
        self.tables.begin();
        let outcomes = self.all(case, &request.commands, work).and_then(|outcomes| {
            run::agree(&self.tables, case.tenant, &request.commands)?;
            Ok(outcomes)
        });
        if outcomes.is_ok() {
            self.tables.keep();
        } else {
            self.tables.take_back();
            work.draft.cut(mark);
            work.notices.truncate(turns);
        }
        outcomes
    }

    /// Decides and applies commands in order, up to the first that is not admitted.
    fn all(&mut self, case: &Case<'_>, commands: &[Command], work: &mut Work) -> Result<Vec<Outcome>, No> {
        let mut outcomes = Vec::with_capacity(commands.len());
        for command in commands {
            admit::admit(&self.tables, case, command)?;
            let Ruling { events, outcome, notices } = match command {
                Command::Admit(command) => admit::decide(&self.tables, case, command),
                Command::Lease(command) => lease::decide(&self.tables, case, command),
                Command::Reserve(command) => reserve::decide(&self.tables, case, command),
                Command::Run(command) => run::decide(&self.tables, case, command),
                Command::Effect(command) => effect::intent::decide(&self.tables, case, command),
            }?;
            for event in events {
                self.append(case, event, work);
            }
            work.notices.extend(notices);
            outcomes.push(outcome);
        }
        Ok(outcomes)
    }

    /// Records an event and folds it.
    fn append(&mut self, case: &Case<'_>, event: Event, work: &mut Work) {
        let tenant = event.tenant(case.tenant);
        let origin = self.tables.record.origin(tenant, &event, case.authority);
        let class = event.class();
        let record = match work.draft.append(self.tables.record.head(), tenant, (class, origin), event) {
            Ok(record) => record,
            Err(wrong) => panic!("decide made an event that cannot be appended: {wrong}"),
        };
        if let Err(impossible) = self.tables.apply(&record, &self.planted) {
            panic!("decide made a record that cannot follow: {}\n{record:?}", impossible.0);
        }
    }

    /// A request that was given its turn and is refused does not take it: the turn is the next waiter's.
    fn turns_passed_on(&self, case: &Case<'_>, commands: &[Command]) -> Vec<Notice> {
        if case.term == Term::None {
            return Vec::new();
        }
        let slot = |run| {
            let user = self.tables.run.runs.get(&(case.tenant, run))?.user;
            let (live, slots) = self.tables.reserve.slots(case.tenant, user);
            (live < slots).then_some(Turn::Slot(case.tenant, user))
        };
        let turns = |command: &Command| match *command {
            Command::Lease(lease::Command::Acquire { lock, .. }) => {
                let is_free =
                    self.tables.lease.standing(lock).grant.is_none() && !run::is_suspended(&self.tables, lock);
                [is_free.then_some(Turn::Lock(lock)), None]
            }
            Command::Reserve(reserve::Command::Reserve { run, .. }) => [slot(run), None],
            Command::Effect(effect::Command::Begin { run, ref effect, .. }) => {
                [slot(run), effect::turn_passed_on(&self.tables, case.tenant, effect)]
            }
            Command::Admit(_) | Command::Lease(_) | Command::Reserve(_) | Command::Run(_) | Command::Effect(_) => {
                [None, None]
            }
        };
        commands.iter().flat_map(turns).flatten().map(Notice::TurnCame).collect()
    }
}

/// The most that one [`Query::AwaitsOwner`] or [`Query::Suspended`] gives.
const AWAITS_AT_MOST: usize = 1000;

/// What one batch makes.
struct Work {
    draft: Draft,
    notices: Vec<Notice>,
}

/// Whether the ledger itself may send the command.
fn is_own(case: &Case<'_>, command: &Command) -> bool {
    match command {
        Command::Admit(_) => case.genesis,
        Command::Lease(command) => *command == lease::Command::Tick,
        Command::Reserve(command) => {
            use reserve::Command::{SetCap, SetPrice, SetSlots};
            case.genesis && matches!(command, SetCap { .. } | SetSlots { .. } | SetPrice(_))
        }
        Command::Effect(command) => case.genesis && matches!(command, effect::Command::Register { .. }),
        Command::Run(_) => false,
    }
}

/// The latest attempt of each unit of a run.
fn units(tables: &Tables, tenant: crate::id::TenantId, run: crate::id::RunId) -> Vec<UnitStanding> {
    let mut units: Vec<UnitStanding> = Vec::new();
    for (unit, attempt, row) in tables.run.attempts_of(tenant, run) {
        let reservation = row.reservation;
        let reserved = reservation.and_then(|reservation| tables.reserve.reservations.get(&(tenant, reservation)));
        let (open, worst) = reserved.map_or((false, MicroUsd::ZERO), |row| (row.close.is_none(), row.worst));
        let intent = reservation.and_then(|intent| tables.effect.intents.get(&(tenant, intent)));
        let intent = intent.map(|row| IntentStanding { class: row.class, phase: row.phase });
        let standing = UnitStanding { unit, attempt, state: row.state, reservation, open, worst, intent };
        match units.last_mut().filter(|last| last.unit == unit) {
            Some(last) => *last = standing,
            None => units.push(standing),
        }
    }
    units
}
