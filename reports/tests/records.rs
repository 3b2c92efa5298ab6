//! Records: they survive being written and read, and nothing that is no record does any harm.

use proptest::{collection::vec, prelude::*};
use reports::{
    record::{FORMAT, Hashes, Origin, Record, Records, Sample, Work},
    row::Rows,
    table::{self, Context},
};
use std::collections::BTreeMap;

fn sample() -> impl Strategy<Value = (Sample, Vec<u64>)> {
    prop_oneof![
        vec(any::<u64>().prop_map(|time| time >> 1), 0..20)
            .prop_map(|times| (Sample::times(times).expect("times can be written"), vec![7])),
        vec((any::<u64>(), any::<u64>()), 0..5).prop_map(|counts| {
            let (counts, seeds) = counts.into_iter().unzip();
            (Sample::Counts(counts), seeds)
        }),
        any::<(u64, u64)>().prop_map(|(of, whole)| (Sample::Part { of, whole }, Vec::new())),
    ]
}

prop_compose! {
    fn record()(
        (sample, seeds) in sample(),
        (row, figure) in prop_oneof![
            Just(("C3", "refused")), Just(("C9", "run-wall")), Just(("C9", "calls-per-second")), Just(("C1", "admission-p99"))
        ],
        origin in prop_oneof![Just(Origin::Simulated), Just(Origin::Real)],
        (done, more) in any::<(u32, u32)>(),
        agents in prop_oneof![Just(1_u64), Just(16), any::<u64>()],
        text in ".*",
        dirty in any::<bool>(),
    ) -> Record {
        Record {
            format: FORMAT,
            row: row.to_owned(),
            figure: figure.to_owned(),
            engine: text.clone(),
            origin,
            sample,
            work: Work { offered: u64::from(done) + u64::from(more), done: done.into() },
            scenario: "fleet".to_owned(),
            sizes: BTreeMap::from([("agents".to_owned(), agents)]),
            seeds,
            commit: "c".to_owned(),
            dirty,
            hashes: Hashes {
                binary: "b".to_owned(),
                lock: String::new(),
                features: String::new(),
                scenario: "s".to_owned(),
                machine: text.clone(),
            },
            command: text,
            made_unix_s: 0,
        }
    }
}

fn render(records: &Records) {
    let rows = Rows::built_in().expect("the rows that ship can be read");
    let scenarios = [1, 16].map(|agents| (("fleet".to_owned(), agents), "s".to_owned()));
    let context = Context {
        commit: "c".to_owned(),
        binary: "b".to_owned(),
        scenarios: BTreeMap::from(scenarios),
        ..Context::default()
    };
    let table = table::render(&rows, records, &context);
    let text = reports::render::text(&table, 0);
    assert!(text.contains("NOT MEASURED"));
}

proptest! {
    #[test]
    fn a_record_reads_as_it_was_written(record in record()) {
        let line = record.to_line().expect("a record can be written");
        prop_assert!(!line.contains('\n'));
        prop_assert_eq!(Record::from_line(&line).expect("and read"), record);
    }

    #[test]
    fn any_bytes_can_be_read_and_rendered(bytes in vec(any::<u8>(), 0..200)) {
        render(&Records::read(&bytes));
    }

    #[test]
    fn a_damaged_record_is_set_aside_or_rendered(
        records in vec(record(), 1..4), at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<prop::sample::Index>()
    ) {
        let lines = records.iter().map(|record| record.to_line().expect("a record can be written"));
        let mut bytes = lines.collect::<Vec<_>>().join("\n").into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        bytes.truncate(cut.index(bytes.len()) + 1);
        let read = Records::read(&bytes);
        prop_assert!(read.records.len() + read.unreadable.len() <= records.len() + 1);
        render(&read);
    }
}

#[test]
fn a_newer_format_is_named() {
    let error = Record::from_line(r#"{"format": 99, "and": "more"}"#).expect_err("no such format");
    assert_eq!(error.to_string(), "record format 99 is not known to this build, which reads format 1");
}

#[test]
fn lines_that_hold_no_record_are_counted_from_one() {
    let read = Records::read(b"\n{}\n[]\nnull\n");
    assert_eq!(read.unreadable.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [2, 3, 4]);
}
