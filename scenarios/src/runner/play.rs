//! Plays a spec: builds the cast and the director, lets the engine run, and judges.

use super::{
    Run, RunReport, RunSpec, Verdict,
    director::{Course, Director, News},
    observe::Observed,
    rest::{Found, Shelf},
    spec::SpecError,
};
use crate::{
    cast::{self, Casting, Stage},
    invariant::{Broken, Watch, WholeLog},
    panicking::{Panic, caught},
    scenario::StoreKind,
    sometimes::{Seen, Sometimes},
};
use kernel::{
    planted::{Bug, Planted},
    reserve::Level,
    store::memory::MemoryStore,
};
use sim::{Config, Engine, EngineError, Played, Recorded, Stats};
use std::{cell::RefCell, rc::Rc};

/// What every wall clock of a simulated run begins near: 2026-01-01, in nanoseconds since the Unix epoch.
const WALL_START_NS: u64 = 1_767_225_600_000_000_000;

/// The run could not be played.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The spec makes no sense.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The engine could not.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// Plays a run to its verdict. A panic inside it is caught, and is a safety verdict of its own: see
/// [`Whose`](crate::panicking::Whose).
///
/// Simulated runs depend on nothing but the spec, except [`RunReport::wall_ns`]. Any number may play on as many threads.
pub fn play(spec: &RunSpec) -> Result<Run, RunError> {
    spec.check()?;
    Ok(timed(spec)?)
}

#[expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "how long a run takes on this machine is no part of it"
)]
fn timed(spec: &RunSpec) -> Result<Run, EngineError> {
    let began = std::time::Instant::now();
    let mut run = judged(spec)?;
    run.report.wall_ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
    Ok(run)
}

fn judged(spec: &RunSpec) -> Result<Run, EngineError> {
    let planted = Planted::these(&spec.bugs);
    let watch = Watch::these(&spec.scenario.invariants).expect("a checked scenario names known invariants");
    let lowest = spec.scenario.lowest_settings();
    let users = spec.scenario.sizes.users();
    let seen = Seen::new(Level::ALL.map(|level| lowest.cap(level, users)), lowest.quota);
    let observed = Rc::new(Observed::new(watch, seen));
    let news = Rc::new(News::default());
    let performed = match caught(|| perform(spec, &planted, &observed, &news)) {
        Ok(performed) => performed?,
        Err(panic) => Performed::Fell(None, panic),
    };
    let mut run = match performed {
        Performed::Whole(whole) => {
            let (played, course, found) = *whole;
            let (verdict, broken) = judge(&observed, &course, &found, played.elapsed_ns);
            let mut run = report(spec, &observed, verdict, broken, played.history, played.stats);
            run.report.virtual_ns = played.elapsed_ns;
            run.tables = found.tables();
            run.log = found.log;
            run
        }
        Performed::Fell(history, panic) => {
            let broken = panic.broken(observed.last_ns.get());
            let history = history.unwrap_or_else(|| unrecorded(&broken, &observed));
            let mut run = report(spec, &observed, Verdict::Safety, Some(broken), history, Stats::default());
            run.report.virtual_ns = observed.last_ns.get();
            run
        }
    };
    let reached = Bug::ALL.into_iter().map(|bug| (bug.name().to_owned(), planted.reached(bug)));
    let (felt, healed) = (news.felt.take(), news.is_healed.get());
    let sometimes = observed.seen.borrow().reached(felt, healed);
    run.report.reached_sometimes = sometimes.into_iter().map(Sometimes::name).collect();
    run.report.reached = reached.filter(|(_, times)| *times > 0).collect();
    Ok(run)
}

/// How far a run came.
enum Performed {
    /// To its end.
    Whole(Box<(Played, Course, Found)>),
    /// To a panic, with the history up to it.
    Fell(Option<Recorded>, Panic),
}

fn perform(
    spec: &RunSpec,
    planted: &Planted,
    observed: &Rc<Observed>,
    news: &Rc<News>,
) -> Result<Performed, EngineError> {
    let shelf = match spec.scenario.store {
        StoreKind::Memory => Shelf::Memory(MemoryStore::new()),
        StoreKind::Redb => match (spec.engine, &spec.root) {
            (Engine::Real, Some(root)) => Shelf::RealRedb(root.join("ledger-at-rest")),
            (Engine::Real, None) => return Err(EngineError::NoRoot),
            (Engine::Native, _) => Shelf::Redb,
        },
    };
    let stage = Rc::new(Stage::default());
    let cast = cast::assemble(Casting {
        scenario: Rc::new(spec.scenario.clone()),
        work: spec.work.clone(),
        open_store: shelf.opener(),
        planted: planted.clone(),
        stage: stage.clone(),
        twins: spec.scenario.places().twins(&spec.plan),
    });
    let config = Config {
        seed: spec.seed,
        schedule_cut: spec.schedule_cut,
        recording: spec.recording,
        weather: spec.scenario.weather,
        wall_start_ns: WALL_START_NS,
        root: spec.root.clone(),
    };
    let ended: Rc<RefCell<Option<(Course, Found)>>> = Rc::default();
    let director: sim::Director = {
        let (ended, news, spec) = (ended.clone(), news.clone(), spec.clone());
        Box::new(move |control| {
            let director = Director::new(control, &spec, shelf, stage, news);
            Box::pin(async move { *ended.borrow_mut() = Some(director.conduct().await) })
        })
    };
    let (observed, news) = (observed.clone(), news.clone());
    let observer: sim::Observer = Box::new(move |entry| observed.entry(entry, &news));
    let played = match sim::play_caught(spec.engine, config, cast, director, observer)? {
        Ok(played) => played,
        Err(fallen) => return Ok(Performed::Fell(fallen.history, Panic::told(&*fallen.panic))),
    };
    let (course, found) = ended.borrow_mut().take().expect("a run ends when its director does");
    Ok(Performed::Whole(Box::new((played, course, found))))
}

