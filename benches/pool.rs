//! Nanoseconds of the pool alone, over a backing that costs nothing. Plain text, one line a case; the lowest of many
//! short rounds, so that a busy machine disturbs little. `cargo bench --bench pool [-- --json FILE]`: the same to a file.

#[path = "../tests/pool_support/costless.rs"]
mod costless;
#[path = "../tests/pool_support/random.rs"]
mod random;

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::Arc;
use std::time::{Duration, Instant};

use costless::Costless;
use cushion::pool::{Budget, FreeMode, Pool, Request, Settings};
use random::Random;

const MIB: u64 = 1 << 20;
/// Octaves from 512 B to 2 MiB.
const MIXED: std::ops::Range<u64> = 9..21;
/// Octaves from 1 MiB to 16 MiB: what array programs hold a few of.
const TENSORS: std::ops::Range<u64> = 20..24;

fn allocate(pool: &Pool, backing: &Costless, size_bytes: u64) -> u64 {
    let request = Request {
        size_bytes,
        tag: 1,
        capturing: false,
        isolated: false,
    };
    pool.allocate(backing, request)
        .map_or(0, |grant| grant.address)
}

fn free(pool: &Pool, backing: &Costless, address: u64) {
    black_box(pool.free(backing, address, FreeMode::default()));
}

/// The lowest time of one operation over `rounds` rounds of `count`.
fn lowest(rounds: usize, count: usize, mut operation: impl FnMut(usize)) -> f64 {
    (0..rounds)
        .map(|_| {
            let start = Instant::now();
            (0..count).for_each(&mut operation);
            start.elapsed().as_nanos() as f64 / count as f64
        })
        .fold(f64::MAX, f64::min)
}

/// The longest that one of many calls under the pool's lock took while `meanwhile` ran, in microseconds.
fn longest_wait(pool: &Pool, meanwhile: impl FnOnce()) -> f64 {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let mut longest = 0f64;
            while !done.load(Relaxed) {
                let start = Instant::now();
                black_box(pool.mark());
                longest = longest.max(start.elapsed().as_secs_f64() * 1e6);
            }
            longest
        });
        meanwhile();
        done.store(true, Relaxed);
        waiter.join().unwrap_or(f64::NAN)
    })
}

/// What was measured: printed at once, and kept for the file.
#[derive(Default)]
struct Figures(Vec<serde_json::Value>);

impl Figures {
    fn add(&mut self, name: &str, value: f64, unit: &str) {
        println!("{name:56}{value:10.1} {unit}");
        self.0
            .push(serde_json::json!({"name": name, "value": value, "unit": unit}));
    }
}

/// What a report asks of a pool with a million live blocks, and what another thread waits for it. What the machine makes
/// a thread wait by itself is measured beside it, turn by turn.
fn report_of_a_million(pool: &Pool, figures: &mut Figures) {
    let backing = Costless::new(true);
    let mut random = Random(7);
    let count = 1_000_000;
    for _ in 0..count {
        allocate(pool, &backing, 512 + random.below(8192));
    }
    let bytes = pool.host_bytes() as f64 / f64::from(count);
    figures.add(
        &format!("metadata, {count} live, none freed"),
        bytes,
        "B a block",
    );
    let mut seconds = f64::MAX;
    let (mut beside, mut alone) = (Vec::new(), Vec::new());
    for _ in 0..WAITS {
        let start = Instant::now();
        black_box(pool.snapshot());
        seconds = seconds.min(start.elapsed().as_secs_f64());
        beside.push(longest_wait(pool, || drop(black_box(pool.snapshot()))));
        alone.push(longest_wait(pool, || {
            std::thread::sleep(Duration::from_secs_f64(seconds));
        }));
    }
    figures.add(&format!("snapshot, {count} live"), seconds * 1e3, "ms");
    for (what, mut waits) in [("", beside), (" (no snapshot)", alone)] {
        waits.sort_by(f64::total_cmp);
        for (which, wait) in [
            ("lowest", waits[0]),
            ("median", waits[WAITS / 2]),
            ("highest", waits[WAITS - 1]),
        ] {
            let name = format!("longest wait for the lock meanwhile, {which}{what}");
            figures.add(&name, wait, "us");
        }
    }
}

/// Snapshots beside which the longest wait of another thread is measured.
const WAITS: usize = 15;

fn one_thread(figures: &mut Figures, name: &str, sole_stream: bool, settings: Settings) {
    let backing = Costless::new(sole_stream);
    for size_bytes in [512, MIB, 64 * MIB] {
        let pool = new_pool(settings);
        let pair = lowest(300, 1000, |_| {
            let address = allocate(&pool, &backing, size_bytes);
            free(&pool, &backing, address);
        });
        figures.add(&format!("{name}, pair of {size_bytes} B"), pair, "ns");
    }
    for (what, octaves, count) in [
        ("mixed", MIXED, 1_000),
        ("mixed", MIXED, 100_000),
        ("tensors", TENSORS, 12),
    ] {
        let pool = new_pool(settings);
        let mut random = Random(5);
        let mut live: Vec<u64> = (0..count)
            .map(|_| allocate(&pool, &backing, random.size_bytes(octaves.clone())))
            .collect();
        let pair = lowest(300, 500, |_| {
            let at = random.below(count) as usize;
            free(&pool, &backing, live[at]);
            live[at] = allocate(&pool, &backing, random.size_bytes(octaves.clone()));
        });
        let name = |figure: &str| format!("{name}, {figure}, {count} live");
        figures.add(&name(&format!("pair, {what}")), pair, "ns");
        let mut at = 0;
        let mut next = || {
            at = (at + 7919) % live.len();
            live[at]
        };
        let base = lowest(300, 500, |_| {
            black_box(pool.find(next()));
        });
        figures.add(&name("find a base"), base, "ns");
        let interior = lowest(300, 500, |_| {
            black_box(pool.find(next() + 100));
        });
        figures.add(&name("find inside"), interior, "ns");
        let bytes = pool.host_bytes() as f64 / count as f64;
        figures.add(&name("metadata"), bytes, "B a block");
    }
}

fn threads(figures: &mut Figures, settings: Settings) {
    let backing = Costless::new(true);
    for threads in [1, 2, 4] {
        let pool = new_pool(settings);
        let pairs = 100_000;
        let start = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    for _ in 0..pairs {
                        let address = allocate(&pool, &backing, 4096);
                        free(&pool, &backing, address);
                    }
                });
            }
        });
        let pair = start.elapsed().as_nanos() as f64 / (threads * pairs) as f64;
        let name = format!("fast, one stream, wall time a pair, {threads} threads");
        figures.add(&name, pair, "ns");
    }
}

fn new_pool(settings: Settings) -> Pool {
    Pool::new(settings, Arc::new(Budget::new(None)))
}

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip_while(|argument| argument != "--json");
    let file = arguments.nth(1);
    let fast = Settings {
        alignment_bytes: 64 << 10,
        scrub: None,
        ..Settings::default()
    };
    let mut figures = Figures::default();
    one_thread(&mut figures, "fast, one stream", true, fast);
    one_thread(&mut figures, "fast, fences", false, fast);
    one_thread(&mut figures, "faithful", false, Settings::default());
    report_of_a_million(&new_pool(fast), &mut figures);
    threads(&mut figures, fast);
    match file {
        Some(file) => std::fs::write(file, serde_json::to_vec_pretty(&figures.0)?),
        None => Ok(()),
    }
}
