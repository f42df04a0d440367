//! Frees, of a pooled block and of any other.
//!
//! # Decision: while a stream captures, the driver is asked
//! An allocation may simply go to the driver; a free of a pooled block cannot (the driver does not know the block), so the driver is asked by an allocation and a free of a
//! throw-away block: it refuses, invalidates the capture, or waits, exactly as it would for the program's own free.

use crate::abi::*;
use crate::device::contexts::{self, Context};
use crate::device::{blocks, capture, order, scrub, settings};
use crate::driver::{self, Driver, Shield};
use crate::exports::stream::named;
use crate::ledger::{self, Kind, Space};
use crate::thread::{self, Thread};
use crate::trace;
use cushion::pool::{Found, FreeMode, FreeOutcome};

type RealFree = unsafe extern "C" fn(CUdeviceptr) -> Status;

/// `cuMemFree_v2`.
pub unsafe fn free(thread: &Thread, real: RealFree, address: CUdeviceptr) -> Status {
    if address == 0 {
        // SAFETY: the caller's argument, unchanged.
        return unsafe { real(address) };
    }
    let host_wait = settings::get().host_wait();
    // SAFETY: an address that the driver refuses.
    let unknown = || unsafe { real(blocks::NOWHERE) };
    match contexts::with_owner_of(thread, address, |context, is_current| {
        if !is_current {
            if let Some(code) = refused_without_context(context, address, unknown) {
                return Some(code);
            }
        }
        release(thread, context, address, host_wait, unknown)
    }) {
        Ok(Some(code)) => code,
        // The driver would refuse a block that it does not know for another reason than it refuses everything now.
        Err(code) if contexts::is_pooled(address) => code,
        _ => {
            // SAFETY: the caller's argument, unchanged: memory that the pool does not own is the driver's (hazard 4).
            let code = ledger::released(Space::Device, address, || unsafe { real(address) });
            contexts::observe(code);
            code
        }
    }
}

/// `cuMemFreeAsync`: legal for memory of cuMemAlloc too. The pool's own fence covers the stream order. A capturing stream would
/// record a node that frees memory of no graph, which is refused; while another captures, the driver minds it as it minds
/// cuMemFree (measured: 900 beside a global capture).
pub unsafe fn free_async<const PER_THREAD: bool>(
    real: unsafe extern "C" fn(CUdeviceptr, CUstream) -> Status,
    address: CUdeviceptr,
    stream: CUstream,
) -> Status {
    order::note_stream(named::<PER_THREAD>(stream));
    let released = thread::with(|thread| {
        contexts::with_owner_of(thread, address, |context, is_current| {
            // SAFETY: an address that the driver refuses.
            let unknown = || unsafe { real(blocks::NOWHERE, stream) };
            if !is_current {
                if let Some(code) = refused_without_context(context, address, unknown) {
                    return Some(code);
                }
            }
            if !matches!(context.pool.find(address), Found::NotMine) && capture::active() {
                if capture::is_capturing(named::<PER_THREAD>(stream)) {
                    return Some(INVALID_VALUE);
                }
                if !matches!(context.pool.find(address), Found::Live(block) if block.base == address)
                {
                    return Some(unknown());
                }
                // SAFETY: the block is a throw-away one of the driver's, of this context.
                let code = answer_to(|_, block| unsafe { real(block, stream) });
                return match code {
                    SUCCESS => freed(thread, context, address, CAPTURING),
                    code => Some(code),
                };
            }
            release(thread, context, address, false, unknown)
        })
    });
    match released {
        Ok(Some(code)) => code,
        Err(code) if contexts::is_pooled(address) => code,
        // SAFETY: the caller's arguments, unchanged.
        _ => ledger::released(Space::Device, address, || unsafe { real(address, stream) }),
    }
}

/// A free while a stream captures: no fence and no wait by the pool.
const CAPTURING: FreeMode = FreeMode {
    host_wait: false,
    capturing: true,
};

