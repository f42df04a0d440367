use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::config::{Config, Stacks};
use crate::ledger::{Allocation, Kind, Ledger, LoadedModule, SiteId, Tag, Weight};
use crate::pool::{
    self, BlockSnapshot, BlockState, PoolSnapshot, PoolStats, SegmentKind as PoolSegmentKind,
    SegmentSnapshot,
};
use crate::units::{GIB, KIB, MIB};

const SCHEMA: &str = include_str!("../../docs/report.schema.json");

fn gauge(current: u64, peak: u64, total: u64) -> pool::Gauge {
    pool::Gauge {
        current,
        peak,
        total,
    }
}

fn block(offset_bytes: u64, size_bytes: u64, state: BlockState, tag: u64) -> BlockSnapshot {
    let requested_bytes = if state == BlockState::Allocated {
        size_bytes - size_bytes / 8
    } else {
        0
    };
    BlockSnapshot {
        offset_bytes,
        size_bytes,
        requested_bytes,
        state,
        tag,
    }
}

/// A process with one of everything.
fn input(reason: Reason) -> (Ledger, ReportInput) {
    use BlockState::{Allocated, Free, FreeUnfenced, Held};
    let ledger = Ledger::new(Stacks::Sampled);
    let module = |path: &str, base, build_id: &str| LoadedModule {
        start: base,
        end: base + MIB,
        base,
        path: path.into(),
        build_id: build_id.into(),
    };
    let modules = || {
        vec![
            module("/opt/app/train", 0x400000, "00c0ffee"),
            module("/usr/lib/libx.so.1", 0x7f00_0000_0000, ""),
        ]
    };
    let leak = ledger
        .sites()
        .intern(&[0x401234, 0x401300, 0x7f00_0000_0100], modules);
    let cache = ledger.sites().intern(&[0x402000], modules);
    let tag = |site, log2, ms| Tag::new(site, Weight::from_log2(log2), ms);
    ledger.insert(
        0x5000,
        Allocation {
            kind: Kind::PinnedHost,
            size_bytes: 8 * MIB,
            device: 0,
            context: 1,
            tag: tag(cache, 0, 2_000),
        },
    );
    ledger.lose_context(2, 0, [(1000, tag(leak, 0, 500))]);

    let segments = vec![
        SegmentSnapshot {
            address: 0x7fa0_0000_0000,
            size_bytes: 2 * MIB,
            kind: PoolSegmentKind::Small,
            blocks: vec![
                block(0, 4 * KIB, Allocated, tag(leak, 0, 1_000).0),
                block(4 * KIB, 4 * KIB, Allocated, tag(leak, 6, 9_000).0),
                block(8 * KIB, 512, Allocated, 0),
                block(8 * KIB + 512, 2 * MIB - 8 * KIB - 512, Free, 0),
            ],
        },
        SegmentSnapshot {
            address: 0x7fa0_4000_0000,
            size_bytes: 64 * MIB,
            kind: PoolSegmentKind::Large,
            blocks: vec![
                block(0, 16 * MIB, Allocated, tag(cache, 0, 3_000).0),
                block(16 * MIB, 8 * MIB, FreeUnfenced, 0),
                block(24 * MIB, 8 * MIB, Held, 0),
                block(32 * MIB, 32 * MIB, Free, 0),
            ],
        },
        SegmentSnapshot {
            address: 0x7fa0_8000_0000,
            size_bytes: 128 * MIB,
            kind: PoolSegmentKind::Oversize,
            blocks: vec![block(0, 128 * MIB, Free, 0)],
        },
    ];
    let allocated = 16 * MIB + 8 * KIB + 512;
    let stats = PoolStats {
        requested_bytes: gauge(allocated / 8 * 7, 150 * MIB, GIB),
        allocated_bytes: gauge(allocated, 170 * MIB, GIB + GIB / 8),
        active_bytes: gauge(allocated + 8 * MIB, 180 * MIB, GIB + GIB / 8),
        reserved_bytes: gauge(194 * MIB, 194 * MIB, 258 * MIB),
        allocations: gauge(4, 40, 5_000),
        segments: gauge(3, 4, 5),
        hits: 4_995,
        misses: 5,
        reserve_calls: 5,
        release_calls: 2,
        fences: 31,
        host_waits: 7,
        scrubbed_bytes: 900 * MIB,
        refused_by_limit: 1,
        refused_by_driver: 0,
        retries: 2,
        threshold_released_bytes: 20 * MIB,
        idle_released_bytes: 44 * MIB,
        preallocated_bytes: 64 * MIB,
    };
    let context = |id, label: &str, destroyed| Context {
        backing: "segments".into(),
        id,
        device: 0,
        label: label.into(),
        destroyed,
    };
    let input = ReportInput {
        reason,
        now_unix_seconds: 1_767_225_600.5,
        now_ms: 12_500,
        process: Process {
            pid: 4242,
            parent_pid: 1,
            forked: false,
            program: "/opt/app/train".into(),
            command: vec!["train".into(), "--epochs".into(), "3".into()],
            directory: "/home/user/run".into(),
            host: "node7".into(),
            rank: None,
            start_unix_seconds: 1_767_225_588.0,
            shim_version: "0.1.0".into(),
            driver_version: Some("13.0".into()),
        },
        settings: Config::default().settings(),
        contexts: vec![
            context(1, "primary context of device 0", false),
            context(2, "context 2 of device 0", true),
        ],
        devices: vec![Device {
            ordinal: 0,
            name: "Simulated GPU".into(),
            total_bytes: 80 * GIB,
            limit_bytes: Some(2 * GIB),
            driver_free_bytes: Some(70 * GIB),
            ..Device::default()
        }],
        pools: vec![PoolInput {
            context: 1,
            wait_seconds: 0.25,
            snapshot: PoolSnapshot {
                stats,
                segments,
                largest_free_bytes: 128 * MIB,
            },
            ..PoolInput::default()
        }],
        ledger: ledger.snapshot(),
        coverage: Coverage {
            symbols_seen: 3,
            hooked: vec![SymbolFigures {
                name: "cuMemAlloc_v2".into(),
                lookups: 1,
                calls: 5_000,
            }],
            counted: vec![SymbolFigures {
                name: "cuMemHostAlloc".into(),
                lookups: 1,
                calls: 1,
            }],
            unknown: vec![SymbolFigures {
                name: "cuNewThing".into(),
                lookups: 1,
                calls: 0,
            }],
            routes: vec![Route {
                route: "cuGetProcAddress".into(),
                lookups: 3,
            }],
            free_sync: vec![FreeSyncFacts {
                context: 1,
                mode: "host".into(),
                reason: "8 MiB of pinned host memory are live".into(),
            }],
            notes: vec![],
        },
    };
    (ledger, input)
}

