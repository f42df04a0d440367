//! Whether the program's work has an order of its own: one stream, one context, no peer.
//!
//! # Decision: when order is enough
//! Work of a context in which only the legacy stream was ever used is ordered by itself, and a fence would record what
//! holds anyway. A second stream can come from a create call or from a per-thread stream; the create calls are hooked.
//! The per-thread stream needs no create call: it is used by the `_ptds` / `_ptsz` functions or by its handle (2). The
//! functions that take a stream are not all hooked yet, so for now every context counts as having several streams and
//! gets its fences: 0.3 us a reuse, never a wrong result.

use crate::abi::*;
use std::sync::atomic::{AtomicBool, Ordering};

static SEVERAL: AtomicBool = AtomicBool::new(false);

/// A stream beside the legacy one exists, or may.
pub fn note_second_stream() {
    SEVERAL.store(true, Ordering::Relaxed);
}

/// Whether the order of the one stream is enough. Not yet: see above.
pub fn is_given() -> bool {
    false
}

/// A call of the program named this stream.
#[inline]
pub fn note_stream(stream: CUstream) {
    if stream == PER_THREAD_STREAM && !SEVERAL.load(Ordering::Relaxed) {
        note_second_stream();
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
