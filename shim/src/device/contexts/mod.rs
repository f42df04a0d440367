//! The contexts of this process and their pools.
//!
//! A [`Context`] is made when a context first allocates, and leaves the registry when the context is destroyed, reset or
//! released for good (hazard 15). Contexts that never allocate are remembered by handle only, because their work can
//! reach the memory of others.
//!
//! Here is the registry; `records` tells the report of its contexts, `lookup` finds whose memory an address is, `reach`
//! whose work can reach it, `leaving` takes a context out, `primary` knows the primary ones, `observe` learns from the outcome of the program's calls.

mod leaving;
mod lookup;
mod observe;
mod primary;
mod reach;
mod records;

pub use leaving::{put_back, take_out, Removed};
pub use lookup::{find, find_with_owner, is_pooled, may_hold, note_segment};
pub use observe::{drained, is_sticky, observe};
pub use primary::{
    expect as expect_primary, life_of, note_primary, note_retained, primary_is_active, primary_of,
    released,
};
pub use reach::{
    each_reaching, fence_all, forget_ended, is_alone, note_peers, note_work_anywhere, note_work_on,
    reach_of, reaching, Reach,
};
pub use records::{driver_version, note_mapped, note_unmapped, records};

use leaving::{is_unsettled, once_settled};

use super::backing::DriverBacking;
use super::scrub::Waiting;
use super::{limits, order, settings};
use crate::abi::*;
use crate::route::names;
use crate::thread::{self, Thread};
use crate::{driver, emit, process};
use cushion::pool::{Pool, Refusal, Usage};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Once, PoisonError, RwLock};

/// A context that has allocated, with its pool.
pub struct Context {
    /// The known context's serial number.
    pub serial: u64,
    /// The pool.
    pub pool: Pool,
    /// What the pool stands on.
    pub backing: DriverBacking,
    /// What is still to be scrubbed.
    pub waiting: Waiting,
    /// The sticky error that ended this context, or success. From then on every call is the driver's.
    dead: AtomicI32,
}

impl Context {
    /// The sticky error, if the context has died of one.
    pub fn dead(&self) -> Option<Status> {
        match self.dead.load(Ordering::Relaxed) {
            SUCCESS => None,
            code => Some(code),
        }
    }
}

/// Any live context of the process, with or without a pool.
struct Known {
    backing: DriverBacking,
    /// Whether it is its device's primary context.
    primary: AtomicBool,
    /// How many [`Reach`] there are.
    users: AtomicUsize,
    /// Uses of the program's: one for making it, one for each cuCtxAttach.
    attached: AtomicUsize,
    /// Of a primary context: how often it was seen retained and not released.
    retained: AtomicUsize,
}

#[derive(Default)]
struct Registry {
    pools: Vec<Arc<Context>>,
    known: Vec<Arc<Known>>,
    peers: bool,
    /// Handles of contexts taken out whose end is not over.
    leaving: Vec<usize>,
}

static REGISTRY: RwLock<Registry> = RwLock::new(Registry {
    pools: Vec::new(),
    known: Vec::new(),
    peers: false,
    leaving: Vec::new(),
});
/// Changes whenever a context leaves or comes back, so that no thread goes on with a remembered one, or with having found
/// none.
static GENERATION: AtomicU64 = AtomicU64::new(1);

/// Length of the registry's list of known contexts, with those that are leaving.
static KNOWN_COUNT: AtomicUsize = AtomicUsize::new(0);

/// The current context's handle, null when there is none. An error is the driver's own: not initialised, gone at exit,
/// the child of a fork; then the driver has the right answer to whatever was asked (hazard 26).
pub fn current() -> Result<CUcontext, Status> {
    let Some(driver) = driver::get() else {
        return Err(NOT_FOUND);
    };
    let mut context: CUcontext = std::ptr::null_mut();
    // SAFETY: the out-parameter is ours.
    match unsafe { (driver.ctx_get_current)(&mut context) } {
        SUCCESS => Ok(context),
        code => Err(code),
    }
}

/// The current context's handle; null when there is none or the driver refuses.
pub fn current_handle() -> CUcontext {
    current().unwrap_or(std::ptr::null_mut())
}

/// What the driver answers in the current context whatever is asked: that there is none, or a sticky error.
pub fn refuses_all() -> Option<Status> {
    match current() {
        Ok(context) if context.is_null() => {
            let mut device = 0;
            // SAFETY: the out-parameter is ours. Of a host function of a stream the driver says that it may not call.
            match driver::get().map(|driver| unsafe { (driver.ctx_get_device)(&mut device) }) {
                None | Some(SUCCESS) => Some(INVALID_CONTEXT),
                code => code,
            }
        }
        Ok(context) => thread::with(|thread| {
            remembered(thread, context, |context| context.dead(), find_pool).flatten()
        }),
        Err(code) => Some(code),
    }
}

