//! The real pool, over the driver of arithmetic.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;

use super::driver::Figures;
use super::{Driver, Full, Policy, Request};
use crate::pool::{
    self, Backing, BackingError, Budget, Fence, FreeMode, Pages, Pool, Quiet, Range, ScrubTicket,
    Settings,
};

/// The pool that `libcushion.so` holds, with the settings it would have.
#[derive(Debug)]
pub(super) struct Cushion {
    pool: Pool,
    backing: Model,
    live: HashMap<u64, u64>,
}

/// The memory below it.
#[derive(Debug)]
struct Model {
    driver: RefCell<Driver>,
    /// The first stream seen, until another one comes.
    streams: Cell<Streams>,
    tickets: Cell<u64>,
    /// Memory is mapped; else it comes in segments.
    is_mapped: bool,
    /// Sizes of the handles that exist, by their names.
    handles: RefCell<HashMap<u64, u64>>,
    next_handle: Cell<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Streams {
    None,
    One(u64),
    Many,
}

impl Cushion {
    /// `is_mapped`: on mapped memory, else on plain segments.
    pub fn new(driver: Driver, settings: Settings, is_mapped: bool) -> Cushion {
        let budget = Budget::new(driver.limit_bytes());
        let (streams, tickets) = (Cell::new(Streams::None), Cell::new(0));
        let pool = Pool::new(settings, Arc::new(budget));
        let backing = Model {
            driver: RefCell::new(driver),
            streams,
            tickets,
            is_mapped,
            handles: RefCell::new(HashMap::new()),
            next_handle: Cell::new(0),
        };
        // As in a process: what cannot be had ahead is done without.
        let _ = pool.preallocate(&backing);
        Cushion {
            pool,
            backing,
            live: HashMap::new(),
        }
    }
}

impl Model {
    /// A second stream makes the first barrier necessary, as in a process.
    fn see(&self, stream: u64) {
        match self.streams.get() {
            Streams::None => self.streams.set(Streams::One(stream)),
            Streams::One(known) if known != stream => {
                self.streams.set(Streams::Many);
                self.driver.borrow_mut().fence();
            }
            _ => {}
        }
    }
}

impl Backing for Model {
    fn reserve(&self, size_bytes: u64) -> Result<u64, BackingError> {
        self.driver
            .borrow_mut()
            .malloc(size_bytes)
            .map_err(|Full| BackingError::OutOfMemory)
    }

    fn release(&self, segment: Range) -> Result<(), BackingError> {
        self.driver.borrow_mut().free(segment.size_bytes);
        Ok(())
    }

    fn fence(&self) -> Result<Fence, BackingError> {
        self.driver.borrow_mut().fence();
        Ok(Fence::UNWATCHED)
    }

    fn synchronize(&self) -> Result<(), BackingError> {
        self.driver.borrow_mut().synchronize();
        Ok(())
    }

    fn begin_scrub(&self, ranges: &[Range], _byte: u8) -> Result<ScrubTicket, BackingError> {
        self.driver.borrow_mut().fill(ranges.len());
        self.tickets.set(self.tickets.get() + 1);
        Ok(ScrubTicket(self.tickets.get()))
    }

    fn join_scrub(&self, _ticket: ScrubTicket) -> Result<(), BackingError> {
        self.driver.borrow_mut().fence();
        Ok(())
    }

    fn sole_stream(&self) -> bool {
        self.streams.get() != Streams::Many
    }

    fn pages(&self) -> Option<&dyn Pages> {
        self.is_mapped.then_some(self)
    }
}

impl Pages for Model {
    fn reserve_range(&self, size_bytes: u64) -> Result<u64, BackingError> {
        Ok(self.driver.borrow_mut().addresses(size_bytes))
    }

    fn create(&self, size_bytes: u64) -> Result<u64, BackingError> {
        let created = self.driver.borrow_mut().create(size_bytes);
        created.map_err(|Full| BackingError::OutOfMemory)?;
        let handle = self.next_handle.get();
        self.next_handle.set(handle + 1);
        self.handles.borrow_mut().insert(handle, size_bytes);
        Ok(handle)
    }

    fn map(&self, _handle: u64, range: Range) -> Result<(), BackingError> {
        self.driver.borrow_mut().map_handle(range.size_bytes);
        Ok(())
    }

    fn unmap(&self, what: &Quiet) -> Result<(), BackingError> {
        self.driver
            .borrow_mut()
            .unmap_handle(what.range().size_bytes);
        Ok(())
    }

    fn destroy(&self, handle: u64) {
        let size_bytes = self.handles.borrow_mut().remove(&handle);
        self.driver.borrow_mut().destroy(size_bytes.unwrap_or(0));
    }

    fn fresh_is_zero(&self) -> bool {
        true
    }
}

impl Policy for Cushion {
    fn allocate(&mut self, request: Request) -> Result<(), Full> {
        self.backing.see(request.stream);
        let size_bytes = request.size_bytes;
        let plain = pool::Request {
            size_bytes,
            tag: request.id,
            capturing: false,
            isolated: false,
        };
        let grant = self.pool.allocate(&self.backing, plain).map_err(|_| Full)?;
        self.live.insert(request.id, grant.address);
        Ok(())
    }

    fn free(&mut self, id: u64) {
        if let Some(address) = self.live.remove(&id) {
            // The address is one that the pool gave, and the model's driver never fails.
            self.pool.free(&self.backing, address, FreeMode::default());
        }
    }

    fn largest_cached_bytes(&self) -> u64 {
        self.pool.snapshot().largest_free_bytes
    }

    fn releasable_bytes(&self) -> u64 {
        self.pool.releasable_bytes()
    }

    fn driver(&self) -> Figures {
        self.backing.driver.borrow().figures
    }
}
