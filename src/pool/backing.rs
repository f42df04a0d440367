//! What the pool asks of the memory below it: segments, barriers on the device, and filled bytes.
//!
//! The real driver, the simulated one and the replay each implement [`Backing`]. The pool calls it **without holding
//! its lock** (hazard 9), from whichever program thread is inside the pool; an implementation may be called from many
//! threads at once and must not call back into the pool.

/// Why a backing did not do what it was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackingError {
    /// There is no memory of that size left. The pool reclaims and tries once more before it gives up.
    OutOfMemory,
    /// Not possible at this moment (a stream of the context captures, or the driver lacks the call). Nothing happened;
    /// the pool takes another way: other blocks, or growth.
    Unavailable,
    /// The driver refused with this code of its own (a sticky error, a dead context). The code goes to the program verbatim.
    Failed(i32),
}

/// A point in the order of the scrubs started on one backing. Tickets are handed out in rising order, and a later
/// ticket that has completed implies every earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct ScrubTicket(pub u64);

/// A range of device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// First byte.
    pub address: u64,
    /// Length in bytes.
    pub size_bytes: u64,
}

/// The memory below a pool: one device context, or a model of one.
pub trait Backing {
    /// Takes a new segment of exactly `size_bytes` from the driver. Its bytes are zero and its address is at least
    /// 512-byte aligned (2 MiB above 1 MiB). Does not wait for device work.
    fn reserve(&self, size_bytes: u64) -> Result<u64, BackingError>;

    /// Gives a whole segment back. By its return all work submitted to the device earlier has ended (the driver waits).
    fn release(&self, segment: Range) -> Result<(), BackingError>;

    /// Device half of a free: all work submitted after this call, on any stream of any context that can reach the
    /// memory, runs after all work submitted before it. The host does not wait.
    fn fence(&self) -> Result<(), BackingError>;

    /// Host half of a free: returns when all work submitted to the device earlier has ended.
    fn synchronize(&self) -> Result<(), BackingError>;

    /// Starts filling `ranges` with `byte` on a stream of the backing's own, after all work submitted before this
    /// call. The program's later work is not yet ordered behind it: that is [`Backing::join_scrub`].
    fn begin_scrub(&self, ranges: &[Range], byte: u8) -> Result<ScrubTicket, BackingError>;

    /// All work submitted after this call runs after the scrub of `ticket` and of every earlier one. The host does not wait.
    fn join_scrub(&self, ticket: ScrubTicket) -> Result<(), BackingError>;

    /// Whether work of this backing's context is ordered by itself: only one stream has ever existed, so later work
    /// runs after earlier work without a fence. Once false it stays false.
    ///
    /// The pool asks **under its lock** (the one exception): answer from an atomic, without waiting. Whoever makes the
    /// second stream turns the answer to false **first**, then fences, then makes the stream: blocks handed out
    /// without a fence until then may still be in use by the first stream.
    fn sole_stream(&self) -> bool {
        false
    }
}
