//! Growing: how large a new segment is, what is given back before, and when a request is refused (`ladder`).
//!
//! # Slack
//! Before a new segment takes `reserved` past (1 + slack) x the highest `allocated`, idle segments go back to the
//! driver, the one idle for longest first, and the new segment is no larger than the request needs. On recorded
//! training runs this takes utilisation from 37 to 79 % up to 88 to 97 %, for less than three times the driver calls;
//! without it, segments fitted to sizes that do not come again pile up. A pool that has given back very many may hold up to 32 MiB more (`wear`).
//!
//! Tried on the same records and not better: releasing the largest, smallest or best fitting segment first; first fit
//! by address; fitting by size class and then address; preferring the segment with least free memory; preferring
//! segments in use to idle ones; putting small blocks at the far end of large ones. Not cutting idle segments for much
//! smaller requests helps some (up to 5 points) and costs others ten times the calls.
//!
//! # Decision: not for ever
//! The driver takes a segment back when all work has ended. Natively an allocation waits for nothing, and a program may have a stream wait for
//! what it does after it. So where the work does not end in some seconds, the pool grows past slack and threshold. The limit and the
//! driver's own shortage leave no choice.
//!
//! What was taken ahead of need (`Pool::preallocate`) and is idle does not count here, nor does it go back for the slack's
//! sake: for the limit's, the driver's, the threshold's and a trim's it does.

use crate::sync::MutexGuard;

use super::arena::Entry;
use super::facade::{Outside, Pool};
use super::ladder::{Ladder, Step};
use super::mapped::LARGEST_MAPPED_BYTES;
use super::plan::Plan;
use super::ready::Made;
use super::segments::Segment;
use super::size::{GRANULE_BYTES, SEGMENT_GRANULE_BYTES, SMALL_LIMIT_BYTES};
use super::state::State;
use super::{Backing, BackingError, Grant, Origin, OverLimit, Range, Refusal, SegmentKind};

/// Landings waited for before a refusal. Each lets the request try everything again; the bound keeps a request that
/// cannot be served from waiting for as long as other threads are busy.
const LANDINGS: u32 = 64;

/// A segment of the small pool below this share of the highest `allocated` may pass the slack: no segment of gigabytes
/// goes back to the driver to make room for one of 2 MiB. The next step of the large pool makes up for it.
const SMALL_STEP_PERCENT: u32 = 1;

