//! Device memory that is only addresses: lowest fit in a capacity, with every call counted and checked.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::Mutex;

use cushion::pool::{Backing, BackingError, Range, ScrubTicket};

const BASE: u64 = 0x7f00_0000_0000;
const MIB: u64 = 1 << 20;

#[derive(Debug, Default)]
pub struct Arithmetic {
    segments: Mutex<BTreeMap<u64, u64>>,
    capacity_bytes: u64,
    pub reserved_bytes: AtomicU64,
    pub peak_bytes: AtomicU64,
    pub reserve_calls: AtomicU64,
    pub release_calls: AtomicU64,
    pub fence_calls: AtomicU64,
    pub synchronize_calls: AtomicU64,
    pub scrub_calls: AtomicU64,
    pub join_calls: AtomicU64,
    tickets: AtomicU64,
    pub sole_stream: AtomicBool,
}

impl Arithmetic {
    pub fn new(capacity_bytes: u64) -> Self {
        Arithmetic {
            capacity_bytes,
            ..Arithmetic::default()
        }
    }

    pub fn one_stream(capacity_bytes: u64) -> Self {
        let backing = Arithmetic::new(capacity_bytes);
        backing.sole_stream.store(true, SeqCst);
        backing
    }

    pub fn reserved_bytes(&self) -> u64 {
        self.reserved_bytes.load(SeqCst)
    }

    /// The context is gone, with all memory.
    pub fn destroy(&self) {
        self.segments.lock().unwrap().clear();
        self.reserved_bytes.store(0, SeqCst);
    }

    /// Whether a range lies in one segment.
    pub fn holds(&self, range: Range) -> bool {
        let segments = self.segments.lock().unwrap();
        segments
            .range(..=range.address)
            .next_back()
            .is_some_and(|(&at, &size)| range.address + range.size_bytes <= at + size)
    }
}

impl Backing for Arithmetic {
    fn reserve(&self, size_bytes: u64) -> Result<u64, BackingError> {
        let mut segments = self.segments.lock().unwrap();
        if self.reserved_bytes.load(SeqCst) + size_bytes > self.capacity_bytes {
            return Err(BackingError::OutOfMemory);
        }
        let alignment = if size_bytes > MIB { 2 * MIB } else { 512 };
        let mut address = BASE;
        for (&at, &size) in segments.iter() {
            if at >= address + size_bytes {
                break;
            }
            address = (at + size).next_multiple_of(alignment);
        }
        segments.insert(address, size_bytes);
        let reserved = self.reserved_bytes.fetch_add(size_bytes, SeqCst) + size_bytes;
        self.peak_bytes.fetch_max(reserved, SeqCst);
        self.reserve_calls.fetch_add(1, SeqCst);
        Ok(address)
    }

    fn release(&self, segment: Range) -> Result<(), BackingError> {
        let mut segments = self.segments.lock().unwrap();
        let size = segments.remove(&segment.address);
        assert_eq!(
            size,
            Some(segment.size_bytes),
            "WHOLE: released what is no segment"
        );
        self.reserved_bytes.fetch_sub(segment.size_bytes, SeqCst);
        self.release_calls.fetch_add(1, SeqCst);
        Ok(())
    }

    fn fence(&self) -> Result<(), BackingError> {
        self.fence_calls.fetch_add(1, SeqCst);
        Ok(())
    }

    fn synchronize(&self) -> Result<(), BackingError> {
        self.synchronize_calls.fetch_add(1, SeqCst);
        Ok(())
    }

    fn begin_scrub(&self, ranges: &[Range], _byte: u8) -> Result<ScrubTicket, BackingError> {
        for &range in ranges {
            assert!(self.holds(range), "OURS: scrub outside a segment");
        }
        self.scrub_calls.fetch_add(1, SeqCst);
        Ok(ScrubTicket(self.tickets.fetch_add(1, SeqCst)))
    }

    fn join_scrub(&self, ticket: ScrubTicket) -> Result<(), BackingError> {
        assert!(
            ticket.0 < self.tickets.load(SeqCst),
            "joined a scrub that was never begun"
        );
        self.join_calls.fetch_add(1, SeqCst);
        Ok(())
    }

    fn sole_stream(&self) -> bool {
        self.sole_stream.load(SeqCst)
    }
}
