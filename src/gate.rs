//! `gate`: many seeds of many scenarios, side by side, with every failure's repro.
//!
//! Jobs draw the next deal from one counter, so what was played is always a beginning of the deals, whatever the budget; and
//! results are told in the order of the deals, whatever the jobs.

use crate::{
    choices::{self, Shared},
    clock::Stopwatch,
    exit::{self, Exit, Failure},
    failing, inputs, junit,
    output::{self, Format, Out},
    provenance::Origin,
    run,
    sometimes::Reached,
};
use anyhow::Context as _;
use indicatif::{ProgressBar, ProgressStyle};
use rayon::iter::{IndexedParallelIterator as _, IntoParallelIterator as _, ParallelIterator as _};
use reports::table::grouped;
use scenarios::{
    catalogue,
    gate::{self, Deal, Divergence, Partition},
    invariant::Broken,
    panicking,
    runner::{self, Choices, Provenance, Run, RunReport, RunSpec, Verdict},
    scenario::Scenario,
};
use serde::Serialize;
use sim::Engine;
use std::{
    collections::BTreeSet,
    ops::Range,
    path::PathBuf,
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

/// How many failing runs of a scenario are kept in full; the others are named by the command that plays them.
const MOST_KEPT: usize = 4;

/// The most seeds one gate plays: what came of each is kept until the end.
const MOST_SEEDS: u64 = 10_000_000;

/// The most runs that are played side by side.
const MOST_JOBS: u16 = 1_024;

/// What `gate` may be told.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Scenarios by name, or files by their paths ending in .toml [default: every one that ships].
    #[arg(value_name = "SCENARIO")]
    scenarios: Vec<String>,
    /// One run a seed, from A to B-1, dealt over the scenarios.
    #[arg(long, value_name = "A..B", value_parser = seeds, default_value = "0..200")]
    seeds: Range<u64>,
    /// Begin no more runs once this much time has passed, such as 5m.
    #[arg(long, value_name = "TIME", value_parser = choices::time)]
    budget: Option<Duration>,
    /// How many runs are played side by side [default: one a core].
    #[arg(long, value_name = "J", value_parser = jobs, allow_negative_numbers = true)]
    jobs: Option<u16>,
    /// Play only the k-th of n equal parts of the deals, so that n machines play them all.
    #[arg(long, value_name = "k/n", value_parser = part)]
    partition: Option<Partition>,
    /// A file to write JUnit XML into.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    #[command(flatten)]
    shared: Shared,
}

/// What came of one deal.
#[derive(Debug, Serialize)]
pub struct Played {
    /// The scenario's name.
    pub scenario: String,
    /// The seed.
    pub seed: u64,
    /// Agents.
    pub agents: u32,
    /// The verdict.
    pub verdict: Verdict,
    /// What was broken, or what did not end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broken: Option<Broken>,
    /// blake3 of the history, in hexadecimal.
    pub history_hash: String,
    /// Events the engine served.
    pub events: u64,
    /// How long the run lasted on the engine's clock.
    pub virtual_ns: u64,
    /// How long it took on this machine.
    pub wall_ns: u64,
    /// How many faults the plan held.
    pub faults: u64,
    /// Whether it was played twice and the histories compared.
    pub doubled: bool,
    /// Where two plays of it parted, if they did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parted: Option<Divergence>,
    /// The command that plays it again, if it failed; on any machine with these sources.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repro: Option<String>,
    /// Where all of it is kept, if it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    folder: Option<PathBuf>,
    /// What it reached of what must be reached sometimes.
    #[serde(skip)]
    reached: Vec<String>,
    /// Its place among the deals.
    #[serde(skip)]
    place: usize,
}

/// A deal that could not be played, which keeps no other from it.
#[derive(Debug, Serialize)]
pub struct Unplayed {
    /// The scenario's name.
    pub scenario: String,
    /// Its workload.
    pub workload: &'static str,
    /// The seed.
    pub seed: u64,
    /// Why, in one line.
    pub why: String,
    /// The command that shows it again.
    pub repro: String,
    /// What `run` exits with for it.
    #[serde(skip)]
    exit: Exit,
    /// Its place among the deals.
    #[serde(skip)]
    place: usize,
}

/// What came of one scenario.
#[derive(Debug, Default, Serialize)]
struct Share {
    scenario: String,
    runs: u64,
    failed: u64,
    virtual_hours: f64,
    events_per_s: f64,
}

