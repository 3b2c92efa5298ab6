//! The reference model: budgets, live slots, leases and attempts predicted from the rules alone, and compared with each commit.
