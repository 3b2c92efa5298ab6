//! What may come in: nothing begins during a halt, and nobody has more of a day than its quota.

use super::{Invariant, Moment, Saw};
use crate::maps::Lookup;
use kernel::{
    admit::{self, Quota, Switch},
    effect,
    id::{ReservationId, RunId, TenantId, UserId},
    record::{Event, Record},
    request::Refusal,
    reserve,
    run::{self, Ending, HaltReason},
};
use std::collections::BTreeMap;

/// `halt-holds`: from the record that sets a tenant's halt, or the whole ledger's, to the one that lifts it, no run is spawned,
/// nothing is reserved and no call is dispatched there; and a run ends halted by the owner only if there was a halt since its spawn.
#[derive(Debug, Default)]
pub struct HaltHolds {
    /// The switches that are on, each with the record that set it.
    halts: BTreeMap<TenantId, u64>,
    /// The last record that set each switch, lifted since or not.
    last_set: BTreeMap<TenantId, u64>,
    /// The record that spawned each run that has not ended.
    spawned: Lookup<(TenantId, RunId), u64>,
}

impl HaltHolds {
    fn fold(&mut self, record: &Record) -> Result<(), String> {
        let (seq, tenant) = (record.seq, record.tenant);
        let began = match record.event {
            Event::Admit(admit::Event::HaltSet { tenant, switch: Switch::Halted }) => {
                self.halts.entry(tenant).or_insert(seq);
                self.last_set.insert(tenant, seq);
                return Ok(());
            }
            Event::Admit(admit::Event::HaltSet { tenant, switch: Switch::Open }) => {
                self.halts.remove(&tenant);
                return Ok(());
            }
            Event::Run(run::Event::Ended { run, outcome }) => {
                let spawned = self.spawned.remove(&(tenant, run));
                let was_halted = outcome == Ending::Halted(HaltReason::Owner);
                return if was_halted { self.met_by(seq, tenant, run, spawned) } else { Ok(()) };
            }
            Event::Run(run::Event::Cancelled { run, running: 0 }) => {
                self.spawned.remove(&(tenant, run));
                return Ok(());
            }
            Event::Run(run::Event::Spawned { run, .. }) => {
                self.spawned.insert((tenant, run), seq);
                format!("run {run} is spawned")
            }
            Event::Reserve(reserve::Event::Reserved { run, unit, .. }) => format!("unit {unit} of run {run} reserves"),
            Event::Effect(effect::Event::Dispatched { intent }) => format!("the call of intent {intent} may leave"),
            _ => return Ok(()),
        };
        for switch in [TenantId::LEDGER, tenant] {
            if let Some(since) = self.halts.get(&switch) {
                return Err(format!("record {seq}: {began}, and record {since} had halted tenant {switch}"));
            }
        }
        Ok(())
    }

    /// Whether a run that is said to be halted by the owner met a halt. None is spawned while one is on.
    fn met_by(&self, seq: u64, tenant: TenantId, run: RunId, spawned: Option<u64>) -> Result<(), String> {
        let last = [TenantId::LEDGER, tenant].iter().filter_map(|switch| self.last_set.get(switch)).max();
        if last > spawned.as_ref() {
            return Ok(());
        }
        let (last, since) = (last.map_or("none".to_owned(), u64::to_string), spawned.unwrap_or_default());
        Err(format!(
            "record {seq}: run {run} ends halted by the owner, and since record {since}, its spawn, nobody halted; the last halt is {last}"
        ))
    }
}

impl Invariant for HaltHolds {
    fn name(&self) -> &'static str {
        "halt-holds"
    }

    fn states(&self) -> &'static str {
        "while a halt is on no run is spawned, nothing is reserved and no call is dispatched; who ends halted by the owner met one"
    }

    fn at(&mut self, moment: &Moment<'_>) -> Result<(), String> {
        let Saw::Ledger(_, records) = moment.saw else { return Ok(()) };
        records.iter().try_for_each(|record| self.fold(record))
    }
}

/// A user's day.
type Day = (TenantId, UserId, u32);

/// `quota-holds`: each admitted spawn is within the quota in force of its user, in runs of the day and in depth, and each
/// reserve within its dollars of the day. A spawn that was refused has taken nothing: whoever is refused for its runs of the
/// day is told as many as the log has.
#[derive(Debug, Default)]
pub struct QuotaHolds {
    quotas: BTreeMap<(TenantId, Option<UserId>), Quota>,
    taken: BTreeMap<Day, u32>,
    /// Settled and live together, in micro-USD.
    spent: BTreeMap<Day, u128>,
    /// Open reservations: whose day each counts in, and what it set aside.
    open: Lookup<ReservationId, (Day, u64)>,
}

