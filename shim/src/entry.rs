//! The one way into every hook: is the shim awake in this process, is this thread already inside, does anything unwind.

use crate::abi::Status;
use crate::process::{self, inside};
use crate::real::driver;
use crate::table::HOOKS;
use crate::thread::{self, Thread};
use std::ffi::c_void;
use std::panic::{catch_unwind, AssertUnwindSafe};

/// The driver's own function of a row, looked for among the loaded objects if it was never seen (the program is linked
/// with -lcuda). `None`: no driver is loaded, or it has no such function.
#[inline]
pub fn real(row: usize) -> Option<*mut c_void> {
    let known = HOOKS[row].real();
    if known.is_null() {
        discover(row)
    } else {
        Some(known)
    }
}

#[cold]
fn discover(row: usize) -> Option<*mut c_void> {
    driver::discover();
    let found = HOOKS[row].real();
    (!found.is_null()).then_some(found)
}

/// Runs `hooked` if the shim is awake in this process and the thread is not in a hook already, else `native`. Nothing
/// unwinds out of it: after a panic the answer is the driver's, which is asked now if the hook had not got there. Counts
/// the call.
#[inline]
pub fn enter(
    row: usize,
    hooked: impl FnOnce(&Thread) -> Status,
    native: impl FnOnce() -> Status,
) -> Status {
    let hook = &HOOKS[row];
    let entered = thread::with(|thread| {
        hook.count_call(row, thread.lane());
        alone_on(thread, |thread| {
            let awake = process::is_awake() || process::activate();
            awake.then(|| catch_unwind(AssertUnwindSafe(|| hooked(thread))))
        })
    });
    match entered {
        Some((Some(Ok(answer)), _)) => answer,
        Some((Some(Err(_)), Some(answer))) => answer,
        _ => native(),
    }
}

/// The same for a look-up, which can be repeated, and must be answered before the shim wakes and when it is passing through.
#[inline]
pub fn look_up(
    row: usize,
    hooked: impl FnOnce() -> Status,
    native: impl FnOnce() -> Status,
) -> Status {
    HOOKS[row].count_call(row, None);
    catch_unwind(AssertUnwindSafe(hooked)).unwrap_or_else(|_| native())
}

/// Passes on, and remembers, what the driver's function of this hook's row answered.
#[inline]
pub fn answered(status: Status) -> Status {
    thread::with(|thread| thread.answer.set(Some(status)));
    status
}

/// Runs `work` with this thread marked as inside, so that hooked functions that it reaches are the driver's. None if
/// it was inside already. With the result comes what the driver answered meanwhile.
pub fn alone<T>(work: impl FnOnce() -> T) -> Option<(T, Option<Status>)> {
    thread::with(|thread| alone_on(thread, |_| work()))
}

#[inline]
fn alone_on<T>(thread: &Thread, work: impl FnOnce(&Thread) -> T) -> Option<(T, Option<Status>)> {
    if thread.busy.replace(true) {
        return None;
    }
    thread.answer.set(None);
    let lane = thread.lane();
    inside::mark(lane, true);
    let result = work(thread);
    inside::mark(lane, false);
    thread.busy.set(false);
    Some((result, thread.answer.get()))
}

/// Whether this thread is in a hook.
pub fn is_inside() -> bool {
    thread::with(|thread| thread.busy.get())
}
