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

use super::size::GRANULE_BYTES;
use super::Range;

/// The block is exported: freed, it is [`Use::Held`] until the last hold goes.
pub(super) const FLAG_HELD: u32 = 1;
/// The block's memory must never be handed out again (hazard 16).
pub(super) const FLAG_RETIRE: u32 = 2;
/// The block serves a small request, and is a piece of the large pool, in whose granule it is counted.
pub(super) const FLAG_BORROWED: u32 = 4;

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

/// The same, by parts.
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
mod tests {
    use super::*;

    const TOP: u64 = 1 << ADDRESS_BITS;
    const MOST_BYTES: u64 = (u32::MAX as u64) << GRANULE_BITS;

    fn uses() -> [Use; 6] {
        let past = Past {
            epoch: u64::MAX - 1,
            ticket: u64::MAX - 2,
        };
        [
            Use::Vacant { next_vacant: 7 },
            Use::Live {
                requested_bytes: u64::MAX - 3,
                tag: u64::MAX - 4,
                sequence: u64::MAX - 5,
            },
            Use::Free {
                past,
                bin_previous: u32::MAX - 6,
                bin_next: u32::MAX - 7,
            },
            Use::Hand { past },
            Use::Held { past },
            Use::Hole,
        ]
    }

    #[test]
    fn an_entry_is_48_bytes() {
        assert_eq!(size_of::<Entry>(), 48);
    }

    #[test]
    fn what_goes_in_comes_out() {
        let ranges = [
            (0, 512),
            (512, MOST_BYTES),
            (TOP - MOST_BYTES, MOST_BYTES),
            (TOP - 512, 512),
        ];
        for (address, size_bytes) in ranges {
            for in_use in uses() {
                for flags in 0..8 {
                    let entry = Entry::new(Parts {
                        address,
                        size_bytes,
                        in_use,
                        segment: u32::MAX - 8,
                        previous: u32::MAX - 9,
                        next: u32::MAX - 10,
                        flags,
                    });
                    let parts = entry.parts();
                    assert_eq!((parts.address, parts.size_bytes), (address, size_bytes));
                    assert_eq!((parts.in_use, parts.flags), (in_use, flags));
                    assert_eq!(entry.end(), address + size_bytes);
                    let links = (parts.segment, parts.previous, parts.next);
                    assert_eq!(links, (u32::MAX - 8, u32::MAX - 9, u32::MAX - 10));
                    for other in uses() {
                        let mut changed = entry;
                        changed.set_use(other);
                        changed.set_flags(flags ^ 5);
                        changed.set_address(TOP / 2);
                        changed.set_size_bytes(1024);
                        changed.set_next(3);
                        let parts = changed.parts();
                        assert_eq!((parts.in_use, parts.flags), (other, flags ^ 5));
                        assert_eq!((parts.address, parts.size_bytes), (TOP / 2, 1024));
                        assert_eq!((parts.next, parts.previous), (3, u32::MAX - 9));
                    }
                }
            }
        }
    }

    #[test]
    fn the_links_of_a_bin_change_one_by_one() {
        let [_, _, in_use, ..] = uses();
        let mut entry = Entry::new(Parts {
            address: 0,
            size_bytes: 512,
            in_use,
            segment: 0,
            previous: 0,
            next: 0,
            flags: 0,
        });
        entry.set_bin_previous(1);
        entry.set_bin_next(2);
        let past = Past {
            epoch: 3,
            ticket: 4,
        };
        entry.set_free_past(past);
        let expected = Use::Free {
            past,
            bin_previous: 1,
            bin_next: 2,
        };
        assert_eq!((entry.in_use(), entry.free_past()), (expected, Some(past)));
    }

    #[test]
    fn what_would_not_fit_is_told() {
        let can_hold = |address, size_bytes| {
            Entry::can_hold(Range {
                address,
                size_bytes,
            })
        };
        assert!(can_hold(TOP - MOST_BYTES, MOST_BYTES));
        assert!(!can_hold(TOP - 512, 1024));
        assert!(!can_hold(u64::MAX - 511, 512));
        assert!(!can_hold(0, MOST_BYTES + 512));
        assert!(!can_hold(256, 512));
        assert!(!can_hold(512, 100));
    }
}
