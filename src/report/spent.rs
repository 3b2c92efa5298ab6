//! What takes have cost so far, to tell whether another fits into what is left of the budget.

use super::take::Take;
use std::{collections::BTreeMap, time::Duration};

/// What one agent's ten minutes are taken to cost before any take of its kind was performed.
const FIRST_GUESS: Duration = Duration::from_millis(20);

/// The cost of an agent in the latest take of each kind.
#[derive(Debug, Default)]
pub struct Spent {
    an_agent: BTreeMap<String, Duration>,
}

impl Spent {
    /// What a take cost.
    pub fn add(&mut self, take: &Take, cost: Duration) {
        self.an_agent.insert(take.kind(), cost / take.agents_a_thread());
    }

    /// Whether a take is not expected to be done in the time that is left; then, what is said of it.
    pub fn refuses(&self, take: &Take, left: Duration) -> Option<String> {
        let an_agent = self.an_agent.get(&take.kind()).copied().unwrap_or(FIRST_GUESS);
        let expected = an_agent.saturating_mul(take.agents_a_thread());
        if left.is_zero() {
            Some(String::new())
        } else if expected > left {
            let [expected, left] = [expected, left].map(|time| time.as_secs());
            Some(format!(": about {expected}s were expected, and {left}s were left; give a longer --budget"))
        } else {
            None
        }
    }
}
