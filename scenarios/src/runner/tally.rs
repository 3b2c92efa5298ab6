//! What was counted and measured in a run: a fold over what the observer saw.

use super::{Figures, halts::Halts};
use crate::{
    ceiling::{Ceiling, Met},
    fact::Fact,
    invariant::Sight,
    maps::Lookup,
};
use hdrhistogram::Histogram;
use kernel::{
    admit, effect,
    id::{ClientId, Fence, ReservationId},
    lease,
    money::MicroUsd,
    record,
    record::Record,
    request::{Refusal, Reply, Turn},
    reserve::{self, Level},
    run,
    serve::Announcement,
};
use std::collections::BTreeMap;

/// The longest run wall that is told apart: a thousand hours, in nanoseconds.
const LONGEST_WALL_NS: u64 = 3_600_000_000_000_000;

/// What figures are worked out from: of several runs it adds up, and theirs do not. Times are virtual in simulation.
#[derive(Clone, Debug)]
pub struct Raw {
    /// The wall of each run done by one incarnation from beginning to end, in nanoseconds.
    pub walls_ns: Histogram<u64>,
    /// Their sum.
    pub wall_ns: u64,
    /// Of that, the time spent doing nothing but waiting for the ledger.
    pub ledger_wait_ns: u64,
    /// Calls settled in the ledger.
    pub calls: u64,
    /// When the last of them was, from the start, in nanoseconds.
    pub last_settled_ns: u64,
    /// Runs that ended.
    pub runs: u64,
    /// When the last of them did, from the start, in nanoseconds.
    pub last_ended_ns: u64,
    /// Reservations refused over a cap, by its level, the lowest first.
    pub over_cap: [u64; Level::ALL.len()],
}

/// A refusal's kind in the room `effect`.
fn named_effect(refusal: &effect::Refusal) -> &'static str {
    use effect::Refusal as E;
    match refusal {
        E::Empty => "empty",
        E::Misnumbered { .. } => "misnumbered",
        E::NoClass { .. } => "no-class",
        E::UnknownTool { .. } => "unknown-tool",
        E::WrongKey { .. } => "wrong-key",
        E::InFlight { .. } => "in-flight",
        E::AnsweredMeanwhile { .. } => "answered-meanwhile",
        E::UnknownIntent { .. } => "unknown-intent",
        E::WrongPhase { .. } => "wrong-phase",
        E::SameFrame { .. } => "same-frame",
        E::TooLong { .. } => "too-long",
    }
}

/// A refusal's room and kind, as figures name them.
fn named(refusal: &Refusal) -> (&'static str, &'static str) {
    use admit::Refusal as A;
    use lease::Refusal as L;
    use reserve::Refusal as V;
    use run::Refusal as R;
    match refusal {
        Refusal::Admit(refusal) => (
            "admit",
            match refusal {
                A::Halted { .. } => "halted",
                A::TooManyRuns { .. } => "too-many-runs",
                A::TooDear { .. } => "too-dear",
                A::TooDeep { .. } => "too-deep",
                A::NoUsers => "no-users",
            },
        ),
        Refusal::Lease(refusal) => (
            "lease",
            match refusal {
                L::Held { .. } => "held",
                L::WaiterExpired { .. } => "waiter-expired",
                L::Deposed { .. } => "deposed",
                L::NotHolder { .. } => "not-holder",
                L::NoAuthority { .. } => "no-authority",
                L::NoTerm => "no-term",
                L::Nobody { .. } => "nobody",
                L::OtherTenant { .. } => "other-tenant",
                L::Suspended { .. } => "suspended",
            },
        ),
        Refusal::Effect(refusal) => ("effect", named_effect(refusal)),
        Refusal::Reserve(refusal) => (
            "reserve",
            match refusal {
                V::OverCap { .. } => "over-cap",
                V::NoSlot { .. } => "no-slot",
                V::WaiterExpired { .. } => "waiter-expired",
                V::NoCap { .. } => "no-cap",
                V::NoPrice { .. } => "no-price",
                V::Nothing => "nothing",
                V::TooMuch { .. } => "too-much",
                V::WrongAttempt { .. } => "wrong-attempt",
                V::Unknown { .. } => "unknown",
                V::Ended { .. } => "ended",
                V::AwaitsOwner { .. } => "awaits-owner",
                V::StillLive { .. } => "still-live",
                V::WrongTenant { .. } => "wrong-tenant",
            },
        ),
        Refusal::Run(refusal) => (
            "run",
            match refusal {
                R::Unknown { .. } => "unknown",
                R::Taken { .. } => "taken",
                R::Ended { .. } => "ended",
                R::IllegalArm { .. } => "illegal-arm",
                R::ReservationDisagrees { .. } => "reservation-disagrees",
                R::IntentDisagrees { .. } => "intent-disagrees",
                R::AttemptRunning { .. } => "attempt-running",
                R::Cancelled { .. } => "cancelled",
                R::NotCancelled { .. } => "not-cancelled",
                R::Suspended { .. } => "suspended",
                R::NotSuspended { .. } => "not-suspended",
            },
        ),
    }
}