/// Safety before liveness.
fn judge(observed: &Observed, course: &Course, found: &Found, at_ns: u64) -> (Verdict, Option<Broken>) {
    let mut watch = observed.watch.borrow_mut();
    if let Some(broken) = watch.broken() {
        return (Verdict::Safety, Some(broken.clone()));
    }
    if let Some(why) = &found.unreadable {
        let broken = Broken { invariant: "store-reads-back".to_owned(), message: why.clone(), time_ns: at_ns };
        return (Verdict::Safety, Some(broken));
    }
    watch.at_rest(&found.rest(course));
    if let Some(broken) = watch.broken() {
        return (Verdict::Safety, Some(broken.clone()));
    }
    match course {
        Course::Hung(broken) => (Verdict::Liveness, Some(broken.clone())),
        Course::Converged | Course::Stopped => (Verdict::Pass, None),
    }
}

/// Of a run that panicked and left no history: how far it came, which is all that its hash can cover.
fn unrecorded(broken: &Broken, observed: &Observed) -> Recorded {
    let Broken { message, time_ns, .. } = broken;
    let entries = observed.entries.get();
    let hash = *blake3::hash(format!("panic after {entries} entries at {time_ns} ns: {message}").as_bytes()).as_bytes();
    Recorded { hash, entries, kept: Vec::new() }
}

fn report(
    spec: &RunSpec,
    observed: &Observed,
    verdict: Verdict,
    broken: Option<Broken>,
    history: Recorded,
    stats: Stats,
) -> Run {
    let overspends = observed.watch.borrow().overspends();
    let report = RunReport {
        scenario: spec.scenario.name.clone(),
        seed: spec.seed,
        agents: spec.scenario.sizes.agents,
        engine: spec.engine,
        store: spec.scenario.store,
        verdict,
        broken,
        history_hash: blake3::Hash::from_bytes(history.hash).to_hex().to_string(),
        events: stats.events,
        virtual_ns: 0,
        wall_ns: 0,
        figures: observed.tally.borrow().figures(spec.arrivals, overspends),
        stats,
        reached: Vec::new(),
        faults: spec.plan.faults.len() as u64,
        reached_sometimes: Vec::new(),
    };
    let raw = observed.tally.borrow().raw();
    Run { report, raw, history, log: WholeLog::default(), tables: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        catalogue,
        panicking::Whose,
        runner::{Choices, spec},
    };
    use faults::{At, Fault, Planned, Target};
    use sim::{Recording, history};
    use std::time::Duration;

    #[test]
    fn a_panic_inside_a_run_is_a_safety_verdict_and_leaves_the_thread_fit_for_another() {
        let scenario = catalogue::find("contention").expect("shipped");
        let choices = Choices { recording: Recording::Full, ..Choices::default() };
        let sound = spec(&scenario, 1, &choices).expect("a spec");
        let mut unsound = sound.clone();
        unsound.plan.faults = vec![Planned {
            at: At::Time(Duration::from_secs(1)),
            fault: Fault::Kill,
            target: Target::Node("nobody".to_owned()),
            lasts: Duration::from_secs(1),
        }];
        let before = timed(&sound).expect("playable").report;
        let fell = timed(&unsound).expect("playable");
        let broken = fell.report.broken.expect("says what");
        assert_eq!((fell.report.verdict, broken.invariant.as_str()), (Verdict::Safety, Whose::Engine.name()));
        for part in ["a spec's plan is about its own cast", "panicked at scenarios/src/runner/director.rs:"] {
            assert!(broken.message.contains(part), "{}", broken.message);
        }
        let entries: Result<Vec<_>, _> = history::read(&fell.history.kept).collect();
        assert_eq!(entries.expect("readable").len() as u64, fell.history.entries);
        assert_eq!(blake3::hash(&fell.history.kept).to_hex().as_str(), fell.report.history_hash);
        assert_eq!(timed(&unsound).expect("playable").report.history_hash, fell.report.history_hash);
        assert_eq!(timed(&sound).expect("playable").report.history_hash, before.history_hash);
    }
}
