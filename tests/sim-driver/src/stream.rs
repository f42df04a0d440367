//! Streams: which one a handle means, what waits for what, and their API.
use crate::abi::*;
use crate::engine::{Action, Op, Point};
use crate::entry::per_thread_default;
use crate::state::{lock, wait_until, Guard, State};
use std::collections::VecDeque;
use std::ffi::c_void;

#[derive(Clone, Copy, PartialEq)]
pub enum Sort {
    Legacy,
    Blocking,
    NonBlocking,
    /// The driver's own, for context-wide events.
    Hidden,
}

pub struct Stream {
    pub context: Handle,
    pub sort: Sort,
    pub flags: u32,
    pub priority: i32,
    pub id: u64,
    pub default: bool,
    pub queue: VecDeque<Op>,
    pub submitted: u64,
    pub completed: u64,
    pub destroyed: bool,
    pub capture: Option<u64>,
    pub attributes: Vec<(u32, [u64; 8])>,
}

impl State {
    pub fn new_stream(&mut self, context: Handle, sort: Sort, flags: u32, priority: i32) -> Handle {
        let key = self.handle();
        self.streams.insert(
            key,
            Stream {
                context,
                sort,
                flags,
                priority,
                id: key as u64,
                default: false,
                queue: VecDeque::new(),
                submitted: 0,
                completed: 0,
                destroyed: false,
                capture: None,
                attributes: Vec::new(),
            },
        );
        if let Some(c) = self.contexts.get(&context) {
            // A context-wide wait holds for streams made later, too.
            let barrier: Vec<Point> = c
                .barrier
                .iter()
                .filter(|p| !self.complete(p))
                .copied()
                .collect();
            if !barrier.is_empty() && sort != Sort::Hidden {
                self.enqueue(key, barrier, Action::Nothing);
            }
        }
        key
    }

    /// The stream a handle means here: 0, 1 and 2 are the special ones.
    pub fn stream(&mut self, h: Handle) -> R<Handle> {
        if h > 2 {
            let s = self.streams.get(&h).filter(|s| !s.destroyed && !s.default);
            let context = s
                .filter(|s| s.sort != Sort::Hidden)
                .ok_or(INVALID_HANDLE)?
                .context;
            self.check_context(context)?;
            return Ok(h);
        }
        let context = self.current()?;
        if h == 2 || (h == 0 && per_thread_default()) {
            if let Some(&key) = self.thread().streams.get(&context) {
                return Ok(key);
            }
            let key = self.new_stream(context, Sort::Blocking, 0, 0);
            if let Some(s) = self.streams.get_mut(&key) {
                s.default = true;
            }
            self.thread().streams.insert(context, key);
            return Ok(key);
        }
        Ok(self.contexts[&context].legacy)
    }

    /// What new work in this stream must wait for besides its own queue.
    fn implicit(&self, key: Handle) -> Vec<Point> {
        let Some(s) = self.streams.get(&key) else {
            return Vec::new();
        };
        let pending =
            |(&k, o): (&Handle, &Stream)| (o.completed < o.submitted).then_some((k, o.submitted));
        match s.sort {
            Sort::Legacy => self
                .streams
                .iter()
                .filter(|(_, o)| o.context == s.context && o.sort == Sort::Blocking)
                .filter_map(pending)
                .collect(),
            Sort::Blocking => self
                .contexts
                .get(&s.context)
                .and_then(|c| self.streams.get_key_value(&c.legacy))
                .and_then(pending)
                .into_iter()
                .collect(),
            _ => Vec::new(),
        }
    }

    /// Gives a stream work: into its capture, or into its queue.
    pub fn submit(&mut self, key: Handle, action: Action) -> R<Point> {
        if self.streams[&key].capture.is_some() {
            self.capture_node(key, action)?;
            return Ok((key, 0));
        }
        self.check_implicit_capture(key)?;
        let after = self.implicit(key);
        Ok(self.enqueue(key, after, action))
    }

