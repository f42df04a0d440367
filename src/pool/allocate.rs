//! An allocation: from the cache if it can be, else from a new segment (`growth`).

use crate::sync::MutexGuard;

use super::facade::{Outside, Pool};
use super::front::lane::{Lane, KEPT_APART_ABOVE_BYTES};
use super::plan::Plan;
use super::ready::Made;
use super::state::State;
use crate::lane;

use super::{Backing, BackingError, Grant, Origin, Refusal, Request, SegmentKind};

/// Blocks of one bin looked at before all are: thousands of one size lie free after a program's peak.
const SLOW_SCAN_LIMIT: usize = 64;

impl Pool {
    /// Allocates memory. From the cache, this takes one lock and calls the backing only where the block needs a
    /// barrier or a scrub first; else the pool grows.
    ///
    /// # Errors
    /// See [`Refusal`]. After a refusal the pool is as it was, but for cached memory that was given back.
    pub fn allocate<B: Backing>(&self, backing: &B, request: Request) -> Result<Grant, Refusal> {
        self.allocate_on(lane::current(), backing, request)
    }

    /// The same for a caller that has its thread's lane at hand ([`lane::current`]), or does without.
    ///
    /// # Errors
    /// As [`Pool::allocate`].
    pub fn allocate_on<B: Backing>(
        &self,
        own: Option<usize>,
        backing: &B,
        request: Request,
    ) -> Result<Grant, Refusal> {
        if !request.capturing && !request.isolated {
            let words = (request.size_bytes, request.tag);
            if let Some((address, sequence)) = self.take_in_front(own, backing, words) {
                return Ok(self.granted(address, sequence, &request));
            }
        }
        self.allocate_locked(own, backing, request)
    }

    /// The address of a block freed lately for a plain request (its size, its tag), before the lock. `None`: all else is
    /// for [`Pool::allocate_on`].
    #[inline(always)]
    pub fn take_in_front<B: Backing>(
        &self,
        own: Option<usize>,
        backing: &B,
        (size_bytes, tag): (u64, u64),
    ) -> Option<(u64, u64)> {
        if !self.has_front() {
            return None;
        }
        let rounded_bytes = self.settings.rounded(size_bytes);
        let (lane, is_ordered) = (self.front.lane(own?), backing.sole_stream());
        self.front
            .take(lane, rounded_bytes, (size_bytes, tag), is_ordered)
    }

    fn granted(&self, address: u64, sequence: u64, request: &Request) -> Grant {
        Grant {
            address,
            allocated_bytes: self.settings.rounded(request.size_bytes),
            sequence,
            origin: Origin::Hit,
        }
    }

    /// From the tables, under the lock.
    #[inline(never)]
    fn allocate_locked<B: Backing>(
        &self,
        own: Option<usize>,
        backing: &B,
        request: Request,
    ) -> Result<Grant, Refusal> {
        let plan = Plan::of(&self.settings, request).ok_or(Refusal::TooLarge)?;
        let is_plain = matches!(plan.kind, SegmentKind::Small | SegmentKind::Large);
        let may_take = self.has_front() && is_plain && !request.capturing;
        let lane = own.filter(|_| may_take).map(|own| self.front.lane(own));
        let refilled = lane.filter(|lane| self.front.may_refill(lane, plan.size_bytes));
        if let Some(grant) = refilled.and_then(|lane| self.take_refilled(own, lane, backing, &plan))
        {
            return Ok(grant);
        }
        let mut state = self.lock();
        if self.settings.scrub.is_some() && plan.kind == SegmentKind::Small && !request.capturing {
            return self.allocate_clean(state, backing, &plan);
        }
        if lane.is_none() {
            self.fold_alone(&mut state, own);
        }
        let is_ordered = backing.sole_stream();
        let waiting = lane.filter(|lane| {
            self.note_miss(&mut state, own, plan.size_bytes, is_ordered);
            !is_ordered && self.front.waits_for_fence(lane, plan.size_bytes)
        });
        let is_apart = plan.size_bytes > KEPT_APART_ABOVE_BYTES;
        let found = match waiting {
            // One barrier for several.
            Some(lane) if is_apart && lane.wide.has_room_for_alike(plan.size_bytes) => {
                state.search_behind_barrier(&plan)
            }
            Some(_) if is_apart => None,
            _ => {
                if let Some(lane) = lane.filter(|lane| is_apart && !lane.wide.is_many()) {
                    // A large block that is kept would be a hole beside which others are cut.
                    self.give_large_back(&mut state, lane);
                }
                state.search_cached_ready(&plan, is_ordered)
            }
        };
        if let Some(block) = found {
            let block = state.carve(block, plan.size_bytes);
            return Ok(state.hand_out(block, &request, Origin::Hit));
        }
        match waiting {
            Some(lane) => self.allocate_behind_fence(state, backing, &plan, lane),
            None => self.allocate_slowly(state, backing, &plan, false),
        }
    }

