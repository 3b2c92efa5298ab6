//! The table: what each record earns its figure, and how the whole looks.
#![expect(clippy::disallowed_methods, reason = "golden files are read from the repository")]

use reports::{
    plot,
    record::{FORMAT, Hashes, Origin, Record, Records, Sample, Work},
    render,
    row::Rows,
    table::{self, Context, Line, Met, Spot, Status, Table},
};
use std::{collections::BTreeMap, path::Path};

/// The conditions that the ladder of these tests has numbers under, and others that it has none under.
const CALM: &str = "no faults; caps scaled to n";
const STORMY: &str = "faults; published caps";

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
        under: (row == "C9" && figure != "run-wall-real").then(|| CALM.to_owned()),
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
    let scenarios = [1, 8, 16, 64, 256].into_iter().flat_map(|agents| {
        [None, Some(CALM.to_owned())].map(|under| (("fleet".to_owned(), agents, under), "s1".to_owned()))
    });
    let skipped = |under: &str, rung| Spot {
        row: "C9".to_owned(),
        figure: "run-wall".to_owned(),
        under: Some(under.to_owned()),
        rung: Some(rung),
    };
    Context {
        commit: "c0ffee".to_owned(),
        binary: "b1".to_owned(),
        machine: "m1".to_owned(),
        scenarios: scenarios.collect(),
        skipped: BTreeMap::from([
            (skipped(CALM, 256), "did not fit into the budget of 90s".to_owned()),
            (skipped(STORMY, 4_096), "seed 3 failed (runs-end): shakedown run fleet --seed 3 | more".to_owned()),
        ]),
        assumptions: vec!["a provider's latency follows its token counts".to_owned()],
    }
}

fn table_of(records: Vec<Record>) -> Table {
    let rows = Rows::built_in().expect("the rows that ship can be read");
    table::render(&rows, &Records { records, ..Records::default() }, &context())
}

fn line<'a>(table: &'a Table, figure: &str, rung: Option<u64>) -> &'a Line {
    let is = |line: &&Line| {
        line.figure == figure && line.rung == rung && line.under.as_ref().is_none_or(|under| under == CALM)
    };
    table.lines.iter().find(is).expect("the figure has a line")
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
fn a_measurement_counts_on_its_own_machine_alone() {
    let mut real = record("C9", "run-wall-real", 16, Sample::times([1]).expect("a time can be written"));
    (real.origin, real.engine) = (Origin::Real, "real".to_owned());
    let table = table_of(vec![real.clone()]);
    assert_eq!(line(&table, "run-wall-real", Some(16)).status, Status::Measured { met: Met::NoTarget });
    real.hashes.machine = "m2".to_owned();
    assert_eq!(reason_of(real), "stale: measured on another machine");
}

#[test]
fn a_record_of_an_unknown_build_speaks_of_none() {
    let mut context = context();
    context.binary = table::UNKNOWN.to_owned();
    let mut unknown = record("C3", "refused", 8, Sample::Counts(vec![30]));
    unknown.hashes.binary = table::UNKNOWN.to_owned();
    let rows = Rows::built_in().expect("the rows that ship can be read");
    let table = table::render(&rows, &Records { records: vec![unknown], ..Records::default() }, &context);
    assert!(matches!(line(&table, "refused", None).status, Status::NotMeasured { .. }));
}

#[test]
fn a_record_under_other_conditions_is_another_rungs() {
    let mut other = record("C9", "run-wall", 16, Sample::times([1]).expect("a time can be written"));
    other.under = Some(STORMY.to_owned());
    let table = table_of(vec![other]);
    assert_eq!(line(&table, "run-wall", Some(16)).status, Status::NotMeasured { reason: "no record".to_owned() });
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
    let mut rows = Rows::built_in().expect("the rows that ship can be read");
    for ladder in rows.rows.iter_mut().flat_map(|row| &mut row.figures).filter_map(|figure| figure.ladder.as_mut()) {
        ladder.at.retain(|rung| ![4, 1_024].contains(rung));
        ladder.under.retain(|under| [CALM, STORMY].contains(&under.as_str()));
    }
    let mut table = table::render(&rows, &Records { records, ..Records::default() }, &context());
    table.unreadable.push((7, "not a record: EOF while parsing a value at line 1 column 0".to_owned()));
    check("table.txt", &render::text(&table, render::FALLBACK_WIDTH));
    check("table.md", &render::markdown(&table));
    check("table.csv", &render::csv(&table).expect("a table can be written"));
    let lines = table.lines.iter().map(|line| serde_json::to_string(line).expect("a line can be written"));
    let json = lines.map(|line| format!("{line}\n")).collect::<String>();
    check("table.jsonl", &json);
}

#[test]
fn a_figure_with_numbers_up_a_ladder_has_a_plot() {
    let seconds = |seconds: u64| Sample::times([seconds * 1_000_000_000]).expect("a time can be written");
    let walls = [(1, 91), (16, 93), (64, 99), (256, 240)].map(|(n, wall)| record("C9", "run-wall", n, seconds(wall)));
    let plots = plot::plots(&table_of(walls.into())).expect("a plot can be drawn");
    let [plot] = &plots[..] else { panic!("one figure has numbers, and there are {} plots", plots.len()) };
    assert_eq!(plot.name, "c9-run-wall.svg");
    assert!(plot.svg.starts_with("<svg ") && plot.svg.trim_end().ends_with("</svg>"), "{}", plot.svg);
    assert_eq!(plot.svg.matches("<circle ").count(), 4, "a point a number");
    for words in ["C9 run wall, p50 (PREDICTED)", CALM, STORMY, "sans-serif"] {
        assert!(plot.svg.contains(words), "the plot does not say {words}");
    }
    assert_eq!(plot::plots(&table_of(Vec::new())).expect("nothing can be drawn"), []);
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
