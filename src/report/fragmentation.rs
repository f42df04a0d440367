//! How the memory of a pool is broken up.

use super::{Fragmentation, SizeClass};
use crate::pool::{BlockState, PoolSnapshot};

/// What bounds a request that the pool would have to grow for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    /// Free on the device when the driver was last asked.
    pub driver_free_bytes: Option<u64>,
    /// What the limit leaves for the process; all of it without a limit.
    pub limit_left_bytes: u64,
}

/// Counts the blocks of `pool` over.
pub(super) fn fragmentation(pool: &PoolSnapshot, room: Room) -> Fragmentation {
    let mut result = Fragmentation::default();
    let mut classes = [(0u64, 0u64); 64];
    for segment in &pool.segments {
        let mut free_bytes = 0;
        let mut is_whole = true;
        for block in &segment.blocks {
            let size_bytes = block.size_bytes;
            match block.state {
                BlockState::Free | BlockState::FreeUnfenced => {
                    free_bytes += size_bytes;
                    result.largest_free_bytes = result.largest_free_bytes.max(size_bytes);
                    let (count, bytes) = &mut classes[size_bytes.max(1).ilog2() as usize];
                    *count += 1;
                    *bytes += size_bytes;
                    if block.state == BlockState::FreeUnfenced {
                        result.unfenced_bytes += size_bytes;
                    }
                }
                BlockState::Held => {
                    result.held_bytes += size_bytes;
                    is_whole = false;
                }
                BlockState::Allocated => {
                    result.internal_bytes += size_bytes.saturating_sub(block.requested_bytes);
                    is_whole = false;
                }
            }
        }
        result.free_bytes += free_bytes;
        if is_whole {
            result.releasable_bytes += free_bytes;
        } else {
            result.pinned_free_bytes += free_bytes;
        }
    }
    result.internal_ratio =
        ratio(result.internal_bytes, pool.stats.allocated_bytes.current).min(1.0);
    result.external_ratio = match result.free_bytes {
        0 => 0.0,
        free => 1.0 - ratio(result.largest_free_bytes, free),
    };
    result.largest_request_from_cache_bytes = pool.largest_free_bytes;
    result.largest_request_bytes = room.driver_free_bytes.map(|free| {
        // What is entirely free is given back first.
        let growth = free
            .min(room.limit_left_bytes)
            .saturating_add(result.releasable_bytes);
        growth.max(pool.largest_free_bytes)
    });
    result.free_blocks = size_classes(&classes);
    result
}

fn size_classes(classes: &[(u64, u64); 64]) -> Vec<SizeClass> {
    let all = classes.iter().enumerate();
    let class = |(log2, (count, bytes)): (usize, &(u64, u64))| SizeClass {
        at_least_bytes: 1 << log2,
        count: *count,
        bytes: *bytes,
    };
    all.map(class).filter(|class| class.count > 0).collect()
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}
