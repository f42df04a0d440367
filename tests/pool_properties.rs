//! Random programs on a pool: after every action the invariants hold, and the backing, which knows when each byte was
//! last used, agrees with every block handed out.

mod pool_support;

use std::sync::Arc;

use cushion::pool::{BackingError, Budget, Found, FreeMode, FreeOutcome, Pool, Refusal, Settings};
use pool_support::program::{assert_nothing_left, Program};
use pool_support::watched::Watched;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, RngSeed, TestRng, TestRunner};

const MIB: u64 = 1 << 20;

#[derive(Debug, Clone)]
enum Action {
    Allocate {
        octave: u8,
        jitter: u16,
        capturing: bool,
        isolated: bool,
    },
    AllocateAgain {
        index: u8,
        capturing: bool,
    },
    Free {
        index: u8,
        host_wait: bool,
        capturing: bool,
    },
    FreeWrong {
        index: u8,
        offset: u32,
    },
    Find {
        index: u8,
        offset: u64,
    },
    Trim {
        keep_mib: u8,
    },
    Tick {
        trim_idle_for: Option<u64>,
    },
    Preallocate,
    ProgramWaits {
        free_between: bool,
        index: u8,
    },
    ScrubAhead {
        kib: u16,
    },
    Hold {
        index: u8,
    },
    Unhold {
        index: u8,
        freed: bool,
    },
    Retire {
        index: u8,
    },
    Fault {
        after: u8,
        error: u8,
    },
    Limit {
        mib: u8,
    },
    SecondStream,
    Snapshot,
    Forget,
}

fn action() -> impl Strategy<Value = Action> {
    let often = any::<u8>();
    prop_oneof![
        12 => (0..25u8, any::<u16>(), prop::bool::weighted(0.1), prop::bool::weighted(0.05)).prop_map(
            |(octave, jitter, capturing, isolated)| Action::Allocate { octave, jitter, capturing, isolated }),
        6 => (often, prop::bool::weighted(0.1)).prop_map(
            |(index, capturing)| Action::AllocateAgain { index, capturing }),
        14 => (often, prop::bool::weighted(0.2), prop::bool::weighted(0.1)).prop_map(
            |(index, host_wait, capturing)| Action::Free { index, host_wait, capturing }),
        1 => (often, any::<u32>()).prop_map(|(index, offset)| Action::FreeWrong { index, offset }),
        2 => (often, any::<u64>()).prop_map(|(index, offset)| Action::Find { index, offset }),
        1 => (0..40u8).prop_map(|keep_mib| Action::Trim { keep_mib }),
        2 => prop::option::of(0..4u64).prop_map(|trim_idle_for| Action::Tick { trim_idle_for }),
        1 => Just(Action::Preallocate),
        2 => (any::<bool>(), often).prop_map(
            |(free_between, index)| Action::ProgramWaits { free_between, index }),
        2 => any::<u16>().prop_map(|kib| Action::ScrubAhead { kib }),
        1 => often.prop_map(|index| Action::Hold { index }),
        1 => (often, any::<bool>()).prop_map(|(index, freed)| Action::Unhold { index, freed }),
        1 => often.prop_map(|index| Action::Retire { index }),
        2 => (0..4u8, 0..3u8).prop_map(|(after, error)| Action::Fault { after, error }),
        1 => any::<u8>().prop_map(|mib| Action::Limit { mib }),
        1 => Just(Action::SecondStream),
        1 => Just(Action::Snapshot),
    ]
    .prop_union_forget()
}

/// Rare: it makes everything before it matter less.
trait Forgetful: Strategy<Value = Action> + Sized + 'static {
    fn prop_union_forget(self) -> BoxedStrategy<Action> {
        prop_oneof![150 => self, 1 => Just(Action::Forget)].boxed()
    }
}
impl<S: Strategy<Value = Action> + 'static> Forgetful for S {}

