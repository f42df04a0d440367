//! A block of a segment, as the arena keeps it.
//!
//! # Decision: 48 bytes, packed
//! Entries are most of the pool's host memory: a program with a hundred thousand blocks of many sizes has a free one beside every
//! fifth, and 96 bytes a live block for all tables together leave 48 for an entry.
//! * Blocks start at multiples of [`GRANULE_BYTES`], so an address of up to [`ADDRESS_BITS`] bits leaves 16 for what the block is and
//!   its flags. Sizes are counted in granules, in 32 bits: [`Entry::can_hold`] keeps out what would not fit.
//! * What only a live block has and what only a free one has share their place.
//! * A neighbour's look takes the first 16 bytes, so it is one cache line wherever the entry lies.
//!
//! All of this is this file's alone: [`Parts`] and [`Use`] are what others see.

use super::parts::{Parts, Past, Use};
use super::size::GRANULE_BYTES;
use super::Range;

/// Addresses have so many bits at most (five-level page tables).
const ADDRESS_BITS: u32 = 57;
const GRANULE_BITS: u32 = GRANULE_BYTES.trailing_zeros();
/// From an address to its place in the word.
const ADDRESS_SHIFT: u32 = u64::BITS - ADDRESS_BITS;
/// Bits below the address: what the block is, and its flags.
const LOW_BITS: u32 = ADDRESS_SHIFT + GRANULE_BITS;
const LOW_MASK: u64 = (1 << LOW_BITS) - 1;
const KIND_MASK: u64 = 7;
const FLAGS_SHIFT: u32 = 3;

const VACANT: u64 = 0;
const LIVE: u64 = 1;
const FREE: u64 = 2;
const HAND: u64 = 3;
const HELD: u64 = 4;
const HOLE: u64 = 5;

/// A range of a segment, as it is kept: read and written by its functions alone.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct Entry {
    /// Address, flags and kind.
    word: u64,
    previous: u32,
    next: u32,
    size_granules: u32,
    segment: u32,
    /// By kind: bytes requested, tag and sequence number; or the neighbours in the bin, epoch and ticket.
    figures: [u64; 3],
}

