//! The context that is current on the calling thread, which it remembers, and its pool.

use super::leaving::{may_own, once_settled};
use super::make::find_or_make;
use super::{all, Context, GENERATION, REGISTRY};
use crate::abi::*;
use crate::driver;
use crate::thread::{self, Thread};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

/// The current context's handle, null when there is none. An error is the driver's own: not initialised, gone at exit,
/// the child of a fork; then the driver has the right answer to whatever was asked (hazard 26).
pub fn current() -> Result<CUcontext, Status> {
    let Some(driver) = driver::get() else {
        return Err(NOT_FOUND);
    };
    let mut context: CUcontext = std::ptr::null_mut();
    // SAFETY: the out-parameter is ours.
    match unsafe { (driver.ctx_get_current)(&mut context) } {
        SUCCESS => Ok(context),
        code => Err(code),
    }
}

/// The current context's handle; null when there is none or the driver refuses.
pub fn current_handle() -> CUcontext {
    current().unwrap_or(std::ptr::null_mut())
}

/// The current context's device.
pub fn current_device() -> Option<CUdevice> {
    let driver = driver::get()?;
    let mut device: CUdevice = 0;
    // SAFETY: the out-parameter is ours.
    (unsafe { (driver.ctx_get_device)(&mut device) } == SUCCESS).then_some(device)
}

/// The serial of the current context and its device: what a ledger entry says of where it was made.
pub fn current_place() -> (u64, CUdevice) {
    let handle = current_handle() as usize;
    let registry = REGISTRY.read().unwrap_or_else(PoisonError::into_inner);
    match registry.known.iter().find(|k| k.backing.context == handle) {
        Some(known) => (known.backing.serial, known.backing.device),
        None => (0, 0),
    }
}

/// What the driver answers in the current context whatever is asked: that there is none, or a sticky error.
pub fn refuses_all() -> Option<Status> {
    match current() {
        Ok(context) if context.is_null() => {
            let mut device = 0;
            // SAFETY: the out-parameter is ours. Of a host function of a stream the driver says that it may not call.
            match driver::get().map(|driver| unsafe { (driver.ctx_get_device)(&mut device) }) {
                None | Some(SUCCESS) => Some(INVALID_CONTEXT),
                code => code,
            }
        }
        Ok(context) => thread::with(|thread| {
            remembered(thread, context, |context| context.dead(), find_pool).flatten()
        }),
        Err(code) => Some(code),
    }
}

/// Runs `with` on the current context, making its pool if this is its first allocation. `None`: no context is current,
/// and the driver has the right answer to whatever was asked.
#[inline(always)]
pub fn with_current<R>(thread: &Thread, with: impl FnOnce(&Context) -> R) -> Option<R> {
    remembered(thread, current().ok()?, with, find_or_make)
}

#[inline(always)]
fn remembered<R>(
    thread: &Thread,
    handle: CUcontext,
    with: impl FnOnce(&Context) -> R,
    find: impl FnOnce(CUcontext) -> Option<Arc<Context>>,
) -> Option<R> {
    let generation = GENERATION.load(Ordering::Acquire);
    let last = thread.last.get();
    let is_known = last.handle == handle as usize && last.generation == generation;
    if !is_known || last.context.is_null() || thread.in_context.get() {
        return anew(thread, handle, generation, with, find);
    }
    thread.in_context.set(true);
    // SAFETY: the thread's keeper has it as long as `last` names it, and nothing changes that while `in_context`.
    let result = with(unsafe { &*last.context });
    thread.in_context.set(false);
    Some(result)
}

/// The context is not the one that the thread remembers, or it is being used further up: then it is looked up.
#[cold]
fn anew<R>(
    thread: &Thread,
    handle: CUcontext,
    generation: u64,
    with: impl FnOnce(&Context) -> R,
    find: impl FnOnce(CUcontext) -> Option<Arc<Context>>,
) -> Option<R> {
    if handle.is_null() {
        return None;
    }
    let context = find(handle)?;
    if !thread.in_context.get() {
        thread.remember(handle as usize, generation, &context);
    }
    Some(with(&context))
}

/// Runs `with` on the pools until one owns `address`: the current context's first.
///
/// # Errors
/// The driver's code when it is not to be talked to: not initialised, gone at exit, the child of a fork.
pub fn with_owner<R>(
    address: CUdeviceptr,
    mut with: impl FnMut(&Context) -> Option<R>,
) -> Result<Option<R>, Status> {
    thread::with(|thread| with_owner_of(thread, address, |context, _| with(context)))
}

/// Whether the context is the current one.
pub type IsCurrent = bool;

/// The same, with the calling thread's storage at hand.
///
/// # Errors
/// As [`with_owner`].
#[inline(always)]
pub fn with_owner_of<R>(
    thread: &Thread,
    address: CUdeviceptr,
    mut with: impl FnMut(&Context, IsCurrent) -> Option<R>,
) -> Result<Option<R>, Status> {
    let mut tried = 0;
    let with_current = |context: &Context| {
        tried = context.serial;
        with(context, true)
    };
    let found = remembered(thread, current()?, with_current, find_pool);
    if let Some(Some(result)) = found {
        return Ok(Some(result));
    }
    loop {
        let generation = GENERATION.load(Ordering::Acquire);
        let found = all()
            .iter()
            .filter(|context| context.serial != tried)
            .find_map(|context| with(context, false));
        if found.is_some() {
            return Ok(found);
        }
        if may_own(address) {
            // It may come back.
            std::thread::yield_now();
        } else if GENERATION.load(Ordering::Acquire) == generation {
            return Ok(None);
        }
    }
}

pub(super) fn find_pool(handle: CUcontext) -> Option<Arc<Context>> {
    once_settled(handle, |registry| {
        let of_handle = |c: &&Arc<Context>| c.backing.context == handle as usize;
        registry.pools.iter().find(of_handle).cloned()
    })
}
