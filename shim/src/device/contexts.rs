//! The contexts of this process and their pools.
//!
//! A [`Context`] is made when a context first allocates, and leaves the registry when the context is destroyed, reset or
//! released for good (hazard 15). Contexts that never allocate are remembered by handle only, because their work can
//! reach the memory of others.

use super::backing::DriverBacking;
use super::capture::{self, Capturing};
use super::scrub::Waiting;
use super::{limits, order, settings};
use crate::abi::*;
use crate::route::names;
use crate::{driver, emit};
use cushion::pool::{BackingError, Found, Pool, Usage};
use cushion::report::Context as Record;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

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

/// A context that is being used: whoever is about to end it waits until nobody has one of these.
///
/// # Decision: how a context leaves
/// Threads of the program that use other contexts go on while one is destroyed, and their fences and trims must neither
/// call the driver with a handle that is going away nor leave out work that has not ended. So a context that leaves is
/// taken out of the registry first; then those that use it are waited for; and until the driver has ended it, no fence
/// is made at all (the pool grows instead) and waits on the host wait for that end too.
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

/// Any live context of the process, with or without a pool.
struct Known {
    backing: DriverBacking,
    /// Whether it is its device's primary context.
    primary: AtomicBool,
    /// How many [`Reach`] there are.
    users: AtomicUsize,
    /// Uses of the program's: one for making it, one for each cuCtxAttach.
    attached: AtomicUsize,
}

#[derive(Default)]
struct Registry {
    pools: Vec<Arc<Context>>,
    known: Vec<Arc<Known>>,
    peers: bool,
    /// Contexts taken out whose end is not over.
    leaving: usize,
}

static REGISTRY: RwLock<Registry> = RwLock::new(Registry {
    pools: Vec::new(),
    known: Vec::new(),
    peers: false,
    leaving: 0,
});
/// Changes whenever a context leaves, so that no thread goes on with a remembered one.
static GENERATION: AtomicU64 = AtomicU64::new(1);

/// The context that this thread used last, with its handle and the generation that this holds for.
type Last = Option<(usize, u64, Arc<Context>)>;

thread_local! {
    static LAST: RefCell<Last> = const { RefCell::new(None) };
}

/// Length of the registry's list of known contexts, with those that are leaving.
static KNOWN_COUNT: AtomicUsize = AtomicUsize::new(0);

/// So many contexts are kept in the records.
const RECORDS_MAX: usize = 1024;
static RECORDS: Mutex<Vec<Record>> = Mutex::new(Vec::new());
static VERSION: AtomicI32 = AtomicI32::new(0);

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

/// Runs `with` on the current context, making its pool if this is its first allocation. `None`: no context is current,
/// and the driver has the right answer to whatever was asked.
pub fn with_current<R>(with: impl FnOnce(&Context) -> R) -> Option<R> {
    remembered(current().ok()?, with, find_or_make)
}

#[inline]
fn remembered<R>(
    handle: CUcontext,
    with: impl FnOnce(&Context) -> R,
    find: impl FnOnce(CUcontext) -> Option<Arc<Context>>,
) -> Option<R> {
    if handle.is_null() {
        return None;
    }
    let mut work = Some((with, find));
    let mut run = |last: &mut Last| {
        let (with, find) = work.take()?;
        let generation = GENERATION.load(Ordering::Acquire);
        if !matches!(last, Some((known, since, _)) if *known == handle as usize && *since == generation)
        {
            *last = Some((handle as usize, generation, find(handle)?));
        }
        last.as_ref().map(|(_, _, context)| with(context))
    };
    // A call from inside `with` (there is none today) and a thread whose storage is gone already look it up.
    LAST.try_with(|last| last.try_borrow_mut().map(|mut last| run(&mut last)))
        .ok()
        .and_then(Result::ok)
        .unwrap_or_else(|| run(&mut None))
}

