//! One suite of scenarios, run over every kind of backing. Each ends with everything freed and given back.

mod pool_support;

use std::sync::Arc;

use cushion::pool::{
    Backing, BackingError, BlockState, Budget, Found, FreeMode, FreeOutcome, Origin, Pool, Refusal,
    SegmentKind, Settings,
};
use pool_support::program::{assert_nothing_left, Program};
use pool_support::watched::Watched;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// A backing and a pool, as one scenario wants them.
struct Fixture {
    capacity_bytes: u64,
    limit_bytes: Option<u64>,
    sole_stream: bool,
    has_pages: bool,
    settings: Settings,
}

impl Fixture {
    /// Memory and limit without end, plain segments.
    fn roomy(sole_stream: bool, settings: Settings) -> Self {
        Fixture {
            capacity_bytes: 1 << 40,
            limit_bytes: None,
            sole_stream,
            has_pages: false,
            settings,
        }
    }

    fn run(&self, scenario: impl Fn(&mut Program)) {
        let backing = Watched::new(self.capacity_bytes, self.settings.scrub.is_some())
            .with_pages(self.has_pages);
        backing
            .sole_stream
            .store(self.sole_stream, std::sync::atomic::Ordering::SeqCst);
        let pool = Pool::new(self.settings, Arc::new(Budget::new(self.limit_bytes)));
        let mut program = Program::new(&pool, &backing);
        scenario(&mut program);
        pool.check();
        program.end();
        assert_nothing_left(&pool, &backing, || backing.reserved_bytes());
    }
}

/// Every mode over every kind of backing.
fn fixtures() -> Vec<Fixture> {
    let mut all = Vec::new();
    for scrub in [None, Some(0), Some(0xAB)] {
        for alignment_bytes in [64 * KIB, 2 * MIB] {
            for max_split_size_bytes in [None, Some(16 * MIB)] {
                for (sole_stream, limit_bytes, has_pages) in [
                    (true, None, false),
                    (false, None, false),
                    (false, Some(512 * MIB), false),
                    (true, None, true),
                    (false, None, true),
                    (false, Some(512 * MIB), true),
                ] {
                    let settings = Settings {
                        scrub,
                        alignment_bytes,
                        max_split_size_bytes,
                        ..Settings::default()
                    };
                    let capacity_bytes = if limit_bytes.is_some() {
                        1 << 40
                    } else {
                        512 * MIB
                    };
                    all.push(Fixture {
                        capacity_bytes,
                        limit_bytes,
                        sole_stream,
                        has_pages,
                        settings,
                    });
                }
            }
        }
    }
    all
}

fn each(scenario: impl Fn(&mut Program)) {
    for fixture in fixtures() {
        fixture.run(&scenario);
    }
}

#[test]
fn a_freed_block_is_used_again() {
    each(|program| {
        for size_bytes in [1, 512, 513, MIB, MIB + 1, 9 * MIB, 40 * MIB] {
            let first = program.allocate(size_bytes, false, false).unwrap();
            program.free(0, false, false);
            let second = program.allocate(size_bytes, false, false).unwrap();
            // With several streams another block that is behind a barrier goes before one that is not; with scrubbing, clean
            // memory of the small pool goes before dirty.
            let scrubs = program.pool.settings().scrub.is_some();
            if (program.backing.sole_stream() && !scrubs) || (scrubs && size_bytes > MIB) {
                assert_eq!(first.range, second.range);
            }
            assert_ne!(first.sequence, second.sequence);
            program.free(0, false, false);
        }
        let stats = program.pool.stats();
        assert!(stats.hits >= 7, "{} hits", stats.hits);
    });
}

#[test]
fn everything_coalesces() {
    each(|program| {
        for index in 0..300u64 {
            program.allocate(1 + index * 37 * KIB, false, false).ok();
        }
        for step in [3, 2] {
            let mut index = 0;
            while index < program.live.len() {
                program.free(index, false, false);
                index += step;
            }
        }
        while !program.live.is_empty() {
            program.free(program.live.len() / 2, false, false);
        }
        let snapshot = program.pool.snapshot();
        for segment in &snapshot.segments {
            assert_eq!(segment.blocks.len(), 1, "a segment is one free block again");
        }
    });
}

