//! The program's own waits: each closes the epochs of the pool for nothing, and tells of a context that died.

use crate::abi::*;
use crate::device::contexts;

/// `cuCtxSynchronize`: waits for the current context.
pub unsafe fn context(real: unsafe extern "C" fn() -> Status) -> Status {
    // SAFETY: no arguments.
    contexts::drained(contexts::current_handle(), || unsafe { real() })
}

/// `cuCtxSynchronize_v2` (CUDA 13): waits for the context named.
pub unsafe fn context_v2(
    real: unsafe extern "C" fn(CUcontext) -> Status,
    context: CUcontext,
) -> Status {
    let waited = if context.is_null() {
        contexts::current_handle()
    } else {
        context
    };
    // SAFETY: the caller's arguments, unchanged.
    contexts::drained(waited, || unsafe { real(context) })
}
