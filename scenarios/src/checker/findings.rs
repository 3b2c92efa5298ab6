//! What was looked at and what was found: a row a rule. A rule that had nothing to look at is never a rule that held.

use serde::Serialize;
use std::fmt;

/// How many violations of a rule are kept word for word; all are counted.
const KEPT: usize = 5;

macro_rules! rules {
    ($($rule:ident $name:literal $of:literal $states:literal, else $nothing:literal;)*) => {
        /// What is checked.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Rule { $($rule),* }

        impl Rule {
            /// Every rule, in the order of the table.
            pub(super) const ALL: &'static [Rule] = &[$(Rule::$rule),*];

            /// Its name, what it looks at, what it states, and why there may be nothing to look at.
            const fn described(self) -> (&'static str, &'static str, &'static str, &'static str) {
                match self { $(Rule::$rule => ($name, $of, $states, $nothing)),* }
            }
        }
    };
}

rules! {
    Capsule "capsule" "digests" "the capsule is as it was written", else "the capsule could not be read";
    Agreement "agreement" "fields" "capsule and result tell of the same run", else "one of the two could not be read";
    HistoryHash "history-hash" "hashes" "the history is the one that was hashed, whole and block by block", else "no history was kept";
    Entries "history-entries" "entries" "every entry can be read, in the order of time, from UP to CLOSE", else "no history was kept";
    Lines "log-lines" "lines" "every line is a record of a known schema and a known kind of event", else "the log is empty";
    Numbering "numbering" "records" "sequences are dense from 0", else "the log is empty";
    Content "content-hash" "hashes" "each record is what its content hash was taken of, in the log and in each frame", else "the log is empty";
    Chain "chain" "links" "each record extends the chain of the one before it", else "the log is empty";
    Class "class" "records" "class, tenant and origin are those of the kind of event", else "the log is empty";
    Lsn "lsn" "records" "positions in each run and branch are dense from 0, and a spawn is the first", else "no run wrote anything";
    LedgerTime "ledger-time" "records" "ledger time never goes back, and is what the writer's clock gives", else "the log is empty";
    Announced "announced" "records" "what was announced as durable is in the log as it was announced, and at most one frame more", else "nothing was announced";
    Head "head" "heads" "the log ends, and the ledger opened, where the commits before had come to", else "the ledger was never opened";
    DecidedOnce "decided-once" "decisions" "a request is decided at most once, by no older incarnation and not once acknowledged", else "nothing was decided";
    Replies "replies" "replies" "every reply is the decision that the log holds", else "no request was answered";
    ActedOn "acted-on" "replies" "what was acted on was durable by then, is in the log, and was acted on once", else "nobody acted on a reply";
    Commands "commands" "requests" "an admitted request made exactly the records its commands say, and no record lacks a request", else "no request was admitted";
    Answers "answers" "answers" "each command is admitted, refused or left waiting as the rules say, number by number", else "nobody asked anything";
    Caps "caps" "caps met" "no admitted reserve passes a cap in force: of unit, run, user's day, ledger's day", else "nothing was reserved";
    Slots "slots" "reserves" "no user has more live reservations than slots", else "nothing was reserved";
    EndsOnce "ends-once" "reservations" "a reservation is made once and ends at most once; after an unknown outcome by the owner alone", else "nothing was reserved";
    Terms "terms" "settings" "the ledger was set up with the capsule's caps, slots, price and quota", else "the log is empty";
    Price "price" "settlements" "a call settles at the price of its reservation, rounded up once, its overrun told", else "nothing was settled";
    Quota "quota" "spawns and reserves" "nobody begins more, deeper or dearer in a day than its quota", else "no quota was set";
    Halt "halt" "spawns and reserves" "while a halt is on no run is spawned and no invocation is sequenced; who ends halted by the owner met one", else "no halt was set";
    Cancel "cancel" "ends and beginnings" "of a run that was cancelled nothing begins, and it ends so", else "no run was cancelled with attempts running";
    NoneOpen "none-open" "run ends" "no reservation is open at its run's end unless its outcome is unknown, and none at rest", else "no run ended";
    OneWriter "one-writer" "writes" "a lock has one holder, fences rise, and what needs a lock is written under its grant", else "nothing was written under a lock";
    LeaseTerms "lease-terms" "lease events" "turns come within the waiter's term, leases end after their term, time passes at an oscillator's rate", else "no lease was granted";
    Turns "turns" "turns" "a lock, a slot or a question goes to whoever waited for it longest, and nobody passes one who waits", else "nobody waited";
    Believed "believed-holders" "claims" "who acts on a lease was granted it, and no call leaves on what a deposed holder reserved", else "nobody acted on a lease";
    Work "work" "spawns and reserves" "every run spawned and every unit reserved is on the capsule's list, for its user", else "nothing was begun";
    Arms "arms" "attempts" "attempts and intents follow their arms in order, each phase in its own frame, and end as their reservations do", else "no attempt was made";
    RunsEnd "runs-end" "runs" "a run is spawned once, ends once, and has ended when all is at rest", else "no run was spawned";
    Calls "calls" "calls" "a call leaves dispatched, under its own reservation, and is charged once, a question once, at the provider's price", else "no call left";
    Invoice "invoice" "settlements" "a call settles for the usage that was charged; at rest settled <= invoice <= settled + open", else "nothing was settled";
    Released "released-uncharged" "releases" "what was released is never on the invoice", else "nothing was released";
    Unknown "unknown-has-cause" "outcomes" "an outcome is unknown only of a call that left, or may have left but once, and whose sender got no answer", else "no outcome was unknown";
    LiveCalls "live-calls" "calls" "the calls of a user on the wire never exceed its slots", else "no call left";
    Edge "edge" "calls" "in any window no more calls of a key or from an address pass the edge than may, and no more are begun than pass", else "there is no edge";
    KeyCredit "key-credit" "charges" "no key is charged past its credit limit; what is refused for it says what was left, is not asked again by who heard it, and alone halts a run for it", else "no key has a credit limit, and none was refused for one";
    Tables "tables" "hashes" "at rest every table that an opening gave is the one that the log gives", else "the run was stopped before its tables were looked at";
    Figures "figures" "figures" "each figure of the result is what the files give", else "no figure could be worked out";
    Verdict "verdict" "verdicts" "the verdict of the result is what the files bear out", else "the files do not show it";
}

