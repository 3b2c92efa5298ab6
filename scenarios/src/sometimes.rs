//! What must be reached sometimes: the effect of each kind of fault and its end, where faults begin, and each answer by which
//! the ledger says no. A gate that is large enough and never reached one has lost it, or never tested it.
//!
//! A condition says which scenarios can reach it and of how many of their runs one surely does. What cannot be reached by
//! construction is listed as such, with the reason.

mod refused;
mod stands;

pub use refused::Refused;
pub use stands::Stand;

use crate::{
    ceiling::{Ceiling, Met},
    fact::Fact,
    invariant::Sight,
    scenario::{Scenario, StoreKind},
    workload,
};
use faults::Kind;
use kernel::{
    admit::{self, Quota},
    effect::{self, Class, Key},
    id::{Fence, ReservationId, TenantId, UserId},
    money::MicroUsd,
    record,
    record::Record,
    request::{Refusal, Reply, Turn},
    reserve::{self, Level},
    run,
    serve::Announcement,
};
use std::collections::{BTreeMap, BTreeSet};

/// Of this many runs of scenarios that can reach a condition, one reaches it, unless the condition says otherwise.
const USUAL_RUNS: u64 = 100;

/// A condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sometimes {
    /// A fault of the kind made a difference: it was not only on.
    Felt(Kind),
    /// One that made a difference has ended, nothing was left of it, and the run came to rest.
    Healed(Kind),
    /// A fault began at a disk operation.
    BegunAtOperation,
    /// A fault began at an event.
    BegunAtEvent,
    /// The ledger said no.
    Refused(Refused),
    /// A call went another way than leave and come back.
    Effect(Way),
    /// A ceiling was the one that stopped a call, or counted against the next.
    Bound(Ceiling),
    /// A run was suspended, resumed, cancelled or halted.
    Run(Stand),
    /// A call past the ledger was stopped.
    StrayStopped,
}

/// The ways of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// It was not made: its question had been answered.
    Recalled,
    /// It waited for the answer to another's.
    Followed,
    /// It was made by a follower, after the one it had followed came to nothing.
    Promoted,
    /// It left under a later fence than it was begun under, for the first time.
    PendingTakenUp,
    /// It left again under a later fence: it was idempotent.
    SentAgain,
    /// It was answered from another request under its key.
    Replayed,
    /// It was looked for and had landed.
    LookedLanded,
    /// It was looked for and had not.
    LookedInVain,
    /// It could be neither repeated nor looked for, and was left in doubt.
    LeftInDoubt,
    /// The owner resolved what was in doubt.
    Resolved,
    /// It was cancelled before it left.
    Withdrawn,
}