fn find_pool(handle: CUcontext) -> Option<Arc<Context>> {
    let registry = REGISTRY.read().unwrap_or_else(PoisonError::into_inner);
    registry
        .pools
        .iter()
        .find(|c| c.backing.context == handle as usize)
        .cloned()
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
    if primary_is_active(device) && primary_handle(driver, device) == handle {
        note_primary(handle, device);
    }
    let mut version = 0;
    // SAFETY: the out-parameter is ours.
    if unsafe { (driver.driver_get_version)(&mut version) } == SUCCESS {
        VERSION.store(version, Ordering::Relaxed);
        if version > names::NEWEST {
            order::lose("the driver is newer than this version of cushion");
        }
    }
    emit::start();
    let budget = limits::budget(device);
    let made = Arc::new(Context {
        serial: serial_of(handle),
        pool: Pool::new(settings::pool(), budget),
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
    Some(made)
}

fn primary_handle(driver: &driver::Driver, device: CUdevice) -> CUcontext {
    let mut primary: CUcontext = std::ptr::null_mut();
    // SAFETY: the out-parameter is ours; what is retained is released at once.
    unsafe {
        if (driver.primary_retain)(&mut primary, device) == SUCCESS {
            (driver.primary_release)(device);
        }
    }
    primary
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
    let mut registry = REGISTRY.write().unwrap_or_else(PoisonError::into_inner);
    if registry
        .known
        .iter()
        .all(|known| known.backing.context != handle as usize)
    {
        let backing = DriverBacking::new(handle, device);
        record(backing.serial, device);
        registry.known.push(Arc::new(Known {
            backing,
            primary: AtomicBool::new(false),
            users: AtomicUsize::new(0),
            attached: AtomicUsize::new(1),
        }));
        let count = registry.known.len();
        registry.count();
        drop(registry);
        if count > 1 {
            // Nothing was submitted there yet: the program does not have the handle before we return.
            order::lose("a second context was made");
        }
    }
}

/// The version of CUDA that the driver supports, times 1000, once a context has been seen.
pub fn driver_version() -> Option<i32> {
    match VERSION.load(Ordering::Relaxed) {
        0 => None,
        version => Some(version),
    }
}

/// Every context that existed, for the report.
pub fn records() -> Vec<Record> {
    RECORDS
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone()
}

fn record(serial: u64, device: CUdevice) {
    let mut records = RECORDS.lock().unwrap_or_else(PoisonError::into_inner);
    if records.len() == RECORDS_MAX {
        // The first that is gone makes room; what it lost stays in the figures under its number.
        let gone = records
            .iter()
            .position(|record| record.destroyed)
            .unwrap_or(0);
        records.remove(gone);
    }
    records.push(Record {
        id: serial,
        device: device as u32,
        label: format!("context {serial} of device {device}"),
        destroyed: false,
    });
}

fn amend(serial: u64, change: impl FnOnce(&mut Record)) {
    let mut records = RECORDS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(record) = records.iter_mut().find(|record| record.id == serial) {
        change(record);
    }
}

/// `handle` is the primary context of `device`.
pub fn note_primary(handle: CUcontext, device: CUdevice) {
    let registry = REGISTRY.read().unwrap_or_else(PoisonError::into_inner);
    for known in registry.known.iter().filter(|k| k.backing.device == device) {
        let primary = known.backing.context == handle as usize;
        if !known.primary.swap(primary, Ordering::Relaxed) && primary {
            amend(known.backing.serial, |record| {
                record.label = format!("primary context of device {device}");
            });
        }
    }
}

/// The primary context of a device, if it was ever seen and has not ended.
pub fn primary_of(device: CUdevice) -> Option<CUcontext> {
    let registry = REGISTRY.read().unwrap_or_else(PoisonError::into_inner);
    let primary = |k: &&Arc<Known>| k.backing.device == device && k.primary.load(Ordering::Relaxed);
    registry
        .known
        .iter()
        .find(primary)
        .map(|k| k.backing.context as CUcontext)
}

/// Whether the driver has the primary context of `device` alive.
pub fn primary_is_active(device: CUdevice) -> bool {
    let Some(driver) = driver::get() else {
        return true;
    };
    let (mut flags, mut active) = (0, 1);
    // SAFETY: the out-parameters are ours.
    let code = driver::insistently(|| unsafe {
        (driver.primary_get_state)(device, &mut flags, &mut active)
    });
    code != SUCCESS || active != 0
}

/// Memory of one device can be reached from another from now on.
pub fn note_peers() {
    let known = |registry: &Registry| registry.peers;
    if known(&REGISTRY.read().unwrap_or_else(PoisonError::into_inner)) {
        return;
    }
    order::lose("peers share memory");
    REGISTRY
        .write()
        .unwrap_or_else(PoisonError::into_inner)
        .peers = true;
}

impl Registry {
    fn count(&self) {
        KNOWN_COUNT.store(self.known.len() + self.leaving, Ordering::Release);
    }
}

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

fn remove(handle: CUcontext) -> Option<Removed> {
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
    registry.leaving += 1;
    registry.count();
    GENERATION.fetch_add(1, Ordering::AcqRel);
    drop(registry);
    Some(Removed {
        known,
        captures: capture::end_all_of(handle),
        pool,
    })
}

/// What [`take_out`] took.
pub struct Removed {
    known: Option<Arc<Known>>,
    captures: Vec<Capturing>,
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
        registry.leaving -= 1;
        registry.count();
    }
}

/// The context lives on after all.
pub fn put_back(mut removed: Removed) {
    capture::put_back(std::mem::take(&mut removed.captures));
    let mut registry = REGISTRY.write().unwrap_or_else(PoisonError::into_inner);
    registry.known.extend(removed.known.take());
    registry.pools.extend(removed.pool.take());
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
    }
    sum
}

