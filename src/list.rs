//! `list`: everything that goes by a name.

use crate::{
    exit::{Exit, Failure},
    output::{Format, Out},
    sometimes::described,
};
use kernel::{
    planted::Bug,
    record::{
        Class,
        ledgers::{Kind, Ledger},
    },
};
use reports::row::Rows;
use scenarios::{catalogue, invariant, sometimes::Sometimes, soonest, workload};
use serde::Serialize;

/// A name and what it stands for.
#[derive(Serialize)]
struct Named {
    name: String,
    summary: String,
}

/// A planted bug, and what to type to see it caught.
#[derive(Serialize)]
struct Planted {
    name: &'static str,
    summary: &'static str,
    caught_by: Option<String>,
}

/// What there is.
#[derive(Serialize)]
struct Object {
    scenarios: Vec<Named>,
    workloads: Vec<Named>,
    engines: Vec<Named>,
    stores: Vec<Named>,
    faults: Vec<Named>,
    invariants: Vec<Named>,
    sometimes: Vec<Named>,
    bugs: Vec<Planted>,
    ledgers: Vec<Named>,
    rows: Vec<Named>,
}

fn named(name: impl Into<String>, summary: impl Into<String>) -> Named {
    Named { name: name.into(), summary: summary.into() }
}

fn planted(bug: Bug) -> Planted {
    let caught_by = soonest::of(bug.name()).map(|row| row.command());
    Planted { name: bug.name(), summary: bug.summary(), caught_by }
}

/// How a ledger is written, what it holds, and which kinds of event go to it.
fn told(ledger: Ledger) -> String {
    let class = match ledger.class() {
        Class::Sequenced => "sequenced",
        Class::Mergeable => "mergeable",
        Class::Scarce => "scarce",
    };
    let kinds: Vec<&str> = ledger.kinds().map(Kind::name).collect();
    let kinds = if kinds.is_empty() { "no event yet".to_owned() } else { kinds.join(", ") };
    format!("{class}; {}: {kinds}", ledger.holds())
}

/// The values of a flag, with what its help says of each.
fn values<V: clap::ValueEnum>() -> Vec<Named> {
    let values = V::value_variants().iter().filter_map(V::to_possible_value);
    values.map(|value| named(value.get_name(), value.get_help().map(ToString::to_string).unwrap_or_default())).collect()
}

/// Does it.
pub fn perform(out: &mut Out) -> Result<Exit, Failure> {
    let rows = Rows::built_in().map_err(Failure::defect)?;
    let scenarios = catalogue::all();
    let object = Object {
        scenarios: scenarios.iter().map(|scenario| named(&scenario.name, &scenario.title)).collect(),
        workloads: workload::ALL.iter().map(|workload| named(workload.name, workload.does)).collect(),
        engines: values::<crate::choices::EngineName>(),
        stores: values::<crate::choices::StoreName>(),
        faults: faults::Kind::ALL.iter().map(|kind| named(kind.name(), kind.summary())).collect(),
        invariants: invariant::all().iter().map(|invariant| named(invariant.name(), invariant.states())).collect(),
        sometimes: Sometimes::all().into_iter().map(|one| named(one.name(), described(one, &scenarios))).collect(),
        bugs: Bug::ALL.iter().map(|bug| planted(*bug)).collect(),
        ledgers: Ledger::ALL.into_iter().map(|ledger| named(ledger.name(), told(ledger))).collect(),
        rows: rows.rows.iter().map(|row| named(&row.id, format!("{}: {}", row.what, row.over))).collect(),
    };
    match out.format {
        Format::Json => out.json(&object)?,
        Format::Text => out.text(&text(&object))?,
    }
    Ok(Exit::Pass)
}

fn text(object: &Object) -> String {
    let shown = |bug: &Planted| match &bug.caught_by {
        Some(command) => named(bug.name, format!("{}; {command}", bug.summary)),
        None => named(bug.name, bug.summary),
    };
    let bugs = object.bugs.iter().map(shown).collect();
    let sections = [
        ("scenarios", &object.scenarios),
        ("workloads", &object.workloads),
        ("engines", &object.engines),
        ("stores", &object.stores),
        ("fault kinds", &object.faults),
        ("invariants", &object.invariants),
        ("sometimes", &object.sometimes),
        ("planted bugs", &bugs),
        ("ledgers", &object.ledgers),
        ("rows", &object.rows),
    ];
    let mut lines = Vec::new();
    for (title, all) in sections {
        let width = all.iter().map(|named| named.name.len()).max().unwrap_or(0);
        lines.push(title.to_owned());
        lines.extend(
            all.iter().map(|Named { name, summary }| format!("  {name:width$}  {summary}").trim_end().to_owned()),
        );
        lines.push(String::new());
    }
    lines.join("\n")
}