/// Whether a gate has to reach a condition.
#[derive(Clone, Copy, Debug)]
pub enum Standing {
    /// One of so many runs of the scenarios that can reach it does.
    Required {
        /// Of how many.
        of_runs: u64,
        /// Which can.
        able: fn(&Scenario) -> bool,
    },
    /// It may be reached, and need not be; why.
    Rare(&'static str),
    /// Nothing in the cast can reach it; why.
    ByConstruction(&'static str),
}

impl Sometimes {
    /// Every condition.
    pub fn all() -> Vec<Sometimes> {
        let faults = Kind::ALL.into_iter().flat_map(|kind| [Sometimes::Felt(kind), Sometimes::Healed(kind)]);
        let begun = [Sometimes::BegunAtOperation, Sometimes::BegunAtEvent];
        let effects = Way::ALL.into_iter().map(Sometimes::Effect);
        let bound = Ceiling::ALL.into_iter().map(Sometimes::Bound);
        faults
            .chain(begun)
            .chain(Refused::ALL.into_iter().map(Sometimes::Refused))
            .chain(effects)
            .chain(bound)
            .chain(Stand::ALL.into_iter().map(Sometimes::Run))
            .chain([Sometimes::StrayStopped])
            .collect()
    }

    /// Its name, in lower case with hyphens.
    pub fn name(self) -> String {
        match self {
            Sometimes::Felt(kind) => format!("felt-{kind}"),
            Sometimes::Healed(kind) => format!("healed-{kind}"),
            Sometimes::BegunAtOperation => "begun-at-operation".to_owned(),
            Sometimes::BegunAtEvent => "begun-at-event".to_owned(),
            Sometimes::Refused(refused) => format!("refused-{}", refused.described().0),
            Sometimes::Effect(way) => format!("call-{}", way.described().0),
            Sometimes::Bound(ceiling) => format!("bound-{}", ceiling.described().0),
            Sometimes::Run(stand) => format!("run-{}", stand.described().0),
            Sometimes::StrayStopped => "stray-stopped".to_owned(),
        }
    }

    /// What is reached, in one line.
    pub fn states(self) -> String {
        match self {
            Sometimes::Felt(kind) => effect(kind).to_owned(),
            Sometimes::Healed(kind) => format!("after {kind} was felt, it ended and everything came to rest"),
            Sometimes::BegunAtOperation => "a node was felled at a disk operation".to_owned(),
            Sometimes::BegunAtEvent => "a fault began at an event".to_owned(),
            Sometimes::Refused(refused) => refused.described().1.to_owned(),
            Sometimes::Effect(way) => way.described().1.to_owned(),
            Sometimes::Bound(ceiling) => ceiling.described().1.to_owned(),
            Sometimes::Run(stand) => stand.described().1.to_owned(),
            Sometimes::StrayStopped => {
                "a call past the ledger was refused for its key's credit, of which others had taken some".to_owned()
            }
        }
    }

    /// The runs of scenarios that can reach it, of which a gate needs so many before it has to; `None` if none ever has to.
    pub fn runs_needed(self) -> Option<u64> {
        match self {
            Sometimes::Refused(refused) => match refused.standing() {
                Standing::Required { of_runs, .. } => Some(of_runs),
                Standing::Rare(_) | Standing::ByConstruction(_) => None,
            },
            Sometimes::Effect(Way::Replayed | Way::Withdrawn) => Some(100),
            // One run in five of the one scenario with a disk that can lose something.
            Sometimes::Felt(Kind::PowerCut) | Sometimes::Healed(Kind::PowerCut) => Some(60),
            Sometimes::Effect(_) => Some(50),
            Sometimes::Bound(_) | Sometimes::StrayStopped => Some(20),
            Sometimes::Felt(Kind::Reorder | Kind::ReplyLost) | Sometimes::Healed(Kind::Reorder | Kind::ReplyLost) => {
                Some(200)
            }
            _ => Some(USUAL_RUNS),
        }
    }

    /// Whether runs of the scenario, as its file says and under its swarm, can reach it.
    pub fn is_within(self, scenario: &Scenario) -> bool {
        let draws = |kind: Kind| scenario.swarm.kinds.contains(&kind);
        match self {
            Sometimes::Felt(kind) | Sometimes::Healed(kind) => {
                // What was not synced is on the ledger's disk alone, if it has one.
                let has_it = kind != Kind::PowerCut || scenario.store == StoreKind::Redb;
                draws(kind) && works_on(scenario) && has_it
            }
            Sometimes::BegunAtOperation => {
                scenario.store == StoreKind::Redb && (draws(Kind::Kill) || draws(Kind::PowerCut))
            }
            Sometimes::BegunAtEvent => !scenario.swarm.kinds.is_empty(),
            Sometimes::Refused(refused) => match refused.standing() {
                Standing::Required { able, .. } => able(scenario),
                Standing::Rare(_) | Standing::ByConstruction(_) => false,
            },
            Sometimes::Effect(way) => way.is_within(scenario),
            Sometimes::Bound(_) => scenario.workload == workload::ceilings::WORKLOAD,
            Sometimes::Run(stand) => stand.is_within(scenario),
            Sometimes::StrayStopped => scenario.runaway.is_some_and(|runaway| runaway.agent < scenario.sizes.agents),
        }
    }

    /// Why no gate has to reach it, if none has.
    pub fn excuse(self) -> Option<&'static str> {
        match self {
            Sometimes::Refused(refused) => match refused.standing() {
                Standing::Required { .. } => None,
                Standing::Rare(why) | Standing::ByConstruction(why) => Some(why),
            },
            _ => None,
        }
    }
}

/// What a kind of fault does that can be seen, beyond being on.
const fn effect(kind: Kind) -> &'static str {
    match kind {
        Kind::Loss => "a frame was lost by weather",
        Kind::Repeat => "a second copy of a frame arrived",
        Kind::Reorder => "a frame arrived before one that was sent ahead of it",
        Kind::DelaySpike => "a frame was held back by a spike",
        Kind::Clog => "a frame waited, or found the queue full, at a clogged link",
        Kind::Partition => "a frame was lost to a partition, while nothing else cut links",
        Kind::PartitionOneWay => "a frame was lost to a one-way partition, while nothing else cut links",
        Kind::Bridge => "a frame between the halves was lost, while nothing else cut links",
        Kind::Flap => "a link was cut twice over and lost a frame, while nothing else cut links",
        Kind::Kill => "a process was killed",
        Kind::PowerCut => "a power cut lost something that had not been synced",
        Kind::Pause => "a task's turn came while its node was paused, and it went on after",
        Kind::CrashLoop => "a node was killed again after it had been started again",
        Kind::Cancel => "a task was dropped at an await",
        Kind::ClockStep => "a node noted something while a step had its wall clock read otherwise",
        Kind::ClockDrift => "a node noted something while a drift had its monotonic clock read otherwise",
        Kind::ClockFreeze => "a node noted something while its wall clock stood still and would have gone",
        Kind::CapLowered => "a reservation was refused over a lowered cap that the scenario's would have admitted",
        Kind::TooManyRequests => "the provider answered 429",
        Kind::ServerError => "the provider answered 500",
        Kind::Slow => "the provider took longer over a call",
        Kind::ReplyLost => "the provider charged a call, and its answer was lost",
        Kind::Hang => "the provider took a call and did not answer it",
        Kind::UsageUnlike => "a call used other than its agent reckoned with",
        Kind::CreditExhausted => "the provider refused a call for want of credit",
        Kind::Halted => "something was refused because the owner had halted",
        Kind::QuotaChanged => "something was refused over a lowered quota that the scenario's would have admitted",
        Kind::DoubleStart => "of two processes of an agent the older was told that it is stale",
        Kind::RetryAnew => "a request was decided that had been made again under another number",
        Kind::DuplicateReport => "a report that had been taken was made again, and refused for it",
    }
}

