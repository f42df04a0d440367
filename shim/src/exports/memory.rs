//! Device memory, one call at a time: the calls that the pool answers.
//!
//! # Decision: while a stream captures, the driver answers
//! An allocation made while any stream captures goes to the driver as it is, whose answer is the right one. A free of a
//! pooled block cannot (the driver does not know the block), so the driver is asked by an allocation and a free of a
//! throw-away block: it refuses, invalidates the capture, or waits, exactly as it would for the program's own free.

use crate::abi::*;
use crate::device::contexts::{self, Context};
use crate::device::{blocks, capture, order, reclaim, scrub, settings};
use crate::driver::{self, Driver, Shield};
use crate::exports::stream::named;
use crate::ledger::{self, Kind, Space};
use crate::thread::{self, Thread};
use crate::trace;
use cushion::ledger::Tag;
use cushion::pool::{Found, FreeMode, FreeOutcome, Refusal, Request};
use std::cell::Cell;
use std::ffi::c_uint;
use std::sync::atomic::{AtomicUsize, Ordering};

type RealAlloc = unsafe extern "C" fn(*mut CUdeviceptr, usize) -> Status;
type RealFree = unsafe extern "C" fn(CUdeviceptr) -> Status;

/// `cuMemAlloc_v2`.
pub unsafe fn alloc(
    thread: &Thread,
    real: RealAlloc,
    address: *mut CUdeviceptr,
    size_bytes: usize,
) -> Status {
    if address.is_null() || size_bytes == 0 {
        // SAFETY: the caller's arguments, unchanged; the driver refuses them in its own way.
        return unsafe { real(address, size_bytes) };
    }
    let answer = pooled(thread, size_bytes as u64);
    match answer.by {
        By::Pool => {
            // SAFETY: not null; the caller owes a place to write an address to.
            unsafe { address.write(answer.word) };
            SUCCESS
        }
        By::Refusal => {
            // The driver clears the out-parameter when memory is short (facts: out_after_oom=0).
            // SAFETY: as above.
            unsafe { address.write(0) };
            answer.code()
        }
        // SAFETY: the caller's arguments, unchanged.
        By::Driver => direct(address, size_bytes as u64, || unsafe {
            real(address, size_bytes)
        }),
    }
}

type RealPitch = unsafe extern "C" fn(*mut CUdeviceptr, *mut usize, usize, usize, c_uint) -> Status;

/// What rows are counted with where it is not known.
const PITCH_ALIGNMENT_BYTES: usize = 512;

/// What the driver rounds a row up to: the pitch it gives a row of one byte. Learnt once; devices of one process are
/// taken to agree, which all that CUDA 11 to 13 supports do (512 bytes).
fn pitch_alignment_bytes(real: RealPitch) -> Option<usize> {
    static ALIGNMENT: AtomicUsize = AtomicUsize::new(0);
    match ALIGNMENT.load(Ordering::Relaxed) {
        0 => {}
        known => return Some(known),
    }
    let driver = driver::get()?;
    let (mut block, mut pitch) = (0, 0);
    // SAFETY: the out-parameters are ours; the block is freed at once.
    unsafe {
        if real(&mut block, &mut pitch, 1, 1, 4) != SUCCESS {
            return None;
        }
        crate::driver::insistently(|| (driver.mem_free)(block));
    }
    if !pitch.is_power_of_two() {
        return None;
    }
    ALIGNMENT.store(pitch, Ordering::Relaxed);
    Some(pitch)
}

/// `cuMemAllocPitch_v2`: rows at the driver's own pitch, the block from the pool.
pub unsafe fn alloc_pitch(
    real: RealPitch,
    address: *mut CUdeviceptr,
    pitch_bytes: *mut usize,
    width_bytes: usize,
    height: usize,
    element_bytes: c_uint,
) -> Status {
    // SAFETY: the caller's arguments, unchanged.
    let native = || unsafe { real(address, pitch_bytes, width_bytes, height, element_bytes) };
    if address.is_null() || pitch_bytes.is_null() || !matches!(element_bytes, 4 | 8 | 16) {
        return native();
    }
    // While a stream captures nothing is learnt: the capture would be lost by that.
    let alignment = match capture::active() {
        true => Some(PITCH_ALIGNMENT_BYTES),
        false => pitch_alignment_bytes(real),
    };
    let pitch = alignment.and_then(|alignment| width_bytes.checked_next_multiple_of(alignment));
    let size = pitch
        .and_then(|pitch| pitch.checked_mul(height))
        .filter(|&size| size > 0);
    let (Some(pitch), Some(size)) = (pitch, size) else {
        return native();
    };
    let answer = thread::with(|thread| pooled(thread, size as u64));
    match answer.by {
        By::Pool => {
            // SAFETY: not null; the caller owes places to write to.
            unsafe {
                address.write(answer.word);
                pitch_bytes.write(pitch);
            }
            SUCCESS
        }
        By::Refusal => {
            // SAFETY: as above. When memory is short, the driver has found the pitch already.
            unsafe {
                address.write(0);
                if answer.code() == OUT_OF_MEMORY {
                    pitch_bytes.write(pitch);
                }
            }
            answer.code()
        }
        By::Driver => direct(address, size as u64, native),
    }
}

