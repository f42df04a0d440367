//! Copies and memsets: the driver does them, once it is certain that they stay inside what the program was given.
//!
//! Natively a copy that runs past the end of an allocation, or touches freed memory, is refused with
//! CUDA_ERROR_INVALID_VALUE and touches nothing. Inside a segment the driver sees no such end, so the shim looks
//! (hazard 25). So it is with blocks of other processes that were opened here. Other memory is not looked at.

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

/// A copy or memset is about to be queued on this stream, which may be another device's than the current one.
#[inline]
pub(super) fn note_stream(stream: CUstream) {
    order::note_stream(stream);
    contexts::note_work_on(stream);
}

/// A rectangle of rows. The last row need not be a whole pitch.
#[derive(Clone, Copy)]
struct Rows {
    /// Where the description starts. The driver wants this in the block, too (`g15_bounds_drv.drv-rectangles`).
    base: Device,
    /// Of the first row.
    offset_bytes: usize,
    pitch_bytes: usize,
    width_bytes: usize,
    count: usize,
}

impl Rows {
    fn is_inside(self) -> bool {
        if self.width_bytes == 0 || self.count == 0 {
            return true;
        }
        let pitch = self.pitch_bytes.max(self.width_bytes);
        let size = (self.count - 1)
            .checked_mul(pitch)
            .and_then(|rows| rows.checked_add(self.width_bytes))
            .and_then(|rows| rows.checked_add(self.offset_bytes));
        // A size past all memory is the driver's to refuse, as long as it starts in a block.
        is_inside(self.base, size.unwrap_or(usize::MAX))
    }
}

/// Whether `count` rows from `base` on are the program's to touch.
pub(super) fn rows_are_inside(
    base: Device,
    pitch_bytes: usize,
    width_bytes: usize,
    count: usize,
) -> bool {
    Rows {
        base,
        offset_bytes: 0,
        pitch_bytes,
        width_bytes,
        count,
    }
    .is_inside()
}

macro_rules! copies {
    ($( $name:ident $name_async:ident ( $($argument:ident : $type:ty),* ) $check:expr; )*) => {$(
        /// Done by the driver if it stays inside.
        pub unsafe fn $name(real: unsafe extern "C" fn($($type),*) -> Status, $($argument: $type),*) -> Status {
            if !$check {
                return INVALID_VALUE;
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
                return INVALID_VALUE;
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
        return INVALID_VALUE;
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
        return INVALID_VALUE;
    }
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real(to, from, offset_bytes, size_bytes) }
}

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
        return INVALID_VALUE;
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
        return INVALID_VALUE;
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
        return INVALID_VALUE;
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

const MEMORY_DEVICE: u32 = 2;
const MEMORY_UNIFIED: u32 = 4;

/// `CUDA_MEMCPY2D`.
#[repr(C)]
pub struct Copy2d {
    from: Side2d,
    to: Side2d,
    width_bytes: usize,
    height: usize,
}

#[repr(C)]
struct Side2d {
    x_bytes: usize,
    y: usize,
    kind: u32,
    host: Host,
    device: Device,
    array: Array,
    pitch_bytes: usize,
}

impl Copy2d {
    fn is_inside(&self) -> bool {
        [&self.from, &self.to].iter().all(|side| {
            side.kind != MEMORY_DEVICE && side.kind != MEMORY_UNIFIED || {
                let pitch_bytes = side.pitch_bytes.max(self.width_bytes);
                let offset = side
                    .y
                    .saturating_mul(pitch_bytes)
                    .saturating_add(side.x_bytes);
                Rows {
                    base: side.device,
                    offset_bytes: offset,
                    pitch_bytes,
                    width_bytes: self.width_bytes,
                    count: self.height,
                }
                .is_inside()
            }
        })
    }
}

/// `CUDA_MEMCPY3D`, and `CUDA_MEMCPY3D_PEER`, which has a context in the reserved place.
#[repr(C)]
pub struct Copy3d {
    from: Side3d,
    to: Side3d,
    width_bytes: usize,
    height: usize,
    depth: usize,
}

#[repr(C)]
struct Side3d {
    x_bytes: usize,
    y: usize,
    z: usize,
    lod: usize,
    kind: u32,
    host: Host,
    device: Device,
    array: Array,
    reserved_or_context: Host,
    pitch_bytes: usize,
    height: usize,
}

impl Copy3d {
    pub(super) fn is_inside(&self) -> bool {
        [&self.from, &self.to].iter().all(|side| {
            side.kind != MEMORY_DEVICE && side.kind != MEMORY_UNIFIED || {
                if self.width_bytes == 0 || self.height == 0 || self.depth == 0 {
                    return true;
                }
                let pitch_bytes = side.pitch_bytes.max(self.width_bytes);
                let slice_rows = side.height.max(self.height);
                let rows_before = side.z.saturating_mul(slice_rows).saturating_add(side.y);
                let offset = rows_before
                    .saturating_mul(pitch_bytes)
                    .saturating_add(side.x_bytes);
                // The rows from the first of the first slice to the last of the last.
                let count = (self.depth - 1)
                    .saturating_mul(slice_rows)
                    .saturating_add(self.height);
                Rows {
                    base: side.device,
                    offset_bytes: offset,
                    pitch_bytes,
                    width_bytes: self.width_bytes,
                    count,
                }
                .is_inside()
            }
        })
    }
}
