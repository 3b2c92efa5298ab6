//! Whether the files bear out what the result says came of the run.

use super::{
    files::Files,
    findings::{Findings, Place, Rule},
    story::Story,
};
use serde::Serialize;

/// Invariants that the files cannot show to be broken, and why.
const UNSEEN: [(&str, &str); 6] = [
    ("store-reads-back", "the store that could not be read is not among the files"),
    ("kernel-panic", "what code does that panics is not in the files"),
    ("cast-panic", "what code does that panics is not in the files"),
    ("engine-panic", "what code does that panics is not in the files"),
    ("invariant-panic", "the invariant's code is not among the files"),
    ("drawn-again", "the workload's code is not among the files"),
];

/// Invariants that there are rules for, by the names that scenarios give them, and what is looked at without being named.
const RULED: [&str; 30] = [
    "dense",
    "durable",
    "caps-hold",
    "halt-holds",
    "quota-holds",
    "cancel-holds",
    "suspended-rests",
    "halted-calls-stay",
    "ends-once",
    "none-open-at-rest",
    "one-writer",
    "lease-terms",
    "believed-holders",
    "decided-once",
    "turns",
    "intents",
    "dispatched-first",
    "one-flight",
    "asked-once",
    "unknown-has-cause",
    "released-uncharged",
    "invoice",
    "live-calls",
    "edge-holds",
    "key-credit",
    "runs-end",
    "model",
    "rebuild",
    "readable-history",
    "comes-to-rest",
];

/// What is said of an invariant that there are no rules for.
pub const NO_RULES: &str = "check has no rules for this invariant";

/// Those of the scenario's invariants that there are no rules for: somebody's own.
pub(super) fn without_rules(files: &Files) -> Vec<String> {
    let named = files.capsule.scenario.invariants.iter();
    named.filter(|name| !RULED.contains(&name.as_str())).cloned().collect()
}

/// Invariants that also look at a run at rest.
const AT_REST: [&str; 4] = ["none-open-at-rest", "invoice", "runs-end", "durable"];

/// Whether the verdict is borne out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "verdict", content = "why")]
pub enum Agreement {
    /// The files show what the result says.
    Agrees,
    /// They show something else.
    Disagrees(String),
    /// They cannot show it.
    NotShown(String),
}

/// Looks at the run at rest where it has come to rest, and compares.
pub(super) fn judge(files: &Files, story: &Story<'_>, found: &mut Findings) -> Agreement {
    let result = &files.result;
    let verdict = result.verdict.as_str();
    // A run that broke a rule of rest came to rest; one that was stopped before ends where it was stopped.
    let of_rest = result.broken.as_ref().is_some_and(|broken| AT_REST.contains(&broken.invariant.as_str()));
    let came_to_rest =
        verdict == "pass" || (verdict == "safety" && of_rest && story.ended_idle() && !found.run_is_broken());
    if came_to_rest {
        story.at_rest(found);
    }
    if !result.tables_at_rest.is_empty() {
        story.tables().compare(&result.tables_at_rest, found);
    } else if verdict == "pass" {
        let why = "a run that came to rest notes the hashes of its tables, and none are noted";
        found.broken(Rule::Tables, Place::Result, why);
    }
    let broken = found.run_is_broken();
    let unruled = without_rules(files);
    let agreement = match (verdict, &result.broken, broken) {
        ("pass", None, false) if unruled.is_empty() => Agreement::Agrees,
        ("pass", None, false) => {
            let (own, them) = (unruled.join(", "), if unruled.len() == 1 { "it" } else { "them" });
            Agreement::NotShown(format!(
                "whether {own} held is not known, for check has no rules for {them}; all else agrees"
            ))
        }
        ("pass", Some(_), _) => Agreement::Disagrees("it is said to pass, and to have broken something".into()),
        ("pass", None, true) => {
            Agreement::Disagrees("it is said to pass, and the checks above show what is broken".into())
        }
        ("safety" | "liveness" | "nondeterminism", None, _) if verdict != "nondeterminism" => {
            Agreement::Disagrees("it is said to fail, and not what is broken".into())
        }
        ("safety", Some(_), true) => Agreement::Agrees,
        ("safety", Some(said), false) => match UNSEEN.iter().find(|(name, _)| *name == said.invariant) {
            Some((name, why)) => Agreement::NotShown(format!("{name}: {why}")),
            None if unruled.contains(&said.invariant) => {
                Agreement::NotShown(format!("{} is said to be broken, and {NO_RULES}", said.invariant))
            }
            None => Agreement::Disagrees(format!(
                "{} is said to be broken, and the files show nothing broken",
                said.invariant
            )),
        },
        ("liveness", Some(_), true) => {
            Agreement::Disagrees("it is said only not to have ended, and the checks above show what is broken".into())
        }
        ("liveness", Some(_), false) => unended(story),
        ("nondeterminism", ..) => Agreement::NotShown("it takes a second history to show that two differ".into()),
        (other, ..) => Agreement::Disagrees(format!("there is no verdict `{}`", other.escape_debug())),
    };
    match &agreement {
        Agreement::Agrees => found.looked(Rule::Verdict, 1),
        Agreement::Disagrees(why) => found.must(Rule::Verdict, Place::Result, false, || format!("{verdict}: {why}")),
        Agreement::NotShown(why) => found.unchecked(Rule::Verdict, why.clone()),
    }
    agreement
}

/// Whether the files show that something did not end.
fn unended(story: &Story<'_>) -> Agreement {
    if story.runs.unended().next().is_some() || story.budget.open().0 > 0 {
        return Agreement::Agrees;
    }
    Agreement::NotShown(
        "every run and every reservation has ended; what else was waited for is not in the files".into(),
    )
}
