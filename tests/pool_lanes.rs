//! Threads that take turns at one pool, in a known order: each with a lane of its own, all in one thread.

mod pool_support;

use std::sync::atomic::Ordering::SeqCst;
use std::sync::Arc;

use cushion::pool::{Budget, Found, FreeMode, Pool, Settings};
use pool_support::program::{assert_nothing_left, Program};
use pool_support::random::Random;
use pool_support::watched::Watched;

const MIB: u64 = 1 << 20;

fn fast() -> Settings {
    Settings {
        scrub: None,
        alignment_bytes: 64 << 10,
        ..Settings::default()
    }
}

fn one_stream(capacity_bytes: u64) -> Watched {
    let backing = Watched::new(capacity_bytes, false);
    backing.sole_stream.store(true, SeqCst);
    backing
}

fn programs<'a>(pool: &'a Pool, backing: &'a Watched, count: usize) -> Vec<Program<'a>> {
    let on_lane = |lane| {
        let mut program = Program::new(pool, backing);
        program.lane = Some(lane);
        program
    };
    (0..count).map(on_lane).collect()
}

/// So many misses in turns that the pool takes note.
fn meet(programs: &mut [Program]) {
    for turn in 0..128 {
        let program = &mut programs[turn % 2];
        let size_bytes = (600 << 10) + 512 * turn as u64;
        program.allocate(size_bytes, false, false).expect("room");
    }
    programs.iter_mut().for_each(Program::end);
}

#[test]
fn large_blocks_stay_in_front_while_threads_meet() {
    for do_meet in [false, true] {
        let backing = one_stream(1 << 30);
        let pool = Pool::new(fast(), Arc::new(Budget::new(None)));
        let mut programs = programs(&pool, &backing, 2);
        if do_meet {
            meet(&mut programs);
        }
        let [one, two] = &mut programs[..] else {
            unreachable!()
        };
        for size_bytes in [MIB, 3 * MIB] {
            // Freed once before, so that the pool knows that it is asked for.
            one.allocate(size_bytes, false, false).expect("room");
            one.end();
            let mut all: Vec<u64> = (0..4)
                .map(|_| one.allocate(size_bytes, false, false).expect("room"))
                .map(|live| live.range.address)
                .collect();
            one.end();
            let other = two.allocate(size_bytes, false, false).expect("room");
            assert_eq!(
                !all.contains(&other.range.address),
                do_meet,
                "{size_bytes} bytes that one thread freed and another asked for"
            );
            if do_meet {
                let mut again: Vec<u64> = (0..4)
                    .map(|_| one.allocate(size_bytes, false, false).expect("room"))
                    .map(|live| live.range.address)
                    .collect();
                all.sort_unstable();
                again.sort_unstable();
                assert_eq!(again, all);
            }
            one.end();
            two.end();
        }
        assert_nothing_left(&pool, &backing, || backing.reserved_bytes());
    }
}

#[test]
fn one_barrier_serves_four_blocks_of_up_to_2_mib() {
    let backing = Watched::new(1 << 30, false);
    let pool = Pool::new(fast(), Arc::new(Budget::new(None)));
    let mut programs = programs(&pool, &backing, 2);
    let [program, other] = &mut programs[..] else {
        unreachable!()
    };
    let mut has_room = || {
        for size_bytes in [MIB, 2 * MIB].repeat(6) {
            other.allocate(size_bytes, false, false).expect("room");
        }
        other.end();
    };
    let mut pairs = |count: u64, size_bytes| {
        let before = pool.stats();
        for _ in 0..count {
            program.allocate(size_bytes, false, false).expect("room");
            program.end();
        }
        let after = pool.stats();
        let reserved_bytes = after.reserved_bytes.current - before.reserved_bytes.current;
        (after.fences - before.fences, reserved_bytes)
    };
    // In one segment of 2 MiB are two of 1 MiB, and the pool does not grow for more.
    pairs(8, MIB);
    assert_eq!(pairs(64, MIB), (32, 0));
    has_room();
    for size_bytes in [400 << 10, MIB, 2 * MIB] {
        pairs(8, size_bytes);
        assert_eq!(pairs(64, size_bytes), (16, 0), "{size_bytes}");
    }
    // Of larger ones others would cost memory.
    pairs(8, 3 * MIB);
    assert_eq!(pairs(64, 3 * MIB), (64, 0));
    assert_nothing_left(&pool, &backing, || backing.reserved_bytes());
}

