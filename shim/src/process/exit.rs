//! The ways out: return from main and exit() reach us through .fini_array, after every atexit handler; quick_exit()
//! through at_quick_exit; _exit() and _Exit() through exported functions. A killed process has no last word.
//!
//! The last word is said once, by the process that woke the shim, and makes no CUDA call: the driver may be gone.
//!
//! # Decision: nothing is done behind the runtime's back
//! What takes time at the end is done at [`Way::Leaving`]: by a handler that is registered with the first allocation, when
//! driver and runtime have registered theirs, and handlers go last come, first served.
//!
//! # Decision: no thread is in the driver by our doing when it takes itself down
//! Natively a thread that allocates to the end stands in cuMemAlloc or cuMemFree then, which the driver's end knows how to
//! treat. Under us it would record events and set memory, or come back to a runtime that is gone, and crash in one of them: on an H200
//! about 20 of 64 processes with four such threads did (natively 1). So once [`Way::Leaving`] is over, calls of other
//! threads wait for [`HOLD`], once, so that a thread which somebody waits for goes on; and the leaving thread waits
//! until those that had come before are out again.

use super::inside;
use crate::entry;
use crate::real::linker::{self, Libc};
use crate::thread::{self, Thread};
use std::ffi::c_int;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicUsize, Ordering};
use std::sync::Once;
use std::time::Duration;

/// How the process is leaving.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Return from main, or exit(): the handlers that the program registered since its first allocation have run, and
    /// [`Way::Exit`] will come. Driver and runtime are still there, and other threads may still run.
    Leaving,
    /// Return from main, or exit(): all handlers have run, other threads may still run.
    Exit,
    /// quick_exit().
    Quick,
    /// _exit() or _Exit(): perhaps from a signal handler, so the caller may hold any lock, malloc's among them. Work
    /// that another thread can do is better done there, with a limit on the wait.
    Immediate,
}

/// What is called at the end.
pub type AtExit = fn(Way);

const HANDLERS_MAX: usize = 4;
static HANDLERS: [AtomicUsize; HANDLERS_MAX] = [const { AtomicUsize::new(0) }; HANDLERS_MAX];

const NOT_BEGUN: u8 = 0;
const BEGUN: u8 = 1;
const DONE: u8 = 2;
static PROGRESS: AtomicU8 = AtomicU8::new(NOT_BEGUN);

/// The thread that leaves by exit(), once its handlers run.
static LEAVING: AtomicI32 = AtomicI32::new(0);
/// Longest that the end waits for threads that are in a hook: one may wait for the device.
const LEAVE_WAIT: Duration = Duration::from_millis(100);
/// How long a thread is held up that calls at the end.
const HOLD: Duration = Duration::from_secs(2);

/// Longest that _exit waits for a last word that another thread is saying.
const WAIT_MS: u32 = 2000;

/// Has `handler` called when this process ends by itself, if the shim was woken in this very process; once, however often it is
/// asked for. False if there are too many.
pub fn on_exit(handler: AtExit) -> bool {
    let handler = handler as usize;
    let takes = |slot: &AtomicUsize| {
        let was = slot.compare_exchange(0, handler, Ordering::AcqRel, Ordering::Acquire);
        was.is_ok() || was == Err(handler)
    };
    HANDLERS.iter().any(takes)
}

extern "C" {
    fn at_quick_exit(handler: extern "C" fn()) -> c_int;
}

/// Registers what has to be registered while the process is awake.
pub fn watch() {
    // SAFETY: the handler lives as long as this library, which nobody unloads.
    unsafe { at_quick_exit(quick) };
}

extern "C" fn quick() {
    finish(Way::Quick);
}

/// Has [`Way::Leaving`] come before driver and runtime take themselves down: to be called at the first allocation.
pub fn before_teardown() {
    static ONCE: Once = Once::new();
    // SAFETY: the handler lives as long as this library, which nobody unloads.
    ONCE.call_once(|| unsafe {
        libc::atexit(leaving);
    });
}

extern "C" fn leaving() {
    LEAVING.store(thread_id(), Ordering::Release);
    if super::is_owner() && PROGRESS.load(Ordering::Acquire) == NOT_BEGUN {
        call_handlers(Way::Leaving);
        super::end();
        inside::wait_for_others(thread::with(Thread::lane), LEAVE_WAIT);
    }
}

extern "C" fn fini() {
    finish(Way::Exit);
}

fn thread_id() -> i32 {
    // SAFETY: no preconditions.
    unsafe { libc::gettid() }
}

/// Holds up a thread that calls while another one leaves, once.
#[cold]
pub fn hold_up() {
    let is_leaving = LEAVING.load(Ordering::Acquire) == thread_id();
    if is_leaving || thread::with(|thread| thread.was_held_up.replace(true)) {
        return;
    }
    let lane = thread::with(Thread::lane);
    inside::mark(lane, false);
    std::thread::sleep(HOLD);
    inside::mark(lane, true);
}

/// The linker runs .fini_array when all atexit handlers and all destructors of the program's objects have run.
#[used]
#[link_section = ".fini_array"]
static FINI: extern "C" fn() = fini;

/// Stands in for `_exit`.
#[no_mangle]
pub extern "C" fn _exit(status: c_int) -> ! {
    finish(Way::Immediate);
    leave(Libc::Exit, status)
}

/// Stands in for `_Exit`.
#[no_mangle]
pub extern "C" fn _Exit(status: c_int) -> ! {
    finish(Way::Immediate);
    leave(Libc::ExitC99, status)
}

fn leave(which: Libc, status: c_int) -> ! {
    let next = linker::next(which, 0);
    if next != 0 {
        // SAFETY: `linker` found it as `_exit` or `_Exit`.
        unsafe { std::mem::transmute::<usize, unsafe extern "C" fn(c_int)>(next)(status) };
    }
    loop {
        // SAFETY: ends the process.
        unsafe { libc::syscall(libc::SYS_exit_group, status) };
    }
}

fn finish(way: Way) {
    if !super::is_owner() {
        return;
    }
    if PROGRESS
        .compare_exchange(NOT_BEGUN, BEGUN, Ordering::AcqRel, Ordering::Acquire)
        .is_err()
    {
        return wait_for_other();
    }
    call_handlers(way);
    PROGRESS.store(DONE, Ordering::Release);
}

/// A signal handler that leaves in the midst of a hook of this thread would wait for itself: it has no last word.
fn call_handlers(way: Way) {
    let _ = entry::alone(|| {
        for slot in &HANDLERS {
            let handler = slot.load(Ordering::Acquire);
            if handler != 0 {
                // SAFETY: only `on_exit` stores there.
                let handler = unsafe { std::mem::transmute::<usize, AtExit>(handler) };
                let _ = catch_unwind(AssertUnwindSafe(|| handler(way)));
            }
        }
    });
}

/// Another thread is saying the last word, or this one is (a handler that leaves by _exit): wait a little, not for ever.
fn wait_for_other() {
    for _ in 0..WAIT_MS {
        if PROGRESS.load(Ordering::Acquire) == DONE || entry::is_inside() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}
