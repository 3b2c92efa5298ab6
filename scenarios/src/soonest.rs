//! Which run shows each planted bug soonest, as measured: the table of `soonest.toml`.

use serde::Deserialize;

/// The run that shows a planted bug soonest.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Soonest {
    /// The bug.
    pub name: String,
    /// The shipped scenario.
    pub scenario: String,
    /// The seed.
    pub seed: u64,
    /// The invariant that it breaks.
    pub invariant: String,
}

impl Soonest {
    /// What to type to see it.
    pub fn command(&self) -> String {
        format!("shakedown run {} --seed {} --bug {}", self.scenario, self.seed, self.name)
    }
}

/// The whole table.
pub fn all() -> Vec<Soonest> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Table {
        bug: Vec<Soonest>,
    }
    let table: Table = toml::from_str(include_str!("../soonest.toml"))
        .unwrap_or_else(|error| panic!("the shipped table is in order, and its test says so: {error}"));
    table.bug
}

/// The run for the bug of that name.
pub fn of(bug: &str) -> Option<Soonest> {
    all().into_iter().find(|row| row.name == bug)
}
