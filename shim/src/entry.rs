//! The one way into every hook: is the shim awake in this process, is this thread already inside, does anything unwind.

use crate::abi::Status;
use crate::process;
use crate::real::driver;
use crate::table::{Id, Kind, HOOKS};
use std::ffi::c_void;

/// The driver's own function of a row, looked for among the loaded objects if it was never seen (the program is linked
/// with -lcuda). `None`: no driver is loaded, or it has no such function.
#[inline]
pub fn real(id: Id) -> Option<*mut c_void> {
    let known = HOOKS[id as usize].real();
    if known.is_null() {
        discover(id)
    } else {
        Some(known)
    }
}

#[cold]
fn discover(id: Id) -> Option<*mut c_void> {
    driver::discover();
    let found = HOOKS[id as usize].real();
    (!found.is_null()).then_some(found)
}

/// Runs `hooked` if the shim is awake here, else `native`.
pub fn enter(
    _kind: Kind,
    hooked: impl FnOnce() -> Status,
    native: impl FnOnce() -> Status,
) -> Status {
    if process::is_disabled() {
        native()
    } else {
        hooked()
    }
}
