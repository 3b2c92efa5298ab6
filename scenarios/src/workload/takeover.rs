//! Takeover: research runs, each with agents standing by that wait for its lease and finish what its holder left.
//!
//! The agents form groups of one that works and `standbys` that stand by for all of its runs, in the same order. Agents
//! left over at the end form a smaller group, whose first one works.

use super::{Item, WorkList, Workload, research};
use crate::scenario::Sizes;

/// What a scenario names `takeover`.
pub const WORKLOAD: Workload = Workload {
    name: "takeover",
    does: "research runs with agents standing by, who take over when a lease is lost",
    draw: |scenario, seed| work(&scenario.sizes, seed),
};

/// Every agent's runs, its own or those it stands by for.
pub fn work(sizes: &Sizes, seed: u64) -> WorkList {
    let group = sizes.standbys.saturating_add(1);
    let list = |index: u32| {
        let worker = index - index % group;
        let item = |item| Item { stands_by: index != worker, ..research::draw(sizes, seed, worker, item) };
        (0..sizes.runs_per_agent).map(item).collect()
    };
    WorkList { agents: (0..sizes.agents).map(list).collect(), open_loop: false }
}
