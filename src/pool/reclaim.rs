//! Giving segments back to the driver.

use crate::sync::MutexGuard;

use crate::lane;

use super::facade::{Outside, Pool};
use super::state::State;
use super::{Backing, BackingError};

impl Pool {
    /// Gives an idle segment back. While the driver works on it, no table knows it (FORGET-FIRST); if the driver
    /// fails, it is idle again. The driver waits for the device, so everything freed before is behind a barrier after.
    pub(super) fn release_segment<'a, B: Backing>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        backing: &B,
        index: u32,
    ) -> Outside<'a, Result<u64, BackingError>> {
        let mark = state.mark();
        let range = state.detach_segment(index);
        match self.outside(state, || backing.release(range)) {
            Outside::Back(mut state, Ok(())) => {
                state.remove_segment(index);
                state.stats.release_calls += 1;
                state.drained(mark);
                self.budget.uncharge(range.size_bytes);
                Outside::Back(state, Ok(range.size_bytes))
            }
            Outside::Back(mut state, Err(error)) => {
                state.reattach_segment(index);
                Outside::Back(state, Err(error))
            }
            Outside::Forgotten(answer) => {
                self.budget.uncharge(range.size_bytes);
                Outside::Forgotten(answer.map(|()| range.size_bytes))
            }
        }
    }

    /// Counts a tick of a clock that the pool does not have.
    pub fn tick(&self) {
        // What is kept in front keeps no segment from being idle for longer than that.
        self.drain_in_slices();
        self.lock().tick();
    }

    /// Whether [`Pool::trim_idle`] would find a segment or a handle.
    pub fn has_idle_for(&self, ticks: u64) -> bool {
        let state = self.lock();
        state.segments.idle_for(ticks).is_some() || state.idle_handle_for(ticks).is_some()
    }

    /// Gives one segment or handle back, the one idle for longest, if nothing was allocated from it for more than `ticks` whole
    /// ticks. Returns its bytes; 0 if there is none, or the driver does not take it. Not to be called while a stream of
    /// the context captures.
    pub fn trim_idle<B: Backing>(&self, backing: &B, ticks: u64) -> u64 {
        let state = self.lock();
        let Some(index) = state.segments.idle_for(ticks) else {
            return backing.pages().map_or(0, |pages| {
                self.trim_idle_handle(state, backing, pages, ticks)
            });
        };
        match self.release_segment(state, backing, index) {
            Outside::Back(mut state, Ok(bytes)) => {
                state.stats.idle_released_bytes += bytes;
                bytes
            }
            Outside::Back(_, Err(_)) | Outside::Forgotten(_) => 0,
        }
    }

    /// Gives idle segments back, the one idle for longest first, until at most `keep_cached_bytes` are cached (reserved
    /// and not allocated) or none is idle. Returns the bytes given back. Stops at the first segment that the driver
    /// does not take. Not to be called while a stream of the context captures.
    pub fn trim<B: Backing>(&self, backing: &B, keep_cached_bytes: u64) -> u64 {
        let mut released_bytes = 0;
        let mut state = self.lock();
        self.drain(&mut state);
        self.fold(&mut state, lane::current());
        loop {
            let stats = &state.stats;
            let cached_bytes = stats.reserved_bytes.current - stats.allocated_bytes.current;
            let Some(index) = state
                .segments
                .longest_idle()
                .filter(|_| cached_bytes > keep_cached_bytes)
            else {
                return released_bytes
                    + backing.pages().map_or(0, |pages| {
                        self.trim_mapped(state, backing, pages, keep_cached_bytes)
                    });
            };
            state = match self.release_segment(state, backing, index) {
                Outside::Back(state, Ok(bytes)) => {
                    released_bytes += bytes;
                    state
                }
                Outside::Back(_, Err(_)) | Outside::Forgotten(_) => return released_bytes,
            };
        }
    }
}
