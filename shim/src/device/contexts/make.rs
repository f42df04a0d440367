//! A context allocates for the first time: its pool is made.

use super::current::find_pool;
use super::{note_created, note_primary, primary, records, serial_of, Context, REGISTRY};
use crate::abi::*;
use crate::device::backing::DriverBacking;
use crate::device::scrub::Waiting;
use crate::device::{limits, order, settings};
use crate::route::names;
use crate::{driver, emit, process};
use cushion::pool::{Pool, Refusal};
use std::sync::atomic::AtomicI32;
use std::sync::{Arc, Once, PoisonError};

pub(super) fn find_or_make(handle: CUcontext) -> Option<Arc<Context>> {
    if let Some(found) = find_pool(handle) {
        return Some(found);
    }
    let driver = driver::get()?;
    let mut device: CUdevice = 0;
    // SAFETY: the out-parameter is ours; `handle` is current on this thread.
    if unsafe { (driver.ctx_get_device)(&mut device) } != SUCCESS {
        return None;
    }
    note_created(handle, device);
    // A reset primary context lives on under its old handle, and nobody need retain it anew.
    if primary::is_of(handle, device) {
        note_primary(handle, device);
    }
    let mut version = 0;
    // SAFETY: the out-parameter is ours.
    if unsafe { (driver.driver_get_version)(&mut version) } == SUCCESS {
        records::note_driver_version(version);
        if version > names::NEWEST {
            order::lose("the driver is newer than this version of cushion");
        }
    }
    emit::start();
    let budget = limits::budget(device);
    let made = Arc::new(Context {
        serial: serial_of(handle),
        pool: Pool::new(settings::pool(device), budget),
        backing: DriverBacking::new(handle, device),
        waiting: Waiting::default(),
        dead: AtomicI32::new(SUCCESS),
    });
    let mut registry = REGISTRY.write().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = registry
        .pools
        .iter()
        .find(|c| c.backing.context == handle as usize)
    {
        return Some(found.clone());
    }
    registry.pools.push(made.clone());
    drop(registry);
    take_ahead(&made);
    Some(made)
}

/// Takes the memory that the user wants taken before it is needed. A program that would have lived without still does.
fn take_ahead(context: &Context) {
    if let Err(refusal) = context.pool.preallocate(&context.backing) {
        let why = match refusal {
            Refusal::Limit { .. } => "the limit is smaller".to_owned(),
            Refusal::Failed(code) => format!("the driver answers {code}"),
            _ => "the driver has not so much memory".to_owned(),
        };
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            process::say(&format!(
                "CUSHION_PREALLOCATE: not all could be taken: {why}"
            ))
        });
    }
}
