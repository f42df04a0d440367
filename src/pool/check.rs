//! The checker: the invariants of `mod.rs`, recounted. For tests, in whatever crate they are.

use std::collections::{BTreeMap, BTreeSet};

use crate::lane;

use super::arena::{Use, FLAG_APART, FLAG_BORROWED, FLAG_HELD, FLAG_IN_FRONT, NONE};
use super::facade::Pool;
use super::live::borrowed_bytes;
use super::SegmentKind;

impl Pool {
    /// Recounts everything. To be called while no thread is inside the pool.
    ///
    /// # Panics
    /// With the name of the first invariant that does not hold.
    #[doc(hidden)]
    pub fn check(&self) {
        let mut state = self.lock();
        self.fold(&mut state, lane::current());
        let (mut cached, mut cached_count) = (0, 0);
        let (mut requested, mut allocated, mut reserved, mut held) = (0, 0, 0, 0);
        let (mut live, mut block_count, mut borrowed) = (0, 0, 0);
        let (mut idle_bytes, mut ahead_idle_bytes) = (0, 0);
        let mut free: BTreeMap<usize, BTreeSet<u32>> = BTreeMap::new();
        let mut unfenced: BTreeMap<u64, u64> = BTreeMap::new();
        let kinds = [
            SegmentKind::Small,
            SegmentKind::Large,
            SegmentKind::Oversize,
        ];
        let place = |kind| kinds.iter().position(|&other| other == kind);
        let (mut hole_count, mut retired_count, mut mapped) = (0, 0, Vec::new());
        let mut above = 0;
        for index in state.segments.in_order() {
            let segment = &state.segments[index];
            assert!(
                segment.attached && segment.address >= above,
                "TILE: segments overlap"
            );
            above = segment.address + segment.size_bytes;
            if !segment.is_mapped {
                reserved += segment.size_bytes;
            }
            // PINNED
            let pinned = u32::from(segment.is_mapped);
            let (mut at, mut previous, mut address, mut busy) =
                (segment.first, NONE, segment.address, pinned);
            let mut starts = 0;
            let (mut free_before, mut hole_before) = (false, false);
            while at != NONE {
                let entry = &state.blocks[at];
                block_count += 1;
                starts += 1;
                assert_eq!(entry.segment(), index, "TILE: block of another segment");
                assert_eq!(
                    (entry.address(), entry.previous()),
                    (address, previous),
                    "TILE: gap"
                );
                let marked = segment
                    .starts()
                    .is_none_or(|map| map.is_set(segment.granule(address)));
                assert!(marked, "TILE: start not marked");
                assert!(entry.size_bytes() > 0, "TILE: empty block");
                let (is_apart, in_front) = (
                    matches!(segment.kind, SegmentKind::Oversize | SegmentKind::Isolated),
                    self.front.entry_of(address).is_some(),
                );
                assert_eq!(entry.flags() & FLAG_APART != 0, is_apart, "a block apart");
                let marked = entry.flags() & FLAG_IN_FRONT != 0;
                assert_eq!(marked, in_front, "ONE-PLACE: block in front not marked");
                match self.as_in_front(entry) {
                    Use::Hand { .. } if entry.is_live() => {
                        busy += 1;
                        cached += entry.size_bytes();
                        cached_count += 1;
                        let base = state.bases.get(&state.blocks, entry.address());
                        assert_eq!(base, Some(at), "OURS: block in front not in the index");
                        assert_eq!(entry.flags(), FLAG_IN_FRONT, "a block in front is plain");
                    }
                    Use::Live {
                        requested_bytes, ..
                    } => {
                        busy += 1;
                        live += 1;
                        allocated += entry.size_bytes();
                        requested += requested_bytes;
                        assert!(requested_bytes <= entry.size_bytes());
                        if entry.flags() & FLAG_BORROWED != 0 {
                            borrowed += borrowed_bytes(entry.size_bytes(), requested_bytes);
                        }
                        let base = state.bases.get(&state.blocks, entry.address());
                        assert_eq!(base, Some(at), "OURS: live block not in the index");
                        let is_held = state.holds.contains_key(&entry.address());
                        assert_eq!(entry.flags() & FLAG_HELD != 0, is_held);
                    }
                    Use::Free { past, .. } => {
                        assert!(!free_before, "MERGED: two free neighbours");
                        if let Some(place) = place(segment.kind) {
                            free.entry(place).or_default().insert(at);
                        }
                        if !state.epochs.is_fenced(past.epoch) {
                            *unfenced.entry(past.epoch).or_default() += entry.size_bytes();
                        }
                        assert!(past.epoch <= state.epochs.current());
                        assert!(past.ticket <= state.tickets.issued());
                    }
                    Use::Held { .. } => {
                        held += entry.size_bytes();
                        if state.holds.contains_key(&entry.address()) {
                            busy += 1;
                        } else if segment.is_mapped {
                            let listed = state.mapped.retired.get(&entry.address());
                            assert_eq!(listed, Some(&at), "WHOLE: list of retired blocks");
                            retired_count += 1;
                        }
                    }
                    Use::Hole => {
                        assert!(segment.is_mapped, "COVERED: a hole in a plain segment");
                        assert!(!hole_before, "MERGED: two holes side by side");
                        let listed = state.mapped.holes.get(&entry.address());
                        assert_eq!(listed, Some(&at), "COVERED: list of holes");
                        hole_count += 1;
                    }
                    Use::Hand { .. } => panic!("ONE-PLACE: a block is in no thread's hands"),
                    Use::Vacant { .. } => panic!("ONE-PLACE: vacant slot in a segment"),
                }
                free_before = entry.is_free();
                hole_before = entry.is_hole();
                if segment.is_mapped && !hole_before {
                    mapped.push((entry.address(), entry.end()));
                }
                address += entry.size_bytes();
                (previous, at) = (at, entry.next());
            }
            assert_eq!(address, above, "TILE: segment not covered");
            assert_eq!(segment.block_count(), starts, "TILE: block count");
            if let Some(map) = segment.starts() {
                assert_eq!(
                    map.count(),
                    starts,
                    "TILE: start marked where no block starts"
                );
            }
            assert_eq!(busy, segment.busy, "WHOLE: busy count");
            assert_eq!(busy == 0, segment.is_idle(), "WHOLE: idle list");
            if busy == 0 {
                idle_bytes += segment.size_bytes;
                ahead_idle_bytes += if segment.ahead { segment.size_bytes } else { 0 };
            }
        }
        assert_eq!(
            state.mapped.holes.len(),
            hole_count,
            "COVERED: list of holes"
        );
        let listed_count = state.mapped.retired.len();
        assert_eq!(listed_count, retired_count, "WHOLE: list of retired blocks");
        reserved += check_handles(&state, &mapped);
        for (place, &kind) in kinds.iter().enumerate() {
            let binned = state.binned(kind);
            let set: BTreeSet<u32> = binned.iter().copied().collect();
            assert_eq!(
                set.len(),
                binned.len(),
                "ONE-PLACE: a block is in the bins twice"
            );
            assert_eq!(
                set,
                free.remove(&place).unwrap_or_default(),
                "ONE-PLACE: bins"
            );
        }
        let mut idle = state.segments.longest_idle();
        let mut idle_listed_bytes = 0;
        while let Some(index) = idle {
            idle_listed_bytes += state.segments[index].size_bytes;
            idle = state.segments.idle_after(index);
        }
        assert_eq!(idle_listed_bytes, idle_bytes, "WHOLE: idle list");
        let stats = &state.stats;
        assert_eq!(stats.requested_bytes.current, requested, "SUMS: requested");
        assert_eq!(stats.allocated_bytes.current, allocated, "SUMS: allocated");
        assert_eq!(stats.reserved_bytes.current, reserved, "SUMS: reserved");
        assert_eq!(stats.allocations.current, live, "SUMS: allocations");
        assert_eq!(
            stats.segments.current,
            state
                .segments
                .in_order()
                .filter(|&index| !state.segments[index].is_mapped)
                .count() as u64
                + state.mapped.handles.len() as u64
        );
        assert_eq!(
            state.bases.len() as u64,
            live + cached_count,
            "OURS: index of bases"
        );
        assert_eq!(state.front.cached_bytes, cached as i64, "SUMS: in front");
        self.check_front(&state);
        assert_eq!(
            state.blocks.block_count, block_count,
            "TILE: blocks outside segments"
        );
        assert_eq!(state.held_bytes, held, "SUMS: held");
        assert_eq!(state.borrowed_bytes, borrowed, "SUMS: borrowed");
        assert_eq!(state.segments.idle_bytes, idle_bytes, "SUMS: idle");
        assert_eq!(
            state.segments.ahead_idle_bytes, ahead_idle_bytes,
            "SUMS: idle and taken ahead"
        );
        let unfenced_bytes: u64 = unfenced.values().sum();
        for (epoch, bytes) in unfenced {
            assert_eq!(
                state.epochs.unfenced_bytes_of(epoch),
                bytes,
                "SUMS: epoch {epoch}"
            );
        }
        assert_eq!(
            state.epochs.unfenced_bytes, unfenced_bytes,
            "SUMS: unfenced"
        );
        assert_eq!(
            stats.active_bytes.current,
            allocated + unfenced_bytes + cached,
            "SUMS: active"
        );
        assert_eq!(state.in_transit, 0, "ONE-PLACE: a thread is still out");
    }
}

/// COVERED: the handles tile the ranges that are no holes. Returns their bytes.
fn check_handles(state: &super::state::State, mapped: &[(u64, u64)]) -> u64 {
    let mut covered = mapped.iter().copied().peekable();
    let mut bytes = 0;
    let mut at = 0;
    for (&address, handle) in &state.mapped.handles {
        assert!(address >= at, "COVERED: two handles at one address");
        at = address;
        let end = address + handle.size_bytes;
        while at < end {
            let Some((from, to)) = covered.peek_mut() else {
                panic!("COVERED: a handle behind a hole");
            };
            assert_eq!(*from, at, "COVERED: no handle behind a block");
            *from = (*to).min(end);
            at = *from;
            if from == to {
                covered.next();
            }
        }
        bytes += handle.size_bytes;
    }
    assert_eq!(covered.next(), None, "COVERED: no handle behind a block");
    bytes
}
