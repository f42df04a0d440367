//! Functions of the driver whose addresses an object has kept in its variables, as a runtime that is linked in does.

use super::driver;
use super::object::Object;
use crate::table::HOOKS;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// More variables than that are data, and are not looked through.
const BYTES_MAX: usize = 64 << 20;
const CHUNK_WORDS: usize = 512;

/// Gives ours for each word among the variables of `object`, which stays loaded, that is the address of a hooked
/// function of `driver`: a number that is anything else does not happen to be one. Whether there was any.
pub fn redirect(object: &Object, driver: &Object) -> bool {
    let mut any = false;
    for header in object.headers() {
        let is_data = header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_W != 0;
        let bytes = header.p_memsz as usize;
        if is_data && bytes <= BYTES_MAX {
            let start = object.base.wrapping_add(header.p_vaddr as usize);
            any |= redirect_in(
                start.next_multiple_of(8)..(start + bytes) / 8 * 8,
                driver,
                object,
            );
        }
    }
    any
}

fn redirect_in(range: Range<usize>, driver: &Object, object: &Object) -> bool {
    let mut any = false;
    let mut words = [0_usize; CHUNK_WORDS];
    for chunk in range.clone().step_by(size_of_val(&words)) {
        let bytes = size_of_val(&words).min(range.end - chunk);
        let words = &mut words[..bytes / size_of::<usize>()];
        if !read(chunk, words) {
            continue;
        }
        for (index, &address) in words.iter().enumerate() {
            if !driver.holds(address) {
                continue;
            }
            let Some(row) = driver::row_at(address, |_| true) else {
                continue;
            };
            let place = chunk + index * size_of::<usize>();
            // 0: only where there is no code at all.
            any |= object.while_writable(place..place + size_of::<usize>(), 0, || {
                // SAFETY: an aligned word of a writable segment, which was just read; its owner keeps an address there.
                let kept = unsafe { AtomicUsize::from_ptr(place as *mut usize) };
                let ours = HOOKS[row].ours as usize;
                let _ = kept.compare_exchange(address, ours, Ordering::AcqRel, Ordering::Acquire);
            });
        }
    }
    any
}

/// Copies words by the kernel, which finds out whether they can be read: an object may have taken pages away.
fn read(from: usize, to: &mut [usize]) -> bool {
    let bytes = size_of_val(to);
    let local = libc::iovec {
        iov_base: to.as_mut_ptr().cast(),
        iov_len: bytes,
    };
    let remote = libc::iovec {
        iov_base: from as *mut _,
        iov_len: bytes,
    };
    // SAFETY: writes at most `bytes` to `to`; what cannot be read makes the call fail.
    let got = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    usize::try_from(got) == Ok(bytes)
}
