//! The map of a pool's segments, kept to a bounded size whatever the number of blocks.

use super::{Hex, Run, RunState, Segment, SegmentKind, SegmentMap};
use crate::pool::{self, BlockSnapshot, BlockState, SegmentSnapshot};

/// So many segments are listed; the smallest are left out first.
pub(super) const SEGMENT_LIMIT: usize = 4096;
/// So many runs are listed, or a few more.
pub(super) const RUN_LIMIT: usize = 16_384;
/// A coarse map has at least so many cells.
const CELL_MIN: usize = 16;

/// Draws the map of one pool.
pub(super) fn segment_map(segments: &[SegmentSnapshot]) -> SegmentMap {
    let listed = listed_segments(segments);
    let run_limit = (RUN_LIMIT / listed.len().max(1)).max(CELL_MIN);
    let list: Vec<Segment> = listed
        .into_iter()
        .map(|segment| draw(segment, run_limit))
        .collect();
    let all_bytes: u64 = segments.iter().map(|segment| segment.size_bytes).sum();
    let listed_bytes: u64 = list.iter().map(|segment| segment.size_bytes).sum();
    SegmentMap {
        count: segments.len() as u64,
        block_count: segments
            .iter()
            .map(|segment| segment.blocks.len() as u64)
            .sum(),
        omitted_count: (segments.len() - list.len()) as u64,
        omitted_bytes: all_bytes - listed_bytes,
        list,
    }
}

/// The largest segments, in address order.
fn listed_segments(segments: &[SegmentSnapshot]) -> Vec<&SegmentSnapshot> {
    let mut listed: Vec<&SegmentSnapshot> = segments.iter().collect();
    if listed.len() > SEGMENT_LIMIT {
        let largest_first =
            |segment: &&SegmentSnapshot| (u64::MAX - segment.size_bytes, segment.address);
        listed.select_nth_unstable_by_key(SEGMENT_LIMIT, largest_first);
        listed.truncate(SEGMENT_LIMIT);
        listed.sort_unstable_by_key(|segment| segment.address);
    }
    listed
}

fn draw(segment: &SegmentSnapshot, run_limit: usize) -> Segment {
    let mut drawn = Segment {
        address: Hex(segment.address),
        size_bytes: segment.size_bytes,
        kind: kind_of(segment.kind),
        block_count: segment.blocks.len() as u64,
        ..Segment::default()
    };
    for block in &segment.blocks {
        match block.state {
            BlockState::Allocated => {
                drawn.allocated_bytes += block.size_bytes;
                drawn.allocation_count += 1;
            }
            BlockState::Free | BlockState::FreeUnfenced => {
                drawn.free_bytes += block.size_bytes;
                drawn.largest_free_bytes = drawn.largest_free_bytes.max(block.size_bytes);
            }
            BlockState::Held => drawn.held_bytes += block.size_bytes,
        }
    }
    let exact = exact_runs(&segment.blocks, run_limit);
    drawn.exact = exact.is_some();
    drawn.runs = exact.unwrap_or_else(|| coarse_runs(segment, run_limit));
    drawn
}

/// Neighbours of one state as one run; `None` when there are too many.
fn exact_runs(blocks: &[BlockSnapshot], run_limit: usize) -> Option<Vec<Run>> {
    let mut runs = Vec::new();
    for block in blocks {
        let state = state_of(block.state);
        push(
            &mut runs,
            run(block.offset_bytes, block.size_bytes, state, 1),
        );
        if runs.len() > run_limit {
            return None;
        }
    }
    Some(runs)
}

/// Cells of equal size, joined where they are alike.
fn coarse_runs(segment: &SegmentSnapshot, cell_count: usize) -> Vec<Run> {
    let cell_bytes = segment.size_bytes.div_ceil(cell_count as u64).max(1);
    let mut runs = Vec::new();
    let mut cell = Run::default();
    for block in &segment.blocks {
        let state = state_of(block.state);
        let end = block.offset_bytes + block.size_bytes;
        let mut at = block.offset_bytes;
        let mut begins = 1;
        while at < end {
            let cell_end = (at / cell_bytes + 1) * cell_bytes;
            let piece = run(at, end.min(cell_end) - at, state, begins);
            begins = 0;
            at += piece.size_bytes;
            if cell.size_bytes == 0 {
                cell = piece;
            } else {
                if cell.state != state {
                    cell.state = RunState::Mixed;
                }
                join(&mut cell, &piece);
            }
            if at == cell_end {
                push(&mut runs, std::mem::take(&mut cell));
            }
        }
    }
    if cell.size_bytes > 0 {
        push(&mut runs, cell);
    }
    runs
}

fn run(offset_bytes: u64, size_bytes: u64, state: RunState, block_count: u64) -> Run {
    let allocated_bytes = if state == RunState::Allocated {
        size_bytes
    } else {
        0
    };
    Run {
        offset_bytes,
        size_bytes,
        state,
        allocated_bytes,
        block_count,
    }
}

/// Adds a run behind the others, joined with the last when both are alike throughout.
fn push(runs: &mut Vec<Run>, next: Run) {
    match runs.last_mut() {
        Some(last) if last.state == next.state && next.state != RunState::Mixed => {
            join(last, &next)
        }
        _ => runs.push(next),
    }
}

fn join(run: &mut Run, next: &Run) {
    run.size_bytes += next.size_bytes;
    run.allocated_bytes += next.allocated_bytes;
    run.block_count += next.block_count;
}

fn state_of(state: BlockState) -> RunState {
    match state {
        BlockState::Allocated => RunState::Allocated,
        BlockState::Free => RunState::Free,
        BlockState::FreeUnfenced => RunState::FreeUnfenced,
        BlockState::Held => RunState::Held,
    }
}

fn kind_of(kind: pool::SegmentKind) -> SegmentKind {
    match kind {
        pool::SegmentKind::Small => SegmentKind::Small,
        pool::SegmentKind::Large => SegmentKind::Large,
        pool::SegmentKind::Oversize => SegmentKind::Oversize,
        pool::SegmentKind::Isolated => SegmentKind::Isolated,
    }
}
