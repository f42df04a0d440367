//! Cutting free blocks and joining them (TILE, MERGED).

use super::arena::{Parts, Past, Use, NONE};
use super::segments::Segment;
use super::size::bin_of;
use super::state::{bins_of, State};
use super::SegmentKind;

impl State {
    /// Takes `size_bytes` from the start of a free block; what is left over is free again.
    pub fn take(&mut self, block: u32, size_bytes: u64) -> Past {
        let past = self.unlist(block);
        self.segments.add_busy(self.blocks[block].segment());
        self.split(block, size_bytes, past);
        past
    }

    /// The same by the shortest way: the rest keeps its entry, and what is taken gets a new one. Returns the block taken.
    #[inline]
    pub fn carve(&mut self, block: u32, size_bytes: u64) -> u32 {
        let Parts {
            address,
            size_bytes: whole_bytes,
            in_use,
            segment,
            previous,
            ..
        } = self.blocks[block].parts();
        let Segment {
            kind, granule_bits, ..
        } = self.segments[segment];
        let front_bytes = size_bytes.next_multiple_of(1 << granule_bits);
        let (Use::Free { past, .. }, SegmentKind::Small | SegmentKind::Large) = (in_use, kind)
        else {
            self.take(block, size_bytes);
            return block;
        };
        if whole_bytes <= front_bytes {
            self.take(block, size_bytes);
            return block;
        }
        let front = self.blocks.add(Parts {
            address,
            size_bytes: front_bytes,
            in_use: Use::Hand { past },
            segment,
            previous,
            next: block,
            flags: 0,
        });
        self.resize_free(block, kind, past, whole_bytes - front_bytes);
        let rest = &mut self.blocks[block];
        rest.set_address(address + front_bytes);
        rest.set_previous(front);
        self.follow(segment, previous, front);
        self.segments
            .block_added(segment, address + front_bytes, &self.blocks);
        self.segments.add_busy(segment);
        self.epochs.subtract(past.epoch, front_bytes);
        front
    }

    /// The same `offset_bytes` above the base of a free block; what is below stays free.
    pub fn carve_at(&mut self, block: u32, offset_bytes: u64, size_bytes: u64) -> u32 {
        if offset_bytes == 0 {
            return self.carve(block, size_bytes);
        }
        let past = self.unlist(block);
        self.segments.add_busy(self.blocks[block].segment());
        let upper = self.halve(block, offset_bytes, Use::Hand { past });
        self.list(block, past);
        self.split(upper, size_bytes, past);
        upper
    }

    /// Cuts a block in two, of which the lower keeps the entry; in which list each is, is the caller's. Returns the upper one.
    #[inline]
    pub fn halve(&mut self, block: u32, lower_bytes: u64, upper_use: Use) -> u32 {
        let Parts {
            address,
            size_bytes,
            segment,
            next,
            ..
        } = self.blocks[block].parts();
        let upper = self.blocks.add(Parts {
            address: address + lower_bytes,
            size_bytes: size_bytes - lower_bytes,
            in_use: upper_use,
            segment,
            previous: block,
            next,
            flags: 0,
        });
        if next != NONE {
            self.blocks[next].set_previous(upper);
        }
        let lower = &mut self.blocks[block];
        lower.set_next(upper);
        lower.set_size_bytes(lower_bytes);
        self.segments
            .block_added(segment, address + lower_bytes, &self.blocks);
        upper
    }

    /// Cuts a block in the caller's hands down to `size_bytes`, rounded up to the segment's granule. Blocks of
    /// oversize and isolated segments are never cut.
    pub fn split(&mut self, block: u32, size_bytes: u64, past: Past) {
        let Parts {
            size_bytes: whole_bytes,
            segment,
            ..
        } = self.blocks[block].parts();
        let (kind, granule_bits) = (
            self.segments[segment].kind,
            self.segments[segment].granule_bits,
        );
        let size_bytes = size_bytes.next_multiple_of(1 << granule_bits);
        if whole_bytes <= size_bytes || !matches!(kind, SegmentKind::Small | SegmentKind::Large) {
            return;
        }
        let rest = self.halve(block, size_bytes, Use::Hand { past });
        self.list(rest, past);
        let segment = &self.segments[segment];
        let at = segment.granule(self.blocks[rest].address());
        if segment
            .dirt
            .as_ref()
            .is_some_and(|dirt| dirt.next(at, at + 1, true).is_some())
        {
            self.hint_dirt(rest);
        }
    }

