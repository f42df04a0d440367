//! Device memory that is only addresses: lowest fit in a capacity, with every call counted and checked.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::Mutex;

use cushion::pool::{Backing, BackingError, Fence, Pages, Quiet, Range, ScrubTicket};

const BASE: u64 = 0x7f00_0000_0000;
const MIB: u64 = 1 << 20;

/// Ranges of addresses begin here.
const RANGES: u64 = 0x6000_0000_0000;

/// Handles and where they are mapped.
#[derive(Debug, Default)]
struct Mapping {
    range_end: u64,
    next_handle: u64,
    /// Sizes by name.
    handles: BTreeMap<u64, u64>,
    /// Size and name by address.
    mapped: BTreeMap<u64, (u64, u64)>,
}

#[derive(Debug, Default)]
pub struct Arithmetic {
    mapping: Mutex<Mapping>,
    /// Memory can be mapped.
    pub has_pages: AtomicBool,
    segments: Mutex<BTreeMap<u64, u64>>,
    capacity_bytes: u64,
    pub reserved_bytes: AtomicU64,
    pub peak_bytes: AtomicU64,
    pub reserve_calls: AtomicU64,
    pub release_calls: AtomicU64,
    pub fence_calls: AtomicU64,
    pub synchronize_calls: AtomicU64,
    pub scrub_calls: AtomicU64,
    /// Ranges of all scrubs.
    pub scrub_ranges: AtomicU64,
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
        let mut mapping = self.mapping.lock().unwrap();
        mapping.handles.clear();
        mapping.mapped.clear();
        self.reserved_bytes.store(0, SeqCst);
    }

    /// Whether a range lies in one segment, or has memory mapped behind all of it.
    pub fn holds(&self, range: Range) -> bool {
        if range.address >= RANGES && range.address < BASE {
            return self.is_mapped(range);
        }
        let segments = self.segments.lock().unwrap();
        segments
            .range(..=range.address)
            .next_back()
            .is_some_and(|(&at, &size)| range.address + range.size_bytes <= at + size)
    }

    fn is_mapped(&self, range: Range) -> bool {
        let mapping = self.mapping.lock().unwrap();
        let (mut at, end) = (range.address, range.address + range.size_bytes);
        while at < end {
            match mapping.mapped.range(..=at).next_back() {
                Some((&start, &(size, _))) if at < start + size => at = start + size,
                _ => return false,
            }
        }
        true
    }

    /// The handle that is mapped exactly there.
    pub fn handle_at(&self, range: Range) -> Option<u64> {
        let mapping = self.mapping.lock().unwrap();
        let (size, handle) = *mapping.mapped.get(&range.address)?;
        (size == range.size_bytes).then_some(handle)
    }
}

impl Pages for Arithmetic {
    fn reserve_range(&self, size_bytes: u64) -> Result<u64, BackingError> {
        assert_eq!(size_bytes % (2 * MIB), 0);
        let mut mapping = self.mapping.lock().unwrap();
        let address = mapping.range_end.max(RANGES);
        mapping.range_end = address + size_bytes;
        Ok(address)
    }

    fn room_bytes(&self) -> Option<u64> {
        Some(
            self.capacity_bytes
                .saturating_sub(self.reserved_bytes.load(SeqCst)),
        )
    }

    fn create(&self, size_bytes: u64) -> Result<u64, BackingError> {
        assert!(size_bytes > 0 && size_bytes.is_multiple_of(2 * MIB));
        // Under the lock of the segments, as `reserve` counts.
        let _segments = self.segments.lock().unwrap();
        if self.reserved_bytes.load(SeqCst) + size_bytes > self.capacity_bytes {
            return Err(BackingError::OutOfMemory);
        }
        let reserved = self.reserved_bytes.fetch_add(size_bytes, SeqCst) + size_bytes;
        self.peak_bytes.fetch_max(reserved, SeqCst);
        let mut mapping = self.mapping.lock().unwrap();
        let handle = mapping.next_handle;
        mapping.next_handle += 1;
        mapping.handles.insert(handle, size_bytes);
        Ok(handle)
    }

    fn map(&self, handle: u64, range: Range) -> Result<(), BackingError> {
        let mut mapping = self.mapping.lock().unwrap();
        let Range {
            address,
            size_bytes,
        } = range;
        assert_eq!(
            mapping.handles.get(&handle),
            Some(&size_bytes),
            "a handle is mapped whole"
        );
        assert_eq!(address % (2 * MIB), 0);
        assert!(address >= RANGES && address + size_bytes <= mapping.range_end);
        let below = mapping.mapped.range(..address + size_bytes).next_back();
        if let Some((&at, &(size, _))) = below {
            assert!(at + size <= address, "mapped over a mapping");
        }
        assert!(
            mapping.mapped.values().all(|&(_, other)| other != handle),
            "mapped at two places"
        );
        mapping.mapped.insert(address, (size_bytes, handle));
        Ok(())
    }

    fn unmap(&self, what: &Quiet) -> Result<(), BackingError> {
        let range = what.range();
        let mut mapping = self.mapping.lock().unwrap();
        let was = mapping.mapped.remove(&range.address);
        assert_eq!(
            was.map(|(size, _)| size),
            Some(range.size_bytes),
            "unmapped what is no mapping"
        );
        Ok(())
    }

    fn destroy(&self, handle: u64) {
        let mut mapping = self.mapping.lock().unwrap();
        assert!(mapping.mapped.values().all(|&(_, other)| other != handle));
        let size = mapping.handles.remove(&handle).expect("a handle");
        self.reserved_bytes.fetch_sub(size, SeqCst);
    }

    fn fresh_is_zero(&self) -> bool {
        false
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

    fn fence(&self) -> Result<Fence, BackingError> {
        self.fence_calls.fetch_add(1, SeqCst);
        Ok(Fence::UNWATCHED)
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
        self.scrub_ranges.fetch_add(ranges.len() as u64, SeqCst);
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

    fn pages(&self) -> Option<&dyn Pages> {
        self.has_pages.load(SeqCst).then_some(self)
    }
}
