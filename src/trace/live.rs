//! From whatever a format names its allocations by (addresses, ids) to ids that count up from 0.

use std::collections::hash_map::Entry;
use std::collections::HashMap;

use super::{Action, Event, Trace};
use crate::ledger::Kind;

/// Builds a [`Trace`] event by event and holds the rules that make one.
#[derive(Default)]
pub(super) struct Builder {
    live: HashMap<(u32, u64), u64>,
    next_id: u64,
    pub trace: Trace,
}

impl Builder {
    pub fn new() -> Builder {
        Builder {
            trace: Trace {
                complete: true,
                ..Trace::default()
            },
            ..Builder::default()
        }
    }

    /// Adds an allocation named `event.id` in the file. False, and nothing added, if that name is live already.
    pub fn alloc(&mut self, event: Event) -> bool {
        let id = self.next_id;
        let Entry::Vacant(place) = self.live.entry((event.device, event.id)) else {
            return false;
        };
        place.insert(id);
        self.next_id += 1;
        self.trace.events.push(Event { id, ..event });
        true
    }

    /// Adds a free. False, and nothing added, if the name is not live.
    pub fn free(&mut self, event: Event) -> bool {
        let Some(id) = self.live.remove(&(event.device, event.id)) else {
            return false;
        };
        self.trace.events.push(Event {
            action: Action::Free,
            id,
            kind: Kind::Pooled,
            size_bytes: 0,
            stream: 0,
            site: 0,
            ..event
        });
        true
    }

    /// As [`Builder::free`], for formats whose recording may begin in the middle of a program.
    pub fn free_if_known(&mut self, event: Event) {
        if !self.free(event) {
            self.trace.unmatched_frees += 1;
        }
    }
}
