//! Whose memory an address is.

use super::{all, current_device, note_peers, with_owner, Context, KNOWN_COUNT};
use crate::abi::*;
use cushion::pool::Found;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// Where `address` lies.
pub fn find_with_owner(address: CUdeviceptr) -> Option<(Arc<Context>, Found)> {
    if !may_hold(address) {
        return None;
    }
    all()
        .into_iter()
        .find_map(|context| match context.pool.find(address) {
            Found::NotMine => None,
            found => Some((context, found)),
        })
}

/// Whether `address` lies in memory of a pool.
pub fn is_pooled(address: CUdeviceptr) -> bool {
    find_with_owner(address).is_some()
}

/// What `address`, which work of the program is about to touch, is to the pools: the current context's is asked first.
///
/// Memory of one device that is copied from another's context is as much in reach there as with peer access, which a copy
/// does not need.
pub fn find(address: CUdeviceptr) -> Found {
    let found = with_owner(address, |context| match context.pool.find(address) {
        Found::NotMine => None,
        found => Some((context.backing.device, found)),
    });
    let Ok(Some((device, found))) = found else {
        return Found::NotMine;
    };
    if KNOWN_COUNT.load(Ordering::Acquire) > 1 && current_device() != Some(device) {
        note_peers();
    }
    found
}

/// Lowest address that any pool ever had, and one past the highest: what lies outside needs no look-up.
static LOW: AtomicU64 = AtomicU64::new(u64::MAX);
static HIGH: AtomicU64 = AtomicU64::new(0);

/// A pool has this memory from now on.
pub fn note_segment(address: CUdeviceptr, size_bytes: u64) {
    LOW.fetch_min(address, Ordering::AcqRel);
    HIGH.fetch_max(address + size_bytes, Ordering::AcqRel);
}

/// Whether `address` can be in a pool at all.
#[inline]
pub fn may_hold(address: CUdeviceptr) -> bool {
    address >= LOW.load(Ordering::Acquire) && address < HIGH.load(Ordering::Acquire)
}
