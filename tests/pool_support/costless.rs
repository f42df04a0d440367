//! A backing that costs nothing and remembers nothing.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use cushion::pool::{Backing, BackingError, Fence, Range, ScrubTicket};

/// Memory that is only addresses, of segments aligned to 2 MiB; every call succeeds at once.
pub struct Costless {
    next: AtomicU64,
    scrubs: AtomicU64,
    sole_stream: bool,
}

impl Costless {
    pub fn new(sole_stream: bool) -> Self {
        Costless {
            next: AtomicU64::new(1 << 40),
            scrubs: AtomicU64::new(0),
            sole_stream,
        }
    }
}

impl Backing for Costless {
    fn reserve(&self, size_bytes: u64) -> Result<u64, BackingError> {
        Ok(self
            .next
            .fetch_add(size_bytes.next_multiple_of(2 << 20), Relaxed))
    }
    fn release(&self, _: Range) -> Result<(), BackingError> {
        Ok(())
    }
    fn fence(&self) -> Result<Fence, BackingError> {
        Ok(Fence::UNWATCHED)
    }
    fn synchronize(&self) -> Result<(), BackingError> {
        Ok(())
    }
    fn begin_scrub(&self, _: &[Range], _: u8) -> Result<ScrubTicket, BackingError> {
        Ok(ScrubTicket(self.scrubs.fetch_add(1, Relaxed)))
    }
    fn join_scrub(&self, _: ScrubTicket) -> Result<(), BackingError> {
        Ok(())
    }
    fn sole_stream(&self) -> bool {
        self.sole_stream
    }
}