#[inline]
fn two(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

impl Use {
    #[inline]
    fn kind_and_figures(self) -> (u64, [u64; 3]) {
        match self {
            Use::Vacant { next_vacant } => (VACANT, [u64::from(next_vacant), 0, 0]),
            Use::Live {
                requested_bytes,
                tag,
                sequence,
            } => (LIVE, [requested_bytes, tag, sequence]),
            Use::Free {
                past,
                bin_previous,
                bin_next,
            } => (FREE, [two(bin_previous, bin_next), past.epoch, past.ticket]),
            Use::Hand { past } => (HAND, [0, past.epoch, past.ticket]),
            Use::Held { past } => (HELD, [0, past.epoch, past.ticket]),
            Use::Hole => (HOLE, [0; 3]),
        }
    }
}

impl Entry {
    /// Whether the blocks of a segment can be kept: what does not fit is never cut off.
    pub fn can_hold(segment: Range) -> bool {
        let Range {
            address,
            size_bytes,
        } = segment;
        let is_whole = (address | size_bytes).is_multiple_of(GRANULE_BYTES);
        let has_room = size_bytes >> GRANULE_BITS <= u64::from(u32::MAX);
        let end = address.checked_add(size_bytes);
        is_whole && has_room && end.is_some_and(|end| end <= 1 << ADDRESS_BITS)
    }

    #[inline]
    pub(super) fn new(parts: Parts) -> Self {
        let Parts {
            address,
            size_bytes,
            in_use,
            segment,
            previous,
            next,
            flags,
        } = parts;
        debug_assert!(Entry::can_hold(Range {
            address,
            size_bytes
        }));
        let (kind, figures) = in_use.kind_and_figures();
        Entry {
            word: address << ADDRESS_SHIFT | u64::from(flags) << FLAGS_SHIFT | kind,
            previous,
            next,
            size_granules: (size_bytes >> GRANULE_BITS) as u32,
            segment,
            figures,
        }
    }

    #[inline]
    pub fn parts(&self) -> Parts {
        Parts {
            address: self.address(),
            size_bytes: self.size_bytes(),
            in_use: self.in_use(),
            segment: self.segment,
            previous: self.previous,
            next: self.next,
            flags: self.flags(),
        }
    }

    #[inline]
    pub fn address(&self) -> u64 {
        (self.word & !LOW_MASK) >> ADDRESS_SHIFT
    }

    #[inline]
    pub fn size_bytes(&self) -> u64 {
        u64::from(self.size_granules) << GRANULE_BITS
    }

    /// The first address above it.
    #[inline]
    pub fn end(&self) -> u64 {
        self.address() + self.size_bytes()
    }

    #[inline]
    pub fn segment(&self) -> u32 {
        self.segment
    }

    /// Neighbour below in the segment.
    #[inline]
    pub fn previous(&self) -> u32 {
        self.previous
    }

    /// Neighbour above in the segment.
    #[inline]
    pub fn next(&self) -> u32 {
        self.next
    }

    #[inline]
    pub fn flags(&self) -> u32 {
        (self.word & LOW_MASK) as u32 >> FLAGS_SHIFT
    }

    #[inline]
    fn kind(&self) -> u64 {
        self.word & KIND_MASK
    }

    #[inline]
    fn past(&self) -> Past {
        Past {
            epoch: self.figures[1],
            ticket: self.figures[2],
        }
    }

    #[inline]
    pub fn in_use(&self) -> Use {
        let [first, second, third] = self.figures;
        let past = self.past();
        match self.kind() {
            VACANT => Use::Vacant {
                next_vacant: first as u32,
            },
            LIVE => Use::Live {
                requested_bytes: first,
                tag: second,
                sequence: third,
            },
            FREE => Use::Free {
                past,
                bin_previous: first as u32,
                bin_next: (first >> 32) as u32,
            },
            HAND => Use::Hand { past },
            HELD => Use::Held { past },
            _ => Use::Hole,
        }
    }

    #[inline]
    pub fn is_vacant(&self) -> bool {
        self.kind() == VACANT
    }

    #[inline]
    pub fn is_live(&self) -> bool {
        self.kind() == LIVE
    }

    #[inline]
    pub fn is_free(&self) -> bool {
        self.kind() == FREE
    }

    #[inline]
    pub fn is_hole(&self) -> bool {
        self.kind() == HOLE
    }

    /// Where the block stands among others: by size, then by `rank` (below 2^31), then by address.
    #[inline]
    pub fn order(&self, rank: u32) -> u128 {
        let size_and_rank = u64::from(self.size_granules) << 31 | u64::from(rank);
        u128::from(size_and_rank) << u64::BITS | u128::from(self.word & !LOW_MASK)
    }

    /// The past of a free block.
    #[inline]
    pub fn free_past(&self) -> Option<Past> {
        self.is_free().then(|| self.past())
    }

    #[inline]
    pub fn set_address(&mut self, address: u64) {
        debug_assert!(address.is_multiple_of(GRANULE_BYTES) && address >> ADDRESS_BITS == 0);
        self.word = address << ADDRESS_SHIFT | self.word & LOW_MASK;
    }

    #[inline]
    pub fn set_size_bytes(&mut self, size_bytes: u64) {
        debug_assert!(size_bytes.is_multiple_of(GRANULE_BYTES));
        debug_assert!(size_bytes >> GRANULE_BITS <= u64::from(u32::MAX));
        self.size_granules = (size_bytes >> GRANULE_BITS) as u32;
    }

    #[inline]
    pub fn set_previous(&mut self, previous: u32) {
        self.previous = previous;
    }

    #[inline]
    pub fn set_next(&mut self, next: u32) {
        self.next = next;
    }

    #[inline]
    pub fn set_flags(&mut self, flags: u32) {
        let others = self.word & (!LOW_MASK | KIND_MASK);
        self.word = others | u64::from(flags) << FLAGS_SHIFT;
    }

    #[inline]
    pub fn set_use(&mut self, in_use: Use) {
        let (kind, figures) = in_use.kind_and_figures();
        self.word = self.word & !KIND_MASK | kind;
        self.figures = figures;
    }

    /// The past of a free block becomes `past`.
    #[inline]
    pub fn set_free_past(&mut self, past: Past) {
        debug_assert!(self.is_free());
        self.figures[1] = past.epoch;
        self.figures[2] = past.ticket;
    }

    /// The block before a free one in its bin.
    #[inline]
    pub fn set_bin_previous(&mut self, block: u32) {
        debug_assert!(self.is_free());
        self.figures[0] = two(block, (self.figures[0] >> 32) as u32);
    }

    /// The block after a free one in its bin.
    #[inline]
    pub fn set_bin_next(&mut self, block: u32) {
        debug_assert!(self.is_free());
        self.figures[0] = two(self.figures[0] as u32, block);
    }
}

#[cfg(test)]
mod tests;
