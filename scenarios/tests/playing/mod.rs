//! Plays a cast without the runner: a scenario file, a work list, a script for the director, and what was seen.
#![allow(dead_code, reason = "each test binary uses its own part")]

use kernel::{
    planted::{Bug, Planted},
    record::{Event, Frame, Record},
    serve::{ANNOUNCEMENT, Announcement},
    store::{Store, memory::MemoryStore},
};
use scenarios::{
    cast::{Casting, OpenStore, Stage, assemble},
    fact::{FACT, Fact},
    scenario::Scenario,
    workload::WorkList,
};
use sim::{Config, Control, Engine, NodeId, Recording, Stats};
use std::{cell::RefCell, future::Future, path::PathBuf, rc::Rc, sync::Arc, time::Duration};

/// What a run is made of.
pub struct Play {
    pub engine: Engine,
    pub scenario: Scenario,
    pub work: WorkList,
    pub seed: u64,
    pub bugs: Vec<Bug>,
    pub root: Option<PathBuf>,
    /// How long after closing everything may take to come to rest.
    pub bound: Duration,
}

/// What was seen.
pub struct Seen {
    pub facts: Vec<(u64, NodeId, Fact)>,
    pub records: Vec<Record>,
    pub at_rest: bool,
    pub elapsed_ns: u64,
    pub hash: [u8; 32],
    pub stats: Stats,
}

/// The fleet's scenario file.
pub fn fleet() -> Scenario {
    toml::from_str(include_str!("../../catalogue/fleet.toml")).expect("the catalogue's own files can be read")
}

impl Play {
    pub fn native(scenario: Scenario, work: WorkList, seed: u64) -> Play {
        let bound = scenario.heal_bound;
        Play { engine: Engine::Native, scenario, work, seed, bugs: Vec::new(), root: None, bound }
    }

    pub fn play(self) -> Seen {
        self.play_with(|_, _| async {})
    }

    /// Plays with `script` conducting until it ends; then for as long as the scenario lasts; then closes and heals.
    pub fn play_with<F: Future<Output = ()> + 'static>(
        self,
        script: impl FnOnce(Control, Rc<Stage>) -> F + 'static,
    ) -> Seen {
        let store = MemoryStore::new();
        let open_store: OpenStore = Arc::new(move |_| Ok(Box::new(store.clone()) as Box<dyn Store>));
        let stage = Rc::new(Stage::default());
        let agents = self.work.agents.len();
        let (lasts, bound, pace) = (self.scenario.sizes.lasts, self.bound, self.scenario.heal_bound / 2_700);
        let config = Config {
            seed: self.seed,
            schedule_cut: None,
            recording: Recording::HashOnly { tail: 16 },
            weather: self.scenario.weather,
            wall_start_ns: 1_700_000_000_000_000_000,
            root: self.root,
        };
        let cast = assemble(Casting {
            scenario: Rc::new(self.scenario),
            work: Arc::new(self.work),
            open_store,
            planted: Planted::these(&self.bugs),
            stage: stage.clone(),
            twins: Default::default(),
        });
        let at_rest = Rc::new(RefCell::new(false));
        let reporting = at_rest.clone();
        let director = Box::new(move |control: Control| -> std::pin::Pin<Box<dyn Future<Output = ()>>> {
            Box::pin(async move {
                let begun = control.now();
                script(control.clone(), stage.clone()).await;
                control.sleep(lasts.saturating_sub(control.now().since(begun))).await;
                stage.closing.set(true);
                let _real_engines_cannot = control.heal();
                let closed = control.now();
                while control.now().since(closed) < bound {
                    let rest = stage.done.borrow().len() == agents && stage.owner_idle.get();
                    if rest && stage.orders.borrow().is_empty() {
                        *reporting.borrow_mut() = true;
                        break;
                    }
                    control.sleep(pace).await;
                }
            })
        });
        let seen = Rc::new(RefCell::new((Vec::new(), Vec::new())));
        let seeing = seen.clone();
        let observer = Box::new(move |entry: &sim::Entry<'_>| {
            let (facts, records) = &mut *seeing.borrow_mut();
            match entry.kind {
                FACT => facts.push((entry.time_ns, entry.node, postcard::from_bytes(entry.data).expect("a fact"))),
                ANNOUNCEMENT => note_records(records, entry.data),
                _ => {}
            }
        });
        let played = sim::play(self.engine, config, cast, director, observer).expect("the run can be played");
        let (facts, records) = seen.take();
        let at_rest = *at_rest.borrow();
        let hash = played.history.hash;
        Seen { facts, records, at_rest, elapsed_ns: played.elapsed_ns, hash, stats: played.stats }
    }
}

/// Adds the records of an announced frame, or of the one that was durable and never announced.
fn note_records(records: &mut Vec<Record>, data: &[u8]) {
    let frame = match postcard::from_bytes(data).expect("an announcement") {
        Announcement::Committed { frame, .. } => frame,
        Announcement::Opened { last_frame, .. } => last_frame,
        Announcement::Broke { why } => panic!("the ledger broke: {why}"),
    };
    let Some(frame) = frame else { return };
    let frame: Frame = postcard::from_bytes(&frame).expect("a frame");
    let next = records.last().map_or(0, |last: &Record| last.seq + 1);
    records.extend(frame.records.into_iter().filter(|record| record.seq >= next));
}

impl Seen {
    /// Walls of the runs that one incarnation did from beginning to end, sorted.
    pub fn walls_ns(&self) -> Vec<u64> {
        let mut walls: Vec<u64> = self
            .facts
            .iter()
            .filter_map(|(_, _, fact)| match fact {
                Fact::RunOver { wall_ns, whole: true, .. } => Some(*wall_ns),
                _ => None,
            })
            .collect();
        walls.sort_unstable();
        walls
    }

    /// How many facts `which` picks.
    pub fn facts(&self, which: impl Fn(&Fact) -> bool) -> usize {
        self.facts.iter().filter(|(_, _, fact)| which(fact)).count()
    }

    /// How many events `which` picks.
    pub fn events(&self, which: impl Fn(&Event) -> bool) -> usize {
        self.records.iter().filter(|record| which(&record.event)).count()
    }

    /// Settled in the ledger, in micro-USD.
    pub fn settled(&self) -> u64 {
        let settled = self.records.iter().filter_map(|record| match record.event {
            Event::Reserve(kernel::reserve::Event::Settled { cost, .. }) => Some(cost.0),
            _ => None,
        });
        settled.sum()
    }

    /// On the provider's invoice, in micro-USD.
    pub fn invoiced(&self) -> u64 {
        let charged = self.facts.iter().filter_map(|(_, _, fact)| match fact {
            Fact::Charged { cost, .. } => Some(cost.0),
            _ => None,
        });
        charged.sum()
    }
}
