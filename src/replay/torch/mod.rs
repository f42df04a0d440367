//! PyTorch's caching allocator, re-implemented from the public description of its rules.
//!
//! Requests are rounded up to 512 B. Up to 1 MiB they are served by the small pool from segments of 2 MiB, larger ones
//! by the large pool: from segments of 20 MiB below 10 MiB, and from a segment of their own, rounded to 2 MiB, from
//! there on. A free block belongs to the stream of its segment; the smallest that fits is taken, of equals the one at
//! the lowest address. What is left is split off if it is at least 512 B (small pool) or more than 1 MiB (large pool).
//! Freed blocks join their free neighbours. Cached segments are given back only when the driver has no memory left.

mod blocks;
mod expandable;
mod segments;

pub(super) use expandable::Expandable;
pub(super) use segments::Torch;

/// Requests are multiples of this.
const GRANULE_BYTES: u64 = 512;
/// The most that the small pool serves.
const SMALL_LIMIT_BYTES: u64 = 1 << 20;
/// Segments of the small pool.
const SMALL_SEGMENT_BYTES: u64 = 2 << 20;
/// Segments of the large pool that are shared by requests below [`SHARED_LIMIT_BYTES`].
const LARGE_SEGMENT_BYTES: u64 = 20 << 20;
/// From here on a request gets a segment of its own.
const SHARED_LIMIT_BYTES: u64 = 10 << 20;

/// A request as it is handed out; None if it is larger than any address space.
fn rounded(bytes: u64) -> Option<u64> {
    bytes
        .max(1)
        .checked_next_multiple_of(GRANULE_BYTES)
        .filter(|b| *b < 1 << 56)
}

/// The segment that is made for a request of `bytes` (rounded).
fn segment_bytes(bytes: u64) -> u64 {
    if bytes <= SMALL_LIMIT_BYTES {
        SMALL_SEGMENT_BYTES
    } else if bytes < SHARED_LIMIT_BYTES {
        LARGE_SEGMENT_BYTES
    } else {
        bytes.next_multiple_of(SMALL_SEGMENT_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_follow_the_rules() {
        let mib = 1 << 20;
        assert_eq!(
            [rounded(1), rounded(512), rounded(513)],
            [Some(512), Some(512), Some(1024)]
        );
        assert_eq!(rounded(u64::MAX), None);
        assert_eq!(segment_bytes(mib), 2 * mib);
        assert_eq!(segment_bytes(mib + 512), 20 * mib);
        assert_eq!(segment_bytes(10 * mib - 512), 20 * mib);
        assert_eq!(segment_bytes(10 * mib), 10 * mib);
        assert_eq!(segment_bytes(11 * mib), 12 * mib);
    }
}
