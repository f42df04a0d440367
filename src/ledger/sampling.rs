//! Which allocations have their call stack taken.
//!
//! `off`: none. `all`: every one, with weight 1. `sampled`: the first [`FIRST_COUNT`] of the process, with weight 1 (a
//! program's long-lived memory is often made at its start, and small programs are covered whole); after that, on each
//! thread, one at random in every [`INTERVAL`] consecutive allocations, with that weight.
//!
//! The estimate is unbiased: each allocation is taken with a probability (1, or 1 / [`INTERVAL`]) that depends on nothing
//! but its number, and counts for the inverse. The random place within the run of [`INTERVAL`] keeps a program that
//! allocates in a fixed rhythm from being sampled always at the same line.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::Weight;
use crate::config::Stacks;

/// So many first allocations are all taken.
pub const FIRST_COUNT: u64 = 1024;
/// Later, one of so many.
pub const INTERVAL: u64 = 1 << INTERVAL_LOG2;
const INTERVAL_LOG2: u8 = 6;

/// One thread's place in the sampling. Made for constant-initialised thread-local storage.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sampler {
    random: u64,
    left: u8,
    pick: u8,
}

impl Sampler {
    /// A thread that has not allocated yet.
    pub const fn new() -> Self {
        Sampler {
            random: 0,
            left: 0,
            pick: 0,
        }
    }
}

/// The sampling of one process.
#[derive(Debug)]
pub struct Sampling {
    stacks: Stacks,
    seen: AtomicU64,
    threads: AtomicU64,
}

/// What was sampled, for the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SamplingRule {
    /// The setting.
    pub stacks: Stacks,
    /// So many first allocations of the process are all taken (`sampled` only).
    pub first_count: u64,
    /// Later one of so many is taken (`sampled` only).
    pub interval: u64,
}

impl Default for SamplingRule {
    fn default() -> Self {
        Sampling::new(Stacks::Sampled).rule()
    }
}

impl Sampling {
    /// Nothing seen yet.
    pub const fn new(stacks: Stacks) -> Self {
        Sampling {
            stacks,
            seen: AtomicU64::new(0),
            threads: AtomicU64::new(0),
        }
    }

    /// Whether this allocation is taken, and with which weight.
    pub fn decide(&self, sampler: &mut Sampler) -> Option<Weight> {
        match self.stacks {
            Stacks::Off => None,
            Stacks::All => Some(Weight::ONE),
            Stacks::Sampled if self.is_among_first() => Some(Weight::ONE),
            Stacks::Sampled => self
                .draw(sampler)
                .then_some(Weight::from_log2(INTERVAL_LOG2)),
        }
    }

    /// The rule in force.
    pub fn rule(&self) -> SamplingRule {
        SamplingRule {
            stacks: self.stacks,
            first_count: FIRST_COUNT,
            interval: INTERVAL,
        }
    }

    /// Counts only while it matters, so that threads do not share a cache line for ever.
    fn is_among_first(&self) -> bool {
        self.seen.load(Relaxed) < FIRST_COUNT && self.seen.fetch_add(1, Relaxed) < FIRST_COUNT
    }

    fn draw(&self, sampler: &mut Sampler) -> bool {
        if sampler.left == 0 {
            if sampler.random == 0 {
                sampler.random = self.threads.fetch_add(1, Relaxed).wrapping_add(1);
            }
            sampler.random = sampler.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
            sampler.left = INTERVAL as u8;
            sampler.pick = (mix(sampler.random) % INTERVAL) as u8;
        }
        sampler.left -= 1;
        sampler.left == sampler.pick
    }
}

/// The output function of SplitMix64.
fn mix(mut z: u64) -> u64 {
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn off_takes_none_and_all_takes_all() {
        let mut sampler = Sampler::new();
        assert_eq!(Sampling::new(Stacks::Off).decide(&mut sampler), None);
        assert_eq!(
            Sampling::new(Stacks::All).decide(&mut sampler),
            Some(Weight::ONE)
        );
    }

    #[test]
    fn the_first_are_all_taken_then_one_in_each_run() {
        let sampling = Sampling::new(Stacks::Sampled);
        let mut sampler = Sampler::new();
        for _ in 0..FIRST_COUNT {
            assert_eq!(sampling.decide(&mut sampler), Some(Weight::ONE));
        }
        for _ in 0..100 {
            let run: Vec<_> = (0..INTERVAL)
                .filter_map(|_| sampling.decide(&mut sampler))
                .collect();
            assert_eq!(run, [Weight::from_log2(INTERVAL_LOG2)]);
        }
    }

    /// A rhythm that a plain "every 64th" would sample at one place only, and threads that end early.
    #[test]
    fn estimates_are_unbiased() {
        let sampling = Sampling::new(Stacks::Sampled);
        sampling.seen.store(FIRST_COUNT, Relaxed);
        let mut estimate = [0u64; 16];
        for _ in 0..200_000 {
            let mut sampler = Sampler::new();
            for site in &mut estimate {
                *site += sampling.decide(&mut sampler).map_or(0, Weight::value);
            }
        }
        for (place, estimate) in estimate.iter().enumerate() {
            assert!(
                (180_000..220_000).contains(estimate),
                "place {place}: {estimate} of 200,000"
            );
        }
    }
}
