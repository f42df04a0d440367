//! Our functions in a driver's own symbol table.
//!
//! An object loaded with RTLD_DEEPBIND finds its own C library's `dlsym`, and the driver that it is linked with, before
//! anything of ours. So the driver itself is made to name us: in its table in memory, the value of each hooked symbol
//! becomes the address of our function. Whatever is looked up there from then on, by `dlsym` or by the linker, is ours.
//! (The price: `dladdr` has no name for those functions of the driver any more.)
//!
//! # Why no call can go round in a circle
//! Only the first driver that was adopted is changed, and in it only the rows whose `real` is its own function, which
//! never changes again: ours always goes on to code of that driver, not to a name. A second driver inside the first
//! (WSL) or around it keeps its table.
//!
//! Our own look-ups, and those of callers that are to see the driver as it is, go the way back by [`behind`].

use super::loaded;
use super::object::Object;
use super::symbols::Symbol;
use crate::table::{Hook, HOOKS};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

static IS_DONE: AtomicBool = AtomicBool::new(false);

/// Puts our functions into the table of `driver`, whose rows are noted and which stays loaded. False: it is unchanged.
pub fn install(driver: &Object) -> bool {
    let symbols = || {
        HOOKS
            .iter()
            .filter_map(|hook| Some((hook, own(driver, hook)?)))
    };
    let place = |symbol: &Symbol| std::ptr::from_ref(symbol) as usize;
    let first = symbols().map(|(_, symbol)| place(symbol)).min();
    let last = symbols().map(|(_, symbol)| place(symbol)).max();
    let lowest = symbols().map(|(hook, _)| hook.real() as usize).min();
    let (Some(first), Some(last), Some(lowest)) = (first, last, lowest) else {
        return false;
    };
    // The initialiser comes before all other code; a file without one gives no proof that there is none.
    let lowest_code = lowest.min(driver.tables().initialiser);
    // Who sees the first of ours has to know already.
    IS_DONE.store(true, Ordering::Release);
    driver.while_writable(first..last + size_of::<Symbol>(), lowest_code, || {
        for (hook, symbol) in symbols() {
            let value = (hook.ours as usize).wrapping_sub(driver.base);
            symbol.value.store(value, Ordering::Release);
        }
    })
}

/// The driver's own function where `address` is that of ours which its table may name.
pub fn behind(address: usize) -> Option<usize> {
    if !IS_DONE.load(Ordering::Acquire) {
        return None;
    }
    let hook = HOOKS.iter().find(|hook| hook.ours as usize == address)?;
    Some(hook.real() as usize).filter(|&real| real != 0)
}

/// The symbol of a row in that driver, if it is the one that ours goes on to.
fn own<'a>(driver: &'a Object, hook: &Hook) -> Option<&'a Symbol> {
    let symbol = driver.definition(hook.symbol)?;
    let address = driver
        .base
        .wrapping_add(symbol.value.load(Ordering::Acquire));
    (symbol.is_plain_function() && address == hook.real() as usize).then_some(symbol)
}

/// Whether it was loaded before us: then an answer of the global scope that is ours could be either's.
pub fn is_before_us(driver: &Object) -> bool {
    let mut is_before = false;
    loaded::visit(|object| {
        is_before = object.dynamic == driver.dynamic;
        if is_before || object.is_ours() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    is_before
}