fn settings() -> impl Strategy<Value = Settings> {
    (
        prop::option::of(2 * MIB..24 * MIB),
        prop::sample::select(vec![64 << 10, 2 * MIB, 512]),
        prop::sample::select(vec![None, Some(0), Some(0xAB)]),
        prop::sample::select(vec![0, 5, 1000]),
        prop::option::of(0..120u32),
        prop::sample::select(vec![0, MIB, 21 * MIB]),
    )
        .prop_map(
            |(max_split_size_bytes, alignment_bytes, scrub, slack, gc, ahead)| Settings {
                preallocate_bytes: ahead,
                max_split_size_bytes,
                alignment_bytes,
                scrub,
                growth_slack_percent: slack,
                mapped_slack_percent: slack,
                gc_threshold_percent: gc,
                ..Settings::default()
            },
        )
}

fn error(kind: u8) -> BackingError {
    match kind {
        0 => BackingError::OutOfMemory,
        1 => BackingError::Unavailable,
        _ => BackingError::Failed(700),
    }
}

fn size_bytes(octave: u8, jitter: u16) -> u64 {
    (1 << octave) + (u64::from(jitter) << octave >> 16)
}

fn allocate(program: &mut Program, size_bytes: u64, capturing: bool, isolated: bool) {
    match program.allocate(size_bytes, capturing, isolated) {
        Ok(_) => {}
        Err(Refusal::Limit {
            requested_bytes,
            used_bytes,
            limit_bytes,
        }) => {
            assert_eq!(requested_bytes, size_bytes);
            let granule_bytes = match size_bytes {
                0..=MIB => 512,
                _ => program.pool.settings().alignment_bytes,
            };
            assert!(used_bytes + size_bytes.next_multiple_of(granule_bytes) > limit_bytes);
        }
        Err(Refusal::Driver) => {}
        Err(Refusal::Failed(code)) => assert_eq!(code, 700),
        Err(other) => panic!("{other:?}"),
    }
}

fn perform(program: &mut Program, action: &Action) {
    let (pool, backing) = (program.pool, program.backing);
    let live_count = program.live.len();
    let pick = |index: u8| usize::from(index) % live_count;
    match *action {
        Action::Allocate {
            octave,
            jitter,
            capturing,
            isolated,
        } => {
            allocate(program, size_bytes(octave, jitter), capturing, isolated);
        }
        Action::Trim { keep_mib } => {
            pool.trim(backing, u64::from(keep_mib) * MIB);
        }
        Action::Tick { trim_idle_for } => {
            pool.tick();
            if let Some(ticks) = trim_idle_for {
                let had = pool.has_idle_for(ticks);
                assert!(had || pool.trim_idle(backing, ticks) == 0);
                pool.trim_idle(backing, ticks);
            }
        }
        Action::Preallocate => {
            // Refused at times, by the limit or a fault.
            let _ = pool.preallocate(backing);
        }
        Action::ScrubAhead { kib } => {
            pool.scrub_ahead(backing, u64::from(kib) << 10);
        }
        Action::ProgramWaits {
            free_between,
            index,
        } => {
            let mark = pool.mark();
            backing.program_waits();
            if free_between && live_count > 0 {
                program.free(pick(index), false, false);
            }
            pool.drained(mark);
        }
        Action::Unhold { index, freed: true } if !program.held.is_empty() => {
            program.unhold_freed(usize::from(index) % program.held.len());
        }
        Action::Fault { after, error: kind } => backing.fail_after(u64::from(after), error(kind)),
        Action::Limit { mib } => {
            let limit = (mib < 128).then_some(u64::from(mib) * MIB);
            pool.budget().set_limit_bytes(limit);
        }
        Action::SecondStream => {
            // As the contract of `sole_stream` has it: first the answer, then the barrier.
            backing
                .sole_stream
                .store(false, std::sync::atomic::Ordering::SeqCst);
            backing.program_waits();
        }
        Action::Snapshot => {
            let snapshot = pool.snapshot();
            let blocks = snapshot.segments.iter().flat_map(|segment| &segment.blocks);
            let requested: u64 = blocks.map(|block| block.requested_bytes).sum();
            assert_eq!(requested, snapshot.stats.requested_bytes.current);
            for segment in &snapshot.segments {
                let mut offset = 0;
                for block in &segment.blocks {
                    assert_eq!(block.offset_bytes, offset);
                    offset += block.size_bytes;
                }
                assert_eq!(offset, segment.size_bytes);
            }
        }
        Action::Forget => {
            backing.destroy();
            let mut leaks: Vec<u64> = pool.forget().iter().map(|block| block.sequence).collect();
            let mut live: Vec<u64> = program.live.iter().map(|live| live.sequence).collect();
            leaks.sort();
            live.sort();
            assert_eq!(leaks, live);
            program.live.clear();
            program.held.clear();
        }
        _ if live_count == 0 => {}
        Action::AllocateAgain { index, capturing } => {
            allocate(
                program,
                program.live[pick(index)].requested_bytes,
                capturing,
                false,
            );
        }
        Action::Free {
            index,
            host_wait,
            capturing,
        } => {
            program.free(pick(index), host_wait, capturing);
        }
        Action::FreeWrong { index, offset } => {
            let live = program.live[pick(index)];
            let offset = 1 + u64::from(offset) % (2 * MIB);
            let address = live.range.address + offset;
            if program
                .live
                .iter()
                .all(|other| other.range.address != address)
            {
                let outcome = pool.free(backing, address, FreeMode::default());
                match pool.find(address) {
                    Found::NotMine => assert_eq!(outcome, FreeOutcome::NotMine),
                    _ => assert_eq!(outcome, FreeOutcome::NotLive),
                }
            }
        }
        Action::Find { index, offset } => program.find(pick(index), offset),
        Action::Hold { index } => program.hold(pick(index)),
        Action::Unhold { index, .. } => program.unhold_live(pick(index)),
        Action::Retire { index } => program.retire(pick(index)),
    }
}

