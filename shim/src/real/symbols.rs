//! Looking a name up in one object's own dynamic symbol table, by hand.

use super::object::{Object, Tables};
use std::ffi::{c_char, CStr};
use std::sync::atomic::{AtomicUsize, Ordering};

/// `Elf64_Sym`.
#[repr(C)]
#[derive(Debug)]
pub struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    /// Address, less the object's base. Atomic because a driver's is replaced while others read it.
    pub value: AtomicUsize,
    size: u64,
}

/// Version index: the symbol is not its name's default version.
const HIDDEN: u16 = 0x8000;
const STT_NOTYPE: u8 = 0;
const STT_OBJECT: u8 = 1;
const STT_FUNC: u8 = 2;
const STT_GNU_IFUNC: u8 = 10;
/// First of the section numbers that mean something else, such as an address that no base is added to.
const SHN_LORESERVE: u16 = 0xff00;

impl Symbol {
    /// Whether it is a function's, at the object's base plus `value`.
    pub fn is_plain_function(&self) -> bool {
        matches!(self.info & 15, STT_NOTYPE | STT_FUNC)
            && (1..SHN_LORESERVE).contains(&self.section)
    }
}

impl Object {
    /// Address of the function or variable that it defines under this name, in the name's default version.
    pub fn defines(&self, name: &CStr) -> Option<usize> {
        self.definition(name)
            .map(|symbol| self.base.wrapping_add(symbol.value.load(Ordering::Acquire)))
    }

    /// The symbol by which it defines this name, in the name's default version.
    pub fn definition(&self, name: &CStr) -> Option<&Symbol> {
        let tables = self.tables();
        if tables.strings == 0 || tables.symbols == 0 {
            return None;
        }
        // SAFETY: these are the tables of a loaded object, as its dynamic section names them.
        unsafe {
            if tables.gnu_hash != 0 {
                self.by_gnu_hash(&tables, name)
            } else if tables.sysv_hash != 0 {
                self.by_sysv_hash(&tables, name)
            } else {
                None
            }
        }
    }

    /// Name of the symbol at that place of its table, as its relocations count them.
    pub fn name_of(&self, index: usize) -> Option<&CStr> {
        let tables = self.tables();
        if tables.strings == 0 || tables.symbols == 0 || index == 0 {
            return None;
        }
        // SAFETY: the tables of a loaded object, and an index that a relocation of it gives.
        unsafe {
            let symbol = &*(tables.symbols as *const Symbol).add(index);
            Some(symbol_name(&tables, symbol))
        }
    }

    /// The version under which it asks others for `name` ("libcudart.so.13"), if it asks for it under one.
    pub fn version_asked(&self, name: &CStr) -> Option<&CStr> {
        let tables = self.tables();
        if tables.strings == 0
            || tables.symbols == 0
            || tables.versions == 0
            || tables.needed_versions == 0
        {
            return None;
        }
        // SAFETY: these are the tables of a loaded object; undefined symbols come before `count`, and every version
        // index of theirs is listed among the needed versions, a chain that ends with an offset of 0.
        unsafe {
            let count = undefined_count(&tables);
            let index = (1..count).find(|&index| {
                let symbol = &*(tables.symbols as *const Symbol).add(index);
                symbol.section == 0 && symbol_name(&tables, symbol) == name
            })?;
            let wanted = *(tables.versions as *const u16).add(index) & !HIDDEN;
            let mut need = tables.needed_versions;
            loop {
                // Elf64_Verneed: version u16, count u16, file u32, first auxiliary u32, next u32.
                let count = *((need + 2) as *const u16);
                let mut auxiliary = need + *((need + 8) as *const u32) as usize;
                for _ in 0..count {
                    // Elf64_Vernaux: hash u32, flags u16, index u16, name u32, next u32.
                    if *((auxiliary + 6) as *const u16) == wanted {
                        let offset = *((auxiliary + 8) as *const u32) as usize;
                        return Some(CStr::from_ptr((tables.strings + offset) as *const c_char));
                    }
                    auxiliary += *((auxiliary + 12) as *const u32) as usize;
                }
                match *((need + 12) as *const u32) {
                    0 => return None,
                    next => need += next as usize,
                }
            }
        }
    }

