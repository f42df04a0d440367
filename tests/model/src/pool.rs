//! The pool's lock, the ways out of it, and what threads do to each other's plans.

use std::sync::Arc;

use cushion::pool::{
    Backing, BackingError, Budget, Fence, Found, FreeMode, FreeOutcome, Pool, Range, Refusal,
    Request, ScrubTicket, Settings,
};
use loom::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::atomic::Ordering::SeqCst;

use crate::explore::explore;
use crate::stage::{part, plain, Stage, MIB};

/// A free joins an epoch while another thread fences an older one (FENCED).
#[test]
fn frees_while_another_thread_fences() {
    explore("frees_while_another_thread_fences", || {
        let mut stage = Stage::new(plain(), 64 * MIB, None);
        let [first, second] = stage.live([MIB, MIB]);
        stage.cached([MIB / 2]);
        stage.run(vec![
            part(move |program| {
                program.live.push(first);
                program.free(0, false, false);
                program.allocate(MIB, false, false).expect("room");
            }),
            part(move |program| {
                program.live.push(second);
                program.allocate(MIB / 2, false, false).expect("room");
                program.free(0, false, false);
            }),
        ]);
        stage.end();
    });
}

/// A host wait covers what was freed before it, and nothing later; the block comes once to each of two frees.
#[test]
fn host_waits_and_second_frees() {
    explore("host_waits_and_second_frees", || {
        let mut stage = Stage::new(plain(), 64 * MIB, None);
        let [first, second] = stage.live([MIB, MIB]);
        stage.run(vec![
            part(move |program| {
                program.live.push(first);
                program.free(0, true, false);
                program.allocate(MIB, false, false).expect("room");
            }),
            part(move |program| {
                program.live.push(second);
                program.free(0, false, false);
                program.allocate(MIB, false, false).expect("room");
            }),
        ]);
        stage.end();
    });
    explore("second frees of one block", || {
        let stage = Stage::new(plain(), 64 * MIB, None);
        let [block] = stage.live([MIB]);
        stage.backing.done_with(block.range);
        let frees = [true, false].map(|host_wait| {
            let (pool, backing) = (stage.pool.clone(), stage.backing.clone());
            loom::thread::spawn(move || {
                let mode = FreeMode {
                    host_wait,
                    capturing: false,
                };
                pool.free(&*backing, block.range.address, mode)
            })
        });
        let outcomes = frees.map(|thread| thread.join().expect("the thread ended well"));
        let freed = |outcome: &&FreeOutcome| matches!(outcome, FreeOutcome::Freed { .. });
        assert_eq!(outcomes.iter().filter(freed).count(), 1, "{outcomes:?}");
        assert!(outcomes.contains(&FreeOutcome::NotLive), "{outcomes:?}");
        stage.end();
    });
}

/// There is no room until another thread has given back what it holds in its hands: the request waits for that, and is
/// woken (no lost wake-up).
#[test]
fn memory_on_its_way_back_is_waited_for() {
    explore("memory_on_its_way_back_is_waited_for", || {
        let mut stage = Stage::new(plain(), 1 << 40, Some(10 * MIB));
        stage.cached([8 * MIB]);
        stage.run(vec![
            part(|program| {
                program.pool.trim(program.backing, 0);
            }),
            part(|program| {
                let granted = program.allocate(10 * MIB, false, false);
                assert!(granted.is_ok(), "{granted:?}");
            }),
        ]);
        stage.end();
    });
}

/// Trims release what others are about to use or have just freed (WHOLE, FORGET-FIRST).
#[test]
fn trims_beside_allocations_and_frees() {
    explore("trims_beside_allocations_and_frees", || {
        let mut stage = Stage::new(plain(), 64 * MIB, None);
        let [block] = stage.live([3 * MIB]);
        stage.cached([3 * MIB]);
        stage.run(vec![
            part(move |program| {
                program.live.push(block);
                program.free(0, false, false);
                program.allocate(3 * MIB, false, false).expect("room");
            }),
            part(|program| {
                program.pool.trim(program.backing, 0);
            }),
            part(|program| {
                program.allocate(3 * MIB, false, false).expect("room");
                program.find(0, 4096);
                program.free(0, true, false);
            }),
        ]);
        stage.end();
    });
}

