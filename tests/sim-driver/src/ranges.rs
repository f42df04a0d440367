//! Every piece of memory the driver knows, by address.
use crate::abi::*;
use crate::arena::Block;
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// cuMemAlloc and its kin.
    Device,
    /// A variable of a module.
    Module,
    /// cuMemAllocAsync: the pool it came from.
    Async(Handle),
    /// Memory of a graph: present between its allocation and its free node.
    Graph,
    Managed,
    /// cuMemHostAlloc: its flags.
    Pinned(u32),
    /// cuMemHostRegister: its flags.
    Registered(u32),
    /// Mapped by cuMemMap: the physical handle.
    Mapped(Handle),
    /// Another process's, opened by handle.
    Opened,
    /// Another API's, mapped; cuMemFree gives it back.
    External,
}

#[derive(Clone, Debug)]
pub struct Range {
    pub base: Ptr,
    pub size: u64,
    /// Where the driver itself finds the bytes.
    pub host: u64,
    pub kind: Kind,
    pub device: i32,
    pub context: Handle,
    pub id: u64,
    pub block: Option<Block>,
    pub sync_memops: bool,
    /// A free is under way: nobody else may free it.
    pub leaving: bool,
    /// Device access; mapped memory has none before cuMemSetAccess.
    pub access: bool,
    /// The devices that have it, of mapped memory.
    pub reached_by: Vec<i32>,
}

impl Range {
    pub fn end(&self) -> Ptr {
        self.base + self.size
    }

    pub fn on_host(&self) -> bool {
        matches!(self.kind, Kind::Pinned(_) | Kind::Registered(_))
    }
}

#[derive(Default)]
pub struct Ranges {
    map: BTreeMap<Ptr, Range>,
    last_id: u64,
}

impl Ranges {
    pub fn add(&mut self, mut r: Range) -> u64 {
        self.last_id += 1;
        r.id = self.last_id;
        self.map.insert(r.base, r);
        self.last_id
    }

    pub fn find(&self, p: Ptr) -> Option<&Range> {
        let (_, r) = self.map.range(..=p).next_back()?;
        (p < r.end()).then_some(r)
    }

    pub fn find_mut(&mut self, p: Ptr) -> Option<&mut Range> {
        let (_, r) = self.map.range_mut(..=p).next_back()?;
        (p < r.end()).then_some(r)
    }

    pub fn at(&self, base: Ptr) -> Option<&Range> {
        self.map.get(&base)
    }

    pub fn at_mut(&mut self, base: Ptr) -> Option<&mut Range> {
        self.map.get_mut(&base)
    }

    pub fn remove(&mut self, base: Ptr) -> Option<Range> {
        self.map.remove(&base)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Range> {
        self.map.values()
    }

    /// Ranges that begin in or reach into `[from, to)`.
    pub fn overlapping(&self, from: Ptr, to: Ptr) -> Vec<Ptr> {
        let first = self.find(from).map_or(from, |r| r.base);
        self.map.range(first..to).map(|(&b, _)| b).collect()
    }

    /// Whether `[p, p + n)` lies in memory that a graph will have when it runs.
    pub fn promised(&self, p: Ptr, n: u64) -> bool {
        self.find(p).is_some_and(|r| {
            r.kind == Kind::Graph && p.checked_add(n).is_some_and(|end| end <= r.end())
        })
    }

    /// Whether `[p, p + n)` lies in one allocation, or in mappings that touch.
    pub fn covers(&self, p: Ptr, n: u64) -> bool {
        let Some(end) = p.checked_add(n) else {
            return false;
        };
        let Some(mut r) = self.find(p) else {
            return false;
        };
        while r.end() < end {
            match self.at(r.end()) {
                Some(next) if mapped(r) && mapped(next) => r = next,
                _ => return false,
            }
        }
        r.access && !r.leaving
    }

    /// The bytes of `[p, p + n)` as pieces of driver memory; an address without memory is an error.
    pub fn pieces(&self, p: Ptr, n: u64) -> R<Vec<(u64, u64)>> {
        let (mut at, mut left, mut out) = (p, n, Vec::new());
        while left > 0 {
            let r = self.find(at).filter(|r| r.access).ok_or(ILLEGAL_ADDRESS)?;
            let n = left.min(r.end() - at);
            out.push((r.host + (at - r.base), n));
            at += n;
            left -= n;
        }
        Ok(out)
    }
}

fn mapped(r: &Range) -> bool {
    matches!(r.kind, Kind::Mapped(_))
}
