//! The driver's own books: the call log, the counts at exit, live memory.
use crate::config;
use crate::entry::{Site, SITES};
use crate::state::lock;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::sync::atomic::Ordering::*;
use std::sync::OnceLock;
use std::time::Instant;

/// One line for one call.
pub fn log(call: &str, code: i32, since: Instant) {
    static LOG: OnceLock<Option<File>> = OnceLock::new();
    let file = LOG.get_or_init(|| {
        let path = config::get().log.as_ref()?;
        OpenOptions::new().create(true).append(true).open(path).ok()
    });
    if let Some(file) = file {
        let us = since.elapsed().as_secs_f64() * 1e6;
        let line = format!(
            "{} {} {call} = {code} ({us:.1} us)\n",
            std::process::id(),
            crate::entry::thread(),
        );
        // One write to a file opened for appending: lines do not mix.
        let mut file: &File = file;
        let _ = file.write_all(line.as_bytes());
    }
}

/// Calls of every function: name, calls, failures.
fn calls() -> Vec<(&'static str, u64, u64)> {
    let mut out = Vec::new();
    let mut at: *const Site = SITES.load(Acquire);
    // SAFETY: sites are statics; the list only grows.
    while let Some(site) = unsafe { at.as_ref() } {
        out.push((
            site.name,
            site.calls.load(Relaxed),
            site.failures.load(Relaxed),
        ));
        at = site.next.load(Acquire);
    }
    out.sort_unstable();
    out
}

/// Writes SIMCUDA_STATS as JSON.
pub fn write() {
    let Some(path) = &config::get().stats else {
        return;
    };
    let mut text = String::from("{\n  \"devices\": [");
    {
        let mut st = lock();
        for d in 0..st.devices.len() as i32 {
            let (count, bytes) = st.live_bytes(d);
            let used = st
                .device(d)
                .ok()
                .and_then(|d| d.known_arena())
                .map_or(0, |a| a.used);
            let comma = if d > 0 { "," } else { "" };
            let _ = write!(
                text,
                "{comma}\n    {{\"device\": {d}, \"live_allocations\": {count}, \"live_bytes\": {bytes}, \"used_bytes\": {used}}}"
            );
        }
    }
    text += "\n  ],\n  \"calls\": {";
    for (i, (name, n, failed)) in calls().into_iter().enumerate() {
        let comma = if i > 0 { "," } else { "" };
        let _ = write!(
            text,
            "{comma}\n    \"{name}\": {{\"calls\": {n}, \"failures\": {failed}}}"
        );
    }
    text += "\n  }\n}\n";
    let _ = std::fs::write(path, text);
}

/// Bytes in live allocations of a device, by the driver's own count.
#[no_mangle]
pub extern "C" fn simcuda_live_bytes(device: i32) -> u64 {
    let bytes = lock().live_bytes(device).1;
    write();
    bytes
}

/// Live allocations of a device, by the driver's own count.
#[no_mangle]
pub extern "C" fn simcuda_live_allocations(device: i32) -> u64 {
    lock().live_bytes(device).0
}
