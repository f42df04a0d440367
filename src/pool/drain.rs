//! How cached blocks leave the front for the free lists: some for others, a part for a request, or all. Under the pool's lock.

use super::arena::{Parts, Past, Use};
use super::facade::Pool;
use super::front::entry::{State as Place, Word, ENTRIES_MAX};
use super::front::lane::Lane;
use super::front::Hint;
use super::state::State;
use super::SegmentKind;

/// Entries drained under one hold of the lock.
const SLICE_ENTRIES: u32 = 256;
/// The same for one request.
const PART_ENTRIES: u32 = 512;
/// The same while threads meet at the lock.
const MET_PART_ENTRIES: u32 = 32;

impl Pool {
    /// Blocks that leave the front for the free lists, unless somebody took them meanwhile.
    pub(super) fn make_room(&self, state: &mut State, hints: &[Hint]) {
        for hint in hints {
            self.list_again(state, hint.entry(), hint.sequence());
        }
    }

    pub(super) fn list_again(&self, state: &mut State, id: u32, sequence: u64) -> bool {
        let entry = self.front.entries.get(id);
        let (block, epoch) = entry.block_and_epoch();
        if !self.front.leave(id, Word::new(Place::Cached, sequence)) {
            return false;
        }
        state.front.add_vacant(id);
        let Parts {
            address,
            size_bytes,
            ..
        } = state.blocks[block].parts();
        state.front.cached_bytes -= size_bytes as i64;
        let index = state.bases.remove(&state.blocks, address);
        debug_assert_eq!(index, Some(block));
        let past = Past { epoch, ticket: 0 };
        let entry = &mut state.blocks[block];
        entry.set_use(Use::Hand { past });
        entry.set_flags(0);
        state.put(block, past);
        true
    }

    /// The large blocks that a lane keeps go to the free lists.
    pub(super) fn give_large_back(&self, state: &mut State, lane: &Lane) {
        while let Some(hint) = lane.wide.take_any() {
            self.list_again(state, hint.entry(), hint.sequence());
        }
    }

    /// Everything that is cached in front goes to the free lists. `false`: there was nothing.
    pub(super) fn drain(&self, state: &mut State) -> bool {
        self.front.depot.clear();
        self.drain_slice(state, 0, u32::MAX)
    }

    /// A part of what is cached in front goes to the free lists, for a request that nothing there serves. `done` is how far
    /// it went for that request. `false`: nothing is left.
    // Decision: by parts, so that a request that finds no block among the free lists leaves others theirs. First come those
    // of its own kind of segment, which are all that it could be served from; the rest goes before the pool grows.
    pub(super) fn drain_part(&self, state: &mut State, kind: SegmentKind, done: &mut u32) -> bool {
        if kind != SegmentKind::Small {
            return self.drain_large(state, done) || self.drain(state);
        }
        let part = match state.front.meetings.is_on() {
            true => MET_PART_ENTRIES,
            false => PART_ENTRIES,
        };
        let mut any = false;
        while !any && *done < state.front.used_count {
            let from = state.front.drained;
            let to = (from + part).min(state.front.used_count);
            state.front.drained = if to == state.front.used_count { 0 } else { to };
            *done += to - from;
            any = self.drain_slice(state, from, to);
        }
        any
    }

    /// The large blocks of one more lane go to the free lists. `false`: those of all did.
    fn drain_large(&self, state: &mut State, done: &mut u32) -> bool {
        let lane_count = self.front.lanes().count() as u32;
        self.fold(state, None);
        while *done < lane_count {
            *done += 1;
            let at = state.front.drained_lane % lane_count;
            state.front.drained_lane = at + 1;
            let mut any = false;
            for (_, lane) in self.front.lanes().skip(at as usize).take(1) {
                for hint in lane.wide.hints() {
                    any |= self.list_again(state, hint.entry(), hint.sequence());
                }
            }
            if any {
                return true;
            }
        }
        false
    }

    fn drain_slice(&self, state: &mut State, from: u32, to: u32) -> bool {
        let mut any = false;
        self.fold(state, None);
        for id in from..to.min(state.front.used_count) {
            let word = self.front.entries.get(id).word();
            if word.state() == Place::Cached {
                any |= self.list_again(state, id, word.sequence());
            }
        }
        any
    }

    /// The same a little at a time.
    pub(super) fn drain_in_slices(&self) {
        self.front.depot.clear();
        let mut from = 0;
        while from < ENTRIES_MAX {
            let mut state = self.lock();
            if from >= state.front.used_count {
                break;
            }
            self.drain_slice(&mut state, from, from + SLICE_ENTRIES);
            from += SLICE_ENTRIES;
        }
    }

    /// The end of the context: nothing is in front any more, and the tables alone say what is live.
    pub(super) fn clear_front(&self, state: &mut State) {
        for id in 0..state.front.used_count {
            while let Some(word) = self.front.settle(id) {
                let block = self.front.entries.get(id).block_and_epoch().0;
                let cleared = match word.state() {
                    Place::Vacant | Place::Busy => true,
                    Place::Live => self.recall(state, id, word),
                    Place::Cached => {
                        let left = self.front.leave(id, word);
                        if left {
                            state.front.add_vacant(id);
                            let past = Past::FRESH;
                            state.blocks[block].set_use(Use::Hand { past });
                        }
                        left
                    }
                };
                if cleared {
                    break;
                }
            }
        }
        self.front.depot.clear();
        self.fold(state, None);
        state.front.cached_bytes = 0;
    }
}
