//! The blocks of all segments, in one array, linked by index.
//!
//! # Why 64 bytes
//! A block is one cache line. What only a live block has and what only a free one has share their place in [`Use`].
//! The base index adds at most 14 bytes a live block, a segment about 140 bytes.

use std::ops::{Index, IndexMut};

/// "No block" and "no segment" in links.
pub(super) const NONE: u32 = u32::MAX;

/// The block is exported: freed, it is [`Use::Held`] until the last hold goes.
pub(super) const FLAG_HELD: u32 = 1;
/// The block's memory must never be handed out again (hazard 16).
pub(super) const FLAG_RETIRE: u32 = 2;
/// The block serves a small request, and is a piece of the large pool, in whose granule it is counted.
pub(super) const FLAG_BORROWED: u32 = 4;

/// A range of a segment, as it is kept: read and written by its functions alone, so that the packing is theirs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    parts: Parts,
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

impl Entry {
    #[inline]
    fn new(parts: Parts) -> Self {
        Entry { parts }
    }

    #[inline]
    pub fn parts(&self) -> Parts {
        self.parts
    }

    #[inline]
    pub fn address(&self) -> u64 {
        self.parts.address
    }

    #[inline]
    pub fn size_bytes(&self) -> u64 {
        self.parts.size_bytes
    }

    /// The first address above it.
    #[inline]
    pub fn end(&self) -> u64 {
        self.address() + self.size_bytes()
    }

    #[inline]
    pub fn segment(&self) -> u32 {
        self.parts.segment
    }

    /// Neighbour below in the segment.
    #[inline]
    pub fn previous(&self) -> u32 {
        self.parts.previous
    }

    /// Neighbour above in the segment.
    #[inline]
    pub fn next(&self) -> u32 {
        self.parts.next
    }

    #[inline]
    pub fn flags(&self) -> u32 {
        self.parts.flags
    }

    #[inline]
    pub fn in_use(&self) -> Use {
        self.parts.in_use
    }

    #[inline]
    pub fn is_live(&self) -> bool {
        matches!(self.parts.in_use, Use::Live { .. })
    }

    #[inline]
    pub fn is_free(&self) -> bool {
        matches!(self.parts.in_use, Use::Free { .. })
    }

    #[inline]
    pub fn is_hole(&self) -> bool {
        matches!(self.parts.in_use, Use::Hole)
    }

    /// The past of a free block.
    #[inline]
    pub fn free_past(&self) -> Option<Past> {
        match self.parts.in_use {
            Use::Free { past, .. } => Some(past),
            _ => None,
        }
    }

    #[inline]
    pub fn set_address(&mut self, address: u64) {
        self.parts.address = address;
    }

    #[inline]
    pub fn set_size_bytes(&mut self, size_bytes: u64) {
        self.parts.size_bytes = size_bytes;
    }

    #[inline]
    pub fn set_previous(&mut self, previous: u32) {
        self.parts.previous = previous;
    }

    #[inline]
    pub fn set_next(&mut self, next: u32) {
        self.parts.next = next;
    }

    #[inline]
    pub fn set_flags(&mut self, flags: u32) {
        self.parts.flags = flags;
    }

    #[inline]
    pub fn set_use(&mut self, in_use: Use) {
        self.parts.in_use = in_use;
    }

    /// The past of a free block becomes `past`.
    #[inline]
    pub fn set_free_past(&mut self, past: Past) {
        debug_assert!(self.is_free());
        if let Use::Free { past: old, .. } = &mut self.parts.in_use {
            *old = past;
        }
    }

    /// The block before a free one in its bin.
    #[inline]
    pub fn set_bin_previous(&mut self, block: u32) {
        debug_assert!(self.is_free());
        if let Use::Free { bin_previous, .. } = &mut self.parts.in_use {
            *bin_previous = block;
        }
    }

    /// The block after a free one in its bin.
    #[inline]
    pub fn set_bin_next(&mut self, block: u32) {
        debug_assert!(self.is_free());
        if let Use::Free { bin_next, .. } = &mut self.parts.in_use {
            *bin_next = block;
        }
    }
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
#[derive(Debug, Clone, Copy)]
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

/// See the module.
#[derive(Debug)]
pub(super) struct Arena {
    slots: Vec<Entry>,
    first_vacant: u32,
    pub block_count: usize,
}

impl Arena {
    pub fn new() -> Self {
        Arena {
            slots: Vec::new(),
            first_vacant: NONE,
            block_count: 0,
        }
    }

    /// Adds a block and says where it is.
    pub fn add(&mut self, parts: Parts) -> u32 {
        let entry = Entry::new(parts);
        self.block_count += 1;
        if self.first_vacant != NONE {
            let index = self.first_vacant;
            if let Use::Vacant { next_vacant } = self[index].in_use() {
                self.first_vacant = next_vacant;
                self[index] = entry;
                return index;
            }
            debug_assert!(false, "the list of vacant slots leads to a block");
        }
        if self.slots.len() == self.slots.capacity() {
            // An eighth more: large arrays are remapped, not copied, and little stands empty.
            self.slots.reserve_exact((self.slots.len() / 8).max(256));
        }
        self.slots.push(entry);
        (self.slots.len() - 1) as u32
    }

    /// Removes a block; its slot will be used again.
    pub fn remove(&mut self, index: u32) {
        self.block_count -= 1;
        let next_vacant = self.first_vacant;
        self[index].set_use(Use::Vacant { next_vacant });
        self.first_vacant = index;
    }

    /// The block at `index`, if the slot is in use.
    pub fn get(&self, index: u32) -> Option<&Entry> {
        self.slots
            .get(index as usize)
            .filter(|entry| !matches!(entry.in_use(), Use::Vacant { .. }))
    }

    /// Bytes of host memory.
    pub fn host_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Entry>()
    }
}

impl Index<u32> for Arena {
    type Output = Entry;
    #[inline]
    fn index(&self, index: u32) -> &Entry {
        &self.slots[index as usize]
    }
}

impl IndexMut<u32> for Arena {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut Entry {
        &mut self.slots[index as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_one_cache_line() {
        assert_eq!(size_of::<Entry>(), 64);
    }

    #[test]
    fn slots_are_used_again() {
        let entry = Parts {
            address: 0,
            size_bytes: 512,
            in_use: Use::Hand { past: Past::FRESH },
            segment: 0,
            previous: NONE,
            next: NONE,
            flags: 0,
        };
        let mut arena = Arena::new();
        let slots: Vec<u32> = (0..1000).map(|_| arena.add(entry)).collect();
        for &slot in &slots {
            arena.remove(slot);
            assert!(arena.get(slot).is_none());
        }
        let host_bytes = arena.host_bytes();
        for _ in 0..1000 {
            arena.add(entry);
        }
        assert_eq!((arena.block_count, arena.host_bytes()), (1000, host_bytes));
    }
}
