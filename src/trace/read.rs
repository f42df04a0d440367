//! From a file to a [`Trace`]: which format it is, and which reader takes it.

use std::path::Path;

use flate2::read::MultiGzDecoder;

use super::codec::MAGIC;
use super::inflate::Allowance;
use super::{csv, decode, kineto, rmm, snapshot, text, ReadError, Trace};
use crate::source;

/// The kinds of file that can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Recorded by cushion.
    Cushion,
    /// Lines `a ID SIZE STREAM` and `f ID`.
    Text,
    /// The table of [`csv`].
    Csv,
    /// RMM's log.
    Rmm,
    /// A PyTorch memory snapshot.
    Snapshot,
    /// A Kineto or Chrome trace.
    Kineto,
}

/// Longer files are refused: what is in them takes some twenty times their length in memory.
const FILE_BYTES_MAX: u64 = 4 << 30;

/// Reads a file of any known format.
pub fn read_file(path: &Path) -> Result<Trace, ReadError> {
    parse(&source::read(path, FILE_BYTES_MAX)?).map(|(trace, _)| trace)
}

/// Reads the content of a file of any known format, and says which it was.
pub fn parse(bytes: &[u8]) -> Result<(Trace, Format), ReadError> {
    let mut allowance = Allowance::of(bytes.len());
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return parse_plain(bytes, &mut allowance);
    }
    let plain = allowance
        .inflate(MultiGzDecoder::new(bytes))
        .map_err(|e| ReadError::byte(0, format!("intact gzip data ({e})")))?;
    parse_plain(&plain, &mut allowance)
}

fn parse_plain(bytes: &[u8], allowance: &mut Allowance) -> Result<(Trace, Format), ReadError> {
    if bytes.is_empty() {
        return Err(ReadError::byte(0, "a trace, and the file is empty"));
    }
    let format = recognise(bytes);
    let trace = match format {
        Format::Cushion => decode::parse(bytes, allowance),
        Format::Snapshot => snapshot::parse(bytes),
        Format::Kineto => kineto::parse(bytes),
        Format::Text => text::parse(as_text(bytes)?),
        Format::Csv => csv::parse(as_text(bytes)?),
        Format::Rmm => rmm::parse(as_text(bytes)?),
    }?;
    Ok((trace, format))
}

fn recognise(bytes: &[u8]) -> Format {
    let first_line = bytes.split(|b| *b == b'\n').next().unwrap_or_default();
    let first_line = first_line.strip_suffix(b"\r").unwrap_or(first_line);
    match bytes.iter().find(|b| !b.is_ascii_whitespace()) {
        _ if bytes.starts_with(&MAGIC[..6]) => Format::Cushion,
        Some(0x80) => Format::Snapshot,
        Some(b'{' | b'[') => Format::Kineto,
        _ if first_line == rmm::HEADER.as_bytes() => Format::Rmm,
        _ if first_line == csv::HEADER.as_bytes() => Format::Csv,
        _ => Format::Text,
    }
}

fn as_text(bytes: &[u8]) -> Result<&str, ReadError> {
    std::str::from_utf8(bytes).map_err(|e| {
        let line = bytes[..e.valid_up_to()]
            .iter()
            .filter(|b| **b == b'\n')
            .count()
            + 1;
        ReadError::line(line, "text (UTF-8), or a file of a known binary format")
    })
}
