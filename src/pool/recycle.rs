//! How blocks come to the front and leave it, and how what happened there enters the figures: all under the pool's lock.
//!
//! # Decision: when the figures are exact
//! Currents and totals are, whenever they are read: each lane counts, and [`Pool::fold`] adds. So are peaks while one
//! thread uses the pool. With several, a peak within the short time between two folds is seen only as far as it stood at
//! one of them: at the latest at every [`FOLD_EVERY`]th allocation that is not served in front.

use super::arena::{Entry, Parts, Past, Use};
use super::asked::Asked;
use super::facade::Pool;
use super::front::entry::{State as Place, Word, ENTRIES_MAX};
use super::front::lane::{Lane, Tally, FIGURES};
use super::front::{Entering, Hint, Look};
use super::meeting::Meetings;
use super::state::State;
use super::{Block, Gauge, SegmentKind};

/// What the pool knows of the blocks in front.
#[derive(Debug, Default)]
pub(super) struct Book {
    /// Bytes of blocks that are `CACHED`, as of the last fold. Below zero for a moment, while a free is yet to be folded.
    pub cached_bytes: i64,
    /// Numbers of entries that are vacant, for each lane that used them last.
    vacant: Vec<Vec<u32>>,
    /// The lane that each run of [`RUN_ENTRIES`] entries belongs to.
    runs: Vec<u8>,
    /// Entries ever used: those below this number.
    used_count: u32,
    /// Where the next eviction begins to look.
    hand: u32,
    /// Where the next part to be drained begins.
    drained: u32,
    /// The lane whose large blocks are drained next.
    drained_lane: u32,
    /// What was folded of each lane.
    folded: Vec<Tally>,
    /// Misses since the last fold.
    misses: u32,
    /// Whether threads meet at the lock.
    pub meetings: Meetings,
    /// Sizes that were asked for lately and not served in front.
    asked: Asked,
}

/// Entries that a lane takes at a time. They are neighbours, so that no two threads write into one pair of cache lines.
const RUN_ENTRIES: u32 = if cfg!(loom) { 2 } else { 8 };
/// Entries looked at for one that can be evicted.
const EVICTION_LOOKS: u32 = 8;
/// Misses after which the lanes of several threads are folded: each was written by another processor.
const FOLD_EVERY: u32 = 32;
/// Entries drained under one hold of the lock.
const SLICE_ENTRIES: u32 = 256;
/// The same for one request.
const PART_ENTRIES: u32 = 512;
/// The same while threads meet at the lock.
const MET_PART_ENTRIES: u32 = 32;

fn gauges(state: &mut State) -> [&mut Gauge; FIGURES] {
    let stats = &mut state.stats;
    [
        &mut stats.allocations,
        &mut stats.requested_bytes,
        &mut stats.allocated_bytes,
    ]
}

impl Book {
    /// Bytes of host memory.
    pub fn host_bytes(&self) -> usize {
        let vacant: usize = self.vacant.iter().map(Vec::capacity).sum();
        vacant * size_of::<u32>()
            + self.vacant.capacity() * size_of::<Vec<u32>>()
            + self.runs.capacity()
            + self.folded.capacity() * size_of::<Tally>()
            + self.asked.host_bytes()
    }

    /// An entry is vacant.
    fn add_vacant(&mut self, id: u32) {
        let lane = usize::from(self.runs[(id / RUN_ENTRIES) as usize]);
        if self.vacant.len() <= lane {
            self.vacant.resize_with(lane + 1, Vec::new);
        }
        self.vacant[lane].push(id);
    }

    /// One that is vacant, if this lane has any.
    fn take_vacant(&mut self, lane: usize) -> Option<u32> {
        self.vacant.get_mut(lane)?.pop()
    }

    /// One that is vacant, of whatever lane.
    fn take_vacant_of_any(&mut self) -> Option<u32> {
        self.vacant.iter_mut().find_map(Vec::pop)
    }

    /// This one, which is vacant.
    fn take_vacant_number(&mut self, id: u32) -> Option<u32> {
        let lane = usize::from(self.runs[(id / RUN_ENTRIES) as usize]);
        let vacant = &mut self.vacant[lane];
        let at = vacant.iter().rposition(|&other| other == id)?;
        Some(vacant.swap_remove(at))
    }
}

impl Pool {
    /// Whether blocks of this pool may be kept in front.
    #[inline]
    pub(super) fn has_front(&self) -> bool {
        self.settings.scrub.is_none()
    }

    /// Adds what the lanes counted to the figures.
    /// `own` is the calling thread's, if it has one.
    pub(super) fn fold(&self, state: &mut State, own: Option<usize>) {
        if let Some((number, lane)) = self.front.only_lane() {
            self.fold_one(state, number, lane, own);
            return;
        }
        let is_folded = |(number, lane): (usize, &Lane)| {
            let folded = state.front.folded.get(number);
            folded.is_some_and(|folded| {
                folded.taken[0].wrapping_add(folded.freed[0]) == lane.events()
            })
        };
        if self.front.lanes().all(is_folded) {
            return;
        }
        let mut freed = [0; FIGURES];
        for (number, lane) in self.front.lanes() {
            if state.front.folded.len() <= number {
                state.front.folded.resize(number + 1, Tally::default());
            }
            let before = state.front.folded[number];
            let now = lane.freed();
            for figure in 0..FIGURES {
                freed[figure] += now[figure].wrapping_sub(before.freed[figure]);
            }
            state.front.folded[number].freed = now;
        }
        let mut taken = [0; FIGURES];
        for (number, lane) in self.front.lanes() {
            let Some(folded) = state.front.folded.get_mut(number) else {
                continue; // Its lane is younger than the loop above.
            };
            let now = lane.taken();
            for figure in 0..FIGURES {
                taken[figure] += now[figure].wrapping_sub(folded.taken[figure]);
            }
            folded.taken = now;
            if own == Some(number) {
                lane.begin_peaks();
            }
        }
        if taken == [0; FIGURES] && freed == [0; FIGURES] {
            return;
        }
        for (figure, gauge) in gauges(state).into_iter().enumerate() {
            gauge.current = (gauge.current + taken[figure]).saturating_sub(freed[figure]);
            gauge.total += taken[figure];
            gauge.peak = gauge.peak.max(gauge.current);
        }
        state.stats.hits += taken[0];
        state.front.cached_bytes += freed[2].wrapping_sub(taken[2]) as i64;
        state.settle_active();
    }

