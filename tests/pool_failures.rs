//! A backing that fails, at every call and at random: nothing is lost, and everything can still be given back.

mod pool_support;

use std::sync::Arc;

use cushion::pool::{BackingError, Budget, FreeOutcome, Pool, Settings};
use pool_support::program::{assert_nothing_left, Program};
use pool_support::watched::Watched;

const MIB: u64 = 1 << 20;
const KIB: u64 = 1 << 10;

/// Every way through the pool that calls the backing: growth of each kind, barriers, scrubs, waits, the limit, a full
/// card, isolated and retired blocks, trims.
fn script(program: &mut Program, step: impl Fn(&Program)) {
    let pool = program.pool;
    let sizes = [
        700,
        40 * KIB,
        MIB,
        3 * MIB,
        9 * MIB,
        12 * MIB,
        30 * MIB,
        700,
        5 * MIB,
        2 * MIB,
        33 * MIB,
    ];
    for round in 0..4u64 {
        for (index, &size_bytes) in sizes.iter().enumerate() {
            let isolated = index == 7;
            let capturing = round == 2 && index % 2 == 0;
            let _ = program.allocate(size_bytes + round * 4096, capturing, isolated);
            step(program);
            if index % 3 == 2 && !program.live.is_empty() {
                let oldest = program.live.len() / 2;
                program.free(oldest, index == 5, capturing);
                step(program);
            }
        }
        if !program.live.is_empty() {
            program.retire(0);
        }
        pool.scrub_ahead(program.backing, 8 * MIB);
        step(program);
        while program.live.len() > round as usize {
            let host_wait = program.live.len() & 3 == 0;
            let before = program.live.len();
            program.free(0, host_wait, false);
            step(program);
            if program.live.len() == before {
                break; // It failed; the rest of the round is another one's.
            }
        }
        pool.trim(program.backing, 40 * MIB);
        step(program);
    }
}

fn settings() -> Vec<Settings> {
    let base = Settings {
        alignment_bytes: 64 * KIB,
        ..Settings::default()
    };
    vec![
        Settings {
            scrub: None,
            growth_slack_percent: 0,
            ..base
        },
        base,
        Settings {
            scrub: Some(0xAB),
            max_split_size_bytes: Some(10 * MIB),
            ..base
        },
    ]
}

/// A card and a limit that the script runs into.
fn start(settings: Settings, limited: bool, has_pages: bool) -> (Watched, Pool) {
    let backing = Watched::new(
        if limited { 400 * MIB } else { 120 * MIB },
        settings.scrub.is_some(),
    )
    .with_pages(has_pages);
    let budget = Budget::new(limited.then_some(110 * MIB));
    (backing, Pool::new(settings, Arc::new(budget)))
}

#[test]
fn a_fault_at_every_call() {
    let mut faults = 0;
    for settings in settings() {
        for (limited, has_pages) in [(false, false), (true, false), (false, true), (true, true)] {
            let (backing, pool) = start(settings, limited, has_pages);
            script(&mut Program::new(&pool, &backing), |_| pool.check());
            let calls = backing.calls();
            assert!(calls > 40, "the script calls the backing");
            for call in 0..calls {
                for error in [
                    BackingError::OutOfMemory,
                    BackingError::Unavailable,
                    BackingError::Failed(700),
                ] {
                    let (backing, pool) = start(settings, limited, has_pages);
                    backing.fail_after(call, error);
                    let mut program = Program::new(&pool, &backing);
                    script(&mut program, |program| {
                        pool.check();
                        let reserved = program.backing.reserved_bytes();
                        assert_eq!(pool.budget().used_bytes(), reserved, "SUMS: call {call}");
                    });
                    program.end();
                    assert_nothing_left(&pool, &backing, || backing.reserved_bytes());
                    faults += 1;
                }
            }
        }
    }
    assert!(faults > 1000, "{faults} faults");
}

#[test]
fn faults_at_random() {
    for seed in 0..400 {
        for settings in settings() {
            let (backing, pool) = start(settings, seed % 2 == 0, seed % 4 < 2);
            backing.fail_at_random(2 + seed % 9, seed);
            let mut program = Program::new(&pool, &backing);
            script(&mut program, |_| pool.check());
            backing.fail_at_random(0, 0);
            program.end();
            assert_nothing_left(&pool, &backing, || backing.reserved_bytes());
        }
    }
}

#[test]
fn a_failed_wait_leaves_the_block_live() {
    let (backing, pool) = start(settings()[0], false, false);
    let mut program = Program::new(&pool, &backing);
    program.allocate(3 * MIB, false, false).unwrap();
    backing.fail_after(0, BackingError::Failed(700));
    assert_eq!(program.free(0, true, false), FreeOutcome::Failed(700));
    program.find(0, 17);
    pool.check();
    assert!(matches!(
        program.free(0, true, false),
        FreeOutcome::Freed { .. }
    ));
    assert_nothing_left(&pool, &backing, || backing.reserved_bytes());
}
