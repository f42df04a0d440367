//! The stream on which a context's memory is scrubbed, with an event for each scrub. It lives as long as its context.

use super::backing::check;
use crate::abi::*;
use crate::driver::{Driver, Shield};
use cushion::pool::{BackingError, Range, ScrubTicket};

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

/// See the module.
pub struct Lane {
    stream: usize,
    events: [usize; RING],
    next_ticket: u64,
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
        })
    }

    /// Later scrubs run after `event`.
    pub fn wait_for(&self, driver: &Driver, event: CUevent) -> Result<(), BackingError> {
        // SAFETY: stream and event are live.
        check(unsafe { (driver.stream_wait_event)(self.stream as CUstream, event, 0) })
    }

    /// Starts filling `ranges`.
    pub fn fill(
        &mut self,
        driver: &Driver,
        ranges: &[Range],
        byte: u8,
    ) -> Result<ScrubTicket, BackingError> {
        let stream = self.stream as CUstream;
        let mut any_queued = false;
        for range in ranges {
            // SAFETY: the range lies in a segment of this pool and is in nobody's hands (ONE-PLACE).
            let code = unsafe {
                (driver.memset_d8_async)(range.address, byte, range.size_bytes as usize, stream)
            };
            answer(code, any_queued)?;
            any_queued = true;
        }
        let ticket = ScrubTicket(self.next_ticket);
        self.next_ticket += 1;
        // SAFETY: stream and event are live.
        let code = unsafe { (driver.event_record)(self.event(ticket), stream) };
        answer(code, any_queued)?;
        Ok(ticket)
    }

    /// The event that completes when the scrub of `ticket` has.
    pub fn event(&self, ticket: ScrubTicket) -> CUevent {
        self.events[ticket.0 as usize % RING] as CUevent
    }
}