fn text(report: &Report) -> String {
    let mut out = Vec::new();
    to_json(report, &mut out).unwrap();
    out.push(b'\n');
    String::from_utf8(out).unwrap()
}

/// Set `CUSHION_BLESS=1` to write the files that these tests compare with.
fn compare_with_file(path: &str, is: &str) {
    let path = format!("{}/{path}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("CUSHION_BLESS").is_some() {
        std::fs::write(&path, is).unwrap();
    }
    let file = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        file == is,
        "{path} is not what the code makes: if that is meant, run this test with CUSHION_BLESS=1"
    );
}

fn validate(report: &Report) {
    let schema = serde_json::from_str(SCHEMA).unwrap();
    let validator = jsonschema::draft202012::new(&schema).unwrap();
    let value = serde_json::from_str(&text(report)).unwrap();
    let errors: Vec<String> = validator
        .iter_errors(&value)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(errors.is_empty(), "{errors:#?}");
}

#[test]
fn the_schema_is_that_of_the_structs() {
    let settings = schemars::generate::SchemaSettings::draft2020_12().for_serialize();
    let schema = settings.into_generator().into_root_schema_for::<Report>();
    let mut schema = serde_json::to_value(schema).unwrap();
    schema["$id"] = "https://cushion.invalid/report.schema.json".into();
    schema["properties"]["format"]["const"] = FORMAT.into();
    schema["properties"]["format_version"]["pattern"] = format!("^{FORMAT_MAJOR}\\.[0-9]+$").into();
    compare_with_file(
        "docs/report.schema.json",
        &(serde_json::to_string_pretty(&schema).unwrap() + "\n"),
    );
}

#[test]
fn golden_reports_are_made_again_and_valid() {
    let mut history = History::default();
    let (ledger, first) = input(Reason::Periodic);
    let first = build(first, &mut history);
    compare_with_file("tests/golden/periodic.json", &text(&first));

    let (_, mut last) = input(Reason::Exit);
    last.now_ms += 30_000;
    last.now_unix_seconds += 30.0;
    let segment = &mut last.pools[0].snapshot.segments[1];
    let tag = segment.blocks[0].tag;
    segment.blocks[3] = block(32 * MIB, 32 * MIB, BlockState::Allocated, tag);
    let stats = &mut last.pools[0].snapshot.stats;
    stats.allocated_bytes.current += 32 * MIB;
    stats.requested_bytes.current += 28 * MIB;
    stats.allocations.current += 1;
    last.ledger = ledger.snapshot();
    let last = build(last, &mut history);
    compare_with_file("tests/golden/exit.json", &text(&last));
    for report in [&first, &last] {
        validate(report);
        assert_eq!(
            parse(text(report).as_bytes()).unwrap(),
            *report,
            "written and read is the same"
        );
    }

    let cache = last
        .leaks
        .sites
        .iter()
        .find(|entry| entry.site == 3 && entry.kind == "pooled")
        .unwrap();
    let growth = cache.growth.as_ref().unwrap();
    assert_eq!(
        (growth.count, growth.bytes, growth.reports_growing),
        (1, 28 * MIB as i64, 1)
    );
    assert_eq!(first.leaks.sites[0].growth, None);
}

