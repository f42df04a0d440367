//! Functions of the shared CUDA runtime. Ours do nothing but go on to the runtime's, by a jump, so that its error state
//! and everything else stay its own; what it then asks of the driver is hooked.
//!
//! Which runtime that is, the caller decides: one process can hold several, linked in or shared, in the global scope or
//! hidden in that of one extension. The linker would have bound the caller to the first in the global scope, or else
//! in the scope that the caller was loaded with, in the version that the caller asks for. That is found once for each
//! place that calls. A place is remembered together with the objects it lies in and leads to, and believed only while
//! both are still what they were: both can be unloaded.

use super::scope::{self, Question};
use crate::real::loaded;
use crate::real::object::Object;
use crate::real::whereabouts::{lasting, Lasting};
use crate::table::RUNTIME;
use std::arch::naked_asm;
use std::ffi::{c_int, CStr};
use std::ops::ControlFlow;
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicPtr, Ordering};

/// `cudaErrorSharedObjectSymbolNotFound`.
const NOT_FOUND: c_int = 302;

/// Goes on to the runtime's function of the row in eax, with all arguments and the return address as they are.
///
/// # Safety
/// As the runtime's function of that row.
#[unsafe(naked)]
pub unsafe extern "C" fn go_on() {
    naked_asm!(
        "push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "push r8",
        "push r9",
        "push rax",
        "mov edi, eax",
        "mov rsi, [rsp + 56]",
        "call {find}",
        "mov r11, rax",
        "pop rax",
        "pop r9",
        "pop r8",
        "pop rcx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "jmp r11",
        find = sym find,
    )
}

/// A place that calls a runtime function, and where that leads.
struct Site {
    /// Return address and row.
    key: usize,
    /// The object that calls.
    caller: Lasting,
    /// The runtime's function.
    target: usize,
    /// The runtime.
    runtime: Lasting,
}

const SITES_MAX: usize = 1024;
const PROBES: usize = 8;
static SITES: [AtomicPtr<Site>; SITES_MAX] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; SITES_MAX];

extern "C" fn find(row: usize, caller: usize) -> usize {
    // Rows are few and addresses have 47 bits.
    let key = caller ^ row << 48;
    let slots = key_slots(key);
    for slot in slots.clone() {
        // SAFETY: a slot holds null or a leaked `Site`.
        match unsafe { slot.load(Ordering::Acquire).as_ref() } {
            Some(site) if site.key == key => {
                if site.caller.is_still(caller) && site.runtime.is_still(site.target) {
                    return site.target;
                }
                break;
            }
            Some(_) => {}
            None => break,
        }
    }
    let target = catch_unwind(|| resolve(RUNTIME[row], caller)).unwrap_or(None);
    let Some(target) = target else {
        return absent as *const () as usize;
    };
    let site = Site {
        key,
        caller: lasting(caller),
        target,
        runtime: lasting(target),
    };
    remember(slots, site);
    target
}

/// The slots where a key may be, in order.
fn key_slots(key: usize) -> impl Iterator<Item = &'static AtomicPtr<Site>> + Clone {
    let first = (key ^ key >> 10 ^ key >> 48) % SITES_MAX;
    (0..PROBES).map(move |probe| &SITES[(first + probe) % SITES_MAX])
}

/// Stores a site in a vacant slot or in place of its stale self. What is replaced is not freed, since another thread
/// may be reading it: some bytes each time that an extension is loaded anew. With no slot vacant it is found anew at
/// each call.
fn remember(slots: impl Iterator<Item = &'static AtomicPtr<Site>>, site: Site) {
    let key = site.key;
    let site = Box::into_raw(Box::new(site));
    for slot in slots {
        let old = slot.load(Ordering::Acquire);
        // SAFETY: a slot holds null or a leaked `Site`.
        let usable = unsafe { old.as_ref() }.is_none_or(|old| old.key == key);
        if usable
            && slot
                .compare_exchange(old, site, Ordering::AcqRel, Ordering::Acquire)
                .is_ok()
        {
            return;
        }
    }
    // SAFETY: made above and stored nowhere.
    drop(unsafe { Box::from_raw(site) });
}

/// The function that the linker would have bound `name` to for the code at `address`.
fn resolve(name: &'static CStr, address: usize) -> Option<usize> {
    let caller = loaded::holding(address);
    let version = caller
        .as_ref()
        .and_then(|caller| caller.version_asked(name));
    let question = Question::from_here(name, version);
    if let Some(target) = scope::beyond_us(&question) {
        // The linker would have made the caller hold a runtime that it found there; we do.
        if caller.is_none_or(|caller| scope::in_own_scope(&caller, &question) != Some(target)) {
            keep(target);
        }
        return Some(target);
    }
    caller
        .and_then(|caller| scope::in_scopes_of(&caller, &question))
        .or_else(|| anywhere(name).inspect(|&target| keep(target)))
}

/// A function of that name in any runtime that is loaded: for code that was handed our address by another object.
fn anywhere(name: &CStr) -> Option<usize> {
    let mut found = None;
    loaded::visit(|object| {
        if object.soname().to_bytes().starts_with(b"libcudart.so") {
            found = object.defines(name);
        }
        if found.is_some() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    found
}

/// Keeps the object that `address` is in from being unloaded.
fn keep(address: usize) {
    if let Some(object) = loaded::holding(address) {
        hold(&object);
    }
}

fn hold(object: &Object) {
    // SAFETY: the path of an object that was just found loaded; nothing is loaded by this, and the reference stays.
    unsafe { libc::dlopen(object.path, libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
}

/// In place of a function that no runtime has: a program that only tests whether it is there, and calls it.
extern "C" fn absent() -> c_int {
    NOT_FOUND
}