    /// From in front once more, after what other lanes had no room for came to this one, or numbers that it had used up.
    #[inline(never)]
    fn take_refilled<B: Backing>(
        &self,
        own: Option<usize>,
        lane: &Lane,
        backing: &B,
        plan: &Plan,
    ) -> Option<Grant> {
        loop {
            let leased = lane.needs_sequences();
            if leased {
                self.lease(&mut self.lock(), lane);
            }
            if !self.front.refill(lane, plan.size_bytes) && !leased {
                return None;
            }
            let words = (plan.request.size_bytes, plan.request.tag);
            if let Some((address, sequence)) = self.take_in_front(own, backing, words) {
                return Some(self.granted(address, sequence, &plan.request));
            }
        }
    }

    /// With scrubbing on: clean memory if there is any, be it beside dirt, else after one barrier for all that was scrubbed or
    /// freed by now; else the slow way, which scrubs.
    fn allocate_clean<'a, B: Backing>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        backing: &B,
        plan: &Plan,
    ) -> Result<Grant, Refusal> {
        for turn in 0..2 {
            let is_ordered = backing.sole_stream();
            if let Some((block, offset_bytes)) = state.search_clean(plan, is_ordered) {
                let block = state.carve_at(block, offset_bytes, plan.size_bytes);
                return Ok(state.hand_out(block, &plan.request, Origin::Hit));
            }
            if turn > 0 || state.is_all_settled(is_ordered) {
                break;
            }
            state = match self.settle_all(state, backing) {
                Made::Ready(state) | Made::Unavailable(state, _) => state,
                Made::Failed(_, _, code) => return Err(Refusal::Failed(code)),
                Made::Forgotten => return Err(Refusal::Forgotten),
            };
        }
        self.allocate_slowly(state, backing, plan, false)
    }

    /// A block freed lately fits as it is, and nothing else is ready: one barrier for it and all that were freed by now.
    #[cold]
    fn allocate_behind_fence<'a, B: Backing>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        backing: &B,
        plan: &Plan,
        lane: &Lane,
    ) -> Result<Grant, Refusal> {
        let mark = state.mark();
        let (state, ready_only) = match self.outside(state, || backing.fence()) {
            Outside::Forgotten(_) => return Err(Refusal::Forgotten),
            Outside::Back(_, Err(BackingError::Failed(code))) => return Err(Refusal::Failed(code)),
            Outside::Back(state, Err(_)) => (state, true),
            Outside::Back(mut state, Ok(fence)) => {
                state.stats.fences += 1;
                state.drained(mark);
                state.fenced(mark, fence);
                drop(state);
                let words = (plan.request.size_bytes, plan.request.tag);
                if let Some((address, sequence)) =
                    self.front.take(lane, plan.size_bytes, words, false)
                {
                    return Ok(self.granted(address, sequence, &plan.request));
                }
                (self.lock(), false)
            }
        };
        self.allocate_slowly(state, backing, plan, ready_only)
    }

    /// From the cache after a barrier or scrub, else by growth; again from the start whenever something changed while
    /// the lock was left. `ready_only`: a barrier cannot be had now.
    #[cold]
    fn allocate_slowly<'a, B: Backing>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        backing: &B,
        plan: &Plan,
        ready_only: bool,
    ) -> Result<Grant, Refusal> {
        let mut ladder = super::ladder::Ladder::new(plan);
        ladder.ready_only |= ready_only;
        let mut drained = 0;
        let mut tightened;
        let mut plan = plan;
        loop {
            let found = if ladder.ready_only {
                state.search_ready(plan, backing)
            } else {
                let is_ordered = backing.sole_stream();
                let near = state.search_cached(plan, SLOW_SCAN_LIMIT, is_ordered);
                near.or_else(|| state.search_cached(plan, usize::MAX, is_ordered))
            };
            let found = found.or_else(|| ladder.last_resort(&state, plan, backing));
            if let Some(block) = found {
                let past = state.take(block, plan.size_bytes);
                state = match self.make_ready(
                    state,
                    backing,
                    block,
                    past,
                    (false, plan.request.capturing),
                ) {
                    Made::Ready(mut state) => {
                        let grant = state.hand_out(block, &plan.request, ladder.origin());
                        let segment = state.blocks[block].segment();
                        if state.segments[segment].kind != plan.kind {
                            state.note_borrowed(block, plan.request.size_bytes);
                        }
                        return Ok(grant);
                    }
                    Made::Unavailable(mut state, past) => {
                        state.put(block, past);
                        ladder.ready_only = true;
                        state
                    }
                    Made::Failed(mut state, past, code) => {
                        state.put(block, past);
                        return Err(Refusal::Failed(code));
                    }
                    Made::Forgotten => return Err(Refusal::Forgotten),
                };
                continue;
            }
            let grows_first = drained == 0 && self.may_grow_first(&state, backing, plan, &ladder);
            if self.has_front()
                && !grows_first
                && self.drain_part(&mut state, plan.kind, &mut drained)
            {
                continue;
            }
            drained = 0;
            state = match self.grow(state, backing, plan, &mut ladder) {
                super::ladder::Step::Again(state) => state,
                super::ladder::Step::Tighter(state) => {
                    tightened = plan.tight(&self.settings);
                    plan = &tightened;
                    state
                }
                super::ladder::Step::Done(outcome) => return outcome,
            };
        }
    }
}
