//! Segments coming into the pool and leaving it.

use crate::sync::MutexGuard;

use super::arena::{Parts, Past, Use, FLAG_APART, NONE};
use super::facade::{Outside, Pool};
use super::segments::Segment;
use super::state::State;
use super::{Backing, Range, Refusal, SegmentKind};

impl Pool {
    /// Gives a segment back that the tables cannot hold ([`Entry::can_hold`]); the program's request is the driver's then. No
    /// driver is known to give one.
    #[cold]
    pub(super) fn decline<B: Backing>(
        &self,
        state: MutexGuard<'_, State>,
        backing: &B,
        range: Range,
    ) -> Refusal {
        self.budget.uncharge(range.size_bytes);
        match self.outside(state, || backing.release(range)) {
            Outside::Forgotten(_) => Refusal::Forgotten,
            Outside::Back(..) => Refusal::TooLarge,
        }
    }
}

impl State {
    /// Adds a fresh segment; its only block is in the caller's hands.
    pub fn add_segment(&mut self, segment: Segment) -> u32 {
        let Range {
            address,
            size_bytes,
        } = segment.range();
        let flags = match segment.kind {
            SegmentKind::Small | SegmentKind::Large => 0,
            SegmentKind::Oversize | SegmentKind::Isolated => FLAG_APART,
        };
        let index = self.segments.add(segment);
        let block = self.blocks.add(Parts {
            address,
            size_bytes,
            in_use: Use::Hand { past: Past::FRESH },
            segment: index,
            previous: NONE,
            next: NONE,
            flags,
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

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::sync::Arc;

    use super::super::{Backing, BackingError, Budget, Fence, Request, ScrubTicket, Settings};
    use super::*;

    /// A driver that gives segments at this address, whatever their size.
    struct Odd {
        address: u64,
        released: RefCell<Vec<Range>>,
    }

    impl Backing for Odd {
        fn reserve(&self, _: u64) -> Result<u64, BackingError> {
            Ok(self.address)
        }
        fn release(&self, segment: Range) -> Result<(), BackingError> {
            self.released.borrow_mut().push(segment);
            Ok(())
        }
        fn fence(&self) -> Result<Fence, BackingError> {
            Ok(Fence::UNWATCHED)
        }
        fn synchronize(&self) -> Result<(), BackingError> {
            Ok(())
        }
        fn begin_scrub(&self, _: &[Range], _: u8) -> Result<ScrubTicket, BackingError> {
            Err(BackingError::Unavailable)
        }
        fn join_scrub(&self, _: ScrubTicket) -> Result<(), BackingError> {
            Ok(())
        }
    }

    #[test]
    fn a_segment_that_the_tables_cannot_hold_goes_back() {
        let budget = Arc::new(Budget::new(None));
        let settings = Settings {
            alignment_bytes: 512,
            preallocate_bytes: 4 << 20,
            ..Settings::default()
        };
        let pool = Pool::new(settings, budget.clone());
        let mut request = Request {
            size_bytes: 3 << 20,
            tag: 0,
            capturing: false,
            isolated: true,
        };
        let odd = [
            ((1 << 40) + 256, 3 << 20),
            ((1 << 57) - 512, 3 << 20),
            (u64::MAX - 511, 3 << 20),
            (1 << 40, 3 << 40),
        ];
        for (address, size_bytes) in odd {
            request.size_bytes = size_bytes;
            let backing = Odd {
                address,
                released: RefCell::default(),
            };
            assert_eq!(pool.allocate(&backing, request), Err(Refusal::TooLarge));
            request.isolated ^= true;
            let released = backing.released.take();
            assert_eq!(released.len(), 1);
            assert_eq!(released[0].address, address);
            if size_bytes < 1 << 40 {
                assert_eq!(pool.preallocate(&backing), Err(Refusal::TooLarge));
                assert_eq!(backing.released.take().len(), 1);
            }
            assert_eq!(budget.used_bytes(), 0);
            pool.check();
        }
        let backing = Odd {
            address: (1 << 57) - (2 << 20),
            released: RefCell::default(),
        };
        request.size_bytes = 512;
        let grant = pool
            .allocate(&backing, request)
            .expect("the last addresses");
        assert_eq!(grant.address, backing.address);
        pool.check();
    }
}
