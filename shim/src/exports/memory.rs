//! Device memory, one call at a time.
use crate::abi::*;

/// `cuMemAlloc_v2`.
///
/// # Safety
/// As the driver's.
pub unsafe fn alloc(
    real: unsafe extern "C" fn(*mut CUdeviceptr, usize) -> Status,
    address: *mut CUdeviceptr,
    size_bytes: usize,
) -> Status {
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real(address, size_bytes) }
}

/// `cuMemFree_v2`.
///
/// # Safety
/// As the driver's.
pub unsafe fn free(
    real: unsafe extern "C" fn(CUdeviceptr) -> Status,
    address: CUdeviceptr,
) -> Status {
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real(address) }
}
