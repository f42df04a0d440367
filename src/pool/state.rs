//! What the pool's lock protects. `cut`, `live`, `custody` and `mapped` have the moves of a block between the places it can be in
//! (invariant ONE-PLACE), here is that into the free lists and out of them.
//!
//! None of them calls the backing. Every function leaves TILE, MERGED, SUMS and WHOLE true, with blocks that are in a
//! thread's hands counted as neither free nor live.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::arena::{Arena, Parts, Past, Use, NONE};
use super::base_index::BaseIndex;
use super::bins::Bins;
use super::book::Book;
use super::epochs::{Epochs, Seen};
use super::mapped::Mapped;
use super::segments::Segments;
use super::tickets::Tickets;
use super::wear::Wear;
use super::{PoolStats, SegmentKind};

/// An exported block: how often, and where it is.
#[derive(Debug)]
pub(super) struct Hold {
    pub count: u32,
    pub block: u32,
}

#[derive(Debug)]
pub(super) struct State {
    pub blocks: Arena,
    pub segments: Segments,
    pub bases: BaseIndex,
    pub epochs: Epochs,
    pub tickets: Tickets,
    pub holds: BTreeMap<u64, Hold>,
    pub stats: PoolStats,
    /// Bytes in blocks that are held.
    pub held_bytes: u64,
    /// Bytes of borrowed blocks beyond what their requests need.
    pub borrowed_bytes: u64,
    /// Latest sequence number given.
    pub sequence: u64,
    /// How often the context was forgotten: what a thread took out before is void after.
    pub generation: u64,
    /// Threads that left the lock with blocks, segments or charges in their hands.
    pub in_transit: u32,
    /// Threads that wait for one of those.
    pub waiting: u32,
    /// Blocks that became free lately and may be dirty, newest last: hints for scrubbing ahead. An entry can be stale.
    pub dirty_hints: VecDeque<u32>,
    /// The scrub started last, if it was ahead of need and short.
    pub short_scrub: Option<u64>,
    /// How many blocks had been freed when all of them were put behind a barrier last ([`super::Pool::fence_freed`]).
    pub settled_frees: u64,
    /// What it has paid for being tight.
    pub wear: Wear,
    /// What the pool knows of the blocks in front.
    pub front: Book,
    /// Handles and holes of the mapped segments.
    pub mapped: Mapped,
    /// Free blocks, by [`bins_of`] their kind of segment.
    pub bins: [Bins; KINDS_WITH_BINS],
}

/// Host memory of a tree with so many entries, about: nodes of eleven that are a little more than half full, as those are
/// whose keys came in order.
pub(super) fn tree_bytes<K, V>(entries: usize) -> usize {
    // With its share of the nodes above it.
    const HEADER_BYTES: usize = 40;
    (size_of::<(K, V)>() * 11 + HEADER_BYTES) * entries.div_ceil(6)
}

/// The kinds before [`SegmentKind::Isolated`].
const KINDS_WITH_BINS: usize = SegmentKind::Isolated as usize;

/// The bins of a kind of segment; isolated segments are in none.
#[inline]
pub(super) fn bins_of(kind: SegmentKind) -> Option<usize> {
    let bins = kind as usize;
    (bins < KINDS_WITH_BINS).then_some(bins)
}

impl State {
    pub fn new(seen: Arc<Seen>) -> Self {
        State {
            blocks: Arena::new(),
            segments: Segments::new(),
            bases: BaseIndex::new(),
            epochs: Epochs::new(seen),
            tickets: Tickets::new(),
            holds: BTreeMap::new(),
            stats: PoolStats::default(),
            held_bytes: 0,
            borrowed_bytes: 0,
            sequence: 0,
            generation: 0,
            in_transit: 0,
            waiting: 0,
            dirty_hints: VecDeque::new(),
            short_scrub: None,
            settled_frees: 0,
            wear: Wear::default(),
            front: Book::default(),
            mapped: Mapped::new(),
            bins: [Bins::new(), Bins::new(), Bins::new()],
        }
    }

    /// Host memory of the tables beside itself, in bytes.
    pub fn host_bytes(&self) -> usize {
        let bins: usize = self.bins.iter().map(Bins::host_bytes).sum();
        self.blocks.host_bytes()
            + self.bases.host_bytes()
            + self.segments.host_bytes()
            + self.mapped.host_bytes()
            + self.front.host_bytes()
            + self.epochs.host_bytes()
            + self.tickets.host_bytes()
            + tree_bytes::<u64, Hold>(self.holds.len())
            + self.dirty_hints.capacity() * size_of::<u32>()
            + bins
    }

    /// Puts a block of an attached segment into the free lists.
    pub fn list(&mut self, block: u32, past: Past) {
        let Parts {
            size_bytes,
            segment,
            ..
        } = self.blocks[block].parts();
        match bins_of(self.segments[segment].kind) {
            Some(bins) => self.bins[bins].insert(&mut self.blocks, block, past),
            None => {
                let (bin_previous, bin_next) = (NONE, NONE);
                self.blocks[block].set_use(Use::Free {
                    past,
                    bin_previous,
                    bin_next,
                });
            }
        }
        self.epochs.add(past.epoch, size_bytes);
    }

    /// Takes a block out of the free lists; its neighbours and the segment's `busy` are untouched.
    pub fn unlist(&mut self, block: u32) -> Past {
        let Parts {
            size_bytes,
            segment,
            in_use,
            ..
        } = self.blocks[block].parts();
        let past = match bins_of(self.segments[segment].kind) {
            Some(bins) => self.bins[bins].remove(&mut self.blocks, block),
            None => {
                let Use::Free { past, .. } = in_use else {
                    return Past::FRESH;
                };
                self.blocks[block].set_use(Use::Hand { past });
                past
            }
        };
        self.epochs.subtract(past.epoch, size_bytes);
        past
    }

    /// Brings the figure of active bytes up to date. What is cached in front counts as active.
    #[inline]
    pub fn settle_active(&mut self) {
        let active_bytes = self.stats.allocated_bytes.current
            + self.epochs.unfenced_bytes
            + self.front.cached_bytes.max(0) as u64;
        self.stats.active_bytes.move_to(active_bytes);
    }

    /// Every free block of a kind of segment.
    pub fn each_free(&self, kind: SegmentKind, each: impl FnMut(u32)) {
        if let Some(bins) = bins_of(kind) {
            self.bins[bins].each(&self.blocks, each);
        }
    }

    pub fn binned(&self, kind: SegmentKind) -> Vec<u32> {
        bins_of(kind).map_or(Vec::new(), |bins| self.bins[bins].all(&self.blocks))
    }
}