/// The figures of a run in the making.
pub(super) struct Tally {
    figures: Figures,
    raw: Raw,
    /// The records folded so far: a frame may be seen twice, when it was made and when the ledger was opened after it.
    next_seq: u64,
    /// Open reservations: what each sets aside, and whether a call left under it.
    open: BTreeMap<ReservationId, (MicroUsd, bool)>,
    charged: Lookup<ReservationId, ()>,
    refused: BTreeMap<(&'static str, &'static str), u64>,
    ceilings: Met,
    bound: BTreeMap<Ceiling, u64>,
    halts: Halts,
    /// Undecided requests that waited, and whether for a slot.
    waited: Lookup<(ClientId, u32, u64, bool), ()>,
}

impl Tally {
    pub(super) fn new() -> Tally {
        Tally {
            figures: Figures::default(),
            raw: Raw {
                walls_ns: Histogram::new_with_bounds(1, LONGEST_WALL_NS, 3).expect("bounds that make a histogram"),
                wall_ns: 0,
                ledger_wait_ns: 0,
                calls: 0,
                last_settled_ns: 0,
                runs: 0,
                last_ended_ns: 0,
                over_cap: [0; Level::ALL.len()],
            },
            next_seq: 0,
            open: BTreeMap::new(),
            charged: Lookup::default(),
            refused: BTreeMap::new(),
            ceilings: Met::default(),
            bound: BTreeMap::new(),
            halts: Halts::default(),
            waited: Lookup::default(),
        }
    }

    /// A kill or a power cut that struck.
    pub(super) fn killed(&mut self) {
        self.figures.kills += 1;
    }

    pub(super) fn at(&mut self, time_ns: u64, sight: &Sight) {
        match sight {
            Sight::Up | Sight::Down | Sight::TurnedAway { .. } | Sight::Other => {}
            Sight::Ledger(announcement, records) => self.announced(announcement, records, time_ns),
            Sight::Fact(fact) => self.fact(fact),
        }
    }

    fn announced(&mut self, announcement: &Announcement, records: &[Record], time_ns: u64) {
        match announcement {
            Announcement::Opened { .. } => self.figures.ledger_opens += 1,
            Announcement::Committed { submitted, replies, frame, .. } => {
                self.figures.ledger_commits += u64::from(frame.is_some());
                for (submitted, reply) in submitted.iter().zip(replies) {
                    let Reply::Waits(turn @ (Turn::Slot(..) | Turn::Answer(..))) = reply else { continue };
                    let (request, for_slot) = (&submitted.request, matches!(turn, Turn::Slot(..)));
                    let asked = (request.client, request.incarnation, request.number, for_slot);
                    if self.waited.insert(asked, ()).is_none() {
                        self.figures.reserves_waited += u64::from(for_slot);
                        self.figures.questions_waited += u64::from(!for_slot);
                    }
                }
            }
            Announcement::Broke { .. } => {}
        }
        for record in records {
            if record.seq >= self.next_seq {
                self.next_seq = record.seq + 1;
                self.figures.ledger_records += 1;
                self.recorded(record, time_ns);
            }
        }
    }

    fn recorded(&mut self, record: &Record, time_ns: u64) {
        let met = self.ceilings.record(record);
        self.bound_by(met);
        let figures = &mut self.figures;
        self.halts.recorded(record, figures);
        match &record.event {
            record::Event::Reserve(reserve::Event::Reserved { reservation, worst, .. }) => {
                figures.reserves_admitted += 1;
                self.open.insert(*reservation, (*worst, false));
            }
            record::Event::Reserve(reserve::Event::Settled { reservation, cost, .. }) => {
                figures.calls_served += 1;
                self.raw.calls += 1;
                figures.settled_micro_usd = figures.settled_micro_usd.saturating_add(cost.0);
                self.raw.last_settled_ns = time_ns;
                self.open.remove(reservation);
            }
            record::Event::Reserve(reserve::Event::Released { reservation, .. }) => {
                self.open.remove(reservation);
            }
            record::Event::Lease(lease::Event::Granted { fence, .. }) => {
                figures.lease_takeovers += u64::from(*fence > Fence(1));
            }
            record::Event::Run(run::Event::Recalled { .. }) => figures.memo_hits += 1,
            record::Event::Run(run::Event::Ended { outcome, .. }) => {
                figures.runs_ended += 1;
                self.raw.runs += 1;
                self.raw.last_ended_ns = time_ns;
                figures.runs_complete += u64::from(*outcome == run::Ending::Complete);
                match outcome {
                    run::Ending::Halted(run::HaltReason::Owner) => figures.runs_halted_by_owner += 1,
                    run::Ending::Halted(run::HaltReason::Key) => figures.runs_halted_by_key += 1,
                    run::Ending::Cancelled => figures.runs_cancelled += 1,
                    run::Ending::Complete | run::Ending::Incomplete => {}
                }
            }
            record::Event::Run(run::Event::Cancelled { running: 0, .. }) => {
                figures.runs_ended += 1;
                figures.runs_cancelled += 1;
                self.raw.runs += 1;
                self.raw.last_ended_ns = time_ns;
            }
            record::Event::Run(run::Event::Suspended { .. }) => figures.runs_suspended += 1,
            record::Event::Effect(effect::Event::Decided { client, incarnation, number, outcome, .. }) => {
                for for_slot in [false, true] {
                    self.waited.remove(&(*client, *incarnation, *number, for_slot));
                }
                if let Err(refusal) = outcome {
                    self.refused(refusal);
                }
            }
            _ => {}
        }
    }

