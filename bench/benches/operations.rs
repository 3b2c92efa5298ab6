//! Times every operation. What one preparation does not serve, the next does; preparing is not timed.
#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "the machine's clock is what measures here")]

use criterion::{Criterion, Throughput};
use std::time::{Duration, Instant};

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(3))
        .without_plots()
        .configure_from_args();
    for operation in bench::all() {
        let (group, name) = operation.name.split_once('/').expect("a name is a group and an operation");
        let mut group = criterion.benchmark_group(group);
        group.throughput(Throughput::Elements(operation.elements));
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|times| {
                let (mut left, mut took) = (times, Duration::ZERO);
                while left > 0 {
                    let now = left.min(operation.most as u64);
                    let mut doing = operation.prepare();
                    let began = Instant::now();
                    (0..now).for_each(|_| doing());
                    took += began.elapsed();
                    left -= now;
                }
                took
            });
        });
        group.finish();
    }
    criterion.final_summary();
}
