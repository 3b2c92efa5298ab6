//! The two ceilings outside the ledger: how many calls pass the edge, and what each key of the provider is charged.

use super::{
    files::Capsule,
    findings::{Findings, Place, Rule},
    told::{Answered, EdgeCeiling, EdgeRefusal, Fact},
    wire::{
        Account, AdmitRefusal, Budgeted, Effected, Ending, Event, HaltReason, Ran, Record, Refusal, ReserveRefusal,
    },
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
};

/// Who noted something: node and incarnation.
type Sender = (u32, u32);

/// How many calls may pass, and in what window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limits {
    per_key: u32,
    per_address: u32,
    window_ns: u64,
}

/// The reckoning so far.
#[derive(Debug)]
pub(super) struct Ceilings {
    /// The edge's node and limits by the capsule, if its scenario has one.
    edge: Option<(u32, Limits)>,
    /// Every moment, by the edge's clock, at which a call of a key passed, or one from an address.
    of_key: BTreeMap<u32, Vec<u64>>,
    from_address: BTreeMap<u32, Vec<u64>>,
    /// The edge's clock and true time, as last noted.
    last: Option<(u64, u64)>,
    users: BTreeMap<(u32, u64), u32>,
    begun: BTreeMap<u32, usize>,
    /// What each key may be charged, by the capsule.
    credit: Option<u64>,
    charged: BTreeMap<u32, u128>,
    /// Of each call its user, and its tenant, run and unit.
    calls: BTreeMap<u64, (u32, (u32, u64, u32))>,
    refused: BTreeSet<u64>,
    without_credit: BTreeSet<(u32, u64)>,
    heard: BTreeMap<(Sender, (u32, u64, u32)), u64>,
    /// The accounts of open reservations, and what settlements in each were above what was set aside.
    accounts: BTreeMap<u64, Vec<Account>>,
    overruns: BTreeMap<Account, u128>,
    /// How often each ceiling stopped something, as figures count it.
    pub bound: BTreeMap<&'static str, u64>,
}

/// How many of `moments`, which rise, lie in the window that ends at `now_ns`.
fn in_window(moments: Option<&Vec<u64>>, now_ns: u64, window_ns: u64) -> usize {
    let before = |at: &u64| u128::from(*at) + u128::from(window_ns) <= u128::from(now_ns);
    moments.map_or(0, |moments| moments.len() - moments.partition_point(before))
}

impl Ceilings {
    /// Before anything happened, in the capsule's scenario; `edge` is the node where its edge is, if it has one.
    pub(super) fn of(capsule: &Capsule, edge: u32) -> Ceilings {
        let limits = capsule.scenario.edge.as_ref().map(|limits| Limits {
            per_key: limits.per_key,
            per_address: limits.per_address,
            window_ns: u64::try_from(limits.window.as_nanos()).unwrap_or(u64::MAX),
        });
        Ceilings {
            edge: limits.map(|limits| (edge, limits)),
            of_key: BTreeMap::new(),
            from_address: BTreeMap::new(),
            last: None,
            users: BTreeMap::new(),
            begun: BTreeMap::new(),
            credit: capsule.scenario.provider.key_credit,
            charged: BTreeMap::new(),
            calls: BTreeMap::new(),
            refused: BTreeSet::new(),
            without_credit: BTreeSet::new(),
            heard: BTreeMap::new(),
            accounts: BTreeMap::new(),
            overruns: BTreeMap::new(),
            bound: BTreeMap::new(),
        }
    }

    fn count(&mut self, ceiling: &'static str) {
        *self.bound.entry(ceiling).or_default() += 1;
    }

