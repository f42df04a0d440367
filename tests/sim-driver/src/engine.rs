//! Executes queued work, later and on its own.
//!
//! One thread looks after every stream: the operation at the head of a queue starts when what it
//! depends on is complete, ends when its time has passed, and takes effect then. Host functions run
//! on a thread of their own, so that other streams go on meanwhile.
use crate::abi::*;

use crate::action::{condition_holds, duration, perform, Action};
use crate::entry::ENDED;
use crate::state::{self, lock, State};
use crate::{config, fault};
use std::cell::Cell;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::Ordering::Acquire;
use std::sync::mpsc::{channel, Sender};
use std::sync::{Mutex, Once};
use std::time::{Duration, Instant};

/// A point in a stream's work: the stream and the number of an operation in it.
pub type Point = (Handle, u64);

pub struct Op {
    pub number: u64,
    pub after: Vec<Point>,
    pub action: Action,
    pub submitted: Instant,
    /// When it ends; none before it has started.
    pub due: Option<Instant>,
    /// A host function runs on the other thread.
    pub away: bool,
    pub finished: bool,
}

thread_local! {
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

pub fn in_callback() -> bool {
    IN_CALLBACK.with(Cell::get)
}

struct Call {
    stream: Handle,
    number: u64,
    action: Action,
    status: i32,
}

static CALLS: Mutex<Option<Sender<Call>>> = Mutex::new(None);

/// Starts the threads; the first queued operation does.
pub fn start() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let (sender, receiver) = channel::<Call>();
        *CALLS.lock().unwrap_or_else(|e| e.into_inner()) = Some(sender);
        quiet_thread("simcuda-engine", run);
        quiet_thread("simcuda-host", move || {
            IN_CALLBACK.set(true);
            for call in receiver {
                invoke(&call);
                let mut st = lock();
                if let Some(s) = st.streams.get_mut(&call.stream) {
                    if let Some(op) = s.queue.front_mut().filter(|o| o.number == call.number) {
                        op.finished = true;
                    }
                }
                state::work_arrived();
            }
        });
    });
}

/// A thread that takes none of the program's signals.
fn quiet_thread(name: &str, body: impl FnOnce() + Send + 'static) {
    // SAFETY: the sets are initialised before they are used; the old mask is put back.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut old: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut old);
        let _ = std::thread::Builder::new().name(name.into()).spawn(body);
        libc::pthread_sigmask(libc::SIG_SETMASK, &old, std::ptr::null_mut());
    }
}

fn invoke(call: &Call) {
    // SAFETY: the program gave function and argument for exactly this call.
    unsafe {
        match call.action {
            Action::Host(f, data) => {
                let f: extern "C" fn(usize) = std::mem::transmute(f);
                f(data);
            }
            Action::Callback(f, data, stream) => {
                let f: extern "C" fn(usize, i32, usize) = std::mem::transmute(f);
                f(stream, call.status, data);
            }
            _ => {}
        }
    }
}

/// The least time between a call and its effect.
fn latency() -> Duration {
    match config::get().seed {
        Some(_) => Duration::from_micros(2 + fault::random() % config::get().delay),
        None => Duration::from_micros(5),
    }
}

fn run() {
    // Wake when it is time, not up to 50 us later.
    // SAFETY: a setting of this thread only.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
    let mut st = lock();
    loop {
        if ENDED.load(Acquire) {
            return;
        }
        let result = catch_unwind(AssertUnwindSafe(|| pass(&mut st)));
        // Nobody could go on without the engine.
        let Ok((progress, next)) = result else {
            std::process::abort()
        };
        if progress {
            state::work_ended();
            continue;
        }
        let pause = next.map(|t| t.saturating_duration_since(Instant::now()));
        st = state::wait_for_work(st, pause);
    }
}

/// Looks at the head of every queue once: whether anything ended, and when something will.
fn pass(st: &mut State) -> (bool, Option<Instant>) {
    let mut progress = false;
    let mut next: Option<Instant> = None;
    let mut busy: Vec<Handle> = st.busy.iter().copied().collect();
    if config::get().seed.is_some() && busy.len() > 1 {
        let n = fault::random() as usize % busy.len();
        busy.rotate_left(n);
    }
    for key in busy {
        match step(st, key) {
            Step::Ended => progress = true,
            Step::At(t) => next = Some(next.map_or(t, |n: Instant| n.min(t))),
            Step::Blocked => {}
        }
    }
    (progress, next)
}

enum Step {
    Ended,
    At(Instant),
    Blocked,
}

fn step(st: &mut State, key: Handle) -> Step {
    let now = Instant::now();
    let Some(op) = st.streams.get(&key).and_then(|s| s.queue.front()) else {
        st.busy.remove(&key);
        return Step::Blocked;
    };
    if op.away && !op.finished {
        return Step::Blocked;
    }
    let due = match op.due {
        Some(t) => t,
        None => {
            if !op.after.iter().all(|p| st.complete(p)) {
                return Step::Blocked;
            }
            if !condition_holds(st, &op.action) {
                return Step::At(now + Duration::from_micros(50));
            }
            now.max(op.submitted + latency()) + duration(&op.action)
        }
    };
    let context = st.streams[&key].context;
    let error = st.contexts.get(&context).and_then(|c| c.error);
    let Some(op) = st.streams.get_mut(&key).and_then(|s| s.queue.front_mut()) else {
        return Step::Blocked;
    };
    op.due = Some(due);
    if due > now && error.is_none() {
        return Step::At(due);
    }
    let calls_host = matches!(op.action, Action::Host(..) | Action::Callback(..));
    if calls_host && !op.finished {
        op.away = true;
        let call = Call {
            stream: key,
            number: op.number,
            action: op.action.clone(),
            status: error.unwrap_or(0),
        };
        // After an error only callbacks are called, so that they can learn of it.
        if error.is_none() || matches!(op.action, Action::Callback(..)) {
            if let Some(sender) = &*CALLS.lock().unwrap_or_else(|e| e.into_inner()) {
                let _ = sender.send(call);
                return Step::Blocked;
            }
        }
    }
    let (action, number) = (
        std::mem::replace(&mut op.action, Action::Nothing),
        op.number,
    );
    if error.is_none() || matches!(action, Action::Record(..) | Action::Free(_)) {
        if let Err(code) = perform(st, &action) {
            if let Some(c) = st.contexts.get_mut(&context) {
                c.error = Some(code);
            }
        }
    }
    st.finish(key, number);
    Step::Ended
}

impl State {
    pub fn complete(&self, point: &Point) -> bool {
        self.streams
            .get(&point.0)
            .is_none_or(|s| s.completed >= point.1)
    }

    /// Puts an operation at the end of a stream's queue.
    pub fn enqueue(&mut self, key: Handle, after: Vec<Point>, action: Action) -> Point {
        start();
        let Some(s) = self.streams.get_mut(&key) else {
            return (key, 0);
        };
        s.submitted += 1;
        let number = s.submitted;
        s.queue.push_back(Op {
            number,
            after,
            action,
            submitted: Instant::now(),
            due: None,
            away: false,
            finished: false,
        });
        self.busy.insert(key);
        state::work_arrived();
        (key, number)
    }

    fn finish(&mut self, key: Handle, number: u64) {
        let Some(s) = self.streams.get_mut(&key) else {
            return;
        };
        s.queue.pop_front();
        s.completed = number;
        if s.queue.is_empty() {
            self.busy.remove(&key);
            if self.streams[&key].destroyed {
                self.streams.remove(&key);
            }
        }
    }
}
