//! The functions of the C library that this library stands in for: `dlsym`, `dlvsym`, `_exit`, `_Exit`.
//!
//! Another preloaded library may stand in for them too. Whoever comes after us in the order of loading and defines the
//! name is asked next, as the linker would have bound the program without us. A caller which is itself such a library
//! is answered by the one after it, so that two of them never ask each other in a circle.
//!
//! Everything here must work before any constructor has run, and without the heap.

use super::loaded;
use super::object::Object;
use crate::table::LIBC;
use std::ffi::{c_char, c_void};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A function of the C library with an exported twin here: index of each row of [`LIBC`].
#[derive(Debug, Clone, Copy)]
#[repr(usize)]
pub enum Libc {
    /// `dlsym`.
    Dlsym,
    /// `dlvsym`.
    Dlvsym,
    /// `_exit`.
    Exit,
    /// `_Exit`.
    ExitC99,
}

/// The type of `dlsym`.
pub type DlsymFn = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
/// The type of `dlvsym`.
pub type DlvsymFn = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;

/// An object that defines some of [`LIBC`]; the last one is the C library.
struct Provider {
    low: AtomicUsize,
    high: AtomicUsize,
    functions: [AtomicUsize; LIBC.len()],
}

const PROVIDERS_MAX: usize = 6;
static PROVIDERS: [Provider; PROVIDERS_MAX] = [const {
    Provider {
        low: AtomicUsize::new(0),
        high: AtomicUsize::new(0),
        functions: [const { AtomicUsize::new(0) }; LIBC.len()],
    }
}; PROVIDERS_MAX];
static READY: AtomicBool = AtomicBool::new(false);

/// Address of the function that a caller at `caller` reaches through us. 0 only where no C library was found at all.
pub fn next(which: Libc, caller: usize) -> usize {
    let providers = providers();
    let inside = providers.iter().position(|provider| {
        (provider.low.load(Ordering::Relaxed)..provider.high.load(Ordering::Relaxed))
            .contains(&caller)
    });
    providers[inside.map_or(0, |index| index + 1)..]
        .iter()
        .chain(providers.iter().rev())
        .map(|provider| provider.functions[which as usize].load(Ordering::Relaxed))
        .find(|&address| address != 0)
        .unwrap_or(0)
}

/// Address of the C library's own function.
pub fn own(which: Libc) -> usize {
    providers()
        .iter()
        .rev()
        .map(|provider| provider.functions[which as usize].load(Ordering::Relaxed))
        .find(|&address| address != 0)
        .unwrap_or(0)
}

/// Number of objects after us which stand in for `dlsym` too.
pub fn chained_count() -> usize {
    let dlsyms = |provider: &&Provider| {
        provider.functions[Libc::Dlsym as usize].load(Ordering::Relaxed) != 0
    };
    providers().iter().filter(dlsyms).count().saturating_sub(1)
}

fn providers() -> &'static [Provider; PROVIDERS_MAX] {
    if !READY.load(Ordering::Acquire) {
        find();
        READY.store(true, Ordering::Release);
    }
    &PROVIDERS
}

/// Fills the table. Two threads may do so at once: what is loaded with the program does not change, so both write the
/// same.
fn find() {
    // If we come after the C library (opened late, or linked), there is nobody after us: then it alone counts.
    let mut passed_us = false;
    let mut count = 0;
    loaded::visit(|object| {
        if object.is_ours() {
            passed_us = true;
        } else if passed_us || is_libc(object) {
            if let Some(provider) = PROVIDERS.get(count) {
                if fill(provider, object) {
                    count += 1;
                }
            }
        }
        if passed_us && count > 0 && is_libc(object) && object.defines(c"dlsym").is_some() {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    });
}

/// Whether it is the C library, or the part of it that once held `dlsym`.
pub fn is_libc(object: &Object) -> bool {
    [c"libc.so.6", c"libdl.so.2"].contains(&object.soname())
}

fn fill(provider: &Provider, object: &Object) -> bool {
    let found = LIBC.map(|name| object.defines(name).unwrap_or(0));
    if found.iter().all(|&address| address == 0) {
        return false;
    }
    for (slot, address) in provider.functions.iter().zip(found) {
        slot.store(address, Ordering::Relaxed);
    }
    provider.low.store(object.low, Ordering::Relaxed);
    provider.high.store(object.high, Ordering::Relaxed);
    true
}
