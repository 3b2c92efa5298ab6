//! The edge: a process of its own in front of the ledger, which every paid call passes first. It answers 429 past so many calls
//! of one user's key, or from one address, in any window of its own monotonic clock.
//!
//! It keeps when each call of the last window passed, so that there is no boundary at which a count begins anew, and looks and
//! counts in one step. What it let through is in its memory alone: after a restart it does not know it, and lets nothing pass
//! until a whole window is over. A question that is asked again is given its first answer and counted once.
//!
//! An address is where a question comes from, which nobody can claim; whose key it comes with is the caller's word.

use super::{
    Casting,
    asking::{Hold, Lines, Lost, nanos},
    wire::{FromEdge, ToEdge, decode, encode},
};
use crate::{
    fact::{EdgeCeiling, EdgeRefusal, Fact},
    scenario::Edge,
};
use kernel::{
    id::UserId,
    planted,
    planted::{Bug, Planted},
};
use sim::{Datagram, World};
use std::{
    collections::{BTreeMap, VecDeque},
    rc::Rc,
    time::Duration,
};

/// For how many windows the answer to a question is remembered; a copy that the network held back for longer is counted anew.
const REMEMBERED_WINDOWS: u64 = 8;

/// How long a question goes unanswered before it is asked again; each time twice as long, up to four times over.
const PATIENCE: Duration = Duration::from_millis(500);
const MOST_DOUBLINGS: u32 = 4;

/// Over how long those are spread who were told to come at one moment.
const SPREAD_NS: u64 = 500_000_000;

/// Answers until the node dies.
pub(super) async fn run(world: World, casting: Rc<Casting>) {
    let Some(edge) = casting.scenario.edge else { return };
    let window_ns = nanos(edge.window);
    Fact::EdgeUp { per_key: edge.per_key, per_address: edge.per_address, window_ns }.note(&world);
    let opens_ns = if world.incarnation() == 0 { 0 } else { world.now().as_nanos().saturating_add(window_ns) };
    let mut gate = Gate::new(edge, opens_ns);
    loop {
        let Datagram { from, incarnation, frame } = world.recv().await;
        let Some(ToEdge { user, number }) = decode(&frame) else { continue };
        let now_ns = world.now().as_nanos();
        gate.forget(now_ns);
        let name = (from.0, incarnation, number);
        let answer = match gate.answers.get(&name) {
            Some((_, answer)) => *answer,
            None => {
                let answer = gate.ask(&casting.planted, user, from.0, now_ns);
                note(&world, user, from.0, now_ns, answer);
                gate.answers.insert(name, (now_ns, answer));
                answer
            }
        };
        world.send(from, encode(&FromEdge { number, refusal: answer }));
    }
}

fn note(world: &World, user: UserId, address: u32, at_ns: u64, answer: Option<EdgeRefusal>) {
    match answer {
        None => Fact::EdgePassed { user, address, at_ns }.note(world),
        Some(refusal) => Fact::EdgeRefused { user, address, at_ns, refusal }.note(world),
    }
}

/// What the edge remembers.
#[derive(Debug)]
struct Gate {
    limits: Edge,
    window_ns: u64,
    /// Before this moment it does not know what passed.
    opens_ns: u64,
    keys: BTreeMap<UserId, Passed>,
    addresses: BTreeMap<u32, Passed>,
    /// Of each question, by its address, incarnation and number, when it was answered and how.
    answers: BTreeMap<(u32, u32, u64), (u64, Option<EdgeRefusal>)>,
    forgot_ns: u64,
}

/// The calls of one key, or from one address.
#[derive(Debug, Default)]
struct Passed {
    /// When each of the last window's passed, oldest first.
    at_ns: VecDeque<u64>,
    /// [`Bug::FixedWindow`]: which window of the clock is counted, and how many passed in it.
    fixed: (u64, u32),
}

impl Passed {
    /// Whether one more may pass `limit`, as far as the log says.
    fn has_room(&mut self, now_ns: u64, window_ns: u64, limit: u32) -> bool {
        while self.at_ns.front().is_some_and(|at| now_ns - at >= window_ns) {
            self.at_ns.pop_front();
        }
        self.at_ns.len() < limit as usize
    }

    /// As [`Bug::FixedWindow`] has it: the count begins anew at each multiple of the window.
    fn has_room_in_fixed(&self, now_ns: u64, window_ns: u64, limit: u32) -> bool {
        self.fixed.0 != now_ns / window_ns || self.fixed.1 < limit
    }

    fn count(&mut self, now_ns: u64, window_ns: u64) {
        self.at_ns.push_back(now_ns);
        let window = now_ns / window_ns;
        let before = if self.fixed.0 == window { self.fixed.1 } else { 0 };
        self.fixed = (window, before.saturating_add(1));
    }

    /// When the oldest leaves the window, from now.
    fn again_ns(&self, now_ns: u64, window_ns: u64) -> u64 {
        self.at_ns.front().map_or(0, |at| at.saturating_add(window_ns).saturating_sub(now_ns))
    }
}

impl Gate {
    fn new(limits: Edge, opens_ns: u64) -> Gate {
        let window_ns = nanos(limits.window).max(1);
        let (keys, addresses, answers) = Default::default();
        Gate { limits, window_ns, opens_ns, keys, addresses, answers, forgot_ns: 0 }
    }

