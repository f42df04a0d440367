//! What the program may know of an address that lies in a pool or in memory imported from another process.

use super::contexts::{self, Context};
use super::{capture, imports};
use crate::abi::*;
use cushion::pool::{Backing, Found};
use dashmap::DashMap;
use once_cell::sync::Lazy;
use std::sync::atomic::{AtomicBool, Ordering};

/// An address that the driver knows nothing of.
pub const NOWHERE: CUdeviceptr = 0x10;

/// What an address is to the program.
pub enum Seen {
    /// Not in a pool: the driver's answer is right.
    Elsewhere,
    /// In a segment of a pool, or of another process's, but in no live block.
    Dead,
    /// In a block.
    Block {
        /// First byte.
        base: u64,
        /// As requested.
        size_bytes: u64,
        /// The driver's BUFFER_ID, different for every allocation.
        id: u64,
        /// The context it belongs to, where the shim mapped it: the driver maps memory for no context.
        mapped_for: Option<usize>,
        /// It is another process's.
        is_imported: bool,
        /// SYNC_MEMOPS, where the driver's answer would be the neighbour's.
        sync_memops: Option<bool>,
    },
}

impl Seen {
    /// The address to ask the driver about, for this one: a freed address is to the program one that no allocation has ever
    /// had, and the driver may have another reason to refuse.
    pub fn asked(&self, address: CUdeviceptr) -> CUdeviceptr {
        match self {
            Seen::Dead => NOWHERE,
            _ => address,
        }
    }
}

/// Pool ids stand apart from the driver's, which count from 1.
const OWN_ID: u64 = 1 << 63;
const IMPORTED_ID: u64 = 1 << 62;

/// Blocks whose SYNC_MEMOPS was set, by base, with the allocation's id.
static SYNC_MEMOPS: Lazy<DashMap<u64, u64>> = Lazy::new(DashMap::new);
static ANY_SYNC_MEMOPS: AtomicBool = AtomicBool::new(false);

/// What `address` is.
pub fn seen(address: CUdeviceptr) -> Seen {
    match contexts::find_with_owner(address) {
        Some((context, Found::Live(block))) => {
            let id = OWN_ID | context.serial << 44 | block.sequence;
            let sync_memops = ANY_SYNC_MEMOPS
                .load(Ordering::Relaxed)
                .then(|| SYNC_MEMOPS.get(&block.base).is_some_and(|set| *set == id));
            Seen::Block {
                base: block.base,
                size_bytes: block.requested_bytes,
                id,
                mapped_for: context
                    .backing
                    .mapped_at(block.base)
                    .map(|_| context.backing.context),
                is_imported: false,
                sync_memops,
            }
        }
        Some((_, Found::Dead)) => Seen::Dead,
        _ => seen_outside_pools(address),
    }
}

fn seen_outside_pools(address: CUdeviceptr) -> Seen {
    match imports::find(address) {
        Some(block) => Seen::Block {
            base: block.base,
            size_bytes: block.size_bytes,
            id: IMPORTED_ID | block.serial,
            mapped_for: block.mapped_for,
            is_imported: true,
            sync_memops: None,
        },
        None if imports::is_inside(address, 1) => Seen::Elsewhere,
        None => Seen::Dead,
    }
}

/// The driver's alignment of small blocks, and the host's pages.
const GRAIN_BYTES: u64 = 512;
const PAGE_BYTES: u64 = 4096;

/// The block that a range of whole pages is about: it lies in the first page, or starts there, and the range ends with its
/// last page or before. `Seen::Dead`: there is none, and the range starts in a pool.
pub fn seen_by_pages(address: CUdeviceptr, size_bytes: u64) -> Seen {
    let page = address..(address + 1).next_multiple_of(PAGE_BYTES);
    let end = address.saturating_add(size_bytes);
    let ends_after = |seen: &Seen| match seen {
        Seen::Block {
            base, size_bytes, ..
        } => {
            base.saturating_add(*size_bytes)
                .next_multiple_of(PAGE_BYTES)
                >= end
        }
        _ => false,
    };
    page.step_by(GRAIN_BYTES as usize)
        .map(seen)
        .find(ends_after)
        .unwrap_or_else(|| match seen(address) {
            Seen::Elsewhere => Seen::Elsewhere,
            _ => Seen::Dead,
        })
}

/// Others are about to learn of memory of this pool, and use it in an order of their own. Natively all work that was queued
/// before the memory was freed and allocated again has ended by then; here it may be on its way, and a scrub with it.
pub fn settle(context: &Context) {
    let was_reused = context.pool.stats().hits > 0;
    if was_reused && !capture::active() {
        // What cannot be waited for is dead, and the program's call will say so.
        let _ = context.backing.synchronize();
    }
}

/// The memory of this block is known outside the program from now on: it is really freed, never handed out again.
pub fn isolate(address: CUdeviceptr) {
    if let Some((context, Found::Live(block))) = contexts::find_with_owner(address) {
        settle(&context);
        context.pool.retire_on_free(block.base);
    }
}

/// Makes `call`, which sets SYNC_MEMOPS of an address, and remembers it for the block. `on` is asked only if there is one.
pub fn set_sync_memops(
    address: CUdeviceptr,
    on: impl FnOnce() -> bool,
    call: impl Fn(CUdeviceptr) -> Status,
) -> Status {
    let (context, block) = match contexts::find_with_owner(address) {
        Some((context, Found::Live(block))) => (context, block),
        Some((_, Found::Dead)) => return call(NOWHERE),
        _ => return call(seen_outside_pools(address).asked(address)),
    };
    let on = on();
    let id = OWN_ID | context.serial << 44 | block.sequence;
    let pages = context.backing.mapped_at(block.base);
    if on {
        context.pool.retire_on_free(block.base);
    } else if !block.whole_segment {
        // Taking it off the segment would take it off a neighbour that set it. The flag is only ever stricter.
        SYNC_MEMOPS.remove_if(&block.base, |_, set| *set == id);
        return SUCCESS;
    }
    let code = match pages {
        // Each of its mappings is memory of its own to the driver.
        Some(pages) => pages
            .pieces(block.base, block.requested_bytes)
            .iter()
            .map(|piece| call(piece.address.max(block.base)))
            .find(|&code| code != SUCCESS)
            .unwrap_or(SUCCESS),
        None => call(address),
    };
    let code = match pages {
        Some(pages) if code == NOT_SUPPORTED => pages.synchronize_memops(on),
        _ => code,
    };
    if code == SUCCESS {
        ANY_SYNC_MEMOPS.store(true, Ordering::Relaxed);
        if on {
            SYNC_MEMOPS.insert(block.base, id);
        } else {
            SYNC_MEMOPS.remove(&block.base);
        }
    }
    code
}
