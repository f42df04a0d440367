//! What goes into the pool and what comes out of it, by value.

use super::Range;

/// One allocation, as the program asked for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Bytes asked for, at least 1.
    pub size_bytes: u64,
    /// The caller's own word, kept with the block and given back by `free`, `find` and the snapshot.
    pub tag: u64,
    /// A stream of the context captures: no fence, no host wait and no join is allowed now. Blocks that would need
    /// one are left alone and the pool grows instead.
    pub capturing: bool,
    /// The block gets a segment of its own and goes back to the driver when it is freed (hazard 16).
    pub isolated: bool,
}

/// Where a granted block came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Cut from memory the pool already had.
    Hit,
    /// The pool took a new segment from the driver.
    Grown,
}

/// An allocation that succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// First byte.
    pub address: u64,
    /// Size as handed out: what was asked for, rounded up.
    pub allocated_bytes: u64,
    /// Differs for every allocation of this pool, from 1 upwards (the driver's BUFFER_ID).
    pub sequence: u64,
    /// Where it came from.
    pub origin: Origin,
}

/// Why an allocation did not succeed. In each case everything that could be reclaimed was, first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The limit of the [`super::Budget`].
    Limit {
        /// As the program asked.
        requested_bytes: u64,
        /// Charged to the budget at that moment.
        used_bytes: u64,
        /// The limit.
        limit_bytes: u64,
    },
    /// The driver has no memory of that size.
    Driver,
    /// The driver failed with this code, which goes to the program verbatim.
    Failed(i32),
    /// Larger than any device (above 2^56 bytes), or where the pool's tables cannot hold it: the driver's to answer.
    TooLarge,
    /// [`super::Pool::forget`] ran in another thread meanwhile: the context is gone, and so is what was being allocated.
    Forgotten,
}

/// How a block is freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FreeMode {
    /// The host waits until the device has finished, as the driver's own free does. Skipped while capturing.
    pub host_wait: bool,
    /// See [`Request::capturing`].
    pub capturing: bool,
}

/// What became of a free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FreeOutcome {
    /// No segment of this pool holds the address: the driver is to be asked.
    NotMine,
    /// Inside a segment, but not the base of a live block: the driver's own answer is "invalid value".
    NotLive,
    /// The block is free.
    Freed {
        /// As the program had asked.
        requested_bytes: u64,
        /// As the program's request had it.
        tag: u64,
    },
    /// The driver failed with this code; the block is as live as before.
    Failed(i32),
}

/// What an address is to a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// In no segment of this pool.
    NotMine,
    /// In a segment, but not in what the program asked for.
    Dead,
    /// In the requested range of this live block.
    Live(Block),
}

/// A live block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// First byte.
    pub base: u64,
    /// As the program asked.
    pub requested_bytes: u64,
    /// As handed out (rounded).
    pub allocated_bytes: u64,
    /// As in its [`Grant`].
    pub sequence: u64,
    /// As in its [`Request`].
    pub tag: u64,
    /// The block is all of its segment, so the driver's answers about the segment are true of the block.
    pub whole_segment: bool,
    /// The segment it lies in.
    pub segment: Range,
}

/// The figures of one moment that belong together. Bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Taken from the driver.
    pub reserved_bytes: u64,
    /// Handed out (rounded).
    pub allocated_bytes: u64,
    /// Handed out, as the program asked.
    pub requested_bytes: u64,
    /// Kept out of use although freed (exported or retired blocks): neither free nor allocated.
    pub held_bytes: u64,
    /// Part of `allocated_bytes`: what small requests leave unused of the pieces of the large pool that serve them.
    pub borrowed_bytes: u64,
}

impl Usage {
    /// Reserved and not allocated: what the program may count as free, less what is held.
    pub fn cached_bytes(&self) -> u64 {
        self.reserved_bytes - self.allocated_bytes
    }

    /// What the program's requests do not need: natively it would be free, and is shown as free (hazard 8).
    pub fn unneeded_bytes(&self) -> u64 {
        self.cached_bytes() + self.borrowed_bytes
    }
}
