//! How blocks come to the front, and back to the tables as live ones: all under the pool's lock. `drain` gives back those that are
//! cached, `fold` keeps the figures.

use super::arena::{Entry, Parts, Past, Use, FLAG_IN_FRONT};
use super::facade::Pool;
use super::front::entry::{State as Place, Word, ENTRIES_MAX};
use super::front::lane::Lane;
use super::front::{Entering, Look};
use super::state::State;
use super::Block;

/// Entries looked at for one that can be evicted.
const EVICTION_LOOKS: u32 = 8;

impl Pool {
    /// Whether blocks of this pool may be kept in front.
    #[inline]
    pub(super) fn has_front(&self) -> bool {
        self.settings.scrub.is_none()
    }

    /// Keeps a live block that is being freed in front, if it may be there and there is room. Figures follow.
    #[inline]
    pub(super) fn keep_in_front(
        &self,
        state: &mut State,
        (own, lane): (usize, &Lane),
        block: u32,
    ) -> bool {
        let Parts {
            address,
            size_bytes,
            in_use,
            flags,
            ..
        } = state.blocks[block].parts();
        let Use::Live {
            requested_bytes,
            sequence,
            ..
        } = in_use
        else {
            return false;
        };
        if flags != 0 {
            return false;
        }
        let do_meet = state.front.meetings.is_on();
        if !state.front.asked.has(size_bytes, do_meet) || !self.front.has_room(lane, size_bytes) {
            return false;
        }
        let Some(id) = self.vacant_entry(state, own) else {
            return false;
        };
        let entering = Entering {
            address,
            size_bytes,
            requested_bytes,
            sequence,
            block,
            epoch: state.epochs.current(),
        };
        let Some(hint) = self.front.enter(id, entering) else {
            state.front.add_vacant(id);
            return false;
        };
        state.blocks[block].set_flags(FLAG_IN_FRONT);
        state.stats.requested_bytes.fall(requested_bytes);
        state.stats.allocated_bytes.fall(size_bytes);
        state.stats.allocations.fall(1);
        state.front.cached_bytes += size_bytes as i64;
        if !lane.keep(size_bytes, hint) {
            let crowd = lane.crowd_in(size_bytes, hint);
            if let Some(crowd) = crowd.and_then(|crowd| self.front.put_aside(crowd)) {
                self.make_room(state, crowd.hints());
            }
        }
        state.settle_active();
        true
    }

    /// An entry for one more block in front. Where all are in use, a block leaves for it.
    // Decision: a live one sooner than a cached one, which would be served from here. But cached ones leave, too: those that ended
    // threads and the depot keep are asked for no more, and could have all entries.
    fn vacant_entry(&self, state: &mut State, own: usize) -> Option<u32> {
        let book = &mut state.front;
        if let Some(id) = book.take_vacant(own) {
            return Some(id);
        }
        if book.used_count < ENTRIES_MAX {
            book.add_run(own);
            return book.take_vacant(own);
        }
        if let Some(id) = book.take_vacant_of_any() {
            return Some(id);
        }
        let mut cached = None;
        for _ in 0..EVICTION_LOOKS {
            let id = state.front.hand;
            state.front.hand = (id + 1) % ENTRIES_MAX;
            let word = self.front.entries.get(id).word();
            match word.state() {
                Place::Live if self.recall(state, id, word) => {
                    return state.front.take_vacant_number(id)
                }
                Place::Cached => cached = cached.or(Some((id, word.sequence()))),
                Place::Live | Place::Vacant | Place::Busy => {}
            }
        }
        let (id, sequence) = cached?;
        if !self.list_again(state, id, sequence) {
            return None;
        }
        state.front.take_vacant_number(id)
    }

    /// A live block leaves the front for the tables. `false`: it is live no more.
    pub(super) fn recall(&self, state: &mut State, id: u32, word: Word) -> bool {
        let entry = self.front.entries.get(id);
        let (block, _) = entry.block_and_epoch();
        let (requested_bytes, tag) = entry.request();
        if !self.front.leave(id, word) {
            return false;
        }
        state.front.add_vacant(id);
        let entry = &mut state.blocks[block];
        entry.set_use(Use::Live {
            requested_bytes,
            tag,
            sequence: word.sequence(),
        });
        entry.set_flags(0);
        true
    }

    /// The live block whose base is `address`, with its truth in the tables.
    pub(super) fn plain_live(&self, state: &mut State, address: u64) -> Option<u32> {
        let block = state.bases.get(&state.blocks, address)?;
        while state.blocks[block].flags() & FLAG_IN_FRONT != 0 {
            let (id, word) = self.front.entry_of(address)?;
            if word.state() != Place::Live {
                return None;
            }
            self.recall(state, id, word);
            // Its figures are about to be taken back.
            self.fold(state, None);
        }
        Some(block)
    }

    /// What a block of the tables is, with what the front knows of it. A cached one is on its way.
    #[inline]
    pub(super) fn as_in_front(&self, entry: &Entry) -> Use {
        if entry.flags() & FLAG_IN_FRONT == 0 {
            return entry.in_use();
        }
        match self.front.look(entry.address()) {
            Look::Nothing => entry.in_use(),
            Look::NotLive => Use::Hand { past: Past::FRESH },
            Look::Live {
                requested_bytes,
                tag,
                sequence,
            } => Use::Live {
                requested_bytes,
                tag,
                sequence,
            },
        }
    }

    /// A live block, by value, with what the front knows of it.
    #[inline]
    pub(super) fn live_block(&self, state: &State, block: u32) -> Option<Block> {
        let found = state.live_block(block)?;
        if state.blocks[block].flags() & FLAG_IN_FRONT == 0 {
            return Some(found);
        }
        match self.front.look(found.base) {
            Look::Nothing => Some(found),
            Look::NotLive => None,
            Look::Live {
                requested_bytes,
                tag,
                sequence,
            } => Some(Block {
                requested_bytes,
                tag,
                sequence,
                ..found
            }),
        }
    }

    /// Part of [`Pool::check`].
    pub(super) fn check_front(&self, state: &State) {
        for id in 0..state.front.used_count {
            let entry = self.front.entries.get(id);
            let vacant = state.front.vacant.iter().any(|ids| ids.contains(&id));
            assert_eq!(
                entry.word().state() == Place::Vacant,
                vacant,
                "entry in front"
            );
            if !vacant {
                let block = entry.block_and_epoch().0;
                let address = state.blocks[block].address();
                let found = self.front.entry_of(address).map(|(id, _)| id);
                assert_eq!(found, Some(id), "ONE-PLACE: entry in front");
                let entry = &state.blocks[block];
                assert!(
                    entry.is_live() && entry.flags() == FLAG_IN_FRONT,
                    "ONE-PLACE: a block in front and in the free lists"
                );
            }
        }
    }
}
