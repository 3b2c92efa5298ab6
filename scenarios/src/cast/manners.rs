//! What agents do under the faults of the agent family: they are started twice, ask anew under another number, and report again
//! what was taken.
//!
//! None of it can be told by the ledger from an honest request. Of two processes of one client the older is stale, by its
//! incarnation; what is asked or reported a second time must come to the same thing, or be refused.

use super::{
    agent::{self, Agent},
    asking::{Hold, Lines},
};
use faults::Kind;
use kernel::{
    effect,
    request::{Command, Refusal},
    reserve, run,
};
use sim::{NodeId, World};
use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    time::Duration,
};
use tokio::sync::Notify;

/// The streams that say which reports are made twice.
const TWICE: u64 = 0x7477_6963_6500_0000;

/// How an agent departs from good manners.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Manners {
    /// How long a request goes unanswered before it is made again under another number; `None` for good manners.
    pub anew_after: Option<Duration>,
    /// Of a million reports that were taken, how many are made once more.
    pub reports_twice_ppm: u32,
}

/// Agents that are started twice, and how often each was started at all.
#[derive(Debug, Default)]
pub struct Starts {
    /// Processes started of each agent: the incarnation of the next.
    started: RefCell<BTreeMap<NodeId, u32>>,
    /// Agents whose second process is to run.
    twice: RefCell<BTreeSet<NodeId>>,
    called: Notify,
}

impl Starts {
    /// The incarnation of the agent's process that starts now: above all that started before, on whichever node.
    fn next(&self, agent: NodeId) -> u32 {
        let mut started = self.started.borrow_mut();
        let next = started.entry(agent).or_default();
        *next += 1;
        *next - 1
    }

    /// Whether no process of the agent was started after this incarnation.
    pub(super) fn is_newest(&self, agent: NodeId, incarnation: u32) -> bool {
        self.started.borrow().get(&agent).is_none_or(|next| *next <= incarnation + 1)
    }

    /// Whether the agent's second process is to run.
    pub fn is_twice(&self, agent: NodeId) -> bool {
        self.twice.borrow().contains(&agent)
    }

    /// Whether any agent's is.
    pub fn any_twice(&self) -> bool {
        !self.twice.borrow().is_empty()
    }

    /// Lets the agent's second process begin; whether it was not to before.
    pub fn begin(&self, agent: NodeId) -> bool {
        let is_news = self.twice.borrow_mut().insert(agent);
        self.called.notify_waiters();
        is_news
    }

    /// Takes that back; whether it was to run. The process is for the caller to stop.
    pub fn end(&self, agent: NodeId) -> bool {
        self.twice.borrow_mut().remove(&agent)
    }
}

/// The first process of an agent.
pub(super) async fn first(world: World, casting: Rc<super::Casting>, index: usize) {
    let agent = world.node();
    let incarnation = casting.stage.starts.next(agent);
    agent::run(world, casting, index, agent, incarnation).await;
}

/// The second process of an agent, on a node of its own: it does nothing until it is called for.
pub(super) async fn second(world: World, casting: Rc<super::Casting>, index: usize) {
    let agent = super::agent(index as u32);
    loop {
        let called = casting.stage.starts.called.notified();
        if casting.stage.starts.is_twice(agent) {
            break;
        }
        called.await;
    }
    let incarnation = casting.stage.starts.next(agent);
    agent::run(world, casting, index, agent, incarnation).await;
}

/// Requests that were made again under another number before they were answered.
#[derive(Debug, Default)]
pub(super) struct Abandoned {
    numbers: RefCell<BTreeSet<u64>>,
    any: Cell<bool>,
}

impl Abandoned {
    pub(super) fn add(&self, number: u64) {
        self.numbers.borrow_mut().insert(number);
        self.any.set(true);
    }

    /// Whether there may be any, at no cost to those who have none.
    pub(super) fn any(&self) -> bool {
        self.any.get()
    }

    /// Takes one off the list; whether it was on it.
    pub(super) fn take(&self, number: u64) -> bool {
        self.numbers.borrow_mut().remove(&number)
    }
}

impl Agent {
    /// Makes a report that was taken once more, in the background, if the agent's manners are such.
    pub(super) fn report_again(&self, hold: &Hold, commands: &[Command]) {
        let ppm = self.lines.manners().reports_twice_ppm;
        let nth = self.lines.asked();
        if ppm == 0 || !self.world.stream(TWICE ^ nth).chance_ppm(ppm) {
            return;
        }
        let (lines, authority, commands) = (self.lines.clone(), hold.authority(), commands.to_vec());
        self.world.spawn(async move { once_more(&lines, authority, commands).await });
    }
}

async fn once_more(lines: &Lines, authority: kernel::lease::Authority, commands: Vec<Command>) {
    use run::Refusal::{Ended, IllegalArm};
    let said = lines.ask(Some(authority), Duration::ZERO, None, commands).await;
    if let Some(Err(
        Refusal::Effect(effect::Refusal::UnknownIntent { .. })
        | Refusal::Reserve(reserve::Refusal::Ended { .. })
        | Refusal::Run(Ended { .. } | IllegalArm { .. }),
    )) = said
    {
        lines.stage.felt(Kind::DuplicateReport);
    }
}
