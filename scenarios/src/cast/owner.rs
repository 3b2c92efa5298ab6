//! The owner: it carries out orders for caps, quotas and halts, approves what runs wait for, cancels runs, and resolves from the
//! provider's invoice what a run could not learn.
//!
//! It holds its lock only while it has work. It looks when something was left to it, and now and then in any case. What it sees of a
//! run that waits for it, or is to be cancelled, it remembers for as long as its process lasts: each takes its time from then on.

use super::{
    Casting, Order, TENANT,
    asking::{Hold, Lines, Lost, granted, nanos},
    wire::{FromProvider, ToProvider},
};
use crate::workload::Orders;
use kernel::{
    admit::{self, Switch},
    id::{ReservationId, RunId, TenantId},
    lease::{self, Lock},
    request::{Answer, Command, Query},
    reserve::{self, Level},
    run,
};
use sim::{Time, World};
use std::{cell::RefCell, collections::BTreeMap, rc::Rc, time::Duration};

/// How often it sees whether anything was ordered or left to it; costs no message.
const GLANCE: Duration = Duration::from_secs(2);
/// How often it asks the ledger although nothing is known to be left to it.
const LOOK: Duration = Duration::from_secs(30);
/// How long the ledger may take to answer a question before the owner leaves it for the next look.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long each copy of an invoice query waits; then the key is left for the next look.
const INVOICE_LIMITS: [Duration; 3] = [Duration::from_secs(2); 3];

/// Works until the node dies.
pub(super) async fn run(world: World, casting: Rc<Casting>) {
    let lines = Lines::open(&casting, world.clone(), world.node(), world.incarnation());
    let owner = Owner { lines, orders: orders_of(&casting), first_seen: RefCell::default(), world, casting };
    // What an earlier incarnation had seen does not count: the first glance looks.
    let (mut seen, mut looked) = (u64::MAX, Time::ZERO);
    loop {
        let stage = &owner.casting.stage;
        let left = stage.left_to_owner.get();
        let due = owner.world.now().since(looked) >= LOOK;
        if left != seen || due || !stage.orders.borrow().is_empty() || !owner.to_cancel().is_empty() {
            looked = owner.world.now();
            let nothing_left = owner.look().await;
            seen = if nothing_left { left } else { u64::MAX };
            let idle = nothing_left && owner.casting.stage.left_to_owner.get() == left && owner.to_cancel().is_empty();
            owner.casting.stage.owner_idle.set(idle && owner.casting.stage.orders.borrow().is_empty());
        }
        owner.world.sleep(GLANCE).await;
    }
}

/// What the owner does about a run, each at its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Deed {
    Approve,
    Cancel,
}

struct Owner {
    world: World,
    lines: Rc<Lines>,
    casting: Rc<Casting>,
    /// What the work says it decides about runs.
    orders: BTreeMap<RunId, Orders>,
    /// When it first saw that there was something to decide.
    first_seen: RefCell<BTreeMap<(RunId, Deed), Time>>,
}

/// The orders of every run that has any.
fn orders_of(casting: &Casting) -> BTreeMap<RunId, Orders> {
    let items = casting.work.agents.iter().flatten().filter(|item| !item.orders.is_none());
    items.map(|item| (item.run, item.orders)).collect()
}

