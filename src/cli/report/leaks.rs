//! Live and lost allocations by call site.

use std::fmt::Write;

use crate::cli::clean;
use crate::cli::symbols::{Name, Symbols};
use crate::report::{Leaks, Reason, Report, Site, SiteFigures};
use crate::units::{Bytes, Seconds};

/// Both lists, `limit` entries each, and what could not be named.
pub fn section(report: &Report, symbols: &mut Symbols, limit: usize) -> String {
    let title = match report.report.reason {
        Reason::Exit => "Leaks: never freed",
        _ => "Live memory, by call site",
    };
    let mut out = list(report, &report.leaks, symbols, title, limit);
    let lost = &report.lost_with_context;
    if lost.count > 0 {
        out += &list(
            report,
            lost,
            symbols,
            "Lost: live when their context was destroyed",
            limit,
        );
    }
    if report.leaks.count > 0 && report.sampling.stacks != "all" {
        // Writing to a string does not fail.
        let _ = writeln!(out, "\nSampling: {}.", clean(&report.sampling.rule));
    }
    for problem in symbols.problems() {
        let _ = writeln!(out, "Not named: {problem}");
    }
    out
}

fn list(
    report: &Report,
    leaks: &Leaks,
    symbols: &mut Symbols,
    title: &str,
    limit: usize,
) -> String {
    let mut out = format!("\n{title}: {}\n", amount(leaks.count, leaks.bytes));
    for entry in leaks.sites.iter().take(limit) {
        out += &site(report, entry, symbols);
    }
    let more = leaks.sites.iter().skip(limit);
    let (count, bytes) = more.fold(
        (leaks.omitted_count, leaks.omitted_bytes),
        |(count, bytes), entry| {
            (
                count.saturating_add(entry.count),
                bytes.saturating_add(entry.bytes),
            )
        },
    );
    let entries = leaks.sites.len().saturating_sub(limit) as u64;
    if entries.saturating_add(leaks.omitted_entries) > 0 {
        let _ = writeln!(
            out,
            "\n  and {} smaller ones: {}",
            entries + leaks.omitted_entries,
            amount(count, bytes)
        );
    }
    out
}

/// `3 blocks, 3145728 bytes (3.00 MiB)`.
fn amount(count: u64, bytes: u64) -> String {
    let noun = if count == 1 { "block" } else { "blocks" };
    let rounded = if bytes < 1024 {
        String::new()
    } else {
        format!(" ({})", Bytes(bytes))
    };
    format!("{count} {noun}, {bytes} bytes{rounded}")
}

fn site(report: &Report, entry: &SiteFigures, symbols: &mut Symbols) -> String {
    let stack = report
        .site(entry.site)
        .map(|site| stack(site, symbols))
        .unwrap_or_default();
    let title = match (entry.site, culprit(&stack)) {
        (0, _) => "no stack was taken".to_owned(),
        (1, _) => "the table of call sites was full".to_owned(),
        (_, Some(name)) => name.function.clone(),
        (_, None) => "unknown".to_owned(),
    };
    let mut out = format!("\n  {}: {title}\n    ", amount(entry.count, entry.bytes));
    if entry.estimated_count > entry.count {
        let _ = write!(
            out,
            "estimated {} of {}; ",
            entry.estimated_count,
            Bytes(entry.estimated_bytes)
        );
    }
    let context = report
        .context(entry.context)
        .map(|context| clean(&context.label));
    let context = context.unwrap_or_else(|| format!("context {}", entry.context));
    let kind = clean(&entry.kind).replace('_', " ");
    let _ = write!(
        out,
        "{kind}, {context}, oldest {}",
        Seconds(entry.oldest_age_seconds)
    );
    if let Some(growth) = entry
        .growth
        .as_ref()
        .filter(|growth| growth.bytes_since_first != 0)
    {
        let _ = write!(
            out,
            "; {} since the last report, {} since the first, growing for {} in a row",
            signed(growth.bytes),
            signed(growth.bytes_since_first),
            growth.reports_growing
        );
    }
    out.push('\n');
    for (frame, names) in stack.iter().enumerate() {
        for (at, name) in names.iter().enumerate() {
            let number = if at == 0 {
                format!("#{frame}")
            } else {
                String::new()
            };
            let _ = writeln!(out, "      {number:<4}{name}");
        }
    }
    out
}

fn stack(site: &Site, symbols: &mut Symbols) -> Vec<Vec<Name>> {
    site.frames
        .iter()
        .map(|frame| symbols.names(frame))
        .collect()
}

/// The innermost function that is not the CUDA interface itself.
fn culprit(stack: &[Vec<Name>]) -> Option<&Name> {
    let mut names = stack.iter().flatten();
    names
        .clone()
        .find(|name| !is_interface(&name.function))
        .or_else(|| names.next())
}

/// `cudaMalloc`, `cuMemAlloc_v2`, frames of cudart and the driver, wrappers of the C++ header.
fn is_interface(function: &str) -> bool {
    let is_call = |rest: &str| rest.starts_with(|c: char| c.is_ascii_uppercase());
    let prefixes = [
        "cu",
        "cuda",
        "__cuda",
        "libcudart",
        "libcuda.",
        "libcushion",
    ];
    let library = ["libcudart", "libcuda.", "libcushion", "__cudart"];
    library.iter().any(|prefix| function.starts_with(prefix))
        || prefixes
            .iter()
            .any(|prefix| function.strip_prefix(prefix).is_some_and(is_call))
}

fn signed(bytes: i64) -> String {
    let sign = if bytes < 0 { '-' } else { '+' };
    format!("{sign}{}", Bytes(bytes.unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interface_is_told_from_the_program() {
        for name in [
            "cudaMalloc",
            "cudaMalloc<float>",
            "cuMemAlloc_v2",
            "__cudart123",
            "libcuda.so.1+0x12",
            "libcudart.so.12+0x5",
        ] {
            assert!(is_interface(name), "{name}");
        }
        for name in [
            "custom",
            "cudaless",
            "load_weights",
            "cupy_alloc",
            "std::vector",
            "main",
        ] {
            assert!(!is_interface(name), "{name}");
        }
    }

    #[test]
    fn amounts() {
        assert_eq!(amount(1, 10), "1 block, 10 bytes");
        assert_eq!(amount(3, 3 << 20), "3 blocks, 3145728 bytes (3.00 MiB)");
        assert_eq!(signed(-2048), "-2.00 KiB");
    }
}
