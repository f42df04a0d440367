//! Memory taken ahead of need (`CUSHION_PREALLOCATE`).

use super::arena::{Entry, Past};
use super::facade::{Outside, Pool};
use super::segments::Segment;
use super::size::{LARGEST_SEGMENT_BYTES, SEGMENT_GRANULE_BYTES};
use super::{Backing, BackingError, Range, Refusal, SegmentKind};

impl Pool {
    /// Takes [`super::Settings::preallocate_bytes`] from the backing, for requests above 1 MiB: one segment, or several
    /// below `max_split_size`. Whole, idle, charged to the budget, and given back by trims like any other. Returns the
    /// bytes taken.
    ///
    /// # Errors
    /// What the limit or the driver answered; what was taken before stays.
    pub fn preallocate<B: Backing>(&self, backing: &B) -> Result<u64, Refusal> {
        let mut left_bytes = self
            .settings
            .preallocate_bytes
            .next_multiple_of(SEGMENT_GRANULE_BYTES);
        let most_bytes = match self.settings.max_split_size_bytes {
            // A free block of an ordinary segment is never oversize.
            Some(limit) => (limit - 1) / SEGMENT_GRANULE_BYTES * SEGMENT_GRANULE_BYTES,
            None => u64::MAX,
        }
        .min(LARGEST_SEGMENT_BYTES);
        let mut taken_bytes = 0;
        while left_bytes > 0 && most_bytes > 0 {
            let size_bytes = left_bytes.min(most_bytes);
            self.take_ahead(backing, size_bytes)?;
            left_bytes -= size_bytes;
            taken_bytes += size_bytes;
        }
        Ok(taken_bytes)
    }

    fn take_ahead<B: Backing>(&self, backing: &B, size_bytes: u64) -> Result<(), Refusal> {
        self.budget
            .charge(size_bytes)
            .map_err(|over| Refusal::Limit {
                requested_bytes: size_bytes,
                used_bytes: over.used_bytes,
                limit_bytes: over.limit_bytes,
            })?;
        let (state, address) = match self.outside(self.lock(), || backing.reserve(size_bytes)) {
            Outside::Back(state, Ok(address)) => (state, address),
            Outside::Forgotten(_) => {
                self.budget.uncharge(size_bytes);
                return Err(Refusal::Forgotten);
            }
            Outside::Back(_, Err(error)) => {
                self.budget.uncharge(size_bytes);
                return Err(match error {
                    BackingError::Failed(code) => Refusal::Failed(code),
                    _ => Refusal::Driver,
                });
            }
        };
        let range = Range {
            address,
            size_bytes,
        };
        if !Entry::can_hold(range) {
            return Err(self.decline(state, backing, range));
        }
        let mut state = state;
        let granule_bits = self.settings.alignment_bytes.trailing_zeros();
        let dirt = self.settings.scrub.map(|byte| byte != 0);
        let mut segment = Segment::new(range, SegmentKind::Large, granule_bits, dirt);
        segment.ahead = true;
        let block = state.add_segment(segment);
        state.put(block, Past::FRESH);
        state.stats.preallocated_bytes += size_bytes;
        Ok(())
    }
}