impl Rule {
    /// Whether it is about what the ledger and the cast did, rather than about how the files keep it.
    pub(super) fn is_of_the_run(self) -> bool {
        !matches!(
            self,
            Rule::Capsule
                | Rule::Agreement
                | Rule::HistoryHash
                | Rule::Entries
                | Rule::Lines
                | Rule::Figures
                | Rule::Verdict
        )
    }
}

/// Where in the folder something was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "file")]
pub enum Place {
    /// In `capsule.toml`.
    #[serde(rename = "capsule.toml")]
    Capsule,
    /// In `result.json`.
    #[serde(rename = "result.json")]
    Result,
    /// In `events.jsonl`.
    #[serde(rename = "events.jsonl")]
    Log {
        /// The line, from 1.
        line: u64,
    },
    /// In `history.log`.
    #[serde(rename = "history.log")]
    History {
        /// The entry, from 0.
        entry: u64,
    },
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Capsule => write!(out, "capsule.toml"),
            Place::Result => write!(out, "result.json"),
            Place::Log { line } => write!(out, "events.jsonl:{line}"),
            Place::History { entry } => write!(out, "history.log entry {entry}"),
        }
    }
}

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// Where.
    pub place: Place,
    /// What was found and what should have been.
    pub message: String,
}

/// What became of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// It was looked at and holds.
    Ok,
    /// It is broken.
    Failed,
    /// There was nothing to look at: nothing is known.
    NotChecked,
}

