//! From what the shim knows to a report.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use super::figures::cached_bytes;
use super::fragmentation::{fragmentation, Room};
use super::leaks::{leaks, live_sums, totals, Seen};
use super::map::segment_map;
use super::{
    Device, Figures, Frame, Gauge, Hex, KindFigures, Leaks, Module, Pool, PoolInput, Report,
    ReportFacts, ReportInput, Sampling, Site, FORMAT, FORMAT_VERSION,
};
use crate::config::Stacks;
use crate::ledger::{self, Kind, LedgerSnapshot, SiteId};

/// What is kept from one report of a process to the next.
#[derive(Debug, Default)]
pub struct History {
    sequence: u64,
    seen: Seen,
    cached_peak_bytes: FxHashMap<u64, u64>,
}

impl History {
    /// The number that the next report gets: for `%n` in its path.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }
}

/// Makes a report. Takes a fraction of a second for a million blocks, and its result is bounded.
pub fn build(input: ReportInput, history: &mut History) -> Report {
    let live = live_sums(&input);
    let kinds = kind_figures(&input);
    let exact = kinds.iter().fold((0, 0), |(count, bytes), kind| {
        (count + kind.count.current, bytes + kind.bytes.current)
    });
    let sampling = sampling(&input.ledger, &live);
    let leaks_now = leaks(&input, live, exact, Some(&mut history.seen));
    let lost = input.ledger.lost.clone();
    let lost_totals = totals(&lost);
    let lost = leaks(&input, lost, lost_totals, None);
    let sites = sites(&input.ledger, [&leaks_now, &lost]);
    let devices = devices(&input, history);
    let sequence = history.sequence;
    history.sequence += 1;
    Report {
        format: FORMAT.to_owned(),
        format_version: FORMAT_VERSION.to_owned(),
        report: ReportFacts {
            sequence,
            reason: input.reason,
            time_unix_seconds: input.now_unix_seconds,
            uptime_seconds: input.now_ms as f64 / 1e3,
        },
        devices,
        kinds,
        leaks: leaks_now,
        lost_with_context: lost,
        modules: input.ledger.modules.iter().map(module).collect(),
        sites,
        sampling,
        process: input.process,
        settings: input.settings,
        contexts: input.contexts,
        coverage: input.coverage,
    }
}

/// The given devices with their figures; a pool on a device that was not given brings it along.
fn devices(input: &ReportInput, history: &mut History) -> Vec<Device> {
    let mut devices = input.devices.clone();
    for pool in &input.pools {
        if !devices.iter().any(|device| device.ordinal == pool.device) {
            devices.push(Device {
                ordinal: pool.device,
                ..Device::default()
            });
        }
    }
    devices.sort_by_key(|device| device.ordinal);
    for device in &mut devices {
        let pools = || {
            input
                .pools
                .iter()
                .filter(|pool| pool.device == device.ordinal)
        };
        let reserved_bytes: u64 = pools()
            .map(|pool| pool.snapshot.stats.reserved_bytes.current)
            .sum();
        let limit_bytes = device.limit_bytes.unwrap_or(u64::MAX);
        let room = Room {
            driver_free_bytes: device.driver_free_bytes,
            limit_left_bytes: limit_bytes.saturating_sub(reserved_bytes),
        };
        for pool in pools() {
            let figures = pool_figures(pool, history);
            device.figures.add(&figures);
            if !pool.retired {
                device.pools.push(Pool {
                    context: pool.context,
                    figures,
                    fragmentation: fragmentation(&pool.snapshot, room),
                    segments: segment_map(&pool.snapshot.segments),
                });
            }
        }
    }
    devices
}

fn pool_figures(pool: &PoolInput, history: &mut History) -> Figures {
    let stats = &pool.snapshot.stats;
    let peak = history.cached_peak_bytes.entry(pool.context).or_default();
    *peak = cached_bytes(stats).max(*peak);
    Figures::of(stats, pool.wait_seconds, *peak)
}

/// Pooled memory from the pools, all else from the ledger.
fn kind_figures(input: &ReportInput) -> Vec<KindFigures> {
    let mut pooled = KindFigures {
        kind: Kind::Pooled.name().to_owned(),
        ..KindFigures::default()
    };
    for pool in &input.pools {
        pooled
            .count
            .add(&Gauge::from(pool.snapshot.stats.allocations));
        pooled
            .bytes
            .add(&Gauge::from(pool.snapshot.stats.requested_bytes));
    }
    let others = input.ledger.kinds.iter().map(|(kind, counts)| KindFigures {
        kind: kind.name().to_owned(),
        count: counts.count.into(),
        bytes: counts.bytes.into(),
    });
    let all = std::iter::once(pooled).chain(others);
    all.filter(|kind| kind.count.total > 0).collect()
}

/// The call sites that the entries name.
fn sites(ledger: &LedgerSnapshot, sections: [&Leaks; 2]) -> Vec<Site> {
    let entries = sections.into_iter().flat_map(|leaks| &leaks.sites);
    let ids: BTreeSet<u32> = entries.map(|entry| entry.site).collect();
    let frames = |id: u32| {
        ledger
            .sites
            .get(id as usize)
            .into_iter()
            .flat_map(|frames| frames.iter())
    };
    ids.into_iter()
        .map(|id| Site {
            id,
            frames: frames(id).map(frame).collect(),
        })
        .collect()
}

fn frame(frame: &ledger::Frame) -> Frame {
    let module = (frame.module != ledger::Frame::NO_MODULE).then_some(frame.module);
    Frame {
        module,
        offset: Hex(frame.offset),
    }
}

fn module(module: &ledger::Module) -> Module {
    let ledger::Module {
        path,
        build_id,
        base,
    } = module;
    Module {
        path: path.clone(),
        build_id: build_id.clone(),
        base: Hex(*base),
    }
}

fn sampling(ledger: &LedgerSnapshot, live: &ledger::SumsByGroup) -> Sampling {
    let rule = ledger.sampling;
    let (first_count, interval) = match rule.stacks {
        Stacks::Sampled => (rule.first_count, rule.interval),
        Stacks::All => (0, 1),
        Stacks::Off => (0, 0),
    };
    let count = |sampled: bool| {
        let sums = live
            .iter()
            .filter(|(group, _)| (group.site != SiteId::NONE) == sampled);
        sums.map(|(_, sum)| sum.count).sum()
    };
    Sampling {
        stacks: rule.stacks.word().to_owned(),
        rule: match rule.stacks {
            Stacks::Off => "no call stack was taken".to_owned(),
            Stacks::All => "the call stack of every allocation was taken".to_owned(),
            Stacks::Sampled => std::format!(
                "the call stacks of the first {first_count} allocations of the process were taken (weight 1); after that, \
                 on each thread, of one at random in every {interval} allocations (weight {interval}); estimates are sums \
                 of weights and unbiased; totals do not depend on sampling"
            ),
        },
        first_count,
        interval,
        live_sampled_count: count(true),
        live_unsampled_count: count(false),
    }
}
