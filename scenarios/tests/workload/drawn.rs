//! Lists drawn from a seed: the same each time, and each agent's its own.

use kernel::money::{MicroUsd, Usage};
use proptest::prelude::*;
use scenarios::{
    catalogue,
    scenario::Scenario,
    workload::{self, Item, WorkList, Workload, contention, edge, producers, research, takeover},
};

fn fleet() -> Scenario {
    catalogue::find("fleet").expect("the fleet is in the catalogue")
}

fn draw(workload: Workload, agents: u32, runs: u32, seed: u64) -> WorkList {
    let mut scenario = fleet();
    scenario.workload = workload;
    (scenario.sizes.agents, scenario.sizes.runs_per_agent, scenario.sizes.standbys) = (agents, runs, 2);
    workload::draw(&scenario, seed)
}

fn latency_ns(scenario: &Scenario, usage: Usage) -> u64 {
    let provider = &scenario.provider;
    provider.base_ns + usage.input_tokens * provider.input_token_ns + usage.output_tokens * provider.output_token_ns
}

/// What a run takes when nothing holds it up: the slowest call of each stage.
fn unloaded_ns(scenario: &Scenario, item: &Item) -> u64 {
    let last = item.units.iter().map(|unit| unit.stage).max().unwrap_or(0);
    let slowest = |stage| {
        let of_stage = item.units.iter().filter(|unit| unit.stage == stage);
        of_stage.map(|unit| latency_ns(scenario, unit.usage)).max().unwrap_or(0)
    };
    (0..=last).map(slowest).sum()
}

proptest! {
    #[test]
    fn the_same_seed_gives_the_same_list_and_a_new_agent_shifts_nobody(
        seed in any::<u64>(), agents in 1_u32..12, runs in 1_u32..6,
    ) {
        for workload in [research::WORKLOAD, contention::WORKLOAD, edge::WORKLOAD, producers::WORKLOAD, takeover::WORKLOAD] {
            let list = draw(workload, agents, runs, seed);
            prop_assert_eq!(&list, &draw(workload, agents, runs, seed));
            let larger = draw(workload, agents + 1, runs, seed);
            prop_assert_eq!(&list.agents[..], &larger.agents[..agents as usize]);
            let longer = draw(workload, agents, runs + 1, seed);
            for (list, longer) in list.agents.iter().zip(&longer.agents) {
                prop_assert_eq!(&list[..], &longer[..list.len()]);
            }
        }
    }

    #[test]
    fn no_unfaulted_run_can_pass_its_caps(seed in any::<u64>()) {
        let scenario = fleet();
        let cost = |usage| scenario.provider.price.cost(usage).expect("a small sum");
        for item in draw(research::WORKLOAD, 2, 8, seed).agents.iter().flatten() {
            let worst: u64 = item.units.iter().map(|unit| cost(unit.most).0).sum();
            prop_assert!(MicroUsd(worst) <= scenario.caps.run);
            for unit in &item.units {
                prop_assert!(cost(unit.most) <= scenario.caps.unit);
                prop_assert!(unit.usage.input_tokens <= unit.most.input_tokens);
                prop_assert!(unit.usage.output_tokens <= unit.most.output_tokens);
            }
        }
    }
}

#[test]
fn other_seeds_give_other_lists() {
    assert_ne!(draw(research::WORKLOAD, 1, 1, 1), draw(research::WORKLOAD, 1, 1, 2));
}

#[test]
fn runs_have_the_research_ledgers_figures() {
    let scenario = fleet();
    let list = draw(research::WORKLOAD, 100, 20, 7);
    let items: Vec<&Item> = list.agents.iter().flatten().collect();
    let runs = items.len() as u64;
    let calls: u64 = items.iter().map(|item| item.units.len() as u64).sum();
    let units = items.iter().flat_map(|item| &item.units);
    let cost: u64 = units.map(|unit| scenario.provider.price.cost(unit.usage).expect("a small sum").0).sum();
    let mut walls: Vec<u64> = items.iter().map(|item| unloaded_ns(&scenario, item)).collect();
    walls.sort_unstable();
    let p50_ns = walls[walls.len() / 2];
    assert!((93_300_000_000..93_900_000_000).contains(&p50_ns), "p50 is {p50_ns} ns");
    assert!((155_000..157_500).contains(&(cost / runs)), "{} micro-USD a run", cost / runs);
    assert!((15_400..15_900).contains(&(cost / calls)), "{} micro-USD a call", cost / calls);
    assert!((98..102).contains(&(calls * 10 / runs)), "{calls} calls in {runs} runs");
}

#[test]
fn contention_demands_four_times_the_cap() {
    let scenario = catalogue::find("contention").expect("contention is in the catalogue");
    let list = workload::draw(&scenario, 7);
    let costs: Vec<Option<MicroUsd>> = list
        .agents
        .iter()
        .flatten()
        .flat_map(|item| &item.units)
        .map(|unit| scenario.provider.price.cost(unit.most))
        .collect();
    assert_eq!(costs, vec![Some(MicroUsd(10_000_000)); 40]);
    assert_eq!(scenario.caps.user_day, MicroUsd(100_000_000));
}

#[test]
fn standbys_have_their_workers_runs() {
    let list = draw(takeover::WORKLOAD, 7, 3, 7);
    let runs = |agent: usize| list.agents[agent].iter().map(|item| item.run).collect::<Vec<_>>();
    let stands_by: Vec<bool> = list.agents.iter().map(|items| items.iter().all(|item| item.stands_by)).collect();
    assert_eq!(stands_by, [false, true, true, false, true, true, false]);
    assert_eq!((runs(0), runs(3)), (runs(2), runs(5)));
    assert_ne!(runs(0), runs(3));
}

#[test]
fn each_workload_has_a_name_of_its_own_and_an_unknown_one_is_refused_with_those_there_are() {
    for workload in workload::ALL.iter().copied() {
        let named: Vec<Workload> = workload::ALL.iter().copied().filter(|other| other.name == workload.name).collect();
        assert_eq!(named, [workload]);
        assert_eq!(Workload::named(workload.name), Some(workload));
    }
    let fleet = include_str!("../../catalogue/fleet.toml");
    let text = fleet.replacen("workload = \"research\"", "workload = \"juggle\"", 1);
    let error = scenarios::catalogue::parse(&text, "own.toml").expect_err("there is none").to_string();
    for words in ["own.toml", "no workload `juggle`", "research, contention", "scenarios/src/workload/mod.rs"] {
        assert!(error.contains(words), "{error}\nwithout: {words}");
    }
}
