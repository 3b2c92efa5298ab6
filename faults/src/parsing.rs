//! What a TOML parser says of a file that a person wrote, made fit to be read: long lines cut around the place, control
//! characters spelled out, and an example where the parser speaks of its own types.

use crate::kind::Kind;
use std::{fmt::Write as _, ops::Range};

/// Characters of a line that are shown around the place of an error.
const SHOWN: usize = 120;

/// The most characters of a parser's own words that are shown.
const MOST_SAID: usize = 600;

/// The keys of a plan that have an example, and whose value is a table, a time or a name.
const KEYS: [&str; 9] = ["at", "fault", "target", "for", "up", "down", "by", "every", "after"];

/// The error with its line, and what may stand there instead if that can be told.
pub fn explained(text: &str, error: &toml::de::Error) -> String {
    let span = error.span().filter(|span| text.is_char_boundary(span.start.min(text.len())));
    let mut told = match span.clone() {
        Some(span) => placed(text, span, error.message()),
        None => said(error.message()),
    };
    if let Some(example) = example(text, span, error.message()) {
        let _ = write!(told, "; write {example}");
    }
    told
}

/// The parser's words without control characters, and not more of them than anyone reads.
fn said(message: &str) -> String {
    let mut said: String = message.chars().take(MOST_SAID).collect();
    if said.len() < message.len() {
        said.push('…');
    }
    said.split('\n').map(spelled).collect::<Vec<_>>().join("\n")
}

/// Text in which control characters are spelled out, so that a terminal does not obey them.
fn spelled(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { c.escape_default().to_string() } else { c.to_string() }).collect()
}

/// Line and column, the line or the part of it around the column, and what the parser said.
fn placed(text: &str, span: Range<usize>, message: &str) -> String {
    let at = span.start.min(text.len());
    let begins = text[..at].rfind('\n').map_or(0, |end| end + 1);
    let ends = text[at..].find('\n').map_or(text.len(), |end| at + end);
    let number = 1 + text[..at].matches('\n').count();
    let before: Vec<char> = text[begins..at].chars().collect();
    let after: Vec<char> = text[at..ends].chars().filter(|c| *c != '\r').collect();
    let column = 1 + before.len();
    let is_short = before.len() + after.len() <= SHOWN;
    let from = if is_short { 0 } else { before.len().saturating_sub(SHOWN / 2) };
    let to = if is_short { after.len() } else { after.len().min(SHOWN / 2) };
    let shown = |chars: &[char]| spelled(&chars.iter().collect::<String>().replace('\t', " "));
    let cut = |is_cut: bool| if is_cut { "…" } else { "" };
    let left = format!("{}{}", cut(from > 0), shown(&before[from..]));
    let right = format!("{}{}", shown(&after[..to]), cut(to < after.len()));
    let marked = text.get(at..span.end.min(ends)).map_or(1, |marked| marked.chars().count()).clamp(1, to.max(1));
    let gutter = " ".repeat(number.to_string().len());
    let indent = " ".repeat(left.chars().count());
    let marks = "^".repeat(marked);
    format!(
        "TOML parse error at line {number}, column {column}\n{gutter} |\n{number} | {left}{right}\n{gutter} | {indent}{marks}\n{}",
        said(message)
    )
}

/// What may stand at the place of an error, where the parser's words are of no help to whoever wrote the file.
fn example(text: &str, span: Option<Range<usize>>, message: &str) -> Option<String> {
    if message.contains("expected a duration") {
        return Some("a time in quotes, such as \"3m\", \"90s\" or \"250ms\"".to_owned());
    }
    let of_types =
        ["variant", "expected tuple", "wanted exactly 1 element", "expected empty table", "map with a single"];
    if !of_types.iter().any(|words| message.contains(words)) || message.starts_with("unknown variant") {
        return None;
    }
    let span = span?;
    let (begins, key) = key_before(text, span.start)?;
    match key {
        "at" => Some("such as at = { time = \"2s\" }, or { event = { what = \"settle\", nth = 3 } }".to_owned()),
        "target" => {
            Some("such as target = \"all\", { node = \"agent-0\" } or { link = [\"agent-0\", \"ledger\"] }".to_owned())
        }
        "fault" => {
            let ends = text[begins..].find('\n').map_or(text.len(), |end| begins + end);
            let words = text[begins..ends].split(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '_');
            let kind = words.filter_map(Kind::named).next();
            Some(format!("such as fault = {}", kind.map_or(EXAMPLE, example_of)))
        }
        _ => None,
    }
}

