//! The order of the one stream is lost while others allocate without a fence.
//!
//! The pool is the real one; [`Device::lose`] does what `shim/src/device/order.rs` does ("Decision: how it is lost").

use std::sync::Arc;

use cushion::pool::{
    Backing, BackingError, Budget, Fence, FreeMode, Pool, Range, Request, ScrubTicket,
};
use loom::sync::atomic::{AtomicU8, Ordering};
use loom::sync::Mutex;

use crate::explore::explore;
use crate::stage::{plain, MIB};

const GIVEN: u8 = 0;
const BEING_LOST: u8 = 1;
const LOST: u8 = 2;

const LEGACY: u8 = 0;
const SECOND: u8 = 1;

/// What was submitted, in order. The lock is the driver's own.
#[derive(Default)]
struct Queue {
    now: u64,
    barrier: u64,
    used: Vec<(Range, u64, u8)>,
    next_address: u64,
}

struct Device {
    queue: Mutex<Queue>,
    state: AtomicU8,
    turn: Mutex<()>,
    /// The second stream may have work, and every thread may use it.
    second: AtomicU8,
}

impl Device {
    fn new() -> Self {
        Device {
            queue: Mutex::default(),
            state: AtomicU8::new(GIVEN),
            turn: Mutex::new(()),
            second: AtomicU8::new(LEGACY),
        }
    }

    /// Work of the program on a block. Whatever used its bytes before must end before it.
    fn submit(&self, address: u64, size_bytes: u64, stream: u8) {
        let mut queue = self.queue.lock().unwrap();
        queue.now += 1;
        for &(range, stamp, other) in &queue.used {
            let apart = range.address + range.size_bytes <= address
                || address + size_bytes <= range.address;
            assert!(
                apart || stream == other || stamp <= queue.barrier,
                "FENCED: work on stream {stream} beside earlier work on stream {other}"
            );
        }
        let (range, now) = (
            Range {
                address,
                size_bytes,
            },
            queue.now,
        );
        queue.used.push((range, now, stream));
    }

    /// A second stream is about to have work.
    fn lose(&self) {
        if self.state.load(Ordering::Acquire) == LOST {
            return;
        }
        let _turn = self.turn.lock().unwrap();
        if self.state.load(Ordering::Acquire) == LOST {
            return;
        }
        self.state.store(BEING_LOST, Ordering::SeqCst);
        self.fence().unwrap();
        self.state.store(LOST, Ordering::Release);
    }

    /// The stream that a thread of the program uses now: the second one as soon as there is one.
    fn stream(&self) -> u8 {
        self.second.load(Ordering::Acquire)
    }
}

impl Backing for Device {
    fn reserve(&self, size_bytes: u64) -> Result<u64, BackingError> {
        let mut queue = self.queue.lock().unwrap();
        queue.next_address += 32 * MIB;
        assert!(size_bytes <= 32 * MIB);
        Ok(queue.next_address)
    }
    fn release(&self, _: Range) -> Result<(), BackingError> {
        self.fence().map(drop)
    }
    fn fence(&self) -> Result<Fence, BackingError> {
        let mut queue = self.queue.lock().unwrap();
        queue.barrier = queue.now;
        Ok(Fence::UNWATCHED)
    }
    fn synchronize(&self) -> Result<(), BackingError> {
        self.fence().map(drop)
    }
    fn begin_scrub(&self, _: &[Range], _: u8) -> Result<ScrubTicket, BackingError> {
        Err(BackingError::Unavailable)
    }
    fn join_scrub(&self, _: ScrubTicket) -> Result<(), BackingError> {
        Ok(())
    }
    fn sole_stream(&self) -> bool {
        self.state.load(Ordering::Acquire) == GIVEN
    }
}

/// A block comes, is worked on, and goes.
fn round(pool: &Pool, device: &Device) {
    let request = Request {
        size_bytes: MIB,
        tag: 0,
        capturing: false,
        isolated: false,
    };
    let grant = pool.allocate(device, request).expect("room");
    device.submit(grant.address, MIB, device.stream());
    pool.free(device, grant.address, FreeMode::default());
}

/// Work that used a block without a fence is behind one before any work can be submitted that the legacy stream's order
/// does not cover.
#[test]
fn a_second_stream_beside_unfenced_reuse() {
    for others in [1, 2] {
        explore(&format!("a_second_stream_beside {others}"), move || {
            let pool = Arc::new(Pool::new(plain(), Arc::new(Budget::new(None))));
            let device = Arc::new(Device::new());
            round(&pool, &device);
            let threads: Vec<_> = (0..others)
                .map(|_| {
                    let (pool, device) = (pool.clone(), device.clone());
                    loom::thread::spawn(move || round(&pool, &device))
                })
                .collect();
            device.lose();
            device.second.store(SECOND, Ordering::Release);
            round(&pool, &device);
            for thread in threads {
                thread.join().unwrap();
            }
            pool.check();
        });
    }
}

/// Two calls that lose the order at once: neither goes on before everything is fenced.
#[test]
fn two_lose_it_at_once() {
    explore("two_lose_it_at_once", || {
        let pool = Arc::new(Pool::new(plain(), Arc::new(Budget::new(None))));
        let device = Arc::new(Device::new());
        round(&pool, &device);
        let work = |pool: &Pool, device: &Device| {
            device.lose();
            device.second.store(SECOND, Ordering::Release);
            round(pool, device);
        };
        let thread = {
            let (pool, device) = (pool.clone(), device.clone());
            loom::thread::spawn(move || work(&pool, &device))
        };
        work(&pool, &device);
        thread.join().unwrap();
        pool.check();
    });
}
