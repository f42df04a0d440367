//! Memory of other processes, opened here by a handle of the shim's own: the block that was exported, not its segment.

use crate::abi::*;
use crate::driver;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// One imported block.
#[derive(Clone, Copy)]
pub struct Imported {
    /// Where the program sees it.
    pub base: u64,
    /// As the exporter requested it.
    pub size_bytes: u64,
    /// Counts imports; never reused.
    pub serial: u64,
    /// Where the driver opened the segment, and how long it is.
    segment: CUdeviceptr,
    segment_bytes: u64,
    opened_count: u64,
}

struct Imports {
    open: Vec<Imported>,
    next_serial: u64,
}

static IMPORTS: Mutex<Imports> = Mutex::new(Imports {
    open: Vec::new(),
    next_serial: 1,
});
static COUNT: AtomicUsize = AtomicUsize::new(0);

fn lock() -> std::sync::MutexGuard<'static, Imports> {
    IMPORTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A block was opened: `segment` is what the driver opened, the block lies `offset_bytes` into it. Returns its address.
pub fn opened(segment: CUdeviceptr, offset_bytes: u64, size_bytes: u64) -> CUdeviceptr {
    let base = segment + offset_bytes;
    let mut imports = lock();
    if let Some(known) = imports
        .open
        .iter_mut()
        .find(|block| block.base == base && block.size_bytes == size_bytes)
    {
        known.opened_count += 1;
        return base;
    }
    let serial = imports.next_serial;
    imports.next_serial += 1;
    imports.open.push(Imported {
        base,
        size_bytes,
        serial,
        segment,
        segment_bytes: length_of(segment).max(offset_bytes.saturating_add(size_bytes)),
        opened_count: 1,
    });
    COUNT.store(imports.open.len(), Ordering::Release);
    base
}

/// Length of what the driver opened; 0 if it does not say.
fn length_of(segment: CUdeviceptr) -> u64 {
    let (mut base, mut size) = (0, 0);
    let ask = driver::get().and_then(|driver| driver.mem_get_address_range);
    // SAFETY: the out-parameters are ours.
    match ask.map(|ask| unsafe { ask(&mut base, &mut size, segment) }) {
        Some(SUCCESS) if base == segment => size as u64,
        _ => 0,
    }
}

/// Whether `size_bytes` from `address` on are the program's to touch, as far as imports go: natively the driver knows
/// where the exporter's allocation ends, here only where its segment does (hazard 25).
#[inline]
pub fn is_inside(address: CUdeviceptr, size_bytes: u64) -> bool {
    COUNT.load(Ordering::Acquire) == 0 || is_inside_each(address, size_bytes)
}

#[cold]
fn is_inside_each(address: CUdeviceptr, size_bytes: u64) -> bool {
    let (mut in_segment, mut in_block) = (false, false);
    for block in &lock().open {
        let within = |base: u64, bytes: u64| address >= base && address - base < bytes;
        in_segment |= within(block.segment, block.segment_bytes);
        in_block |= within(block.base, block.size_bytes)
            && size_bytes <= block.size_bytes - (address - block.base);
    }
    in_block || !in_segment
}

/// The segment to close for the block at `base`, if it was opened by a handle of the shim's own.
pub fn segment_of(base: CUdeviceptr) -> Option<CUdeviceptr> {
    if COUNT.load(Ordering::Acquire) == 0 {
        return None;
    }
    lock()
        .open
        .iter()
        .find(|block| block.base == base)
        .map(|block| block.segment)
}

/// The block at `base` was closed once.
pub fn closed(base: CUdeviceptr) {
    let mut imports = lock();
    if let Some(at) = imports.open.iter().position(|block| block.base == base) {
        imports.open[at].opened_count -= 1;
        if imports.open[at].opened_count == 0 {
            imports.open.swap_remove(at);
        }
    }
    COUNT.store(imports.open.len(), Ordering::Release);
}

/// The imported block that holds `address`.
pub fn find(address: CUdeviceptr) -> Option<Imported> {
    if COUNT.load(Ordering::Acquire) == 0 {
        return None;
    }
    lock()
        .open
        .iter()
        .find(|b| address >= b.base && address - b.base < b.size_bytes)
        .copied()
}
