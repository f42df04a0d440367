//! Records a running program: the caller leaves a fixed-size record in a buffer, a thread of the writer's own encodes.
//!
//! The order of the file is the order of the calls to [`TraceWriter::record`]. For it to be the truth about addresses,
//! record an allocation after the pool gave the memory and a free before the pool gets it back.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::codec::{Encoder, MAX_CHUNK_BYTES};
use super::{encode, Event};

/// Bounds of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceOptions {
    /// Events that may wait to be encoded. More are dropped and counted, never waited for.
    pub buffer_events: usize,
    /// Size at which the file stops growing; later events are counted as lost.
    pub max_file_bytes: u64,
    /// Longest time for which an event stays in memory only.
    pub flush_interval: Duration,
}

impl Default for TraceOptions {
    fn default() -> Self {
        TraceOptions {
            buffer_events: 1 << 16,
            max_file_bytes: 1 << 30,
            flush_interval: Duration::from_millis(200),
        }
    }
}

/// How a recording stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WriterStats {
    /// Events in the file.
    pub written_events: u64,
    /// Events dropped.
    pub lost_events: u64,
    /// Size of the file.
    pub file_bytes: u64,
}

/// A recording in progress. All methods may be called from any thread.
#[derive(Debug)]
pub struct TraceWriter {
    shared: Arc<Shared>,
    start: Instant,
}

#[derive(Debug)]
struct Shared {
    inbox: Mutex<Inbox>,
    wake: Condvar,
    /// Taken before `inbox` is swapped and held until the swapped events are written, so chunks keep their order.
    file: Mutex<Output>,
    options: TraceOptions,
}

#[derive(Debug, Default)]
struct Inbox {
    events: Vec<Event>,
    names: Vec<(u32, String)>,
    lost: u64,
    closed: bool,
}

#[derive(Debug)]
struct Output {
    file: File,
    encoder: Encoder,
    spare: Vec<Event>,
    stats: WriterStats,
    /// Lost events that the file already tells of.
    said_lost: u64,
    /// No more events are written: the bound is reached, or the disk refused.
    full: bool,
    /// The end record is written, or cannot be.
    ended: bool,
}

/// What one drain takes out of the inbox.
struct Batch {
    events: Vec<Event>,
    names: Vec<(u32, String)>,
    lost: u64,
}

/// Room kept below the file's bound for the last chunk (the lost mark and the end record).
const END_BYTES: u64 = 256;

impl TraceWriter {
    /// Creates the file and starts the writer's thread. `header`: settings and facts of the process, as JSON.
    pub fn create(
        path: &Path,
        header: &serde_json::Value,
        options: TraceOptions,
    ) -> io::Result<TraceWriter> {
        // More would not fit into a chunk.
        let options = TraceOptions {
            buffer_events: options.buffer_events.clamp(1, 1 << 20),
            ..options
        };
        let mut file = File::create(path)?;
        let head = encode::head(header)?;
        file.write_all(&head)?;
        let stats = WriterStats {
            file_bytes: head.len() as u64,
            ..WriterStats::default()
        };
        let room = || Vec::with_capacity(options.buffer_events);
        let encoder = Encoder::default();
        let output = Output {
            file,
            encoder,
            spare: room(),
            stats,
            said_lost: 0,
            full: false,
            ended: false,
        };
        let inbox = Inbox {
            events: room(),
            ..Inbox::default()
        };
        let shared = Arc::new(Shared {
            inbox: Mutex::new(inbox),
            wake: Condvar::new(),
            file: Mutex::new(output),
            options,
        });
        let for_thread = Arc::clone(&shared);
        // Never joined: it ends by itself once the recording is finished, and may be gone already while a process exits.
        std::thread::Builder::new()
            .name("cushion-trace".into())
            .spawn(move || for_thread.run())?;
        Ok(TraceWriter {
            shared,
            start: Instant::now(),
        })
    }

