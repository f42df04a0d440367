//! From events and a policy to figures.

use std::collections::{BTreeMap, HashSet};

use rustc_hash::FxHashMap;

use super::outcome::{Outcome, Sample};
use super::{Name, Options, Request};
use crate::trace::{Action, Event, Trace};

/// The events of one device, ready to replay.
#[derive(Debug, Clone)]
pub struct Workload {
    /// Of the events.
    pub device: u32,
    /// Every free names an earlier allocation.
    pub events: Vec<Event>,
    /// The most bytes live at once, as requested.
    pub peak_requested_bytes: u64,
}

impl Workload {
    /// One for each device of the trace, in order of their numbers. Only memory that a pool could serve is in it.
    pub fn of(trace: &Trace) -> Vec<Workload> {
        let mut devices: BTreeMap<u32, Vec<Event>> = BTreeMap::new();
        for event in trace.for_a_pool() {
            devices.entry(event.device).or_default().push(*event);
        }
        devices
            .into_iter()
            .map(|(device, events)| Workload::new(device, events))
            .collect()
    }

    fn new(device: u32, events: Vec<Event>) -> Workload {
        let mut live = Live::default();
        for event in &events {
            live.see(event);
        }
        Workload {
            device,
            events,
            peak_requested_bytes: live.peak_bytes,
        }
    }
}

/// What is live, as requested.
#[derive(Debug, Default)]
struct Live {
    sizes: FxHashMap<u64, u64>,
    bytes: u64,
    peak_bytes: u64,
}

impl Live {
    fn see(&mut self, event: &Event) {
        match event.action {
            Action::Alloc => {
                self.bytes = self.bytes.saturating_add(event.size_bytes);
                self.sizes.insert(event.id, event.size_bytes);
            }
            Action::Free => {
                let freed = self.sizes.remove(&event.id).unwrap_or(0);
                self.bytes = self.bytes.saturating_sub(freed);
            }
        }
        self.peak_bytes = self.peak_bytes.max(self.bytes);
    }
}

/// Replays a workload through one policy, from an empty pool.
pub fn replay(workload: &Workload, name: Name, options: &Options) -> Outcome {
    let mut pool = name.build(options);
    let mut refused = HashSet::new();
    let mut refused_requests = 0;
    let mut served = Live::default();
    let mut samples = Vec::new();
    let step = workload
        .events
        .len()
        .div_ceil(options.samples.max(1))
        .max(1);
    let mut highest = 0;
    for (index, event) in workload.events.iter().enumerate() {
        match event.action {
            Action::Alloc => {
                let request = Request {
                    id: event.id,
                    size_bytes: event.size_bytes.max(1),
                    stream: event.stream,
                };
                if pool.allocate(request).is_ok() {
                    served.see(event);
                } else {
                    refused_requests += 1;
                    refused.insert(event.id);
                }
            }
            Action::Free => {
                if !refused.remove(&event.id) {
                    pool.free(event.id);
                    served.see(event);
                }
            }
        }
        if options.samples > 0 {
            highest = highest.max(pool.driver().reserved_bytes);
            if (index + 1) % step == 0 || index + 1 == workload.events.len() {
                samples.push(Sample {
                    event: index + 1,
                    reserved_bytes: std::mem::take(&mut highest),
                });
            }
        }
    }
    let figures = pool.driver();
    let cached = pool.largest_cached_bytes();
    let room = |limit: u64| limit.saturating_sub(figures.reserved_bytes) + pool.releasable_bytes();
    Outcome {
        policy: name.as_str().to_owned(),
        device: workload.device,
        events: workload.events.len(),
        peak_requested_bytes: workload.peak_requested_bytes,
        peak_reserved_bytes: figures.peak_reserved_bytes,
        utilisation: match figures.peak_reserved_bytes {
            0 => 1.0,
            reserved => served.peak_bytes as f64 / reserved as f64,
        },
        driver_calls: figures.calls.total(),
        calls: figures.calls,
        fences: figures.fences,
        driver_seconds: figures.seconds,
        largest_cached_bytes: cached,
        largest_under_limit_bytes: options.limit_bytes.map(|limit| cached.max(room(limit))),
        refused_requests,
        samples,
    }
}
