//! When freed memory is scrubbed: soon, off the program's path.
//!
//! # Decision: large blocks at once, small ones by the batch
//! Natively the driver scrubs inside cudaFree. Here the scrub of a freed block starts on the pool's own stream as soon as
//! the block is free, beside whatever the program does next, so that the next request finds it clean. Starting one costs
//! the host about 2 us, which is little beside a large block and much beside a small one; so small ones wait until there
//! is a batch of them. A request that comes earlier scrubs its block itself.

use super::contexts::Context;
use std::sync::atomic::{AtomicU32, Ordering};

/// From this size on a freed block is scrubbed at once.
const LARGE_BYTES: u64 = 1 << 20;
/// So many small blocks make a batch.
const BATCH: u32 = 16;

/// Small blocks freed since the last scrub.
#[derive(Default)]
pub struct Waiting(AtomicU32);

/// A block of this size was freed.
#[inline]
pub fn ahead(context: &Context, size_bytes: u64) {
    if context.pool.settings().scrub.is_none() {
        return;
    }
    let waiting = &context.waiting.0;
    if size_bytes >= LARGE_BYTES || waiting.fetch_add(1, Ordering::Relaxed) + 1 >= BATCH {
        waiting.store(0, Ordering::Relaxed);
        context.pool.scrub_ahead(&context.backing, u64::MAX);
    }
}
