//! The figures of a pool, kept as things happen (invariant SUMS).

use super::{Gauge, PoolStats};

impl Gauge {
    /// Adds to what is current.
    #[inline]
    pub(super) fn rise(&mut self, by: u64) {
        self.current += by;
        self.total += by;
        self.peak = self.peak.max(self.current);
    }

    /// Takes from what is current.
    #[inline]
    pub(super) fn fall(&mut self, by: u64) {
        debug_assert!(self.current >= by);
        self.current -= by;
    }

    /// Sets what is current.
    #[inline]
    pub(super) fn move_to(&mut self, to: u64) {
        self.total += to.saturating_sub(self.current);
        self.current = to;
        self.peak = self.peak.max(to);
    }
}

impl PoolStats {
    /// Nothing is held any more: the context is gone. Peaks, totals and counts stay.
    pub(super) fn forget(&mut self) {
        for gauge in [
            &mut self.requested_bytes,
            &mut self.allocated_bytes,
            &mut self.active_bytes,
            &mut self.reserved_bytes,
            &mut self.allocations,
            &mut self.segments,
        ] {
            gauge.current = 0;
        }
    }
}
