//! Events, of one stream and of a whole context.
use crate::abi::*;
use crate::action::Action;
use crate::engine::Point;
use crate::ipc;
use crate::state::{lock, State};
use crate::stream::wait_points;
use std::time::Instant;

const DISABLE_TIMING: u32 = 2;
const INTERPROCESS: u32 = 4;

pub struct Event {
    pub context: Handle,
    pub flags: u32,
    /// What must be complete; empty before the first record.
    pub points: Vec<Point>,
    pub recorded: bool,
    pub generation: u64,
    pub time: Option<Instant>,
    /// The capture that last recorded it, and that capture's nodes then.
    pub captured: Option<(u64, Vec<Handle>)>,
    /// The page it shares with other processes.
    pub shared: Option<u64>,
}

impl Event {
    pub fn new(context: Handle, flags: u32) -> Event {
        Event {
            context,
            flags,
            points: Vec::new(),
            recorded: false,
            generation: 0,
            time: None,
            captured: None,
            shared: None,
        }
    }
}

impl State {
    pub fn event(&self, h: Handle) -> R<&Event> {
        let e = self.events.get(&h).ok_or(INVALID_HANDLE)?;
        self.check_context(e.context)?;
        Ok(e)
    }

    pub fn event_done(&mut self, h: Handle, generation: u64) {
        if let Some(e) = self.events.get_mut(&h) {
            if let Some(page) = e.shared {
                ipc::shared_set_done(page, generation);
            }
            if e.generation == generation {
                e.time = Some(Instant::now());
            }
        }
    }

    /// A new record of the event: the generation to complete.
    pub fn event_begins(&mut self, h: Handle) -> u64 {
        let Some(e) = self.events.get_mut(&h) else {
            return 0;
        };
        e.generation += 1;
        if let Some(page) = e.shared {
            e.generation = ipc::shared_begin(page);
        }
        e.recorded = true;
        e.captured = None;
        e.time = None;
        e.generation
    }

    pub fn event_complete(&self, e: &Event) -> bool {
        match e.shared {
            Some(page) => ipc::shared_idle(page),
            None => e.points.iter().all(|p| self.complete(p)),
        }
    }

    /// Makes a stream wait for what the event stands for now.
    pub fn stream_waits(&mut self, key: Handle, h: Handle) -> R {
        let (points, shared) = {
            let e = self.event(h)?;
            (e.points.clone(), e.shared)
        };
        if let Some(page) = shared {
            let generation = ipc::shared_begun(page);
            return self
                .submit(key, Action::WaitShared(page, generation))
                .map(|_| ());
        }
        if points.iter().any(|p| !self.complete(p)) {
            self.enqueue(key, points, Action::Nothing);
        }
        Ok(())
    }
}

impl State {
    /// Records an event at the end of a stream that does not capture.
    pub fn record_in(&mut self, key: Handle, h: Handle) -> R {
        self.event(h)?;
        let generation = self.event_begins(h);
        let point = self.submit(key, Action::Record(h, generation))?;
        if let Some(e) = self.events.get_mut(&h) {
            e.points = vec![point];
        }
        Ok(())
    }
}

/// The flag of an event that stays an event when it is captured.
const EXTERNAL: u32 = 1;

fn record(h: Handle, stream: Handle, flags: u32) -> R {
    let mut st = lock();
    let key = st.stream(stream)?;
    let context = st.event(h)?.context;
    if st.streams[&key].context != context {
        return Err(INVALID_HANDLE);
    }
    if st.streams[&key].capture.is_some() {
        if flags & EXTERNAL != 0 {
            return st.capture_node(key, Action::Event(h, true)).map(|_| ());
        }
        return st.capture_record(key, h);
    }
    st.check_implicit_capture(key)?;
    st.record_in(key, h)
}

fn context_of(st: &mut State, context: Handle) -> R<Handle> {
    let context = if context == 0 { st.current()? } else { context };
    st.check_context(context)?;
    if st.captures_in(context) {
        st.invalidate_context(context);
        return Err(STREAM_CAPTURE_UNSUPPORTED);
    }
    Ok(context)
}

