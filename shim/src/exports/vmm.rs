//! Physical memory of the virtual memory functions: passed through, and counted when it is the device's own (hazard 9:
//! NCCL and vLLM also make host handles, which are no device memory).

use crate::abi::*;
use crate::device::{contexts, imports, physical, reclaim, settings};
use crate::ledger::{self, Kind};
use std::ffi::{c_ulonglong, c_void};

/// `cuMemCreate`.
pub unsafe fn create(
    real: unsafe extern "C" fn(
        *mut c_ulonglong,
        usize,
        *const AllocationProperties,
        c_ulonglong,
    ) -> Status,
    handle: *mut c_ulonglong,
    size_bytes: usize,
    properties: *const AllocationProperties,
    flags: c_ulonglong,
) -> Status {
    // SAFETY: the caller's arguments, unchanged.
    let call = || unsafe { real(handle, size_bytes, properties, flags) };
    // SAFETY: the caller owes readable properties, or null, which the driver refuses.
    match unsafe { properties.as_ref() } {
        Some(p) if p.location.kind == LOCATION_DEVICE => {
            // SAFETY: read after success only.
            let key = || physical::created(unsafe { *handle });
            ledger::counted_on(Kind::Vmm, p.location.id, size_bytes as u64, call, key)
        }
        // Host memory that the device can write: as good as pinned for what the program can see.
        Some(_) => settings::note_shared(call()),
        None => reclaim::retried(call),
    }
}

/// `cuMemRelease`.
pub unsafe fn release(
    real: unsafe extern "C" fn(c_ulonglong) -> Status,
    handle: c_ulonglong,
) -> Status {
    // SAFETY: the caller's argument, unchanged.
    physical::released(handle, || unsafe { real(handle) })
}

/// Whether the shim may have mapped what natively is no mapping: such calls are refused as for any memory of cuMemAlloc.
fn is_ours(address: CUdeviceptr) -> bool {
    contexts::is_pooled(address) || imports::find(address).is_some()
}

/// `cuMemRetainAllocationHandle`.
pub unsafe fn retain(
    real: unsafe extern "C" fn(*mut c_ulonglong, *mut c_void) -> Status,
    handle: *mut c_ulonglong,
    address: *mut c_void,
) -> Status {
    if is_ours(address as CUdeviceptr) {
        return INVALID_VALUE;
    }
    // SAFETY: the caller's arguments, unchanged.
    let code = unsafe { real(handle, address) };
    if code == SUCCESS {
        // SAFETY: filled by the driver just now.
        physical::retained(unsafe { *handle }, address as CUdeviceptr);
    }
    code
}

/// `cuMemMap`.
pub unsafe fn map(
    real: unsafe extern "C" fn(CUdeviceptr, usize, usize, c_ulonglong, c_ulonglong) -> Status,
    address: CUdeviceptr,
    size_bytes: usize,
    offset_bytes: usize,
    handle: c_ulonglong,
    flags: c_ulonglong,
) -> Status {
    // SAFETY: the caller's arguments, unchanged.
    let code =
        reclaim::retried(|| unsafe { real(address, size_bytes, offset_bytes, handle, flags) });
    if code == SUCCESS {
        physical::mapped(handle, address, size_bytes as u64);
    }
    code
}

/// `cuMemUnmap`.
pub unsafe fn unmap(
    real: unsafe extern "C" fn(CUdeviceptr, usize) -> Status,
    address: CUdeviceptr,
    size_bytes: usize,
) -> Status {
    if is_ours(address) {
        return INVALID_VALUE;
    }
    // SAFETY: the caller's arguments, unchanged.
    physical::unmapped(address, size_bytes as u64, || unsafe {
        real(address, size_bytes)
    })
}
