//! Values that a stream writes to memory or waits for: the driver does it, once it is certain that they lie in what the
//! program was given (hazard 25; natively a word outside any block is refused with CUDA_ERROR_INVALID_VALUE).

use super::copy::{is_inside, note_stream};
use crate::abi::*;
use std::ffi::{c_uint, c_ulonglong};

const WAIT_32: c_uint = 1;
const WRITE_32: c_uint = 2;
const WAIT_64: c_uint = 4;
const WRITE_64: c_uint = 5;

/// `CUstreamBatchMemOpParams`. Waits and writes have their address in the same place.
#[repr(C)]
pub struct Operation {
    kind: c_uint,
    address: CUdeviceptr,
    rest: [u64; 4],
}

impl Operation {
    fn is_inside(&self) -> bool {
        match self.kind {
            WAIT_32 | WRITE_32 => is_inside(self.address, 1),
            WAIT_64 | WRITE_64 => is_inside(self.address, 1),
            _ => true,
        }
    }
}

/// `cuStreamWriteValue32`, `cuStreamWaitValue32`, all forms.
pub unsafe fn word_32_async(
    real: unsafe extern "C" fn(CUstream, CUdeviceptr, c_uint, c_uint) -> Status,
    stream: CUstream,
    address: CUdeviceptr,
    value: c_uint,
    flags: c_uint,
) -> Status {
    note_stream(stream);
    if !is_inside(address, 1) {
        return INVALID_VALUE;
    }
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real(stream, address, value, flags) }
}

/// `cuStreamWriteValue64`, `cuStreamWaitValue64`, all forms.
pub unsafe fn word_64_async(
    real: unsafe extern "C" fn(CUstream, CUdeviceptr, c_ulonglong, c_uint) -> Status,
    stream: CUstream,
    address: CUdeviceptr,
    value: c_ulonglong,
    flags: c_uint,
) -> Status {
    note_stream(stream);
    if !is_inside(address, 1) {
        return INVALID_VALUE;
    }
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real(stream, address, value, flags) }
}

/// `cuStreamBatchMemOp`, all forms.
pub unsafe fn batch_async(
    real: unsafe extern "C" fn(CUstream, c_uint, *mut Operation, c_uint) -> Status,
    stream: CUstream,
    count: c_uint,
    operations: *mut Operation,
    flags: c_uint,
) -> Status {
    note_stream(stream);
    let mut places = 0..count as usize;
    // SAFETY: the caller owes `count` operations; a null pointer is the driver's to refuse.
    let is_outside = |at| unsafe { !(*operations.add(at)).is_inside() };
    if !operations.is_null() && places.any(is_outside) {
        return INVALID_VALUE;
    }
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real(stream, count, operations, flags) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_is_as_wide_as_cuda_h_has_it() {
        assert_eq!(size_of::<Operation>(), 48);
        assert_eq!(std::mem::offset_of!(Operation, address), 8);
    }
}
