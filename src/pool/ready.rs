//! Making a cached block fit for its next user: behind a barrier (FENCED) and clean (CLEAN).
//!
//! # What covers what
//! A scrub starts after all earlier work and is joined by all later work, so it is a barrier as well. A barrier orders
//! later work behind everything submitted earlier, scrubs included. So one of the two, or a join alone, is enough.

use crate::sync::MutexGuard;

use super::arena::{Entry, Parts, Past};
use super::facade::{Outside, Pool};
use super::state::State;
use super::tickets::Tickets;
use super::{Backing, BackingError, Range};

/// What came of making a block ready. The block stays in the caller's hands.
pub(super) enum Made<'a> {
    /// It can be handed out.
    Ready(MutexGuard<'a, State>),
    /// Not possible now; the block's past as it is after what was done.
    Unavailable(MutexGuard<'a, State>, Past),
    /// The driver failed with this code.
    Failed(MutexGuard<'a, State>, Past, i32),
    /// The pool was forgotten.
    Forgotten,
}

impl Pool {
    /// Does what a block in the caller's hands needs before it is handed out. `fresh`: the block was never used, so
    /// that a fill that cannot be made now (poison while capturing) may be left out. `capturing`: no call of the
    /// backing is allowed.
    pub(super) fn make_ready<'a, B: Backing>(
        &'a self,
        state: MutexGuard<'a, State>,
        backing: &B,
        block: u32,
        past: Past,
        (fresh, capturing): (bool, bool),
    ) -> Made<'a> {
        let entry = &state.blocks[block];
        if state.is_ready(entry, past, entry.size_bytes(), backing.sole_stream()) {
            return Made::Ready(state);
        }
        if capturing {
            return if fresh {
                Made::Ready(state)
            } else {
                Made::Unavailable(state, past)
            };
        }
        let all_dirt = |byte| (state.dirty_ranges(block, u64::MAX, usize::MAX), byte);
        let dirty = self.settings.scrub.map(all_dirt);
        let dirty = dirty.filter(|(ranges, _)| !ranges.is_empty());
        if let Some((ranges, byte)) = dirty {
            return self.scrub(state, backing, block, past, fresh, (ranges, byte));
        }
        if !state.epochs.is_fenced(past.epoch) && !backing.sole_stream() {
            return self.fence(state, backing, past);
        }
        self.join(state, backing, past)
    }

    /// Fills the dirty parts of a block and has all later work wait for that.
    ///
    /// # Decision: other dirt goes along
    /// The work that is queued stops for a scrub and goes on after it: with several streams the device then stands for some
    /// microseconds, as long as it takes to fill 32 MiB. So what else is dirty is filled by the same scrub, and the requests
    /// that find it clean need none.
    fn scrub<'a, B: Backing>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        backing: &B,
        block: u32,
        past: Past,
        fresh: bool,
        (mut own, byte): (Vec<Range>, u8),
    ) -> Made<'a> {
        close_gaps(&mut own, RANGES_OWN);
        let own_bytes = total_bytes(&own);
        let along = state.gather(ALONG_BYTES, RANGES_ALONG);
        match self.begin_scrub(state, backing, own, along, byte) {
            Outside::Forgotten(_) => Made::Forgotten,
            Outside::Back(mut state, Ok(ticket)) => {
                state.set_dirt(block, false);
                state.stats.scrubbed_bytes += own_bytes;
                let past = past.joined_with(Past { epoch: 0, ticket });
                self.join(state, backing, past)
            }
            Outside::Back(mut state, Err(BackingError::Failed(code))) => {
                // What of it was filled, gaps included, is not known.
                state.set_dirt(block, true);
                let past = state.past_after_failure(past);
                Made::Failed(state, past, code)
            }
            Outside::Back(state, Err(_)) if fresh => Made::Ready(state),
            Outside::Back(state, Err(_)) => Made::Unavailable(state, past),
        }
    }

    /// Starts filling `own`, ranges of a block in the caller's hands, and a batch, which goes back into the free lists. The
    /// answer is the scrub in the numbering of `tickets`.
    fn begin_scrub<'a, B: Backing>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        backing: &B,
        own: Vec<Range>,
        batch: Batch,
        byte: u8,
    ) -> Outside<'a, Result<u64, BackingError>> {
        let mut ranges = own;
        ranges.extend(&batch.ranges);
        state.join_ranges(&mut ranges);
        let mark = state.mark();
        match self.outside(state, || backing.begin_scrub(&ranges, byte)) {
            Outside::Forgotten(answer) => Outside::Forgotten(answer.map(|ticket| ticket.0)),
            Outside::Back(mut state, answer) => {
                let begun = answer.map(|ticket| state.tickets.begin(ticket, mark.epoch()));
                state.scrubbed(batch, begun.as_ref().copied());
                Outside::Back(state, begun)
            }
        }
    }

    /// Puts everything that was freed and scrubbed up to now behind a barrier, by the cheaper way.
    pub(super) fn settle_all<'a, B: Backing>(
        &'a self,
        state: MutexGuard<'a, State>,
        backing: &B,
    ) -> Made<'a> {
        let ticket = state.tickets.issued();
        let past = Past { epoch: 0, ticket };
        if backing.sole_stream() {
            return self.join(state, backing, past);
        }
        self.fence(state, backing, past)
    }

    /// Puts everything freed up to now behind a barrier. `past` is that of the block in the caller's hands.
    fn fence<'a, B: Backing>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        backing: &B,
        past: Past,
    ) -> Made<'a> {
        let mark = state.mark();
        match self.outside(state, || backing.fence()) {
            Outside::Forgotten(_) => Made::Forgotten,
            Outside::Back(mut state, Ok(fence)) => {
                state.stats.fences += 1;
                state.drained(mark);
                state.fenced(mark, fence);
                Made::Ready(state)
            }
            Outside::Back(state, Err(error)) => refused(state, past, error),
        }
    }

    /// Has all later work wait for the scrubs of a block that are still on their way.
    fn join<'a, B: Backing>(
        &'a self,
        state: MutexGuard<'a, State>,
        backing: &B,
        past: Past,
    ) -> Made<'a> {
        if state.tickets.is_joined(past.ticket) {
            return Made::Ready(state);
        }
        let ticket = Tickets::as_backing_counts(past.ticket);
        match self.outside(state, || backing.join_scrub(ticket)) {
            Outside::Forgotten(_) => Made::Forgotten,
            Outside::Back(mut state, Ok(())) => {
                state.join(past.ticket);
                Made::Ready(state)
            }
            Outside::Back(state, Err(error)) => refused(state, past, error),
        }
    }

    /// Starts scrubbing free dirty blocks, up to about `max_bytes`, so that requests find clean ones. The blocks
    /// freed last come first. Returns the bytes whose scrub was started; 0 when there is nothing to do or it cannot
    /// be done now. Not to be called while a stream of the context captures.
    pub fn scrub_ahead<B: Backing>(&self, backing: &B, max_bytes: u64) -> u64 {
        let Some(byte) = self.settings.scrub else {
            return 0;
        };
        let mut state = self.lock();
        let batch = state.gather(max_bytes, RANGES_AHEAD);
        if batch.taken.is_empty() {
            return 0;
        }
        let bytes = batch.bytes;
        let begun = self.begin_scrub(state, backing, Vec::new(), batch, byte);
        let Outside::Back(mut state, Ok(ticket)) = begun else {
            return 0;
        };
        let short = Some(ticket).filter(|_| bytes <= SHORT_SCRUB_BYTES);
        if let Some(ticket) = std::mem::replace(&mut state.short_scrub, short) {
            // Decision: the scrub before this one is joined now, if it was a short one. It has most likely ended, so that
            // nobody waits for it, and what it filled can be handed out. If it cannot be joined, a request will.
            let _ = self.join(state, backing, Past { epoch: 0, ticket });
        }
        bytes
    }
}

