//! Faults that overlap, put together: the weather of links, the provider's behaviour and the caps in force, each worked out
//! anew from every fault that is on, so that the end of one leaves the others as they were.

use crate::cast::{Manners, ProviderWeather};
use faults::Fault;
use kernel::{
    admit::{DepthTier, Quota},
    money::MicroUsd,
    reserve::Level,
};
use sim::{LinkWeather, NodeId, Reach};
use std::{collections::BTreeSet, time::Duration};

/// A fault of a plan with its node names looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Where {
    All,
    Node(NodeId),
    Link(NodeId, NodeId),
}

impl Where {
    /// Whether a weather fault here touches the links between two nodes.
    fn touches(&self, one: NodeId, other: NodeId) -> bool {
        match *self {
            Where::All => true,
            Where::Node(node) => node == one || node == other,
            Where::Link(from, to) => (from, to) == (one, other) || (to, from) == (one, other),
        }
    }
}

/// Both chances together: 1 - (1 - a)(1 - b), in parts per million.
fn either_ppm(a: u32, b: u32) -> u32 {
    let (a, b) = (u64::from(a.min(1_000_000)), u64::from(b.min(1_000_000)));
    (a + b - a * b / 1_000_000) as u32
}

fn worsened(mut weather: LinkWeather, fault: &Fault) -> LinkWeather {
    match *fault {
        Fault::Loss { ppm } => weather.loss_ppm = either_ppm(weather.loss_ppm, ppm),
        Fault::Repeat { ppm } => weather.repeat_ppm = either_ppm(weather.repeat_ppm, ppm),
        Fault::Reorder { ppm } => weather.reorder_ppm = either_ppm(weather.reorder_ppm, ppm),
        Fault::DelaySpike { ppm, by } => {
            weather.spike_ppm = either_ppm(weather.spike_ppm, ppm);
            weather.spike_ns = weather.spike_ns.max(nanoseconds(by));
        }
        Fault::Clog { bytes_per_s } => {
            let so_far = Some(weather.bytes_per_s).filter(|rate| *rate > 0);
            weather.bytes_per_s = so_far.map_or(bytes_per_s, |so_far| so_far.min(bytes_per_s));
        }
        _ => {}
    }
    weather
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// What to set, in this order, for every link to have the weather of all faults that are on.
///
/// Links touched by more than one narrow fault are those between two struck nodes, and struck links: they come last.
pub(super) fn links(base: LinkWeather, on: &[(&Fault, &Where)]) -> Vec<(Reach, LinkWeather)> {
    let with = |touched: &dyn Fn(&Where) -> bool| {
        on.iter().filter(|(_, place)| touched(place)).fold(base, |weather, (fault, _)| worsened(weather, fault))
    };
    let mut set = vec![(Reach::All, with(&|place| *place == Where::All))];
    let mut nodes = BTreeSet::new();
    let mut pairs = BTreeSet::new();
    for (_, place) in on {
        match **place {
            Where::All => {}
            Where::Node(node) => drop(nodes.insert(node)),
            Where::Link(one, other) => drop(pairs.insert((one.min(other), one.max(other)))),
        }
    }
    for node in &nodes {
        set.push((Reach::Node(*node), with(&|place| matches!(place, Where::All) || *place == Where::Node(*node))));
        pairs.extend(nodes.iter().filter(|other| *other > node).map(|other| (*node, *other)));
    }
    for (one, other) in pairs {
        set.push((Reach::Between(one, other), with(&|place| place.touches(one, other))));
    }
    set
}

/// How the provider behaves under all faults that are on.
pub(super) fn provider<'a>(on: impl Iterator<Item = &'a Fault>) -> ProviderWeather {
    on.fold(ProviderWeather::default(), |mut weather, fault| {
        match *fault {
            Fault::TooManyRequests { ppm } => weather.too_many_ppm = either_ppm(weather.too_many_ppm, ppm),
            Fault::ServerError { ppm } => weather.error_ppm = either_ppm(weather.error_ppm, ppm),
            Fault::Slow { factor } => weather.slow_factor = weather.slow_factor.max(factor),
            Fault::ReplyLost { ppm } => weather.reply_lost_ppm = either_ppm(weather.reply_lost_ppm, ppm),
            Fault::Hang { ppm } => weather.hang_ppm = either_ppm(weather.hang_ppm, ppm),
            Fault::UsageUnlike { percent } => {
                let so_far = u64::from(weather.usage_percent.unwrap_or(100));
                weather.usage_percent = Some((so_far * u64::from(percent) / 100).clamp(1, 1_000) as u32);
            }
            Fault::CreditExhausted => weather.credit_exhausted = true,
            _ => {}
        }
        weather
    })
}

