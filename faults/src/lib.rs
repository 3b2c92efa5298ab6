//! What can go wrong: fault kinds, plans, the swarm that draws a plan from a seed, and the limiter that keeps it survivable.
//!
//! What is deliberately not here: nothing injects a fault. A plan is data; the director in `scenarios` carries it out
//! through [`sim::Control`], the provider's weather, the owner's orders and the agents' manners.

pub mod kind;
pub mod limiter;
pub mod parsing;
pub mod plan;
pub mod swarm;

pub use kind::{Family, Kind};
pub use plan::{At, Fault, Happening, Plan, PlanError, Planned, Target};
pub use swarm::{Drawn, Ground, Swarm};
