//! Physical memory of the virtual memory functions: passed through, and counted when it is the device's own (hazard 9:
//! NCCL and vLLM also make host handles, which are no device memory).

use crate::abi::*;
use crate::device::{reclaim, settings};
use crate::ledger::{self, Kind, Space};
use std::ffi::c_ulonglong;

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
            ledger::counted_on(
                Kind::Vmm,
                p.location.id,
                size_bytes as u64,
                call,
                || unsafe { *handle },
            )
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
    ledger::released(Space::Vmm, handle, || unsafe { real(handle) })
}
