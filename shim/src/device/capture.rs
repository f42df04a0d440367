//! Which streams of the program capture, and the gate between captures and context-wide calls.
//!
//! # Decision: the gate
//! A context-wide call (cuCtxRecordEvent, cuCtxWaitEvent) made while any stream of the context captures invalidates that
//! capture, and no shield helps (facts/h200.md, "During stream capture"; hazard 7). So such calls are made only inside
//! [`context_wide`], which excludes the begin of a capture; both sides are short driver calls (of memsets in
//! the order of one stream some dozens, which may wait for room in its queue), which is why a lock around them is safe. A wait on
//! the host for work to end never happens inside the gate.

use super::{order, reclaim};
use crate::abi::*;
use crate::driver;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock};
use std::thread::ThreadId;

static GATE: RwLock<Vec<Capturing>> = RwLock::new(Vec::new());
static ACTIVE: AtomicUsize = AtomicUsize::new(0);

/// A stream that captures. Every thread's own stream has the same handle in every context, so there the thread and the
/// context are part of the name.
#[derive(Clone, Copy)]
pub struct Capturing {
    stream: usize,
    /// Whose own stream it is.
    thread: Option<ThreadId>,
    /// The stream's.
    context: usize,
}

impl Capturing {
    fn named(stream: CUstream) -> Self {
        let thread = (stream == PER_THREAD_STREAM).then(|| std::thread::current().id());
        Capturing {
            stream: stream as usize,
            thread,
            context: context_of(stream),
        }
    }

    fn is(&self, other: &Self) -> bool {
        self.stream == other.stream
            && self.thread == other.thread
            && (self.thread.is_none() || self.context == other.context)
    }

    /// Whether the driver can be asked about it from this thread, and says that it captures no more.
    fn is_over(&self) -> bool {
        let stream = self.stream as CUstream;
        (self.thread.is_none() || self.is(&Self::named(stream))) && asked(stream) == Some(false)
    }
}

/// The context of a stream: the current one, for want of another answer.
fn context_of(stream: CUstream) -> usize {
    let mut context: CUcontext = std::ptr::null_mut();
    let get = driver::get().and_then(|driver| driver.stream_get_context);
    // SAFETY: the stream is one that the program names in a call, so it is live; the out-parameter is ours.
    match get.map(|get| unsafe { get(stream, &mut context) }) {
        Some(SUCCESS) => context as usize,
        _ => super::contexts::current_handle() as usize,
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

/// Whether `stream` captures at this moment; when the driver cannot tell, whether it was seen to begin.
pub fn is_capturing(stream: CUstream) -> bool {
    asked(stream).unwrap_or_else(|| {
        let asked = Capturing::named(stream);
        let streams = GATE.read().unwrap_or_else(PoisonError::into_inner);
        streams.iter().any(|capturing| capturing.is(&asked))
    })
}

/// What the driver says of that; `None` if it does not.
fn asked(stream: CUstream) -> Option<bool> {
    let probe = driver::get()?.stream_is_capturing?;
    let mut status = 0;
    // SAFETY: the stream has not been destroyed (the destroy hook forgets it here first, and so do those that end a
    // context); the out-parameter is ours.
    let code = unsafe { probe(stream, &mut status) };
    (code == SUCCESS).then_some(status != 0)
}

/// Makes `call`, which begins a capture of `stream`, and remembers it if it succeeded.
pub fn begin(stream: CUstream, call: impl FnOnce() -> Status) -> Status {
    // Before it begins, while the fence that this takes is allowed.
    order::lose("a stream captured");
    reclaim::before_capture();
    let begun = Capturing::named(stream);
    let mut streams = GATE.write().unwrap_or_else(PoisonError::into_inner);
    let code = call();
    if code == SUCCESS {
        streams.push(begun);
        ACTIVE.store(streams.len(), Ordering::Release);
    }
    code
}

/// `stream` captures no more (ended, or about to be destroyed). Returns what was known of it.
pub fn end(stream: CUstream) -> Vec<Capturing> {
    if ACTIVE.load(Ordering::Acquire) == 0 {
        return Vec::new();
    }
    let ended = Capturing::named(stream);
    take_out(|capturing| capturing.is(&ended))
}

/// A context is about to end, and its streams with it: they are not asked about any more.
pub fn end_all_of(context: CUcontext) -> Vec<Capturing> {
    if ACTIVE.load(Ordering::Acquire) == 0 {
        return Vec::new();
    }
    take_out(|capturing| capturing.context == context as usize)
}

fn take_out(is_meant: impl Fn(&Capturing) -> bool) -> Vec<Capturing> {
    let mut streams = GATE.write().unwrap_or_else(PoisonError::into_inner);
    let (out, rest) = streams.drain(..).partition(is_meant);
    *streams = rest;
    ACTIVE.store(streams.len(), Ordering::Release);
    out
}

/// They capture after all.
pub fn put_back(capturing: Vec<Capturing>) {
    if capturing.is_empty() {
        return;
    }
    let mut streams = GATE.write().unwrap_or_else(PoisonError::into_inner);
    streams.extend(capturing);
    ACTIVE.store(streams.len(), Ordering::Release);
}

/// Makes a context-wide call if nothing captures; `None` if something does.
pub fn context_wide<R>(call: impl FnOnce() -> R) -> Option<R> {
    let streams = GATE.read().unwrap_or_else(PoisonError::into_inner);
    streams.is_empty().then(call)
}
