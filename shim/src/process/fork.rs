//! Knowing a forked child: a page that the kernel gives to no child with its contents.
//!
//! The page says "awake". In a child of any kind that has memory of its own (fork, raw clone) it reads zero, at the
//! price of one load per call and no system call.

use super::{FORKED, STATE};
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

/// The page's stand-in before waking, and for kernels before 4.14.
static PLAIN: AtomicU8 = AtomicU8::new(0);
static PAGE: AtomicPtr<AtomicU8> = AtomicPtr::new((&raw const PLAIN).cast_mut());

extern "C" {
    fn pthread_atfork(
        prepare: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
    ) -> libc::c_int;
}

/// Whether hooks work in this process. False while asleep, and in a child of a process in which they work.
#[inline]
pub fn is_awake() -> bool {
    awake().load(Ordering::Acquire) != 0
}

/// Marks this process as awake.
pub fn arm() {
    if let Some(page) = wiped_page() {
        PAGE.store(page, Ordering::Release);
    }
    // Besides the page: for kernels without it. Child handlers run before fork returns there.
    // SAFETY: the handler lives as long as this library, which nobody unloads.
    unsafe { pthread_atfork(None, None, Some(in_child)) };
    awake().store(1, Ordering::Release);
}

/// Marks this process as not awake.
pub fn disarm() {
    awake().store(0, Ordering::Release);
}

fn awake() -> &'static AtomicU8 {
    // SAFETY: PAGE points at `PLAIN` or at the first byte of a page that is never unmapped.
    unsafe { &*PAGE.load(Ordering::Relaxed) }
}

fn wiped_page() -> Option<*mut AtomicU8> {
    const SIZE: usize = 4096;
    // SAFETY: a new anonymous mapping, of which nobody else knows.
    unsafe {
        let page = libc::mmap(
            std::ptr::null_mut(),
            SIZE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        if page == libc::MAP_FAILED {
            return None;
        }
        if libc::madvise(page, SIZE, libc::MADV_WIPEONFORK) != 0 {
            libc::munmap(page, SIZE);
            return None;
        }
        Some(page.cast())
    }
}

extern "C" fn in_child() {
    disarm();
    STATE.store(FORKED, Ordering::Release);
    crate::emit::in_child();
}
