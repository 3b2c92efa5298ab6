//! One take: some seeds of one scenario at one size under one condition, and the records they give.

use crate::{
    clock,
    exit::Failure,
    failing,
    provenance::{self, Origin},
};
use anyhow::Context as _;
use rayon::iter::{IntoParallelIterator as _, ParallelIterator as _};
use reports::{
    record::{self, Hashes, Record, Sample, Work},
    table::Spot,
};
use scenarios::{
    catalogue,
    ceiling::Ceiling,
    runner::{self, Choices, Figures, PlanChoice, Raw, RunReport, RunSpec, Verdict},
    scenario::StoreKind,
};
use std::{collections::BTreeMap, ops::Range, time::Duration};

/// What `Cargo.toml` turns on in this binary, for the records.
const FEATURES: &str = "kernel/planted";

/// The figures of C9 that a rung gives, in the order in which it gives them.
const FLEET_FIGURES: [&str; 11] = [
    "run-wall",
    "run-wall-p99",
    "calls-per-second",
    "runs-per-second",
    "ledger-wait",
    "over-unit",
    "over-run",
    "over-user-day",
    "over-ledger-day",
    "waited-slot",
    "takeovers",
];

/// How long the agents of a ladder begin new runs, in virtual time, at every rung.
const CLIMB_LASTS: Duration = Duration::from_secs(600);

/// The rungs of the ladder, and how many seeds are played at each: fewer where one has many runs in it.
const RUNGS: [(u32, u64); 7] = [(1, 4), (4, 4), (16, 4), (64, 4), (256, 2), (1_024, 1), (4_096, 1)];

/// Whose caps the agents of a ladder run into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CapsOf {
    /// One user's, whatever the number of agents: the published ones.
    OneUser,
    /// As many users' as the scenario makes of the agents: each user has the published ones, and the ledger their sum.
    EachUser,
}

/// One climb of the ladder.
#[derive(Debug)]
struct Climb {
    /// The conditions, as `rows.toml` names them.
    under: &'static str,
    plan: PlanChoice,
    caps: CapsOf,
}

/// The ladder is climbed under each of these.
const CLIMBS: [Climb; 4] = [
    Climb { under: "no faults; published caps", plan: PlanChoice::None, caps: CapsOf::OneUser },
    Climb { under: "no faults; caps scaled to n", plan: PlanChoice::None, caps: CapsOf::EachUser },
    Climb { under: "faults; published caps", plan: PlanChoice::Swarm, caps: CapsOf::OneUser },
    Climb { under: "faults; caps scaled to n", plan: PlanChoice::Swarm, caps: CapsOf::EachUser },
];

