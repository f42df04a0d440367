//! The blocks of all segments, in one array, linked by index.

use std::ops::{Index, IndexMut};

pub(super) use super::entry::Entry;
pub(super) use super::parts::{
    Parts, Past, Use, FLAG_APART, FLAG_BORROWED, FLAG_HELD, FLAG_IN_FRONT, FLAG_RETIRE,
};

/// "No block" and "no segment" in links.
pub(super) const NONE: u32 = u32::MAX;

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
    #[inline]
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
        self.push(entry)
    }

    /// Adds a slot.
    #[cold]
    fn push(&mut self, entry: Entry) -> u32 {
        if self.slots.len() == self.slots.capacity() {
            // A little more: large arrays are remapped, not copied, and few slots stand empty.
            self.slots.reserve_exact((self.slots.len() / 32).max(256));
        }
        self.slots.push(entry);
        (self.slots.len() - 1) as u32
    }

    /// Removes a block; its slot will be used again.
    #[inline]
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
            .filter(|entry| !entry.is_vacant())
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
