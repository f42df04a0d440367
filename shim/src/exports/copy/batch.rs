//! Many copies in one call.

use super::{is_inside, note_stream, refusal_on, Device, Host};
use crate::abi::*;

/// The first copy of a batch that does not stay inside. Null arrays are the driver's to refuse.
///
/// # Safety
/// Each array is null or has `count` places.
unsafe fn first_outside(
    to: *const Device,
    from: *const Device,
    sizes_bytes: *const usize,
    count: usize,
) -> Option<usize> {
    if to.is_null() || from.is_null() || sizes_bytes.is_null() {
        return None;
    }
    (0..count).find(|&at| {
        // SAFETY: the caller of this function owes the arrays.
        let (to, from, size) = unsafe { (*to.add(at), *from.add(at), *sizes_bytes.add(at)) };
        !is_inside(to, size) || !is_inside(from, size)
    })
}

/// `cuMemcpyBatchAsync`, both forms: each copy must stay inside.
#[allow(clippy::too_many_arguments)]
pub unsafe fn batch_async(
    real: unsafe extern "C" fn(
        *mut Device,
        *mut Device,
        *mut usize,
        usize,
        Host,
        *mut usize,
        usize,
        CUstream,
    ) -> Status,
    to: *mut Device,
    from: *mut Device,
    sizes_bytes: *mut usize,
    count: usize,
    attributes: Host,
    attribute_indexes: *mut usize,
    attribute_count: usize,
    stream: CUstream,
) -> Status {
    note_stream(stream);
    // SAFETY: the caller owes three arrays of `count`.
    if unsafe { first_outside(to, from, sizes_bytes, count) }.is_some() {
        return refusal_on(stream);
    }
    // SAFETY: the caller's arguments, unchanged.
    unsafe {
        real(
            to,
            from,
            sizes_bytes,
            count,
            attributes,
            attribute_indexes,
            attribute_count,
            stream,
        )
    }
}

/// The same as CUDA 12.8 had it, with a place for the index of a failure.
#[allow(clippy::too_many_arguments)]
pub unsafe fn batch_async_v1(
    real: unsafe extern "C" fn(
        *mut Device,
        *mut Device,
        *mut usize,
        usize,
        Host,
        *mut usize,
        usize,
        *mut usize,
        CUstream,
    ) -> Status,
    to: *mut Device,
    from: *mut Device,
    sizes_bytes: *mut usize,
    count: usize,
    attributes: Host,
    attribute_indexes: *mut usize,
    attribute_count: usize,
    failed_at: *mut usize,
    stream: CUstream,
) -> Status {
    note_stream(stream);
    // SAFETY: the caller owes three arrays of `count`.
    if let Some(at) = unsafe { first_outside(to, from, sizes_bytes, count) } {
        // SAFETY: null, or a place that the caller owes.
        if let Some(failed_at) = unsafe { failed_at.as_mut() } {
            *failed_at = at;
        }
        return refusal_on(stream);
    }
    // SAFETY: the caller's arguments, unchanged.
    unsafe {
        real(
            to,
            from,
            sizes_bytes,
            count,
            attributes,
            attribute_indexes,
            attribute_count,
            failed_at,
            stream,
        )
    }
}
