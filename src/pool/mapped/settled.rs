//! Memory that no queued work can touch any more, and the proof of it (SETTLED).
//!
//! # Decision: unmapping takes a proof
//! Unmapping does not wait for the device, and work that is still queued would fault later, in whatever call of the program
//! comes next. So [`Pages::unmap`] takes a [`Quiet`], which is made in this file and nowhere else: for memory that was just
//! taken out of the tables, and whose past is covered by a wait that *succeeded*. Those are the host's own
//! ([`Pool::wait`]), the program's ([`Pool::drained`]), and a barrier that is in place and was found to have passed
//! ([`Pool::poll`]). A call that failed proves nothing, and what it may have queued before it failed counts as submitted in
//! the epoch that is open when it returns ([`State::past_after_failure`]). Memory that cannot be proven quiet stays mapped.
//!
//! A segment that the driver took back proves nothing here: that its free waits for work of other contexts too is nowhere
//! written.

use crate::sync::MutexGuard;
use std::collections::VecDeque;

use super::super::arena::Past;
use super::super::barriers::Mark;
use super::super::facade::{Outside, Pool};
use super::super::state::State;
use super::super::{Backing, BackingError, Fence, Pages, Range};
use super::Handle;

/// Barriers remembered that were not found to have passed yet. Forgetting one costs a wait, nothing else.
const PENDING: usize = 32;

/// A whole mapping that no queued work can touch, and that is in the hands of one thread.
///
/// ```compile_fail
/// // Only the pool can say so.
/// let quiet = cushion::pool::Quiet { address: 0, size_bytes: 2 << 20 };
/// ```
#[derive(Debug, PartialEq, Eq)]
pub struct Quiet {
    address: u64,
    size_bytes: u64,
}

impl Quiet {
    /// Where it is mapped.
    pub fn range(&self) -> Range {
        Range {
            address: self.address,
            size_bytes: self.size_bytes,
        }
    }
}

/// What the host knows to have ended.
#[derive(Debug)]
pub(super) struct Settled {
    /// All work before the frees of these epochs, and these scrubs.
    ended: Past,
    /// Barriers in place, each with what it covers, oldest first.
    pending: VecDeque<(Fence, Past)>,
}

impl Settled {
    pub fn new() -> Self {
        Settled {
            ended: Past::FRESH,
            pending: VecDeque::new(),
        }
    }

    pub fn host_bytes(&self) -> usize {
        self.pending.capacity() * size_of::<(Fence, Past)>()
    }

    fn covers(&self, past: Past) -> bool {
        past.epoch <= self.ended.epoch && past.ticket <= self.ended.ticket
    }

    fn raise(&mut self, passed: Past) {
        self.ended = self.ended.joined_with(passed);
        let ended = self.ended;
        self.pending
            .retain(|(_, past)| past.epoch > ended.epoch || past.ticket > ended.ticket);
    }
}

impl State {
    /// Whether no work can touch memory with this past any more, as far as the host knows.
    pub(super) fn is_settled(&self, past: Past) -> bool {
        self.mapped.settled.covers(past)
    }

    /// The proof for a mapping with this past, which is in the caller's hands.
    pub(super) fn quiet(&self, address: u64, handle: Handle, past: Past) -> Option<Quiet> {
        self.is_settled(past).then_some(Quiet {
            address,
            size_bytes: handle.size_bytes,
        })
    }

    /// A wait on the host that began after `mark` was taken has ended well.
    fn settled(&mut self, mark: Mark) {
        if let Some(covered) = mark.covers(self.generation) {
            self.mapped.settled.raise(covered);
        }
    }

    /// A barrier that began after `mark` was taken is in place.
    pub(in crate::pool) fn fenced(&mut self, mark: Mark, fence: Fence) {
        let Some(covered) = mark.covers(self.generation) else {
            return;
        };
        if fence == Fence::UNWATCHED || self.mapped.handles.is_empty() {
            return;
        }
        let pending = &mut self.mapped.settled.pending;
        if pending.len() == PENDING {
            pending.pop_front();
        }
        pending.push_back((fence, covered));
    }

    /// The past of a block for which a call of the backing failed that may have queued work on it before.
    pub(in crate::pool) fn past_after_failure(&self, past: Past) -> Past {
        past.joined_with(Past {
            epoch: self.epochs.current(),
            ticket: 0,
        })
    }

    /// The program's own wait for everything, begun after `mark` was taken, has ended well.
    pub(in crate::pool) fn program_waited(&mut self, mark: Mark) {
        self.drained(mark);
        self.settled(mark);
    }
}

impl Pool {
    /// Waits on the host for all work: everything freed before is behind a barrier after, and settled.
    pub(in crate::pool) fn wait<'a, B: Backing>(
        &'a self,
        state: MutexGuard<'a, State>,
        backing: &B,
    ) -> Outside<'a, Result<(), BackingError>> {
        self.wait_by(state, || backing.synchronize())
    }

    /// The same for a trim.
    pub(super) fn wait_now<'a, B: Backing>(
        &'a self,
        state: MutexGuard<'a, State>,
        backing: &B,
    ) -> Outside<'a, Result<(), BackingError>> {
        self.wait_by(state, || backing.synchronize_now())
    }

    fn wait_by<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        wait: impl FnOnce() -> Result<(), BackingError>,
    ) -> Outside<'a, Result<(), BackingError>> {
        let mark = state.mark();
        let mut came = self.outside(state, wait);
        if let Outside::Back(state, Ok(())) = &mut came {
            state.drained(mark);
            state.settled(mark);
        }
        came
    }

    /// Asks, without waiting, whether barriers have passed on the device. Whether any has.
    pub(super) fn poll<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        pages: &dyn Pages,
    ) -> Outside<'a, bool> {
        // The newest one that has passed is all there is to know.
        let pending: Vec<(Fence, Past)> =
            state.mapped.settled.pending.iter().rev().copied().collect();
        let ask = || {
            pending
                .iter()
                .find(|(fence, _)| pages.has_passed(*fence))
                .map(|&(_, covered)| covered)
        };
        match self.outside(state, ask) {
            Outside::Back(mut state, passed) => {
                if let Some(covered) = passed {
                    state.mapped.settled.raise(covered);
                }
                Outside::Back(state, passed.is_some())
            }
            Outside::Forgotten(passed) => Outside::Forgotten(passed.is_some()),
        }
    }
}
