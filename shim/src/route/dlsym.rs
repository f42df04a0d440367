//! `dlsym` and `dlvsym`.
//!
//! Any name that is not in the table exactly goes on to the C library by a jump, with the caller's registers and return
//! address: it cannot tell that we were there, so RTLD_NEXT starts at the true caller and dlerror is about its question.
//! For a name in the table the answer that the program would have had without us is found first, and replaced only if
//! it is a function of a driver.

use super::scope::{self, Question};
use super::seen;
use crate::process;
use crate::real::{driver, linker};
use crate::table::{self, HOOKS};
use std::arch::naked_asm;
use std::ffi::{c_char, c_void, CStr};
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicPtr, Ordering};

/// What the assembly does with `address`: jump there (0) or return it (1). Comes back in rax and rdx.
#[repr(C)]
pub struct Decision {
    address: usize,
    is_answer: usize,
}

/// Stands in for `dlsym`.
///
/// # Safety
/// As the C library's.
#[no_mangle]
#[unsafe(naked)]
pub unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    naked_asm!(
        "endbr64",
        "push rdi",
        "push rsi",
        "push rdx",
        "mov rdx, [rsp + 24]",
        "call {decide}",
        "mov r11, rdx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "test r11, r11",
        "jnz 2f",
        "jmp rax",
        "2:",
        "ret",
        decide = sym decide_dlsym,
    )
}

/// Stands in for `dlvsym`.
///
/// # Safety
/// As the C library's.
#[no_mangle]
#[unsafe(naked)]
pub unsafe extern "C" fn dlvsym(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
) -> *mut c_void {
    naked_asm!(
        "endbr64",
        "push rdi",
        "push rsi",
        "push rdx",
        "mov rcx, [rsp + 24]",
        "call {decide}",
        "mov r11, rdx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "test r11, r11",
        "jnz 2f",
        "jmp rax",
        "2:",
        "ret",
        decide = sym decide_dlvsym,
    )
}

unsafe extern "C" fn decide_dlsym(
    handle: *mut c_void,
    name: *const c_char,
    caller: usize,
) -> Decision {
    let next = linker::next(linker::Libc::Dlsym, caller);
    // SAFETY: `name` is dlsym's own argument, a C string by the caller's promise.
    let answer = unsafe { table_name(name) }.and_then(|name| {
        answered(&Question {
            handle,
            name,
            version: None,
            caller,
            next,
        })
    });
    if answer.is_none() {
        look_round(handle);
    }
    decision(answer, next)
}

unsafe extern "C" fn decide_dlvsym(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
    caller: usize,
) -> Decision {
    let next = linker::next(linker::Libc::Dlvsym, caller);
    if version.is_null() {
        return decision(None, next);
    }
    // SAFETY: `name` and `version` are dlvsym's own arguments, C strings by the caller's promise.
    let (name, version) = unsafe { (table_name(name), CStr::from_ptr(version)) };
    let question = |name| Question {
        handle,
        name,
        version: Some(version),
        caller,
        next,
    };
    decision(name.and_then(|name| answered(&question(name))), next)
}

fn decision(answer: Option<usize>, next: usize) -> Decision {
    match answer {
        Some(address) => Decision {
            address,
            is_answer: 1,
        },
        // Without a C library there is nobody to ask: NULL.
        None => Decision {
            address: next,
            is_answer: usize::from(next == 0),
        },
    }
}

/// The name, if it can be one of the table's: told from others by a glance, since every look-up of every program
/// passes here.
///
/// # Safety
/// `name` is null or a C string.
unsafe fn table_name<'a>(name: *const c_char) -> Option<&'a CStr> {
    if name.is_null() {
        return None;
    }
    // SAFETY: a C string is readable up to its end, which the first condition that fails has not passed.
    let is_candidate = unsafe {
        let byte = |index| *name.cast::<u8>().add(index);
        (byte(0) == b'c' && byte(1) == b'u') || (byte(0) == b'd' && byte(1) == b'l')
    };
    // SAFETY: a C string by the caller's promise.
    is_candidate.then(|| unsafe { CStr::from_ptr(name) })
}

/// Meets a driver that an object has brought with it which was loaded with RTLD_DEEPBIND: before the object uses the
/// driver, since whoever has loaded it asks for its functions first. Once for each handle in a row, until one is met.
fn look_round(handle: *mut c_void) {
    static LAST: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    let is_object = handle != libc::RTLD_DEFAULT && handle != libc::RTLD_NEXT;
    if is_object && !driver::is_met() && LAST.swap(handle, Ordering::Relaxed) != handle {
        // A panic here is a fault of ours, and the price is that the driver is met later.
        let _ = catch_unwind(|| {
            if !process::is_disabled() {
                driver::discover();
            }
        });
    }
}

/// The answer to give, or nothing: let the C library answer.
fn answered(question: &Question) -> Option<usize> {
    // A panic here is a fault of ours, which the C library's answer covers up at the price of one hook.
    catch_unwind(|| answer(question)).unwrap_or(None)
}

fn answer(question: &Question) -> Option<usize> {
    if let Some(row) = table::row_of(question.name) {
        let native = scope::native(question)?;
        let is_hooked = !process::is_disabled()
            && !driver::is_let_alone(question.caller)
            && driver::owns(native);
        seen::by_dlsym(question.name, is_hooked);
        return Some(if is_hooked {
            HOOKS[row].hand_out() as usize
        } else {
            native
        });
    }
    if table::is_runtime(question.name) {
        return scope::native(question);
    }
    if question.name == c"dlsym" || question.name == c"dlvsym" {
        return scope::next_of_interposer(question);
    }
    if question
        .name
        .to_bytes()
        .get(2)
        .is_some_and(u8::is_ascii_uppercase)
    {
        seen::by_dlsym(question.name, false);
    }
    None
}
