//! What is done when the library is loaded, into every program there is: three system calls.

use std::cell::UnsafeCell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

const PATH_MAX: usize = 4096;

/// Written once, by the constructor, before any thread of the program's can run.
struct Directory(UnsafeCell<[u8; PATH_MAX]>);

// SAFETY: written by the constructor alone; LENGTH, stored after it, says how much may be read.
unsafe impl Sync for Directory {}

static DIRECTORY: Directory = Directory(UnsafeCell::new([0; PATH_MAX]));
static LENGTH: AtomicUsize = AtomicUsize::new(0);
static PID: AtomicI32 = AtomicI32::new(0);
static HAS_STDERR: AtomicBool = AtomicBool::new(false);

/// The directory in which the program started: a program that changes it, and one that becomes a daemon, still leaves
/// its report there. None if it had none that can be named.
pub fn start_directory() -> Option<&'static Path> {
    let length = LENGTH.load(Ordering::Acquire);
    // SAFETY: the constructor wrote `length` bytes before it stored the length, and nobody writes again.
    let bytes = unsafe { std::slice::from_raw_parts(DIRECTORY.0.get().cast::<u8>(), length) };
    bytes
        .starts_with(b"/")
        .then(|| Path::new(OsStr::from_bytes(bytes)))
}

/// Whether this process was forked from one that was loaded with the shim, and did not start a program of its own since.
pub fn is_forked() -> bool {
    PID.load(Ordering::Relaxed) != super::pid()
}

/// Says one line to the user, on the standard error that the program was started with. If it had none, descriptor 2
/// may be a file of the program's own by now, and nothing is said.
pub fn say(text: &str) {
    if HAS_STDERR.load(Ordering::Relaxed) {
        let line = format!("cushion: {text}\n");
        // SAFETY: the bytes of `line`. A short or failed write loses a message, nothing else.
        unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
    }
}

#[ctor::ctor(unsafe)]
fn at_load() {
    // SAFETY: raw system calls, into a buffer that nobody reads before LENGTH is stored.
    let (length, flags) = unsafe {
        (
            libc::syscall(libc::SYS_getcwd, DIRECTORY.0.get(), PATH_MAX),
            libc::fcntl(libc::STDERR_FILENO, libc::F_GETFD),
        )
    };
    PID.store(super::pid(), Ordering::Relaxed);
    HAS_STDERR.store(flags != -1, Ordering::Relaxed);
    // The kernel counts the terminating zero.
    LENGTH.store(usize::try_from(length - 1).unwrap_or(0), Ordering::Release);
}
