//! The table: what each record earns its figure, and how the whole looks.
#![expect(clippy::disallowed_methods, reason = "golden files are read from the repository")]

use reports::{
    record::{FORMAT, Hashes, Origin, Record, Records, Sample, Work},
    render,
    row::Rows,
    table::{self, Context, Line, Met, Status, Table},
};
use std::{collections::BTreeMap, path::Path};

fn record(row: &str, figure: &str, agents: u64, sample: Sample) -> Record {
    let seeds = match &sample {
        Sample::Counts(counts) => (0..counts.len() as u64).collect(),
        _ => vec![1, 2, 3],
    };
    Record {
        format: FORMAT,
        row: row.to_owned(),
        figure: figure.to_owned(),
        engine: "native".to_owned(),
        origin: Origin::Simulated,
        sample,
        work: Work { offered: 1_200, done: 1_200 },
        scenario: "fleet".to_owned(),
        sizes: BTreeMap::from([("agents".to_owned(), agents)]),
        seeds,
        commit: "c0ffee".to_owned(),
        dirty: false,
        hashes: Hashes {
            binary: "b1".to_owned(),
            lock: "l1".to_owned(),
            features: "f1".to_owned(),
            scenario: "s1".to_owned(),
            machine: "m1".to_owned(),
        },
        command: "shakedown run fleet --agents 16 --seed 1".to_owned(),
        made_unix_s: 1_800_000_000,
    }
}

fn context() -> Context {
    let scenarios = [1, 8, 16, 64, 256].map(|agents| (("fleet".to_owned(), agents), "s1".to_owned()));
    Context {
        commit: "c0ffee".to_owned(),
        binary: "b1".to_owned(),
        scenarios: BTreeMap::from(scenarios),
        skipped: BTreeMap::from([(
            ("C9".to_owned(), "run-wall".to_owned(), Some(256)),
            "did not fit into the budget of 90s".to_owned(),
        )]),
        assumptions: vec!["a provider's latency follows its token counts".to_owned()],
    }
}

fn table_of(records: Vec<Record>) -> Table {
    let rows = Rows::built_in().expect("the rows that ship can be read");
    table::render(&rows, &Records { records, unreadable: Vec::new() }, &context())
}

fn line<'a>(table: &'a Table, figure: &str, rung: Option<u64>) -> &'a Line {
    table.lines.iter().find(|line| line.figure == figure && line.rung == rung).expect("the figure has a line")
}

fn reason_of(record: Record) -> String {
    let (figure, agents) = (record.figure.clone(), record.sizes["agents"]);
    let table = table_of(vec![record]);
    let ladder = table.lines.iter().any(|line| line.figure == figure && line.rung.is_some());
    match &line(&table, &figure, ladder.then_some(agents)).status {
        Status::NotMeasured { reason } => reason.clone(),
        status => panic!("{figure} is {status:?}"),
    }
}

#[test]
fn a_count_passes_only_if_every_seed_meets_its_target() {
    for (counts, number, met) in [
        (vec![30, 30, 30], "30", Met::Pass),
        (vec![30, 31, 30], "30 to 31", Met::Fail),
        (vec![29, 30], "29 to 30", Met::Fail),
    ] {
        let table = table_of(vec![record("C3", "refused", 8, Sample::Counts(counts))]);
        let line = line(&table, "refused", None);
        assert_eq!((line.number.as_deref(), &line.status), (Some(number), &Status::Counted { met }));
    }
}

#[test]
fn what_is_missing_stale_empty_or_senseless_is_not_measured() {
    let refused = || record("C3", "refused", 8, Sample::Counts(vec![30]));
    for (change, reason) in [
        (
            Box::new(|record: &mut Record| record.commit = "0ld".to_owned()) as Box<dyn Fn(&mut Record)>,
            "stale: recorded at commit 0ld",
        ),
        (Box::new(|record: &mut Record| record.hashes.binary = "b0".to_owned()), "stale: recorded by another build"),
        (
            Box::new(|record: &mut Record| record.hashes.scenario = "s0".to_owned()),
            "stale: the scenario fleet has changed",
        ),
        (Box::new(|record: &mut Record| record.work.done = 0), "nothing was done of 1,200 offered"),
        (Box::new(|record: &mut Record| record.sample = Sample::Counts(Vec::new())), "the record holds no counts"),
        (
            Box::new(|record: &mut Record| record.sample = Sample::Part { of: 1, whole: 1 }),
            "the record holds another kind of sample than the figure needs",
        ),
    ] {
        let mut changed = refused();
        change(&mut changed);
        assert_eq!(reason_of(changed), reason);
    }
    let wall = |sample| reason_of(record("C9", "run-wall", 16, sample));
    assert_eq!(wall(Sample::times([]).expect("an empty histogram can be written")), "the record holds no times");
    assert_eq!(
        reason_of(record("C9", "calls-per-second", 16, Sample::Part { of: 1, whole: 0 })),
        "the record holds no time"
    );
    assert_eq!(
        reason_of(record("C9", "ledger-wait", 16, Sample::Part { of: u64::MAX, whole: 1 })),
        "the record's number is past what can be written"
    );
}

#[test]
fn simulation_never_stands_in_for_a_measurement() {
    let simulated = record("C9", "run-wall-real", 16, Sample::times([1]).expect("a time can be written"));
    assert_eq!(reason_of(simulated), "the record is from the native engine; a measurement needs the real one");
    let mut real = record("C9", "run-wall", 16, Sample::times([1]).expect("a time can be written"));
    real.origin = Origin::Real;
    assert_eq!(reason_of(real), "the record is a measurement, and no prediction");
}

#[test]
fn the_newest_record_speaks_even_if_an_older_one_was_better() {
    let mut newest = record("C3", "refused", 8, Sample::Counts(vec![30]));
    newest.work.done = 0;
    let table = table_of(vec![record("C3", "refused", 8, Sample::Counts(vec![30])), newest]);
    assert!(matches!(line(&table, "refused", None).status, Status::NotMeasured { .. }));
}

#[test]
fn the_table_looks_as_it_did() {
    let seconds = |seconds: u64| seconds * 1_000_000_000;
    let mut dirty = record("C9", "calls-per-second", 64, Sample::Part { of: 6_400, whole: seconds(1_000) });
    dirty.dirty = true;
    let records = vec![
        record("C3", "over-cap", 8, Sample::Counts(vec![0; 8])),
        record("C3", "refused", 8, Sample::Counts(vec![30; 8])),
        record("C3", "admitted", 8, Sample::Counts(vec![10, 10, 10, 10, 9, 10, 10, 10])),
        record(
            "C9",
            "run-wall",
            16,
            Sample::times([seconds(91), seconds(93), seconds(97)]).expect("times can be written"),
        ),
        dirty,
        record("C9", "ledger-wait", 64, Sample::Part { of: 1_234, whole: 1_000_000 }),
    ];
    let mut table = table_of(records);
    table.unreadable.push((7, "not a record: EOF while parsing a value at line 1 column 0".to_owned()));
    check("table.txt", &render::text(&table, render::FALLBACK_WIDTH));
    let mut json = serde_json::to_string_pretty(&table).expect("a table can be written");
    json.push('\n');
    check("table.json", &json);
}

/// Compares with a golden file, or writes it when `SHAKEDOWN_BLESS` is set.
#[track_caller]
fn check(name: &str, found: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("SHAKEDOWN_BLESS").is_some() {
        std::fs::write(&path, found).expect("the golden file can be written");
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == expected,
        "{name} is not as it was; if it shall be so, run with SHAKEDOWN_BLESS=1. Found:\n{found}"
    );
}
