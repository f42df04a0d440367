//! Where a block is built: the run of free blocks and holes that takes least memory to make one block of.

use super::super::arena::{Entry, Use, NONE};
use super::super::size::SEGMENT_GRANULE_BYTES;
use super::super::state::State;
use super::super::SegmentKind;

/// A part of a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    pub block: u32,
    /// A hole: memory is missing. Else a free block, taken as a whole.
    pub is_hole: bool,
    /// What is needed of it.
    pub from: u64,
    pub to: u64,
    /// Up to where a hole may be filled.
    pub room_to: u64,
}

/// Neighbouring free blocks and holes that hold a request together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Site {
    /// In address order.
    pub parts: Vec<Part>,
    /// Bytes of holes in it.
    pub missing_bytes: u64,
}

/// Where a site begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    /// In the free block beside its first hole, if there is one.
    Beside,
    /// In its first hole.
    InHole,
}

impl Start {
    /// Upwards, and downwards.
    fn directions(self) -> &'static [bool] {
        match self {
            Start::Beside => &[true, false],
            Start::InHole => &[true],
        }
    }
}

impl State {
    /// The site of `size_bytes` with least memory missing, in mapped segments of `kind`, whose holes have at least
    /// `room_bytes`. `None`: the ranges are full.
    ///
    /// Each has a hole in it, so each is looked for from its first hole upwards and from its last one downwards. Among
    /// equals the one in the smallest holes wins, so that the large holes stay.
    pub(super) fn best_site(
        &self,
        kind: SegmentKind,
        size_bytes: u64,
        room_bytes: u64,
        start: Start,
    ) -> Option<Site> {
        let mut best: Option<((u64, u64), Site)> = None;
        for &hole in self.mapped.holes.values() {
            if self.segments[self.blocks[hole].segment()].kind != kind {
                continue;
            }
            let hole_bytes = self.blocks[hole].size_bytes();
            if hole_bytes < room_bytes {
                continue;
            }
            for &upwards in start.directions() {
                let Some(site) = self.site_at(hole, size_bytes, upwards, start) else {
                    continue;
                };
                let has_room = |part: &Part| part.room_to - part.from >= room_bytes;
                if room_bytes > 0 && !site.parts.iter().filter(|p| p.is_hole).all(has_room) {
                    continue;
                }
                let key = (site.missing_bytes, hole_bytes);
                if best.as_ref().is_none_or(|(other, _)| key < *other) {
                    best = Some((key, site));
                }
            }
        }
        best.map(|(_, site)| site)
    }

    /// The site whose first hole (`upwards`) or last one is `hole`.
    fn site_at(&self, hole: u32, size_bytes: u64, upwards: bool, start: Start) -> Option<Site> {
        let beside = |entry: &Entry, above: bool| match above {
            true => entry.next(),
            false => entry.previous(),
        };
        let is_free = |block: u32| block != NONE && self.blocks[block].is_free();
        let mut at = beside(&self.blocks[hole], !upwards);
        if start == Start::InHole || !is_free(at) {
            at = hole;
        }
        let mut site = Site {
            parts: Vec::new(),
            missing_bytes: 0,
        };
        let mut bytes = 0;
        while bytes < size_bytes {
            if at == NONE {
                return None;
            }
            let entry = &self.blocks[at];
            let (start, end) = (entry.address(), entry.end());
            let mut part = Part {
                block: at,
                is_hole: false,
                from: start,
                to: end,
                room_to: end,
            };
            match entry.in_use() {
                Use::Free { .. } => {}
                Use::Hole => {
                    let needed = (size_bytes - bytes).next_multiple_of(SEGMENT_GRANULE_BYTES);
                    let needed = needed.min(entry.size_bytes());
                    part.is_hole = true;
                    if upwards {
                        part.to = start + needed;
                    } else {
                        part.from = end - needed;
                    }
                    site.missing_bytes += needed;
                }
                _ => return None,
            }
            bytes += part.to - part.from;
            site.parts.push(part);
            at = beside(entry, upwards);
        }
        if !upwards {
            site.parts.reverse();
        }
        Some(site)
    }
}