/// `cuMemFree_v2`.
pub unsafe fn free(thread: &Thread, real: RealFree, address: CUdeviceptr) -> Status {
    if address == 0 {
        // SAFETY: the caller's argument, unchanged.
        return unsafe { real(address) };
    }
    let host_wait = settings::get().host_wait();
    // SAFETY: an address that the driver refuses.
    let unknown = || unsafe { real(blocks::NOWHERE) };
    match contexts::with_owner_of(thread, |context, is_current| {
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
        contexts::with_owner_of(thread, |context, is_current| {
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

/// Who answers an allocation. Two words that travel in registers.
#[derive(Clone, Copy)]
struct Answer {
    by: By,
    /// The address, or the code.
    word: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Pool,
    Refusal,
    Driver,
}

impl Answer {
    const DRIVER: Answer = Answer {
        by: By::Driver,
        word: 0,
    };

    #[inline]
    fn pooled(address: CUdeviceptr) -> Self {
        Answer {
            by: By::Pool,
            word: address,
        }
    }

    fn refused(code: Status) -> Self {
        Answer {
            by: By::Refusal,
            word: code as u64,
        }
    }

    #[inline]
    fn code(self) -> Status {
        self.word as Status
    }
}

#[inline(always)]
fn pooled(thread: &Thread, size_bytes: u64) -> Answer {
    if capture::active() || order::unfenceable() {
        return Answer::DRIVER;
    }
    contexts::with_current(thread, |context| {
        if context.dead().is_some() {
            return Answer::DRIVER;
        }
        let tag = ledger::tag_on(thread).0;
        let (pool, backing, lane) = (&context.pool, &context.backing, thread.lane());
        match pool.take_in_front(lane, backing, (size_bytes, tag)) {
            Some((address, _)) => granted(context, size_bytes, tag, address),
            None => by_tables(thread, context, size_bytes, tag),
        }
    })
    .unwrap_or(Answer::DRIVER)
}

/// What the pool has no block at hand for.
#[inline(never)]
fn by_tables(thread: &Thread, context: &Context, size_bytes: u64, tag: u64) -> Answer {
    let request = Request {
        size_bytes,
        tag,
        capturing: false,
        isolated: false,
    };
    let (pool, backing, lane) = (&context.pool, &context.backing, thread.lane());
    match pool.allocate_on(lane, backing, request) {
        Ok(grant) => granted(context, size_bytes, tag, grant.address),
        Err(Refusal::Limit { .. } | Refusal::Driver) if reclaim::trim_others(context) > 0 => {
            match pool.allocate_on(lane, backing, request) {
                Ok(grant) => granted(context, size_bytes, tag, grant.address),
                Err(refusal) => answer(refusal),
            }
        }
        Err(refusal) => answer(refusal),
    }
}

#[inline(always)]
fn granted(context: &Context, size_bytes: u64, tag: u64, address: CUdeviceptr) -> Answer {
    let device = context.backing.device;
    trace::allocated(Kind::Pooled, address, size_bytes, device, 0, Tag(tag));
    Answer::pooled(address)
}

fn answer(refusal: Refusal) -> Answer {
    match refusal {
        Refusal::Limit { .. } | Refusal::Driver => Answer::refused(OUT_OF_MEMORY),
        Refusal::Failed(code) => {
            contexts::observe(code);
            Answer::refused(code)
        }
        Refusal::TooLarge | Refusal::Forgotten => Answer::DRIVER,
    }
}

/// An allocation that the driver makes for the program, within the limit. `address` is a place to write to.
fn direct(address: *mut CUdeviceptr, size_bytes: u64, call: impl Fn() -> Status) -> Status {
    let is_asked = Cell::new(false);
    let asking = || {
        is_asked.set(true);
        call()
    };
    // SAFETY: not null, and read after the driver has written it.
    let code = ledger::counted(Kind::Device, size_bytes, asking, || unsafe { *address });
    if is_asked.get() {
        return code;
    }
    // The limit refuses what the driver might have refused for another reason, in its own way.
    if let Some(code) = contexts::refuses_all() {
        return code;
    }
    match capture::active().then(ask_the_driver) {
        None | Some(SUCCESS) => {
            // SAFETY: as above. The driver clears the place, too, when memory is short.
            unsafe { address.write(0) };
            code
        }
        Some(refused) => refused,
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
fn ask_the_driver() -> Status {
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