/// Scrubs ahead and on request, beside frees and allocations (CLEAN).
#[test]
fn scrubs_beside_allocations_and_frees() {
    explore("scrubs_beside_allocations_and_frees", || {
        let settings = Settings {
            scrub: Some(0),
            ..plain()
        };
        let mut stage = Stage::new(settings, 64 * MIB, None);
        let [first, other, second, another] = stage.live([MIB / 2; 4]);
        stage.keep([other, another]);
        stage.run(vec![
            part(move |program| {
                program.live.push(first);
                program.free(0, false, false);
                program.pool.scrub_ahead(program.backing, MIB);
            }),
            part(move |program| {
                program.live.push(second);
                program.free(0, false, false);
                program.allocate(MIB / 2, false, false).expect("room");
                program.allocate(MIB / 2, false, false).expect("room");
            }),
        ]);
        stage.end();
    });
}

/// The program's own wait closes epochs, unless a free came after it began.
#[test]
fn waits_of_the_program_beside_frees() {
    explore("waits_of_the_program_beside_frees", || {
        let mut stage = Stage::new(plain(), 64 * MIB, None);
        let [first] = stage.live([MIB]);
        stage.run(vec![
            part(move |program| {
                program.live.push(first);
                program.free(0, false, false);
                program.allocate(MIB, false, false).expect("room");
            }),
            part(|program| {
                let mark = program.pool.mark();
                program.backing.program_waits();
                program.pool.drained(mark);
            }),
        ]);
        stage.end();
    });
}

/// Exported blocks stay out of use until they are let go, whichever comes first.
#[test]
fn holds_beside_frees() {
    explore("holds_beside_frees", || {
        let mut stage = Stage::new(plain(), 64 * MIB, None);
        let [exported, other] = stage.live([MIB, MIB]);
        stage.keep([other]);
        stage.run(vec![
            part(move |program| {
                program.live.push(exported);
                program.hold(0);
                program.free(0, false, false);
                program.unhold_freed(0);
            }),
            part(|program| {
                program.allocate(MIB, false, false).expect("room");
                program.pool.trim(program.backing, 0);
            }),
        ]);
        stage.end();
    });
}

/// While a stream captures, the pool grows instead of fencing; other threads fence meanwhile.
#[test]
fn captures_beside_fences() {
    explore("captures_beside_fences", || {
        let mut stage = Stage::new(plain(), 64 * MIB, None);
        stage.cached([MIB]);
        stage.run(vec![
            part(|program| {
                program.allocate(MIB, true, false).expect("room");
                program.free(0, true, true);
            }),
            part(|program| {
                program.allocate(MIB, false, false).expect("room");
                program.free(0, false, false);
            }),
        ]);
        stage.end();
    });
}

/// Calls of the backing fail while others go on: what was planned is undone.
#[test]
fn failures_are_undone() {
    for error in [
        BackingError::OutOfMemory,
        BackingError::Unavailable,
        BackingError::Failed(700),
    ] {
        for at in 0..3 {
            explore(
                &format!("failures_are_undone: {error:?} at {at}"),
                move || {
                    let mut stage = Stage::new(plain(), 12 * MIB, None);
                    let [block] = stage.live([3 * MIB]);
                    stage.cached([3 * MIB]);
                    stage.backing.fail_after(at, error);
                    stage.run(vec![
                        part(move |program| {
                            program.live.push(block);
                            program.free(0, true, false);
                            program.pool.trim(program.backing, 0);
                        }),
                        part(|program| {
                            let granted = program.allocate(5 * MIB, false, false);
                            let expected = [Refusal::Driver, Refusal::Failed(700)];
                            assert!(granted.is_ok() || expected.contains(&granted.unwrap_err()));
                        }),
                    ]);
                    stage.end();
                },
            );
        }
    }
}

