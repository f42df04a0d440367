//! What a barrier, a wait or a join does to everything that was freed before it.

use super::arena::Past;
use super::state::State;

/// A moment in the order of frees and scrubs, from [`super::Pool::mark`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    epoch: u64,
    ticket: u64,
    generation: u64,
}

impl Mark {
    /// The epoch that closed at that moment.
    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// What was freed and scrubbed before it, if the pool was not forgotten since.
    pub(super) fn covers(&self, generation: u64) -> Option<Past> {
        (self.generation == generation).then_some(Past {
            epoch: self.epoch,
            ticket: self.ticket,
        })
    }
}

impl State {
    /// Closes the current epoch: a wait or barrier that begins after this covers everything freed up to now.
    pub fn mark(&mut self) -> Mark {
        Mark {
            epoch: self.epochs.close(),
            ticket: self.tickets.issued(),
            generation: self.generation,
        }
    }

    /// A wait or barrier that began after `mark` was taken is in place.
    pub fn drained(&mut self, mark: Mark) {
        if mark.generation != self.generation {
            return;
        }
        self.epochs.fence(mark.epoch);
        self.join(mark.ticket);
        self.settle_active();
    }

    /// Scrub `ticket` is joined.
    pub fn join(&mut self, ticket: u64) {
        if let Some(epoch) = self.tickets.join(ticket) {
            self.epochs.fence(epoch);
            self.settle_active();
        }
    }
}