/// The last key of [`KEYS`] that is given a value before `place` or at it, and where that value begins.
fn key_before(text: &str, place: usize) -> Option<(usize, &'static str)> {
    let line = text[place..].find('\n').map_or(text.len(), |end| place + end);
    let assigned = text[..line].match_indices('=').map(|(at, _)| at);
    let key = |at: usize| {
        let word = text[..at].trim_end().rsplit(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-').next()?;
        let key = KEYS.into_iter().find(|key| *key == word)?;
        Some((at + 1, key))
    };
    assigned.filter_map(key).take_while(|(at, key)| *at <= place + key.len() + 2).last()
}

/// A fault that any plan may hold.
const EXAMPLE: &str = "{ loss = { ppm = 1000 } }";

/// A fault of a kind as a plan may hold it.
pub fn example_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Loss => EXAMPLE,
        Kind::Repeat => "{ repeat = { ppm = 1000 } }",
        Kind::Reorder => "{ reorder = { ppm = 1000 } }",
        Kind::DelaySpike => "{ delay-spike = { ppm = 1000, by = \"2s\" } }",
        Kind::Partition => "\"partition\"",
        Kind::PartitionOneWay => "\"partition-one-way\"",
        Kind::Kill => "\"kill\"",
        Kind::PowerCut => "\"power-cut\"",
        Kind::Pause => "\"pause\"",
        Kind::ClockStep => "{ clock-step = { by_ms = -5000 } }",
        Kind::ClockDrift => "{ clock-drift = { rate_ppm = 1001000 } }",
        Kind::CapLowered => "{ cap-lowered = { level = \"run\", percent = 50 } }",
        Kind::TooManyRequests => "{ too-many-requests = { ppm = 1000 } }",
        Kind::ServerError => "{ server-error = { ppm = 1000 } }",
        Kind::Slow => "{ slow = { factor = 10 } }",
        Kind::ReplyLost => "{ reply-lost = { ppm = 1000 } }",
        Kind::Cancel => "{ cancel = { nth = 3 } }",
        Kind::Clog => "{ clog = { bytes_per_s = 10000 } }",
        Kind::Bridge => "{ bridge = { split = 1 } }",
        Kind::Flap => "{ flap = { up = \"2s\", down = \"1s\" } }",
        Kind::CrashLoop => "{ crash-loop = { every = \"5s\" } }",
        Kind::ClockFreeze => "\"clock-freeze\"",
        Kind::Hang => "{ hang = { ppm = 1000 } }",
        Kind::UsageUnlike => "{ usage-unlike = { percent = 150 } }",
        Kind::CreditExhausted => "\"credit-exhausted\"",
        Kind::Halted => "\"halted\"",
        Kind::QuotaChanged => "{ quota-changed = { percent = 50 } }",
        Kind::DoubleStart => "\"double-start\"",
        Kind::RetryAnew => "{ retry-anew = { after = \"2s\" } }",
        Kind::DuplicateReport => "{ duplicate-report = { ppm = 1000 } }",
    }
}

#[cfg(test)]
mod tests {
    use super::example_of;
    use crate::{Kind, Plan};

    fn plan(fault: &str, target: &str) -> String {
        format!("format = 1\n[[faults]]\nat = {{ time = \"1s\" }}\nfault = {fault}\ntarget = {target}\nfor = \"1s\"\n")
    }

    #[test]
    fn every_kind_has_an_example_that_a_plan_may_hold() {
        let targets =
            ["\"all\"", "{ node = \"ledger\" }", "{ node = \"agent-0\" }", "{ link = [\"agent-0\", \"ledger\"] }"];
        for kind in Kind::ALL {
            let plans: Vec<Plan> =
                targets.iter().filter_map(|target| Plan::from_toml(&plan(example_of(kind), target)).ok()).collect();
            assert!(!plans.is_empty(), "{kind}: {}", example_of(kind));
            assert!(plans.iter().all(|plan| plan.faults[0].fault.kind() == kind), "{kind}");
            // A kind whose example is a table, given as a name, and the other way round.
            let (wrong, name) = (format!("\"{}\"", kind.name()), kind.name());
            let wrong = if example_of(kind) == wrong { format!("{{ {name} = {{ ppm = 5 }} }}") } else { wrong };
            let said = Plan::from_toml(&plan(&wrong, "\"all\"")).expect_err(&wrong).to_string();
            assert!(said.contains(&format!("write such as fault = {}", example_of(kind))), "{said}");
        }
    }

    #[test]
    fn what_the_parser_says_of_its_types_is_answered_with_an_example() {
        let at = plan("\"kill\"", "\"all\"").replace("{ time = \"1s\" }", "{ time = \"1s\", operation = 3 }");
        let number = plan("\"kill\"", "\"all\"").replace("for = \"1s\"", "for = 3");
        for (text, says) in [
            (
                plan("{ loss = { ppm = 1 }, hang = { ppm = 1 } }", "\"all\""),
                "such as fault = { loss = { ppm = 1000 } }",
            ),
            (plan("\"kill\"", "{ link = [\"agent-0\"] }"), "{ link = [\"agent-0\", \"ledger\"] }"),
            (plan("\"kill\"", "\"node\""), "{ node = \"agent-0\" }"),
            (at, "at = { time = \"2s\" }"),
            (number, "a time in quotes, such as \"3m\""),
        ] {
            let said = Plan::from_toml(&text).expect_err(&text).to_string();
            assert!(said.contains(says), "{text}\n{said}");
        }
    }

    #[test]
    fn a_long_line_is_cut_around_its_place_and_nothing_is_obeyed() {
        let long = "x".repeat(380_000);
        let said = Plan::from_toml(&plan(&format!("\"{long}\""), "\"all\"")).expect_err("no such fault").to_string();
        assert!(said.chars().count() < 1_500, "{} characters", said.chars().count());
        assert!(said.contains("line 4, column 9") && said.contains("| fault = \"xxx"), "{said}");
        let text = format!("format = 1\nfaults = [{}] ] \n", "1, ".repeat(100_000));
        let said = Plan::from_toml(&text).expect_err("no plan").to_string();
        assert!(said.chars().count() < 1_500 && said.contains('…'), "{said}");
        let said = Plan::from_toml("format = \u{1b}[31m").expect_err("no plan").to_string();
        assert!(said.contains("line 1") && !said.contains('\u{1b}'), "{said}");
    }
}
