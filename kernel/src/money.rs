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