/// A gate's JSON object.
#[derive(Debug, Serialize)]
struct Object {
    runs: u64,
    failed: u64,
    dealt: u64,
    doubled: u64,
    wall_ns: u64,
    runs_per_s: f64,
    virtual_hours_per_wall_hour: f64,
    seeds: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    partition: Option<String>,
    jobs: usize,
    engine: Engine,
    commit: String,
    dirty: bool,
    binary: String,
    scenarios: Vec<Share>,
    sometimes: Reached,
    results: Vec<Played>,
    unplayed: Vec<Unplayed>,
}

/// Does it.
pub fn perform(args: &Args, out: &mut Out) -> Result<Exit, Failure> {
    let (names, scenarios) = named(&args.scenarios)?;
    let choices = args.shared.resolve(false)?;
    let part = args.partition.unwrap_or(Partition::WHOLE);
    let deals = gate::deals(scenarios.len(), args.seeds.clone(), part).collect();
    let table = Table { deals, scenarios, names, choices, flags: args.shared.flags() };
    table.must_be_playable(&args.shared)?;
    if let Some(path) = &args.junit {
        let read = args.scenarios.iter().map(PathBuf::from).chain(args.shared.files());
        inputs::must_not_be("--junit", path, read).map_err(Failure::Input)?;
        junit::must_be_writable(path).map_err(Failure::Input)?;
    }
    let jobs = args.jobs.map_or_else(rayon::current_num_threads, usize::from).min(table.deals.len().max(1));
    let watch = Stopwatch::start();
    let interrupted = interruption();
    let results = table.play_all(jobs, args.budget, watch, interrupted)?;
    let wall_ns = watch.elapsed_ns();
    let object = summarise(args, &table, jobs, wall_ns, results);
    let written = args.junit.as_ref().map_or(Ok(()), |path| junit::write(path, &object.results, &object.unplayed));
    let told = match out.format {
        Format::Json => out.json(&object),
        Format::Text => out.text(&text(&object, args.budget)),
    };
    let exit = exit(&object, interrupted.load(Ordering::Relaxed));
    let exit = exit?.despite(written.map_err(Failure::Input))?;
    exit.despite(told)
}

/// What a gate that was played exits with.
fn exit(object: &Object, was_interrupted: bool) -> Result<Exit, Failure> {
    let exit = gravest(object);
    if exit == Exit::Pass && was_interrupted {
        return Ok(Exit::Interrupted);
    }
    if object.results.is_empty() && object.unplayed.is_empty() {
        let why = "nothing was played, so nothing is known to hold; give a longer --budget, more --seeds or a smaller n in --partition";
        return Err(Failure::Input(anyhow::anyhow!(why)));
    }
    Ok(match exit {
        Exit::Pass if !object.sometimes.never.is_empty() => Exit::Unreached,
        exit => exit,
    })
}

/// The exit of a gate: of a defect of shakedown, else of the gravest verdict, else of what could not be played.
fn gravest(gate: &Object) -> Exit {
    let unplayed = gate.unplayed.iter().map(|unplayed| unplayed.exit);
    if unplayed.clone().any(|exit| exit == Exit::Defect) {
        return Exit::Defect;
    }
    match Exit::of_all(gate.results.iter().map(|played| played.verdict)) {
        Exit::Pass => unplayed.into_iter().next().unwrap_or(Exit::Pass),
        exit => exit,
    }
}

/// Set when the user interrupts: no more runs begin, and what was played is told. A second interrupt ends the process.
fn interruption() -> &'static AtomicBool {
    static INTERRUPTED: AtomicBool = AtomicBool::new(false);
    let armed = ctrlc::set_handler(|| {
        if INTERRUPTED.swap(true, Ordering::Relaxed) {
            std::process::exit(Exit::Interrupted as i32);
        }
    });
    if let Err(error) = armed {
        output::note(&format!("warning: an interrupt will lose what was played: {error}"));
    }
    &INTERRUPTED
}

/// The scenarios, and the names they were asked for by.
fn named(names: &[String]) -> Result<(Vec<String>, Vec<Scenario>), Failure> {
    if names.is_empty() {
        let scenarios = catalogue::all();
        return Ok((scenarios.iter().map(|scenario| scenario.name.clone()).collect(), scenarios));
    }
    let scenarios: Result<Vec<Scenario>, _> = names.iter().map(|name| catalogue::find(name)).collect();
    let scenarios = scenarios.map_err(Failure::input)?;
    let mut seen = BTreeSet::new();
    if let Some(twice) = scenarios.iter().find(|scenario| !seen.insert(&scenario.name)) {
        let name = &twice.name;
        return Err(Failure::Input(anyhow::anyhow!(
            "two of the scenarios are named `{name}`; rename one, or give it once"
        )));
    }
    Ok((names.to_vec(), scenarios))
}