/// Many large sizes are kept while threads meet. When they meet no more, a lane still has them, and frees more.
#[test]
fn a_request_is_served_by_a_block_of_its_size_when_threads_meet_no_more() {
    let backing = one_stream(4 << 30);
    let pool = Pool::new(fast(), Arc::new(Budget::new(None)));
    let mut programs = programs(&pool, &backing, 2);
    meet(&mut programs);
    let sizes: Vec<u64> = (0..128).map(|number| (640 << 10) + 512 * number).collect();
    for &size_bytes in &sizes {
        for program in &mut programs {
            // Live, and in front.
            program.allocate(size_bytes, false, false).expect("room");
            program.free(program.live.len() - 1, false, false);
            program.allocate(size_bytes, false, false).expect("room");
        }
    }
    let free_half = |program: &mut Program| {
        for _ in 0..sizes.len() / 2 {
            program.free(0, false, false);
        }
    };
    free_half(&mut programs[0]);
    let kept_bytes = |pool: &Pool| {
        let stats = pool.stats();
        stats.active_bytes.current - stats.allocated_bytes.current
    };
    assert!(kept_bytes(&pool) > 8 * MIB);
    for _ in 0..256 {
        programs[0].allocate(512, false, false).expect("room");
    }
    assert!(kept_bytes(&pool) > 8 * MIB, "of many sizes");
    free_half(&mut programs[0]);
    let lane = programs[0].lane;
    let mut taken = Vec::new();
    for &size_bytes in &sizes {
        while let Some((address, _)) = pool.take_in_front(lane, &backing, (size_bytes, 0)) {
            let Found::Live(block) = pool.find(address) else {
                panic!("what was handed out is live");
            };
            assert_eq!(block.allocated_bytes, size_bytes);
            taken.push(address);
        }
    }
    assert!(!taken.is_empty());
    pool.check();
    for address in taken {
        pool.free_on(lane, &backing, address, FreeMode::default());
    }
    programs.iter_mut().for_each(Program::end);
    assert_nothing_left(&pool, &backing, || backing.reserved_bytes());
}

/// More blocks than can be in front are freed by lanes that ask for none again, as those of ended threads.
#[test]
fn blocks_in_front_that_nobody_asks_for_make_room() {
    let backing = one_stream(4 << 30);
    let pool = Pool::new(fast(), Arc::new(Budget::new(None)));
    let mut programs = programs(&pool, &backing, 9);
    let (last, ended) = programs.split_last_mut().expect("nine");
    for program in &mut *ended {
        let sizes = (10..19).flat_map(|octave| (8..16).map(move |part| part << octave >> 4));
        for size_bytes in sizes.filter(|&bytes| bytes <= 384 << 10) {
            for _ in 0..32 {
                program.allocate(size_bytes, false, false).expect("room");
            }
        }
    }
    ended.iter_mut().for_each(Program::end);
    for size_bytes in [512, 64 << 10, MIB] {
        for _ in 0..2 {
            last.allocate(size_bytes, false, false).expect("room");
            last.end();
        }
        let taken = pool.take_in_front(last.lane, &backing, (size_bytes, 0));
        let (address, _) = taken.expect("what was freed last is in front");
        pool.free_on(last.lane, &backing, address, FreeMode::default());
    }
    pool.check();
    assert_nothing_left(&pool, &backing, || backing.reserved_bytes());
}

#[test]
fn what_is_in_front_is_no_reason_for_a_refusal() {
    for (capacity_mib, limit_mib) in [(64, None), (1024, Some(64))] {
        let backing = one_stream(capacity_mib * MIB);
        let budget = Budget::new(limit_mib.map(|mib: u64| mib * MIB));
        let pool = Pool::new(fast(), Arc::new(budget));
        let mut programs = programs(&pool, &backing, 2);
        meet_within(&mut programs);
        for _ in 0..14 {
            for program in &mut programs {
                program.allocate(2 * MIB, false, false).expect("room");
            }
        }
        programs.iter_mut().for_each(Program::end);
        for size_bytes in [60 * MIB, MIB, 3 * MIB, 50 * MIB] {
            programs[1]
                .allocate(size_bytes, false, false)
                .expect("room");
            programs[1].end();
        }
        let stats = pool.stats();
        assert_eq!((stats.refused_by_limit, stats.refused_by_driver), (0, 0));
        assert_nothing_left(&pool, &backing, || backing.reserved_bytes());
    }
}

