//! Primary contexts: which they are, and when they end.
//!
//! # Decision: the last release is foreseen
//! The driver counts how often a primary context is retained and ends it with the last release, which can be seen only
//! afterwards: too late for a pool to forget its addresses, which the driver may have given to others by then
//! (FORGET-FIRST). So the shim counts, too. A release that leaves others by that count is just made. Any other may be the
//! last (what was retained before a reset, or unseen, is not in the count): the context is taken out before, and put back
//! if it lives on; who looks for it meanwhile waits. The shim itself retains no context that the program may be about to
//! release, for it would be the last then.

use super::{known, records, Known, REGISTRY};
use crate::abi::*;
use crate::driver::{self, Driver};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// `handle` is the primary context of `device`.
pub fn note_primary(handle: CUcontext, device: CUdevice) {
    expect(device);
    let of_device = |(of, _): &&mut (CUdevice, usize)| *of == device;
    if let Some((_, primary)) = seen().iter_mut().find(of_device) {
        *primary = handle as usize;
    }
    let registry = REGISTRY.read().unwrap_or_else(PoisonError::into_inner);
    for known in registry.known.iter().filter(|k| k.backing.device == device) {
        let primary = known.backing.context == handle as usize;
        if !known.primary.swap(primary, Ordering::Relaxed) && primary {
            records::amend(known.backing.serial, |record| {
                record.label = format!("primary context of device {device}");
            });
        }
    }
}

/// The primary context of a device, if it was ever seen and has not ended.
pub fn primary_of(device: CUdevice) -> Option<CUcontext> {
    let registry = REGISTRY.read().unwrap_or_else(PoisonError::into_inner);
    let primary = |k: &&Arc<Known>| k.backing.device == device && k.primary.load(Ordering::Relaxed);
    registry
        .known
        .iter()
        .find(primary)
        .map(|k| k.backing.context as CUcontext)
}

/// Whether the driver has the primary context of `device` alive.
pub fn primary_is_active(device: CUdevice) -> bool {
    let Some(driver) = driver::get() else {
        return true;
    };
    let (mut flags, mut active) = (0, 1);
    // SAFETY: the out-parameters are ours.
    let code = driver::insistently(|| unsafe {
        (driver.primary_get_state)(device, &mut flags, &mut active)
    });
    code != SUCCESS || active != 0
}

/// The primary context of each device for which one was ever retained; 0 while the first is being made. Its handle stays
/// the same for as long as it lives, and through a reset.
static SEEN: Mutex<Vec<(CUdevice, usize)>> = Mutex::new(Vec::new());

fn seen() -> MutexGuard<'static, Vec<(CUdevice, usize)>> {
    SEEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The program is about to retain the primary context of `device`.
pub fn expect(device: CUdevice) {
    let mut seen = seen();
    if seen.len() < 1024 && seen.iter().all(|(of, _)| *of != device) {
        seen.push((device, 0));
    }
}

/// Whether `handle`, which is current, is the primary context of `device`.
pub(super) fn is_of(handle: CUcontext, device: CUdevice) -> bool {
    let known = seen().iter().find(|(of, _)| *of == device).copied();
    primary_is_active(device)
        && match known {
            Some((_, primary)) => primary == handle as usize,
            // Retained by a way that the shim did not see, if at all.
            None => driver::get().is_some_and(|driver| handle_of(driver, device) == handle),
        }
}

/// The primary context of a device, asked of the driver.
fn handle_of(driver: &Driver, device: CUdevice) -> CUcontext {
    let mut primary: CUcontext = std::ptr::null_mut();
    // SAFETY: the out-parameter is ours; what is retained is released at once.
    unsafe {
        if (driver.primary_retain)(&mut primary, device) == SUCCESS {
            (driver.primary_release)(device);
        }
    }
    primary
}

/// The program retained the primary context `handle` once more.
pub fn note_retained(handle: CUcontext) {
    if let Some(known) = known(handle) {
        known.retained.fetch_add(1, Ordering::AcqRel);
    }
}

/// The program gives up one use of the primary context `handle`; whether others are left.
pub fn released(handle: CUcontext) -> bool {
    let left = |known: Arc<Known>| {
        known
            .retained
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |uses| {
                (uses > 1).then(|| uses - 1)
            })
            .is_ok()
    };
    known(handle).is_some_and(left)
}

/// The driver's number for the context that has `handle` now: another thread may have retained it anew since it ended.
/// `None` if the driver does not say.
pub fn life_of(handle: CUcontext) -> Option<u64> {
    let ask = driver::get()?.ctx_get_id?;
    let mut id = 0;
    // SAFETY: a primary context's handle stays one; the out-parameter is ours.
    (unsafe { ask(handle, &mut id) } == SUCCESS).then_some(id)
}
