//! What the pool's tables take, by its own count and by that of the allocator.

mod pool_support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use cushion::pool::{Budget, FreeMode, FreeOutcome, Pool, Request, Settings};
use pool_support::costless::Costless;
use pool_support::random::Random;

const KIB: u64 = 1 << 10;
/// What an allocator adds to each piece, about.
const HEADER_BYTES: u64 = 16;

thread_local! {
    static HELD_BYTES: Cell<u64> = const { Cell::new(0) };
}

/// Counts what each thread holds.
struct Counting;

fn count(more: u64, less: u64) {
    // A thread that ends counts no more.
    let _ = HELD_BYTES.try_with(|held| held.set(held.get().wrapping_add(more).wrapping_sub(less)));
}

// SAFETY: all is the system's, whose contract is the same.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as u64 + HEADER_BYTES, 0);
        // SAFETY: the caller's promise is the system's.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        count(0, layout.size() as u64 + HEADER_BYTES);
        // SAFETY: as above.
        unsafe { System.dealloc(place, layout) }
    }
    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as u64, layout.size() as u64);
        // SAFETY: as above.
        unsafe { System.realloc(place, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Bytes of the tables for a live block, by the pool's count and by the allocator's: `live` blocks of sizes by `size`,
/// `replaced` times one of them freed and another allocated.
fn bytes_a_block(
    (settings, sole_stream): (Settings, bool),
    live: u64,
    replaced: u64,
    size: impl Fn(&mut Random) -> u64,
) -> (f64, f64) {
    let backing = Costless::new(sole_stream);
    let mut addresses = Vec::with_capacity(live as usize);
    let before = HELD_BYTES.get();
    let pool = Pool::new(settings, Arc::new(Budget::new(None)));
    let mut random = Random(11);
    let allocate = |random: &mut Random| {
        let request = Request {
            size_bytes: size(random),
            tag: 1,
            capturing: false,
            isolated: false,
        };
        pool.allocate(&backing, request).expect("memory").address
    };
    addresses.extend((0..live).map(|_| allocate(&mut random)));
    for _ in 0..replaced {
        let at = random.below(live) as usize;
        let freed = pool.free(&backing, addresses[at], FreeMode::default());
        assert!(matches!(freed, FreeOutcome::Freed { .. }));
        addresses[at] = allocate(&mut random);
    }
    let held = HELD_BYTES.get().wrapping_sub(before);
    let of = |bytes: u64| bytes as f64 / live as f64;
    (of(pool.host_bytes() as u64), of(held))
}

fn modes() -> [(&'static str, (Settings, bool)); 3] {
    let fast = Settings {
        alignment_bytes: 64 * KIB,
        scrub: None,
        ..Settings::default()
    };
    [
        ("fast, one stream", (fast, true)),
        ("fast, many streams", (fast, false)),
        ("faithful", (Settings::default(), false)),
    ]
}

/// The pool says no less than it takes, but for what the allocator adds to each piece.
fn assert_is_true(what: &str, (counted, held): (f64, f64)) {
    println!("{what}: {counted:.1} bytes a live block, the allocator says {held:.1}");
    assert!(held <= 96.0, "{what}: {held:.1}");
    assert!(
        (counted - held).abs() <= held * 0.05,
        "{what}: {counted:.1} counted, {held:.1} held"
    );
}

#[test]
fn many_blocks_of_mixed_sizes_take_96_bytes_each_at_most() {
    for (name, mode) in modes() {
        for live in [85_000, 100_000, 110_000, 150_000] {
            let what = format!("{name}, {live} live");
            assert_is_true(
                &what,
                bytes_a_block(mode, live, 150_000, |random| random.size_bytes(9..21)),
            );
        }
    }
}

#[test]
fn a_million_blocks_take_96_bytes_each_at_most() {
    for (name, mode) in modes() {
        let small = |random: &mut Random| 512 + random.below(8192);
        assert_is_true(name, bytes_a_block(mode, 1_000_000, 0, small));
    }
}

/// Allocates `count` blocks, and does something to each.
fn each_of(
    pool: &Pool,
    backing: &Costless,
    (count, size_bytes, isolated): (u64, u64, bool),
    with: impl Fn(u64),
) -> Vec<u64> {
    let one = |_| {
        let request = Request {
            size_bytes,
            tag: 1,
            capturing: false,
            isolated,
        };
        let address = pool.allocate(backing, request).expect("memory").address;
        with(address);
        address
    };
    (0..count).map(one).collect()
}

#[test]
fn what_is_kept_beside_the_blocks_is_counted_too() {
    let assert_counted = |what: &str, settings: Settings, fill: &dyn Fn(&Pool, &Costless)| {
        let backing = Costless::new(false);
        let before = HELD_BYTES.get();
        let pool = Box::new(Pool::new(settings, Arc::new(Budget::new(None))));
        fill(&pool, &backing);
        let held = HELD_BYTES.get().wrapping_sub(before);
        let counted = pool.host_bytes() as f64;
        println!("{what}: {counted} bytes counted, the allocator says {held}");
        assert!(
            (counted - held as f64).abs() <= held as f64 * 0.015,
            "{what}: {counted} counted, {held} held"
        );
    };
    let [(_, (fast, _)), _, (_, (faithful, _))] = modes();
    assert_counted("exported blocks", faithful, &|pool, backing| {
        each_of(pool, backing, (20_000, 512, false), |address| {
            assert!(pool.hold(address));
        });
    });
    assert_counted("segments that went back", fast, &|pool, backing| {
        for address in each_of(pool, backing, (50_000, 4 << 20, true), |_| {}) {
            pool.free(backing, address, FreeMode::default());
        }
        pool.trim(backing, 0);
        assert_eq!(pool.stats().reserved_bytes.current, 0);
    });
    assert_counted("a few blocks that are dirty", faithful, &|pool, backing| {
        let blocks = each_of(pool, backing, (300, 512, false), |_| {});
        for address in blocks.into_iter().step_by(2) {
            pool.free(backing, address, FreeMode::default());
            pool.scrub_ahead(backing, 512);
        }
    });
}
