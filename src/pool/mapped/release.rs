//! Giving handles back to the driver.

use crate::sync::MutexGuard;

use super::super::facade::{Outside, Pool};
use super::super::state::State;
use super::super::{Backing, Pages};
use super::sources::Source;
use super::{Handle, Quiet};

impl Pool {
    /// What [`Pool::trim`] could give back now.
    pub fn releasable_bytes(&self) -> u64 {
        let state = self.lock();
        let handles = state.sources(&[]);
        let handle_bytes: u64 = handles.iter().map(|source| source.handle.size_bytes).sum();
        state.segments.idle_bytes + handle_bytes
    }

    /// Gives handles that are free as a whole back, the one free for longest first, until at most `keep_cached_bytes`
    /// are cached. Returns the bytes given back.
    pub(in crate::pool) fn trim_mapped<'a, B: Backing>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        backing: &B,
        pages: &dyn Pages,
        keep_cached_bytes: u64,
    ) -> u64 {
        let (after, mut released_bytes) = self.release_retired(state, backing, pages);
        let Some(after) = after else {
            return released_bytes;
        };
        state = after;
        let mut has_waited = false;
        loop {
            let cached_bytes = state.cached_bytes();
            let excess = cached_bytes.saturating_sub(keep_cached_bytes);
            let mut chosen = state.oldest_sources(excess);
            if chosen.is_empty() {
                return released_bytes;
            }
            let Some(taken) = state.take_sources(&mut chosen) else {
                if has_waited {
                    return released_bytes;
                }
                has_waited = true;
                state = match self.wait(state, backing) {
                    Outside::Back(state, Ok(())) => state,
                    _ => return released_bytes,
                };
                continue;
            };
            let (blocks, quiet): (Vec<u32>, Vec<Quiet>) = taken.into_iter().unzip();
            let handles = chosen.iter().map(|source| source.handle);
            let going: Vec<(Quiet, Handle)> = quiet.into_iter().zip(handles).collect();
            let (mut state_after, gone) = match self.outside(state, || give_back(pages, &going)) {
                Outside::Back(state, gone) => (state, gone),
                Outside::Forgotten(_) => return released_bytes,
            };
            let is_complete = gone == chosen.len();
            for (index, (source, block)) in chosen.iter().zip(blocks).enumerate() {
                if index < gone {
                    state_after.put_hole(block);
                    self.handle_is_gone(&mut state_after, source.address, source.handle);
                    released_bytes += source.handle.size_bytes;
                } else {
                    state_after.put(block, source.past);
                }
            }
            state_after.settle_active();
            if !is_complete {
                return released_bytes;
            }
            state = state_after;
        }
    }
}

/// Unmaps and destroys up to the first failure. Returns how many are gone.
pub(super) fn give_back(pages: &dyn Pages, handles: &[(Quiet, Handle)]) -> usize {
    for (gone, (quiet, handle)) in handles.iter().enumerate() {
        if pages.unmap(quiet).is_err() {
            return gone;
        }
        pages.destroy(handle.id);
    }
    handles.len()
}

impl State {
    /// The handles free for longest that hold at least `bytes` together, if there are so many.
    fn oldest_sources(&self, bytes: u64) -> Vec<Source> {
        let mut sources = self.sources(&[]);
        sources.sort_unstable_by_key(|source| (source.past.epoch, source.address));
        let mut left = bytes;
        sources.retain(|source| {
            let is_needed = left > 0;
            left = left.saturating_sub(source.handle.size_bytes);
            is_needed
        });
        sources
    }

    /// Reserved and not allocated.
    fn cached_bytes(&self) -> u64 {
        self.stats.reserved_bytes.current - self.stats.allocated_bytes.current
    }
}
