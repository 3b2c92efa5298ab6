//! The reference names everything that goes by a name, and nothing else: what `list` lists, every flag, every exit code, every
//! key of a scenario, every field of a fault and every event that one may begin at.

use crate::page::{Page, fits, name_in, pages, root};
use faults::{Ground, Kind, Plan, Swarm};
use serde_json::Value;
use std::{collections::BTreeMap, fs, path::Path, process::Command, time::Duration};

/// The table of the book that a comment announces.
struct Table {
    place: String,
    rows: Vec<String>,
}

/// The tables announced by `<!-- WHAT: … -->`, by what follows.
fn tables(what: &str) -> BTreeMap<String, Table> {
    let mut tables = BTreeMap::new();
    for (said, place, rows) in pages().iter().flat_map(|page| page.tables(what)) {
        let twice = tables.insert(said.clone(), Table { place: place.clone(), rows });
        assert!(twice.is_none(), "{place}: a second table is announced as `{what} {said}`; join the two");
    }
    tables
}

/// Complains of each name that no row of the table has, with the row to add, and of each row that names nothing.
fn compare(table: &Table, known: &[(String, String)], columns: usize) -> Vec<String> {
    let Table { place, rows } = table;
    let blanks = " |".repeat(columns.saturating_sub(2));
    let has = |row: &String, name: &str| name_in(row).is_some_and(|stands| fits(first_word(stands), first_word(name)));
    let missing = known.iter().filter(|(name, _)| !rows.iter().any(|row| has(row, name)));
    let missing = missing
        .map(|(name, summary)| format!("{place}: `{name}` has no line; add\n    | `{name}` | {summary} |{blanks}"));
    let stale = rows.iter().filter(|row| !known.iter().any(|(name, _)| has(row, name)));
    missing
        .chain(stale.map(|row| format!("{place}: this names nothing that there is; take it out\n    {row}")))
        .collect()
}

fn first_word(name: &str) -> &str {
    name.split(' ').next().unwrap_or(name)
}

#[track_caller]
fn none(complaints: &[String]) {
    assert!(
        complaints.is_empty(),
        "{} lines of the reference are to be changed\n{}",
        complaints.len(),
        complaints.join("\n")
    );
}

fn said(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_shakedown")).args(arguments).env_remove("COLUMNS").output();
    String::from_utf8(output.expect("the command can be started").stdout).expect("it writes UTF-8")
}

/// The table announced as `list: KIND`.
fn list(kind: &str) -> Table {
    let table = tables("list:").remove(kind);
    table.unwrap_or_else(|| panic!("no page announces a table with <!-- list: {kind} -->; add one to docs/reference"))
}

fn columns(table: &Table) -> usize {
    table.rows.first().map_or(2, |row| row.matches(" |").count())
}

#[test]
fn everything_that_list_names_has_its_line() {
    let listed: BTreeMap<String, Vec<Value>> =
        serde_json::from_str(&said(&["list", "--format", "json"])).expect("an object");
    assert!(listed.len() > 6, "{:?}", listed.keys());
    let mut complaints = Vec::new();
    for (kind, all) in listed {
        let text = |one: &Value, key: &str| one[key].as_str().unwrap_or_default().to_owned();
        let known: Vec<(String, String)> = all.iter().map(|one| (text(one, "name"), text(one, "summary"))).collect();
        let table = list(&kind);
        complaints.extend(compare(&table, &known, columns(&table)));
    }
    none(&complaints);
}

#[test]
fn every_command_has_its_section_and_every_flag_its_line() {
    let help = said(&["--help"]);
    let commands: Vec<&str> = help
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.strip_prefix("  ").filter(|line| !line.starts_with(' '))?.split(' ').next())
        .collect();
    assert!(commands.len() > 4, "{commands:?}");
    let page = Page::read("docs/reference/commands.md");
    let tables = tables("flags:");
    let mut complaints = Vec::new();
    for command in &commands {
        if !page.lines.iter().any(|line| *line == format!("## `{command}`")) {
            complaints.push(format!("{}: `{command}` has no section; add ## `{command}`", page.name));
        }
        let own = flags(&said(&[command, "--help"]));
        let mine = || tables.iter().filter(|(names, _)| names.split(' ').any(|name| name == *command));
        for (flag, what) in &own {
            let has = |row: &String| name_in(row).is_some_and(|stands| first_word(stands) == first_word(flag));
            if !mine().any(|(_, table)| table.rows.iter().any(has)) {
                complaints.push(format!(
                    "{}: `{flag}` of `{command}` has no line; below <!-- flags: {command} --> add\n    | `{flag}` | {what} | |",
                    page.name
                ));
            }
        }
        for (_, table) in mine() {
            complaints
                .extend(compare(table, &own, 3).into_iter().filter(|complaint| complaint.contains("take it out")));
        }
    }
    let unknown = tables.keys().flat_map(|names| names.split(' ')).filter(|name| !commands.contains(name));
    complaints.extend(unknown.map(|name| format!("{}: there is no command `{name}` to have flags", page.name)));
    none(&complaints);
}

