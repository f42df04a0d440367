//! The limit of each device, and what the program sees of it.

use super::{contexts, reclaim, settings};
use crate::abi::*;
use crate::driver;
use cushion::pool::Budget;
use cushion::report::Device;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

static DEVICES: Mutex<Vec<Known>> = Mutex::new(Vec::new());

/// A device on which something was allocated.
struct Known {
    ordinal: CUdevice,
    budget: Arc<Budget>,
    facts: Device,
}

/// The budget of a device, made on first use.
pub fn budget(device: CUdevice) -> Arc<Budget> {
    let known = |devices: &[Known]| {
        devices
            .iter()
            .find(|d| d.ordinal == device)
            .map(|d| d.budget.clone())
    };
    if let Some(budget) = known(&lock()) {
        return budget;
    }
    // The driver is asked outside the lock; the first thread to come back is believed.
    let (facts, budget) = ask(device);
    let mut devices = lock();
    known(&devices).unwrap_or_else(|| {
        devices.push(Known {
            ordinal: device,
            budget: budget.clone(),
            facts,
        });
        budget
    })
}

fn lock() -> MutexGuard<'static, Vec<Known>> {
    DEVICES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn ask(device: CUdevice) -> (Device, Arc<Budget>) {
    let mut facts = Device {
        ordinal: device as u32,
        ..Device::default()
    };
    if let Some(driver) = driver::get() {
        let (mut total, mut name, mut uuid) = (0usize, [0u8; 256], [0u8; 16]);
        // SAFETY: the out-parameters are ours and as large as the driver is told.
        unsafe {
            // Without this there would be no limit.
            if driver::insistently(|| (driver.device_total_mem)(&mut total, device)) == SUCCESS {
                facts.total_bytes = total as u64;
                facts.limit_bytes = settings::get()
                    .config
                    .device_limit_bytes(device as u32, total as u64);
            }
            if (driver.device_get_name)(name.as_mut_ptr().cast(), name.len() as i32 - 1, device)
                == SUCCESS
            {
                facts.name = driver::text(&name);
            }
            if driver
                .device_get_uuid
                .is_some_and(|get| get(uuid.as_mut_ptr().cast(), device) == SUCCESS)
            {
                facts.uuid = Some(uuid_text(&uuid));
            }
        }
    }
    let budget = Arc::new(Budget::of_device(facts.limit_bytes, facts.total_bytes));
    (facts, budget)
}

/// As nvidia-smi writes it.
fn uuid_text(bytes: &[u8; 16]) -> String {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!(
        "GPU-{}-{}-{}-{}-{}",
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..]
    )
}

/// Every device on which something was allocated, for the report.
pub fn devices() -> Vec<Device> {
    lock().iter().map(|known| known.facts.clone()).collect()
}

/// What the driver said is free on a device, when it was asked last.
pub fn note_driver_free(device: CUdevice, free_bytes: u64) {
    if let Some(known) = lock().iter_mut().find(|d| d.ordinal == device) {
        known.facts.driver_free_bytes = Some(free_bytes);
    }
}

/// The device's size as the program sees it: min(physical, limit).
pub fn limited(device: CUdevice, total_bytes: u64) -> u64 {
    let limit = settings::get()
        .config
        .device_limit_bytes(device as u32, total_bytes);
    limit.map_or(total_bytes, |limit| limit.min(total_bytes))
}

/// What `cuMemGetInfo` shows on the current context's device, from the driver's own answer.
pub fn seen(free_bytes: u64, total_bytes: u64) -> (u64, u64) {
    let Some(device) = contexts::current_device() else {
        return (free_bytes, total_bytes);
    };
    note_driver_free(device, free_bytes);
    let usage = contexts::usage_of_device(device);
    let unneeded_bytes = usage.unneeded_bytes();
    let free = free_bytes.saturating_add(unneeded_bytes).min(total_bytes);
    // The driver's total of cuMemGetInfo is the physical one; the fraction is of what cuDeviceTotalMem says.
    let budget = budget(device);
    match budget.limit_bytes() {
        Some(limit) if limit < total_bytes => {
            let used = budget.used_bytes().saturating_sub(unneeded_bytes);
            (limit.saturating_sub(used).min(free), limit)
        }
        _ => (free, total_bytes),
    }
}

/// Charges memory that the program takes past the pools. If the limit refuses, the pools give their cache back first.
pub fn charge(device: CUdevice, size_bytes: u64) -> bool {
    let budget = budget(device);
    if budget.charge(size_bytes).is_ok() {
        return true;
    }
    reclaim::trim_all() > 0 && budget.charge(size_bytes).is_ok()
}

/// Takes a charge back.
pub fn uncharge(device: CUdevice, size_bytes: u64) {
    budget(device).uncharge(size_bytes);
}
