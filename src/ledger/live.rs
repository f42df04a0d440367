//! The allocations that the pools do not know.

use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::hash::BuildHasherDefault;

use dashmap::DashMap;
use rustc_hash::FxHasher;

use super::{Group, Kind, Space, SumsByGroup, Tag};
use crate::pool::Gauge;

/// One live allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allocation {
    /// What it is.
    pub kind: Kind,
    /// Its size as requested; for arrays, computed from shape and format.
    pub size_bytes: u64,
    /// Ordinal of the device.
    pub device: u32,
    /// The shim's number for the context.
    pub context: u64,
    /// Site, weight and time.
    pub tag: Tag,
}

/// Exact figures of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KindCounts {
    /// Allocations.
    pub count: Gauge,
    /// Their bytes.
    pub bytes: Gauge,
}

/// All of them, by name space and key (address or handle).
#[derive(Debug)]
pub(super) struct LiveTable {
    table: DashMap<(Space, u64), Allocation, BuildHasherDefault<FxHasher>>,
    counters: [Counters; Kind::ALL.len()],
}

#[derive(Debug, Default)]
struct Counters {
    count: AtomicGauge,
    bytes: AtomicGauge,
}

#[derive(Debug, Default)]
struct AtomicGauge {
    current: AtomicU64,
    peak: AtomicU64,
    total: AtomicU64,
}

impl AtomicGauge {
    fn rise(&self, by: u64) {
        let before = self.current.fetch_add(by, Relaxed);
        self.peak.fetch_max(before.saturating_add(by), Relaxed);
        self.total.fetch_add(by, Relaxed);
    }

    fn fall(&self, by: u64) {
        self.current.fetch_sub(by, Relaxed);
    }

    fn read(&self) -> Gauge {
        Gauge {
            current: self.current.load(Relaxed),
            peak: self.peak.load(Relaxed),
            total: self.total.load(Relaxed),
        }
    }
}

impl Default for LiveTable {
    fn default() -> Self {
        LiveTable {
            // A fixed number of shards: the default asks the system for the number of processors.
            table: DashMap::with_capacity_and_hasher_and_shard_amount(0, Default::default(), 64),
            counters: Default::default(),
        }
    }
}

impl LiveTable {
    pub fn insert(&self, key: u64, allocation: Allocation) {
        // Counted up before it can be removed, so that no counter ever passes below zero.
        let counters = &self.counters[allocation.kind.index()];
        counters.count.rise(1);
        counters.bytes.rise(allocation.size_bytes);
        let replaced = self
            .table
            .insert((allocation.kind.space(), key), allocation);
        replaced.iter().for_each(|old| self.count_down(old));
    }

    pub fn remove(&self, space: Space, key: u64) -> Option<Allocation> {
        let (_, allocation) = self.table.remove(&(space, key))?;
        self.count_down(&allocation);
        Some(allocation)
    }

    pub fn get(&self, space: Space, key: u64) -> Option<Allocation> {
        self.table.get(&(space, key)).map(|entry| *entry)
    }

    /// Takes out what dies with a context.
    pub fn remove_context(&self, context: u64) -> Vec<(u64, Allocation)> {
        let mut gone = Vec::new();
        self.table.retain(|(_, key), allocation| {
            let dies = allocation.context == context && allocation.kind.dies_with_context();
            if dies {
                gone.push((*key, *allocation));
            }
            !dies
        });
        gone.iter()
            .for_each(|(_, allocation)| self.count_down(allocation));
        gone
    }

    pub fn counts(&self, kind: Kind) -> KindCounts {
        let counters = &self.counters[kind.index()];
        KindCounts {
            count: counters.count.read(),
            bytes: counters.bytes.read(),
        }
    }

    /// Of every kind that is kept here and was ever used.
    pub fn all_counts(&self) -> Vec<(Kind, KindCounts)> {
        let counts = Kind::ALL.map(|kind| (kind, self.counts(kind)));
        counts
            .into_iter()
            .filter(|(_, counts)| counts.count.total > 0)
            .collect()
    }

    pub fn sums(&self) -> SumsByGroup {
        let mut sums = SumsByGroup::default();
        for entry in &self.table {
            let Allocation {
                kind,
                size_bytes,
                device,
                context,
                tag,
            } = *entry;
            let group = Group {
                context,
                device,
                kind,
                site: tag.site(),
            };
            sums.entry(group).or_default().add(size_bytes, tag);
        }
        sums
    }

    fn count_down(&self, allocation: &Allocation) {
        let counters = &self.counters[allocation.kind.index()];
        counters.count.fall(1);
        counters.bytes.fall(allocation.size_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn managed(size_bytes: u64) -> Allocation {
        Allocation {
            kind: Kind::Managed,
            size_bytes,
            device: 0,
            context: 1,
            tag: Tag::default(),
        }
    }

    #[test]
    fn figures_follow_the_table() {
        let table = LiveTable::default();
        table.insert(1, managed(10));
        table.insert(2, managed(20));
        assert_eq!(table.remove(Space::Device, 1), Some(managed(10)));
        assert_eq!(table.remove(Space::Device, 1), None);
        assert_eq!(table.remove(Space::Host, 2), None, "another name space");
        table.insert(2, managed(5));

        let counts = table.counts(Kind::Managed);
        assert_eq!(
            counts.count,
            Gauge {
                current: 1,
                peak: 2,
                total: 3
            }
        );
        assert_eq!(
            counts.bytes.current, 5,
            "a second entry replaces one whose end was missed"
        );
        assert_eq!(table.all_counts().len(), 1);
    }

    #[test]
    fn many_threads_end_at_zero() {
        let table = LiveTable::default();
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let table = &table;
                scope.spawn(move || {
                    for key in 0..2_000 {
                        table.insert(thread << 32 | key, managed(key));
                    }
                    for key in 0..2_000 {
                        assert!(table.remove(Space::Device, thread << 32 | key).is_some());
                    }
                });
            }
        });
        let counts = table.counts(Kind::Managed);
        assert_eq!((counts.count.current, counts.bytes.current), (0, 0));
        assert_eq!(counts.count.total, 8_000);
        assert!(table.sums().is_empty());
    }
}
