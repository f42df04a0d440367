//! THE table: every symbol that the shim stands in for, once.
//!
//! From it come the exported functions, the address map that answers `dlsym` and `cuGetProcAddress`, the coverage
//! section of the report and the export gate (`scripts/check-exports`). A row is
//!
//! ```text
//! KIND symbol(argument: type, ...) = handler;
//! ```
//!
//! where the handler is `unsafe fn(real, argument, ...) -> Status` in `exports/`, and `real` is the driver's own function
//! of that very symbol. The exported function checks that the shim is awake in this process and thread and that nothing
//! unwinds; else the call goes straight to the driver.

use crate::abi::*;
use crate::entry;
use crate::exports::*;
use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// What a hook is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Changes what the call does (served from the pool, limited, translated).
    Effect,
    /// Counts what passes by; the driver does the work.
    Count,
    /// Learns something that the pool needs (streams, captures, waits, errors); the driver does the work.
    Watch,
}

/// One hooked driver symbol.
pub struct Hook {
    /// Exact exported name, suffixes included.
    pub symbol: &'static str,
    /// What it is for.
    pub kind: Kind,
    /// The shim's function of that name.
    pub ours: unsafe extern "C" fn(),
    /// The driver's function of that name, once found.
    real: AtomicPtr<c_void>,
    /// Times the process was handed the hook's address.
    pub resolved_count: AtomicU64,
}

impl Hook {
    /// The driver's own function, if known.
    pub fn real(&self) -> *mut c_void {
        self.real.load(Ordering::Acquire)
    }

    /// Remembers the driver's own function. The first answer stays.
    pub fn set_real(&self, address: *mut c_void) {
        let _ = self.real.compare_exchange(
            std::ptr::null_mut(),
            address,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
    }
}

macro_rules! hooks {
    ($( $kind:ident $symbol:ident ( $($argument:ident : $type:ty),* $(,)? ) = $handler:path; )*) => {
        /// Index of each row of [`HOOKS`].
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Id { $($symbol),* }

        /// Every hooked driver symbol.
        pub static HOOKS: [Hook; [$(stringify!($symbol)),*].len()] = [$(
            Hook {
                symbol: stringify!($symbol),
                kind: Kind::$kind,
                // SAFETY: only the type is erased; whoever calls through it owes the row's signature.
                ours: unsafe { std::mem::transmute::<unsafe extern "C" fn($($type),*) -> Status, unsafe extern "C" fn()>($symbol) },
                real: AtomicPtr::new(std::ptr::null_mut()),
                resolved_count: AtomicU64::new(0),
            }
        ),*];

        $(
            /// Stands in for the driver function of this name.
            ///
            /// # Safety
            /// The caller owes what the driver's documentation asks of a caller of this function.
            #[no_mangle]
            pub unsafe extern "C" fn $symbol($($argument: $type),*) -> Status {
                let Some(real) = entry::real(Id::$symbol) else { return NOT_FOUND };
                // SAFETY: `real` is the driver's function of exactly this symbol, whose signature the row states.
                let real = unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> Status>(real) };
                // SAFETY: arguments are passed on as the caller gave them, under the caller's promise.
                entry::enter(|| unsafe { $handler(real, $($argument),*) }, || unsafe { real($($argument),*) })
            }
        )*
    };
}

hooks! {
    Effect cuMemAlloc_v2(address: *mut CUdeviceptr, size_bytes: usize) = memory::alloc;
    Effect cuMemFree_v2(address: CUdeviceptr) = memory::free;
}
