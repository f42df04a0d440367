//! Call sites: stacks of frames, interned to small numbers.
//!
//! A stack that was seen before costs one look-up of its raw addresses. A new one is translated to (module, offset)
//! frames and interned by these, so that a library that was unloaded and loaded elsewhere keeps its sites.

use std::hash::BuildHasherDefault;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use dashmap::DashMap;
use rustc_hash::FxHasher;

use super::module::ModuleTable;
use super::{LoadedModule, Module};

/// A call site's number. It fits a [`super::Tag`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SiteId(pub u32);

impl SiteId {
    /// No stack was taken.
    pub const NONE: SiteId = SiteId(0);
    /// The table was full.
    pub const OVERFLOW: SiteId = SiteId(1);
}

/// One frame: a return address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Index into the module table; [`Frame::NO_MODULE`] when no module holds the address (generated code).
    pub module: u32,
    /// The return address as the module's file has it; the plain address without a module.
    pub offset: u64,
}

impl Frame {
    /// No module holds the address.
    pub const NO_MODULE: u32 = u32::MAX;
}

/// So many frames make the name of a site.
const NAMED_FRAMES: usize = 6;
/// So many sites are told apart.
const SITE_LIMIT: usize = 1 << 16;

type Map<K> = DashMap<K, SiteId, BuildHasherDefault<FxHasher>>;

/// The table of call sites.
#[derive(Debug)]
pub struct Sites {
    limit: usize,
    by_addresses: Map<Box<[u64]>>,
    /// How many `by_addresses` has: its own count would take every lock.
    addresses_count: AtomicUsize,
    by_frames: Map<Arc<[Frame]>>,
    frames: RwLock<Vec<Arc<[Frame]>>>,
    modules: RwLock<ModuleTable>,
}

impl Default for Sites {
    fn default() -> Self {
        Sites::with_limit(SITE_LIMIT)
    }
}

impl Sites {
    /// A table that tells at most `limit` sites apart.
    fn with_limit(limit: usize) -> Self {
        // A fixed number of shards: the default asks the system for the number of processors.
        const SHARDS: usize = 64;
        Sites {
            limit,
            by_addresses: Map::with_capacity_and_hasher_and_shard_amount(
                0,
                Default::default(),
                SHARDS,
            ),
            addresses_count: AtomicUsize::new(0),
            by_frames: Map::with_capacity_and_hasher_and_shard_amount(
                0,
                Default::default(),
                SHARDS,
            ),
            frames: RwLock::new(vec![Arc::from([]), Arc::from([])]),
            modules: RwLock::default(),
        }
    }

    /// The site of a stack: return addresses, innermost first. `loaded_modules` is asked for the modules of the
    /// process when an address of a new stack is in none that is known yet.
    pub fn intern(
        &self,
        addresses: &[u64],
        loaded_modules: impl FnOnce() -> Vec<LoadedModule>,
    ) -> SiteId {
        if addresses.is_empty() {
            return SiteId::NONE;
        }
        if let Some(site) = self.by_addresses.get(addresses) {
            return *site;
        }
        let frames = match self.translate(addresses) {
            Some(frames) => frames,
            None => {
                self.set_modules(loaded_modules());
                self.translate_as_far_as_known(addresses)
            }
        };
        let site = self.intern_frames(frames);
        if self.addresses_count.fetch_add(1, Relaxed) < self.limit {
            self.by_addresses.insert(addresses.into(), site);
        }
        site
    }

    /// Tells the table what is loaded now. Needed only when modules were unloaded: new ones are asked for.
    pub fn set_modules(&self, loaded: Vec<LoadedModule>) {
        let changed = write(&self.modules).replace(loaded);
        if changed {
            // The same addresses may mean other code now.
            self.by_addresses.clear();
            self.addresses_count.store(0, Relaxed);
        }
    }

    /// `None` when an address is in no known module.
    fn translate(&self, addresses: &[u64]) -> Option<Arc<[Frame]>> {
        let modules = read(&self.modules);
        let frame = |address: &u64| {
            modules
                .locate(*address)
                .map(|(module, offset)| Frame { module, offset })
        };
        addresses.iter().map(frame).collect()
    }

    fn translate_as_far_as_known(&self, addresses: &[u64]) -> Arc<[Frame]> {
        let modules = read(&self.modules);
        let frame = |address: &u64| {
            let (module, offset) = modules
                .locate(*address)
                .unwrap_or((Frame::NO_MODULE, *address));
            Frame { module, offset }
        };
        addresses.iter().map(frame).collect()
    }

