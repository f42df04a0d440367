//! Copies and memsets: the driver does them, once it is certain that they stay inside what the program was given.
//!
//! Natively a copy that runs past the end of an allocation, or touches freed memory, is refused with
//! CUDA_ERROR_INVALID_VALUE and touches nothing. Inside a segment the driver sees no such end, so the shim looks
//! (hazard 25). So it is with blocks of other processes that were opened here. Other memory is not looked at.

mod batch;
mod shape;

pub use batch::{batch_async, batch_async_v1};
pub use shape::{rows_are_inside, Copy2d, Copy3d};

use crate::abi::*;
use crate::device::{contexts, imports, order};
use cushion::pool::Found;
use std::ffi::{c_uchar, c_uint, c_ulonglong, c_ushort, c_void};

type Device = CUdeviceptr;
type Host = *mut c_void;
type Array = *mut c_void;

/// Whether `size_bytes` from `address` on are the program's to touch.
#[inline]
pub(super) fn is_inside(address: Device, size_bytes: usize) -> bool {
    if size_bytes == 0 {
        return true;
    }
    if !contexts::may_hold(address) {
        return imports::is_inside(address, size_bytes as u64);
    }
    match contexts::find(address) {
        Found::NotMine => imports::is_inside(address, size_bytes as u64),
        Found::Dead => false,
        Found::Live(block) => {
            let left = block.requested_bytes - (address - block.base);
            size_bytes as u64 <= left
        }
    }
}

/// What a call that does not stay inside is refused with. Where nothing could be copied, the driver says that first.
#[cold]
pub(super) fn refusal() -> Status {
    contexts::refuses_all().unwrap_or(INVALID_VALUE)
}

/// The same on a stream: only a default one needs a current context.
#[cold]
pub(super) fn refusal_on(stream: CUstream) -> Status {
    match refusal() {
        INVALID_CONTEXT if !order::is_default(stream) => INVALID_VALUE,
        code => code,
    }
}

/// A copy or memset is about to be queued on this stream, which may be another device's than the current one.
#[inline]
pub(super) fn note_stream(stream: CUstream) {
    order::note_stream(stream);
    contexts::note_work_on(stream);
}

macro_rules! copies {
    ($( $name:ident $name_async:ident ( $($argument:ident : $type:ty),* ) $check:expr; )*) => {$(
        /// Done by the driver if it stays inside.
        pub unsafe fn $name(real: unsafe extern "C" fn($($type),*) -> Status, $($argument: $type),*) -> Status {
            if !$check {
                return refusal();
            }
            // SAFETY: the caller's arguments, unchanged.
            let code = unsafe { real($($argument),*) };
            contexts::observe(code);
            code
        }

        /// The same on a stream.
        #[allow(clippy::too_many_arguments)]
        pub unsafe fn $name_async(
            real: unsafe extern "C" fn($($type,)* CUstream) -> Status,
            $($argument: $type,)*
            stream: CUstream,
        ) -> Status {
            note_stream(stream);
            if !$check {
                return refusal_on(stream);
            }
            // SAFETY: the caller's arguments, unchanged.
            unsafe { real($($argument,)* stream) }
        }
    )*};
}

copies! {
    any any_async (to: Device, from: Device, size_bytes: usize)
        (is_inside(to, size_bytes) && is_inside(from, size_bytes));
    from_host from_host_async (to: Device, _from: Host, size_bytes: usize) is_inside(to, size_bytes);
    to_host to_host_async (_to: Host, from: Device, size_bytes: usize) is_inside(from, size_bytes);
    peer peer_async (to: Device, _to_context: CUcontext, from: Device, _from_context: CUcontext, size_bytes: usize)
        { contexts::note_peers(); is_inside(to, size_bytes) && is_inside(from, size_bytes) };
    flat_2d flat_2d_async (copy: *const Copy2d) {
        // SAFETY: the caller owes a readable description, or null, which the driver refuses.
        unsafe { copy.as_ref() }.is_none_or(Copy2d::is_inside)
    };
    flat_3d flat_3d_async (copy: *const Copy3d) {
        // SAFETY: as above.
        unsafe { copy.as_ref() }.is_none_or(Copy3d::is_inside)
    };
    peer_3d peer_3d_async (copy: *const Copy3d) {
        contexts::note_peers();
        // SAFETY: as above; the context takes the place of a reserved pointer, all else is the same.
        unsafe { copy.as_ref() }.is_none_or(Copy3d::is_inside)
    };
    set_8 set_8_async (to: Device, _value: c_uchar, count: usize) is_inside(to, count);
    set_16 set_16_async (to: Device, _value: c_ushort, count: usize) is_inside(to, count.saturating_mul(2));
    set_32 set_32_async (to: Device, _value: c_uint, count: usize) is_inside(to, count.saturating_mul(4));
    set_2d_8 set_2d_8_async (to: Device, pitch_bytes: usize, _value: c_uchar, width: usize, count: usize)
        rows_are_inside(to, pitch_bytes, width, count);
    set_2d_16 set_2d_16_async (to: Device, pitch_bytes: usize, _value: c_ushort, width: usize, count: usize)
        rows_are_inside(to, pitch_bytes, width.saturating_mul(2), count);
    set_2d_32 set_2d_32_async (to: Device, pitch_bytes: usize, _value: c_uint, width: usize, count: usize)
        rows_are_inside(to, pitch_bytes, width.saturating_mul(4), count);
}

/// `cuMemcpyDtoA_v2`.
pub unsafe fn to_array(
    real: unsafe extern "C" fn(Array, usize, Device, usize) -> Status,
    to: Array,
    offset_bytes: usize,
    from: Device,
    size_bytes: usize,
) -> Status {
    if !is_inside(from, size_bytes) {
        return refusal();
    }
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real(to, offset_bytes, from, size_bytes) }
}

/// `cuMemcpyAtoD_v2`.
pub unsafe fn from_array(
    real: unsafe extern "C" fn(Device, Array, usize, usize) -> Status,
    to: Device,
    from: Array,
    offset_bytes: usize,
    size_bytes: usize,
) -> Status {
    if !is_inside(to, size_bytes) {
        return refusal();
    }
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real(to, from, offset_bytes, size_bytes) }
}

/// `cuMemcpyWithAttributesAsync`.
pub unsafe fn with_attributes_async(
    real: unsafe extern "C" fn(Device, Device, usize, Host, CUstream) -> Status,
    to: Device,
    from: Device,
    size_bytes: usize,
    attributes: Host,
    stream: CUstream,
) -> Status {
    note_stream(stream);
    if !is_inside(to, size_bytes) || !is_inside(from, size_bytes) {
        return refusal_on(stream);
    }
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real(to, from, size_bytes, attributes, stream) }
}

macro_rules! any_device {
    ($( $name:ident ( $($argument:ident : $type:ty),* ) )*) => {$(
        /// A copy whose operands are not looked at: it may touch memory of any device.
        pub unsafe fn $name(
            real: unsafe extern "C" fn($($type,)* CUstream) -> Status,
            $($argument: $type,)*
            stream: CUstream,
        ) -> Status {
            order::note_stream(stream);
            contexts::note_work_anywhere();
            // SAFETY: the caller's arguments, unchanged.
            unsafe { real($($argument,)* stream) }
        }
    )*};
}

any_device! {
    with_attributes_3d_async (copy: Host, flags: c_ulonglong)
    batch_3d_async (count: usize, copies: Host, flags: c_ulonglong)
    batch_3d_async_v1 (count: usize, copies: Host, failed_at: *mut usize, flags: c_ulonglong)
}
