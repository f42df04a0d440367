//! What there is to know of a block, by parts: `entry` packs it.

/// The block is exported: freed, it is [`Use::Held`] until the last hold goes.
pub(super) const FLAG_HELD: u32 = 1;
/// The block's memory must never be handed out again (hazard 16).
pub(super) const FLAG_RETIRE: u32 = 2;
/// The block serves a small request, and is a piece of the large pool, in whose granule it is counted.
pub(super) const FLAG_BORROWED: u32 = 4;
/// The block is all of an oversize or isolated segment, as long as that is: it is never cut, and never kept in front.
pub(super) const FLAG_APART: u32 = 8;
/// The block is kept in front, which knows better whether it is live.
pub(super) const FLAG_IN_FRONT: u32 = 16;

/// A range of a segment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parts {
    pub address: u64,
    pub size_bytes: u64,
    pub in_use: Use,
    pub segment: u32,
    /// Neighbour below in the segment.
    pub previous: u32,
    /// Neighbour above in the segment.
    pub next: u32,
    pub flags: u32,
}

/// What a free block remembers of its past: which barrier it waits for, and which scrub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Past {
    /// Epoch of its last free; 0 for fresh memory.
    pub epoch: u64,
    /// Latest scrub that covers a part of it, in the numbering of `tickets`.
    pub ticket: u64,
}

impl Past {
    /// Memory no one has used.
    pub const FRESH: Past = Past {
        epoch: 0,
        ticket: 0,
    };

    /// The past of two blocks joined: the later barrier and the later scrub cover both.
    pub fn joined_with(self, other: Past) -> Past {
        Past {
            epoch: self.epoch.max(other.epoch),
            ticket: self.ticket.max(other.ticket),
        }
    }
}

/// Where a block is (invariant ONE-PLACE).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// Not a block: a vacant slot of the arena.
    Vacant { next_vacant: u32 },
    /// In the program's hands.
    Live {
        requested_bytes: u64,
        tag: u64,
        sequence: u64,
    },
    /// In the free lists.
    Free {
        past: Past,
        bin_previous: u32,
        bin_next: u32,
    },
    /// On its way, in one thread's hands.
    Hand { past: Past },
    /// Out of use though freed.
    Held { past: Past },
    /// Addresses without memory, in a mapped segment.
    Hole,
}
