//! The program's modules: which file an address belongs to.

/// An executable range of a loaded module, as the loader has it now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadedModule {
    /// First address of the range.
    pub start: u64,
    /// One past its last.
    pub end: u64,
    /// What the loader added to the addresses in the file; an address minus this is one that the file's own symbol
    /// table and debug information know. Zero for a program that is not position independent.
    pub base: u64,
    /// Path of the file.
    pub path: String,
    /// Build id in hexadecimal; empty when the file has none.
    pub build_id: String,
}

/// A module that frames refer to. It stays in the table when it is unloaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// Path of the file.
    pub path: String,
    /// Build id in hexadecimal; empty when the file has none.
    pub build_id: String,
    /// Where it was loaded last (see [`LoadedModule::base`]).
    pub base: u64,
}

/// The modules ever seen, and the ranges of those loaded now.
#[derive(Debug, Default)]
pub(super) struct ModuleTable {
    modules: Vec<Module>,
    /// Sorted by address.
    ranges: Vec<Range>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    start: u64,
    end: u64,
    base: u64,
    module: u32,
}

impl ModuleTable {
    /// Replaces the ranges. Says whether any changed.
    pub fn replace(&mut self, loaded: Vec<LoadedModule>) -> bool {
        let mut ranges: Vec<Range> = loaded
            .into_iter()
            .map(|module| self.range(module))
            .collect();
        ranges.sort_by_key(|range| range.start);
        let changed = ranges != self.ranges;
        self.ranges = ranges;
        changed
    }

    fn range(&mut self, loaded: LoadedModule) -> Range {
        let LoadedModule {
            start,
            end,
            base,
            path,
            build_id,
        } = loaded;
        let same = |module: &Module| module.path == path && module.build_id == build_id;
        let known = self.modules.iter().position(same);
        let at = known.unwrap_or(self.modules.len());
        match self.modules.get_mut(at) {
            Some(module) => module.base = base,
            None => self.modules.push(Module {
                path,
                build_id,
                base,
            }),
        }
        Range {
            start,
            end,
            base,
            module: at as u32,
        }
    }

    /// The module of an address, and the address as its file has it.
    pub fn locate(&self, address: u64) -> Option<(u32, u64)> {
        let after = self.ranges.partition_point(|range| range.start <= address);
        let range = self.ranges.get(after.checked_sub(1)?)?;
        (address < range.end).then(|| (range.module, address.wrapping_sub(range.base)))
    }

    pub fn modules(&self) -> &[Module] {
        &self.modules
    }
}
