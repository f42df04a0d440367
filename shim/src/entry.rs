//! The one way into every hook: is the shim awake in this process, is this thread already inside, does anything unwind.

use crate::abi::Status;
use crate::process;
use crate::real::driver;
use crate::table::{Kind, HOOKS};
use std::cell::Cell;
use std::ffi::c_void;
use std::panic::{catch_unwind, AssertUnwindSafe};

/// What this thread is doing here.
#[derive(Clone, Copy)]
struct Inside {
    /// It is in a hook.
    busy: bool,
    /// What the driver's function of the row answered in this hook, if it was called.
    answer: Option<Status>,
}

impl Inside {
    const NO: Inside = Inside {
        busy: false,
        answer: None,
    };
    const YES: Inside = Inside {
        busy: true,
        answer: None,
    };
}

thread_local! {
    static INSIDE: Cell<Inside> = const { Cell::new(Inside::NO) };
}

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
/// unwinds out of it: after a panic the answer is the driver's, which is asked now if the hook had not got there.
#[inline]
pub fn enter(
    kind: Kind,
    hooked: impl FnOnce() -> Status,
    native: impl FnOnce() -> Status,
) -> Status {
    if kind == Kind::Route {
        // A look-up can be repeated, and must be answered before the shim wakes and when it is passing through.
        return catch_unwind(AssertUnwindSafe(hooked)).unwrap_or_else(|_| native());
    }
    match alone(|| {
        let awake = process::is_awake() || process::activate();
        awake.then(|| catch_unwind(AssertUnwindSafe(hooked)))
    }) {
        Some((Some(Ok(answer)), _)) => answer,
        Some((Some(Err(_)), Some(answer))) => answer,
        _ => native(),
    }
}

/// Passes on, and remembers, what the driver's function of this hook's row answered.
#[inline]
pub fn answered(status: Status) -> Status {
    INSIDE.with(|inside| {
        inside.set(Inside {
            answer: Some(status),
            ..inside.get()
        });
    });
    status
}

/// Runs `work` with this thread marked as inside, so that hooked functions that it reaches are the driver's. None if
/// it was inside already. With the result comes what the driver answered meanwhile.
#[inline]
pub fn alone<T>(work: impl FnOnce() -> T) -> Option<(T, Option<Status>)> {
    INSIDE.with(|inside| {
        if inside.get().busy {
            return None;
        }
        inside.set(Inside::YES);
        let result = work();
        let answer = inside.replace(Inside::NO).answer;
        Some((result, answer))
    })
}

/// Whether this thread is in a hook.
pub fn is_inside() -> bool {
    INSIDE.with(|inside| inside.get().busy)
}
