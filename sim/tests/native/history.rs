//! Reading a history back.

use crate::cast::*;
use proptest::prelude::*;
use sim::{Config, Recording, history};
use std::rc::Rc;

/// The history of one node that notes `notes` in turn.
fn noted(notes: &Rc<Vec<(u16, Vec<u8>)>>, recording: Recording) -> sim::Recorded {
    let notes = notes.clone();
    let noting = boot(move |world| {
        let notes = notes.clone();
        async move {
            for (kind, data) in notes.iter() {
                world.sleep(ms(u64::from(*kind))).await;
                world.note(*kind, data);
            }
            std::future::pending().await
        }
    });
    run(Config { recording, ..config(1) }, vec![noting], wait(std::time::Duration::from_secs(1_000_000))).history
}

fn notes() -> impl Strategy<Value = Vec<(u16, Vec<u8>)>> {
    prop::collection::vec((16u16.., prop::collection::vec(any::<u8>(), 0..300)), 0..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_was_noted_is_read_back(notes in notes(), tail in 0usize..50) {
        let notes = Rc::new(notes);
        let full = noted(&notes, Recording::Full);
        let entries: Vec<_> = history::read(&full.kept).map(|entry| entry.unwrap()).collect();
        prop_assert_eq!(full.entries, entries.len() as u64);
        prop_assert_eq!(entries.len(), notes.len() + 2);
        for (entry, (kind, data)) in entries[1..].iter().zip(notes.iter()) {
            prop_assert_eq!((entry.kind, entry.data, entry.node), (*kind, &data[..], A));
        }
        prop_assert!(entries.is_sorted_by_key(|entry| entry.time_ns));
        prop_assert_eq!(*blake3::hash(&full.kept).as_bytes(), full.hash);

        let short = noted(&notes, Recording::HashOnly { tail });
        prop_assert_eq!((short.hash, short.entries), (full.hash, full.entries));
        prop_assert!(full.kept.ends_with(&short.kept));
        prop_assert_eq!(history::read(&short.kept).count(), tail.min(entries.len()));
    }

    #[test]
    fn damage_is_an_error_and_never_a_panic(
        notes in notes(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = noted(&Rc::new(notes), Recording::Full).kept;
        for (at, with) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= with;
        }
        bytes.truncate(cut.index(bytes.len()));
        let read: Vec<_> = history::read(&bytes).collect();
        prop_assert!(read.iter().rev().skip(1).all(|entry| entry.is_ok()), "reading went on after an error");
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        history::read(&bytes).for_each(drop);
    }
}

#[test]
fn long_histories_hash_in_blocks_and_keep_their_tail() {
    let notes = Rc::new((0..5_000u16).map(|number| (16 + number, number.to_le_bytes().repeat(20))).collect::<Vec<_>>());
    let full = noted(&notes, Recording::Full);
    assert_eq!(*blake3::hash(&full.kept).as_bytes(), full.hash);
    for tail in [0, 1, 100, 4_000, 10_000] {
        let short = noted(&notes, Recording::HashOnly { tail });
        assert_eq!(short.hash, full.hash);
        assert!(full.kept.ends_with(&short.kept));
        assert_eq!(history::read(&short.kept).count() as u64, full.entries.min(tail as u64));
    }
}