pub(super) fn contends(scenario: &Scenario) -> bool {
    scenario.workload == workload::contention::WORKLOAD
}

/// Whether there is work throughout the time in which faults are drawn: contention is over before most of them begin.
pub(super) fn works_on(scenario: &Scenario) -> bool {
    !contends(scenario)
}

impl Way {
    /// Every one.
    pub const ALL: [Way; 11] = [
        Way::Recalled,
        Way::Followed,
        Way::Promoted,
        Way::PendingTakenUp,
        Way::SentAgain,
        Way::Replayed,
        Way::LookedLanded,
        Way::LookedInVain,
        Way::LeftInDoubt,
        Way::Resolved,
        Way::Withdrawn,
    ];

    /// Its name and what it says.
    const fn described(self) -> (&'static str, &'static str) {
        match self {
            Way::Recalled => ("recalled", "a question had been answered, and the answer was given back"),
            Way::Followed => ("followed", "a request waited for the answer to another's question"),
            Way::Promoted => ("promoted", "a follower asked itself, after its leader came to nothing"),
            Way::PendingTakenUp => ("pending-taken-up", "an intent that had not left was dispatched by a successor"),
            Way::SentAgain => ("sent-again", "an idempotent call was sent again by a successor"),
            Way::Replayed => ("replayed", "the provider answered one request from another under its key"),
            Way::LookedLanded => ("looked-landed", "a queryable call was looked for, and had landed"),
            Way::LookedInVain => ("looked-in-vain", "a queryable call was looked for, and had not landed"),
            Way::LeftInDoubt => ("left-in-doubt", "an unsafe call's outcome was not known, and it was not repeated"),
            Way::Resolved => ("resolved", "the owner resolved from the invoice what was in doubt"),
            Way::Withdrawn => ("withdrawn", "an attempt was cancelled before its call left"),
        }
    }