    /// Everything queued so far in the streams that `which` picks.
    pub fn points(&self, which: impl Fn(&Stream) -> bool) -> Vec<Point> {
        let open = self
            .streams
            .iter()
            .filter(|(_, s)| which(s) && s.completed < s.submitted);
        open.map(|(&k, s)| (k, s.submitted)).collect()
    }

    /// Everything queued on a device.
    pub fn device_points(&self, device: i32) -> Vec<Point> {
        self.points(|s| {
            self.contexts
                .get(&s.context)
                .is_some_and(|c| c.device == device)
        })
    }

    /// All that a host wait for this stream waits for.
    pub fn stream_points(&self, key: Handle) -> Vec<Point> {
        // The legacy stream stands for the blocking ones, too.
        let legacy = self
            .streams
            .get(&key)
            .is_some_and(|s| s.sort == Sort::Legacy);
        let mut points = if legacy {
            self.implicit(key)
        } else {
            Vec::new()
        };
        points.push((key, self.streams.get(&key).map_or(0, |s| s.submitted)));
        points
    }
}

/// Waits on the host until all these points are passed.
pub fn wait_points(g: Guard, points: &[Point]) -> Guard {
    wait_until(g, |st| points.iter().all(|p| st.complete(p)))
}

fn create(out: *mut Handle, flags: u32, priority: i32) -> R {
    let mut st = lock();
    let context = st.current()?;
    if out.is_null() || flags > 1 {
        return Err(INVALID_VALUE);
    }
    let sort = if flags & 1 != 0 {
        Sort::NonBlocking
    } else {
        Sort::Blocking
    };
    let key = st.new_stream(context, sort, flags, priority.clamp(-5, 0));
    // SAFETY: the C caller vouches for the out-pointer.
    unsafe { put(out, key) }
}

