//! The totals: who, on what, how much.

use std::fmt::Write;

use crate::cli::clean;
use crate::report::{Device, Figures, Gauge, Reason, Report};
use crate::units::{Bytes, Seconds};

/// Width of the tables between their borders.
const WIDTH: usize = 75;

/// The process and the moment.
pub fn heading(report: &Report) -> String {
    let process = &report.process;
    let command = clean(&process.command.join(" "));
    let host = clean(&process.host);
    let rank = process
        .rank
        .as_deref()
        .map(|rank| format!(", rank {}", clean(rank)))
        .unwrap_or_default();
    let facts = &report.report;
    let when = match facts.reason {
        Reason::Exit => "at its end",
        Reason::Periodic => "while it ran",
        Reason::Request => "on request",
        Reason::Unknown => "",
    };
    let driver = process.driver_version.as_deref().unwrap_or("not asked");
    format!(
        "{command}\nprocess {} on {host}{rank}; report {} {when}, after {}; cushion {}, driver for CUDA {}\n",
        process.pid,
        facts.sequence,
        Seconds(facts.uptime_seconds),
        clean(&process.shim_version),
        clean(driver),
    )
}

/// One table a device.
pub fn devices(report: &Report) -> String {
    if report.devices.is_empty() {
        return "\nNo device was used.\n".to_owned();
    }
    report.devices.iter().map(device).collect()
}

fn device(device: &Device) -> String {
    let figures = &device.figures;
    let limit = match device.limit_bytes {
        Some(limit) => format!("limit {}", Bytes(limit)),
        None => "no limit".to_owned(),
    };
    let title = format!(
        "device {}: {}, {}, {limit}",
        device.ordinal,
        clean(&device.name),
        Bytes(device.total_bytes)
    );
    let refused = &figures.out_of_memory;
    let refusals = format!(
        "out of memory: {} by the limit, {} by the driver; retries: {}",
        refused.by_limit, refused.by_driver, figures.retries
    );
    let (requests, calls) = (&figures.requests, &figures.driver_calls);
    let served = format!(
        "requests: {} from the cache, {} by growth",
        requests.hits, requests.misses
    );
    let driver = format!(
        "driver calls: {} made, {} avoided; {} barriers, {} waits",
        calls.made, calls.avoided, calls.fences, calls.host_waits
    );
    let cost = format!(
        "faithful mode: waited {}, filled {}",
        Seconds(figures.wait_seconds),
        Bytes(figures.scrubbed_bytes)
    );
    let mut table = Table::default();
    table.rule('=').line(&title).rule('-');
    for text in [refusals, served, driver, cost] {
        table.line(&text);
    }
    let given = &figures.given_back;
    if figures.preallocated_bytes > 0 || given.by_threshold_bytes > 0 || given.idle_bytes > 0 {
        table.line(&format!(
            "taken ahead {}; given back idle {}, by the threshold {}",
            Bytes(figures.preallocated_bytes),
            Bytes(given.idle_bytes),
            Bytes(given.by_threshold_bytes)
        ));
    }
    table
        .rule('=')
        .cells(["", "Current", "Peak", "Total", "Freed"])
        .rule('-');
    rows(&mut table, figures);
    table.rule('=');
    format!("\n{}", table.0)
}

fn rows(table: &mut Table, figures: &Figures) {
    let bytes: [(&str, &Gauge); 5] = [
        ("Requested memory", &figures.requested_bytes),
        ("Allocated memory", &figures.allocated_bytes),
        ("Active memory", &figures.active_bytes),
        ("Reserved memory", &figures.reserved_bytes),
        ("Cached memory", &figures.cached_bytes),
    ];
    for (name, gauge) in bytes {
        table.gauge(name, gauge, |value| Bytes(value).to_string());
    }
    table.rule('-');
    for (name, gauge) in [
        ("Allocations", &figures.allocations),
        ("Segments", &figures.segments),
    ] {
        table.gauge(name, gauge, |value| value.to_string());
    }
}

/// The kinds of memory that no pool serves; nothing when there are none.
pub fn other_kinds(report: &Report) -> String {
    let others: Vec<_> = report
        .kinds
        .iter()
        .filter(|kind| kind.kind != "pooled")
        .collect();
    if others.is_empty() {
        return String::new();
    }
    let mut table = Table::default();
    table
        .rule('=')
        .line("memory that is counted and not pooled")
        .rule('-');
    table
        .cells(["", "Current", "Peak", "Total", "Freed"])
        .rule('-');
    for kind in others {
        let name = clean(&kind.kind).replace('_', " ");
        table.gauge(&name, &kind.bytes, |value| Bytes(value).to_string());
        table.gauge("  allocations", &kind.count, |value| value.to_string());
    }
    table.rule('=');
    format!("\n{}", table.0)
}

/// A table of fixed width, as PyTorch's `memory_summary` draws it.
#[derive(Default)]
struct Table(String);

impl Table {
    fn rule(&mut self, c: char) -> &mut Self {
        // Writing to a string does not fail.
        let _ = writeln!(self.0, "|{}|", c.to_string().repeat(WIDTH));
        self
    }

    fn line(&mut self, text: &str) -> &mut Self {
        let _ = writeln!(self.0, "| {text:<width$} |", width = WIDTH - 2);
        self
    }

    fn cells(&mut self, cells: [&str; 5]) -> &mut Self {
        let [name, rest @ ..] = cells;
        let _ = write!(self.0, "| {name:<18} ");
        for cell in rest {
            let _ = write!(self.0, "| {cell:>11} ");
        }
        self.0.push_str("|\n");
        self
    }

    fn gauge(&mut self, name: &str, gauge: &Gauge, text: impl Fn(u64) -> String) {
        let freed = gauge.total.saturating_sub(gauge.current);
        let [current, peak, total, freed] =
            [gauge.current, gauge.peak, gauge.total, freed].map(text);
        self.cells([name, &current, &peak, &total, &freed]);
    }
}