#[test]
fn the_wrong_address_is_answered_as_the_driver_does() {
    each(|program| {
        let live = program.allocate(3000, false, false).unwrap();
        let base = live.range.address;
        let free = |address| {
            program
                .pool
                .free(program.backing, address, FreeMode::default())
        };
        assert_eq!(free(base + 512), FreeOutcome::NotLive);
        assert_eq!(free(base + 1), FreeOutcome::NotLive);
        assert_eq!(free(0), FreeOutcome::NotMine);
        assert_eq!(free(64), FreeOutcome::NotMine);
        assert_eq!(program.pool.find(1), Found::NotMine);
        assert_eq!(program.pool.find(u64::MAX), Found::NotMine);
        assert!(matches!(program.pool.find(base + 2999), Found::Live(_)));
        assert_eq!(
            program.pool.find(base + 3000),
            Found::Dead,
            "past the requested size"
        );
        program.free(0, false, false);
        let again = program
            .pool
            .free(program.backing, base, FreeMode::default());
        assert_eq!(again, FreeOutcome::NotLive, "a double free");
        assert_eq!(program.pool.find(base), Found::Dead);
    });
}

#[test]
fn too_large_is_refused_unseen() {
    each(|program| {
        for size_bytes in [u64::MAX, u64::MAX - 511, 1 << 63, (1 << 56) + 1] {
            let calls = program.backing.calls();
            let answer = program.allocate(size_bytes, false, false);
            assert_eq!(answer.err(), Some(Refusal::TooLarge));
            assert_eq!(program.backing.calls(), calls);
        }
        for size_bytes in [1 << 56, 1 << 50] {
            let answer = program.allocate(size_bytes, false, false);
            assert!(matches!(
                answer,
                Err(Refusal::Driver | Refusal::Limit { .. })
            ));
        }
    });
}

#[test]
fn all_of_the_memory_can_be_had_and_had_again() {
    each(|program| {
        for size_bytes in [64 * MIB, 30 * MIB, 256 * KIB, 512 * MIB] {
            while program.allocate(size_bytes, false, false).is_ok() {}
            let live_bytes: u64 = program.live.iter().map(|live| live.range.size_bytes).sum();
            assert!(
                live_bytes + size_bytes + 2 * MIB > 500 * MIB,
                "{live_bytes} of {size_bytes}"
            );
            while !program.live.is_empty() {
                program.free(0, false, false);
            }
        }
        let stats = program.pool.stats();
        assert!(stats.refused_by_limit + stats.refused_by_driver >= 4);
        assert_eq!(
            stats.refused_by_limit > 0,
            program.pool.budget().limit_bytes().is_some()
        );
    });
}

#[test]
fn a_small_request_is_not_refused_while_the_large_pool_has_room() {
    each(|program| {
        while program.allocate(8 * MIB, false, false).is_ok() {}
        program.free(3, false, false);
        program.allocate(5 * MIB, false, false).unwrap();
        let needed_bytes = |program: &Program| {
            let usage = program.pool.usage();
            usage.reserved_bytes - usage.unneeded_bytes()
        };
        let before = needed_bytes(program);
        program.allocate(100, false, false).unwrap();
        // Wherever it was cut from, it takes no more than natively from what is shown as free.
        assert_eq!(needed_bytes(program), before + 512);
    });
}

#[test]
fn while_capturing_nothing_is_asked_of_the_context() {
    each(|program| {
        for size_bytes in [2000, 3 * MIB] {
            program.allocate(size_bytes, false, false).unwrap();
            program.free(0, true, true);
            // The backing panics if it is asked for more than memory.
            let second = program.allocate(size_bytes, true, false).unwrap();
            let fresh = program.pool.find(second.range.address);
            assert!(matches!(fresh, Found::Live(_)));
            program.free(0, false, true);
        }
    });
}

