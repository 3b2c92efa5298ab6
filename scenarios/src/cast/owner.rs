//! The owner: it carries out orders for caps, quotas and halts, and resolves from the provider's invoice what a run could not learn.
//!
//! It holds its lock only while it has work. It looks when something was left to it, and now and then in any case.

use super::{
    Casting, Order, TENANT,
    asking::{Hold, Lines, Lost, granted, nanos},
    wire::{FromProvider, ToProvider},
};
use kernel::{
    admit::{self, Switch},
    id::{ReservationId, TenantId},
    lease::{self, Lock},
    request::{Answer, Command, Query},
    reserve::{self, Level},
};
use sim::{Time, World};
use std::{rc::Rc, time::Duration};

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
    let owner = Owner { lines, world, casting };
    // What an earlier incarnation had seen does not count: the first glance looks.
    let (mut seen, mut looked) = (u64::MAX, Time::ZERO);
    loop {
        let stage = &owner.casting.stage;
        let left = stage.left_to_owner.get();
        let due = owner.world.now().since(looked) >= LOOK;
        if left != seen || due || !stage.orders.borrow().is_empty() {
            looked = owner.world.now();
            let nothing_left = owner.look().await;
            seen = if nothing_left { left } else { u64::MAX };
            let idle = nothing_left && owner.casting.stage.left_to_owner.get() == left;
            owner.casting.stage.owner_idle.set(idle && owner.casting.stage.orders.borrow().is_empty());
        }
        owner.world.sleep(GLANCE).await;
    }
}

struct Owner {
    world: World,
    lines: Rc<Lines>,
    casting: Rc<Casting>,
}

impl Owner {
    /// Looks at what there is to do and does it; whether there was nothing.
    async fn look(&self) -> bool {
        let Some(Answer::AwaitsOwner(unresolved)) = self.lines.query(Query::AwaitsOwner(TENANT), Some(PATIENCE)).await
        else {
            return false;
        };
        if unresolved.is_empty() && self.casting.stage.orders.borrow().is_empty() {
            return true;
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
        let _done_or_lost = self.work(&hold, unresolved).await;
        keeper.cancel();
        hold.give_back();
        false
    }

    async fn work(&self, hold: &Hold, unresolved: Vec<ReservationId>) -> Result<(), Lost> {
        loop {
            let Some(order) = self.casting.stage.orders.borrow().front().copied() else { break };
            let _decided = hold.ask_while_held(vec![setting(order)]).await?;
            self.casting.stage.orders.borrow_mut().pop_front();
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
