//! Which object an address is in, fast enough for every call: the C library's `_dl_find_object`, which takes no lock.
//! Before glibc 2.35 the list of objects is walked.
//!
//! An object is known again by the place of its dynamic section and its path. The place alone is not enough: two builds
//! of one library, opened in turn, can lie in the same place to the byte.

use super::loaded;
use std::ffi::{c_char, c_int, c_void, CStr, CString};
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
    path: *const c_char,
    dynamic: usize,
}

type FindFn = unsafe extern "C" fn(*mut c_void, *mut Found) -> c_int;

/// 0: not looked for yet; 1: there is none; else its address.
static FIND: AtomicUsize = AtomicUsize::new(0);

/// For how long what was found out about an object holds.
#[derive(Debug)]
pub enum Lasting {
    /// The program itself, or something that it needs: never unloaded.
    Forever,
    /// While the same object is in the same place.
    While {
        /// Its dynamic section.
        dynamic: usize,
        /// Its path.
        path: CString,
    },
    /// Code of no object.
    Nowhere,
}

/// The object that `address` is in, to be known again.
pub fn lasting(address: usize) -> Lasting {
    let Some(object) = loaded::holding(address) else {
        return Lasting::Nowhere;
    };
    let mut family = [object.path; 16];
    let count = object.brought_by(&mut family);
    // SAFETY: paths of loaded objects, whose code is executing or about to, or which need such an object.
    let is_program = |&path: &*const c_char| path.is_null() || unsafe { *path == 0 };
    if family[..count].iter().any(is_program) {
        return Lasting::Forever;
    }
    // SAFETY: as above; a path that is null was the program's.
    let path = unsafe { CStr::from_ptr(object.path) }.to_owned();
    Lasting::While {
        dynamic: object.dynamic,
        path,
    }
}

impl Lasting {
    /// Whether what was found out still holds for the object that `address` is in.
    #[inline]
    pub fn is_still(&self, address: usize) -> bool {
        match self {
            Lasting::Forever => true,
            Lasting::Nowhere => mark(address).is_none(),
            Lasting::While { dynamic, path } => mark(address).is_some_and(|(now, at)| {
                // SAFETY: the path of a loaded object, whose code is executing or about to.
                now == *dynamic && unsafe { libc::strcmp(at, path.as_ptr()) } == 0
            }),
        }
    }
}

/// Dynamic section and path of the object that `address` is in.
fn mark(address: usize) -> Option<(usize, *const c_char)> {
    let find = match FIND.load(Ordering::Acquire) {
        0 => {
            let find = definition(c"_dl_find_object").unwrap_or(1);
            FIND.store(find, Ordering::Release);
            find
        }
        find => find,
    };
    if find == 1 {
        return loaded::holding(address).map(|object| (object.dynamic, object.path));
    }
    let mut found = Found {
        flags: 0,
        map_start: std::ptr::null_mut(),
        map_end: std::ptr::null_mut(),
        link_map: std::ptr::null(),
        eh_frame: std::ptr::null_mut(),
        reserved: [0; 7],
    };
    // SAFETY: `find` is the C library's `_dl_find_object`, which fills a structure of this layout (GLIBC_2.35) when it
    // returns 0. The link map is that of an object whose code is executing or about to.
    unsafe {
        let find = std::mem::transmute::<usize, FindFn>(find);
        if find(address as *mut c_void, &mut found) != 0 {
            return None;
        }
        found.link_map.as_ref().map(|map| (map.dynamic, map.path))
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
