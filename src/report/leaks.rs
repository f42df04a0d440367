//! Live allocations by call site, and how each grew.

use rustc_hash::FxHashMap;

use super::{Growth, Leaks, ReportInput, SiteFigures};
use crate::config::Stacks;
use crate::ledger::{Group, Kind, SiteId, SiteSum, SumsByGroup, Tag};
use crate::pool::BlockState;

/// So many entries are listed, largest first.
const ENTRY_LIMIT: usize = 4096;

/// What earlier reports had, for growth.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// `None` before the first report.
    last: Option<FxHashMap<Group, Entry>>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    count: u64,
    bytes: u64,
    first_bytes: u64,
    reports_growing: u64,
}

/// Live allocations of all kinds: the pools' blocks and the ledger's table.
pub(super) fn live_sums(input: &ReportInput) -> SumsByGroup {
    let mut sums = input.ledger.live.clone();
    for pool in &input.pools {
        // Sites fit a small map of their own, which is cheaper per block than the whole key.
        let mut by_site: FxHashMap<SiteId, SiteSum> = FxHashMap::default();
        for block in pool
            .snapshot
            .segments
            .iter()
            .flat_map(|segment| &segment.blocks)
        {
            if block.state == BlockState::Allocated {
                let tag = Tag(block.tag);
                by_site
                    .entry(tag.site())
                    .or_default()
                    .add(block.requested_bytes, tag);
            }
        }
        for (site, sum) in by_site {
            let group = Group {
                context: pool.context,
                device: pool.device,
                kind: Kind::Pooled,
                site,
            };
            sums.entry(group).or_default().merge(&sum);
        }
    }
    sums
}

/// Makes the section from sums. `exact` is what count and bytes are known to be; `seen` is absent for memory that can
/// no longer grow.
pub(super) fn leaks(
    input: &ReportInput,
    mut sums: SumsByGroup,
    exact: (u64, u64),
    seen: Option<&mut Seen>,
) -> Leaks {
    if input.ledger.sampling.stacks == Stacks::Sampled {
        // The sampled ones stand for those whose stack was not taken.
        for (_, sum) in sums
            .iter_mut()
            .filter(|(group, _)| group.site == SiteId::NONE)
        {
            sum.estimated_count = 0;
            sum.estimated_bytes = 0;
        }
    }
    let growth = seen.map(|seen| seen.advance(&sums)).unwrap_or_default();
    let mut groups: Vec<(Group, SiteSum)> = sums.into_iter().collect();
    // Largest first, then by group: the order never depends on a hash.
    groups.sort_unstable_by_key(|(group, sum)| {
        (u64::MAX - sum.estimated_bytes, u64::MAX - sum.bytes, *group)
    });
    let rest = groups.split_off(groups.len().min(ENTRY_LIMIT));
    let site_figures = |(group, sum): &(Group, SiteSum)| SiteFigures {
        site: group.site.0,
        context: group.context,
        device: group.device,
        kind: group.kind.name().to_owned(),
        count: sum.count,
        bytes: sum.bytes,
        estimated_count: sum.estimated_count,
        estimated_bytes: sum.estimated_bytes,
        oldest_age_seconds: input.now_ms.saturating_sub(sum.oldest_ms) as f64 / 1e3,
        growth: growth.get(group).cloned(),
    };
    let (count, bytes) = exact;
    Leaks {
        count,
        bytes,
        sites: groups.iter().map(site_figures).collect(),
        omitted_entries: rest.len() as u64,
        omitted_count: rest.iter().map(|(_, sum)| sum.count).sum(),
        omitted_bytes: rest.iter().map(|(_, sum)| sum.bytes).sum(),
    }
}

/// Count and bytes of all sums together.
pub(super) fn totals(sums: &SumsByGroup) -> (u64, u64) {
    sums.values().fold((0, 0), |(count, bytes), sum| {
        (
            sum.count.saturating_add(count),
            sum.bytes.saturating_add(bytes),
        )
    })
}

impl Seen {
    /// Compares with the last report and takes this one's place in it. Empty for the first report.
    fn advance(&mut self, sums: &SumsByGroup) -> FxHashMap<Group, Growth> {
        let last = self.last.take();
        let mut growth = FxHashMap::default();
        let mut next = FxHashMap::default();
        for (group, sum) in sums {
            let known = last.as_ref().map(|last| last.get(group).copied());
            let before = known.flatten();
            let Entry {
                count,
                bytes,
                first_bytes,
                reports_growing,
            } = before.unwrap_or_default();
            let is_growing = last.is_some() && sum.estimated_bytes > bytes;
            // What appears after the first report grew from nothing.
            let is_first = last.is_none();
            let entry = Entry {
                count: sum.estimated_count,
                bytes: sum.estimated_bytes,
                first_bytes: if is_first {
                    sum.estimated_bytes
                } else {
                    first_bytes
                },
                reports_growing: if is_growing { reports_growing + 1 } else { 0 },
            };
            next.insert(*group, entry);
            if !is_first {
                let change = Growth {
                    count: difference(entry.count, count),
                    bytes: difference(entry.bytes, bytes),
                    bytes_since_first: difference(entry.bytes, entry.first_bytes),
                    reports_growing: entry.reports_growing,
                };
                growth.insert(*group, change);
            }
        }
        self.last = Some(next);
        growth
    }
}

fn difference(now: u64, before: u64) -> i64 {
    i64::try_from(i128::from(now) - i128::from(before)).unwrap_or(i64::MAX)
}
