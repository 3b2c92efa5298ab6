//! The scenarios that ship with shakedown, and a user's own by path.

use crate::{
    file,
    scenario::{FORMAT, Scenario, Senseless},
};
use serde::Deserialize;
use std::path::Path;

/// The shipped scenarios: name and file.
const SHIPPED: [(&str, &str); 13] = [
    ("fleet", include_str!("../catalogue/fleet.toml")),
    ("contention", include_str!("../catalogue/contention.toml")),
    ("edge-of-cap", include_str!("../catalogue/edge-of-cap.toml")),
    ("partition", include_str!("../catalogue/partition.toml")),
    ("crash", include_str!("../catalogue/crash.toml")),
    ("producers", include_str!("../catalogue/producers.toml")),
    ("zombies", include_str!("../catalogue/zombies.toml")),
    ("day", include_str!("../catalogue/day.toml")),
    ("thrash", include_str!("../catalogue/thrash.toml")),
    ("stampede", include_str!("../catalogue/stampede.toml")),
    ("effects", include_str!("../catalogue/effects.toml")),
    ("ceilings", include_str!("../catalogue/ceilings.toml")),
    ("halt", include_str!("../catalogue/halt.toml")),
];

/// The longest scenario file that is read.
const MOST_BYTES: u64 = 1 << 20;

/// A scenario cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum CatalogueError {
    /// No scenario has that name.
    #[error("there is no scenario `{name}`{}; known are {}, and a file of your own goes by its path ending in .toml",
        nearest.map_or_else(String::new, |near| format!(", did you mean `{near}`?")), names().join(", "))]
    Unknown {
        /// What was asked for.
        name: String,
        /// The shipped name that is spelled most like it, if one is near.
        nearest: Option<&'static str>,
    },
    /// The file cannot be read.
    #[error("cannot read the scenario file {path}: {source}")]
    Unreadable {
        /// Its path.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is no scenario.
    #[error("{whence} is not a scenario: {why}")]
    NotAScenario {
        /// The file.
        whence: String,
        /// What the parser said, with line and column.
        why: String,
    },
    /// The file is of another format.
    #[error(
        "{whence} is of scenario format {found}, and this build reads format {FORMAT}; use the build it was written for"
    )]
    Format {
        /// The file.
        whence: String,
        /// The format found.
        found: i64,
    },
    /// A value makes no sense.
    #[error("{whence}: {source}")]
    Senseless {
        /// The file.
        whence: String,
        /// Which and why.
        source: Senseless,
    },
}

/// The names of the shipped scenarios, in the order a gate deals over them.
pub fn names() -> [&'static str; SHIPPED.len()] {
    SHIPPED.map(|(name, _)| name)
}

/// The shipped scenarios.
pub fn all() -> Vec<Scenario> {
    SHIPPED.iter().map(|(name, text)| shipped(name, text)).collect()
}

fn shipped(name: &str, text: &str) -> Scenario {
    parse(text, name).unwrap_or_else(|error| panic!("a shipped scenario is in order, and its test says so: {error}"))
}

/// The shipped scenario of that name, or the one in the file at that path, which ends in `.toml`.
pub fn find(name_or_path: &str) -> Result<Scenario, CatalogueError> {
    if let Some((name, text)) = SHIPPED.iter().find(|(name, _)| *name == name_or_path) {
        return Ok(shipped(name, text));
    }
    if !name_or_path.ends_with(".toml") {
        let nearest = nearest(name_or_path, &names());
        return Err(CatalogueError::Unknown { name: name_or_path.escape_debug().to_string(), nearest });
    }
    let text = file::read_text(Path::new(name_or_path), MOST_BYTES)
        .map_err(|source| CatalogueError::Unreadable { path: name_or_path.to_owned(), source })?;
    parse(&text, name_or_path)
}

/// Reads a scenario from TOML and checks every value of it. `whence` says where it is from, for errors.
pub fn parse(text: &str, whence: &str) -> Result<Scenario, CatalogueError> {
    /// What is read first, so that a newer format is named as such and not as an unknown field.
    #[derive(Deserialize)]
    struct Head {
        format: i64,
    }
    let unreadable = |error: toml::de::Error| CatalogueError::NotAScenario {
        whence: whence.to_owned(),
        why: faults::parsing::explained(text, &error),
    };
    let head: Head = toml::from_str(text).map_err(unreadable)?;
    if head.format != i64::from(FORMAT) {
        return Err(CatalogueError::Format { whence: whence.to_owned(), found: head.format });
    }
    let scenario: Scenario = toml::from_str(text).map_err(unreadable)?;
    scenario.check().map_err(|source| CatalogueError::Senseless { whence: whence.to_owned(), source })?;
    Ok(scenario)
}

/// The names a scenario may give its invariants.
pub(crate) fn known_invariants() -> Vec<&'static str> {
    crate::invariant::all().iter().map(|invariant| invariant.name()).collect()
}

/// The rows a scenario may feed.
pub(crate) fn known_rows() -> Vec<&'static str> {
    vec!["C1", "C2", "C3", "C4", "C5", "C6", "C7", "C8", "C9", "C11", "C13", "C15", "C17"]
}

/// The name that is spelled most like `word`, if it is within two letters of it or begins with it.
pub fn nearest(word: &str, names: &[&'static str]) -> Option<&'static str> {
    let near = |name: &&&'static str| {
        let far = distance(word, name);
        (far <= 2 || (word.len() >= 3 && name.starts_with(word))).then_some(far)
    };
    names.iter().filter(|name| near(name).is_some()).min_by_key(|name| distance(word, name)).copied()
}

/// Letters to add, drop or change to make one word of the other.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, letter) in from.chars().take(64).enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, other) in to.iter().enumerate() {
            let changed = diagonal + usize::from(letter != *other);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}
