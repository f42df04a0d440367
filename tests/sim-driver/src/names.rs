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

/// Flags of cuGetProcAddress; with both, the second counts (measured).
const LEGACY: u64 = 1;
const PER_THREAD: u64 = 2;

/// The version that brought the functions for the calling thread's own stream.
const FIRST_TWINS: i32 = 7000;

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
    // Where there are twins, what came before the first of all twins is too old (measured).
    let twins = per_thread && rows.clone().any(|r| r.per_thread && r.version <= newest);
    let oldest = if twins { FIRST_TWINS } else { 0 };
    let mut best: Option<&Name> = None;
    for row in rows.filter(|r| r.version <= newest) {
        known = true;
        // A version below 0 is a very new one (measured).
        let fits = row.version >= oldest && row.version as u32 <= version as u32;
        if !fits || (row.per_thread && !per_thread) {
            continue;
        }
        let better = |b: &Name| (row.version, row.per_thread) > (b.version, b.per_thread);
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
    if name.is_null()
        || out.is_null()
        || flags & !(LEGACY | PER_THREAD) != 0
        || version > config::get().driver_version
    {
        return Err(INVALID_VALUE);
    }
    // SAFETY: not null, a C string by contract.
    let name = unsafe { CStr::from_ptr(name) }.to_str().unwrap_or("");
    let (pointer, code) = match look_up(name, version, flags & PER_THREAD != 0) {
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
        answer(symbol, pfn, version, if flags == 0 { PER_THREAD } else { flags }, Some(status))
    }
    fn cuGetExportTable(table: *mut *const c_void, id: *const c_void) {
        Err(NOT_SUPPORTED)
    }
}
