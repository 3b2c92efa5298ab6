//! The log: encoding and hashing records into frames, checking frames and their chain, and rebuilding every table.

use crate::{
    commands,
    operation::{Doing, Operation},
};
use kernel::{
    prove,
    record::{Draft, Frame, GENESIS_CHAIN, Head, Verifier, verify},
    store::StoredFrame,
};
use std::rc::Rc;

/// Times that one preparation serves.
const MOST: usize = 64;

/// Encode, verify and rebuild, each over a whole log.
pub fn operations() -> Vec<Operation> {
    let log = Rc::new(commands::log());
    let frames: Rc<Vec<Frame>> =
        Rc::new(verify(log.iter()).map(|frame| frame.expect("a log that was just made is sound")).collect());
    let records: u64 = frames.iter().map(|frame| frame.records.len() as u64).sum();
    let operation = |name: &str, once: Rc<dyn Fn()>| {
        let prepare = move || -> Doing {
            let once = once.clone();
            Box::new(move || once())
        };
        Operation::new(format!("log/{name}"), (records, "records"), MOST, prepare)
    };
    let (verified, rebuilt) = (log.clone(), log.clone());
    vec![
        operation("encode", Rc::new(move || encode(&frames, &log))),
        operation("verify", Rc::new(move || check(&verified, records))),
        operation("rebuild", Rc::new(move || drop(prove::rebuild(rebuilt.iter()).expect("a sound log rebuilds")))),
    ]
}

fn encode(frames: &[Frame], log: &[StoredFrame]) {
    let mut head = Head { next_seq: 0, chain: GENESIS_CHAIN, ..Head::default() };
    for (frame, stored) in frames.iter().zip(log) {
        let mut draft = Draft::new(head, frame.time);
        for record in &frame.records {
            let written = draft
                .append(head, record.tenant, (record.class, record.origin), record.event.clone())
                .expect("a record of a sound log is of its ledger's class");
            head = Head { next_seq: written.seq + 1, chain: written.chain, time: frame.time };
        }
        assert!(draft.finish() == *stored, "a frame is written again as it was");
    }
}

fn check(log: &[StoredFrame], records: u64) {
    let mut verifier = Verifier::default();
    for frame in log {
        verifier.frame(&frame.bytes).expect("a log that was just made is sound");
    }
    assert_eq!(verifier.head().next_seq, records, "every record was looked at");
}
