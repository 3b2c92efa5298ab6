//! The table as text.

use crate::table::{Line, Met, Status, Table};
use comfy_table::{ColumnConstraint, ContentArrangement, Width, presets};
use std::fmt::Write as _;

/// The width of a table whose terminal does not say how wide it is.
pub const FALLBACK_WIDTH: u16 = 120;

/// The narrowest table that can still be read.
const NARROWEST: u16 = 60;

impl Status {
    /// The status as the table's last column says it.
    pub fn text(&self) -> String {
        let with = |what: &str, met: Met| match met {
            Met::Pass => format!("{what}, pass"),
            Met::Fail => format!("{what}, FAIL"),
            Met::NoTarget => what.to_owned(),
        };
        match self {
            Status::Measured { met } => with("MEASURED", *met),
            Status::Counted { met } => with("COUNTED", *met),
            Status::Predicted => "PREDICTED".to_owned(),
            Status::NotMeasured { reason } => format!("NOT MEASURED: {reason}"),
        }
    }
}

/// The table in columns *what*, *number*, *measured over* and *status*, at most `width` wide, and below it what the
/// predictions assume. No colour.
pub fn text(table: &Table, width: u16) -> String {
    let width = width.max(NARROWEST);
    let mut columns = comfy_table::Table::new();
    columns.load_preset(presets::ASCII_MARKDOWN).set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    columns.set_header(["what", "number", "measured over", "status"]);
    for rungs in table.lines.chunk_by(is_as_silent) {
        columns.add_row(cells(rungs));
    }
    let share = |percent: u16| ColumnConstraint::UpperBoundary(Width::Percentage(percent));
    columns.set_constraints([share(30), share(14), share(32), share(34)]);
    let mut text = columns.to_string();
    text.push('\n');
    if !table.assumptions.is_empty() {
        text.push_str("\nWhat the predictions assume:\n");
        for assumption in &table.assumptions {
            let _ = writeln!(text, "- {assumption}");
        }
    }
    for (number, why) in &table.unreadable {
        let _ = writeln!(text, "\nline {number} of the records was not used: {why}");
    }
    text
}

/// Whether two rungs of one ladder have nothing to say for one and the same reason: they share a line.
fn is_as_silent(line: &Line, next: &Line) -> bool {
    let same_figure = (&line.row, &line.figure) == (&next.row, &next.figure);
    same_figure && line.status == next.status && matches!(line.status, Status::NotMeasured { .. })
}

fn cells(rungs: &[Line]) -> [String; 4] {
    let line = &rungs[0];
    let others = rungs[1..].iter().filter_map(|line| line.rung).map(|rung| format!(", {rung}"));
    let what = format!("{} {}{}", line.row, line.what, others.collect::<String>());
    let status = match (&line.status, &line.target) {
        (Status::Measured { .. } | Status::Counted { .. }, Some(target)) => {
            format!("{} ({target})", line.status.text())
        }
        _ => line.status.text(),
    };
    [what, line.number.clone().unwrap_or_else(|| "-".to_owned()), line.over.clone(), status]
}
