//! redb behind the store port on the simulated disk, felled at every disk operation: inside its creation, inside commits and
//! checkpoints, and again inside the recovery that follows (redb#1290: a second crash in recovery rolled back a commit).
//!
//! The model is the work itself: frame i and checkpoint i are functions of i. After any crashes the store holds a prefix of
//! the frames, no shorter than what was acknowledged, and the rows of a checkpoint no older than the last acknowledged.

#![allow(clippy::unwrap_used)] // a test that cannot go on says where

use kernel::store::{Loaded, Row, Store, StoreError, StoredFrame, redb::RedbStore};
use proptest::prelude::*;
use sim::{Config, Control, DiskSpec, Engine, LinkWeather, NodeId, NodeSpec, Recording, World, play};
use std::{cell::RefCell, collections::BTreeMap, rc::Rc, time::Duration};

const STORE: NodeId = NodeId(0);
const FRAMES: u64 = 12;
const CHECKPOINT_EVERY: u64 = 4;
/// Disk operations that creation takes.
const CREATING: u64 = 20;

/// Frame `i` holds one, two or three records, and now and then more bytes than a page.
fn frame(i: u64) -> StoredFrame {
    let first_seq = (0..i).map(|i| 1 + i % 3).sum();
    let len = if i % 5 == 3 { 9_000 } else { 40 + 13 * i as usize };
    StoredFrame { first_seq, next_seq: first_seq + 1 + i % 3, bytes: vec![i as u8 + 1; len].into() }
}

/// The rows that the checkpoint after frame `i` changes: some new, some again, some gone.
fn changed(i: u64) -> Vec<Row> {
    let row = |key: u64, value: Option<u64>| Row {
        table: (key % 2) as u16,
        key: key.to_be_bytes().to_vec(),
        value: value.map(|value| vec![value as u8; 100]),
    };
    vec![row(0, Some(i)), row(i + 1, Some(i)), row(i.saturating_sub(3), None)]
}

fn is_checkpointed(i: u64) -> bool {
    i % CHECKPOINT_EVERY == CHECKPOINT_EVERY - 1
}

/// What was acknowledged: how many frames, and the sequence of the last checkpoint.
#[derive(Clone, Copy, Default)]
struct Acknowledged {
    frames: u64,
    checkpoint: u64,
}

/// Holds what is stored against the model; how many frames there are.
fn check(store: &mut RedbStore, acknowledged: Acknowledged) -> Result<u64, StoreError> {
    let log = store.log(0)?;
    let held = log.len() as u64;
    assert!(
        log.iter().eq((0..held).map(frame).collect::<Vec<_>>().iter()),
        "the log is no prefix of what was committed"
    );
    assert!(held >= acknowledged.frames, "{held} frames are left of {} acknowledged", acknowledged.frames);

    let Loaded { rows, checkpoint, digest, frames } = store.load()?;
    assert!(checkpoint >= acknowledged.checkpoint, "checkpoint {checkpoint} is before {}", acknowledged.checkpoint);
    assert!(frames.iter().eq(log.iter().filter(|frame| frame.first_seq >= checkpoint)), "what follows the checkpoint");
    assert_eq!(digest, (checkpoint > 0).then_some([checkpoint as u8; 32]));
    let mut model = BTreeMap::new();
    for i in (0..held).filter(|i| is_checkpointed(*i) && frame(*i).next_seq <= checkpoint) {
        for Row { table, key, value } in changed(i) {
            match value {
                Some(value) => model.insert((table, key), value),
                None => model.remove(&(table, key)),
            };
        }
    }
    let rows: Vec<_> = rows.into_iter().map(|row| ((row.table, row.key), row.value.unwrap())).collect();
    assert!(rows.into_iter().eq(model), "the rows at checkpoint {checkpoint}");
    Ok(held)
}

/// Opens, checks, and goes on with the work where it stands.
async fn work(world: World, acknowledged: Rc<RefCell<Acknowledged>>) {
    world.sleep(Duration::from_millis(1)).await; // the director arms its faults first
    let disk = world.disk();
    let before = *acknowledged.borrow();
    let opened = world.offload(move || {
        let mut store = RedbStore::open(&disk)?;
        let held = check(&mut store, before)?;
        Ok::<_, StoreError>((store, held))
    });
    let (mut store, held) = opened.await.unwrap();
    acknowledged.borrow_mut().frames = held;
    for done in held..=FRAMES {
        // A crash may have come between a frame and its checkpoint.
        if done > 0 && is_checkpointed(done - 1) && acknowledged.borrow().checkpoint < frame(done).first_seq {
            let next_seq = frame(done).first_seq;
            let save = move || store.checkpoint(next_seq, &changed(done - 1), [next_seq as u8; 32]).map(|()| store);
            store = world.offload(save).await.unwrap();
            acknowledged.borrow_mut().checkpoint = next_seq;
        }
        if done < FRAMES {
            store = world.offload(move || store.commit(&frame(done)).map(|()| store)).await.unwrap();
            acknowledged.borrow_mut().frames = done + 1;
        }
    }
    std::future::pending().await
}

