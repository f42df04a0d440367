//! From the base address of a live block to the block.
//!
//! Open addressing with linear probing and deletion by moving back, so there are no tombstones and no rebuilds in a
//! steady state. An entry is 32 bits of the hash and the index of the block; the address itself is in the arena. No
//! decision depends on the order of the table.

use std::hint::select_unpredictable;

use super::arena::{Arena, NONE};
use super::hash::spread;

const LEAST_CAPACITY: usize = 64;
const EMPTY: u64 = u64::MAX;

#[derive(Debug)]
pub(super) struct BaseIndex {
    entries: Vec<u64>,
    count: usize,
}

#[inline]
fn hash(address: u64) -> u32 {
    (spread(address) >> 32) as u32
}

#[inline]
fn entry_of(hash: u32, block: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(block)
}

impl BaseIndex {
    pub fn new() -> Self {
        BaseIndex {
            entries: vec![EMPTY; LEAST_CAPACITY],
            count: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.count
    }

    /// Bytes of host memory.
    pub fn host_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<u64>()
    }

    /// The place after `at`; the table is a ring of any length.
    #[inline]
    fn after(&self, at: usize) -> usize {
        if at + 1 == self.entries.len() {
            0
        } else {
            at + 1
        }
    }

    /// How many places `at` is after `from`.
    #[inline]
    fn distance(&self, from: usize, at: usize) -> usize {
        if at >= from {
            at - from
        } else {
            at + self.entries.len() - from
        }
    }

    /// Where a hash would like to be. The table is at most 2^32 entries, so the hash's own high bits choose.
    #[inline]
    fn home(&self, hash: u32) -> usize {
        ((u64::from(hash) * self.entries.len() as u64) >> 32) as usize
    }

    fn position(&self, blocks: &Arena, address: u64) -> Option<usize> {
        let hash = hash(address);
        let mut at = self.home(hash);
        loop {
            let entry = self.entries[at];
            if entry == EMPTY {
                return None;
            }
            if (entry >> 32) as u32 == hash && blocks[entry as u32].address() == address {
                return Some(at);
            }
            at = self.after(at);
        }
    }

    /// The block whose base is `address`.
    #[inline]
    pub fn get(&self, blocks: &Arena, address: u64) -> Option<u32> {
        self.position(blocks, address)
            .map(|at| self.entries[at] as u32)
    }

    /// Adds a block that is not in the index.
    pub fn insert(&mut self, address: u64, block: u32) {
        debug_assert_ne!(block, NONE);
        if (self.count + 1) * 4 > self.entries.len() * 3 {
            // An eighth more: a rebuild is cheap per entry, and the table stays at least two thirds full.
            let larger = vec![EMPTY; self.entries.len() / 8 * 9];
            for entry in std::mem::replace(&mut self.entries, larger) {
                if entry != EMPTY {
                    self.place(entry);
                }
            }
        }
        self.place(entry_of(hash(address), block));
        self.count += 1;
    }

    #[inline]
    fn place(&mut self, entry: u64) {
        let mut at = self.home((entry >> 32) as u32);
        while self.entries[at] != EMPTY {
            at = self.after(at);
        }
        self.entries[at] = entry;
    }

    /// Takes the block whose base is `address` out.
    pub fn remove(&mut self, blocks: &Arena, address: u64) -> Option<u32> {
        let mut hole = self.position(blocks, address)?;
        let block = self.entries[hole] as u32;
        let mut at = hole;
        loop {
            at = self.after(at);
            let entry = self.entries[at];
            if entry == EMPTY {
                break;
            }
            // Move back whatever would no longer be reached from its home across the hole. Without a branch, which nobody
            // could foretell: what stays is written where it is.
            let home = self.home((entry >> 32) as u32);
            let moves = self.distance(home, at) >= self.distance(hole, at);
            self.entries[select_unpredictable(moves, hole, at)] = entry;
            hole = select_unpredictable(moves, at, hole);
        }
        self.entries[hole] = EMPTY;
        self.count -= 1;
        Some(block)
    }
}

#[cfg(test)]
mod tests {
    use super::super::arena::{Parts, Past, Use};
    use super::*;

    #[test]
    fn agrees_with_a_map() {
        let mut arena = Arena::new();
        let mut index = BaseIndex::new();
        let mut model = std::collections::BTreeMap::new();
        let mut random = 1u64;
        for _ in 0..40_000 {
            random = random
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            let address = (random >> 33) % 3000 * 512 + (1 << 40);
            match model.remove(&address) {
                Some(block) => {
                    assert_eq!(index.get(&arena, address), Some(block));
                    assert_eq!(index.remove(&arena, address), Some(block));
                    assert_eq!(index.remove(&arena, address), None);
                    arena.remove(block);
                }
                None => {
                    assert_eq!(index.get(&arena, address), None);
                    let block = arena.add(Parts {
                        address,
                        size_bytes: 512,
                        in_use: Use::Hand { past: Past::FRESH },
                        segment: 0,
                        previous: NONE,
                        next: NONE,
                        flags: 0,
                    });
                    index.insert(address, block);
                    model.insert(address, block);
                }
            }
            assert_eq!(index.len(), model.len());
        }
        for (address, block) in model {
            assert_eq!(index.get(&arena, address), Some(block));
        }
    }
}
