//! Reads recorded allocation traces and runs them through a pool.

use std::collections::{BTreeSet, HashMap};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::Arc;

use cushion::pool::{Budget, FreeMode, FreeOutcome, Pool, Request, Settings};
use flate2::read::GzDecoder;

use super::arithmetic::Arithmetic;

#[derive(Debug, Clone, Copy)]
pub enum Event {
    Allocate { id: u32, size_bytes: u64 },
    Free { id: u32 },
}

pub struct Trace {
    pub events: Vec<Event>,
    /// As recorded: what PyTorch's own allocator reserved at most, and how many segments that took.
    pub torch_peak_bytes: u64,
    pub torch_calls: u64,
}

/// A recorded trace: in the folder that `CUSHION_TRACES` names, else in the repository.
pub fn path_of(name: &str) -> PathBuf {
    let own = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/traces");
    let folder = std::env::var_os("CUSHION_TRACES").map_or(own, PathBuf::from);
    folder.join(format!("{name}.trace.gz"))
}

fn figure(header: &str, name: &str) -> u64 {
    let after = header
        .split(&format!("\"{name}\": "))
        .nth(1)
        .expect("figure in the header");
    let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().expect("a number in the header")
}

pub fn read(name: &str) -> Trace {
    let file = std::fs::File::open(path_of(name)).expect("trace can be opened");
    let mut lines = BufReader::new(GzDecoder::new(file))
        .lines()
        .map(|line| line.unwrap());
    let header = lines.next().expect("trace has a header");
    let events = lines
        .map(|line| {
            let mut words = line.split(' ');
            let kind = words.next().unwrap();
            let id = words.next().unwrap().parse().unwrap();
            match kind {
                "a" => Event::Allocate {
                    id,
                    size_bytes: words.next().unwrap().parse().unwrap(),
                },
                "f" => Event::Free { id },
                other => panic!("unknown event {other}"),
            }
        })
        .collect();
    Trace {
        events,
        torch_peak_bytes: figure(&header, "peak_reserved"),
        torch_calls: figure(&header, "segments"),
    }
}

impl Trace {
    /// The same so many times over, each time to the end of all that is live.
    pub fn times(&self, times: u32) -> Trace {
        let ids = |event: &Event| match *event {
            Event::Allocate { id, .. } | Event::Free { id } => id,
        };
        let most = self.events.iter().map(ids).max().map_or(0, |id| id + 1);
        let mut events = Vec::new();
        for turn in 0..times {
            let mut live = BTreeSet::new();
            for event in &self.events {
                let id = ids(event) + turn * most;
                events.push(match *event {
                    Event::Allocate { size_bytes, .. } => Event::Allocate { id, size_bytes },
                    Event::Free { .. } => Event::Free { id },
                });
                match event {
                    Event::Allocate { .. } => live.insert(id),
                    Event::Free { .. } => live.remove(&id),
                };
            }
            events.extend(live.into_iter().map(|id| Event::Free { id }));
        }
        Trace { events, ..*self }
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Outcome {
    pub peak_live_bytes: u64,
    pub peak_reserved_bytes: u64,
    pub reserve_calls: u64,
    pub release_calls: u64,
    pub nanoseconds_per_event: f64,
}

impl Outcome {
    pub fn utilisation_percent(&self) -> f64 {
        100.0 * self.peak_live_bytes as f64 / self.peak_reserved_bytes as f64
    }

    pub fn driver_calls(&self) -> u64 {
        self.reserve_calls + self.release_calls
    }
}

/// Runs a trace through an empty pool, in one stream.
pub fn replay(trace: &Trace, settings: Settings) -> Outcome {
    let backing = Arithmetic::one_stream(1 << 40);
    let pool = Pool::new(settings, Arc::new(Budget::new(None)));
    let mut addresses = HashMap::new();
    let (mut live, mut peak_live_bytes) = (0, 0);
    let start = std::time::Instant::now();
    for event in &trace.events {
        match *event {
            Event::Allocate { id, size_bytes } => {
                let request = Request {
                    size_bytes,
                    tag: 0,
                    capturing: false,
                    isolated: false,
                };
                let grant = pool
                    .allocate(&backing, request)
                    .expect("a terabyte is enough");
                addresses.insert(id, grant.address);
                live += size_bytes;
                peak_live_bytes = peak_live_bytes.max(live);
            }
            Event::Free { id } => {
                let address = addresses.remove(&id).expect("freed once");
                match pool.free(&backing, address, FreeMode::default()) {
                    FreeOutcome::Freed {
                        requested_bytes, ..
                    } => live -= requested_bytes,
                    other => panic!("{other:?}"),
                }
            }
        }
    }
    Outcome {
        peak_live_bytes,
        peak_reserved_bytes: backing.peak_bytes.load(SeqCst),
        reserve_calls: backing.reserve_calls.load(SeqCst),
        release_calls: backing.release_calls.load(SeqCst),
        nanoseconds_per_event: start.elapsed().as_nanos() as f64 / trace.events.len() as f64,
    }
}
