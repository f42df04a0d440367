//! Free blocks sorted by size: best fit in a few steps.
//!
//! # Placement
//! The bin of a request may hold blocks that are too small; every block of a higher bin fits. Of the first bin that
//! has a fitting block the smallest wins, then the one that needs least work before use, then the lowest address. The
//! hot path looks at [`SCAN_LIMIT`] blocks of a bin; before the pool grows, all are looked at.

use std::hint::select_unpredictable;

use super::arena::{Arena, Entry, Past, Use, NONE};
use super::size::{bin_of, BIN_COUNT};

/// Blocks of one bin looked at in one search: bounds the time of a search, whatever the number of free blocks.
pub(super) const SCAN_LIMIT: usize = 8;
const WORDS: usize = BIN_COUNT / 64;

/// The free blocks of one kind of segment.
#[derive(Debug)]
pub(super) struct Bins {
    heads: Box<[u32; BIN_COUNT]>,
    occupied: [u64; WORDS],
}

impl Bins {
    pub fn new() -> Self {
        Bins {
            heads: Box::new([NONE; BIN_COUNT]),
            occupied: [0; WORDS],
        }
    }

    /// Bytes of host memory.
    pub fn host_bytes(&self) -> usize {
        size_of_val(&*self.heads)
    }

    /// Adds a block: its state becomes [`Use::Free`].
    #[inline]
    pub fn insert(&mut self, blocks: &mut Arena, block: u32, past: Past) {
        let bin = bin_of(blocks[block].size_bytes());
        let head = self.heads[bin];
        blocks[block].set_use(Use::Free {
            past,
            bin_previous: NONE,
            bin_next: head,
        });
        if head == NONE {
            self.occupied[bin / 64] |= 1 << (bin % 64);
        } else {
            blocks[head].set_bin_previous(block);
        }
        self.heads[bin] = block;
    }

    /// Takes a free block out: its state becomes [`Use::Hand`].
    #[inline]
    pub fn remove(&mut self, blocks: &mut Arena, block: u32) -> Past {
        let Use::Free {
            past,
            bin_previous,
            bin_next,
        } = blocks[block].in_use()
        else {
            debug_assert!(false, "a block that is not free is in no bin");
            return Past::FRESH;
        };
        if bin_next != NONE {
            blocks[bin_next].set_bin_previous(bin_previous);
        }
        if bin_previous != NONE {
            blocks[bin_previous].set_bin_next(bin_next);
        } else {
            let bin = bin_of(blocks[block].size_bytes());
            self.heads[bin] = bin_next;
            if bin_next == NONE {
                self.occupied[bin / 64] &= !(1 << (bin % 64));
            }
        }
        blocks[block].set_use(Use::Hand { past });
        past
    }

    /// The best free block of at least `size_bytes` and less than `below_bytes`, in so many bins that are not empty, with so
    /// many blocks of each looked at. `rank` says how much work a block needs before use (lower is better) or `None` for one
    /// that cannot be used now.
    #[inline]
    pub fn search(
        &self,
        blocks: &Arena,
        size_bytes: u64,
        below_bytes: u64,
        (bin_limit, scan_limit): (usize, usize),
        rank: impl Fn(&Entry, Past) -> Option<u32>,
    ) -> Option<u32> {
        let mut bin = bin_of(size_bytes);
        for _ in 0..bin_limit {
            let occupied = self.next_occupied(bin)?;
            if let Some(block) =
                self.best_of(blocks, occupied, size_bytes, below_bytes, scan_limit, &rank)
            {
                return Some(block);
            }
            bin = occupied + 1;
        }
        None
    }

    /// A block of the last bin that is not empty: about the largest.
    pub fn largest(&self) -> Option<u32> {
        let word = self.occupied.iter().rposition(|&word| word != 0)?;
        let bit = 63 - self.occupied[word].leading_zeros() as usize;
        Some(self.heads[word * 64 + bit])
    }

    #[inline]
    fn best_of(
        &self,
        blocks: &Arena,
        bin: usize,
        size_bytes: u64,
        below_bytes: u64,
        scan_limit: usize,
        rank: &impl Fn(&Entry, Past) -> Option<u32>,
    ) -> Option<u32> {
        let (mut best, mut best_at) = (u128::MAX, NONE);
        let mut at = self.heads[bin];
        for _ in 0..scan_limit {
            if at == NONE {
                break;
            }
            let entry = &blocks[at];
            let Use::Free { past, bin_next, .. } = entry.in_use() else {
                break;
            };
            if entry.size_bytes() >= size_bytes && entry.size_bytes() < below_bytes {
                if let Some(rank) = rank(entry, past) {
                    if entry.size_bytes() == size_bytes && rank == 0 {
                        return Some(at); // No other is better but for its address.
                    }
                    let order = entry.order(rank);
                    best_at = select_unpredictable(order < best, at, best_at);
                    best = best.min(order);
                }
            }
            at = bin_next;
        }
        (best_at != NONE).then_some(best_at)
    }

    #[inline]
    fn next_occupied(&self, from: usize) -> Option<usize> {
        let mut word = from / 64;
        if word >= WORDS {
            return None;
        }
        let mut bits = self.occupied[word] & (u64::MAX << (from % 64));
        loop {
            if bits != 0 {
                return Some(word * 64 + bits.trailing_zeros() as usize);
            }
            word += 1;
            if word == WORDS {
                return None;
            }
            bits = self.occupied[word];
        }
    }

    /// Every block in the bins.
    pub fn each(&self, blocks: &Arena, mut each: impl FnMut(u32)) {
        let mut from = 0;
        while let Some(bin) = self.next_occupied(from) {
            let mut at = self.heads[bin];
            while let Some(Use::Free { bin_next, .. }) = blocks.get(at).map(Entry::in_use) {
                each(at);
                at = bin_next;
            }
            from = bin + 1;
        }
    }

    /// Every block in the bins, for the checker.
    pub fn all(&self, blocks: &Arena) -> Vec<u32> {
        let mut all = Vec::new();
        for bin in 0..BIN_COUNT {
            let mut at = self.heads[bin];
            assert_eq!(at != NONE, self.occupied[bin / 64] >> (bin % 64) & 1 == 1);
            let mut before = NONE;
            while at != NONE {
                let Use::Free {
                    bin_previous,
                    bin_next,
                    ..
                } = blocks[at].in_use()
                else {
                    panic!("block {at} is in a bin but not free");
                };
                assert_eq!(bin_previous, before);
                assert_eq!(bin_of(blocks[at].size_bytes()), bin);
                all.push(at);
                (before, at) = (at, bin_next);
            }
        }
        all
    }
}