    /// Counts a record, the first time it is told, by the ceiling that it tells of.
    pub(super) fn tally(&mut self, record: &Record) {
        match &record.event {
            Event::Run(Ran::Recalled { .. }) => self.count("memo"),
            Event::Effect(Effected::Decided { outcome: Err(refusal), .. }) => match *refusal {
                Refusal::Admit(AdmitRefusal::Halted { .. }) => self.count("halt"),
                Refusal::Admit(
                    AdmitRefusal::TooManyRuns { .. } | AdmitRefusal::TooDear { .. } | AdmitRefusal::TooDeep { .. },
                ) => self.count("quota"),
                Refusal::Reserve(ReserveRefusal::OverCap { account, cap, settled, live, asked, .. }) => {
                    let overrun = self.overruns.get(&account).copied().unwrap_or(0);
                    let needed = u128::from(settled) + u128::from(live) + u128::from(asked);
                    let had_room = needed <= u128::from(cap) + overrun;
                    self.count(if had_room { "settle" } else { "reserve" });
                }
                _ => {}
            },
            &Event::Reserve(Budgeted::Reserved { reservation, run, unit, user, day, .. }) => {
                let tenant = record.tenant;
                let (unit, user_day) = (Account::Unit(tenant, run, unit), Account::UserDay(tenant, user, day));
                let accounts = vec![unit, Account::Run(tenant, run), user_day, Account::LedgerDay(day)];
                self.accounts.insert(reservation, accounts);
            }
            &Event::Reserve(Budgeted::Settled { reservation, overrun, .. }) => {
                for account in self.accounts.remove(&reservation).unwrap_or_default() {
                    *self.overruns.entry(account).or_default() += u128::from(overrun);
                }
            }
            Event::Reserve(Budgeted::Released { reservation, .. }) => _ = self.accounts.remove(reservation),
            _ => {}
        }
    }

    /// Folds a record.
    pub(super) fn record(&mut self, record: &Record, place: Place, found: &mut Findings) {
        let (seq, tenant) = (record.seq, record.tenant);
        let user = match record.event {
            Event::Run(Ran::Spawned { run, user, .. }) => {
                self.users.insert((tenant, run), user);
                return;
            }
            Event::Run(Ran::Ended { run, outcome: Ending::Halted(HaltReason::Key) }) => {
                found.must(Rule::KeyCredit, place, self.without_credit.contains(&(tenant, run)), || {
                    format!("record {seq} halts run {run} for want of credit, and no call of it was refused for it")
                });
                return;
            }
            Event::Reserve(Budgeted::Reserved { user, .. }) => Some(user),
            Event::Run(Ran::Recalled { run, .. }) => self.users.get(&(tenant, run)).copied(),
            _ => return,
        };
        let (Some(user), Some(_)) = (user, self.edge) else { return };
        let begun = self.begun.entry(user).or_default();
        *begun += 1;
        let (begun, passed) = (*begun, self.of_key.get(&user).map_or(0, Vec::len));
        found.must(Rule::Edge, place, begun <= passed, || {
            format!("record {seq} begins call {begun} of user {user}, of whom {passed} passed the edge")
        });
    }

    /// Folds a fact, noted at a true time.
    pub(super) fn fact(&mut self, sender: Sender, fact: &Fact, time_ns: u64, place: Place, found: &mut Findings) {
        match *fact {
            Fact::EdgeUp { per_key, per_address, window_ns } => {
                let told = Some((sender.0, Limits { per_key, per_address, window_ns }));
                found.must(Rule::Edge, place, told == self.edge, || {
                    format!("an edge is up as (node, limits) {told:?}, and the capsule's is {:?}", self.edge)
                });
            }
            Fact::EdgePassed { user, address, at_ns } => {
                self.at_edge(sender, at_ns, time_ns, place, found);
                self.passed(user, address, at_ns, place, found);
            }
            Fact::EdgeRefused { user, address, at_ns, refusal } => {
                self.at_edge(sender, at_ns, time_ns, place, found);
                if refusal.ceiling != EdgeCeiling::Unsure {
                    self.count("edge");
                }
                let due = self.is_due(sender, (user, address), at_ns, &refusal);
                found.must(Rule::Edge, place, due, || {
                    format!("the edge refuses user {user} at address {address} for {refusal:?}, which is not so")
                });
            }
            Fact::KeyCredit { limit } => found.must(Rule::KeyCredit, place, self.credit == Some(limit), || {
                format!("the provider's keys are said to have {limit}, and by the capsule {:?}", self.credit)
            }),
            Fact::CallSent { tenant, run, unit, user, key, .. } => {
                let unit = (tenant, run, unit);
                if let Some(before) = self.heard.get(&(sender, unit)) {
                    found.must(Rule::KeyCredit, place, *before == key, || {
                        format!("{unit:?} is called again under {key} by who heard that {before} has no credit")
                    });
                }
                self.calls.insert(key, (user, unit));
            }
            Fact::CallEnded { key, answered: Some(Answered::NoCredit { .. }) } => {
                if let Some((_, unit)) = self.calls.get(&key) {
                    self.heard.insert((sender, *unit), key);
                }
            }
            Fact::Charged { key, cost, .. } => {
                if let Some((user, _)) = self.calls.get(&key).copied() {
                    self.charge(user, cost, place, found);
                }
            }
            Fact::StrayCharged { user, cost } => self.charge(user, cost, place, found),
            Fact::StrayRefused { user, limit, asked, left } => {
                self.refuse(&"a call past the ledger", user, [limit, asked, left], place, found);
            }
            Fact::TurnedAway { key, answered: Answered::NoCredit { limit, asked, left } } => {
                if self.credit == Some(limit) && !self.refused.contains(&key) {
                    self.count("key-credit");
                }
                self.no_credit(key, [limit, asked, left], place, found);
            }
            _ => {}
        }
    }

