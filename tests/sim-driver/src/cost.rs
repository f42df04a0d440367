//! What calls cost on an H200, for SIMCUDA_LATENCY=h200.
use crate::config;
use std::time::{Duration, Instant};

/// Nanoseconds of host time, from measurements of the real driver.
const NANOSECONDS: &[(&str, u64)] = &[
    ("cuMemAlloc_v2", 40_000),
    ("cuMemFree_v2", 35_000),
    ("cuMemAllocAsync", 320),
    ("cuMemFreeAsync", 310),
    ("cuMemAllocFromPoolAsync", 320),
    ("cuMemCreate", 7_500),
    ("cuMemMap", 600),
    ("cuMemSetAccess", 40_700),
    ("cuMemUnmap", 20_300),
    ("cuMemRelease", 9_000),
    ("cuMemHostAlloc", 1_400),
    ("cuMemAllocHost_v2", 1_400),
    ("cuMemFreeHost", 1_200),
    ("cuCtxRecordEvent", 164),
    ("cuCtxWaitEvent", 138),
    ("cuEventQuery", 163),
    ("cuEventRecord", 153),
    ("cuStreamWaitEvent", 115),
    ("cuCtxSynchronize", 321),
    ("cuPointerGetAttribute", 35),
    ("cuMemGetAddressRange_v2", 57),
    ("cuMemGetInfo_v2", 3_900),
    ("cuStreamIsCapturing", 25),
    ("cuMemcpyDtoH_v2", 8_300),
    ("cuMemcpyHtoDAsync_v2", 2_400),
    ("cuMemsetD8Async", 1_100),
    ("cuLaunchKernel", 2_500),
];

/// Waits until the call has cost what it costs.
pub fn charge(name: &str, since: Instant) {
    if !config::get().h200_costs {
        return;
    }
    let name = name.trim_end_matches("_ptsz").trim_end_matches("_ptds");
    if let Some((_, ns)) = NANOSECONDS.iter().find(|(n, _)| *n == name) {
        spin(since, Duration::from_nanos(*ns));
    }
}

/// What is added for the bytes that an allocation or a free touches.
pub fn charge_bytes(bytes: u64, freed: bool) {
    if config::get().h200_costs && bytes > 2 << 20 {
        // 4 GiB: 315 us more to get, 1,750 us more to give back.
        let ns = if freed { bytes / 2_450 } else { bytes / 13_600 };
        spin(Instant::now(), Duration::from_nanos(ns));
    }
}

/// What pinning adds, and unpinning: 64 MiB cost 22.9 and 5.7 ms.
pub fn charge_pinned(bytes: u64, freed: bool) {
    if config::get().h200_costs && bytes > 1 << 20 {
        let ns = bytes * if freed { 85 } else { 341 } / 1000;
        spin(Instant::now(), Duration::from_nanos(ns));
    }
}

fn spin(since: Instant, cost: Duration) {
    while since.elapsed() < cost {
        std::hint::spin_loop();
    }
}
