//! The real driver as a [`Backing`]: segments by cuMemAlloc, barriers by context-wide events, scrubs by memsets (see `lane`).
//!
//! # Decision: what a fence spans
//! A fence must order everything that can reach the memory. That is every stream of the context itself
//! (cuCtxRecordEvent sees them all, also those created later), and every other context of the device, and with peer
//! access those of other devices: then each of them records and each of them waits for all records (design.md, "Free
//! and reuse"). A driver older than 12.5 has no context-wide events; there a fence waits on the host.
//!
//! # Decision: which calls need the context to be current
//! Only those that make something: memory, events, streams. Recording and waiting name their context or their event, and
//! were measured to work with another context current, and with none (driver 580).

use super::contexts::{self, Reach};
use super::fences::Fences;
use super::lane::{make_event, Lane};
use super::pages::DriverPages;
use super::{capture, order, settings};
use crate::abi::*;
use crate::driver::{self, ContextEvents, Current, Driver, Shield};
use crate::emit;
use cushion::pool::{Backing, BackingError, Fence, Pages, Range, ScrubTicket};
use once_cell::sync::OnceCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

static SERIAL: AtomicU64 = AtomicU64::new(1);

/// One context of the real driver.
pub struct DriverBacking {
    /// Counts contexts of this process; never reused, unlike the driver's handle.
    pub serial: u64,
    /// The driver's handle.
    pub context: usize,
    /// The device's ordinal.
    pub device: CUdevice,
    /// Time that program threads waited on the host because of the pool, in nanoseconds.
    pub waited_ns: AtomicU64,
    lane: Mutex<Lane>,
    /// Mapped memory, once it was asked for; `None` inside: it cannot be had.
    pages: OnceCell<Option<DriverPages>>,
    spare_events: Mutex<Vec<usize>>,
    /// Of work that did not end while it was waited for as long as can be.
    pub(super) held: Mutex<Option<usize>>,
}

/// Longest that an allocation waits for work to end, so that memory can go back that need not. A queue of work is shorter.
const PATIENCE: Duration = Duration::from_secs(2);

