//! Runs a scenario every way there is.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A number from the environment.
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs `scenario` in every order with at most MODEL_PREEMPTIONS (2) preemptions, for at most MODEL_SECONDS (no bound)
/// each. A scenario that was cut short says so.
pub fn explore(name: &str, scenario: impl Fn() + Send + Sync + 'static) {
    let preemptions = number("MODEL_PREEMPTIONS").unwrap_or(2);
    let seconds = number("MODEL_SECONDS").map(Duration::from_secs);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions as usize);
    builder.max_branches = 100_000;
    builder.max_duration = seconds;
    let count = Arc::new(AtomicU64::new(0));
    let counting = count.clone();
    let started = Instant::now();
    builder.check(move || {
        counting.fetch_add(1, Relaxed);
        scenario();
    });
    let (orders, took) = (count.load(Relaxed), started.elapsed());
    let cut = match seconds {
        Some(bound) if took >= bound => ", stopped before the end",
        _ => "",
    };
    eprintln!(
        "{name}: {orders} orders, {preemptions} preemptions, {:.1} s{cut}",
        took.as_secs_f64()
    );
    assert!(orders > 1, "{name}: there was nothing to interleave");
}
