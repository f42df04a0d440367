//! Who holds memory: every live allocation that is not in a pool, the call sites of all of them, and what was lost.
//!
//! * [`Sites`]: call stacks, interned to small numbers.
//! * [`Tag`]: the word kept with each allocation, pooled or not: site, weight, time.
//! * [`Sampling`]: which allocations have their stack taken.
//! * [`Ledger`]: these together with the table of allocations that the pools do not know.
//!
//! Pooled blocks are not in the table: the pool keeps their tags and its snapshot gives them back. Counts and bytes
//! here are exact whatever the sampling; only the division among call sites is estimated from it.
//!
//! Everything may be called from many threads at once, allocates from the heap, and takes short locks of its own
//! only. After a fork the child drops (or leaks) its copy and starts a new one.

mod kind;
mod live;
mod module;
mod sampling;
mod site;
mod sum;
mod tag;

pub use kind::{Kind, Space};
pub use live::{Allocation, KindCounts};
pub use module::{LoadedModule, Module};
pub use sampling::{Sampler, Sampling, SamplingRule};
pub use site::{Frame, SiteId, Sites};
pub use sum::{Group, SiteSum, SumsByGroup};
pub use tag::{Tag, Weight};

use std::sync::{Arc, PoisonError};

use crate::config::Stacks;
use crate::sync::Mutex;
use live::LiveTable;

/// The most groups that [`Ledger::lose_context`] keeps apart; what comes later goes under the overflow site.
const LOST_GROUP_LIMIT: usize = 1 << 16;

/// The ledger of one process.
#[derive(Debug)]
pub struct Ledger {
    sites: Sites,
    sampling: Sampling,
    live: LiveTable,
    lost: Mutex<SumsByGroup>,
}

/// The ledger at one moment, by value.
#[derive(Debug, Clone, Default)]
pub struct LedgerSnapshot {
    /// Exact figures of each kind that is not pooled.
    pub kinds: Vec<(Kind, KindCounts)>,
    /// Live allocations that are not pooled.
    pub live: SumsByGroup,
    /// What was live when its context was destroyed.
    pub lost: SumsByGroup,
    /// Frames of every site, by its number; the first two are [`SiteId::NONE`] and [`SiteId::OVERFLOW`].
    pub sites: Vec<Arc<[Frame]>>,
    /// The modules that frames name by index.
    pub modules: Vec<Module>,
    /// How stacks were sampled.
    pub sampling: SamplingRule,
}

impl Ledger {
    /// An empty ledger. Takes no memory for its tables yet.
    pub fn new(stacks: Stacks) -> Self {
        Ledger {
            sites: Sites::default(),
            sampling: Sampling::new(stacks),
            live: LiveTable::default(),
            lost: Mutex::default(),
        }
    }

    /// The call sites.
    pub fn sites(&self) -> &Sites {
        &self.sites
    }

    /// Decides whether the allocation now being made has its stack taken, and for how many it then stands.
    /// `sampler` is the calling thread's own.
    pub fn sample(&self, sampler: &mut Sampler) -> Option<Weight> {
        self.sampling.decide(sampler)
    }

    /// Enters an allocation that is not pooled. One that was entered under the same key before, and whose end was
    /// missed, is replaced.
    pub fn insert(&self, key: u64, allocation: Allocation) {
        self.live.insert(key, allocation);
    }

    /// Takes an allocation out; `None` if there is none under this key.
    pub fn remove(&self, space: Space, key: u64) -> Option<Allocation> {
        self.live.remove(space, key)
    }

    /// Looks an allocation up.
    pub fn get(&self, space: Space, key: u64) -> Option<Allocation> {
        self.live.get(space, key)
    }

    /// Exact figures of each kind that was used and is not pooled.
    pub fn counts(&self) -> Vec<(Kind, KindCounts)> {
        self.live.all_counts()
    }

    /// Live bytes of a kind: what the automatic free-sync mode goes by.
    pub fn live_bytes(&self, kind: Kind) -> u64 {
        self.live.counts(kind).bytes.current
    }

    /// A context was destroyed. What it still held is lost: all of `pooled` (size as requested, and tag), and the
    /// entries of this ledger that die with their context, which are taken out and returned with their keys.
    pub fn lose_context(
        &self,
        context: u64,
        device: u32,
        pooled: impl IntoIterator<Item = (u64, Tag)>,
    ) -> Vec<(u64, Allocation)> {
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        let mut add = |kind, device, bytes, tag: Tag| {
            let mut group = Group {
                context,
                device,
                kind,
                site: tag.site(),
            };
            if lost.len() >= LOST_GROUP_LIMIT && !lost.contains_key(&group) {
                group.context = Group::OTHER_CONTEXTS;
                group.site = SiteId::OVERFLOW;
            }
            lost.entry(group).or_default().add(bytes, tag);
        };
        for (bytes, tag) in pooled {
            add(Kind::Pooled, device, bytes, tag);
        }
        let gone = self.live.remove_context(context);
        for (_, allocation) in &gone {
            add(
                allocation.kind,
                allocation.device,
                allocation.size_bytes,
                allocation.tag,
            );
        }
        gone
    }

    /// Everything, by value.
    pub fn snapshot(&self) -> LedgerSnapshot {
        let (sites, modules) = self.sites.snapshot();
        LedgerSnapshot {
            kinds: self.live.all_counts(),
            live: self.live.sums(),
            lost: self
                .lost
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone(),
            sites,
            modules,
            sampling: self.sampling.rule(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allocation(kind: Kind, context: u64, size_bytes: u64) -> Allocation {
        Allocation {
            kind,
            size_bytes,
            device: 0,
            context,
            tag: Tag::default(),
        }
    }

    #[test]
    fn a_destroyed_context_takes_what_lives_in_it() {
        let ledger = Ledger::new(Stacks::Off);
        ledger.insert(0x1000, allocation(Kind::Managed, 1, 100));
        ledger.insert(0x2000, allocation(Kind::Managed, 2, 200));
        ledger.insert(0x3000, allocation(Kind::Vmm, 1, 300));
        let gone = ledger.lose_context(1, 0, [(10, Tag::default()), (20, Tag::default())]);
        assert_eq!(
            gone,
            [(0x1000, allocation(Kind::Managed, 1, 100))],
            "its memory is the device's again"
        );

        let snapshot = ledger.snapshot();
        let lost = |kind| {
            let group = Group {
                context: 1,
                device: 0,
                kind,
                site: SiteId::NONE,
            };
            snapshot.lost.get(&group).map(|sum| (sum.count, sum.bytes))
        };
        assert_eq!(lost(Kind::Pooled), Some((2, 30)));
        assert_eq!(lost(Kind::Managed), Some((1, 100)));
        assert_eq!(
            lost(Kind::Vmm),
            None,
            "memory handles belong to the process"
        );
        assert_eq!(ledger.live_bytes(Kind::Managed), 200);
        assert_eq!(ledger.get(Space::Device, 0x1000), None);
    }
}
