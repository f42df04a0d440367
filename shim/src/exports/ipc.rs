//! Memory shared with other processes: the handle of a pooled block opens as that block, or is refused (hazard 5).

use crate::abi::*;
use crate::device::{blocks, contexts, imports, settings, share};
use crate::ledger::{self, Kind, Space};
use cushion::ipc_handle::{self, Block};
use cushion::pool::Found;
use std::ffi::c_uint;

/// `cuIpcGetMemHandle`.
pub unsafe fn get(
    real: unsafe extern "C" fn(*mut IpcHandle, CUdeviceptr) -> Status,
    handle: *mut IpcHandle,
    address: CUdeviceptr,
) -> Status {
    // SAFETY: the caller's arguments, unchanged.
    let native = || unsafe { real(handle, address) };
    let (context, block) = match contexts::find_with_owner(address) {
        None | Some((_, Found::NotMine)) => return settings::note_shared(native()),
        Some((_, Found::Dead)) => return contexts::refuses_all().unwrap_or(INVALID_VALUE),
        Some((context, Found::Live(block))) => (context, block),
    };
    blocks::settle(&context);
    if context.backing.mapped_at(block.base).is_some() {
        if handle.is_null() {
            return INVALID_VALUE;
        }
        return match share::export(&context, &block) {
            Ok(shared) => {
                context.pool.retire_on_free(block.base);
                // SAFETY: not null; the caller owes the place.
                unsafe { *handle = shared };
                settings::note_shared(SUCCESS)
            }
            Err(code) => code,
        };
    }
    let code = native();
    if code != SUCCESS || handle.is_null() {
        return code;
    }
    // SAFETY: not null, and filled by the driver just now.
    let segment_handle = unsafe { *handle };
    if block.whole_segment {
        if block.requested_bytes != block.segment.size_bytes {
            if let Some(bytes) =
                ipc_handle::encode_start(&segment_handle.bytes, block.requested_bytes)
            {
                // SAFETY: not null; the caller owes the place.
                unsafe { *handle = IpcHandle { bytes } };
            }
        }
    } else {
        let block_in_segment = Block {
            offset_bytes: block.base - block.segment.address,
            size_bytes: block.requested_bytes,
        };
        match ipc_handle::encode(&segment_handle.bytes, block_in_segment) {
            // SAFETY: not null; the caller owes the place.
            Some(bytes) => unsafe { *handle = IpcHandle { bytes } },
            // Never a handle that opens at the wrong place.
            None => return NOT_SUPPORTED,
        }
    }
    // Natively the memory of a block that was exported and freed is the driver's again, which knows who still has it
    // open. So a whole segment goes back when it is freed, and a piece of one when its segment does; neither is handed
    // out again by the pool.
    context.pool.retire_on_free(block.base);
    settings::note_shared(SUCCESS)
}

/// `cuIpcOpenMemHandle`, `cuIpcOpenMemHandle_v2`.
pub unsafe fn open(
    real: unsafe extern "C" fn(*mut CUdeviceptr, IpcHandle, c_uint) -> Status,
    address: *mut CUdeviceptr,
    handle: IpcHandle,
    flags: c_uint,
) -> Status {
    if let Some(shared) = ipc_handle::decode_shared(&handle.bytes) {
        if address.is_null() {
            return INVALID_VALUE;
        }
        let opened = match share::open(&shared, flags) {
            Ok(opened) => opened,
            Err(code) => return code,
        };
        let entered = || SUCCESS;
        let code = ledger::counted(Kind::IpcImported, opened.1, entered, || opened.0);
        // SAFETY: not null; the caller owes the place.
        unsafe { *address = opened.0 };
        return settings::note_shared(code);
    }
    let (segment_handle, block) = match ipc_handle::decode(&handle.bytes) {
        Some((bytes, block)) => (IpcHandle { bytes }, Some(block)),
        None => (handle, None),
    };
    // SAFETY: the caller's arguments; only the handle may be another, and it came from the driver of the exporter.
    let call = || unsafe { real(address, segment_handle, flags) };
    let code = ledger::counted(
        Kind::IpcImported,
        block.map_or(0, |b| b.size_bytes),
        call,
        || {
            // SAFETY: after success the driver has filled it.
            let opened = unsafe { *address };
            let seen = match block {
                Some(block) => imports::opened(opened, block.offset_bytes, block.size_bytes),
                None => opened,
            };
            // SAFETY: as above.
            unsafe { *address = seen };
            seen
        },
    );
    settings::note_shared(code)
}

/// `cuIpcCloseMemHandle`.
pub unsafe fn close(
    real: unsafe extern "C" fn(CUdeviceptr) -> Status,
    address: CUdeviceptr,
) -> Status {
    if imports::is_mapped(address) {
        return ledger::released(Space::Imported, address, || {
            share::close(address).unwrap_or(INVALID_VALUE)
        });
    }
    let segment = imports::segment_of(address);
    // In a segment that is open for other blocks, whose driver would take its start for what was opened.
    if segment.is_none() && !imports::is_inside(address, 1) {
        return contexts::refuses_all().unwrap_or(INVALID_VALUE);
    }
    // SAFETY: the caller's argument, or the segment under it that the driver opened.
    let code = ledger::released(Space::Imported, address, || unsafe {
        real(segment.unwrap_or(address))
    });
    if code == SUCCESS && segment.is_some() {
        imports::closed(address);
    }
    code
}
