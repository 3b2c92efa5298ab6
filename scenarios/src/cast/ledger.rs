//! The ledger's process: the real server over the scenario's store.

use super::{Casting, TENANT, tool};
use kernel::{
    admit,
    effect::{self, Class},
    id::TenantId,
    money::MicroUsd,
    request::Command,
    reserve::{self, Level},
    serve::{Settings, serve},
};
use sim::World;
use std::rc::Rc;

/// Serves until the node dies or the ledger breaks. A ledger that broke has announced it; its process ends, and whoever
/// runs it boots it again.
pub(super) async fn run(world: World, casting: Rc<Casting>) {
    let terms = &casting.scenario.ledger;
    let settings = Settings {
        batch_limit: terms.batch_limit,
        queue_limit: terms.queue_limit,
        batch_cost_ns: terms.batch_cost_ns,
        request_cost_ns: terms.request_cost_ns,
        checkpoint_every: terms.checkpoint_every,
        genesis: genesis(&casting),
    };
    let (open, disk) = (casting.open_store.clone(), world.disk());
    let _announced = serve(world, move || open(disk), settings, casting.planted.clone()).await;
}

/// The caps, slots, price, tools and quota in force from the first moment.
fn genesis(casting: &Casting) -> Vec<Command> {
    let caps = casting.caps();
    let ledger_day = MicroUsd(caps.ledger_day_per_user.0.saturating_mul(u64::from(casting.users())));
    let cap = |tenant, level, cap| Command::Reserve(reserve::Command::SetCap { tenant, level, cap });
    let mut commands = vec![
        cap(TENANT, Level::Unit, caps.unit),
        cap(TENANT, Level::Run, caps.run),
        cap(TENANT, Level::UserDay, caps.user_day),
        cap(TenantId::LEDGER, Level::LedgerDay, ledger_day),
        Command::Reserve(reserve::Command::SetSlots { tenant: TENANT, slots: caps.slots }),
        Command::Reserve(reserve::Command::SetPrice(casting.scenario.provider.price)),
    ];
    commands.extend(Class::ALL.map(|class| {
        let class_of_tool = Some(class);
        Command::Effect(effect::Command::Register { tenant: TENANT, tool: tool(class), class: class_of_tool })
    }));
    let quota = |quota| Command::Admit(admit::Command::SetQuota { tenant: TENANT, user: None, quota: Some(quota) });
    commands.extend(casting.quota().map(quota));
    commands
}
