//! The table as text, as Markdown and as CSV.
//!
//! Text and Markdown show sheets: first one of all rows, then one for each climb of a ladder under stated conditions, a rung a
//! line and a figure a column. CSV has a line for each figure at each rung, with the raw number beside the written one.

use crate::table::{Line, Met, Status, Table, grouped};
use comfy_table::{ColumnConstraint, ContentArrangement, Width, presets};
use serde::Serialize;
use std::fmt::Write as _;

/// The width of a table whose terminal does not say how wide it is.
pub const FALLBACK_WIDTH: u16 = 120;

/// The narrowest table that can still be read.
const NARROWEST: u16 = 60;

/// The width that the status of a rung needs, with a space on either side.
const STATUS_WIDTH: u16 = 14;

/// Digits that a number of a climb is shown with, if it has a fraction to cut.
const CLIMB_DIGITS: usize = 4;

impl Status {
    /// The status in a word, without its reason.
    pub fn word(&self) -> &'static str {
        match self {
            Status::Measured { .. } => "MEASURED",
            Status::Counted { .. } => "COUNTED",
            Status::Predicted => "PREDICTED",
            Status::NotMeasured { .. } => "NOT MEASURED",
        }
    }

    /// Whether the number is what it has to be, of those that have to be something.
    pub fn met(&self) -> Option<Met> {
        match self {
            Status::Measured { met } | Status::Counted { met } if *met != Met::NoTarget => Some(*met),
            _ => None,
        }
    }

    /// The status as the table's last column says it.
    pub fn text(&self) -> String {
        match (self, self.met()) {
            (Status::NotMeasured { reason }, _) => format!("{}: {reason}", self.word()),
            (_, Some(Met::Pass)) => format!("{}, pass", self.word()),
            (_, Some(Met::Fail)) => format!("{}, FAIL", self.word()),
            _ => self.word().to_owned(),
        }
    }
}

/// One table among those that text and Markdown show.
struct Sheet {
    title: Option<String>,
    heads: Vec<String>,
    rows: Vec<Vec<String>>,
    notes: Vec<String>,
}

impl Sheet {
    /// The length of the longest word in a column: a number is never broken over two lines, whatever the width.
    fn longest_word(&self, column: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(column)).chain(self.heads.get(column));
        cells.flat_map(|cell| cell.split_whitespace()).map(|word| word.chars().count()).max().unwrap_or(0)
    }
}

/// The table in columns *what*, *number*, *measured over* and *status*, at most `width` wide, then its ladders, wider
/// than that where numbers need it, and below them what the predictions assume. No colour.
pub fn text(table: &Table, width: u16) -> String {
    let width = width.max(NARROWEST);
    let mut text = String::new();
    for sheet in sheets(table) {
        if let Some(title) = &sheet.title {
            let _ = writeln!(text, "\n{title}");
        }
        let mut columns = comfy_table::Table::new();
        let arrangement = ContentArrangement::Dynamic;
        columns.load_preset(presets::ASCII_MARKDOWN).set_content_arrangement(arrangement).set_width(width);
        columns.set_header(&sheet.heads);
        columns.add_rows(&sheet.rows);
        if sheet.title.is_none() {
            let share = |percent: u16| ColumnConstraint::UpperBoundary(Width::Percentage(percent));
            columns.set_constraints([share(30), share(14), share(32), share(34)]);
        } else {
            let least = (0..sheet.heads.len()).map(|column| sheet.longest_word(column) + 2);
            let mut least: Vec<u16> = least.map(|width| u16::try_from(width).unwrap_or(u16::MAX)).collect();
            if let Some(status) = least.last_mut() {
                *status = STATUS_WIDTH;
            }
            columns
                .set_constraints(least.into_iter().map(|width| ColumnConstraint::LowerBoundary(Width::Fixed(width))));
        }
        let _ = writeln!(text, "{columns}");
        for note in &sheet.notes {
            let _ = writeln!(text, "{note}");
        }
    }
    text.push_str(&below(table));
    text
}

/// The same in Markdown.
pub fn markdown(table: &Table) -> String {
    let mut text = String::new();
    let row = |text: &mut String, cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|cell| literal(cell)).collect();
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    };
    for sheet in sheets(table) {
        if let Some(title) = &sheet.title {
            let _ = writeln!(text, "\n### {}\n", literal(title));
        }
        row(&mut text, &sheet.heads);
        let _ = writeln!(text, "|{}", "---|".repeat(sheet.heads.len()));
        for cells in &sheet.rows {
            row(&mut text, cells);
        }
        for note in &sheet.notes {
            let _ = writeln!(text, "\n{}", literal(note));
        }
    }
    text.push_str(&below(table));
    text
}

