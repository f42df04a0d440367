//! Which scrubs are joined: waited for by all later work.
//!
//! # Numbering
//! A block's ticket is the backing's number plus one, so that 0 is "no scrub": always joined.
//!
//! # A scrub is a barrier too
//! The backing starts a scrub after all work submitted earlier, and joined work runs after the scrub. So a join also
//! fences every epoch that was closed when the scrub was started; `begun` remembers which that is.

use std::collections::VecDeque;

use super::ScrubTicket;

/// Scrubs remembered with the epoch they fence. Forgetting one costs a barrier later, nothing else.
const REMEMBERED: usize = 64;

#[derive(Debug)]
pub(super) struct Tickets {
    issued: u64,
    joined: u64,
    begun: VecDeque<(u64, u64)>,
}

impl Tickets {
    pub fn new() -> Self {
        Tickets {
            issued: 0,
            joined: 0,
            begun: VecDeque::with_capacity(REMEMBERED),
        }
    }

    /// Bytes of host memory.
    pub fn host_bytes(&self) -> usize {
        self.begun.capacity() * size_of::<(u64, u64)>()
    }

    /// Latest scrub started.
    pub fn issued(&self) -> u64 {
        self.issued
    }

    #[inline]
    pub fn is_joined(&self, ticket: u64) -> bool {
        ticket <= self.joined
    }

    /// A scrub was started after epoch `closed` closed. Returns its number for the blocks.
    pub fn begin(&mut self, ticket: ScrubTicket, closed: u64) -> u64 {
        let ticket = ticket.0.saturating_add(1);
        self.issued = self.issued.max(ticket);
        if self.begun.len() == REMEMBERED {
            self.begun.pop_front();
        }
        let at = self.begun.partition_point(|&(other, _)| other <= ticket);
        self.begun.insert(at, (ticket, closed));
        ticket
    }

    /// The backing's own number.
    pub fn as_backing_counts(ticket: u64) -> ScrubTicket {
        ScrubTicket(ticket.saturating_sub(1))
    }

    /// All later work is behind `ticket` and every earlier one. Returns the epoch that is fenced by that, if any.
    pub fn join(&mut self, ticket: u64) -> Option<u64> {
        self.joined = self.joined.max(ticket);
        let mut fenced = None;
        while let Some(&(begun, closed)) = self.begun.front() {
            if begun > self.joined {
                break;
            }
            fenced = fenced.max(Some(closed));
            self.begun.pop_front();
        }
        fenced
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_join_covers_earlier_scrubs_and_the_epochs_closed_before_them() {
        let mut tickets = Tickets::new();
        assert!(tickets.is_joined(0));
        let first = tickets.begin(ScrubTicket(0), 3);
        let second = tickets.begin(ScrubTicket(1), 5);
        let third = tickets.begin(ScrubTicket(2), 9);
        assert!(!tickets.is_joined(first));
        assert_eq!(tickets.join(second), Some(5));
        assert!(tickets.is_joined(first) && tickets.is_joined(second) && !tickets.is_joined(third));
        assert_eq!(tickets.join(second), None);
        assert_eq!(Tickets::as_backing_counts(third), ScrubTicket(2));
        assert_eq!(tickets.join(tickets.issued()), Some(9));
    }
}
