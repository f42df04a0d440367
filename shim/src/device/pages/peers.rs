//! Which devices see the mapped memory of a context beside its own.
//!
//! # Decision: peers
//! Natively a peer sees all memory of a context to which it has access, and mapped memory is seen by the devices that it is
//! told. So each mapping names the devices of all peers, and what is mapped already is made visible when one is added. When
//! a peer gives its access up, it keeps what it has: work that it has queued must not fault.

use crate::abi::*;
use crate::device::contexts;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One context that can reach the memory of another.
struct Peer {
    of: usize,
    by: usize,
    device: CUdevice,
}

static PEERS: Mutex<Vec<Peer>> = Mutex::new(Vec::new());

fn peers() -> MutexGuard<'static, Vec<Peer>> {
    PEERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `accessor`, a context on `device`, can reach memory of `context` from now on.
pub fn add(context: CUcontext, accessor: CUcontext, device: CUdevice) {
    let of = context as usize;
    let by = accessor as usize;
    peers().push(Peer { of, by, device });
    for known in contexts::all() {
        if known.backing.context == of {
            if let Some(pages) = known.backing.mapped() {
                pages.show_to(device);
            }
        }
    }
}

/// It cannot any more.
pub fn remove(context: CUcontext, accessor: CUcontext) {
    let gone = (context as usize, accessor as usize);
    peers().retain(|peer| (peer.of, peer.by) != gone);
}

/// A context has ended.
pub fn forget(context: usize) {
    peers().retain(|peer| peer.of != context && peer.by != context);
}

/// The devices that see memory of `context`, which is on `device`.
pub(super) fn who_reach(context: usize, device: CUdevice) -> Vec<CUdevice> {
    let mut devices = vec![device];
    for peer in peers().iter() {
        if peer.of == context && !devices.contains(&peer.device) {
            devices.push(peer.device);
        }
    }
    devices
}
