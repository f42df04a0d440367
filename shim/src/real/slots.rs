//! Objects that were bound past us before the driver was met: loaded with RTLD_DEEPBIND, and linked with the driver or
//! with the C library's `dlsym`. Their slots that hold a function of the driver are given ours.

use super::linker::{self, Libc};
use super::object::Object;
use super::{driver, kept, loaded};
use crate::table::{self, HOOKS};
use std::ffi::CStr;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};

/// `Elf64_Rela`.
#[repr(C)]
struct Relocation {
    place: usize,
    info: u64,
    addend: i64,
}

const R_X86_64_64: u32 = 1;
const R_X86_64_GLOB_DAT: u32 = 6;
const R_X86_64_JUMP_SLOT: u32 = 7;

/// Objects that are looked for. More of them at one time is no program that is known.
const OBJECTS_MAX: usize = 32;

/// Gives ours to every slot and variable of theirs that holds a function of `driver`. Calls `see` with the path of each
/// that had looked functions up before.
pub fn redirect(driver: &Object, mut see: impl FnMut(&CStr)) {
    let mut objects = [None; OBJECTS_MAX];
    let mut count = 0;
    loaded::visit(|object| {
        if count < OBJECTS_MAX && is_past_us(object, driver) {
            objects[count] = Some(*object);
            count += 1;
        }
        ControlFlow::Continue(())
    });
    for object in objects.iter().flatten() {
        // Held, it is not unloaded; and if another thread is loading it, this waits until its slots are final.
        // SAFETY: the path belongs to an object that was just found loaded; nothing is loaded by this.
        let handle = unsafe { libc::dlopen(object.path, libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if handle.is_null() {
            continue;
        }
        each_slot(object, driver, |slot, row| {
            let place = std::ptr::from_ref(slot) as usize;
            // 0: only where there is no code at all.
            object.while_writable(place..place + size_of::<usize>(), 0, || {
                slot.store(HOOKS[row].ours as usize, Ordering::Release);
            });
        });
        if kept::redirect(object, driver) {
            // SAFETY: the path of an object that is held.
            see(unsafe { CStr::from_ptr(object.path) });
        }
        // SAFETY: gives back the reference taken above.
        unsafe { libc::dlclose(handle) };
    }
}

/// Whether it is bound to a function of the driver, or to the C library's `dlsym`: nobody is who finds ours first.
fn is_past_us(object: &Object, driver: &Object) -> bool {
    if object.is_ours() || driver::sees_the_driver(object) || linker::is_libc(object) {
        return false;
    }
    let look_ups = [linker::own(Libc::Dlsym), linker::own(Libc::Dlvsym)];
    let mut is_found = false;
    each_bound(object, |slot, name| {
        let address = slot.load(Ordering::Acquire);
        is_found |= address != 0 && look_ups.contains(&address)
            || driver.holds(address) && row_of(address, name).is_some();
    });
    is_found
}

/// Calls `found` with each slot that holds the driver's function of a row, and the row.
fn each_slot(object: &Object, driver: &Object, mut found: impl FnMut(&AtomicUsize, usize)) {
    each_bound(object, |slot, name| {
        let address = slot.load(Ordering::Acquire);
        if driver.holds(address) {
            if let Some(row) = row_of(address, name) {
                found(slot, row);
            }
        }
    });
}

/// The row whose driver function of that name is at `address`.
fn row_of<'a>(address: usize, name: &dyn Fn() -> Option<&'a CStr>) -> Option<usize> {
    let row = table::row_of(name()?)?;
    (HOOKS[row].real() as usize == address).then_some(row)
}

/// Calls `see` with each slot of the object that the linker fills with the address of a symbol, and a way to the
/// symbol's name.
fn each_bound<'a>(
    object: &'a Object,
    mut see: impl FnMut(&AtomicUsize, &dyn Fn() -> Option<&'a CStr>),
) {
    let tables = object.tables();
    for (start, bytes) in [tables.relocations, tables.plt_relocations] {
        if start == 0 || tables.symbols == 0 || tables.strings == 0 {
            continue;
        }
        let count = bytes / size_of::<Relocation>();
        // SAFETY: a relocation table of a loaded object, as its dynamic section gives it.
        let list = unsafe { std::slice::from_raw_parts(start as *const Relocation, count) };
        for relocation in list {
            let is_address = matches!(
                relocation.info as u32,
                R_X86_64_64 | R_X86_64_GLOB_DAT | R_X86_64_JUMP_SLOT
            );
            let place = object.base.wrapping_add(relocation.place);
            if is_address && place % size_of::<usize>() == 0 && object.holds(place) {
                // SAFETY: an aligned word of the object, which the linker wrote to, and which others only read or write
                // as a whole.
                let slot = unsafe { AtomicUsize::from_ptr(place as *mut usize) };
                see(slot, &|| object.name_of((relocation.info >> 32) as usize));
            }
        }
    }
}
