//! The report as it is written: the structs behind `docs/report.schema.json`, whose descriptions are these comments.
//!
//! Rules of the format: sizes are bytes and times are seconds, and the names say so. A *gauge* has `current`, `peak`
//! and `total`. Adding a field raises the minor version; readers ignore what they do not know. Changing or removing
//! one raises the major version; readers refuse majors that they do not know.

use serde::{Deserialize, Serialize};

use super::Hex;
use crate::config::SettingText;

/// What `format` says.
pub const FORMAT: &str = "cushion-report";
/// The major version that this code reads and writes.
pub const FORMAT_MAJOR: u32 = 1;
/// The version that this code writes.
pub const FORMAT_VERSION: &str = "1.0";

/// Declares structs of the format: all can be written, read (what is missing gets its default), and described.
macro_rules! format {
    ($($(#[$meta:meta])* pub struct $name:ident { $($(#[$field_meta:meta])* pub $field:ident: $type:ty,)* })*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
        #[cfg_attr(test, derive(schemars::JsonSchema))]
        #[serde(default)]
        pub struct $name { $($(#[$field_meta])* pub $field: $type,)* }
    )*};
}

format! {
    /// What one process holds on its CUDA devices at one moment: totals, limits, fragmentation, and live allocations by
    /// call site. Sizes are bytes, times are seconds. A gauge has `current`, `peak` (highest ever) and `total` (sum of all increases, never falls).
    pub struct Report {
        /// Always `cushion-report`.
        pub format: String,
        /// Version of the format, `major.minor`.
        pub format_version: String,
        /// This report among those of its process.
        pub report: ReportFacts,
        /// The process.
        pub process: Process,
        /// Every setting, its value, and where it came from.
        pub settings: Vec<SettingText>,
        /// The contexts that the figures name by number.
        pub contexts: Vec<Context>,
        /// Devices with their pools.
        pub devices: Vec<Device>,
        /// Exact figures of every kind of allocation that occurred, pooled memory included.
        pub kinds: Vec<KindFigures>,
        /// Live allocations by call site; in the report at exit, these are leaks.
        pub leaks: Leaks,
        /// Allocations whose context was destroyed while they were live.
        pub lost_with_context: Leaks,
        /// The call sites that `leaks` and `lost_with_context` name by number.
        pub sites: Vec<Site>,
        /// The files that frames name by index.
        pub modules: Vec<Module>,
        /// What the shim saw, hooked, counted and does not know.
        pub coverage: Coverage,
        /// How call stacks were sampled, and how to read the figures that depend on it.
        pub sampling: Sampling,
    }

    /// This report among those of its process.
    pub struct ReportFacts {
        /// Number of the report in its process, from 0.
        pub sequence: u64,
        /// Why it was written.
        pub reason: Reason,
        /// When it was made, in seconds since 1970-01-01 UTC.
        pub time_unix_seconds: f64,
        /// Seconds since the shim's clock began in this process. Ages count on the same clock.
        pub uptime_seconds: f64,
    }

    /// The process.
    pub struct Process {
        /// Process id.
        pub pid: u32,
        /// Process id of the parent when the process was first seen.
        pub parent_pid: u32,
        /// Whether it was forked from a process that was already under the shim.
        pub forked: bool,
        /// Path of the program.
        pub program: String,
        /// Its arguments, the program's name first.
        pub command: Vec<String>,
        /// Directory in which it started.
        pub directory: String,
        /// Name of the host.
        pub host: String,
        /// Rank in its job, from the launcher's variables; null without a launcher.
        pub rank: Option<String>,
        /// When it started, in seconds since 1970-01-01 UTC.
        pub start_unix_seconds: f64,
        /// Version of cushion.
        pub shim_version: String,
        /// Version of CUDA that the driver supports (13.0); null if it was never asked.
        pub driver_version: Option<String>,
    }

    /// A context that existed in the process.
    pub struct Context {
        /// Its number in this report; never used twice in a process.
        pub id: u64,
        /// Ordinal of its device.
        pub device: u32,
        /// What it is, for people: `primary context of device 0`.
        pub label: String,
        /// Whether it has been destroyed.
        pub destroyed: bool,
        /// Where its pool's memory comes from: `segments`; `vmm` (CUSHION_BACKING); or `vmm, then segments`, where mapping was given up.
        pub backing: String,
    }

    /// A device that the process used.
    pub struct Device {
        /// Ordinal as the program sees it.
        pub ordinal: u32,
        /// Name from the driver.
        pub name: String,
        /// UUID from the driver; null if it was never asked.
        pub uuid: Option<String>,
        /// Memory of the device, in bytes.
        pub total_bytes: u64,
        /// The most that the process may hold, in bytes; null without a limit.
        pub limit_bytes: Option<u64>,
        /// Memory free on the device when the driver was last asked, in bytes; null if it never was.
        pub driver_free_bytes: Option<u64>,
        /// Sums over the pools of the device, those of destroyed contexts included. With several pools a peak is the
        /// sum of their peaks: an upper bound.
        pub figures: Figures,
        /// Its pools: one for each context.
        pub pools: Vec<Pool>,
    }

    /// The pool of one context.
    pub struct Pool {
        /// Number of its context; see `contexts`.
        pub context: u64,
        /// Figures since the pool began.
        pub figures: Figures,
        /// How its memory is broken up now.
        pub fragmentation: Fragmentation,
        /// Its segments and what lies in them.
        pub segments: SegmentMap,
    }

    /// A quantity that goes up and down.
    pub struct Gauge {
        /// Now.
        pub current: u64,
        /// The highest value ever.
        pub peak: u64,
        /// The sum of all increases; never falls.
        pub total: u64,
    }

    /// Figures of a pool, or sums over several.
    pub struct Figures {
        /// Bytes as the program asked for them.
        pub requested_bytes: Gauge,
        /// Bytes as handed out (rounded).
        pub allocated_bytes: Gauge,
        /// Bytes allocated, or freed and still waiting for device work.
        pub active_bytes: Gauge,
        /// Bytes taken from the driver.
        pub reserved_bytes: Gauge,
        /// Bytes reserved and not allocated. The peak is the highest value at a report; the total is all that was freed into the cache.
        pub cached_bytes: Gauge,
        /// Number of live allocations.
        pub allocations: Gauge,
        /// Number of segments held.
        pub segments: Gauge,
        /// How requests were served.
        pub requests: Requests,
        /// Calls to the driver, made and avoided.
        pub driver_calls: DriverCalls,
        /// Requests refused for lack of memory.
        pub out_of_memory: OutOfMemory,
        /// Times the cache was given back and the driver asked again after it refused.
        pub retries: u64,
        /// Seconds that the program's threads waited for device work on behalf of frees.
        pub wait_seconds: f64,
        /// Bytes filled before reuse.
        pub scrubbed_bytes: u64,
        /// Bytes taken from the driver before they were needed (CUSHION_PREALLOCATE).
        pub preallocated_bytes: u64,
        /// Bytes given back to the driver before anybody was short of them.
        pub given_back: GivenBack,
    }

    /// Bytes given back to the driver before anybody was short of them.
    pub struct GivenBack {
        /// Because more than CUSHION_GC_THRESHOLD was in use.
        pub by_threshold_bytes: u64,
        /// Because they were idle for longer than CUSHION_IDLE_TRIM.
        pub idle_bytes: u64,
    }

    /// How requests were served.
    pub struct Requests {
        /// From the cache.
        pub hits: u64,
        /// By growing the pool.
        pub misses: u64,
    }

    /// Calls to the driver on behalf of allocation and free.
    pub struct DriverCalls {
        /// Segments taken.
        pub reserve: u64,
        /// Segments given back.
        pub release: u64,
        /// Barriers put on the device.
        pub fences: u64,
        /// Waits on the host.
        pub host_waits: u64,
        /// Memory calls made: `reserve` and `release`.
        pub made: u64,
        /// Memory calls that the program asked for and the driver never saw.
        pub avoided: u64,
    }

    /// Requests refused for lack of memory.
    pub struct OutOfMemory {
        /// Because of the limit.
        pub by_limit: u64,
        /// By the driver, after everything was given back.
        pub by_driver: u64,
    }

    /// How the memory of a pool is broken up.
    pub struct Fragmentation {
        /// Internal: bytes lost to rounding (allocated minus requested).
        pub internal_bytes: u64,
        /// The same as a share of allocated bytes, 0 to 1.
        pub internal_ratio: f64,
        /// Bytes in free blocks.
        pub free_bytes: u64,
        /// Size of the largest free block, in bytes.
        pub largest_free_bytes: u64,
        /// External: 1 minus largest free block over free bytes; 0 when nothing is free.
        pub external_ratio: f64,
        /// Free bytes in segments that live blocks keep from being given back.
        pub pinned_free_bytes: u64,
        /// Bytes in segments that are entirely free.
        pub releasable_bytes: u64,
        /// Free bytes that need a barrier on the device before they are handed out again.
        pub unfenced_bytes: u64,
        /// Bytes kept out of use (exported to other processes, or to be really freed).
        pub held_bytes: u64,
        /// The largest request that would succeed now without the driver, in bytes.
        pub largest_request_from_cache_bytes: u64,
        /// The largest request that would succeed now, in bytes, limit and driver considered; null if the driver was never asked what is free.
        pub largest_request_bytes: Option<u64>,
        /// Free blocks by size: one entry for each power of two that occurs.
        pub free_blocks: Vec<SizeClass>,
    }

    /// Free blocks of one range of sizes.
    pub struct SizeClass {
        /// Blocks of at least this many bytes, and of less than twice as many.
        pub at_least_bytes: u64,
        /// How many.
        pub count: u64,
        /// Their bytes together.
        pub bytes: u64,
    }

    /// The segments of a pool. The totals are exact; the list is bounded.
    pub struct SegmentMap {
        /// Number of segments.
        pub count: u64,
        /// Number of blocks in them.
        pub block_count: u64,
        /// Segments that are not listed (the smallest ones are left out first).
        pub omitted_count: u64,
        /// Their bytes.
        pub omitted_bytes: u64,
        /// Segments in address order.
        pub list: Vec<Segment>,
    }

    /// One segment: a range that the driver gave.
    pub struct Segment {
        /// Its first address.
        pub address: Hex,
        /// Its size in bytes.
        pub size_bytes: u64,
        /// Which requests it serves.
        pub kind: SegmentKind,
        /// Bytes handed out.
        pub allocated_bytes: u64,
        /// Bytes free, with or without a barrier.
        pub free_bytes: u64,
        /// Bytes kept out of use.
        pub held_bytes: u64,
        /// Size of its largest free block, in bytes.
        pub largest_free_bytes: u64,
        /// Number of its blocks.
        pub block_count: u64,
        /// Number of its live allocations.
        pub allocation_count: u64,
        /// Whether the runs are as fine as the blocks; if not, runs can be `mixed`.
        pub exact: bool,
        /// What lies in it, in address order, without gaps. Neighbouring blocks of one state are one run.
        pub runs: Vec<Run>,
    }

    /// A part of a segment.
    pub struct Run {
        /// Distance from the segment's start, in bytes.
        pub offset_bytes: u64,
        /// Its size in bytes.
        pub size_bytes: u64,
        /// What it is.
        pub state: RunState,
        /// Bytes of it that are handed out.
        pub allocated_bytes: u64,
        /// Number of blocks that begin in it.
        pub block_count: u64,
    }

    /// Exact figures of one kind of allocation.
    pub struct KindFigures {
        /// `pooled`, `device`, `managed`, `pinned_host`, `registered_host`, `array`, `mipmapped_array`, `async`, `pool_async`, `vmm`, `graph` or `ipc_imported`.
        pub kind: String,
        /// Number of allocations.
        pub count: Gauge,
        /// Their bytes, as requested.
        pub bytes: Gauge,
    }

    /// Allocations by call site. The totals are exact and do not depend on sampling.
    pub struct Leaks {
        /// Number of allocations, exact.
        pub count: u64,
        /// Their bytes as requested, exact.
        pub bytes: u64,
        /// By site, largest first.
        pub sites: Vec<SiteFigures>,
        /// Entries that are not listed (the smallest).
        pub omitted_entries: u64,
        /// Allocations in these.
        pub omitted_count: u64,
        /// Their bytes.
        pub omitted_bytes: u64,
    }

    /// Allocations of one kind that one call site made in one context.
    pub struct SiteFigures {
        /// Number of the call site; see `sites`. Site 0 holds the allocations whose stack was not taken.
        pub site: u32,
        /// Number of the context; see `contexts`.
        pub context: u64,
        /// Ordinal of the device.
        pub device: u32,
        /// Kind of allocation; see `kinds`.
        pub kind: String,
        /// Allocations known to be of this site (the sampled ones).
        pub count: u64,
        /// Their bytes, as requested.
        pub bytes: u64,
        /// Estimate of all allocations of this site: each sampled one counts for as many as it stands for. Equal to
        /// `count` when every stack was taken; 0 for site 0 when stacks were sampled, since the other sites stand for these.
        pub estimated_count: u64,
        /// The same for bytes.
        pub estimated_bytes: u64,
        /// Age of the oldest, in seconds.
        pub oldest_age_seconds: f64,
        /// How it grew since earlier reports of the process; null in the first report, and for lost memory.
        pub growth: Option<Growth>,
    }

    /// Growth of one entry, in estimated figures.
    pub struct Growth {
        /// Change in number since the previous report.
        pub count: i64,
        /// Change in bytes since the previous report.
        pub bytes: i64,
        /// Change in bytes since the first report that had the entry.
        pub bytes_since_first: i64,
        /// In how many reports in a row, up to this one, the bytes grew.
        pub reports_growing: u64,
    }

    /// A call site.
    pub struct Site {
        /// Its number. 0: no stack was taken. 1: the table of sites was full.
        pub id: u32,
        /// Its frames, innermost first.
        pub frames: Vec<Frame>,
    }

    /// One frame of a call stack.
    pub struct Frame {
        /// Index into `modules`; null when no module holds the address (generated code).
        pub module: Option<u32>,
        /// Return address as the module's own symbol table and debug information have it; the call is just before it. The plain address without a module.
        pub offset: Hex,
    }

    /// A file that was loaded.
    pub struct Module {
        /// Its path.
        pub path: String,
        /// Its build id in hexadecimal; empty when it has none.
        pub build_id: String,
        /// What the loader added to the addresses in the file.
        pub base: Hex,
    }

    /// What the shim saw, hooked, counted and does not know.
    pub struct Coverage {
        /// Number of different driver and runtime symbols that the process looked up or called.
        pub symbols_seen: u64,
        /// Symbols with an effect on the pool.
        pub hooked: Vec<SymbolFigures>,
        /// Symbols whose allocations are counted.
        pub counted: Vec<SymbolFigures>,
        /// Symbols that were looked up and are not in the shim's table.
        pub unknown: Vec<SymbolFigures>,
        /// Ways by which symbols were found.
        pub routes: Vec<Route>,
        /// The free-sync mode in force, for each context.
        pub free_sync: Vec<FreeSyncFacts>,
        /// Anything else worth knowing: another interposer, a fallback taken, an internal failure.
        pub notes: Vec<String>,
    }

    /// One symbol.
    pub struct SymbolFigures {
        /// Exact name, suffixes included.
        pub name: String,
        /// Times it was looked up.
        pub lookups: u64,
        /// Times it was called through the shim.
        pub calls: u64,
    }

    /// A way by which symbols were found.
    pub struct Route {
        /// `linked`, `dlsym`, `cuGetProcAddress`, ...
        pub route: String,
        /// Look-ups that came this way.
        pub lookups: u64,
    }

    /// The free-sync mode of one context.
    pub struct FreeSyncFacts {
        /// Number of the context.
        pub context: u64,
        /// `device` or `host`.
        pub mode: String,
        /// Why.
        pub reason: String,
    }

    /// How call stacks were sampled.
    pub struct Sampling {
        /// `off`, `sampled` or `all`.
        pub stacks: String,
        /// The rule in words.
        pub rule: String,
        /// So many first allocations of the process had their stack taken.
        pub first_count: u64,
        /// Later, one of so many had.
        pub interval: u64,
        /// Live allocations whose stack was taken.
        pub live_sampled_count: u64,
        /// Live allocations whose stack was not taken.
        pub live_unsampled_count: u64,
    }
}

/// Declares enums of the format. A reader takes a word that it does not know as the first variant.
macro_rules! format_words {
    ($($(#[$meta:meta])* pub enum $name:ident { $(#[$other_meta:meta])* $other:ident, $($(#[$variant_meta:meta])* $variant:ident,)* })*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[cfg_attr(test, derive(schemars::JsonSchema))]
        #[serde(rename_all = "snake_case")]
        pub enum $name { $($(#[$variant_meta])* $variant,)* #[default] #[serde(other)] $(#[$other_meta])* $other }
    )*};
}

format_words! {
    /// Why a report was written.
    pub enum Reason {
        /// A reason that the reader does not know.
        Unknown,
        /// The interval passed.
        Periodic,
        /// The process ends: this is its last report.
        Exit,
        /// Somebody asked for it.
        Request,
    }

    /// Which requests a segment serves.
    pub enum SegmentKind {
        /// One that the reader does not know.
        Unknown,
        /// Requests up to 1 MiB.
        Small,
        /// Larger requests.
        Large,
        /// One request at or above the largest size that is split.
        Oversize,
        /// One block that lives alone because of attributes set on it.
        Isolated,
    }

    /// What a run is.
    pub enum RunState {
        /// One that the reader does not know.
        Unknown,
        /// In the program's hands.
        Allocated,
        /// Free.
        Free,
        /// Free; a barrier on the device is needed before it is handed out again.
        FreeUnfenced,
        /// Kept out of use.
        Held,
        /// More than one of these: a coarse map.
        Mixed,
    }
}

impl Report {
    /// The context of a number.
    pub fn context(&self, id: u64) -> Option<&Context> {
        self.contexts.iter().find(|context| context.id == id)
    }

    /// The call site of a number.
    pub fn site(&self, id: u32) -> Option<&Site> {
        self.sites.iter().find(|site| site.id == id)
    }
}
