//! The driver's virtual memory functions as [`Pages`]: memory that the pool maps where it is needed (`CUSHION_BACKING=vmm`).
//!
//! # Decision: when memory is mapped
//! Only if asked for, and if a first try on the device works; else one warning says why not, and segments serve. No such call is
//! made while a stream captures, since what it would do to the capture was not measured: the pool takes a segment then.
//! Where physical memory cannot be exported, the first block that the program shares with another process ends it for memory
//! yet to be taken; that export is refused, and so are those of blocks that are mapped already.
//!
//! # Decision: what outlives a context
//! Handles and addresses belong to the process. They are given back after the driver has ended the context, and with it all work.

pub mod peers;
mod probe;

use super::backing::check;
use super::fences::Fences;
use super::{capture, contexts, order};
use crate::abi::*;
use crate::driver::{self, Current, Mapping, Sharing};
use crate::process;
use cushion::pool::{BackingError, Fence, Pages, Quiet, Range};
use std::collections::BTreeMap;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

/// The driver maps in units of this (measured: granularity, minimum and recommended).
const PAGE_BYTES: usize = 2 << 20;
/// `CU_CTX_SYNC_MEMOPS`.
const CTX_SYNC_MEMOPS: u32 = 0x80;

/// New memory is to be mapped. Ends once, for the process.
static WANTED: AtomicBool = AtomicBool::new(true);

/// No memory is mapped from now on; `why` in a warning, if any was mapped before.
pub fn end(why: &str) {
    static SAID: Once = Once::new();
    if WANTED.swap(false, Ordering::AcqRel)
        && contexts::all().iter().any(|c| c.backing.is_mapping())
    {
        contexts::note_unmapped();
        SAID.call_once(|| {
            process::say(&format!(
                "CUSHION_BACKING=vmm: {why}; new memory comes in segments"
            ))
        });
    }
}

#[derive(Default)]
struct Held {
    /// Reserved addresses.
    ranges: Vec<Range>,
    /// Sizes by name.
    handles: BTreeMap<u64, u64>,
    /// Sizes and handles by address.
    mapped: BTreeMap<u64, (u64, u64)>,
    /// The context has ended.
    ended: bool,
}

/// A mapping, as it is shared with other processes.
#[derive(Debug, Clone, Copy)]
pub struct Piece {
    /// Where it is mapped.
    pub address: CUdeviceptr,
    /// Its length.
    pub size_bytes: u64,
    handle: u64,
}

/// Mapped memory of one context.
pub struct DriverPages {
    device: CUdevice,
    context: usize,
    calls: Mapping,
    sharing: Option<Sharing>,
    properties: FullProperties,
    held: Mutex<Held>,
    fences: Fences,
}

impl DriverPages {
    /// Whether `address` lies in addresses of this context's.
    pub fn holds(&self, address: CUdeviceptr) -> bool {
        let within =
            |range: &Range| address >= range.address && address - range.address < range.size_bytes;
        self.lock().ranges.iter().any(within)
    }

    /// Whether other processes can have its memory.
    pub fn can_export(&self) -> bool {
        self.sharing.is_some()
    }

    /// The mappings that hold `size_bytes` from `address` on.
    pub fn pieces(&self, address: CUdeviceptr, size_bytes: u64) -> Vec<Piece> {
        let held = self.lock();
        let first = held.mapped.range(..=address).next_back();
        let Some((&first, _)) = first else {
            return Vec::new();
        };
        let pieces = held.mapped.range(first..address + size_bytes);
        pieces
            .map(|(&address, &(size_bytes, handle))| Piece {
                address,
                size_bytes,
                handle,
            })
            .collect()
    }

    /// A descriptor for another process, if the piece is still what it was.
    pub fn export(&self, piece: &Piece) -> Option<OwnedFd> {
        const DESCRIPTOR: i32 = 1;
        let sharing = self.sharing.as_ref()?;
        let held = self.lock();
        if held.ended || held.mapped.get(&piece.address) != Some(&(piece.size_bytes, piece.handle))
        {
            return None;
        }
        let mut descriptor: i32 = -1;
        // SAFETY: the handle is ours and alive; the out-parameter is as wide as a descriptor.
        let code =
            unsafe { (sharing.export)((&raw mut descriptor).cast(), piece.handle, DESCRIPTOR, 0) };
        // SAFETY: the driver made it for this call.
        (code == SUCCESS && descriptor >= 0).then(|| unsafe { OwnedFd::from_raw_fd(descriptor) })
    }

