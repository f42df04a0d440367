//! Memory that is mapped where it is needed ([`super::Pages`]): handles, holes, and how a block is built of them.
//!
//! # What it is
//! A *mapped segment* is a range of addresses, far larger than what it serves. Its blocks tile it as those of any
//! segment do, but some are [`Use::Hole`]: addresses without memory. *Handles* are mapped into it side by side; a block
//! may lie across several. Requests are served as in other segments. When no free block fits, one is built (`build`)
//! where that takes least memory (`site`): in holes beside free blocks, first by new handles as long as the slack
//! allows, then by handles that are free as a whole, moved there (`supply`, `sources`), then by new ones all the same.
//!
//! # Invariants, besides those of the pool
//! * **COVERED** the handles tile exactly the parts of mapped segments that are no holes.
//! * **SETTLED** a handle is unmapped only after the host has learned that all work submitted before its blocks' last free, and
//!   every scrub of them, has ended: unmapping does not wait, and late work would fault. `settled` has the proof.
//! * **PINNED** a mapped segment is never idle, so it stays until the context ends; only handles come and go.
//!
//! # Cost
//! A driver call costs by the handle, not by the byte, so handles are as large as the hole they fill, up to a bound: larger ones
//! are seldom free as a whole. How much is spent on keeping reserved memory low depends on what was spent so far (`thrift`).

mod build;
mod execute;
mod idle;
mod release;
mod retired;
mod settled;
mod site;
mod sources;
mod supply;
mod thrift;

use std::collections::BTreeMap;

use super::arena::{Entry, Parts, Past, Use, NONE};
use super::segments::Segment;
use super::state::{tree_bytes, State};
use super::{Range, SegmentKind};
use idle::Clock;
use settled::Settled;

pub use settled::Quiet;

/// Larger requests are not served from mapped memory. No device has as much.
pub(super) const LARGEST_MAPPED_BYTES: u64 = 1 << 40;

/// Physical memory in one piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Handle {
    /// The backing's name for it.
    pub id: u64,
    pub size_bytes: u64,
    /// The tick in which it came to where it is.
    pub since_tick: u64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Mapped {
    /// By the address they are mapped at. A handle on its way is at the address it comes from.
    pub handles: BTreeMap<u64, Handle>,
    /// Blocks that are holes, by address.
    pub holes: BTreeMap<u64, u32>,
    /// Blocks that are kept out of use for ever, by address.
    pub retired: BTreeMap<u64, u32>,
    /// Mapped segments for requests up to 1 MiB.
    pub small_ranges: u32,
    /// What the host knows to have ended.
    settled: Settled,
    /// What mapping has cost so far.
    bill: thrift::Bill,
    /// When that was freed which is idle.
    clock: Clock,
}

impl Mapped {
    pub fn new() -> Self {
        Mapped {
            handles: BTreeMap::new(),
            holes: BTreeMap::new(),
            retired: BTreeMap::new(),
            small_ranges: 0,
            settled: Settled::new(),
            bill: thrift::Bill::default(),
            clock: Clock::default(),
        }
    }

    pub fn host_bytes(&self) -> usize {
        tree_bytes::<u64, Handle>(self.handles.len())
            + tree_bytes::<u64, u32>(self.holes.len())
            + tree_bytes::<u64, u32>(self.retired.len())
            + self.settled.host_bytes()
            + self.clock.host_bytes()
    }
}

impl State {
    /// Adds a range of addresses: one hole.
    pub fn add_mapped_segment(&mut self, mut segment: Segment) {
        let Range {
            address,
            size_bytes,
        } = segment.range();
        segment.is_mapped = true;
        segment.busy = 1; // PINNED
        let index = self.segments.add(segment);
        let block = self.blocks.add(Parts {
            address,
            size_bytes,
            in_use: Use::Hole,
            segment: index,
            previous: NONE,
            next: NONE,
            flags: 0,
        });
        self.segments[index].first = block;
        self.mapped.holes.insert(address, block);
    }

    /// Cuts a block that is in the caller's hands in two; both are. Returns the upper one.
    fn cut(&mut self, block: u32, at: u64) -> u32 {
        let Parts {
            address,
            size_bytes,
            in_use,
            segment,
            ..
        } = self.blocks[block].parts();
        debug_assert!(address < at && at < address + size_bytes);
        let upper = self.halve(block, at - address, in_use);
        self.segments.add_busy(segment);
        upper
    }

    /// Takes a free block as a whole.
    fn take_whole(&mut self, block: u32) -> Past {
        let past = self.unlist(block);
        self.segments.add_busy(self.blocks[block].segment());
        past
    }

    /// Takes `[from, to)` of a hole; what is left of it stays a hole.
    fn take_hole(&mut self, hole: u32, from: u64, to: u64) -> u32 {
        let Parts {
            address, segment, ..
        } = self.blocks[hole].parts();
        self.mapped.holes.remove(&address);
        self.blocks[hole].set_use(Use::Hand { past: Past::FRESH });
        self.segments.add_busy(segment);
        let mut piece = hole;
        if from > address {
            piece = self.cut(hole, from);
            self.put_hole(hole);
        }
        let end = self.blocks[piece].end();
        if to < end {
            let rest = self.cut(piece, to);
            self.put_hole(rest);
        }
        piece
    }

    /// Makes a block that is in the caller's hands a hole, joined with the holes beside it.
    fn put_hole(&mut self, mut block: u32) {
        let Parts {
            previous,
            next,
            segment,
            ..
        } = self.blocks[block].parts();
        let is_hole = |state: &State, at: u32| at != NONE && state.blocks[at].is_hole();
        if is_hole(self, next) {
            self.mapped.holes.remove(&self.blocks[next].address());
            self.absorb_next(block);
        }
        if is_hole(self, previous) {
            self.absorb_next(previous);
            block = previous;
        }
        let entry = &mut self.blocks[block];
        entry.set_use(Use::Hole);
        self.mapped.holes.insert(entry.address(), block);
        self.segments.subtract_busy(segment, false);
    }

    /// Free blocks of mapped segments.
    fn each_mapped_free(&self, mut each: impl FnMut(u32, &Entry, Past)) {
        for kind in [SegmentKind::Small, SegmentKind::Large] {
            self.each_free(kind, |block| {
                let entry = &self.blocks[block];
                if let (Use::Free { past, .. }, true) =
                    (entry.in_use(), self.segments[entry.segment()].is_mapped)
                {
                    each(block, entry, past);
                }
            });
        }
    }
}