/// What is dealt, to whom.
struct Table {
    deals: Vec<Deal>,
    scenarios: Vec<Scenario>,
    /// What each scenario was called on the command line.
    names: Vec<String>,
    choices: Choices,
    /// The flags that play a deal again, its scenario and seed apart.
    flags: Vec<String>,
}

impl Table {
    /// Whether the choices go together with every scenario, so that the first run does not find out.
    fn must_be_playable(&self, shared: &Shared) -> Result<(), Failure> {
        let root = run::real_root(self.choices.engine)?;
        let choices = Choices { root: root.map(|root| root.path().to_owned()), ..self.choices.clone() };
        for scenario in &self.scenarios {
            match runner::spec(scenario, 0, &choices) {
                Err(error) if !error.is_of_the_work() => return Err(shared.refused(error)),
                // What seed 0 draws is told with it, if it is dealt.
                _ => {}
            }
        }
        Ok(())
    }

    /// What keeps the deal from being played: its own work, or a panic that no run accounts for.
    fn play_or_say_why(&self, deal: Deal, place: usize, shelf: &Shelf) -> Result<Played, Unplayed> {
        let unplayed = |why: String, exit: Exit| {
            let scenario = &self.scenarios[deal.scenario];
            let (workload, seed) = (scenario.workload.name, deal.seed);
            let repro = failing::rerun(&self.names[deal.scenario], seed, &self.flags);
            Unplayed { scenario: scenario.name.clone(), workload, seed, why, repro, exit, place }
        };
        match panicking::caught(|| self.play_one(deal, place, shelf)) {
            Ok(Ok(played)) => Ok(played),
            Ok(Err(failure)) => Err(unplayed(failure.why(), failure.exit())),
            Err(panic) => Err(unplayed(format!("shakedown is broken: it {panic}"), Exit::Defect)),
        }
    }

    /// Plays deals until there are none left or the budget is spent.
    fn play_all(
        &self,
        jobs: usize,
        budget: Option<Duration>,
        watch: Stopwatch,
        interrupted: &AtomicBool,
    ) -> Result<(Vec<Played>, Vec<Unplayed>), Failure> {
        let bar = progress(self.deals.len());
        let (next, failed) = (AtomicUsize::new(0), AtomicU64::new(0));
        let shelf = Shelf::new(self.scenarios.len());
        let job = |_| {
            let (mut played, mut unplayed) = (Vec::new(), Vec::new());
            while budget.is_none_or(|budget| watch.elapsed() < budget) && !interrupted.load(Ordering::Relaxed) {
                let place = next.fetch_add(1, Ordering::Relaxed);
                let Some(deal) = self.deals.get(place) else { break };
                let result = self.play_or_say_why(*deal, place, &shelf);
                if result.as_ref().map_or(true, |result| result.verdict != Verdict::Pass) {
                    let failed = 1 + failed.fetch_add(1, Ordering::Relaxed);
                    bar.set_message(format!("{failed} failed"));
                }
                match result {
                    Ok(result) => played.push(result),
                    Err(why) => unplayed.push(why),
                }
                bar.inc(1);
            }
            (played, unplayed)
        };
        let pool = rayon::ThreadPoolBuilder::new().num_threads(jobs).build();
        let pool = pool.context("the jobs cannot be started; give fewer with --jobs").map_err(Failure::Input)?;
        let (played, unplayed): (Vec<Vec<Played>>, Vec<Vec<Unplayed>>) =
            pool.install(|| (0..jobs).into_par_iter().with_max_len(1).map(job).unzip());
        bar.finish_and_clear();
        let mut played: Vec<Played> = played.into_iter().flatten().collect();
        let mut unplayed: Vec<Unplayed> = unplayed.into_iter().flatten().collect();
        played.sort_by_key(|played| played.place);
        unplayed.sort_by_key(|unplayed| unplayed.place);
        Ok((played, unplayed))
    }

