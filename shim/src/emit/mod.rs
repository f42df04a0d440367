//! When reports are written: by one background thread that starts with the first allocation, and once more at the end.
//!
//! # Decision: who writes the last report
//! At exit() and quick_exit() the leaving thread writes it. At _exit() the caller may hold any lock, malloc's among
//! them, so there the background thread is asked, with a limit on the wait. No driver call is made in either case:
//! everything a report needs is host data.

mod facts;

use crate::device::{contexts, settings};
use crate::process::{self, Way};
use cushion::config::ReportTarget;
use cushion::report::{self, History, Reason};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

/// Longest that the end of the process waits for a report.
const LAST_WORD: Duration = Duration::from_secs(2);

static STARTED: Once = Once::new();
static RUNNING: AtomicBool = AtomicBool::new(false);
/// What the thread was asked for.
static ASKED: Mutex<Asked> = Mutex::new(Asked {
    last: false,
    done: false,
});
static CHANGED: Condvar = Condvar::new();
/// Held while a report is made and written.
static HISTORY: Mutex<Option<History>> = Mutex::new(None);

struct Asked {
    last: bool,
    done: bool,
}

/// The process allocates: from now on it is reported.
#[inline]
pub fn start() {
    STARTED.call_once(|| {
        for warning in &settings::get().warnings {
            process::say(&warning.to_string());
        }
        if matches!(settings::get().config.report.value, ReportTarget::Off) {
            return;
        }
        process::on_exit(at_exit);
        spawn();
    });
}

/// Starts the thread with every signal blocked, so that none of the program's is delivered there.
fn spawn() {
    // SAFETY: sigset_t is plain data, and these calls only fill it and this thread's mask.
    let before = unsafe {
        let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        before
    };
    let started = std::thread::Builder::new()
        .name("cushion".into())
        .stack_size(512 << 10)
        .spawn(run);
    RUNNING.store(started.is_ok(), Ordering::Release);
    // SAFETY: restores the mask taken above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) };
}

fn run() {
    let interval = settings::get().config.report_interval.value;
    let mut next = Instant::now() + interval;
    loop {
        let mut asked = lock(&ASKED);
        while !asked.last {
            let wait = match interval.is_zero() {
                true => Duration::MAX,
                false => next.saturating_duration_since(Instant::now()),
            };
            if wait.is_zero() {
                break;
            }
            asked = match wait == Duration::MAX {
                true => CHANGED.wait(asked).unwrap_or_else(PoisonError::into_inner),
                false => {
                    CHANGED
                        .wait_timeout(asked, wait)
                        .unwrap_or_else(PoisonError::into_inner)
                        .0
                }
            };
        }
        let last = asked.last;
        drop(asked);
        write(
            &mut lock(&HISTORY),
            if last { Reason::Exit } else { Reason::Periodic },
        );
        if last {
            lock(&ASKED).done = true;
            CHANGED.notify_all();
            return;
        }
        next = Instant::now() + interval;
    }
}

fn at_exit(way: Way) {
    if way == Way::Immediate && RUNNING.load(Ordering::Acquire) {
        ask_the_thread();
        return;
    }
    let deadline = Instant::now() + LAST_WORD;
    loop {
        if let Ok(mut history) = HISTORY.try_lock() {
            return write(&mut history, Reason::Exit);
        }
        if Instant::now() > deadline {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn ask_the_thread() {
    let deadline = Instant::now() + LAST_WORD;
    let Ok(mut asked) = ASKED.try_lock() else {
        return;
    };
    asked.last = true;
    CHANGED.notify_all();
    while !asked.done {
        let wait = deadline.saturating_duration_since(Instant::now());
        if wait.is_zero() {
            return;
        }
        asked = CHANGED
            .wait_timeout(asked, wait)
            .unwrap_or_else(PoisonError::into_inner)
            .0;
    }
}

fn write(history: &mut Option<History>, reason: Reason) {
    let ReportTarget::Path(pattern) = &settings::get().config.report.value else {
        return;
    };
    let history = history.get_or_insert_with(History::default);
    let path = pattern.path(
        &facts::path(history.sequence()),
        process::start_directory().unwrap_or("/".as_ref()),
    );
    let report = report::build(facts::input(reason), history);
    if let Err(warning) = report::write(&path, &report) {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| process::say(&warning.to_string()));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Every pool, dead or alive, has its figures in the report.
pub fn context_ended(context: &contexts::Context) {
    facts::retire(context);
}
