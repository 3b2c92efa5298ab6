//! redb behind the store port, on a real directory: what was committed is there again, and what makes no sense is damage.

#![allow(clippy::unwrap_used)] // a test that cannot go on says where

use kernel::store::{Loaded, Row, Store, StoreError, StoredFrame, redb::RedbStore};
use sim::{Disk, Open};

const FILE: &str = "ledger.redb";

fn frame(first_seq: u64, next_seq: u64, fill: u8, len: usize) -> StoredFrame {
    StoredFrame { first_seq, next_seq, bytes: vec![fill; len].into() }
}

fn row(table: u16, key: u8, value: Option<&[u8]>) -> Row {
    Row { table, key: vec![key], value: value.map(<[u8]>::to_vec) }
}

fn directory() -> (tempfile::TempDir, Disk) {
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::at(folder.path()).unwrap();
    (folder, disk)
}

#[test]
fn what_was_committed_is_there_after_reopening() {
    let (_folder, disk) = directory();
    let frames = [frame(0, 3, 1, 700), frame(3, 4, 2, 0), frame(4, 9, 3, 20_000)];
    let mut store = RedbStore::open(&disk).unwrap();
    assert_eq!(store.load().unwrap(), Loaded::default());
    for frame in &frames[..2] {
        store.commit(frame).unwrap();
    }
    let changed = [row(2, 7, Some(b"seven")), row(1, 9, Some(b"nine")), row(1, 1, Some(b""))];
    store.checkpoint(4, &changed, [5; 32]).unwrap();
    store.commit(&frames[2]).unwrap();
    drop(store);

    let mut store = RedbStore::open(&disk).unwrap();
    let rows = vec![row(1, 1, Some(b"")), row(1, 9, Some(b"nine")), row(2, 7, Some(b"seven"))];
    let expect = Loaded { rows, checkpoint: 4, digest: Some([5; 32]), frames: vec![frames[2].clone()] };
    assert_eq!(store.load().unwrap(), expect);
    for (from, expect) in [(0, &frames[..]), (2, &frames[..]), (3, &frames[1..]), (8, &frames[2..]), (9, &[])] {
        assert_eq!(store.log(from).unwrap(), expect, "from {from}");
    }
    store.checkpoint(9, &[row(1, 9, None)], [6; 32]).unwrap();
    drop(store);

    let loaded = RedbStore::open(&disk).unwrap().load().unwrap();
    assert_eq!((loaded.rows.len(), loaded.checkpoint, loaded.digest, loaded.frames), (2, 9, Some([6; 32]), vec![]));
}

#[test]
fn a_frame_that_does_not_follow_is_refused() {
    let (_folder, disk) = directory();
    let mut store = RedbStore::open(&disk).unwrap();
    store.commit(&frame(0, 2, 1, 10)).unwrap();
    for (first_seq, reopen) in [(0, false), (1, false), (3, false), (0, true), (3, true)] {
        if reopen {
            store = RedbStore::open(&disk).unwrap();
        }
        let refused = store.commit(&frame(first_seq, first_seq + 1, 1, 10)).unwrap_err();
        assert!(
            matches!(refused, StoreError::NotNext { first_seq: said, next_seq: 2 } if said == first_seq),
            "{first_seq}: {refused}"
        );
    }
    store.commit(&frame(2, 3, 1, 10)).unwrap();
}

#[test]
fn a_file_of_nonsense_is_damage() {
    let (folder, disk) = directory();
    let mut store = RedbStore::open(&disk).unwrap();
    for first_seq in 0..20 {
        store.commit(&frame(first_seq, first_seq + 1, 0xAB, 900)).unwrap();
    }
    drop(store);
    let good = disk.open(FILE, Open::Existing).unwrap();
    let len = good.len().unwrap();
    let mut bytes = vec![0; usize::try_from(len).unwrap()];
    good.read_at(0, &mut bytes).unwrap();
    let frame_at = bytes.windows(64).position(|window| window == [0xAB; 64]).unwrap() as u64;

    type Harm = fn(&sim::File, u64);
    let harms: [(&str, u64, Harm); 5] = [
        ("the magic number", 0, |file, at| file.write_at(at, b"nonsense").unwrap()),
        ("one bit of a frame", frame_at, |file, at| file.write_at(at, &[0xAA]).unwrap()),
        ("all but the header", 4096, |file, at| file.write_at(at, &[0x5A; 32_768]).unwrap()),
        ("the second half", len / 2, |file, at| file.set_len(at).unwrap()),
        ("everything", 0, |file, at| {
            file.set_len(at).unwrap();
            file.write_at(0, &[7; 64]).unwrap();
        }),
    ];
    for (what, at, harm) in harms {
        let file = disk.open(FILE, Open::Existing).unwrap();
        file.set_len(0).unwrap();
        file.write_at(0, &bytes).unwrap();
        harm(&file, at);
        let outcome = RedbStore::open(&disk).and_then(|mut store| store.log(0));
        assert!(matches!(outcome, Err(StoreError::Damaged { .. })), "{what}: {outcome:?}");
    }
    drop(folder);
}