/// A crash: at which disk operation after the (re)start, and whether power goes.
#[derive(Clone, Copy, Debug)]
struct Crash {
    at: u64,
    power_cut: bool,
}

/// Plays the work through `crashes`, one a start, then to its end; the disk operations of each start and the history hash.
fn crash(seed: u64, crashes: Vec<Crash>) -> (Vec<u64>, [u8; 32]) {
    let acknowledged = Rc::new(RefCell::new(Acknowledged::default()));
    let operations = Rc::new(RefCell::new(Vec::new()));
    let (working, counted) = (acknowledged.clone(), operations.clone());
    let boot = Rc::new(move |world| Box::pin(work(world, working.clone())) as _);
    let director = move |control: Control| async move {
        let mut before = 0;
        for crash in crashes {
            control.fell_at_disk_operation(STORE, crash.at, crash.power_cut).unwrap();
            control.sleep(Duration::from_secs(1)).await;
            control.heal().unwrap();
            counted.borrow_mut().push(control.disk_operations(STORE) - before);
            before = control.disk_operations(STORE);
        }
        control.sleep(Duration::from_secs(1)).await;
        counted.borrow_mut().push(control.disk_operations(STORE) - before);
        assert!(control.is_up(STORE));
        let held = check(&mut RedbStore::open(&control.disk_image(STORE)).unwrap(), *acknowledged.borrow());
        assert_eq!(held.unwrap(), FRAMES, "the work is done in the end");
    };
    let config = Config {
        seed,
        schedule_cut: None,
        recording: Recording::HashOnly { tail: 0 },
        weather: LinkWeather::CALM,
        wall_start_ns: 0,
        root: None,
    };
    let node = NodeSpec { name: "store".to_owned(), cores: 1, disk: DiskSpec::FLASH, boot };
    let director = Box::new(|control| Box::pin(director(control)) as _);
    let played = play(Engine::Native, config, vec![node], director, Box::new(|_| {})).unwrap();
    (operations.take(), played.history.hash)
}

fn both_kinds() -> impl Iterator<Item = bool> {
    [false, true].into_iter()
}

#[test]
fn no_single_crash_loses_what_was_acknowledged() {
    let (operations, _) = crash(0, vec![]);
    assert!(operations[0] > CREATING, "the work goes on after creation");
    for at in 1..=operations[0] {
        for power_cut in both_kinds() {
            // A cut draws what survives: inside creation, where names change, more draws are worth their time.
            let seeds = match power_cut {
                false => 1,
                true if at <= CREATING => 24,
                true => 4,
            };
            for seed in 0..seeds {
                crash(seed, vec![Crash { at, power_cut }]);
            }
        }
    }
}

#[test]
fn no_crash_inside_recovery_loses_what_was_acknowledged() {
    let (operations, _) = crash(0, vec![]);
    let stride = 5;
    for second in both_kinds() {
        for inside in 1..=30 {
            for at in (1 + inside % stride..=operations[0]).step_by(stride as usize) {
                let first = Crash { at, power_cut: (at + inside) % 3 > 0 };
                crash(at << 8 | inside, vec![first, Crash { at: inside, power_cut: second }]);
            }
        }
    }
}

/// A name that a killed creation left in the page cache is as much in danger as what a killed commit left there.
#[test]
fn a_cut_after_a_killed_creation_loses_nothing_that_was_acknowledged() {
    for at in 1..=CREATING {
        for later in 1..=40 {
            for seed in 0..3 {
                crash(seed, vec![Crash { at, power_cut: false }, Crash { at: later, power_cut: true }]);
            }
        }
    }
}

#[test]
fn a_crashed_run_repeats_exactly() {
    let crashes = || vec![Crash { at: 77, power_cut: true }, Crash { at: 9, power_cut: true }];
    assert_eq!(crash(3, crashes()), crash(3, crashes()));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_chain_of_crashes_loses_what_was_acknowledged(
        seed: u64,
        crashes in prop::collection::vec((1..60_u64, any::<bool>()), 1..8),
    ) {
        crash(seed, crashes.into_iter().map(|(at, power_cut)| Crash { at, power_cut }).collect());
    }
}