/// Runs `with` on the current context, making its pool if this is its first allocation. `None`: no context is current,
/// and the driver has the right answer to whatever was asked.
#[inline(always)]
pub fn with_current<R>(thread: &Thread, with: impl FnOnce(&Context) -> R) -> Option<R> {
    remembered(thread, current().ok()?, with, find_or_make)
}

#[inline(always)]
fn remembered<R>(
    thread: &Thread,
    handle: CUcontext,
    with: impl FnOnce(&Context) -> R,
    find: impl FnOnce(CUcontext) -> Option<Arc<Context>>,
) -> Option<R> {
    let generation = GENERATION.load(Ordering::Acquire);
    let last = thread.last.get();
    let is_known = last.handle == handle as usize && last.generation == generation;
    if !is_known || last.context.is_null() || thread.in_context.get() {
        return anew(thread, handle, generation, with, find);
    }
    thread.in_context.set(true);
    // SAFETY: the thread's keeper has it as long as `last` names it, and nothing changes that while `in_context`.
    let result = with(unsafe { &*last.context });
    thread.in_context.set(false);
    Some(result)
}

/// The context is not the one that the thread remembers, or it is being used further up: then it is looked up.
#[cold]
fn anew<R>(
    thread: &Thread,
    handle: CUcontext,
    generation: u64,
    with: impl FnOnce(&Context) -> R,
    find: impl FnOnce(CUcontext) -> Option<Arc<Context>>,
) -> Option<R> {
    if handle.is_null() {
        return None;
    }
    let context = find(handle)?;
    if !thread.in_context.get() {
        thread.remember(handle as usize, generation, &context);
    }
    Some(with(&context))
}

fn find_pool(handle: CUcontext) -> Option<Arc<Context>> {
    once_settled(handle, |registry| {
        let of_handle = |c: &&Arc<Context>| c.backing.context == handle as usize;
        registry.pools.iter().find(of_handle).cloned()
    })
}

fn find_or_make(handle: CUcontext) -> Option<Arc<Context>> {
    if let Some(found) = find_pool(handle) {
        return Some(found);
    }
    let driver = driver::get()?;
    let mut device: CUdevice = 0;
    // SAFETY: the out-parameter is ours; `handle` is current on this thread.
    if unsafe { (driver.ctx_get_device)(&mut device) } != SUCCESS {
        return None;
    }
    note_created(handle, device);
    // A reset primary context lives on under its old handle, and nobody need retain it anew.
    if primary::is_of(handle, device) {
        note_primary(handle, device);
    }
    let mut version = 0;
    // SAFETY: the out-parameter is ours.
    if unsafe { (driver.driver_get_version)(&mut version) } == SUCCESS {
        records::note_driver_version(version);
        if version > names::NEWEST {
            order::lose("the driver is newer than this version of cushion");
        }
    }
    emit::start();
    let budget = limits::budget(device);
    let made = Arc::new(Context {
        serial: serial_of(handle),
        pool: Pool::new(settings::pool(device), budget),
        backing: DriverBacking::new(handle, device),
        waiting: Waiting::default(),
        dead: AtomicI32::new(SUCCESS),
    });
    let mut registry = REGISTRY.write().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = registry
        .pools
        .iter()
        .find(|c| c.backing.context == handle as usize)
    {
        return Some(found.clone());
    }
    registry.pools.push(made.clone());
    drop(registry);
    take_ahead(&made);
    Some(made)
}

/// Takes the memory that the user wants taken before it is needed. A program that would have lived without still does.
fn take_ahead(context: &Context) {
    if let Err(refusal) = context.pool.preallocate(&context.backing) {
        let why = match refusal {
            Refusal::Limit { .. } => "the limit is smaller".to_owned(),
            Refusal::Failed(code) => format!("the driver answers {code}"),
            _ => "the driver has not so much memory".to_owned(),
        };
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            process::say(&format!(
                "CUSHION_PREALLOCATE: not all could be taken: {why}"
            ))
        });
    }
}

fn serial_of(handle: CUcontext) -> u64 {
    let registry = REGISTRY.read().unwrap_or_else(PoisonError::into_inner);
    registry
        .known
        .iter()
        .find(|k| k.backing.context == handle as usize)
        .map_or(0, |k| k.backing.serial)
}