impl QuotaHolds {
    fn quota(&self, tenant: TenantId, user: UserId) -> Option<Quota> {
        self.quotas.get(&(tenant, Some(user))).or_else(|| self.quotas.get(&(tenant, None))).copied()
    }

    fn fold(&mut self, record: &Record) -> Result<(), String> {
        let (seq, tenant) = (record.seq, record.tenant);
        match &record.event {
            Event::Admit(admit::Event::QuotaSet { tenant, user, quota }) => {
                match quota {
                    Some(quota) => self.quotas.insert((*tenant, *user), *quota),
                    None => self.quotas.remove(&(*tenant, *user)),
                };
                Ok(())
            }
            Event::Run(run::Event::Spawned { run, user, depth, .. }) => {
                let quota = self.quota(tenant, *user);
                let taken = self.taken.entry((tenant, *user, record.time.day())).or_default();
                *taken += 1;
                match quota {
                    Some(quota) if *taken > quota.runs_per_day || *depth > quota.depth_tier => Err(format!(
                        "record {seq} spawns run {run} of depth {}, which is run {taken} of user {user} on its day; its quota is {} \
                         runs of depth {} at most",
                        depth.0, quota.runs_per_day, quota.depth_tier.0
                    )),
                    _ => Ok(()),
                }
            }
            Event::Reserve(event) => self.spends(record, event),
            Event::Effect(effect::Event::Decided {
                outcome: Err(Refusal::Admit(admit::Refusal::TooManyRuns { user, day, limit, taken })),
                ..
            }) => {
                let right = self.taken.get(&(tenant, *user, *day)).copied().unwrap_or(0);
                let in_force = self.quota(tenant, *user).map(|quota| quota.runs_per_day);
                if (*taken, Some(*limit)) == (right, in_force) {
                    return Ok(());
                }
                Err(format!(
                    "record {seq}: user {user} is refused for {taken} runs of {limit} on day {day}, and has spawned {right} of \
                     {in_force:?}: what is refused takes nothing"
                ))
            }
            Event::Effect(_) | Event::Admit(_) | Event::Lease(_) | Event::Run(_) => Ok(()),
        }
    }

    fn spends(&mut self, record: &Record, event: &reserve::Event) -> Result<(), String> {
        match *event {
            reserve::Event::Reserved { reservation, user, day, worst, .. } => {
                let day = (record.tenant, user, day);
                self.open.insert(reservation, (day, worst.0));
                let quota = self.quota(record.tenant, user);
                let spent = self.spent.entry(day).or_default();
                *spent += u128::from(worst.0);
                match quota {
                    Some(quota) if *spent > u128::from(quota.micro_usd_per_day.0) => Err(format!(
                        "reservation {reservation} brings the day of user {user} to {spent} micro-USD; its quota is {}",
                        quota.micro_usd_per_day.0
                    )),
                    _ => Ok(()),
                }
            }
            reserve::Event::Settled { reservation, cost, .. } => {
                self.end(reservation, cost.0);
                Ok(())
            }
            reserve::Event::Released { reservation, .. } => {
                self.end(reservation, 0);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn end(&mut self, reservation: ReservationId, cost: u64) {
        let Some((day, worst)) = self.open.remove(&reservation) else { return };
        if let Some(spent) = self.spent.get_mut(&day) {
            *spent = spent.saturating_sub(u128::from(worst)) + u128::from(cost);
        }
    }
}

impl Invariant for QuotaHolds {
    fn name(&self) -> &'static str {
        "quota-holds"
    }

    fn states(&self) -> &'static str {
        "no user begins more, deeper or dearer in a day than its quota, and what is refused takes nothing of it"
    }

    fn at(&mut self, moment: &Moment<'_>) -> Result<(), String> {
        let Saw::Ledger(_, records) = moment.saw else { return Ok(()) };
        records.iter().try_for_each(|record| self.fold(record))
    }
}

#[cfg(test)]
mod tests {
    use super::super::history::*;
    use super::*;
    use kernel::{admit::DepthTier, money::MicroUsd, run::AttemptState};

    fn halt(tenant: TenantId, switch: Switch) -> Event {
        Event::Admit(admit::Event::HaltSet { tenant, switch })
    }

    fn quota(user: Option<UserId>, runs_per_day: u32, micro_usd_per_day: u64, depth: u8) -> Event {
        let (micro_usd_per_day, depth_tier) = (MicroUsd(micro_usd_per_day), DepthTier(depth));
        let quota = Some(Quota { runs_per_day, micro_usd_per_day, depth_tier });
        Event::Admit(admit::Event::QuotaSet { tenant: TENANT, user, quota })
    }

