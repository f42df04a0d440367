//! Records a running program: its threads leave events in buffers, and whoever flushes encodes, compresses and writes
//! them. No thread is started here.

use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Instant;

use super::inbox::{Inbox, Waiting};
use super::output::Output;
use super::{Event, Recorded};

/// Bounds of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceOptions {
    /// Events of some of the threads (there are sixteen such groups) that may wait to be written. More are dropped and
    /// counted, never waited for.
    pub buffer_events: usize,
    /// Size at which the file stops growing; later events are counted as lost.
    pub max_file_bytes: u64,
}

impl Default for TraceOptions {
    fn default() -> Self {
        TraceOptions {
            buffer_events: 1 << 15,
            max_file_bytes: 1 << 30,
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
    start: Instant,
    inbox: Inbox,
    options: TraceOptions,
    /// Held while the buffers are emptied and what was in them is written, so that chunks keep their order.
    file: Mutex<Writing>,
}

#[derive(Debug, Default)]
struct Writing {
    output: Option<Output>,
    /// Empty buffers.
    spares: Vec<Vec<Waiting>>,
}

impl TraceWriter {
    /// A recording that has no file yet: events wait, as many as there is room for.
    pub fn new(options: TraceOptions) -> TraceWriter {
        TraceWriter {
            start: Instant::now(),
            inbox: Inbox::new(options.buffer_events.max(1)),
            options,
            file: Mutex::default(),
        }
    }

    /// A recording with its file.
    pub fn create(
        path: &Path,
        header: &serde_json::Value,
        options: TraceOptions,
    ) -> io::Result<TraceWriter> {
        let writer = TraceWriter::new(options);
        writer.open(path, header)?;
        Ok(writer)
    }

    /// Puts the file in place, if there is none yet. `header`: settings and facts of the process, as JSON.
    pub fn open(&self, path: &Path, header: &serde_json::Value) -> io::Result<()> {
        let mut writing = lock(&self.file);
        if writing.output.is_none() {
            let output = Output::create(path, header, self.options.max_file_bytes)?;
            writing.output = Some(output);
        }
        Ok(())
    }

    /// Takes a turn for an event that is recorded later: take it before a free, and record the free after it.
    pub fn turn(&self) -> u64 {
        self.inbox.turn()
    }

    /// Records one event; its `time_ns` is set here. Never waits for the file. `turn`: from [`TraceWriter::turn`], for a
    /// free; an allocation takes its own, so record it after its memory was given and before the program has it.
    pub fn record(&self, turn: Option<u64>, event: Event) -> Recorded {
        let time_ns = self.start.elapsed().as_nanos() as u64;
        self.inbox.put(turn, Event { time_ns, ..event })
    }

    /// Gives the number of a site its name. Once per site.
    pub fn name_site(&self, site: u32, name: &str) {
        self.inbox.name(site, name.to_owned());
    }

    /// Writes what waits. Nothing is written, and nothing lost, while there is no file.
    ///
    /// # Errors
    /// The file's, once: the recording has ended then, and later events are ignored.
    pub fn flush(&self) -> io::Result<WriterStats> {
        self.drain(lock(&self.file), false)
    }

    /// Ends the recording: writes what waits and the end record. Later events are ignored.
    ///
    /// # Errors
    /// The file's, once.
    pub fn finish(&self) -> io::Result<WriterStats> {
        self.drain(lock(&self.file), true)
    }

    /// The same if no other thread is writing at this moment.
    pub fn try_finish(&self) -> Option<io::Result<WriterStats>> {
        let writing = match self.file.try_lock() {
            Ok(writing) => writing,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(self.drain(writing, true))
    }

    fn drain(&self, mut writing: MutexGuard<'_, Writing>, end: bool) -> io::Result<WriterStats> {
        let Writing { output, spares } = &mut *writing;
        let Some(output) = output else {
            return Ok(WriterStats::default());
        };
        if end {
            self.inbox.close();
        }
        let written = output.write(self.inbox.drain(spares), end);
        if written.is_err() {
            self.inbox.close();
        }
        written.map(|()| output.stats())
    }
}

impl Drop for TraceWriter {
    fn drop(&mut self) {
        // Nobody is left to be told of a full disk.
        let _ = self.finish();
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
            writer.record(None, *event);
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

    fn started(
        directory: &tempfile::TempDir,
        max_file_bytes: u64,
    ) -> (std::path::PathBuf, TraceWriter) {
        let path = directory.path().join("t");
        let options = TraceOptions {
            max_file_bytes,
            ..TraceOptions::default()
        };
        let writer = TraceWriter::create(&path, &serde_json::json!({}), options).unwrap();
        (path, writer)
    }

    #[test]
    fn a_free_that_comes_a_batch_late_frees_what_it_meant() {
        let directory = tempfile::tempdir().unwrap();
        let (path, writer) = started(&directory, 1 << 20);
        writer.record(None, Event::alloc(1, 10, 0));
        let early = writer.turn();
        // Another thread has the same memory already.
        writer.record(None, Event::alloc(1, 20, 0));
        writer.flush().unwrap();
        writer.record(Some(early), Event::free(1));
        writer.finish().unwrap();
        let trace = read_file(&path).unwrap();
        let actions: Vec<_> = trace.events.iter().map(|e| (e.action, e.id)).collect();
        assert_eq!(
            actions,
            [(Action::Alloc, 0), (Action::Free, 0), (Action::Alloc, 1)],
            "the second allocation stays live"
        );
        assert_eq!(trace.unmatched_frees, 0);
    }

    #[test]
    fn what_a_kill_leaves_is_read_up_to_the_last_flush() {
        let directory = tempfile::tempdir().unwrap();
        let (path, writer) = started(&directory, 1 << 20);
        let mut lengths = Vec::new();
        for id in 0..3 {
            writer.record(None, Event::alloc(id, 10, 0));
            lengths.push(writer.flush().unwrap().file_bytes as usize);
        }
        let bytes = std::fs::read(&path).unwrap();
        for length in lengths[0]..bytes.len() {
            let (trace, _) = crate::trace::parse(&bytes[..length]).unwrap();
            let whole = lengths.iter().filter(|flushed| **flushed <= length).count();
            assert_eq!((trace.events.len(), trace.complete), (whole, false));
        }
    }

    #[test]
    fn a_file_that_is_full_says_so_before_the_end() {
        let directory = tempfile::tempdir().unwrap();
        let (path, writer) = started(&directory, 300);
        for _ in 0..2 {
            for id in 0..500 {
                writer.record(None, Event::alloc(id, id * 999, id));
            }
            writer.flush().unwrap();
        }
        let trace = read_file(&path).unwrap();
        assert!(!trace.complete && trace.lost_events == 500, "{trace:?}");
        assert!(writer.finish().unwrap().file_bytes <= 300);
        assert_eq!(read_file(&path).unwrap().lost_events, 1000);
    }

    #[test]
    fn a_file_that_takes_its_place_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let (path, writer) = started(&directory, 1 << 20);
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "precious").unwrap();
        writer.record(None, Event::alloc(1, 10, 0));
        assert!(writer.flush().is_err());
        assert!(writer.finish().is_ok(), "said once");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
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
