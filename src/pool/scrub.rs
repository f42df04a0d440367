//! Filling dirty memory, so that it can be handed out (CLEAN): for a request that needs it, and ahead of need.
//!
//! # Decision: a scrub waits for no more than it must
//! What is behind a barrier already is scrubbed at once, and not behind the work of this moment: later work waits for the scrub, and
//! would wait for that work, too. Natively an allocation waits for nothing, so a program may have a stream wait for what it does
//! later (a word that is written, a host function), and would hang.

use super::arena::Past;
use super::facade::{Outside, Pool};
use super::ready::Made;
use super::state::State;
use super::{Backing, BackingError, Range};
use crate::sync::MutexGuard;

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
    /// Not all of it is behind a barrier.
    is_unfenced: bool,
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

impl Pool {
    /// Fills the dirty parts of a block and has all later work wait for that.
    ///
    /// # Decision: other dirt goes along
    /// The work that is queued stops for a scrub and goes on after it: with several streams the device then stands for some
    /// microseconds, as long as it takes to fill 32 MiB. So what else is dirty is filled by the same scrub, and the requests
    /// that find it clean need none.
    pub(super) fn scrub<'a, B: Backing>(
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
        let is_fenced = state.epochs.is_fenced(past.epoch);
        let mut along = state.gather(ALONG_BYTES, RANGES_ALONG, is_fenced);
        along.is_unfenced |= !is_fenced;
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

    /// Starts filling `own`, ranges of a block in the caller's hands, and a batch, which goes back into the free lists; both are behind a
    /// barrier if the batch says so. The answer is the scrub in the numbering of `tickets`.
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
        // One that begins at once is no barrier for what was freed.
        let closed = match batch.is_unfenced {
            true => state.mark().epoch(),
            false => 0,
        };
        let begin = || match batch.is_unfenced {
            true => backing.begin_scrub(&ranges, byte),
            false => backing.begin_scrub_behind_barrier(&ranges, byte),
        };
        match self.outside(state, begin) {
            Outside::Forgotten(answer) => Outside::Forgotten(answer.map(|ticket| ticket.0)),
            Outside::Back(mut state, answer) => {
                let begun = answer.map(|ticket| state.tickets.begin(ticket, closed));
                state.scrubbed(batch, begun.as_ref().copied());
                Outside::Back(state, begun)
            }
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
        let batch = state.gather(max_bytes, RANGES_AHEAD, false);
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

impl State {
    /// Takes dirty blocks, those freed last first, and says what of them to fill: at most so many bytes (to the granule) and
    /// ranges; of a block that has more, the first part. If asked, only blocks that are behind a barrier.
    fn gather(&mut self, max_bytes: u64, max_ranges: usize, only_fenced: bool) -> Batch {
        let mut batch = Batch::default();
        let mut left_out = Vec::new();
        while batch.bytes < max_bytes && batch.ranges.len() < max_ranges {
            let Some(block) = self.next_dirty_hint() else {
                break;
            };
            let past = self.blocks[block].free_past().unwrap_or(Past::FRESH);
            let is_fenced = self.epochs.is_fenced(past.epoch);
            if only_fenced && !is_fenced {
                left_out.push(block);
                continue;
            }
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
            batch.is_unfenced |= !is_fenced;
        }
        for block in left_out.into_iter().rev() {
            self.hint_dirt(block);
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
}