#[test]
fn an_isolated_block_is_alone_and_really_freed() {
    each(|program| {
        let live = program.allocate(3 * MIB, false, true).unwrap();
        let snapshot = program.pool.snapshot();
        assert_eq!(snapshot.segments[0].kind, SegmentKind::Isolated);
        assert!(matches!(program.pool.find(live.range.address), Found::Live(b) if b.whole_segment));
        program.free(0, false, false);
        assert_eq!(program.backing.reserved_bytes(), 0);
        program.allocate(3 * MIB, false, true).unwrap();
        program.free(0, false, true);
        assert!(program.backing.reserved_bytes() > 0, "not while capturing");
    });
}

#[test]
fn a_held_block_comes_back_after_its_last_hold() {
    each(|program| {
        let first = program.allocate(5000, false, false).unwrap();
        program.hold(0);
        program.hold(0);
        program.free(0, false, false);
        assert_eq!(program.pool.usage().held_bytes, first.range.size_bytes);
        let other = program.allocate(5000, false, false).unwrap();
        assert_ne!(other.range, first.range);
        program.unhold_freed(0);
        program.unhold_freed(0);
        assert_eq!(program.pool.usage().held_bytes, 0);
        assert!(!program.pool.unhold(first.range.address));
        assert!(!program.pool.hold(first.range.address), "it is free");
    });
}

#[test]
fn a_retired_block_is_never_handed_out_again() {
    each(|program| {
        let first = program.allocate(5000, false, false).unwrap();
        program.allocate(5000, false, false).unwrap();
        program.retire(0);
        program.free(0, false, false);
        let snapshot = program.pool.snapshot();
        let blocks = snapshot.segments.iter().flat_map(|segment| &segment.blocks);
        let held: u64 = blocks
            .filter(|block| block.state == BlockState::Held)
            .map(|block| block.size_bytes)
            .sum();
        assert_eq!(held, first.range.size_bytes);
        while program.live.len() < 500 {
            program.allocate(5000, false, false).unwrap();
        }
    });
}

#[test]
fn a_host_wait_waits_and_leaves_nothing_to_fence() {
    each(|program| {
        program.allocate(4 * MIB, false, false).unwrap();
        program.free(0, true, false);
        let before = program.pool.stats();
        assert_eq!(before.host_waits, 1);
        assert_eq!(before.active_bytes.current, 0);
        program.allocate(4 * MIB, false, false).unwrap();
        assert_eq!(program.pool.stats().fences, before.fences);
    });
}

#[test]
fn one_barrier_serves_every_block_freed_before_it() {
    let settings = Settings {
        scrub: None,
        ..Settings::default()
    };
    let fixture = Fixture::roomy(false, settings);
    fixture.run(|program| {
        for _ in 0..100 {
            program.allocate(4000, false, false).unwrap();
        }
        while !program.live.is_empty() {
            program.free(0, false, false);
        }
        for _ in 0..100 {
            program.allocate(4000, false, false).unwrap();
        }
        assert_eq!(program.pool.stats().fences, 1);
    });
}

#[test]
fn a_small_block_asked_for_again_is_cut_beside_the_dirt() {
    let fixture = Fixture::roomy(true, Settings::default());
    fixture.run(|program| {
        for round in 0..20 {
            let block = program.allocate(4096, false, false).unwrap();
            let above = program.allocate(512, false, false).unwrap();
            assert_eq!(above.range.address, block.range.address + 4096);
            assert_eq!(program.pool.stats().scrubbed_bytes, 0, "round {round}");
            program.free(0, false, false);
            program.free(0, false, false);
            program.pool.check();
        }
        let scrubbed = program.pool.scrub_ahead(program.backing, u64::MAX);
        assert_eq!(scrubbed, 20 * (4096 + 512));
        assert_eq!(program.pool.stats().segments.current, 1);
    });
}

