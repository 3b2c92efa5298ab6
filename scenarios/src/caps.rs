//! Caps as data: a file of caps, quotas and limits that take the place of a scenario's, and of changes that the owner makes while
//! runs are live.
//!
//! A caps file is the part of a scenario file that says how much is enough, under the same keys: any of `[caps]`, `[quota]`, `[edge]`,
//! `provider.key_credit` and `[[change]]`. What it leaves out is as the scenario has it.

use crate::{
    file,
    scenario::{Caps, Change, Edge, MILLION, MOST_CAP, Scenario, Senseless},
};
use faults::parsing::explained;
use kernel::{
    admit::{DepthTier, Quota},
    money::MicroUsd,
};
use serde::{Deserialize, Deserializer, de};
use std::{io, path::Path, time::Duration};

/// The version of the format that this code reads.
pub const FORMAT: u32 = 1;

/// A caps file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CapsError {
    /// It cannot be read.
    #[error("the caps file {path} cannot be read: {source}")]
    File {
        /// Its path.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// It is no caps file.
    #[error("{path} is not a caps file: {why}")]
    NotCaps {
        /// Its path.
        path: String,
        /// What the parser said, with line and column.
        why: String,
    },
    /// It is of another format.
    #[error("{path} is of caps format {found}, and this build reads format {FORMAT}; use the build it was written for")]
    Format {
        /// Its path.
        path: String,
        /// The format found.
        found: i64,
    },
}