    /// The same while there is one lane, whose peaks are those of the pool.
    #[inline]
    fn fold_one(&self, state: &mut State, number: usize, lane: &Lane, own: Option<usize>) {
        if state.front.folded.len() <= number {
            state.front.folded.resize(number + 1, Tally::default());
        }
        let before = state.front.folded[number];
        let peaks = lane.net_peaks();
        let freed = lane.freed();
        let taken = lane.taken();
        let now = Tally { taken, freed };
        if now == before {
            return;
        }
        state.front.folded[number] = now;
        let (taken, freed) = now.since(&before);
        for (figure, gauge) in gauges(state).into_iter().enumerate() {
            let net = before.taken[figure].wrapping_sub(before.freed[figure]) as i64;
            let peak = gauge.current.saturating_add_signed(peaks[figure] - net);
            gauge.current = (gauge.current + taken[figure]).saturating_sub(freed[figure]);
            gauge.total += taken[figure];
            gauge.peak = gauge.peak.max(peak).max(gauge.current);
        }
        if own == Some(number) {
            lane.begin_peaks();
        }
        state.stats.hits += taken[0];
        state.front.cached_bytes += freed[2].wrapping_sub(taken[2]) as i64;
        state.settle_active();
    }

    /// A request of this size was not served in front. The figures follow, at times.
    #[inline]
    pub(super) fn note_miss(
        &self,
        state: &mut State,
        own: Option<usize>,
        size_bytes: u64,
        is_ordered: bool,
    ) {
        let do_meet = state.front.meetings.is_on();
        state.front.asked.note(size_bytes, do_meet);
        self.note_meeting(state, own, is_ordered);
        state.front.misses += 1;
        if state.front.folded.len() <= 1 || state.front.misses >= FOLD_EVERY {
            state.front.misses = 0;
            self.fold(state, own);
        }
    }

    /// Gives the calling thread's lane numbers for its next allocations.
    #[cold]
    pub(super) fn lease(&self, state: &mut State, lane: &Lane) {
        state.sequence += lane.lease(state.sequence + 1);
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
            segment,
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
        let kind = state.segments[segment].kind;
        if flags != 0 || !matches!(kind, SegmentKind::Small | SegmentKind::Large) {
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
            let first = book.used_count;
            book.used_count += RUN_ENTRIES;
            book.runs.push(own as u8);
            (first..first + RUN_ENTRIES).for_each(|id| book.add_vacant(id));
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

    /// Blocks that leave the front for the free lists, unless somebody took them meanwhile.
    pub(super) fn make_room(&self, state: &mut State, hints: &[Hint]) {
        for hint in hints {
            self.list_again(state, hint.entry(), hint.sequence());
        }
    }

    fn list_again(&self, state: &mut State, id: u32, sequence: u64) -> bool {
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
        state.blocks[block].set_use(Use::Hand { past });
        state.put(block, past);
        true
    }

    /// The large blocks that a lane keeps go to the free lists.
    pub(super) fn give_large_back(&self, state: &mut State, lane: &Lane) {
        while let Some(crowd) = lane.evict_large() {
            self.make_room(state, crowd.hints());
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
                for hint in lane.wide_hints() {
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

    /// A live block leaves the front for the tables. `false`: it is live no more.
    fn recall(&self, state: &mut State, id: u32, word: Word) -> bool {
        let entry = self.front.entries.get(id);
        let (block, _) = entry.block_and_epoch();
        let (requested_bytes, tag) = entry.request();
        if !self.front.leave(id, word) {
            return false;
        }
        state.front.add_vacant(id);
        state.blocks[block].set_use(Use::Live {
            requested_bytes,
            tag,
            sequence: word.sequence(),
        });
        true
    }

    /// The live block whose base is `address`, with its truth in the tables.
    pub(super) fn plain_live(&self, state: &mut State, address: u64) -> Option<u32> {
        while let Some((id, word)) = self.front.entry_of(address) {
            if word.state() != Place::Live {
                return None;
            }
            self.recall(state, id, word);
            // Its figures are about to be taken back.
            self.fold(state, None);
        }
        state.bases.get(&state.blocks, address)
    }

    /// What a block of the tables is, with what the front knows of it. A cached one is on its way.
    #[inline]
    pub(super) fn as_in_front(&self, entry: &Entry) -> Use {
        if !entry.is_live() {
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
                let live = state.blocks[block].is_live();
                assert!(live, "ONE-PLACE: a block in front and in the free lists");
            }
        }
    }
}
