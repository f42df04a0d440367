//! A context leaves: out of the registry before the driver may end it, and back if it lives on.

use super::reach::is_behind_barrier;
use super::records::amend;
use super::{Context, Known, Registry, GENERATION, REGISTRY};
use crate::abi::*;
use crate::device::capture::{self, Capturing};
use crate::device::{order, pages::peers, share};
use crate::{emit, thread, trace};
use cushion::pool::Found;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};

/// Takes a context out of the registry, before the driver may reuse its handle or addresses (FORGET-FIRST), and waits
/// until no thread uses it. It is leaving for as long as what this returns lives; the caller puts it back with
/// [`put_back`] if the driver then refused. Not to be called by a thread that has a [`Reach`].
pub fn take_out(handle: CUcontext) -> Option<Removed> {
    let removed = remove(handle)?;
    while removed
        .known
        .as_ref()
        .is_some_and(|known| known.users.load(Ordering::Acquire) > 0)
    {
        std::thread::yield_now();
    }
    Some(removed)
}

pub(super) fn remove(handle: CUcontext) -> Option<Removed> {
    let mut registry = REGISTRY.write().unwrap_or_else(PoisonError::into_inner);
    let known = registry
        .known
        .iter()
        .position(|k| k.backing.context == handle as usize);
    let pool = registry
        .pools
        .iter()
        .position(|c| c.backing.context == handle as usize);
    if known.is_none() && pool.is_none() {
        return None;
    }
    let (known, pool) = (
        known.map(|i| registry.known.remove(i)),
        pool.map(|i| registry.pools.remove(i)),
    );
    let device = known
        .as_ref()
        .map(|known| known.backing.device)
        .or(pool.as_ref().map(|context| context.backing.device));
    registry.leaving.push(Leaving {
        handle: handle as usize,
        device,
        pool: pool.clone(),
    });
    registry.count();
    LEAVING_COUNT.fetch_add(1, Ordering::AcqRel);
    thread::with(|thread| thread.ending.set(thread.ending.get() + 1));
    GENERATION.fetch_add(1, Ordering::AcqRel);
    drop(registry);
    Some(Removed {
        handle: handle as usize,
        known,
        captures: capture::end_all_of(handle),
        turn: trace::turn(),
        pool,
    })
}

/// A context that is out of the lists.
pub(super) struct Leaving {
    handle: usize,
    /// `None`: it may be any.
    device: Option<CUdevice>,
    /// Its pool, if it ever allocated.
    pool: Option<Arc<Context>>,
}

impl Leaving {
    /// Whether its work may reach memory of `device` without peer access.
    pub fn is_on(&self, device: CUdevice) -> bool {
        self.device.is_none_or(|own| own == device)
    }
}

/// Whether `address` lies in memory of one that is leaving: until its end is over, nobody can say whose that is.
///
/// # Decision: nobody waits for the end of a context for another's sake
/// The end waits for the context's work, and that may wait for what the caller does next.
pub(super) fn may_own(address: CUdeviceptr) -> bool {
    if LEAVING_COUNT.load(Ordering::Acquire) == 0 {
        return false;
    }
    let pools: Vec<Arc<Context>> = {
        let registry = REGISTRY.read().unwrap_or_else(PoisonError::into_inner);
        let pools = registry.leaving.iter().filter_map(|l| l.pool.clone());
        pools.collect()
    };
    let owns = |context: &Arc<Context>| !matches!(context.pool.find(address), Found::NotMine);
    pools.iter().any(owns)
}

/// What [`take_out`] took.
pub struct Removed {
    handle: usize,
    known: Option<Arc<Known>>,
    captures: Vec<Capturing>,
    /// When what lives in it dies, in the order of the trace: before the driver can give its memory to others.
    pub turn: Option<u64>,
    /// Its pool, if it ever allocated.
    pub pool: Option<Arc<Context>>,
}

impl Removed {
    /// It is gone for good: its figures and its place in the records stay.
    pub fn retire(&self) {
        if let Some(known) = &self.known {
            amend(known.backing.serial, |record| record.destroyed = true);
        }
        if let Some(context) = &self.pool {
            emit::context_ended(context);
        }
    }

    /// Gives back what belongs to the process and not to the context: mapped memory. The pool has forgotten it.
    pub fn release_mapped(&self) {
        if let Some(pages) = self
            .pool
            .as_ref()
            .and_then(|context| context.backing.mapped())
        {
            pages.release_all();
        }
        share::close_all_of(self.handle as CUcontext);
        peers::forget(self.handle);
    }

    /// The context's serial and its device.
    pub fn place(&self) -> Option<(u64, CUdevice)> {
        self.known
            .as_ref()
            .map(|known| (known.backing.serial, known.backing.device))
    }
}

impl Drop for Removed {
    fn drop(&mut self) {
        let mut registry = REGISTRY.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = registry
            .leaving
            .iter()
            .position(|l| l.handle == self.handle)
        {
            registry.leaving.swap_remove(at);
        }
        registry.count();
        GENERATION.fetch_add(1, Ordering::AcqRel);
        LEAVING_COUNT.fetch_sub(1, Ordering::AcqRel);
        thread::with(|thread| thread.ending.set(thread.ending.get() - 1));
    }
}

/// The context lives on after all.
pub fn put_back(mut removed: Removed) {
    capture::put_back(std::mem::take(&mut removed.captures));
    let mut registry = REGISTRY.write().unwrap_or_else(PoisonError::into_inner);
    registry.known.extend(removed.known.take());
    let pool = removed.pool.take();
    registry.pools.extend(pool.clone());
    drop(registry);
    // It is looked for again from now on.
    drop(removed);
    if let Some(pool) = pool.filter(|_| !order::is_given()) {
        // Who took the order away may not have waited for it.
        is_behind_barrier(&pool);
    }
}

/// How many are leaving: for those who found nothing, without the lock.
static LEAVING_COUNT: AtomicUsize = AtomicUsize::new(0);

/// Whether the calling thread has taken one out whose end is not over.
pub(super) fn is_ending_one() -> bool {
    thread::with(|thread| thread.ending.get() > 0)
}

/// Whether something found missing since `generation` was seen may have been out for a while only.
pub(super) fn is_unsettled(generation: u64) -> bool {
    LEAVING_COUNT.load(Ordering::Acquire) > 0 || GENERATION.load(Ordering::Acquire) != generation
}

/// What `look` finds of `handle`, which may be leaving: then not before its end is over.
pub(super) fn once_settled<R>(
    handle: CUcontext,
    look: impl Fn(&Registry) -> Option<R>,
) -> Option<R> {
    loop {
        let registry = REGISTRY.read().unwrap_or_else(PoisonError::into_inner);
        let found = look(&registry);
        let is_leaving = |leaving: &Leaving| leaving.handle == handle as usize;
        if found.is_some() || !registry.leaving.iter().any(is_leaving) {
            return found;
        }
        drop(registry);
        std::thread::yield_now();
    }
}
