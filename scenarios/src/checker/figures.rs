//! Every number of the result, worked out again from the files, or the reason why the files do not give it.

use super::{
    files::{Capsule, RunResult},
    findings::{Findings, Place, Rule, Status},
    story::Closing,
    told::{DOWN, FAULT, Fact, LEDGER, Reply, Submitted, Turn},
    wire::{
        Admitted, Budgeted, Effected, Ending, Event, HaltReason, LeaseRefusal, Leased, Ran, Record, Refusal,
        ReserveRefusal, Switch,
    },
};
use hdrhistogram::Histogram;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The longest run wall that is told apart, in nanoseconds: a thousand hours.
const LONGEST_WALL_NS: u64 = 3_600_000_000_000_000;

/// A number of the result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Figure {
    /// Its name in `result.json`.
    pub name: String,
    /// What the result says.
    pub stated: Value,
    /// What the files give.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recomputed: Option<Value>,
    /// Whether the two agree.
    pub status: Status,
    /// Why the files do not give it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_derivable: Option<String>,
}

/// What is counted as the history is read.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Openings of the ledger.
    pub opens: u64,
    commits: u64,
    waited: BTreeSet<(u64, u32, u64)>,
    questions_waited: BTreeSet<(u64, u32, u64)>,
    hits: u64,
    resent: u64,
    records: u64,
    admitted: u64,
    served: u64,
    settled: u64,
    last_settled_ns: u64,
    takeovers: u64,
    runs_ended: u64,
    runs_complete: u64,
    runs_halted_by_owner: u64,
    runs_halted_by_key: u64,
    runs_cancelled: u64,
    runs_suspended: u64,
    /// Halts that are on.
    on: BTreeSet<u32>,
    live: BTreeSet<(u32, u64)>,
    /// Calls that are dispatched and have not ended: whose, and whether a halt met them.
    out: BTreeMap<u64, (u32, bool)>,
    halts: u64,
    live_at_halt: u64,
    out_at_halt: u64,
    settled_after_halt: u64,
    invocations_halted: u64,
    over_cap: u64,
    writes_refused: u64,
    refusals: BTreeMap<String, u64>,
    /// Open reservations: what each sets aside, and whether a call left under it.
    open: BTreeMap<u64, (u64, bool)>,
    sent: u64,
    charged: BTreeSet<u64>,
    calls_charged: u64,
    second_charges: u64,
    invoice: u64,
    repeated: u64,
    strays: u64,
    strays_refused: u64,
    walls_ns: Vec<u64>,
    waits_ns: u64,
    kills: u64,
    /// The time of a kill of the ledger's node with nothing but the director's entries after it.
    last_cut: Option<u64>,
}

impl Tally {
    /// Any entry.
    pub(super) fn entry(&mut self, kind: u16, _time_ns: u64) {
        if !matches!(kind, DOWN | FAULT | super::told::CLOSE) {
            self.last_cut = None;
        }
    }

    /// A node went down.
    pub(super) fn down(&mut self, node: u32, how: &[u8]) {
        let by_itself = how.first().is_none_or(|how| *how == 0);
        self.kills += u64::from(!by_itself);
        self.last_cut = (node == LEDGER && how == [2]).then_some(0);
    }

    /// A batch was committed.
    pub(super) fn committed(&mut self, submitted: &[Submitted], replies: &[Reply], wrote: bool) {
        self.commits += u64::from(wrote);
        for (asked, reply) in submitted.iter().zip(replies) {
            let request = &asked.request;
            let name = (request.client, request.incarnation, request.number);
            match reply {
                Reply::Waits(Turn::Slot(..)) => _ = self.waited.insert(name),
                Reply::Waits(Turn::Answer(..)) => _ = self.questions_waited.insert(name),
                _ => {}
            }
        }
    }

