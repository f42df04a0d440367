//! The bins of one lane for blocks that are kept apart: one block at a time, or up to [`ALIKE`] of one size; or, while threads
//! meet at the pool's lock, as many as [`Wide::set_limit`] allows. Whatever changes, a bin holds blocks of one size.

use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::atomic::{AtomicU32, AtomicU64};

use super::bin::{depth, Bin, Crowd, Hint, DEPTH, SHALLOW_DEPTH};
use crate::pool::hash::spread;
use crate::pool::size::GRANULE_BYTES;

/// Each size has two bins that it may lie in, by hashes.
const BINS: usize = if cfg!(loom) { 2 } else { 32 };
/// Blocks of one size that may be kept where one is ([`Wide::set_alike_limit`]).
const ALIKE: u32 = if cfg!(loom) { 2 } else { 4 };

/// See the module.
#[derive(Debug)]
pub struct Wide {
    bins: [Bin; BINS],
    /// Bytes of the hints in the bins, stale ones too.
    bytes: AtomicU64,
    /// The most of them. 0: one block at a time.
    limit_bytes: AtomicU64,
    /// A block of this size or less may be one of [`ALIKE`] of its size, where one block is kept.
    alike_limit_bytes: AtomicU64,
    /// Size of the block that came last.
    newest_bytes: AtomicU64,
    /// The bin that is looked at first when there is no room.
    hand: AtomicU32,
}

impl Wide {
    pub fn new() -> Self {
        Wide {
            bins: std::array::from_fn(|_| Bin::new()),
            bytes: AtomicU64::new(0),
            limit_bytes: AtomicU64::new(0),
            alike_limit_bytes: AtomicU64::new(0),
            newest_bytes: AtomicU64::new(0),
            hand: AtomicU32::new(0),
        }
    }

    /// The bin of a size: the one that holds it, else one that stands empty, else the second.
    #[inline]
    pub fn bin_for(&self, size_bytes: u64) -> &Bin {
        let hash = spread(size_bytes / GRANULE_BYTES);
        let first = &self.bins[(hash >> 32) as usize % BINS];
        let second = &self.bins[(hash >> 48) as usize % BINS];
        let takes_first =
            first.is_of(size_bytes) || (first.count() == 0 && !second.is_of(size_bytes));
        if takes_first {
            first
        } else {
            second
        }
    }

    /// Whether a block of this size that is not in front yet would crowd out none of its own size.
    #[inline]
    pub fn has_room(&self, size_bytes: u64) -> bool {
        !self.is_many()
            || (size_bytes <= self.limit_bytes.load(Relaxed)
                && self.bin_for(size_bytes).count() < depth(size_bytes))
    }

    /// Whether one more block of this size may come to the others in this bin.
    #[inline]
    fn fits(bin: &Bin, size_bytes: u64) -> bool {
        bin.is_of(size_bytes) && bin.count() < depth(size_bytes)
    }

    /// Whether one more block may be kept, and all others stay.
    #[inline]
    pub fn has_room_beside(&self, size_bytes: u64) -> bool {
        self.has_room_in_all(size_bytes) || self.has_room_for_alike(size_bytes)
    }

    #[inline]
    fn has_room_in_all(&self, size_bytes: u64) -> bool {
        let kept_bytes = self.bytes.load(Relaxed);
        kept_bytes == 0 || kept_bytes + size_bytes <= self.limit_bytes.load(Relaxed)
    }

    /// Whether blocks of this size are kept and no others, and one more may be.
    #[inline]
    pub fn has_room_for_alike(&self, size_bytes: u64) -> bool {
        let (kept_bytes, limit_bytes) = (
            self.bytes.load(Relaxed),
            self.alike_limit_bytes.load(Relaxed),
        );
        if self.is_many() || size_bytes > limit_bytes {
            return false;
        }
        let bin = self.bin_for(size_bytes);
        (size_bytes..u64::from(ALIKE) * size_bytes).contains(&kept_bytes)
            && bin.is_of(size_bytes)
            && u64::from(bin.count()) * size_bytes == kept_bytes
    }

    /// Where one block is kept, one of so many bytes or less may be one of [`ALIKE`]; 0: none may.
    pub fn set_alike_limit(&self, bytes: u64) {
        self.alike_limit_bytes.store(bytes, Relaxed);
    }