/// How an agent behaves under all faults that are on for it: it is as impatient as the most impatient of them.
pub(super) fn manners<'a>(on: impl Iterator<Item = &'a Fault>) -> Manners {
    on.fold(Manners::default(), |mut manners, fault| {
        match *fault {
            Fault::RetryAnew { after } => {
                manners.anew_after = Some(manners.anew_after.map_or(after, |so_far| so_far.min(after)));
            }
            Fault::DuplicateReport { ppm } => manners.reports_twice_ppm = either_ppm(manners.reports_twice_ppm, ppm),
            _ => {}
        }
        manners
    })
}

/// The quota in force of which the scenario sets `quota`: the lowest wins, each of its limits rounded down.
pub(super) fn quota<'a>(quota: Quota, on: impl Iterator<Item = &'a Fault>) -> Quota {
    let lowered = on.filter_map(|fault| match fault {
        Fault::QuotaChanged { percent } => Some(*percent),
        _ => None,
    });
    let percent = lowered.min().unwrap_or(100);
    let of = |whole: u64| (u128::from(whole) * u128::from(percent) / 100) as u64;
    Quota {
        runs_per_day: of(quota.runs_per_day.into()) as u32,
        micro_usd_per_day: MicroUsd(of(quota.micro_usd_per_day.0)),
        depth_tier: DepthTier(of(quota.depth_tier.0.into()) as u8),
    }
}

/// The cap of a level under all faults that are on: the lowest wins.
pub(super) fn cap<'a>(level: Level, set: MicroUsd, on: impl Iterator<Item = &'a Fault>) -> MicroUsd {
    let lowered = on.filter_map(|fault| match fault {
        Fault::CapLowered { level: name, percent } if level_named(name) == Some(level) => Some(*percent),
        _ => None,
    });
    match lowered.min() {
        None => set,
        Some(percent) => MicroUsd((u128::from(set.0) * u128::from(percent) / 100) as u64),
    }
}

/// The level that goes by that name in plans.
pub(super) fn level_named(name: &str) -> Option<Level> {
    faults::plan::LEVELS.iter().zip(Level::ALL).find(|(known, _)| **known == name).map(|(_, level)| level)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_faults_compose_on_the_links_they_share() {
        let (a, b, c) = (NodeId(3), NodeId(0), NodeId(1));
        let (tenth, half) = (Fault::Loss { ppm: 100_000 }, Fault::Loss { ppm: 500_000 });
        let (on_a, on_b, on_link) = (Where::Node(a), Where::Node(b), Where::Link(c, a));
        let set = links(LinkWeather::CALM, &[(&tenth, &on_a), (&half, &on_b), (&half, &on_link)]);
        let loss = |wanted: Reach| set.iter().rev().find(|(reach, _)| *reach == wanted).map(|(_, w)| w.loss_ppm);
        assert_eq!(loss(Reach::All), Some(0));
        assert_eq!(loss(Reach::Node(a)), Some(100_000));
        assert_eq!(loss(Reach::Node(b)), Some(500_000));
        assert_eq!(loss(Reach::Between(b, a)), Some(550_000));
        assert_eq!(loss(Reach::Between(c, a)), Some(550_000));
        assert_eq!(links(LinkWeather::CALM, &[]), [(Reach::All, LinkWeather::CALM)]);
    }

    #[test]
    fn the_lowest_of_the_lowered_caps_is_in_force() {
        let lowered = |level: &str, percent| Fault::CapLowered { level: level.to_owned(), percent };
        let on = [lowered("run", 50), lowered("run", 20), lowered("user-day", 0)];
        assert_eq!(cap(Level::Run, MicroUsd(400), on.iter()), MicroUsd(80));
        assert_eq!(cap(Level::UserDay, MicroUsd(400), on.iter()), MicroUsd(0));
        assert_eq!(cap(Level::Unit, MicroUsd(400), on.iter()), MicroUsd(400));
    }
}
