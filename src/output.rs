//! Standard output for data, standard error for everything else. A reader that has gone away is no failure.

use crate::exit::Failure;
use clap::{ValueEnum, builder::TypedValueParser as _};
use serde::Serialize;
use std::{
    fmt::Display,
    io::{self, IsTerminal as _, Write as _},
};

/// How results are written, by its name on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FormatName {
    /// For people.
    Text,
    /// The table of `report` as Markdown.
    Markdown,
    /// The table of `report` as CSV, a line for each figure at each size.
    Csv,
    /// One JSON object.
    Json,
}

impl FormatName {
    /// The format, of a command that writes no table.
    pub fn without_table(self) -> Result<Format, Failure> {
        match self {
            FormatName::Text => Ok(Format::Text),
            FormatName::Json => Ok(Format::Json),
            FormatName::Markdown | FormatName::Csv => Err(Failure::input(anyhow::anyhow!(
                "only `report` writes a table; give --format text or --format json"
            ))),
        }
    }
}

/// `--format` of a command that writes no table.
pub fn plain_format() -> clap::Arg {
    let named = [FormatName::Text, FormatName::Json].into_iter().filter_map(|format| format.to_possible_value());
    let named = clap::builder::PossibleValuesParser::new(named);
    let parser = named.map(|name| if name == "json" { FormatName::Json } else { FormatName::Text });
    clap::Arg::new("format")
        .long("format")
        .value_name("FORMAT")
        .value_parser(parser)
        .default_value("text")
        .help_heading(None::<&str>)
        .help("How results are written to standard output")
}

/// How results are written that are no table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For people.
    Text,
    /// One JSON object.
    Json,
}

/// Standard output. Once its reader has gone away, nothing more is written and the command goes on to its own exit.
#[derive(Debug)]
pub struct Out {
    /// How results are to be written.
    pub format: Format,
    gone: bool,
}

impl Out {
    /// Standard output, to be written to in `format`.
    pub fn new(format: Format) -> Out {
        Out { format, gone: false }
    }

    /// Writes one line.
    pub fn line(&mut self, line: impl Display) -> Result<(), Failure> {
        self.text(&format!("{line}\n"))
    }

    /// Writes text as it is.
    pub fn text(&mut self, text: &str) -> Result<(), Failure> {
        if self.gone {
            return Ok(());
        }
        let mut stdout = io::stdout().lock();
        match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.gone = true;
                Ok(())
            }
            Err(error) => Err(Failure::Input(anyhow::Error::new(error).context("standard output cannot be written"))),
            Ok(()) => Ok(()),
        }
    }

    /// Writes one JSON object, on one line.
    pub fn json(&mut self, object: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string(object).map_err(Failure::defect)?;
        self.line(text)
    }
}

/// Writes one line to standard error, if anyone reads it. It may have lines of its own; nothing else in it is obeyed.
pub fn note(line: &str) {
    let lines: Vec<String> = line.split('\n').map(printable).collect();
    let _ = writeln!(io::stderr().lock(), "{}", lines.join("\n"));
}

/// Text in which control characters are spelled out, so that a terminal shows them and does not obey.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { c.escape_default().to_string() } else { c.to_string() }).collect()
}

/// A word in bold red on a terminal that wants colour, plain anywhere else.
pub fn alarm(word: &str) -> String {
    if io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) {
        format!("\x1b[1;31m{word}\x1b[0m")
    } else {
        word.to_owned()
    }
}

/// A time as people say it, to the millisecond: `93.600s`, `12m 30.000s`, `2h 5m 0.000s`.
pub fn span(ns: u64) -> String {
    let (s, ms) = (ns / 1_000_000_000, ns / 1_000_000 % 1_000);
    match (s / 3_600, s / 60 % 60, s % 60) {
        (0, 0..=2, _) => format!("{s}.{ms:03}s"),
        (0, m, s) => format!("{m}m {s}.{ms:03}s"),
        (h, m, s) => format!("{h}h {m}m {s}.{ms:03}s"),
    }
}

/// A moment of a run, in seconds to the nanosecond.
pub fn moment(ns: u64) -> String {
    format!("{}.{:09}s", ns / 1_000_000_000, ns % 1_000_000_000)
}

#[cfg(test)]
mod tests {
    use super::{moment, printable, span};

    #[test]
    fn moments_are_exact() {
        for (ns, expect) in [(0, "0.000000000s"), (2_380_544, "0.002380544s"), (93_000_000_001, "93.000000001s")] {
            assert_eq!(moment(ns), expect);
        }
    }

    #[test]
    fn a_terminal_is_told_nothing_to_obey() {
        for (text, expect) in [
            ("over the cap", "over the cap"),
            ("\u{1b}[31mred\u{9b}", "\\u{1b}[31mred\\u{9b}"),
            ("two\nlines", "two\\nlines"),
        ] {
            assert_eq!(printable(text), expect);
        }
    }

    #[test]
    fn spans_read_as_people_say_them() {
        for (ms, expect) in [(0, "0.000s"), (93_600, "93.600s"), (750_000, "12m 30.000s"), (7_500_001, "2h 5m 0.001s")]
        {
            assert_eq!(span(ms * 1_000_000), expect);
        }
    }
}
