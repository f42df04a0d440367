//! Whether threads meet at the pool's lock, and what the pool may hold so that they do not.
//!
//! # Decision: memory for speed, while several threads allocate at the same time
//! One thread alone loses little at the lock, so it keeps one large block in front, and what is in front goes back before the
//! pool grows: utilisation is as without. Threads that come to the lock in turns lose a microsecond each time, and then a
//! lane keeps large blocks as it keeps small ones, up to [`Meetings::spare_bytes`] of them, and the pool grows by
//! up to as much beyond its slack before it takes back what is in front. When one thread comes alone again, its large blocks go
//! back at its next miss, and the next growth gives back what is idle.
//!
//! # Decision: a barrier for four
//! With several streams a large block that is freed and asked for again needs a barrier each time, half a microsecond, if it
//! is the only one in front. So a lane may keep four of one size, and a request takes another that is behind
//! a barrier while fewer wait. All go back before a large request of another size is cut. Blocks of up to 2 MiB only, so 8 MiB at
//! most: on a hundred workloads replayed as if they had many streams utilisation is as with one (90.8 %, mapped 95.1). With four of up to
//! 4 MiB the worst five lose a point, and with larger ones, up to a percent of what was ever live, `llama_gen` falls from 90.9 to 86.4 %
//! (and with as many blocks as make a percent, of any sizes, `gpt` from 92.8 to 84.8 %).

use super::facade::Pool;
use super::ladder::Ladder;
use super::plan::Plan;
use super::size::MIB;
use super::state::State;
use super::Backing;
use crate::pool::growth::share;

/// Misses after which it is looked at again.
const WINDOW: u32 = if cfg!(loom) { 2 } else { 64 };
/// Of a window's misses, so many come from another thread than the one before: the threads meet from now on.
const MEET_ABOVE: u32 = WINDOW / 4;
/// No more than so many: they do not from now on.
const PART_BELOW: u32 = WINDOW / 16;
/// Memory that may be spent on threads that meet: at least so much, and a part of what was ever live.
const SPARE_BYTES: u64 = 128 * MIB;
const SPARE_PERCENT: u32 = 6;

/// With several streams, a block of so many bytes or less may be kept in front beside three others of its size.
const ALIKE_LIMIT_BYTES: u64 = 2 * MIB;

/// Which threads missed, as seen under the lock.
#[derive(Debug, Default)]
pub(super) struct Meetings {
    /// The lane that missed last.
    last: Option<usize>,
    misses: u32,
    turns: u32,
    is_on: bool,
}

impl Meetings {
    /// A request of this lane was not served in front.
    #[inline]
    fn note(&mut self, lane: usize) {
        self.misses += 1;
        self.turns += u32::from(self.last != Some(lane));
        self.last = Some(lane);
        if self.misses >= WINDOW {
            self.is_on = self.turns > if self.is_on { PART_BELOW } else { MEET_ABOVE };
            (self.misses, self.turns) = (0, 0);
        }
    }

    /// Whether threads meet.
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// Bytes that the pool may spend on threads that meet: 0 while they do not.
    #[inline]
    pub fn spare_bytes(&self, live_bytes: u64) -> u64 {
        if !self.is_on {
            return 0;
        }
        SPARE_BYTES.max(share(live_bytes, SPARE_PERCENT))
    }
}

impl Pool {
    /// A request of lane `own` was not served in front.
    #[inline]
    pub(super) fn note_meeting(&self, state: &mut State, own: Option<usize>, is_ordered: bool) {
        let Some(own) = own else {
            return;
        };
        state.front.meetings.note(own);
        let lane = self.front.lane(own);
        lane.wide
            .set_alike_limit(if is_ordered { 0 } else { ALIKE_LIMIT_BYTES });
        if state.front.meetings.is_on || lane.wide.is_many() {
            let live_bytes = state.stats.allocated_bytes.peak;
            lane.wide
                .set_limit(state.front.meetings.spare_bytes(live_bytes));
        }
    }

    /// Whether the pool grows before it takes back what is in front: as long as that stays within what it may spend, and a
    /// refusal would not be the last word.
    pub(super) fn may_grow_first(
        &self,
        state: &State,
        backing: &impl Backing,
        plan: &Plan,
        ladder: &Ladder,
    ) -> bool {
        if !state.front.meetings.is_on || ladder.exact || ladder.ready_only {
            return false;
        }
        let segment_bytes = self.segment_bytes(state, plan);
        segment_bytes > plan.size_bytes
            && !backing.pages().is_some_and(|pages| pages.wanted())
            && !self.is_over_slack(state, plan, segment_bytes)
            && !self.is_over_threshold(segment_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_meet_when_they_miss_in_turns() {
        let mut meetings = Meetings::default();
        (0..4 * WINDOW).for_each(|_| meetings.note(3));
        assert_eq!(meetings.spare_bytes(1 << 40), 0);
        (0..WINDOW as usize).for_each(|miss| meetings.note(miss % 2));
        assert!(meetings.is_on());
        assert_eq!(meetings.spare_bytes(0), SPARE_BYTES);
        assert!(meetings.spare_bytes(1 << 40) > SPARE_BYTES);
        // One comes in between, now and then.
        (0..WINDOW as usize).for_each(|miss| meetings.note(usize::from(miss % 16 == 0)));
        assert!(meetings.is_on());
        (0..WINDOW).for_each(|_| meetings.note(1));
        assert!(!meetings.is_on());
        (0..2 * WINDOW).for_each(|miss| meetings.note(usize::from(miss < WINDOW)));
        assert!(!meetings.is_on(), "one after the other");
    }
}
