//! What a gate reached of the conditions that must be reached sometimes, and what it never did.

use crate::choices::{EngineName, Shared};
use scenarios::{scenario::Scenario, sometimes::Sometimes};
use serde::Serialize;
use std::collections::BTreeMap;

/// The union over the runs of a gate.
#[derive(Debug, Serialize)]
pub struct Reached {
    /// Each condition that was reached, and in how many runs.
    pub reached: BTreeMap<String, u64>,
    /// What had to be reached, and never was: there were runs enough of scenarios that can.
    pub never: Vec<String>,
    /// What was not reached and did not have to be: too few runs that can, or none.
    pub not_required: Vec<String>,
}

impl Reached {
    /// Unites what runs reached; `runs` are those played of each scenario. A gate whose runs are not as their scenarios say,
    /// for it was given sizes, a plan, a bug or another engine, requires nothing.
    pub fn unite<'a>(reached: impl Iterator<Item = &'a String>, runs: &[(&Scenario, u64)], shared: &Shared) -> Reached {
        let mut counts = BTreeMap::new();
        for name in reached {
            *counts.entry(name.clone()).or_default() += 1;
        }
        let requires = is_as_scenarios_say(shared);
        let is_required = |one: &Sometimes| {
            let able: u64 = runs.iter().filter(|(scenario, _)| one.is_within(scenario)).map(|(_, runs)| runs).sum();
            requires && one.runs_needed().is_some_and(|needed| able >= needed)
        };
        let unreached = Sometimes::all().into_iter().filter(|one| !counts.contains_key(&one.name()));
        let (never, not_required): (Vec<Sometimes>, Vec<Sometimes>) = unreached.partition(is_required);
        let names = |all: Vec<Sometimes>| all.into_iter().map(Sometimes::name).collect();
        Reached { reached: counts, never: names(never), not_required: names(not_required) }
    }
}

fn is_as_scenarios_say(shared: &Shared) -> bool {
    let Shared { agents, agents_per_user, lasts, store, engine, plan, bugs, caps } = shared;
    let sizes = agents.is_none() && agents_per_user.is_none() && lasts.is_none() && store.is_none() && caps.is_none();
    sizes && *engine == EngineName::Native && plan.is_none() && bugs.is_empty()
}

/// A condition as `list` shows it: what it is, and of how many runs of which scenarios one reaches it.
pub fn described(one: Sometimes, scenarios: &[Scenario]) -> String {
    let able: Vec<&str> =
        scenarios.iter().filter(|scenario| one.is_within(scenario)).map(|scenario| scenario.name.as_str()).collect();
    match (one.runs_needed(), one.excuse()) {
        (_, Some(excuse)) => format!("{} (not required: {excuse})", one.states()),
        (_, None) if able.is_empty() => format!("{} (in no scenario that ships)", one.states()),
        (needed, None) => format!("{} (in {} runs of {})", one.states(), needed.unwrap_or(0), able.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use scenarios::catalogue;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        shared: Shared,
    }

    fn never(flags: &[&str], scenarios: &[&str], runs_each: u64, reached: &[&str]) -> Vec<String> {
        let flags = Flags::parse_from([&["gate"], flags].concat()).shared;
        let scenarios: Vec<Scenario> = scenarios.iter().map(|name| catalogue::find(name).expect("shipped")).collect();
        let runs: Vec<(&Scenario, u64)> = scenarios.iter().map(|scenario| (scenario, runs_each)).collect();
        let reached: Vec<String> = reached.iter().map(|name| (*name).to_owned()).collect();
        Reached::unite(reached.iter(), &runs, &flags).never
    }

    #[test]
    fn a_gate_of_a_thousand_runs_names_the_one_kind_that_made_no_difference() {
        let scenarios: Vec<Scenario> = catalogue::all();
        let names: Vec<&str> = scenarios.iter().map(|scenario| scenario.name.as_str()).collect();
        let runs_each = 1_000 / names.len() as u64;
        for kind in faults::Kind::ALL {
            let missed = Sometimes::Felt(kind).name();
            let all: Vec<String> = Sometimes::all().into_iter().map(Sometimes::name).collect();
            let others: Vec<&str> = all.iter().filter(|name| **name != missed).map(String::as_str).collect();
            assert_eq!(never(&[], &names, runs_each, &others), [missed], "{kind}");
        }
    }

    #[test]
    fn a_gate_requires_what_its_scenarios_can_reach_once_it_is_large_enough() {
        let whole = ["contention", "crash", "fleet", "partition"];
        let has = |never: &[String], name: &str| never.iter().any(|one| one == name);
        let of_thousand = never(&[], &whole, 250, &["felt-loss"]);
        assert!(!has(&of_thousand, "felt-loss"));
        for name in ["healed-loss", "felt-flap", "felt-crash-loop", "refused-no-slot", "begun-at-event"] {
            assert!(has(&of_thousand, name), "{name} in {of_thousand:?}");
        }
        assert!(has(&of_thousand, "refused-empty"), "a trespasser reaches it");
        assert!(!has(&of_thousand, "refused-busy"), "no queue of these is short");
        let of_one = never(&[], &["crash"], 100, &[]);
        assert!(has(&of_one, "felt-power-cut") && has(&of_one, "begun-at-operation"), "{of_one:?}");
        assert!(!has(&of_one, "felt-flap"), "crash draws none");
        assert_eq!(never(&[], &whole, 9, &[]), [""; 0], "too few runs");
        for flags in [["--plan", "none"], ["--bug", "skip-fence"], ["--agents", "3"]] {
            assert_eq!(never(&flags, &whole, 250, &[]), [""; 0], "{flags:?}");
        }
    }
}
