//! The memory store against a plain list of frames: what it gives back is what was committed, wherever its pieces end.

use kernel::store::{Store, StoreError, StoredFrame, memory::MemoryStore};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    /// Commits a frame of so many records and bytes.
    Commit(u64, usize),
    /// Reads the log from a sequence, as a share of those there are.
    Read(prop::sample::Index),
    /// Goes on by another handle.
    Share,
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = prop_oneof![
        Just(0usize),
        1..900usize,
        100_000..200_000usize,
        Just(256 * 1024 - 1),
        Just(256 * 1024),
        Just(256 * 1024 + 1)
    ];
    prop_oneof![
        8 => (1..5u64, bytes).prop_map(|(records, bytes)| Step::Commit(records, bytes)),
        2 => any::<prop::sample::Index>().prop_map(Step::Read),
        1 => Just(Step::Share),
    ]
}

proptest! {
    #[test]
    fn it_gives_back_what_was_committed(steps in prop::collection::vec(step(), 1..40)) {
        let mut store = MemoryStore::new();
        let mut frames: Vec<StoredFrame> = Vec::new();
        for step in steps {
            let next = frames.last().map_or(0, |frame| frame.next_seq);
            match step {
                Step::Commit(records, bytes) => {
                    let bytes = vec![frames.len() as u8; bytes].into();
                    let frame = StoredFrame { first_seq: next, next_seq: next + records, bytes };
                    store.commit(&frame).unwrap();
                    let again = store.commit(&frame).unwrap_err();
                    prop_assert!(matches!(again, StoreError::NotNext { .. }), "{again}");
                    frames.push(frame);
                }
                Step::Read(at) => {
                    let from = at.index(next as usize + 1) as u64;
                    let held = frames.iter().filter(|frame| frame.next_seq > from).cloned().collect::<Vec<_>>();
                    prop_assert_eq!(store.log(from).unwrap(), held);
                }
                Step::Share => store = store.clone(),
            }
        }
        prop_assert_eq!(store.load().unwrap().frames, frames);
    }
}
