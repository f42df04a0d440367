//! The life of the process, as the shim lives it.
//!
//! ```text
//! asleep --first hooked call--> active --exit--> exiting
//!    |                            |
//!    +--CUSHION_DISABLE,          +--child of a fork, internal error--> passthrough
//!       privileged program--> passthrough
//! ```
//!
//! Asleep, the shim has no thread, no file and no heap of its own. A child that was forked before the shim was active
//! starts asleep and gets a report of its own; a child of an active process passes everything through for good, since
//! the driver does not work there either. Exiting changes the answer of no call: the report is final, and other threads are held
//! up (`exit.rs`).
//!
//! What is used by others: [`activate`], [`on_exit`], [`start_directory`], [`say`].

pub mod descriptor;
mod exit;
mod fork;
pub mod inside;
mod panic;
mod start;

pub use exit::{before_teardown, on_exit, Way};
pub use fork::is_awake;
pub use panic::broken_count;
pub use start::{is_forked, say, start_directory};

use cushion::config::Config;
use std::sync::atomic::{AtomicI32, AtomicU8, Ordering};

const ASLEEP: u8 = 0;
const WAKING: u8 = 1;
const ACTIVE: u8 = 2;
const DISABLED: u8 = 3;
const FORKED: u8 = 4;
const BROKEN: u8 = 5;
/// The process ends, and the driver with it.
const ENDING: u8 = 6;

static STATE: AtomicU8 = AtomicU8::new(ASLEEP);
/// The process that woke the shim: a vfork child shares our memory, but not this.
static OWNER: AtomicI32 = AtomicI32::new(0);

/// Wakes the shim if it is asleep; whether it is awake now. The first hooked call does this by itself.
#[cold]
pub fn activate() -> bool {
    loop {
        match STATE.load(Ordering::Acquire) {
            ASLEEP => {
                if is_disabled() {
                    STATE.store(DISABLED, Ordering::Release);
                    return false;
                }
                if STATE
                    .compare_exchange(ASLEEP, WAKING, Ordering::AcqRel, Ordering::Acquire)
                    .is_ok()
                {
                    wake();
                    return true;
                }
            }
            // Another thread is at it, unless we are the child of a fork in that very moment.
            WAKING
                if OWNER.load(Ordering::Acquire) == pid() || OWNER.load(Ordering::Acquire) == 0 =>
            {
                std::thread::yield_now();
            }
            ENDING if was_woken_here() => {
                exit::hold_up();
                return true;
            }
            ACTIVE if is_awake() => return true,
            WAKING | ACTIVE | ENDING => STATE.store(FORKED, Ordering::Release),
            _ => return false,
        }
    }
}

fn wake() {
    OWNER.store(pid(), Ordering::Release);
    panic::take_over();
    exit::watch();
    fork::arm();
    STATE.store(ACTIVE, Ordering::Release);
}

/// Gives up: every later call is the driver's.
fn give_up() {
    STATE.store(BROKEN, Ordering::Release);
    fork::disarm();
}

/// Starts a thread of the shim's own, with every signal blocked, so that none of the program's is delivered there. Whether it runs.
pub fn spawn_quietly(name: &str, body: impl FnOnce() + Send + 'static) -> bool {
    // SAFETY: sigset_t is plain data, and these calls only fill it and this thread's mask.
    let before = unsafe {
        let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        before
    };
    let started = std::thread::Builder::new()
        .name(name.into())
        .stack_size(512 << 10)
        .spawn(body);
    // SAFETY: restores the mask taken above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) };
    started.is_ok()
}

/// Whether the shim was woken in this very process, and not in one that it was forked from.
pub fn was_woken_here() -> bool {
    OWNER.load(Ordering::Acquire) == pid()
}

/// Whether this very process woke the shim, and it is still awake.
fn is_owner() -> bool {
    let is_active = match STATE.load(Ordering::Acquire) {
        ACTIVE => is_awake(),
        ENDING => true,
        _ => false,
    };
    is_active && was_woken_here()
}

/// From now on every call asks first whether it should be made ([`exit::hold_up`]).
fn end() {
    if STATE
        .compare_exchange(ACTIVE, ENDING, Ordering::AcqRel, Ordering::Acquire)
        .is_ok()
    {
        fork::disarm();
    }
}

fn pid() -> i32 {
    // SAFETY: no preconditions.
    unsafe { libc::getpid() }
}

/// Whether `CUSHION_DISABLE` or a privileged program has turned the shim off: no look-up is answered with a hook, and
/// exported functions go straight on.
pub fn is_disabled() -> bool {
    /// 0: not asked yet; 1: no; 2: yes.
    static ANSWER: AtomicU8 = AtomicU8::new(0);
    match ANSWER.load(Ordering::Relaxed) {
        0 => {
            let disabled = is_privileged() || asked_to();
            ANSWER.store(1 + u8::from(disabled), Ordering::Relaxed);
            disabled
        }
        answer => answer == 2,
    }
}

fn asked_to() -> bool {
    const NAME: &str = "CUSHION_DISABLE";
    let value = std::env::var_os(NAME).map(|value| (NAME.to_owned(), value));
    value.is_some() && Config::from_vars(value).0.disable.value
}

/// A set-user-ID program or its like: nothing in its environment is to be followed.
fn is_privileged() -> bool {
    // SAFETY: getauxval reads the process's auxiliary vector.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}
