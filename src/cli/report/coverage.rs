//! What the shim saw and what it passes on, and the settings that were not the defaults.

use std::fmt::Write;

use crate::cli::clean;
use crate::report::{Report, SymbolFigures};

/// Coverage, in a few lines.
pub fn section(report: &Report) -> String {
    let coverage = &report.coverage;
    let used = |symbols: &[SymbolFigures]| {
        symbols
            .iter()
            .filter(|symbol| symbol.lookups > 0 || symbol.calls > 0)
            .count()
    };
    let mut out = format!(
        "\nCoverage: {} symbols seen, {} hooked, {} counted, {} passed on\n",
        coverage.symbols_seen,
        used(&coverage.hooked),
        used(&coverage.counted),
        coverage.unknown.len()
    );
    // Writing to a string does not fail.
    if !coverage.unknown.is_empty() {
        let names: Vec<String> = coverage
            .unknown
            .iter()
            .map(|symbol| clean(&symbol.name))
            .collect();
        let _ = writeln!(out, "  passed on: {}", names.join(", "));
    }
    if !coverage.routes.is_empty() {
        let routes = coverage
            .routes
            .iter()
            .map(|route| format!("{} {}", clean(&route.route), route.lookups));
        let _ = writeln!(out, "  found by: {}", routes.collect::<Vec<_>>().join(", "));
    }
    for facts in &coverage.free_sync {
        let (mode, reason) = (clean(&facts.mode), clean(&facts.reason));
        let _ = writeln!(
            out,
            "  free-sync of context {}: {mode} ({reason})",
            facts.context
        );
    }
    for note in &coverage.notes {
        let _ = writeln!(out, "  note: {}", clean(note));
    }
    out
}

/// Settings that somebody set; nothing when nobody did.
pub fn settings(report: &Report) -> String {
    let set: Vec<_> = report
        .settings
        .iter()
        .filter(|setting| setting.origin != "default")
        .collect();
    if set.is_empty() {
        return String::new();
    }
    let mut out = String::from("\nSettings\n");
    for setting in set {
        let (name, value, origin) = (
            clean(&setting.name),
            clean(&setting.value),
            clean(&setting.origin),
        );
        let from = if origin == name {
            String::new()
        } else {
            format!(" (from {origin})")
        };
        let _ = writeln!(out, "  {name}={value}{from}");
    }
    out
}