    fn play_one(&self, deal: Deal, place: usize, shelf: &Shelf) -> Result<Played, Failure> {
        let root = run::real_root(self.choices.engine)?;
        let choices = Choices { root: root.as_ref().map(|root| root.path().to_owned()), ..self.choices.clone() };
        let scenario = &self.scenarios[deal.scenario];
        let spec = runner::spec(scenario, deal.seed, &choices).map_err(Failure::input)?;
        if spec.engine == Engine::Real {
            let run = runner::play(&spec).map_err(Failure::of_run)?;
            return Ok(self.told(Played::of(run.report, place, None, false)));
        }
        let twice = gate::is_doubled(deal.seed);
        let (run, parted) = gate::play_drawn(scenario, &spec, &choices, twice).map_err(Failure::of_run)?;
        let doubled = twice || run.report.verdict != Verdict::Pass;
        let folder = shelf.keep(deal.scenario, &spec, &run);
        Ok(self.told(Played { folder, ..Played::of(run.report, place, parted, doubled) }))
    }

    /// With the command that plays it again, if it failed.
    fn told(&self, played: Played) -> Played {
        let Deal { scenario, seed, .. } = self.deals[played.place];
        let failed = played.verdict != Verdict::Pass;
        Played { repro: failed.then(|| failing::rerun(&self.names[scenario], seed, &self.flags)), ..played }
    }
}

/// Where failing runs are put as they are found, so that a gate that is stopped leaves what it has.
struct Shelf {
    /// How many of each scenario are kept.
    kept: Vec<AtomicUsize>,
    provenance: OnceLock<Provenance>,
}

impl Shelf {
    fn new(scenarios: usize) -> Shelf {
        Shelf { kept: (0..scenarios).map(|_| AtomicUsize::new(0)).collect(), provenance: OnceLock::new() }
    }

    /// Keeps a failing run, which was recorded in full, unless [`MOST_KEPT`] of its scenario are kept already.
    fn keep(&self, scenario: usize, spec: &RunSpec, run: &Run) -> Option<PathBuf> {
        if run.report.verdict == Verdict::Pass || self.kept[scenario].fetch_add(1, Ordering::Relaxed) >= MOST_KEPT {
            return None;
        }
        let provenance = self.provenance.get_or_init(|| Origin::find().provenance());
        match failing::keep(spec, run, provenance) {
            Ok(folder) => Some(folder),
            Err(error) => {
                output::note(&format!("warning: {}", exit::chain(&error)));
                None
            }
        }
    }
}

/// A bar on standard error, drawn only on a terminal.
fn progress(length: usize) -> ProgressBar {
    let bar = ProgressBar::new(length as u64);
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} {per_sec} {eta} left  {msg}");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar
}

impl Played {
    fn of(report: RunReport, place: usize, parted: Option<Divergence>, doubled: bool) -> Played {
        let RunReport {
            scenario,
            seed,
            agents,
            verdict,
            broken,
            history_hash,
            events,
            virtual_ns,
            wall_ns,
            faults,
            reached_sometimes: reached,
            ..
        } = report;
        Played {
            scenario,
            seed,
            agents,
            verdict,
            broken,
            history_hash,
            events,
            virtual_ns,
            wall_ns,
            faults,
            doubled,
            parted,
            repro: None,
            folder: None,
            reached,
            place,
        }
    }
}

fn summarise(
    args: &Args,
    table: &Table,
    jobs: usize,
    wall_ns: u64,
    (results, unplayed): (Vec<Played>, Vec<Unplayed>),
) -> Object {
    let origin = Origin::find();
    let is_failed = |played: &&Played| played.verdict != Verdict::Pass;
    let share = |scenario: &Scenario| {
        let of: Vec<&Played> = results.iter().filter(|played| played.scenario == scenario.name).collect();
        let (events, wall): (u64, u64) =
            of.iter().fold((0, 0), |(events, wall), played| (events + played.events, wall + played.wall_ns));
        Share {
            scenario: scenario.name.clone(),
            runs: of.len() as u64,
            failed: of.iter().copied().filter(is_failed).count() as u64,
            virtual_hours: hours(of.iter().map(|played| played.virtual_ns)),
            events_per_s: per(events as f64, wall as f64 / 1e9),
        }
    };
    let wall_hours = hours([wall_ns]);
    let scenarios: Vec<Share> = table.scenarios.iter().map(share).collect();
    let runs: Vec<(&Scenario, u64)> = table.scenarios.iter().zip(scenarios.iter().map(|share| share.runs)).collect();
    let sometimes = Reached::unite(results.iter().flat_map(|played| &played.reached), &runs, &args.shared);
    Object {
        runs: results.len() as u64,
        failed: results.iter().filter(is_failed).count() as u64,
        dealt: table.deals.len() as u64,
        doubled: results.iter().filter(|played| played.doubled).count() as u64,
        wall_ns,
        runs_per_s: per(results.len() as f64, wall_ns as f64 / 1e9),
        virtual_hours_per_wall_hour: per(hours(results.iter().map(|played| played.virtual_ns)), wall_hours),
        seeds: format!("{}..{}", args.seeds.start, args.seeds.end),
        partition: args.partition.map(|Partition { part, of }| format!("{part}/{of}")),
        jobs,
        engine: args.shared.engine.into(),
        commit: origin.commit,
        dirty: origin.dirty,
        binary: origin.binary,
        scenarios,
        sometimes,
        results,
        unplayed,
    }
}