/// The flags that a help text describes, those of every command apart, each with the first line of what it says.
fn flags(help: &str) -> Vec<(String, String)> {
    let lines: Vec<&str> = help.lines().collect();
    let flag = |(index, line): (usize, &&str)| {
        let flag = line.trim_start().strip_prefix("--").map(|rest| format!("--{}", rest.replace(['<', '>'], "")))?;
        let what = lines.get(index + 1).map(|line| line.trim().to_owned()).unwrap_or_default();
        (!flag.starts_with("--format")).then_some((flag, what))
    };
    lines.iter().enumerate().filter_map(flag).collect()
}

/// The facts that `scenarios/src/fact.rs` defines, each with its fields.
fn facts() -> BTreeMap<String, Vec<String>> {
    let source = fs::read_to_string(root().join("scenarios/src/fact.rs")).expect("the facts");
    let (_, body) = source.split_once("pub enum Fact {").expect("an enum");
    let (body, _) = body.split_once("\n}").expect("its end");
    let mut facts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut last = String::new();
    for line in body.lines().map(str::trim).filter(|line| !line.starts_with("//")) {
        if let Some(name) = line.strip_suffix(" {") {
            last = name.to_owned();
            facts.insert(last.clone(), Vec::new());
        } else if let Some((field, _)) = line.split_once(": ") {
            facts.entry(last.clone()).or_default().push(field.to_owned());
        }
    }
    facts
}

#[test]
fn every_fact_has_its_line_and_every_field_of_it() {
    let facts = facts();
    assert!(facts.len() > 8 && facts["CallSent"].len() > 5, "{facts:?}");
    let known: Vec<(String, String)> = facts.keys().map(|name| (name.clone(), "what it says".to_owned())).collect();
    let table = list("facts");
    let mut complaints = compare(&table, &known, 3);
    for (fact, fields) in &facts {
        let row = table.rows.iter().find(|row| name_in(row) == Some(fact)).map_or("", String::as_str);
        let missing = fields.iter().filter(|field| !row.contains(&format!("`{field}`")));
        complaints.extend(
            missing.map(|field| format!("{}: the line of `{fact}` does not name its field `{field}`", table.place)),
        );
    }
    none(&complaints);
}

#[test]
fn every_exit_code_has_its_line() {
    let source = fs::read_to_string(root().join("src/exit.rs")).expect("the exit codes");
    let code = |line: &str| line.trim().strip_suffix(',')?.split_once(" = ")?.1.parse::<u8>().ok();
    let known: Vec<(String, String)> =
        source.lines().filter_map(code).map(|code| (code.to_string(), String::new())).collect();
    assert!(known.len() > 5, "{known:?}");
    none(&compare(&list("exits"), &known, 2));
}

#[test]
fn every_key_of_a_scenario_has_its_line() {
    let all = scenarios::catalogue::all();
    let has = |table: fn(&scenarios::scenario::Scenario) -> bool| all.iter().any(table);
    let every_table =
        has(|one| one.quota.is_some()) && has(|one| one.caps_on_arrivals.is_some()) && has(|one| one.edge.is_some());
    assert!(every_table, "every table there is stands in some scenario");
    let mut keys = std::collections::BTreeSet::new();
    for scenario in &all {
        let written: toml::Table = toml::Table::try_from(scenario).expect("a scenario can be written");
        for (key, value) in &written {
            match value.as_table().filter(|_| key != "caps_on_arrivals") {
                None => _ = keys.insert(key.clone()),
                Some(table) => keys.extend(table.keys().map(|inner| format!("{key}.{inner}"))),
            }
        }
    }
    let known: Vec<(String, String)> = keys.into_iter().map(|key| (key, String::new())).collect();
    let table = list("keys");
    none(&compare(&table, &known, columns(&table)));
}

#[test]
fn every_field_of_a_fault_is_in_its_line() {
    let swarm = Swarm { kinds: Kind::ALL.to_vec(), always: Vec::new(), most_per_kind: 3 };
    let ground = Ground { agents: 4, has_edge: false, lasts: Duration::from_secs(600), disk_operations: 1_000 };
    let table = list("faults");
    let mut seen: BTreeMap<Kind, bool> = BTreeMap::new();
    let mut complaints = Vec::new();
    for planned in (0..200).flat_map(|seed| swarm.draw(seed, &ground).plan.faults) {
        let kind = planned.fault.kind();
        if seen.insert(kind, true).is_some() {
            continue;
        }
        let written = toml::Value::try_from(&planned.fault).expect("a fault can be written");
        let fields =
            written.get(kind.name()).and_then(|inner| inner.as_table()).into_iter().flat_map(|table| table.keys());
        let row = table.rows.iter().find(|row| name_in(row) == Some(kind.name())).map_or("", String::as_str);
        let missing = fields.filter(|field| !row.contains(&format!("`{field}`")));
        complaints.extend(
            missing.map(|field| format!("{}: the line of `{kind}` does not name its field `{field}`", table.place)),
        );
    }
    let page = Page::read("docs/reference/faults.md");
    for kind in Kind::ALL {
        let forms = [format!("fault = \"{kind}\""), format!("fault = {{ {kind} = ")];
        if !page.lines.iter().any(|line| forms.iter().any(|form| line.contains(form))) {
            complaints.push(format!("{}: each.toml has no `{kind}`; add a line", page.name));
        }
    }
    let undrawn: Vec<&str> = Kind::ALL.into_iter().filter(|kind| !seen.contains_key(kind)).map(Kind::name).collect();
    assert_eq!(undrawn, [""; 0], "these are never drawn, so their fields were not looked at");
    none(&complaints);
}

