//! Giving cached memory back when the driver runs short of it (hazard 14).

use super::{capture, contexts};
use crate::abi::*;
use cushion::pool::Budget;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// Mapped memory that is cached when a capture begins is at most one part in so many of the device, or of its limit.
const CACHED_IN_CAPTURE: u64 = 16;

/// Times that a call of the program failed for memory and was tried again after a trim.
pub static RETRIES: AtomicU64 = AtomicU64::new(0);

/// Makes `call`; if it fails for memory and the pools hold cached segments, gives them back and makes it once more.
pub fn retried(call: impl Fn() -> Status) -> Status {
    let code = call();
    if code != OUT_OF_MEMORY {
        contexts::observe(code);
        return code;
    }
    if trim_all() == 0 {
        return code;
    }
    RETRIES.fetch_add(1, Ordering::Relaxed);
    let code = call();
    contexts::observe(code);
    code
}

/// Gives every wholly free segment of every pool back. Returns the bytes given back.
pub fn trim_all() -> u64 {
    contexts::all().iter().map(trim).sum()
}

fn trim(context: &Arc<contexts::Context>) -> u64 {
    if context.dead().is_some() {
        return 0;
    }
    // Nobody's to end while its memory goes back.
    match contexts::reach_of(context.backing.context as CUcontext) {
        // One of the same handle may have come after it.
        Some(alive) if alive.backing().serial == context.serial => {
            context.pool.trim(&context.backing, 0)
        }
        _ => 0,
    }
}

/// A capture is about to begin, during which mapped memory cannot go back: where much of a device is cached there, it goes now.
pub fn before_capture() {
    if capture::active() {
        return;
    }
    for context in contexts::all() {
        let is_large = |budget: &Budget| {
            let most_bytes = budget.most_bytes().unwrap_or(0);
            context.pool.cached_bytes() > most_bytes / CACHED_IN_CAPTURE
        };
        if context.backing.is_mapping() && is_large(context.pool.budget()) {
            trim(&context);
        }
    }
}

/// The same for every pool but this one, whose device it shares.
pub fn trim_others(own: &contexts::Context) -> u64 {
    contexts::all()
        .iter()
        .filter(|context| {
            context.serial != own.serial && context.backing.device == own.backing.device
        })
        .map(trim)
        .sum()
}
