//! What is a fault felt and what is not.

use super::*;
use kernel::{
    admit::DepthTier,
    id::{TenantId, UserId},
};

/// Any refusal over a quota was taken for the work of `quota-changed`, and a trespasser is refused over the scenario's own.
#[test]
fn a_refusal_that_the_scenarios_quota_makes_is_no_fault_felt() {
    let (user, day, limit) = (UserId(0), 0, MicroUsd(5));
    let quota = Quota { runs_per_day: 2, micro_usd_per_day: MicroUsd(10), depth_tier: DepthTier(3) };
    let too_deep = |asked| admit::Refusal::TooDeep { user, deepest: DepthTier(0), asked: DepthTier(asked) };
    let too_many = |taken| admit::Refusal::TooManyRuns { user, day, limit: 0, taken };
    let too_dear = |asked| {
        let (settled, live, asked) = (MicroUsd(3), MicroUsd(4), MicroUsd(asked));
        admit::Refusal::TooDear { user, day, limit, settled, live, asked }
    };
    let halted = admit::Refusal::Halted { tenant: TenantId(1) };
    for (refusal, felt) in [
        (too_deep(3), Some(Kind::QuotaChanged)),
        (too_deep(4), None),
        (too_many(1), Some(Kind::QuotaChanged)),
        (too_many(2), None),
        (too_dear(3), Some(Kind::QuotaChanged)),
        (too_dear(4), None),
        (admit::Refusal::NoUsers, None),
        (halted, Some(Kind::Halted)),
    ] {
        let mut seen = Seen::new([MicroUsd(0); 4], Some(quota));
        seen.refused(&Refusal::Admit(refusal.clone()));
        let reached = seen.reached([], false);
        let felts: Vec<Sometimes> = reached.into_iter().filter(|one| matches!(one, Sometimes::Felt(_))).collect();
        assert_eq!(felts, felt.map(Sometimes::Felt).into_iter().collect::<Vec<_>>(), "{refusal}");
    }
}
