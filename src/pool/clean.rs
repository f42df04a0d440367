//! What of the free blocks is not clean, and which of them are to be scrubbed next.

use super::arena::{Entry, Parts, Past};
use super::state::State;
use super::{Range, SegmentKind};

/// Clean parts of a block that are looked at for one that is large enough.
const CLEAN_LOOKS: usize = 8;
/// Blocks remembered as hints for scrubbing ahead.
const DIRTY_HINTS: usize = 256;

impl State {
    /// Where in a free block `size_bytes` could be handed out without a call of the backing: how far above its base.
    ///
    /// # Decision: around the dirt
    /// A scrub costs some driver calls, whatever it fills. A block that was freed a moment ago is dirty, and asked for again it
    /// would be scrubbed alone; cut beside it, the dirt of many frees lies together and is scrubbed in one call.
    pub fn clean_room(
        &self,
        entry: &Entry,
        past: Past,
        size_bytes: u64,
        is_ordered: bool,
    ) -> Option<u64> {
        if !self.is_behind_barrier(past, is_ordered) {
            return None;
        }
        let segment = &self.segments[entry.segment()];
        if entry.size_bytes() < size_bytes {
            return None;
        }
        let Some(dirt) = &segment.dirt else {
            return Some(0);
        };
        let count = size_bytes.div_ceil(1 << segment.granule_bits) as usize;
        let (from, to) = segment.granules(entry.address(), entry.size_bytes());
        let start = dirt.clean_room(from, to, count, CLEAN_LOOKS)?;
        Some(segment.address_of(start) - entry.address())
    }

    /// Whether anything is dirty of what would be handed out of a block for a request of this size: all of it where blocks are
    /// never cut.
    #[inline]
    pub fn is_dirty(&self, entry: &Entry, size_bytes: u64) -> bool {
        let segment = &self.segments[entry.segment()];
        segment.dirt.as_ref().is_some_and(|dirt| {
            let size_bytes = match segment.kind {
                SegmentKind::Small | SegmentKind::Large => size_bytes,
                SegmentKind::Oversize | SegmentKind::Isolated => entry.size_bytes(),
            };
            let (from, to) = segment.granules(entry.address(), size_bytes);
            dirt.next(from, to, true).is_some()
        })
    }

    /// The parts of a block that are not clean, from its start on: at most so many, and so many bytes (to the granule).
    pub fn dirty_ranges(&self, block: u32, max_bytes: u64, max_ranges: usize) -> Vec<Range> {
        let mut ranges = Vec::new();
        let Parts {
            address,
            size_bytes,
            segment,
            ..
        } = self.blocks[block].parts();
        let segment = &self.segments[segment];
        let Some(dirt) = &segment.dirt else {
            return ranges;
        };
        let in_granules = |bytes: u64| bytes.div_ceil(1 << segment.granule_bits) as usize;
        let mut left = in_granules(max_bytes);
        let (mut from, to) = segment.granules(address, size_bytes);
        while left > 0 && ranges.len() < max_ranges {
            let Some(start) = dirt.next(from, to, true) else {
                break;
            };
            from = dirt.next(start, to, false).unwrap_or(to);
            from = from.min(start.saturating_add(left));
            left -= from - start;
            let address = segment.address_of(start);
            ranges.push(Range {
                address,
                size_bytes: segment.address_of(from) - address,
            });
        }
        ranges
    }

    /// Whether any part of a block is not clean.
    pub fn is_any_dirty(&self, block: u32) -> bool {
        let entry = &self.blocks[block];
        self.is_dirty(entry, entry.size_bytes())
    }

    /// All of a block is dirty, or clean.
    pub fn set_dirt(&mut self, block: u32, is_dirty: bool) {
        let Parts {
            address,
            size_bytes,
            segment,
            ..
        } = self.blocks[block].parts();
        self.segments[segment].set_dirt(address, size_bytes, is_dirty);
    }

    /// Remembers a free block that may be dirty, for the next scrub.
    pub fn hint_dirt(&mut self, block: u32) {
        if self.dirty_hints.back() == Some(&block) {
            return;
        }
        if self.dirty_hints.len() == DIRTY_HINTS {
            self.dirty_hints.pop_front();
        }
        self.dirty_hints.push_back(block);
    }

    /// The free block that was hinted at last, if it is one still.
    pub fn next_dirty_hint(&mut self) -> Option<u32> {
        while let Some(block) = self.dirty_hints.pop_back() {
            let free = self.blocks.get(block).is_some_and(|entry| {
                entry.is_free() && self.segments[entry.segment()].kind != SegmentKind::Isolated
            });
            if free {
                return Some(block);
            }
        }
        None
    }
}
