//! How the memory of each pool is broken up, with a drawn map.

use std::fmt::Write;

use crate::cli::clean;
use crate::report::{Fragmentation, Pool, Report, Run, RunState, Segment, SegmentKind, SizeClass};
use crate::units::Bytes;

/// Cells of one drawn segment.
const CELLS: usize = 64;
/// Length of the longest bar of the histogram.
const BAR: u64 = 40;

/// Every pool, `segment_limit` segments drawn of each.
pub fn section(report: &Report, segment_limit: usize) -> String {
    let mut out = String::new();
    for device in &report.devices {
        for pool in &device.pools {
            let label = report
                .context(pool.context)
                .map(|context| clean(&context.label));
            let label = label.unwrap_or_else(|| {
                format!("context {} of device {}", pool.context, device.ordinal)
            });
            // Writing to a string does not fail.
            let _ = writeln!(out, "\nFragmentation: {label}");
            out += &figures(&pool.fragmentation);
            out += &histogram(&pool.fragmentation.free_blocks);
            if segment_limit > 0 {
                out += &map(pool, segment_limit);
            }
        }
    }
    out
}

fn figures(f: &Fragmentation) -> String {
    let percent = |ratio: f64| format!("{:.1} %", ratio * 100.0);
    let mut rows = vec![
        (
            "internal (rounding)",
            format!(
                "{}, {} of allocated",
                Bytes(f.internal_bytes),
                percent(f.internal_ratio)
            ),
        ),
        (
            "external",
            format!(
                "{}: {} free, the largest block {}",
                percent(f.external_ratio),
                Bytes(f.free_bytes),
                Bytes(f.largest_free_bytes)
            ),
        ),
        (
            "pinned by live blocks",
            Bytes(f.pinned_free_bytes).to_string(),
        ),
        ("could be given back", Bytes(f.releasable_bytes).to_string()),
        (
            "largest request now",
            format!(
                "{} from the cache",
                Bytes(f.largest_request_from_cache_bytes)
            ),
        ),
    ];
    if let Some(bytes) = f.largest_request_bytes {
        if let Some((_, text)) = rows.last_mut() {
            let _ = write!(text, ", {} with the driver", Bytes(bytes));
        }
    }
    for (name, bytes) in [
        ("waiting for a barrier", f.unfenced_bytes),
        ("kept out of use", f.held_bytes),
    ] {
        if bytes > 0 {
            rows.push((name, Bytes(bytes).to_string()));
        }
    }
    rows.iter()
        .map(|(name, text)| format!("  {name:<24}{text}\n"))
        .collect()
}

fn histogram(classes: &[SizeClass]) -> String {
    let most = classes.iter().map(|class| class.bytes).max().unwrap_or(0);
    if most == 0 {
        return String::new();
    }
    let mut out = String::from("  free blocks by size\n");
    for class in classes {
        let share = u128::from(class.bytes) * u128::from(BAR) / u128::from(most);
        let bar = "*".repeat(share.max(1) as usize);
        let from = Bytes(class.at_least_bytes).to_string();
        let _ = writeln!(
            out,
            "    from {from:>10}  {:>8} blocks  {:>11}  {bar}",
            class.count,
            Bytes(class.bytes).to_string()
        );
    }
    out
}

fn map(pool: &Pool, limit: usize) -> String {
    let segments = &pool.segments;
    let mut out = format!(
        "  segments: {} ({} blocks)    # allocated  + partly  . free  ~ free behind a barrier  x kept out of use\n",
        segments.count, segments.block_count
    );
    for segment in segments.list.iter().take(limit) {
        let _ = writeln!(
            out,
            "    {:#014x} {:>11} {:<8} |{}| {:>3} %",
            segment.address.0,
            Bytes(segment.size_bytes).to_string(),
            kind(segment.kind),
            draw(segment),
            percent(segment.allocated_bytes, segment.size_bytes),
        );
    }
    let left = segments.list.len().saturating_sub(limit) as u64;
    let left = left.saturating_add(segments.omitted_count);
    if left > 0 {
        let _ = writeln!(out, "    and {left} more (--segments shows more)");
    }
    out
}

fn percent(part: u64, whole: u64) -> u64 {
    let percent = u128::from(part) * 100 / u128::from(whole.max(1));
    percent.min(100) as u64
}

fn kind(kind: SegmentKind) -> &'static str {
    match kind {
        SegmentKind::Small => "small",
        SegmentKind::Large => "large",
        SegmentKind::Oversize => "oversize",
        SegmentKind::Isolated => "isolated",
        SegmentKind::Unknown => "?",
    }
}

/// One character a cell: what all runs that touch it have in common, or `+`.
fn draw(segment: &Segment) -> String {
    let mut cells = [' '; CELLS];
    for run in &segment.runs {
        for cell in &mut cells[touched(run, segment.size_bytes)] {
            let mark = mark(run);
            *cell = if *cell == ' ' || *cell == mark {
                mark
            } else {
                '+'
            };
        }
    }
    cells.iter().collect()
}

/// The cells that a run touches. Files are not trusted: a run outside its segment is drawn at the edge.
fn touched(run: &Run, size_bytes: u64) -> std::ops::Range<usize> {
    let size = u128::from(size_bytes.max(1));
    let cell = |bytes: u128| (bytes * CELLS as u128 / size).min(CELLS as u128 - 1) as usize;
    let first = u128::from(run.offset_bytes);
    let last = first + u128::from(run.size_bytes.saturating_sub(1));
    cell(first)..cell(last) + 1
}

fn mark(run: &Run) -> char {
    match run.state {
        RunState::Allocated => '#',
        RunState::Free => '.',
        RunState::FreeUnfenced => '~',
        RunState::Held => 'x',
        RunState::Mixed => '+',
        RunState::Unknown => '?',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(offset_bytes: u64, size_bytes: u64, state: RunState) -> Run {
        Run {
            offset_bytes,
            size_bytes,
            state,
            ..Run::default()
        }
    }

    #[test]
    fn a_map_shows_what_lies_where() {
        let runs = vec![
            run(0, 100, RunState::Allocated),
            run(100, 28, RunState::Free),
        ];
        let segment = Segment {
            size_bytes: 128,
            runs,
            ..Segment::default()
        };
        assert_eq!(
            draw(&segment),
            format!("{}{}", "#".repeat(50), ".".repeat(14))
        );
        let runs = vec![
            run(0, 1, RunState::Held),
            run(1, 127, RunState::FreeUnfenced),
        ];
        assert_eq!(
            &draw(&Segment {
                size_bytes: 128,
                runs,
                ..Segment::default()
            })[..3],
            "+~~"
        );
    }

    #[test]
    fn a_false_map_is_harmless() {
        let runs = vec![
            run(u64::MAX, u64::MAX, RunState::Free),
            run(5, 0, RunState::Held),
        ];
        for size_bytes in [0, 1, u64::MAX] {
            assert_eq!(
                draw(&Segment {
                    size_bytes,
                    runs: runs.clone(),
                    ..Segment::default()
                })
                .len(),
                CELLS
            );
        }
    }
}
