//! The trace of this process (`CUSHION_TRACE`), as the hooks use it: each leaves an event, the background thread writes.
//!
//! An event costs the program's thread a clock reading, a turn and a place in a buffer. No file is touched there: the file
//! is made with the first flush. A child of a process that records is not awake, and so records nothing.

use crate::abi::CUdevice;
use crate::device::settings;
use crate::emit;
use crate::ledger::{self, Kind};
use crate::process;
use cushion::config::{ReportTarget, Warning};
use cushion::ledger::Tag;
use cushion::trace::{Action, Event, Recorded, TraceOptions, TraceWriter};
use once_cell::sync::OnceCell;
use std::cell::Cell;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const UNASKED: u8 = 0;
const OFF: u8 = 1;
const ON: u8 = 2;
static STATE: AtomicU8 = AtomicU8::new(UNASKED);
static WRITER: OnceCell<TraceWriter> = OnceCell::new();
static PATH: OnceCell<PathBuf> = OnceCell::new();
static IS_OPEN: AtomicBool = AtomicBool::new(false);
/// Sites whose names are in the file.
static NAMED_COUNT: AtomicUsize = AtomicUsize::new(0);

/// Whether the user wants a trace.
pub fn is_wanted() -> bool {
    !matches!(settings::get().config.trace.value, ReportTarget::Off)
}

#[inline]
fn writer() -> Option<&'static TraceWriter> {
    match STATE.load(Ordering::Acquire) {
        OFF => None,
        ON => WRITER.get(),
        _ => begin(),
    }
}

#[cold]
fn begin() -> Option<&'static TraceWriter> {
    if !is_wanted() {
        STATE.store(OFF, Ordering::Release);
        return None;
    }
    let limit = settings::get().config.trace_limit_bytes.value;
    let writer = WRITER.get_or_init(|| {
        TraceWriter::new(TraceOptions {
            max_file_bytes: limit.unwrap_or(u64::MAX),
            ..TraceOptions::default()
        })
    });
    STATE.store(ON, Ordering::Release);
    Some(writer)
}

/// The turn of a free that is about to be made. `None`: nothing is recorded.
#[inline]
pub fn turn() -> Option<u64> {
    writer().map(TraceWriter::turn)
}

/// Memory of this kind was given out, and the program does not know of it yet. `key`: as the ledger's.
#[inline]
pub fn allocated(kind: Kind, key: u64, size_bytes: u64, device: CUdevice, stream: u64, tag: Tag) {
    if let Some(writer) = writer() {
        let event = Event {
            kind,
            device: device as u32,
            site: tag.site().0,
            ..Event::alloc(id(kind, key), size_bytes, stream)
        };
        record(writer, None, event);
    }
}

/// The free whose turn this is was made.
#[inline]
pub fn freed(turn: Option<u64>, kind: Kind, key: u64, device: CUdevice) {
    if let (Some(_), Some(writer)) = (turn, writer()) {
        let event = Event {
            action: Action::Free,
            device: device as u32,
            ..Event::free(id(kind, key))
        };
        record(writer, turn, event);
    }
}

fn record(writer: &TraceWriter, turn: Option<u64>, event: Event) {
    let event = Event {
        thread: thread(),
        ..event
    };
    if writer.record(turn, event) == Recorded::HalfFull {
        emit::wake();
    }
}

/// Keys of different name spaces can be the same number; addresses have no more than 57 bits.
fn id(kind: Kind, key: u64) -> u64 {
    key ^ (kind.space() as u64) << 60
}

/// The kernel's number of this thread.
fn thread() -> u64 {
    thread_local! {
        static NUMBER: Cell<u64> = const { Cell::new(0) };
    }
    // SAFETY: no preconditions.
    let ask = || unsafe { libc::gettid() } as u64;
    NUMBER
        .try_with(|number| {
            if number.get() == 0 {
                number.set(ask());
            }
            number.get()
        })
        .unwrap_or_else(|_| ask())
}

/// Writes what waits, if anything was recorded. The background thread's.
pub fn flush() {
    let Some(writer) = WRITER.get() else { return };
    if !open(writer) {
        return;
    }
    name_sites(writer);
    if let Err(error) = writer.flush() {
        give_up(&error);
    }
}

/// Writes the rest and the end, waiting until `deadline` at most for another thread that is writing.
pub fn finish(deadline: Instant) {
    let Some(writer) = WRITER.get() else { return };
    if !open(writer) {
        return;
    }
    name_sites(writer);
    loop {
        match writer.try_finish() {
            Some(Ok(_)) => return,
            Some(Err(error)) => return give_up(&error),
            None if Instant::now() > deadline => return,
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

fn open(writer: &TraceWriter) -> bool {
    if IS_OPEN.load(Ordering::Acquire) {
        return true;
    }
    let ReportTarget::Path(pattern) = &settings::get().config.trace.value else {
        return false;
    };
    if STATE.load(Ordering::Acquire) == OFF {
        return false;
    }
    let path = PATH.get_or_init(|| {
        pattern.path(
            &emit::path_facts(),
            process::start_directory().unwrap_or("/".as_ref()),
        )
    });
    match writer.open(path, &emit::trace_header()) {
        Ok(()) => IS_OPEN.store(true, Ordering::Release),
        Err(error) => give_up(&error),
    }
    IS_OPEN.load(Ordering::Acquire)
}

fn name_sites(writer: &TraceWriter) {
    let sites = ledger::get().sites();
    let first = NAMED_COUNT.load(Ordering::Acquire);
    let names = sites.names_from(first);
    // Named once, whichever of two threads got here first.
    let after = first + names.len();
    if NAMED_COUNT
        .compare_exchange(first, after, Ordering::AcqRel, Ordering::Acquire)
        .is_ok()
    {
        for (at, name) in names.iter().enumerate() {
            writer.name_site((first + at) as u32, name);
        }
    }
}

fn give_up(error: &io::Error) {
    if STATE.swap(OFF, Ordering::AcqRel) != OFF {
        let path = PATH.get().map(|path| path.display().to_string());
        let path = path.unwrap_or_default();
        let line = Warning::new(format!("cannot write trace {path}: {error}"));
        process::say(line.message());
    }
}