/// As [`meet`], with little memory.
fn meet_within(programs: &mut [Program]) {
    for turn in 0..256 {
        let program = &mut programs[turn % 2];
        let size_bytes = (600 << 10) + 512 * turn as u64;
        program.allocate(size_bytes, false, false).expect("room");
        if program.live.len() > 8 {
            program.free(0, false, false);
        }
    }
    programs.iter_mut().for_each(Program::end);
}

/// Turns of random length, so that the threads meet at times and at times do not; fences, limits and refusals.
#[test]
fn random_programs_in_turns() {
    for seed in 0..24u64 {
        let has_order = seed % 3 == 0;
        let backing = Watched::new(400 * MIB, false).with_pages(seed % 4 == 1);
        backing.sole_stream.store(has_order, SeqCst);
        let limit_bytes = (seed % 2 == 1).then_some(120 * MIB);
        let pool = Pool::new(fast(), Arc::new(Budget::new(limit_bytes)));
        let mut programs = programs(&pool, &backing, 5);
        let mut random = Random(seed);
        let sizes: Vec<u64> = (0..12)
            .map(|_| {
                let octave = 12 + random.below(11);
                (1 << octave) + random.below(1 << octave)
            })
            .collect();
        let mut turn = 0;
        let mut is_alone = false;
        for step in 0..6000 {
            if step % 1500 == 0 {
                is_alone = !is_alone;
            }
            if !is_alone {
                turn = random.below(5) as usize;
            }
            let program = &mut programs[turn];
            if program.live.len() >= 16 || random.below(5) < 2 {
                let live = program.live.len() as u64;
                if live > 0 {
                    program.free(random.below(live) as usize, false, false);
                }
            } else {
                // A refusal is an answer, too.
                let _ = program.allocate(sizes[random.below(12) as usize], false, false);
            }
            match random.below(2000) {
                0 => pool.tick(),
                1 => _ = pool.trim(&backing, 8 * MIB),
                2 => _ = pool.snapshot(),
                3..20 => pool.check(),
                _ => {}
            }
            // From thread to thread.
            if random.below(50) == 0 {
                let from = random.below(5) as usize;
                if let Some(live) = programs[from].live.pop() {
                    programs[turn].live.push(live);
                }
            }
        }
        programs.iter_mut().for_each(Program::end);
        assert_nothing_left(&pool, &backing, || backing.reserved_bytes());
    }
}

/// The peak is what it was, to the byte, while one thread uses the pool, whatever number its lane has and whoever looks.
#[test]
fn peaks_of_one_thread_are_exact() {
    for seed in 0..400u64 {
        let backing = one_stream(4 << 30);
        let settings = Settings {
            max_split_size_bytes: (seed % 4 < 2).then_some(2 * MIB),
            ..fast()
        };
        let pool = Pool::new(settings, Arc::new(Budget::new(None)));
        let mut program = Program::new(&pool, &backing);
        program.lane = Some(seed as usize % 3);
        let mut random = Random(seed);
        let sizes: Vec<u64> = (0..12)
            .map(|_| {
                let octave = 12 + random.below(11);
                (1 << octave) + random.below(1 << octave)
            })
            .collect();
        let (mut now, mut peak) = (0, 0);
        for _ in 0..400 {
            let live = program.live.len() as u64;
            if live >= 16 || (live > 0 && random.below(5) < 2) {
                let index = random.below(live) as usize;
                now -= program.live[index].range.size_bytes;
                program.free(index, random.below(8) == 0, false);
            } else {
                let size_bytes = sizes[random.below(12) as usize];
                let (capturing, isolated) = (random.below(20) == 0, random.below(20) == 0);
                let live = program.allocate(size_bytes, capturing, isolated);
                now += live.expect("room").range.size_bytes;
                peak = peak.max(now);
            }
            match random.below(40) {
                0 if seed % 2 == 0 => pool.tick(),
                1 => assert_eq!(pool.stats().allocated_bytes.peak, peak, "seed {seed}"),
                _ => {}
            }
        }
        assert_eq!(pool.stats().allocated_bytes.peak, peak, "seed {seed}");
        program.end();
    }
}
