//! The director's hand in this engine: every fault, each with its history entry.

use super::{
    executor::Core,
    network::Change,
    node::{Down, Node},
    timer::{Due, Timer},
    waker,
};
use crate::{
    Disk, Effects, LinkWeather, NodeId, Reach, Time, Unsupported,
    history::{assert_free_kind, kind},
};
use std::{rc::Rc, time::Duration};

/// What a [`Control`](crate::Control) holds.
#[derive(Clone)]
pub(crate) struct NativeControl {
    core: Rc<Core>,
}

impl NativeControl {
    pub(super) fn new(core: Rc<Core>) -> NativeControl {
        NativeControl { core }
    }

    pub(crate) fn now(&self) -> Time {
        Time(self.core.now_ns())
    }

    pub(crate) async fn sleep(&self, by: Duration) {
        let at_ns = self.now().plus(by).as_nanos();
        Timer::new(&self.core, Due::True(at_ns)).await;
    }

    pub(crate) fn kill(&self, node: NodeId) -> Result<(), Unsupported> {
        if self.is_up(node) {
            self.entry(&format!("kill node {}", node.0));
            self.core.bring_down(node.0, Down::Killed);
        }
        Ok(())
    }

    pub(crate) fn power_cut(&self, node: NodeId) -> Result<(), Unsupported> {
        if self.is_up(node) {
            self.entry(&format!("cut the power of node {}", node.0));
            self.core.bring_down(node.0, Down::PowerCut);
        }
        Ok(())
    }

    pub(crate) fn fell_at_disk_operation(&self, node: NodeId, nth: u64, power_cut: bool) -> Result<(), Unsupported> {
        let how = if power_cut { "by power cut" } else { "by kill" };
        self.entry(&format!("fell node {} at disk operation {nth} from now {how}", node.0));
        self.with(node, |node| node.disk.arm_fell(nth, power_cut));
        Ok(())
    }

    pub(crate) fn restart(&self, node: NodeId) -> Result<(), Unsupported> {
        if !self.is_up(node) {
            self.entry(&format!("restart node {}", node.0));
            let next = self.with(node, |node| node.incarnation + 1);
            self.core.bring_up(node.0, next);
        }
        Ok(())
    }

    pub(crate) fn is_up(&self, node: NodeId) -> bool {
        self.with(node, |node| node.up)
    }

    pub(crate) fn pause(&self, node: NodeId) -> Result<(), Unsupported> {
        if self.with(node, |node| node.up && !std::mem::replace(&mut node.paused, node.up)) {
            self.entry(&format!("pause node {}", node.0));
        }
        Ok(())
    }

    pub(crate) fn resume(&self, node: NodeId) -> Result<(), Unsupported> {
        if self.with(node, |node| std::mem::replace(&mut node.paused, false)) {
            self.entry(&format!("resume node {}", node.0));
            let held = self.with(node, |node| std::mem::take(&mut node.held));
            self.core.state.borrow_mut().stats.effects.tasks_held += held.len() as u64;
            for task in held {
                waker::wake(task);
            }
        }
        Ok(())
    }

    pub(crate) fn step_wall(&self, node: NodeId, by_ns: i64) -> Result<(), Unsupported> {
        self.entry(&format!("step the wall clock of node {} by {by_ns} ns", node.0));
        self.with(node, |node| node.clock.step_wall(by_ns));
        Ok(())
    }

    pub(crate) fn freeze_wall(&self, node: NodeId) -> Result<(), Unsupported> {
        let now_ns = self.core.now_ns();
        if self.with(node, |node| node.clock.freeze_wall(now_ns)) {
            self.entry(&format!("freeze the wall clock of node {}", node.0));
        }
        Ok(())
    }

    pub(crate) fn thaw_wall(&self, node: NodeId) -> Result<(), Unsupported> {
        if self.with(node, |node| node.clock.thaw_wall()) {
            self.entry(&format!("thaw the wall clock of node {}", node.0));
        }
        Ok(())
    }

    pub(crate) fn is_calm(&self) -> bool {
        let state = self.core.state.borrow();
        state.network.is_calm() && state.nodes.iter().all(|node| !node.paused && node.clock.is_true())
    }

