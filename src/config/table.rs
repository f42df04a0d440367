//! The one table of settings. Parsing, warnings, `cushion config`, README's table and the tests all come from it.

use std::ffi::OsStr;

use super::values::Value;
use super::{Config, Mode, Origin, Setting};

/// One environment variable.
#[derive(Debug)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// What its value is, with an article: ends the sentence "... is not".
    pub noun: &'static str,
    /// What is allowed, with units.
    pub allowed: &'static str,
    /// What it does, in one line.
    pub meaning: &'static str,
    /// The version that brought it.
    pub since: &'static str,
    /// Reads a value into the config; false (and no change) when it is none.
    pub(super) set: fn(&mut Config, &OsStr, Origin) -> bool,
    /// The value in force, as text.
    pub(super) text: fn(&Config) -> String,
    /// Where it came from.
    pub(super) origin: fn(&Config) -> Origin,
}

/// A row: the field of [`Config`] gives the type, and with it the parser.
macro_rules! row {
    ($name:literal, $field:ident, $noun:literal, $allowed:literal, $meaning:literal, since $since:literal) => {
        Variable {
            name: $name,
            noun: $noun,
            allowed: $allowed,
            meaning: $meaning,
            since: $since,
            set: |config, text, origin| match Value::parse(text) {
                Some(value) => {
                    config.$field = Setting { value, origin };
                    true
                }
                None => false,
            },
            text: |config| Value::text(&config.$field.value),
            origin: |config| config.$field.origin,
        }
    };
}

/// Every setting, in the order in which tables show them.
pub const VARIABLES: &[Variable] = &[
    row!("CUSHION_DISABLE", disable, "a switch", "1, 0",
        "1 sends every call to the driver untouched and writes no report", since "0.1.0"),
    row!("CUSHION_MODE", mode, "a mode", "faithful, fast",
        "faithful keeps all that a program can see of the native driver; fast implies FREE_SYNC=device, ZERO=off, ALIGNMENT=64K",
        since "0.1.0"),
    row!("CUSHION_FREE_SYNC", free_sync, "a free-sync mode", "auto, device, host",
        "what a free waits for: nothing on the host (device), all device work as native (host), or the latter only while the program could tell (auto)",
        since "0.1.0"),
    row!("CUSHION_ZERO", zero, "a zero mode", "on, off, poison",
        "what reused memory holds: zeros as native, whatever was there, or a pattern that finds programs which read what they never wrote",
        since "0.1.0"),
    row!("CUSHION_ALIGNMENT", alignment_bytes, "an alignment", "a power of two from 64K to 2M",
        "least alignment of allocations above 1 MiB; smaller wastes less", since "0.1.0"),
    row!("CUSHION_BACKING", backing, "a backing", "segments, vmm",
        "where device memory comes from: segments from the driver's allocator, or memory that is mapped where it is needed, which wastes less (vmm); where that cannot be, segments",
        since "0.1.0"),
    row!("CUSHION_MAX_SPLIT_SIZE", max_split_size_bytes, "a size", "a size above 0 (512K, 128M, 1.5G, bytes), off",
        "blocks of at least this size are never split, nor given to a much smaller request", since "0.1.0"),
    row!("CUSHION_MEMORY_FRACTION", memory_fraction, "a fraction", "a number above 0, at most 1; per device as 0:0.5,1:0.8; off",
        "most memory the process may hold, as a share of the device's", since "0.1.0"),
    row!("CUSHION_MEMORY_LIMIT", memory_limit_bytes, "a limit", "a size above 0 (512M, 20G, bytes); per device as 0:20G,1:10G; off",
        "most memory the process may hold on a device; with a fraction too, the smaller counts", since "0.1.0"),
    row!("CUSHION_GC_THRESHOLD", gc_threshold_percent, "a percentage", "1 to 100 (per cent), off",
        "when the pool grows beyond this share of the limit (of the device, without one), it first gives free segments back",
        since "0.1.0"),
    row!("CUSHION_IDLE_TRIM", idle_trim, "a duration", "a duration (30s, 500ms, 2m), 0, off",
        "free segments that nothing was allocated from for so long are given back, by a thread of cushion's; 0 keeps them",
        since "0.1.0"),
    row!("CUSHION_PREALLOCATE", preallocate_bytes, "a size", "a size above 0 (512M, 20G, bytes); per device as 0:20G,1:10G; off",
        "memory taken from the driver when a context first allocates, within the limit", since "0.1.0"),
    row!("CUSHION_CONF", conf, "a list of PyTorch settings", "max_split_size_mb:N, per_process_memory_fraction:F, garbage_collection_threshold:F, separated by commas",
        "settings in PyTorch's syntax; a variable of its own wins over the same setting here", since "0.1.0"),
    row!("CUSHION_REPORT", report, "a path pattern", "a file path with %p (pid), %h (host), %e (program), %r (rank), %n (sequence), %% (percent sign); off",
        "where reports go, from the directory in which the program started", since "0.1.0"),
    row!("CUSHION_REPORT_INTERVAL", report_interval, "a duration", "a duration (30s, 500ms, 2m), 0, off",
        "time between reports; 0 writes only the one at the end", since "0.1.0"),
    row!("CUSHION_STACKS", stacks, "a stack mode", "off, sampled, all",
        "which allocations have their call stack taken for the leak report", since "0.1.0"),
    row!("CUSHION_TRACE", trace, "a path pattern", "a file path with the places of CUSHION_REPORT; off",
        "records every allocation and free there, for cushion trace and cushion replay", since "0.1.0"),
    row!("CUSHION_TRACE_LIMIT", trace_limit_bytes, "a size", "a size above 0 (512M, 2G, bytes), off",
        "size at which a trace stops growing; it says how many events it lacks", since "0.1.0"),
    row!("CUSHION_CTL", ctl, "a switch", "on, off",
        "whether cushion ctl can speak to the process, over a socket that only its user can reach; cushion run turns it on", since "0.1.0"),
];

impl Variable {
    /// The row of a name.
    pub fn named(name: &str) -> Option<&'static Variable> {
        VARIABLES.iter().find(|variable| variable.name == name)
    }

    /// The default as text, under both modes where they differ.
    pub fn default_text(&self) -> String {
        let faithful = Config::default();
        let mut fast = Config::default();
        fast.mode.value = Mode::Fast;
        fast.imply_mode();
        let (default, in_fast) = ((self.text)(&faithful), (self.text)(&fast));
        if default == in_fast || self.name == "CUSHION_MODE" {
            default
        } else {
            format!("{default} (fast: {in_fast})")
        }
    }

    /// Whether `value` would be accepted; the line that says why not.
    pub fn check(&self, value: &OsStr) -> Result<(), String> {
        let mut config = Config::default();
        if !value.is_empty() && (self.set)(&mut config, value, Origin::Variable(self.name)) {
            return Ok(());
        }
        Err(format!("is not {}; allowed: {}", self.noun, self.allowed))
    }
}

/// The table as Markdown: README holds it, and a test compares the two.
pub fn markdown() -> String {
    let mut table =
        String::from("| Variable | Default | Allowed | Meaning | Since |\n|---|---|---|---|---|\n");
    for variable in VARIABLES {
        let default = match variable.default_text() {
            text if text.is_empty() => "none".to_owned(),
            text => format!("`{text}`"),
        };
        let Variable {
            name,
            allowed,
            meaning,
            since,
            ..
        } = variable;
        table.push_str(&format!(
            "| `{name}` | {default} | {allowed} | {meaning} | {since} |\n"
        ));
    }
    table
}