    /// Whether who speaks as the edge is the edge, and its clock one that a node may have: within a millisecond between half
    /// and double the true rate.
    fn at_edge(&mut self, sender: Sender, at_ns: u64, time_ns: u64, place: Place, found: &mut Findings) {
        let is_edge = self.edge.is_some_and(|(node, _)| node == sender.0);
        found.must(Rule::Edge, place, is_edge, || format!("node {} speaks as the edge, and is not", sender.0));
        if let Some((at_before, before)) = self.last.replace((at_ns, time_ns)) {
            let passed = time_ns.saturating_sub(before);
            let own = at_ns.checked_sub(at_before);
            let fits = own.is_some_and(|own| own + 1_000_000 >= passed / 2 && own <= passed * 2 + 1_000_000);
            found.must(Rule::Edge, place, fits, || {
                format!("the edge's clock went from {at_before} to {at_ns} ns while {passed} ns passed")
            });
        }
    }

    fn passed(&mut self, user: u32, address: u32, at_ns: u64, place: Place, found: &mut Findings) {
        let Some((_, limits)) = self.edge else { return };
        for (moments, limit, whose) in [
            (self.of_key.entry(user).or_default(), limits.per_key, "of the key of user"),
            (self.from_address.entry(address).or_default(), limits.per_address, "from address"),
        ] {
            moments.push(at_ns);
            let count = in_window(Some(moments), at_ns, limits.window_ns);
            let name = if whose.starts_with("of") { user } else { address };
            found.must(Rule::Edge, place, count <= limit as usize, || {
                format!("{count} calls {whose} {name} pass the edge in one window; the limit is {limit}")
            });
        }
    }

    fn is_due(&self, sender: Sender, (user, address): (u32, u32), at_ns: u64, refusal: &EdgeRefusal) -> bool {
        let Some((_, limits)) = self.edge else { return false };
        let (limit, moments) = match refusal.ceiling {
            EdgeCeiling::Key => (limits.per_key, self.of_key.get(&user)),
            EdgeCeiling::Address => (limits.per_address, self.from_address.get(&address)),
            EdgeCeiling::Unsure => return sender.1 > 0,
        };
        let left = (limit as usize).saturating_sub(in_window(moments, at_ns, limits.window_ns));
        refusal.limit == limit && refusal.left as usize == left && refusal.left < refusal.asked
    }

    fn charge(&mut self, user: u32, cost: u64, place: Place, found: &mut Findings) {
        let sum = self.charged.entry(user).or_default();
        *sum += u128::from(cost);
        let Some(limit) = self.credit else { return };
        found.must(Rule::KeyCredit, place, *sum <= u128::from(limit), || {
            format!("the key of user {user} is charged {sum} micro-USD, and its limit is {limit}")
        });
    }

    /// A first refusal tells what was left: of the limit, or nothing of what was charged where the credit is taken for gone.
    fn no_credit(&mut self, key: u64, [limit, asked, left]: [u64; 3], place: Place, found: &mut Findings) {
        let is_first = self.refused.insert(key);
        let Some((user, (tenant, run, _))) = self.calls.get(&key).copied() else { return };
        self.without_credit.insert((tenant, run));
        if !is_first {
            return;
        }
        self.refuse(&key, user, [limit, asked, left], place, found);
    }

    fn refuse(
        &self,
        what: &dyn Display,
        user: u32,
        [limit, asked, left]: [u64; 3],
        place: Place,
        found: &mut Findings,
    ) {
        let charged = self.charged.get(&user).copied().unwrap_or(0);
        let is_gone = u128::from(limit) == charged && left == 0;
        let is_due = self.credit == Some(limit) && asked > left && u128::from(limit) == charged + u128::from(left);
        found.must(Rule::KeyCredit, place, is_gone || is_due, || {
            format!("{what} is refused for {asked} of {limit} with {left} left; charged is {charged}")
        });
    }
}
