//! Locks and atomics of the concurrent core (pool, budget, ledger): the standard library's, and loom's when the model
//! checker runs it (`--cfg loom`, tests/model.rs). What threads share there is taken from here, or the checker does not
//! see it.

#[cfg(loom)]
pub use loom::sync::{atomic, Condvar, Mutex, MutexGuard};
#[cfg(not(loom))]
pub use std::sync::{atomic, Condvar, Mutex, MutexGuard};
