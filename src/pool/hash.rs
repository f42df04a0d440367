//! How numbers are spread over places.

/// A number whose high bits depend on all bits of `value`: 2^64 over the golden ratio, which is odd, so no two are alike.
#[inline]
pub(super) fn spread(value: u64) -> u64 {
    value.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}