fn hours(ns: impl IntoIterator<Item = u64>) -> f64 {
    ns.into_iter().map(|ns| ns as f64).fold(0.0, |sum, ns| sum + ns) / 3.6e12 // an empty sum() would be -0.0
}

fn per(count: f64, time: f64) -> f64 {
    if time > 0.0 { count / time } else { 0.0 }
}

/// A gate as people read it.
fn text(gate: &Object, budget: Option<Duration>) -> String {
    let mut lines =
        vec![format!("{:<20} {:>8} {:>8} {:>14} {:>14}", "scenario", "runs", "failed", "virtual hours", "events/s")];
    for share in &gate.scenarios {
        let Share { scenario, runs, failed, virtual_hours, events_per_s } = share;
        let events = grouped(*events_per_s as u64);
        lines.push(format!(
            "{scenario:<20} {:>8} {:>8} {virtual_hours:>14.2} {events:>14}",
            grouped(*runs),
            grouped(*failed)
        ));
    }
    lines.push(String::new());
    lines.push(format!(
        "{} runs of seeds {} in {}, {} of them played twice; {:.1} runs/s; {} virtual hours per wall hour",
        grouped(gate.runs),
        gate.seeds,
        output::span(gate.wall_ns),
        grouped(gate.doubled),
        gate.runs_per_s,
        grouped(gate.virtual_hours_per_wall_hour as u64)
    ));
    if gate.runs + (gate.unplayed.len() as u64) < gate.dealt {
        let (runs, dealt) = (grouped(gate.runs), grouped(gate.dealt));
        let why = budget.filter(|budget| budget.as_nanos() <= u128::from(gate.wall_ns)).map_or_else(
            || "interrupted".to_owned(),
            |budget| format!("the budget of {} was spent", humantime::format_duration(budget)),
        );
        lines.push(format!("{why}: {runs} of {dealt} were played"));
    }
    let Reached { reached, never, not_required } = &gate.sometimes;
    lines.push(format!(
        "sometimes: {} reached, {} never; {} more were not reached and need not have been",
        reached.len(),
        never.len(),
        not_required.len()
    ));
    lines.extend(never.iter().map(|name| format!("  {} {name}", output::alarm("never reached"))));
    for played in gate.results.iter().filter(|played| played.verdict != Verdict::Pass) {
        let verdict = output::alarm(&format!("{:?}", played.verdict).to_lowercase());
        let broken = played.broken.as_ref().map_or_else(String::new, |broken| {
            format!(": {}: {}", broken.invariant, output::printable(&broken.message))
        });
        lines.push(format!("\n{} seed {} {verdict}{broken}", played.scenario, played.seed));
        lines.push(format!("  {}", played.repro.as_deref().unwrap_or_default()));
        lines.extend(played.folder.as_ref().map(|folder| format!("  kept in {}", folder.display())));
    }
    for Unplayed { scenario, workload, seed, why, repro, .. } in &gate.unplayed {
        let word = output::alarm("not played");
        lines.push(format!("\n{scenario} (workload {workload}) seed {seed} {word}: {why}\n  {repro}"));
    }
    let mut failed = if gate.runs == 0 {
        "nothing was played".to_owned()
    } else if gate.failed == 0 {
        "none failed".to_owned()
    } else {
        format!("{} failed", grouped(gate.failed))
    };
    if !gate.unplayed.is_empty() {
        failed = format!("{failed}, {} could not be played", grouped(gate.unplayed.len() as u64));
    }
    lines.push(format!("\n{failed}\n"));
    lines.join("\n")
}

