//! The caching pool of one device context. Knows no CUDA, no file, no environment, no clock.
//!
//! # Terms
//! *Segment*: one reservation from the [`Backing`]. *Block*: a range of a segment. *Split*: cut a block and keep the
//! remainder. *Coalesce*: join adjacent free blocks of one segment. *Requested* <= *allocated* (as handed out, rounded)
//! <= *active* (allocated, or freed and not yet behind a barrier) <= *reserved* (sum of the segments); *cached* is
//! reserved minus allocated. *Inactive split*: a free block of a segment that is partly in use, so the segment cannot
//! be released. *Oversize*: at or above `max_split_size`: never split, never given to a much smaller request.
//!
//! # Invariants (checked by `check`)
//! * **TILE** the blocks of a segment tile it in address order.
//! * **MERGED** no two adjacent free blocks of one segment that could be joined.
//! * **ONE-PLACE** a block is allocated, or in the free lists, or on its way between them in one thread's hands.
//! * **SUMS** the counters equal a recount.
//! * **OURS** only addresses the pool gave are the pool's; all others are answered "not mine".
//! * **FORGET-FIRST** a segment leaves the tables before the driver may hand its address out again.
//! * **WHOLE** only an entirely free segment is released; of mapped memory, only an entirely free handle.
//! * **FENCED** a block freed in epoch E is handed out again only after a fence that was recorded after E closed, or a
//!   synchronise, or when the backing's order suffices ([`Backing::sole_stream`]).
//! * **CLEAN** with scrubbing on, every block handed out is fresh, or scrubbed after its last use and joined.
//! * **COVERED**, **SETTLED**, **PINNED** of mapped memory: see `mapped`.
//!
//! # Map
//! `request` what goes in and out; `settings`, `budget` what it may do; `facade` the lock and the ways out of it;
//! `allocate`, `growth` an allocation (`plan` what it takes, `search` a free block for it, `ladder` how far it has come); `ready` what a block needs before it is handed out, and `scrub` its fill; `ahead` memory taken
//! before it is needed; `mapped` memory that is mapped where it is needed; `free`, `hold` a free; `front` blocks freed lately, before the
//! lock, `recycle` and `drain` how they come there and leave (`asked` which, `meeting` how many), `fold` their figures; `reclaim` giving
//! memory back; `walk` the snapshot. Below them `state`, what the lock protects, with `cut` (blocks cut and joined), `live` (in and out of
//! the program's hands), `clean` (what is dirty), `custody` (segments in and out) and `barriers`, made of `arena` (its blocks: `parts`,
//! packed by `entry`), `bins`, `base_index`, `book`, `segments` (`segment`, `by_address`), `bits`, `dirt`, `epochs`, `tickets`, `counters`, `hash`.

mod ahead;
mod allocate;
mod arena;
mod asked;
mod backing;
mod barriers;
mod base_index;
mod bins;
mod bits;
mod book;
mod budget;
mod by_address;
mod check;
mod clean;
mod counters;
mod custody;
mod cut;
mod dirt;
mod drain;
mod entry;
mod epochs;
mod facade;
mod fold;
mod free;
mod front;
mod growth;
mod hash;
mod hold;
mod ladder;
mod live;
mod mapped;
mod meeting;
mod parts;
mod plan;
mod ready;
mod reclaim;
mod recycle;
mod request;
mod scrub;
mod search;
mod segment;
mod segments;
mod settings;
mod size;
mod snapshot;
mod state;
mod tickets;
mod walk;
mod wear;

pub use backing::{Backing, BackingError, Fence, Pages, Range, ScrubTicket};
pub use barriers::Mark;
pub use budget::{Budget, OverLimit};
pub use facade::Pool;
pub use mapped::Quiet;
pub use request::{Block, Found, FreeMode, FreeOutcome, Grant, Origin, Refusal, Request, Usage};
pub use settings::Settings;
pub use snapshot::{
    BlockSnapshot, BlockState, Gauge, PoolSnapshot, PoolStats, SegmentKind, SegmentSnapshot,
};