    fn is_within(self, scenario: &Scenario) -> bool {
        let named = scenario.workload.name;
        match self {
            Way::Recalled | Way::Followed | Way::Promoted | Way::Replayed => named == "stampede",
            Way::PendingTakenUp | Way::SentAgain | Way::Resolved => named == "effects",
            Way::LookedLanded | Way::LookedInVain | Way::LeftInDoubt | Way::Withdrawn => named == "effects",
        }
    }
}

/// Whether what was refused over a quota is within this one.
fn is_within(quota: Quota, refusal: &admit::Refusal) -> bool {
    match *refusal {
        admit::Refusal::TooManyRuns { taken, .. } => taken < quota.runs_per_day,
        admit::Refusal::TooDear { settled, live, asked, .. } => {
            settled.0.saturating_add(live.0).saturating_add(asked.0) <= quota.micro_usd_per_day.0
        }
        admit::Refusal::TooDeep { asked, .. } => asked <= quota.depth_tier,
        admit::Refusal::Halted { .. } | admit::Refusal::NoUsers => false,
    }
}

/// What a run reached that the observer can see: a fold over the history. Effects of faults come from where they are made.
#[derive(Debug)]
pub struct Seen {
    /// The lowest caps that the scenario ever sets, by level.
    caps: [MicroUsd; 4],
    /// The lowest quota that it ever sets, of each user.
    quota: Option<Quota>,
    reached: BTreeSet<Sometimes>,
    /// Attempts that run, the fence each began under, and whether its call left.
    running: BTreeMap<ReservationId, (Fence, bool)>,
    /// Open intents of calls that are neither idempotent nor queryable.
    unsafe_ones: BTreeSet<ReservationId>,
    /// Keys that somebody waited for the answer under.
    followed: BTreeSet<(TenantId, Key)>,
    /// Users whose keys calls past the ledger were charged to.
    strays: BTreeSet<UserId>,
    ceilings: Met,
    stands: stands::Stands,
}

impl Seen {
    /// Nothing yet, in a run whose caps and quota these are.
    pub fn new(caps: [MicroUsd; 4], quota: Option<Quota>) -> Seen {
        let (reached, running) = (BTreeSet::new(), BTreeMap::new());
        let (unsafe_ones, followed, strays, ceilings, stands) = Default::default();
        Seen { caps, quota, reached, running, unsafe_ones, followed, strays, ceilings, stands }
    }

    /// Takes in that a request was turned away because the server's queue was full.
    pub fn turned_away(&mut self) {
        self.reached.insert(Sometimes::Refused(Refused::Busy));
    }

    /// Takes in one sight, with those records of it that no sight told of before.
    pub fn at(&mut self, sight: &Sight, news: &[Record]) {
        match sight {
            Sight::Ledger(Announcement::Committed { replies, .. }, _) => {
                for reply in replies {
                    let refused = match reply {
                        Reply::Stale { .. } => Refused::Stale,
                        Reply::Forgotten { .. } => Refused::Forgotten,
                        Reply::Waits(Turn::Answer(tenant, key)) => {
                            self.followed.insert((*tenant, *key));
                            self.went(Way::Followed);
                            continue;
                        }
                        // Busy is never in a batch; see `turned_away`.
                        Reply::Decided(_) | Reply::Waits(_) | Reply::Busy => continue,
                    };
                    self.reached.insert(Sometimes::Refused(refused));
                }
            }
            Sight::Fact(fact) => {
                self.reached.extend(self.ceilings.fact(fact).map(Sometimes::Bound));
                self.fact(fact);
            }
            _ => {}
        }
        for record in news {
            self.reached.extend(self.ceilings.record(record).map(Sometimes::Bound));
            match &record.event {
                record::Event::Effect(effect::Event::Decided { outcome: Err(refusal), .. }) => self.refused(refusal),
                _ => self.recorded(record),
            }
        }
    }

