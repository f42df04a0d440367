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
        loop {
            let choose = |state: &State| {
                state.oldest_sources(state.cached_bytes().saturating_sub(keep_cached_bytes))
            };
            match self.release_handles(state, backing, pages, choose) {
                (Some(after), bytes) if bytes > 0 => {
                    released_bytes += bytes;
                    state = after;
                }
                (_, bytes) => return released_bytes + bytes,
            }
        }
    }

    /// Gives the handles back that `choose` finds, in its order, up to the first that cannot go now. Waits for the device
    /// if need be. Returns the lock, if the pool was not forgotten, and the bytes given back.
    pub(super) fn release_handles<'a, B: Backing>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        backing: &B,
        pages: &dyn Pages,
        choose: impl Fn(&State) -> Vec<Source>,
    ) -> (Option<MutexGuard<'a, State>>, u64) {
        let mut has_waited = false;
        let (chosen, taken) = loop {
            let mut chosen = choose(&state);
            if chosen.is_empty() {
                return (Some(state), 0);
            }
            if let Some(taken) = state.take_sources(&mut chosen) {
                break (chosen, taken);
            }
            if has_waited {
                return (Some(state), 0);
            }
            has_waited = true;
            state = match self.wait_now(state, backing) {
                Outside::Back(state, Ok(())) => state,
                Outside::Back(state, Err(_)) => return (Some(state), 0),
                Outside::Forgotten(_) => return (None, 0),
            };
        };
        let (blocks, quiet): (Vec<u32>, Vec<Quiet>) = taken.into_iter().unzip();
        let handles = chosen.iter().map(|source| source.handle);
        let going: Vec<(Quiet, Handle)> = quiet.into_iter().zip(handles).collect();
        let (mut state, gone) = match self.outside(state, || give_back(pages, &going)) {
            Outside::Back(state, gone) => (state, gone),
            Outside::Forgotten(_) => return (None, 0),
        };
        let mut released_bytes = 0;
        for (index, (source, block)) in chosen.iter().zip(blocks).enumerate() {
            if index < gone {
                state.put_hole(block);
                self.handle_is_gone(&mut state, source.address, source.handle);
                released_bytes += source.handle.size_bytes;
            } else {
                state.put(block, source.past);
            }
        }
        state.settle_active();
        (Some(state), released_bytes)
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
