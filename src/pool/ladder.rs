//! How far a request has come that the cache does not serve.
//!
//! # The ladder before a refusal
//! A roomy segment; one of just the size needed; after giving back idle segments, one by one; for a small request, a
//! piece of the large pool; after the threads that are out with memory in their hands have landed. Then the refusal.

use super::plan::Plan;
use super::state::State;
use super::{Backing, Grant, Origin, Refusal, SegmentKind};
use crate::sync::MutexGuard;

/// How far down the ladder one request has come.
#[derive(Debug)]
pub(super) struct Ladder {
    /// Blocks that need a barrier or scrub cannot be had.
    pub ready_only: bool,
    /// A segment or handle no larger than needed.
    pub exact: bool,
    /// The driver had no memory: everything idle goes back before the next try.
    pub reclaim_all: bool,
    /// The driver was asked again after a reclaim.
    pub retried: bool,
    /// Segments cannot be given back now; with the driver's code if it gave one.
    pub release_refused: Option<Option<i32>>,
    /// Whether the driver would take one back before long, once that was asked.
    pub rests: Option<bool>,
    /// The next search may cut a small request from the large pool.
    pub desperate: bool,
    pub landings: u32,
    /// What was learned on the way to mapped memory.
    pub mapped: MappedLadder,
}

/// The same where memory is mapped.
#[derive(Debug, Default)]
pub(super) struct MappedLadder {
    /// Handles are moved before new ones are made.
    pub moves_first: bool,
    /// Handles cannot be moved now.
    pub no_moves: bool,
    /// The driver has no memory.
    pub no_new: bool,
    /// The latest barrier was asked whether it has passed.
    pub polled: bool,
    /// Memory cannot be mapped: a segment is taken instead.
    pub plain: bool,
    /// New handles were mapped.
    pub has_grown: bool,
    /// Only sites with room for handles of any size are looked at.
    pub wide: bool,
    /// Handles that were free went back to the driver, for a segment.
    pub has_trimmed: bool,
}

/// What one step of growth came to.
pub(super) enum Step<'a> {
    /// Something changed: search the cache again, then take the next step.
    Again(MutexGuard<'a, State>),
    /// The same for no more than the request needs.
    Tighter(MutexGuard<'a, State>),
    /// The end.
    Done(Result<Grant, Refusal>),
}

impl Ladder {
    pub fn new(plan: &Plan) -> Self {
        Ladder {
            ready_only: plan.request.capturing,
            exact: false,
            reclaim_all: false,
            retried: false,
            release_refused: None,
            rests: None,
            desperate: false,
            landings: 0,
            mapped: MappedLadder::default(),
        }
    }

    /// A block of the large pool for a small request that would be refused otherwise.
    pub fn last_resort(&self, state: &State, plan: &Plan, backing: &impl Backing) -> Option<u32> {
        if !self.desperate || plan.kind != SegmentKind::Small {
            return None;
        }
        let (kind, size_bytes) = (SegmentKind::Large, plan.size_bytes);
        if self.ready_only {
            state.search_ready_in(kind, size_bytes, u64::MAX, backing)
        } else {
            state.search(kind, size_bytes, u64::MAX, usize::MAX, |_, _| Some(0))
        }
    }

    pub fn may_release(&self) -> bool {
        self.release_refused.is_none()
    }

    /// What a block found after some steps is counted as.
    pub fn origin(&self) -> Origin {
        if self.mapped.has_grown {
            Origin::Grown
        } else {
            Origin::Hit
        }
    }
}