api! {
    fn cuStreamCreate(out: *mut Handle, flags: u32) {
        create(out, flags, 0)
    }
    fn cuStreamCreateWithPriority(out: *mut Handle, flags: u32, priority: i32) {
        create(out, flags, priority)
    }
    fn cuStreamDestroy | cuStreamDestroy_v2 (stream: Handle) {
        let mut st = lock();
        if stream <= 2 {
            return Err(INVALID_HANDLE);
        }
        let key = st.stream(stream)?;
        st.end_capture_of(key);
        let idle = st.streams[&key].queue.is_empty();
        if idle {
            st.streams.remove(&key);
        } else if let Some(s) = st.streams.get_mut(&key) {
            s.destroyed = true;
        }
        Ok(())
    }
    fn cuStreamSynchronize | cuStreamSynchronize_ptsz (stream: Handle) {
        let mut st = lock();
        let key = st.stream(stream)?;
        st.refuse_while_capturing(Some(key))?;
        let context = st.streams[&key].context;
        let points = st.stream_points(key);
        let st = wait_points(st, &points);
        st.check_context(context)
    }
    fn cuStreamQuery | cuStreamQuery_ptsz (stream: Handle) {
        let mut st = lock();
        let key = st.stream(stream)?;
        st.refuse_while_capturing(Some(key))?;
        let done = st.stream_points(key).iter().all(|p| st.complete(p));
        if done { Ok(()) } else { Err(NOT_READY) }
    }
    fn cuStreamGetFlags | cuStreamGetFlags_ptsz (stream: Handle, flags: *mut u32) {
        let mut st = lock();
        let key = st.stream(stream)?;
        put(flags, st.streams[&key].flags)
    }
    fn cuStreamGetPriority | cuStreamGetPriority_ptsz (stream: Handle, priority: *mut i32) {
        let mut st = lock();
        let key = st.stream(stream)?;
        put(priority, st.streams[&key].priority)
    }
    fn cuStreamGetId | cuStreamGetId_ptsz (stream: Handle, id: *mut u64) {
        let mut st = lock();
        let key = st.stream(stream)?;
        put(id, st.streams[&key].id)
    }
    fn cuStreamGetDevice | cuStreamGetDevice_ptsz (stream: Handle, device: *mut i32) {
        let mut st = lock();
        let key = st.stream(stream)?;
        let context = st.streams[&key].context;
        put(device, st.contexts[&context].device)
    }
    fn cuStreamGetCtx | cuStreamGetCtx_ptsz (stream: Handle, context: *mut Handle) {
        let mut st = lock();
        let key = st.stream(stream)?;
        put(context, st.streams[&key].context)
    }
    fn cuStreamGetCtx_v2 | cuStreamGetCtx_v2_ptsz (stream: Handle, context: *mut Handle, green: *mut Handle) {
        let mut st = lock();
        let key = st.stream(stream)?;
        put_opt(green, 0);
        put(context, st.streams[&key].context)
    }
    fn cuStreamAttachMemAsync | cuStreamAttachMemAsync_ptsz (stream: Handle, p: Ptr, length: usize, flags: u32) {
        let mut st = lock();
        st.stream(stream)?;
        st.ranges.find(p).map(|_| ()).ok_or(INVALID_VALUE)
    }
    fn cuStreamCopyAttributes | cuStreamCopyAttributes_ptsz (to: Handle, from: Handle) {
        let mut st = lock();
        let (to, from) = (st.stream(to)?, st.stream(from)?);
        let attributes = st.streams[&from].attributes.clone();
        if let Some(s) = st.streams.get_mut(&to) {
            s.attributes = attributes;
        }
        Ok(())
    }
    fn cuStreamGetAttribute | cuStreamGetAttribute_ptsz (stream: Handle, which: u32, value: *mut [u64; 8]) {
        let mut st = lock();
        let key = st.stream(stream)?;
        let found = st.streams[&key].attributes.iter().find(|a| a.0 == which).map(|a| a.1);
        put(value, found.unwrap_or_default())
    }
    fn cuStreamSetAttribute | cuStreamSetAttribute_ptsz (stream: Handle, which: u32, value: *const [u64; 8]) {
        let mut st = lock();
        let key = st.stream(stream)?;
        if value.is_null() {
            return Err(INVALID_VALUE);
        }
        let value = value.read_unaligned();
        if let Some(s) = st.streams.get_mut(&key) {
            s.attributes.retain(|a| a.0 != which);
            s.attributes.push((which, value));
        }
        Ok(())
    }
    fn cuLaunchHostFunc | cuLaunchHostFunc_ptsz (stream: Handle, f: usize, data: usize) {
        let mut st = lock();
        let key = st.stream(stream)?;
        if f == 0 {
            return Err(INVALID_VALUE);
        }
        st.submit(key, Action::Host(f, data)).map(|_| ())
    }
    fn cuStreamAddCallback | cuStreamAddCallback_ptsz (stream: Handle, f: usize, data: usize, flags: u32) {
        let mut st = lock();
        let key = st.stream(stream)?;
        if f == 0 || flags != 0 {
            return Err(INVALID_VALUE);
        }
        if st.streams[&key].capture.is_some() {
            st.invalidate_stream(key);
            return Err(STREAM_CAPTURE_UNSUPPORTED);
        }
        st.submit(key, Action::Callback(f, data, stream)).map(|_| ())
    }
    fn cuCtxGetStreamPriorityRange(least: *mut i32, greatest: *mut i32) {
        lock().current()?;
        put_opt(least, 0);
        put_opt(greatest, -5);
        Ok(())
    }
    fn cuThreadExchangeStreamCaptureMode(mode: *mut u32) {
        let mut st = lock();
        if mode.is_null() || mode.read_unaligned() > 2 {
            return Err(INVALID_VALUE);
        }
        let new = mode.read_unaligned();
        let old = std::mem::replace(&mut st.thread().capture_mode, new);
        put(mode, old)
    }
    fn cuProfilerStart() {
        Ok(())
    }
    fn cuProfilerStop() {
        Ok(())
    }
    fn cuProfilerInitialize(config: *const c_void, output: *const c_void, mode: i32) {
        Ok(())
    }
}
