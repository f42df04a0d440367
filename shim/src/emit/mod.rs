//! When reports and traces are written: by one background thread that starts with the first allocation, and once more at
//! the end.
//!
//! # Decision: who writes the last report
//! At exit() and quick_exit() the leaving thread writes it. At _exit() the caller may hold any lock, malloc's among
//! them, so there the background thread is asked, with a limit on the wait. No driver call is made in either case:
//! everything a report needs is host data.
//!
//! # Decision: when the last report is written
//! At exit(), when the runtime is still there ([`Way::Leaving`] says why). What the program frees later, in handlers that it
//! registered before its first allocation, is written once more when all of them have run: if the leaving thread has called
//! since, or one that has ended meanwhile. What threads do that run on beside the end is not waited for.

mod ctl;
mod facts;

use crate::device::{contexts, idle, settings, share};
use crate::process::{self, Way};
use crate::table;
use crate::trace;
use cushion::config::{PathFacts, ReportTarget};
use cushion::lane;
use cushion::report::{self, History, Reason};
use std::cell::Cell;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

/// Longest that the end of the process waits for a report.
const LAST_WORD: Duration = Duration::from_secs(2);

/// How often the thread looks for what nobody wakes it for, if there is anything of that kind.
const TICK: Duration = Duration::from_millis(250);
/// The same while somebody speaks to it.
const SHORT_TICK: Duration = Duration::from_millis(20);

static STARTED: Once = Once::new();
static RUNNING: AtomicBool = AtomicBool::new(false);
/// What the thread was asked for.
static ASKED: Mutex<Asked> = Mutex::new(Asked {
    last: false,
    done: false,
    soon: false,
});
static CHANGED: Condvar = Condvar::new();
/// Held while a report is made and written.
static HISTORY: Mutex<Option<History>> = Mutex::new(None);

struct Asked {
    /// The last word.
    last: bool,
    /// The last word is said.
    done: bool,
    /// A look at what there is to do, now.
    soon: bool,
}

/// The process allocates: from now on it is reported.
#[inline]
pub fn start() {
    STARTED.call_once(|| {
        for warning in &settings::get().warnings {
            process::say(warning.message());
        }
        process::before_teardown();
        if is_reported() || has_ticks() {
            process::on_exit(at_exit);
            if idle::is_wanted() || ctl::is_wanted() {
                idle::prepare();
            }
            spawn();
        }
    });
}

fn is_reported() -> bool {
    !matches!(settings::get().config.report.value, ReportTarget::Off)
}

/// Whether the thread has work between reports.
fn has_ticks() -> bool {
    trace::is_wanted() || idle::is_wanted() || ctl::is_wanted()
}

/// Has the thread look now for what there is to do.
#[cold]
pub fn wake() {
    lock(&ASKED).soon = true;
    CHANGED.notify_all();
}

fn spawn() {
    RUNNING.store(process::spawn_quietly("cushion", run), Ordering::Release);
}

thread_local! {
    static IS_BACKGROUND: Cell<bool> = const { Cell::new(false) };
}

/// Whether this is the background thread.
pub fn is_background() -> bool {
    IS_BACKGROUND.try_with(Cell::get).unwrap_or(false)
}

fn run() {
    IS_BACKGROUND.set(true);
    let interval = settings::get().config.report_interval.value;
    let interval = (is_reported() && !interval.is_zero()).then_some(interval);
    let mut report_at = interval.map(|interval| Instant::now() + interval);
    let mut tick_at = Instant::now() + TICK;
    let mut server = ctl::open();
    let mut is_spoken_to = false;
    loop {
        let until_report = report_at.map(|at| at.saturating_duration_since(Instant::now()));
        let tick = if is_spoken_to { SHORT_TICK } else { TICK };
        let tick = has_ticks().then_some(tick);
        let is_last = rest(until_report.into_iter().chain(tick).min());
        if is_last {
            ctl::remove();
            let _ = write(&mut lock(&HISTORY), Reason::Exit);
            trace::finish(Instant::now() + LAST_WORD);
            lock(&ASKED).done = true;
            CHANGED.notify_all();
            return;
        }
        trace::flush();
        if tick_at <= Instant::now() {
            idle::tick(TICK);
            tick_at = Instant::now() + TICK;
        }
        is_spoken_to = ctl::serve(&mut server, || write(&mut lock(&HISTORY), Reason::Request));
        if report_at.is_some_and(|at| at <= Instant::now()) {
            let mut history = lock(&HISTORY);
            // The process is leaving: what it said last stays.
            if lock(&SAID_AT).is_none() {
                let _ = write(&mut history, Reason::Periodic);
            }
            report_at = interval.map(|interval| Instant::now() + interval);
        }
    }
}

