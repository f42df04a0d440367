//! The snapshot, taken in slices so that no allocation waits long.

use std::time::Duration;

use super::arena::{Entry, Use, NONE};
use super::facade::Pool;
use super::segments::Segment;
use super::state::State;
use super::{BlockSnapshot, BlockState, PoolSnapshot, SegmentSnapshot};

/// Blocks looked at under one hold of the lock.
const SLICE_BLOCKS: usize = 1000;
/// # Decision: a rest after each slice
/// A lock that is let go is not handed to who waits: a thread that sleeps takes longer to wake than the walk to lock again,
/// and waited for fifty slices (2 ms with a million blocks; with the rest, for one or two).
const REST: Duration = Duration::from_micros(50);

/// Where the walk goes on.
struct Cursor {
    /// First address not yet seen.
    address: u64,
    /// The block that starts there, if nothing has changed since.
    block: u32,
}

impl Pool {
    /// The pool as it is now. Taken in slices of about a thousand blocks: figures and map can differ by what happened
    /// meanwhile, and a segment that changed meanwhile can show a block as it was before.
    pub fn snapshot(&self) -> PoolSnapshot {
        self.drain_in_slices();
        let mut snapshot = PoolSnapshot {
            stats: self.stats(),
            ..PoolSnapshot::default()
        };
        let mut cursor = Cursor {
            address: 0,
            block: NONE,
        };
        loop {
            // Room for the slice is made while nobody waits: each block can be the first of its segment.
            snapshot.segments.reserve(SLICE_BLOCKS + 1);
            if let Some(last) = snapshot.segments.last_mut() {
                last.blocks.reserve(SLICE_BLOCKS);
            }
            let state = self.lock();
            let more = self.walk_slice(&state, &mut cursor, &mut snapshot.segments);
            drop(state);
            if !more {
                break;
            }
            std::thread::sleep(REST);
        }
        let free = |state| matches!(state, BlockState::Free | BlockState::FreeUnfenced);
        snapshot.largest_free_bytes = snapshot
            .segments
            .iter()
            .filter(|segment| segment.kind != super::SegmentKind::Isolated)
            .flat_map(|segment| &segment.blocks)
            .filter(|block| free(block.state))
            .map(|block| block.size_bytes)
            .max()
            .unwrap_or(0);
        snapshot
    }

    /// Adds the next slice to `segments`. `false` at the end.
    fn walk_slice(
        &self,
        state: &State,
        cursor: &mut Cursor,
        segments: &mut Vec<SegmentSnapshot>,
    ) -> bool {
        let mut left = SLICE_BLOCKS;
        while let Some(index) = state
            .segments
            .holding(cursor.address)
            .or_else(|| state.segments.at_or_above(cursor.address))
        {
            let segment = &state.segments[index];
            if !segment.is_mapped
                && segments
                    .last()
                    .is_none_or(|last| last.address != segment.address)
            {
                let blocks = Vec::new();
                let (address, size_bytes, kind) =
                    (segment.address, segment.size_bytes, segment.kind);
                segments.push(SegmentSnapshot {
                    address,
                    size_bytes,
                    kind,
                    blocks,
                });
            }
            let mut at = state.resume(cursor, index);
            while at != NONE && left > 0 {
                let entry = &state.blocks[at];
                if segment.is_mapped {
                    self.add_mapped_block(state, entry, segment, segments);
                } else if entry.address() >= cursor.address || cursor.address <= segment.address {
                    // A block that grew downwards since the last slice is in the map already, in part.
                    if let Some(last) = segments.last_mut() {
                        last.blocks
                            .push(self.block_snapshot(state, entry, segment.address));
                    }
                }
                cursor.address = entry.end();
                at = entry.next();
                left -= 1;
            }
            cursor.block = at;
            if at != NONE {
                return true;
            }
            cursor.address = segment.address + segment.size_bytes;
            if left == 0 {
                return true;
            }
        }
        false
    }

    fn block_snapshot(&self, state: &State, entry: &Entry, segment_address: u64) -> BlockSnapshot {
        let (state, requested_bytes, tag) = match self.as_in_front(entry) {
            Use::Live {
                requested_bytes,
                tag,
                ..
            } => (BlockState::Allocated, requested_bytes, tag),
            Use::Free { past, .. } if state.is_behind_barrier(past, false) => {
                (BlockState::Free, 0, 0)
            }
            // A block in a thread's hands is about to be live, or to be free.
            Use::Free { .. } | Use::Hand { .. } => (BlockState::FreeUnfenced, 0, 0),
            Use::Held { .. } | Use::Hole | Use::Vacant { .. } => (BlockState::Held, 0, 0),
        };
        BlockSnapshot {
            offset_bytes: entry.address() - segment_address,
            size_bytes: entry.size_bytes(),
            requested_bytes,
            state,
            tag,
        }
    }

    /// Adds a block of a mapped segment. In the map, each run of it without a hole is a segment.
    fn add_mapped_block(
        &self,
        state: &State,
        entry: &Entry,
        segment: &Segment,
        segments: &mut Vec<SegmentSnapshot>,
    ) {
        if entry.is_hole() {
            return;
        }
        let next_byte = |last: &SegmentSnapshot| last.address + last.size_bytes;
        let goes_on = segments.last().is_some_and(|last| {
            last.address >= segment.address && next_byte(last) == entry.address()
        });
        // A block that grew downwards since the last slice is in the map already, in part.
        if !goes_on
            && segments
                .last()
                .is_some_and(|last| next_byte(last) > entry.address())
        {
            return;
        }
        if !goes_on {
            segments.push(SegmentSnapshot {
                address: entry.address(),
                size_bytes: 0,
                kind: segment.kind,
                blocks: Vec::new(),
            });
        }
        if let Some(last) = segments.last_mut() {
            last.blocks
                .push(self.block_snapshot(state, entry, last.address));
            last.size_bytes += entry.size_bytes();
        }
    }
}

impl State {
    /// The block to go on with in a segment: the one the cursor remembers if it is still there, else the first that does
    /// not end before it, looked for from the last live block below (a segment can have a million).
    fn resume(&self, cursor: &Cursor, segment: u32) -> u32 {
        let remembered = self.blocks.get(cursor.block);
        if remembered
            .is_some_and(|entry| entry.segment() == segment && entry.address() == cursor.address)
        {
            return cursor.block;
        }
        let mut at = self.last_live_up_to(cursor.address, segment);
        while at != NONE {
            let entry = &self.blocks[at];
            if entry.end() > cursor.address {
                break;
            }
            at = entry.next();
        }
        at
    }

    /// The live block that `address` lies in, or the nearest below it; without one the segment's first block.
    fn last_live_up_to(&self, mut address: u64, segment: u32) -> u32 {
        let (start, first) = (self.segments[segment].address, self.segments[segment].first);
        while address >= start {
            let Some(base) = self.segments.block_base(segment, address, &self.blocks) else {
                break;
            };
            if let Some(block) = self.bases.get(&self.blocks, base) {
                return block;
            }
            address = base.saturating_sub(1);
        }
        first
    }
}