#[test]
fn figures_add_up() {
    let report = build(input(Reason::Exit).1, &mut History::default());
    let device = &report.devices[0];
    let fragmentation = &device.pools[0].fragmentation;
    let free = 2 * MIB - 8 * KIB - 512 + 8 * MIB + 32 * MIB + 128 * MIB;
    assert_eq!(fragmentation.free_bytes, free);
    assert_eq!(fragmentation.releasable_bytes, 128 * MIB);
    assert_eq!(fragmentation.pinned_free_bytes, free - 128 * MIB);
    assert_eq!(fragmentation.held_bytes, 8 * MIB);
    assert_eq!(fragmentation.unfenced_bytes, 8 * MIB);
    assert_eq!(
        fragmentation.external_ratio,
        1.0 - 128.0 * MIB as f64 / free as f64
    );
    assert_eq!(
        fragmentation.largest_request_bytes,
        Some(2 * GIB - 194 * MIB + 128 * MIB)
    );
    assert_eq!(
        fragmentation
            .free_blocks
            .iter()
            .map(|class| class.bytes)
            .sum::<u64>(),
        free
    );
    assert_eq!(device.figures.driver_calls.avoided, 5_000 + 4_996 - 7);

    // Totals are exact; the sites' shares are estimated, and site 0 stands for nothing.
    assert_eq!(report.leaks.count, 5);
    let leak = report
        .leaks
        .sites
        .iter()
        .find(|entry| entry.site == 2)
        .unwrap();
    assert_eq!((leak.count, leak.estimated_count), (2, 65));
    assert_eq!(leak.oldest_age_seconds, 11.5);
    let unsampled = report
        .leaks
        .sites
        .iter()
        .find(|entry| entry.site == 0)
        .unwrap();
    assert_eq!((unsampled.count, unsampled.estimated_count), (1, 0));
    assert_eq!(
        (
            report.lost_with_context.count,
            report.lost_with_context.bytes
        ),
        (1, 1000)
    );
    assert_eq!(report.lost_with_context.sites[0].context, 2);
    assert_eq!(report.sampling.live_unsampled_count, 1);
}

#[test]
fn retired_pools_keep_the_totals() {
    let (_, mut with_retired) = input(Reason::Exit);
    let mut stats = PoolStats::default();
    merge_stats(
        &mut stats,
        retire_stats(with_retired.pools[0].snapshot.stats.clone()),
    );
    let snapshot = PoolSnapshot {
        stats,
        ..PoolSnapshot::default()
    };
    with_retired.pools.push(PoolInput {
        context: u64::MAX,
        retired: true,
        snapshot,
        ..PoolInput::default()
    });
    let report = build(with_retired, &mut History::default());
    let figures = &report.devices[0].figures;
    assert_eq!(report.devices[0].pools.len(), 1);
    assert_eq!(
        figures.allocations,
        Gauge {
            current: 4,
            peak: 80,
            total: 10_000
        }
    );
    assert_eq!(figures.out_of_memory.by_limit, 2);
}

#[test]
fn a_newer_minor_is_read_and_an_unknown_major_refused() {
    let report = build(input(Reason::Exit).1, &mut History::default());
    let mut value: serde_json::Value = serde_json::from_str(&text(&report)).unwrap();
    value["format_version"] = "1.99".into();
    value["brand_new"] = 1.into();
    value["report"]["reason"] = "full_moon".into();
    value.as_object_mut().unwrap().remove("kinds");
    let read = parse(value.to_string().as_bytes()).unwrap();
    assert_eq!(read.report.reason, Reason::Unknown);
    assert!(read.kinds.is_empty());

    for (version, message) in [
        ("2.0", "report format \"2.0\" is not known"),
        ("x", "report format \"x\""),
    ] {
        value["format_version"] = version.into();
        let error = parse(value.to_string().as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with(message), "{error}");
    }
    for (bytes, message) in [
        (&b"[]"[..], "not a cushion report"),
        (b"{}", "not a cushion report"),
        (b"{\"format\":", "not a whole report"),
    ] {
        let error = parse(bytes).unwrap_err().to_string();
        assert!(error.starts_with(message), "{error}");
    }
}

