//! The compact form of a cushion trace.
//!
//! ```text
//! file   = MAGIC  u32 length  header (JSON, `length` bytes)  chunk*
//! chunk  = u32 raw_bytes  u32 compressed_bytes  deflate stream
//! raw    = record*
//! record = tag  fields
//! ```
//!
//! All u32 are little-endian. Chunks are independent of each other except for the numbering of allocations, which runs
//! through the file; a program that is killed leaves whole chunks. Fields are LEB128 numbers; those marked ± are zigzag
//! coded differences to the value in the record before (in the chunk; from 0). The tag's low bits say what the record
//! is and the others which fields are left out because they repeat the record before:
//!
//! | kind | fields |
//! |---|---|
//! | [`ALLOC`] | time ±, size; thread if [`THREAD`]; device and stream if [`PLACE`]; site if [`SITE`]; place in [`Kind::ALL`] if [`SORT`] |
//! | [`FREE`] | time ±, how many allocations ago it was made; thread if [`THREAD`] |
//! | [`NAME`] | site, length, UTF-8 text |
//! | [`LOST`] | how many events were dropped here |
//! | [`END`] | unmatched frees; nothing may follow |

use rustc_hash::FxHashMap;

use super::{Action, Event};
use crate::ledger::Kind;

/// First bytes of a file; the last two are the version.
pub const MAGIC: &[u8; 8] = b"CUSHTR01";
/// An allocation.
pub const ALLOC: u8 = 0;
/// A free.
pub const FREE: u8 = 1;
/// Names a site.
pub const NAME: u8 = 2;
/// Says that events are missing.
pub const LOST: u8 = 3;
/// The recorder ended the file.
pub const END: u8 = 4;
/// The bits of a tag that say which record it is.
pub const KIND: u8 = 0x07;
/// A thread follows.
pub const THREAD: u8 = 0x08;
/// A device and a stream follow.
pub const PLACE: u8 = 0x10;
/// A site follows.
pub const SITE: u8 = 0x20;
/// A kind of memory follows; in a chunk the first are [`Kind::Pooled`].
pub const SORT: u8 = 0x40;
/// The most that a chunk may hold before compression.
pub const MAX_CHUNK_BYTES: u32 = 1 << 26;

/// The two lengths before a chunk.
pub const CHUNK_HEAD_BYTES: usize = 8;

/// What a record may leave out because it repeats.
#[derive(Debug, Clone, Copy)]
pub(super) struct Context {
    pub time_ns: u64,
    pub thread: u64,
    pub device: u32,
    pub stream: u64,
    pub site: u32,
    pub kind: Kind,
}

impl Default for Context {
    fn default() -> Self {
        Context {
            time_ns: 0,
            thread: 0,
            device: 0,
            stream: 0,
            site: 0,
            kind: Kind::Pooled,
        }
    }
}

/// An allocation whose free was not written yet.
#[derive(Debug, Clone, Copy)]
struct Live {
    /// Counts the allocations of the file.
    number: u64,
    /// Its turn among the events.
    turn: u64,
}

/// Turns events into the bytes of a chunk.
#[derive(Debug, Default)]
pub(super) struct Encoder {
    live: FxHashMap<(u32, u64), Live>,
    next: u64,
    context: Context,
    unmatched_frees: u64,
    pub raw: Vec<u8>,
}

impl Encoder {
    /// Starts a new chunk.
    pub fn start_chunk(&mut self) {
        self.raw.clear();
        self.context = Context::default();
    }

    /// An allocation or a free. The free of an unknown allocation is counted, not written; an allocation whose id is
    /// live already means that its free was lost or is late, and that free is written first; a late one, whose `turn` is
    /// before that of the allocation which has its id now, has been written then.
    pub fn event(&mut self, event: &Event, turn: u64) {
        let key = (event.device, event.id);
        match self.live.get(&key).copied() {
            Some(live) if event.action == Action::Free && turn < live.turn => return,
            Some(live) => {
                self.live.remove(&key);
                self.free(event, live.number);
            }
            None if event.action == Action::Free => self.unmatched_frees += 1,
            None => {}
        }
        if event.action == Action::Alloc {
            let number = self.next;
            self.live.insert(key, Live { number, turn });
            self.alloc(event);
        }
    }

    fn alloc(&mut self, event: &Event) {
        let last = self.context;
        let mut tag = ALLOC;
        tag |= if event.thread != last.thread {
            THREAD
        } else {
            0
        };
        tag |= if (event.device, event.stream) != (last.device, last.stream) {
            PLACE
        } else {
            0
        };
        tag |= if event.site != last.site { SITE } else { 0 };
        tag |= if event.kind != last.kind { SORT } else { 0 };
        self.raw.push(tag);
        self.time(event.time_ns);
        put(&mut self.raw, event.size_bytes);
        if tag & THREAD != 0 {
            put(&mut self.raw, event.thread);
        }
        if tag & PLACE != 0 {
            put(&mut self.raw, u64::from(event.device));
            put(&mut self.raw, event.stream);
        }
        if tag & SITE != 0 {
            put(&mut self.raw, u64::from(event.site));
        }
        if tag & SORT != 0 {
            put(&mut self.raw, event.kind.index() as u64);
        }
        let Event {
            thread,
            device,
            stream,
            site,
            kind,
            ..
        } = *event;
        self.context = Context {
            thread,
            device,
            stream,
            site,
            kind,
            ..self.context
        };
        self.next += 1;
    }

    fn free(&mut self, event: &Event, number: u64) {
        let tag = if event.thread != self.context.thread {
            FREE | THREAD
        } else {
            FREE
        };
        self.raw.push(tag);
        self.time(event.time_ns);
        put(&mut self.raw, self.next - number);
        if tag & THREAD != 0 {
            put(&mut self.raw, event.thread);
        }
        self.context.thread = event.thread;
    }

    fn time(&mut self, time_ns: u64) {
        let step = time_ns.wrapping_sub(self.context.time_ns) as i64;
        put(&mut self.raw, ((step << 1) ^ (step >> 63)) as u64);
        self.context.time_ns = time_ns;
    }

    /// Names a site.
    pub fn name(&mut self, site: u32, text: &str) {
        self.raw.push(NAME);
        put(&mut self.raw, u64::from(site));
        put(&mut self.raw, text.len() as u64);
        self.raw.extend_from_slice(text.as_bytes());
    }

    /// Says that `events` are missing here.
    pub fn lost(&mut self, events: u64) {
        self.raw.push(LOST);
        put(&mut self.raw, events);
    }

    /// Ends the file. `unmatched_frees`: those known beside the ones seen here.
    pub fn end(&mut self, unmatched_frees: u64) {
        self.raw.push(END);
        put(&mut self.raw, self.unmatched_frees + unmatched_frees);
    }
}

fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