/// What stands below the sheets.
fn below(table: &Table) -> String {
    let mut text = String::new();
    if !table.assumptions.is_empty() {
        text.push_str("\nWhat the predictions assume:\n\n");
        for assumption in &table.assumptions {
            let _ = writeln!(text, "- {assumption}");
        }
    }
    for (number, why) in &table.unreadable {
        let _ = writeln!(text, "\nline {number} of the records was not used: {why}");
    }
    text
}

/// A text that Markdown takes as it is, on one line.
fn literal(text: &str) -> String {
    let mut literal = String::new();
    for c in text.chars() {
        match c {
            '\n' | '\r' => literal.push(' '),
            '|' | '\\' | '`' | '*' | '_' | '<' | '>' | '[' | ']' => literal.extend(['\\', c]),
            c => literal.push(c),
        }
    }
    literal
}

/// One line of the CSV.
#[derive(Serialize)]
struct Cells<'a> {
    row: &'a str,
    figure: &'a str,
    under: Option<&'a str>,
    rung: Option<u64>,
    what: &'a str,
    number: Option<&'a str>,
    raw_least: Option<u64>,
    raw_most: Option<u64>,
    raw_unit: &'a str,
    over: &'a str,
    published: &'a str,
    target: Option<&'a str>,
    status: &'a str,
    met: Option<Met>,
    reason: Option<&'a str>,
    command: Option<&'a str>,
}

/// The table as CSV, a head and then a line for each figure at each rung.
pub fn csv(table: &Table) -> Result<String, csv::Error> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for line in &table.lines {
        let reason = match &line.status {
            Status::NotMeasured { reason } => Some(reason.as_str()),
            _ => None,
        };
        writer.serialize(Cells {
            row: &line.row,
            figure: &line.figure,
            under: line.under.as_deref(),
            rung: line.rung,
            what: &line.what,
            number: line.number.as_deref(),
            raw_least: line.raw.map(|[least, _]| least),
            raw_most: line.raw.map(|[_, most]| most),
            raw_unit: line.unit.raw(),
            over: &line.over,
            published: &line.published,
            target: line.target.as_deref(),
            status: line.status.word(),
            met: line.status.met(),
            reason,
            command: line.command.as_deref(),
        })?;
    }
    let bytes = writer.into_inner().map_err(|error| error.into_error())?;
    Ok(String::from_utf8(bytes).expect("what is written from strings is text"))
}

fn sheets(table: &Table) -> Vec<Sheet> {
    let mut first = Sheet {
        title: None,
        heads: ["what", "number", "measured over", "status"].map(str::to_owned).into(),
        rows: Vec::new(),
        notes: Vec::new(),
    };
    let mut climbs: Vec<(&str, &str, Vec<&Line>)> = Vec::new();
    for lines in table.lines.chunk_by(is_in_one_row_of_the_first_sheet) {
        let Some(_) = &lines[0].under else {
            first.rows.push(cells(lines).into());
            continue;
        };
        first.rows.push(all_climbs(lines).into());
        for line in lines {
            let under = line.under.as_deref().unwrap_or_default();
            match climbs.iter_mut().find(|(row, known, _)| (*row, *known) == (line.row.as_str(), under)) {
                Some((_, _, climb)) => climb.push(line),
                None => climbs.push((&line.row, under, vec![line])),
            }
        }
    }
    let climbs = climbs.into_iter().map(|(_, under, lines)| climb(under, &lines));
    std::iter::once(first).chain(climbs).collect()
}

