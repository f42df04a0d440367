//! Contexts: all routes by which one comes and goes, so that no cached block outlives its context (hazard 15).
//!
//! A context leaves the shim's tables before the driver may reuse its handle or its addresses, and comes back if the
//! driver then refuses. What the program had still live there is a leak, and stays in the report as lost.

use crate::abi::*;
use crate::device::{contexts, order, pages::peers, reclaim};
use crate::ledger;
use std::ffi::{c_int, c_uint, c_void};

/// Makes `call`, which creates a context, and remembers it.
///
/// # Safety
/// `context` is the out-parameter that `call` fills.
unsafe fn created(context: *mut CUcontext, device: CUdevice, call: impl Fn() -> Status) -> Status {
    let code = reclaim::retried(call);
    if code == SUCCESS && !context.is_null() {
        // SAFETY: not null, and filled by the driver just now.
        contexts::note_created(unsafe { *context }, device);
    }
    code
}

/// Makes `call`, which ends a context.
fn ended(context: CUcontext, call: impl FnOnce() -> Status) -> Status {
    let removed = contexts::take_out(context);
    let code = call();
    let Some(removed) = removed else { return code };
    if code == SUCCESS {
        ledger::context_ended(&removed);
    } else {
        contexts::put_back(removed);
    }
    code
}

/// `cuCtxCreate`, `cuCtxCreate_v2`.
pub unsafe fn create(
    real: unsafe extern "C" fn(*mut CUcontext, c_uint, CUdevice) -> Status,
    context: *mut CUcontext,
    flags: c_uint,
    device: CUdevice,
) -> Status {
    // SAFETY: the caller's arguments, unchanged.
    unsafe { created(context, device, || real(context, flags, device)) }
}

/// `cuCtxCreate_v3`.
pub unsafe fn create_v3(
    real: unsafe extern "C" fn(*mut CUcontext, *mut c_void, c_int, c_uint, CUdevice) -> Status,
    context: *mut CUcontext,
    affinities: *mut c_void,
    affinity_count: c_int,
    flags: c_uint,
    device: CUdevice,
) -> Status {
    // SAFETY: the caller's arguments, unchanged.
    unsafe {
        created(context, device, || {
            real(context, affinities, affinity_count, flags, device)
        })
    }
}

/// `cuCtxCreate_v4`.
pub unsafe fn create_v4(
    real: unsafe extern "C" fn(*mut CUcontext, *mut c_void, c_uint, CUdevice) -> Status,
    context: *mut CUcontext,
    parameters: *mut c_void,
    flags: c_uint,
    device: CUdevice,
) -> Status {
    if !parameters.is_null() {
        order::lose("a context was made with parameters");
    }
    // SAFETY: the caller's arguments, unchanged.
    unsafe { created(context, device, || real(context, parameters, flags, device)) }
}

/// `cuCtxDestroy`, `cuCtxDestroy_v2`.
pub unsafe fn destroy(
    real: unsafe extern "C" fn(CUcontext) -> Status,
    context: CUcontext,
) -> Status {
    // SAFETY: the caller's argument, unchanged.
    ended(context, || unsafe { real(context) })
}

/// `cuCtxAttach`: one more use of the current context.
pub unsafe fn attach(
    real: unsafe extern "C" fn(*mut CUcontext, c_uint) -> Status,
    context: *mut CUcontext,
    flags: c_uint,
) -> Status {
    // SAFETY: the caller's arguments, unchanged.
    let code = unsafe { real(context, flags) };
    if code == SUCCESS && !context.is_null() {
        // SAFETY: not null, and filled by the driver just now.
        contexts::note_attached(unsafe { *context });
    }
    code
}

/// `cuCtxDetach`: gives up one use of a context, the last of which destroys it.
pub unsafe fn detach(
    real: unsafe extern "C" fn(CUcontext) -> Status,
    context: CUcontext,
) -> Status {
    // SAFETY: the caller's argument, unchanged.
    let call = || unsafe { real(context) };
    if contexts::detached(context) {
        let code = call();
        if code != SUCCESS {
            contexts::note_attached(context);
        }
        return code;
    }
    ended(context, call)
}

