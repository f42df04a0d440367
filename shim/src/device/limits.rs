//! The limit of each device, and what the program sees of it.

use super::{contexts, reclaim, settings};
use crate::abi::*;
use crate::driver;
use cushion::pool::Budget;
use std::sync::{Arc, Mutex, PoisonError};

static BUDGETS: Mutex<Vec<(CUdevice, Arc<Budget>)>> = Mutex::new(Vec::new());

/// The budget of a device, made on first use.
pub fn budget(device: CUdevice) -> Arc<Budget> {
    let mut budgets = BUDGETS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, budget)) = budgets.iter().find(|(known, _)| *known == device) {
        return budget.clone();
    }
    let made = Arc::new(Budget::new(limit_bytes(device)));
    budgets.push((device, made.clone()));
    made
}

fn limit_bytes(device: CUdevice) -> Option<u64> {
    let driver = driver::get()?;
    let mut total = 0usize;
    // SAFETY: the out-parameter is ours.
    if unsafe { (driver.device_total_mem)(&mut total, device) } != SUCCESS {
        return None;
    }
    settings::get()
        .config
        .device_limit_bytes(device as u32, total as u64)
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
    let usage = contexts::usage_of_device(device);
    let cached_bytes = usage.reserved_bytes.saturating_sub(usage.allocated_bytes);
    let free = free_bytes.saturating_add(cached_bytes).min(total_bytes);
    // The driver's total of cuMemGetInfo is the physical one; the fraction is of what cuDeviceTotalMem says.
    let budget = budget(device);
    match budget.limit_bytes() {
        Some(limit) if limit < total_bytes => {
            let used = budget.used_bytes().saturating_sub(cached_bytes);
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