/// Whether two lines share one: two rungs of a ladder with nothing to say for one and the same reason, or two figures of one row
/// whose ladder has sheets of its own.
fn is_in_one_row_of_the_first_sheet(line: &Line, next: &Line) -> bool {
    if line.row == next.row && (line.under.is_some() || next.under.is_some()) {
        return line.under.is_some() && next.under.is_some();
    }
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

/// The one row of the first sheet that stands for a ladder with sheets of its own.
fn all_climbs(lines: &[Line]) -> [String; 4] {
    let line = &lines[0];
    let silent = lines.iter().filter(|line| matches!(line.status, Status::NotMeasured { .. })).count();
    let told = lines.iter().find(|line| !matches!(line.status, Status::NotMeasured { .. }));
    let status = match told {
        None => line.status.text(),
        Some(told) if silent == 0 => told.status.text(),
        Some(told) => {
            format!("{} {} of {}; the others NOT MEASURED", told.status.word(), lines.len() - silent, lines.len())
        }
    };
    let over = told.unwrap_or(line).over.split(';').next().unwrap_or_default().to_owned();
    let number = if told.is_some() { "see below" } else { "-" };
    [format!("{} {}, up its ladder", line.row, line.about), number.to_owned(), over, status]
}

/// One climb: a rung a row, a figure a column.
fn climb(under: &str, lines: &[&Line]) -> Sheet {
    let mut figures: Vec<&Line> = Vec::new();
    let mut rungs: Vec<u64> = Vec::new();
    for line in lines {
        if figures.iter().all(|known| known.figure != line.figure) {
            figures.push(line);
        }
        let rung = line.rung.unwrap_or_default();
        if !rungs.contains(&rung) {
            rungs.push(rung);
        }
    }
    let head = |line: &&Line| {
        let (short, unit) = (line.short.as_ref().unwrap_or(&line.figure), line.unit.word());
        format!("{short} {unit}").trim_end().to_owned()
    };
    let mut heads = vec!["n".to_owned(), "seeds".to_owned()];
    heads.extend(figures.iter().map(head));
    heads.push("status".to_owned());
    let mut notes: Vec<String> = Vec::new();
    let mut rows: Vec<Vec<String>> = Vec::new();
    for rung in rungs {
        let at = |figure: &&Line| lines.iter().find(|line| line.rung == Some(rung) && line.figure == figure.figure);
        let of_rung: Vec<&&Line> = figures.iter().filter_map(at).collect();
        let seeds = of_rung.iter().filter_map(|line| line.seeds).max();
        let mut row = vec![rung.to_string(), seeds.map_or_else(|| "-".to_owned(), |seeds| seeds.to_string())];
        row.extend(figures.iter().map(|figure| at(figure).map_or_else(String::new, |line| bare(line))));
        row.push(statuses(&of_rung, &mut notes));
        match rows.last_mut() {
            // Rungs with nothing to say for one and the same reason share a row.
            Some(last) if seeds.is_none() && last[1..] == row[1..] => last[0] = format!("{}, {}", last[0], row[0]),
            _ => rows.push(row),
        }
    }
    let line = lines[0];
    let notes = notes.iter().enumerate().map(|(index, why)| format!("({}) {why}", index + 1)).collect();
    Sheet { title: Some(format!("{} {}: {under}", line.row, line.about)), heads, rows, notes }
}

/// A number without its unit, which heads the column, and with no more digits than tell rungs apart.
fn bare(line: &Line) -> String {
    let Some([least, most]) = line.raw else { return "-".to_owned() };
    let written = |raw: u64| {
        let scale = line.unit.scale();
        let whole = (raw / scale).to_string().len();
        let digits = if scale == 1 { 0 } else { CLIMB_DIGITS.saturating_sub(whole) };
        let ten = 10_u128.pow(digits as u32);
        let rounded = (u128::from(raw) * ten + u128::from(scale) / 2) / u128::from(scale);
        let whole = grouped(u64::try_from(rounded / ten).unwrap_or(u64::MAX));
        if digits == 0 { whole } else { format!("{whole}.{:0digits$}", rounded % ten) }
    };
    if least == most { written(least) } else { format!("{} to {}", written(least), written(most)) }
}

/// What the lines of one rung claim; reasons are added to the notes.
fn statuses(lines: &[&&Line], notes: &mut Vec<String>) -> String {
    let mut claims: Vec<String> = Vec::new();
    let mut reasons: Vec<usize> = Vec::new();
    for line in lines {
        if let Status::NotMeasured { reason } = &line.status {
            let known = notes.iter().position(|note| note == reason);
            let note = known.unwrap_or_else(|| {
                notes.push(reason.clone());
                notes.len() - 1
            });
            reasons.extend((!reasons.contains(&note)).then_some(note));
        } else if !claims.contains(&line.status.text()) {
            claims.push(line.status.text());
        }
    }
    if !reasons.is_empty() {
        let reasons: String = reasons.iter().map(|note| format!(" ({})", note + 1)).collect();
        claims.push(format!("NOT MEASURED{reasons}"));
    }
    claims.join(", ")
}
