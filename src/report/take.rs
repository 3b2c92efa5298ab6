//! One take: some seeds of one scenario at one size, and the records they give.

use crate::{
    clock,
    exit::Failure,
    failing,
    provenance::{self, Origin},
};
use anyhow::Context as _;
use rayon::iter::{IntoParallelIterator as _, ParallelIterator as _};
use reports::record::{self, Hashes, Record, Sample, Work};
use scenarios::{
    catalogue,
    fact::{FACT, Fact},
    runner::{self, Choices, PlanChoice, Run, RunReport, RunSpec, Verdict},
    scenario::StoreKind,
};
use sim::{Recording, history};
use std::{collections::BTreeMap, ops::Range};

/// What `Cargo.toml` turns on in this binary, for the records.
const FEATURES: &str = "kernel/planted";

/// Which figures a take gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gives {
    /// The counts of C3.
    Contention,
    /// The predictions of C9 at one number of agents.
    Fleet,
}

/// Some seeds of one scenario at one size.
pub struct Take {
    gives: Gives,
    specs: Vec<RunSpec>,
    scenario_hash: String,
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
    /// Wall of each run done by one incarnation, in virtual nanoseconds.
    walls_ns: Vec<u64>,
    /// Of that, waiting for the ledger.
    waits_ns: u64,
    /// Calls settled, and when the last run was over.
    calls: u64,
    over_ns: u64,
}

/// Every take there is, the quick ones first.
pub fn all() -> anyhow::Result<Vec<Take>> {
    let mut takes = vec![Take::new(Gives::Contention, "contention", None, 0..16)?];
    for agents in [1, 16, 64, 256] {
        takes.push(Take::new(Gives::Fleet, "fleet", Some(agents), 0..4)?);
    }
    Ok(takes)
}

impl Take {
    fn new(gives: Gives, scenario: &str, agents: Option<u32>, seeds: Range<u64>) -> anyhow::Result<Take> {
        let scenario = catalogue::find(scenario)?;
        let recording = match gives {
            Gives::Contention => Recording::HashOnly { tail: 0 },
            Gives::Fleet => Recording::Full,
        };
        let choices = Choices { agents, plan: PlanChoice::None, recording, ..Choices::default() };
        let specs: Result<Vec<RunSpec>, _> = seeds.map(|seed| runner::spec(&scenario, seed, &choices)).collect();
        let specs = specs?;
        let resolved = &specs.first().context("a take has at least one seed")?.scenario;
        let scenario_hash = blake3::hash(&serde_json::to_vec(resolved)?).to_hex().to_string();
        Ok(Take { gives, specs, scenario_hash })
    }

    fn spec(&self) -> &RunSpec {
        &self.specs[0]
    }

    fn agents(&self) -> u64 {
        self.spec().scenario.sizes.agents.into()
    }

    /// The take in a few words.
    pub fn what(&self) -> String {
        format!("{} with {} agents", self.spec().scenario.name, self.agents())
    }

    /// The resolved scenario's name and agents, and its hash.
    pub fn scenario(&self) -> ((String, u64), String) {
        ((self.spec().scenario.name.clone(), self.agents()), self.scenario_hash.clone())
    }

    /// The figures it gives: row, figure, rung.
    pub fn figures(&self) -> impl Iterator<Item = (String, String, Option<u64>)> + '_ {
        let (row, figures, rung): (_, &[&str], _) = match self.gives {
            Gives::Contention => ("C3", &["over-cap", "refused", "admitted"], None),
            Gives::Fleet => ("C9", &["run-wall", "calls-per-second", "ledger-wait"], Some(self.agents())),
        };
        figures.iter().map(move |figure| (row.to_owned(), (*figure).to_owned(), rung))
    }

    /// Whether it gives a figure of that row at that number of agents.
    pub fn feeds(&self, row: &str, agents: Option<u64>) -> bool {
        self.figures().any(|(own, _, _)| own == row) && agents == Some(self.agents())
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
            Gives::Fleet => self.fleet(&gave, origin).map_err(Failure::defect)?,
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

    fn fleet(&self, gave: &[Gave], origin: &Origin) -> Result<Vec<Record>, record::RecordError> {
        let sum = |of: fn(&Gave) -> u64| gave.iter().map(of).sum::<u64>();
        let work = Work {
            offered: sum(|gave| gave.report.figures.calls_sent),
            done: sum(|gave| gave.report.figures.calls_served),
        };
        let walls = || gave.iter().flat_map(|gave| gave.walls_ns.iter().copied());
        let samples = [
            ("run-wall", Sample::times(walls())?),
            ("calls-per-second", Sample::Part { of: sum(|gave| gave.calls), whole: sum(|gave| gave.over_ns) }),
            ("ledger-wait", Sample::Part { of: sum(|gave| gave.waits_ns), whole: walls().sum() }),
        ];
        Ok(samples.map(|(figure, sample)| self.record("C9", figure, sample, work, origin)).into())
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
        let flags = ["--agents".to_owned(), self.agents().to_string(), "--plan".to_owned(), "none".to_owned()];
        failing::rerun(&self.spec().scenario.name, seed, &flags)
    }
}

/// Plays one run and reads from its history's facts what its runs took.
fn play(spec: &RunSpec) -> Result<Gave, Failure> {
    let Run { report, history: recorded, .. } = runner::play(spec).map_err(Failure::of_run)?;
    let mut gave = Gave { report, walls_ns: Vec::new(), waits_ns: 0, calls: 0, over_ns: 0 };
    if spec.recording != Recording::Full {
        return Ok(gave);
    }
    for entry in history::read(&recorded.kept) {
        let entry = entry.context("a history that was just made can be read").map_err(Failure::Defect)?;
        if entry.kind != FACT {
            continue;
        }
        let fact = Fact::read(entry.data).context("a fact that was just noted can be read").map_err(Failure::Defect)?;
        if let Fact::RunOver { wall_ns, ledger_wait_ns, calls, whole: true, .. } = fact {
            gave.walls_ns.push(wall_ns);
            gave.waits_ns += ledger_wait_ns;
            gave.calls += u64::from(calls);
            gave.over_ns = entry.time_ns;
        }
    }
    Ok(gave)
}

/// What the predictions assume, from the scenario they are played in.
pub fn assumptions(takes: &[Take]) -> Vec<String> {
    let Some(take) = takes.iter().find(|take| take.gives == Gives::Fleet) else { return Vec::new() };
    let scenario = &take.spec().scenario;
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
            "users: {} agents share one user's {} slots for live reservations; waiting for a slot is waiting for the ledger",
            scenario.sizes.agents_per_user, scenario.caps.slots
        ),
        format!(
            "no faults; agents begin runs for {} and are themselves instant",
            humantime::format_duration(scenario.sizes.lasts)
        ),
    ]
}

#[cfg(test)]
mod tests {
    use reports::row::Rows;

    #[test]
    fn every_figure_of_a_take_is_one_of_the_table() {
        let rows = Rows::built_in().expect("the rows that ship can be read");
        for take in super::all().expect("the takes can be prepared") {
            for (row, figure, rung) in take.figures() {
                let row = rows.rows.iter().find(|known| known.id == row).expect("the row is known");
                let figure = row.figures.iter().find(|known| known.name == figure).expect("the figure is known");
                let rungs = figure.ladder.as_ref().map(|ladder| ladder.at.as_slice()).unwrap_or_default();
                assert!(rung.is_none_or(|rung| rungs.contains(&rung)), "{} has no rung {rung:?}", figure.name);
                assert_eq!(figure.unmeasured, None, "{} says why there is none, and there is one", figure.name);
            }
        }
    }
}