/// `count` blocks of 512 bytes in segments of 2 MiB, every second one live, each from its own site up to 5,000.
fn crowded(count: u64) -> ReportInput {
    let per_segment = 2 * MIB / 512;
    let segment = |at: u64| SegmentSnapshot {
        address: 0x7f00_0000_0000 + at * 2 * MIB,
        size_bytes: 2 * MIB,
        kind: PoolSegmentKind::Small,
        blocks: (0..per_segment)
            .map(|i| {
                let state = if i % 2 == 0 {
                    BlockState::Allocated
                } else {
                    BlockState::Free
                };
                let site = SiteId((2 + (at * per_segment + i) % 5_000) as u32);
                block(i * 512, 512, state, Tag::new(site, Weight::ONE, i).0)
            })
            .collect(),
    };
    let segments: Vec<_> = (0..count / per_segment).map(segment).collect();
    let mut input = input(Reason::Periodic).1;
    input.ledger.sites = vec![Arc::from([]); 6_000];
    input.pools[0].snapshot.segments = segments;
    input
}

#[test]
fn a_million_blocks_make_a_bounded_report_quickly() {
    let input = crowded(1 << 20);
    let start = std::time::Instant::now();
    let report = build(input, &mut History::default());
    let build_time = start.elapsed();
    let text = text(&report);
    println!(
        "build {build_time:?}, with JSON {:?}, {} bytes",
        start.elapsed(),
        text.len()
    );
    let limit_seconds = if cfg!(debug_assertions) { 5.0 } else { 0.5 };
    assert!(start.elapsed().as_secs_f64() < limit_seconds);
    assert!(text.len() < 8 << 20, "{} bytes", text.len());
    let map = &report.devices[0].pools[0].segments;
    assert_eq!(map.block_count, 1 << 20);
    assert_eq!(
        map.list
            .iter()
            .map(|segment| segment.allocation_count)
            .sum::<u64>(),
        1 << 19
    );
    assert!(
        map.list
            .iter()
            .map(|segment| segment.runs.len())
            .sum::<usize>()
            <= 2 * super::map::RUN_LIMIT
    );
    assert_eq!(
        report.leaks.omitted_entries + report.leaks.sites.len() as u64,
        2_501
    );
    validate(&report);
}

fn segments() -> impl Strategy<Value = Vec<SegmentSnapshot>> {
    let state = prop_oneof![
        Just(BlockState::Allocated),
        Just(BlockState::Free),
        Just(BlockState::FreeUnfenced),
        Just(BlockState::Held)
    ];
    let blocks = proptest::collection::vec((1u64..2_000, state), 1..400);
    let segment = |(at, blocks): (usize, Vec<(u64, BlockState)>)| {
        let mut offset_bytes = 0;
        let place = |(granules, state): (u64, BlockState)| {
            let placed = block(offset_bytes, granules * 512, state, 0);
            offset_bytes += placed.size_bytes;
            placed
        };
        let blocks: Vec<_> = blocks.into_iter().map(place).collect();
        let size_bytes = blocks.iter().map(|block| block.size_bytes).sum();
        SegmentSnapshot {
            address: (at as u64) << 40,
            size_bytes,
            kind: PoolSegmentKind::Large,
            blocks,
        }
    };
    proptest::collection::vec(blocks, 1..300)
        .prop_map(move |segments| segments.into_iter().enumerate().map(segment).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn every_map_tiles_its_segment_and_keeps_the_sums(segments in segments()) {
        let map = super::map::segment_map(&segments);
        prop_assert_eq!(map.list.len() as u64 + map.omitted_count, segments.len() as u64);
        for (drawn, segment) in map.list.iter().zip(&segments) {
            let mut at = 0;
            for run in &drawn.runs {
                prop_assert_eq!(run.offset_bytes, at);
                at += run.size_bytes;
                if run.state == RunState::Allocated {
                    prop_assert_eq!(run.allocated_bytes, run.size_bytes);
                }
            }
            prop_assert_eq!(at, segment.size_bytes);
            let sum = |figure: fn(&Run) -> u64| drawn.runs.iter().map(figure).sum::<u64>();
            prop_assert_eq!(sum(|run| run.allocated_bytes), drawn.allocated_bytes);
            prop_assert_eq!(sum(|run| run.block_count), drawn.block_count);
            prop_assert_eq!(drawn.allocated_bytes + drawn.free_bytes + drawn.held_bytes, drawn.size_bytes);
            prop_assert_eq!(drawn.exact, drawn.runs.iter().all(|run| run.state != RunState::Mixed));
        }
    }

    #[test]
    fn no_bytes_upset_the_reader(at in 0usize..20_000, byte: u8, cut in 0usize..20_000) {
        let mut bytes = include_bytes!("../../tests/golden/exit.json").to_vec();
        let length = bytes.len().max(1);
        if let Some(place) = bytes.get_mut(at % length) {
            *place = byte;
        }
        let _ = parse(&bytes);
        let _ = parse(&bytes[..cut % length]);
    }
}