#[test]
fn blocks_scrubbed_ahead_need_one_join_and_no_scrub() {
    let fixture = Fixture::roomy(false, Settings::default());
    fixture.run(|program| {
        for _ in 0..10 {
            program.allocate(6 * MIB, false, false).unwrap();
        }
        while !program.live.is_empty() {
            program.free(0, false, false);
        }
        assert_eq!(
            program.pool.scrub_ahead(program.backing, u64::MAX),
            60 * MIB
        );
        assert_eq!(program.pool.scrub_ahead(program.backing, u64::MAX), 0);
        let calls = program.backing.calls();
        for _ in 0..10 {
            program.allocate(6 * MIB, false, false).unwrap();
        }
        assert_eq!(
            program.backing.calls() - calls,
            1,
            "one call makes all of them ready"
        );
        assert_eq!(program.pool.stats().scrubbed_bytes, 60 * MIB);
    });
}

#[test]
fn a_scrub_that_a_request_needs_takes_other_dirt_along() {
    let fixture = Fixture::roomy(false, Settings::default());
    fixture.run(|program| {
        // More than what goes along: the rest is scrubbed when it is asked for itself.
        program.allocate(300 * MIB, false, false).unwrap();
        for _ in 0..10 {
            program.allocate(6 * MIB, false, false).unwrap();
        }
        while program.live.len() > 1 {
            program.free(1, false, false);
        }
        program.free(0, false, false);
        let calls = program.backing.calls();
        for _ in 0..10 {
            program.allocate(6 * MIB, false, false).unwrap();
        }
        assert_eq!(
            program.backing.calls() - calls,
            2,
            "one scrub and its join make all of them ready"
        );
        assert_eq!(program.pool.stats().scrubbed_bytes, (60 + 64) * MIB);
        program.allocate(300 * MIB, false, false).unwrap();
        assert_eq!(program.pool.stats().scrubbed_bytes, 360 * MIB);
    });
}

#[test]
fn dirt_in_many_stretches_takes_few_fills() {
    let fixture = Fixture::roomy(true, Settings::default());
    for error in [None, Some(BackingError::Failed(700))] {
        fixture.run(|program| {
            // A segment of which every other granule is dirty, but for a large part in the midst.
            let blocks: Vec<u64> = (0..4096)
                .map(|_| program.allocate(512, false, false).unwrap().range.address)
                .collect();
            let first = blocks[0];
            for index in (0..blocks.len()).rev() {
                let granule = (program.live[index].range.address - first) / 512;
                if granule.is_multiple_of(2) || (1000..3000).contains(&granule) {
                    program.free(index, false, false);
                    program.pool.scrub_ahead(program.backing, u64::MAX);
                }
            }
            while !program.live.is_empty() {
                program.free(0, false, false);
            }
            let (fills, bytes) = (
                program.backing.scrub_ranges(),
                program.pool.stats().scrubbed_bytes,
            );
            if let Some(error) = error {
                // The first call joins what was scrubbed ahead.
                program.backing.fail_after(1, error);
                program.allocate(MIB, false, false).unwrap_err();
                // What was clean between the stretches may be half filled.
                for _ in 0..8 {
                    program.allocate(512, false, false).unwrap();
                }
                return;
            }
            let large = program.allocate(MIB, false, false).unwrap();
            assert_eq!(large.range.address, first, "the block with the stretches");
            let fills = program.backing.scrub_ranges() - fills;
            let bytes = program.pool.stats().scrubbed_bytes - bytes;
            assert!((1..=64).contains(&fills), "{fills} fills");
            assert!(bytes < 600 * KIB, "{bytes} bytes: the large part is clean");
        });
    }
}

