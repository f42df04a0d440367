//! Storing into pages of a loaded object that are read-only since the linker was done with them.

use super::object::Object;
use std::ffi::c_int;
use std::ops::Range;

impl Object {
    /// Runs `store` with the pages of `range` writable, and puts them back to what they were. Where they are executable
    /// they are not while they can be written to, so no code may be there: none is below `lowest_code`. False, and
    /// nothing is stored, where that does not hold or the kernel refuses.
    pub fn while_writable(
        &self,
        range: Range<usize>,
        lowest_code: usize,
        store: impl FnOnce(),
    ) -> bool {
        let Some(before) = self.protection(&range) else {
            return false;
        };
        if before & libc::PROT_WRITE != 0 {
            store();
            return true;
        }
        let page = page_bytes();
        let start = range.start / page * page;
        let end = range.end.next_multiple_of(page);
        if before & libc::PROT_EXEC != 0 && end > lowest_code {
            return false;
        }
        let protect = |flags| {
            // SAFETY: pages of one segment of a loaded object, without code: nothing needs them otherwise than readable,
            // which they always are.
            unsafe { libc::mprotect(start as *mut _, end - start, flags) == 0 }
        };
        if !protect(libc::PROT_READ | libc::PROT_WRITE) {
            return false;
        }
        store();
        // A kernel that lets no page that was written to become executable: readable is enough.
        let _ = protect(before) || protect(libc::PROT_READ);
        true
    }

    /// How its segment around `range` is mapped once the linker has protected what it relocated. None: not all of the
    /// range is of one kind.
    fn protection(&self, range: &Range<usize>) -> Option<c_int> {
        let within = |kind, rounding: usize| {
            self.headers()
                .iter()
                .filter(move |header| header.p_type == kind)
                .find(|header| {
                    let start = self.base.wrapping_add(header.p_vaddr as usize);
                    let end = start + header.p_memsz as usize;
                    let (start, end) = (start / rounding * rounding, end / rounding * rounding);
                    start <= range.start && range.end <= end
                })
        };
        let flags = within(libc::PT_LOAD, 1)?.p_flags;
        let is_relro = within(libc::PT_GNU_RELRO, page_bytes()).is_some();
        let bit = |flag, protection| if flags & flag != 0 { protection } else { 0 };
        let writable = if is_relro {
            0
        } else {
            bit(libc::PF_W, libc::PROT_WRITE)
        };
        Some(bit(libc::PF_R, libc::PROT_READ) | writable | bit(libc::PF_X, libc::PROT_EXEC))
    }
}

fn page_bytes() -> usize {
    // SAFETY: no preconditions.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}
