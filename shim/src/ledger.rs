//! The ledger of this process, as the hooks use it: tags for pooled blocks, entries for everything else.

use crate::abi::*;
use crate::device::{contexts, limits, reclaim, settings};
use crate::thread::{self, Thread};
use crate::{emit, stack, trace};
use cushion::ledger::{Allocation, Ledger, SiteId, Tag, Weight};
pub use cushion::ledger::{Kind, Space};
use once_cell::sync::Lazy;

static LEDGER: Lazy<Ledger> = Lazy::new(|| Ledger::new(settings::get().config.stacks.value));

/// The ledger itself.
pub fn get() -> &'static Ledger {
    &LEDGER
}

/// Milliseconds on the monotonic clock, coarse: a few nanoseconds a reading.
pub fn now_ms() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the out-parameter is ours.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &mut now) };
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

/// When this process's ledger began, on the same clock.
pub fn start_ms() -> u64 {
    static START: Lazy<u64> = Lazy::new(now_ms);
    *START
}

/// Who asks for memory, how much that stands for, and when.
pub fn tag() -> Tag {
    thread::with(tag_on)
}

/// The same, with the calling thread's storage at hand.
#[inline]
pub fn tag_on(thread: &Thread) -> Tag {
    let time_ms = now_ms().saturating_sub(start_ms());
    let mut sampler = thread.sampler.get();
    let weight = LEDGER.sample(&mut sampler);
    thread.sampler.set(sampler);
    match weight {
        Some(weight) => Tag::new(stack::site(LEDGER.sites()), weight, time_ms),
        None => Tag::new(SiteId::NONE, Weight::ONE, time_ms),
    }
}

/// Live bytes of a kind.
pub fn live_bytes(kind: Kind) -> u64 {
    LEDGER.live_bytes(kind)
}

/// Makes an allocation that the driver serves: within the device's limit if it is device memory, tried once more after
/// a trim if memory is short, and entered under `key` if it succeeded.
pub fn counted(
    kind: Kind,
    size_bytes: u64,
    call: impl Fn() -> Status,
    key: impl FnOnce() -> u64,
) -> Status {
    counted_on_stream(kind, 0, size_bytes, call, key)
}

/// The same for memory that belongs to a stream.
pub fn counted_on_stream(
    kind: Kind,
    stream: u64,
    size_bytes: u64,
    call: impl Fn() -> Status,
    key: impl FnOnce() -> u64,
) -> Status {
    let (context, device) = contexts::current_place();
    counted_in(kind, (context, device, stream), size_bytes, call, key)
}

/// The same on a device that the program named.
pub fn counted_on(
    kind: Kind,
    device: CUdevice,
    size_bytes: u64,
    call: impl Fn() -> Status,
    key: impl FnOnce() -> u64,
) -> Status {
    counted_in(kind, (0, device, 0), size_bytes, call, key)
}

fn counted_in(
    kind: Kind,
    (context, device, stream): (u64, CUdevice, u64),
    size_bytes: u64,
    call: impl Fn() -> Status,
    key: impl FnOnce() -> u64,
) -> Status {
    let charge = if on_device(kind) { size_bytes } else { 0 };
    if charge > 0 && !limits::charge(device, charge) {
        return OUT_OF_MEMORY;
    }
    let code = reclaim::retried(call);
    if code == SUCCESS {
        let allocation = Allocation {
            kind,
            size_bytes,
            device: device as u32,
            context,
            tag: tag(),
        };
        let key = key();
        LEDGER.insert(key, allocation);
        trace::allocated(kind, key, size_bytes, device, stream, allocation.tag);
        emit::start();
    } else if charge > 0 {
        limits::uncharge(device, charge);
    }
    code
}

/// Makes `call`, which frees what is entered under `key`.
pub fn released(space: Space, key: u64, call: impl FnOnce() -> Status) -> Status {
    // Out before the driver may hand the key to another thread; back if it refuses.
    let turn = trace::turn();
    let entry = LEDGER.remove(space, key);
    let code = call();
    if let Some(entry) = entry {
        if code == SUCCESS {
            uncharge(&entry);
            trace::freed(turn, entry.kind, key, entry.device as CUdevice);
        } else {
            LEDGER.insert(key, entry);
        }
    }
    code
}

/// A context is gone: what was live in it is lost.
pub fn context_ended(removed: &contexts::Removed) {
    removed.retire();
    let Some((serial, device)) = removed.place() else {
        return;
    };
    let pooled = removed
        .pool
        .as_ref()
        .map(|context| context.pool.forget())
        .unwrap_or_default();
    removed.release_mapped();
    for block in &pooled {
        trace::freed(removed.turn, Kind::Pooled, block.base, device);
    }
    let pooled = pooled
        .iter()
        .map(|block| (block.requested_bytes, Tag(block.tag)));
    for (key, entry) in LEDGER.lose_context(serial, device as u32, pooled) {
        uncharge(&entry);
        trace::freed(removed.turn, entry.kind, key, entry.device as CUdevice);
    }
}

fn uncharge(entry: &Allocation) {
    if on_device(entry.kind) {
        limits::uncharge(entry.device as CUdevice, entry.size_bytes);
    }
}

/// Whether memory of this kind is taken from its device. Managed memory moves, and counts where it was made.
fn on_device(kind: Kind) -> bool {
    !matches!(
        kind,
        Kind::PinnedHost | Kind::RegisteredHost | Kind::IpcImported | Kind::Graph
    )
}