    fn went(&mut self, way: Way) {
        self.reached.insert(Sometimes::Effect(way));
    }

    fn fact(&mut self, fact: &Fact) {
        match *fact {
            Fact::CallSent { key, fence, .. } => {
                let Some((begun_under, has_left)) = self.running.get_mut(&key) else { return };
                let (later, again) = (fence > *begun_under, std::mem::replace(has_left, true));
                if later {
                    self.went(if again { Way::SentAgain } else { Way::PendingTakenUp });
                }
            }
            Fact::StrayCharged { user, .. } => drop(self.strays.insert(user)),
            Fact::StrayRefused { user, .. } if self.strays.contains(&user) => {
                self.reached.insert(Sometimes::StrayStopped);
            }
            Fact::Replayed { .. } => self.went(Way::Replayed),
            Fact::Looked { landed: true, .. } => self.went(Way::LookedLanded),
            Fact::Looked { landed: false, .. } => self.went(Way::LookedInVain),
            _ => {}
        }
    }

    fn recorded(&mut self, record: &Record) {
        self.reached.extend(self.stands.recorded(record).map(Sometimes::Run));
        match record.event {
            record::Event::Run(run::Event::AttemptStarted { reservation, .. }) => {
                let fence = record.origin.map_or(Fence(0), |origin| origin.fence);
                self.running.insert(reservation, (fence, false));
            }
            record::Event::Run(run::Event::Recalled { .. }) => self.went(Way::Recalled),
            record::Event::Run(run::Event::AttemptEnded { state: run::AttemptState::Cancelled, .. }) => {
                self.went(Way::Withdrawn);
            }
            record::Event::Effect(effect::Event::Intended { intent, class, key, .. }) => {
                if class == Class::Unsafe {
                    self.unsafe_ones.insert(intent);
                }
                if key.is_some_and(|key| self.followed.contains(&(record.tenant, key))) {
                    self.went(Way::Promoted);
                }
            }
            record::Event::Reserve(
                reserve::Event::Settled { reservation, by_owner, .. }
                | reserve::Event::Released { reservation, by_owner },
            ) => {
                self.running.remove(&reservation);
                let was_unsafe = self.unsafe_ones.remove(&reservation);
                if by_owner {
                    self.went(Way::Resolved);
                    if was_unsafe {
                        self.went(Way::LeftInDoubt);
                    }
                }
            }
            _ => {}
        }
    }

    fn refused(&mut self, refusal: &Refusal) {
        self.reached.insert(Sometimes::Refused(Refused::of(refusal)));
        match refusal {
            Refusal::Admit(admit::Refusal::Halted { .. }) => {
                self.reached.insert(Sometimes::Felt(Kind::Halted));
            }
            Refusal::Admit(refusal) if self.quota.is_some_and(|quota| is_within(quota, refusal)) => {
                self.reached.insert(Sometimes::Felt(Kind::QuotaChanged));
            }
            _ => {}
        }
        if let Refusal::Reserve(reserve::Refusal::OverCap { level, settled, live, asked, .. }) = refusal {
            let place = Level::ALL.iter().position(|known| known == level).unwrap_or(0);
            let needed = settled.0.saturating_add(live.0).saturating_add(asked.0);
            if needed <= self.caps[place].0 {
                self.reached.insert(Sometimes::Felt(Kind::CapLowered));
            }
        }
    }

    /// All that a run reached: with the kinds that were felt where they are made, and whether nothing was left of them in the
    /// end; in the order of [`Sometimes::all`].
    pub fn reached(&self, felt: impl IntoIterator<Item = Sometimes>, is_healed: bool) -> BTreeSet<Sometimes> {
        let mut reached = self.reached.clone();
        reached.extend(felt);
        if is_healed {
            let felt = reached.iter().filter_map(|one| match one {
                Sometimes::Felt(kind) => Some(Sometimes::Healed(*kind)),
                _ => None,
            });
            let healed: Vec<Sometimes> = felt.collect();
            reached.extend(healed);
        }
        reached
    }
}

#[cfg(test)]
mod tests;
