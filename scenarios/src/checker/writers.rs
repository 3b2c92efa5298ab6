//! Locks, worked out anew: one holder, rising fences, terms that no clock fault shortens, and who believes what.

use super::{
    findings::{Findings, Place, Rule},
    tables::Tables,
    told::{Authority, Command, EffectCommand, LeaseCommand, Request, ReserveCommand, RunCommand, Submitted},
    wire::{Budgeted, Event, Leased, Lock, Ran, Record},
};
use std::collections::{BTreeMap, BTreeSet};

/// The fastest an oscillator may run against true time; half of it is the slowest.
const FASTEST: u64 = 2;

/// What rounding between clocks may amount to, in nanoseconds.
const SLACK_NS: u64 = 1_000;

/// A grant in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grant {
    pub executor: u64,
    client: u64,
    pub fence: u64,
    pub until: u64,
    /// Ledger time of the grant or its last extension, and a true time it was not decided before.
    since: (u64, u64),
}

#[derive(Debug, Default)]
struct Standing {
    highest: u64,
    grant: Option<Grant>,
    /// Every grant there was: fence and executor, in the order of the fences.
    all: Vec<(u64, u64)>,
}

/// The reckoning so far.
#[derive(Debug, Default)]
pub(super) struct Writers {
    locks: BTreeMap<Lock, Standing>,
    /// Locks of runs that are suspended.
    suspended: BTreeSet<Lock>,
    /// Reservations made under a fence that was no longer the highest: theirs, and the highest then.
    late: BTreeMap<u64, (u64, u64)>,
    /// The highest ledger time, and a true time it was not decided before.
    highest: (u64, u64),
    /// True time of the last announcement.
    announced_ns: u64,
}

impl Writers {
    /// Folds a record told of at `true_ns`.
    pub(super) fn record(&mut self, record: &Record, true_ns: u64, place: Place, found: &mut Findings) {
        match record.event {
            Event::Lease(event) => self.leased(record, event, true_ns, place, found),
            Event::Run(Ran::Spawned { .. }) => {}
            Event::Run(Ran::Resumed { run } | Ran::Cancelled { run, .. }) => {
                self.suspended.remove(&Lock::Run(record.tenant, run));
            }
            Event::Run(event) => {
                let Some(origin) = record.origin else { return };
                let lock = Lock::Run(record.tenant, event.run());
                if let Ran::Suspended { .. } = event {
                    self.suspended.insert(lock);
                }
                let row = self.locks.entry(lock).or_default();
                let holder = row.grant.map(|grant| (grant.executor, grant.fence));
                found.must(Rule::OneWriter, place, holder == Some((origin.executor, origin.fence)), || {
                    format!(
                        "record {} of run {} is written by executor {} under fence {}; the grant in force is {holder:?}",
                        record.seq, origin.run, origin.executor, origin.fence
                    )
                });
                if let Ran::AttemptStarted { reservation, .. } = event
                    && origin.fence < row.highest
                {
                    self.late.insert(reservation, (origin.fence, row.highest));
                }
            }
            _ => {}
        }
    }