/// Runs `with` on the pools until one owns what it looks for: the current context's first.
///
/// # Errors
/// The driver's code when it is not to be talked to: not initialised, gone at exit, the child of a fork.
pub fn with_owner<R>(mut with: impl FnMut(&Context) -> Option<R>) -> Result<Option<R>, Status> {
    let mut tried = 0;
    let with_current = |context: &Context| {
        tried = context.serial;
        with(context)
    };
    let found = remembered(current()?, with_current, find_pool);
    if let Some(Some(result)) = found {
        return Ok(Some(result));
    }
    Ok(all()
        .iter()
        .filter(|context| context.serial != tried)
        .find_map(|context| with(context)))
}

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
    let found = with_owner(|context| match context.pool.find(address) {
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
/// `None` while one is leaving: its work cannot be fenced any more, and may not have ended.
pub fn reaching(own: &DriverBacking) -> Option<Vec<Reach>> {
    let registry = REGISTRY.read().unwrap_or_else(PoisonError::into_inner);
    if registry.leaving > 0 {
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

/// A driver call of the program answered `code`: if that is a sticky error, every context of the device it came from is
/// dead (hazard 26). The driver's sticky errors corrupt the whole process's use of that context.
pub fn observe(code: Status) {
    if code != SUCCESS && sticky(code) {
        mark_dead(code);
    }
}

#[cold]
fn mark_dead(code: Status) {
    let handle = current_handle() as usize;
    for context in all() {
        if context.backing.context == handle {
            context.dead.store(code, Ordering::Relaxed);
        }
    }
}

/// Errors after which a context answers every call with the same code (cuda.h: "the context cannot be used" and "leaves
/// the process in an inconsistent state").
fn sticky(code: Status) -> bool {
    matches!(
        code,
        214 | 220 | 221 | 226 | 700 | 702 | 710 | 714..=719 | 721
    )
}

/// Makes `wait`, the program's own wait for all work of `handle`'s context. If it succeeds, what was freed there before
/// it began needs no barrier any more, unless work of other contexts can reach the memory.
pub fn drained(handle: CUcontext, wait: impl FnOnce() -> Status) -> Status {
    let Some(context) = find_pool(handle) else {
        return wait();
    };
    let mark = context.pool.mark();
    let code = wait();
    if code == SUCCESS && is_alone(&context.backing) {
        context.pool.drained(mark);
    }
    observe(code);
    code
}
