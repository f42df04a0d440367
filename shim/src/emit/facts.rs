//! What a report is made of, gathered without a driver call: host data only, so that it also works at the very end.

use crate::device::{contexts, limits, order, reclaim, settings};
use crate::real::unseen;
use crate::route::seen::{self, Seen};
use crate::{ledger, process};
use cushion::config::PathFacts;
use cushion::ledger::LedgerSnapshot;
use cushion::pool::{PoolSnapshot, PoolStats};
use cushion::report::{
    self, Coverage, FreeSyncFacts, History, PoolInput, Process, Reason, ReportInput, Route,
    SymbolFigures,
};
use once_cell::sync::Lazy;
use serde_json::json;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Figures of pools whose context is gone, by device.
static RETIRED: Mutex<Vec<(u32, PoolStats, f64)>> = Mutex::new(Vec::new());

/// Remembers the figures of a pool whose context is gone.
pub fn retire(context: &contexts::Context) {
    let device = context.backing.device as u32;
    let stats = report::retire_stats(context.pool.stats());
    let waited = wait_seconds(context);
    let mut retired = RETIRED.lock().unwrap_or_else(PoisonError::into_inner);
    match retired.iter_mut().find(|(known, ..)| *known == device) {
        Some((_, sum, seconds)) => {
            report::merge_stats(sum, stats);
            *seconds += waited;
        }
        None => retired.push((device, stats, waited)),
    }
}

fn wait_seconds(context: &contexts::Context) -> f64 {
    Duration::from_nanos(context.backing.waited_ns.load(Ordering::Relaxed)).as_secs_f64()
}

/// Facts of the process that do not change.
struct Fixed {
    process: Process,
    name: String,
}

static FIXED: Lazy<Fixed> = Lazy::new(|| {
    let lossy = |path: &std::path::Path| path.to_string_lossy().into_owned();
    let program = std::fs::read_link("/proc/self/exe").unwrap_or_default();
    let command = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let command = command
        .split(|&byte| byte == 0)
        .map(|word| String::from_utf8_lossy(word).into_owned());
    let mut command: Vec<String> = command.collect();
    command.pop();
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs_f64();
    Fixed {
        name: program
            .file_name()
            .map(|name| String::from_utf8_lossy(name.as_bytes()).into_owned())
            .unwrap_or_default(),
        process: Process {
            pid: std::process::id(),
            parent_pid: std::os::unix::process::parent_id(),
            forked: process::is_forked(),
            program: lossy(&program),
            command,
            directory: process::start_directory().map(lossy).unwrap_or_default(),
            host: host(),
            rank: settings::get().config.rank.clone(),
            start_unix_seconds: now - process_age_seconds().unwrap_or(0.0),
            shim_version: env!("CARGO_PKG_VERSION").to_owned(),
            driver_version: contexts::driver_version()
                .map(|v| format!("{}.{}", v / 1000, v % 1000 / 10)),
        },
    }
});

fn host() -> String {
    let mut name = [0u8; 256];
    // SAFETY: the buffer is ours, and its last byte stays zero.
    unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len() - 1) };
    crate::driver::text(&name)
}

/// Seconds since this process began, by the kernel's count.
fn process_age_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // Fields after the program's name, which may hold anything: the 22nd of all is the start, in ticks since boot.
    let ticks: f64 = stat
        .rsplit(')')
        .next()?
        .split_whitespace()
        .nth(19)?
        .parse()
        .ok()?;
    let uptime: f64 = std::fs::read_to_string("/proc/uptime")
        .ok()?
        .split_whitespace()
        .next()?
        .parse()
        .ok()?;
    // SAFETY: no preconditions.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64;
    Some((uptime - ticks / per_second).max(0.0))
}

/// What tells this process's report from others.
pub fn path(sequence: u64) -> PathFacts {
    let Fixed { process, name } = &*FIXED;
    PathFacts {
        pid: process.pid,
        forked: process.forked,
        host: process.host.clone(),
        program: name.clone(),
        rank: process.rank.clone(),
        sequence,
    }
}

/// What a trace begins with.
pub fn trace_header() -> serde_json::Value {
    let settings = settings::get().config.settings();
    let settings = settings
        .into_iter()
        .map(|setting| (setting.name, setting.value.into()));
    json!({
        "recorder": concat!("cushion ", env!("CARGO_PKG_VERSION")),
        "process": FIXED.process,
        "settings": settings.collect::<serde_json::Map<_, _>>(),
    })
}

fn live_pool(context: &contexts::Context, snapshot: PoolSnapshot) -> PoolInput {
    PoolInput {
        context: context.serial,
        device: context.backing.device as u32,
        retired: false,
        wait_seconds: wait_seconds(context),
        snapshot,
    }
}