/// `lanes`: each action is that of the thread with the next of these lanes, over and over.
fn run(
    settings: Settings,
    (sole_stream, has_pages): (bool, bool),
    lanes: &[usize],
    actions: &[Action],
) {
    let backing = Watched::new(96 * MIB, settings.scrub.is_some()).with_pages(has_pages);
    backing
        .sole_stream
        .store(sole_stream, std::sync::atomic::Ordering::SeqCst);
    let pool = Pool::new(settings, Arc::new(Budget::new(None)));
    let mut program = Program::new(&pool, &backing);
    let mut lanes = lanes.iter().cycle();
    for action in actions {
        program.lane = lanes.next().copied();
        perform(&mut program, action);
        pool.check();
        let used = pool.budget().used_bytes();
        assert_eq!(pool.stats().reserved_bytes.current, used, "SUMS: budget");
        assert_eq!(backing.reserved_bytes(), used, "SUMS: driver");
    }
    backing.fail_at_random(0, 0);
    program.end();
    assert_nothing_left(&pool, &backing, || backing.reserved_bytes());
}

/// The same programs on every run; `PROPTEST_CASES` makes it more of them.
fn runner(cases: u32) -> TestRunner {
    let cases = std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(cases);
    let config = Config {
        cases,
        rng_seed: RngSeed::Fixed(4),
        failure_persistence: None,
        max_shrink_iters: 4000,
        ..Config::default()
    };
    TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha))
}

#[test]
fn invariants_hold_after_every_action() {
    let programs = (
        settings(),
        any::<bool>(),
        any::<bool>(),
        prop::collection::vec(action(), 1..160),
    );
    runner(1000)
        .run(&programs, |(settings, sole_stream, has_pages, actions)| {
            run(settings, (sole_stream, has_pages), &[], &actions);
            Ok(())
        })
        .unwrap();
}

/// Threads that take turns, with all that one thread may do; often so many misses in turns that they meet.
#[test]
fn invariants_hold_after_every_action_of_several_threads() {
    let unscrubbed = settings().prop_map(|settings| Settings {
        scrub: None,
        ..settings
    });
    let programs = (
        unscrubbed,
        (any::<bool>(), any::<bool>()),
        prop::collection::vec(0..4usize, 1..8),
        prop::collection::vec(action(), 1..500),
    );
    runner(200)
        .run(&programs, |(settings, memory, lanes, actions)| {
            run(settings, memory, &lanes, &actions);
            Ok(())
        })
        .unwrap();
}
