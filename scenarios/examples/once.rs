#![allow(clippy::all, missing_docs, clippy::print_stdout)]
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let scenario = scenarios::catalogue::find(&args[1]).unwrap();
    let (a, b): (u64, u64) = (args[2].parse().unwrap(), args[3].parse().unwrap());
    let mut choices = scenarios::runner::Choices::default();
    for arg in &args[4..] {
        if let Some(bug) = arg.strip_prefix("bug=") { choices.bugs.push(kernel::planted::Bug::named(bug).unwrap()); }
        if arg == "none" { choices.plan = scenarios::runner::PlanChoice::None; }
        if let Some(n) = arg.strip_prefix("agents=") { choices.agents = Some(n.parse().unwrap()); }
        if let Some(n) = arg.strip_prefix("for=") { choices.lasts = Some(std::time::Duration::from_secs(n.parse().unwrap())); }
        if let Some(n) = arg.strip_prefix("arrivals=") {
            choices.arrivals = Some(std::sync::Arc::new(scenarios::workload::arrivals::Arrivals::read(std::fs::File::open(n).unwrap()).unwrap()));
            choices.plan = scenarios::runner::PlanChoice::None;
        }
    }
    let verbose = args.iter().any(|arg| arg == "v");
    for seed in a..b {
        let spec = scenarios::runner::spec(&scenario, seed, &choices).unwrap();
        let run = scenarios::runner::play(&spec).unwrap();
        let r = &run.report;
        println!("{seed} {:?} {} {:.1}ms virt {:.1}s events {} polls {} faults {} opens {} kills {} runs {}/{} served {} {:?}", r.verdict, &r.history_hash[..8], r.wall_ns as f64/1e6, r.virtual_ns as f64/1e9, r.events, r.stats.polls, r.faults, r.figures.ledger_opens, r.figures.kills, r.figures.runs_ended, r.figures.runs_complete, r.figures.calls_served, r.broken);
        if verbose { println!("{}", scenarios::runner::drawn(&spec.scenario, seed)); println!("{:#?}", r); println!("{}", spec.plan.to_toml()); }
    }
}
