//! The exporter's side: a thread that listens, and gives descriptors of exported blocks to processes of the same user.

use super::wire::{limit, receive, send};
use super::{name, Head, REQUEST_BYTES};
use crate::abi::*;
use crate::device::{contexts, idle};
use crate::driver::{self, Current, Shield};
use crate::process::{
    self,
    descriptor::{identity, Descriptor},
};
use cushion::ctl::{out_of_the_way, own_uid, peer};
use cushion::ipc_handle::Shared;
use cushion::pool::Found;
use once_cell::sync::OnceCell;
use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::{Mutex, PoisonError};

/// This process's name among exporters. `None`: it cannot listen.
static TOKEN: OnceCell<Option<[u8; 16]>> = OnceCell::new();
/// Blocks that were exported: base and sequence number.
static EXPORTED: Mutex<BTreeSet<(u64, u64)>> = Mutex::new(BTreeSet::new());
/// So many are remembered before those that were freed are forgotten.
const REMEMBERED: usize = 1 << 12;
static DESCRIPTOR: Descriptor = Descriptor::none();
/// So often, in milliseconds, the thread looks whether the program took the descriptor away.
const LOOK_MS: i32 = 1000;

/// Starts to listen, the first time.
pub fn token() -> Option<[u8; 16]> {
    *TOKEN.get_or_init(|| start().ok())
}

/// The token of a process that has exported something.
pub fn own_token() -> Option<[u8; 16]> {
    TOKEN.get().copied().flatten()
}

/// This block may be asked for.
pub fn note(block: Shared) {
    let mut exported = EXPORTED.lock().unwrap_or_else(PoisonError::into_inner);
    if exported.len() >= REMEMBERED {
        exported.retain(|&(base, sequence)| live(base, sequence).is_some());
    }
    exported.insert((block.base, block.sequence));
}

fn start() -> io::Result<[u8; 16]> {
    let mut token = [0u8; 16];
    // SAFETY: the buffer is ours and as long as the kernel is told.
    let filled = unsafe { libc::getrandom(token.as_mut_ptr().cast(), token.len(), 0) };
    if filled != token.len() as isize {
        return Err(io::Error::last_os_error());
    }
    let address = SocketAddr::from_abstract_name(name(&token))?;
    let listener = out_of_the_way(UnixListener::bind_addr(&address)?);
    listener.set_nonblocking(true)?;
    let number = listener.as_raw_fd();
    DESCRIPTOR.keep(
        number,
        identity(number).ok_or_else(io::Error::last_os_error)?,
    );
    idle::prepare();
    match process::spawn_quietly("cushion-ipc", move || serve(listener)) {
        true => Ok(token),
        false => Err(ErrorKind::OutOfMemory.into()),
    }
}

/// In the child of a fork: nobody is served there. Safe where a signal handler's calls are.
pub fn close_in_child() {
    DESCRIPTOR.close_in_child();
}

fn serve(listener: UnixListener) {
    loop {
        let mut waited = libc::pollfd {
            fd: listener.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one descriptor, in a structure that lives through the call.
        let came = unsafe { libc::poll(&mut waited, 1, LOOK_MS) };
        if !DESCRIPTOR.is_ours() {
            DESCRIPTOR.forget();
            std::mem::forget(listener);
            return;
        }
        if came <= 0 {
            continue;
        }
        if let Ok((stream, _)) = listener.accept() {
            // An importer that is told nothing more refuses.
            let _ = answer(&stream);
        }
    }
}

/// The exported block with this base and number, if it lives.
fn live(base: u64, sequence: u64) -> Option<(std::sync::Arc<contexts::Context>, u64)> {
    match contexts::find_with_owner(base)? {
        (context, Found::Live(block)) if block.base == base && block.sequence == sequence => {
            Some((context, block.requested_bytes))
        }
        _ => None,
    }
}

fn answer(stream: &UnixStream) -> io::Result<()> {
    let refused = || io::Error::from(ErrorKind::PermissionDenied);
    limit(stream)?;
    if peer(stream)?.uid != own_uid() {
        return Err(refused());
    }
    let mut request = [0u8; REQUEST_BYTES];
    receive(stream, &mut request)?;
    let word = |at: usize| u64::from_le_bytes(request[at..at + 8].try_into().unwrap_or_default());
    let (base, sequence) = (word(16), word(24));
    let is_exported = || {
        let exported = EXPORTED.lock().unwrap_or_else(PoisonError::into_inner);
        exported.contains(&(base, sequence))
    };
    if own_token().is_none_or(|own| own[..] != request[..16]) || !is_exported() {
        return Err(refused());
    }
    let (context, size_bytes) = live(base, sequence).ok_or_else(refused)?;
    // Its end waits for this.
    let _alive = contexts::reach_of(context.backing.context as CUcontext)
        .filter(|reach| reach.backing().serial == context.serial)
        .ok_or_else(refused)?;
    let pages = context.backing.mapped().ok_or_else(refused)?;
    let pieces = pages.pieces(base, size_bytes);
    let first = pieces.first().ok_or_else(refused)?.address;
    let head = Head {
        mapped_bytes: pieces.iter().map(|piece| piece.size_bytes).sum(),
        offset_bytes: base - first,
        size_bytes,
        piece_count: pieces.len() as u64,
    };
    if head.offset_bytes + size_bytes > head.mapped_bytes {
        return Err(refused());
    }
    send(stream, &head.encode(), None)?;
    for piece in &pieces {
        let exported = idle::beside_exit(|| {
            let driver = driver::get()?;
            let _current = Current::enter(driver, context.backing.context as CUcontext).ok()?;
            let _shield = Shield::raise(driver);
            pages.export(piece)
        });
        let exported = exported.flatten();
        let descriptor = exported.ok_or_else(refused)?;
        send(
            stream,
            &piece.size_bytes.to_le_bytes(),
            Some(descriptor.as_fd()),
        )?;
    }
    // What was sent is the block's memory if the block lived all the time: live memory is never moved.
    live(base, sequence).ok_or_else(refused)?;
    send(stream, &sequence.to_le_bytes(), None)
}