    fn leased(&mut self, record: &Record, event: Leased, true_ns: u64, place: Place, found: &mut Findings) {
        let (seq, time, since) = (record.seq, record.time, (record.time, self.announced_ns));
        match event {
            Leased::Granted { lock, executor, client, fence, until } => {
                let suspended = self.suspended.contains(&lock);
                let row = self.locks.entry(lock).or_default();
                let free = row.grant.is_none() && fence > row.highest && executor != 0 && !suspended;
                found.must(Rule::OneWriter, place, free, || {
                    format!(
                        "record {seq} grants {lock} to executor {executor} under fence {fence}; in force is {:?}, {} was the highest \
                         fence, and its run suspended: {suspended}",
                        row.grant, row.highest
                    )
                });
                found.must(Rule::LeaseTerms, place, until > time, || {
                    format!("record {seq} grants {lock} until {until}, and it is {time}")
                });
                row.highest = row.highest.max(fence);
                row.grant = Some(Grant { executor, client, fence, until, since });
                row.all.push((fence, executor));
            }
            Leased::Renewed { lock, fence, until } => {
                let row = self.locks.entry(lock).or_default();
                let Some(grant) = current(row, lock, seq, "renews", fence, place, found) else { return };
                found.must(Rule::LeaseTerms, place, until >= grant.until, || {
                    format!("record {seq} renews {lock} until {until}; it was held until {}", grant.until)
                });
                row.grant = Some(Grant { until, since, ..grant });
            }
            Leased::Yielded { lock, fence } => {
                let row = self.locks.entry(lock).or_default();
                current(row, lock, seq, "yields", fence, place, found);
                row.grant = None;
            }
            Leased::Expired { lock, fence } => {
                let row = self.locks.entry(lock).or_default();
                let grant = current(row, lock, seq, "expires", fence, place, found);
                row.grant = None;
                let Some(grant) = grant else { return };
                let passed_ns = true_ns.saturating_sub(grant.since.1).saturating_add(SLACK_NS);
                let least_ns = grant.until.saturating_sub(grant.since.0) / FASTEST;
                found.must(Rule::LeaseTerms, place, time > grant.until && passed_ns >= least_ns, || {
                    format!(
                        "record {seq} expires {lock} at ledger time {time}, which was held until {}, at most {passed_ns} ns of true \
                         time after it was extended; no oscillator passes its term in less than {least_ns} ns",
                        grant.until
                    )
                });
            }
        }
    }

    /// Ledger time against true time, at an announcement; then what it told of is folded, and [`Writers::announced`] ends it.
    pub(super) fn time_passes(&mut self, time: u64, true_ns: u64, place: Place, found: &mut Findings) {
        let (highest, since_ns) = self.highest;
        let true_passed = true_ns.saturating_sub(since_ns);
        let most_ns = true_passed.saturating_mul(FASTEST).saturating_add(SLACK_NS);
        let passed_ns = time.saturating_sub(highest);
        found.must(Rule::LeaseTerms, place, passed_ns <= most_ns, || {
            format!(
                "ledger time goes from {highest} to {time}, by {passed_ns} ns, within {true_passed} ns of true time"
            )
        });
        if time >= highest {
            self.highest = (time, self.announced_ns);
        }
    }

    /// Ends an announcement.
    pub(super) fn announced(&mut self, true_ns: u64) {
        self.announced_ns = true_ns;
    }

    /// A waiter that is given its turn is given it within its own term.
    pub(super) fn turn(&self, asked: &Submitted, now_ns: u64, made: &[Record], place: Place, found: &mut Findings) {
        let request = &asked.request;
        if request.wait_ns == 0 {
            return;
        }
        let turn = made.iter().find(|record| {
            matches!(record.event, Event::Lease(Leased::Granted { .. }) | Event::Reserve(Budgeted::Reserved { .. }))
        });
        let Some(turn) = turn else { return };
        found.must(Rule::LeaseTerms, place, now_ns <= asked.waits_until_ns, || {
            format!(
                "record {} gives {request} its turn at {now_ns} ns of the writer's clock; its own term had ended at {}",
                turn.seq, asked.waits_until_ns
            )
        });
    }

