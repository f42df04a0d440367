//! Where the memory comes from that a site lacks.

use super::super::facade::Pool;
use super::super::growth::share;
use super::super::ladder::Ladder;
use super::super::plan::Plan;
use super::super::size::{MIB, SEGMENT_GRANULE_BYTES};
use super::super::state::State;
use super::super::{Range, SegmentKind};
use super::site::{Site, Start};
use super::sources::Source;

/// A new handle for the large pool has at least this size, as far as slack and room allow.
const ROOMY_BYTES: u64 = 64 * MIB;

/// How the missing memory of a site is got.
#[derive(Debug)]
pub(super) struct Supply {
    /// What is mapped where, in the order of addresses; with moved handles the index in `sources`.
    pub pieces: Vec<(Range, Option<usize>)>,
    pub sources: Vec<Source>,
    pub new_bytes: u64,
}

impl Pool {
    /// The site to build at, and what is mapped there. `None`: the ranges are full.
    ///
    /// The site where least is missing may hold the handles that could fill it. Then one that begins in a hole, so that the free
    /// block below it can be moved there, may take less from the driver.
    pub(super) fn site_and_supply(
        &self,
        state: &State,
        plan: &Plan,
        ladder: &Ladder,
    ) -> Option<(Site, Supply)> {
        let (kind, size_bytes) = (plan.kind, plan.size_bytes);
        let room_bytes = if ladder.mapped.wide {
            size_bytes + state.largest_handle_bytes()
        } else {
            0
        };
        let site = state.best_site(kind, size_bytes, room_bytes, Start::Beside)?;
        let supply = self.supply(state, plan, &site, ladder);
        let may_move =
            ladder.mapped.moves_first || supply.new_bytes > self.slack_left_bytes(state, plan);
        if supply.new_bytes > 0 && may_move {
            if let Some(other) = state.best_site(kind, size_bytes, room_bytes, Start::InHole) {
                let others = self.supply(state, plan, &other, ladder);
                if others.new_bytes < supply.new_bytes {
                    return Some((other, others));
                }
            }
        }
        Some((site, supply))
    }

    /// Where the missing memory comes from.
    fn supply(&self, state: &State, plan: &Plan, site: &Site, ladder: &Ladder) -> Supply {
        let over = self.over_slack_bytes(state, plan, site.missing_bytes);
        let may_be_new = over == 0 && !ladder.mapped.moves_first;
        let blocks: Vec<u32> = site.parts.iter().map(|part| part.block).collect();
        let mut sources = if may_be_new || ladder.mapped.no_moves {
            Vec::new()
        } else {
            state.sources(&blocks)
        };
        if plan.kind == SegmentKind::Small {
            sources.retain(|source| source.handle.size_bytes <= 2 * SEGMENT_GRANULE_BYTES);
        }
        let mut supply = Supply {
            pieces: Vec::new(),
            sources: Vec::new(),
            new_bytes: 0,
        };
        let (largest_new, most_bytes) = state.largest_new_bytes(state.live_bytes(plan));
        let mut slack_left = if ladder.exact || !may_be_new {
            0
        } else {
            self.slack_left_bytes(state, plan)
        };
        for part in site.parts.iter().filter(|part| part.is_hole) {
            let mut at = part.from;
            while at < part.to {
                let (needed, room) = (part.to - at, part.room_to - at);
                let size_bytes = match best_source(&sources, needed, room) {
                    Some(index) => {
                        let source = sources.swap_remove(index);
                        supply.sources.push(source);
                        let range = Range {
                            address: at,
                            size_bytes: source.handle.size_bytes,
                        };
                        supply.pieces.push((range, Some(supply.sources.len() - 1)));
                        source.handle.size_bytes
                    }
                    None => {
                        let roomy = match plan.kind {
                            SegmentKind::Small => self.settings.small_segment_bytes,
                            _ => ROOMY_BYTES.min(most_bytes),
                        };
                        let roomy = roomy.min(slack_left).min(room) / SEGMENT_GRANULE_BYTES
                            * SEGMENT_GRANULE_BYTES;
                        let size_bytes = needed.min(largest_new).max(roomy);
                        let range = Range {
                            address: at,
                            size_bytes,
                        };
                        supply.pieces.push((range, None));
                        supply.new_bytes += size_bytes;
                        slack_left = slack_left.saturating_sub(size_bytes);
                        size_bytes
                    }
                };
                at += size_bytes;
            }
        }
        supply
    }

    /// By how much `more_bytes` would be past the slack, or past the share of the limit from which on the pool moves
    /// memory rather than take more.
    fn over_slack_bytes(&self, state: &State, plan: &Plan, more_bytes: u64) -> u64 {
        more_bytes.saturating_sub(self.slack_left_bytes(state, plan))
    }

    fn slack_left_bytes(&self, state: &State, plan: &Plan) -> u64 {
        let live_bytes = state.live_bytes(plan);
        let percent = state.thrifty_slack_percent(self.settings.mapped_slack_percent);
        let slack_bytes = share(live_bytes, percent);
        let most = live_bytes + slack_bytes + state.segments.ahead_idle_bytes;
        let left = most.saturating_sub(state.stats.reserved_bytes.current);
        match (self.settings.gc_threshold_percent, self.budget.most_bytes()) {
            (Some(percent), Some(most_bytes)) => {
                left.min(share(most_bytes, percent).saturating_sub(self.budget.used_bytes()))
            }
            _ => left,
        }
    }
}

/// The handle to move for a hole of which `needed` bytes have to be filled and `room` may be: the smallest that does it
/// alone, else the largest.
fn best_source(sources: &[Source], needed: u64, room: u64) -> Option<usize> {
    let fitting = sources
        .iter()
        .enumerate()
        .filter(|(_, source)| source.handle.size_bytes <= room);
    fitting
        .min_by_key(|(_, source)| {
            let size_bytes = source.handle.size_bytes;
            let short = needed.saturating_sub(size_bytes);
            (short, size_bytes, source.past.epoch, source.address)
        })
        .map(|(index, _)| index)
}

impl State {
    fn largest_handle_bytes(&self) -> u64 {
        let handles = self.mapped.handles.values();
        handles.map(|handle| handle.size_bytes).max().unwrap_or(0)
    }

    /// The highest `allocated`, this request included.
    pub(super) fn live_bytes(&self, plan: &Plan) -> u64 {
        let allocated = &self.stats.allocated_bytes;
        allocated.peak.max(allocated.current + plan.size_bytes)
    }
}