    /// Records one event; its `time_ns` is set here. Never waits for the file.
    pub fn record(&self, event: Event) {
        let time_ns = self.start.elapsed().as_nanos() as u64;
        let mut inbox = lock(&self.shared.inbox);
        let waiting = inbox.events.len();
        if inbox.closed {
            return;
        }
        if waiting >= self.shared.options.buffer_events {
            inbox.lost += 1;
            return;
        }
        inbox.events.push(Event { time_ns, ..event });
        drop(inbox);
        if waiting == self.shared.options.buffer_events / 2 {
            self.shared.wake.notify_one();
        }
    }

    /// Gives the number of a site its name. Once per site.
    pub fn name_site(&self, site: u32, name: &str) {
        lock(&self.shared.inbox).names.push((site, name.to_owned()));
    }

    /// Writes what waits. Errors of the file end the recording and are reported once.
    pub fn flush(&self) -> io::Result<WriterStats> {
        self.shared.drain(false)
    }

    /// Ends the recording: writes what waits and the end record. Later events are ignored.
    pub fn finish(&self) -> io::Result<WriterStats> {
        lock(&self.shared.inbox).closed = true;
        self.shared.wake.notify_one();
        self.shared.drain(true)
    }
}

impl Drop for TraceWriter {
    fn drop(&mut self) {
        // Nobody is left to be told of a full disk.
        let _ = self.finish();
    }
}

impl Shared {
    fn run(&self) {
        loop {
            let inbox = lock(&self.inbox);
            if inbox.closed {
                return;
            }
            let woken = self.wake.wait_timeout(inbox, self.options.flush_interval);
            let (inbox, _) = woken.unwrap_or_else(PoisonError::into_inner);
            let (idle, closed) = (
                inbox.events.is_empty() && inbox.names.is_empty(),
                inbox.closed,
            );
            drop(inbox);
            // `finish` drains for itself once it has closed the inbox.
            if closed || (!idle && self.drain(false).is_err()) {
                return;
            }
        }
    }

    fn drain(&self, end: bool) -> io::Result<WriterStats> {
        let mut output = lock(&self.file);
        let mut batch = Batch {
            events: std::mem::take(&mut output.spare),
            names: Vec::new(),
            lost: 0,
        };
        let mut inbox = lock(&self.inbox);
        std::mem::swap(&mut batch.events, &mut inbox.events);
        std::mem::swap(&mut batch.names, &mut inbox.names);
        batch.lost = std::mem::take(&mut inbox.lost);
        drop(inbox);
        let result = output.write(&batch, end, self.options.max_file_bytes);
        batch.events.clear();
        output.spare = batch.events;
        result.map(|()| output.stats)
    }
}

impl Output {
    fn write(&mut self, batch: &Batch, end: bool, max_file_bytes: u64) -> io::Result<()> {
        self.lose(batch.lost);
        if self.full || self.ended {
            self.lose(batch.events.len() as u64);
        } else {
            self.append(batch, max_file_bytes)?;
        }
        if end && !self.ended {
            self.ended = true;
            self.encoder.start_chunk();
            self.say_lost();
            self.encoder.end(0);
            let chunk = encode::chunk(&self.encoder.raw)?;
            self.put(&chunk)?;
        }
        Ok(())
    }

    fn append(&mut self, batch: &Batch, max_file_bytes: u64) -> io::Result<()> {
        self.encoder.start_chunk();
        for (site, name) in &batch.names {
            self.encoder.name(*site, name);
        }
        for event in &batch.events {
            self.encoder.event(event);
        }
        self.say_lost();
        if self.encoder.raw.is_empty() {
            return Ok(());
        }
        let chunk = encode::chunk(&self.encoder.raw)?;
        let room = max_file_bytes.saturating_sub(self.stats.file_bytes + END_BYTES);
        if chunk.len() as u64 > room || self.encoder.raw.len() > MAX_CHUNK_BYTES as usize {
            self.full = true;
            self.lose(batch.events.len() as u64);
            return Ok(());
        }
        self.stats.written_events += batch.events.len() as u64;
        self.put(&chunk)
    }

    fn lose(&mut self, events: u64) {
        self.stats.lost_events += events;
    }