    fn intern_frames(&self, stack: Arc<[Frame]>) -> SiteId {
        if let Some(site) = self.by_frames.get(&stack) {
            return *site;
        }
        // The entry holds its shard, so that two threads with the same new stack get the same number.
        let entry = self.by_frames.entry(stack.clone());
        if let dashmap::Entry::Occupied(entry) = &entry {
            return *entry.get();
        }
        let mut frames = write(&self.frames);
        if frames.len() >= self.limit {
            return SiteId::OVERFLOW;
        }
        let site = SiteId(frames.len() as u32);
        frames.push(stack);
        entry.insert(site);
        site
    }

    /// Names of the sites from number `first` on: their innermost frames as file and offset.
    pub fn names_from(&self, first: usize) -> Vec<String> {
        let stacks = read(&self.frames).get(first..).unwrap_or_default().to_vec();
        let modules = read(&self.modules);
        let name = |frame: &Frame| {
            let module = modules.modules().get(frame.module as usize);
            let file = module.and_then(|module| module.path.rsplit('/').next());
            format!("{}+{:#x}", file.unwrap_or("?"), frame.offset)
        };
        let named = |stack: &Arc<[Frame]>| {
            let innermost = stack.iter().take(NAMED_FRAMES).map(name);
            innermost.collect::<Vec<_>>().join(" < ")
        };
        stacks.iter().map(named).collect()
    }

    /// Frames of every site by number, and the modules.
    pub(super) fn snapshot(&self) -> (Vec<Arc<[Frame]>>, Vec<Module>) {
        // Sites first: their modules are then certainly in the second list.
        let sites = read(&self.frames).clone();
        (sites, read(&self.modules).modules().to_vec())
    }
}

/// A lock is only poisoned by a panic while it was held; what it guards is whole at every step.
fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(path: &str, base: u64) -> LoadedModule {
        let path = path.to_owned();
        LoadedModule {
            start: base + 0x1000,
            end: base + 0x2000,
            base,
            path,
            build_id: "ab".into(),
        }
    }

    #[test]
    fn the_same_stack_is_the_same_site() {
        let sites = Sites::default();
        let modules = || vec![module("/a", 0x10000), module("/b", 0x20000)];
        let first = sites.intern(&[0x11100, 0x21100], modules);
        assert!(first > SiteId::OVERFLOW);
        assert_eq!(
            sites.intern(&[0x11100, 0x21100], || unreachable!("known")),
            first
        );
        let second = sites.intern(&[0x11100, 0x21104], || unreachable!("modules are known"));
        assert_ne!(second, first);
        assert_eq!(sites.intern(&[], || unreachable!()), SiteId::NONE);

        let (frames, modules) = sites.snapshot();
        let stack = &frames[first.0 as usize];
        assert_eq!(
            stack[..],
            [
                Frame {
                    module: 0,
                    offset: 0x1100
                },
                Frame {
                    module: 1,
                    offset: 0x1100
                }
            ]
        );
        assert_eq!(modules[1].path, "/b");
    }

    #[test]
    fn generated_code_has_no_module() {
        let sites = Sites::default();
        let site = sites.intern(&[0x5], Vec::new);
        assert_eq!(
            sites.snapshot().0[site.0 as usize][..],
            [Frame {
                module: Frame::NO_MODULE,
                offset: 5
            }]
        );
    }

    #[test]
    fn a_module_that_moves_keeps_its_sites() {
        let sites = Sites::default();
        let first = sites.intern(&[0x11100], || vec![module("/a", 0x10000)]);
        sites.set_modules(vec![module("/b", 0x10000), module("/a", 0x30000)]);
        assert_ne!(
            sites.intern(&[0x11100], Vec::new),
            first,
            "other code at the old address"
        );
        assert_eq!(sites.intern(&[0x31100], Vec::new), first);
        assert_eq!(sites.snapshot().1.len(), 2);
    }

    #[test]
    fn the_table_is_bounded() {
        let sites = Sites::with_limit(4);
        let ids: Vec<u32> = (1..=5)
            .map(|address| sites.intern(&[address], Vec::new).0)
            .collect();
        assert_eq!(ids, [2, 3, 1, 1, 1]);
        assert_eq!(sites.intern(&[1], Vec::new), SiteId(2), "known ones stay");
    }

    #[test]
    fn threads_agree() {
        let sites = Sites::default();
        let stacks: Vec<Vec<SiteId>> = std::thread::scope(|scope| {
            let run = || {
                (1..500u64)
                    .map(|address| sites.intern(&[address, 7], Vec::new))
                    .collect()
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(run)).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        assert!(stacks.iter().all(|sites| *sites == stacks[0]));
        assert_eq!(sites.snapshot().0.len(), 2 + 499);
    }
}
