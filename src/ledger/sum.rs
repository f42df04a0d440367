//! Sums of allocations that belong together.

use rustc_hash::FxHashMap;

use super::{Kind, SiteId, Tag};

/// What tells sums apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Group {
    /// The shim's number for the context; never used twice in a process.
    pub context: u64,
    /// Ordinal of the device.
    pub device: u32,
    /// Kind of allocation.
    pub kind: Kind,
    /// Call site.
    pub site: SiteId,
}

impl Group {
    /// Stands for the contexts past the bound of what is kept apart.
    pub const OTHER_CONTEXTS: u64 = u64::MAX;
}

/// Sums by group.
pub type SumsByGroup = FxHashMap<Group, SiteSum>;

/// Count and bytes of some allocations. Sums stop at the largest number instead of wrapping.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SiteSum {
    /// Allocations that are in this sum.
    pub count: u64,
    /// Their bytes, as requested.
    pub bytes: u64,
    /// Sum of the weights: an estimate of all that the site holds.
    pub estimated_count: u64,
    /// Sum of weight times bytes.
    pub estimated_bytes: u64,
    /// Time of the oldest, on the clock of the tags.
    pub oldest_ms: u64,
}

impl SiteSum {
    /// Adds one allocation.
    pub fn add(&mut self, bytes: u64, tag: Tag) {
        let weight = tag.weight().value();
        self.merge(&SiteSum {
            count: 1,
            bytes,
            estimated_count: weight,
            estimated_bytes: bytes.saturating_mul(weight),
            oldest_ms: tag.time_ms(),
        });
    }

    /// Adds another sum.
    pub fn merge(&mut self, other: &SiteSum) {
        self.oldest_ms = match self.count {
            0 => other.oldest_ms,
            _ => self.oldest_ms.min(other.oldest_ms),
        };
        self.count = self.count.saturating_add(other.count);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.estimated_count = self.estimated_count.saturating_add(other.estimated_count);
        self.estimated_bytes = self.estimated_bytes.saturating_add(other.estimated_bytes);
    }
}