    /// # Safety
    /// `tables` are this loaded object's, with a GNU hash table.
    unsafe fn by_gnu_hash(&self, tables: &Tables, name: &CStr) -> Option<&Symbol> {
        let hash = gnu_hash(name);
        // SAFETY: the layout of a GNU hash table: four words, the filter, the buckets, the chains. Offsets stay inside
        // it because bucket, chain and filter positions are reduced by its own sizes.
        unsafe {
            let header = tables.gnu_hash as *const u32;
            let (bucket_count, first, filter_count, shift) =
                (*header, *header.add(1), *header.add(2), *header.add(3));
            if bucket_count == 0 || filter_count == 0 {
                return None;
            }
            let filter = header.add(4).cast::<u64>();
            let word = *filter.add((hash / 64 % filter_count) as usize);
            let bits = 1_u64 << (hash % 64) | 1_u64 << (hash.wrapping_shr(shift) % 64);
            if word & bits != bits {
                return None;
            }
            let buckets = filter.add(filter_count as usize).cast::<u32>();
            let chains = buckets.add(bucket_count as usize);
            let mut index = *buckets.add((hash % bucket_count) as usize);
            if index < first {
                return None;
            }
            loop {
                let link = *chains.add((index - first) as usize);
                if link | 1 == hash | 1 {
                    if let Some(symbol) = self.usable(tables, index, name) {
                        return Some(symbol);
                    }
                }
                if link & 1 != 0 {
                    return None;
                }
                index += 1;
            }
        }
    }

    /// # Safety
    /// `tables` are this loaded object's, with a System V hash table.
    unsafe fn by_sysv_hash(&self, tables: &Tables, name: &CStr) -> Option<&Symbol> {
        // SAFETY: the layout of a System V hash table: two words, the buckets, the chains, which end with index 0.
        unsafe {
            let header = tables.sysv_hash as *const u32;
            let bucket_count = *header;
            if bucket_count == 0 {
                return None;
            }
            let buckets = header.add(2);
            let chains = buckets.add(bucket_count as usize);
            let mut index = *buckets.add((sysv_hash(name) % bucket_count) as usize);
            while index != 0 {
                if let Some(symbol) = self.usable(tables, index, name) {
                    return Some(symbol);
                }
                index = *chains.add(index as usize);
            }
            None
        }
    }

    /// # Safety
    /// `tables` are this loaded object's and `index` is one of its symbols.
    unsafe fn usable(&self, tables: &Tables, index: u32, name: &CStr) -> Option<&Symbol> {
        // SAFETY: `index` is a symbol of this table, and the version table runs beside it.
        unsafe {
            let symbol = &*(tables.symbols as *const Symbol).add(index as usize);
            let default = tables.versions == 0
                || *(tables.versions as *const u16).add(index as usize) & HIDDEN == 0;
            let kind = matches!(
                symbol.info & 15,
                STT_NOTYPE | STT_OBJECT | STT_FUNC | STT_GNU_IFUNC
            );
            let has_value = symbol.value.load(Ordering::Relaxed) != 0;
            let found = symbol.section != 0 && has_value && default && kind;
            (found && symbol_name(tables, symbol) == name).then_some(symbol)
        }
    }
}

/// # Safety
/// `symbol` belongs to the object of `tables`, which is loaded for as long as the name is used.
unsafe fn symbol_name<'a>(tables: &Tables, symbol: &Symbol) -> &'a CStr {
    // SAFETY: a symbol's name is an offset into its object's string table.
    unsafe { CStr::from_ptr((tables.strings + symbol.name as usize) as *const c_char) }
}

/// A number of symbols among which all undefined ones are.
///
/// # Safety
/// `tables` are a loaded object's.
unsafe fn undefined_count(tables: &Tables) -> usize {
    // SAFETY: the second word of either hash table: symbols before the first hashed one, and the number of symbols.
    unsafe {
        if tables.gnu_hash != 0 {
            *(tables.gnu_hash as *const u32).add(1) as usize
        } else if tables.sysv_hash != 0 {
            *(tables.sysv_hash as *const u32).add(1) as usize
        } else {
            0
        }
    }
}

fn gnu_hash(name: &CStr) -> u32 {
    name.to_bytes().iter().fold(5381, |hash: u32, &byte| {
        hash.wrapping_mul(33).wrapping_add(u32::from(byte))
    })
}

fn sysv_hash(name: &CStr) -> u32 {
    name.to_bytes().iter().fold(0, |hash: u32, &byte| {
        let hash = (hash << 4).wrapping_add(u32::from(byte));
        let high = hash & 0xf000_0000;
        (hash ^ (high >> 24)) & !high
    })
}
