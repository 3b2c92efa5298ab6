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
            under: (row == "C9").then(|| "faults; published caps".to_owned()),
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
    let scenarios = [1, 16].into_iter().flat_map(|agents| {
        [None, Some("faults; published caps".to_owned())]
            .map(|under| (("fleet".to_owned(), agents, under), "s".to_owned()))
    });
    let context = Context {
        commit: "c".to_owned(),
        binary: "b".to_owned(),
        scenarios: scenarios.collect(),
        ..Context::default()
    };
    let table = table::render(&rows, records, &context);
    let text = reports::render::text(&table, 0);
    assert!(text.contains("NOT MEASURED"));
    assert!(reports::render::markdown(&table).contains("NOT MEASURED"));
    assert!(reports::render::csv(&table).expect("a table can be written").contains("NOT MEASURED"));
    reports::plot::plots(&table).expect("a table can be drawn");
}

proptest! {
    #[test]
    fn a_record_reads_as_it_was_written(record in record()) {
        let line = record.to_line().expect("a record can be written");
        prop_assert!(!line.contains('\n'));
        prop_assert_eq!(Record::from_line(&line).expect("and read"), record);
    }

    #[test]
    fn a_record_that_was_edited_anywhere_is_refused(
        record in record(), at in any::<prop::sample::Index>(), byte in b' '..=b'~'
    ) {
        let line = record.to_line().expect("a record can be written");
        let mut edited = line.clone().into_bytes();
        let at = at.index(edited.len());
        edited[at] = byte;
        let edited = String::from_utf8_lossy(&edited).into_owned();
        prop_assert_eq!(Record::from_line(&edited).is_ok(), edited == line);
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
    assert_eq!(error.to_string(), "record format 99 is not known to this build, which reads format 2");
}

#[test]
fn lines_that_hold_no_record_are_counted_from_one() {
    let read = Records::read(b"\n{}\n[]\nnull\n");
    assert_eq!(read.unreadable.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [2, 3, 4]);
}

fn plain() -> Record {
    Record {
        format: FORMAT,
        row: "C3".to_owned(),
        figure: "refused".to_owned(),
        engine: "native".to_owned(),
        origin: Origin::Simulated,
        sample: Sample::Counts(vec![31]),
        work: Work { offered: 40, done: 40 },
        scenario: "fleet".to_owned(),
        sizes: BTreeMap::from([("agents".to_owned(), 1)]),
        under: None,
        seeds: vec![7],
        commit: "c".to_owned(),
        dirty: false,
        hashes: Hashes {
            binary: "b".to_owned(),
            lock: String::new(),
            features: String::new(),
            scenario: "s".to_owned(),
            machine: String::new(),
        },
        command: "shakedown run contention --seed 7".to_owned(),
        made_unix_s: 0,
    }
}

#[test]
fn a_changed_count_does_not_fit_the_seal_and_neither_does_a_changed_seal() {
    let line = plain().to_line().expect("a record can be written");
    let said = |line: &str| Record::from_line(line).expect_err("it was changed").to_string();
    let edited = "it does not fit its seal; it was changed after it was written";
    assert_eq!(said(&line.replace("[31]", "[30]")), edited);
    assert_eq!(said(&line.replace(r#""dirty":false"#, r#""dirty": false"#)), edited);
    let (content, seal) = line.rsplit_once(r#","seal":""#).expect("a line ends in its seal");
    assert_eq!(seal.len(), 64 + 2);
    assert_eq!(said(&format!(r#"{content},"seal":"{}"}}"#, "0".repeat(64))), edited);
    let unsealed = "it does not end in a seal; it is torn, or was not written by shakedown";
    assert_eq!(said(&format!("{content}}}")), unsealed);
    assert_eq!(said(&format!(r#"{content},"seal":""}}"#)), unsealed);
}

#[test]
fn an_edited_line_does_not_let_an_older_record_speak_for_it() {
    let line = |count| {
        let record = Record { sample: Sample::Counts(vec![count]), ..plain() };
        record.to_line().expect("a record can be written")
    };
    let status = |lines: &[String]| {
        let rows = Rows::built_in().expect("the rows that ship can be read");
        let context = Context {
            commit: "c".to_owned(),
            binary: "b".to_owned(),
            scenarios: BTreeMap::from([(("fleet".to_owned(), 1, None), "s".to_owned())]),
            ..Context::default()
        };
        let table = table::render(&rows, &Records::read(lines.join("\n").as_bytes()), &context);
        let line = table.lines.iter().find(|line| line.figure == "refused").expect("it has a line");
        line.status.text()
    };
    let edited = line(31).replace("[31]", "[32]");
    assert_eq!(status(&[line(30)]), "COUNTED, pass");
    assert_eq!(
        status(&[line(30), edited.clone()]),
        "NOT MEASURED: line 2 of the records, after its own, cannot be used and may have been a newer one"
    );
    assert_eq!(status(&[line(30), line(31)[..80].to_owned()]).split(':').next(), Some("NOT MEASURED"));
    assert_eq!(status(&[edited, line(30)]), "COUNTED, pass");
}
