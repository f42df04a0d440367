//! Every name of the driver, and `cuGetProcAddress` on top of the table.
use crate::abi::*;
use crate::config;
use std::ffi::{c_char, c_void, CStr};

pub struct Name {
    base: &'static str,
    version: i32,
    per_thread: bool,
    address: unsafe extern "C" fn(),
}

macro_rules! stub {
    ($name:ident, $code:expr) => {
        /// Not modelled.
        #[no_mangle]
        pub extern "C" fn $name() -> i32 {
            static SITE: crate::entry::Site = crate::entry::Site::new(stringify!($name));
            crate::entry::call(&SITE, &|_| Ok(()), || Err($code))
        }
    };
}

include!(concat!(env!("OUT_DIR"), "/names.rs"));

/// Found, no such name, or not in this version.
enum Answer {
    Found(*mut c_void),
    Unknown,
    TooOld,
}

/// Whether a driver of the version that is simulated has this symbol.
pub fn exists(symbol: &str) -> bool {
    let found = INTRODUCED.binary_search_by(|(s, _)| (*s).cmp(symbol));
    found.map_or(true, |i| INTRODUCED[i].1 <= config::get().driver_version)
}

fn look_up(name: &str, version: i32, per_thread: bool) -> Answer {
    let newest = config::get().driver_version;
    let from = NAMES.partition_point(|n| n.base < name);
    let rows = NAMES[from..].iter().take_while(|n| n.base == name);
    let mut known = false;
    let mut best: Option<&Name> = None;
    for row in rows.filter(|r| r.version <= newest) {
        known = true;
        if row.version > version || (row.per_thread && !per_thread) {
            continue;
        }
        let better = |b: &Name| (row.per_thread, row.version) > (b.per_thread, b.version);
        if best.is_none_or(better) {
            best = Some(row);
        }
    }
    match best {
        Some(row) => Answer::Found(row.address as *mut c_void),
        None if known => Answer::TooOld,
        None => Answer::Unknown,
    }
}

/// # Safety
/// `name` is null or a C string; `out` and `status` are null or valid for writes.
unsafe fn answer(
    name: *const c_char,
    out: *mut *mut c_void,
    version: i32,
    flags: u64,
    status: Option<*mut i32>,
) -> R {
    if name.is_null() || out.is_null() || flags > 2 || version > config::get().driver_version {
        return Err(INVALID_VALUE);
    }
    // SAFETY: not null, a C string by contract.
    let name = unsafe { CStr::from_ptr(name) }.to_str().unwrap_or("");
    let (pointer, code) = match look_up(name, version, flags == 2) {
        Answer::Found(p) => (p, 0),
        Answer::Unknown => (std::ptr::null_mut(), 1),
        Answer::TooOld => (std::ptr::null_mut(), 2),
    };
    let Some(status) = status else {
        if code != 0 {
            return Err(NOT_FOUND);
        }
        // SAFETY: `out` is valid for a write by contract.
        return unsafe { put(out, pointer) };
    };
    // SAFETY: both are valid for writes by contract.
    unsafe {
        put_opt(status, code);
        put(out, pointer)
    }
}

api! {
    fn cuGetProcAddress(symbol: *const c_char, pfn: *mut *mut c_void, version: i32, flags: u64) {
        answer(symbol, pfn, version, flags, None)
    }
    fn cuGetProcAddress_v2(symbol: *const c_char, pfn: *mut *mut c_void, version: i32, flags: u64, status: *mut i32) {
        answer(symbol, pfn, version, flags, Some(status))
    }
    fn cuGetProcAddress_v2_ptsz(symbol: *const c_char, pfn: *mut *mut c_void, version: i32, flags: u64, status: *mut i32) {
        answer(symbol, pfn, version, if flags == 0 { 2 } else { flags }, Some(status))
    }
    fn cuGetExportTable(table: *mut *const c_void, id: *const c_void) {
        Err(NOT_SUPPORTED)
    }
}
