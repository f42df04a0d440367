//! Looking for a free block that serves a request.

use super::arena::{Entry, Past};
use super::bins::SCAN_LIMIT;
use super::plan::Plan;
use super::state::{bins_of, State};
use super::{Backing, SegmentKind};

/// Bins, and blocks of each, looked at for clean room, before the largest block is: each is a look at the dirt of a segment.
const CLEAN_LIMITS: (usize, usize) = (4, 4);

/// Bins, and blocks of each, looked at for one that is behind a barrier, beside one that waits for one.
const BEHIND_BARRIER_LIMITS: (usize, usize) = (4, SCAN_LIMIT);

impl State {
    /// The best free block of a kind of segment; see [`Bins::search`].
    #[inline]
    pub fn search(
        &self,
        kind: SegmentKind,
        size_bytes: u64,
        below_bytes: u64,
        scan_limit: usize,
        rank: impl Fn(&Entry, Past) -> Option<u32>,
    ) -> Option<u32> {
        let limits = (usize::MAX, scan_limit);
        self.search_near(kind, size_bytes, below_bytes, limits, rank)
    }

    /// The same in so many bins, with so many blocks of each looked at.
    #[inline]
    fn search_near(
        &self,
        kind: SegmentKind,
        size_bytes: u64,
        below_bytes: u64,
        limits: (usize, usize),
        rank: impl Fn(&Entry, Past) -> Option<u32>,
    ) -> Option<u32> {
        let bins = &self.bins[bins_of(kind)?];
        bins.search(&self.blocks, size_bytes, below_bytes, limits, rank)
    }

    /// A good free block of a small request among few, and about the largest: for a rank that is dear, and often none.
    #[inline]
    fn search_small(
        &self,
        size_bytes: u64,
        limits: (usize, usize),
        rank: impl Fn(&Entry, Past) -> Option<u32>,
    ) -> Option<u32> {
        let bins = &self.bins[bins_of(SegmentKind::Small)?];
        bins.search(&self.blocks, size_bytes, u64::MAX, limits, rank)
            .or_else(|| bins.largest())
    }

    /// The best cached block, ready or not. `is_ordered`: the backing's order is a barrier for all.
    #[inline]
    pub fn search_cached(&self, plan: &Plan, scan_limit: usize, is_ordered: bool) -> Option<u32> {
        self.search(
            plan.kind,
            plan.size_bytes,
            plan.below_bytes,
            scan_limit,
            |_, past| Some(u32::from(!self.is_behind_barrier(past, is_ordered))),
        )
    }

    /// The same, if it needs no call of the backing.
    #[inline]
    pub fn search_cached_ready(&self, plan: &Plan, is_ordered: bool) -> Option<u32> {
        let found = self.search_cached(plan, SCAN_LIMIT, is_ordered)?;
        let past = self.past_if_ready(found, plan.size_bytes, is_ordered);
        past.map(|_| found)
    }

    /// A free block with clean room for a small request, as small as a few looks find, and where in it.
    pub fn search_clean(&self, plan: &Plan, is_ordered: bool) -> Option<(u32, u64)> {
        let room = |entry: &Entry, past| self.clean_room(entry, past, plan.size_bytes, is_ordered);
        let block = self.search_small(plan.size_bytes, CLEAN_LIMITS, |entry, past| {
            room(entry, past).map(|offset_bytes| u32::from(offset_bytes > 0))
        })?;
        let entry = &self.blocks[block];
        Some((block, room(entry, entry.free_past()?)?))
    }

    /// A good block that is behind a barrier, among few: after a program's peak thousands lie free.
    pub fn search_behind_barrier(&self, plan: &Plan) -> Option<u32> {
        let (limits, below_bytes) = (BEHIND_BARRIER_LIMITS, plan.below_bytes);
        let rank = |_: &Entry, past| self.is_behind_barrier(past, false).then_some(0);
        self.search_near(plan.kind, plan.size_bytes, below_bytes, limits, rank)
    }

    /// The best cached block that needs no call of the backing.
    pub fn search_ready(&self, plan: &Plan, backing: &impl Backing) -> Option<u32> {
        self.search_ready_in(plan.kind, plan.size_bytes, plan.below_bytes, backing)
    }

    /// The same, with the kind of segment given.
    pub fn search_ready_in(
        &self,
        kind: SegmentKind,
        size_bytes: u64,
        below_bytes: u64,
        backing: &impl Backing,
    ) -> Option<u32> {
        let sole_stream = backing.sole_stream();
        self.search(
            kind,
            size_bytes,
            below_bytes,
            usize::MAX,
            |entry: &Entry, past: Past| {
                self.is_ready(entry, past, size_bytes, sole_stream)
                    .then_some(0)
            },
        )
    }
}
