//! The single writer as a whole: a life of a run, durability before replies, poisoning, checkpoints, ledger time.

#![allow(clippy::unwrap_used)] // what a test cannot go on without, it panics for

mod house;

use house::*;
use kernel::{
    id::{LedgerTime, ReservationId},
    lease,
    ledger::{Ledger, LedgerError},
    money::MicroUsd,
    planted::Planted,
    prove,
    request::{Answer, Command, Outcome, Query, Reply, Request, Submitted},
    reserve::{self, Account},
    run::{self, AttemptState, Ending, RunState},
    store::{Loaded, Row, Store, StoreError, StoredFrame, memory::MemoryStore},
};

fn rebuilt(house: &mut House) -> prove::Rebuilt {
    prove::rebuild(house.store.log(0).unwrap()).unwrap()
}

#[test]
fn a_run_lives_from_spawn_to_end() {
    let (mut house, authority) = House::new().running();
    let first = house.reserve(authority, 1, 1, 100);
    let outcomes = house.ok(Some(authority), vec![settle(first, 60), end_attempt(1, 1, AttemptState::Succeeded)]);
    let cost = reserve::Outcome::Settled { cost: MicroUsd(60), overrun: MicroUsd(0) };
    assert_eq!(outcomes, [Outcome::Reserve(cost), Outcome::Run(run::Outcome::AttemptEnded)]);
    let second = house.reserve(authority, 2, 1, 50);
    house.ok(Some(authority), vec![end_attempt(2, 1, AttemptState::Indeterminate)]);
    house.ok(Some(authority), vec![end(Ending::Incomplete)]);

    assert_eq!(house.ledger.query(&Query::AwaitsOwner(TENANT)), Answer::AwaitsOwner(vec![second]));
    let Answer::Run(Some(standing)) = house.ledger.query(&Query::Run(TENANT, RUN)) else { panic!("the run is known") };
    assert_eq!(standing.state, RunState::Ended(Ending::Incomplete));
    let of_units: Vec<_> = standing.units.iter().map(|unit| (unit.unit.0, unit.state, unit.open)).collect();
    assert_eq!(of_units, [(1, AttemptState::Succeeded, false), (2, AttemptState::Indeterminate, true)]);
    let account = house.ledger.query(&Query::Account(Account::Run(TENANT, RUN)));
    let cap = Some(MicroUsd(1_000_000));
    assert_eq!(account, Answer::Account { settled: MicroUsd(60), live: MicroUsd(50), cap });

    let rebuilt = rebuilt(&mut house);
    prove::compare(&house.ledger.table_hashes(), &rebuilt).unwrap();
    assert_eq!((rebuilt.head.next_seq, rebuilt.head.chain), house.ledger.head());
    house.reopen(Planted::none());
    prove::compare(&house.ledger.table_hashes(), &rebuilt).unwrap();
}

#[test]
fn a_refused_request_touches_no_domain_table() {
    let (mut house, authority) = House::new().running();
    let before = house.ledger.tables();
    // The reserve is admitted, and the release of nothing after it is not.
    let no = house.no(Some(authority), vec![reserve(1, 1, 100), release(ReservationId(999))]);
    assert_eq!(no, reserve::Refusal::Unknown { reservation: ReservationId(999) }.into());
    for (before, after) in before.iter().zip(house.ledger.tables()) {
        let of_record_or_effect = ["record.head", "effect.clients", "effect.answers"].contains(&after.name);
        assert!(of_record_or_effect || *before == after, "{} was touched", after.name);
    }
    let rebuilt = rebuilt(&mut house);
    prove::compare(&house.ledger.table_hashes(), &rebuilt).unwrap();
    // Nor is anybody told of a turn that did not come.
    house.notices.clear();
    let gives_back = Command::Lease(lease::Command::Yield { held: authority });
    house.no(Some(authority), vec![gives_back, release(ReservationId(999))]);
    assert_eq!(house.notices, []);
    // And the attempt can still start, under the reservation that its own record names.
    let reservation = house.reserve(authority, 1, 1, 100);
    assert_eq!(reservation.0 + 3, house.ledger.head().0);
}

#[test]
fn nothing_decided_is_no_frame() {
    let mut house = House::new();
    let committed = house.batch(vec![Request::tick(), Request::tick()]);
    assert_eq!(committed.frame, None);
    assert!(matches!(&committed.replies[..], [Reply::Decided(first), Reply::Decided(_)] if first.seq == 5));
    assert_eq!(house.batch(Vec::new()).frame, None);
}

