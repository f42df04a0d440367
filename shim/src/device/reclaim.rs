//! Giving cached memory back when the driver runs short of it (hazard 14).

use super::contexts;
use crate::abi::*;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

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