#[test]
fn every_event_that_a_fault_may_begin_at_has_its_line() {
    let text = "format = 1\n[[faults]]\nat = { event = { what = \"?\", nth = 1 } }\nfault = \"kill\"\ntarget = \"all\"\nfor = \"1s\"";
    let error = Plan::from_toml(text).expect_err("there is no such event").to_string();
    let (_, expected) = error.split_once("expected one of").unwrap_or_else(|| panic!("{error}"));
    let known: Vec<(String, String)> =
        expected.split('`').skip(1).step_by(2).map(|name| (name.to_owned(), String::new())).collect();
    assert!(known.len() > 10, "{error}");
    none(&compare(&list("events"), &known, 2));
}

#[test]
fn every_workload_invariant_and_scenario_stands_where_its_howto_says() {
    for (folder, page) in [
        ("scenarios/src/workload/mod.rs", "docs/howto/add-a-workload.md"),
        ("scenarios/src/invariant/mod.rs", "docs/howto/add-an-invariant.md"),
        ("scenarios/src/catalogue.rs", "docs/howto/add-a-scenario.md"),
        ("faults/src/kind.rs", "docs/howto/add-a-fault-kind.md"),
        ("kernel/src/room.rs", "docs/howto/add-a-room.md"),
    ] {
        assert!(Path::new(&root().join(folder)).is_file(), "{folder} is gone");
        let names = Page::read(page).lines.iter().any(|line| line.contains(folder));
        assert!(names, "{page} does not name {folder}, where the first change goes");
    }
}

#[test]
fn every_key_of_the_files_of_a_run_and_of_json_has_its_line() {
    let folder = tempfile::TempDir::new().expect("a folder for the test");
    let play = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_shakedown"));
        let output = command.args(arguments).args(["--format", "json"]).current_dir(folder.path()).output();
        let text = output.expect("the command can be started").stdout;
        serde_json::from_slice::<Value>(&text).unwrap_or_else(|error| panic!("{arguments:?}: {error}"))
    };
    let failing = ["contention", "--bug", "check-after-call", "--plan", "none"];
    let run = play(&[&["run"], &failing[..], &["--out", "kept"]].concat());
    let gate = play(&[&["gate"], &failing[..], &["--seeds", "0..2", "--partition", "1/2"]].concat());
    let repro = play(&["repro", "kept/capsule.toml"]);
    let read = |name: &str| fs::read_to_string(folder.path().join("kept").join(name)).expect("the run left it");

    let capsule: toml::Table = toml::from_str(&read("capsule.toml")).expect("TOML");
    let events = read("events.jsonl");
    let event: Value = serde_json::from_str(events.lines().next().expect("a record")).expect("JSON");
    let names = |value: &Value| -> Vec<String> {
        value.as_object().into_iter().flatten().map(|(key, _)| key.clone()).collect()
    };
    let deep = capsule.iter().flat_map(|(key, value)| {
        match value.as_table().filter(|_| ["broken", "provenance"].contains(&&**key)) {
            None => vec![key.clone()],
            Some(table) => table.keys().map(|inner| format!("{key}.{inner}")).collect(),
        }
    });
    // These are left out where there is nothing to say.
    let deep = deep.chain(["schedule_cut", "arrivals"].map(str::to_owned)).collect();
    let figures = names(&run["figures"]).into_iter().chain(["arrivals".to_owned()]).collect();
    let mut complaints = Vec::new();
    for (kind, known) in [("capsule.toml", deep), ("events.jsonl", names(&event)), ("figures", figures)] {
        let known: Vec<(String, String)> =
            Vec::into_iter(known).map(|name: String| (name, "what it says".to_owned())).collect();
        complaints.extend(compare(&list(kind), &known, 2));
    }
    let page = Page::read("docs/reference/commands.md");
    let json: Vec<&String> = page.lines.iter().skip_while(|line| *line != "## JSON").collect();
    let result: Value = serde_json::from_str(&read("result.json")).expect("JSON");
    let said =
        [names(&run), names(&gate), names(&gate["results"][0]), names(&repro), names(&gate["sometimes"])].concat();
    for name in said.iter().filter(|name| !json.iter().any(|line| line.contains(&format!("`{name}`")))) {
        complaints.push(format!("{}: the section JSON does not name `{name}`", page.name));
    }
    let files = Page::read("docs/reference/files.md");
    for name in names(&result).iter().filter(|name| !said.contains(name)) {
        if !files.lines.iter().any(|line| line.contains(&format!("`{name}`"))) {
            complaints.push(format!("{}: nothing names `{name}` of result.json", files.name));
        }
    }
    none(&complaints);
}
