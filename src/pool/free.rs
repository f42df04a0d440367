//! A free: back into the free lists, behind a host wait if the mode asks for it.

use crate::sync::MutexGuard;

use crate::lane;

use super::arena::{Past, Use, FLAG_BORROWED, FLAG_HELD, FLAG_RETIRE};
use super::facade::{Outside, Pool};
use super::front::lane::Lane;
use super::front::Freed;
use super::live::borrowed_bytes;
use super::state::State;
use super::{Backing, BackingError, FreeMode, FreeOutcome, SegmentKind};

/// A live block that is being freed, so that the free can be undone.
struct Leaving {
    block: u32,
    was: Use,
    requested_bytes: u64,
    tag: u64,
}

impl Pool {
    /// Frees the live block whose base is `address`. With a host wait, all work submitted before has ended on return,
    /// and the block is behind a barrier. Otherwise the block joins the current epoch.
    ///
    /// A second free of the same address that comes while the first one waits is answered [`FreeOutcome::NotLive`].
    pub fn free<B: Backing>(&self, backing: &B, address: u64, mode: FreeMode) -> FreeOutcome {
        self.free_on(lane::current(), backing, address, mode)
    }

    /// The same for a caller that has its thread's lane at hand ([`lane::current`]), or does without.
    pub fn free_on<B: Backing>(
        &self,
        own: Option<usize>,
        backing: &B,
        address: u64,
        mode: FreeMode,
    ) -> FreeOutcome {
        if let Some((requested_bytes, tag)) = self.free_in_front(own, address, mode) {
            return FreeOutcome::Freed {
                requested_bytes,
                tag,
            };
        }
        let may_keep = self.has_front() && !mode.host_wait && !mode.capturing;
        let lane = own
            .filter(|_| may_keep)
            .map(|own| (own, self.front.lane(own)));
        self.free_locked(lane, backing, address, mode)
    }

    /// Frees a block that was handed out in front, before the lock: its requested size and tag. `None`: all else is for
    /// [`Pool::free_on`].
    #[inline(always)]
    pub fn free_in_front(
        &self,
        own: Option<usize>,
        address: u64,
        mode: FreeMode,
    ) -> Option<(u64, u64)> {
        if !self.has_front() || mode.host_wait || mode.capturing {
            return None;
        }
        let lane = self.front.lane(own?);
        let freed = self.front.free(lane, address)?;
        if freed.is_crowded {
            self.make_room_for(own, lane, freed);
        }
        Some((freed.requested_bytes, freed.tag))
    }

    /// The block just freed has no place in its lane yet.
    #[cold]
    fn make_room_for(&self, own: Option<usize>, lane: &Lane, freed: Freed) {
        let crowd = lane.crowd_in(freed.size_bytes, freed.hint);
        if let Some(crowd) = crowd.and_then(|crowd| self.front.put_aside(crowd)) {
            let mut state = self.lock();
            self.fold(&mut state, own);
            self.make_room(&mut state, crowd.hints());
        }
    }

    /// By the tables, under the lock. `lane`: the block may be kept there.
    #[inline(never)]
    fn free_locked<B: Backing>(
        &self,
        lane: Option<(usize, &Lane)>,
        backing: &B,
        address: u64,
        mode: FreeMode,
    ) -> FreeOutcome {
        let mut state = self.lock();
        self.fold_before_fall(&mut state, lane.map(|(own, _)| own));
        let Some(block) = self.plain_live(&mut state, address) else {
            return match state.segments.holding(address) {
                Some(_) => FreeOutcome::NotLive,
                None => FreeOutcome::NotMine,
            };
        };
        let entry = &mut state.blocks[block];
        let was = entry.in_use();
        let Use::Live {
            requested_bytes,
            tag,
            ..
        } = was
        else {
            debug_assert!(false, "the base index holds live blocks");
            return FreeOutcome::NotLive;
        };
        if lane.is_some_and(|lane| self.keep_in_front(&mut state, lane, block)) {
            return FreeOutcome::Freed {
                requested_bytes,
                tag,
            };
        }
        state.unbase(address);
        let past = Past {
            epoch: state.epochs.current(),
            ticket: 0,
        };
        let entry = &mut state.blocks[block];
        entry.set_use(Use::Hand { past });
        let plain = entry.flags() == 0;
        let leaving = Leaving {
            block,
            was,
            requested_bytes,
            tag,
        };
        if mode.host_wait && !mode.capturing {
            return self.free_after_wait(state, backing, leaving, past);
        }
        if plain {
            state.account_free(block, requested_bytes);
            state.put(block, past);
            return FreeOutcome::Freed {
                requested_bytes,
                tag,
            };
        }
        self.finish_free(state, backing, leaving, past, mode.capturing)
    }