    /// A record, the first time it is told.
    pub(super) fn record(&mut self, record: &Record, time_ns: u64) {
        self.records += 1;
        self.halted(record);
        match &record.event {
            Event::Reserve(Budgeted::Reserved { reservation, worst, .. }) => {
                self.admitted += 1;
                self.open.insert(*reservation, (*worst, false));
            }
            Event::Reserve(Budgeted::Settled { reservation, cost, .. }) => {
                self.served += 1;
                self.settled = self.settled.saturating_add(*cost);
                self.last_settled_ns = time_ns;
                self.open.remove(reservation);
            }
            Event::Reserve(Budgeted::Released { reservation, .. }) => {
                self.open.remove(reservation);
            }
            Event::Lease(Leased::Granted { fence, .. }) => self.takeovers += u64::from(*fence > 1),
            Event::Run(Ran::Recalled { .. }) => self.hits += 1,
            Event::Run(Ran::Ended { outcome, .. }) => {
                self.runs_ended += 1;
                self.runs_complete += u64::from(*outcome == Ending::Complete);
                match outcome {
                    Ending::Halted(HaltReason::Owner) => self.runs_halted_by_owner += 1,
                    Ending::Halted(HaltReason::Key) => self.runs_halted_by_key += 1,
                    Ending::Cancelled => self.runs_cancelled += 1,
                    Ending::Complete | Ending::Incomplete => {}
                }
            }
            Event::Run(Ran::Cancelled { running: 0, .. }) => {
                self.runs_ended += 1;
                self.runs_cancelled += 1;
            }
            Event::Run(Ran::Suspended { .. }) => self.runs_suspended += 1,
            Event::Effect(Effected::Decided { outcome: Err(refusal), .. }) => {
                *self.refusals.entry(refusal.kind()).or_default() += 1;
                match refusal {
                    Refusal::Reserve(ReserveRefusal::OverCap { .. }) => self.over_cap += 1,
                    Refusal::Lease(LeaseRefusal::Deposed { .. } | LeaseRefusal::NotHolder { .. }) => {
                        self.writes_refused += 1;
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }

    /// What a halt met, and what it should have stopped.
    fn halted(&mut self, record: &Record) {
        let tenant = record.tenant;
        let is_on = self.on.contains(&tenant) || self.on.contains(&0);
        match record.event {
            Event::Admit(Admitted::HaltSet { tenant: switch, switch: Switch::Halted }) if self.on.insert(switch) => {
                let met = |of: u32| switch == 0 || of == switch;
                self.halts += 1;
                let live = self.live.iter().filter(|(of, _)| met(*of)).count() as u64;
                self.live_at_halt = self.live_at_halt.max(live);
                for (_, is_met) in self.out.values_mut().filter(|(of, is_met)| met(*of) && !*is_met) {
                    *is_met = true;
                    self.out_at_halt += 1;
                }
            }
            Event::Admit(Admitted::HaltSet { tenant: switch, switch: Switch::Open }) => drop(self.on.remove(&switch)),
            Event::Run(Ran::Spawned { run, .. }) => drop(self.live.insert((tenant, run))),
            Event::Run(Ran::Ended { run, .. } | Ran::Cancelled { run, running: 0 }) => {
                self.live.remove(&(tenant, run));
            }
            Event::Reserve(Budgeted::Reserved { .. }) => self.invocations_halted += u64::from(is_on),
            Event::Effect(Effected::Dispatched { intent }) => {
                self.invocations_halted += u64::from(is_on);
                self.out.insert(intent, (tenant, false));
            }
            Event::Reserve(Budgeted::Settled { reservation, by_owner, .. }) => {
                let met = self.out.remove(&reservation).is_some_and(|(_, met)| met);
                self.settled_after_halt += u64::from(met && !by_owner);
            }
            Event::Reserve(Budgeted::Released { reservation, .. }) => drop(self.out.remove(&reservation)),
            _ => {}
        }
    }

    /// A fact.
    pub(super) fn fact(&mut self, fact: &Fact) {
        match *fact {
            Fact::CallSent { key, .. } => {
                self.sent += 1;
                let again = self.open.get_mut(&key).is_none_or(|(_, sent)| std::mem::replace(sent, true));
                self.resent += u64::from(again);
            }
            Fact::Charged { key, cost, .. } => {
                self.calls_charged += 1;
                self.second_charges += u64::from(!self.charged.insert(key));
                self.invoice = self.invoice.saturating_add(cost);
            }
            Fact::StrayCharged { cost, .. } => self.strays = self.strays.saturating_add(cost),
            Fact::StrayRefused { .. } => self.strays_refused += 1,
            Fact::Repeated { .. } => self.repeated += 1,
            Fact::RunOver { wall_ns, ledger_wait_ns, whole: true, .. } => {
                self.walls_ns.push(wall_ns);
                self.waits_ns = self.waits_ns.saturating_add(ledger_wait_ns);
            }
            _ => {}
        }
    }

    /// A quantile of the runs' walls, to the three digits that figures are given to.
    fn wall(&self, quantile: f64) -> Option<Value> {
        let mut walls = Histogram::<u64>::new_with_bounds(1, LONGEST_WALL_NS, 3).ok()?;
        self.walls_ns.iter().for_each(|wall| walls.saturating_record(*wall));
        Some(if walls.is_empty() { Value::Null } else { json!(walls.value_at_quantile(quantile)) })
    }

    /// Kills that struck while the run was played. The last look at a store with a disk cuts the ledger's power once more.
    fn kills(&self, result: &RunResult) -> Given {
        let looked = result.store == "redb" && result.engine == "native" && self.last_cut.is_some();
        match result.verdict.as_str() {
            _ if !looked => Ok(json!(self.kills)),
            "pass" | "liveness" => Ok(json!(self.kills.saturating_sub(1))),
            _ => Err("whether the last power cut was a fault or the last look at the store is not in the files".into()),
        }
    }
}

/// A number that the files give, or why they do not.
type Given = Result<Value, String>;

/// What else figures come from.
pub(super) struct Sources<'a> {
    pub capsule: &'a Capsule,
    pub result: &'a RunResult,
    pub tally: &'a Tally,
    /// How often each ceiling bound.
    pub bound: &'a BTreeMap<&'static str, u64>,
    pub closing: Option<Closing>,
    pub entries: u64,
    /// Admitted reserves that passed a cap, and replies acted on that were not durable.
    pub overspends: u64,
    pub uncommitted: u64,
    /// Records that were durable and never announced.
    pub untold: u64,
}

/// `part` of `whole`, times `times`.
fn per(part: u64, whole: u64, times: u128) -> Value {
    let share = (u128::from(part) * times).checked_div(u128::from(whole)).unwrap_or(0);
    json!(u64::try_from(share).unwrap_or(u64::MAX))
}

impl Sources<'_> {
    /// Every figure that a result has, by name.
    fn figures(&self) -> Vec<(&'static str, Given)> {
        let Sources { tally, .. } = self;
        let open: u64 = tally.open.values().fold(0, |sum, (worst, ..)| sum.saturating_add(*worst));
        let walls: u64 = tally.walls_ns.iter().fold(0, |sum, wall| sum.saturating_add(*wall));
        let overspends = match self.untold {
            0 => Ok(json!(self.overspends)),
            untold => Err(format!("{untold} records were never announced, and may or may not have been counted")),
        };
        let mut figures: Vec<(&'static str, Given)> = vec![
            ("calls_served", Ok(json!(tally.served))),
            ("calls_sent", Ok(json!(tally.sent))),
            ("runs_ended", Ok(json!(tally.runs_ended))),
            ("runs_complete", Ok(json!(tally.runs_complete))),
            ("runs_halted_by_owner", Ok(json!(tally.runs_halted_by_owner))),
            ("runs_halted_by_key", Ok(json!(tally.runs_halted_by_key))),
            ("runs_cancelled", Ok(json!(tally.runs_cancelled))),
            ("runs_suspended", Ok(json!(tally.runs_suspended))),
            ("halts", Ok(json!(tally.halts))),
            ("runs_live_at_halt", Ok(json!(tally.live_at_halt))),
            ("calls_out_at_halt", Ok(json!(tally.out_at_halt))),
            ("calls_settled_after_halt", Ok(json!(tally.settled_after_halt))),
            ("invocations_halted", Ok(json!(tally.invocations_halted))),
            ("run_wall_p50_ns", tally.wall(0.5).ok_or_else(|| "it needs a histogram".into())),
            ("run_wall_p99_ns", tally.wall(0.99).ok_or_else(|| "it needs a histogram".into())),
            ("calls_per_1000_s", Ok(per(tally.served, tally.last_settled_ns, 1_000_000_000_000))),
            ("ledger_wait_ppm", Ok(per(tally.waits_ns, walls, 1_000_000))),
            ("reserves_admitted", Ok(json!(tally.admitted))),
            ("reserves_over_cap", Ok(json!(tally.over_cap))),
            ("reserves_waited", Ok(json!(tally.waited.len()))),
            ("refusals", Ok(json!(tally.refusals))),
            ("ceilings", Ok(json!(self.bound))),
            ("strays_micro_usd", Ok(json!(tally.strays))),
            ("strays_refused", Ok(json!(tally.strays_refused))),
            ("reservations_open", Ok(json!(tally.open.len()))),
            ("open_micro_usd", Ok(json!(open))),
            ("overspends", overspends),
            ("settled_micro_usd", Ok(json!(tally.settled))),
            ("invoice_micro_usd", Ok(json!(tally.invoice))),
            ("calls_charged", Ok(json!(tally.calls_charged))),
            ("calls_charged_again", Ok(json!(tally.second_charges))),
            ("calls_repeated", Ok(json!(tally.repeated))),
            ("replies_uncommitted", Ok(json!(self.uncommitted))),
            ("memo_hits", Ok(json!(tally.hits))),
            ("questions_waited", Ok(json!(tally.questions_waited.len()))),
            ("calls_resent", Ok(json!(tally.resent))),
            ("lease_takeovers", Ok(json!(tally.takeovers))),
            ("writes_refused", Ok(json!(tally.writes_refused))),
            ("ledger_records", Ok(json!(tally.records))),
            ("ledger_commits", Ok(json!(tally.commits))),
            ("kills", tally.kills(self.result)),
            ("ledger_opens", Ok(json!(tally.opens))),
        ];
        if let Some(rows) = self.capsule.arrivals {
            let calls: u64 = self.capsule.work.agents.iter().flatten().map(|item| item.units.len() as u64).sum();
            let given = if rows == calls {
                Ok(json!(calls))
            } else {
                Err(format!("the capsule says {rows}, and has {calls} calls"))
            };
            figures.push(("arrivals", given));
        }
        figures
    }

    /// What the result says beside its figures.
    fn others(&self) -> Vec<(&'static str, Value, Given)> {
        let RunResult { events, virtual_ns, stats, history_entries, .. } = *self.result;
        let unclosed = || "the history has no last entry, which holds it".to_owned();
        let closing = self.closing.ok_or_else(unclosed);
        vec![
            ("events", json!(events), closing.clone().map(|closing| json!(closing.stats.events))),
            ("virtual_ns", json!(virtual_ns), closing.clone().map(|closing| json!(closing.time_ns))),
            ("stats", json!(stats), closing.map(|closing| json!(closing.stats))),
            ("history_entries", json!(history_entries), Ok(json!(self.entries))),
        ]
    }

    /// Compares each number of the result with what the files give.
    pub(super) fn compare(&self, found: &mut Findings) -> Vec<Figure> {
        let mut rows = Vec::new();
        let mut known = BTreeSet::new();
        for (name, given) in self.figures() {
            known.insert(name);
            let stated = self.result.figures.get(name);
            let absent = matches!(&given, Ok(Value::Null)) || name == "arrivals";
            match stated {
                Some(stated) => rows.push(row(name, stated.clone(), given, found)),
                None if absent => {}
                None => rows.push(row(name, Value::Null, given, found)),
            }
        }
        for (name, stated, given) in self.others() {
            rows.push(row(name, stated, given, found));
        }
        for (name, stated) in &self.result.figures {
            if !known.contains(name.as_str()) {
                let why = "this build knows no figure of that name; use the build that wrote it, or teach the checker the figure";
                rows.push(row(name, stated.clone(), Err(why.to_owned()), found));
            }
        }
        for (name, why) in NOT_IN_FILES {
            rows.push(row(name, Value::Null, Err(why.to_owned()), found));
        }
        rows
    }
}

/// What a result says that no file bears out.
const NOT_IN_FILES: [(&str, &str); 3] = [
    ("wall_ns", "how long the run took on the machine that played it is no part of the run"),
    ("reached", "where a planted bug would have made a difference is counted inside the kernel and noted nowhere"),
    ("reached_sometimes", "what faults were felt to do is seen by the engine and by the director, and noted nowhere"),
];

fn row(name: &str, stated: Value, given: Given, found: &mut Findings) -> Figure {
    let name = name.to_owned();
    match given {
        Err(why) => Figure { name, stated, recomputed: None, status: Status::NotChecked, not_derivable: Some(why) },
        Ok(recomputed) => {
            let agrees = recomputed == stated;
            found.must(Rule::Figures, Place::Result, agrees, || {
                format!("{name} is {stated}, and the files give {recomputed}")
            });
            let status = if agrees { Status::Ok } else { Status::Failed };
            Figure { name, stated, recomputed: Some(recomputed), status, not_derivable: None }
        }
    }
}
