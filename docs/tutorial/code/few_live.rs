//! Few live: the same bound, of what the ledger has set aside.

use super::{Invariant, Moment, Rest, Saw};
use kernel::{
    id::{ReservationId, TenantId, UserId},
    record, reserve,
};
use std::collections::BTreeMap;

/// How many reservations of one user may be live.
const MOST: usize = 4;

/// `few-live`: no user has more than four live reservations.
#[derive(Debug, Default)]
pub struct FewLive {
    /// The live reservations: whose each is.
    live: BTreeMap<ReservationId, (TenantId, UserId)>,
}

impl Invariant for FewLive {
    fn name(&self) -> &'static str {
        "few-live"
    }

    fn states(&self) -> &'static str {
        "no user has more than four live reservations"
    }

    fn at(&mut self, moment: &Moment<'_>) -> Result<(), String> {
        let Saw::Ledger(_, records) = moment.saw else { return Ok(()) };
        for record in records {
            match record.event {
                record::Event::Reserve(reserve::Event::Reserved { reservation, user, .. }) => {
                    let whose = (record.tenant, user);
                    self.live.insert(reservation, whose);
                    let live = self.live.values().filter(|other| **other == whose).count();
                    if live > MOST {
                        return Err(format!(
                            "reservation {reservation} is number {live} that user {user} has live; {MOST} are the most"
                        ));
                    }
                }
                record::Event::Reserve(
                    reserve::Event::Settled { reservation, .. } | reserve::Event::Released { reservation, .. },
                ) => drop(self.live.remove(&reservation)),
                _ => {}
            }
        }
        Ok(())
    }

    fn at_rest(&mut self, _: &Rest<'_>) -> Result<(), String> {
        Ok(())
    }
}
