//! What the pool asks of the memory below it: segments, barriers on the device, and filled bytes.
//!
//! The real driver, the simulated one and the replay each implement [`Backing`]. The pool calls it **without holding
//! its lock** (hazard 9), from whichever program thread is inside the pool; an implementation may be called from many
//! threads at once and must not call back into the pool.

use super::mapped::Quiet;

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

/// A barrier, by which the backing can be asked whether it has passed on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fence(pub u64);

impl Fence {
    /// The backing cannot tell whether it has passed.
    pub const UNWATCHED: Fence = Fence(0);
}

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

    /// Whether [`Backing::release`] would return before long: the work submitted earlier ends soon. Waits for that for some seconds at
    /// most. Asked before a release that could as well be left.
    fn rests_soon(&self) -> bool {
        true
    }

    /// Device half of a free: all work submitted after this call, on any stream of any context that can reach the
    /// memory, runs after all work submitted before it. The host does not wait.
    fn fence(&self) -> Result<Fence, BackingError>;

    /// Host half of a free: returns when all work submitted to the device earlier has ended.
    fn synchronize(&self) -> Result<(), BackingError>;

    /// The same for a caller that others may be waiting for, a trim: [`BackingError::Unavailable`] rather than a wait for anything but
    /// the device.
    fn synchronize_now(&self) -> Result<(), BackingError> {
        self.synchronize()
    }

    /// Starts filling `ranges` with `byte`, after all work submitted before this call. The program's later work need not be
    /// ordered behind it yet: that is [`Backing::join_scrub`].
    ///
    /// # Errors
    /// After [`BackingError::Failed`] some of the filling may have been queued, to run at any time.
    fn begin_scrub(&self, ranges: &[Range], byte: u8) -> Result<ScrubTicket, BackingError>;

    /// The same for ranges that are all behind a barrier, or fresh: work submitted since that barrier need not have ended, and may not
    /// end before the program does what it wants the memory for.
    ///
    /// # Errors
    /// As [`Backing::begin_scrub`].
    fn begin_scrub_behind_barrier(
        &self,
        ranges: &[Range],
        byte: u8,
    ) -> Result<ScrubTicket, BackingError> {
        self.begin_scrub(ranges, byte)
    }

    /// All work submitted after this call runs after the scrub of `ticket` and of every earlier one. The host does not wait.
    fn join_scrub(&self, ticket: ScrubTicket) -> Result<(), BackingError>;

    /// Whether work of this backing's context is ordered by itself: only one stream has ever had work, so later work
    /// runs after earlier work without a fence. Once false it stays false.
    ///
    /// The pool asks **under its lock** (the one exception): answer from an atomic, without waiting. Whoever gives work to
    /// a second stream turns the answer to false **first**, then fences, then gives the work: blocks handed out
    /// without a fence until then may still be in use by the first stream.
    fn sole_stream(&self) -> bool {
        false
    }

    /// Memory in pages that can be mapped where they are needed, if this backing has it. The answer may turn from
    /// `Some` to `None` only before the first range was reserved.
    fn pages(&self) -> Option<&dyn Pages> {
        None
    }
}

/// Physical memory apart from addresses: *handles* of memory that are mapped into reserved *ranges* of addresses.
///
/// # Rules of the driver that the pool keeps to
/// Sizes and addresses are multiples of 2 MiB. A handle is mapped whole, at one place at a time here, and unmapped as a
/// whole. Unmapping does not wait for the device: the pool unmaps only what no work can touch any more ([`Quiet`]).
pub trait Pages {
    /// Whether memory that the pool takes from now on is to be mapped; else it takes segments. Memory that is mapped
    /// already stays in use.
    fn wanted(&self) -> bool {
        true
    }

    /// Reserves addresses, aligned to 2 MiB, with no memory behind them. They stay reserved until the context ends.
    fn reserve_range(&self, size_bytes: u64) -> Result<u64, BackingError>;

    /// What the driver has left to take, if it can be known. Not a promise: others take, too.
    fn room_bytes(&self) -> Option<u64> {
        None
    }

    /// Takes memory from the driver.
    fn create(&self, size_bytes: u64) -> Result<u64, BackingError>;

    /// Puts a handle behind `range`, which has its size and lies in a reserved range, for every device that can reach
    /// the memory of this context. After an error nothing is mapped there.
    fn map(&self, handle: u64, range: Range) -> Result<(), BackingError>;

    /// Takes the one handle behind a range away from it. Does not wait for device work: that is what the proof is for.
    /// After an error it is still there.
    fn unmap(&self, what: &Quiet) -> Result<(), BackingError>;

    /// Gives a handle that is mapped nowhere back to the driver. There is no way to go on if the driver refuses: whatever
    /// it says, the pool forgets the handle.
    fn destroy(&self, handle: u64);

    /// Whether this barrier, which [`Backing::fence`] gave, is known to have passed on the device: all work submitted
    /// before that call has ended. Does not wait; `false` when it cannot be known, now or at all.
    fn has_passed(&self, _fence: Fence) -> bool {
        false
    }

    /// Whether the bytes of a new handle are zero.
    fn fresh_is_zero(&self) -> bool;
}
