//! When freed memory is scrubbed: soon, off the program's path; or when it is asked for.
//!
//! # Decision: by the batch
//! Natively the driver scrubs inside cudaFree. Here the scrub of freed blocks starts on the pool's own stream soon after
//! they are free, beside whatever the program does next, so that the next request finds them clean. Starting one costs
//! the host about 2 us, which is much beside a small block; so small ones wait until there is a batch of them, and what
//! lies together is filled in one call. And it stops the device for some microseconds while it has work, which is much
//! beside a block of some MiB; when the free has just waited for the device, it has none. A request that comes earlier
//! takes clean memory beside the dirt, and where there is none scrubs its block with what else is dirty.
//!
//! # Decision: not ahead while one stream's order is given
//! There a scrub goes into the program's own stream (see `lane`). It stops nothing, so a request that finds no clean memory may
//! as well start it; and a stream that the program has waited for stays idle after a free, as it does natively.

use super::contexts::Context;
use super::order;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// So many bytes freed make a batch while the device has nothing else to do: one large block, or a few.
const BATCH_IDLE_BYTES: u64 = 2 << 20;
/// The same while it is at work.
const BATCH_BYTES: u64 = 64 << 20;
/// So many small blocks make a batch.
const BATCH: u32 = 64;

/// Blocks freed since the last scrub.
#[derive(Default)]
pub struct Waiting {
    count: AtomicU32,
    bytes: AtomicU64,
}

/// A block of this size was freed, and the device has just ended all its work or not.
#[inline]
pub fn ahead(context: &Context, size_bytes: u64, is_idle: bool) {
    if context.pool.settings().scrub.is_none() || order::is_given() {
        return;
    }
    let waiting = &context.waiting;
    let count = waiting.count.fetch_add(1, Ordering::Relaxed) + 1;
    let bytes = waiting.bytes.fetch_add(size_bytes, Ordering::Relaxed) + size_bytes;
    let batch_bytes = if is_idle {
        BATCH_IDLE_BYTES
    } else {
        BATCH_BYTES
    };
    if bytes >= batch_bytes || count >= BATCH {
        waiting.count.store(0, Ordering::Relaxed);
        waiting.bytes.store(0, Ordering::Relaxed);
        context.pool.scrub_ahead(&context.backing, u64::MAX);
    }
}
