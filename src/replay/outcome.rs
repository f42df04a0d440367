//! The figures of one replay, and the table of many.

use serde::Serialize;

use super::Calls;

/// One policy on one workload.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// Its name.
    pub policy: String,
    /// The device of the events.
    pub device: u32,
    /// How many were replayed.
    pub events: usize,
    /// The most bytes live at once, as requested: a property of the trace.
    pub peak_requested_bytes: u64,
    /// The most bytes taken from the driver at once.
    pub peak_reserved_bytes: u64,
    /// The most bytes live at once of the requests that were served, over peak reserved.
    pub utilisation: f64,
    /// Calls that took memory from the driver or gave it back.
    pub driver_calls: u64,
    /// The same by kind.
    pub calls: Calls,
    /// Device-side barriers before reuse; not among the calls.
    pub fences: u64,
    /// Host time of calls and barriers by the cost model.
    pub driver_seconds: f64,
    /// At the end: the largest request that would succeed without taking memory from the driver.
    pub largest_cached_bytes: u64,
    /// At the end: the largest request that would succeed under the given limit, after giving back what is cached.
    pub largest_under_limit_bytes: Option<u64>,
    /// Requests that did not fit under the limit.
    pub refused_requests: u64,
    /// Reserved memory over the trace.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<Sample>,
}

/// A point of a curve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Sample {
    /// Events replayed so far.
    pub event: usize,
    /// The most reserved since the point before.
    pub reserved_bytes: u64,
}

const HEAD: [&str; 9] = [
    "trace",
    "policy",
    "reserved MiB",
    "utilisation",
    "driver calls",
    "barriers",
    "time ms",
    "largest cached MiB",
    "refused",
];

/// Rows of (name of the trace, outcome) as an aligned table.
pub fn table(rows: &[(String, Outcome)]) -> String {
    let mut cells: Vec<[String; 9]> = vec![HEAD.map(str::to_owned)];
    for (trace, o) in rows {
        cells.push([
            trace.clone(),
            o.policy.clone(),
            mib(o.peak_reserved_bytes),
            format!("{:.1} %", 100.0 * o.utilisation),
            o.driver_calls.to_string(),
            o.fences.to_string(),
            format!("{:.1}", 1e3 * o.driver_seconds),
            mib(o
                .largest_under_limit_bytes
                .unwrap_or(o.largest_cached_bytes)),
            o.refused_requests.to_string(),
        ]);
    }
    if rows
        .iter()
        .any(|(_, o)| o.largest_under_limit_bytes.is_some())
    {
        cells[0][7] = "largest under limit MiB".to_owned();
    }
    let width = |column: usize| cells.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..HEAD.len()).map(width).collect();
    let mut text = String::new();
    for row in &cells {
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let gap = if column == 0 { "" } else { "  " };
            text += &match column {
                0 | 1 => format!("{gap}{cell:<width$}"),
                _ => format!("{gap}{cell:>width$}"),
            };
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

fn mib(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / (1u64 << 20) as f64)
}
