//! Which streams of the program capture, and the gate between captures and context-wide calls.
//!
//! # Decision: the gate
//! A context-wide call (cuCtxRecordEvent, cuCtxWaitEvent) made while any stream of the context captures invalidates that
//! capture, and no shield helps (facts/h200.md, "During stream capture"; hazard 7). So such calls are made only inside
//! [`context_wide`], which excludes the begin of a capture; both sides are short, non-blocking driver calls, which is why
//! a lock around them is safe. A wait on the host never happens inside the gate.

use super::order;
use crate::abi::*;
use crate::driver;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock};
use std::thread::ThreadId;

static GATE: RwLock<Vec<Capturing>> = RwLock::new(Vec::new());
static ACTIVE: AtomicUsize = AtomicUsize::new(0);

/// A stream that captures. Every thread's own stream has the same handle, so there the thread is part of the name.
#[derive(PartialEq, Eq, Clone, Copy)]
struct Capturing {
    stream: usize,
    thread: Option<ThreadId>,
}

impl Capturing {
    fn named(stream: CUstream) -> Self {
        let thread = (stream == PER_THREAD_STREAM).then(|| std::thread::current().id());
        Capturing {
            stream: stream as usize,
            thread,
        }
    }

    /// Whether the driver can be asked about it from this thread, and says that it captures no more.
    fn is_over(&self) -> bool {
        *self == Self::named(self.stream as CUstream) && !is_capturing(self.stream as CUstream)
    }
}

/// Whether any stream of the process captures. One load when none does.
pub fn active() -> bool {
    ACTIVE.load(Ordering::Acquire) != 0 && still_capturing()
}

/// Forgets captures that ended by a way the shim did not see.
#[cold]
fn still_capturing() -> bool {
    let mut streams = GATE.write().unwrap_or_else(PoisonError::into_inner);
    streams.retain(|capturing| !capturing.is_over());
    ACTIVE.store(streams.len(), Ordering::Release);
    !streams.is_empty()
}

/// Whether the driver says that `stream` captures at this moment (also when it cannot be asked).
pub fn is_capturing(stream: CUstream) -> bool {
    let Some(probe) = driver::get().and_then(|driver| driver.stream_is_capturing) else {
        return true;
    };
    let mut status = 0;
    // SAFETY: the stream has not been destroyed (the destroy hook forgets it here first); the out-parameter is ours.
    let code = unsafe { probe(stream, &mut status) };
    code == SUCCESS && status != 0
}

/// Makes `call`, which begins a capture of `stream`, and remembers it if it succeeded.
pub fn begin(stream: CUstream, call: impl FnOnce() -> Status) -> Status {
    // Before it begins, while the fence that this takes is allowed.
    order::lose("a stream captured");
    let mut streams = GATE.write().unwrap_or_else(PoisonError::into_inner);
    let code = call();
    if code == SUCCESS {
        streams.push(Capturing::named(stream));
        ACTIVE.store(streams.len(), Ordering::Release);
    }
    code
}

/// `stream` captures no more (ended, or about to be destroyed).
pub fn end(stream: CUstream) {
    if ACTIVE.load(Ordering::Acquire) == 0 {
        return;
    }
    let ended = Capturing::named(stream);
    let mut streams = GATE.write().unwrap_or_else(PoisonError::into_inner);
    streams.retain(|other| *other != ended);
    ACTIVE.store(streams.len(), Ordering::Release);
}

/// Makes a context-wide call if nothing captures; `None` if something does.
pub fn context_wide<R>(call: impl FnOnce() -> R) -> Option<R> {
    let streams = GATE.read().unwrap_or_else(PoisonError::into_inner);
    streams.is_empty().then(call)
}
