//! Figures of a pool, and sums of them.

use super::{DriverCalls, Figures, Gauge, GivenBack, OutOfMemory, Requests};
use crate::pool::{self, PoolStats};

impl From<pool::Gauge> for Gauge {
    fn from(gauge: pool::Gauge) -> Self {
        let pool::Gauge {
            current,
            peak,
            total,
        } = gauge;
        Gauge {
            current,
            peak,
            total,
        }
    }
}

impl Gauge {
    /// Adds another; the peak of a sum is at most the sum of the peaks.
    pub(super) fn add(&mut self, other: &Gauge) {
        self.current = self.current.saturating_add(other.current);
        self.peak = self.peak.saturating_add(other.peak);
        self.total = self.total.saturating_add(other.total);
    }
}

impl Figures {
    /// The figures of one pool. `cached_peak_bytes` is the highest that reports have seen.
    pub(super) fn of(stats: &PoolStats, wait_seconds: f64, cached_peak_bytes: u64) -> Self {
        let made = stats.reserve_calls + stats.release_calls;
        let frees = stats
            .allocations
            .total
            .saturating_sub(stats.allocations.current);
        Figures {
            requested_bytes: stats.requested_bytes.into(),
            allocated_bytes: stats.allocated_bytes.into(),
            active_bytes: stats.active_bytes.into(),
            reserved_bytes: stats.reserved_bytes.into(),
            cached_bytes: Gauge {
                current: cached_bytes(stats),
                peak: cached_peak_bytes,
                total: stats
                    .allocated_bytes
                    .total
                    .saturating_sub(stats.allocated_bytes.current),
            },
            allocations: stats.allocations.into(),
            segments: stats.segments.into(),
            requests: Requests {
                hits: stats.hits,
                misses: stats.misses,
            },
            driver_calls: DriverCalls {
                reserve: stats.reserve_calls,
                release: stats.release_calls,
                fences: stats.fences,
                host_waits: stats.host_waits,
                made,
                // Natively each allocation and each free is a call.
                avoided: stats
                    .allocations
                    .total
                    .saturating_add(frees)
                    .saturating_sub(made),
            },
            out_of_memory: OutOfMemory {
                by_limit: stats.refused_by_limit,
                by_driver: stats.refused_by_driver,
            },
            retries: stats.retries,
            wait_seconds,
            scrubbed_bytes: stats.scrubbed_bytes,
            preallocated_bytes: stats.preallocated_bytes,
            given_back: GivenBack {
                by_threshold_bytes: stats.threshold_released_bytes,
                idle_bytes: stats.idle_released_bytes,
            },
        }
    }

    pub(super) fn add(&mut self, other: &Figures) {
        self.requested_bytes.add(&other.requested_bytes);
        self.allocated_bytes.add(&other.allocated_bytes);
        self.active_bytes.add(&other.active_bytes);
        self.reserved_bytes.add(&other.reserved_bytes);
        self.cached_bytes.add(&other.cached_bytes);
        self.allocations.add(&other.allocations);
        self.segments.add(&other.segments);
        self.requests.hits += other.requests.hits;
        self.requests.misses += other.requests.misses;
        let (calls, more) = (&mut self.driver_calls, &other.driver_calls);
        calls.reserve += more.reserve;
        calls.release += more.release;
        calls.fences += more.fences;
        calls.host_waits += more.host_waits;
        calls.made += more.made;
        calls.avoided += more.avoided;
        self.out_of_memory.by_limit += other.out_of_memory.by_limit;
        self.out_of_memory.by_driver += other.out_of_memory.by_driver;
        self.retries += other.retries;
        self.wait_seconds += other.wait_seconds;
        self.scrubbed_bytes += other.scrubbed_bytes;
        self.preallocated_bytes += other.preallocated_bytes;
        self.given_back.by_threshold_bytes += other.given_back.by_threshold_bytes;
        self.given_back.idle_bytes += other.given_back.idle_bytes;
    }
}

/// Reserved and not allocated. The two can be of slightly different moments.
pub(super) fn cached_bytes(stats: &PoolStats) -> u64 {
    stats
        .reserved_bytes
        .current
        .saturating_sub(stats.allocated_bytes.current)
}

/// The stats of a pool whose context is destroyed: nothing is held any more, all else stays.
pub fn retire_stats(mut stats: PoolStats) -> PoolStats {
    for gauge in gauges(&mut stats) {
        gauge.current = 0;
    }
    stats
}

/// Adds the stats of one pool to another's, so that totals outlive the pools.
pub fn merge_stats(sum: &mut PoolStats, mut other: PoolStats) {
    for (gauge, more) in gauges(sum).into_iter().zip(gauges(&mut other)) {
        gauge.current += more.current;
        gauge.peak += more.peak;
        gauge.total += more.total;
    }
    sum.hits += other.hits;
    sum.misses += other.misses;
    sum.reserve_calls += other.reserve_calls;
    sum.release_calls += other.release_calls;
    sum.fences += other.fences;
    sum.host_waits += other.host_waits;
    sum.scrubbed_bytes += other.scrubbed_bytes;
    sum.refused_by_limit += other.refused_by_limit;
    sum.refused_by_driver += other.refused_by_driver;
    sum.retries += other.retries;
    sum.threshold_released_bytes += other.threshold_released_bytes;
    sum.idle_released_bytes += other.idle_released_bytes;
    sum.preallocated_bytes += other.preallocated_bytes;
}

fn gauges(stats: &mut PoolStats) -> [&mut pool::Gauge; 6] {
    [
        &mut stats.requested_bytes,
        &mut stats.allocated_bytes,
        &mut stats.active_bytes,
        &mut stats.reserved_bytes,
        &mut stats.allocations,
        &mut stats.segments,
    ]
}
