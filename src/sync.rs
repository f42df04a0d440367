//! Locks and atomics of the concurrent core (pool, budget, ledger): the standard library's, and loom's when the model
//! checker runs it (`--cfg loom`, tests/model.rs). What threads share there is taken from here, or the checker does not
//! see it.

#[cfg(loom)]
pub use loom::sync::{atomic, Condvar, Mutex, MutexGuard};
#[cfg(not(loom))]
pub use std::sync::{atomic, Condvar, Mutex, MutexGuard};

/// Lets other threads go on, for a caller that asks again and again: `turn` counts up from 0.
pub fn pause(turn: u32) {
    #[cfg(loom)]
    loom::thread::yield_now();
    if turn > 64 {
        std::thread::yield_now();
    }
    std::hint::spin_loop();
}

/// Alone in its cache lines (two, since processors fetch them in pairs): what other threads write beside it does not take it
/// from those who read it.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Apart<T>(pub T);
