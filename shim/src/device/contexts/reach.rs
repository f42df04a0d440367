//! Which contexts' work can reach memory of a pool, and keeping them from ending while they are used.

use super::leaving::{is_ending_one, is_unsettled, remove, Leaving};
use super::{
    all, current_device, is_sticky, known, Context, Known, Registry, GENERATION, KNOWN_COUNT,
    REGISTRY,
};
use crate::abi::*;
use crate::device::backing::DriverBacking;
use crate::device::order;
use crate::driver;
use crate::process;
use cushion::pool::{Backing, BackingError};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A context that is being used: whoever is about to end it waits until nobody has one of these.
///
/// # Decision: how a context leaves
/// Threads of the program that use other contexts go on while one is destroyed, and their fences and trims must neither
/// call the driver with a handle that is going away nor leave out work that has not ended. So a context that leaves is
/// taken out of the registry first; then those that use it are waited for; and until the driver has ended it, no fence
/// is made of what it can reach (the pool grows instead) and waits on the host wait for that end too.
pub struct Reach(Arc<Known>);

impl Reach {
    fn of(known: &Arc<Known>) -> Self {
        known.users.fetch_add(1, Ordering::AcqRel);
        Reach(known.clone())
    }
}

impl Drop for Reach {
    fn drop(&mut self) {
        self.0.users.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Reach {
    /// Its side of the fence.
    pub fn backing(&self) -> &DriverBacking {
        &self.0.backing
    }
}

/// Fences span peers, and what was handed out before that is behind one that does.
static SPANNED: AtomicBool = AtomicBool::new(false);
static TURN: Mutex<()> = Mutex::new(());

/// Memory of one device can be reached from another from now on: by work that is queued only after this returns. What was
/// handed out until now may be in use by work of its own device still, so all pools are fenced once more.
pub fn note_peers() {
    if !SPANNED.load(Ordering::Acquire) {
        span_peers();
    }
}

#[cold]
fn span_peers() {
    if !process::was_woken_here() {
        return;
    }
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    if SPANNED.load(Ordering::Acquire) {
        return;
    }
    order::lose("peers share memory");
    REGISTRY
        .write()
        .unwrap_or_else(PoisonError::into_inner)
        .peers = true;
    if fence_all() {
        SPANNED.store(true, Ordering::Release);
    }
}

/// Whether contexts of more than one device were ever known.
static SEVERAL_DEVICES: AtomicBool = AtomicBool::new(false);

impl Registry {
    /// A context was added.
    pub(super) fn note_devices(&self) {
        let device = |known: &Arc<Known>| known.backing.device;
        let mut devices = self.known.iter().map(device);
        let first = devices.next();
        if devices.any(|device| Some(device) != first) {
            SEVERAL_DEVICES.store(true, Ordering::Release);
        }
    }
}

/// Work is about to be queued that may touch memory of any device, with peer access or without: a graph, whose nodes are
/// not looked at, or a copy whose operands are not.
#[inline]
pub fn note_work_anywhere() {
    if SEVERAL_DEVICES.load(Ordering::Acquire) {
        note_peers();
    }
}

/// Work is about to be queued on this stream. A copy need not be on a stream of the current context, and what tells of
/// work on another device ([`super::find`]) goes by that.
#[inline]
pub fn note_work_on(stream: CUstream) {
    if SEVERAL_DEVICES.load(Ordering::Acquire) && !order::is_default(stream) {
        note_foreign(stream);
    }
}

#[cold]
fn note_foreign(stream: CUstream) {
    let mut context: CUcontext = std::ptr::null_mut();
    let get = driver::get().and_then(|driver| driver.stream_get_context);
    // SAFETY: the stream is one that the program names in a call, so it is live; the out-parameter is ours.
    let code = get.map(|get| unsafe { get(stream, &mut context) });
    let known = (code == Some(SUCCESS)).then(|| known(context)).flatten();
    if known.is_none_or(|known| Some(known.backing.device) != current_device()) {
        note_peers();
    }
}

/// Whether no other context's work can reach memory of `own`'s.
#[inline]
pub fn is_alone(own: &DriverBacking) -> bool {
    match KNOWN_COUNT.load(Ordering::Acquire) {
        1 => true,
        _ => reaching(own).is_some_and(|reach| reach.len() <= 1),
    }
}

/// Forgets contexts that have ended and of which nobody told; whether there was one. `own` is the caller's, and stays.
#[cold]
pub fn forget_ended(own: &DriverBacking) -> bool {
    let handles: Vec<usize> = {
        let registry = REGISTRY.read().unwrap_or_else(PoisonError::into_inner);
        let handles = registry.known.iter().map(|known| known.backing.context);
        handles.filter(|context| *context != own.context).collect()
    };
    let mut any = false;
    for handle in handles {
        let ended = || driver::get().is_some_and(|driver| driver.has_ended(handle as CUcontext));
        if let Some(removed) = ended().then(|| remove(handle as CUcontext)).flatten() {
            crate::ledger::context_ended(&removed);
            any = true;
        }
    }
    any
}

/// The contexts whose work can reach memory of `own`'s context: all of the device; with peer access all there are.
/// `None` while one of these is leaving: its work cannot be fenced any more, and may not have ended.
pub fn reaching(own: &DriverBacking) -> Option<Vec<Reach>> {
    let registry = REGISTRY.read().unwrap_or_else(PoisonError::into_inner);
    let reaches = |leaving: &Leaving| registry.peers || leaving.is_on(own.device);
    if registry.leaving.iter().any(reaches) {
        return None;
    }
    let reach = registry
        .known
        .iter()
        .filter(|known| registry.peers || known.backing.device == own.device)
        .map(Reach::of);
    Some(reach.collect())
}

/// The same one after the other, for those who wait for each. While one is leaving, the patient wait until it has left;
/// the others, who may be what it waits for, cannot be served.
pub fn each_reaching(
    own: &DriverBacking,
    patient: bool,
    mut with: impl FnMut(&DriverBacking) -> Result<(), BackingError>,
) -> Result<(), BackingError> {
    let reach = loop {
        match reaching(own) {
            Some(reach) => break reach,
            None if patient => std::thread::yield_now(),
            None => return Err(BackingError::Unavailable),
        }
    };
    let handles: Vec<usize> = reach.iter().map(|r| r.backing().context).collect();
    drop(reach);
    for handle in handles {
        // One that has ended meanwhile has no work left.
        if let Some(reach) = reach_of(handle as CUcontext) {
            with(reach.backing())?;
        }
    }
    Ok(())
}

/// Keeps a context from ending, if it is not about to.
pub fn reach_of(handle: CUcontext) -> Option<Reach> {
    let registry = REGISTRY.read().unwrap_or_else(PoisonError::into_inner);
    registry
        .known
        .iter()
        .find(|known| known.backing.context == handle as usize)
        .map(Reach::of)
}

/// Puts everything that any pool has handed out behind a barrier; whether all of it is.
///
/// # Decision: also a pool that is out of the list
/// A context that may be about to end is taken out and may come back, with all that it had handed out. So this is over only when
/// every pool was fenced and none was out meanwhile. What is being fenced is kept from leaving; and a thread that is ending one
/// itself does not wait for itself, so not all of it is then.
///
/// # Decision: not for ever
/// The end of a context waits for its host functions, and one of them may wait for this thread, or be it. So the process waits
/// for [`PATIENCE`] in all: a release that is not the last takes far less, and a context that ends needs no fence. One that comes
/// back after all is fenced then ([`super::put_back`]).
pub fn fence_all() -> bool {
    let mut fenced = Vec::new();
    loop {
        let mut is_all = true;
        let generation = GENERATION.load(Ordering::Acquire);
        for context in all() {
            // Not one of the same handle that came after it.
            let alive = reach_of(context.backing.context as CUcontext)
                .filter(|reach| reach.backing().serial == context.serial);
            if alive.is_none() || fenced.contains(&context.serial) {
                continue;
            }
            if is_behind_barrier(&context) {
                fenced.push(context.serial);
            } else {
                is_all = false;
            }
        }
        if !is_unsettled(generation) {
            return is_all;
        }
        if is_ending_one() || WAITED_US.load(Ordering::Relaxed) >= PATIENCE.as_micros() as u64 {
            return false;
        }
        let started = Instant::now();
        std::thread::sleep(PAUSE);
        WAITED_US.fetch_add(started.elapsed().as_micros() as u64, Ordering::Relaxed);
    }
}

/// Work is about to be queued that may wait for what the program does next: what was freed until now is put behind a barrier that this work
/// is not before.
///
/// # Decision: before, and not after
/// Memory that was freed is fenced when it is asked for, and the fence is behind all work that was submitted until then. Natively the free has
/// waited, and an allocation waits for nothing: were that work in between, all streams would wait for it, and it perhaps for one of them.
///
/// # Decision: not where others can reach the memory
/// There a fence has later work of every context wait for the work of all, which the free of one had not natively: it waits for its own
/// context. What another device has queued may wait for what is about to be queued here.
pub fn before_hold() {
    if order::is_given() {
        return;
    }
    for context in all() {
        let alive = reach_of(context.backing.context as CUcontext)
            .filter(|reach| reach.backing().serial == context.serial);
        if alive.is_some() && context.dead().is_none() && is_alone(&context.backing) {
            context.pool.fence_freed(&context.backing);
        }
    }
}

/// How long calls wait for contexts that are out of the list, all together.
const PATIENCE: Duration = Duration::from_secs(1);
/// Between two looks.
const PAUSE: Duration = Duration::from_micros(50);
static WAITED_US: AtomicU64 = AtomicU64::new(0);

/// Puts all work that can reach a context's memory behind a barrier, or waits for it; whether it has ended or is there.
pub(super) fn is_behind_barrier(context: &Context) -> bool {
    let fenced = context.backing.fence().map(drop);
    match fenced.or_else(|_| context.backing.synchronize_now()) {
        Ok(()) => true,
        // Dead, or gone unseen.
        Err(BackingError::Failed(code)) => {
            let handle = context.backing.context as CUcontext;
            is_sticky(code) || driver::get().is_some_and(|driver| driver.has_ended(handle))
        }
        Err(BackingError::Unavailable | BackingError::OutOfMemory) => false,
    }
}