impl Pool {
    /// One step of growth for a request that no cached block serves.
    pub(super) fn grow<'a, B: Backing>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        backing: &B,
        plan: &Plan,
        ladder: &mut Ladder,
    ) -> Step<'a> {
        // While capturing, and where only fresh memory is clean, a segment is taken.
        let can_map = !ladder.ready_only
            && !ladder.mapped.plain
            && plan.size_bytes <= LARGEST_MAPPED_BYTES
            && matches!(plan.kind, SegmentKind::Small | SegmentKind::Large);
        if let Some(pages) = backing.pages().filter(|pages| can_map && pages.wanted()) {
            return self.grow_mapped(state, backing, pages, plan, ladder);
        }
        let segment_bytes = if ladder.exact {
            plan.size_bytes
        } else {
            self.segment_bytes(&state, plan)
        };
        let idle = state
            .segments
            .longest_idle()
            .filter(|_| ladder.may_release());
        if let Some(idle) = idle {
            if ladder.reclaim_all {
                return self.give_back_one(state, backing, idle, ladder, false);
            }
            let may = !plan.request.capturing && ladder.rests != Some(false);
            let idle_of_need = state
                .segments
                .longest_idle_of_need()
                .filter(|_| may && self.is_over_slack(&state, plan, segment_bytes));
            let by_threshold =
                idle_of_need.is_none() && may && self.is_over_threshold(segment_bytes);
            let wanted = idle_of_need.or(by_threshold.then_some(idle));
            if let Some(wanted) = wanted {
                if ladder.rests.is_none() {
                    return self.look_for_rest(state, backing, ladder);
                }
                if !by_threshold {
                    state.wear.note();
                }
                return self.give_back_one(state, backing, wanted, ladder, by_threshold);
            }
        }
        if let Err(over) = self.budget.charge(segment_bytes) {
            if segment_bytes > plan.size_bytes && !ladder.exact {
                ladder.exact = true;
                return Step::Again(state);
            }
            return match idle {
                Some(idle) => self.give_back_one(state, backing, idle, ladder, false),
                None => self.refuse(state, backing, plan, ladder, Some(over)),
            };
        }
        if ladder.reclaim_all {
            ladder.retried = true;
        }
        let answer = match self.outside(state, || backing.reserve(segment_bytes)) {
            Outside::Back(state, answer) => (state, answer),
            Outside::Forgotten(_) => {
                // Whatever was reserved went with the context; an address of it may be someone else's by now.
                self.budget.uncharge(segment_bytes);
                return Step::Done(Err(Refusal::Forgotten));
            }
        };
        match answer {
            (state, Ok(address)) => {
                let range = Range {
                    address,
                    size_bytes: segment_bytes,
                };
                if !Entry::can_hold(range) {
                    return Step::Done(Err(self.decline(state, backing, range)));
                }
                Step::Done(self.hand_out_fresh(state, backing, plan, range))
            }
            (state, Err(error)) => {
                self.budget.uncharge(segment_bytes);
                match error {
                    BackingError::Failed(code) => Step::Done(Err(Refusal::Failed(code))),
                    _ => self.after_driver_refusal(state, backing, plan, ladder, segment_bytes),
                }
            }
        }
    }

    /// The driver had no memory for a segment: smaller, then after giving everything idle back, then no more.
    fn after_driver_refusal<'a, B: Backing>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        backing: &B,
        plan: &Plan,
        ladder: &mut Ladder,
        segment_bytes: u64,
    ) -> Step<'a> {
        if segment_bytes > plan.size_bytes {
            ladder.exact = true;
            return Step::Again(state);
        }
        if !ladder.retried && ladder.may_release() && state.segments.longest_idle().is_some() {
            if !ladder.reclaim_all {
                state.stats.retries += 1;
            }
            ladder.reclaim_all = true;
            return Step::Again(state);
        }
        self.refuse(state, backing, plan, ladder, None)
    }

    /// Nothing is left to give back: the last rungs, then the refusal. `over` is the limit's answer, if it was the limit.
    fn refuse<'a, B: Backing>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        backing: &B,
        plan: &Plan,
        ladder: &mut Ladder,
        over: Option<OverLimit>,
    ) -> Step<'a> {
        if self.settings.tight(plan.request.size_bytes) < plan.size_bytes {
            ladder.retried = false;
            return Step::Tighter(state);
        }
        let may_trim = !ladder.mapped.has_trimmed && !plan.request.capturing;
        if let Some(pages) = backing.pages().filter(|_| may_trim) {
            ladder.mapped.has_trimmed = true;
            if self.trim_mapped(state, backing, pages, 0) > 0 {
                ladder.retried = false;
                return Step::Again(self.lock());
            }
            state = self.lock();
        }
        ladder.desperate = true;
        if ladder.last_resort(&state, plan, backing).is_some() {
            return Step::Again(state);
        }
        if state.in_transit > 0 && ladder.landings < LANDINGS {
            ladder.landings += 1;
            ladder.retried = false;
            return Step::Again(self.wait_for_landing(state));
        }
        let refusal = match (ladder.release_refused, over) {
            (Some(Some(code)), _) => Refusal::Failed(code),
            (
                _,
                Some(OverLimit {
                    used_bytes,
                    limit_bytes,
                }),
            ) => {
                state.stats.refused_by_limit += 1;
                let requested_bytes = plan.request.size_bytes;
                Refusal::Limit {
                    requested_bytes,
                    used_bytes,
                    limit_bytes,
                }
            }
            (_, None) => {
                state.stats.refused_by_driver += 1;
                Refusal::Driver
            }
        };
        Step::Done(Err(refusal))
    }

    /// Finds out whether what could go back would go soon.
    fn look_for_rest<'a, B: Backing>(
        &'a self,
        state: MutexGuard<'a, State>,
        backing: &B,
        ladder: &mut Ladder,
    ) -> Step<'a> {
        match self.outside(state, || backing.rests_soon()) {
            Outside::Forgotten(_) => Step::Done(Err(Refusal::Forgotten)),
            Outside::Back(state, rests) => {
                ladder.rests = Some(rests);
                Step::Again(state)
            }
        }
    }

    /// Gives one idle segment back, on the way to a larger one. `by_threshold`: only for the threshold's sake.
    fn give_back_one<'a, B: Backing>(
        &'a self,
        state: MutexGuard<'a, State>,
        backing: &B,
        idle: u32,
        ladder: &mut Ladder,
        by_threshold: bool,
    ) -> Step<'a> {
        match self.release_segment(state, backing, idle) {
            Outside::Forgotten(_) => Step::Done(Err(Refusal::Forgotten)),
            Outside::Back(mut state, answer) => {
                match answer {
                    Ok(bytes) if by_threshold => state.stats.threshold_released_bytes += bytes,
                    Ok(_) => {}
                    Err(BackingError::Failed(code)) => ladder.release_refused = Some(Some(code)),
                    Err(_) => ladder.release_refused = Some(None),
                }
                Step::Again(state)
            }
        }
    }

    /// Adds a new segment and hands its first block out.
    fn hand_out_fresh<'a, B: Backing>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        backing: &B,
        plan: &Plan,
        range: Range,
    ) -> Result<Grant, Refusal> {
        let small = plan.size_bytes <= SMALL_LIMIT_BYTES;
        let granule_bytes = if small {
            GRANULE_BYTES
        } else {
            self.settings.alignment_bytes
        };
        debug_assert_eq!(range.address % granule_bytes, 0);
        let dirt = self.settings.scrub.map(|byte| byte != 0);
        let segment = Segment::new(range, plan.kind, granule_bytes.trailing_zeros(), dirt);
        let block = state.add_segment(segment);
        let past = super::arena::Past::FRESH;
        state.split(block, plan.size_bytes, past);
        match self.make_ready(state, backing, block, past, (true, plan.request.capturing)) {
            Made::Ready(mut state) => Ok(state.hand_out(block, &plan.request, Origin::Grown)),
            Made::Unavailable(mut state, _) => {
                Ok(state.hand_out(block, &plan.request, Origin::Grown))
            }
            Made::Failed(mut state, past, code) => {
                state.put(block, past);
                Err(Refusal::Failed(code))
            }
            Made::Forgotten => Err(Refusal::Forgotten),
        }
    }

    /// Size of a new segment: roomy as long as that stays within the slack, else just whole pages of the driver's.
    pub(super) fn segment_bytes(&self, state: &State, plan: &Plan) -> u64 {
        let exact = plan.size_bytes;
        let whole = exact.next_multiple_of(SEGMENT_GRANULE_BYTES);
        match plan.kind {
            SegmentKind::Small => self.settings.small_segment_bytes,
            SegmentKind::Oversize => whole,
            SegmentKind::Isolated => exact,
            SegmentKind::Large => {
                let roomy = self.settings.large_segment_bytes;
                let may_be_roomy = exact <= roomy / 2
                    && !self.is_over_slack(state, plan, roomy)
                    && !self.is_over_threshold(roomy);
                let bytes = if may_be_roomy { roomy } else { whole };
                match self.settings.max_split_size_bytes {
                    // A free block of an ordinary segment is never oversize.
                    Some(limit) if bytes >= limit => {
                        let below = (limit - 1) / SEGMENT_GRANULE_BYTES * SEGMENT_GRANULE_BYTES;
                        exact.max(below)
                    }
                    _ => bytes,
                }
            }
        }
    }

    /// Whether `segment_bytes` more would be past the slack.
    pub(super) fn is_over_slack(&self, state: &State, plan: &Plan, segment_bytes: u64) -> bool {
        let stats = &state.stats;
        let live_bytes = stats
            .allocated_bytes
            .peak
            .max(stats.allocated_bytes.current + plan.size_bytes);
        let slack_bytes = share(live_bytes, self.settings.growth_slack_percent);
        let may_hold_bytes = live_bytes
            + slack_bytes
            + state.wear.spare_bytes()
            + state.segments.ahead_idle_bytes
            + state.front.meetings.spare_bytes(live_bytes);
        let is_small_step = plan.kind == SegmentKind::Small
            && segment_bytes < share(live_bytes, SMALL_STEP_PERCENT);
        !is_small_step && stats.reserved_bytes.current + segment_bytes > may_hold_bytes
    }

    /// Whether `segment_bytes` more would be past the share of the limit from which on the pool gives idle memory back.
    pub(super) fn is_over_threshold(&self, segment_bytes: u64) -> bool {
        match (self.settings.gc_threshold_percent, self.budget.most_bytes()) {
            (Some(percent), Some(most_bytes)) => {
                self.budget.used_bytes() + segment_bytes > share(most_bytes, percent)
            }
            _ => false,
        }
    }
}

/// `percent` of `bytes`.
pub(super) fn share(bytes: u64, percent: u32) -> u64 {
    (u128::from(bytes) * u128::from(percent) / 100).min(u128::from(u64::MAX)) as u64
}