/// Frees a block of `context`'s pool. `None`: the pool does not know the address. `unknown` is what the driver says to the free of
/// an address that it does not know.
#[inline(always)]
fn release(
    thread: &Thread,
    context: &Context,
    address: CUdeviceptr,
    host_wait: bool,
    unknown: impl FnOnce() -> Status,
) -> Option<Status> {
    if context.dead().is_some() || capture::active() {
        return release_carefully(thread, context, address, unknown);
    }
    let mode = FreeMode {
        host_wait,
        capturing: false,
    };
    let turn = trace::turn();
    match context.pool.free_in_front(thread.lane(), address, mode) {
        Some(_) => {
            // What is kept in front is not scrubbed.
            trace::freed(turn, Kind::Pooled, address, context.backing.device);
            Some(SUCCESS)
        }
        None => freed(thread, context, address, mode),
    }
}

/// What the driver refuses the free of a pooled address with where no context is current: in a host function of a stream any
/// call, and on a default stream one of cuMemFreeAsync.
#[cold]
fn refused_without_context(
    context: &Context,
    address: CUdeviceptr,
    unknown: impl FnOnce() -> Status,
) -> Option<Status> {
    let is_pooled = !matches!(context.pool.find(address), Found::NotMine);
    if !is_pooled || !contexts::current_handle().is_null() {
        return None;
    }
    Some(unknown()).filter(|&code| code != INVALID_VALUE)
}

/// The same in a context that is dead, or while a stream captures: what is no block's start may be refused for that.
#[cold]
fn release_carefully(
    thread: &Thread,
    context: &Context,
    address: CUdeviceptr,
    unknown: impl FnOnce() -> Status,
) -> Option<Status> {
    match context.pool.find(address) {
        Found::NotMine => return None,
        Found::Live(block) if block.base == address => {}
        Found::Live(_) | Found::Dead => return Some(unknown()),
    }
    if let Some(code) = context.dead() {
        return Some(code);
    }
    let entered = driver::get().and_then(|driver| {
        driver::Current::enter(driver, context.backing.context as CUcontext).ok()
    });
    let said = ask_the_driver();
    drop(entered);
    match said {
        SUCCESS => freed(thread, context, address, CAPTURING),
        code => Some(code),
    }
}

#[inline(never)]
fn freed(
    thread: &Thread,
    context: &Context,
    address: CUdeviceptr,
    mode: FreeMode,
) -> Option<Status> {
    let (pool, backing, lane) = (&context.pool, &context.backing, thread.lane());
    let turn = trace::turn();
    match pool.free_on(lane, backing, address, mode) {
        FreeOutcome::NotMine => None,
        FreeOutcome::NotLive => Some(INVALID_VALUE),
        FreeOutcome::Freed {
            requested_bytes, ..
        } => {
            trace::freed(turn, Kind::Pooled, address, backing.device);
            if !mode.capturing {
                scrub::ahead(context, requested_bytes, mode.host_wait);
            }
            Some(SUCCESS)
        }
        FreeOutcome::Failed(code) => {
            contexts::observe(code);
            Some(code)
        }
    }
}

/// What the driver says to a free at this moment, found out with a throw-away block.
pub(super) fn ask_the_driver() -> Status {
    // SAFETY: `answer_to` gives a block that nobody else knows.
    answer_to(|driver, block| unsafe { (driver.mem_free)(block) })
}

/// What `free` answers for a throw-away block of the driver's.
fn answer_to(free: impl FnOnce(&Driver, CUdeviceptr) -> Status) -> Status {
    let Some(driver) = driver::get() else {
        return SUCCESS;
    };
    let mut block: CUdeviceptr = 0;
    let allocated = {
        let _shield = Shield::raise(driver);
        // SAFETY: the out-parameter is ours.
        unsafe { (driver.mem_alloc)(&mut block, 1) }
    };
    match allocated {
        SUCCESS => {}
        // A free needs no memory.
        OUT_OF_MEMORY => return SUCCESS,
        code => return code,
    }
    let code = free(driver, block);
    if code != SUCCESS {
        // It must not stay behind, whatever refused it; a capture refuses shielded calls of no mode.
        let _shield = Shield::raise(driver);
        // SAFETY: allocated just now, known to nobody else, and not freed.
        driver::insistently(|| unsafe { (driver.mem_free)(block) });
    }
    code
}
