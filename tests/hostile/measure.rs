//! What a call cost: the most heap memory of this thread at once, and time.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::{Duration, Instant};

struct Counting;

thread_local! {
    static NOW_BYTES: Cell<isize> = const { Cell::new(0) };
    static PEAK_BYTES: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    // A thread that ends is not counted any more.
    let _ = NOW_BYTES.try_with(|now| {
        now.set(now.get() + bytes);
        let _ = PEAK_BYTES.try_with(|peak| peak.set(peak.get().max(now.get())));
    });
}

// SAFETY: every call is the system allocator's, with the caller's own arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as isize - layout.size() as isize);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What a call took.
#[derive(Debug, Clone, Copy)]
pub struct Cost {
    pub peak_bytes: usize,
    pub time: Duration,
}

pub fn cost<R>(call: impl FnOnce() -> R) -> (R, Cost) {
    let before = NOW_BYTES.get();
    PEAK_BYTES.set(before);
    let started = Instant::now();
    let result = call();
    let cost = Cost {
        peak_bytes: (PEAK_BYTES.get() - before).max(0) as usize,
        time: started.elapsed(),
    };
    (result, cost)
}

impl Cost {
    /// # Panics
    /// When it is out of proportion to an input of `length` bytes: `flat` bytes and 3 seconds that any may take, and so
    /// much more for each byte.
    pub fn must_fit(self, what: &str, length: usize, flat_bytes: usize) {
        const BYTES_A_BYTE: usize = 160;
        const SLOWEST_BYTES_A_SECOND: usize = 400_000;
        let bound = flat_bytes + BYTES_A_BYTE * length;
        assert!(
            self.peak_bytes <= bound,
            "{what}: {} bytes of memory for {length} bytes of input",
            self.peak_bytes
        );
        let bound = Duration::from_secs(3 + (length / SLOWEST_BYTES_A_SECOND) as u64);
        assert!(
            self.time <= bound,
            "{what}: {:?} for {length} bytes",
            self.time
        );
    }
}
