//! The real driver as a [`Backing`]: segments by cuMemAlloc, barriers by context-wide events, scrubs on a stream of our own.
//!
//! # Decision: what a fence spans
//! A fence must order everything that can reach the memory. That is every stream of the context itself
//! (cuCtxRecordEvent sees them all, also those created later), and every other context of the device, and with peer
//! access those of other devices: then each of them records and each of them waits for all records (design.md, "Free
//! and reuse"). A driver older than 12.5 has no context-wide events; there a fence waits on the host.

use super::{capture, contexts};
use crate::abi::*;
use crate::driver::{self, Current, Driver, Shield};
use cushion::pool::{Backing, BackingError, Range, ScrubTicket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

const EVENT_DISABLE_TIMING: u32 = 2;
const STREAM_NON_BLOCKING: u32 = 1;
/// Scrub events kept apart. A ticket older than the ring waits for a later one: the stream is in order, so that is
/// only longer, never wrong.
const RING: usize = 32;

static SERIAL: AtomicU64 = AtomicU64::new(1);

/// One context of the real driver.
pub struct DriverBacking {
    /// Counts contexts of this process; never reused, unlike the driver's handle.
    pub serial: u64,
    /// The driver's handle.
    pub context: usize,
    /// The device's ordinal.
    pub device: CUdevice,
    lane: Mutex<Option<Lane>>,
    spare_events: Mutex<Vec<usize>>,
    /// Time that program threads waited on the host because of the pool, in nanoseconds.
    pub waited_ns: AtomicU64,
}

/// The scrub stream with its events; lives as long as its context.
struct Lane {
    stream: usize,
    events: [usize; RING],
    next_ticket: u64,
}

fn refusal(code: Status) -> BackingError {
    match code {
        OUT_OF_MEMORY => BackingError::OutOfMemory,
        code => BackingError::Failed(code),
    }
}

fn check(code: Status) -> Result<(), BackingError> {
    if code == SUCCESS {
        Ok(())
    } else {
        Err(refusal(code))
    }
}

impl DriverBacking {
    /// A backing for one live context.
    pub fn new(context: CUcontext, device: CUdevice) -> Self {
        DriverBacking {
            serial: SERIAL.fetch_add(1, Ordering::Relaxed),
            context: context as usize,
            device,
            lane: Mutex::new(None),
            spare_events: Mutex::new(Vec::new()),
            waited_ns: AtomicU64::new(0),
        }
    }

    fn driver(&self) -> Result<&'static Driver, BackingError> {
        driver::get().ok_or(BackingError::Unavailable)
    }

    fn enter(&self, driver: &'static Driver) -> Result<Current<'static>, BackingError> {
        Current::enter(driver, self.context as CUcontext).map_err(refusal)
    }

    /// An event of this context for one use; [`Self::give_event`] takes it back. The context must be current.
    pub(super) fn take_event(&self, driver: &Driver) -> Result<CUevent, BackingError> {
        if let Some(event) = self
            .spare_events
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop()
        {
            return Ok(event as CUevent);
        }
        let _shield = Shield::raise(driver);
        let mut event: CUevent = std::ptr::null_mut();
        // SAFETY: the out-parameter is ours.
        check(unsafe { (driver.event_create)(&mut event, EVENT_DISABLE_TIMING) })?;
        Ok(event)
    }

    pub(super) fn give_event(&self, event: CUevent) {
        self.spare_events
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(event as usize);
    }

    /// Records a context-wide event here. Must be called inside the gate.
    fn record(&self, driver: &'static Driver, event: CUevent) -> Result<(), BackingError> {
        let record = driver.ctx_record_event.ok_or(BackingError::Unavailable)?;
        // SAFETY: context and event are live and belong together.
        check(unsafe { record(self.context as CUcontext, event) })
    }

    /// Makes later work of this context wait for `event`. Must be called inside the gate.
    fn wait(&self, driver: &'static Driver, event: CUevent) -> Result<(), BackingError> {
        let wait = driver.ctx_wait_event.ok_or(BackingError::Unavailable)?;
        // SAFETY: context and event are live.
        check(unsafe { wait(self.context as CUcontext, event) })
    }

    /// Records everything submitted so far in all contexts that can reach this memory, inside the gate, and hands the
    /// events to `then`.
    fn recorded(
        &self,
        driver: &'static Driver,
        then: impl FnOnce(&[contexts::Reach], &[CUevent]) -> Result<(), BackingError>,
    ) -> Result<(), BackingError> {
        if driver.ctx_record_event.is_none() || driver.ctx_wait_event.is_none() {
            return Err(BackingError::Unavailable);
        }
        let reach = contexts::reaching(self);
        let mut events = Vec::new();
        let mut outcome = Ok(());
        for other in reach.iter() {
            match other
                .enter(driver)
                .and_then(|_current| other.take_event(driver))
            {
                Ok(event) => events.push(event),
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
        }
        if outcome.is_ok() {
            outcome = capture::context_wide(|| {
                for (other, &event) in reach.iter().zip(&events) {
                    other.record(driver, event)?;
                }
                then(&reach, &events)
            })
            .unwrap_or(Err(BackingError::Unavailable));
        }
        for (other, &event) in reach.iter().zip(&events) {
            other.give_event(event);
        }
        outcome
    }

    fn wait_on_host(&self, driver: &'static Driver) -> Result<(), BackingError> {
        let started = Instant::now();
        let outcome = self.recorded_and_synchronized(driver);
        self.waited_ns
            .fetch_add(started.elapsed().as_nanos() as u64, Ordering::Relaxed);
        outcome
    }

    fn recorded_and_synchronized(&self, driver: &'static Driver) -> Result<(), BackingError> {
        let _current = self.enter(driver)?;
        let Some(record) = driver.ctx_record_event else {
            if capture::active() {
                return Err(BackingError::Unavailable);
            }
            // SAFETY: no arguments; the context is current.
            return check(unsafe { (driver.ctx_synchronize)() });
        };
        // Decision: only the recording is inside the gate. The wait itself is per event and shielded, so it neither
        // hurts a capture that another thread begins meanwhile nor keeps that thread from beginning it.
        let event = self.take_event(driver)?;
        // SAFETY: context and event are live and belong together.
        let outcome =
            match capture::context_wide(|| unsafe { record(self.context as CUcontext, event) }) {
                None => Err(BackingError::Unavailable),
                Some(SUCCESS) => {
                    let _shield = Shield::raise(driver);
                    // SAFETY: the event is ours and alive.
                    check(unsafe { (driver.event_synchronize)(event) })
                }
                Some(code) => Err(refusal(code)),
            };
        self.give_event(event);
        outcome
    }

    /// Runs `with` on the scrub lane, made on first use. The context must be current.
    fn lane<R>(
        &self,
        driver: &'static Driver,
        with: impl FnOnce(&mut Lane) -> Result<R, BackingError>,
    ) -> Result<R, BackingError> {
        let mut lane = self.lane.lock().unwrap_or_else(PoisonError::into_inner);
        if lane.is_none() {
            let _shield = Shield::raise(driver);
            let mut stream: CUstream = std::ptr::null_mut();
            // SAFETY: the out-parameter is ours; the context is current.
            check(unsafe { (driver.stream_create)(&mut stream, STREAM_NON_BLOCKING) })?;
            let mut events = [0; RING];
            for slot in &mut events {
                let mut event: CUevent = std::ptr::null_mut();
                // SAFETY: as above.
                check(unsafe { (driver.event_create)(&mut event, EVENT_DISABLE_TIMING) })?;
                *slot = event as usize;
            }
            *lane = Some(Lane {
                stream: stream as usize,
                events,
                next_ticket: 1,
            });
        }
        match lane.as_mut() {
            Some(lane) => with(lane),
            None => Err(BackingError::Unavailable),
        }
    }
}

impl contexts::Reach {
    fn enter(&self, driver: &'static Driver) -> Result<Current<'static>, BackingError> {
        self.backing().enter(driver)
    }
    fn take_event(&self, driver: &'static Driver) -> Result<CUevent, BackingError> {
        self.backing().take_event(driver)
    }
    fn give_event(&self, event: CUevent) {
        self.backing().give_event(event);
    }
    fn record(&self, driver: &'static Driver, event: CUevent) -> Result<(), BackingError> {
        self.backing().record(driver, event)
    }
}

impl Backing for DriverBacking {
    fn reserve(&self, size_bytes: u64) -> Result<u64, BackingError> {
        let driver = self.driver()?;
        let _current = self.enter(driver)?;
        let mut address: CUdeviceptr = 0;
        // SAFETY: the out-parameter is ours; the context is current.
        check(unsafe { (driver.mem_alloc)(&mut address, size_bytes as usize) })?;
        Ok(address)
    }

    fn release(&self, segment: Range) -> Result<(), BackingError> {
        let driver = self.driver()?;
        let _current = self.enter(driver)?;
        let started = Instant::now();
        // SAFETY: the segment came from `reserve`, and the pool has forgotten it (FORGET-FIRST).
        let outcome = check(unsafe { (driver.mem_free)(segment.address) });
        self.waited_ns
            .fetch_add(started.elapsed().as_nanos() as u64, Ordering::Relaxed);
        outcome
    }

    fn fence(&self) -> Result<(), BackingError> {
        let driver = self.driver()?;
        if driver.ctx_record_event.is_none() || driver.ctx_wait_event.is_none() {
            return self.wait_on_host(driver);
        }
        self.recorded(driver, |reach, events| {
            for other in reach {
                for &event in events {
                    other.backing().wait(driver, event)?;
                }
            }
            Ok(())
        })
    }

    fn synchronize(&self) -> Result<(), BackingError> {
        self.wait_on_host(self.driver()?)
    }

    fn begin_scrub(&self, ranges: &[Range], byte: u8) -> Result<ScrubTicket, BackingError> {
        let driver = self.driver()?;
        if driver.ctx_record_event.is_none() || driver.ctx_wait_event.is_none() {
            self.wait_on_host(driver)?;
        }
        let _current = self.enter(driver)?;
        self.lane(driver, |lane| {
            let stream = lane.stream as CUstream;
            if driver.ctx_record_event.is_some() && driver.ctx_wait_event.is_some() {
                self.recorded(driver, |_, events| {
                    for &event in events {
                        // SAFETY: stream and event are live.
                        check(unsafe { (driver.stream_wait_event)(stream, event, 0) })?;
                    }
                    Ok(())
                })?;
            }
            let _shield = Shield::raise(driver);
            for range in ranges {
                // SAFETY: the range lies in a segment of this pool and is in nobody's hands (ONE-PLACE).
                check(unsafe {
                    (driver.memset_d8_async)(range.address, byte, range.size_bytes as usize, stream)
                })?;
            }
            let ticket = lane.next_ticket;
            lane.next_ticket += 1;
            let event = lane.events[ticket as usize % RING] as CUevent;
            // SAFETY: stream and event are live.
            check(unsafe { (driver.event_record)(event, stream) })?;
            Ok(ScrubTicket(ticket))
        })
    }

    fn join_scrub(&self, ticket: ScrubTicket) -> Result<(), BackingError> {
        let driver = self.driver()?;
        let _current = self.enter(driver)?;
        let event = self.lane(driver, |lane| {
            Ok(lane.events[ticket.0 as usize % RING] as CUevent)
        })?;
        if driver.ctx_wait_event.is_none() {
            let _shield = Shield::raise(driver);
            // SAFETY: the event is ours and alive.
            return check(unsafe { (driver.event_synchronize)(event) });
        }
        let reach = contexts::reaching(self);
        capture::context_wide(|| {
            reach
                .iter()
                .try_for_each(|other| other.backing().wait(driver, event))
        })
        .unwrap_or(Err(BackingError::Unavailable))
    }
}