/// Clean parts of a block that are looked at for one that is large enough.
const CLEAN_LOOKS: usize = 8;
/// A scrub of this many bytes or fewer ends soon: in 4 us on an H200.
const SHORT_SCRUB_BYTES: u64 = 16 << 20;
/// Ranges of one scrub ahead.
const RANGES_AHEAD: usize = 128;
/// Ranges of the block that a request gets, each a call of the backing: 35 us of the host's time on an H200.
const RANGES_OWN: usize = 32;
/// So many bytes go along with a scrub that a request needs at once: 32 us on an H200.
const ALONG_BYTES: u64 = 128 << 20;
/// So many ranges do, each a call of the backing.
const RANGES_ALONG: usize = 32;
/// Dirty blocks that were free, in one thread's hands for one scrub.
#[derive(Default)]
struct Batch {
    taken: Vec<(u32, Past)>,
    ranges: Vec<Range>,
    bytes: u64,
}

fn total_bytes(ranges: &[Range]) -> u64 {
    ranges.iter().map(|range| range.size_bytes).sum()
}

/// Leaves no more than `most` of the ranges of one block, which are in order: the smallest gaps between them are filled, too.
/// What is clean there stays it, and nobody uses it.
fn close_gaps(ranges: &mut Vec<Range>, most: usize) {
    if ranges.len() <= most {
        return;
    }
    let gap = |lower: Range, upper: Range| upper.address - lower.address - lower.size_bytes;
    let mut gaps: Vec<u64> = ranges
        .windows(2)
        .map(|pair| gap(pair[0], pair[1]))
        .collect();
    let (_, &mut closed_bytes, _) = gaps.select_nth_unstable_by(most - 1, |a, b| b.cmp(a));
    ranges.dedup_by(|upper, lower| {
        let gap_bytes = gap(*lower, *upper);
        let is_closed = gap_bytes <= closed_bytes;
        if is_closed {
            lower.size_bytes += gap_bytes + upper.size_bytes;
        }
        is_closed
    });
}

