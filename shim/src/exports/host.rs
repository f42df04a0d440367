//! Host memory that the device can reach, and managed memory: the driver's, counted, because while a program holds any
//! of it, it can see whether a free waited (design.md, "Free and reuse").

use crate::abi::*;
use crate::device::blocks::{self, Seen};
use crate::device::{reclaim, settings};
use crate::ledger::{self, Kind, Space};
use std::ffi::{c_int, c_uint, c_ulonglong, c_void};

type Host = *mut c_void;

/// `cuMemAllocManaged`.
pub unsafe fn alloc_managed(
    real: unsafe extern "C" fn(*mut CUdeviceptr, usize, c_uint) -> Status,
    address: *mut CUdeviceptr,
    size_bytes: usize,
    flags: c_uint,
) -> Status {
    // SAFETY: the caller's arguments, unchanged; the address is read after success only.
    unsafe {
        ledger::counted(
            Kind::Managed,
            size_bytes as u64,
            || real(address, size_bytes, flags),
            || *address,
        )
    }
}

/// `cuMemAllocHost_v2`.
pub unsafe fn alloc_host(
    real: unsafe extern "C" fn(*mut Host, usize) -> Status,
    address: *mut Host,
    size_bytes: usize,
) -> Status {
    // SAFETY: as above.
    unsafe {
        ledger::counted(
            Kind::PinnedHost,
            size_bytes as u64,
            || real(address, size_bytes),
            || *address as u64,
        )
    }
}

/// `cuMemAllocHost`, the form of CUDA 2 with a 32-bit size.
pub unsafe fn alloc_host_v1(
    real: unsafe extern "C" fn(*mut Host, c_uint) -> Status,
    address: *mut Host,
    size_bytes: c_uint,
) -> Status {
    // SAFETY: as above.
    unsafe {
        ledger::counted(
            Kind::PinnedHost,
            size_bytes.into(),
            || real(address, size_bytes),
            || *address as u64,
        )
    }
}

/// `cuMemHostAlloc`.
pub unsafe fn host_alloc(
    real: unsafe extern "C" fn(*mut Host, usize, c_uint) -> Status,
    address: *mut Host,
    size_bytes: usize,
    flags: c_uint,
) -> Status {
    // SAFETY: as above.
    unsafe {
        ledger::counted(
            Kind::PinnedHost,
            size_bytes as u64,
            || real(address, size_bytes, flags),
            || *address as u64,
        )
    }
}

/// The address that the driver is asked about: of a freed block, one that no allocation has ever had.
fn asked(address: Host) -> Host {
    blocks::seen(address as CUdeviceptr).asked(address as CUdeviceptr) as Host
}

/// The same where the driver takes mapped device memory for host memory (measured: it answers 0 for it).
fn asked_as_host(address: Host) -> Host {
    match blocks::seen(address as CUdeviceptr) {
        Seen::Block {
            mapped_for: Some(_),
            ..
        } => blocks::NOWHERE as Host,
        seen => seen.asked(address as CUdeviceptr) as Host,
    }
}

/// `cuMemHostGetDevicePointer_v2`.
pub unsafe fn device_pointer(
    real: unsafe extern "C" fn(*mut CUdeviceptr, Host, c_uint) -> Status,
    device_address: *mut CUdeviceptr,
    address: Host,
    flags: c_uint,
) -> Status {
    // SAFETY: the caller's arguments, or an address that the driver refuses.
    unsafe { real(device_address, asked_as_host(address), flags) }
}

/// `cuMemHostGetFlags`.
pub unsafe fn flags(
    real: unsafe extern "C" fn(*mut c_uint, Host) -> Status,
    flags: *mut c_uint,
    address: Host,
) -> Status {
    // SAFETY: as above.
    unsafe { real(flags, asked_as_host(address)) }
}

/// `cuMemFreeHost`.
pub unsafe fn free_host(real: unsafe extern "C" fn(Host) -> Status, address: Host) -> Status {
    let address = asked(address);
    // SAFETY: the caller's argument, or one that the driver refuses.
    ledger::released(Space::Host, address as u64, || unsafe { real(address) })
}

/// `cuMemHostRegister`, `cuMemHostRegister_v2`.
pub unsafe fn register(
    real: unsafe extern "C" fn(Host, usize, c_uint) -> Status,
    address: Host,
    size_bytes: usize,
    flags: c_uint,
) -> Status {
    // SAFETY: the caller's arguments, unchanged.
    let call = || unsafe { real(address, size_bytes, flags) };
    ledger::counted(Kind::RegisteredHost, size_bytes as u64, call, || {
        address as u64
    })
}

/// `cuMemHostUnregister`.
pub unsafe fn unregister(real: unsafe extern "C" fn(Host) -> Status, address: Host) -> Status {
    let address = asked(address);
    // SAFETY: the caller's argument, or one that the driver refuses.
    ledger::released(Space::Host, address as u64, || unsafe { real(address) })
}

/// `cuMemExportToShareableHandle`: another process may watch this one's device work from now on.
pub unsafe fn share4(
    real: unsafe extern "C" fn(*mut c_void, c_ulonglong, c_int, c_ulonglong) -> Status,
    shareable: *mut c_void,
    handle: c_ulonglong,
    kind: c_int,
    flags: c_ulonglong,
) -> Status {
    // SAFETY: the caller's arguments, unchanged.
    settings::note_shared(unsafe { real(shareable, handle, kind, flags) })
}

/// `cuImportExternalMemory`: as above.
pub unsafe fn share2(
    real: unsafe extern "C" fn(*mut c_void, *const c_void) -> Status,
    external: *mut c_void,
    descriptor: *const c_void,
) -> Status {
    // SAFETY: the caller's arguments, unchanged.
    settings::note_shared(reclaim::retried(|| unsafe { real(external, descriptor) }))
}
