//! What a pool is told once, at its start.

use super::size::{classed, exact, GRANULE_BYTES, MIB, SEGMENT_GRANULE_BYTES, SMALL_LIMIT_BYTES};

/// How one pool behaves. [`Settings::default`] is the faithful mode without limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Blocks of this size and above are *oversize*: never split, never given to a much smaller request. `None`: no
    /// block is. At least 1 MiB (smaller values count as 1 MiB, since the small pool always splits).
    pub max_split_size_bytes: Option<u64>,
    /// Alignment of blocks above 1 MiB, and so the granule of their sizes: a power of two from 512 B to 2 MiB (other
    /// values are rounded up and clamped). 2 MiB is what the driver does; 64 KiB is what RDMA and dma-buf users need
    /// (hazard 20). Smaller blocks are always aligned to 512 B.
    pub alignment_bytes: u64,
    /// Byte that a block is filled with before it is handed out. `Some(0)`: as the driver does, where fresh segments
    /// are clean already (hazard 19). Any other value poisons, fresh memory too, to find programs that count on
    /// zeros. `None`: blocks keep what their last user wrote.
    pub scrub: Option<u8>,
    /// Before a new segment takes `reserved` past this many percent above the highest `allocated` so far, whole free
    /// segments go back to the driver, the one idle for longest first. 0 keeps the pool tightest; each release waits
    /// for the device.
    pub growth_slack_percent: u32,
    /// The same for mapped memory: before a new handle takes `reserved` past this many percent above the highest
    /// `allocated`, handles that are free as a whole are moved to where memory is missing. Up to four times as much when
    /// many were moved before.
    pub mapped_slack_percent: u32,
    /// Before a new segment takes the process past this share of its limit (of the device, if it has none), whole free
    /// segments go back to the driver. `None`: only the limit itself counts.
    pub gc_threshold_percent: Option<u32>,
    /// Taken by [`super::Pool::preallocate`], and exempt from the slack. 0: nothing.
    pub preallocate_bytes: u64,
    /// Size of the segments that serve requests up to 1 MiB.
    pub small_segment_bytes: u64,
    /// Size of the segments that serve requests above 1 MiB and up to half of this, as long as the slack allows. Larger
    /// requests get segments of their own size.
    pub large_segment_bytes: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            max_split_size_bytes: None,
            alignment_bytes: 2 * MIB,
            scrub: Some(0),
            growth_slack_percent: 3,
            mapped_slack_percent: 2,
            gc_threshold_percent: None,
            preallocate_bytes: 0,
            small_segment_bytes: 2 * MIB,
            large_segment_bytes: 20 * MIB,
        }
    }
}

impl Settings {
    /// What a request of `size_bytes` gets. Nothing sensible above 2^56.
    #[inline]
    pub(super) fn rounded(&self, size_bytes: u64) -> u64 {
        // A request of 0 never arrives (the driver refuses it); it would count as one granule.
        if size_bytes <= SMALL_LIMIT_BYTES {
            return classed(size_bytes);
        }
        let granule_bytes = self.alignment_bytes;
        size_bytes.wrapping_add(granule_bytes - 1) & !(granule_bytes - 1)
    }

    /// What it gets where memory is short.
    pub(super) fn tight(&self, size_bytes: u64) -> u64 {
        if size_bytes <= SMALL_LIMIT_BYTES {
            return exact(size_bytes);
        }
        self.rounded(size_bytes)
    }

    /// The same with every value in its range, so that no other code has to doubt one.
    pub(super) fn in_range(mut self) -> Self {
        self.max_split_size_bytes = self.max_split_size_bytes.map(|bytes| bytes.max(MIB));
        self.alignment_bytes = self
            .alignment_bytes
            .clamp(GRANULE_BYTES, SEGMENT_GRANULE_BYTES)
            .next_power_of_two();
        let whole = |bytes: u64, least: u64| {
            bytes
                .clamp(least, 1 << 40)
                .next_multiple_of(SEGMENT_GRANULE_BYTES)
        };
        self.small_segment_bytes = whole(self.small_segment_bytes, 2 * MIB);
        self.large_segment_bytes = whole(self.large_segment_bytes, 2 * MIB);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::super::size::LARGEST_REQUEST_BYTES;
    use super::*;

    #[test]
    fn requests_are_rounded_to_their_granule() {
        let settings = Settings {
            alignment_bytes: 2 * MIB,
            ..Settings::default()
        };
        for (size_bytes, rounded) in [
            (0, 512),
            (1, 512),
            (512, 512),
            (513, 1024),
            (8 << 10, 8 << 10),
            ((8 << 10) + 1, 9 << 10),
            (300 << 10, 320 << 10),
            ((512 << 10) + 1, (512 << 10) + 512),
            (MIB, MIB),
            (MIB + 1, 2 * MIB),
            (LARGEST_REQUEST_BYTES, LARGEST_REQUEST_BYTES),
        ] {
            assert_eq!(settings.rounded(size_bytes), rounded);
            assert!(settings.tight(size_bytes) <= rounded);
        }
        assert_eq!(settings.tight(300 << 10), 300 << 10);
    }

    #[test]
    fn values_out_of_range_are_clamped() {
        let odd = Settings {
            max_split_size_bytes: Some(1),
            alignment_bytes: 3000,
            small_segment_bytes: 0,
            large_segment_bytes: u64::MAX,
            ..Settings::default()
        }
        .in_range();
        assert_eq!(odd.max_split_size_bytes, Some(MIB));
        assert_eq!(odd.alignment_bytes, 4096);
        assert_eq!(odd.small_segment_bytes, 2 * MIB);
        assert_eq!(odd.large_segment_bytes, 1 << 40);
        let huge = Settings {
            alignment_bytes: u64::MAX,
            ..odd
        }
        .in_range();
        assert_eq!(huge.alignment_bytes, 2 * MIB);
    }
}