fn refused(state: MutexGuard<'_, State>, past: Past, error: BackingError) -> Made<'_> {
    match error {
        BackingError::Failed(code) => Made::Failed(state, past, code),
        BackingError::Unavailable | BackingError::OutOfMemory => Made::Unavailable(state, past),
    }
}

impl State {
    /// Whether [`Pool::settle_all`] would change anything.
    pub fn is_all_settled(&self, is_ordered: bool) -> bool {
        let is_fenced = is_ordered || self.epochs.unfenced_bytes == 0;
        is_fenced && self.tickets.is_joined(self.tickets.issued())
    }

    /// Whether later work is behind the last use of such a block.
    #[inline]
    pub fn is_behind_barrier(&self, past: Past, is_ordered: bool) -> bool {
        (is_ordered || self.epochs.is_fenced(past.epoch)) && self.tickets.is_joined(past.ticket)
    }

    /// Whether the first `size_bytes` of a free block could be handed out without a call of the backing.
    #[inline]
    pub fn is_ready(&self, entry: &Entry, past: Past, size_bytes: u64, sole_stream: bool) -> bool {
        (sole_stream || self.epochs.is_fenced(past.epoch))
            && self.tickets.is_joined(past.ticket)
            && !self.is_dirty(entry, size_bytes)
    }

    /// The past of a free block that could be handed out without a call of the backing.
    #[inline]
    pub fn past_if_ready(&self, block: u32, size_bytes: u64, sole_stream: bool) -> Option<Past> {
        let entry = &self.blocks[block];
        let past = entry.free_past()?;
        self.is_ready(entry, past, size_bytes, sole_stream)
            .then_some(past)
    }

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

    #[inline]
    fn is_dirty(&self, entry: &Entry, size_bytes: u64) -> bool {
        let segment = &self.segments[entry.segment()];
        segment.dirt.as_ref().is_some_and(|dirt| {
            let (from, to) = segment.granules(entry.address(), size_bytes);
            dirt.next(from, to, true).is_some()
        })
    }

    /// The parts of a block that are not clean, from its start on: at most so many, and so many bytes (to the granule).
    fn dirty_ranges(&self, block: u32, max_bytes: u64, max_ranges: usize) -> Vec<Range> {
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

    /// Joins ranges that lie together in one segment: each is a call of the backing.
    fn join_ranges(&self, ranges: &mut Vec<Range>) {
        ranges.sort_unstable_by_key(|range| range.address);
        ranges.dedup_by(|upper, lower| {
            let meet = lower.address + lower.size_bytes == upper.address
                && self.segments.holding(lower.address) == self.segments.holding(upper.address);
            if meet {
                lower.size_bytes += upper.size_bytes;
            }
            meet
        });
    }

    /// Takes dirty blocks, those freed last first, and says what of them to fill: at most so many bytes (to the granule) and
    /// ranges; of a block that has more, the first part.
    fn gather(&mut self, max_bytes: u64, max_ranges: usize) -> Batch {
        let mut batch = Batch::default();
        while batch.bytes < max_bytes && batch.ranges.len() < max_ranges {
            let Some(block) = self.next_dirty_hint() else {
                break;
            };
            let (left_bytes, left) = (max_bytes - batch.bytes, max_ranges - batch.ranges.len());
            let mut dirty = self.dirty_ranges(block, left_bytes, left);
            let mut bytes = total_bytes(&dirty);
            if bytes >= left_bytes {
                // Room for others, too.
                dirty = self.dirty_ranges(block, left_bytes / 2, left);
                bytes = total_bytes(&dirty);
            }
            if dirty.is_empty() {
                continue;
            }
            let size_bytes = self.blocks[block].size_bytes();
            let past = self.take(block, size_bytes);
            batch.taken.push((block, past));
            batch.bytes += bytes;
            batch.ranges.extend(dirty);
        }
        batch
    }

    /// Puts a batch back after its scrub was started, or could not be.
    fn scrubbed(&mut self, batch: Batch, outcome: Result<u64, &BackingError>) {
        if outcome.is_ok() {
            self.stats.scrubbed_bytes += batch.bytes;
            for range in batch.ranges {
                if let Some(segment) = self.segments.holding(range.address) {
                    self.segments[segment].set_dirt(range.address, range.size_bytes, false);
                }
            }
        }
        for (block, past) in batch.taken {
            let past = match outcome {
                Ok(ticket) => past.joined_with(Past { epoch: 0, ticket }),
                Err(BackingError::Failed(_)) => self.past_after_failure(past),
                Err(_) => past,
            };
            self.put(block, past);
        }
    }

    /// The free block that was hinted at last, if it is one still.
    fn next_dirty_hint(&mut self) -> Option<u32> {
        while let Some(block) = self.dirty_hints.pop_back() {
            let free = self.blocks.get(block).is_some_and(|entry| {
                entry.is_free()
                    && self.segments[entry.segment()].kind != super::SegmentKind::Isolated
            });
            if free {
                return Some(block);
            }
        }
        None
    }
}
