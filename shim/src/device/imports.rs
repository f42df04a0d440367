//! Memory of other processes, opened here by a handle of the shim's own: the block that was exported, not its segment.
//!
//! The driver opened the segment, or the shim mapped what the block lies in ([`Mapped`]).

use crate::abi::*;
use crate::driver;
use cushion::ipc_handle::Shared;
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
    /// The context it was mapped for, if it was.
    pub mapped_for: Option<usize>,
}

/// What the shim mapped for one block.
#[derive(Clone)]
pub struct Mapped {
    /// Which block.
    pub shared: Shared,
    /// The context that was current.
    pub context: usize,
    /// Start of the addresses.
    pub base: CUdeviceptr,
    /// Sizes of the mappings, side by side from there.
    pub pieces: Vec<u64>,
    /// Length of the addresses.
    pub reserved_bytes: u64,
}

/// What closing a mapped block came to.
pub enum Closed {
    /// No such block is open.
    Unknown,
    /// Others have it open still.
    OpenStill,
    /// It is forgotten; what it was is to be unmapped.
    Last(Mapped),
}

struct Imports {
    open: Vec<Imported>,
    next_serial: u64,
    /// With their blocks' addresses.
    mapped: Vec<(u64, Mapped)>,
}

static IMPORTS: Mutex<Imports> = Mutex::new(Imports {
    open: Vec::new(),
    next_serial: 1,
    mapped: Vec::new(),
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
    let segment_bytes = length_of(segment).max(offset_bytes.saturating_add(size_bytes));
    imports.add(Imported {
        base,
        size_bytes,
        serial: 0,
        segment,
        segment_bytes,
        opened_count: 1,
        mapped_for: None,
    });
    base
}

impl Imports {
    fn add(&mut self, block: Imported) {
        let serial = self.next_serial;
        self.next_serial += 1;
        self.open.push(Imported { serial, ..block });
        COUNT.store(self.open.len(), Ordering::Release);
    }
}

/// The address and size of a mapped block that is open already, and now once more.
pub fn opened_again(shared: &Shared) -> Option<(CUdeviceptr, u64)> {
    let mut imports = lock();
    let (base, _) = *imports
        .mapped
        .iter()
        .find(|(_, mapped)| mapped.shared == *shared)?;
    let block = imports.open.iter_mut().find(|block| block.base == base)?;
    block.opened_count += 1;
    Some((base, block.size_bytes))
}

/// A block was mapped here.
pub fn opened_mapped((base, size_bytes): (CUdeviceptr, u64), mapped: Mapped) {
    let mut imports = lock();
    imports.add(Imported {
        base,
        size_bytes,
        serial: 0,
        segment: mapped.base,
        segment_bytes: mapped.reserved_bytes,
        opened_count: 1,
        mapped_for: Some(mapped.context),
    });
    imports.mapped.push((base, mapped));
}

/// Whether the block at `base` was mapped by the shim.
pub fn is_mapped(base: CUdeviceptr) -> bool {
    COUNT.load(Ordering::Acquire) > 0 && lock().mapped.iter().any(|(of, _)| *of == base)
}

/// A mapped block was closed once.
pub fn close_mapped(base: CUdeviceptr) -> Closed {
    let mut imports = lock();
    let Some(at) = imports.mapped.iter().position(|(of, _)| *of == base) else {
        return Closed::Unknown;
    };
    let Some(block) = imports.open.iter().position(|block| block.base == base) else {
        return Closed::Unknown;
    };
    imports.open[block].opened_count -= 1;
    if imports.open[block].opened_count > 0 {
        return Closed::OpenStill;
    }
    imports.open.swap_remove(block);
    COUNT.store(imports.open.len(), Ordering::Release);
    Closed::Last(imports.mapped.swap_remove(at).1)
}

/// Forgets every block that was mapped for a context.
pub fn take_mapped_of(context: usize) -> Vec<Mapped> {
    if COUNT.load(Ordering::Acquire) == 0 {
        return Vec::new();
    }
    let mut imports = lock();
    let all = std::mem::take(&mut imports.mapped);
    let (gone, kept) = all
        .into_iter()
        .partition(|(_, mapped)| mapped.context == context);
    imports.mapped = kept;
    let gone: Vec<(u64, Mapped)> = gone;
    imports
        .open
        .retain(|block| gone.iter().all(|(base, _)| *base != block.base));
    COUNT.store(imports.open.len(), Ordering::Release);
    gone.into_iter().map(|(_, mapped)| mapped).collect()
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