impl Owner {
    /// Looks at what there is to do and does it; whether there was nothing.
    async fn look(&self) -> bool {
        let Some(Answer::AwaitsOwner(unresolved)) = self.lines.query(Query::AwaitsOwner(TENANT), Some(PATIENCE)).await
        else {
            return false;
        };
        let Some(Answer::Suspended(suspended)) = self.lines.query(Query::Suspended(TENANT), Some(PATIENCE)).await
        else {
            return false;
        };
        let approved: Vec<RunId> = suspended.iter().copied().filter(|run| self.is_time(*run, Deed::Approve)).collect();
        let nothing_ordered = self.casting.stage.orders.borrow().is_empty() && self.to_cancel().is_empty();
        if unresolved.is_empty() && approved.is_empty() && nothing_ordered {
            return suspended.is_empty();
        }
        self.casting.stage.owner_idle.set(false);
        let ttl = self.casting.scenario.ledger.lease;
        let (asked, executor) = (self.world.now(), self.lines.executor());
        let acquire = Command::Lease(lease::Command::Acquire { lock: Lock::Owner, executor, ttl_ns: nanos(ttl) });
        let said = self.lines.ask(None, ttl / 3, None, vec![acquire]).await;
        let fence = said.and_then(Result::ok).and_then(|outcomes| granted(&outcomes));
        let Some(hold) = fence.and_then(|fence| Hold::begun(&self.lines, Lock::Owner, fence, ttl, asked)) else {
            return false;
        };
        let keeper = self.world.spawn(hold.clone().keep());
        let _done_or_lost = self.work(&hold, unresolved, approved).await;
        keeper.cancel();
        hold.give_back();
        false
    }

    /// Whether the time has come for something about a run that there is to decide.
    fn is_time(&self, run: RunId, deed: Deed) -> bool {
        let now = self.world.now();
        let seen = *self.first_seen.borrow_mut().entry((run, deed)).or_insert(now);
        let orders = self.orders.get(&run).copied().unwrap_or_default();
        let takes_ns = match deed {
            Deed::Approve => orders.approval.map_or(0, |approval| approval.takes_ns),
            Deed::Cancel => orders.cancelled_after_ns.unwrap_or(0),
        };
        now.since(seen) >= Duration::from_nanos(takes_ns)
    }

    /// Runs whose time to be cancelled has come.
    fn to_cancel(&self) -> Vec<RunId> {
        let begun = self.casting.stage.to_cancel.borrow();
        begun.iter().copied().filter(|run| self.is_time(*run, Deed::Cancel)).collect()
    }

    async fn work(&self, hold: &Hold, unresolved: Vec<ReservationId>, approved: Vec<RunId>) -> Result<(), Lost> {
        loop {
            let Some(order) = self.casting.stage.orders.borrow().front().copied() else { break };
            let _decided = hold.ask_while_held(vec![setting(order)]).await?;
            self.casting.stage.orders.borrow_mut().pop_front();
        }
        for run in self.to_cancel() {
            let _refused_if_over = hold.ask_while_held(vec![Command::Run(run::Command::Cancel { run })]).await?;
            self.casting.stage.to_cancel.borrow_mut().remove(&run);
        }
        for run in approved {
            let _refused_if_cancelled = hold.ask_while_held(vec![Command::Run(run::Command::Resume { run })]).await?;
        }
        for reservation in unresolved {
            let mut close = ToProvider::Close { key: reservation };
            let said = self.lines.tell_provider(reservation, &mut close, &INVOICE_LIMITS, || true).await;
            if let Some(FromProvider::Closed { charged, .. }) = said {
                let resolve = Command::Reserve(reserve::Command::Resolve { reservation, charged });
                let _decided = hold.ask_while_held(vec![resolve]).await?;
            }
        }
        Ok(())
    }
}

/// The setting that an order comes to.
fn setting(order: Order) -> Command {
    let tenant = TENANT;
    match order {
        Order::Cap(level, cap) => {
            let tenant = if level == Level::LedgerDay { TenantId::LEDGER } else { TENANT };
            Command::Reserve(reserve::Command::SetCap { tenant, level, cap })
        }
        Order::Slots(slots) => Command::Reserve(reserve::Command::SetSlots { tenant, slots }),
        Order::Halt(halted) => {
            let switch = if halted { Switch::Halted } else { Switch::Open };
            Command::Admit(admit::Command::SetHalt { tenant, switch })
        }
        Order::Quota(quota) => Command::Admit(admit::Command::SetQuota { tenant, user: None, quota: Some(quota) }),
    }
}
