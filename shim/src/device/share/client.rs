//! The importer's side: asks the exporter, and maps what it gets.

use super::server::own_token;
use super::wire::{limit, receive, send};
use super::{name, Head, HEAD_BYTES, REQUEST_BYTES};
use crate::abi::*;
use crate::device::imports::{self, Closed, Mapped};
use crate::device::{capture, contexts, order};
use crate::driver::{self, Mapping, Sharing};
use cushion::ctl::{own_uid, peer};
use cushion::ipc_handle::Shared;
use cushion::pool::{Backing, BackingError};
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::sync::{Mutex, PoisonError};

/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`, without which the driver opens nothing.
const LAZY: u32 = 1;
/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
const DESCRIPTOR: i32 = 1;

/// So often a wait is tried that cannot be made while a context is leaving.
const ATTEMPTS: u32 = 10_000;

/// One open at a time, so that a block that is opened twice is mapped once.
static TURN: Mutex<()> = Mutex::new(());

/// Opens a block of another process. Its address here, and its size.
///
/// # Errors
/// The code that the driver would have: no context, flags that it does not know, a handle of this very process, a handle that opens
/// nothing.
pub fn open(shared: &Shared, flags: u32) -> Result<(CUdeviceptr, u64), Status> {
    if flags != LAZY {
        return Err(INVALID_VALUE);
    }
    let context = contexts::current_handle();
    let device = contexts::current_device().ok_or(INVALID_CONTEXT)?;
    if context.is_null() || own_token() == Some(shared.exporter) {
        return Err(INVALID_CONTEXT);
    }
    let calls = driver::get()
        .and_then(|driver| driver.mapping().zip(driver.sharing()))
        .ok_or(INVALID_VALUE)?;
    // What mapping does to a capture was not measured.
    if capture::active() {
        return Err(CAPTURE_UNSUPPORTED);
    }
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = imports::opened_again(shared) {
        return Ok(known);
    }
    let (head, window) = ask(shared, &calls, device).map_err(|_| INVALID_VALUE)?;
    let base = window.base + head.offset_bytes;
    imports::opened_mapped(
        (base, head.size_bytes),
        Mapped {
            shared: *shared,
            context: context as usize,
            base: window.base,
            pieces: window.pieces.clone(),
            reserved_bytes: window.reserved_bytes,
        },
    );
    std::mem::forget(window);
    Ok((base, head.size_bytes))
}

/// Addresses with what is mapped there so far; undone when dropped.
struct Window<'a> {
    calls: &'a Mapping,
    base: CUdeviceptr,
    reserved_bytes: u64,
    /// Sizes, side by side.
    pieces: Vec<u64>,
}

impl Drop for Window<'_> {
    fn drop(&mut self) {
        take_away(self.calls, self.base, self.reserved_bytes, &self.pieces);
    }
}

/// No work can touch it: nobody was given an address, or the wait for all work succeeded, or its context has ended.
fn take_away(calls: &Mapping, base: CUdeviceptr, reserved_bytes: u64, pieces: &[u64]) {
    let mut at = base;
    for &size_bytes in pieces {
        // SAFETY: one whole mapping of ours.
        driver::insistently(|| unsafe { (calls.unmap)(at, size_bytes as usize) });
        at += size_bytes;
    }
    // SAFETY: reserved by us, with nothing mapped there.
    driver::insistently(|| unsafe { (calls.address_free)(base, reserved_bytes as usize) });
}

fn ask<'a>(
    shared: &Shared,
    (calls, sharing): &'a (Mapping, Sharing),
    device: CUdevice,
) -> io::Result<(Head, Window<'a>)> {
    let unsound = || io::Error::from(ErrorKind::InvalidData);
    let address = SocketAddr::from_abstract_name(name(&shared.exporter))?;
    let stream = UnixStream::connect_addr(&address)?;
    limit(&stream)?;
    if peer(&stream)?.uid != own_uid() {
        return Err(ErrorKind::PermissionDenied.into());
    }
    let mut request = [0u8; REQUEST_BYTES];
    request[..16].copy_from_slice(&shared.exporter);
    request[16..24].copy_from_slice(&shared.base.to_le_bytes());
    request[24..].copy_from_slice(&shared.sequence.to_le_bytes());
    send(&stream, &request, None)?;
    let mut bytes = [0u8; HEAD_BYTES];
    receive(&stream, &mut bytes)?;
    let head = Head::decode(&bytes).ok_or_else(unsound)?;
    let mut base: CUdeviceptr = 0;
    // SAFETY: the out-parameter is ours.
    let code =
        unsafe { (calls.address_reserve)(&mut base, head.mapped_bytes as usize, 2 << 20, 0, 0) };
    answer(code)?;
    let mut window = Window {
        calls,
        base,
        reserved_bytes: head.mapped_bytes,
        pieces: Vec::new(),
    };
    let mut at = base;
    for _ in 0..head.piece_count {
        let mut size = [0u8; 8];
        let descriptor = receive(&stream, &mut size)?.ok_or_else(unsound)?;
        let size_bytes = u64::from_le_bytes(size);
        let end = at.checked_add(size_bytes).ok_or_else(unsound)?;
        if size_bytes == 0 || end > base + head.mapped_bytes {
            return Err(unsound());
        }
        map(calls, sharing, &descriptor, (at, size_bytes), device)?;
        window.pieces.push(size_bytes);
        at = end;
    }
    let mut word = [0u8; 8];
    receive(&stream, &mut word)?;
    if at != base + head.mapped_bytes || u64::from_le_bytes(word) != shared.sequence {
        return Err(unsound());
    }
    Ok((head, window))
}

fn answer(code: Status) -> io::Result<()> {
    match code {
        SUCCESS => Ok(()),
        code => Err(io::Error::other(format!("the driver answers {code}"))),
    }
}

/// Maps what a descriptor is of.
fn map(
    calls: &Mapping,
    sharing: &Sharing,
    descriptor: &OwnedFd,
    (address, size_bytes): (CUdeviceptr, u64),
    device: CUdevice,
) -> io::Result<()> {
    let size = size_bytes as usize;
    let mut handle = 0;
    // SAFETY: the out-parameter is ours; the descriptor, which the driver takes as a pointer's worth, lives through the call.
    let code = unsafe {
        (sharing.import)(
            &mut handle,
            descriptor.as_raw_fd() as usize as *mut std::ffi::c_void,
            DESCRIPTOR,
        )
    };
    answer(code)?;
    let access = AccessDescription::full(device);
    // SAFETY: the range is reserved and empty; the handle was imported just now, and is given up in any case: what is mapped
    // stays. A mapping without access is taken away again.
    unsafe {
        let mut code = (calls.map)(address, size, 0, handle, 0);
        if code == SUCCESS {
            code = (calls.set_access)(address, size, &access, 1);
            if code != SUCCESS {
                driver::insistently(|| (calls.unmap)(address, size));
            }
        }
        driver::insistently(|| (calls.release)(handle));
        answer(code)
    }
}

/// Closes what [`open`] opened at `base`. `None`: nothing was.
pub fn close(base: CUdeviceptr) -> Option<Status> {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mapped = match imports::close_mapped(base) {
        Closed::Unknown => return None,
        Closed::OpenStill => return Some(SUCCESS),
        Closed::Last(mapped) => mapped,
    };
    // Unmapping does not wait, so what cannot be waited for stays mapped, for nobody.
    if has_rested(mapped.context as CUcontext) {
        give_up(&mapped);
    }
    Some(SUCCESS)
}

/// Waits until all work has ended that can reach memory of this context; whether it has.
fn has_rested(context: CUcontext) -> bool {
    for _ in 0..ATTEMPTS {
        if order::unfenceable() || capture::active() {
            return false;
        }
        // Not kept from ending between two attempts: another thread may be about to end it.
        let Some(reach) = contexts::reach_of(context) else {
            return false;
        };
        match reach.backing().synchronize_now() {
            Ok(()) => return true,
            Err(BackingError::Unavailable) => {}
            Err(_) => return false,
        }
        drop(reach);
        std::thread::yield_now();
    }
    false
}

/// The context in which they were opened has ended, and with it all work.
pub fn close_all_of(context: CUcontext) {
    for mapped in imports::take_mapped_of(context as usize) {
        give_up(&mapped);
    }
}

fn give_up(mapped: &Mapped) {
    if let Some(calls) = driver::get().and_then(|driver| driver.mapping()) {
        take_away(&calls, mapped.base, mapped.reserved_bytes, &mapped.pieces);
    }
}
