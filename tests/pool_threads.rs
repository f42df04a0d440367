//! Many threads on one pool, with a backing that fails at times.

mod pool_support;

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use cushion::pool::{
    Backing, BackingError, Budget, Fence, FreeMode, FreeOutcome, Pool, Range, Refusal, Request,
    ScrubTicket, Settings,
};
use pool_support::program::{assert_nothing_left, Live, Program};
use pool_support::random::Random;
use pool_support::watched::Watched;

const MIB: u64 = 1 << 20;

/// One thread: allocates, frees, hands blocks to the others, and does everything a shim does besides.
fn work(pool: &Pool, backing: &Watched, post: &Mutex<Vec<Live>>, seed: u64, steps: u64) {
    let mut program = Program::new(pool, backing);
    let mut random = Random(seed);
    for _ in 0..steps {
        let live = program.live.len();
        match random.below(24) {
            0..=9 => {
                let size_bytes = random.size_bytes(0..24);
                match program.allocate(size_bytes, random.below(10) == 0, random.below(20) == 0) {
                    Ok(_) | Err(Refusal::Limit { .. } | Refusal::Driver | Refusal::Failed(_)) => {}
                    Err(other) => panic!("{other:?}"),
                }
            }
            10..=17 if live > 0 => {
                let index = random.below(live as u64) as usize;
                program.free(index, random.below(4) == 0, random.below(10) == 0);
            }
            18 if live > 0 => post.lock().unwrap().push(program.live.swap_remove(0)),
            19 => program.live.extend(post.lock().unwrap().pop()),
            20 => {
                pool.trim(backing, random.below(64) * MIB);
            }
            21 => {
                let mark = pool.mark();
                backing.program_waits();
                pool.drained(mark);
            }
            22 => {
                pool.scrub_ahead(backing, 4 * MIB);
            }
            _ => {
                if live > 0 {
                    program.find(random.below(live as u64) as usize, random.below(1 << 40));
                }
                pool.snapshot();
            }
        }
    }
    post.lock().unwrap().append(&mut program.live);
}

fn run(settings: Settings, fault_rate: u64, limit_bytes: Option<u64>, seed: u64) {
    let has_pages = seed.is_multiple_of(2);
    let backing = Watched::new(300 * MIB, settings.scrub.is_some()).with_pages(has_pages);
    backing.fail_at_random(fault_rate, seed);
    let pool = Pool::new(settings, Arc::new(Budget::new(limit_bytes)));
    let post = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let (pool, backing, post) = (&pool, &backing, &post);
            scope.spawn(move || work(pool, backing, post, seed * 100 + thread, 700));
        }
    });
    backing.fail_at_random(0, 0);
    pool.check();
    let mut program = Program::new(&pool, &backing);
    program.live = post.into_inner().unwrap();
    program.end();
    assert_nothing_left(&pool, &backing, || backing.reserved_bytes());
}

#[test]
fn no_byte_has_two_owners() {
    for seed in 1..8 {
        for scrub in [None, Some(0), Some(0xAB)] {
            let settings = Settings {
                scrub,
                alignment_bytes: 64 << 10,
                ..Settings::default()
            };
            run(settings, 0, None, seed);
            run(
                Settings {
                    growth_slack_percent: 0,
                    ..settings
                },
                7,
                Some(200 * MIB),
                seed,
            );
            run(
                Settings {
                    max_split_size_bytes: Some(4 * MIB),
                    ..settings
                },
                20,
                None,
                seed,
            );
        }
    }
}

/// Threads that each free before they allocate never see the limit: a request waits for memory that another thread is
/// just giving back.
#[test]
fn memory_on_its_way_back_is_not_refused() {
    let backing = Watched::new(1 << 40, false);
    let settings = Settings {
        scrub: None,
        ..Settings::default()
    };
    // Room for three of four blocks of different sizes, each of which forces the others' segments out.
    let pool = Pool::new(settings, Arc::new(Budget::new(Some(128 * MIB))));
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (pool, backing) = (&pool, &backing);
            scope.spawn(move || {
                let mut program = Program::new(pool, backing);
                for round in 0..300 {
                    let size_bytes = (20 + 2 * ((thread + round) % 6)) * MIB;
                    let granted = program.allocate(size_bytes, false, false);
                    assert!(
                        granted.is_ok(),
                        "{granted:?} of {size_bytes}, round {round}"
                    );
                    program.free(0, round % 3 == 0, false);
                }
            });
        }
    });
    assert_nothing_left(&pool, &backing, || backing.reserved_bytes());
}

/// Memory that comes and goes with its context: releasing what is gone already is no fault here.
#[derive(Default)]
struct Context {
    next: AtomicU64,
}