/// A context exists (created, retained, or seen current).
pub fn note_created(handle: CUcontext, device: CUdevice) {
    // The handle may be that of one whose end is not over.
    once_settled(handle, |_| None::<()>);
    let mut registry = REGISTRY.write().unwrap_or_else(PoisonError::into_inner);
    if registry
        .known
        .iter()
        .all(|known| known.backing.context != handle as usize)
    {
        let backing = DriverBacking::new(handle, device);
        records::record(backing.serial, device);
        registry.known.push(Arc::new(Known {
            backing,
            primary: AtomicBool::new(false),
            users: AtomicUsize::new(0),
            attached: AtomicUsize::new(1),
            retained: AtomicUsize::new(0),
        }));
        registry.note_devices();
        let count = registry.known.len();
        registry.count();
        drop(registry);
        if count > 1 {
            // Nothing was submitted there yet: the program does not have the handle before we return.
            order::lose("a second context was made");
        }
    }
}

impl Registry {
    fn count(&self) {
        KNOWN_COUNT.store(self.known.len() + self.leaving.len(), Ordering::Release);
    }
}

/// The program uses `handle` once more (cuCtxAttach).
pub fn note_attached(handle: CUcontext) {
    if let Some(known) = known(handle) {
        known.attached.fetch_add(1, Ordering::AcqRel);
    }
}

/// The program gives up one use of `handle`; whether others are left.
pub fn detached(handle: CUcontext) -> bool {
    let left = |known: Arc<Known>| {
        known
            .attached
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |uses| {
                (uses > 1).then(|| uses - 1)
            })
            .is_ok()
    };
    known(handle).is_some_and(left)
}

fn known(handle: CUcontext) -> Option<Arc<Known>> {
    let registry = REGISTRY.read().unwrap_or_else(PoisonError::into_inner);
    registry
        .known
        .iter()
        .find(|k| k.backing.context == handle as usize)
        .cloned()
}

/// Every pool of the process.
pub fn all() -> Vec<Arc<Context>> {
    REGISTRY
        .read()
        .unwrap_or_else(PoisonError::into_inner)
        .pools
        .clone()
}

/// The current context's device.
pub fn current_device() -> Option<CUdevice> {
    let driver = driver::get()?;
    let mut device: CUdevice = 0;
    // SAFETY: the out-parameter is ours.
    (unsafe { (driver.ctx_get_device)(&mut device) } == SUCCESS).then_some(device)
}

/// The serial of the current context and its device: what a ledger entry says of where it was made.
pub fn current_place() -> (u64, CUdevice) {
    let handle = current_handle() as usize;
    let registry = REGISTRY.read().unwrap_or_else(PoisonError::into_inner);
    match registry.known.iter().find(|k| k.backing.context == handle) {
        Some(known) => (known.backing.serial, known.backing.device),
        None => (0, 0),
    }
}

/// What the pools of one device hold together.
pub fn usage_of_device(device: CUdevice) -> Usage {
    let mut sum = Usage::default();
    for context in all()
        .iter()
        .filter(|context| context.backing.device == device)
    {
        let usage = context.pool.usage();
        sum.reserved_bytes += usage.reserved_bytes;
        sum.allocated_bytes += usage.allocated_bytes;
        sum.requested_bytes += usage.requested_bytes;
        sum.held_bytes += usage.held_bytes;
        sum.borrowed_bytes += usage.borrowed_bytes;
    }
    sum
}

/// Runs `with` on the pools until one owns what it looks for: the current context's first.
///
/// # Errors
/// The driver's code when it is not to be talked to: not initialised, gone at exit, the child of a fork.
pub fn with_owner<R>(mut with: impl FnMut(&Context) -> Option<R>) -> Result<Option<R>, Status> {
    thread::with(|thread| with_owner_of(thread, |context, _| with(context)))
}

/// Whether the context is the current one.
pub type IsCurrent = bool;

/// The same, with the calling thread's storage at hand.
///
/// # Errors
/// As [`with_owner`].
#[inline(always)]
pub fn with_owner_of<R>(
    thread: &Thread,
    mut with: impl FnMut(&Context, IsCurrent) -> Option<R>,
) -> Result<Option<R>, Status> {
    let mut tried = 0;
    let with_current = |context: &Context| {
        tried = context.serial;
        with(context, true)
    };
    let found = remembered(thread, current()?, with_current, find_pool);
    if let Some(Some(result)) = found {
        return Ok(Some(result));
    }
    loop {
        let generation = GENERATION.load(Ordering::Acquire);
        let found = all()
            .iter()
            .filter(|context| context.serial != tried)
            .find_map(|context| with(context, false));
        if found.is_some() || !is_unsettled(generation) {
            return Ok(found);
        }
        // One that is out may come back, and whatever it owns is no other's until then.
        std::thread::yield_now();
    }
}