/// Isolated blocks go back to the driver when they are freed, beside growth.
#[test]
fn isolated_blocks_beside_growth() {
    explore("isolated_blocks_beside_growth", || {
        let mut stage = Stage::new(plain(), 64 * MIB, Some(10 * MIB));
        stage.run(vec![
            part(|program| {
                program.allocate(MIB, false, true).expect("room");
                program.free(0, false, false);
            }),
            part(|program| {
                program.allocate(3 * MIB, false, false).expect("room");
                program.free(0, false, false);
                program.allocate(5 * MIB, false, false).expect("room");
            }),
        ]);
        stage.end();
    });
}

/// Memory that comes and goes with its context. What other owners are given has addresses of their own, and may be
/// where the context's memory was.
struct Mortal {
    turn: AtomicU64,
    next: std::sync::atomic::AtomicU64,
    ordered: bool,
}

impl Mortal {
    fn new() -> Self {
        Mortal {
            turn: AtomicU64::new(0),
            next: Default::default(),
            ordered: false,
        }
    }

    fn call(&self) -> u64 {
        self.turn.fetch_add(1, Relaxed);
        self.next.fetch_add(16 * MIB, Relaxed) + (1 << 40)
    }
}

impl Backing for Mortal {
    fn reserve(&self, size_bytes: u64) -> Result<u64, BackingError> {
        assert!(size_bytes <= 16 * MIB);
        Ok(self.call())
    }
    fn release(&self, _: Range) -> Result<(), BackingError> {
        self.call();
        Ok(())
    }
    fn fence(&self) -> Result<Fence, BackingError> {
        self.call();
        Ok(Fence::UNWATCHED)
    }
    fn synchronize(&self) -> Result<(), BackingError> {
        self.call();
        Ok(())
    }
    fn begin_scrub(&self, _: &[Range], _: u8) -> Result<ScrubTicket, BackingError> {
        Ok(ScrubTicket(self.call()))
    }
    fn join_scrub(&self, _: ScrubTicket) -> Result<(), BackingError> {
        self.call();
        Ok(())
    }
    fn sole_stream(&self) -> bool {
        self.ordered
    }
}

/// The context ends while threads are inside the pool, with blocks, segments and charges in their hands.
fn forgotten_during(name: &str, scrub: Option<u8>, inside: fn(&Pool, &Mortal, u64)) {
    explore(name, move || {
        let settings = Settings { scrub, ..plain() };
        let pool = Arc::new(Pool::new(settings, Arc::new(Budget::new(Some(64 * MIB)))));
        let backing = Arc::new(Mortal::new());
        let block = pool.allocate(&*backing, request(3 * MIB)).expect("room");
        let idle = pool.allocate(&*backing, request(MIB)).expect("room");
        pool.free(&*backing, idle.address, FreeMode::default());
        let thread = {
            let (pool, backing) = (pool.clone(), backing.clone());
            loom::thread::spawn(move || inside(&pool, &backing, block.address))
        };
        let live = pool.forget();
        assert!(live.iter().all(|block| block.tag == 7));
        // The driver may give these addresses to anyone from now on.
        assert_eq!(pool.find(block.address), Found::NotMine);
        let again = pool.allocate(&*backing, request(MIB)).expect("room");
        thread.join().expect("the thread ended well");
        pool.check();
        assert!(matches!(pool.find(again.address), Found::Live(_)));
        assert_eq!(pool.find(block.address), Found::NotMine);
        pool.forget();
        pool.check();
        assert_eq!(pool.usage(), Default::default());
        assert_eq!(pool.budget().used_bytes(), 0);
    });
}

#[test]
fn forgotten_during_a_free() {
    forgotten_during("forgotten_during_a_free", None, |pool, backing, address| {
        let mode = FreeMode {
            host_wait: true,
            capturing: false,
        };
        let outcome = pool.free(backing, address, mode);
        let gone = outcome == FreeOutcome::NotMine;
        assert!(gone || matches!(outcome, FreeOutcome::Freed { .. }));
    });
}

#[test]
fn forgotten_during_a_trim() {
    forgotten_during("forgotten_during_a_trim", None, |pool, backing, _| {
        pool.trim(backing, 0);
    });
}

#[test]
fn forgotten_during_an_allocation() {
    for scrub in [None, Some(0)] {
        forgotten_during("forgotten_during_a_hit", scrub, |pool, backing, _| {
            allocate(pool, backing, MIB)
        });
        forgotten_during("forgotten_during_growth", scrub, |pool, backing, _| {
            allocate(pool, backing, 2 * MIB)
        });
    }
}