/// A caps file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CapsFile {
    /// [`FORMAT`].
    pub format: u32,
    #[serde(default)]
    caps: SomeCaps,
    #[serde(default)]
    quota: Option<SomeQuota>,
    #[serde(default)]
    edge: Option<SomeEdge>,
    #[serde(default)]
    provider: SomeCredit,
    /// What the owner changes, in place of all that the scenario has the owner change; none for the scenario's own.
    #[serde(default)]
    change: Option<Vec<Change>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct SomeCaps {
    #[serde(default, deserialize_with = "amount")]
    unit: Option<MicroUsd>,
    #[serde(default, deserialize_with = "amount")]
    run: Option<MicroUsd>,
    #[serde(default, deserialize_with = "amount")]
    user_day: Option<MicroUsd>,
    #[serde(default, deserialize_with = "amount")]
    ledger_day_per_user: Option<MicroUsd>,
    #[serde(default, deserialize_with = "count")]
    slots: Option<u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct SomeQuota {
    runs_per_day: Option<u32>,
    #[serde(default, deserialize_with = "amount")]
    micro_usd_per_day: Option<MicroUsd>,
    depth_tier: Option<DepthTier>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct SomeEdge {
    #[serde(default, deserialize_with = "count")]
    per_key: Option<u32>,
    #[serde(default, deserialize_with = "count")]
    per_address: Option<u32>,
    #[serde(default, with = "humantime_serde")]
    window: Option<Duration>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct SomeCredit {
    #[serde(default, deserialize_with = "amount")]
    key_credit: Option<MicroUsd>,
}

/// An amount up to the most that a cap may be, refused where its place is known.
fn amount<'de, D: Deserializer<'de>>(from: D) -> Result<Option<MicroUsd>, D::Error> {
    let amount = u64::deserialize(from)?;
    if amount > MOST_CAP {
        return Err(de::Error::custom(format!("{amount} is out of range; it is 0 to {MOST_CAP}, in micro-USD")));
    }
    Ok(Some(MicroUsd(amount)))
}

/// A number of one to a million.
fn count<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    let count = u64::deserialize(from)?;
    match u32::try_from(count) {
        Ok(count @ 1..=MILLION) => Ok(Some(count)),
        _ => Err(de::Error::custom(format!("{count} is out of range; it is 1 to {MILLION}"))),
    }
}

impl CapsFile {
    /// Reads one.
    pub fn load(path: &Path) -> Result<CapsFile, CapsError> {
        let name = path.display().to_string();
        let text =
            file::read_text(path, file::MOST_BYTES).map_err(|source| CapsError::File { path: name.clone(), source })?;
        CapsFile::parse(&text, &name)
    }

    /// Reads one from TOML; `path` says where it is from, for errors.
    pub fn parse(text: &str, path: &str) -> Result<CapsFile, CapsError> {
        /// What is read first, so that a newer format is named as such and not as an unknown key.
        #[derive(Deserialize)]
        struct Head {
            format: i64,
        }
        let not_caps = |error: toml::de::Error| {
            let why = explained(text, &error);
            CapsError::NotCaps { path: path.to_owned(), why }
        };
        let head: Head = toml::from_str(text).map_err(not_caps)?;
        if head.format != i64::from(FORMAT) {
            return Err(CapsError::Format { path: path.to_owned(), found: head.format });
        }
        toml::from_str(text).map_err(not_caps)
    }

    /// Whether it can be in force while a trace is replayed, which is without quotas.
    pub(crate) fn fits_a_trace(&self) -> Result<(), Senseless> {
        let why = "a trace is replayed without quotas; leave it out, or play the scenario's own work".to_owned();
        let changes = self.change.iter().flatten();
        match self.quota {
            Some(_) => Err(Senseless { field: "quota", why }),
            None if changes.into_iter().any(|change| change.level.is_of_quota()) => {
                Err(Senseless { field: "change.level", why })
            }
            None => Ok(()),
        }
    }

    /// Puts what it says in the place of what the scenario does. A limit of a kind that the scenario has none of is judged too.
    pub(crate) fn apply(&self, scenario: &mut Scenario) -> Result<(), Senseless> {
        let brought = [
            (self.quota.is_some() && scenario.quota.is_none(), "quota-holds"),
            (self.edge.is_some() && scenario.edge.is_none(), "edge-holds"),
            (self.provider.key_credit.is_some() && scenario.provider.key_credit.is_none(), "key-credit"),
        ];
        for (is_new, judge) in brought {
            if is_new && !scenario.invariants.iter().any(|name| name == judge) {
                scenario.invariants.push(judge.to_owned());
            }
        }
        let put = |cap: &mut MicroUsd, own: Option<MicroUsd>| *cap = own.unwrap_or(*cap);
        let Caps { unit, run, user_day, ledger_day_per_user, slots } = &mut scenario.caps;
        put(unit, self.caps.unit);
        put(run, self.caps.run);
        put(user_day, self.caps.user_day);
        put(ledger_day_per_user, self.caps.ledger_day_per_user);
        *slots = self.caps.slots.unwrap_or(*slots);
        if let Some(own) = &self.quota {
            let before = scenario.quota;
            scenario.quota = Some(Quota {
                runs_per_day: either(own.runs_per_day, before.map(|quota| quota.runs_per_day), "quota.runs_per_day")?,
                micro_usd_per_day: either(
                    own.micro_usd_per_day,
                    before.map(|quota| quota.micro_usd_per_day),
                    "quota.micro_usd_per_day",
                )?,
                depth_tier: either(own.depth_tier, before.map(|quota| quota.depth_tier), "quota.depth_tier")?,
            });
        }
        if let Some(own) = &self.edge {
            let before = scenario.edge;
            scenario.edge = Some(Edge {
                per_key: either(own.per_key, before.map(|edge| edge.per_key), "edge.per_key")?,
                per_address: either(own.per_address, before.map(|edge| edge.per_address), "edge.per_address")?,
                window: either(own.window, before.map(|edge| edge.window), "edge.window")?,
            });
        }
        scenario.provider.key_credit = self.provider.key_credit.or(scenario.provider.key_credit);
        if let Some(change) = &self.change {
            scenario.change.clone_from(change);
        }
        Ok(())
    }
}

/// What the file says, or else the scenario; one of them has to.
fn either<T>(own: Option<T>, scenarios: Option<T>, field: &'static str) -> Result<T, Senseless> {
    own.or(scenarios).ok_or_else(|| Senseless {
        field,
        why: "neither the caps file nor the scenario says it; a scenario without the section needs all of its keys"
            .into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{catalogue, scenario::Setting};

    fn applied(text: &str, to: &str) -> Result<Scenario, String> {
        let mut scenario = catalogue::find(to).expect("shipped");
        let caps = CapsFile::parse(text, "caps.toml").map_err(|error| error.to_string())?;
        caps.apply(&mut scenario).map_err(|error| error.to_string())?;
        scenario.check().map_err(|error| error.to_string())?;
        Ok(scenario)
    }

    #[test]
    fn a_file_says_what_it_says_and_leaves_the_rest() {
        let all = "format = 1\n[caps]\nrun = 7\nslots = 3\n[quota]\ndepth_tier = 1\n[edge]\nper_key = 9\n[provider]\n\
                   key_credit = 5\n[[change]]\nat = \"3s\"\nlevel = \"unit\"\nto = 0\n";
        let before = catalogue::find("ceilings").expect("shipped");
        let after = applied(all, "ceilings").expect("it fits");
        let mut expect = before.clone();
        (expect.caps.run, expect.caps.slots) = (MicroUsd(7), 3);
        expect.quota.as_mut().expect("a quota").depth_tier = DepthTier(1);
        expect.edge.as_mut().expect("an edge").per_key = 9;
        expect.provider.key_credit = Some(MicroUsd(5));
        expect.change = vec![Change { at: Duration::from_secs(3), level: Setting::Unit, to: 0 }];
        assert_eq!(after, expect);
        assert_eq!(applied("format = 1\n", "ceilings").expect("it fits"), before);
        assert_eq!(applied("format = 1\nchange = []\n", "ceilings").expect("it fits").change, []);
    }

    /// A limit that nobody judges is none: a ceiling that the file brings along has its invariant looked at, once.
    #[test]
    fn what_the_file_brings_along_is_judged() {
        let edge = "[edge]\nper_key = 5\nper_address = 5\nwindow = \"60s\"\n";
        let quota = "[quota]\nruns_per_day = 5\nmicro_usd_per_day = 5\ndepth_tier = 1\n";
        let credit = "[provider]\nkey_credit = 5\n";
        for (section, judge) in [(edge, "edge-holds"), (credit, "key-credit"), (quota, "quota-holds")] {
            for to in ["stampede", "ceilings"] {
                let named = applied(&format!("format = 1\n{section}"), to).expect("it fits").invariants;
                assert_eq!(named.iter().filter(|name| *name == judge).count(), 1, "{to}, {judge}: {named:?}");
            }
        }
        let without = catalogue::find("stampede").expect("shipped").invariants;
        assert!(!without.iter().any(|name| name == "edge-holds" || name == "key-credit"), "{without:?}");
        assert_eq!(applied("format = 1\n[caps]\nrun = 7\n", "stampede").expect("it fits").invariants, without);
    }

    /// Bad input is said with its place and what would be right.
    #[test]
    fn bad_input_is_told_with_its_place_and_a_remedy() {
        for (text, to, parts) in [
            ("", "fleet", &["missing field `format`"][..]),
            ("format = 2\n", "fleet", &["caps format 2", "use the build it was written for"]),
            ("format = 1\n[caps]\nrum = 7\n", "fleet", &["line 3, column 1", "unknown field `rum`", "`run`"]),
            ("format = 1\n[caps]\nrun = -7\n", "fleet", &["line 3, column 7", "-7"]),
            (
                "format = 1\n[caps]\nrun = 100000000000001\n",
                "fleet",
                &["line 3, column 7", "out of range", "0 to 1000"],
            ),
            (
                "format = 1\n[caps]\nslots = 0\n",
                "fleet",
                &["line 3, column 9", "0 is out of range; it is 1 to 1000000"],
            ),
            ("format = 1\n[edge]\nper_key = 0\n", "fleet", &["line 3, column 11", "1 to 1000000"]),
            ("format = 1\n[edge]\nwindow = 60\n", "fleet", &["line 3", "a time in quotes"]),
            ("format = 1\n[edge]\nper_key = 5\n", "fleet", &["edge.per_address", "needs all of its keys"]),
            (
                "format = 1\n[edge]\nper_key = 5\nper_address = 5\nwindow = \"2h\"\n",
                "stampede",
                &["edge.window", "out of range; it is 1s to 1h"],
            ),
            ("format = 1\n[quota]\nruns_per_day = 5\n", "stampede", &["quota.micro_usd_per_day", "needs all"]),
            (
                "format = 1\n[[change]]\nat = \"1s\"\nlevel = \"user-dya\"\nto = 5\n",
                "fleet",
                &["line 4, column 9", "unknown variant `user-dya`", "`user-day`"],
            ),
            (
                "format = 1\n[[change]]\nat = \"1s\"\nlevel = \"depth-tier\"\nto = 256\n",
                "fleet",
                &["line 2", "change.to", "256 is out of range; it is 0 to 255"],
            ),
            (
                "format = 1\n[[change]]\nat = \"1s\"\nlevel = \"runs-per-day\"\nto = 2\n",
                "stampede",
                &["change.level", "there is none; add [quota]"],
            ),
            ("format = 1\n[[change]]\nat = 1\nlevel = \"unit\"\nto = 2\n", "fleet", &["line 3", "a time in quotes"]),
        ] {
            let said = applied(text, to).expect_err(text);
            for part in parts {
                assert!(said.contains(part), "{text}\n{said}\ndoes not say {part}");
            }
        }
    }
}
