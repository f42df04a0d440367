//! One loaded object: where it lies and what its dynamic section says.

use std::ffi::{c_char, CStr};
use std::ops::ControlFlow;

const DT_NULL: i64 = 0;
const DT_NEEDED: i64 = 1;
const DT_PLTRELSZ: i64 = 2;
const DT_HASH: i64 = 4;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_RELA: i64 = 7;
const DT_RELASZ: i64 = 8;
const DT_INIT: i64 = 12;
const DT_SONAME: i64 = 14;
const DT_JMPREL: i64 = 23;
const DT_GNU_HASH: i64 = 0x6fff_fef5;
const DT_VERSYM: i64 = 0x6fff_fff0;
const DT_VERNEED: i64 = 0x6fff_fffe;

/// An entry of a dynamic section.
#[repr(C)]
struct Entry {
    tag: i64,
    value: usize,
}

/// A loaded object. Only as good as its loading: read it inside [`super::loaded::visit`], or while something else (a
/// caller that is executing, a handle that is held) keeps it loaded.
#[derive(Debug, Clone, Copy)]
pub struct Object {
    /// What is added to the addresses in the file.
    pub base: usize,
    /// First mapped address.
    pub low: usize,
    /// First address after the mapping.
    pub high: usize,
    /// Its dynamic section; also a mark that two different libraries at one address hardly share.
    pub dynamic: usize,
    /// The linker's name for it: a path, or empty for the program itself.
    pub path: *const c_char,
    /// Its program headers, and their number.
    headers: (*const libc::Elf64_Phdr, usize),
}

/// The tables in an object's dynamic section that symbol look-ups need, as addresses; 0 where there is none.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tables {
    /// String table.
    pub strings: usize,
    /// Symbol table.
    pub symbols: usize,
    /// GNU hash table.
    pub gnu_hash: usize,
    /// System V hash table.
    pub sysv_hash: usize,
    /// Version index of each symbol.
    pub versions: usize,
    /// Versions needed from other objects.
    pub needed_versions: usize,
    /// Relocations with addends, and the bytes that they take.
    pub relocations: (usize, usize),
    /// Those of the procedure linkage table.
    pub plt_relocations: (usize, usize),
    /// The initialiser, of old the first code in a file.
    pub initialiser: usize,
}

impl Object {
    /// The object of a description by the dynamic linker. None without a dynamic section.
    ///
    /// # Safety
    /// `info` is a description that the dynamic linker has just passed, with its list held still.
    pub unsafe fn new(info: &libc::dl_phdr_info) -> Option<Object> {
        let base = info.dlpi_addr as usize;
        let (mut low, mut high, mut dynamic) = (usize::MAX, 0, 0);
        let headers = (info.dlpi_phdr, usize::from(info.dlpi_phnum));
        if headers.0.is_null() {
            return None;
        }
        // SAFETY: the linker vouches for `dlpi_phnum` headers at `dlpi_phdr`.
        for header in unsafe { std::slice::from_raw_parts(headers.0, headers.1) } {
            let start = base.wrapping_add(header.p_vaddr as usize);
            match header.p_type {
                libc::PT_LOAD => {
                    low = low.min(start);
                    high = high.max(start.wrapping_add(header.p_memsz as usize));
                }
                libc::PT_DYNAMIC => dynamic = start,
                _ => {}
            }
        }
        (dynamic != 0 && low < high).then_some(Object {
            base,
            low,
            high,
            dynamic,
            path: info.dlpi_name,
            headers,
        })
    }

    /// Its program headers.
    pub fn headers(&self) -> &[libc::Elf64_Phdr] {
        // SAFETY: the linker vouched for them, and the object is loaded.
        unsafe { std::slice::from_raw_parts(self.headers.0, self.headers.1) }
    }

    /// Whether `address` lies in it.
    pub fn holds(&self, address: usize) -> bool {
        (self.low..self.high).contains(&address)
    }

