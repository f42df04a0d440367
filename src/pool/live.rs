//! Blocks that become live, and that are live no more or kept out of use, with their figures (SUMS).

use super::arena::{Parts, Past, Use, FLAG_APART, FLAG_BORROWED, FLAG_HELD, FLAG_RETIRE, NONE};
use super::size::GRANULE_BYTES;
use super::state::State;
use super::{Block, Grant, Origin, Request};

/// What a small request leaves unused of a borrowed block.
pub(super) fn borrowed_bytes(size_bytes: u64, requested_bytes: u64) -> u64 {
    size_bytes.saturating_sub(requested_bytes.next_multiple_of(GRANULE_BYTES))
}

impl State {
    /// Makes a block that is in the caller's hands live.
    #[inline]
    pub fn hand_out(&mut self, block: u32, request: &Request, origin: Origin) -> Grant {
        self.sequence += 1;
        let entry = &mut self.blocks[block];
        entry.set_use(Use::Live {
            requested_bytes: request.size_bytes,
            tag: request.tag,
            sequence: self.sequence,
        });
        entry.set_flags(entry.flags() & FLAG_APART);
        let Parts {
            address,
            size_bytes,
            ..
        } = entry.parts();
        self.bases.insert(address, block);
        self.stats.requested_bytes.rise(request.size_bytes);
        self.stats.allocated_bytes.rise(size_bytes);
        self.stats.allocations.rise(1);
        match origin {
            Origin::Hit => self.stats.hits += 1,
            Origin::Grown => self.stats.misses += 1,
        }
        self.settle_active();
        Grant {
            address,
            allocated_bytes: size_bytes,
            sequence: self.sequence,
            origin,
        }
    }

    /// The live `block` serves a small request from the large pool.
    pub fn note_borrowed(&mut self, block: u32, requested_bytes: u64) {
        let entry = &mut self.blocks[block];
        entry.set_flags(entry.flags() | FLAG_BORROWED);
        self.borrowed_bytes += borrowed_bytes(entry.size_bytes(), requested_bytes);
    }

    /// A block that was live and is in the caller's hands is so no longer: figures and dirt follow. It joins the
    /// current epoch.
    #[inline]
    pub fn account_free(&mut self, block: u32, requested_bytes: u64) {
        let Parts {
            address,
            size_bytes,
            segment,
            flags,
            ..
        } = self.blocks[block].parts();
        if flags & FLAG_BORROWED != 0 {
            self.borrowed_bytes -= borrowed_bytes(size_bytes, requested_bytes);
        }
        self.stats.requested_bytes.fall(requested_bytes);
        self.stats.allocated_bytes.fall(size_bytes);
        self.stats.allocations.fall(1);
        self.segments[segment].set_dirt(address, size_bytes, true);
    }

    /// Keeps a block that is in the caller's hands out of use. With `for_ever` it no longer keeps its segment from
    /// being released; else until [`State::end_hold`].
    pub fn hold_back(&mut self, block: u32, past: Past, for_ever: bool) {
        let Parts {
            size_bytes,
            segment,
            ..
        } = self.blocks[block].parts();
        self.blocks[block].set_use(Use::Held { past });
        self.held_bytes += size_bytes;
        if for_ever {
            if self.segments[segment].is_mapped {
                let address = self.blocks[block].address();
                self.mapped.retired.insert(address, block);
            }
            self.segments.subtract_busy(segment, true);
        }
        self.settle_active();
    }

    /// The last hold of a freed block is gone. It may have been in use until now, so it joins the current epoch.
    pub fn end_hold(&mut self, block: u32) {
        let Use::Held { past } = self.blocks[block].in_use() else {
            return;
        };
        let past = Past {
            epoch: self.epochs.current(),
            ..past
        };
        self.blocks[block].set_use(Use::Hand { past });
        self.held_bytes -= self.blocks[block].size_bytes();
        let flags = self.blocks[block].flags();
        self.blocks[block].set_flags(flags & !FLAG_HELD);
        if flags & FLAG_RETIRE != 0 {
            self.hold_back(block, past, true);
        } else {
            self.put(block, past);
        }
    }

    /// Whether the block is all of its segment.
    #[inline]
    pub fn is_whole(&self, block: u32) -> bool {
        let entry = &self.blocks[block];
        entry.previous() == NONE && entry.next() == NONE
    }

    /// A live block, by value.
    #[inline]
    pub fn live_block(&self, block: u32) -> Option<Block> {
        let entry = &self.blocks[block];
        let Use::Live {
            requested_bytes,
            tag,
            sequence,
        } = entry.in_use()
        else {
            return None;
        };
        Some(Block {
            base: entry.address(),
            requested_bytes,
            allocated_bytes: entry.size_bytes(),
            sequence,
            tag,
            whole_segment: self.is_whole(block) && !self.segments[entry.segment()].is_mapped,
            segment: self.segments[entry.segment()].range(),
        })
    }
}