/// A code of the driver's as the pool takes it.
pub fn check(code: Status) -> Result<(), BackingError> {
    match code {
        SUCCESS => Ok(()),
        OUT_OF_MEMORY => Err(BackingError::OutOfMemory),
        code => Err(BackingError::Failed(code)),
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl DriverBacking {
    /// A backing for one live context.
    pub fn new(context: CUcontext, device: CUdevice) -> Self {
        DriverBacking {
            serial: SERIAL.fetch_add(1, Ordering::Relaxed),
            context: context as usize,
            device,
            waited_ns: AtomicU64::new(0),
            lane: Mutex::new(Lane::new()),
            pages: OnceCell::new(),
            spare_events: Mutex::new(Vec::new()),
            held: Mutex::new(None),
        }
    }

    /// The mapped memory of this context, if it has any.
    pub fn mapped(&self) -> Option<&DriverPages> {
        self.pages.get()?.as_ref()
    }

    /// The same, if this address lies in it.
    pub fn mapped_at(&self, address: CUdeviceptr) -> Option<&DriverPages> {
        self.mapped().filter(|pages| pages.holds(address))
    }

    /// Whether memory of this context may be mapped.
    pub fn is_mapping(&self) -> bool {
        self.mapped().is_some()
    }

    pub(super) fn driver(&self) -> Result<&'static Driver, BackingError> {
        driver::get().ok_or(BackingError::Unavailable)
    }

    fn enter(&self, driver: &'static Driver) -> Result<Current<'static>, BackingError> {
        Current::enter(driver, self.context as CUcontext).or_else(|code| {
            check(code)?;
            Err(BackingError::Unavailable)
        })
    }

    /// A thread has waited on the host since `started`. The program's threads count.
    fn note_wait(&self, started: Instant) {
        if !emit::is_background() {
            let waited_ns = started.elapsed().as_nanos() as u64;
            self.waited_ns.fetch_add(waited_ns, Ordering::Relaxed);
        }
    }

    /// Runs `with` with an event of this context.
    pub(super) fn with_event<R>(
        &self,
        driver: &'static Driver,
        with: impl FnOnce(CUevent) -> Result<R, BackingError>,
    ) -> Result<R, BackingError> {
        let event = self.take_event(driver)?;
        let outcome = with(event);
        self.spare_event(event);
        outcome
    }

    /// An event of this context that nobody else uses.
    pub(super) fn take_event(&self, driver: &'static Driver) -> Result<CUevent, BackingError> {
        let spare = lock(&self.spare_events).pop();
        match spare {
            Some(event) => Ok(event as CUevent),
            None => {
                let _current = self.enter(driver)?;
                make_event(driver)
            }
        }
    }

    /// That event may be used for something else.
    pub(super) fn spare_event(&self, event: CUevent) {
        lock(&self.spare_events).push(event as usize);
    }

    /// Records everything submitted to this context so far. Inside the gate only.
    pub(super) fn record(
        &self,
        events: &ContextEvents,
        event: CUevent,
    ) -> Result<(), BackingError> {
        // SAFETY: context and event are live and belong together.
        check(unsafe { (events.record)(self.context as CUcontext, event) })
    }

    /// Makes later work of this context wait for `event`. Inside the gate only.
    fn wait(&self, events: &ContextEvents, event: CUevent) -> Result<(), BackingError> {
        // SAFETY: context and event are live.
        check(unsafe { (events.wait)(self.context as CUcontext, event) })
    }

    /// Records what was submitted so far in every context that can reach this one's memory, and hands each event to
    /// `each`, with everything that can reach it. All of it inside the gate.
    fn record_all(
        &self,
        driver: &'static Driver,
        events: &ContextEvents,
        mut each: impl FnMut(&[Reach], CUevent) -> Result<(), BackingError>,
    ) -> Result<(), BackingError> {
        match self.record_once(driver, events, &mut each) {
            // Perhaps a context ended unseen, and has no work left. Recording and waiting once more does no harm.
            Err(BackingError::Failed(INVALID_CONTEXT | CONTEXT_IS_DESTROYED))
                if contexts::forget_ended(self) =>
            {
                self.record_once(driver, events, &mut each)
            }
            outcome => outcome,
        }
    }

    fn record_once(
        &self,
        driver: &'static Driver,
        events: &ContextEvents,
        mut each: impl FnMut(&[Reach], CUevent) -> Result<(), BackingError>,
    ) -> Result<(), BackingError> {
        if contexts::is_alone(self) {
            return self.with_event(driver, |event| {
                in_gate(|| {
                    self.record(events, event)?;
                    each(&[], event)
                })
            });
        }
        let reach = contexts::reaching(self).ok_or(BackingError::Unavailable)?;
        for other in &reach {
            // What is recorded here is later than for the contexts before it, which is harmless: each record is before
            // all waits that matter, those of the contexts that get the memory next.
            let mut passed_on = Ok(());
            let recorded = other.backing().with_event(driver, |event| {
                in_gate(|| {
                    other.backing().record(events, event)?;
                    passed_on = each(&reach, event);
                    Ok(())
                })
            });
            self.unless_dead(other.backing(), recorded)?;
            passed_on?;
        }
        Ok(())
    }

    /// What came of asking `other` for its part. One that has died of an error has no work left, and the error is not this one's to tell.
    pub(super) fn unless_dead(
        &self,
        other: &DriverBacking,
        outcome: Result<(), BackingError>,
    ) -> Result<(), BackingError> {
        match outcome {
            Err(BackingError::Failed(code))
                if other.context != self.context && contexts::is_sticky(code) =>
            {
                Ok(())
            }
            outcome => outcome,
        }
    }

    /// Makes later work of all that can reach this one's memory wait for `event`. Inside the gate only.
    fn wait_in_all(
        &self,
        reach: &[Reach],
        events: &ContextEvents,
        event: CUevent,
    ) -> Result<(), BackingError> {
        reach.iter().try_for_each(|other| {
            self.unless_dead(other.backing(), other.backing().wait(events, event))
        })
    }

    /// A barrier of this context alone, whose event is kept.
    fn watched_fence(
        &self,
        driver: &'static Driver,
        events: &ContextEvents,
        fences: &Fences,
    ) -> Result<Fence, BackingError> {
        let event = match fences.spare() {
            Some(event) => event,
            None => {
                let _current = self.enter(driver)?;
                make_event(driver)?
            }
        };
        let made = in_gate(|| {
            self.record(events, event)?;
            self.wait(events, event)
        });
        match made {
            Ok(()) => Ok(fences.keep(event)),
            Err(error) => {
                fences.give_back(event);
                Err(error)
            }
        }
    }

    /// The lane, with all that the next scrub needs.
    fn prepared_lane(&self, driver: &'static Driver) -> Result<MutexGuard<'_, Lane>, BackingError> {
        let mut lane = lock(&self.lane);
        if !lane.is_prepared() {
            let _current = self.enter(driver)?;
            lane.prepare(driver)?;
        }
        Ok(lane)
    }

    /// Waits on the host for all work that can reach this context's memory; the patient also for a context to end.
    fn wait_on_host(&self, driver: &'static Driver, patient: bool) -> Result<(), BackingError> {
        let started = Instant::now();
        let outcome = match &driver.context_events {
            Some(events) => match self.wait_for_events(driver, events, patient) {
                // There is no room for an event.
                Err(BackingError::OutOfMemory) => self.wait_for_contexts(driver, patient),
                outcome => outcome,
            },
            None => self.wait_for_contexts(driver, patient),
        };
        self.note_wait(started);
        outcome
    }

    /// Decision: only the recording is inside the gate. The wait itself is per event and shielded, so it neither hurts a
    /// capture that another thread begins meanwhile nor keeps that thread from beginning it.
    fn wait_for_events(
        &self,
        driver: &'static Driver,
        events: &ContextEvents,
        patient: bool,
    ) -> Result<(), BackingError> {
        contexts::each_reaching(self, patient, |backing| {
            let waited = backing.with_event(driver, |event| {
                in_gate(|| backing.record(events, event))?;
                let _shield = Shield::raise(driver);
                // SAFETY: the event is ours and alive.
                check(unsafe { (driver.event_synchronize)(event) })
            });
            self.unless_dead(backing, waited)
        })
    }

    /// Without context-wide events, or room for one, the wait itself must not meet a capture, so here it is inside the gate: a thread that
    /// begins a capture waits for it.
    fn wait_for_contexts(
        &self,
        driver: &'static Driver,
        patient: bool,
    ) -> Result<(), BackingError> {
        contexts::each_reaching(self, patient, |backing| {
            let waited = backing.enter(driver).and_then(|_current| {
                // SAFETY: no arguments; the context is current.
                in_gate(|| check(unsafe { (driver.ctx_synchronize)() }))
            });
            self.unless_dead(backing, waited)
        })
    }
}

/// Runs context-wide calls, unless a stream captures.
pub(super) fn in_gate<R>(
    calls: impl FnOnce() -> Result<R, BackingError>,
) -> Result<R, BackingError> {
    capture::context_wide(calls).unwrap_or(Err(BackingError::Unavailable))
}

impl Backing for DriverBacking {
    fn reserve(&self, size_bytes: u64) -> Result<u64, BackingError> {
        let driver = self.driver()?;
        let _current = self.enter(driver)?;
        let mut address: CUdeviceptr = 0;
        // SAFETY: the out-parameter is ours; the context is current.
        check(unsafe { (driver.mem_alloc)(&mut address, size_bytes as usize) })?;
        contexts::note_segment(address, size_bytes);
        Ok(address)
    }

    fn release(&self, segment: Range) -> Result<(), BackingError> {
        let driver = self.driver()?;
        if !contexts::is_alone(self) {
            // The driver's free was measured to wait for the streams of its own context. What else can reach the memory
            // comes first, or the pool would take it for ended.
            self.fence()?;
        }
        let _current = self.enter(driver)?;
        // The program's call may be one that a capture does not mind.
        let _shield = capture::active().then(|| Shield::raise(driver));
        let started = Instant::now();
        // SAFETY: the segment came from `reserve`, and the pool has forgotten it (FORGET-FIRST).
        let outcome = check(unsafe { (driver.mem_free)(segment.address) });
        self.note_wait(started);
        outcome
    }

    fn rests_soon(&self) -> bool {
        let started = Instant::now();
        // What cannot be known is found out by the release.
        let rests = self.rests_within(PATIENCE).unwrap_or(true);
        self.note_wait(started);
        rests
    }

    fn fence(&self) -> Result<Fence, BackingError> {
        let driver = self.driver()?;
        let Some(events) = &driver.context_events else {
            return self.wait_on_host(driver, false).map(|()| Fence::UNWATCHED);
        };
        if let Some(pages) = self.mapped().filter(|_| contexts::is_alone(self)) {
            match self.watched_fence(driver, events, pages.fences()) {
                Err(BackingError::Failed(INVALID_CONTEXT | CONTEXT_IS_DESTROYED)) => {}
                outcome => return outcome,
            }
        }
        self.record_all(driver, events, |reach, event| match reach {
            [] => self.wait(events, event),
            _ => self.wait_in_all(reach, events, event),
        })
        .map(|()| Fence::UNWATCHED)
    }

    fn synchronize(&self) -> Result<(), BackingError> {
        self.wait_on_host(self.driver()?, true)
    }

    /// Whoever trims keeps its context from ending ([`Reach`]), so it cannot wait for the end of one.
    fn synchronize_now(&self) -> Result<(), BackingError> {
        self.wait_on_host(self.driver()?, false)
    }

    fn begin_scrub(&self, ranges: &[Range], byte: u8) -> Result<ScrubTicket, BackingError> {
        let driver = self.driver()?;
        if order::is_given() {
            let _current = self.enter(driver)?;
            let mut lane = lock(&self.lane);
            let filled = in_gate(|| match order::is_given() {
                true => lane.fill_in_order(driver, ranges, byte).map(Some),
                false => Ok(None),
            })?;
            if let Some(ticket) = filled {
                return Ok(ticket);
            }
        }
        if driver.context_events.is_none() {
            self.wait_on_host(driver, false)?;
        }
        let mut lane = self.prepared_lane(driver)?;
        if let Some(events) = &driver.context_events {
            self.record_all(driver, events, |_, event| lane.wait_for(driver, event))?;
        }
        // Nothing but a capture can mind; and begun captures are looked for once more by `join_scrub`.
        let _shield = capture::active().then(|| Shield::raise(driver));
        lane.fill(driver, ranges, byte)
    }

    /// A barrier in place holds for the lane's stream, too.
    fn begin_scrub_behind_barrier(
        &self,
        ranges: &[Range],
        byte: u8,
    ) -> Result<ScrubTicket, BackingError> {
        // Until the order of the one stream is lost, that may be the barrier.
        if !order::is_lost() {
            return self.begin_scrub(ranges, byte);
        }
        if capture::active() {
            return Err(BackingError::Unavailable);
        }
        let driver = self.driver()?;
        let mut lane = self.prepared_lane(driver)?;
        // One may begin meanwhile.
        let _shield = Shield::raise(driver);
        lane.fill(driver, ranges, byte)
    }

    fn join_scrub(&self, ticket: ScrubTicket) -> Result<(), BackingError> {
        let driver = self.driver()?;
        let event = {
            let lane = lock(&self.lane);
            if lane.is_in_order(ticket) {
                return Ok(());
            }
            lane.event(ticket)
        };
        let Some(events) = &driver.context_events else {
            let _shield = Shield::raise(driver);
            // SAFETY: the event is ours and alive.
            return check(unsafe { (driver.event_synchronize)(event) });
        };
        if contexts::is_alone(self) {
            return in_gate(|| self.wait(events, event));
        }
        let reach = contexts::reaching(self).ok_or(BackingError::Unavailable)?;
        in_gate(|| self.wait_in_all(&reach, events, event))
    }

    fn sole_stream(&self) -> bool {
        order::is_given()
    }

    fn pages(&self) -> Option<&dyn Pages> {
        if !settings::get().config.backing.value.is_mapped() {
            return None;
        }
        let pages = match self.pages.get() {
            Some(pages) => pages.as_ref(),
            // What the first try would do to a capture was not measured.
            None if capture::active() => None,
            None => self
                .pages
                .get_or_init(|| {
                    let pages = DriverPages::probe(self.driver().ok()?, self.device, self.context)?;
                    contexts::note_mapped(self.context as CUcontext);
                    Some(pages)
                })
                .as_ref(),
        };
        pages.map(|pages| pages as &dyn Pages)
    }
}
