//! All of the driver's state, behind one lock, as the real driver's calls are serial too.
use crate::abi::*;
use crate::array::Array;
use crate::capture::Capture;
use crate::context::Context;
use crate::device::Device;
use crate::event::Event;
use crate::external::External;
use crate::forked;
use crate::graph::{Exec, Graph};
use crate::ipc::Opened;
use crate::library::Library;
use crate::module::{Function, Module};
use crate::pool::Pool;
use crate::ranges::Ranges;
use crate::stream::Stream;
use crate::vmm::{Physical, Reservation};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::c_void;
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, OnceLock};

pub type Table<T> = BTreeMap<Handle, T>;

/// What belongs to one host thread.
#[derive(Default)]
pub struct Thread {
    pub contexts: Vec<Handle>,
    /// cuThreadExchangeStreamCaptureMode: 0 global, 1 thread-local, 2 relaxed.
    pub capture_mode: u32,
    /// Its per-thread stream in each context.
    pub streams: HashMap<Handle, Handle>,
}

#[derive(Default)]
pub struct State {
    last_handle: Handle,
    pub devices: Vec<Device>,
    pub threads: HashMap<u64, Thread>,
    pub contexts: Table<Context>,
    pub streams: Table<Stream>,
    /// Streams with queued work.
    pub busy: BTreeSet<Handle>,
    pub events: Table<Event>,
    pub modules: Table<Module>,
    pub functions: Table<Function>,
    pub libraries: Table<Library>,
    pub graphs: Table<Graph>,
    pub execs: Table<Exec>,
    pub captures: BTreeMap<u64, Capture>,
    pub last_capture: u64,
    pub pools: Table<Pool>,
    pub arrays: Table<Array>,
    pub physical: Table<Physical>,
    pub reservations: BTreeMap<Ptr, Reservation>,
    pub opened: BTreeMap<Ptr, Opened>,
    pub external: Table<External>,
    pub ranges: Ranges,
}

impl State {
    pub fn handle(&mut self) -> Handle {
        // Beyond user space: whoever follows a handle faults.
        self.last_handle += 0x40;
        0xC0DE_0000_0000 + self.last_handle
    }

    pub fn thread(&mut self) -> &mut Thread {
        let thread = crate::entry::thread();
        self.threads.entry(thread).or_insert_with(|| {
            if let Some(&key) = AT_END_OF_THREAD.get() {
                // SAFETY: the key was made by `watch_threads`; its value is only seen to be there.
                unsafe { libc::pthread_setspecific(key, std::ptr::dangling()) };
            }
            Thread::default()
        })
    }

    pub fn device(&mut self, ordinal: i32) -> R<&mut Device> {
        usize::try_from(ordinal)
            .ok()
            .and_then(|i| self.devices.get_mut(i))
            .ok_or(INVALID_DEVICE)
    }
}

/// A thread's contexts end before the destructors of the thread storage that the program made after `cuInit` (measured).
static AT_END_OF_THREAD: OnceLock<libc::pthread_key_t> = OnceLock::new();

extern "C" fn thread_ends(_: *mut c_void) {
    // A forked child has nothing, and its lock may never be released.
    if !forked::is_child() {
        lock().threads.remove(&crate::entry::thread());
    }
}

/// Has the driver told of each thread's end from here on; called once, by `cuInit`.
pub fn watch_threads() {
    let mut key = 0;
    // SAFETY: the out-parameter is ours; the function lives as long as the library, which is never unloaded.
    if unsafe { libc::pthread_key_create(&mut key, Some(thread_ends)) } == 0 {
        let _ = AT_END_OF_THREAD.set(key);
    }
}

static STATE: LazyLock<Mutex<State>> = LazyLock::new(Mutex::default);
/// The engine has something to look at.
static WORK: Condvar = Condvar::new();
/// Some work has ended.
static DONE: Condvar = Condvar::new();

pub type Guard = MutexGuard<'static, State>;

pub fn lock() -> Guard {
    STATE.lock().unwrap_or_else(|e| e.into_inner())
}

/// Waits, with the lock released, until the condition holds.
pub fn wait_until(mut g: Guard, condition: impl Fn(&State) -> bool) -> Guard {
    while !condition(&g) {
        g = DONE.wait(g).unwrap_or_else(|e| e.into_inner());
    }
    g
}

/// Waits for work for at most this long.
pub fn wait_for_work(g: Guard, limit: Option<std::time::Duration>) -> Guard {
    match limit {
        Some(d) => WORK.wait_timeout(g, d).unwrap_or_else(|e| e.into_inner()).0,
        None => WORK.wait(g).unwrap_or_else(|e| e.into_inner()),
    }
}

pub fn work_arrived() {
    WORK.notify_one();
}

pub fn work_ended() {
    DONE.notify_all();
}
