//! The word that is kept with each allocation.
//!
//! ```text
//! 63            28 27        24 23             0
//! | milliseconds  | log2 weight | site           |
//! ```
//!
//! * *site*, 24 bits: [`SiteId`]; 0 when no stack was taken.
//! * *log2 weight*, 4 bits: the allocation stands for `2^n` allocations in estimates; 0 (weight 1) when not sampled.
//! * *milliseconds*, 36 bits: time of the allocation since the process's clock began; it stops at its end, after 2.1 years.

use super::SiteId;

/// Site, weight and time of one allocation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tag(pub u64);

/// For how many allocations a sampled one stands, as a power of two.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Weight(u8);

const SITE_BITS: u32 = 24;
const WEIGHT_BITS: u32 = 4;
const TIME_SHIFT: u32 = SITE_BITS + WEIGHT_BITS;
const TIME_MAX: u64 = u64::MAX >> TIME_SHIFT;

impl Weight {
    /// Stands for itself.
    pub const ONE: Weight = Weight(0);

    /// `2^log2`; `log2` of at most 15.
    pub const fn from_log2(log2: u8) -> Weight {
        Weight(if log2 < 16 { log2 } else { 15 })
    }

    /// As a number.
    pub const fn value(self) -> u64 {
        1 << self.0
    }
}

impl Tag {
    /// Packs the three. `time_ms` counts from the start of the process, as the clock of the reports does.
    pub const fn new(site: SiteId, weight: Weight, time_ms: u64) -> Tag {
        let time = if time_ms < TIME_MAX {
            time_ms
        } else {
            TIME_MAX
        };
        Tag((site.0 as u64) | (weight.0 as u64) << SITE_BITS | time << TIME_SHIFT)
    }

    /// Who made the allocation.
    pub const fn site(self) -> SiteId {
        SiteId((self.0 & ((1 << SITE_BITS) - 1)) as u32)
    }

    /// For how many it stands.
    pub const fn weight(self) -> Weight {
        Weight((self.0 >> SITE_BITS & ((1 << WEIGHT_BITS) - 1)) as u8)
    }

    /// When it was made.
    pub const fn time_ms(self) -> u64 {
        self.0 >> TIME_SHIFT
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_goes_in_comes_out(site in 0u32..1 << 24, log2 in 0u8..16, time_ms in 0u64..1 << 36) {
            let tag = Tag::new(SiteId(site), Weight::from_log2(log2), time_ms);
            prop_assert_eq!(tag.site(), SiteId(site));
            prop_assert_eq!(tag.weight().value(), 1 << log2);
            prop_assert_eq!(tag.time_ms(), time_ms);
        }
    }

    #[test]
    fn nothing_is_zero_and_time_stops_at_its_end() {
        assert_eq!(Tag::new(SiteId::NONE, Weight::ONE, 0), Tag::default());
        assert_eq!(
            Tag::new(SiteId::NONE, Weight::ONE, u64::MAX).time_ms(),
            TIME_MAX
        );
        assert_eq!(
            Tag::new(SiteId::NONE, Weight::ONE, u64::MAX).site(),
            SiteId::NONE
        );
    }
}
