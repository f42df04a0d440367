//! Memory taken ahead of need, kept by the slack, and given back when it is idle for long or the limit comes near.

mod pool_support;

use std::sync::Arc;

use cushion::pool::{Budget, Pool, Refusal, Settings};
use pool_support::program::{assert_nothing_left, Program};
use pool_support::watched::Watched;

const MIB: u64 = 1 << 20;

fn with(
    settings: Settings,
    limit_bytes: Option<u64>,
    scenario: impl Fn(&mut Program, &Pool, &Watched),
) {
    let backing = Watched::new(1 << 40, settings.scrub.is_some());
    let pool = Pool::new(settings, Arc::new(Budget::new(limit_bytes)));
    let mut program = Program::new(&pool, &backing);
    scenario(&mut program, &pool, &backing);
    pool.check();
    program.end();
    assert_nothing_left(&pool, &backing, || backing.reserved_bytes());
}

fn ahead(preallocate_bytes: u64) -> Settings {
    Settings {
        preallocate_bytes,
        ..Settings::default()
    }
}

#[test]
fn what_is_taken_ahead_serves_what_comes_and_stays_when_idle() {
    with(ahead(100 * MIB), None, |program, pool, backing| {
        assert_eq!(pool.preallocate(backing), Ok(100 * MIB));
        assert_eq!(
            (backing.reserved_bytes(), pool.usage().reserved_bytes),
            (100 * MIB, 100 * MIB)
        );
        pool.check();
        // Growth of the small pool gives other idle memory back, not this.
        program.allocate(1000, false, false).unwrap();
        assert_eq!(pool.usage().reserved_bytes, 102 * MIB);
        for _ in 0..3 {
            for size_mib in [60, 40] {
                program.allocate(size_mib * MIB, false, false).unwrap();
            }
            assert_eq!(pool.stats().reserve_calls, 2, "no more is taken");
            program.free(2, false, false);
            program.free(1, false, false);
        }
        let stats = pool.stats();
        assert_eq!(
            (stats.preallocated_bytes, stats.release_calls),
            (100 * MIB, 0)
        );
        // Memory beyond it is under the rule of the slack, as ever.
        program.allocate(101 * MIB, false, false).unwrap();
        program.free(1, false, false);
        program.allocate(150 * MIB, false, false).unwrap();
        assert_eq!(pool.stats().release_calls, 1);
        assert_eq!(pool.usage().reserved_bytes, 252 * MIB);
        pool.check();
        // A trim takes it like any other.
        assert_eq!(pool.trim(backing, 0), 100 * MIB);
    });
}

#[test]
fn it_is_charged_and_goes_when_the_limit_needs_it() {
    with(
        ahead(100 * MIB),
        Some(128 * MIB),
        |program, pool, backing| {
            assert_eq!(pool.preallocate(backing), Ok(100 * MIB));
            assert_eq!(pool.budget().used_bytes(), 100 * MIB);
            program.allocate(120 * MIB, false, false).unwrap();
            assert_eq!(pool.usage().reserved_bytes, 120 * MIB);
        },
    );
    with(
        ahead(100 * MIB),
        Some(64 * MIB),
        |program, pool, backing| {
            assert!(matches!(
                pool.preallocate(backing),
                Err(Refusal::Limit { .. })
            ));
            assert_eq!(pool.budget().used_bytes(), 0);
            program.allocate(10 * MIB, false, false).unwrap();
        },
    );
}

#[test]
fn with_a_split_limit_it_comes_in_pieces_below_it() {
    let settings = Settings {
        max_split_size_bytes: Some(32 * MIB),
        ..ahead(100 * MIB)
    };
    with(settings, None, |program, pool, backing| {
        assert_eq!(pool.preallocate(backing), Ok(100 * MIB));
        assert_eq!(pool.stats().reserve_calls, 4);
        pool.check();
        program.allocate(20 * MIB, false, false).unwrap();
        assert_eq!(pool.stats().hits, 1);
    });
}

#[test]
fn idle_segments_go_when_their_time_has_come() {
    with(Settings::default(), None, |program, pool, backing| {
        program.allocate(40 * MIB, false, false).unwrap();
        program.allocate(50 * MIB, false, false).unwrap();
        program.free(0, false, false);
        pool.tick();
        // Idle for the rest of one tick only.
        assert!(!pool.has_idle_for(1));
        assert_eq!(pool.trim_idle(backing, 1), 0);
        pool.tick();
        program.free(0, false, false);
        assert!(pool.has_idle_for(1));
        assert_eq!(pool.trim_idle(backing, 1), 40 * MIB);
        assert_eq!(
            pool.trim_idle(backing, 1),
            0,
            "the other one became idle later"
        );
        // Use makes it young again.
        pool.tick();
        program.allocate(50 * MIB, false, false).unwrap();
        program.free(0, false, false);
        pool.tick();
        assert_eq!(pool.trim_idle(backing, 1), 0);
        pool.tick();
        assert_eq!(pool.trim_idle(backing, 1), 50 * MIB);
        let stats = pool.stats();
        assert_eq!(
            (stats.idle_released_bytes, stats.release_calls),
            (90 * MIB, 2)
        );
    });
}

#[test]
fn the_threshold_gives_idle_memory_back_before_the_limit_does() {
    let settings = |gc_threshold_percent| Settings {
        gc_threshold_percent,
        growth_slack_percent: 1000,
        ..Settings::default()
    };
    for (percent, held_mib, released_mib) in
        [(None, 180, 0), (Some(60), 80, 100), (Some(95), 180, 0)]
    {
        with(settings(percent), Some(200 * MIB), |program, pool, _| {
            program.allocate(100 * MIB, false, false).unwrap();
            program.free(0, false, false);
            // Too large for the idle segment's rest only by its kind: an isolated one never shares.
            program.allocate(80 * MIB, false, true).unwrap();
            assert_eq!(pool.usage().reserved_bytes, held_mib * MIB, "{percent:?}");
            assert_eq!(pool.stats().threshold_released_bytes, released_mib * MIB);
        });
    }
    // Without a limit it is a share of the device.
    let backing = Watched::new(1 << 40, true);
    let budget = Budget::of_device(None, 200 * MIB);
    let pool = Pool::new(settings(Some(60)), Arc::new(budget));
    let mut program = Program::new(&pool, &backing);
    program.allocate(100 * MIB, false, false).unwrap();
    program.free(0, false, false);
    program.allocate(80 * MIB, false, true).unwrap();
    assert_eq!(pool.usage().reserved_bytes, 80 * MIB);
    program.end();
}
