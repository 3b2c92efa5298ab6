//! The log: its codec, its hashes, what a verifier finds, and the golden frames of each schema.

#![allow(clippy::unwrap_used)] // what a test cannot go on without, it panics for

mod house;

use house::*;
use kernel::{
    admit::{self, Switch},
    id::{ExecutorId, LedgerTime, RunId, TenantId, UnitId},
    lease::{self, Lock},
    planted::Planted,
    prove,
    record::{self, Class, Event, Frame, GENESIS_CHAIN, LogError, Record, SCHEMA, Verifier},
    request::{Command, Request},
    reserve,
    run::{self, AttemptState, Ending},
    store::{Store, StoredFrame, memory::MemoryStore},
};
use proptest::prelude::*;

/// A log in which every kind of event stands at least once, and several kinds of refusal.
fn every_kind() -> Vec<StoredFrame> {
    let (mut house, authority) = House::new().running();
    let renew = Command::Lease(lease::Command::Renew { held: authority, ttl_ns: 2_000_000_000_000 });
    house.ok(None, vec![renew]);
    let settled = house.reserve(authority, 1, 1, 100);
    house.now_ns += 5;
    house.ok(Some(authority), vec![settle(settled, 130), end_attempt(1, 1, AttemptState::Succeeded)]);
    let released = house.reserve(authority, 2, 1, 50);
    house.ok(Some(authority), vec![release(released), end_attempt(2, 1, AttemptState::Failed)]);
    let retried = house.reserve(authority, 2, 2, 50);
    house.ok(Some(authority), vec![release(retried), end_attempt(2, 2, AttemptState::Cancelled)]);
    let (third, fourth) = (house.reserve(authority, 3, 1, 50), house.reserve(authority, 4, 1, 50));
    let unknown = [3, 4].map(|unit| end_attempt(unit, 1, AttemptState::Indeterminate));
    house.ok(Some(authority), unknown.to_vec());
    house.ok(Some(authority), vec![end(Ending::Incomplete)]);
    let owner = house.acquire(Lock::Owner, 8, 1_000);
    house.ok(Some(owner), vec![resolve(third, Some(20)), resolve(fourth, None)]);
    let unset = admit::Command::SetQuota { tenant: TENANT, user: Some(USER), quota: None };
    house.ok(Some(owner), vec![halt(TENANT, Switch::Halted), quota(None, 1, 1_000, 2), Command::Admit(unset)]);
    house.no(None, vec![spawn(RunId(7))]);
    house.ok(Some(owner), vec![halt(TENANT, Switch::Open)]);
    house.no(None, vec![spawn(RunId(7))]);
    house.no(Some(owner), vec![reserve(5, 1, 1)]);
    house.no(Some(authority), vec![settle(settled, 1)]);
    house.ok(None, vec![Command::Lease(lease::Command::Yield { held: authority })]);
    house.tick(2_000);
    every_kind_of_effect(&mut house);
    house.store.log(0).unwrap()
}

