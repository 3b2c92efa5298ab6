//! What the ledger was set up with, before anybody asked it for anything: the caps, slots, price and quota of the capsule.
//!
//! Every rule about money goes by what the log says is in force. Here the first of it is held against what was asked for.

use super::{
    files::{Caps, Capsule},
    findings::{Findings, Place, Rule},
    log::Log,
    wire::{Admitted, Budgeted, Effected, Event, Level},
};

/// The ledger's own tenant, and the one whose fleet it is.
const LEDGER: u32 = 0;
const TENANT: u32 = 1;

/// Holds the settings that the log begins with against those of the capsule. Later ones were ordered.
pub(super) fn compare(log: &Log<'_>, capsule: &Capsule, found: &mut Findings) {
    if log.len() == 0 {
        return;
    }
    let begins = log.from(0).take_while(|(record, _)| is_setting(&record.event) || is_tool(&record.event));
    let mut begins = begins.filter(|(record, _)| is_setting(&record.event));
    for asked in asked(capsule) {
        match begins.next() {
            Some((record, place)) => found.must(Rule::Terms, place, record.event == asked, || {
                format!("the ledger is set up with {:?}, and the capsule says {asked:?}", record.event)
            }),
            None => found.must(Rule::Terms, Place::Capsule, false, || {
                format!("it says {asked:?}, and the ledger was not set up with it")
            }),
        }
    }
    for (record, place) in begins {
        let complaint = format!("the ledger is set up with {:?}, and the capsule does not say so", record.event);
        found.must(Rule::Terms, place, false, || complaint);
    }
}

fn is_setting(event: &Event) -> bool {
    let is_of_budget =
        |event: &Budgeted| matches!(event, Budgeted::CapSet { .. } | Budgeted::SlotsSet { .. } | Budgeted::PriceSet(_));
    match event {
        Event::Reserve(event) => is_of_budget(event),
        Event::Admit(event) => matches!(event, Admitted::QuotaSet { .. }),
        Event::Lease(_) | Event::Effect(_) | Event::Run(_) => false,
    }
}

fn is_tool(event: &Event) -> bool {
    matches!(event, Event::Effect(Effected::ToolRegistered { .. }))
}

/// What the capsule's scenario asks for, in the order in which a ledger is set up.
fn asked(capsule: &Capsule) -> Vec<Event> {
    let scenario = &capsule.scenario;
    // What comes when it comes, as a trace does, has caps of its own and no quota.
    let is_open = capsule.work.open_loop;
    let caps = scenario.caps_on_arrivals.filter(|_| is_open).unwrap_or(scenario.caps);
    let Caps { unit, run, user_day, ledger_day_per_user, slots } = caps;
    let agents = capsule.work.agents.len() as u64;
    let users = agents.div_ceil(u64::from(scenario.sizes.agents_per_user).max(1)).max(1);
    let cap = |tenant, level, cap| Event::Reserve(Budgeted::CapSet { tenant, level, cap });
    let mut asked = vec![
        cap(TENANT, Level::Unit, unit),
        cap(TENANT, Level::Run, run),
        cap(TENANT, Level::UserDay, user_day),
        cap(LEDGER, Level::LedgerDay, ledger_day_per_user.saturating_mul(users)),
        Event::Reserve(Budgeted::SlotsSet { tenant: TENANT, slots }),
        Event::Reserve(Budgeted::PriceSet(scenario.provider.price)),
    ];
    let quota = scenario.quota.filter(|_| !is_open).map(Some);
    asked.extend(quota.map(|quota| Event::Admit(Admitted::QuotaSet { tenant: TENANT, user: None, quota })));
    asked
}
