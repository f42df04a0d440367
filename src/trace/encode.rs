//! The pieces of a file in cushion's own format, and a whole trace written at once.

use std::io::{self, Write};

use flate2::write::DeflateEncoder;
use flate2::Compression;

use super::codec::{Encoder, MAGIC};
use super::Trace;

/// Events in a chunk of a converted trace.
const CHUNK_EVENTS: usize = 1 << 16;

/// Writes a trace in cushion's own format.
pub fn write(trace: &Trace, out: &mut impl Write) -> io::Result<()> {
    out.write_all(&head(&serde_json::Value::Object(trace.header.clone()))?)?;
    let mut encoder = Encoder::default();
    for (site, name) in &trace.sites {
        encoder.name(*site, name);
    }
    let mut turn = 0;
    for events in trace.events.chunks(CHUNK_EVENTS) {
        for event in events {
            encoder.event(event, turn);
            turn += 1;
        }
        out.write_all(&chunk(&encoder.raw)?)?;
        encoder.start_chunk();
    }
    if trace.lost_events > 0 {
        encoder.lost(trace.lost_events);
    }
    encoder.end(trace.unmatched_frees);
    out.write_all(&chunk(&encoder.raw)?)
}

/// What a file begins with.
pub(super) fn head(header: &serde_json::Value) -> io::Result<Vec<u8>> {
    let header = serde_json::to_vec(header)?;
    let length = u32::try_from(header.len()).map_err(io::Error::other)?;
    Ok([MAGIC.as_slice(), &length.to_le_bytes(), &header].concat())
}

/// Length before, length after, and the deflate stream, in one piece so that one write carries it.
pub(super) fn chunk(raw: &[u8]) -> io::Result<Vec<u8>> {
    let mut chunk = (raw.len() as u32).to_le_bytes().to_vec();
    chunk.extend_from_slice(&[0; 4]);
    let mut deflate = DeflateEncoder::new(chunk, Compression::fast());
    deflate.write_all(raw)?;
    let mut chunk = deflate.finish()?;
    let compressed = (chunk.len() - 8) as u32;
    chunk[4..8].copy_from_slice(&compressed.to_le_bytes());
    Ok(chunk)
}
