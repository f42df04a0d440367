//! Handles that are free as a whole: what can be moved, or given back.

use super::super::arena::Past;
use super::super::size::SEGMENT_GRANULE_BYTES;
use super::super::state::State;
use super::{Handle, Quiet};

/// A handle of which every byte is free.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source {
    pub address: u64,
    pub handle: Handle,
    /// The free block it lies in.
    pub block: u32,
    pub past: Past,
}

impl State {
    /// All of them but those in `except`.
    pub(super) fn sources(&self, except: &[u32]) -> Vec<Source> {
        let mut sources = Vec::new();
        self.each_mapped_free(|block, entry, past| {
            if entry.size_bytes() < SEGMENT_GRANULE_BYTES || except.contains(&block) {
                return;
            }
            let end = entry.end();
            for (&address, &handle) in self.mapped.handles.range(entry.address()..end) {
                if address + handle.size_bytes <= end {
                    sources.push(Source {
                        address,
                        handle,
                        block,
                        past,
                    });
                }
            }
        });
        sources
    }

    /// Takes the handles of `sources`, which [`State::sources`] gave, out of their free blocks. Returns the blocks that
    /// they are now, in the order of `sources` sorted by address. `None`, and nothing is taken: work may touch one.
    pub(super) fn take_sources(&mut self, sources: &mut [Source]) -> Option<Vec<(u32, Quiet)>> {
        sources.sort_unstable_by_key(|source| source.address);
        let quiet: Option<Vec<Quiet>> = sources
            .iter()
            .map(|source| self.quiet(source.address, source.handle, source.past))
            .collect();
        let quiet = quiet?;
        let mut taken = Vec::with_capacity(sources.len());
        let mut at = 0;
        while at < sources.len() {
            let block = sources[at].block;
            let past = self.take_whole(block);
            let mut rest = block;
            loop {
                let source = &sources[at];
                if source.address > self.blocks[rest].address() {
                    let upper = self.cut(rest, source.address);
                    self.put(rest, past);
                    rest = upper;
                }
                let entry = &self.blocks[rest];
                let end = source.address + source.handle.size_bytes;
                let has_more = end < entry.end();
                let upper = has_more.then(|| self.cut(rest, end));
                taken.push(rest);
                at += 1;
                let Some(upper) = upper else {
                    break;
                };
                rest = upper;
                if at == sources.len() || sources[at].block != block {
                    self.put(rest, past);
                    break;
                }
            }
        }
        Some(taken.into_iter().zip(quiet).collect())
    }
}
