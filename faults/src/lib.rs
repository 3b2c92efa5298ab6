//! What can go wrong: fault kinds, plans, the swarm that draws a plan from a seed, and the limiter that keeps it survivable.
//!
//! What is deliberately not here: nothing injects a fault. A plan is data; the director in `scenarios` carries it out
//! through [`sim::Control`], the provider's weather and the owner's orders.

pub mod limiter;
pub mod plan;
pub mod swarm;

pub use plan::{At, Fault, Plan, PlanError, Planned, Target};
pub use swarm::{Drawn, Family, Ground, Kind, Swarm};
