//! What the process looked up, for the coverage section of the report. Never waits for a lock: where one is taken (or
//! was left taken by a fork) a look-up goes unrecorded, which costs a line of a report and nothing else.

use super::names;
use crate::device::order;
use crate::real::linker;
use crate::table::{Kind, HOOKS};
use dashmap::DashMap;
use once_cell::race::OnceBox;
use std::ffi::CStr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Names kept. A process that asks for more is a fuzzer.
const NAMES_MAX: usize = 1024;

static BY_DLSYM: AtomicU64 = AtomicU64::new(0);
static BY_PROC_ADDRESS: AtomicU64 = AtomicU64::new(0);
static NAME_COUNT: AtomicUsize = AtomicUsize::new(0);
static OTHERS: OnceBox<DashMap<Box<str>, Other>> = OnceBox::new();

/// A name that is not in the table.
struct Other {
    count: u64,
    is_in_driver: bool,
}

/// A name that the process looked up or called.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seen {
    /// The symbol of a hooked function; for others the name that was asked for.
    pub name: String,
    /// How often it was asked for.
    pub lookup_count: u64,
    /// How often it was called through the shim: only hooked ones are.
    pub call_count: u64,
}

/// What the process looked up so far.
#[derive(Debug, Clone, Default)]
pub struct Coverage {
    /// Look-ups of names like a driver function's by dlsym and dlvsym.
    pub dlsym_count: u64,
    /// Look-ups by cuGetProcAddress, in both its forms.
    pub proc_address_count: u64,
    /// Hooked functions that were called and never looked up: the program is linked with the driver.
    pub linked_count: u64,
    /// Symbols whose calls are changed or watched.
    pub hooked: Vec<Seen>,
    /// Symbols whose calls are counted.
    pub counted: Vec<Seen>,
    /// Functions that cushion knows and leaves to the driver.
    pub passed: Vec<Seen>,
    /// Functions of the driver that cushion has never heard of (a newer driver, or a private interface), and private tables of
    /// functions.
    pub unknown: Vec<Seen>,
    /// Names that the driver does not have.
    pub missing: Vec<Seen>,
    /// Other preloaded libraries after this one that stand in for dlsym.
    pub interposer_count: usize,
}

/// A driver function was looked up by cuGetProcAddress and found. Hooked ones are counted by their row.
pub fn found(name: &CStr, row: Option<usize>) {
    BY_PROC_ADDRESS.fetch_add(1, Ordering::Relaxed);
    if row.is_none() {
        note(name, true);
    }
}

/// A name was looked up by cuGetProcAddress and the driver has none.
pub fn missing(name: &CStr) {
    BY_PROC_ADDRESS.fetch_add(1, Ordering::Relaxed);
    note(name, false);
}

/// A name that looks like a driver function's was looked up by dlsym. Hooked ones are counted by their row.
pub fn by_dlsym(name: &CStr, is_hooked: bool) {
    BY_DLSYM.fetch_add(1, Ordering::Relaxed);
    if !is_hooked {
        note(name, true);
    }
}

/// A private table of the driver was looked up that cushion knows nothing of.
pub fn unknown_table(id: u128) {
    let bytes = id.to_be_bytes();
    let hex = |part: &[u8]| {
        part.iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    };
    let [first, second, third, fourth, last] =
        [0..4, 4..6, 6..8, 8..10, 10..16].map(|at| hex(&bytes[at]));
    record(
        &format!("private table {first}-{second}-{third}-{fourth}-{last}"),
        true,
    );
}

fn note(name: &CStr, is_in_driver: bool) {
    let Ok(name) = name.to_str() else { return };
    if is_in_driver && !name.is_empty() && !names::is_known(name) {
        order::lose("a function that this version of cushion does not know was looked up");
    }
    record(name, is_in_driver);
}

fn record(name: &str, is_in_driver: bool) {
    let others = OTHERS.get_or_init(|| Box::new(DashMap::with_shard_amount(4)));
    if let Some(mut known) = others.try_get_mut(name).try_unwrap() {
        known.count += 1;
    } else if !name.is_empty() && NAME_COUNT.load(Ordering::Relaxed) < NAMES_MAX {
        if let Some(entry) = others.try_entry(name.into()) {
            NAME_COUNT.fetch_add(1, Ordering::Relaxed);
            entry
                .or_insert(Other {
                    count: 0,
                    is_in_driver,
                })
                .count += 1;
        }
    }
}

/// What was seen so far.
pub fn coverage() -> Coverage {
    let mut coverage = Coverage {
        dlsym_count: BY_DLSYM.load(Ordering::Relaxed),
        proc_address_count: BY_PROC_ADDRESS.load(Ordering::Relaxed),
        interposer_count: linker::chained_count(),
        ..Coverage::default()
    };
    for (row, hook) in HOOKS.iter().enumerate() {
        let seen = Seen {
            name: hook.symbol.to_string_lossy().into_owned(),
            lookup_count: hook.resolved_count.load(Ordering::Relaxed),
            call_count: hook.call_count(row),
        };
        match (seen.lookup_count, seen.call_count) {
            (0, 0) => continue,
            (0, _) => coverage.linked_count += 1,
            _ => {}
        }
        match hook.kind {
            Kind::Count => coverage.counted.push(seen),
            _ => coverage.hooked.push(seen),
        }
    }
    for other in OTHERS.get().into_iter().flatten() {
        let seen = Seen {
            name: other.key().to_string(),
            lookup_count: other.count,
            call_count: 0,
        };
        let list = match (other.is_in_driver, names::is_known(&seen.name)) {
            (false, _) => &mut coverage.missing,
            (true, true) => &mut coverage.passed,
            (true, false) => &mut coverage.unknown,
        };
        list.push(seen);
    }
    for list in [
        &mut coverage.passed,
        &mut coverage.unknown,
        &mut coverage.missing,
    ] {
        list.sort_unstable();
    }
    coverage
}
