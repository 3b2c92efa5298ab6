//! The rules that every work list keeps, wherever it is from: drawn, read from a trace, or written in a capsule.

use super::{Item, Unit, WorkList};
use kernel::{
    id::{RunId, UnitId},
    money::Usage,
};
use std::fmt;

/// Where in a list something is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Whose list, from 0.
    pub agent: u32,
    /// Which run on it.
    pub run: RunId,
    /// Which call of the run, if it is about one.
    pub unit: Option<UnitId>,
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "agent {}, run {}", self.agent, self.run)?;
        self.unit.map_or(Ok(()), |unit| write!(out, ", unit {unit}"))
    }
}

/// A rule of work lists that one breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unruly {
    /// Not a list for each agent.
    #[error(
        "it has lists for {lists} agents, and there are {agents}; give one to each, an empty one to who has nothing to do"
    )]
    Lists {
        /// How many lists there are.
        lists: usize,
        /// How many agents there are.
        agents: u32,
    },
    /// A call uses more than is reserved for it.
    #[error(
        "{place}: it uses {}+{} tokens and `most` is {}+{} (input+output); what is reserved is the most that a call can use: raise `most` (a provider that charges more than that is the fault `usage-unlike`)",
        usage.input_tokens, usage.output_tokens, most.input_tokens, most.output_tokens
    )]
    AboveMost {
        /// Which call.
        place: Place,
        /// What it uses.
        usage: Usage,
        /// The most it can use.
        most: Usage,
    },
    /// Two calls of a run have one name.
    #[error("{place}: the run has two units of that name; number its units from 0")]
    UnitTwice {
        /// The second.
        place: Place,
    },
    /// A call is of an earlier stage than the one before it.
    #[error("{place}: it is of stage {stage} and stands behind one of stage {before}; list the units by stage")]
    Backwards {
        /// Which call.
        place: Place,
        /// Its stage.
        stage: u32,
        /// The stage of the one before.
        before: u32,
    },
    /// A run is twice on one list.
    #[error("{place}: the run is on this agent's list twice; name runs by run(agent, item)")]
    RunTwice {
        /// Which.
        place: Place,
    },
    /// Two agents are to work on one run.
    #[error(
        "{place}: agent {other} has the run too; name runs by run(agent, item), and let all but one stand by for it"
    )]
    RunShared {
        /// Which, on the second list.
        place: Place,
        /// Who has it as well.
        other: u32,
    },
}

impl WorkList {
    /// Whether it keeps the rules, as lists for so many agents.
    pub fn check(&self, agents: u32) -> Result<(), Unruly> {
        let lists = self.agents.len();
        if lists != agents as usize || lists == 0 {
            return Err(Unruly::Lists { lists, agents });
        }
        for (agent, item) in
            (0..).zip(&self.agents).flat_map(|(agent, list)| list.iter().map(move |item| (agent, item)))
        {
            check_units(agent, item)?;
        }
        self.check_runs()
    }

    /// No run is twice on a list, and of the agents who have one all but one stand by.
    fn check_runs(&self) -> Result<(), Unruly> {
        let mine =
            |(agent, list): (u32, &Vec<Item>)| list.iter().map(|item| (item.run, agent, item.stands_by)).collect();
        let mut all: Vec<(RunId, u32, bool)> =
            (0..).zip(&self.agents).flat_map(|one| -> Vec<_> { mine(one) }).collect();
        all.sort_unstable();
        for runs in all.chunk_by(|one, other| one.0 == other.0) {
            if let Some(pair) = runs.windows(2).find(|pair| pair[0].1 == pair[1].1) {
                return Err(Unruly::RunTwice { place: Place { agent: pair[1].1, run: pair[1].0, unit: None } });
            }
            let mut working = runs.iter().filter(|(_, _, stands_by)| !stands_by);
            if let (Some((_, other, _)), Some((run, agent, _))) = (working.next(), working.next()) {
                let place = Place { agent: *agent, run: *run, unit: None };
                return Err(Unruly::RunShared { place, other: *other });
            }
        }
        Ok(())
    }

    /// The first agent whose list is another one in `other`, and the two said in short; `None` if they are equal.
    pub fn parting(&self, other: &WorkList) -> Option<String> {
        let (ours, theirs) = (self.agents.len(), other.agents.len());
        let mut lists = self.agents.iter().zip(&other.agents);
        if let Some(agent) = lists.position(|(one, other)| one != other) {
            let (one, other) = (&self.agents[agent], &other.agents[agent]);
            let run = one.iter().zip(other).position(|(a, b)| a != b);
            return Some(match run {
                Some(run) => format!("agent {agent} is given {} and then {}", short(&one[run]), short(&other[run])),
                None => format!("agent {agent} is given {} runs and then {}", one.len(), other.len()),
            });
        }
        match (ours == theirs, self.open_loop == other.open_loop) {
            (true, true) => None,
            (false, _) => Some(format!("{ours} agents are given lists and then {theirs}")),
            (true, false) => Some(format!("open_loop is {} and then {}", self.open_loop, other.open_loop)),
        }
    }
}

fn short(item: &Item) -> String {
    let tokens = |usage: Usage| usage.input_tokens.saturating_add(usage.output_tokens);
    let tokens = item.units.iter().fold(0, |sum: u64, unit| sum.saturating_add(tokens(unit.usage)));
    format!("run {} of user {} with {} calls, {tokens} tokens", item.run, item.user, item.units.len())
}

fn check_units(agent: u32, item: &Item) -> Result<(), Unruly> {
    let place = |unit: &Unit| Place { agent, run: item.run, unit: Some(unit.unit) };
    for unit in &item.units {
        let Unit { usage, most, .. } = *unit;
        if usage.input_tokens > most.input_tokens || usage.output_tokens > most.output_tokens {
            return Err(Unruly::AboveMost { place: place(unit), usage, most });
        }
    }
    for pair in item.units.windows(2) {
        let (before, stage) = (pair[0].stage, pair[1].stage);
        if stage < before {
            return Err(Unruly::Backwards { place: place(&pair[1]), stage, before });
        }
    }
    if item.units.windows(2).all(|pair| pair[0].unit < pair[1].unit) {
        return Ok(());
    }
    let mut names: Vec<UnitId> = item.units.iter().map(|unit| unit.unit).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(Unruly::UnitTwice { place: Place { agent, run: item.run, unit: Some(pair[0]) } }),
        None => Ok(()),
    }
}
