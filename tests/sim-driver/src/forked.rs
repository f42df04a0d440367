//! Whether this process was forked from one that had called `cuInit`. Such a child has nothing of the driver, and the
//! driver's lock may never be released there.
//!
//! A raw `clone` runs no handlers, so the mark is a page that the kernel wipes in every child with memory of its own.
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::*};

/// The page: 1 where the driver was initialised, 0 in a child.
static MARK: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());
/// The same, as a handler of `fork` saw it: for kernels that wipe no pages (before Linux 4.14).
static FORKED: AtomicBool = AtomicBool::new(false);

extern "C" fn forked() {
    FORKED.store(true, Release);
}

/// This process is no child of one that had the driver; its children will be. Called once, by `cuInit`.
pub fn watch() {
    // SAFETY: the function lives as long as the library, which is never unloaded.
    unsafe { libc::pthread_atfork(None, None, Some(forked)) };
    let page = 4096;
    // SAFETY: a new mapping of our own, which stays.
    unsafe {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let mark = libc::mmap(std::ptr::null_mut(), page, protection, flags, -1, 0);
        if mark == libc::MAP_FAILED || libc::madvise(mark, page, libc::MADV_WIPEONFORK) != 0 {
            return;
        }
        mark.cast::<u8>().write(1);
        MARK.store(mark.cast(), Release);
    }
}

/// Whether it is such a child.
pub fn is_child() -> bool {
    let mark = MARK.load(Acquire);
    // SAFETY: null, or the page of `watch`, which stays mapped.
    FORKED.load(Acquire) || (!mark.is_null() && unsafe { mark.read_volatile() } == 0)
}
