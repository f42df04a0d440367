//! Values that a stream writes to memory or waits for: the driver does it, once it is certain that they lie in what the
//! program was given (hazard 25; natively a word outside any block is refused with CUDA_ERROR_INVALID_VALUE).

use super::copy::{is_inside, note_stream};
use crate::abi::*;
use crate::device::contexts;
use std::ffi::c_uint;

const WAIT_32: c_uint = 1;
const WRITE_32: c_uint = 2;
const WAIT_64: c_uint = 4;
const WRITE_64: c_uint = 5;

/// Whether a word that starts there is the program's to touch. Where it ends is not looked at, natively neither.
fn is_word(address: CUdeviceptr) -> bool {
    is_inside(address, 1)
}

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
            WAIT_32 | WRITE_32 | WAIT_64 | WRITE_64 => is_word(self.address),
            _ => true,
        }
    }
}

/// `cuStreamWaitValue32`, the same of 64 bits, all forms.
pub unsafe fn wait_async<Value>(
    real: unsafe extern "C" fn(CUstream, CUdeviceptr, Value, c_uint) -> Status,
    stream: CUstream,
    address: CUdeviceptr,
    value: Value,
    flags: c_uint,
) -> Status {
    note_stream(stream);
    contexts::before_hold();
    // SAFETY: the caller's promise.
    unsafe { word_async(real, stream, address, value, flags) }
}

/// `cuStreamWriteValue32`, the same of 64 bits, all forms.
pub unsafe fn word_async<Value>(
    real: unsafe extern "C" fn(CUstream, CUdeviceptr, Value, c_uint) -> Status,
    stream: CUstream,
    address: CUdeviceptr,
    value: Value,
    flags: c_uint,
) -> Status {
    note_stream(stream);
    if !is_word(address) {
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
    contexts::before_hold();
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
