//! Sizes that were asked for lately and not served in front: a block of another size costs more there than it brings.
//!
//! # Decision: a large size counts when it is asked for again
//! Small sizes are few, in classes ([`super::size`]), and a block in front waits for any of its class. Above them each size is its
//! own, and where all differ a block kept in front would leave it at once, for the next large request (of 1,000 live blocks of 512 B
//! to 2 MiB one free in seven did). A program that asks for a size again and again is told by its second request.
//! Threads that meet keep many large blocks each, and take any size that was asked for lately.

use super::hash::spread;
use super::size::{class_of, classed, CLASSED_LIMIT_BYTES, GRANULE_BYTES};

/// Larger sizes remembered for one thread, and for several that meet at the lock.
const OTHERS: usize = 64;
const MET_OTHERS: usize = 256;
/// Sizes are multiples of more.
const AGAIN: u64 = 1;

/// Classes of one size by number, larger sizes by hash.
#[derive(Debug)]
pub(super) struct Asked {
    classes: u64,
    /// The size asked for last, and [`AGAIN`] if so was the one before.
    others: Box<[u64; MET_OTHERS]>,
}

impl Default for Asked {
    fn default() -> Self {
        Asked {
            classes: 0,
            others: Box::new([0; MET_OTHERS]),
        }
    }
}

impl Asked {
    /// Bytes of host memory.
    pub fn host_bytes(&self) -> usize {
        size_of_val(&*self.others)
    }

    #[inline]
    fn other(size_bytes: u64, do_meet: bool) -> usize {
        let hash = spread(size_bytes / GRANULE_BYTES);
        let count = if do_meet { MET_OTHERS } else { OTHERS };
        (hash >> (u64::BITS - count.trailing_zeros())) as usize
    }

    /// A size was asked for. `do_meet`: several threads meet at the lock.
    #[inline]
    pub fn note(&mut self, size_bytes: u64, do_meet: bool) {
        if size_bytes <= CLASSED_LIMIT_BYTES {
            self.classes |= 1 << class_of(size_bytes);
            return;
        }
        let other = &mut self.others[Self::other(size_bytes, do_meet)];
        let again = if *other & !AGAIN == size_bytes {
            AGAIN
        } else {
            0
        };
        *other = size_bytes | again;
    }

    /// Whether a block of this size may come to the front.
    #[inline]
    pub fn has(&self, size_bytes: u64, do_meet: bool) -> bool {
        if size_bytes <= CLASSED_LIMIT_BYTES {
            self.classes >> class_of(size_bytes) & 1 == 1 && classed(size_bytes) == size_bytes
        } else {
            let other = self.others[Self::other(size_bytes, do_meet)];
            other == size_bytes | AGAIN || (do_meet && other == size_bytes)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::size::MIB;
    use super::*;

    #[test]
    fn small_classes_count_at_once_and_large_sizes_when_they_come_again() {
        let mut asked = Asked::default();
        asked.note(64 << 10, false);
        assert!(asked.has(64 << 10, false) && !asked.has(72 << 10, false));
        asked.note(MIB, false);
        assert!(!asked.has(MIB, false));
        for _ in 0..2 {
            asked.note(MIB, false);
            assert!(asked.has(MIB, false) && !asked.has(MIB + GRANULE_BYTES, false));
        }
        asked.note(3 * MIB, true);
        assert!(asked.has(3 * MIB, true));
    }
}