    /// What an admitted command needs, against the grants in force before it. `lock_of` is a reservation's run.
    pub(super) fn admitted(
        &self,
        request: &Request,
        command: &Command,
        lock_of: impl Fn(u64) -> Option<Lock>,
        place: Place,
        found: &mut Findings,
    ) {
        if request.is_own() {
            return;
        }
        let needed = match *command {
            Command::Lease(LeaseCommand::Renew { held, .. } | LeaseCommand::Yield { held }) => {
                return self.under(Some(held), held.lock, request, place, found);
            }
            Command::Lease(_) | Command::Run(RunCommand::Spawn { .. }) => return,
            Command::Run(
                RunCommand::EndAttempt { run, .. }
                | RunCommand::End { run, .. }
                | RunCommand::Queue { run, .. }
                | RunCommand::Suspend { run },
            )
            | Command::Effect(EffectCommand::Begin { run, .. })
            | Command::Reserve(ReserveCommand::Reserve { run, .. }) => Lock::Run(request.tenant, run),
            Command::Effect(
                EffectCommand::Dispatch { intent: reservation } | EffectCommand::Commit { intent: reservation, .. },
            )
            | Command::Reserve(ReserveCommand::Settle { reservation, .. } | ReserveCommand::Release { reservation }) => {
                match lock_of(reservation) {
                    Some(lock) => lock,
                    None => return,
                }
            }
            Command::Admit(_)
            | Command::Reserve(_)
            | Command::Effect(EffectCommand::Register { .. })
            | Command::Run(RunCommand::Resume { .. } | RunCommand::Cancel { .. }) => Lock::Owner,
        };
        self.under(request.authority.filter(|held| held.lock == needed), needed, request, place, found);
    }

    fn under(
        &self,
        held: Option<Authority>,
        needed: Lock,
        who: impl std::fmt::Display,
        place: Place,
        found: &mut Findings,
    ) {
        let grant = self.grant(needed);
        let fits = held.is_some_and(|held| {
            grant.is_some_and(|grant| (held.executor, held.fence) == (grant.executor, grant.fence))
        });
        found.must(Rule::OneWriter, place, fits, || {
            format!("{who} is admitted under {held:?}; it needs {needed}, and in force is {grant:?}")
        });
    }

    /// The grant in force.
    pub(super) fn grant(&self, lock: Lock) -> Option<Grant> {
        self.locks.get(&lock)?.grant
    }

    /// The highest fence that was granted.
    pub(super) fn highest(&self, lock: Lock) -> u64 {
        self.locks.get(&lock).map_or(0, |row| row.highest)
    }

    /// Puts down the rows of the ledger's tables about leases.
    pub(super) fn tables(&self, tables: &mut Tables) {
        for (lock, row) in &self.locks {
            let grant = row.grant.map(|grant| (grant.executor, grant.client, grant.until));
            tables.row(3, (lock.tenant(), lock), (row.highest, grant));
            if let Some(grant) = row.grant {
                tables.row(4, (0u32, grant.until, lock), ());
            }
        }
    }

    fn granted(&self, lock: Lock, fence: u64) -> Option<u64> {
        let all = &self.locks.get(&lock)?.all;
        all.iter().rev().find(|(granted, _)| *granted == fence).map(|(_, executor)| *executor)
    }

    /// Somebody says it acts on a lease.
    pub(super) fn holds(&self, lock: Lock, executor: u64, fence: u64, place: Place, found: &mut Findings) {
        let granted = self.granted(lock, fence);
        found.must(Rule::Believed, place, granted == Some(executor), || {
            format!("executor {executor} acts on {lock} under fence {fence}, which was granted to {granted:?}")
        });
    }

    /// A call leaves under a fence.
    pub(super) fn call(&self, run: (u32, u64), key: u64, fence: u64, place: Place, found: &mut Findings) {
        let known = self.granted(Lock::Run(run.0, run.1), fence).is_some();
        let late = self.late.get(&key);
        found.must(Rule::Believed, place, known && late.is_none(), || match late {
            Some((under, highest)) => {
                format!(
                    "call {key} of run {} leaves; it was reserved under fence {under} after {highest} was granted",
                    run.1
                )
            }
            None => format!("call {key} of run {} leaves under fence {fence}, which was never granted", run.1),
        });
    }
}

/// The grant in force, which must be under this fence.
fn current(
    row: &Standing,
    lock: Lock,
    seq: u64,
    what: &str,
    fence: u64,
    place: Place,
    found: &mut Findings,
) -> Option<Grant> {
    let grant = row.grant.filter(|grant| grant.fence == fence);
    found.must(Rule::OneWriter, place, grant.is_some(), || {
        format!("record {seq} {what} {lock} under fence {fence}; in force is {:?}", row.grant)
    });
    grant
}