    /// Whether more than one block may be kept, of whatever sizes.
    #[inline]
    pub fn is_many(&self) -> bool {
        self.limit_bytes.load(Relaxed) > 0
    }

    /// So many bytes may be kept; 0: one block.
    pub fn set_limit(&self, bytes: u64) {
        self.limit_bytes.store(bytes, Relaxed);
    }

    /// Hints of this size came to a bin, or left it.
    #[inline]
    pub fn count(&self, size_bytes: u64, count: i64) {
        let bytes = self.bytes.load(Relaxed);
        let now = bytes.wrapping_add_signed(size_bytes as i64 * count);
        self.bytes.store(now, Relaxed);
    }

    /// Keeps a freed block for which there is no room; what it crowds out has to go: the other one that is kept, or itself where
    /// there are many.
    pub fn crowd_in(&self, size_bytes: u64, hint: Hint) -> Option<Crowd> {
        let crowd = if !self.is_many() {
            // There may have been many until now. What is where it has to lie goes first.
            let bin = self.bin_for(size_bytes);
            if bin.count() == 0 || Self::fits(bin, size_bytes) {
                self.evict_any()
            } else {
                Some(self.evict(bin, DEPTH as u32))
            }
        } else if !self.has_room_in_all(size_bytes) {
            let cold = self.evict_cold(size_bytes);
            if cold.is_none() || !self.has_room_in_all(size_bytes) {
                return Some(Crowd::with(cold, size_bytes, hint));
            }
            let bin = self.bin_for(size_bytes);
            if bin.count() > 0 && !Self::fits(bin, size_bytes) {
                return Some(Crowd::with(cold, size_bytes, hint));
            }
            cold
        } else {
            let bin = self.bin_for(size_bytes);
            let count = if bin.is_of(size_bytes) {
                SHALLOW_DEPTH / 2
            } else {
                DEPTH as u32
            };
            (bin.count() > 0).then(|| self.evict(bin, count))
        };
        let bin = self.bin_for(size_bytes);
        bin.set_size(size_bytes);
        self.newest_bytes.store(size_bytes, Relaxed);
        self.count(size_bytes, 1);
        bin.add(hint);
        crowd
    }

    /// Takes out all of a size that was not asked for lately, to make room for one of another.
    fn evict_cold(&self, size_bytes: u64) -> Option<Crowd> {
        let hand = self.hand.load(Relaxed) as usize;
        for at in (hand..hand + BINS).map(|at| at % BINS) {
            self.hand.store(at as u32 + 1, Relaxed);
            let bin = &self.bins[at];
            let was_taken = bin.cool();
            if bin.count() > 0 && !was_taken && !bin.is_of(size_bytes) {
                return Some(self.evict(bin, DEPTH as u32));
            }
        }
        None
    }

    /// Takes the oldest out of a bin.
    fn evict(&self, bin: &Bin, count: u32) -> Crowd {
        let crowd = bin.evict(count);
        self.count(crowd.size_bytes, -(crowd.hints().len() as i64));
        crowd
    }

    /// Takes out blocks of one size, if there are any.
    fn evict_any(&self) -> Option<Crowd> {
        let bin = self.any_bin()?;
        Some(self.evict(bin, DEPTH as u32))
    }

    /// Takes out one block, if there is any: the oldest of its size.
    #[inline]
    pub fn take_any(&self) -> Option<Hint> {
        let bin = self.any_bin()?;
        let hint = bin.oldest()?;
        bin.drop_oldest();
        self.count(bin.size_bytes(), -1);
        Some(hint)
    }

    /// A bin that is not empty.
    #[inline]
    fn any_bin(&self) -> Option<&Bin> {
        if self.bytes.load(Relaxed) == 0 {
            return None;
        }
        // Most often there is no other.
        let newest = self.bin_for(self.newest_bytes.load(Relaxed));
        if newest.count() > 0 {
            return Some(newest);
        }
        self.bins.iter().find(|bin| bin.count() > 0)
    }

    /// All that are kept, without taking them out, which only the lane's own thread may.
    pub fn hints(&self) -> impl Iterator<Item = Hint> + '_ {
        self.bins.iter().flat_map(Bin::hints)
    }
}

#[cfg(test)]
mod tests;
