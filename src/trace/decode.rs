//! The strict reader of cushion's own format; [`super::codec`] describes it.
//!
//! A chunk that the file ends in the midst of is what a program leaves that was killed while it was written, or one
//! whose disk was full: it is left out, and the trace is not complete. Whatever else is wrong is an error.

use std::io::Read;

use flate2::read::DeflateDecoder;

use super::codec::{
    Context, ALLOC, CHUNK_HEAD_BYTES, END, FREE, KIND, LOST, MAGIC, MAX_CHUNK_BYTES, NAME, PLACE,
    SITE, SORT, THREAD,
};
use super::inflate::Allowance;
use super::{Action, Event, ReadError, Trace};
use crate::ledger::Kind;

/// Parses a whole file.
pub(super) fn parse(bytes: &[u8], allowance: &mut Allowance) -> Result<Trace, ReadError> {
    let mut file = Cursor {
        bytes,
        at: 0,
        base: 0,
    };
    if file.take(MAGIC.len())? != MAGIC {
        return Err(ReadError::byte(6, "version 01 of the trace format"));
    }
    let header_bytes = file.u32()?;
    let header = file.take(header_bytes as usize)?;
    let header = serde_json::from_slice(header)
        .map_err(|e| ReadError::byte(MAGIC.len() + 4, format!("a JSON object as header ({e})")))?;
    let mut decoder = Decoder {
        trace: Trace {
            header,
            ..Trace::default()
        },
        freed: Vec::new(),
        next: 0,
    };
    while file.at < bytes.len() {
        if decoder.trace.complete {
            return Err(ReadError::byte(
                file.at,
                "the end of the file after its end record",
            ));
        }
        let start = file.at;
        if bytes.len() - start < CHUNK_HEAD_BYTES {
            break;
        }
        let raw_bytes = file.u32()?;
        if raw_bytes > MAX_CHUNK_BYTES {
            return Err(ReadError::byte(
                start,
                format!("a chunk of at most {MAX_CHUNK_BYTES} bytes, and found {raw_bytes}"),
            ));
        }
        let compressed_bytes = file.u32()?;
        if compressed_bytes > MAX_CHUNK_BYTES {
            let what = format!("at most {MAX_CHUNK_BYTES} bytes, and found {compressed_bytes}");
            return Err(ReadError::byte(start + 4, what));
        }
        if bytes.len() - file.at < compressed_bytes as usize {
            break;
        }
        let compressed = file.take(compressed_bytes as usize)?;
        allowance
            .take(u64::from(raw_bytes))
            .map_err(|expected| ReadError::byte(start, expected))?;
        let mut raw = Vec::new();
        DeflateDecoder::new(compressed)
            .take(u64::from(raw_bytes) + 1)
            .read_to_end(&mut raw)
            .map_err(|e| ReadError::byte(start + 8, format!("intact deflate data ({e})")))?;
        if raw.len() != raw_bytes as usize {
            return Err(ReadError::byte(
                start,
                format!("a chunk of {raw_bytes} bytes, and found {}", raw.len()),
            ));
        }
        decoder.chunk(&raw, start)?;
    }
    Ok(decoder.trace)
}

struct Decoder {
    trace: Trace,
    /// By number of allocation: whether it was freed, and its device.
    freed: Vec<(bool, u32)>,
    next: u64,
}

impl Decoder {
    /// `base`: where in the file the chunk begins. Positions inside it are not the file's, so errors name the chunk.
    fn chunk(&mut self, raw: &[u8], base: usize) -> Result<(), ReadError> {
        let mut input = Cursor {
            bytes: raw,
            at: 0,
            base,
        };
        let mut context = Context::default();
        while input.at < raw.len() {
            if self.trace.complete {
                return Err(input.expected("nothing after the end record"));
            }
            let tag = input.take(1)?[0];
            match tag & KIND {
                ALLOC => self.alloc(tag, &mut input, &mut context)?,
                FREE => self.free(tag, &mut input, &mut context)?,
                NAME => {
                    let site = input.narrow()?;
                    let length = input.number()?;
                    let text = input.take(usize::try_from(length).unwrap_or(usize::MAX))?;
                    let text =
                        std::str::from_utf8(text).map_err(|_| input.expected("a name in UTF-8"))?;
                    self.trace.sites.insert(site, text.to_owned());
                }
                LOST => {
                    self.trace.lost_events = self.trace.lost_events.saturating_add(input.number()?)
                }
                END => {
                    self.trace.unmatched_frees = input.number()?;
                    self.trace.complete = true;
                }
                _ => return Err(input.expected(format!("a record, and found tag {tag:#04x}"))),
            }
        }
        Ok(())
    }

