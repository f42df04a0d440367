//! Arrays: the driver's, counted with the size that their shape and format give.

use crate::abi::*;
use crate::ledger::{self, Kind, Space};
use std::ffi::{c_uint, c_void};

type Array = *mut c_void;

/// Bytes of one channel. Formats beyond the plain ones (block-compressed, planar) count as one byte; the driver knows
/// their true size, which no call tells.
fn channel_bytes(format: u32) -> u64 {
    match format {
        0x02 | 0x09 | 0x10 => 2,
        0x03 | 0x0a | 0x20 => 4,
        _ => 1,
    }
}

fn size_bytes(extents: [usize; 3], format: u32, channels: u32) -> u64 {
    let elements = extents.iter().fold(1u64, |product, &extent| {
        product.saturating_mul(extent.max(1) as u64)
    });
    elements
        .saturating_mul(channel_bytes(format))
        .saturating_mul(channels.into())
}

/// # Safety
/// `descriptor` is null or what the driver's function of that name takes.
unsafe fn size_3d_bytes(descriptor: *const Array3dDescriptor) -> u64 {
    // SAFETY: the caller owes a readable descriptor, or null, which the driver refuses.
    match unsafe { descriptor.as_ref() } {
        Some(d) => size_bytes([d.width, d.height, d.depth], d.format, d.channel_count),
        None => 0,
    }
}

/// `cuArrayCreate_v2`.
pub unsafe fn create(
    real: unsafe extern "C" fn(*mut Array, *const ArrayDescriptor) -> Status,
    array: *mut Array,
    descriptor: *const ArrayDescriptor,
) -> Status {
    // SAFETY: as for `size_3d_bytes`.
    let size = match unsafe { descriptor.as_ref() } {
        Some(d) => size_bytes([d.width, d.height, 1], d.format, d.channel_count),
        None => 0,
    };
    // SAFETY: the caller's arguments, unchanged; the handle is read after success only.
    unsafe {
        ledger::counted(
            Kind::Array,
            size,
            || real(array, descriptor),
            || *array as u64,
        )
    }
}

/// `cuArray3DCreate_v2`.
pub unsafe fn create_3d(
    real: unsafe extern "C" fn(*mut Array, *const Array3dDescriptor) -> Status,
    array: *mut Array,
    descriptor: *const Array3dDescriptor,
) -> Status {
    // SAFETY: as above.
    unsafe {
        ledger::counted(
            Kind::Array,
            size_3d_bytes(descriptor),
            || real(array, descriptor),
            || *array as u64,
        )
    }
}

/// `cuArrayDestroy`.
pub unsafe fn destroy(real: unsafe extern "C" fn(Array) -> Status, array: Array) -> Status {
    // SAFETY: the caller's argument, unchanged.
    ledger::released(Space::Array, array as u64, || unsafe { real(array) })
}

/// `cuMipmappedArrayCreate`: all levels together are at most 8/7 (3D) to 2 times (1D) the first.
pub unsafe fn create_mipmapped(
    real: unsafe extern "C" fn(*mut Array, *const Array3dDescriptor, c_uint) -> Status,
    array: *mut Array,
    descriptor: *const Array3dDescriptor,
    level_count: c_uint,
) -> Status {
    // SAFETY: as for `size_3d_bytes`.
    let size = match unsafe { descriptor.as_ref() } {
        Some(d) => (0..level_count.min(32))
            .map(|level| {
                size_bytes(
                    [d.width >> level, d.height >> level, d.depth >> level],
                    d.format,
                    d.channel_count,
                )
            })
            .fold(0, u64::saturating_add),
        None => 0,
    };
    // SAFETY: the caller's arguments, unchanged; the handle is read after success only.
    unsafe {
        ledger::counted(
            Kind::MipmappedArray,
            size,
            || real(array, descriptor, level_count),
            || *array as u64,
        )
    }
}

/// `cuMipmappedArrayDestroy`.
pub unsafe fn destroy_mipmapped(
    real: unsafe extern "C" fn(Array) -> Status,
    array: Array,
) -> Status {
    // SAFETY: the caller's argument, unchanged.
    ledger::released(Space::MipmappedArray, array as u64, || unsafe {
        real(array)
    })
}