api! {
    fn cuEventCreate(out: *mut Handle, flags: u32) {
        let mut st = lock();
        let context = st.current()?;
        if out.is_null() || flags > 7 || (flags & INTERPROCESS != 0 && flags & DISABLE_TIMING == 0) {
            return Err(INVALID_VALUE);
        }
        let mut event = Event::new(context, flags);
        if flags & INTERPROCESS != 0 {
            event.shared = Some(ipc::new_page()?);
        }
        let h = st.handle();
        st.events.insert(h, event);
        put(out, h)
    }
    fn cuEventDestroy | cuEventDestroy_v2 (event: Handle) {
        let mut st = lock();
        st.events.remove(&event).map(|_| ()).ok_or(INVALID_HANDLE)
    }
    fn cuEventRecord | cuEventRecord_ptsz (event: Handle, stream: Handle) {
        record(event, stream, 0)
    }
    fn cuEventRecordWithFlags | cuEventRecordWithFlags_ptsz (event: Handle, stream: Handle, flags: u32) {
        record(event, stream, flags)
    }
    fn cuEventQuery(event: Handle) {
        let mut st = lock();
        if st.event(event)?.captured.is_some() {
            st.invalidate_event(event);
            return Err(CAPTURED_EVENT);
        }
        st.refuse_while_capturing(None)?;
        if st.event_complete(st.event(event)?) { Ok(()) } else { Err(NOT_READY) }
    }
    fn cuEventSynchronize(event: Handle) {
        let mut st = lock();
        if st.event(event)?.captured.is_some() {
            st.invalidate_event(event);
            return Err(CAPTURED_EVENT);
        }
        st.refuse_while_capturing(None)?;
        let (context, points, shared) = {
            let e = st.event(event)?;
            (e.context, e.points.clone(), e.shared)
        };
        if let Some(page) = shared {
            drop(st);
            ipc::shared_wait(page);
            return lock().check_context(context);
        }
        wait_points(st, &points).check_context(context)
    }
    fn cuEventElapsedTime | cuEventElapsedTime_v2 (ms: *mut f32, start: Handle, end: Handle) {
        let st = lock();
        let (a, b) = (st.event(start)?, st.event(end)?);
        if (a.flags | b.flags) & DISABLE_TIMING != 0 || !a.recorded || !b.recorded {
            return Err(INVALID_HANDLE);
        }
        let (Some(a), Some(b)) = (a.time, b.time) else { return Err(NOT_READY) };
        let seconds = if b >= a { (b - a).as_secs_f64() } else { -(a - b).as_secs_f64() };
        put(ms, (seconds * 1e3) as f32)
    }
    fn cuStreamWaitEvent | cuStreamWaitEvent_ptsz (stream: Handle, event: Handle, flags: u32) {
        let mut st = lock();
        let key = st.stream(stream)?;
        let captured = st.event(event)?.captured.clone();
        if let Some((capture, nodes)) = captured {
            return st.capture_wait(key, capture, nodes);
        }
        if st.streams[&key].capture.is_some() {
            if flags & EXTERNAL != 0 {
                return st.capture_node(key, Action::Event(event, false)).map(|_| ());
            }
            if st.event(event)?.recorded {
                // A capture must not depend on work outside it.
                st.invalidate_stream(key);
                return Err(STREAM_CAPTURE_ISOLATION);
            }
            return Ok(());
        }
        st.check_implicit_capture(key)?;
        st.stream_waits(key, event)
    }
    fn cuCtxRecordEvent(context: Handle, event: Handle) {
        let mut st = lock();
        let context = context_of(&mut st, context)?;
        if st.event(event)?.context != context {
            return Err(INVALID_HANDLE);
        }
        let points = st.points(|s| s.context == context);
        let generation = st.event_begins(event);
        let hidden = st.contexts[&context].hidden;
        let point = st.enqueue(hidden, points, Action::Record(event, generation));
        if let Some(e) = st.events.get_mut(&event) {
            e.points = vec![point];
        }
        Ok(())
    }
    fn cuCtxWaitEvent(context: Handle, event: Handle) {
        let mut st = lock();
        let context = context_of(&mut st, context)?;
        if st.event(event)?.captured.is_some() {
            return Err(CAPTURED_EVENT);
        }
        let keys: Vec<Handle> = st
            .streams
            .iter()
            .filter(|(_, s)| s.context == context && s.sort != crate::stream::Sort::Hidden)
            .map(|(&k, _)| k)
            .collect();
        for key in keys {
            st.stream_waits(key, event)?;
        }
        let points = st.event(event)?.points.clone();
        let old = std::mem::take(&mut st.contexts.get_mut(&context).ok_or(INVALID_CONTEXT)?.barrier);
        let open: Vec<Point> = old.into_iter().chain(points).filter(|p| !st.complete(p)).collect();
        if let Some(c) = st.contexts.get_mut(&context) {
            c.barrier = open;
        }
        Ok(())
    }
}