#[test]
fn an_oversize_block_is_clean_as_a_whole_or_not_at_all() {
    let settings = Settings {
        max_split_size_bytes: Some(4 * MIB),
        alignment_bytes: 64 * KIB,
        growth_slack_percent: 1000,
        ..Settings::default()
    };
    for capturing in [false, true] {
        let fixture = Fixture::roomy(true, settings);
        fixture.run(|program| {
            let large = program.allocate(5 * MIB, false, false).unwrap();
            program.free(0, false, false);
            // Each the first half of what is dirty.
            let mut clean_bytes = 0;
            for most_bytes in [5 * MIB, 5 * MIB / 2, 5 * MIB / 4] {
                clean_bytes += program.pool.scrub_ahead(program.backing, most_bytes);
            }
            let wanted_bytes = 4 * MIB + MIB / 4;
            assert!((wanted_bytes..5 * MIB).contains(&clean_bytes));
            // A scrub joins the short one before it.
            program.allocate(512, false, false).unwrap();
            program.free(0, false, false);
            assert_eq!(program.pool.scrub_ahead(program.backing, 512), 512);
            let small = program.allocate(wanted_bytes, capturing, false).unwrap();
            let is_same = small.range.address == large.range.address;
            assert_eq!(is_same, !capturing, "scrubbed, or not to be had");
        });
    }
}

#[test]
fn what_is_left_of_a_dirty_block_is_scrubbed_along() {
    let fixture = Fixture::roomy(true, Settings::default());
    fixture.run(|program| {
        // All of the segment, from one block to the next.
        let calls = (0..3 * 2 * MIB / 4096).map(|_| {
            program.allocate(4096, false, false).unwrap();
            program.free(0, false, false);
            program.backing.calls()
        });
        let calls: Vec<u64> = calls.collect();
        let scrubs = calls.windows(2).filter(|pair| pair[0] < pair[1]).count();
        assert_eq!(scrubs, 2, "one each time all of it is dirty");
        assert_eq!(
            program.backing.scrub_ranges(),
            2,
            "the block and the rest in one piece"
        );
        assert_eq!(program.pool.stats().scrubbed_bytes, 2 * 2 * MIB);
    });
}

#[test]
fn oversize_blocks_stay_whole_and_go_first() {
    let settings = Settings {
        max_split_size_bytes: Some(16 * MIB),
        scrub: None,
        ..Settings::default()
    };
    let fixture = Fixture::roomy(true, settings);
    fixture.run(|program| {
        program.allocate(100 * MIB, false, false).unwrap();
        program.free(0, false, false);
        let small = program.allocate(20 * MIB, false, false).unwrap();
        assert_eq!(small.range.size_bytes, 20 * MIB, "not the block of 100 MiB");
        for size_mib in (20..200).step_by(7) {
            program.allocate(size_mib * MIB, false, false).unwrap();
            program.free(1, false, false);
            let usage = program.pool.usage();
            let peak = program.pool.stats().allocated_bytes.peak;
            assert!(
                usage.reserved_bytes <= peak + peak / 20,
                "reserved memory runs away"
            );
        }
    });
}

#[test]
fn a_grant_says_where_it_came_from() {
    // With slack, so that the idle segment is not given back when the pool grows.
    let settings = Settings {
        scrub: None,
        growth_slack_percent: 1000,
        large_segment_bytes: 2 * MIB,
        ..Settings::default()
    };
    let backing = Watched::new(1 << 40, false);
    let pool = Pool::new(settings, Arc::new(Budget::new(None)));
    let request = cushion::pool::Request {
        size_bytes: 3 * MIB,
        tag: 9,
        capturing: false,
        isolated: false,
    };
    let first = pool.allocate(&backing, request).unwrap();
    assert_eq!(first.origin, Origin::Grown);
    pool.free(&backing, first.address, FreeMode::default());
    // A fence that cannot be had: the block is left alone.
    backing.fail_after(0, BackingError::Unavailable);
    let second = pool.allocate(&backing, request).unwrap();
    assert_ne!(second.address, first.address);
    let third = pool.allocate(&backing, request).unwrap();
    assert_eq!((third.origin, third.address), (Origin::Hit, first.address));
}

/// A pool that keeps blocks in front, over a backing whose one stream is a barrier for all.
fn with_a_front() -> (Pool, Watched) {
    let settings = Settings {
        scrub: None,
        ..Settings::default()
    };
    let backing = Watched::new(512 * MIB, false);
    backing
        .sole_stream
        .store(true, std::sync::atomic::Ordering::SeqCst);
    (Pool::new(settings, Arc::new(Budget::new(None))), backing)
}

