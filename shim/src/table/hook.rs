//! One row of the table, and how often it was called.

use super::{COUNTED, HOOKS};
use cushion::lane::LANE_COUNT;
use std::ffi::{c_void, CStr};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// What a hook is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Changes what the call does (served from the pool, limited, translated).
    Effect,
    /// Counts what passes by; the driver does the work.
    Count,
    /// Learns something that the pool needs (streams, captures, waits, errors); the driver does the work.
    Watch,
    /// Submits work to a stream, which must be the legacy one for the order to stay given (`device/order.rs`).
    Order,
    /// Hands out addresses of functions: works in every state of the process, and does not wake the shim.
    Route,
}

/// One hooked driver symbol. On a cache line of its own, since threads count calls of different rows at once.
#[repr(align(64))]
pub struct Hook {
    /// Exact exported name, suffixes included.
    pub symbol: &'static CStr,
    /// What it is for.
    pub kind: Kind,
    /// The shim's function of that name.
    pub ours: unsafe extern "C" fn(),
    /// The driver's function of that name, once found.
    pub(super) real: AtomicPtr<c_void>,
    /// Times the process was handed the hook's address.
    pub resolved_count: AtomicU64,
    /// Times it was called through the hook by threads without a lane.
    shared_count: AtomicU64,
}

/// Times each row was called by the threads that have a lane: each lane has one writer at a time.
static LANE_COUNTS: [[AtomicU64; COUNTED]; LANE_COUNT] =
    [const { [const { AtomicU64::new(0) }; COUNTED] }; LANE_COUNT];

impl Hook {
    pub(super) const fn new(
        symbol: &'static CStr,
        kind: Kind,
        ours: unsafe extern "C" fn(),
    ) -> Self {
        Hook {
            symbol,
            kind,
            ours,
            real: AtomicPtr::new(std::ptr::null_mut()),
            resolved_count: AtomicU64::new(0),
            shared_count: AtomicU64::new(0),
        }
    }

    /// The driver's own function, if known.
    pub fn real(&self) -> *mut c_void {
        self.real.load(Ordering::Acquire)
    }

    /// Remembers the driver's own function. The first answer stays.
    pub fn set_real(&self, address: *mut c_void) {
        let _ = self.real.compare_exchange(
            std::ptr::null_mut(),
            address,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
    }

    /// Counts a call of this hook, which is number `row`.
    #[inline]
    pub fn count_call(&self, row: usize, lane: Option<usize>) {
        match lane.map(|lane| &LANE_COUNTS[lane][row]) {
            Some(count) => count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed),
            None => {
                self.shared_count.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Times it was called through the hook.
    pub fn call_count(&self, row: usize) -> u64 {
        let counts = LANE_COUNTS.iter().filter_map(|counts| counts.get(row));
        let by_lane: u64 = counts.map(|count| count.load(Ordering::Relaxed)).sum();
        by_lane + self.shared_count.load(Ordering::Relaxed)
    }

    /// The shim's function of that name, as the process is handed it; counted.
    pub fn hand_out(&self) -> *mut c_void {
        self.resolved_count.fetch_add(1, Ordering::Relaxed);
        self.ours as *mut c_void
    }
}

/// Calls of all counted rows, by those who made them.
pub struct Calls {
    /// Of the threads that have had a lane.
    pub by_lane: [u64; LANE_COUNT],
    /// Of all others.
    pub shared: u64,
}

/// Calls made so far. Exact for each thread that makes none meanwhile.
pub fn calls() -> Calls {
    let sum = |counts: &[AtomicU64]| {
        counts
            .iter()
            .map(|count| count.load(Ordering::Relaxed))
            .sum()
    };
    Calls {
        by_lane: std::array::from_fn(|lane| sum(&LANE_COUNTS[lane])),
        shared: HOOKS
            .iter()
            .map(|hook| hook.shared_count.load(Ordering::Relaxed))
            .sum(),
    }
}
