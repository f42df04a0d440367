//! Stream-ordered memory and the memory nodes of graphs: the driver's own pools serve them, the shim counts.

use crate::abi::*;
use crate::ledger::{self, Kind};
use std::ffi::c_void;

/// `cuMemAllocAsync`.
pub unsafe fn alloc(
    real: unsafe extern "C" fn(*mut CUdeviceptr, usize, CUstream) -> Status,
    address: *mut CUdeviceptr,
    size_bytes: usize,
    stream: CUstream,
) -> Status {
    // SAFETY: the caller's arguments, unchanged; the address is read after success only.
    unsafe {
        ledger::counted_on_stream(
            Kind::Async,
            stream as u64,
            size_bytes as u64,
            || real(address, size_bytes, stream),
            || *address,
        )
    }
}

/// `cuMemAllocFromPoolAsync`.
pub unsafe fn alloc_from_pool(
    real: unsafe extern "C" fn(*mut CUdeviceptr, usize, *mut c_void, CUstream) -> Status,
    address: *mut CUdeviceptr,
    size_bytes: usize,
    pool: *mut c_void,
    stream: CUstream,
) -> Status {
    // SAFETY: as above.
    unsafe {
        ledger::counted_on_stream(
            Kind::PoolAsync,
            stream as u64,
            size_bytes as u64,
            || real(address, size_bytes, pool, stream),
            || *address,
        )
    }
}
