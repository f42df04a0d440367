//! Memory that must really be freed (hazard 16): handles in which everything is free or retired go back to the driver.

use crate::sync::MutexGuard;

use super::super::arena::{Parts, Past, Use, NONE};
use super::super::facade::{Outside, Pool};
use super::super::state::State;
use super::super::{Backing, Pages};
use super::release::give_back;

impl Pool {
    /// Gives back the handles that hold nothing but free and retired memory, at least one byte of the latter. Returns
    /// the bytes given back. Waits for the device if need be.
    pub(in crate::pool) fn release_retired<'a, B: Backing>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        backing: &B,
        pages: &dyn Pages,
    ) -> (Option<MutexGuard<'a, State>>, u64) {
        let mut released_bytes = 0;
        let mut has_waited = false;
        while let Some(address) = state.retired_handle() {
            let past = state.past_of_handle(address);
            let handle = state.mapped.handles[&address];
            let Some(quiet) = state.quiet(address, handle, past) else {
                if has_waited {
                    break;
                }
                has_waited = true;
                match self.wait_now(state, backing) {
                    Outside::Back(back, Ok(())) => state = back,
                    Outside::Back(back, Err(_)) => return (Some(back), released_bytes),
                    Outside::Forgotten(_) => return (None, released_bytes),
                }
                continue;
            };
            let block = state.take_handle(address);
            match self.outside(state, || give_back(pages, &[(quiet, handle)])) {
                Outside::Back(mut back, gone) => {
                    if gone == 0 {
                        // It stays as it is: all of it retired, to be tried again.
                        back.hold_back(block, past, true);
                        return (Some(back), released_bytes);
                    }
                    back.put_hole(block);
                    self.handle_is_gone(&mut back, address, handle);
                    back.settle_active();
                    released_bytes += handle.size_bytes;
                    state = back;
                }
                Outside::Forgotten(_) => return (None, released_bytes),
            }
        }
        (Some(state), released_bytes)
    }
}

impl State {
    /// A handle that can go, with a retired block in it.
    fn retired_handle(&self) -> Option<u64> {
        self.mapped.retired.iter().find_map(|(&address, &block)| {
            let end = address + self.blocks[block].size_bytes();
            let first = self.mapped.handles.range(..=address).next_back()?.0;
            let mut handles = self.mapped.handles.range(*first..end);
            handles.find_map(|(&at, handle)| {
                self.blocks_in(block, at, at + handle.size_bytes)
                    .iter()
                    .all(|&block| self.is_free(block) || self.is_retired(block))
                    .then_some(at)
            })
        })
    }

    /// The blocks that lie in `[from, to)`, of which `near` is one.
    fn blocks_in(&self, near: u32, from: u64, to: u64) -> Vec<u32> {
        let mut at = near;
        while self.blocks[at].address() > from && self.blocks[at].previous() != NONE {
            at = self.blocks[at].previous();
        }
        let mut blocks = Vec::new();
        while at != NONE && self.blocks[at].address() < to {
            let entry = &self.blocks[at];
            if entry.end() > from {
                blocks.push(at);
            }
            at = entry.next();
        }
        blocks
    }

    fn is_free(&self, block: u32) -> bool {
        self.blocks[block].is_free()
    }

    fn is_retired(&self, block: u32) -> bool {
        let address = self.blocks[block].address();
        self.mapped.retired.get(&address) == Some(&block)
    }

    fn near_handle(&self, address: u64) -> Vec<u32> {
        let to = address + self.mapped.handles[&address].size_bytes;
        let retired = self.mapped.retired.range(..to).next_back();
        retired.map_or(Vec::new(), |(_, &near)| self.blocks_in(near, address, to))
    }

    fn past_of_handle(&self, address: u64) -> Past {
        let mut joined = Past::FRESH;
        for block in self.near_handle(address) {
            if let Use::Free { past, .. } | Use::Held { past } = self.blocks[block].in_use() {
                joined = joined.joined_with(past);
            }
        }
        joined
    }

    /// Takes all of a handle, free and retired, as one block.
    fn take_handle(&mut self, address: u64) -> u32 {
        let to = address + self.mapped.handles[&address].size_bytes;
        let mut pieces = Vec::new();
        for mut block in self.near_handle(address) {
            let (past, was_retired) = if self.is_retired(block) {
                (self.take_retired(block), true)
            } else {
                (self.take_whole(block), false)
            };
            let give = |state: &mut State, block: u32| {
                if was_retired {
                    state.hold_back(block, past, true);
                } else {
                    state.put(block, past);
                }
            };
            if self.blocks[block].address() < address {
                let upper = self.cut(block, address);
                give(self, block);
                block = upper;
            }
            let Parts {
                address: at,
                size_bytes,
                ..
            } = self.blocks[block].parts();
            if at + size_bytes > to {
                let rest = self.cut(block, to);
                give(self, rest);
            }
            pieces.push(block);
        }
        let first = pieces[0];
        let segment = self.blocks[first].segment();
        for _ in 1..pieces.len() {
            self.absorb_next(first);
            self.segments.subtract_busy(segment, false);
        }
        first
    }

    fn take_retired(&mut self, block: u32) -> Past {
        let Parts {
            address,
            size_bytes,
            in_use,
            segment,
            ..
        } = self.blocks[block].parts();
        self.mapped.retired.remove(&address);
        self.held_bytes -= size_bytes;
        self.segments.add_busy(segment);
        let past = match in_use {
            Use::Held { past } => past,
            _ => Past::FRESH,
        };
        self.blocks[block].set_use(Use::Hand { past });
        past
    }
}
