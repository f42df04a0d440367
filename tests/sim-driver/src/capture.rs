//! Stream capture: what it records, and which calls spoil it.
use crate::abi::*;
use crate::action::Action;
use crate::entry::thread;
use crate::state::State;
use crate::stream::Sort;
use std::collections::BTreeMap;

pub const GLOBAL: u32 = 0;
const THREAD_LOCAL: u32 = 1;
pub const RELAXED: u32 = 2;

pub struct Capture {
    pub mode: u32,
    pub thread: u64,
    pub origin: Handle,
    pub context: Handle,
    pub graph: Handle,
    pub invalid: bool,
    /// What each stream's next node depends on.
    pub tails: BTreeMap<Handle, Vec<Handle>>,
}

impl State {
    pub fn capture_of(&mut self, stream: Handle) -> Option<&mut Capture> {
        let id = self.streams.get(&stream)?.capture?;
        self.captures.get_mut(&id)
    }

    pub fn invalidate_stream(&mut self, stream: Handle) {
        if let Some(c) = self.capture_of(stream) {
            c.invalid = true;
        }
    }

    pub fn invalidate_context(&mut self, context: Handle) {
        for c in self.captures.values_mut().filter(|c| c.context == context) {
            c.invalid = true;
        }
    }

    pub fn invalidate_event(&mut self, event: Handle) {
        let id = self
            .events
            .get(&event)
            .and_then(|e| e.captured.as_ref())
            .map(|c| c.0);
        if let Some(c) = id.and_then(|id| self.captures.get_mut(&id)) {
            c.invalid = true;
        }
    }

    pub fn captures_in(&self, context: Handle) -> bool {
        self.captures.values().any(|c| c.context == context)
    }

    /// Refuses a call that is unsafe while streams capture, and spoils the captures that forbid it.
    /// A call about a capturing stream itself is refused whatever the mode.
    pub fn refuse_while_capturing(&mut self, stream: Option<Handle>) -> R {
        if let Some(c) = stream.and_then(|s| self.capture_of(s)) {
            c.invalid = true;
            return Err(STREAM_CAPTURE_UNSUPPORTED);
        }
        if self.captures.is_empty() {
            return Ok(());
        }
        let (me, mode) = (thread(), self.thread().capture_mode);
        let mut refused = false;
        for c in self.captures.values_mut() {
            let mine = c.thread == me && c.mode != RELAXED;
            let forbids = match mode {
                GLOBAL => mine || c.mode == GLOBAL,
                THREAD_LOCAL => mine,
                _ => false,
            };
            if forbids {
                c.invalid = true;
                refused = true;
            }
        }
        if refused {
            Err(STREAM_CAPTURE_UNSUPPORTED)
        } else {
            Ok(())
        }
    }

    /// Captures of blocking streams that a use of this stream would spoil.
    pub fn implicit_captures(&self, key: Handle) -> Vec<u64> {
        if self.captures.is_empty() || self.streams[&key].sort != Sort::Legacy {
            return Vec::new();
        }
        let context = self.streams[&key].context;
        self.streams
            .values()
            .filter(|s| s.context == context && s.sort == Sort::Blocking)
            .filter_map(|s| s.capture)
            .collect()
    }

    /// The legacy stream must not be used while a blocking stream captures.
    pub fn check_implicit_capture(&mut self, key: Handle) -> R {
        let spoiled = self.implicit_captures(key);
        for id in &spoiled {
            if let Some(c) = self.captures.get_mut(id) {
                c.invalid = true;
            }
        }
        if spoiled.is_empty() {
            Ok(())
        } else {
            Err(STREAM_CAPTURE_IMPLICIT)
        }
    }

    /// Adds a node behind what a capturing stream has so far.
    pub fn capture_node(&mut self, key: Handle, action: Action) -> R<Handle> {
        let c = self.capture_of(key).ok_or(UNKNOWN)?;
        if c.invalid {
            return Err(STREAM_CAPTURE_INVALIDATED);
        }
        let (graph, after) = (c.graph, c.tails.get(&key).cloned().unwrap_or_default());
        let node = self.add_node(graph, action, after)?;
        if let Some(c) = self.capture_of(key) {
            c.tails.insert(key, vec![node]);
        }
        Ok(node)
    }

    /// Records an event in a capturing stream: it stands for the stream's nodes so far.
    pub fn capture_record(&mut self, key: Handle, event: Handle) -> R {
        let id = self.streams[&key].capture.ok_or(UNKNOWN)?;
        let c = self.captures.get(&id).ok_or(UNKNOWN)?;
        if c.invalid {
            return Err(STREAM_CAPTURE_INVALIDATED);
        }
        let nodes = c.tails.get(&key).cloned().unwrap_or_default();
        let e = self.events.get_mut(&event).ok_or(INVALID_HANDLE)?;
        e.captured = Some((id, nodes));
        Ok(())
    }

    /// A stream waits for an event of a capture, and so takes part in it.
    pub fn capture_wait(&mut self, key: Handle, id: u64, nodes: Vec<Handle>) -> R {
        let Some(c) = self.captures.get_mut(&id) else {
            return Err(CAPTURED_EVENT);
        };
        if c.invalid {
            return Err(STREAM_CAPTURE_INVALIDATED);
        }
        let s = self.streams.get_mut(&key).ok_or(INVALID_HANDLE)?;
        if s.sort == Sort::Legacy {
            c.invalid = true;
            return Err(STREAM_CAPTURE_IMPLICIT);
        }
        if s.capture.is_some_and(|other| other != id) {
            c.invalid = true;
            return Err(902);
        }
        s.capture = Some(id);
        let tail = c.tails.entry(key).or_default();
        for n in nodes {
            if !tail.contains(&n) {
                tail.push(n);
            }
        }
        Ok(())
    }

    /// A stream that captures is destroyed: the capture can no longer succeed.
    pub fn end_capture_of(&mut self, key: Handle) {
        self.invalidate_stream(key);
        if let Some(id) = self.streams.get_mut(&key).and_then(|s| s.capture.take()) {
            if self.captures.get(&id).is_some_and(|c| c.origin == key) {
                self.forget_capture(id);
            }
        }
    }

    pub fn forget_capture(&mut self, id: u64) -> Option<Capture> {
        for s in self.streams.values_mut().filter(|s| s.capture == Some(id)) {
            s.capture = None;
        }
        self.captures.remove(&id)
    }
}
