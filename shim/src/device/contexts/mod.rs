//! The contexts of this process and their pools.
//!
//! A [`Context`] is made when a context first allocates, and leaves the registry when the context is destroyed, reset or
//! released for good (hazard 15). Contexts that never allocate are remembered by handle only, because their work can
//! reach the memory of others.
//!
//! Here is the registry. `current` has the context that is current, `make` gives it its pool; `lookup` finds whose memory an address
//! is, `reach` whose work can reach it; `leaving` takes a context out, `primary` knows the primary ones, `observe` learns from the
//! outcome of the program's calls, and `records` tells the report of all.

mod current;
mod leaving;
mod lookup;
mod make;
mod observe;
mod primary;
mod reach;
mod records;

pub use current::{
    current_device, current_handle, current_place, refuses_all, with_current, with_owner,
    with_owner_of,
};
pub use leaving::{put_back, take_out, Removed};
pub use lookup::{find, find_with_owner, is_pooled, may_hold, note_segment};
pub use observe::{drained, is_sticky, observe};
pub use primary::{
    expect as expect_primary, life_of, note_primary, note_retained, primary_is_active, primary_of,
    released,
};
pub use reach::{
    before_hold, each_reaching, fence_all, forget_ended, is_alone, note_peers, note_work_anywhere,
    note_work_on, reach_of, reaching, Reach,
};
pub use records::{driver_version, note_mapped, note_unmapped, records};

use current::find_pool;
use leaving::{once_settled, Leaving};

use super::backing::DriverBacking;
use super::order;
use super::scrub::Waiting;
use crate::abi::*;
use cushion::pool::{Pool, Usage};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

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
    /// Contexts taken out whose end is not over.
    leaving: Vec<Leaving>,
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
