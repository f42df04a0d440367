//! What a pool looks like at one moment, by value: the only form in which reports and the command line see a pool.

/// A quantity that goes up and down.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Gauge {
    /// Now.
    pub current: u64,
    /// The highest value ever.
    pub peak: u64,
    /// The sum of all increases ever (never falls).
    pub total: u64,
}

/// Figures of one pool. Bytes unless the name says otherwise. *Cached* is `reserved - allocated`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PoolStats {
    /// As the program asked.
    pub requested_bytes: Gauge,
    /// As handed out (rounded).
    pub allocated_bytes: Gauge,
    /// Allocated, or freed and not yet behind a barrier.
    pub active_bytes: Gauge,
    /// Taken from the driver.
    pub reserved_bytes: Gauge,
    /// Live allocations.
    pub allocations: Gauge,
    /// Segments held.
    pub segments: Gauge,
    /// Requests served from cached blocks, with no call to reserve memory.
    pub hits: u64,
    /// Requests that made the pool grow.
    pub misses: u64,
    /// Calls to [`crate::pool::Backing::reserve`] that succeeded.
    pub reserve_calls: u64,
    /// Calls to [`crate::pool::Backing::release`].
    pub release_calls: u64,
    /// Device-side barriers issued.
    pub fences: u64,
    /// Host waits made on behalf of frees.
    pub host_waits: u64,
    /// Bytes filled before reuse.
    pub scrubbed_bytes: u64,
    /// Requests refused because of the limit.
    pub refused_by_limit: u64,
    /// Requests refused because the driver had no memory after everything was reclaimed.
    pub refused_by_driver: u64,
    /// Times the pool reclaimed its cache and tried again after the driver refused.
    pub retries: u64,
    /// Bytes given back because the device was used beyond [`crate::pool::Settings::gc_threshold_percent`].
    pub threshold_released_bytes: u64,
    /// Bytes given back by [`crate::pool::Pool::trim_idle`].
    pub idle_released_bytes: u64,
    /// Bytes taken ahead of need by [`crate::pool::Pool::preallocate`].
    pub preallocated_bytes: u64,
}

/// What a block is at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockState {
    /// In the program's hands.
    Allocated,
    /// Free; its next user needs no barrier.
    Free,
    /// Free; a barrier is needed first.
    FreeUnfenced,
    /// Kept out of use (an exported IPC block, memory that must really be freed).
    Held,
}

/// One block of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockSnapshot {
    /// Offset from the segment's start.
    pub offset_bytes: u64,
    /// Size as handed out (rounded).
    pub size_bytes: u64,
    /// Size as the program asked; 0 unless allocated.
    pub requested_bytes: u64,
    /// What it is.
    pub state: BlockState,
    /// The caller's own word for this allocation (the ledger packs site and time into it); 0 unless allocated.
    pub tag: u64,
}

/// Which request sizes a segment serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SegmentKind {
    /// Requests up to 1 MiB.
    Small,
    /// Larger requests.
    Large,
    /// One request at or above `max_split_size`.
    Oversize,
    /// One block that lives alone because of attributes set on it (hazard 16).
    Isolated,
}

/// One segment with its blocks, which tile it in address order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentSnapshot {
    /// Start of the segment.
    pub address: u64,
    /// Its size.
    pub size_bytes: u64,
    /// Which sizes it serves.
    pub kind: SegmentKind,
    /// Its blocks in address order.
    pub blocks: Vec<BlockSnapshot>,
}

/// A whole pool. Segments are in address order. Taken in slices, so that no allocation waits long: figures and map
/// can differ by what happened while it was taken.
#[derive(Debug, Clone, Default)]
pub struct PoolSnapshot {
    /// The figures.
    pub stats: PoolStats,
    /// The map.
    pub segments: Vec<SegmentSnapshot>,
    /// The largest request that would succeed now without taking memory from the driver.
    pub largest_free_bytes: u64,
}
