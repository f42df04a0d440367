//! The report's JSON layout: indented like any other, but what holds only plain values (a run, a frame, a gauge) is on one
//! line, so that a person can read a map of thousands of them.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::ser::{PrettyFormatter, Serializer};

use super::Report;

/// Writes a report as JSON, piece by piece, without a line end.
pub fn to_json(report: &Report, out: impl Write) -> io::Result<()> {
    let mut folder = Folder {
        out,
        line: Vec::new(),
        held: Vec::new(),
    };
    let pretty = PrettyFormatter::with_indent(b" ");
    report.serialize(&mut Serializer::with_formatter(&mut folder, pretty))?;
    folder.end()
}

/// Takes indented JSON and folds the innermost containers. A line break is always layout: in strings it is escaped.
struct Folder<W> {
    out: W,
    /// The line that is coming in.
    line: Vec<u8>,
    /// A container that has begun and held no other so far: its first line and what followed.
    held: Vec<Vec<u8>>,
}

impl<W: Write> Folder<W> {
    fn take_line(&mut self) -> io::Result<()> {
        let line = std::mem::take(&mut self.line);
        let closes =
            line.trim_ascii_start().starts_with(b"}") || line.trim_ascii_start().starts_with(b"]");
        let opens = line.ends_with(b"{") || line.ends_with(b"[");
        if opens {
            self.release()?;
            self.held.push(line);
        } else if closes && !self.held.is_empty() {
            self.fold(&line)?;
        } else if self.held.is_empty() {
            self.put(&line)?;
        } else {
            self.held.push(line);
        }
        Ok(())
    }

    /// Writes what is held as it came.
    fn release(&mut self) -> io::Result<()> {
        std::mem::take(&mut self.held)
            .iter()
            .try_for_each(|line| self.put(line))
    }

    /// Writes what is held as one line.
    fn fold(&mut self, last: &[u8]) -> io::Result<()> {
        for (at, line) in std::mem::take(&mut self.held).iter().enumerate() {
            let separator: &[u8] = if at > 1 { b" " } else { b"" };
            self.out.write_all(separator)?;
            self.out.write_all(if at == 0 {
                line
            } else {
                line.trim_ascii_start()
            })?;
        }
        self.put(last.trim_ascii_start())
    }

    fn put(&mut self, line: &[u8]) -> io::Result<()> {
        self.out.write_all(line)?;
        self.out.write_all(b"\n")
    }

    fn end(mut self) -> io::Result<()> {
        self.release()?;
        self.out.write_all(&self.line)?;
        self.out.flush()
    }
}

impl<W: Write> Write for Folder<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            match part.strip_suffix(b"\n") {
                Some(rest) => {
                    self.line.extend_from_slice(rest);
                    self.take_line()?;
                }
                None => self.line.extend_from_slice(part),
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
