//! The file of a recording: opened for each write, at most as large as it may be, and ended only once.
//!
//! # Decision: no descriptor is kept
//! Between two writes the file is closed. A program that closes descriptors which are not its own would else have the
//! next file it opens written into. When the file is opened again it must be the one that was made, as long as it was
//! left: another file in its place ends the recording.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::codec::{Encoder, MAX_CHUNK_BYTES};
use super::encode;
use super::inbox::{Batch, Waiting};
use super::WriterStats;
use crate::place;

/// Room kept below the file's bound for the last chunks (the mark of what is lost, and the end record).
const END_BYTES: u64 = 256;
/// Events in a chunk at most.
const CHUNK_EVENTS: usize = 1 << 15;

#[derive(Debug)]
pub(super) struct Output {
    path: PathBuf,
    /// Device and inode of the file that was made.
    identity: (u64, u64),
    max_file_bytes: u64,
    encoder: Encoder,
    stats: WriterStats,
    /// Lost events that the file already tells of.
    said_lost: u64,
    /// No more events are written: the bound is reached.
    full: bool,
    /// The end record is written, or the file has failed.
    ended: bool,
}

impl Output {
    /// Puts a new file with nothing but a header in place.
    pub fn create(
        path: &Path,
        header: &serde_json::Value,
        max_file_bytes: u64,
    ) -> io::Result<Output> {
        let head = encode::head(header)?;
        let metadata = place::put(path, |file: &mut File| {
            file.write_all(&head)?;
            file.metadata()
        })?;
        Ok(Output {
            path: path.to_owned(),
            identity: identity(&metadata),
            max_file_bytes,
            encoder: Encoder::default(),
            stats: WriterStats {
                file_bytes: head.len() as u64,
                ..WriterStats::default()
            },
            said_lost: 0,
            full: false,
            ended: false,
        })
    }

    pub fn stats(&self) -> WriterStats {
        self.stats
    }

    /// Writes a batch, and after it the end record if `end` says so.
    ///
    /// # Errors
    /// The file's, once; the recording has ended then.
    pub fn write(&mut self, batch: Batch, end: bool) -> io::Result<()> {
        let written = self.try_write(batch, end);
        self.ended |= written.is_err();
        written
    }

    fn try_write(&mut self, batch: Batch, end: bool) -> io::Result<()> {
        self.stats.lost_events += batch.lost;
        if self.ended {
            self.stats.lost_events += batch.events.len() as u64;
            return Ok(());
        }
        let mut chunks = Vec::new();
        self.encoder.start_chunk();
        for (site, name) in &batch.names {
            self.encoder.name(*site, name);
        }
        // Names alone are a chunk, too.
        let mut pieces = batch.events.chunks(CHUNK_EVENTS);
        self.append(pieces.next().unwrap_or_default(), &mut chunks)?;
        for events in pieces {
            self.encoder.start_chunk();
            self.append(events, &mut chunks)?;
        }
        let unsaid = self.stats.lost_events > self.said_lost;
        // A file that is full says so at once, and how much it lacks when it ends.
        if unsaid && (end || !self.full || self.said_lost == 0) {
            self.encoder.start_chunk();
            self.encoder.lost(self.stats.lost_events - self.said_lost);
            self.said_lost = self.stats.lost_events;
            chunks.extend(encode::chunk(&self.encoder.raw)?);
        }
        if end {
            self.encoder.start_chunk();
            self.encoder.end(0);
            chunks.extend(encode::chunk(&self.encoder.raw)?);
            self.ended = true;
        }
        self.put(&chunks)
    }

    /// Encodes events behind what the encoder has already, if there is room for them.
    fn append(&mut self, events: &[Waiting], chunks: &mut Vec<u8>) -> io::Result<()> {
        if self.full {
            self.stats.lost_events += events.len() as u64;
            return Ok(());
        }
        for (turn, event) in events {
            self.encoder.event(event, *turn);
        }
        if self.encoder.raw.is_empty() {
            return Ok(());
        }
        let chunk = encode::chunk(&self.encoder.raw)?;
        let bytes = self.stats.file_bytes + (chunks.len() + chunk.len()) as u64;
        if bytes + END_BYTES > self.max_file_bytes
            || self.encoder.raw.len() > MAX_CHUNK_BYTES as usize
        {
            self.full = true;
            self.stats.lost_events += events.len() as u64;
            return Ok(());
        }
        self.stats.written_events += events.len() as u64;
        chunks.extend(chunk);
        Ok(())
    }

    fn put(&mut self, chunks: &[u8]) -> io::Result<()> {
        if chunks.is_empty() {
            return Ok(());
        }
        let mut options = OpenOptions::new();
        // A pipe that was put in its place does not block either.
        options
            .append(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        let mut file = options.open(&self.path)?;
        let metadata = file.metadata()?;
        if identity(&metadata) != self.identity || metadata.len() != self.stats.file_bytes {
            return Err(io::Error::other(
                "it was replaced or changed while it was written",
            ));
        }
        file.write_all(chunks).inspect_err(|_| {
            // Half a chunk is of no use to a reader.
            let _ = file.set_len(self.stats.file_bytes);
        })?;
        self.stats.file_bytes += chunks.len() as u64;
        Ok(())
    }
}

fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}