/// A store whose commits can be made to fail, before or after the frame is kept.
#[derive(Clone)]
struct Failing {
    kept: MemoryStore,
    fails: std::sync::Arc<std::sync::Mutex<Option<bool>>>,
}

impl Store for Failing {
    fn load(&mut self) -> Result<Loaded, StoreError> {
        self.kept.load()
    }
    fn log(&mut self, from: u64) -> Result<Vec<StoredFrame>, StoreError> {
        self.kept.log(from)
    }
    fn commit(&mut self, frame: &StoredFrame) -> Result<(), StoreError> {
        let Some(keeps) = *self.fails.lock().unwrap() else { return self.kept.commit(frame) };
        if keeps {
            self.kept.commit(frame)?;
        }
        Err(StoreError::Device { doing: "sync", source: "the device is gone".into() })
    }
    fn checkpoint(&mut self, next_seq: u64, changed: &[Row], digest: [u8; 32]) -> Result<(), StoreError> {
        self.kept.checkpoint(next_seq, changed, digest)
    }
}

#[test]
fn a_failed_commit_poisons_and_opening_again_reads_what_is_there() {
    for kept in [false, true] {
        let store = Failing { kept: MemoryStore::new(), fails: Default::default() };
        let mut ledger = Ledger::open(store.clone(), Planted::none()).unwrap();
        let ask = |number| vec![Submitted::arriving(request(1, number, None, vec![spawn(RUN)]), 1)];
        ledger.commit(1, &ask(1)).unwrap();
        *store.fails.lock().unwrap() = Some(kept);
        assert!(matches!(ledger.commit(2, &ask(2)), Err(LedgerError::Store(StoreError::Device { .. }))));
        *store.fails.lock().unwrap() = None;
        assert!(matches!(ledger.commit(3, &ask(3)), Err(LedgerError::Poisoned)));
        assert!(matches!(ledger.checkpoint(), Err(LedgerError::Poisoned)));
        let ledger = Ledger::open(store, Planted::none()).unwrap();
        assert_eq!(ledger.head().0, if kept { 3 } else { 2 });
    }
}

#[test]
fn a_checkpoint_and_its_suffix_are_the_whole_log() {
    let (mut house, authority) = House::new().running();
    let mut open = Vec::new();
    for unit in 1..20 {
        open.push((unit, house.reserve(authority, unit, 1, 10)));
        if unit % 3 == 0 {
            let (unit, reservation) = open.remove(0);
            let failed = end_attempt(unit, 1, AttemptState::Failed);
            house.ok(Some(authority), vec![release(reservation), failed]);
        }
        if unit % 7 == 0 {
            house.ledger.checkpoint().unwrap();
        }
    }
    let kept = house.ledger.table_hashes();
    let loaded = house.store.load().unwrap();
    assert!(loaded.checkpoint > 0 && !loaded.frames.is_empty());
    house.reopen(Planted::none());
    assert_eq!(house.ledger.table_hashes(), kept);
    prove::compare(&kept, &rebuilt(&mut house)).unwrap();

    let mut other = loaded.rows.clone();
    let value = other.iter_mut().find(|row| row.table == 11).and_then(|row| row.value.as_mut()).unwrap();
    value[0] ^= 1;
    house.store.checkpoint(loaded.checkpoint, &other, loaded.digest.unwrap()).unwrap();
    let forged = Ledger::open(house.store.clone(), Planted::none()).unwrap_err();
    assert!(matches!(forged, LedgerError::CheckpointForged { next_seq } if next_seq == loaded.checkpoint));
}

#[test]
fn ledger_time_is_the_writers_clock_on_the_highest_committed() {
    let time_of = |house: &House| match house.ledger.query(&Query::Head) {
        Answer::Head { time, .. } => time,
        other => panic!("{other:?}"),
    };
    let mut house = House::new();
    assert_eq!(time_of(&house), LedgerTime(0), "the first reading is the beginning");
    house.now_ns = 1_500;
    house.ok(None, vec![spawn(RUN)]);
    assert_eq!(time_of(&house), LedgerTime(500));
    house.now_ns = 1_200;
    house.ok(None, vec![spawn(RUN)]);
    assert_eq!(time_of(&house), LedgerTime(500), "a reading that goes back does not take ledger time back");
    house.reopen(Planted::none());
    house.now_ns = 77_000_000;
    house.ok(None, vec![spawn(RUN)]);
    assert_eq!(time_of(&house), LedgerTime(500), "downtime does not count");
    house.now_ns += 3;
    house.ok(None, vec![spawn(RUN)]);
    assert_eq!(time_of(&house), LedgerTime(503));
}
