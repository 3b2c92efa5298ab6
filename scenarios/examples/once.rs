#![allow(clippy::all, missing_docs, clippy::print_stdout)]
fn main() {
    let args: Vec<String> = std::env::args().collect();
    if args[1] == "power" {
        let n: u64 = args[2].parse().unwrap();
        std::panic::set_hook(Box::new(|_| {}));
        let all = scenarios::catalogue::all();
        for bug in kernel::planted::Bug::ALL {
            let choices = scenarios::runner::Choices { bugs: vec![bug], ..Default::default() };
            let mut by: std::collections::BTreeMap<String, (u64, u64, u64, std::collections::BTreeMap<String, u64>)> = Default::default();
            let mut first = None;
            for seed in 0..n {
                let sc = &all[(seed % all.len() as u64) as usize];
                let spec = scenarios::runner::spec(sc, seed, &choices).unwrap();
                let r = scenarios::runner::play(&spec).unwrap().report;
                let e = by.entry(r.scenario.clone()).or_default();
                e.0 += 1;
                if r.reached.iter().any(|(b, _)| b == bug.name()) { e.1 += 1; }
                if let Some(b) = &r.broken { e.2 += 1; *e.3.entry(b.invariant.clone()).or_default() += 1; first.get_or_insert(seed); }
            }
            println!("{}: first {first:?}", bug.name());
            for (s, (n, reached, caught, which)) in by { println!("   {s}: {n} runs, reached {reached}, caught {caught} {which:?}"); }
        }
        return;
    }
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
        println!("{seed} {:?} {} {:.1}ms virt {:.1}s diskops {} events {} polls {} faults {} opens {} kills {} runs {}/{} served {} {:?}", r.verdict, &r.history_hash[..8], r.wall_ns as f64/1e6, r.virtual_ns as f64/1e9, r.stats.disk_operations, r.events, r.stats.polls, r.faults, r.figures.ledger_opens, r.figures.kills, r.figures.runs_ended, r.figures.runs_complete, r.figures.calls_served, r.broken);
        if verbose { println!("{}", scenarios::runner::drawn(&spec.scenario, seed)); println!("{:#?}", r); println!("{}", spec.plan.to_toml()); }
    }
}
