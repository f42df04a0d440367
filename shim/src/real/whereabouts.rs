//! Which object an address is in, fast enough for every call: the C library's `_dl_find_object`, which takes no lock.
//! Before glibc 2.35 the list of objects is walked.

use super::loaded;
use std::ffi::{c_int, c_void, CStr};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};

/// `struct dl_find_object`.
#[repr(C)]
struct Found {
    flags: u64,
    map_start: *mut c_void,
    map_end: *mut c_void,
    link_map: *const LinkMap,
    eh_frame: *mut c_void,
    reserved: [u64; 7],
}

/// The public beginning of `struct link_map`.
#[repr(C)]
struct LinkMap {
    base: usize,
    name: *const i8,
    dynamic: usize,
}

type FindFn = unsafe extern "C" fn(*mut c_void, *mut Found) -> c_int;

/// 0: not looked for yet; 1: there is none; else its address.
static FIND: AtomicUsize = AtomicUsize::new(0);

/// Address of the dynamic section of the object that `address` is in; 0 for code of no object.
pub fn dynamic_at(address: usize) -> usize {
    match FIND.load(Ordering::Acquire) {
        0 => {
            FIND.store(
                definition(c"_dl_find_object").unwrap_or(1),
                Ordering::Release,
            );
            dynamic_at(address)
        }
        1 => loaded::holding(address).map_or(0, |object| object.dynamic),
        find => {
            let mut found = Found {
                flags: 0,
                map_start: std::ptr::null_mut(),
                map_end: std::ptr::null_mut(),
                link_map: std::ptr::null(),
                eh_frame: std::ptr::null_mut(),
                reserved: [0; 7],
            };
            // SAFETY: `find` is the C library's `_dl_find_object`, which fills a structure of this layout (GLIBC_2.35)
            // when it returns 0. The link map is that of an object whose code is executing or about to.
            unsafe {
                let find = std::mem::transmute::<usize, FindFn>(find);
                if find(address as *mut c_void, &mut found) == 0 && !found.link_map.is_null() {
                    (*found.link_map).dynamic
                } else {
                    0
                }
            }
        }
    }
}

fn definition(name: &CStr) -> Option<usize> {
    let mut found = None;
    loaded::visit(|object| {
        let soname = object.soname().to_bytes();
        if soname == b"libc.so.6" || soname.starts_with(b"ld-linux") {
            found = object.defines(name);
        }
        if found.is_some() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    found
}
