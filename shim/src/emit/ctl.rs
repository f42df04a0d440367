//! `cushion ctl` speaks to this process: the background thread listens between its other work.
//!
//! The thread looks four times a second, and more often while somebody speaks. It never waits for a client
//! ([`cushion::ctl::Server`]); only a trim waits, a moment, for a device to rest.

use super::facts;
use crate::device::{idle, settings};
use crate::process::descriptor::Descriptor;
use cushion::config::Ctl;
use cushion::ctl::{directory, own_uid, Command, Server};
use once_cell::sync::OnceCell;
use serde_json::{json, Value};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// So long a trim waits for a device to rest.
const TRIM_PATIENCE: Duration = Duration::from_millis(500);
const TRIM_LOOK_APART: Duration = Duration::from_millis(10);

/// Held while the socket is made or removed, so that a process that ends while it is being made leaves none.
static PLACE: Mutex<Place> = Mutex::new(Place::NotYet);

enum Place {
    NotYet,
    At(PathBuf),
    /// The process ends.
    Ended,
}

/// Longest that the end of the process waits for the socket to be made.
const MADE_WITHIN: Duration = Duration::from_millis(500);
/// Why there is none.
static REFUSED: OnceCell<String> = OnceCell::new();
static DESCRIPTOR: Descriptor = Descriptor::none();

/// Whether this process is to be spoken to.
pub fn is_wanted() -> bool {
    settings::get().config.ctl.value == Ctl::On
}

/// Why it cannot be, though it was wanted.
pub fn refused() -> Option<&'static str> {
    REFUSED.get().map(String::as_str)
}

/// Begins to listen, if that is wanted.
pub fn open() -> Option<Server> {
    if !is_wanted() {
        return None;
    }
    let variable = |name| std::env::var_os(name);
    let (runtime, temporary) = (variable("XDG_RUNTIME_DIR"), variable("TMPDIR"));
    let directories = directory::candidates(runtime.as_deref(), temporary.as_deref(), own_uid());
    let mut place = PLACE.lock().unwrap_or_else(PoisonError::into_inner);
    if matches!(*place, Place::Ended) {
        return None;
    }
    match Server::open(&directories, std::process::id()) {
        Ok(server) => {
            let (number, identity) = server.descriptor();
            DESCRIPTOR.keep(number, identity);
            *place = Place::At(server.path().to_owned());
            Some(server)
        }
        Err(error) => {
            let _ = REFUSED.set(error.to_string());
            None
        }
    }
}

/// Answers who has come. `report` writes one and says where it is. Whether somebody is still speaking.
pub fn serve(
    server: &mut Option<Server>,
    mut report: impl FnMut() -> Result<PathBuf, String>,
) -> bool {
    let Some(open) = server else { return false };
    match open.serve(|command| answer(command, &mut report).to_string()) {
        Ok(soon) => soon,
        Err(_) => {
            DESCRIPTOR.forget();
            remove();
            *server = None;
            false
        }
    }
}

fn answer(command: Command, report: &mut dyn FnMut() -> Result<PathBuf, String>) -> Value {
    let mut said = json!({ "version": 1, "pid": std::process::id(), "command": command.word() });
    let more = match command {
        Command::Trim => trim(),
        Command::Stats => facts::figures(),
        Command::Report => match report() {
            Ok(path) => json!({ "path": path.to_string_lossy() }),
            Err(why) => json!({ "error": why }),
        },
    };
    if let (Some(said), Value::Object(more)) = (said.as_object_mut(), more) {
        said.extend(more);
    }
    said
}

fn trim() -> Value {
    let deadline = Instant::now() + TRIM_PATIENCE;
    let mut sum = idle::trim_all();
    while sum.was_busy && Instant::now() < deadline && !super::is_last_asked() {
        std::thread::sleep(TRIM_LOOK_APART);
        let bytes = sum.bytes;
        sum = idle::trim_all();
        sum.bytes += bytes;
    }
    json!({ "released_bytes": sum.bytes, "stream_captures": sum.captured, "device_busy": sum.was_busy })
}

/// The process ends: nobody is to find the socket any more.
pub fn remove() {
    let deadline = Instant::now() + MADE_WITHIN;
    loop {
        match PLACE.try_lock() {
            Ok(mut place) => {
                if let Place::At(path) = std::mem::replace(&mut *place, Place::Ended) {
                    let _ = std::fs::remove_file(path);
                }
                return;
            }
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(_) => return,
        }
    }
}

/// In the child of a fork: the parent's socket is not the child's. Safe where a signal handler's calls are.
pub fn close_in_child() {
    DESCRIPTOR.close_in_child();
}
