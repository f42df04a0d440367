//! Making a cached block fit for its next user: behind a barrier (FENCED) and clean (CLEAN).
//!
//! # What covers what
//! A scrub starts after all earlier work and is joined by all later work, so it is a barrier as well. A barrier orders
//! later work behind everything submitted earlier, scrubs included. So one of the two, or a join alone, is enough.

use crate::lane;
use crate::sync::MutexGuard;

use super::arena::{Entry, Past};
use super::facade::{Outside, Pool};
use super::state::State;
use super::tickets::Tickets;
use super::{Backing, BackingError};

/// What came of making a block ready. The block stays in the caller's hands.
pub(super) enum Made<'a> {
    /// It can be handed out.
    Ready(MutexGuard<'a, State>),
    /// Not possible now; the block's past as it is after what was done.
    Unavailable(MutexGuard<'a, State>, Past),
    /// The driver failed with this code.
    Failed(MutexGuard<'a, State>, Past, i32),
    /// The pool was forgotten.
    Forgotten,
}

impl Pool {
    /// Does what a block in the caller's hands needs before it is handed out. `fresh`: the block was never used, so
    /// that a fill that cannot be made now (poison while capturing) may be left out. `capturing`: no call of the
    /// backing is allowed.
    pub(super) fn make_ready<'a, B: Backing>(
        &'a self,
        state: MutexGuard<'a, State>,
        backing: &B,
        block: u32,
        past: Past,
        (fresh, capturing): (bool, bool),
    ) -> Made<'a> {
        let entry = &state.blocks[block];
        if state.is_ready(entry, past, entry.size_bytes(), backing.sole_stream()) {
            return Made::Ready(state);
        }
        if capturing {
            return if fresh {
                Made::Ready(state)
            } else {
                Made::Unavailable(state, past)
            };
        }
        let all_dirt = |byte| (state.dirty_ranges(block, u64::MAX, usize::MAX), byte);
        let dirty = self.settings.scrub.map(all_dirt);
        let dirty = dirty.filter(|(ranges, _)| !ranges.is_empty());
        if let Some((ranges, byte)) = dirty {
            return self.scrub(state, backing, block, past, fresh, (ranges, byte));
        }
        if !state.epochs.is_fenced(past.epoch) && !backing.sole_stream() {
            return self.fence(state, backing, past);
        }
        self.join(state, backing, past)
    }

    /// Puts everything that was freed and scrubbed up to now behind a barrier, by the cheaper way.
    pub(super) fn settle_all<'a, B: Backing>(
        &'a self,
        state: MutexGuard<'a, State>,
        backing: &B,
    ) -> Made<'a> {
        let ticket = state.tickets.issued();
        let past = Past { epoch: 0, ticket };
        // A fence would have later work wait for all that was submitted since, too.
        if backing.sole_stream() || state.epochs.unfenced_bytes == 0 {
            return self.join(state, backing, past);
        }
        self.fence(state, backing, past)
    }

    /// The same, for the sake of what is about to be submitted: later work that needs this memory then does not wait for that. Only if
    /// anything was freed since it was done last; what cannot be fenced now is when it is needed.
    pub fn fence_freed<B: Backing>(&self, backing: &B) {
        let mut state = self.lock();
        self.fold(&mut state, lane::current());
        let allocations = &state.stats.allocations;
        let frees = allocations.total - allocations.current;
        let past = Past {
            epoch: 0,
            ticket: state.tickets.issued(),
        };
        if backing.sole_stream()
            || state.settled_frees == frees && state.tickets.is_joined(past.ticket)
        {
            return;
        }
        // What is kept in front is in no list of what is to be fenced.
        let made = match self.has_front() {
            true => self.fence(state, backing, past),
            false => self.settle_all(state, backing),
        };
        if let Made::Ready(mut state) = made {
            state.settled_frees = frees;
        }
    }

    /// Puts everything freed up to now behind a barrier. `past` is that of the block in the caller's hands.
    fn fence<'a, B: Backing>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        backing: &B,
        past: Past,
    ) -> Made<'a> {
        let mark = state.mark();
        match self.outside(state, || backing.fence()) {
            Outside::Forgotten(_) => Made::Forgotten,
            Outside::Back(mut state, Ok(fence)) => {
                state.stats.fences += 1;
                state.drained(mark);
                state.fenced(mark, fence);
                Made::Ready(state)
            }
            Outside::Back(state, Err(error)) => refused(state, past, error),
        }
    }

    /// Has all later work wait for the scrubs of a block that are still on their way.
    pub(super) fn join<'a, B: Backing>(
        &'a self,
        state: MutexGuard<'a, State>,
        backing: &B,
        past: Past,
    ) -> Made<'a> {
        if state.tickets.is_joined(past.ticket) {
            return Made::Ready(state);
        }
        let ticket = Tickets::as_backing_counts(past.ticket);
        match self.outside(state, || backing.join_scrub(ticket)) {
            Outside::Forgotten(_) => Made::Forgotten,
            Outside::Back(mut state, Ok(())) => {
                state.join(past.ticket);
                Made::Ready(state)
            }
            Outside::Back(state, Err(error)) => refused(state, past, error),
        }
    }
}

fn refused(state: MutexGuard<'_, State>, past: Past, error: BackingError) -> Made<'_> {
    match error {
        BackingError::Failed(code) => Made::Failed(state, past, code),
        BackingError::Unavailable | BackingError::OutOfMemory => Made::Unavailable(state, past),
    }
}

impl State {
    /// Whether [`Pool::settle_all`] would change anything.
    pub fn is_all_settled(&self, is_ordered: bool) -> bool {
        let is_fenced = is_ordered || self.epochs.unfenced_bytes == 0;
        is_fenced && self.tickets.is_joined(self.tickets.issued())
    }

    /// Whether later work is behind the last use of such a block.
    #[inline]
    pub fn is_behind_barrier(&self, past: Past, is_ordered: bool) -> bool {
        (is_ordered || self.epochs.is_fenced(past.epoch)) && self.tickets.is_joined(past.ticket)
    }

    /// Whether the first `size_bytes` of a free block could be handed out without a call of the backing.
    #[inline]
    pub fn is_ready(&self, entry: &Entry, past: Past, size_bytes: u64, sole_stream: bool) -> bool {
        (sole_stream || self.epochs.is_fenced(past.epoch))
            && self.tickets.is_joined(past.ticket)
            && !self.is_dirty(entry, size_bytes)
    }

    /// The past of a free block that could be handed out without a call of the backing.
    #[inline]
    pub fn past_if_ready(&self, block: u32, size_bytes: u64, sole_stream: bool) -> Option<Past> {
        let entry = &self.blocks[block];
        let past = entry.free_past()?;
        self.is_ready(entry, past, size_bytes, sole_stream)
            .then_some(past)
    }
}
