//! Segments coming into the pool and leaving it.

use super::arena::{Parts, Past, Use, NONE};
use super::segments::Segment;
use super::state::State;
use super::Range;

impl State {
    /// Adds a fresh segment; its only block is in the caller's hands.
    pub fn add_segment(&mut self, segment: Segment) -> u32 {
        let Range {
            address,
            size_bytes,
        } = segment.range();
        let index = self.segments.add(segment);
        let block = self.blocks.add(Parts {
            address,
            size_bytes,
            in_use: Use::Hand { past: Past::FRESH },
            segment: index,
            previous: NONE,
            next: NONE,
            flags: 0,
        });
        let segment = &mut self.segments[index];
        segment.first = block;
        segment.busy = 1;
        self.stats.reserved_bytes.rise(size_bytes);
        self.stats.segments.rise(1);
        self.stats.reserve_calls += 1;
        block
    }

    /// Takes an idle segment out of every table, so that it can be given back (FORGET-FIRST). Undone by
    /// [`State::reattach_segment`], made final by [`State::remove_segment`].
    pub fn detach_segment(&mut self, index: u32) -> Range {
        debug_assert_eq!(self.segments[index].busy, 0);
        self.segments.detach(index);
        let mut block = self.segments[index].first;
        while block != NONE {
            if self.blocks[block].is_free() {
                self.unlist(block);
            }
            block = self.blocks[block].next();
        }
        let range = self.segments[index].range();
        self.stats.reserved_bytes.fall(range.size_bytes);
        self.stats.segments.fall(1);
        self.settle_active();
        range
    }

    /// The driver did not take a detached segment back: it is idle again.
    pub fn reattach_segment(&mut self, index: u32) {
        self.segments.attach(index);
        let size_bytes = self.segments[index].size_bytes;
        // Not a rise: the peak is unaffected, and no memory was taken.
        self.stats.reserved_bytes.current += size_bytes;
        self.stats.segments.current += 1;
        let mut block = self.segments[index].first;
        while block != NONE {
            if let Use::Hand { past } = self.blocks[block].in_use() {
                self.list(block, past);
            }
            block = self.blocks[block].next();
        }
        self.segments.become_idle(index, false);
        self.settle_active();
    }

    /// The driver has a detached segment back.
    pub fn remove_segment(&mut self, index: u32) {
        let mut block = self.segments[index].first;
        while block != NONE {
            let Parts {
                size_bytes,
                in_use,
                next,
                ..
            } = self.blocks[block].parts();
            if matches!(in_use, Use::Held { .. }) {
                self.held_bytes -= size_bytes;
            }
            self.blocks.remove(block);
            block = next;
        }
        self.segments.remove(index);
    }
}
