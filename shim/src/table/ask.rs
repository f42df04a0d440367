//! What an `Order` row does when it cannot jump on to the driver at once.

use super::{Id, HOOKS};
use crate::abi::*;
use crate::device::order;
use crate::entry;
use std::arch::naked_asm;
use std::ffi::c_void;
use std::panic::catch_unwind;

/// Added to the row by a call that names another stream than the legacy one.
pub const IS_OTHER_STREAM: u32 = 1 << 31;

/// Where an `Order` row jumps to, with its number in eax, when it names another stream or its function is not known yet.
#[unsafe(naked)]
pub unsafe extern "C" fn ask() {
    naked_asm!(
        "push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "push r8",
        "push r9",
        "sub rsp, 8",
        "mov rsi, rdi",
        "mov edi, eax",
        "call {ordered}",
        "add rsp, 8",
        "pop r9",
        "pop r8",
        "pop rcx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "test rax, rax",
        "jz 2f",
        "jmp rax",
        "2:",
        "mov eax, {not_found}",
        "ret",
        ordered = sym ordered,
        not_found = const NOT_FOUND,
    )
}

/// The driver's function of an `Order` row, once the order is lost or stays given; null if there is none. `first` is the
/// call's first argument.
unsafe extern "C" fn ordered(row: u32, first: *const c_void) -> *mut c_void {
    let at = (row & !IS_OTHER_STREAM) as usize;
    let found = catch_unwind(|| {
        if at == Id::cuLaunchKernelEx as usize && row != at as u32 {
            // SAFETY: the configuration, by the caller's promise.
            unsafe { order::note_launch(first.cast()) };
        } else if row != at as u32 {
            order::lose(order::OTHER_STREAM);
        }
        entry::real(at)
    });
    found.ok().flatten().unwrap_or_else(|| HOOKS[at].real())
}