    fn say_lost(&mut self) {
        let unsaid = self.stats.lost_events - self.said_lost;
        if unsaid > 0 {
            self.encoder.lost(unsaid);
        }
        self.said_lost = self.stats.lost_events;
    }

    fn put(&mut self, chunk: &[u8]) -> io::Result<()> {
        self.file
            .write_all(chunk)
            .inspect_err(|_| (self.full, self.ended) = (true, true))?;
        self.stats.file_bytes += chunk.len() as u64;
        Ok(())
    }
}

/// A panic while a lock was held leaves at worst a lost chunk: going on is right.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{read_file, Action};

    fn record(options: TraceOptions, events: &[Event]) -> (crate::trace::Trace, WriterStats) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("t");
        let writer = TraceWriter::create(&path, &serde_json::json!({"pid": 7}), options).unwrap();
        writer.name_site(3, "main.cu:12");
        for event in events {
            writer.record(*event);
        }
        let stats = writer.finish().unwrap();
        (read_file(&path).unwrap(), stats)
    }

    #[test]
    fn a_recording_reads_back() {
        let at = |e: Event, thread| Event { thread, ..e };
        let alloc = Event {
            site: 3,
            device: 1,
            ..Event::alloc(0x7f00_0000_0000, 1 << 30, 9)
        };
        let free = Event {
            device: 1,
            ..Event::free(0x7f00_0000_0000)
        };
        let (trace, stats) = record(
            TraceOptions::default(),
            &[
                at(alloc, 1),
                at(free, 2),
                at(alloc, 2),
                Event::alloc(0x7f00_0000_0000, 5, 0),
                Event::free(0xdead),
            ],
        );
        assert!(trace.complete);
        assert_eq!(
            (stats.lost_events, trace.lost_events, trace.unmatched_frees),
            (0, 0, 1)
        );
        assert_eq!(trace.header["pid"], 7);
        assert_eq!(trace.sites[&3], "main.cu:12");
        let summary: Vec<_> = trace
            .events
            .iter()
            .map(|e| (e.action, e.id, e.size_bytes, e.device, e.stream, e.thread))
            .collect();
        assert_eq!(
            summary,
            [
                (Action::Alloc, 0, 1 << 30, 1, 9, 1),
                (Action::Free, 0, 0, 1, 0, 2),
                (Action::Alloc, 1, 1 << 30, 1, 9, 2),
                (Action::Alloc, 2, 5, 0, 0, 0),
            ]
        );
        assert!(trace
            .events
            .windows(2)
            .all(|w| w[0].time_ns <= w[1].time_ns));
    }

    #[test]
    fn an_address_that_comes_again_was_freed() {
        let (trace, _) = record(
            TraceOptions::default(),
            &[Event::alloc(1, 10, 0), Event::alloc(1, 20, 0)],
        );
        let actions: Vec<_> = trace.events.iter().map(|e| e.action).collect();
        assert_eq!(actions, [Action::Alloc, Action::Free, Action::Alloc]);
    }

    #[test]
    fn a_full_file_stays_below_its_bound_and_says_so() {
        let events: Vec<Event> = (0..50_000u64)
            .map(|i| Event::alloc(i, i.wrapping_mul(0x9e37_79b9_7f4a_7c15), i))
            .collect();
        let options = TraceOptions {
            max_file_bytes: 4096,
            ..TraceOptions::default()
        };
        let (trace, stats) = record(options, &events);
        assert!(trace.complete && stats.file_bytes <= 4096);
        assert_eq!(trace.events.len() as u64 + trace.lost_events, 50_000);
        assert_eq!(stats.lost_events, trace.lost_events);
    }

    #[test]
    fn a_full_buffer_drops_and_counts() {
        let events: Vec<Event> = (0..100_000u64).map(|i| Event::alloc(i, 512, 0)).collect();
        let (trace, stats) = record(
            TraceOptions {
                buffer_events: 4,
                ..TraceOptions::default()
            },
            &events,
        );
        assert_eq!(trace.events.len() as u64 + trace.lost_events, 100_000);
        assert_eq!(stats.written_events, trace.events.len() as u64);
    }
}
