//! What the pool's lock protects, and the moves of a block between the places it can be in (invariant ONE-PLACE).
//!
//! Nothing here calls the backing. Every function leaves TILE, MERGED, SUMS and WHOLE true, with blocks that are in a
//! thread's hands counted as neither free nor live.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::arena::{Arena, Entry, Parts, Past, Use, FLAG_BORROWED, FLAG_HELD, FLAG_RETIRE, NONE};
use super::base_index::BaseIndex;
use super::bins::Bins;
use super::epochs::{Epochs, Seen};
use super::mapped::Mapped;
use super::recycle::Book;
use super::segments::{Segment, Segments};
use super::size::{bin_of, GRANULE_BYTES};
use super::tickets::Tickets;
use super::{Block, Grant, Origin, PoolStats, Request, SegmentKind};

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
    /// What the pool knows of the blocks in front.
    pub front: Book,
    /// Handles and holes of the mapped segments.
    pub mapped: Mapped,
    bins: [Bins; 3],
}

/// Host memory of a tree with so many entries, about: nodes of eleven that are a little more than half full, as those are
/// whose keys came in order.
pub(super) fn tree_bytes<K, V>(entries: usize) -> usize {
    // With its share of the nodes above it.
    const HEADER_BYTES: usize = 40;
    (size_of::<(K, V)>() * 11 + HEADER_BYTES) * entries.div_ceil(6)
}

/// The bins of a kind of segment; isolated segments are in none.
fn bins_of(kind: SegmentKind) -> Option<usize> {
    match kind {
        SegmentKind::Small => Some(0),
        SegmentKind::Large => Some(1),
        SegmentKind::Oversize => Some(2),
        SegmentKind::Isolated => None,
    }
}

/// What a small request leaves unused of a borrowed block.
pub(super) fn borrowed_bytes(size_bytes: u64, requested_bytes: u64) -> u64 {
    size_bytes.saturating_sub(requested_bytes.next_multiple_of(GRANULE_BYTES))
}

