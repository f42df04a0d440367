//! Streams: which one a handle means, what waits for what, and their API.
use crate::abi::*;
use crate::action::Action;
use crate::engine::{Op, Point};
use crate::entry::per_thread_default;
use crate::state::{wait_until, Guard, State};
use std::collections::VecDeque;

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
