//! How much memory there is: the limited device, with the pool's cache counted as free (hazard 8).
//!
//! free + used = total in every answer, and one answer is made of one reading.

use crate::abi::*;
use crate::device::{contexts, limits};

/// `cuMemGetInfo_v2`.
pub unsafe fn get_info(
    real: unsafe extern "C" fn(*mut usize, *mut usize) -> Status,
    free_bytes: *mut usize,
    total_bytes: *mut usize,
) -> Status {
    // SAFETY: the caller's arguments, unchanged.
    let code = unsafe { real(free_bytes, total_bytes) };
    contexts::observe(code);
    if code != SUCCESS || free_bytes.is_null() || total_bytes.is_null() {
        return code;
    }
    // SAFETY: not null, and filled by the driver just now.
    unsafe {
        let (free, total) = limits::seen(*free_bytes as u64, *total_bytes as u64);
        *free_bytes = free as usize;
        *total_bytes = total as usize;
    }
    code
}

/// `cuDeviceTotalMem_v2`.
pub unsafe fn total_mem(
    real: unsafe extern "C" fn(*mut usize, CUdevice) -> Status,
    total_bytes: *mut usize,
    device: CUdevice,
) -> Status {
    // SAFETY: the caller's arguments, unchanged.
    let code = unsafe { real(total_bytes, device) };
    if code == SUCCESS && !total_bytes.is_null() {
        // SAFETY: not null, and filled by the driver just now.
        unsafe { *total_bytes = limits::limited(device, *total_bytes as u64) as usize };
    }
    code
}
