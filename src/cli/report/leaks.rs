//! Live and lost allocations by call site.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt::Write;

use crate::cli::clean;
use crate::cli::symbols::{Name, Symbols};
use crate::report::{Growth, Leaks, Reason, Report, Site, SiteFigures};
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
    let sites = Named::all(report, leaks, symbols);
    for site in sites.iter().take(limit) {
        out += &site.text(report);
    }
    let rest = sites.get(limit..).unwrap_or_default();
    let sum = |start: u64, figure: fn(&Named) -> u64| {
        rest.iter().map(figure).fold(start, u64::saturating_add)
    };
    let entries = leaks.omitted_entries.saturating_add(rest.len() as u64);
    if entries > 0 {
        let count = sum(leaks.omitted_count, |site| site.count);
        let bytes = sum(leaks.omitted_bytes, |site| site.bytes);
        // Writing to a string does not fail.
        let _ = writeln!(out, "\n  and {entries} smaller: {}", amount(count, bytes));
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

/// Entries that a reader cannot tell apart, together: a compiler makes several calls of one line.
struct Named {
    kind: String,
    context: u64,
    title: String,
    /// The frames, a line each.
    stack: String,
    count: u64,
    bytes: u64,
    estimated_count: u64,
    estimated_bytes: u64,
    oldest_age_seconds: f64,
    growth: Growth,
}

impl Named {
    /// All entries with their names, largest first.
    fn all(report: &Report, leaks: &Leaks, symbols: &mut Symbols) -> Vec<Named> {
        let mut sites: Vec<Named> = Vec::new();
        let mut places: HashMap<(String, u64, String), usize> = HashMap::new();
        for entry in &leaks.sites {
            let named = Named::of(report, entry, symbols);
            let key = (
                named.title.clone() + &named.stack,
                named.context,
                named.kind.clone(),
            );
            match places.get(&key).and_then(|place| sites.get_mut(*place)) {
                Some(same) => same.add(&named),
                None => {
                    places.insert(key, sites.len());
                    sites.push(named);
                }
            }
        }
        // A stable sort: what is equal stays in the report's order.
        sites.sort_by_key(|site| Reverse((site.estimated_bytes, site.bytes)));
        sites
    }

    fn of(report: &Report, entry: &SiteFigures, symbols: &mut Symbols) -> Named {
        let frames = report.site(entry.site).map(|site| frames(site, symbols));
        let frames = frames.unwrap_or_default();
        let title = match (entry.site, culprit(&frames)) {
            (0, _) => "no stack was taken",
            (1, _) => "the table of call sites was full",
            (_, Some(name)) => &name.function,
            (_, None) => "unknown",
        };
        Named {
            kind: clean(&entry.kind).replace('_', " "),
            context: entry.context,
            title: title.to_owned(),
            stack: stack(&frames),
            count: entry.count,
            bytes: entry.bytes,
            estimated_count: entry.estimated_count,
            estimated_bytes: entry.estimated_bytes,
            oldest_age_seconds: entry.oldest_age_seconds,
            growth: entry.growth.clone().unwrap_or_default(),
        }
    }

    fn add(&mut self, other: &Named) {
        self.count = self.count.saturating_add(other.count);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.estimated_count = self.estimated_count.saturating_add(other.estimated_count);
        self.estimated_bytes = self.estimated_bytes.saturating_add(other.estimated_bytes);
        self.oldest_age_seconds = self.oldest_age_seconds.max(other.oldest_age_seconds);
        let (growth, more) = (&mut self.growth, &other.growth);
        growth.bytes = growth.bytes.saturating_add(more.bytes);
        growth.bytes_since_first = growth
            .bytes_since_first
            .saturating_add(more.bytes_since_first);
        growth.reports_growing = growth.reports_growing.max(more.reports_growing);
    }

    fn text(&self, report: &Report) -> String {
        let mut out = format!(
            "\n  {}: {}\n    ",
            amount(self.count, self.bytes),
            self.title
        );
        // Writing to a string does not fail.
        if self.estimated_count > self.count {
            let estimate = Bytes(self.estimated_bytes);
            let _ = write!(out, "estimated {} of {estimate}; ", self.estimated_count);
        }
        let context = report
            .context(self.context)
            .map(|context| clean(&context.label));
        let context = context.unwrap_or_else(|| format!("context {}", self.context));
        let _ = write!(
            out,
            "{}, {context}, oldest {}",
            self.kind,
            Seconds(self.oldest_age_seconds)
        );
        if self.growth.bytes_since_first != 0 {
            let _ = write!(
                out,
                "; {} since the last report, {} since the first",
                signed(self.growth.bytes),
                signed(self.growth.bytes_since_first)
            );
            match self.growth.reports_growing {
                0 => {}
                1 => out.push_str(", growing"),
                reports => {
                    let _ = write!(out, ", growing for {reports} reports in a row");
                }
            }
        }
        out + "\n" + &self.stack
    }
}

/// Names of each frame, down to where the program begins.
fn frames(site: &Site, symbols: &mut Symbols) -> Vec<Vec<Name>> {
    let mut frames: Vec<Vec<Name>> = site
        .frames
        .iter()
        .map(|frame| symbols.names(frame))
        .collect();
    let is_start = |names: &Vec<Name>| names.iter().any(|name| START.contains(&&*name.function));
    if let Some(at) = frames.iter().position(is_start).filter(|at| *at > 0) {
        frames.truncate(at);
    }
    frames
}

/// What the C library calls the program and its threads from: the same under every stack.
const START: [&str; 8] = [
    "_start",
    "__libc_start_main",
    "__libc_start_main_impl",
    "__libc_start_call_main",
    "start_thread",
    "clone",
    "clone3",
    "__clone3",
];

fn stack(frames: &[Vec<Name>]) -> String {
    let mut out = String::new();
    for (frame, names) in frames.iter().enumerate() {
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