    /// The host waits for the device before the block is free.
    #[cold]
    fn free_after_wait<'a, B: Backing>(
        &'a self,
        state: MutexGuard<'a, State>,
        backing: &B,
        leaving: Leaving,
        past: Past,
    ) -> FreeOutcome {
        match self.wait(state, backing) {
            Outside::Back(mut state, Ok(())) => {
                state.stats.host_waits += 1;
                self.finish_free(state, backing, leaving, past, false)
            }
            // The driver cannot wait now: the device half of the free still holds.
            Outside::Back(state, Err(BackingError::Unavailable | BackingError::OutOfMemory)) => {
                self.finish_free(state, backing, leaving, past, false)
            }
            Outside::Back(mut state, Err(BackingError::Failed(code))) => {
                state.stay_live(&leaving);
                FreeOutcome::Failed(code)
            }
            // The block went with its context. The program's free came before that.
            Outside::Forgotten(_) => {
                let Leaving {
                    requested_bytes,
                    tag,
                    ..
                } = leaving;
                FreeOutcome::Freed {
                    requested_bytes,
                    tag,
                }
            }
        }
    }

    /// Puts a block that was live where it belongs now.
    fn finish_free<'a, B: Backing>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        backing: &B,
        leaving: Leaving,
        past: Past,
        capturing: bool,
    ) -> FreeOutcome {
        let Leaving {
            block,
            requested_bytes,
            tag,
            ..
        } = leaving;
        let freed = FreeOutcome::Freed {
            requested_bytes,
            tag,
        };
        let (flags, segment) = (state.blocks[block].flags(), state.blocks[block].segment());
        if flags & FLAG_HELD != 0 {
            state.account_free(block, requested_bytes);
            state.hold_back(block, past, false);
            return freed;
        }
        let isolated = state.segments[segment].kind == SegmentKind::Isolated;
        let retired = flags & FLAG_RETIRE != 0;
        if !isolated && !retired {
            state.account_free(block, requested_bytes);
            state.put(block, past);
            return freed;
        }
        let whole = state.is_whole(block) && !state.segments[segment].is_mapped;
        state.account_free(block, requested_bytes);
        if retired {
            state.hold_back(block, past, true);
        } else {
            state.put(block, past);
        }
        let is_mapped = state.segments[segment].is_mapped;
        if let Some(pages) = backing.pages().filter(|_| is_mapped && !capturing) {
            // What cannot go back now goes with the next trim.
            let _ = self.release_retired(state, backing, pages);
            return freed;
        }
        if !whole || capturing {
            // While capturing the segment waits for the next reclaim, first in line.
            return freed;
        }
        match self.release_segment(state, backing, segment) {
            Outside::Back(mut state, Err(BackingError::Failed(code))) => {
                state.live_again(&leaving);
                FreeOutcome::Failed(code)
            }
            Outside::Back(..) | Outside::Forgotten(_) => freed,
        }
    }
}

impl State {
    /// Takes the live block whose base is `address` out of the index.
    #[inline]
    fn unbase(&mut self, address: u64) -> Option<u32> {
        self.bases.remove(&self.blocks, address)
    }

    /// A free that was begun did not happen. Nothing was accounted yet.
    fn stay_live(&mut self, leaving: &Leaving) {
        self.blocks[leaving.block].set_use(leaving.was);
        let address = self.blocks[leaving.block].address();
        self.bases.insert(address, leaving.block);
    }

    /// A free that was accounted did not happen after all: the driver keeps the segment of this block, which is idle.
    fn live_again(&mut self, leaving: &Leaving) {
        let block = leaving.block;
        let size_bytes = self.blocks[block].size_bytes();
        if matches!(self.blocks[block].in_use(), Use::Held { .. }) {
            self.held_bytes -= size_bytes;
            self.segments.add_busy(self.blocks[block].segment());
        } else {
            self.take(block, size_bytes);
        }
        // Not a rise: nothing was allocated.
        self.stats.requested_bytes.current += leaving.requested_bytes;
        self.stats.allocated_bytes.current += size_bytes;
        self.stats.allocations.current += 1;
        if self.blocks[block].flags() & FLAG_BORROWED != 0 {
            self.borrowed_bytes += borrowed_bytes(size_bytes, leaving.requested_bytes);
        }
        self.stay_live(leaving);
        self.settle_active();
    }
}