impl Backing for Context {
    fn reserve(&self, size_bytes: u64) -> Result<u64, BackingError> {
        Ok((1 << 40)
            + self
                .next
                .fetch_add(size_bytes.next_multiple_of(2 * MIB), SeqCst))
    }
    fn release(&self, _: Range) -> Result<(), BackingError> {
        std::thread::yield_now();
        Ok(())
    }
    fn fence(&self) -> Result<Fence, BackingError> {
        std::thread::yield_now();
        Ok(Fence::UNWATCHED)
    }
    fn synchronize(&self) -> Result<(), BackingError> {
        std::thread::yield_now();
        Ok(())
    }
    fn begin_scrub(&self, _: &[Range], _: u8) -> Result<ScrubTicket, BackingError> {
        std::thread::yield_now();
        Ok(ScrubTicket(self.next.fetch_add(1 << 30, SeqCst)))
    }
    fn join_scrub(&self, _: ScrubTicket) -> Result<(), BackingError> {
        Ok(())
    }
}

#[test]
fn forgetting_while_others_are_inside() {
    for scrub in [None, Some(0)] {
        let backing = Context::default();
        let settings = Settings {
            scrub,
            ..Settings::default()
        };
        let pool = Pool::new(settings, Arc::new(Budget::new(Some(64 * MIB))));
        std::thread::scope(|scope| {
            for seed in 0..4 {
                let (pool, backing) = (&pool, &backing);
                scope.spawn(move || {
                    let mut random = Random(seed);
                    let mut live = Vec::new();
                    for _ in 0..4000 {
                        if random.below(2) == 0 {
                            let isolated = random.below(9) == 0;
                            let size_bytes = random.size_bytes(0..24);
                            let request = Request {
                                size_bytes,
                                tag: 0,
                                capturing: false,
                                isolated,
                            };
                            live.extend(pool.allocate(backing, request));
                        } else if !live.is_empty() {
                            let grant = live.swap_remove(random.below(live.len() as u64) as usize);
                            let mode = FreeMode {
                                host_wait: random.below(2) == 0,
                                capturing: false,
                            };
                            let outcome = pool.free(backing, grant.address, mode);
                            let gone = FreeOutcome::NotMine;
                            assert!(
                                outcome == gone || matches!(outcome, FreeOutcome::Freed { .. })
                            );
                        }
                        match random.below(200) {
                            0 => drop(pool.forget()),
                            1..=10 => drop(pool.trim(backing, 0)),
                            21..=30 => {
                                pool.tick();
                                pool.trim_idle(backing, 0);
                            }
                            31..=33 => drop(pool.preallocate(backing)),
                            11..=20 => drop(pool.scrub_ahead(backing, MIB)),
                            _ => {}
                        }
                    }
                });
            }
        });
        pool.check();
        pool.forget();
        pool.check();
        assert_eq!(pool.budget().used_bytes(), 0);
        assert_eq!(pool.usage(), Default::default());
    }
}

/// A snapshot of many slices, while blocks between them come and go: what lives all the time is in it once, at its place,
/// and nothing lies on anything else.
#[test]
fn a_snapshot_misses_nothing_that_stays() {
    for has_pages in [false, true] {
        let backing = Watched::new(1 << 40, false).with_pages(has_pages);
        let settings = Settings {
            scrub: None,
            ..Settings::default()
        };
        let pool = Pool::new(settings, Arc::new(Budget::new(None)));
        let mut program = Program::new(&pool, &backing);
        // Small blocks that have a thousand neighbours, and each second one of them goes.
        for _ in 0..40_000 {
            program.allocate(20 << 10, false, false).unwrap();
        }
        let stays = |live: &Live| live.tag.is_multiple_of(2);
        let kept: Vec<Live> = program.live.iter().copied().filter(stays).collect();
        program.live.retain(|live| !stays(live));
        let done = std::sync::atomic::AtomicBool::new(false);
        let snapshots = std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut random = Random(3);
                while !done.load(SeqCst) {
                    let count = program.live.len() as u64;
                    if count > 0 && random.below(2) == 0 {
                        program.free(random.below(count) as usize, false, false);
                    } else {
                        program
                            .allocate((1 + random.below(60)) << 10, false, false)
                            .unwrap();
                    }
                }
            });
            let snapshots: Vec<_> = (0..12).map(|_| pool.snapshot()).collect();
            done.store(true, SeqCst);
            snapshots
        });
        for snapshot in snapshots {
            let mut seen = std::collections::HashMap::new();
            for segment in &snapshot.segments {
                let mut end = 0;
                for block in &segment.blocks {
                    assert!(block.offset_bytes >= end, "two blocks at one place");
                    end = block.offset_bytes + block.size_bytes;
                    seen.insert(block.tag, segment.address + block.offset_bytes);
                }
            }
            for live in &kept {
                assert_eq!(
                    seen.get(&live.tag),
                    Some(&live.range.address),
                    "a block that stays"
                );
            }
        }
        program.live.extend(kept);
        program.end();
        assert_nothing_left(&pool, &backing, || backing.reserved_bytes());
    }
}
