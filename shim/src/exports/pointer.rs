//! What an address is: for a pooled block the answers are about the block, not about its segment (hazard 10), and an
//! attribute set on one block touches no other (hazard 16).

use crate::abi::*;
use crate::device::blocks::{self, Seen};
use std::ffi::{c_int, c_uint, c_ulonglong, c_void};

const CONTEXT: c_int = 1;
const P2P_TOKENS: c_int = 5;
const SYNC_MEMOPS: c_int = 6;
const BUFFER_ID: c_int = 7;
const IS_LEGACY_IPC_CAPABLE: c_int = 10;
const RANGE_START_ADDR: c_int = 11;
const RANGE_SIZE: c_int = 12;
const ALLOWED_HANDLE_TYPES: c_int = 14;
const MAPPING_SIZE: c_int = 18;
const MAPPING_BASE_ADDR: c_int = 19;
/// The driver gives memory to cuMemAlloc in pages of this size.
const PAGE_BYTES: u64 = 2 << 20;

type GetAttribute = unsafe extern "C" fn(*mut c_void, c_int, CUdeviceptr) -> Status;

/// `cuMemGetAddressRange_v2`. An address in no live block of its segment is unknown to the program's driver.
pub unsafe fn address_range(
    real: unsafe extern "C" fn(*mut CUdeviceptr, *mut usize, CUdeviceptr) -> Status,
    base: *mut CUdeviceptr,
    size_bytes: *mut usize,
    address: CUdeviceptr,
) -> Status {
    let (start, size) = match blocks::seen(address) {
        Seen::Elsewhere => {
            // SAFETY: the caller's arguments, unchanged.
            return unsafe { real(base, size_bytes, address) };
        }
        // SAFETY: the caller's arguments, about an address that no allocation has ever had.
        Seen::Dead => return unsafe { real(base, size_bytes, blocks::NOWHERE) },
        Seen::Block {
            base, size_bytes, ..
        } => (base, size_bytes),
    };
    // The driver still says whether the call is allowed (no context, a dead one).
    let mut segment: CUdeviceptr = 0;
    // SAFETY: the out-parameter is ours.
    match unsafe { real(&mut segment, std::ptr::null_mut(), address) } {
        SUCCESS => {}
        code => return code,
    }
    // SAFETY: each is null or a place that the caller owes.
    unsafe {
        if let Some(base) = base.as_mut() {
            *base = start;
        }
        if let Some(size_bytes) = size_bytes.as_mut() {
            *size_bytes = size as usize;
        }
    }
    SUCCESS
}

/// `cuPointerGetAttribute`.
pub unsafe fn get_attribute(
    real: GetAttribute,
    data: *mut c_void,
    attribute: c_int,
    address: CUdeviceptr,
) -> Status {
    let seen = blocks::seen(address);
    // SAFETY: the caller's arguments; only the address may be another. The driver checks them and fills `data` about the segment.
    let code = unsafe { real(data, attribute, seen.asked(address)) };
    if code == SUCCESS && attribute == P2P_TOKENS {
        blocks::isolate(address);
    }
    if code == SUCCESS && !data.is_null() {
        // SAFETY: filled by the driver just now, so it is as wide as the attribute.
        unsafe { correct(&seen, attribute, data) };
    }
    code
}

/// `cuPointerGetAttributes`: succeeds for unknown pointers too, with zeros.
pub unsafe fn get_attributes(
    real: unsafe extern "C" fn(c_uint, *mut c_int, *mut *mut c_void, CUdeviceptr) -> Status,
    count: c_uint,
    attributes: *mut c_int,
    data: *mut *mut c_void,
    address: CUdeviceptr,
) -> Status {
    let seen = blocks::seen(address);
    // SAFETY: the caller's arguments; only the address may be another.
    let code = unsafe { real(count, attributes, data, seen.asked(address)) };
    if code != SUCCESS || attributes.is_null() || data.is_null() {
        return code;
    }
    for i in 0..count as usize {
        // SAFETY: the caller owes arrays of `count`, which the driver has just used.
        unsafe {
            let (attribute, place) = (*attributes.add(i), *data.add(i));
            if !place.is_null() {
                correct(&seen, attribute, place);
            }
        }
    }
    code
}

