//! Device memory, one call at a time: the calls that the pool answers.
//!
//! # Decision: while a stream captures, the driver answers
//! An allocation made while any stream captures goes to the driver as it is, whose answer is the right one. `free` has the other half.

mod free;
mod pitch;

pub use free::{free, free_async};
pub use pitch::alloc_pitch;

use crate::abi::*;
use crate::device::contexts::{self, Context};
use crate::device::{capture, order, reclaim};
use crate::ledger::{self, Kind};
use crate::thread::Thread;
use crate::trace;
use cushion::ledger::Tag;
use cushion::pool::{Refusal, Request};
use free::ask_the_driver;
use std::cell::Cell;

type RealAlloc = unsafe extern "C" fn(*mut CUdeviceptr, usize) -> Status;

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
