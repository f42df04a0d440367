//! What every exported function does before and after its own work.
use crate::abi::*;
use crate::{config, cost, engine, fault, forked, names, stats};
use std::cell::Cell;
use std::ffi::{c_char, CStr};
use std::fmt::{self, Write};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

/// `cuInit` has succeeded in this process.
pub static READY: AtomicBool = AtomicBool::new(false);
/// The process is ending: the driver has shut down.
pub static ENDED: AtomicBool = AtomicBool::new(false);

thread_local! {
    static PER_THREAD: Cell<bool> = const { Cell::new(false) };
    static THREAD: Cell<u64> = const { Cell::new(0) };
}

/// Whether the call under way means the per-thread stream when it says stream 0.
pub fn per_thread_default() -> bool {
    PER_THREAD.with(Cell::get)
}

/// A number for the calling thread, never used twice.
pub fn thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    THREAD.with(|t| {
        if t.get() == 0 {
            t.set(NEXT.fetch_add(1, Relaxed));
        }
        t.get()
    })
}

/// One exported function: its name and how often it was called.
pub struct Site {
    pub name: &'static str,
    pub calls: AtomicU64,
    pub failures: AtomicU64,
    pub next: AtomicPtr<Site>,
    listed: AtomicBool,
    /// The simulated driver is too old for it.
    absent: AtomicBool,
}

/// Every site that was called at least once, as a list.
pub static SITES: AtomicPtr<Site> = AtomicPtr::new(std::ptr::null_mut());

impl Site {
    pub const fn new(name: &'static str) -> Site {
        Site {
            name,
            calls: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            next: AtomicPtr::new(std::ptr::null_mut()),
            listed: AtomicBool::new(false),
            absent: AtomicBool::new(false),
        }
    }

    fn count(&'static self) {
        if !self.listed.swap(true, AcqRel) {
            self.absent.store(!names::exists(self.name), Release);
            let me = self as *const Site as *mut Site;
            let mut head = SITES.load(Acquire);
            loop {
                self.next.store(head, Release);
                match SITES.compare_exchange_weak(head, me, AcqRel, Acquire) {
                    Ok(_) => break,
                    Err(h) => head = h,
                }
            }
        }
        self.calls.fetch_add(1, Relaxed);
    }

    fn before_init(&self) -> bool {
        matches!(
            self.name,
            "cuInit"
                | "cuDriverGetVersion"
                | "cuGetErrorName"
                | "cuGetErrorString"
                | "cuGetProcAddress"
                | "cuGetProcAddress_v2"
                | "cuGetProcAddress_v2_ptsz"
                | "cuGetExportTable"
        )
    }

    fn per_thread(&self) -> bool {
        self.name.ends_with("_ptsz") || self.name.ends_with("_ptds")
    }
}

/// Runs one API call: life-cycle checks, injected faults, cost, the body, the log.
pub fn call(
    site: &'static Site,
    arguments: &dyn Fn(&mut String) -> fmt::Result,
    body: impl FnOnce() -> R,
) -> i32 {
    let config = config::get();
    // The time of day is not free: only where it is used.
    let start = (config.h200_costs || config.log.is_some()).then(Instant::now);
    site.count();
    for (name, milliseconds) in &config.slow {
        if name == site.name {
            std::thread::sleep(Duration::from_millis(*milliseconds));
        }
    }
    let code = if forked::is_child() && !site.before_init() {
        NOT_INITIALIZED
    } else if ENDED.load(Acquire) && !site.before_init() {
        DEINITIALIZED
    } else if !READY.load(Acquire) && !site.before_init() {
        NOT_INITIALIZED
    } else if engine::in_callback() && !site.before_init() {
        NOT_PERMITTED
    } else if site.absent.load(Acquire) {
        NOT_SUPPORTED
    } else if let Some(code) = fault::injected(site.name) {
        code
    } else {
        if let Some(start) = start {
            cost::charge(site.name, start);
        }
        let before = PER_THREAD.replace(site.per_thread());
        let result = catch_unwind(AssertUnwindSafe(body));
        PER_THREAD.set(before);
        match result {
            Ok(Ok(())) => 0,
            Ok(Err(code)) => code,
            Err(_) => UNKNOWN,
        }
    };
    if code != 0 && code != NOT_READY {
        site.failures.fetch_add(1, Relaxed);
    }
    if let (Some(_), Some(start)) = (&config.log, start) {
        let mut text = String::new();
        let _ = write!(text, "{}", site.name);
        let _ = arguments(&mut text);
        stats::log(&text, code, start);
    }
    code
}

/// An argument in the log: strings as text, all else as it prints.
pub struct Shown<'a, T>(pub &'static str, pub &'a T);

pub trait ShownString {
    fn show(&self, out: &mut String) -> fmt::Result;
}

impl ShownString for Shown<'_, *const c_char> {
    fn show(&self, out: &mut String) -> fmt::Result {
        if self.1.is_null() {
            return write!(out, " {}=null", self.0);
        }
        // SAFETY: string arguments are null or C strings, as the API asks.
        let text = unsafe { CStr::from_ptr(*self.1) };
        write!(out, " {}={:?}", self.0, text)
    }
}

/// Chosen by method look-up when the argument is not a string.
pub trait ShownDebug {
    fn show(&self, out: &mut String) -> fmt::Result;
}

impl<T: fmt::Debug> ShownDebug for &Shown<'_, T> {
    fn show(&self, out: &mut String) -> fmt::Result {
        write!(out, " {}={:?}", self.0, self.1)
    }
}

/// Defines exported functions. `fn a | b (args) { body }` exports the body under both names; names
/// that end in `_ptsz` or `_ptds` take stream 0 to mean the calling thread's own stream.
macro_rules! api {
    () => {};
    (fn $name:ident $(| $alias:ident)* ($($args:tt)*) $body:block $($rest:tt)*) => {
        const _: () = {
            api!(@imp ($($args)*) $body);
            api!(@exports [$name $($alias)*] ($($args)*));
        };
        api!($($rest)*);
    };
    (@exports [$($name:ident)*] $args:tt) => {
        $(api!(@export $name $args);)*
    };
    (@imp ($($arg:ident : $ty:ty),* $(,)?) $body:block) => {
        #[allow(unused_unsafe, unused_variables, clippy::too_many_arguments)]
        unsafe fn imp($($arg: $ty),*) -> crate::abi::R {
            // SAFETY: bodies read and write through the pointers their C caller passed; it owes
            // what the CUDA API asks of it: null, or valid for the documented access.
            unsafe { $body }
        }
    };
    (@export $name:ident ($($arg:ident : $ty:ty),* $(,)?)) => {
        /// # Safety
        /// As the CUDA driver API documents for the function of this name.
        #[no_mangle]
        #[allow(clippy::too_many_arguments)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> i32 {
            static SITE: crate::entry::Site = crate::entry::Site::new(stringify!($name));
            crate::entry::call(
                &SITE,
                &|_text| {
                    #[allow(unused_imports)]
                    use crate::entry::{Shown, ShownDebug, ShownString};
                    $((&Shown(stringify!($arg), &$arg)).show(_text)?;)*
                    Ok(())
                },
                // SAFETY: the arguments are passed on as they came.
                move || unsafe { imp($($arg),*) },
            )
        }
    };
}