/// The figures of this moment, without the maps and the leaks.
pub fn figures() -> serde_json::Value {
    let contexts = contexts::all();
    let live = contexts.iter().map(|context| {
        let snapshot = PoolSnapshot {
            stats: context.pool.stats(),
            ..PoolSnapshot::default()
        };
        live_pool(context, snapshot)
    });
    let input = ReportInput {
        devices: limits::devices(),
        pools: retired().chain(live).collect(),
        ledger: LedgerSnapshot {
            kinds: ledger::get().counts(),
            ..LedgerSnapshot::default()
        },
        ..ReportInput::default()
    };
    let report = report::build(input, &mut History::default());
    let devices = report.devices.iter().map(|device| {
        let pools = device.pools.iter();
        let pools = pools.map(|pool| json!({ "context": pool.context, "figures": pool.figures }));
        json!({
            "ordinal": device.ordinal,
            "name": device.name,
            "total_bytes": device.total_bytes,
            "limit_bytes": device.limit_bytes,
            "figures": device.figures,
            "pools": pools.collect::<Vec<_>>(),
        })
    });
    json!({ "devices": devices.collect::<Vec<_>>(), "kinds": report.kinds })
}

/// Everything, now.
pub fn input(reason: Reason) -> ReportInput {
    let contexts = contexts::all();
    let live = contexts
        .iter()
        .map(|context| live_pool(context, context.pool.snapshot()));
    ReportInput {
        reason,
        now_unix_seconds: SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs_f64(),
        now_ms: ledger::now_ms().saturating_sub(ledger::start_ms()),
        process: FIXED.process.clone(),
        settings: settings::get().config.settings(),
        contexts: contexts::records(),
        devices: limits::devices(),
        pools: retired().chain(live).collect(),
        ledger: ledger::get().snapshot(),
        coverage: coverage(contexts.iter().map(|context| context.serial)),
    }
}

/// What pools did whose context is gone.
fn retired() -> impl Iterator<Item = PoolInput> {
    let retired = RETIRED
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone();
    retired
        .into_iter()
        .map(|(device, stats, wait_seconds)| PoolInput {
            device,
            retired: true,
            wait_seconds,
            snapshot: PoolSnapshot {
                stats,
                ..PoolSnapshot::default()
            },
            ..PoolInput::default()
        })
}

fn coverage(contexts: impl Iterator<Item = u64>) -> Coverage {
    let seen = seen::coverage();
    let host_wait = settings::get().host_wait_now();
    let figures = |list: Vec<Seen>| -> Vec<SymbolFigures> {
        list.into_iter()
            .map(|symbol| SymbolFigures {
                name: symbol.name,
                lookups: symbol.lookup_count,
                calls: symbol.call_count,
            })
            .collect()
    };
    let mut notes = Vec::new();
    if seen.interposer_count > 0 {
        notes.push(format!(
            "{} other preloaded libraries stand in for dlsym",
            seen.interposer_count
        ));
    }
    notes.extend_from_slice(unseen::notes());
    if let Some(why) = super::ctl::refused() {
        notes.push(format!("cushion ctl cannot speak to this process: {why}"));
    }
    if let Some(reason) = order::reason() {
        notes.push(format!("reuse of memory takes a fence: {reason}"));
    }
    if let broken @ 1.. = process::broken_count() {
        notes.push(format!(
            "{broken} internal errors; these calls went to the driver"
        ));
    }
    if let retries @ 1.. = reclaim::RETRIES.load(Ordering::Relaxed) {
        notes.push(format!(
            "{retries} driver calls were short of memory and were made again after a trim"
        ));
    }
    let strange = seen.unknown.iter().map(|symbol| symbol.name.as_str());
    let strange = strange.collect::<Vec<_>>().join(", ");
    if !strange.is_empty() {
        notes.push(format!(
            "newer than this version of cushion, or private: {strange}"
        ));
    }
    let others = [seen.passed, seen.unknown, seen.missing].concat();
    let route = |route: &str, lookups| Route {
        route: route.into(),
        lookups,
    };
    Coverage {
        symbols_seen: (seen.hooked.len() + seen.counted.len() + others.len()) as u64,
        hooked: figures(seen.hooked),
        counted: figures(seen.counted),
        unknown: figures(others),
        routes: vec![
            route("dlsym", seen.dlsym_count),
            route("cuGetProcAddress", seen.proc_address_count),
            route("linked", seen.linked_count),
        ],
        free_sync: contexts
            .map(|context| FreeSyncFacts {
                context,
                mode: if host_wait.waits { "host" } else { "device" }.into(),
                reason: host_wait.reason.into(),
            })
            .collect(),
        notes,
    }
}
