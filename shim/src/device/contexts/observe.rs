//! What the outcome of the program's own calls says about a context: that it is dead, or that all its work has ended.

use super::{all, find_pool, is_alone, reach_of, Context};
use crate::abi::*;
use crate::driver::{self, Current};
use std::sync::atomic::Ordering;

/// A driver call of the program answered `code`: if that is a sticky error, some context has died of it (hazard 26).
pub fn observe(code: Status) {
    if code != SUCCESS && is_sticky(code) {
        look_for_the_dead();
    }
}

/// # Decision: each context is asked
/// A wait for a stream or an event of another context answers that one's error, and the current context lives on; and a code may
/// come from the call alone. So the driver is asked in every context that has a pool, by a call that answers the error of a dead one, waits for
/// nothing and hurts no capture (measured, cuMemGetInfo).
#[cold]
fn look_for_the_dead() {
    for context in all() {
        if context.dead().is_some() {
            continue;
        }
        // Not one of the same handle that came after it.
        let alive = reach_of(context.backing.context as CUcontext)
            .filter(|reach| reach.backing().serial == context.serial);
        if let Some(code) = alive.and_then(|_alive| answer_of(&context)) {
            if is_sticky(code) {
                context.dead.store(code, Ordering::Relaxed);
            }
        }
    }
}

/// What the driver answers in a context to any call.
fn answer_of(context: &Context) -> Option<Status> {
    let driver = driver::get()?;
    let (mut free, mut total) = (0, 0);
    Some(
        match Current::enter(driver, context.backing.context as CUcontext) {
            // SAFETY: the out-parameters are ours.
            Ok(_current) => unsafe { (driver.mem_get_info)(&mut free, &mut total) },
            Err(code) => code,
        },
    )
}

/// Errors after which a context answers every call with the same code (cuda.h: "the context cannot be used" and "leaves
/// the process in an inconsistent state").
pub fn is_sticky(code: Status) -> bool {
    matches!(code, 214 | 220 | 226 | 700 | 702 | 710 | 714..=719 | 721)
}

/// Makes `wait`, the program's own wait for all work of `handle`'s context. If it succeeds, what was freed there before
/// it began needs no barrier any more, unless work of other contexts can reach the memory.
pub fn drained(handle: CUcontext, wait: impl FnOnce() -> Status) -> Status {
    let Some(context) = find_pool(handle) else {
        return wait();
    };
    let mark = context.pool.mark();
    let code = wait();
    if code == SUCCESS && is_alone(&context.backing) {
        context.pool.drained(mark);
    }
    observe(code);
    code
}