fn request(size_bytes: u64) -> Request {
    Request {
        size_bytes,
        tag: 7,
        capturing: false,
        isolated: false,
    }
}

fn allocate(pool: &Pool, backing: &Mortal, size_bytes: u64) {
    match pool.allocate(backing, request(size_bytes)) {
        Ok(_) | Err(Refusal::Forgotten) => {}
        Err(other) => panic!("{other:?}"),
    }
}

#[test]
fn forgotten_during_a_scrub() {
    forgotten_during("forgotten_during_a_scrub", Some(0), |pool, backing, _| {
        pool.scrub_ahead(backing, MIB);
    });
}

/// The context ends while one thread gives memory back and another waits for that.
#[test]
fn forgotten_during_a_wait_for_another_thread() {
    explore("forgotten_during_a_wait_for_another_thread", || {
        let budget = Arc::new(Budget::new(Some(10 * MIB)));
        let pool = Arc::new(Pool::new(plain(), budget));
        let backing = Arc::new(Mortal::new());
        let idle = pool.allocate(&*backing, request(8 * MIB)).expect("room");
        pool.free(&*backing, idle.address, FreeMode::default());
        let inside = |work: fn(&Pool, &Mortal)| {
            let (pool, backing) = (pool.clone(), backing.clone());
            loom::thread::spawn(move || work(&pool, &backing))
        };
        let threads = [
            inside(|pool, backing| {
                pool.trim(backing, 0);
            }),
            // The charge of what the other thread gives back may outlive the pool's tables by a moment.
            inside(
                |pool, backing| match pool.allocate(backing, request(10 * MIB)) {
                    Ok(_) | Err(Refusal::Forgotten | Refusal::Limit { .. }) => {}
                    Err(other) => panic!("{other:?}"),
                },
            ),
        ];
        pool.forget();
        for thread in threads {
            thread.join().expect("the thread ended well");
        }
        pool.check();
        pool.forget();
        assert_eq!(pool.budget().used_bytes(), 0);
    });
}

/// Blocks kept in front of the lock: one that was handed out again there is freed, found, kept from use or recalled by one
/// thread while another drains the front, or frees it too.
#[test]
fn blocks_in_front_beside_drains_and_second_frees() {
    explore("blocks in front beside a trim", || {
        let stage = Stage::new(plain(), 64 * MIB, None);
        stage.backing.sole_stream.store(true, SeqCst);
        let mut stage = stage;
        stage.run(vec![
            part(|program| {
                program.pool.trim(program.backing, 0);
            }),
            part(|program| {
                program.allocate(700, false, false).expect("room");
                program.free(0, false, false);
                program.allocate(600, false, false).expect("room");
                program.free(0, false, false);
                program.allocate(1000, false, false).expect("room");
            }),
        ]);
        stage.end();
    });
    explore("a block in front that is freed twice", || {
        let stage = Stage::new(plain(), 64 * MIB, None);
        stage.backing.sole_stream.store(true, SeqCst);
        stage.cached([512]);
        let [block] = stage.live([512]);
        stage.backing.done_with(block.range);
        let frees = [0, 1].map(|_| {
            let (pool, backing) = (stage.pool.clone(), stage.backing.clone());
            loom::thread::spawn(move || {
                pool.free(&*backing, block.range.address, FreeMode::default())
            })
        });
        assert!(matches!(
            stage.pool.find(block.range.address),
            Found::Live(_) | Found::Dead
        ));
        let outcomes = frees.map(|thread| thread.join().expect("the thread ended well"));
        let freed = |outcome: &&FreeOutcome| matches!(outcome, FreeOutcome::Freed { .. });
        assert_eq!(outcomes.iter().filter(freed).count(), 1, "{outcomes:?}");
        assert!(outcomes.contains(&FreeOutcome::NotLive), "{outcomes:?}");
        stage.end();
    });
    explore("a block in front that is held while it is freed", || {
        let stage = Stage::new(plain(), 64 * MIB, None);
        stage.backing.sole_stream.store(true, SeqCst);
        stage.cached([512]);
        let [block] = stage.live([512]);
        let address = block.range.address;
        let (pool, backing) = (stage.pool.clone(), stage.backing.clone());
        let free = loom::thread::spawn(move || {
            backing.done_with(block.range);
            pool.free(&*backing, address, FreeMode::default())
        });
        let held = stage.pool.hold(address);
        let outcome = free.join().expect("the thread ended well");
        assert!(matches!(outcome, FreeOutcome::Freed { .. }), "{outcome:?}");
        assert_eq!(stage.pool.unhold(address), held);
        stage.end();
    });
}

