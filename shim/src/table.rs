//! THE table: every symbol that the shim stands in for, once.
//!
//! From it come the exported functions, the address map that answers `dlsym` and `cuGetProcAddress`, the coverage
//! section of the report and the export gate (`scripts/check-exports`). It has three sections:
//!
//! * [`HOOKS`], the driver's functions. A row is
//!
//!   ```text
//!   KIND symbol(argument: type, ...) = handler;
//!   ```
//!
//!   where the handler is `unsafe fn(real, argument, ...) -> Status` in `exports/`, and `real` is the driver's own
//!   function of that very symbol. The exported function checks that the shim is awake in this process and thread and
//!   that nothing unwinds; else the call goes straight to the driver.
//! * [`RUNTIME`], functions of the shared CUDA runtime. A row is a name; the exported function goes on to the runtime
//!   that its caller would have reached without us (`route/runtime.rs`).
//! * [`LIBC`], functions of the C library. A row is a name; each is written by hand (`route/dlsym.rs`,
//!   `process/exit.rs`). `dlopen` is not among them: who calls it decides where it searches.

use crate::abi::*;
use crate::entry;
use crate::exports::*;
use crate::route::proc_address;
use std::ffi::{c_char, c_int, c_ulonglong, c_void, CStr};
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
    /// Hands out addresses of functions: works in every state of the process, and does not wake the shim.
    Route,
}

/// One hooked driver symbol.
pub struct Hook {
    /// Exact exported name, suffixes included.
    pub symbol: &'static CStr,
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

    /// The shim's function of that name, as the process is handed it; counted.
    pub fn hand_out(&self) -> *mut c_void {
        self.resolved_count.fetch_add(1, Ordering::Relaxed);
        self.ours as *mut c_void
    }
}

/// A name as a C string, at compile time.
macro_rules! c_name {
    ($symbol:ident) => {
        match CStr::from_bytes_with_nul(concat!(stringify!($symbol), "\0").as_bytes()) {
            Ok(name) => name,
            Err(_) => c"",
        }
    };
}

macro_rules! hooks {
    ($( $kind:ident $symbol:ident ( $($argument:ident : $type:ty),* $(,)? ) = $handler:path; )*) => {
        /// Index of each row of [`HOOKS`].
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Id { $( #[doc = stringify!($symbol)] $symbol),* }

        /// Name of each row, for the compiler's use.
        const SYMBOLS: [&str; [$(stringify!($symbol)),*].len()] = [$(stringify!($symbol)),*];

        /// Every hooked driver symbol.
        pub static HOOKS: [Hook; [$(stringify!($symbol)),*].len()] = [$(
            Hook {
                symbol: c_name!($symbol),
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
                /// The driver's function, for the handler.
                unsafe extern "C" fn noted($($argument: $type),*) -> Status {
                    let real = HOOKS[Id::$symbol as usize].real();
                    // SAFETY: the exported function has found `real`: the driver's function of exactly this symbol,
                    // whose signature the row states.
                    let real = unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> Status>(real) };
                    // SAFETY: the caller is the handler, which owes what the driver asks of a caller.
                    entry::answered(unsafe { real($($argument),*) })
                }
                let Some(real) = entry::real(Id::$symbol) else { return NOT_FOUND };
                // SAFETY: `real` is the driver's function of exactly this symbol, whose signature the row states.
                let real = unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> Status>(real) };
                // SAFETY: arguments are passed on as the caller gave them, under the caller's promise.
                entry::enter(Kind::$kind, || unsafe { $handler(noted, $($argument),*) }, || unsafe { real($($argument),*) })
            }
        )*
    };
}

hooks! {
    Route cuGetProcAddress(name: *const c_char, address: *mut *mut c_void, version: c_int, flags: c_ulonglong) = proc_address::first;
    Route cuGetProcAddress_v2(name: *const c_char, address: *mut *mut c_void, version: c_int, flags: c_ulonglong, status: *mut c_int) = proc_address::second;
    Route cuGetProcAddress_v2_ptsz(name: *const c_char, address: *mut *mut c_void, version: c_int, flags: c_ulonglong, status: *mut c_int) = proc_address::second;
    Effect cuMemAlloc_v2(address: *mut CUdeviceptr, size_bytes: usize) = memory::alloc;
    Effect cuMemFree_v2(address: CUdeviceptr) = memory::free;
}

/// Slots of the index by name: a power of two, several times the number of rows.
const SLOTS: usize = 1024;

/// Row plus one of each hooked driver symbol, at the place of its hash or after; built by the compiler.
static INDEX: [u16; SLOTS] = {
    let mut index = [0; SLOTS];
    let mut row = 0;
    while row < SYMBOLS.len() {
        let mut slot = hash(SYMBOLS[row].as_bytes());
        while index[slot] != 0 {
            slot = (slot + 1) % SLOTS;
        }
        index[slot] = row as u16 + 1;
        row += 1;
    }
    index
};

/// FNV-1a, reduced to a slot.
const fn hash(name: &[u8]) -> usize {
    let mut hash = 0x811c_9dc5_u32;
    let mut at = 0;
    while at < name.len() {
        hash = (hash ^ name[at] as u32).wrapping_mul(0x0100_0193);
        at += 1;
    }
    (hash ^ hash >> 15) as usize % SLOTS
}

/// The row of exactly this driver symbol.
pub fn row_of(name: &CStr) -> Option<usize> {
    let mut slot = hash(name.to_bytes());
    loop {
        let row = usize::from(INDEX[slot]).checked_sub(1)?;
        if HOOKS[row].symbol == name {
            return Some(row);
        }
        slot = (slot + 1) % SLOTS;
    }
}

/// Functions of the shared CUDA runtime, which we export beside the runtime itself.
const RUNTIME: [&CStr; 0] = [];

/// Whether the shim exports a runtime function of exactly this name.
pub fn is_runtime(name: &CStr) -> bool {
    RUNTIME.contains(&name)
}
