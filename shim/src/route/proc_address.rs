//! `cuGetProcAddress` and `cuGetProcAddress_v2`: the driver answers, and where its answer is a hooked function the
//! program is given ours. Code, status and everything else of the answer stay the driver's.

use super::seen;
use crate::abi::{Status, SUCCESS};
use crate::device::order;
use crate::process;
use crate::real::driver;
use crate::route::names::{self, Entry};
use crate::table::HOOKS;
use std::ffi::{c_char, c_int, c_ulonglong, c_void, CStr};

/// The type of `cuGetProcAddress`.
pub type FirstFn =
    unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, c_ulonglong) -> Status;
/// The type of `cuGetProcAddress_v2`.
pub type SecondFn =
    unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, c_ulonglong, *mut c_int) -> Status;

/// `cuGetProcAddress`.
///
/// # Safety
/// As the driver's.
pub unsafe fn first(
    real: FirstFn,
    name: *const c_char,
    address: *mut *mut c_void,
    version: c_int,
    flags: c_ulonglong,
) -> Status {
    // SAFETY: the caller's arguments, unchanged.
    let answer = unsafe { real(name, address, version, flags) };
    // SAFETY: the same arguments, after the driver took them.
    unsafe {
        substitute(
            answer,
            name,
            address,
            flags,
            |name, address, version, flags| real(name, address, version, flags),
        )
    };
    answer
}

/// `cuGetProcAddress_v2`.
///
/// # Safety
/// As the driver's.
pub unsafe fn second(
    real: SecondFn,
    name: *const c_char,
    address: *mut *mut c_void,
    version: c_int,
    flags: c_ulonglong,
    status: *mut c_int,
) -> Status {
    // SAFETY: the caller's arguments, unchanged.
    let answer = unsafe { real(name, address, version, flags, status) };
    let mut ignored = 0;
    let again = |name, address, version, flags| {
        // SAFETY: a look-up with places of our own.
        unsafe { real(name, address, version, flags, &mut ignored) }
    };
    // SAFETY: the same arguments, after the driver took them.
    unsafe { substitute(answer, name, address, flags, again) };
    answer
}

/// Replaces the driver's function at `*address` by ours if the table has it.
///
/// # Safety
/// `name` and `address` are what the driver was called with, and `answer` is what it said; `again` calls it.
unsafe fn substitute(
    answer: Status,
    name: *const c_char,
    address: *mut *mut c_void,
    flags: c_ulonglong,
    mut again: impl FnMut(*const c_char, *mut *mut c_void, c_int, c_ulonglong) -> Status,
) {
    if answer != SUCCESS || name.is_null() || address.is_null() {
        return;
    }
    // SAFETY: the driver took both and reported success, so the name is a C string and `*address` was written.
    let (name, found) = unsafe { (CStr::from_ptr(name), *address) };
    if found.is_null() {
        return seen::missing(name);
    }
    let row = row_of(found as usize, name, flags, &mut again);
    seen::found(name, row);
    if row.is_none() && !is_known_form(found as usize, name, flags, &mut again) {
        order::lose(
            "a form of a function that this version of cushion does not know was looked up",
        );
    }
    if let Some(row) = row.filter(|_| !process::is_disabled()) {
        // SAFETY: the driver has just written there.
        unsafe { *address = HOOKS[row].hand_out() };
    }
}

/// The row of the driver function at `address`, which was the answer for `name` with `flags`.
///
/// The driver's symbol table says it. For an address that is not in that table the driver is asked for the rows of this
/// name, each in the version that brought it: an equal answer is that row's function, any other is one that we do not
/// know, whose arguments may differ.
fn row_of(
    address: usize,
    name: &CStr,
    flags: c_ulonglong,
    mut again: impl FnMut(*const c_char, *mut *mut c_void, c_int, c_ulonglong) -> Status,
) -> Option<usize> {
    let is_own = driver::owns(address);
    let is_asked = |row: usize| {
        names::entry(HOOKS[row].symbol).is_some_and(|entry| entry.answers(name, flags))
    };
    if let Some(row) = driver::row_at(address, is_asked) {
        return Some(row);
    }
    if !is_own {
        return None;
    }
    let row = names::rows_named(name).iter().copied().find(|&row| {
        names::entry(HOOKS[row].symbol)
            .is_some_and(|entry| is_answer(entry, address, name, flags, &mut again))
    })?;
    driver::learn(address, row);
    Some(row)
}

/// Whether the function at `address` is one that these headers have, hooked or not, if any of that name is hooked.
fn is_known_form(
    address: usize,
    name: &CStr,
    flags: c_ulonglong,
    mut again: impl FnMut(*const c_char, *mut *mut c_void, c_int, c_ulonglong) -> Status,
) -> bool {
    names::rows_named(name).is_empty()
        || names::forms(name).any(|entry| is_answer(entry, address, name, flags, &mut again))
}

/// Whether the driver's answer for `name`, in the version that brought `entry`, is the function at `address`.
fn is_answer(
    entry: &Entry,
    address: usize,
    name: &CStr,
    flags: c_ulonglong,
    again: &mut impl FnMut(*const c_char, *mut *mut c_void, c_int, c_ulonglong) -> Status,
) -> bool {
    let mut found = std::ptr::null_mut();
    entry.answers(name, flags)
        && again(name.as_ptr(), &mut found, entry.since, flags) == SUCCESS
        && found as usize == address
}
