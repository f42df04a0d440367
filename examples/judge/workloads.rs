//! The workloads that a rule is judged by: what was recorded, in many variants, and what was only described (`sketches`).

use std::collections::{HashMap, HashSet};
use std::path::Path;

use cushion::trace::{read_file, Action, Event, ReadError};

use crate::sketches::{Random, Sketch, ALL};

/// One of them.
pub struct Given {
    /// What it has in common with others.
    pub group: &'static str,
    pub name: String,
    pub events: Vec<Event>,
}

const NAMES: [&str; 5] = ["gnn", "resnet", "gpt", "llama_gen", "streams"];
const FACTORS: [f64; 6] = [1.0, 0.55, 0.8, 1.13, 1.3, 1.77];
/// Two programs in one process.
const PAIRS: [(usize, usize); 4] = [(0, 1), (1, 2), (2, 3), (1, 4)];
/// Smaller requests keep their size: those sizes come from the framework, not from the data.
const SCALED_ABOVE_BYTES: u64 = 64 << 10;

/// All workloads, the recorded ones from `folder`.
pub fn all(folder: &Path) -> Result<Vec<Given>, ReadError> {
    let mut recorded = Vec::new();
    for name in NAMES {
        recorded.push((
            name,
            read_file(&folder.join(format!("{name}.trace.gz")))?.events,
        ));
    }
    let mut given = Vec::new();
    let mut give = |group, name: String, events| {
        given.push(Given {
            group,
            name,
            events,
        })
    };
    for (name, events) in &recorded {
        for factor in FACTORS {
            let scaled = resized(events, |size_bytes| (size_bytes as f64 * factor) as u64);
            let group = if factor == 1.0 { "recorded" } else { "scaled" };
            give(group, format!("{name} x {factor}"), scaled);
        }
    }
    for (name, events) in &recorded {
        for seed in 1..3 {
            // Each size by a factor of its own, up to two to either side.
            let shuffled = resized(events, |size_bytes| {
                let part = Random(size_bytes ^ (seed << 50)).part();
                (size_bytes as f64 * 4f64.powf(part - 0.5)) as u64
            });
            give("sizes", format!("{name} sizes {seed}"), shuffled);
        }
    }
    for (name, events) in &recorded {
        give(
            "later",
            format!("{name} later"),
            later(events, events.len() * 2 / 5),
        );
        give("fewer", format!("{name} fewer"), fewer(events));
    }
    for (a, b) in PAIRS {
        let ((first, x), (second, y)) = (&recorded[a], &recorded[b]);
        give("pairs", format!("{first} and {second}"), together(x, y));
    }
    for (name, events) in &recorded {
        if events.len() < 200_000 {
            give("again", format!("{name} again"), again(events, 3));
        }
    }
    for (name, sketch) in ALL {
        for seed in 1..4 {
            let mut described = Sketch::new(seed * 7919);
            sketch(&mut described);
            give("described", format!("{name} {seed}"), described.events);
        }
    }
    Ok(given)
}

fn resized(events: &[Event], mut size: impl FnMut(u64) -> u64) -> Vec<Event> {
    let mut resized = events.to_vec();
    let large = |e: &&mut Event| e.action == Action::Alloc && e.size_bytes > SCALED_ABOVE_BYTES;
    for event in resized.iter_mut().filter(large) {
        event.size_bytes = size(event.size_bytes);
    }
    resized
}

/// Recorded from here on: only what is live then was there before.
fn later(events: &[Event], from: usize) -> Vec<Event> {
    let mut gone: HashSet<u64> = HashSet::new();
    for event in events[..from].iter().filter(|e| e.action == Action::Free) {
        gone.insert(event.id);
    }
    let keep = |e: &&Event| !gone.contains(&e.id);
    events.iter().filter(keep).copied().collect()
}

/// Two allocations of three.
fn fewer(events: &[Event]) -> Vec<Event> {
    let keep = |e: &&Event| !Random(e.id).next().is_multiple_of(3);
    events.iter().filter(keep).copied().collect()
}

/// The shorter one spread over the longer one.
fn together(a: &[Event], b: &[Event]) -> Vec<Event> {
    let (mut x, mut y) = (0, 0);
    let mut events = Vec::with_capacity(a.len() + b.len());
    while x < a.len() || y < b.len() {
        if y * a.len() > x * b.len() || y == b.len() {
            events.push(Event {
                id: 2 * a[x].id,
                ..a[x]
            });
            x += 1;
        } else {
            events.push(Event {
                id: 2 * b[y].id + 1,
                stream: b[y].stream,
                ..b[y]
            });
            y += 1;
        }
    }
    events
}

/// The same some times over in one process. What was live at an end is freed there.
fn again(events: &[Event], times: u64) -> Vec<Event> {
    let mut all = Vec::new();
    let most = events.iter().map(|e| e.id).max().unwrap_or(0) + 1;
    for turn in 0..times {
        let mut live: HashMap<u64, usize> = HashMap::new();
        for (at, event) in events.iter().enumerate() {
            let id = event.id + turn * most;
            all.push(Event { id, ..*event });
            match event.action {
                Action::Alloc => _ = live.insert(id, at),
                Action::Free => _ = live.remove(&id),
            }
        }
        let mut left: Vec<(usize, u64)> = live.into_iter().map(|(id, at)| (at, id)).collect();
        left.sort_unstable();
        all.extend(left.into_iter().map(|(_, id)| Event::free(id)));
    }
    all
}