#[test]
fn a_block_freed_lately_is_free_for_everybody() {
    let (pool, backing) = with_a_front();
    let mut program = Program::new(&pool, &backing);
    // Twice, so that the second free is that of a block which was handed out again.
    for _ in 0..2 {
        let live = program.allocate(700, false, false).unwrap();
        program.free(0, false, false);
        let base = live.range.address;
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                assert_eq!(pool.find(base), Found::Dead);
                assert_eq!(pool.find(base + 100), Found::Dead);
                let again = pool.free(&backing, base, FreeMode::default());
                assert_eq!(again, FreeOutcome::NotLive, "a second free");
                assert!(!pool.hold(base) && !pool.retire_on_free(base));
            });
            other.join().unwrap();
        });
    }
    let stats = pool.stats();
    assert_eq!(
        (stats.allocations.peak, stats.allocations.total, stats.hits),
        (1, 2, 1)
    );
    assert_eq!(stats.requested_bytes.peak, 700);
    assert_eq!(stats.allocated_bytes.current, 0);
    assert_eq!(
        stats.active_bytes.current, 1024,
        "freed, not behind a barrier"
    );
    assert_eq!(pool.usage().cached_bytes(), stats.reserved_bytes.current);
    // Another thread gets the memory rather than a new segment.
    let all = pool.usage().reserved_bytes;
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mut other = Program::new(&pool, &backing);
            for size_bytes in [MIB, MIB - 1024, 1024] {
                other.allocate(size_bytes, false, false).unwrap();
            }
            assert_eq!(pool.usage().reserved_bytes, all);
            other.end();
        });
        other.join().unwrap();
    });
    program.end();
    assert_nothing_left(&pool, &backing, || backing.reserved_bytes());
}

#[test]
fn a_peak_is_seen_between_two_looks() {
    let (pool, backing) = with_a_front();
    let mut program = Program::new(&pool, &backing);
    for size_bytes in [512, 1024] {
        program.allocate(size_bytes, false, false).unwrap();
    }
    program.free(0, false, false);
    program.free(0, false, false);
    assert_eq!(pool.stats().allocated_bytes.peak, 1536);
    // A third, and the two from the front: the most of all, and over again before anybody looks.
    program.allocate(2048, false, false).unwrap();
    program.allocate(512, false, false).unwrap();
    program.allocate(1024, false, false).unwrap();
    program.free(1, false, false);
    program.free(1, false, false);
    let stats = pool.stats();
    assert_eq!(
        (stats.allocated_bytes.peak, stats.allocations.peak),
        (3584, 3)
    );
    program.end();
}

/// Handles that are free as a whole go back when nothing was allocated from them for long, and no earlier.
#[test]
fn idle_handles_go_back_one_by_one() {
    let backing = Watched::new(1 << 40, true).with_pages(true);
    let pool = Pool::new(Settings::default(), Arc::new(Budget::new(None)));
    let mut program = Program::new(&pool, &backing);
    let kept = program.allocate(8 * MIB, false, false).unwrap();
    for _ in 0..3 {
        program.allocate(40 * MIB, false, false).unwrap();
    }
    pool.tick();
    while program.live.len() > 1 {
        program.free(1, false, false);
    }
    assert!(!pool.has_idle_for(1), "freed in this tick");
    pool.tick();
    assert!(!pool.has_idle_for(1), "free for less than a whole tick");
    pool.tick();
    let reserved_bytes = backing.reserved_bytes();
    let mut released_bytes = 0;
    while pool.has_idle_for(1) {
        let bytes = pool.trim_idle(&backing, 1);
        assert!(bytes > 0, "what is found goes");
        released_bytes += bytes;
    }
    assert!(released_bytes >= 3 * 40 * MIB - 32 * MIB);
    assert_eq!(backing.reserved_bytes(), reserved_bytes - released_bytes);
    assert_eq!(pool.stats().idle_released_bytes, released_bytes);
    assert!(backing.reserved_bytes() >= kept.range.size_bytes);
    pool.check();
    program.end();
    assert_nothing_left(&pool, &backing, || backing.reserved_bytes());
}
