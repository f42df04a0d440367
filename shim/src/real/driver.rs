//! The drivers that the program has loaded: objects whose DT_SONAME is `libcuda.so.1`, whatever their file is called.
//!
//! A driver is adopted when it is first met: its hooked functions are noted in the table, and it is kept loaded, since
//! the program holds our functions where it would have held the driver's. The first one is also made to name ours
//! ([`patch`]).

use super::object::Object;
use super::{loaded, patch, slots, unseen};
use crate::process;
use crate::table::HOOKS;
use std::ffi::{c_void, CStr};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// What makes an object a driver.
const SONAME: &CStr = c"libcuda.so.1";

/// One driver, never unloaded.
#[derive(Debug)]
pub struct Driver {
    low: usize,
    high: usize,
    /// Address and row of each hooked function, by address.
    rows: Vec<(usize, usize)>,
}

const DRIVERS_MAX: usize = 8;
static DRIVERS: [AtomicPtr<Driver>; DRIVERS_MAX] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; DRIVERS_MAX];
/// Addresses that cuGetProcAddress answered and no symbol table names, and their rows plus one.
static LEARNED: [(AtomicUsize, AtomicUsize); 512] =
    [const { (AtomicUsize::new(0), AtomicUsize::new(0)) }; 512];

/// Whether `address` is in a driver. Adopts the driver if it is met for the first time.
pub fn owns(address: usize) -> bool {
    if known().any(|driver| driver.holds(address)) {
        return true;
    }
    let mut object = None;
    loaded::visit(|candidate| {
        if candidate.holds(address) {
            if candidate.soname() == SONAME {
                object = Some(*candidate);
            }
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    });
    object.is_some_and(|object| adopt(&object))
}

/// Looks through the loaded objects for drivers that were not met yet.
pub fn discover() {
    let mut objects = [None; DRIVERS_MAX];
    let mut count = 0;
    loaded::visit(|object| {
        if count < DRIVERS_MAX && object.soname() == SONAME {
            objects[count] = Some(*object);
            count += 1;
        }
        ControlFlow::Continue(())
    });
    for object in objects.iter().flatten() {
        if !known().any(|driver| driver.holds(object.dynamic)) {
            adopt(object);
        }
    }
}

/// Whether a driver was met.
#[inline]
pub fn is_met() -> bool {
    !DRIVERS[0].load(Ordering::Acquire).is_null()
}

/// Whether a driver is loaded.
pub fn is_loaded() -> bool {
    discover();
    known().next().is_some()
}

/// A function of the driver that the shim itself calls, hooked or not; null if no driver is loaded or it has none.
pub fn symbol(name: &CStr) -> *mut c_void {
    let mut found = 0;
    loaded::visit(|object| {
        if object.soname() == SONAME {
            found = own(object, name).unwrap_or(0);
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    });
    found as *mut c_void
}

/// The row whose driver function is at `address`. Where the driver serves several rows with one function, the first
/// that is `preferred`.
pub fn row_at(address: usize, preferred: impl Fn(usize) -> bool) -> Option<usize> {
    let listed = |driver: &Driver| {
        let from = driver.rows.partition_point(|&(known, _)| known < address);
        let here = driver.rows[from..]
            .iter()
            .take_while(|&&(known, _)| known == address)
            .map(|&(_, row)| row);
        here.clone()
            .find(|&row| preferred(row))
            .or_else(|| here.clone().next())
    };
    known().find_map(listed).or_else(|| {
        LEARNED
            .iter()
            .map(|(known, row)| (known.load(Ordering::Acquire), row))
            .take_while(|&(known, _)| known != 0)
            .find(|&(known, _)| known == address)
            .and_then(|(_, row)| row.load(Ordering::Acquire).checked_sub(1))
    })
}

/// Remembers that `address` is the driver function of `row`.
pub fn learn(address: usize, row: usize) {
    for (known, slot) in &LEARNED {
        match known.compare_exchange(0, address, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return slot.store(row + 1, Ordering::Release),
            Err(taken) if taken == address => return,
            Err(_) => {}
        }
    }
}

/// Whether code at `address` is among those that must see the driver as it is: the driver itself (WSL's has a second
/// one inside), UCX's memory hooks, CUPTI.
pub fn is_let_alone(address: usize) -> bool {
    if known().any(|driver| driver.holds(address)) {
        return true;
    }
    let mut alone = false;
    loaded::visit(|object| {
        if object.holds(address) {
            alone = sees_the_driver(object);
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    });
    alone
}

/// Whether it is one of the objects that must see the driver as it is.
pub fn sees_the_driver(object: &Object) -> bool {
    let soname = object.soname().to_bytes();
    [&b"libcuda.so"[..], b"libucm", b"libcupti.so"]
        .iter()
        .any(|&start| soname.starts_with(start))
}

/// The driver's own function of that name, whatever its table says by now.
fn own(object: &Object, name: &CStr) -> Option<usize> {
    let address = object.defines(name)?;
    Some(patch::behind(address).unwrap_or(address))
}

fn known() -> impl Iterator<Item = &'static Driver> {
    DRIVERS.iter().filter_map(|slot| {
        // SAFETY: a slot holds null or a leaked `Driver`.
        unsafe { slot.load(Ordering::Acquire).as_ref() }
    })
}

fn adopt(object: &Object) -> bool {
    // SAFETY: the path belongs to an object that was just found loaded; were it unloaded meanwhile, this finds nothing.
    let handle = unsafe { libc::dlopen(object.path, libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if handle.is_null() {
        return false;
    }
    let mut rows = Vec::with_capacity(HOOKS.len());
    for (row, hook) in HOOKS.iter().enumerate() {
        // The object stays loaded by `handle`, so its symbols can be read now.
        if let Some(address) = own(object, hook.symbol) {
            hook.set_real(address as *mut c_void);
            rows.push((address, row));
        }
    }
    rows.sort_unstable();
    let driver = Box::into_raw(Box::new(Driver {
        low: object.low,
        high: object.high,
        rows,
    }));
    let vacant = |slot: &AtomicPtr<Driver>| {
        slot.compare_exchange(
            std::ptr::null_mut(),
            driver,
            Ordering::AcqRel,
            Ordering::Acquire,
        )
        .is_ok()
    };
    // With every slot taken the allocation is leaked once per look-up, in a process with nine drivers.
    let slot = DRIVERS.iter().position(vacant);
    if slot == Some(0) && !process::is_disabled() && !patch::is_before_us(object) {
        take_over(object);
    }
    slot.is_some()
}

/// Catches those that look for the driver past us.
fn take_over(driver: &Object) {
    let is_patched = patch::install(driver);
    let mut files = Vec::new();
    slots::redirect(driver, |path| files.push(unseen::file_name(path)));
    unseen::remember(is_patched, &files);
}

impl Driver {
    fn holds(&self, address: usize) -> bool {
        (self.low..self.high).contains(&address)
    }
}
