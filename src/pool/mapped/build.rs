//! Building a free block where none fits.
//!
//! # Order
//! New handles while the slack allows: as cheap as moving, and the memory stays. Then handles that are free as a whole,
//! moved. What they do not cover is new all the same.

use crate::sync::MutexGuard;

use super::super::arena::{Entry, Past};
use super::super::facade::{Outside, Pool};
use super::super::ladder::{Ladder, Step as Rung};
use super::super::plan::Plan;
use super::super::segments::Segment;
use super::super::size::{GRANULE_BYTES, LARGEST_SEGMENT_BYTES, MIB, SEGMENT_GRANULE_BYTES};
use super::super::state::State;
use super::super::{Backing, BackingError, Pages, Range, Refusal, SegmentKind};
use super::execute::{carry_out, Came, Origin, Step};
use super::site::Site;
use super::sources::Source;
use super::supply::Supply;
use super::{Handle, Quiet};

/// Addresses reserved at first, for large requests and for those up to 1 MiB. What is reserved next is larger: addresses
/// cost nothing, but the tables of a range grow with it.
const LARGE_RANGE_BYTES: u64 = 16 << 30;
const SMALL_RANGE_BYTES: u64 = 64 * MIB;
/// A range has room for so many times what is live, so that few blocks lack room to grow.
const RANGE_SHARE: u64 = 4;
impl Pool {
    /// One step of growth where memory is mapped.
    pub(in crate::pool) fn grow_mapped<'a, B: Backing>(
        &'a self,
        state: MutexGuard<'a, State>,
        backing: &B,
        pages: &dyn Pages,
        plan: &Plan,
        ladder: &mut Ladder,
    ) -> Rung<'a> {
        let Some((site, supply)) = self.site_and_supply(&state, plan, ladder) else {
            return self.add_range(state, pages, plan, ladder);
        };
        let unsettled = |source: &Source| !state.is_settled(source.past);
        if supply.sources.iter().any(unsettled) {
            return self.settle(state, backing, pages, ladder);
        }
        if supply.new_bytes > 0 {
            if ladder.mapped.no_new {
                if !ladder.mapped.wide {
                    ladder.mapped.wide = true;
                    return Rung::Again(state);
                }
                return as_segment(state, ladder);
            }
            if self.budget.charge(supply.new_bytes).is_err() {
                if !ladder.mapped.wide {
                    (ladder.exact, ladder.mapped.moves_first) = (true, true);
                    ladder.mapped.wide = true;
                    return Rung::Again(state);
                }
                return as_segment(state, ladder);
            }
        }
        self.build(state, pages, site, supply, ladder)
    }

    /// Learns whether the work on freed blocks has ended, waiting for it if need be.
    fn settle<'a, B: Backing>(
        &'a self,
        state: MutexGuard<'a, State>,
        backing: &B,
        pages: &dyn Pages,
        ladder: &mut Ladder,
    ) -> Rung<'a> {
        if !ladder.mapped.polled {
            ladder.mapped.polled = true;
            return match self.poll(state, pages) {
                Outside::Forgotten(_) => Rung::Done(Err(Refusal::Forgotten)),
                Outside::Back(state, _) => Rung::Again(state),
            };
        }
        match self.wait(state, backing) {
            Outside::Forgotten(_) => Rung::Done(Err(Refusal::Forgotten)),
            Outside::Back(mut state, Ok(())) => {
                state.stats.host_waits += 1;
                Rung::Again(state)
            }
            Outside::Back(_, Err(BackingError::Failed(code))) => {
                Rung::Done(Err(Refusal::Failed(code)))
            }
            Outside::Back(state, Err(_)) => {
                ladder.mapped.no_moves = true;
                Rung::Again(state)
            }
        }
    }

    /// Reserves more addresses.
    fn add_range<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        pages: &dyn Pages,
        plan: &Plan,
        ladder: &mut Ladder,
    ) -> Rung<'a> {
        let (size_bytes, granule_bytes) = match plan.kind {
            SegmentKind::Small => {
                let doublings = state.mapped.small_ranges.min(8);
                (SMALL_RANGE_BYTES << doublings, GRANULE_BYTES)
            }
            _ => {
                let live_bytes = state.live_bytes(plan);
                let size_bytes = (RANGE_SHARE * live_bytes).max(LARGE_RANGE_BYTES);
                let size_bytes = size_bytes.min(LARGEST_SEGMENT_BYTES);
                (size_bytes, self.settings.alignment_bytes)
            }
        };
        let size_bytes = size_bytes.next_multiple_of(SEGMENT_GRANULE_BYTES);
        match self.outside(state, || pages.reserve_range(size_bytes)) {
            Outside::Forgotten(_) => Rung::Done(Err(Refusal::Forgotten)),
            Outside::Back(mut state, Ok(address)) => {
                let range = Range {
                    address,
                    size_bytes,
                };
                if !Entry::can_hold(range) {
                    // Addresses only: they stay reserved, as all of them do.
                    ladder.mapped.plain = true;
                    return Rung::Again(state);
                }
                state.mapped.small_ranges += u32::from(plan.kind == SegmentKind::Small);
                let dirt = self.settings.scrub.map(|_| false);
                let granule_bits = granule_bytes.trailing_zeros();
                state.add_mapped_segment(Segment::new(range, plan.kind, granule_bits, dirt));
                Rung::Again(state)
            }
            Outside::Back(state, Err(_)) => {
                ladder.mapped.plain = true;
                Rung::Again(state)
            }
        }
    }

    /// Takes everything that a plan needs out of the tables, carries it out, and puts what came of it back.
    fn build<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        pages: &dyn Pages,
        site: Site,
        supply: Supply,
        ladder: &mut Ladder,
    ) -> Rung<'a> {
        let Supply {
            pieces,
            mut sources,
            new_bytes,
        } = supply;
        let by_piece: Vec<Option<u64>> = pieces
            .iter()
            .map(|(_, source)| source.map(|index| sources[index].address))
            .collect();
        let Some(taken) = state.take_sources(&mut sources) else {
            // The charge is for another try.
            self.budget.uncharge(new_bytes);
            return Rung::Again(state);
        };
        let free: Vec<(u32, Past)> = site
            .parts
            .iter()
            .filter(|part| !part.is_hole)
            .map(|part| (part.block, state.take_whole(part.block)))
            .collect();
        let mut to = Vec::with_capacity(pieces.len());
        for part in site.parts.iter().filter(|part| part.is_hole) {
            let inside = |range: &Range| part.from <= range.address && range.address < part.room_to;
            let mut of_part = pieces
                .iter()
                .map(|(range, _)| range)
                .filter(|range| inside(range));
            let end = of_part
                .next_back()
                .map_or(part.to, |range| range.address + range.size_bytes);
            let mut block = state.take_hole(part.block, part.from, end);
            for (range, _) in pieces.iter().filter(|(range, _)| inside(range)).skip(1) {
                let upper = state.cut(block, range.address);
                to.push(block);
                block = upper;
            }
            to.push(block);
        }
        let mut taken: Vec<(u32, Option<Quiet>)> = taken
            .into_iter()
            .map(|(block, quiet)| (block, Some(quiet)))
            .collect();
        let mut steps = Vec::with_capacity(pieces.len());
        let mut from = Vec::with_capacity(pieces.len());
        for ((range, _), address) in pieces.iter().zip(by_piece) {
            let source = address
                .and_then(|address| sources.binary_search_by_key(&address, |s| s.address).ok());
            let moved = source.and_then(|index| {
                let quiet = taken[index].1.take()?;
                Some((taken[index].0, sources[index], quiet))
            });
            let (block, origin) = match moved {
                None => (None, Origin::New),
                Some((block, Source { handle, past, .. }, from)) => {
                    (Some((block, past)), Origin::Moved { from, handle })
                }
            };
            from.push(block);
            steps.push(Step { origin, to: *range });
        }
        let (mut state, came, answer) = match self.outside(state, || carry_out(pages, &steps)) {
            Outside::Back(state, (came, answer)) => (state, came, answer),
            Outside::Forgotten(_) => {
                self.budget.uncharge(new_bytes);
                return Rung::Done(Err(Refusal::Forgotten));
            }
        };
        let fresh_is_dirty = !pages.fresh_is_zero() || self.settings.scrub.unwrap_or(0) != 0;
        for (index, (step, came)) in steps.iter().zip(came).enumerate() {
            match &step.origin {
                Origin::New => {
                    self.settle_new(&mut state, to[index], step.to, came, fresh_is_dirty)
                }
                Origin::Moved {
                    from: quiet,
                    handle,
                } => {
                    let Some((block, past)) = from[index] else {
                        continue;
                    };
                    self.settle_moved(
                        &mut state,
                        (quiet.range().address, *handle),
                        (block, past),
                        (to[index], step.to),
                        came,
                    );
                }
            }
        }
        for (block, past) in free {
            state.put(block, past);
        }
        ladder.mapped.has_grown |= new_bytes > 0;
        match answer {
            Ok(()) => {}
            Err(BackingError::Failed(code)) => return Rung::Done(Err(Refusal::Failed(code))),
            Err(BackingError::OutOfMemory) => {
                ladder.mapped.no_new = ladder.mapped.wide;
                (ladder.exact, ladder.mapped.moves_first) = (true, true);
                ladder.mapped.wide = true;
            }
            Err(BackingError::Unavailable) => ladder.mapped.plain = true,
        }
        Rung::Again(state)
    }

    /// A new handle is mapped, or not.
    fn settle_new(&self, state: &mut State, block: u32, to: Range, came: Came, dirty: bool) {
        let size_bytes = to.size_bytes;
        let Came::Mapped(id) = came else {
            self.budget.uncharge(size_bytes);
            state.put_hole(block);
            return;
        };
        let handle = Handle {
            id,
            size_bytes,
            since_tick: state.segments.ticks,
        };
        state.mapped.handles.insert(to.address, handle);
        state.stats.reserved_bytes.rise(size_bytes);
        state.stats.segments.rise(1);
        state.stats.reserve_calls += 1;
        state.mapped.bill.created += 1;
        state.set_dirt(block, dirty);
        state.put(block, Past::FRESH);
    }

    /// A handle was moved, or not.
    fn settle_moved(
        &self,
        state: &mut State,
        (address, handle): (u64, Handle),
        (from, past): (u32, Past),
        (to, range): (u32, Range),
        came: Came,
    ) {
        match came {
            Came::Undone => {
                state.put(from, past);
                state.put_hole(to);
            }
            Came::Mapped(_) => {
                state.mapped.handles.remove(&address);
                let since_tick = state.segments.ticks;
                let handle = Handle {
                    since_tick,
                    ..handle
                };
                state.mapped.handles.insert(range.address, handle);
                state.mapped.bill.moved += 1;
                let dirty = state.is_any_dirty(from);
                state.set_dirt(to, dirty);
                state.put_hole(from);
                // SETTLED: nothing is left that later work would have to wait for.
                state.put(to, Past::FRESH);
            }
            Came::Lost => {
                state.put_hole(from);
                state.put_hole(to);
                self.handle_is_gone(state, address, handle);
            }
        }
    }

    /// The driver has a handle back.
    pub(super) fn handle_is_gone(&self, state: &mut State, address: u64, handle: Handle) {
        state.mapped.handles.remove(&address);
        state.stats.reserved_bytes.fall(handle.size_bytes);
        state.stats.segments.fall(1);
        state.stats.release_calls += 1;
        self.budget.uncharge(handle.size_bytes);
    }
}

/// Mapping has come to its end. The way of the segments remains, which needs no whole pages and gives back everything
/// else before it refuses.
fn as_segment<'a>(state: MutexGuard<'a, State>, ladder: &mut Ladder) -> Rung<'a> {
    ladder.mapped.plain = true;
    Rung::Again(state)
}
