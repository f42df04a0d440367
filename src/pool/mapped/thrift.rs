//! What mapping has cost so far, and what the pool does about it.
//!
//! # The bill
//! A driver call costs by the handle: to create and map one about as much for 2 MiB as for 64 MiB, to move one over half as much
//! again. Small handles and little slack keep reserved memory low and cost most. So the pool holds its bill against that of the
//! plainest pool there is, which makes what it reserves of handles of 20 MiB and moves none (PyTorch's expandable segments). While
//! it is well below, new handles are small and handles are moved early; as it comes near, handles become larger, and more
//! is reserved before any is moved.

use super::super::size::{MIB, SEGMENT_GRANULE_BYTES};
use super::super::state::State;

/// The size of the handles that the bill is held against.
const PLAIN_HANDLE_BYTES: u64 = 20 * MIB;
/// Handles that any pool may make, however little it holds.
const FREE_HANDLES: u64 = 16;
/// A long run may move a handle now and then, whatever it did at its start: one for so many allocations.
const ALLOCATIONS_A_HANDLE: u64 = 16_384;
/// Weights of the two kinds of work.
const CREATED: u64 = 5;
const MOVED: u64 = 8;

/// The largest new handle while the bill is low: this, or a share of what is live. A handle is of use elsewhere only when all of
/// it is free, and large ones seldom are.
const FINE_HANDLE_BYTES: u64 = 64 * MIB;
const FINE_HANDLE_SHARE: u64 = 256;
/// No new handle for large requests is more than this share of what is live, or this, however roomy the slack: where little is
/// live, one large handle that is free in part is much.
const HANDLE_SHARE: u64 = 16;
const ANY_HANDLE_BYTES: u64 = 6 * MIB;

/// Handles made and moved.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Bill {
    pub created: u64,
    pub moved: u64,
}

impl Bill {
    /// In percent of what the plainest pool would have paid.
    fn percent(self, most_reserved_bytes: u64, allocations: u64) -> u64 {
        let plain = (most_reserved_bytes / PLAIN_HANDLE_BYTES).max(FREE_HANDLES);
        let allowed = CREATED * (plain + allocations / ALLOCATIONS_A_HANDLE);
        100 * (CREATED * self.created + MOVED * self.moved) / allowed
    }
}

impl State {
    fn bill_percent(&self) -> u64 {
        let reserved = &self.stats.reserved_bytes;
        self.mapped.bill.percent(reserved.peak, self.sequence)
    }

    /// The largest that a new handle is made when so much is live: at first, and where the slack has room for more.
    pub(super) fn largest_new_bytes(&self, live_bytes: u64) -> (u64, u64) {
        let fine_bytes = (live_bytes / FINE_HANDLE_SHARE).max(FINE_HANDLE_BYTES);
        let bytes = match self.bill_percent() {
            0..50 => fine_bytes,
            _ => fine_bytes / 2 * 3,
        };
        let most_bytes = (live_bytes / HANDLE_SHARE).max(ANY_HANDLE_BYTES);
        let whole = |bytes: u64| bytes / SEGMENT_GRANULE_BYTES * SEGMENT_GRANULE_BYTES;
        (whole(bytes.min(most_bytes)), whole(most_bytes))
    }

    /// The slack that the settings give, or more of it when the bill is high.
    pub(super) fn thrifty_slack_percent(&self, percent: u32) -> u32 {
        match self.bill_percent() {
            0..80 => percent,
            80..110 => percent.saturating_mul(5) / 2,
            _ => percent.saturating_mul(4),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bill_is_held_against_plain_handles() {
        let bill = Bill {
            created: 50,
            moved: 25,
        };
        let reserved_bytes = 100 * PLAIN_HANDLE_BYTES;
        assert_eq!(bill.percent(reserved_bytes, 0), 90);
        // The same work for a tenth of the memory, and for next to none.
        assert_eq!(bill.percent(reserved_bytes / 5, 0), 450);
        assert_eq!(bill.percent(0, 0), bill.percent(16 * PLAIN_HANDLE_BYTES, 0));
        // A long run works its debt off.
        assert_eq!(bill.percent(reserved_bytes, 800 * ALLOCATIONS_A_HANDLE), 10);
    }
}
