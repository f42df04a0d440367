//! Handles that nothing was allocated from for long.
//!
//! # How long that is
//! A free block knows the epoch of its last free and no time. So a tick closes the epoch, and the clock remembers which one:
//! what was freed up to it was free at that tick. Fresh memory is as old as its handle's place.

use crate::sync::MutexGuard;
use std::collections::VecDeque;

use super::super::facade::Pool;
use super::super::state::State;
use super::super::{Backing, Pages};
use super::sources::Source;

/// Ticks remembered. Past that every second one is forgotten, and memory counts as younger than it is.
const REMEMBERED: usize = 4096;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Clock {
    /// A tick, and the epoch that it closed; oldest first.
    ticks: VecDeque<(u64, u64)>,
}

impl Clock {
    fn note(&mut self, tick: u64, epoch: u64) {
        if self.ticks.len() == REMEMBERED {
            let mut at = 0;
            self.ticks.retain(|_| {
                at += 1;
                at % 2 == 1
            });
        }
        self.ticks.push_back((tick, epoch));
    }

    /// What was freed up to this epoch was free for at least `ticks` ticks at tick `now`.
    fn epoch_before(&self, now: u64, ticks: u64) -> Option<u64> {
        let old = self
            .ticks
            .partition_point(|&(tick, _)| now.saturating_sub(tick) >= ticks);
        Some(self.ticks.get(old.checked_sub(1)?)?.1)
    }

    pub fn host_bytes(&self) -> usize {
        self.ticks.capacity() * size_of::<(u64, u64)>()
    }
}

impl State {
    /// A tick of a clock that the pool does not have.
    pub(in crate::pool) fn tick(&mut self) {
        self.segments.ticks += 1;
        if !self.mapped.handles.is_empty() {
            let closed = self.epochs.close();
            self.mapped.clock.note(self.segments.ticks, closed);
        }
    }

    /// The handle free as a whole for longest, if nothing was allocated from it for more than `ticks` whole ticks.
    pub(in crate::pool) fn idle_handle_for(&self, ticks: u64) -> Option<u64> {
        self.idle_source(ticks).map(|source| source.address)
    }

    fn idle_source(&self, ticks: u64) -> Option<Source> {
        let now = self.segments.ticks;
        let epoch = self.mapped.clock.epoch_before(now, ticks)?;
        let is_idle = |source: &Source| {
            source.past.epoch <= epoch && now.saturating_sub(source.handle.since_tick) > ticks
        };
        let sources = self.sources(&[]).into_iter().filter(is_idle);
        sources.min_by_key(|source| (source.past.epoch, source.address))
    }
}

impl Pool {
    /// Gives one handle back that was idle for more than `ticks` ticks. Returns its bytes; 0 if there is none, or it cannot go
    /// now.
    pub(in crate::pool) fn trim_idle_handle<'a, B: Backing>(
        &'a self,
        state: MutexGuard<'a, State>,
        backing: &B,
        pages: &dyn Pages,
        ticks: u64,
    ) -> u64 {
        let choose = |state: &State| state.idle_source(ticks).into_iter().collect();
        let (state, bytes) = self.release_handles(state, backing, pages, choose);
        if let Some(mut state) = state {
            state.stats.idle_released_bytes += bytes;
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_freed_before_a_tick_is_as_old_as_that() {
        let mut clock = Clock::default();
        assert_eq!(clock.epoch_before(100, 1), None);
        for tick in 1..=3 {
            clock.note(tick, 10 * tick);
        }
        assert_eq!(clock.epoch_before(3, 0), Some(30));
        assert_eq!(clock.epoch_before(3, 1), Some(20));
        assert_eq!(clock.epoch_before(3, 2), Some(10));
        assert_eq!(clock.epoch_before(3, 3), None);
        for tick in 4..20_000 {
            clock.note(tick, 10 * tick);
        }
        assert!(clock.ticks.len() <= REMEMBERED);
        let old = clock
            .epoch_before(19_999, 10_000)
            .expect("one from long ago");
        assert!(
            old <= 10 * 9_999,
            "never counted as older than it can be: {old}"
        );
    }
}
