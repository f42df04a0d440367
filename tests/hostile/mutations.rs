//! Valid inputs, changed at random.

use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::corpus::{self, Sample};
use crate::measure::cost;
use crate::mutate::{mutated, mutated_inside, Random};
use crate::targets;

const SEED: u64 = 0xc054_1015;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text} is no number")),
    )
}

/// Runs `each` with random numbers: `rounds` times, or for FUZZ_SECONDS.
fn rounds(what: &str, rounds: u64, mut each: impl FnMut(u64, &mut Random)) {
    let seed = number("FUZZ_SEED").unwrap_or(SEED);
    let until = number("FUZZ_SECONDS").map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let mut count = 0;
    while until.map_or(count < rounds, |until| Instant::now() < until) {
        // Each round has a seed of its own, so that one round can be had again alone.
        each(count, &mut Random(seed.wrapping_add(count)));
        count += 1;
    }
    eprintln!("{what}: {count} rounds from FUZZ_SEED={seed}");
}

/// Runs `target` on `bytes`; an input that fails is kept.
fn judged(what: &str, round: u64, bytes: &[u8], flat_bytes: usize, target: impl FnOnce(&[u8])) {
    let (outcome, cost) = cost(|| catch_unwind(AssertUnwindSafe(|| target(bytes))));
    let outcome =
        outcome.and_then(|()| catch_unwind(|| cost.must_fit(what, bytes.len(), flat_bytes)));
    if let Err(panic) = outcome {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("out/fuzz");
        let path = folder.join(format!("{what}.{round}"));
        let _ = std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&path, bytes));
        let seed = number("FUZZ_SEED").unwrap_or(SEED).wrapping_add(round);
        eprintln!(
            "{what}: FUZZ_SEED={seed} fails in its first round; the input is {}",
            path.display()
        );
        resume_unwind(panic);
    }
}

fn change(random: &mut Random, samples: &[Sample]) -> (&'static str, Vec<u8>) {
    let others: Vec<&[u8]> = samples
        .iter()
        .map(|sample| sample.bytes.as_slice())
        .collect();
    let sample = random.pick(samples);
    let inside = match random.below(2) {
        0 => mutated_inside(random, &sample.bytes, &others),
        _ => None,
    };
    (
        sample.name,
        inside.unwrap_or_else(|| mutated(random, &sample.bytes, &others)),
    )
}

#[test]
fn changed_traces_are_read_or_refused() {
    let samples = corpus::traces();
    rounds("traces", 4_000, |round, random| {
        let (name, bytes) = change(random, &samples);
        // The pools of the policies have tables of a size of their own.
        judged(
            &format!("trace-{}", name.replace(" ", "-")),
            round,
            &bytes,
            64 << 20,
            targets::trace,
        );
    });
}

#[test]
fn changed_reports_are_read_or_refused() {
    let samples = corpus::reports();
    rounds("reports", 3_000, |round, random| {
        let (name, bytes) = change(random, &samples);
        let print = random.below(60) == 0;
        judged(&format!("report-{name}"), round, &bytes, 1 << 20, |bytes| {
            targets::report(bytes, print)
        });
    });
}

#[test]
fn changed_settings_are_read_or_warned_of() {
    let samples = corpus::settings();
    rounds("settings", 4_000, |round, random| {
        let values: Vec<Vec<u8>> = (0..cushion::config::VARIABLES.len())
            .map(|_| match random.below(3) {
                0 => random.pick(&samples).bytes.clone(),
                _ => change(random, &samples).1,
            })
            .map(|value| value.into_iter().filter(|&byte| byte != 0).collect())
            .collect();
        let whole = values.join(&b'\n');
        judged("settings", round, &whole, 1 << 20, |_| {
            targets::settings(&values)
        });
    });
}

#[test]
fn changed_handles_are_decoded_or_refused() {
    let samples = corpus::handles();
    rounds("handles", 20_000, |round, random| {
        let (_, bytes) = change(random, &samples);
        judged("handle", round, &bytes, 1 << 16, targets::handle);
    });
}
