//! The concurrent core under the model checker: every interleaving of a few threads, up to a number of preemptions.
//!
//! `scripts/model` builds this with `--cfg loom`, where the pool, the budget and the ledger take their locks and atomics
//! from loom (`src/sync.rs`); without it there is nothing here. loom runs a scenario again and again, each time another
//! way, and fails on a panic, a deadlock or a lost wake-up. What is checked in the middle is the truth that
//! [`Watched`](pool_support::watched::Watched) keeps of each byte (FENCED, CLEAN, ONE-PLACE, OURS, WHOLE); at the end the
//! pool's own recount and that nothing is left.
//!
//! # A new scenario
//! [`Stage::new`], [`Stage::live`] for blocks that exist before, [`Stage::run`] with a closure for each thread (the last
//! one runs on the main thread), [`Stage::end`]. Two or three threads with one to three operations each are enough to
//! find an error of order, and many more take too long. State that threads share must come from `src/sync.rs`; what is
//! kept for each thread from `loom::thread_local`, since loom's threads are one thread of the system.
#![cfg(all(loom, test))]

#[path = "../../pool_support"]
#[allow(dead_code)] // Each test crate uses a part of it.
mod pool_support {
    pub mod arithmetic;
    pub mod program;
    pub mod watched;
}

mod explore;
mod ledger;
mod order;
mod pool;
mod stage;