    /// Puts a block that is in the caller's hands into the free lists, joined with its free neighbours.
    pub fn put(&mut self, mut block: u32, mut past: Past) {
        let Parts {
            previous,
            next,
            segment,
            ..
        } = self.blocks[block].parts();
        if let Some(neighbour) = self.grow_neighbour(block, past) {
            block = neighbour;
        } else {
            if next != NONE && self.blocks[next].is_free() {
                past = past.joined_with(self.unlist(next));
                self.absorb_next(block);
            }
            if previous != NONE && self.blocks[previous].is_free() {
                past = past.joined_with(self.unlist(previous));
                self.absorb_next(previous);
                block = previous;
            }
            self.list(block, past);
        }
        if self.segments[segment].dirt.is_some() {
            self.hint_dirt(block);
        }
        let isolated = self.segments[segment].kind == SegmentKind::Isolated;
        self.segments.subtract_busy(segment, isolated);
        self.settle_active();
    }

    /// Joins a block that is in the caller's hands with its one free neighbour by the shortest way: the neighbour grows in
    /// place. Returns the neighbour; the block is no more.
    #[inline]
    fn grow_neighbour(&mut self, block: u32, past: Past) -> Option<u32> {
        let Parts {
            address,
            size_bytes,
            previous,
            next,
            segment,
            ..
        } = self.blocks[block].parts();
        let free = |at: u32| self.blocks.get(at)?.free_past();
        let (neighbour, old) = match (free(previous), free(next)) {
            (None, Some(past)) => (next, past),
            (Some(past), None) => (previous, past),
            _ => return None,
        };
        let neighbour_bytes = self.blocks[neighbour].size_bytes();
        let grown_bytes = neighbour_bytes + size_bytes;
        let joined = past.joined_with(old);
        let kind = self.segments[segment].kind;
        self.resize_free(neighbour, kind, joined, grown_bytes);
        let entry = &mut self.blocks[neighbour];
        if neighbour == next {
            let above = entry.address();
            entry.set_address(address);
            entry.set_previous(previous);
            self.follow(segment, previous, neighbour);
            self.segments.block_removed(segment, above);
        } else {
            entry.set_next(next);
            if next != NONE {
                self.blocks[next].set_previous(neighbour);
            }
            self.segments.block_removed(segment, address);
        }
        self.blocks.remove(block);
        if joined.epoch == old.epoch {
            self.epochs.add(joined.epoch, size_bytes);
        } else {
            self.epochs.subtract(old.epoch, neighbour_bytes);
            self.epochs.add(joined.epoch, grown_bytes);
        }
        Some(neighbour)
    }

    /// Joins a block with the one above it, which ceases to be.
    pub fn absorb_next(&mut self, block: u32) {
        let absorbed = self.blocks[block].next();
        let Parts {
            address,
            size_bytes,
            next,
            segment,
            ..
        } = self.blocks[absorbed].parts();
        self.segments.block_removed(segment, address);
        self.blocks.remove(absorbed);
        let entry = &mut self.blocks[block];
        entry.set_size_bytes(entry.size_bytes() + size_bytes);
        entry.set_next(next);
        if next != NONE {
            self.blocks[next].set_previous(block);
        }
    }

    /// `block` is the one above `previous` now, or the first of its segment.
    #[inline]
    fn follow(&mut self, segment: u32, previous: u32, block: u32) {
        if previous == NONE {
            self.segments[segment].first = block;
        } else {
            self.blocks[previous].set_next(block);
        }
    }

    /// Gives a free block another size, in the bin of that size. Most changes leave it in its bin.
    #[inline]
    fn resize_free(&mut self, block: u32, kind: SegmentKind, past: Past, size_bytes: u64) {
        let old_bytes = self.blocks[block].size_bytes();
        match bins_of(kind) {
            Some(bins) if bin_of(old_bytes) != bin_of(size_bytes) => {
                self.bins[bins].remove(&mut self.blocks, block);
                self.blocks[block].set_size_bytes(size_bytes);
                self.bins[bins].insert(&mut self.blocks, block, past);
            }
            _ => {
                let entry = &mut self.blocks[block];
                entry.set_size_bytes(size_bytes);
                entry.set_free_past(past);
            }
        }
    }
}
