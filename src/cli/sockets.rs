//! The sockets of processes that were killed: nobody removed them, and a machine on which servers end by a signal would
//! gather them.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{connect, socket_with, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::ctl::{directory, own_uid};

/// A younger one may be of a process that is about to listen.
const LEAST_AGE: Duration = Duration::from_secs(60);

/// Removes those of this user's in the directories of this environment. What cannot be looked at stays.
pub fn sweep() {
    let variable = |name| std::env::var_os(name);
    let (runtime, temporary) = (variable("XDG_RUNTIME_DIR"), variable("TMPDIR"));
    let directories = directory::candidates(runtime.as_deref(), temporary.as_deref(), own_uid());
    for directory in directories {
        if directory::check(&directory, own_uid()).is_err() {
            continue;
        }
        let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
        for path in entries.map(|entry| entry.path()) {
            if is_left(&path).unwrap_or(false) {
                // Another command may have been quicker.
                let _ = fs::remove_file(&path);
            }
        }
    }
}

/// Whether its process is gone and nobody listens. A process of a container has a number that means nothing here.
fn is_left(path: &Path) -> Option<bool> {
    let pid: u32 = path
        .file_name()?
        .to_str()?
        .strip_suffix(".sock")?
        .parse()
        .ok()?;
    let age = fs::symlink_metadata(path)
        .ok()?
        .modified()
        .ok()?
        .elapsed()
        .ok()?;
    let is_here = Path::new("/proc").join(pid.to_string()).exists();
    Some(!is_here && age >= LEAST_AGE && is_refused(path)?)
}

/// Asked without waiting: one that listens may be stopped.
fn is_refused(path: &Path) -> Option<bool> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?;
    let address = SocketAddrUnix::new(path).ok()?;
    Some(connect(&socket, &address) == Err(Errno::CONNREFUSED))
}