    /// Barriers of this context that can be asked whether they have passed.
    pub fn fences(&self) -> &Fences {
        &self.fences
    }

    /// Makes every synchronous copy and memset of the context wait for its end, as SYNC_MEMOPS does for one allocation: the
    /// driver has that attribute for no mapped memory (measured: NOT_SUPPORTED, CUDA 13.0). It stays on, being only stricter.
    pub fn synchronize_memops(&self, on: bool) -> Status {
        if !on {
            return SUCCESS;
        }
        let driver = driver::get();
        let calls = driver.and_then(|d| Some((d, d.ctx_get_flags?, d.ctx_set_flags?)));
        let Some((driver, get, set)) = calls else {
            return NOT_SUPPORTED;
        };
        let mut flags = 0;
        let code = match Current::enter(driver, self.context as CUcontext) {
            Err(code) => code,
            // SAFETY: the out-parameter is ours; the context is current.
            Ok(_current) => match unsafe { get(&mut flags) } {
                // SAFETY: the context is current.
                SUCCESS => unsafe { set(flags | CTX_SYNC_MEMOPS) },
                code => code,
            },
        };
        match code {
            // Natively the attribute can be set all the same.
            code if contexts::is_sticky(code) => SUCCESS,
            code => code,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the devices reach what is mapped in `range`.
    fn give_access(&self, range: Range, devices: &[CUdevice]) -> Result<(), BackingError> {
        let access: Vec<AccessDescription> = devices
            .iter()
            .map(|&device| AccessDescription::full(device))
            .collect();
        // SAFETY: the range is mapped, and the array is as long as the driver is told.
        mapping(unsafe {
            (self.calls.set_access)(
                range.address,
                range.size_bytes as usize,
                access.as_ptr(),
                access.len(),
            )
        })
    }

    /// Another device can reach all of it from now on.
    fn show_to(&self, device: CUdevice) {
        let held = self.lock();
        for (&address, &(size_bytes, _)) in &held.mapped {
            // The driver has allowed the peer access, so it allows this; if not, the peer's work says so.
            let _ = self.give_access(
                Range {
                    address,
                    size_bytes,
                },
                &[device],
            );
        }
    }

    /// Gives everything back. The context has ended, or never used it.
    pub fn release_all(&self) {
        let mut held = self.lock();
        held.ended = true;
        for (address, (size_bytes, _)) in std::mem::take(&mut held.mapped) {
            // SAFETY: mapped by us, and no work of the ended context can touch it.
            driver::insistently(|| unsafe { (self.calls.unmap)(address, size_bytes as usize) });
        }
        for (handle, _) in std::mem::take(&mut held.handles) {
            // SAFETY: created by us and mapped nowhere.
            driver::insistently(|| unsafe { (self.calls.release)(handle) });
        }
        for range in std::mem::take(&mut held.ranges) {
            // SAFETY: reserved by us, with nothing mapped there.
            driver::insistently(|| unsafe {
                (self.calls.address_free)(range.address, range.size_bytes as usize)
            });
        }
    }
}

/// A code of a mapping function as the pool takes it. Natively the program's allocation makes no such call, so that only what
/// any call would answer is for the program; with all else the pool takes another way.
fn mapping(code: Status) -> Result<(), BackingError> {
    match check(code) {
        Err(BackingError::Failed(code)) if !contexts::is_sticky(code) => {
            Err(BackingError::Unavailable)
        }
        outcome => outcome,
    }
}

/// Makes a call, unless a stream captures or the context has ended.
fn outside_captures<T>(call: impl FnOnce() -> Result<T, BackingError>) -> Result<T, BackingError> {
    capture::context_wide(call).unwrap_or(Err(BackingError::Unavailable))
}

impl Pages for DriverPages {
    fn wanted(&self) -> bool {
        WANTED.load(Ordering::Acquire) && !capture::active()
    }

    fn reserve_range(&self, size_bytes: u64) -> Result<u64, BackingError> {
        let mut held = self.lock();
        if held.ended {
            return Err(BackingError::Unavailable);
        }
        let mut address: CUdeviceptr = 0;
        outside_captures(|| {
            // SAFETY: the out-parameter is ours.
            mapping(unsafe {
                (self.calls.address_reserve)(&mut address, size_bytes as usize, PAGE_BYTES, 0, 0)
            })
        })?;
        contexts::note_segment(address, size_bytes);
        held.ranges.push(Range {
            address,
            size_bytes,
        });
        Ok(address)
    }

    fn room_bytes(&self) -> Option<u64> {
        let (mut room, mut total) = (0, 0);
        // SAFETY: the out-parameters are ours. The call is allowed while a stream captures.
        let code = unsafe { (self.calls.get_info)(&mut room, &mut total) };
        (code == SUCCESS).then_some(room as u64)
    }

    fn create(&self, size_bytes: u64) -> Result<u64, BackingError> {
        let mut handle = 0;
        outside_captures(|| {
            // SAFETY: the out-parameter is ours; the properties live through the call.
            mapping(unsafe {
                (self.calls.create)(&mut handle, size_bytes as usize, &self.properties, 0)
            })
        })?;
        let mut held = self.lock();
        if held.ended {
            // SAFETY: created just now; nobody knows of it.
            driver::insistently(|| unsafe { (self.calls.release)(handle) });
            return Err(BackingError::Unavailable);
        }
        held.handles.insert(handle, size_bytes);
        Ok(handle)
    }

    fn map(&self, handle: u64, range: Range) -> Result<(), BackingError> {
        let Range {
            address,
            size_bytes,
        } = range;
        let mut held = self.lock();
        if held.ended {
            return Err(BackingError::Unavailable);
        }
        let devices = peers::who_reach(self.context, self.device);
        let mut is_stuck = false;
        let outcome = outside_captures(|| {
            // SAFETY: the handle is ours, whole and mapped nowhere; the range is reserved, and the pool has a hole there.
            mapping(unsafe { (self.calls.map)(address, size_bytes as usize, 0, handle, 0) })?;
            self.give_access(range, &devices).inspect_err(|_| {
                // SAFETY: mapped just now; nobody knows of it.
                let undone = driver::insistently(|| unsafe {
                    (self.calls.unmap)(address, size_bytes as usize)
                });
                is_stuck = undone != SUCCESS;
            })
        });
        // What cannot be taken away again goes with the context; until then nothing else is mapped there.
        if outcome.is_ok() || is_stuck {
            held.mapped.insert(address, (size_bytes, handle));
        }
        outcome
    }

    fn unmap(&self, what: &Quiet) -> Result<(), BackingError> {
        let range = what.range();
        let mut held = self.lock();
        if held.ended || order::unfenceable() {
            return Err(BackingError::Unavailable);
        }
        outside_captures(|| {
            // SAFETY: one whole mapping, which the pool has taken out of its tables, and no work can touch it (SETTLED; work
            // that no wait of the pool covers was looked for above).
            mapping(unsafe { (self.calls.unmap)(range.address, range.size_bytes as usize) })
        })?;
        held.mapped.remove(&range.address);
        Ok(())
    }

    fn destroy(&self, handle: u64) {
        // Unknown: it went with the context.
        if self.lock().handles.remove(&handle).is_some() {
            // SAFETY: created by us, mapped nowhere, and forgotten.
            driver::insistently(|| unsafe { (self.calls.release)(handle) });
        }
    }

    fn has_passed(&self, fence: Fence) -> bool {
        driver::get().is_some_and(|driver| self.fences.has_passed(driver, fence))
    }

    /// Not known to be: the driver documents nothing, so new memory is cleaned like used one.
    fn fresh_is_zero(&self) -> bool {
        false
    }
}
