//! A gate's results as JUnit XML: one suite a scenario, one case a seed.

use crate::gate::{Played, Unplayed};
use anyhow::Context as _;
use scenarios::{file, runner::Verdict};
use std::{fmt::Write as _, path::Path};

/// Whether a file can be made at `path`, so that a long gate is not played for nothing.
pub fn must_be_writable(path: &Path) -> anyhow::Result<()> {
    file::probe(path).context("--junit")
}

/// Writes the file.
pub fn write(path: &Path, results: &[Played], unplayed: &[Unplayed]) -> anyhow::Result<()> {
    file::publish(path, xml(results, unplayed).as_bytes()).context("--junit")
}

/// The document.
pub fn xml(results: &[Played], unplayed: &[Unplayed]) -> String {
    let is_failed = |played: &&Played| played.verdict != Verdict::Pass;
    let counts = |cases: &[&Played], errors: usize| {
        let failures = cases.iter().copied().filter(is_failed).count();
        let time = seconds(cases.iter().map(|case| case.wall_ns).sum());
        let tests = cases.len() + errors;
        format!(r#"tests="{tests}" failures="{failures}" errors="{errors}" time="{time}""#)
    };
    let mut scenarios: Vec<&str> = Vec::new();
    let named = results.iter().map(|one| &one.scenario).chain(unplayed.iter().map(|one| &one.scenario));
    for scenario in named {
        if !scenarios.contains(&scenario.as_str()) {
            scenarios.push(scenario);
        }
    }
    let all: Vec<&Played> = results.iter().collect();
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let _ = writeln!(xml, r#"<testsuites name="shakedown gate" {}>"#, counts(&all, unplayed.len()));
    for name in scenarios {
        let cases: Vec<&Played> = results.iter().filter(|played| played.scenario == name).collect();
        let errors: Vec<&Unplayed> = unplayed.iter().filter(|unplayed| unplayed.scenario == name).collect();
        let scenario = escaped(name);
        let _ = writeln!(xml, r#"  <testsuite name="{scenario}" {}>"#, counts(&cases, errors.len()));
        cases.iter().for_each(|case| xml.push_str(&played_case(&scenario, case)));
        for Unplayed { seed, why, repro, .. } in errors {
            let _ = writeln!(xml, r#"    <testcase classname="{scenario}" name="seed {seed}" time="0.000">"#);
            let _ = writeln!(
                xml,
                r#"      <error type="not-played" message="{}">{}</error>"#,
                escaped(why),
                escaped(repro)
            );
            let _ = writeln!(xml, "    </testcase>");
        }
        let _ = writeln!(xml, "  </testsuite>");
    }
    xml.push_str("</testsuites>\n");
    xml
}

fn seconds(ns: u64) -> String {
    format!("{}.{:03}", ns / 1_000_000_000, ns / 1_000_000 % 1_000)
}

/// The case of a run that was played, in a suite whose name is escaped already.
fn played_case(scenario: &str, case: &Played) -> String {
    let time = seconds(case.wall_ns);
    let head = format!(r#"<testcase classname="{scenario}" name="seed {}" time="{time}""#, case.seed);
    if case.verdict == Verdict::Pass {
        return format!("    {head}/>\n");
    }
    let verdict = format!("{:?}", case.verdict).to_lowercase();
    let broken = case.broken.as_ref().map(|broken| format!("{}: {}", broken.invariant, broken.message));
    let (message, repro) = (broken.unwrap_or_else(|| verdict.clone()), case.repro.as_deref().unwrap_or_default());
    let (message, repro) = (escaped(&message), escaped(repro));
    format!("    {head}>\n      <failure type=\"{verdict}\" message=\"{message}\">{repro}</failure>\n    </testcase>\n")
}

/// Text as XML 1.0 may hold it, in content and in attributes; characters that it cannot hold at all are replaced.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&apos;"),
            '\t' | '\n' | '\r' => {
                let _ = write!(escaped, "&#{};", u32::from(c));
            }
            '\0'..='\x1f' | '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn what_xml_cannot_hold_is_escaped_or_replaced() {
        for (text, expect) in [
            ("plain", "plain"),
            (r#"<a b="c">&'"#, "&lt;a b=&quot;c&quot;&gt;&amp;&apos;"),
            ("one\ntwo\t", "one&#10;two&#9;"),
            ("bell\u{7}\u{ffff}", "bell\u{fffd}\u{fffd}"),
        ] {
            assert_eq!(escaped(text), expect);
        }
    }
}