    /// Looks, and counts if it lets pass. The key is looked at before the address.
    fn ask(&mut self, planted: &Planted, user: UserId, address: u32, now_ns: u64) -> Option<EdgeRefusal> {
        let Gate { limits: Edge { per_key, per_address, .. }, window_ns, opens_ns, .. } = *self;
        if now_ns < opens_ns {
            let again_ns = opens_ns - now_ns;
            return Some(EdgeRefusal { ceiling: EdgeCeiling::Unsure, limit: 0, asked: 1, left: 0, again_ns });
        }
        let of_key = self.keys.entry(user).or_default();
        let from_address = self.addresses.entry(address).or_default();
        for (ceiling, limit, passed) in
            [(EdgeCeiling::Key, per_key, &mut *of_key), (EdgeCeiling::Address, per_address, &mut *from_address)]
        {
            let right = passed.has_room(now_ns, window_ns, limit);
            let wrong = passed.has_room_in_fixed(now_ns, window_ns, limit);
            if !planted!(planted, Bug::FixedWindow, right, right || wrong) {
                let again_ns = passed.again_ns(now_ns, window_ns);
                return Some(EdgeRefusal { ceiling, limit, asked: 1, left: 0, again_ns });
            }
        }
        of_key.count(now_ns, window_ns);
        from_address.count(now_ns, window_ns);
        None
    }

    /// Forgets old answers, once a window.
    fn forget(&mut self, now_ns: u64) {
        if now_ns - self.forgot_ns >= self.window_ns {
            self.forgot_ns = now_ns;
            let oldest_ns = now_ns.saturating_sub(self.window_ns.saturating_mul(REMEMBERED_WINDOWS));
            self.answers.retain(|_, (at_ns, _)| *at_ns >= oldest_ns);
        }
    }
}

impl Lines {
    /// Waits until a call of `user` has passed the edge, if there is one, for as long as `hold` lasts.
    pub(super) async fn pass_edge(self: &Rc<Self>, user: UserId, hold: &Hold) -> Result<(), Lost> {
        let Some(edge) = self.edge else { return Ok(()) };
        while hold.is_current() {
            let (number, _listed, mut answered) = self.listen_to_edge();
            let mut doublings = 0;
            let refusal = loop {
                if !hold.is_current() {
                    return Err(Lost);
                }
                self.world.send(edge, encode(&ToEdge { user, number }));
                if let Ok(answer) = self.world.timeout(PATIENCE * (1 << doublings), &mut answered).await {
                    break answer;
                }
                doublings = (doublings + 1).min(MOST_DOUBLINGS);
            };
            match refusal {
                Ok(None) => return Ok(()),
                Ok(Some(refusal)) => {
                    let spread_ns = self.world.random() % SPREAD_NS;
                    self.world.sleep(Duration::from_nanos(refusal.again_ns.saturating_add(spread_ns))).await;
                }
                Err(_) => return Err(Lost),
            }
        }
        Err(Lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn gate(per_key: u32, per_address: u32, opens_ns: u64) -> Gate {
        Gate::new(Edge { per_key, per_address, window: Duration::from_secs(60) }, opens_ns)
    }

    /// How many of `calls` of a key pass at a moment, each from an address of its own.
    fn passing(gate: &mut Gate, planted: &Planted, at_ns: u64, calls: u32) -> usize {
        let from = gate.addresses.len() as u32;
        (0..calls).filter(|call| gate.ask(planted, UserId(1), from + call, at_ns).is_none()).count()
    }

    /// kong#10559: six hundred just before a boundary and six hundred just after it.
    #[test]
    fn a_burst_across_a_windows_boundary_passes_once() {
        let planted = Planted::none();
        for boundary in [60, 61, 119, 120] {
            let mut gate = gate(600, 120, 0);
            let (before, after) = (boundary * SECOND - SECOND / 10, boundary * SECOND + SECOND / 10);
            let passed = [before, after, before + 60 * SECOND - 1, before + 60 * SECOND];
            let passed = passed.map(|at| passing(&mut gate, &planted, at, 700));
            assert_eq!(passed, [600, 0, 0, 600], "at {boundary} s");
        }
        let planted = Planted::these(&[Bug::FixedWindow]);
        let mut gate = gate(600, 120, 0);
        let passed = [60 * SECOND - 1, 60 * SECOND].map(|at| passing(&mut gate, &planted, at, 700));
        assert_eq!((passed, planted.reached(Bug::FixedWindow) > 0), ([600, 600], true));
    }

    #[test]
    fn a_refusal_counts_nothing_and_says_what_for_and_when_again() {
        let planted = Planted::none();
        let mut gate = gate(3, 2, 0);
        let ask = |gate: &mut Gate, address, at| gate.ask(&planted, UserId(1), address, at * SECOND);
        assert_eq!((ask(&mut gate, 7, 1), ask(&mut gate, 7, 2)), (None, None));
        let of = |ceiling, limit, again: u64| {
            Some(EdgeRefusal { ceiling, limit, asked: 1, left: 0, again_ns: again * SECOND })
        };
        assert_eq!(ask(&mut gate, 7, 3), of(EdgeCeiling::Address, 2, 58));
        assert_eq!(ask(&mut gate, 8, 4), None);
        assert_eq!(ask(&mut gate, 9, 5), of(EdgeCeiling::Key, 3, 56));
        // The key again, and not the address, although both are full.
        assert_eq!(ask(&mut gate, 7, 60), of(EdgeCeiling::Key, 3, 1));
        assert_eq!(ask(&mut gate, 7, 61), None);
    }

    #[test]
    fn after_a_restart_nothing_passes_until_a_window_is_over() {
        let planted = Planted::none();
        let mut gate = gate(3, 3, 60 * SECOND);
        let unsure = EdgeRefusal { ceiling: EdgeCeiling::Unsure, limit: 0, asked: 1, left: 0, again_ns: SECOND };
        assert_eq!(gate.ask(&planted, UserId(1), 1, 59 * SECOND), Some(unsure));
        assert_eq!(gate.ask(&planted, UserId(1), 1, 60 * SECOND), None);
    }
}
