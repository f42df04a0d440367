//! Every context that existed, as the report tells of them.

use crate::abi::*;
use cushion::report::Context as Record;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, PoisonError};

/// What a context's memory comes in.
const SEGMENTS: &str = "segments";
const MAPPED: &str = "vmm";

/// Memory of this context is mapped where it is needed.
pub fn note_mapped(handle: CUcontext) {
    amend(super::serial_of(handle), |record| {
        record.backing = MAPPED.to_owned()
    });
}

/// From now on all memory comes in segments.
pub fn note_unmapped() {
    let mut records = RECORDS.lock().unwrap_or_else(PoisonError::into_inner);
    for record in records.iter_mut().filter(|r| r.backing == MAPPED) {
        record.backing = format!("{MAPPED}, then {SEGMENTS}");
    }
}

/// So many contexts are kept in the records.
const RECORDS_MAX: usize = 1024;
static RECORDS: Mutex<Vec<Record>> = Mutex::new(Vec::new());
static VERSION: AtomicI32 = AtomicI32::new(0);

/// The driver said its version.
pub(super) fn note_driver_version(version: i32) {
    VERSION.store(version, Ordering::Relaxed);
}

/// The version of CUDA that the driver supports, times 1000, once a context has been seen.
pub fn driver_version() -> Option<i32> {
    match VERSION.load(Ordering::Relaxed) {
        0 => None,
        version => Some(version),
    }
}

/// Every context that existed, for the report.
pub fn records() -> Vec<Record> {
    RECORDS
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone()
}

/// A context exists from now on.
pub(super) fn record(serial: u64, device: CUdevice) {
    let mut records = RECORDS.lock().unwrap_or_else(PoisonError::into_inner);
    if records.len() == RECORDS_MAX {
        // The first that is gone makes room; what it lost stays in the figures under its number.
        let gone = records
            .iter()
            .position(|record| record.destroyed)
            .unwrap_or(0);
        records.remove(gone);
    }
    records.push(Record {
        id: serial,
        device: device as u32,
        label: format!("context {serial} of device {device}"),
        destroyed: false,
        backing: SEGMENTS.to_owned(),
    });
}

/// Changes a context's record, if there is one yet.
pub(super) fn amend(serial: u64, change: impl FnOnce(&mut Record)) {
    let mut records = RECORDS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(record) = records.iter_mut().find(|record| record.id == serial) {
        change(record);
    }
}