    fn alloc(
        &mut self,
        tag: u8,
        input: &mut Cursor<'_>,
        context: &mut Context,
    ) -> Result<(), ReadError> {
        context.time_ns = input.time(context.time_ns)?;
        let size_bytes = input.number()?;
        if tag & THREAD != 0 {
            context.thread = input.number()?;
        }
        if tag & PLACE != 0 {
            context.device = input.narrow()?;
            context.stream = input.number()?;
        }
        if tag & SITE != 0 {
            context.site = input.narrow()?;
        }
        if tag & SORT != 0 {
            let at = input.number()?;
            let kind = usize::try_from(at).ok().and_then(|at| Kind::ALL.get(at));
            context.kind = *kind.ok_or_else(|| input.expected("a kind of memory"))?;
        }
        let Context {
            time_ns,
            thread,
            device,
            stream,
            site,
            kind,
        } = *context;
        let id = self.next;
        self.next += 1;
        self.freed.push((false, device));
        self.trace.events.push(Event {
            action: Action::Alloc,
            id,
            kind,
            size_bytes,
            device,
            stream,
            thread,
            time_ns,
            site,
        });
        Ok(())
    }

    fn free(
        &mut self,
        tag: u8,
        input: &mut Cursor<'_>,
        context: &mut Context,
    ) -> Result<(), ReadError> {
        context.time_ns = input.time(context.time_ns)?;
        let back = input.number()?;
        if tag & THREAD != 0 {
            context.thread = input.number()?;
        }
        let id = self.next.checked_sub(back);
        let slot = id
            .and_then(|id| self.freed.get_mut(usize::try_from(id).ok()?))
            .filter(|(freed, _)| !freed);
        let (Some(id), Some(slot)) = (id, slot) else {
            return Err(input.expected("the free of a live allocation"));
        };
        slot.0 = true;
        let device = slot.1;
        let (thread, time_ns) = (context.thread, context.time_ns);
        self.trace.events.push(Event {
            device,
            thread,
            time_ns,
            ..Event::free(id)
        });
        Ok(())
    }
}

/// A position in bytes, and the readers of single figures.
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    base: usize,
}

impl<'a> Cursor<'a> {
    fn expected(&self, what: impl Into<String>) -> ReadError {
        let what = what.into();
        match self.base {
            0 => ReadError::byte(self.at, what),
            base => ReadError::byte(
                base,
                format!("{what} (at byte {} of the chunk that begins here)", self.at),
            ),
        }
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], ReadError> {
        let found = self
            .at
            .checked_add(count)
            .and_then(|end| self.bytes.get(self.at..end));
        let found =
            found.ok_or_else(|| self.expected(format!("{count} more bytes, and the data ends")))?;
        self.at += count;
        Ok(found)
    }

    fn u32(&mut self) -> Result<u32, ReadError> {
        Ok(self
            .take(4)?
            .iter()
            .rev()
            .fold(0, |n, b| n << 8 | u32::from(*b)))
    }

    fn number(&mut self) -> Result<u64, ReadError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(self.expected("a number of at most 64 bits"))
    }

    fn narrow(&mut self) -> Result<u32, ReadError> {
        u32::try_from(self.number()?).map_err(|_| self.expected("a number below 2^32"))
    }

    fn time(&mut self, last_ns: u64) -> Result<u64, ReadError> {
        let coded = self.number()?;
        let step = (coded >> 1) ^ (coded & 1).wrapping_neg();
        Ok(last_ns.wrapping_add(step))
    }
}
