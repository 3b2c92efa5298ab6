//! Few calls: a bound on what a user has on the wire.

use super::{Invariant, Moment, Rest, Saw};
use crate::fact::Fact;
use kernel::id::{ReservationId, UserId};
use sim::NodeId;
use std::collections::BTreeMap;

/// How many calls of one user may be on the wire.
const MOST: usize = 4;

/// `few-calls`: no user has more than four calls on the wire at once.
#[derive(Debug, Default)]
pub struct FewCalls {
    /// The calls on the wire by their keys: whose each is, and which node waits for it.
    on_the_wire: BTreeMap<ReservationId, (UserId, NodeId)>,
}

impl Invariant for FewCalls {
    fn name(&self) -> &'static str {
        "few-calls"
    }

    fn states(&self) -> &'static str {
        "no user has more than four calls on the wire at once"
    }

    fn at(&mut self, moment: &Moment<'_>) -> Result<(), String> {
        match moment.saw {
            Saw::Fact(&Fact::CallSent { key, user, .. }) => {
                self.on_the_wire.insert(key, (user, moment.node));
                let calls = self.on_the_wire.values().filter(|(whose, _)| *whose == user).count();
                if calls > MOST {
                    return Err(format!(
                        "call {key} is number {calls} that user {user} has on the wire; {MOST} are the most"
                    ));
                }
            }
            Saw::Fact(Fact::CallEnded { key, .. }) => drop(self.on_the_wire.remove(key)),
            // Nobody waits any more for what a node had on the wire when it went down.
            Saw::Down => self.on_the_wire.retain(|_, (_, waits)| *waits != moment.node),
            _ => {}
        }
        Ok(())
    }

    fn at_rest(&mut self, _: &Rest<'_>) -> Result<(), String> {
        Ok(())
    }
}
