//! What the outcome of the program's own calls says about a context: that it is dead, or that all its work has ended.

use super::{all, current_handle, find_pool, is_alone};
use crate::abi::*;
use std::sync::atomic::Ordering;

/// A driver call of the program answered `code`: if that is a sticky error, every context of the device it came from is
/// dead (hazard 26). The driver's sticky errors corrupt the whole process's use of that context.
pub fn observe(code: Status) {
    if code != SUCCESS && is_sticky(code) {
        mark_dead(code);
    }
}

#[cold]
fn mark_dead(code: Status) {
    let handle = current_handle() as usize;
    for context in all() {
        if context.backing.context == handle {
            context.dead.store(code, Ordering::Relaxed);
        }
    }
}

/// Errors after which a context answers every call with the same code (cuda.h: "the context cannot be used" and "leaves
/// the process in an inconsistent state").
pub fn is_sticky(code: Status) -> bool {
    matches!(
        code,
        214 | 220 | 221 | 226 | 700 | 702 | 710 | 714..=719 | 721
    )
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
