//! `check`: a recorded run worked out again from its files alone, by code that shares nothing with what made them.

use crate::{
    exit::{Exit, Failure},
    output::{self, Format, Out},
};
use reports::table::grouped;
use scenarios::checker::{self, Agreement, Checked, NO_RULES, Status};
use serde::Serialize;
use std::path::PathBuf;

/// What `check` may be told.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The folder of a run, as `--out` writes it or a failing run leaves it.
    #[arg(value_name = "RUN_DIR")]
    folder: PathBuf,
}

/// What `check` says in JSON.
#[derive(Serialize)]
struct Object<'a> {
    ok: bool,
    violations: u64,
    #[serde(flatten)]
    checked: &'a Checked,
}

/// Does it.
pub fn perform(args: &Args, out: &mut Out) -> Result<Exit, Failure> {
    let checked = checker::check(&args.folder).map_err(Failure::input)?;
    let told = match out.format {
        Format::Json => {
            let (ok, violations) = (checked.is_ok(), checked.violations());
            out.json(&Object { ok, violations, checked: &checked })
        }
        Format::Text => out.text(&text(&checked)),
    };
    let exit = if checked.is_ok() { Exit::Pass } else { Exit::Safety };
    exit.despite(told)
}

/// A check as people read it.
fn text(checked: &Checked) -> String {
    let Checked { scenario, seed, agents, entries, records, checks, figures, .. } = checked;
    let mut lines = vec![
        format!("{scenario}, seed {seed}, {} agents", grouped(u64::from(*agents))),
        format!("looked at  {} entries of history, {} records of the log", grouped(*entries), grouped(*records)),
        String::new(),
    ];
    for check in checks {
        let status = word(check.status);
        let looked = format!("{} {}", grouped(check.looked_at), check.of);
        match (check.status, &check.not_checked) {
            (Status::NotChecked, why) => {
                lines.push(format!("{status:<12}{:<20}{}", check.name, why.as_deref().unwrap_or_default()));
            }
            (_, why) => {
                lines.push(format!("{status:<12}{:<20}{looked:<32}{}", check.name, check.states));
                lines.extend(why.as_ref().map(|why| format!("{:12}not to the end: {why}", "")));
            }
        }
        for violation in &check.first {
            lines.push(format!("{:12}{}: {}", "", violation.place, output::printable(&violation.message)));
        }
        if check.violations > check.first.len() as u64 {
            lines.push(format!("{:12}and {} more", "", grouped(check.violations - check.first.len() as u64)));
        }
    }
    let unruled = word(Status::NotChecked);
    lines.extend(checked.without_rules.iter().map(|name| format!("{unruled:<12}{name:<20}{NO_RULES}")));
    lines.push(String::new());
    let width = figures.iter().map(|figure| figure.name.len()).max().unwrap_or_default() + 2;
    for figure in figures {
        let name = &figure.name;
        match (&figure.recomputed, &figure.not_derivable) {
            (Some(value), _) if figure.status == Status::Ok => {
                lines.push(format!("recomputed      {name:<width$}{value}"))
            }
            (Some(value), _) => {
                let differs = output::alarm("DIFFERS");
                lines.push(format!("{differs}         {name:<width$}{}, and the files give {value}", figure.stated));
            }
            (None, why) => {
                lines.push(format!("not derivable   {name:<width$}{}", why.as_deref().unwrap_or_default()));
            }
        }
    }
    lines.push(String::new());
    lines.push(format!("verdict    {}: {}", checked.verdict, agreement(&checked.agreement)));
    let failed = checks.iter().filter(|check| check.status == Status::Failed).count();
    let unchecked = checks.iter().filter(|check| check.status == Status::NotChecked).count();
    let held = checks.len() - failed - unchecked;
    let unchecked = unchecked + checked.without_rules.len();
    lines.push(format!("checks     {held} hold, {failed} failed, {unchecked} not checked"));
    let whole = match (checked.is_ok(), checked.without_rules.as_slice()) {
        (true, []) => "ok".to_owned(),
        (true, unruled) => format!("ok, as far as there are rules: {} not checked", unruled.join(", ")),
        (false, _) => output::alarm("not ok"),
    };
    lines.push(format!("in all     {whole}\n"));
    lines.join("\n")
}

fn word(status: Status) -> &'static str {
    match status {
        Status::Ok => "ok",
        Status::Failed => "FAILED",
        Status::NotChecked => "NOT CHECKED",
    }
}

fn agreement(agreement: &Agreement) -> String {
    match agreement {
        Agreement::Agrees => "agrees with the files".to_owned(),
        Agreement::Disagrees(why) => format!("{}: {why}", output::alarm("disagrees")),
        Agreement::NotShown(why) => format!("not shown by the files: {why}"),
    }
}
