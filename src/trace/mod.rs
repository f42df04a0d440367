//! Allocation traces: every allocation and free of a program, in order.
//!
//! [`TraceWriter`] records a running program into a compact file (`CUSHION_TRACE`); [`read_file`] reads that, and the
//! traces of other tools, into one form: a [`Trace`]. The rules are strict: a reader that meets something it does not
//! know stops and says where, and what it expected.
//!
//! | format | recognised by |
//! |---|---|
//! | cushion | its first eight bytes ([`codec::MAGIC`]) |
//! | text | `a ID SIZE STREAM` and `f ID` lines, with an optional first line `# {json}` |
//! | CSV | the header line that [`csv::HEADER`] gives |
//! | RMM | the header line `Thread,Time,Action,Pointer,Size,Stream` |
//! | PyTorch memory snapshot | a pickle (first byte 0x80) |
//! | Kineto, Chrome trace | JSON; its `[memory]` events |
//!
//! Any of them may be compressed with gzip. What does not belong here: the pool's types, statistics.

pub mod codec;
pub mod csv;
mod decode;
pub mod encode;
mod error;
mod event;
mod inbox;
mod inflate;
mod kineto;
mod live;
mod output;
mod pickle;
mod read;
mod rmm;
mod snapshot;
pub mod text;
mod writer;

pub use error::{Position, ReadError};
pub use event::{Action, Event, Trace};
pub use inbox::Recorded;
pub use read::{parse, read_file, Format};
pub use writer::{TraceOptions, TraceWriter, WriterStats};