/// Waits until something is asked for, or for this long. Whether it is the last word.
fn rest(longest: Option<Duration>) -> bool {
    let asked = lock(&ASKED);
    let nothing = |asked: &mut Asked| !asked.last && !asked.soon;
    let mut asked = match longest {
        Some(longest) => {
            CHANGED
                .wait_timeout_while(asked, longest, nothing)
                .unwrap_or_else(PoisonError::into_inner)
                .0
        }
        None => CHANGED
            .wait_while(asked, nothing)
            .unwrap_or_else(PoisonError::into_inner),
    };
    asked.soon = false;
    asked.last
}

fn at_exit(way: Way) {
    if way == Way::Immediate && RUNNING.load(Ordering::Acquire) {
        ask_the_thread();
        return;
    }
    ctl::remove();
    let deadline = Instant::now() + LAST_WORD;
    let calls = table::calls();
    if !lock(&SAID_AT)
        .as_ref()
        .is_some_and(|said_at| no_more_was_done(said_at, &calls))
    {
        write_by(deadline, calls);
    }
    match way {
        Way::Leaving => trace::flush(),
        _ => trace::finish(deadline),
    }
}

/// Calls made so far, when the last report was written.
static SAID_AT: Mutex<Option<table::Calls>> = Mutex::new(None);

/// Whether all who have called in between are other threads that run on.
fn no_more_was_done(before: &table::Calls, now: &table::Calls) -> bool {
    let own = lane::current();
    let runs_on = |number: usize| Some(number) != own && lane::is_taken(number);
    let mut lanes = before.by_lane.iter().zip(&now.by_lane).enumerate();
    before.shared == now.shared
        && lanes.all(|(number, (before, now))| before == now || runs_on(number))
}

fn write_by(deadline: Instant, calls: table::Calls) {
    loop {
        if let Ok(mut history) = HISTORY.try_lock() {
            let _ = write(&mut history, Reason::Exit);
            *lock(&SAID_AT) = Some(calls);
            return;
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

/// Writes a report; where it is, or why there is none.
fn write(history: &mut Option<History>, reason: Reason) -> Result<PathBuf, String> {
    let ReportTarget::Path(pattern) = &settings::get().config.report.value else {
        return Err("CUSHION_REPORT is off".to_owned());
    };
    let history = history.get_or_insert_with(History::default);
    let path = pattern.path(
        &facts::path(history.sequence()),
        process::start_directory().unwrap_or("/".as_ref()),
    );
    let report = report::build(facts::input(reason), history);
    match report::write(&path, &report) {
        Ok(()) => Ok(path),
        Err(warning) => {
            static ONCE: Once = Once::new();
            ONCE.call_once(|| process::say(warning.message()));
            Err(warning.to_string())
        }
    }
}

/// Whether the last word was asked for.
fn is_last_asked() -> bool {
    lock(&ASKED).last
}

/// The child of a fork has nothing of its parent's.
pub fn in_child() {
    ctl::close_in_child();
    share::close_in_child();
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Every pool, dead or alive, has its figures in the report.
pub fn context_ended(context: &contexts::Context) {
    facts::retire(context);
}

/// What tells this process's trace from others.
pub fn path_facts() -> PathFacts {
    facts::path(0)
}

/// What a trace says of the process.
pub fn trace_header() -> serde_json::Value {
    facts::trace_header()
}
