//! Sizes: units, rounding, and the bins that free blocks are sorted into.

/// 2^20 bytes.
pub(super) const MIB: u64 = 1 << 20;
/// Least block, and the unit of sizes in the small pool: the driver's own least alignment.
pub(super) const GRANULE_BYTES: u64 = 512;
/// Largest request that the small pool serves.
pub(super) const SMALL_LIMIT_BYTES: u64 = MIB;
/// Segments of the large pool are multiples of this: the driver takes physical memory in pages of this size.
pub(super) const SEGMENT_GRANULE_BYTES: u64 = 2 * MIB;
/// No segment is larger: blocks count their granules in 32 bits (`entry`). A larger one, which no driver gives, would go back to it.
pub(super) const LARGEST_SEGMENT_BYTES: u64 = (1 << 41) - SEGMENT_GRANULE_BYTES;
/// Requests above this are refused unseen: no device has an address space that large, and sums stay far from overflow.
pub(super) const LARGEST_REQUEST_BYTES: u64 = 1 << 56;

/// Bins per octave. Up to 16 granules each size has a bin of its own; above, sizes in a bin differ by at most 1/16.
const BINS_PER_OCTAVE: u32 = 16;
const SUB_BITS: u32 = BINS_PER_OCTAVE.trailing_zeros();
/// Number of bins: enough for every size up to [`LARGEST_SEGMENT_BYTES`]. Requests above have a bin that no block is in.
pub(super) const BIN_COUNT: usize = 32 * BINS_PER_OCTAVE as usize;

/// The bin of a block or request of `size_bytes` (at least one granule).
#[inline]
pub(super) fn bin_of(size_bytes: u64) -> usize {
    let granules = size_bytes / GRANULE_BYTES;
    let octave = octave_above(granules, SUB_BITS);
    ((octave << SUB_BITS) + (granules >> octave)) as usize
}

/// How many octaves a number is above the first one of `2^bits` numbers and more; 0 for what is below that, too. Without a branch,
/// since sizes come as they like.
#[inline]
fn octave_above(number: u64, bits: u32) -> u64 {
    u64::from(63 - bits - (number | 1 << bits).leading_zeros())
}

/// Sizes up to this one are rounded to classes.
pub(super) const CLASSED_LIMIT_BYTES: u64 = 512 << 10;
/// Classes per octave. Up to 16 granules each size is a class of its own.
const CLASSES_PER_OCTAVE: u64 = 8;
/// Number of classes.
pub(super) const CLASS_COUNT: usize = 64;

/// What a request of the small pool is rounded to: an eighth of its octave, up to [`CLASSED_LIMIT_BYTES`].
///
/// # Decision: small sizes in classes
/// Programs with many sizes get blocks back from in front of the lock only if they ask for the same size again. With eight
/// sizes an octave up to 512 KiB, and bins as deep, no recorded trace reserves more than with multiples of 512 bytes: what is
/// that small is little of a program's memory (`scripts/replay`); up to 1 MiB they would cost `streams` two points. Where memory
/// is short, a request gets its exact size ([`exact`]).
#[inline]
pub(super) fn classed(size_bytes: u64) -> u64 {
    if size_bytes > CLASSED_LIMIT_BYTES {
        return exact(size_bytes);
    }
    let octave_bytes = 1 << (63 - (size_bytes.max(2) - 1).leading_zeros());
    let unit_bytes = (octave_bytes / CLASSES_PER_OCTAVE).max(GRANULE_BYTES);
    size_bytes.max(1).next_multiple_of(unit_bytes)
}

/// The least that a request of the small pool gets.
#[inline]
pub(super) fn exact(size_bytes: u64) -> u64 {
    size_bytes.max(1).next_multiple_of(GRANULE_BYTES)
}

/// The class of a size up to [`CLASSED_LIMIT_BYTES`], below [`CLASS_COUNT`].
#[inline]
pub(super) fn class_of(size_bytes: u64) -> usize {
    debug_assert!(size_bytes <= CLASSED_LIMIT_BYTES);
    let last = (size_bytes.max(1) - 1) / GRANULE_BYTES;
    let octave = octave_above(last, CLASSES_PER_OCTAVE.trailing_zeros());
    (octave * CLASSES_PER_OCTAVE + (last >> octave)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_one_size_up_to_its_limit() {
        let mut sizes = vec![0; CLASS_COUNT];
        for size_bytes in 1..=CLASSED_LIMIT_BYTES {
            let rounded = classed(size_bytes);
            assert!(rounded >= size_bytes && rounded.is_multiple_of(GRANULE_BYTES));
            assert!((rounded - size_bytes) * 8 <= size_bytes.max(8 * GRANULE_BYTES));
            let known = &mut sizes[class_of(size_bytes)];
            assert!(*known == 0 || *known == rounded, "{size_bytes}");
            *known = rounded;
            assert_eq!(
                (classed(rounded), class_of(rounded)),
                (rounded, class_of(size_bytes))
            );
        }
        assert!(sizes.iter().all(|&size| size > 0));
        for size_bytes in CLASSED_LIMIT_BYTES + 1..=SMALL_LIMIT_BYTES {
            assert_eq!(classed(size_bytes), exact(size_bytes));
        }
    }

    #[test]
    fn bins_rise_with_size_and_stay_narrow() {
        assert_eq!(bin_of(512), 1);
        assert_eq!(bin_of(15 * 512), 15);
        assert_eq!(bin_of(16 * 512), 16);
        assert_eq!(bin_of(31 * 512), 31);
        assert_eq!(bin_of(32 * 512), 32);
        assert_eq!(bin_of(33 * 512), 32);
        assert_eq!(bin_of(34 * 512), 33);
        assert!(bin_of(LARGEST_SEGMENT_BYTES) < BIN_COUNT);
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
