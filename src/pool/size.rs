//! Sizes: units, rounding, and the bins that free blocks are sorted into.

/// 2^20 bytes.
pub(super) const MIB: u64 = 1 << 20;
/// Least block, and the unit of sizes in the small pool: the driver's own least alignment.
pub(super) const GRANULE_BYTES: u64 = 512;
/// Largest request that the small pool serves.
pub(super) const SMALL_LIMIT_BYTES: u64 = MIB;
/// Segments of the large pool are multiples of this: the driver takes physical memory in pages of this size.
pub(super) const SEGMENT_GRANULE_BYTES: u64 = 2 * MIB;
/// Requests above this are refused unseen: no device has an address space that large, and sums stay far from overflow.
pub(super) const LARGEST_REQUEST_BYTES: u64 = 1 << 56;

/// Bins per octave. Up to 16 granules each size has a bin of its own; above, sizes in a bin differ by at most 1/16.
const BINS_PER_OCTAVE: u32 = 16;
const SUB_BITS: u32 = BINS_PER_OCTAVE.trailing_zeros();
/// Number of bins: enough for every size up to twice [`LARGEST_REQUEST_BYTES`].
pub(super) const BIN_COUNT: usize = 48 * BINS_PER_OCTAVE as usize;

/// The bin of a block or request of `size_bytes` (at least one granule).
#[inline]
pub(super) fn bin_of(size_bytes: u64) -> usize {
    let granules = size_bytes / GRANULE_BYTES;
    if granules < u64::from(BINS_PER_OCTAVE) {
        return granules as usize;
    }
    let octave = 63 - granules.leading_zeros();
    let sub = (granules >> (octave - SUB_BITS)) as u32 & (BINS_PER_OCTAVE - 1);
    ((octave - SUB_BITS + 1) * BINS_PER_OCTAVE + sub) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_rise_with_size_and_stay_narrow() {
        assert_eq!(bin_of(512), 1);
        assert_eq!(bin_of(15 * 512), 15);
        assert_eq!(bin_of(16 * 512), 16);
        assert_eq!(bin_of(31 * 512), 31);
        assert_eq!(bin_of(32 * 512), 32);
        assert_eq!(bin_of(33 * 512), 32);
        assert_eq!(bin_of(34 * 512), 33);
        assert!(bin_of(2 * LARGEST_REQUEST_BYTES) < BIN_COUNT);
        let mut last = 0;
        let mut lowest = 512;
        for granules in 1..200_000u64 {
            let bin = bin_of(granules * 512);
            assert!(bin == last || bin == last + 1);
            if bin != last {
                (last, lowest) = (bin, granules * 512);
            }
            assert!((granules * 512 - lowest) * 16 <= lowest);
        }
    }
}