/// What the driver says of memory that the shim mapped, as it would of memory of cuMemAlloc.
///
/// # Safety
/// `data` is as wide as `attribute` is.
unsafe fn correct_mapped(
    (base, size_bytes): (CUdeviceptr, u64),
    context: usize,
    is_imported: bool,
    attribute: c_int,
    data: *mut c_void,
) {
    let first = base / PAGE_BYTES * PAGE_BYTES;
    let mapped_bytes = (base + size_bytes).next_multiple_of(PAGE_BYTES) - first;
    // SAFETY: the widths are those of cuda.h: 64 bits for context, size and address, a byte for a boolean. Of the handle types only the
    // low half is written: none of the high half is ever set.
    unsafe {
        match attribute {
            CONTEXT => data.cast::<usize>().write_unaligned(context),
            IS_LEGACY_IPC_CAPABLE => data.cast::<u8>().write((!is_imported).into()),
            ALLOWED_HANDLE_TYPES => data.cast::<u32>().write_unaligned(0),
            MAPPING_SIZE => data.cast::<u64>().write_unaligned(mapped_bytes),
            MAPPING_BASE_ADDR => data.cast::<u64>().write_unaligned(first),
            _ => {}
        }
    }
}

/// Puts the block's own answer where the driver's is about its segment.
///
/// # Safety
/// `data` is as wide as `attribute` is.
unsafe fn correct(seen: &Seen, attribute: c_int, data: *mut c_void) {
    let Seen::Block {
        base,
        size_bytes,
        id,
        mapped_for,
        is_imported,
        sync_memops,
    } = *seen
    else {
        return;
    };
    if let Some(context) = mapped_for {
        // SAFETY: the caller's promise.
        unsafe { correct_mapped((base, size_bytes), context, is_imported, attribute, data) };
    }
    // SAFETY: the widths are those of cuda.h: 64 bits for address, size and id; SYNC_MEMOPS is written as the driver
    // does, one byte of a boolean.
    unsafe {
        match attribute {
            RANGE_START_ADDR => data.cast::<u64>().write_unaligned(base),
            RANGE_SIZE => data.cast::<u64>().write_unaligned(size_bytes),
            BUFFER_ID => data.cast::<u64>().write_unaligned(id),
            SYNC_MEMOPS => {
                if let Some(on) = sync_memops {
                    data.cast::<u8>().write(on.into());
                }
            }
            _ => {}
        }
    }
}

/// `cuPointerSetAttribute`: only SYNC_MEMOPS can be set. The driver sets it on the whole segment, which then serves no
/// new block and goes back to the driver when its last one is freed.
pub unsafe fn set_attribute(
    real: unsafe extern "C" fn(*const c_void, c_int, CUdeviceptr) -> Status,
    value: *const c_void,
    attribute: c_int,
    address: CUdeviceptr,
) -> Status {
    if attribute == SYNC_MEMOPS && !value.is_null() {
        // SAFETY: the caller owes a readable unsigned int.
        let on = || unsafe { value.cast::<c_uint>().read_unaligned() } != 0;
        // SAFETY: the caller's arguments; only the address may be another one of its block.
        return blocks::set_sync_memops(address, on, |address| unsafe {
            real(value, attribute, address)
        });
    }
    // The driver refuses to set anything else, but for another reason if the memory is mapped.
    let address = match blocks::seen(address) {
        Seen::Dead
        | Seen::Block {
            mapped_for: Some(_),
            ..
        } => blocks::NOWHERE,
        _ => address,
    };
    // SAFETY: the caller's arguments; only the address may be another.
    unsafe { real(value, attribute, address) }
}

/// `cuMemGetAccess`: of a block it tells what it tells of the block's segment.
pub unsafe fn get_access(
    real: unsafe extern "C" fn(*mut c_ulonglong, *const c_void, CUdeviceptr) -> Status,
    flags: *mut c_ulonglong,
    place: *const c_void,
    address: CUdeviceptr,
) -> Status {
    // SAFETY: the caller's arguments; only the address may be another.
    unsafe { real(flags, place, blocks::seen(address).asked(address)) }
}

/// `cuMemGetHandleForAddressRange`: a file descriptor for RDMA or dma-buf pins the memory under it. The range is of whole
/// pages of the host, so its ends are in pages that the block shares with others.
pub unsafe fn handle_for_range(
    real: unsafe extern "C" fn(*mut c_void, CUdeviceptr, usize, c_int, c_ulonglong) -> Status,
    handle: *mut c_void,
    address: CUdeviceptr,
    size_bytes: usize,
    kind: c_int,
    flags: c_ulonglong,
) -> Status {
    let seen = blocks::seen_by_pages(address, size_bytes as u64);
    if matches!(seen, Seen::Dead) {
        return INVALID_VALUE;
    }
    // SAFETY: the caller's arguments, unchanged.
    let code = unsafe { real(handle, address, size_bytes, kind, flags) };
    if let (SUCCESS, Seen::Block { base, .. }) = (code, seen) {
        blocks::isolate(base);
    }
    code
}
