//! Whether the program's work has an order of its own: one stream, one context, no peer.
//!
//! # Decision: when order is enough
//! Work of a context in which only the legacy stream was ever used is ordered by itself, and a fence would record what
//! holds anyway. So the order is given at first, and is lost for the whole process by the first call that
//! * makes a second context, a green context or peer access, or begins a capture;
//! * names any stream but the legacy one (null or 1), or is the per-thread twin (`_ptds`, `_ptsz`) of a function;
//! * names a stream inside another call of the same thread, as a tool does that is called back;
//! * launches a graph, whose branches run beside each other, or a kernel with an attribute by which it may start before
//!   earlier work has ended (programmatic launches), or uses an interop interface;
//! * looks up a function, or a private table of functions, that this version of cushion does not know, or might have
//!   reached the driver unseen. A driver newer than the table of names counts as that.
//!
//! Making a stream does not end it: cuBLAS and cuDNN make 33, and a program of PyTorch that never asks for another stream submits
//! nothing to any of them.
//!
//! Every function that submits work to a stream is a row of the table for that (`scripts/check-order` has the list). What
//! only asks about streams, orders them, or touches memory that is never pooled (arrays, managed memory, the driver's own
//! pools) need not be.
//!
//! # Decision: how it is lost
//! The pool hands memory out without a fence while [`is_given`]. The call that ends this first makes the answer false,
//! then fences every pool, and only then goes on; other such calls wait for it. So whatever was handed out without a
//! fence is behind one before any work can be submitted that the legacy stream's order does not cover. No capture can be
//! running then, which would forbid the fence: the legacy stream cannot be captured.
//!
//! Where a pool can be neither fenced nor waited for, the call goes on: in a host function, where the driver refuses it as it did
//! the fence. But the order is not lost with that, and the next such call fences.

use super::contexts;
use crate::abi::*;
use crate::process;
use crate::thread;
use once_cell::race::OnceBox;
use std::ffi::c_int;
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError, TryLockError};

/// The legacy stream's order is all there is.
pub const GIVEN: u8 = 0;
/// One thread is fencing what was handed out until now, or tried to in vain.
const BEING_LOST: u8 = 1;
/// Several streams may have work, from now on.
pub const LOST: u8 = 2;

/// For the table's assembly, too.
pub static STATE: AtomicU8 = AtomicU8::new(GIVEN);
static TURN: Mutex<()> = Mutex::new(());
static REASON: OnceBox<&'static str> = OnceBox::new();

/// Whether the order of the one stream is enough.
#[inline]
pub fn is_given() -> bool {
    STATE.load(Ordering::Acquire) == GIVEN
}

/// Whether it is lost, and everything that it covered is behind a fence.
pub fn is_lost() -> bool {
    STATE.load(Ordering::Acquire) == LOST
}

/// What ended it, in the report's words.
pub fn reason() -> Option<&'static str> {
    REASON.get().copied()
}

/// The caller is about to do what the legacy stream's order does not cover. On return every pool is fenced that can be from here.
#[inline]
pub fn lose(reason: &'static str) {
    if STATE.load(Ordering::Acquire) != LOST {
        end(reason);
    }
}

/// Rows call it outside what keeps a panic from unwinding into the program.
#[cold]
fn end(reason: &'static str) {
    let _ = catch_unwind(|| take_away(reason));
}

fn take_away(reason: &'static str) {
    // Not from inside a fence of its own, in which a tool may be called back.
    let Some(_once) = Once::on_this_thread() else {
        return;
    };
    let _turn = match TURN.try_lock() {
        Ok(turn) => Some(turn),
        Err(TryLockError::Poisoned(turn)) => Some(turn.into_inner()),
        // In a forked child the owner may be gone; there is nothing to fence there.
        Err(TryLockError::WouldBlock) if !process::was_woken_here() => None,
        Err(TryLockError::WouldBlock) => Some(TURN.lock().unwrap_or_else(PoisonError::into_inner)),
    };
    if STATE.load(Ordering::Acquire) == LOST {
        return;
    }
    // A pool that still read "given" did so before this store, so the work that its block may be in use by was submitted
    // before the fence below.
    STATE.store(BEING_LOST, Ordering::SeqCst);
    let _ = REASON.set(Box::new(reason));
    if !process::was_woken_here() || contexts::fence_all() {
        STATE.store(LOST, Ordering::Release);
    }
}

/// The calling thread is in [`take_away`].
struct Once;

impl Once {
    fn on_this_thread() -> Option<Once> {
        thread::with(|thread| !thread.ends_order.replace(true)).then(|| Once)
    }
}

impl Drop for Once {
    fn drop(&mut self) {
        thread::with(|thread| thread.ends_order.set(false));
    }
}

/// A reason to [`lose`] it.
pub const OTHER_STREAM: &str = "a stream other than the legacy one was used";

/// Another, for a call that no handler looks at.
pub const INSIDE: &str = "a stream was used inside another call";

/// A call of the program names this stream.
#[inline]
pub fn note_stream(stream: CUstream) {
    if !is_legacy(stream) {
        lose(OTHER_STREAM);
    }
}

/// Whether it is a default stream of the current context, the legacy or the thread's own.
pub fn is_default(stream: CUstream) -> bool {
    is_legacy(stream) || stream == PER_THREAD_STREAM
}

/// Whether it is the null stream or CU_STREAM_LEGACY.
fn is_legacy(stream: CUstream) -> bool {
    stream as usize <= 1
}

/// The head of `CUlaunchConfig`.
#[repr(C)]
pub struct LaunchConfig {
    shape_and_shared_bytes: [u32; 7],
    stream: CUstream,
    attributes: *const LaunchAttribute,
    attribute_count: u32,
}

/// `CUlaunchAttribute`.
#[repr(C)]
struct LaunchAttribute {
    id: i32,
    padding: i32,
    value: [u64; 8],
}

impl LaunchAttribute {
    /// Whether it changes nothing about when the kernel starts.
    fn is_timeless(&self) -> bool {
        TIMELESS.contains(&self.id)
            || (self.id == PROGRAMMATIC_SERIALIZATION && self.value[0] as c_int == 0)
    }
}

/// Access policy, cooperation, clusters, priority, carveout.
const TIMELESS: [i32; 9] = [0, 1, 2, 3, 4, 5, 8, 11, 14];
/// Leave to start before earlier kernels of the stream have ended: an int, 0 when it is not given.
const PROGRAMMATIC_SERIALIZATION: i32 = 6;

/// `cuLaunchKernelEx` is about to launch this.
///
/// # Safety
/// `config` is null or what the driver asks of a caller.
pub unsafe fn note_launch(config: *const LaunchConfig) {
    // SAFETY: the caller's promise. The driver refuses null.
    let Some(config) = (unsafe { config.as_ref() }) else {
        return;
    };
    note_stream(config.stream);
    let timeless = |at| {
        // SAFETY: the caller owes as many attributes as it says.
        unsafe { (*config.attributes.add(at)).is_timeless() }
    };
    let count = match config.attributes.is_null() {
        true => 0,
        false => config.attribute_count as usize,
    };
    if !(0..count).all(timeless) {
        lose("a kernel was launched that may start before earlier work has ended");
    }
}

static GREEN: AtomicBool = AtomicBool::new(false);

/// A green context exists.
pub fn note_green_context() {
    GREEN.store(true, Ordering::Relaxed);
}

/// Whether work may exist that no fence of the pool covers. New allocations are the driver's then, and freed blocks
/// wait for it on the host.
pub fn unfenceable() -> bool {
    GREEN.load(Ordering::Relaxed)
}
