//! Money in integer micro-USD, and the one conversion from usage.

use crate::id::ModelId;
use serde::{Deserialize, Serialize};

/// An amount in millionths of a US dollar. Sums are checked; there is no negative money.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MicroUsd(pub u64);

impl MicroUsd {
    /// Nothing.
    pub const ZERO: MicroUsd = MicroUsd(0);
    /// The largest amount there is.
    pub const MAX: MicroUsd = MicroUsd(u64::MAX);

    /// The sum, or `None` past [`MicroUsd::MAX`].
    pub fn checked_add(self, other: MicroUsd) -> Option<MicroUsd> {
        self.0.checked_add(other.0).map(MicroUsd)
    }

    /// The difference, or `None` below zero.
    pub fn checked_sub(self, other: MicroUsd) -> Option<MicroUsd> {
        self.0.checked_sub(other.0).map(MicroUsd)
    }
}

/// What `settled` and `live` leave of a limit; nothing when they are past it.
pub(crate) fn left(limit: MicroUsd, settled: MicroUsd, live: MicroUsd) -> MicroUsd {
    MicroUsd(limit.0.saturating_sub(settled.0).saturating_sub(live.0))
}

impl std::fmt::Display for MicroUsd {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}.{:06} USD", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}

/// What a provider says a call used, in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens read.
    pub input_tokens: u64,
    /// Tokens generated.
    pub output_tokens: u64,
}

/// What a model costs, in micro-USD per million tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// The model.
    pub model: ModelId,
    /// Micro-USD per million tokens read.
    pub input_per_mtok: u64,
    /// Micro-USD per million tokens generated.
    pub output_per_mtok: u64,
}

impl Price {
    /// What `usage` costs, rounded up to the next micro-USD once, at the end; `None` past [`MicroUsd::MAX`].
    pub fn cost(&self, usage: Usage) -> Option<MicroUsd> {
        let input = u128::from(usage.input_tokens) * u128::from(self.input_per_mtok);
        let output = u128::from(usage.output_tokens) * u128::from(self.output_per_mtok);
        let exact = input.checked_add(output)?;
        u64::try_from(exact.div_ceil(1_000_000)).ok().map(MicroUsd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cost(input: (u64, u64), output: (u64, u64)) -> Option<u64> {
        let price = Price { model: ModelId(1), input_per_mtok: input.1, output_per_mtok: output.1 };
        price.cost(Usage { input_tokens: input.0, output_tokens: output.0 }).map(|cost| cost.0)
    }

    #[test]
    fn a_cost_rounds_up_once_at_the_end() {
        const M: u64 = 1_000_000;
        let most = u64::MAX;
        let cases = [
            ((0, 0), (0, 0), Some(0)),
            ((1, 1), (0, 9), Some(1)),
            ((1, 500_000), (1, 500_000), Some(1)), // two halves, not two roundings
            ((1, 500_000), (1, 500_001), Some(2)),
            ((M, 3), (M, 4), Some(7)),
            ((most, M), (0, 0), Some(most)),
            ((most, M), (1, 1), None),
            ((most, most), (most, most), None),
        ];
        for (input, output, expected) in cases {
            assert_eq!(cost(input, output), expected, "{input:?} and {output:?}");
        }
        assert_eq!(MicroUsd(1_500_000).to_string(), "1.500000 USD");
    }

    proptest! {
        #[test]
        fn a_cost_covers_its_usage_by_less_than_one(tokens in 0..1u64 << 40, per_mtok in 0..1u64 << 40) {
            let exact = u128::from(tokens) * u128::from(per_mtok);
            if let Some(cost) = cost((tokens, per_mtok), (0, 0)) {
                let covered = u128::from(cost) * 1_000_000;
                prop_assert!(covered >= exact && covered - exact < 1_000_000);
            }
        }
    }
}
