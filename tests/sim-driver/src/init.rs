//! The driver's life: cuInit, forks, the end of the process; and its names for errors.
use crate::abi::*;
use crate::config;
use crate::device::Device;
use crate::entry::{ENDED, READY};
use crate::forked;
use crate::pool::Pool;
use crate::state::{lock, watch_threads};
use crate::stats;
use std::ffi::c_char;
use std::sync::atomic::Ordering::*;

extern "C" fn ending() {
    if forked::is_child() {
        return;
    }
    stats::write();
    ENDED.store(true, Release);
}

fn init() -> R {
    if forked::is_child() {
        return Err(NOT_INITIALIZED);
    }
    if ENDED.load(Acquire) {
        return Err(DEINITIALIZED);
    }
    let config = config::get();
    if config.devices == 0 {
        return Err(NO_DEVICE);
    }
    let mut st = lock();
    if READY.load(Acquire) {
        return Ok(());
    }
    for ordinal in 0..config.devices {
        let (primary, pool) = (st.handle(), st.handle());
        st.pools.insert(pool, Pool::new(ordinal));
        st.devices.push(Device::new(primary, pool));
    }
    // SAFETY: the function lives as long as the library, which is never unloaded.
    unsafe { libc::atexit(ending) };
    forked::watch();
    watch_threads();
    READY.store(true, Release);
    Ok(())
}

/// # Safety
/// `out` is null or valid for a write.
unsafe fn error_text(
    out: *mut *const c_char,
    code: i32,
    text: fn(&(i32, &'static str, &'static str)) -> &'static str,
) -> R {
    let found = ERRORS.iter().find(|e| e.0 == code);
    // SAFETY: passed on; the texts end in NUL.
    unsafe {
        match found {
            Some(e) => put(out, text(e).as_ptr().cast()),
            None => {
                put_opt(out, std::ptr::null());
                Err(INVALID_VALUE)
            }
        }
    }
}

api! {
    fn cuInit(flags: u32) {
        if flags != 0 {
            return Err(INVALID_VALUE);
        }
        init()
    }
    fn cuDriverGetVersion(version: *mut i32) {
        put(version, config::get().driver_version)
    }
    fn cuGetErrorName(code: i32, out: *mut *const c_char) {
        error_text(out, code, |e| e.1)
    }
    fn cuGetErrorString(code: i32, out: *mut *const c_char) {
        error_text(out, code, |e| e.2)
    }
}