/// The context ends while a thread takes a block in front and frees another; what it gets has died with the context.
#[test]
fn forgotten_beside_the_front() {
    explore("forgotten beside the front", || {
        let budget = Arc::new(Budget::new(None));
        let ordered = true;
        let mortal = Mortal {
            ordered,
            ..Mortal::new()
        };
        let (pool, mortal) = (Arc::new(Pool::new(plain(), budget)), Arc::new(mortal));
        let granted = |size_bytes| {
            pool.allocate(&*mortal, request(size_bytes))
                .expect("room")
                .address
        };
        let first = granted(512);
        pool.free(&*mortal, first, FreeMode::default());
        let second = granted(512);
        assert_eq!(first, second, "from the front");
        let other = {
            let (pool, mortal) = (pool.clone(), mortal.clone());
            loom::thread::spawn(move || {
                let outcome = pool.free(&*mortal, second, FreeMode::default());
                assert!(!matches!(outcome, FreeOutcome::Failed(_)), "{outcome:?}");
                pool.allocate(&*mortal, request(512))
                    .map(|grant| grant.address)
                    .ok()
            })
        };
        pool.forget();
        let got = other.join().expect("the thread ended well");
        pool.check();
        // Whatever came after the end is the pool's again.
        if let Some(address) = got {
            pool.free(&*mortal, address, FreeMode::default());
        }
        pool.check();
        assert_eq!(pool.usage().allocated_bytes, 0);
    });
}

/// Blocks that one thread frees reach another by the crowd, while a third drains the front.
#[test]
fn blocks_go_from_thread_to_thread_in_front() {
    for with_trim in [false, true] {
        let name = format!("blocks from thread to thread, trimmed meanwhile: {with_trim}");
        explore(&name, move || {
            let mut stage = Stage::new(plain(), 64 * MIB, None);
            stage.backing.sole_stream.store(true, SeqCst);
            let blocks = stage.live([512, 500, 400, 300]);
            let mut parts = vec![
                part(move |program| {
                    program.live.extend(blocks);
                    (0..4).for_each(|_| {
                        program.free(0, false, false);
                    });
                }),
                part(|program| {
                    for _ in 0..2 {
                        program.allocate(512, false, false).expect("room");
                    }
                    program.free(0, false, false);
                    program.allocate(100, false, false).expect("room");
                }),
            ];
            if with_trim {
                parts.insert(
                    0,
                    part(|program| {
                        program.pool.trim(program.backing, 0);
                    }),
                );
            }
            stage.run(parts);
            stage.end();
        });
    }
}

/// Large blocks that lanes keep while threads meet at the lock, taken, freed and asked for by another beside a trim.
#[test]
fn large_blocks_of_threads_that_meet() {
    for (has_order, with_trim) in [(true, false), (true, true), (false, true)] {
        let name =
            format!("large blocks of threads that meet, ordered {has_order}, trimmed {with_trim}");
        explore(&name, move || {
            let mut stage = Stage::new(plain(), 64 * MIB, None);
            stage.backing.sole_stream.store(has_order, SeqCst);
            let work = |program: &mut crate::pool_support::program::Program| {
                for size_bytes in [700 << 10, 3 * MIB, 700 << 10] {
                    program.allocate(size_bytes, false, false).expect("room");
                    program.free(0, false, false);
                }
            };
            let mut parts = vec![part(work), part(work)];
            if with_trim {
                parts.insert(
                    0,
                    part(|program| {
                        program.pool.trim(program.backing, 0);
                    }),
                );
            }
            stage.run(parts);
            stage.end();
        });
    }
}
