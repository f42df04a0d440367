//! Functions that the driver does alone: passed on, counted, watched for a dead context, or tried again after a trim.

use crate::abi::*;
use crate::device::{contexts, reclaim};

macro_rules! plain {
    ($($pass:ident $observe:ident $retry:ident ($($argument:ident: $type:ident),*);)*) => {$(
        /// Passes the call on.
        #[allow(dead_code, clippy::too_many_arguments)]
        pub unsafe fn $pass<$($type: Copy),*>(real: unsafe extern "C" fn($($type),*) -> Status, $($argument: $type),*) -> Status {
            // SAFETY: the caller's arguments, unchanged.
            unsafe { real($($argument),*) }
        }

        /// Passes the call on and learns from a sticky error.
        #[allow(dead_code, clippy::too_many_arguments)]
        pub unsafe fn $observe<$($type: Copy),*>(real: unsafe extern "C" fn($($type),*) -> Status, $($argument: $type),*) -> Status {
            // SAFETY: the caller's arguments, unchanged.
            let code = unsafe { real($($argument),*) };
            contexts::observe(code);
            code
        }

        /// Passes the call on; if memory is short, trims the pool and tries once more (hazard 14).
        #[allow(dead_code, clippy::too_many_arguments)]
        pub unsafe fn $retry<$($type: Copy),*>(real: unsafe extern "C" fn($($type),*) -> Status, $($argument: $type),*) -> Status {
            // SAFETY: the caller's arguments, unchanged; a call that failed for memory has had no effect.
            reclaim::retried(|| unsafe { real($($argument),*) })
        }
    )*};
}

plain! {
    pass1 observe1 retry1 (a: A);
    pass2 observe2 retry2 (a: A, b: B);
    pass3 observe3 retry3 (a: A, b: B, c: C);
    pass4 observe4 retry4 (a: A, b: B, c: C, d: D);
    pass5 observe5 retry5 (a: A, b: B, c: C, d: D, e: E);
    pass6 observe6 retry6 (a: A, b: B, c: C, d: D, e: E, f: F);
    pass7 observe7 retry7 (a: A, b: B, c: C, d: D, e: E, f: F, g: G);
    pass8 observe8 retry8 (a: A, b: B, c: C, d: D, e: E, f: F, g: G, h: H);
}