/// `cuDevicePrimaryCtxRetain`.
pub unsafe fn primary_retain(
    real: unsafe extern "C" fn(*mut CUcontext, CUdevice) -> Status,
    context: *mut CUcontext,
    device: CUdevice,
) -> Status {
    contexts::expect_primary(device);
    // SAFETY: the caller's arguments, unchanged.
    let code = unsafe { created(context, device, || real(context, device)) };
    if code == SUCCESS && !context.is_null() {
        // SAFETY: not null, and filled by the driver just now.
        let primary = unsafe { *context };
        contexts::note_primary(primary, device);
        contexts::note_retained(primary);
    }
    code
}

/// `cuDevicePrimaryCtxRelease`, `cuDevicePrimaryCtxRelease_v2`: the last release destroys the primary context.
pub unsafe fn primary_release(
    real: unsafe extern "C" fn(CUdevice) -> Status,
    device: CUdevice,
) -> Status {
    // SAFETY: the caller's argument, unchanged.
    let call = || unsafe { real(device) };
    let Some(primary) = contexts::primary_of(device) else {
        return call();
    };
    let others_left = contexts::released(primary);
    let life = contexts::life_of(primary);
    let removed = match others_left {
        true => None,
        false => contexts::take_out(primary),
    };
    let code = call();
    let ended = code == SUCCESS
        && (!contexts::primary_is_active(device) || contexts::life_of(primary) != life);
    match removed {
        Some(removed) if ended => ledger::context_ended(&removed),
        Some(removed) => contexts::put_back(removed),
        // The count was wrong.
        None if ended => {
            if let Some(removed) = contexts::take_out(primary) {
                ledger::context_ended(&removed);
            }
        }
        None if others_left && code != SUCCESS => contexts::note_retained(primary),
        None => {}
    }
    code
}

/// `cuDevicePrimaryCtxReset`, `cuDevicePrimaryCtxReset_v2`.
pub unsafe fn primary_reset(
    real: unsafe extern "C" fn(CUdevice) -> Status,
    device: CUdevice,
) -> Status {
    // SAFETY: the caller's argument, unchanged.
    let call = || unsafe { real(device) };
    match contexts::primary_of(device) {
        Some(context) => ended(context, call),
        None => call(),
    }
}

/// `cuCtxEnablePeerAccess`: from now on a fence spans devices.
pub unsafe fn enable_peer(
    real: unsafe extern "C" fn(CUcontext, c_uint) -> Status,
    peer: CUcontext,
    flags: c_uint,
) -> Status {
    contexts::note_peers();
    // SAFETY: the caller's arguments, unchanged.
    let code = unsafe { real(peer, flags) };
    if let (SUCCESS, Some(device)) = (code, contexts::current_device()) {
        peers::add(peer, contexts::current_handle(), device);
    }
    code
}

/// `cuCtxDisablePeerAccess`.
pub unsafe fn disable_peer(
    real: unsafe extern "C" fn(CUcontext) -> Status,
    peer: CUcontext,
) -> Status {
    // SAFETY: the caller's argument, unchanged.
    let code = unsafe { real(peer) };
    if code == SUCCESS {
        peers::remove(peer, contexts::current_handle());
    }
    code
}

/// `cuGreenCtxCreate`: work of a green context is not seen by a fence of its primary context.
pub unsafe fn green_create(
    real: unsafe extern "C" fn(*mut c_void, *mut c_void, CUdevice, c_uint) -> Status,
    context: *mut c_void,
    resources: *mut c_void,
    device: CUdevice,
    flags: c_uint,
) -> Status {
    order::lose("a green context was made");
    // SAFETY: the caller's arguments, unchanged.
    let code = unsafe { real(context, resources, device, flags) };
    if code == SUCCESS {
        order::note_green_context();
    }
    code
}
