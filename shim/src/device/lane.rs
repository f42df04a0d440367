//! The stream on which a context's memory is scrubbed, with an event for each scrub. It lives as long as its context.
//!
//! # Decision: made when it is needed
//! A scrub in the program's own stream needs neither the stream nor an event, and few programs have 32 scrubs on their way. What
//! was made stays, whatever fails after it, and the next scrub goes on from there.
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

/// An outcome as the pool takes it: what is queued already will run, so that nothing but a failure can be said of it.
fn queued<T>(outcome: Result<T, BackingError>) -> Result<T, BackingError> {
    outcome.map_err(|error| match error {
        BackingError::OutOfMemory => BackingError::Failed(OUT_OF_MEMORY),
        error => error,
    })
}

/// Starts filling `ranges` in `stream`.
fn fill(driver: &Driver, stream: CUstream, ranges: &[Range], byte: u8) -> Result<(), BackingError> {
    for (at, range) in ranges.iter().enumerate() {
        // SAFETY: the range lies in a segment of this pool and is in nobody's hands (ONE-PLACE).
        let outcome = check(unsafe {
            (driver.memset_d8_async)(range.address, byte, range.size_bytes as usize, stream)
        });
        if at > 0 {
            queued(outcome)?;
        } else {
            outcome?;
        }
    }
    Ok(())
}

/// See the module.
pub struct Lane {
    /// Null until it is made, and so are the events.
    stream: usize,
    events: [usize; RING],
    next_ticket: u64,
    /// The latest scrub that all later work is behind as it is.
    ordered: u64,
    /// The latest scrub in the program's own stream that needed an event, until one on the lane's is behind it.
    beside: Option<ScrubTicket>,
}

impl Lane {
    /// One for which nothing was made yet.
    pub const fn new() -> Self {
        Lane {
            stream: 0,
            events: [0; RING],
            next_ticket: 1,
            ordered: 0,
            beside: None,
        }
    }

    /// Whether all is there that the next [`Lane::fill`] needs.
    pub fn is_prepared(&self) -> bool {
        self.stream != 0 && !self.event(ScrubTicket(self.next_ticket)).is_null()
    }

    /// Makes, in the current context, what of that is not there.
    pub fn prepare(&mut self, driver: &Driver) -> Result<(), BackingError> {
        if self.stream == 0 {
            let _shield = Shield::raise(driver);
            let mut stream: CUstream = std::ptr::null_mut();
            // SAFETY: the out-parameter is ours.
            check(unsafe { (driver.stream_create)(&mut stream, STREAM_NON_BLOCKING) })?;
            self.stream = stream as usize;
        }
        self.prepare_event(driver)
    }

    fn prepare_event(&mut self, driver: &Driver) -> Result<(), BackingError> {
        let slot = &mut self.events[self.next_ticket as usize % RING];
        if *slot == 0 {
            *slot = make_event(driver)? as usize;
        }
        Ok(())
    }

    /// Later scrubs run after `event`.
    pub fn wait_for(&self, driver: &Driver, event: CUevent) -> Result<(), BackingError> {
        // SAFETY: stream and event are live.
        check(unsafe { (driver.stream_wait_event)(self.stream as CUstream, event, 0) })
    }

    /// Starts filling `ranges` behind what [`Lane::wait_for`] had it wait for, and every barrier in place. It is prepared.
    pub fn fill(
        &mut self,
        driver: &Driver,
        ranges: &[Range],
        byte: u8,
    ) -> Result<ScrubTicket, BackingError> {
        if let Some(ticket) = self.beside {
            // A later scrub that has ended tells of every earlier one.
            self.wait_for(driver, self.event(ticket))?;
            self.beside = None;
        }
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
            queued(self.prepare_event(driver))?;
            let ticket = self.mark(driver, LEGACY_STREAM)?;
            self.beside = Some(ticket);
            return Ok(ticket);
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
        queued(check(code))?;
        Ok(ticket)
    }

    /// The event that completes when the scrub of `ticket` has.
    pub fn event(&self, ticket: ScrubTicket) -> CUevent {
        self.events[ticket.0 as usize % RING] as CUevent
    }
}
