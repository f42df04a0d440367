//! Memory that goes back by the background thread: idle for long (`CUSHION_IDLE_TRIM`), or asked for from outside.
//!
//! # Decision: only beside a device that rests
//! The driver's free waits for the device, and whether other threads can call the driver meanwhile is the driver's
//! business. So this thread first looks, by an event of the whole context that it asks about and does not wait for,
//! whether all work has ended; while it has not, nothing is given back, and the next tick looks again. Nothing is done
//! while a stream captures, and the thread's own calls are shielded from a capture that begins meanwhile. A context is
//! held ([`contexts::Reach`]) for one segment at a time: whoever wants to end it waits for one free of the driver's at
//! most, and from the moment at which that thread has taken the context out of the registry it is not touched. A driver
//! without events of contexts (before CUDA 12.5) cannot be asked, and keeps its memory until somebody needs it.
//!
//! # Decision: not beside the process's end
//! The driver takes itself down in a handler of exit() that it registered before ours, and so after ours has run. Ours
//! waits until this thread has left the driver, and from then on it stays out.

use super::backing::{check, in_gate, lock, DriverBacking};
use super::contexts::{self, Context};
use super::{capture, settings};
use crate::abi::*;
use crate::driver::{self, ContextEvents, Driver, Shield};
use crate::process::{self, Way};
use cushion::pool::BackingError;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// For so long, and at times so far apart, a context is asked whether it rests.
pub(super) const MOMENT: Duration = Duration::from_millis(1);
const LOOK_APART: Duration = Duration::from_micros(50);
/// Longest that the end of the process waits for this thread.
const LEAVE_WAIT: Duration = Duration::from_secs(2);

type EventQuery = unsafe extern "C" fn(CUevent) -> Status;

/// Held while the background thread may call the driver. Whether it may not any more.
static STAYS_OUT: Mutex<bool> = Mutex::new(false);

/// Why not everything that is idle went back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Trimmed {
    /// Bytes given back.
    pub bytes: u64,
    /// A stream captured.
    pub captured: bool,
    /// A device was at work.
    pub was_busy: bool,
}

/// Makes sure that the background thread has left the driver before the driver takes itself down.
pub fn prepare() {
    process::on_exit(|way| {
        if way == Way::Leaving {
            stay_out();
        }
    });
}

