//! A listening descriptor that the shim keeps, and that the program may take away: it closes what it has not opened, and what has
//! the number then is not ours. So it is known by its device and inode too.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

/// See the module.
pub struct Descriptor {
    number: AtomicI32,
    device: AtomicU64,
    inode: AtomicU64,
}

impl Descriptor {
    /// There is none yet.
    pub const fn none() -> Self {
        Descriptor {
            number: AtomicI32::new(-1),
            device: AtomicU64::new(0),
            inode: AtomicU64::new(0),
        }
    }

    /// It is this one from now on.
    pub fn keep(&self, number: RawFd, (device, inode): (u64, u64)) {
        self.device.store(device, Ordering::Relaxed);
        self.inode.store(inode, Ordering::Relaxed);
        self.number.store(number, Ordering::Release);
    }

    /// There is none any more: what has its number now, if anything, is not ours to close.
    pub fn forget(&self) {
        self.number.store(-1, Ordering::Release);
    }

    /// Whether it still is the one that was kept.
    pub fn is_ours(&self) -> bool {
        self.is(self.number.load(Ordering::Acquire))
    }

    fn is(&self, number: RawFd) -> bool {
        let kept = (
            self.device.load(Ordering::Relaxed),
            self.inode.load(Ordering::Relaxed),
        );
        number >= 0 && identity(number) == Some(kept)
    }

    /// In the child of a fork: the parent's is not the child's. Safe where a signal handler's calls are.
    pub fn close_in_child(&self) {
        let number = self.number.swap(-1, Ordering::AcqRel);
        if self.is(number) {
            // SAFETY: a descriptor that was checked to be the shim's own; the thread that used it is not in this process.
            unsafe { libc::close(number) };
        }
    }
}

/// Device and inode.
pub fn identity(number: RawFd) -> Option<(u64, u64)> {
    // SAFETY: plain data, filled by the call.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        (libc::fstat(number, &mut stat) == 0).then_some((stat.st_dev, stat.st_ino))
    }
}
