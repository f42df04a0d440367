//! One event, and a whole trace in memory.

use std::collections::{BTreeMap, HashSet};

use crate::ledger::Kind;

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Memory was handed to the program.
    Alloc,
    /// It came back, and the work that used it may be taken as complete in stream order.
    Free,
}

/// One allocation or free. What a format does not record is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// What happened.
    pub action: Action,
    /// Names the allocation: unique among those that are live. The recording side may pass the address.
    pub id: u64,
    /// What the memory is. A pool can serve only some kinds ([`Event::is_for_a_pool`]). Pooled for a free.
    pub kind: Kind,
    /// Size as the program asked; 0 for a free.
    pub size_bytes: u64,
    /// Ordinal of the device.
    pub device: u32,
    /// The stream the memory belongs to, 0 for the default one; 0 for a free.
    pub stream: u64,
    /// The thread that made the call.
    pub thread: u64,
    /// Since the start of the trace.
    pub time_ns: u64,
    /// Who asked, as a number that [`Trace::sites`] may name; 0 for a free.
    pub site: u32,
}

impl Event {
    /// An allocation of which only these are known.
    pub fn alloc(id: u64, size_bytes: u64, stream: u64) -> Event {
        Event {
            action: Action::Alloc,
            id,
            kind: Kind::Pooled,
            size_bytes,
            device: 0,
            stream,
            thread: 0,
            time_ns: 0,
            site: 0,
        }
    }

    /// Whether a pool of device memory could serve it: the program asked the driver for plain device memory.
    pub fn is_for_a_pool(&self) -> bool {
        matches!(self.kind, Kind::Pooled | Kind::Device)
    }

    /// A free of which only the id is known.
    pub fn free(id: u64) -> Event {
        Event {
            action: Action::Free,
            ..Event::alloc(id, 0, 0)
        }
    }
}

/// A trace in memory. Every free names a live allocation, and no two live allocations share an id.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Trace {
    /// What the file says about itself and the process it was recorded from.
    pub header: serde_json::Map<String, serde_json::Value>,
    /// In order.
    pub events: Vec<Event>,
    /// The names of sites, where the file has them.
    pub sites: BTreeMap<u32, String>,
    /// Events that the recorder dropped (its buffer or its file was full).
    pub lost_events: u64,
    /// Frees of memory that was allocated before the recording began, left out of `events`.
    pub unmatched_frees: u64,
    /// Whether the file ends as its recorder ends it. False when the program was killed.
    pub complete: bool,
}

impl Trace {
    /// The events of memory that a pool could serve, in order.
    pub fn for_a_pool(&self) -> impl Iterator<Item = &Event> {
        let allocations = self.events.iter().filter(|e| e.action == Action::Alloc);
        let other = allocations.filter(|e| !e.is_for_a_pool());
        let other: HashSet<u64> = other.map(|e| e.id).collect();
        self.events.iter().filter(move |e| !other.contains(&e.id))
    }
}