/// Blocks remembered as hints for scrubbing ahead.
const DIRTY_HINTS: usize = 256;

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
    pub fn search_near(
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
    pub fn search_small(
        &self,
        size_bytes: u64,
        limits: (usize, usize),
        rank: impl Fn(&Entry, Past) -> Option<u32>,
    ) -> Option<u32> {
        let bins = &self.bins[bins_of(SegmentKind::Small)?];
        bins.search(&self.blocks, size_bytes, u64::MAX, limits, rank)
            .or_else(|| bins.largest())
    }

    /// Takes `size_bytes` from the start of a free block; what is left over is free again.
    pub fn take(&mut self, block: u32, size_bytes: u64) -> Past {
        let past = self.unlist(block);
        self.segments.add_busy(self.blocks[block].segment());
        self.split(block, size_bytes, past);
        past
    }

    /// The same by the shortest way: the rest keeps its entry, and what is taken gets a new one. Returns the block taken.
    #[inline]
    pub fn carve(&mut self, block: u32, size_bytes: u64) -> u32 {
        let Parts {
            address,
            size_bytes: whole_bytes,
            in_use,
            segment,
            previous,
            ..
        } = self.blocks[block].parts();
        let Segment {
            kind, granule_bits, ..
        } = self.segments[segment];
        let front_bytes = size_bytes.next_multiple_of(1 << granule_bits);
        let (Use::Free { past, .. }, SegmentKind::Small | SegmentKind::Large) = (in_use, kind)
        else {
            self.take(block, size_bytes);
            return block;
        };
        if whole_bytes <= front_bytes {
            self.take(block, size_bytes);
            return block;
        }
        let front = self.blocks.add(Parts {
            address,
            size_bytes: front_bytes,
            in_use: Use::Hand { past },
            segment,
            previous,
            next: block,
            flags: 0,
        });
        self.resize_free(block, kind, past, whole_bytes - front_bytes);
        let rest = &mut self.blocks[block];
        rest.set_address(address + front_bytes);
        rest.set_previous(front);
        self.follow(segment, previous, front);
        self.segments
            .block_added(segment, address + front_bytes, &self.blocks);
        self.segments.add_busy(segment);
        self.epochs.subtract(past.epoch, front_bytes);
        front
    }

    /// The same `offset_bytes` above the base of a free block; what is below stays free.
    pub fn carve_at(&mut self, block: u32, offset_bytes: u64, size_bytes: u64) -> u32 {
        if offset_bytes == 0 {
            return self.carve(block, size_bytes);
        }
        let past = self.unlist(block);
        self.segments.add_busy(self.blocks[block].segment());
        let upper = self.halve(block, offset_bytes, Use::Hand { past });
        self.list(block, past);
        self.split(upper, size_bytes, past);
        upper
    }

    /// Cuts a block in two, of which the lower keeps the entry; in which list each is, is the caller's. Returns the upper one.
    #[inline]
    pub fn halve(&mut self, block: u32, lower_bytes: u64, upper_use: Use) -> u32 {
        let Parts {
            address,
            size_bytes,
            segment,
            next,
            ..
        } = self.blocks[block].parts();
        let upper = self.blocks.add(Parts {
            address: address + lower_bytes,
            size_bytes: size_bytes - lower_bytes,
            in_use: upper_use,
            segment,
            previous: block,
            next,
            flags: 0,
        });
        if next != NONE {
            self.blocks[next].set_previous(upper);
        }
        let lower = &mut self.blocks[block];
        lower.set_next(upper);
        lower.set_size_bytes(lower_bytes);
        self.segments
            .block_added(segment, address + lower_bytes, &self.blocks);
        upper
    }

    /// `block` is the one above `previous` now, or the first of its segment.
    #[inline]
    fn follow(&mut self, segment: u32, previous: u32, block: u32) {
        if previous == NONE {
            self.segments[segment].first = block;
        } else {
            self.blocks[previous].set_next(block);
        }
    }

    /// Gives a free block another size, in the bin of that size. Most changes leave it in its bin.
    #[inline]
    fn resize_free(&mut self, block: u32, kind: SegmentKind, past: Past, size_bytes: u64) {
        let old_bytes = self.blocks[block].size_bytes();
        match bins_of(kind) {
            Some(bins) if bin_of(old_bytes) != bin_of(size_bytes) => {
                self.bins[bins].remove(&mut self.blocks, block);
                self.blocks[block].set_size_bytes(size_bytes);
                self.bins[bins].insert(&mut self.blocks, block, past);
            }
            _ => {
                let entry = &mut self.blocks[block];
                entry.set_size_bytes(size_bytes);
                entry.set_free_past(past);
            }
        }
    }

    /// Joins a block that is in the caller's hands with its one free neighbour by the shortest way: the neighbour grows in
    /// place. Returns the neighbour; the block is no more.
    #[inline]
    fn grow_neighbour(&mut self, block: u32, past: Past) -> Option<u32> {
        let Parts {
            address,
            size_bytes,
            previous,
            next,
            segment,
            ..
        } = self.blocks[block].parts();
        let free = |at: u32| self.blocks.get(at)?.free_past();
        let (neighbour, old) = match (free(previous), free(next)) {
            (None, Some(past)) => (next, past),
            (Some(past), None) => (previous, past),
            _ => return None,
        };
        let neighbour_bytes = self.blocks[neighbour].size_bytes();
        let grown_bytes = neighbour_bytes + size_bytes;
        let joined = past.joined_with(old);
        let kind = self.segments[segment].kind;
        self.resize_free(neighbour, kind, joined, grown_bytes);
        let entry = &mut self.blocks[neighbour];
        if neighbour == next {
            let above = entry.address();
            entry.set_address(address);
            entry.set_previous(previous);
            self.follow(segment, previous, neighbour);
            self.segments.block_removed(segment, above);
        } else {
            entry.set_next(next);
            if next != NONE {
                self.blocks[next].set_previous(neighbour);
            }
            self.segments.block_removed(segment, address);
        }
        self.blocks.remove(block);
        if joined.epoch == old.epoch {
            self.epochs.add(joined.epoch, size_bytes);
        } else {
            self.epochs.subtract(old.epoch, neighbour_bytes);
            self.epochs.add(joined.epoch, grown_bytes);
        }
        Some(neighbour)
    }

    /// Cuts a block in the caller's hands down to `size_bytes`, rounded up to the segment's granule. Blocks of
    /// oversize and isolated segments are never cut.
    pub fn split(&mut self, block: u32, size_bytes: u64, past: Past) {
        let Parts {
            size_bytes: whole_bytes,
            segment,
            ..
        } = self.blocks[block].parts();
        let (kind, granule_bits) = (
            self.segments[segment].kind,
            self.segments[segment].granule_bits,
        );
        let size_bytes = size_bytes.next_multiple_of(1 << granule_bits);
        if whole_bytes <= size_bytes || !matches!(kind, SegmentKind::Small | SegmentKind::Large) {
            return;
        }
        let rest = self.halve(block, size_bytes, Use::Hand { past });
        self.list(rest, past);
        let segment = &self.segments[segment];
        let at = segment.granule(self.blocks[rest].address());
        if segment
            .dirt
            .as_ref()
            .is_some_and(|dirt| dirt.next(at, at + 1, true).is_some())
        {
            self.hint_dirt(rest);
        }
    }

    /// Remembers a free block that may be dirty, for the next scrub.
    fn hint_dirt(&mut self, block: u32) {
        if self.dirty_hints.back() == Some(&block) {
            return;
        }
        if self.dirty_hints.len() == DIRTY_HINTS {
            self.dirty_hints.pop_front();
        }
        self.dirty_hints.push_back(block);
    }

    /// Puts a block that is in the caller's hands into the free lists, joined with its free neighbours.
    pub fn put(&mut self, mut block: u32, mut past: Past) {
        let Parts {
            previous,
            next,
            segment,
            ..
        } = self.blocks[block].parts();
        if let Some(neighbour) = self.grow_neighbour(block, past) {
            block = neighbour;
        } else {
            if next != NONE && self.blocks[next].is_free() {
                past = past.joined_with(self.unlist(next));
                self.absorb_next(block);
            }
            if previous != NONE && self.blocks[previous].is_free() {
                past = past.joined_with(self.unlist(previous));
                self.absorb_next(previous);
                block = previous;
            }
            self.list(block, past);
        }
        if self.segments[segment].dirt.is_some() {
            self.hint_dirt(block);
        }
        let isolated = self.segments[segment].kind == SegmentKind::Isolated;
        self.segments.subtract_busy(segment, isolated);
        self.settle_active();
    }

    /// Joins a block with the one above it, which ceases to be.
    pub fn absorb_next(&mut self, block: u32) {
        let absorbed = self.blocks[block].next();
        let Parts {
            address,
            size_bytes,
            next,
            segment,
            ..
        } = self.blocks[absorbed].parts();
        self.segments.block_removed(segment, address);
        self.blocks.remove(absorbed);
        let entry = &mut self.blocks[block];
        entry.set_size_bytes(entry.size_bytes() + size_bytes);
        entry.set_next(next);
        if next != NONE {
            self.blocks[next].set_previous(block);
        }
    }

    /// Makes a block that is in the caller's hands live.
    #[inline]
    pub fn hand_out(&mut self, block: u32, request: &Request, origin: Origin) -> Grant {
        self.sequence += 1;
        let entry = &mut self.blocks[block];
        entry.set_use(Use::Live {
            requested_bytes: request.size_bytes,
            tag: request.tag,
            sequence: self.sequence,
        });
        entry.set_flags(0);
        let Parts {
            address,
            size_bytes,
            ..
        } = entry.parts();
        self.bases.insert(address, block);
        self.stats.requested_bytes.rise(request.size_bytes);
        self.stats.allocated_bytes.rise(size_bytes);
        self.stats.allocations.rise(1);
        match origin {
            Origin::Hit => self.stats.hits += 1,
            Origin::Grown => self.stats.misses += 1,
        }
        self.settle_active();
        Grant {
            address,
            allocated_bytes: size_bytes,
            sequence: self.sequence,
            origin,
        }
    }

    /// The live `block` serves a small request from the large pool.
    pub fn note_borrowed(&mut self, block: u32, requested_bytes: u64) {
        let entry = &mut self.blocks[block];
        entry.set_flags(entry.flags() | FLAG_BORROWED);
        self.borrowed_bytes += borrowed_bytes(entry.size_bytes(), requested_bytes);
    }

    /// A block that was live and is in the caller's hands is so no longer: figures and dirt follow. It joins the
    /// current epoch.
    #[inline]
    pub fn account_free(&mut self, block: u32, requested_bytes: u64) {
        let Parts {
            address,
            size_bytes,
            segment,
            flags,
            ..
        } = self.blocks[block].parts();
        if flags & FLAG_BORROWED != 0 {
            self.borrowed_bytes -= borrowed_bytes(size_bytes, requested_bytes);
        }
        self.stats.requested_bytes.fall(requested_bytes);
        self.stats.allocated_bytes.fall(size_bytes);
        self.stats.allocations.fall(1);
        self.segments[segment].set_dirt(address, size_bytes, true);
    }

    /// Keeps a block that is in the caller's hands out of use. With `for_ever` it no longer keeps its segment from
    /// being released; else until [`State::end_hold`].
    pub fn hold_back(&mut self, block: u32, past: Past, for_ever: bool) {
        let Parts {
            size_bytes,
            segment,
            ..
        } = self.blocks[block].parts();
        self.blocks[block].set_use(Use::Held { past });
        self.held_bytes += size_bytes;
        if for_ever {
            if self.segments[segment].is_mapped {
                let address = self.blocks[block].address();
                self.mapped.retired.insert(address, block);
            }
            self.segments.subtract_busy(segment, true);
        }
        self.settle_active();
    }

    /// The last hold of a freed block is gone. It may have been in use until now, so it joins the current epoch.
    pub fn end_hold(&mut self, block: u32) {
        let Use::Held { past } = self.blocks[block].in_use() else {
            return;
        };
        let past = Past {
            epoch: self.epochs.current(),
            ..past
        };
        self.blocks[block].set_use(Use::Hand { past });
        self.held_bytes -= self.blocks[block].size_bytes();
        let flags = self.blocks[block].flags();
        self.blocks[block].set_flags(flags & !FLAG_HELD);
        if flags & FLAG_RETIRE != 0 {
            self.hold_back(block, past, true);
        } else {
            self.put(block, past);
        }
    }

    /// Whether the block is all of its segment.
    #[inline]
    pub fn is_whole(&self, block: u32) -> bool {
        let entry = &self.blocks[block];
        entry.previous() == NONE && entry.next() == NONE
    }

    /// A live block, by value.
    #[inline]
    pub fn live_block(&self, block: u32) -> Option<Block> {
        let entry = &self.blocks[block];
        let Use::Live {
            requested_bytes,
            tag,
            sequence,
        } = entry.in_use()
        else {
            return None;
        };
        Some(Block {
            base: entry.address(),
            requested_bytes,
            allocated_bytes: entry.size_bytes(),
            sequence,
            tag,
            whole_segment: self.is_whole(block) && !self.segments[entry.segment()].is_mapped,
            segment: self.segments[entry.segment()].range(),
        })
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
