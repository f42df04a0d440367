//! A fault of ours is told in one line, and is not the program's: nothing unwinds into it, and from then on every call
//! is the driver's.

use super::{give_up, say};
use std::sync::atomic::{AtomicU64, Ordering};

static BROKEN_COUNT: AtomicU64 = AtomicU64::new(0);

/// Internal errors so far.
pub fn broken_count() -> u64 {
    BROKEN_COUNT.load(Ordering::Relaxed)
}

/// Takes the place of the standard library's message. This library has a standard library of its own, so a program in
/// Rust keeps its hook.
pub fn take_over() {
    std::panic::set_hook(Box::new(|info| {
        let payload = info.payload();
        let what = payload
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
            .unwrap_or("no message");
        let place = info
            .location()
            .map(|at| format!("{}:{}", at.file(), at.line()));
        if BROKEN_COUNT.fetch_add(1, Ordering::Relaxed) == 0 {
            let place = place.unwrap_or_default();
            say(&format!(
                "internal error at {place}: {what}; the driver serves all calls from here on"
            ));
        }
        give_up();
    }));
}