/// Which figures a take gives.
#[derive(Clone, Copy, Debug)]
enum Gives {
    /// The counts of C3.
    Contention,
    /// The predictions of C9 at one number of agents, in one climb.
    Fleet(&'static Climb),
    /// Counts of a row, one figure of a run each.
    Counts(&'static Counted),
}

/// A figure of a row and the count of a run that it is made of.
type Count = (&'static str, fn(&Figures) -> u64);

/// A row that is counted from figures of runs, each of which `check` works out again from the run's files.
#[derive(Debug)]
struct Counted {
    row: &'static str,
    counts: &'static [Count],
    /// Whether the row is wanted at several numbers of agents.
    is_ladder: bool,
}

/// What was asked and answered before.
const MEMO: Counted = Counted {
    row: "C11",
    counts: &[("memo-hits", |figures| figures.memo_hits), ("paid-calls", |figures| figures.calls_charged)],
    is_ladder: false,
};

/// Refusals over a quota, as figures name them.
const OVER_QUOTA: [&str; 3] = ["admit.too-many-runs", "admit.too-dear", "admit.too-deep"];

/// Refusals during a halt, as figures name them.
const HALTED: [&str; 1] = ["admit.halted"];

/// What was spent, and what ceilings refused.
const SPEND: Counted = Counted {
    row: "C13",
    counts: &[
        ("spent", |figures| figures.settled_micro_usd),
        ("unaccounted", |figures| figures.invoice_micro_usd.abs_diff(figures.settled_micro_usd)),
        ("refused-quota", |figures| refused(figures, &OVER_QUOTA)),
        ("refused-halt", |figures| refused(figures, &HALTED)),
        ("refused-cap", |figures| figures.reserves_over_cap),
        ("waited-slot", |figures| figures.reserves_waited),
        ("halted-by-owner", |figures| figures.runs_halted_by_owner),
        ("halted-by-key", |figures| figures.runs_halted_by_key),
    ],
    is_ladder: false,
};

/// Which ceiling bound, where each of the seven binds for somebody.
const CEILINGS: Counted = Counted {
    row: "C13",
    counts: &[
        ("bound-edge", |figures| bound(figures, Ceiling::Edge)),
        ("bound-quota", |figures| bound(figures, Ceiling::Quota)),
        ("bound-halt", |figures| bound(figures, Ceiling::Halt)),
        ("bound-memo", |figures| bound(figures, Ceiling::Memo)),
        ("bound-reserve", |figures| bound(figures, Ceiling::Reserve)),
        ("bound-key-credit", |figures| bound(figures, Ceiling::KeyCredit)),
        ("bound-settle", |figures| bound(figures, Ceiling::Settle)),
        ("strays", |figures| figures.strays_micro_usd),
        ("strays-stopped", |figures| figures.strays_refused),
    ],
    is_ladder: false,
};

/// What was done twice.
const REPEATS: Counted = Counted {
    row: "C15",
    counts: &[
        ("kills", |figures| figures.kills),
        ("second-acceptances", |figures| figures.calls_charged_again),
        ("sent-again", |figures| figures.calls_resent),
        ("replies-uncommitted", |figures| figures.replies_uncommitted),
    ],
    is_ladder: false,
};

/// What a halt met, and stopped.
const HALT: Counted = Counted {
    row: "C17",
    counts: &[
        ("runs-live", |figures| figures.runs_live_at_halt),
        ("invocations", |figures| figures.invocations_halted),
        ("calls-out", |figures| figures.calls_out_at_halt),
        ("calls-settled", |figures| figures.calls_settled_after_halt),
        ("halted", |figures| figures.runs_halted_by_owner),
    ],
    is_ladder: true,
};

/// Refusals of these kinds.
fn refused(figures: &Figures, kinds: &[&str]) -> u64 {
    kinds.iter().filter_map(|kind| figures.refusals.get(*kind)).sum()
}

/// How often a ceiling bound.
fn bound(figures: &Figures, ceiling: Ceiling) -> u64 {
    figures.ceilings.get(ceiling.described().0).copied().unwrap_or(0)
}

/// The rows that are counted: scenario, agents if not as its file says, and seeds.
const COUNTED: [(&Counted, &str, Option<u32>, u64); 6] = [
    (&MEMO, "stampede", None, 16),
    (&SPEND, "fleet", None, 16),
    (&CEILINGS, "ceilings", None, 16),
    (&REPEATS, "effects", None, 64),
    (&HALT, "halt", Some(3), 16),
    (&HALT, "halt", Some(300), 2),
];

/// Some seeds of one scenario at one size under one condition.
pub struct Take {
    gives: Gives,
    specs: Vec<RunSpec>,
    scenario_hash: String,
    /// What makes one of its runs, beside the scenario and the seed.
    flags: Vec<String>,
}

/// What a take gave.
pub enum Taken {
    /// Records.
    Records(Vec<Record>),
    /// None.
    Nothing {
        /// The verdict of the run that failed, or pass.
        verdict: Verdict,
        /// Why.
        reason: String,
    },
}

/// What one run gave.
struct Gave {
    report: RunReport,
    raw: Raw,
}

/// Every take there is, the quick ones first.
pub fn all() -> anyhow::Result<Vec<Take>> {
    let contention = Choices { plan: PlanChoice::None, ..Choices::default() };
    let mut takes = vec![Take::new(Gives::Contention, "contention", contention, 0..16)?];
    for (counted, scenario, agents, seeds) in COUNTED {
        let choices = Choices { agents, ..Choices::default() };
        takes.push(Take::new(Gives::Counts(counted), scenario, choices, 0..seeds)?);
    }
    for (agents, seeds) in RUNGS {
        for climb in &CLIMBS {
            let choices = Choices {
                agents: Some(agents),
                agents_per_user: (climb.caps == CapsOf::OneUser).then_some(agents),
                lasts: Some(CLIMB_LASTS),
                plan: climb.plan.clone(),
                ..Choices::default()
            };
            takes.push(Take::new(Gives::Fleet(climb), "fleet", choices, 0..seeds)?);
        }
    }
    Ok(takes)
}

impl Take {
    fn new(gives: Gives, scenario: &str, choices: Choices, seeds: Range<u64>) -> anyhow::Result<Take> {
        let scenario = catalogue::find(scenario)?;
        let specs: Result<Vec<RunSpec>, _> = seeds.map(|seed| runner::spec(&scenario, seed, &choices)).collect();
        let specs = specs?;
        let resolved = &specs.first().context("a take has at least one seed")?.scenario;
        let scenario_hash = blake3::hash(&serde_json::to_vec(resolved)?).to_hex().to_string();
        let mut flags = vec!["--agents".to_owned(), resolved.sizes.agents.to_string()];
        if let Some(agents) = choices.agents_per_user {
            flags.extend(["--agents-per-user".to_owned(), agents.to_string()]);
        }
        if let Some(lasts) = choices.lasts {
            flags.extend(["--for".to_owned(), humantime::format_duration(lasts).to_string()]);
        }
        let plan = if choices.plan == PlanChoice::None { "none" } else { "swarm" };
        flags.extend(["--plan", plan].map(str::to_owned));
        Ok(Take { gives, specs, scenario_hash, flags })
    }

    fn spec(&self) -> &RunSpec {
        &self.specs[0]
    }

    fn agents(&self) -> u64 {
        self.spec().scenario.sizes.agents.into()
    }

    /// The conditions, of a take that is a rung of a climb.
    fn under(&self) -> Option<String> {
        match self.gives {
            Gives::Contention | Gives::Counts(_) => None,
            Gives::Fleet(climb) => Some(climb.under.to_owned()),
        }
    }

    /// The take in a few words.
    pub fn what(&self) -> String {
        let under = self.under().map_or_else(String::new, |under| format!(", {under}"));
        format!("{} with {} agents{under}", self.spec().scenario.name, self.agents())
    }

    /// What takes that cost about as much an agent have in common.
    pub fn kind(&self) -> String {
        format!("{} {}", self.spec().scenario.name, self.under().unwrap_or_default())
    }

    /// How many agents one thread plays, if the seeds are dealt over all threads; at least 1.
    pub fn agents_a_thread(&self) -> u32 {
        let rounds = self.specs.len().div_ceil(rayon::current_num_threads().max(1));
        self.spec().scenario.sizes.agents.saturating_mul(u32::try_from(rounds).unwrap_or(u32::MAX)).max(1)
    }

    /// The resolved scenario's name, agents and conditions, and its hash.
    pub fn scenario(&self) -> ((String, u64, Option<String>), String) {
        ((self.spec().scenario.name.clone(), self.agents(), self.under()), self.scenario_hash.clone())
    }

    /// The lines of the table it gives.
    pub fn spots(&self) -> impl Iterator<Item = Spot> + '_ {
        let (row, figures, rung): (_, Vec<&str>, _) = match self.gives {
            Gives::Contention => ("C3", vec!["over-cap", "refused", "admitted"], None),
            Gives::Fleet(_) => ("C9", FLEET_FIGURES.to_vec(), Some(self.agents())),
            Gives::Counts(Counted { row, counts, is_ladder }) => {
                let figures = counts.iter().map(|(figure, _)| *figure).collect();
                (*row, figures, is_ladder.then(|| self.agents()))
            }
        };
        let spot =
            move |figure: &str| Spot { row: row.to_owned(), figure: figure.to_owned(), under: self.under(), rung };
        figures.into_iter().map(spot)
    }

    /// Whether a record is of a figure that it gives, at its size and under its conditions.
    pub fn feeds(&self, record: &Record) -> bool {
        let agents = record.sizes.get("agents").copied();
        let is = |spot: Spot| spot.row == record.row && spot.figure == record.figure;
        record.under == self.under() && agents == Some(self.agents()) && self.spots().any(is)
    }

    /// Plays its seeds, side by side.
    pub fn perform(&self, origin: &Origin) -> Result<Taken, Failure> {
        let gave: Result<Vec<Gave>, Failure> = self.specs.clone().into_par_iter().map(|spec| play(&spec)).collect();
        let gave = gave?;
        if let Some(failed) = gave.iter().map(|gave| &gave.report).find(|report| report.verdict != Verdict::Pass) {
            let broken = failed.broken.as_ref().map_or_else(String::new, |broken| format!(" ({})", broken.invariant));
            let reason = format!("seed {} failed{broken}: {}", failed.seed, self.command(failed.seed));
            return Ok(Taken::Nothing { verdict: failed.verdict, reason });
        }
        let records = match self.gives {
            Gives::Contention => self.contention(&gave, origin),
            Gives::Fleet(_) => self.fleet(&gave, origin).map_err(Failure::defect)?,
            Gives::Counts(counted) => self.counted(counted, &gave, origin),
        };
        Ok(Taken::Records(records))
    }

    fn contention(&self, gave: &[Gave], origin: &Origin) -> Vec<Record> {
        let units = |spec: &RunSpec| spec.work.agents.iter().flatten().map(|item| item.units.len() as u64).sum::<u64>();
        let decided = |gave: &Gave| gave.report.figures.reserves_admitted + gave.report.figures.reserves_over_cap;
        let work = Work { offered: self.specs.iter().map(units).sum(), done: gave.iter().map(decided).sum() };
        let counts =
            |count: fn(&RunReport) -> u64| Sample::Counts(gave.iter().map(|gave| count(&gave.report)).collect());
        let samples = [
            ("over-cap", counts(|report| report.figures.overspends)),
            ("refused", counts(|report| report.figures.reserves_over_cap)),
            ("admitted", counts(|report| report.figures.reserves_admitted)),
        ];
        samples.map(|(figure, sample)| self.record("C3", figure, sample, work, origin)).into()
    }

    fn counted(&self, counted: &Counted, gave: &[Gave], origin: &Origin) -> Vec<Record> {
        let sum = |of: fn(&Figures) -> u64| gave.iter().map(|gave| of(&gave.report.figures)).sum::<u64>();
        let work = Work { offered: sum(|figures| figures.calls_sent), done: sum(|figures| figures.calls_served) };
        let record = |(figure, count): &Count| {
            let counts = gave.iter().map(|gave| count(&gave.report.figures)).collect();
            self.record(counted.row, figure, Sample::Counts(counts), work, origin)
        };
        counted.counts.iter().map(record).collect()
    }

    fn fleet(&self, gave: &[Gave], origin: &Origin) -> Result<Vec<Record>, record::RecordError> {
        let sum = |of: fn(&Gave) -> u64| gave.iter().map(of).sum::<u64>();
        let counts = |of: &dyn Fn(&Gave) -> u64| Sample::Counts(gave.iter().map(of).collect());
        let work = Work {
            offered: sum(|gave| gave.report.figures.calls_sent),
            done: sum(|gave| gave.report.figures.calls_served),
        };
        let walls = Sample::histograms(gave.iter().map(|gave| &gave.raw.walls_ns))?;
        let [unit, run, user_day, ledger_day] =
            [0, 1, 2, 3].map(|level| counts(&move |gave: &Gave| gave.raw.over_cap[level]));
        let samples: [Sample; FLEET_FIGURES.len()] = [
            walls.clone(),
            walls,
            Sample::Part { of: sum(|gave| gave.raw.calls), whole: sum(|gave| gave.raw.last_settled_ns) },
            Sample::Part { of: sum(|gave| gave.raw.runs), whole: sum(|gave| gave.raw.last_ended_ns) },
            Sample::Part { of: sum(|gave| gave.raw.ledger_wait_ns), whole: sum(|gave| gave.raw.wall_ns) },
            unit,
            run,
            user_day,
            ledger_day,
            counts(&|gave| gave.report.figures.reserves_waited),
            counts(&|gave| gave.report.figures.lease_takeovers),
        ];
        let figures = FLEET_FIGURES.into_iter().zip(samples);
        Ok(figures.map(|(figure, sample)| self.record("C9", figure, sample, work, origin)).collect())
    }

    fn record(&self, row: &str, figure: &str, sample: Sample, work: Work, origin: &Origin) -> Record {
        let scenario = &self.spec().scenario;
        Record {
            format: record::FORMAT,
            row: row.to_owned(),
            figure: figure.to_owned(),
            engine: "native".to_owned(),
            origin: record::Origin::Simulated,
            sample,
            work,
            scenario: scenario.name.clone(),
            sizes: BTreeMap::from([
                ("agents".to_owned(), self.agents()),
                ("for_s".to_owned(), scenario.sizes.lasts.as_secs()),
            ]),
            under: self.under(),
            seeds: self.specs.iter().map(|spec| spec.seed).collect(),
            commit: origin.commit.clone(),
            dirty: origin.dirty,
            hashes: Hashes {
                binary: origin.binary.clone(),
                lock: provenance::lock(),
                features: blake3::hash(FEATURES.as_bytes()).to_hex().to_string(),
                scenario: self.scenario_hash.clone(),
                machine: provenance::machine(),
            },
            command: self.command(self.spec().seed),
            made_unix_s: clock::unix_s(),
        }
    }

    /// The command that plays one of its seeds.
    fn command(&self, seed: u64) -> String {
        failing::rerun(&self.spec().scenario.name, seed, &self.flags)
    }
}

fn play(spec: &RunSpec) -> Result<Gave, Failure> {
    let run = runner::play(spec).map_err(Failure::of_run)?;
    Ok(Gave { report: run.report, raw: run.raw })
}

/// What the predictions assume, from the scenario they are played in.
pub fn assumptions(takes: &[Take]) -> Vec<String> {
    let Some(take) = takes.iter().find(|take| matches!(take.gives, Gives::Fleet(_))) else { return Vec::new() };
    let scenario = &take.spec().scenario;
    let scaled = takes.iter().find(|take| matches!(take.gives, Gives::Fleet(climb) if climb.caps == CapsOf::EachUser));
    let scaled = &scaled.unwrap_or(take).spec().scenario;
    let (provider, ledger, weather, disk) = (&scenario.provider, &scenario.ledger, &scenario.weather, &scenario.disk);
    let ms = |ns: u64| format!("{}.{:03} ms", ns / 1_000_000, ns / 1_000 % 1_000);
    vec![
        format!(
            "provider: a call takes {} and, for each token, {} to read it and {} to generate it; it never queues",
            ms(provider.base_ns),
            ms(provider.input_token_ns),
            ms(provider.output_token_ns)
        ),
        format!(
            "ledger: {} of compute a batch of at most {} requests and {} a request; a lease of {}",
            ms(ledger.batch_cost_ns),
            ledger.batch_limit,
            ms(ledger.request_cost_ns),
            humantime::format_duration(ledger.lease)
        ),
        match scenario.store {
            StoreKind::Memory => "disk: none; a commit to the memory store takes no time of its own".to_owned(),
            StoreKind::Redb => {
                let [read, write, sync] = [disk.read_ns, disk.write_ns, disk.sync_ns].map(ms);
                format!("disk: redb on it; {read} a read, {write} a write, {sync} a sync")
            }
        },
        format!(
            "network: {} to {} each way, {} of a million frames lost",
            ms(weather.latency_min_ns),
            ms(weather.latency_max_ns),
            weather.loss_ppm
        ),
        format!(
            "published caps: all n agents share one user's day and {} slots for live reservations; caps scaled to n: each {} \
             agents have a user of their own with as much, and the ledger's day is the sum of its users'",
            scenario.caps.slots, scaled.sizes.agents_per_user
        ),
        "waiting for a slot is waiting for the ledger".to_owned(),
        "faults: the scenario's swarm draws them from the seed, as in `gate`; they end before the run does".to_owned(),
        format!("agents begin runs for {} and are themselves instant", humantime::format_duration(CLIMB_LASTS)),
    ]
}

#[cfg(test)]
mod tests {
    use reports::row::{Kind, Rows};
    use scenarios::{
        catalogue,
        runner::{Choices, play, spec},
    };
    use std::collections::{BTreeMap, BTreeSet};

    /// Kinds of refusals are found by their names: one that is misspelt would be counted as none for ever.
    #[test]
    fn every_kind_of_refusal_that_a_row_counts_is_met_where_all_of_them_are() {
        let scenario = catalogue::find("ceilings").expect("shipped");
        let spec = spec(&scenario, 1, &Choices::default()).expect("a spec");
        let figures = play(&spec).expect("playable").report.figures;
        for (figure, count) in super::SPEND.counts.iter().filter(|(figure, _)| figure.starts_with("refused-")) {
            assert!(count(&figures) > 0, "{figure}: {:?}", figures.refusals);
        }
        for kind in super::OVER_QUOTA.iter().chain(&super::HALTED) {
            assert!(figures.refusals.contains_key(*kind), "{kind}: {:?}", figures.refusals);
        }
    }

    #[test]
    fn a_scenario_names_the_rows_that_its_takes_feed() {
        let mut fed: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for take in super::all().expect("the takes can be prepared") {
            let row = take.spots().next().expect("a take gives something").row;
            fed.entry(take.spec().scenario.name.clone()).or_default().insert(row);
        }
        for scenario in catalogue::all() {
            let named: BTreeSet<String> = scenario.rows.iter().cloned().collect();
            assert_eq!(named, fed.remove(&scenario.name).unwrap_or_default(), "{}", scenario.name);
        }
    }

    #[test]
    fn every_figure_of_a_take_is_one_of_the_table() {
        let rows = Rows::built_in().expect("the rows that ship can be read");
        let mut told = 0;
        for take in super::all().expect("the takes can be prepared") {
            for spot in take.spots() {
                let row = rows.rows.iter().find(|known| known.id == spot.row).expect("the row is known");
                let figure = row.figures.iter().find(|known| known.name == spot.figure).expect("the figure is known");
                let rungs: Vec<_> = figure.ladder.iter().flat_map(|ladder| ladder.rungs()).collect();
                let has_rung = spot.rung.is_none_or(|rung| rungs.contains(&(spot.under.as_ref(), rung)));
                assert!(has_rung, "the table has no {spot:?}");
                assert_eq!(figure.unmeasured, None, "{} says why there is none, and there is one", figure.name);
                told += usize::from(spot.rung.is_some());
            }
        }
        let made = |kind: Kind| matches!(kind, Kind::Predicted | Kind::Counted);
        let predicted = rows.rows.iter().flat_map(|row| &row.figures).filter(|figure| made(figure.kind));
        let wanted: usize = predicted.flat_map(|figure| &figure.ladder).map(|ladder| ladder.rungs().count()).sum();
        assert_eq!(told, wanted, "every rung of every climb has its take");
    }
}
