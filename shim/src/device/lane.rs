//! The stream on which a context's memory is scrubbed, with an event for each scrub. It lives as long as its context.
//!
//! # Decision: in the program's own stream while it has only one
//! While the legacy stream's order is given (see `order`), a scrub goes into that stream: behind all earlier work and before
//! all later work as it is, so that no event is needed and the device does not stop between one stream and the other. If the
//! order is lost meanwhile, the fence that its loss takes may have come before the fill; then the scrub gets an event and is
//! joined like any other. Scrubs that needed none come before all that do.

use super::backing::check;
use super::order;
use crate::abi::*;
use crate::driver::{Driver, Shield};
use cushion::pool::{BackingError, Range, ScrubTicket};
use std::sync::atomic::{fence, Ordering};

/// Scrub events kept apart. A ticket older than the ring gets a later event: the stream is in order, so waiting for that
/// takes longer and is never wrong.
const RING: usize = 32;
const EVENT_DISABLE_TIMING: u32 = 2;
const STREAM_NON_BLOCKING: u32 = 1;

/// Makes an event in the current context.
pub fn make_event(driver: &Driver) -> Result<CUevent, BackingError> {
    let _shield = Shield::raise(driver);
    let mut event: CUevent = std::ptr::null_mut();
    // SAFETY: the out-parameter is ours.
    check(unsafe { (driver.event_create)(&mut event, EVENT_DISABLE_TIMING) })?;
    Ok(event)
}

/// A code as the pool takes it: what is queued already will run, so that nothing but a failure can be said of it.
fn answer(code: Status, any_queued: bool) -> Result<(), BackingError> {
    match check(code) {
        Err(BackingError::OutOfMemory) if any_queued => Err(BackingError::Failed(code)),
        outcome => outcome,
    }
}

/// Starts filling `ranges` in `stream`.
fn fill(driver: &Driver, stream: CUstream, ranges: &[Range], byte: u8) -> Result<(), BackingError> {
    for (at, range) in ranges.iter().enumerate() {
        // SAFETY: the range lies in a segment of this pool and is in nobody's hands (ONE-PLACE).
        let code = unsafe {
            (driver.memset_d8_async)(range.address, byte, range.size_bytes as usize, stream)
        };
        answer(code, at > 0)?;
    }
    Ok(())
}

/// See the module.
pub struct Lane {
    stream: usize,
    events: [usize; RING],
    next_ticket: u64,
    /// The latest scrub that all later work is behind as it is.
    ordered: u64,
}

impl Lane {
    /// Makes the stream and its events in the current context.
    pub fn make(driver: &Driver) -> Result<Self, BackingError> {
        let _shield = Shield::raise(driver);
        let mut stream: CUstream = std::ptr::null_mut();
        // SAFETY: the out-parameter is ours.
        check(unsafe { (driver.stream_create)(&mut stream, STREAM_NON_BLOCKING) })?;
        let mut events = [0; RING];
        for slot in &mut events {
            *slot = make_event(driver)? as usize;
        }
        Ok(Lane {
            stream: stream as usize,
            events,
            next_ticket: 1,
            ordered: 0,
        })
    }

    /// Later scrubs run after `event`.
    pub fn wait_for(&self, driver: &Driver, event: CUevent) -> Result<(), BackingError> {
        // SAFETY: stream and event are live.
        check(unsafe { (driver.stream_wait_event)(self.stream as CUstream, event, 0) })
    }

    /// Starts filling `ranges` behind what [`Lane::wait_for`] had it wait for.
    pub fn fill(
        &mut self,
        driver: &Driver,
        ranges: &[Range],
        byte: u8,
    ) -> Result<ScrubTicket, BackingError> {
        let stream = self.stream as CUstream;
        fill(driver, stream, ranges, byte)?;
        self.mark(driver, stream)
    }

    /// Starts filling `ranges` in the legacy stream, whose order was given a moment ago. The context is current, and no stream
    /// begins to capture meanwhile.
    pub fn fill_in_order(
        &mut self,
        driver: &Driver,
        ranges: &[Range],
        byte: u8,
    ) -> Result<ScrubTicket, BackingError> {
        fill(driver, LEGACY_STREAM, ranges, byte)?;
        // Who takes the order away says so first and fences then: seen to be given, the fence is yet to come.
        fence(Ordering::SeqCst);
        if !order::is_given() {
            return self.mark(driver, LEGACY_STREAM);
        }
        let ticket = self.next();
        self.ordered = ticket.0;
        Ok(ticket)
    }

    /// Whether all later work is behind this scrub as it is.
    pub fn is_in_order(&self, ticket: ScrubTicket) -> bool {
        ticket.0 <= self.ordered
    }

    fn next(&mut self) -> ScrubTicket {
        let ticket = ScrubTicket(self.next_ticket);
        self.next_ticket += 1;
        ticket
    }

    /// A scrub whose last call was just made in `stream`.
    fn mark(&mut self, driver: &Driver, stream: CUstream) -> Result<ScrubTicket, BackingError> {
        let ticket = self.next();
        // SAFETY: stream and event are live.
        let code = unsafe { (driver.event_record)(self.event(ticket), stream) };
        answer(code, true)?;
        Ok(ticket)
    }

    /// The event that completes when the scrub of `ticket` has.
    pub fn event(&self, ticket: ScrubTicket) -> CUevent {
        self.events[ticket.0 as usize % RING] as CUevent
    }
}
