//! A gate's results as JUnit XML: one suite a scenario, one case a seed.

use crate::gate::Played;
use anyhow::Context as _;
use scenarios::{file, runner::Verdict};
use std::{fmt::Write as _, path::Path};

/// Whether a file can be made at `path`, so that a long gate is not played for nothing.
pub fn must_be_writable(path: &Path) -> anyhow::Result<()> {
    file::probe(path).context("--junit")
}

/// Writes the file.
pub fn write(path: &Path, results: &[Played]) -> anyhow::Result<()> {
    file::publish(path, xml(results).as_bytes()).context("--junit")
}

fn xml(results: &[Played]) -> String {
    let is_failed = |played: &&Played| played.verdict != Verdict::Pass;
    let seconds = |ns: u64| format!("{}.{:03}", ns / 1_000_000_000, ns / 1_000_000 % 1_000);
    let counts = |cases: &[&Played]| {
        let failures = cases.iter().copied().filter(is_failed).count();
        let time = seconds(cases.iter().map(|case| case.wall_ns).sum());
        format!(r#"tests="{}" failures="{failures}" errors="0" time="{time}""#, cases.len())
    };
    let mut scenarios: Vec<&str> = Vec::new();
    for played in results {
        if !scenarios.contains(&played.scenario.as_str()) {
            scenarios.push(&played.scenario);
        }
    }
    let all: Vec<&Played> = results.iter().collect();
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let _ = writeln!(xml, r#"<testsuites name="shakedown gate" {}>"#, counts(&all));
    for scenario in scenarios {
        let cases: Vec<&Played> = results.iter().filter(|played| played.scenario == scenario).collect();
        let scenario = escaped(scenario);
        let _ = writeln!(xml, r#"  <testsuite name="{scenario}" {}>"#, counts(&cases));
        for case in cases {
            let head = format!(
                r#"<testcase classname="{scenario}" name="seed {}" time="{}""#,
                case.seed,
                seconds(case.wall_ns)
            );
            if case.verdict == Verdict::Pass {
                let _ = writeln!(xml, "    {head}/>");
                continue;
            }
            let verdict = format!("{:?}", case.verdict).to_lowercase();
            let message = case
                .broken
                .as_ref()
                .map_or_else(|| verdict.clone(), |broken| format!("{}: {}", broken.invariant, broken.message));
            let repro = case.repro.as_deref().unwrap_or_default();
            let _ = writeln!(xml, "    {head}>");
            let _ = writeln!(
                xml,
                r#"      <failure type="{verdict}" message="{}">{}</failure>"#,
                escaped(&message),
                escaped(repro)
            );
            let _ = writeln!(xml, "    </testcase>");
        }
        let _ = writeln!(xml, "  </testsuite>");
    }
    xml.push_str("</testsuites>\n");
    xml
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
