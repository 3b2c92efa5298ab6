//! Late reports: what an agent that lost a run's lease still has to say about its calls, it says once it can, under its old
//! authority, and takes the refusal as the answer.
//!
//! A worker that was wrongly presumed dead does not know it: it reports what it did, and when that is refused it gives back at
//! least what it took. Whether the ledger lets it is the ledger's affair; nothing that comes of it is acted on here.

use super::{
    agent::Agent,
    asking::{Lines, answered},
    lane::{Job, Open, Stint, succeeded},
    provider::latency,
    wire::CallAnswer,
};
use crate::fact::Answered;
use kernel::{lease::Authority, request::Command, reserve};
use sim::World;
use std::{rc::Rc, time::Duration};

/// How many times the longest that a call should take its answer is listened for after the lease is gone.
const LISTENS: u32 = 4;

impl Agent {
    /// Makes late reports, in the background, of whatever a stint whose lease is lost has not reported or may not have.
    pub(super) fn report_late(self: &Rc<Self>, stint: &Rc<Stint>) {
        let lease = self.casting.scenario.ledger.lease;
        let authority = stint.hold.authority();
        for commands in std::mem::take(&mut *stint.unheard.borrow_mut()).into_values() {
            let lines = self.lines.clone();
            self.world.spawn(async move { report(&lines, authority, lease, commands).await });
        }
        for job in std::mem::take(&mut *stint.on_the_wire.borrow_mut()).into_values() {
            let Some(Open { key, .. }) = job.open else { continue };
            let before = self.lines.heard_by_nobody(key);
            let (listed, heard) = self.lines.listen(key);
            let (agent, stint) = (self.clone(), stint.clone());
            let most = latency(&self.casting, 1, job.unit.most) * LISTENS;
            self.world.spawn(async move {
                let said = match before {
                    Some(said) => Some(said),
                    None => agent.world.timeout(most, heard).await.ok().and_then(Result::ok),
                };
                drop(listed);
                if let Some(commands) = agent.to_report(&stint, &job, answered(said)) {
                    report(&agent.lines, authority, lease, commands).await;
                }
            });
        }
    }

    /// What there is to report of a call that was answered.
    fn to_report(&self, stint: &Stint, job: &Job, answer: Option<CallAnswer>) -> Option<Vec<Command>> {
        let Job { unit, attempt, open, .. } = job;
        let (Open { key, .. }, answer) = ((*open)?, answer?);
        Some(match answer.answered {
            Answered::Ok => succeeded(stint, unit, *attempt, key, answer),
            _ => self.turned_away(stint, unit, *attempt, key, answer),
        })
    }
}

/// How often a release by itself is tried, each time after a pause.
const RELEASES: u32 = 3;

/// Reports under a grant that is probably over. Refused, it releases what it knows to be uncharged, later and by itself: a
/// release without its attempt's end is refused by a ledger that is right, whoever holds the run.
async fn report(lines: &Lines, authority: Authority, lease: Duration, commands: Vec<Command>) {
    let release = commands.iter().find(|command| matches!(command, Command::Reserve(reserve::Command::Release { .. })));
    let release = release.cloned();
    let said = lines.ask(Some(authority), Duration::ZERO, None, commands).await;
    let (Some(Err(_)), Some(release)) = (said, release) else { return };
    for _ in 0..RELEASES {
        lines.world.sleep(within(&lines.world, lease)).await;
        if let Some(Ok(_)) = lines.ask(Some(authority), Duration::ZERO, None, vec![release.clone()]).await {
            return;
        }
    }
}

/// A time of up to `most`.
fn within(world: &World, most: Duration) -> Duration {
    let most_ns = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos(world.random() % most_ns.max(1))
}