    fn refused(&mut self, refusal: &Refusal) {
        *self.refused.entry(named(refusal)).or_default() += 1;
        match refusal {
            Refusal::Reserve(reserve::Refusal::OverCap { level, .. }) => {
                self.figures.reserves_over_cap += 1;
                let known = Level::ALL.iter().position(|known| known == level).expect("every level is among all");
                self.raw.over_cap[known] += 1;
            }
            Refusal::Lease(lease::Refusal::Deposed { .. } | lease::Refusal::NotHolder { .. }) => {
                self.figures.writes_refused += 1;
            }
            _ => {}
        }
    }

    fn bound_by(&mut self, ceiling: Option<Ceiling>) {
        if let Some(ceiling) = ceiling {
            *self.bound.entry(ceiling).or_default() += 1;
        }
    }

    fn fact(&mut self, fact: &Fact) {
        let met = self.ceilings.fact(fact);
        self.bound_by(met);
        let figures = &mut self.figures;
        match fact {
            Fact::CallSent { key, .. } => {
                figures.calls_sent += 1;
                let again = self.open.get_mut(key).is_none_or(|(_, sent)| std::mem::replace(sent, true));
                figures.calls_resent += u64::from(again);
            }
            Fact::ActedOn { seq, .. } => figures.replies_uncommitted += u64::from(*seq >= self.next_seq),
            Fact::Charged { key, cost, .. } => {
                figures.calls_charged += 1;
                figures.calls_charged_again += u64::from(self.charged.insert(*key, ()).is_some());
                figures.invoice_micro_usd = figures.invoice_micro_usd.saturating_add(cost.0);
            }
            Fact::StrayCharged { cost, .. } => {
                figures.strays_micro_usd = figures.strays_micro_usd.saturating_add(cost.0);
            }
            Fact::StrayRefused { .. } => figures.strays_refused += 1,
            Fact::Repeated { .. } => figures.calls_repeated += 1,
            Fact::RunOver { wall_ns, ledger_wait_ns, whole: true, .. } => {
                let raw = &mut self.raw;
                raw.walls_ns.saturating_record(*wall_ns);
                raw.wall_ns = raw.wall_ns.saturating_add(*wall_ns);
                raw.ledger_wait_ns = raw.ledger_wait_ns.saturating_add(*ledger_wait_ns);
            }
            _ => {}
        }
    }

    /// What the figures are worked out from.
    pub(super) fn raw(&self) -> Raw {
        self.raw.clone()
    }

    /// The figures, once the run is over.
    pub(super) fn figures(&self, arrivals: Option<u64>, overspends: u64) -> Figures {
        let walls = &self.raw.walls_ns;
        let quantile = |of| (!walls.is_empty()).then(|| walls.value_at_quantile(of));
        let per = |part: u64, whole: u64, times: u128| match whole {
            0 => 0,
            whole => (u128::from(part) * times / u128::from(whole)) as u64,
        };
        Figures {
            arrivals,
            run_wall_p50_ns: quantile(0.5),
            run_wall_p99_ns: quantile(0.99),
            calls_per_1000_s: per(self.figures.calls_served, self.raw.last_settled_ns, 1_000 * 1_000_000_000),
            ledger_wait_ppm: per(self.raw.ledger_wait_ns, self.raw.wall_ns, 1_000_000),
            refusals: self.refused.iter().map(|((room, kind), times)| (format!("{room}.{kind}"), *times)).collect(),
            ceilings: self.bound.iter().map(|(ceiling, times)| (ceiling.described().0.to_owned(), *times)).collect(),
            reservations_open: self.open.len() as u64,
            open_micro_usd: self.open.values().fold(0, |sum, (worst, ..)| sum.saturating_add(worst.0)),
            overspends,
            ..self.figures.clone()
        }
    }
}
