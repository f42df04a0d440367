//! When freed memory is scrubbed: soon, off the program's path.
//!
//! # Decision: by the batch
//! Natively the driver scrubs inside cudaFree. Here the scrub of a freed block starts on the pool's own stream soon after
//! the block is free, beside whatever the program does next, so that the next request finds it clean. Starting one costs
//! the host about 2 us, which is little beside a large block and much beside a small one; so small ones wait until there
//! is a batch of them, and what lies together is filled in one call. A request that comes earlier takes clean memory beside
//! the dirt, and where there is none scrubs its block itself.

use super::contexts::Context;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// So many bytes freed make a batch: one large block, or a few.
const BATCH_BYTES: u64 = 2 << 20;
/// So many small blocks make a batch.
const BATCH: u32 = 64;

/// Blocks freed since the last scrub.
#[derive(Default)]
pub struct Waiting {
    count: AtomicU32,
    bytes: AtomicU64,
}

/// A block of this size was freed.
#[inline]
pub fn ahead(context: &Context, size_bytes: u64) {
    if context.pool.settings().scrub.is_none() {
        return;
    }
    let waiting = &context.waiting;
    let count = waiting.count.fetch_add(1, Ordering::Relaxed) + 1;
    let bytes = waiting.bytes.fetch_add(size_bytes, Ordering::Relaxed) + size_bytes;
    if bytes >= BATCH_BYTES || count >= BATCH {
        waiting.count.store(0, Ordering::Relaxed);
        waiting.bytes.store(0, Ordering::Relaxed);
        context.pool.scrub_ahead(&context.backing, u64::MAX);
    }
}