    #[test]
    fn nothing_begins_during_a_halt() {
        for switch in [TENANT, TenantId::LEDGER] {
            let mut story = Story::begun("halt-holds");
            let first = story.next();
            story.logs(&reserves(first, 1, 40)).logs(&[halt(switch, Switch::Halted), halt(switch, Switch::Halted)]);
            story.logs(&[settled(first), attempt_ended(1, AttemptState::Succeeded), ended()]).holds();
            story.logs(&[halt(switch, Switch::Open), spawned(RunId(1))]).holds();
            story.logs(&[halt(switch, Switch::Halted), spawned(RunId(2))]);
            story.breaks_by("halt-holds", &["run 2 is spawned", &format!("had halted tenant {switch}")]);
        }
        let mut story = Story::begun("halt-holds");
        story.logs(&[halt(TenantId(2), Switch::Halted)]);
        let first = story.next();
        story.logs(&reserves(first, 1, 40)).holds();
        story.logs(&[halt(TENANT, Switch::Halted)]);
        let second = story.next();
        story.logs(&[reserved(second, 4, 1, 1)]).breaks_by("halt-holds", &["unit 4 of run 9 reserves"]);
    }

    #[test]
    fn who_ends_halted_by_the_owner_met_a_halt() {
        let ends = |by| Event::Run(run::Event::Ended { run: RUN, outcome: Ending::Halted(by) });
        let by_owner = || ends(HaltReason::Owner);
        for switch in [TENANT, TenantId::LEDGER] {
            let set = || halt(switch, Switch::Halted);
            Story::begun("halt-holds").logs(&[set(), by_owner()]).holds();
            Story::begun("halt-holds").logs(&[set(), halt(switch, Switch::Open), by_owner()]).holds();
        }
        Story::begun("halt-holds").logs(&[ends(HaltReason::Key)]).holds();
        let never = &["run 9 ends halted by the owner", "nobody halted", "the last halt is none"];
        Story::begun("halt-holds").logs(&[by_owner()]).breaks_by("halt-holds", never);
        let others = [halt(TenantId(2), Switch::Halted), by_owner()];
        Story::begun("halt-holds").logs(&others).breaks_by("halt-holds", never);
        // A halt that was over before the run was spawned stopped others.
        let mut story = Story::watched_by(&["halt-holds"]);
        story.logs(&[halt(TENANT, Switch::Halted), halt(TENANT, Switch::Open), spawned(RUN), by_owner()]);
        story.breaks_by("halt-holds", &["since record 2, its spawn", "the last halt is 0"]);
    }

    #[test]
    fn a_users_day_stays_within_its_quota() {
        // One run of depth 1 is spawned already, and 40 micro-USD are reserved after the quota is set.
        let cases = [
            (quota(None, 2, 40, 1), None),
            (quota(None, 1, 40, 1), Some("which is run 2 of user 5")),
            (quota(Some(USER), 1, 40, 1), Some("its quota is 1 runs of depth 1")),
            (quota(Some(UserId(77)), 0, 0, 0), None),
            (quota(None, 2, 40, 0), Some("of depth 1")),
            (quota(None, 2, 39, 1), Some("brings the day of user 5 to 40 micro-USD; its quota is 39")),
        ];
        for (set, breaks) in cases {
            let mut story = Story::begun("quota-holds");
            story.logs(std::slice::from_ref(&set));
            let first = story.next();
            story.logs(&reserves(first, 1, 40)).logs(&[spawned(RunId(1))]);
            match breaks {
                None => story.holds(),
                Some(message) => story.breaks_by("quota-holds", &[message]),
            }
        }
        let mut story = Story::begun("quota-holds");
        story.logs(&[quota(None, 2, 70, 1)]);
        let first = story.next();
        story.logs(&reserves(first, 1, 60)).logs(&[settled(first)]);
        let second = story.next();
        story.logs(&[reserved(second, 4, 1, 40)]).holds();
        story.logs(&[released(second)]);
        let third = story.next();
        story.logs(&[reserved(third, 5, 1, 41)]).breaks_by("quota-holds", &["to 71 micro-USD"]);
    }

    #[test]
    fn what_is_refused_takes_nothing() {
        let refused = |taken, limit| {
            let refusal = admit::Refusal::TooManyRuns { user: USER, day: 0, limit, taken };
            decided(&request(1, None, vec![]), Err(refusal.into()))
        };
        for ((taken, limit), passes) in [((1, 1), true), ((2, 1), false), ((1, 2), false)] {
            let mut story = Story::begun("quota-holds");
            story.logs(&[quota(None, 1, 1_000, 1), refused(taken, limit)]);
            match passes {
                true => story.holds(),
                false => story.breaks_by("quota-holds", &["has spawned 1 of Some(1)", "what is refused takes nothing"]),
            }
        }
    }
}