    pub(crate) fn dismiss(&self) {
        let doomed = {
            let state = &mut *self.core.state.borrow_mut();
            for node in &mut state.nodes {
                node.up = false;
            }
            let receivers: Vec<_> = state.nodes.iter_mut().map(|node| node.receiver.take()).collect();
            (state.take_tasks(|owner| owner != NodeId::DIRECTOR), receivers)
        };
        drop(doomed);
    }

    pub(crate) fn effects(&self) -> Effects {
        self.core.state.borrow().stats.effects
    }

    pub(crate) fn set_drift(&self, node: NodeId, rate_ppm: u32) -> Result<(), Unsupported> {
        self.entry(&format!("run the oscillator of node {} at {rate_ppm} ppm", node.0));
        self.retime(node, rate_ppm);
        Ok(())
    }

    pub(crate) fn set_weather(&self, reach: &Reach, weather: LinkWeather) -> Result<(), Unsupported> {
        self.entry(&format!("set the weather of {} to {weather:?}", described(reach)));
        self.core.state.borrow_mut().network.apply(reach, Change::Weather(weather));
        Ok(())
    }

    pub(crate) fn partition(&self, reach: &Reach) -> Result<(), Unsupported> {
        self.entry(&format!("cut {}", described(reach)));
        self.core.state.borrow_mut().network.apply(reach, Change::Cut);
        Ok(())
    }

    pub(crate) fn mend(&self, reach: &Reach) -> Result<(), Unsupported> {
        self.entry(&format!("mend {}", described(reach)));
        self.core.state.borrow_mut().network.apply(reach, Change::Mend);
        Ok(())
    }

    pub(crate) fn cancel(&self, node: NodeId, nth: u64) -> Result<(), Unsupported> {
        self.entry(&format!("cancel a task of node {} at poll {nth} from now", node.0));
        self.with(node, |node| node.cancels.push(nth.max(1)));
        Ok(())
    }

    pub(crate) fn heal(&self) -> Result<(), Unsupported> {
        self.entry("heal");
        let nodes = {
            let state = &mut *self.core.state.borrow_mut();
            state.network.heal();
            for node in &mut state.nodes {
                node.disk.disarm();
                node.cancels.clear();
            }
            state.nodes.len() as u32
        };
        for node in (0..nodes).map(NodeId) {
            self.retime(node, super::clock::TRUE_RATE_PPM);
            self.thaw_wall(node)?;
            self.with(node, |node| node.clock.unstep_wall());
            self.resume(node)?;
            self.restart(node)?;
        }
        Ok(())
    }

    pub(crate) fn disk_image(&self, node: NodeId) -> Disk {
        self.with(node, |node| node.disk.image())
    }

    pub(crate) fn disk_operations(&self, node: NodeId) -> u64 {
        self.with(node, |node| node.disk.operations())
    }

    pub(crate) fn note(&self, kind: u16, data: &[u8]) {
        assert_free_kind(kind);
        self.core.record(NodeId::DIRECTOR, 0, kind, data);
    }

    /// Changes the rate of a node's clock and with it when its timers come.
    fn retime(&self, node: NodeId, rate_ppm: u32) {
        let now_ns = self.core.now_ns();
        let state = &mut *self.core.state.borrow_mut();
        let clock = &mut state.nodes[node.0 as usize].clock;
        if clock.rate_ppm() != rate_ppm {
            clock.set_rate(now_ns, rate_ppm);
            state.rearm(node.0);
        }
    }

    fn entry(&self, fault: &str) {
        self.core.record(NodeId::DIRECTOR, 0, kind::FAULT, fault.as_bytes());
    }

    fn with<T>(&self, node: NodeId, on: impl FnOnce(&mut Node) -> T) -> T {
        let state = &mut *self.core.state.borrow_mut();
        let known = state.nodes.len();
        let found = state.nodes.get_mut(node.0 as usize);
        on(found.unwrap_or_else(|| panic!("there is no node {}; the cast has {known}", node.0)))
    }
}

fn described(reach: &Reach) -> String {
    match *reach {
        Reach::All => "all links".to_owned(),
        Reach::Node(node) => format!("the links of node {}", node.0),
        Reach::OneWay(from, to) => format!("the link from node {} to node {}", from.0, to.0),
        Reach::Between(one, other) => format!("the links between nodes {} and {}", one.0, other.0),
        Reach::Across { bridge, split } => {
            format!("the links between two halves, the first of {split} nodes, with node {} as the bridge", bridge.0)
        }
    }
}