/// A row of the table of checks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// The rule's name.
    pub name: &'static str,
    /// What it states, in one line.
    pub states: &'static str,
    /// What became of it.
    pub status: Status,
    /// How many things were looked at.
    pub looked_at: u64,
    /// What things.
    pub of: &'static str,
    /// How many of them are not as they should be.
    pub violations: u64,
    /// The first of those.
    pub first: Vec<Violation>,
    /// Why it was not checked, or not to the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_checked: Option<String>,
}

#[derive(Clone, Debug, Default)]
struct Row {
    looked_at: u64,
    violations: u64,
    first: Vec<Violation>,
    unchecked: Option<String>,
}

/// What was found so far.
#[derive(Clone, Debug)]
pub(super) struct Findings {
    rows: Vec<Row>,
}

impl Default for Findings {
    fn default() -> Findings {
        Findings { rows: vec![Row::default(); Rule::ALL.len()] }
    }
}

impl Findings {
    /// Counts things that a rule looked at.
    pub(super) fn looked(&mut self, rule: Rule, things: u64) {
        self.rows[rule as usize].looked_at += things;
    }

    /// Keeps a violation.
    pub(super) fn broken(&mut self, rule: Rule, place: Place, message: impl Into<String>) {
        let row = &mut self.rows[rule as usize];
        row.violations += 1;
        if row.first.len() < KEPT {
            row.first.push(Violation { place, message: message.into() });
        }
    }

    /// Looks at one thing, which must hold.
    pub(super) fn must(&mut self, rule: Rule, place: Place, holds: bool, otherwise: impl FnOnce() -> String) {
        self.looked(rule, 1);
        if !holds {
            self.broken(rule, place, otherwise());
        }
    }

    /// Says why a rule could not be checked, or not to the end; the first reason stands.
    pub(super) fn unchecked(&mut self, rule: Rule, why: impl Into<String>) {
        self.rows[rule as usize].unchecked.get_or_insert_with(|| why.into());
    }

    /// Whether anything the ledger or the cast did is broken.
    pub(super) fn run_is_broken(&self) -> bool {
        Rule::ALL.iter().any(|rule| rule.is_of_the_run() && self.rows[*rule as usize].violations > 0)
    }

    /// The table.
    pub(super) fn checks(self) -> Vec<Check> {
        let check = |(rule, row): (&Rule, Row)| {
            let (name, of, states, nothing) = rule.described();
            let Row { looked_at, violations, first, unchecked } = row;
            let status = match (violations, looked_at) {
                (1.., _) => Status::Failed,
                (0, 0) => Status::NotChecked,
                (0, _) => Status::Ok,
            };
            let not_checked = unchecked.or_else(|| (status == Status::NotChecked).then(|| nothing.to_owned()));
            Check { name, states, status, looked_at, of, violations, first, not_checked }
        };
        Rule::ALL.iter().zip(self.rows).map(check).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_looked_at_does_not_hold() {
        let mut found = Findings::default();
        found.looked(Rule::Caps, 4);
        found.must(Rule::Slots, Place::Log { line: 3 }, false, || "too many".into());
        let checks = found.checks();
        let status = |name| checks.iter().find(|check| check.name == name).expect("a rule").status;
        assert_eq!((status("caps"), status("slots"), status("halt")), (Status::Ok, Status::Failed, Status::NotChecked));
        for check in checks.iter().filter(|check| check.status == Status::NotChecked) {
            assert!(check.not_checked.is_some(), "{} does not say why", check.name);
        }
    }

    #[test]
    fn many_violations_are_counted_and_few_are_kept() {
        let mut found = Findings::default();
        (0..100).for_each(|line| found.broken(Rule::Chain, Place::Log { line }, "no"));
        let chain = found.checks().into_iter().find(|check| check.name == "chain").expect("a rule");
        assert_eq!((chain.violations, chain.first.len()), (100, KEPT));
    }
}