/// Tools, intents in every phase, a hit, and attempts that are queued.
fn every_kind_of_effect(house: &mut House) {
    let owner = house.acquire(Lock::Owner, 8, 1_000);
    let unset = admit::Command::SetQuota { tenant: TENANT, user: None, quota: None };
    house.ok(Some(owner), tools().into_iter().chain([Command::Admit(unset)]).collect());
    let run = RunId(200);
    house.ok(None, vec![spawn(run)]);
    let held = house.acquire(Lock::Run(TENANT, run), 5, 1_000_000);
    let asks = |unit, attempt, tool| begin_in(run, unit, attempt, tool, 7, 40);
    let ends =
        |unit, attempt, state| Command::Run(run::Command::EndAttempt { run, unit: UnitId(unit), attempt, state });
    let first = begun(&house.ok(Some(held), vec![asks(1, 1, IDEMPOTENT)]));
    house.ok(Some(held), vec![dispatch(first)]);
    house.ok(Some(held), vec![commit(first, b"yes"), settle(first, 3), ends(1, 1, AttemptState::Succeeded)]);
    house.ok(Some(held), vec![asks(2, 1, IDEMPOTENT)]);
    let second = begun(&house.ok(Some(held), vec![asks(3, 1, UNSAFE)]));
    let queued = Command::Run(run::Command::Queue { run, unit: UnitId(3), attempt: 2 });
    house.ok(Some(held), vec![release(second), ends(3, 1, AttemptState::TimedOut), queued]);
    house.no(Some(held), vec![dispatch(second)]);
    house.no(Some(held), vec![asks(4, 1, kernel::id::ToolId(9))]);
    house.ok(Some(held), vec![ends(3, 2, AttemptState::Cancelled)]);
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes_of(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

/// What schema 1 wrote, this code still writes and reads. A new schema adds a file and leaves this one alone.
#[test]
fn golden_frames_of_schema_1() {
    let golden = include_str!("golden/schema-1.hex");
    let written: String = every_kind().iter().map(|frame| hex(&frame.bytes) + "\n").collect();
    assert_eq!(SCHEMA, 1);
    assert!(written == golden, "frames differ from kernel/tests/golden/schema-1.hex; now they are\n{written}");
    let rebuilt = prove::rebuild(golden.lines().map(bytes_of)).unwrap();
    let mut found = format!("chain {}\n", hex(&rebuilt.head.chain));
    for table in &rebuilt.tables {
        found += &format!("{} {} {}\n", table.number, table.name, hex(&table.hash));
    }
    let expected = include_str!("golden/schema-1.tables");
    assert!(
        found == expected,
        "what they fold to differs from kernel/tests/golden/schema-1.tables; now it is\n{found}"
    );
}

#[test]
fn records_are_dense_hashed_chained_and_of_their_class() {
    let (mut chain, mut seq, mut lsns) = (GENESIS_CHAIN, 0, std::collections::BTreeMap::new());
    for frame in record::verify(every_kind()) {
        for record in frame.unwrap().records {
            assert_eq!((record.seq, record.schema), (seq, SCHEMA));
            let encoded = postcard::to_stdvec(&record).unwrap();
            let content = blake3::hash(&encoded[..encoded.len() - 64]);
            assert_eq!(record.content, *content.as_bytes());
            chain = *blake3::hash(&[chain, record.content].concat()).as_bytes();
            assert_eq!(record.chain, chain);
            let class = if matches!(record.event, Event::Run(_)) { Class::Sequenced } else { Class::Scarce };
            assert_eq!((record.class, record.origin.is_some()), (class, class == Class::Sequenced));
            if let Some(origin) = record.origin {
                let next = lsns.entry((record.tenant, origin.run, origin.branch)).or_insert(0);
                assert_eq!(origin.lsn, *next);
                *next += 1;
                let executor = if origin.lsn == 0 { ExecutorId(0) } else { ExecutorId(5) };
                assert_eq!(origin.executor, executor);
            }
            seq += 1;
        }
    }
    assert!(seq > 40);
}

/// What a verifier says of a log with `change` done to its frames.
fn damaged(change: impl FnOnce(&mut Vec<Frame>)) -> LogError {
    let mut frames: Vec<Frame> = record::verify(every_kind()).map(Result::unwrap).collect();
    change(&mut frames);
    let bytes = frames.iter().map(|frame| postcard::to_stdvec(frame).unwrap());
    prove::rebuild(bytes).unwrap_err()
}

/// Makes a record's hashes fit what it says after `chain`.
fn rehash(record: &mut Record, chain: record::Hash) {
    let encoded = postcard::to_stdvec(record).unwrap();
    record.content = *blake3::hash(&encoded[..encoded.len() - 64]).as_bytes();
    record.chain = *blake3::hash(&[chain, record.content].concat()).as_bytes();
}

#[test]
fn a_verifier_names_the_damage() {
    assert_eq!(damaged(|frames| drop(frames.remove(1))), LogError::OutOfSequence { expected: 6, found: 8 });
    assert_eq!(damaged(|frames| frames.swap(1, 2)), LogError::OutOfSequence { expected: 6, found: 8 });
    assert_eq!(
        damaged(|frames| frames.insert(1, frames[0].clone())),
        LogError::OutOfSequence { expected: 6, found: 0 }
    );
    let forged = |which| LogError::Forged { seq: 6, which };
    assert_eq!(damaged(|frames| frames[1].records[0].tenant = TenantId(9)), forged("content"));
    assert_eq!(damaged(|frames| frames[1].records[0].chain[0] ^= 1), forged("chain"));
    assert_eq!(damaged(|frames| frames[1].records[0].schema = 2), LogError::FutureSchema { seq: 6, found: 2 });
    let rehashed = |change: fn(&mut Record)| {
        damaged(|frames| {
            let chain = frames[0].records.last().unwrap().chain;
            frames[1].records.truncate(1);
            let record = &mut frames[1].records[0];
            change(record);
            rehash(record, chain);
        })
    };
    let impossible = |change| match rehashed(change) {
        LogError::Impossible { seq: 6, why } => why,
        other => panic!("{other:?}"),
    };
    let wrong = impossible(|record| record.class = Class::Mergeable);
    assert_eq!(wrong, "run.spawned goes to the ledger runs, which is Sequenced, and is offered as Mergeable");
    let nowhere = impossible(|record| record.origin = None);
    assert_eq!(nowhere, "run.spawned is sequenced, and names no writer, fence, branch and position in its run");
    assert_eq!(impossible(|record| record.origin.as_mut().unwrap().lsn = 3), "its LSN is 3, and the next is 0");
    let executor = impossible(|record| record.origin.as_mut().unwrap().executor = ExecutorId(4));
    assert_eq!(executor, "executor 4 does not write under fence 0");
    assert_eq!(impossible(|record| record.time = LedgerTime(77)), "its time is 77, and its frame's is 0");
}

#[test]
fn what_is_no_frame_is_named() {
    let frame = every_kind().remove(0).bytes;
    let empty = postcard::to_stdvec(&Frame { time: LedgerTime(0), records: vec![] }).unwrap();
    let cases = [
        ([&frame[..], &[0]].concat(), "1 bytes follow the frame"),
        (empty, "the frame is empty"),
        (frame[..frame.len() - 1].to_vec(), "Hit the end of buffer, expected more data"),
    ];
    for (bytes, why) in cases {
        let mut verifier = Verifier::default();
        assert_eq!(verifier.frame(&bytes).unwrap_err(), LogError::Undecodable { seq: 0, why: why.into() });
        assert!(verifier.frame(&frame).is_ok(), "after an error it stands where it stood");
    }
}

#[test]
fn time_that_goes_back_is_named() {
    let found = damaged(|frames| {
        let last = frames.len() - 1;
        let chain = frames[last - 1].records.last().unwrap().chain;
        frames[last].time = LedgerTime(0);
        frames[last].records.truncate(1);
        frames[last].records[0].time = LedgerTime(0);
        rehash(&mut frames[last].records[0], chain);
    });
    assert!(
        matches!(found, LogError::TimeWentBack { found: LedgerTime(0), highest: LedgerTime(2005), .. }),
        "{found:?}"
    );
}

#[test]
fn every_prefix_of_the_log_opens() {
    let frames = every_kind();
    for len in 0..=frames.len() {
        let prefix = frames[..len].to_vec();
        let ledger = kernel::ledger::Ledger::open(MemoryStore::holding(prefix.clone()), Planted::none()).unwrap();
        prove::compare(&ledger.table_hashes(), &prove::rebuild(&prefix).unwrap()).unwrap();
    }
}

#[test]
fn a_difference_names_its_table() {
    let rebuilt = prove::rebuild(every_kind()).unwrap();
    let kept: Vec<_> = rebuilt.tables.iter().map(|table| (table.number, table.hash)).collect();
    prove::compare(&kept, &rebuilt).unwrap();
    for at in 0..kept.len() {
        let mut other = kept.clone();
        other[at].1[0] ^= 1;
        assert_eq!(prove::compare(&other, &rebuilt).unwrap_err().name, rebuilt.tables[at].name);
        other.remove(at);
        assert_eq!(prove::compare(&other, &rebuilt).unwrap_err().kept, None);
    }
    let unknown = [kept, vec![(99, [0; 32])]].concat();
    assert_eq!(prove::compare(&unknown, &rebuilt).unwrap_err().number, 99);
}

#[test]
fn a_store_takes_only_the_next_frame() {
    let frames = every_kind();
    let mut store = MemoryStore::new();
    store.commit(&frames[0]).unwrap();
    for wrong in [&frames[0], &frames[2]] {
        let refused = store.commit(wrong).unwrap_err();
        assert!(matches!(refused, kernel::store::StoreError::NotNext { next_seq: 6, .. }), "{refused:?}");
    }
    store.commit(&frames[1]).unwrap();
    let held = |store: &mut MemoryStore, from| store.log(from).unwrap().len();
    assert_eq!([0, 5, 6, 7, 8].map(|from| held(&mut store, from)), [2, 2, 1, 1, 0]);
}

proptest! {
    /// One flipped bit anywhere in a log is found.
    #[test]
    fn a_flipped_bit_is_found(at in any::<prop::sample::Index>(), in_frame in any::<prop::sample::Index>(), bit in 0..8u8) {
        let mut frames = every_kind();
        let frame = at.index(frames.len());
        let byte = in_frame.index(frames[frame].bytes.len());
        let mut bytes = frames[frame].bytes.to_vec();
        bytes[byte] ^= 1 << bit;
        frames[frame].bytes = bytes.into();
        prop_assert!(prove::rebuild(&frames).is_err());
    }

    /// No bytes make the decoder panic.
    #[test]
    fn any_bytes_are_a_frame_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Verifier::default().frame(&bytes);
    }

    /// Requests and replies survive their codec.
    #[test]
    fn requests_survive_their_codec(tenant: u32, number: u64, wait_ns: u64, unit: u32, tokens: u64, amount: u64, run: u64) {
        let commands = vec![
            reserve_in(RunId(run), unit, 1, amount),
            settle(kernel::id::ReservationId(number), tokens),
            spawn(RunId(run)),
            acquire(Lock::Run(TenantId(tenant), RunId(run)), number, wait_ns),
            cap(TenantId(tenant), reserve::Level::UserDay, amount),
            quota(Some(kernel::id::UserId(unit)), tenant, amount, 3),
            halt(TenantId(tenant), Switch::Open),
        ];
        let sent = Request { tenant: TenantId(tenant), wait_ns, ..request(number, number, None, commands) };
        let read: Request = postcard::from_bytes(&postcard::to_stdvec(&sent).unwrap()).unwrap();
        prop_assert_eq!(read, sent);
    }
}