    /// Whether this is the shim.
    pub fn is_ours(&self) -> bool {
        self.holds(Object::is_ours as *const () as usize)
    }

    /// Its DT_SONAME, or an empty string.
    pub fn soname(&self) -> &CStr {
        let strings = self.tables().strings;
        let mut soname = c"";
        self.each_entry(|tag, value| {
            if tag == DT_SONAME && strings != 0 {
                // SAFETY: DT_SONAME is an offset into the string table of this loaded object.
                soname = unsafe { CStr::from_ptr((strings + value) as *const c_char) };
            }
        });
        soname
    }

    /// Whether it names `soname` as one that it needs.
    pub fn needs(&self, soname: &CStr) -> bool {
        let strings = self.tables().strings;
        let mut found = false;
        self.each_entry(|tag, value| {
            if tag == DT_NEEDED && strings != 0 && !found {
                // SAFETY: DT_NEEDED is an offset into the string table of this loaded object.
                found = unsafe { CStr::from_ptr((strings + value) as *const c_char) } == soname;
            }
        });
        found
    }

    /// Whether this is the program itself, whose name the linker leaves empty.
    pub fn is_program(&self) -> bool {
        // SAFETY: the linker's name for a loaded object is a C string.
        self.path.is_null() || unsafe { *self.path == 0 }
    }

    /// Fills `paths` with its own path and those of the objects that need it, directly or through others; gives their
    /// number. These are the objects with whose scope it may have been loaded.
    pub fn brought_by(&self, paths: &mut [*const c_char]) -> usize {
        const FAMILY_MAX: usize = 64;
        let mut family = [*self; FAMILY_MAX];
        let (mut count, mut seen) = (1, 0);
        while seen < count {
            let needed = family[seen];
            let soname = needed.soname();
            seen += 1;
            if soname.is_empty() {
                continue;
            }
            super::loaded::visit(|object| {
                let is_new = !family[..count]
                    .iter()
                    .any(|known| known.dynamic == object.dynamic);
                if count < FAMILY_MAX
                    && is_new
                    && object.dynamic != needed.dynamic
                    && object.needs(soname)
                {
                    family[count] = *object;
                    count += 1;
                }
                ControlFlow::Continue(())
            });
        }
        let kept = count.min(paths.len());
        for (path, object) in paths.iter_mut().zip(&family[..kept]) {
            *path = object.path;
        }
        kept
    }

    /// Where its symbol tables are.
    pub fn tables(&self) -> Tables {
        let mut tables = Tables::default();
        self.each_entry(|tag, value| {
            let address = self.relocated(value);
            match tag {
                DT_STRTAB => tables.strings = address,
                DT_SYMTAB => tables.symbols = address,
                DT_GNU_HASH => tables.gnu_hash = address,
                DT_HASH => tables.sysv_hash = address,
                DT_VERSYM => tables.versions = address,
                DT_VERNEED => tables.needed_versions = address,
                DT_RELA => tables.relocations.0 = address,
                DT_RELASZ => tables.relocations.1 = value,
                DT_JMPREL => tables.plt_relocations.0 = address,
                DT_PLTRELSZ => tables.plt_relocations.1 = value,
                DT_INIT => tables.initialiser = self.base.wrapping_add(value),
                _ => {}
            }
        });
        tables
    }

    /// glibc adds the base to the addresses in a dynamic section that it can write to, and leaves others (the vDSO's).
    fn relocated(&self, value: usize) -> usize {
        if self.holds(value) {
            value
        } else {
            self.base.wrapping_add(value)
        }
    }

    fn each_entry(&self, mut see: impl FnMut(i64, usize)) {
        let mut entry = self.dynamic as *const Entry;
        loop {
            // SAFETY: the dynamic section of a loaded object is readable and ends with DT_NULL.
            let (tag, value) = unsafe { ((*entry).tag, (*entry).value) };
            if tag == DT_NULL {
                return;
            }
            see(tag, value);
            // SAFETY: the entry just read was not the last.
            entry = unsafe { entry.add(1) };
        }
    }
}