fn stay_out() {
    let deadline = Instant::now() + LEAVE_WAIT;
    loop {
        if let Ok(mut stays_out) = STAYS_OUT.try_lock() {
            *stays_out = true;
            return;
        }
        if Instant::now() > deadline {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Makes a call of the driver from a thread of the shim's own. `None`: the process ends, and the driver with it.
pub fn beside_exit<R>(call: impl FnOnce() -> R) -> Option<R> {
    let stays_out = STAYS_OUT.lock().unwrap_or_else(PoisonError::into_inner);
    (!*stays_out && process::is_awake()).then(call)
}

/// Whether segments go back when they are idle for long.
pub fn is_wanted() -> bool {
    !settings::get().config.idle_trim.value.is_zero()
}

/// A tick of the background thread's clock has passed: gives back what has been idle for longer than the user wants.
pub fn tick(tick: Duration) {
    if !is_wanted() {
        return;
    }
    let longest = settings::get().config.idle_trim.value;
    let ticks = longest.as_nanos().div_ceil(tick.as_nanos().max(1));
    let ticks = u64::try_from(ticks).unwrap_or(u64::MAX);
    for context in contexts::all() {
        context.pool.tick();
        if context.pool.has_idle_for(ticks) {
            trim(&context, |context| {
                context.pool.trim_idle(&context.backing, ticks)
            });
        }
    }
}

/// Gives back every segment that is idle.
pub fn trim_all() -> Trimmed {
    let mut sum = Trimmed::default();
    for context in contexts::all() {
        let more = trim(&context, |context| match context.pool.cached_bytes() {
            0 => 0,
            // One segment less: the trim ends when so much is cached.
            cached => context.pool.trim(&context.backing, cached - 1),
        });
        sum.bytes += more.bytes;
        sum.captured |= more.captured;
        sum.was_busy |= more.was_busy;
    }
    sum
}

/// Gives segments back by `one` at a time, as long as that is right.
fn trim(context: &Context, one: impl Fn(&Context) -> u64) -> Trimmed {
    let mut trimmed = Trimmed::default();
    loop {
        let stays_out = STAYS_OUT.lock().unwrap_or_else(PoisonError::into_inner);
        if *stays_out || !process::is_awake() || context.dead().is_some() {
            return trimmed;
        }
        if capture::active() {
            trimmed.captured = true;
            return trimmed;
        }
        // Not one of the same handle that came after it.
        let alive = contexts::reach_of(context.backing.context as CUcontext)
            .filter(|reach| reach.backing().serial == context.serial);
        let (Some(_alive), Some(driver)) = (alive, driver::get()) else {
            return trimmed;
        };
        let _shield = Shield::raise(driver);
        match context.backing.rests_within(MOMENT) {
            Ok(true) => {}
            Ok(false) => {
                trimmed.was_busy = true;
                return trimmed;
            }
            Err(_) => return trimmed,
        }
        match one(context) {
            0 => return trimmed,
            bytes => trimmed.bytes += bytes,
        }
    }
}

impl DriverBacking {
    /// Whether all work that can reach this context's memory has ended, or does in so long. Asks, now and again.
    ///
    /// # Decision: once for the same work
    /// What was waited for in vain gets no more than a moment, until it has ended: it may wait for what the program does next. Then the next
    /// work is waited for again; else a program that was held up once would never give memory back before it runs out.
    pub(super) fn rests_within(&self, longest: Duration) -> Result<bool, BackingError> {
        let started = Instant::now();
        let driver = self.driver()?;
        let (Some(events), Some(query)) = (&driver.context_events, driver.event_query) else {
            return Err(BackingError::Unavailable);
        };
        let mut rests = true;
        contexts::each_reaching(self, false, |backing| {
            if rests {
                let longest = match backing.is_held(driver, query) {
                    true => MOMENT.min(longest),
                    false => longest,
                };
                let ended = backing.ends_by(driver, events, query, (started, longest));
                let looked = ended.map(|ended| rests = ended);
                return self.unless_dead(backing, looked);
            }
            Ok(())
        })?;
        Ok(rests)
    }

    /// Whether this context's work ends within so long after `started`.
    fn ends_by(
        &self,
        driver: &'static Driver,
        events: &ContextEvents,
        query: EventQuery,
        (started, longest): (Instant, Duration),
    ) -> Result<bool, BackingError> {
        let event = self.take_event(driver)?;
        let ended = in_gate(|| self.record(events, event)).and_then(|()| {
            // Not inside the gate.
            let _shield = Shield::raise(driver);
            loop {
                // SAFETY: the event is ours and alive.
                match unsafe { query(event) } {
                    NOT_READY if started.elapsed() < longest => std::thread::sleep(LOOK_APART),
                    NOT_READY => return Ok(false),
                    code => return check(code).map(|()| true),
                }
            }
        });
        let held = (ended == Ok(false) && longest > MOMENT).then_some(event as usize);
        let spare = match held {
            Some(_) => std::mem::replace(&mut *lock(&self.held), held),
            None => Some(event as usize),
        };
        if let Some(spare) = spare {
            self.spare_event(spare as CUevent);
        }
        ended
    }

    /// Whether work that was waited for in vain has not ended yet.
    fn is_held(&self, driver: &'static Driver, query: EventQuery) -> bool {
        // Out of its place while it is asked, so that nobody records it anew meanwhile.
        let Some(event) = lock(&self.held).take() else {
            return false;
        };
        let is_held = {
            let _shield = Shield::raise(driver);
            // SAFETY: the event is ours and alive.
            (unsafe { query(event as CUevent) }) == NOT_READY
        };
        let mut held = lock(&self.held);
        if is_held && held.is_none() {
            *held = Some(event);
        } else {
            drop(held);
            self.spare_event(event as CUevent);
        }
        is_held
    }
}