fn seeds(text: &str) -> Result<Range<u64>, String> {
    let parse = || {
        let (from, to) = text.split_once("..")?;
        Some(from.parse().ok()?..to.parse().ok()?)
    };
    match parse() {
        Some(Range { start, end }) if start < end && end - start <= MOST_SEEDS => Ok(start..end),
        Some(Range { start, end }) if start < end => Err(format!("give at most {MOST_SEEDS} seeds at a time")),
        _ => Err("write two numbers such as 0..200, the first below the second; the second is not played".to_owned()),
    }
}

fn jobs(text: &str) -> Result<u16, String> {
    match text.parse() {
        Ok(jobs @ 1..=MOST_JOBS) => Ok(jobs),
        _ => Err(format!("give a number of jobs from 1 to {MOST_JOBS}")),
    }
}

fn part(text: &str) -> Result<Partition, String> {
    let parse = || {
        let (part, of) = text.split_once('/')?;
        Some(Partition { part: part.parse().ok()?, of: of.parse().ok()? })
    };
    match parse() {
        Some(Partition { part, of }) if part >= 1 && part <= of => Ok(Partition { part, of }),
        _ => Err("write a part such as 1/4: the first of four, k from 1 to n".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;
    use scenarios::workload::{WorkList, Workload};

    #[derive(clap::Parser)]
    struct Gate {
        #[command(flatten)]
        args: Args,
    }

    /// Contention's lists, of a workload that panics on each third seed.
    fn stumbling() -> Scenario {
        let mut scenario = catalogue::find("contention").expect("shipped");
        let draw = |scenario: &Scenario, seed: u64| -> WorkList {
            assert!(seed % 3 != 1, "nothing to draw from");
            scenarios::workload::contention::work(&scenario.sizes, &scenario.provider.price)
        };
        scenario.workload = Workload { name: "stumbling", does: "panics on each third seed", draw };
        scenario
    }

    #[test]
    fn a_workload_that_panics_is_named_with_its_seed_and_the_other_runs_are_played() {
        let args = Gate::parse_from(["gate"]).args;
        let scenarios = vec![stumbling()];
        let deals: Vec<Deal> = gate::deals(1, 0..6, Partition::WHOLE).collect();
        let choices = Choices { plan: runner::PlanChoice::None, ..Choices::default() };
        let flags = vec!["--plan".to_owned(), "none".to_owned()];
        let table = Table { deals, scenarios, names: vec!["s.toml".to_owned()], choices, flags };
        table.must_be_playable(&args.shared).expect("what a seed draws is found out when it is dealt");
        let never = AtomicBool::new(false);
        let all = table.play_all(2, None, Stopwatch::start(), &never).expect("the jobs start");
        assert_eq!(all.0.iter().map(|played| played.seed).collect::<Vec<_>>(), [0, 2, 3, 5]);
        assert_eq!(all.1.iter().map(|unplayed| unplayed.seed).collect::<Vec<_>>(), [1, 4]);
        let why = &all.1[0].why;
        for part in
            ["the workload `stumbling` of scenario contention", "seed 1", "src/gate.rs:", "nothing to draw from"]
        {
            assert!(why.contains(part), "{part}: {why}");
        }
        assert!(all.1[0].repro.contains("run s.toml --seed 1 --plan none"), "{}", all.1[0].repro);
        let object = summarise(&args, &table, 2, 1, all);
        assert_eq!((object.runs, object.failed, gravest(&object)), (4, 0, Exit::Usage));
        let said = text(&object, None);
        assert!(
            said.contains("contention (workload stumbling) seed 4") && said.contains("2 could not be played"),
            "{said}"
        );
        let xml = junit::xml(&object.results, &object.unplayed);
        assert!(xml.contains(r#"tests="6" failures="0" errors="2""#) && xml.contains("<error "), "{xml}");
    }

    #[test]
    fn seeds_are_a_range_that_holds_something() {
        for (text, expect) in [
            ("0..200", Some(0..200)),
            ("7..8", Some(7..8)),
            ("18446744073709551614..18446744073709551615", Some(u64::MAX - 1..u64::MAX)),
            ("8..8", None),
            ("0..10000001", None),
            ("9..8", None),
            ("0..18446744073709551616", None),
            ("-1..3", None),
            ("5", None),
            ("..", None),
            ("", None),
        ] {
            assert_eq!(seeds(text).ok(), expect, "{text}");
        }
    }

    #[test]
    fn a_part_is_one_of_those_there_are() {
        for (text, expect) in
            [("1/1", true), ("4/4", true), ("0/4", false), ("5/4", false), ("1/0", false), ("x", false)]
        {
            assert_eq!(part(text).is_ok(), expect, "{text}");
        }
    }
}
