//! The allocator with `expandable_segments:True`: one reserved address range for each pool and stream, mapped in
//! handles of 2 MiB (small pool) or 20 MiB (large pool) where blocks need it.

use std::collections::{BTreeMap, HashMap};

use super::blocks::{Block, Blocks, Id, State};
use super::{rounded, GRANULE_BYTES, LARGE_SEGMENT_BYTES, SMALL_LIMIT_BYTES, SMALL_SEGMENT_BYTES};
use crate::replay::{Driver, Figures, Full, Policy, Request};

/// Address space of one range: somewhat more than any device has memory.
const RANGE_BYTES: u64 = LARGE_SEGMENT_BYTES << 16;

/// Orders free blocks: pool, stream, size, address.
type FreeKey = (bool, u64, u64, u64);
/// Orders unmapped blocks: pool, stream, address.
type UnmappedKey = (bool, u64, u64);

/// The allocator with expandable segments.
#[derive(Debug)]
pub(in crate::replay) struct Expandable {
    driver: Driver,
    blocks: Blocks,
    free: BTreeMap<FreeKey, Id>,
    unmapped: BTreeMap<UnmappedKey, Id>,
    live: HashMap<u64, Id>,
}

fn handle_bytes(small: bool) -> u64 {
    if small {
        SMALL_SEGMENT_BYTES
    } else {
        LARGE_SEGMENT_BYTES
    }
}

impl Expandable {
    pub fn new(driver: Driver) -> Expandable {
        Expandable {
            driver,
            blocks: Blocks::default(),
            free: BTreeMap::new(),
            unmapped: BTreeMap::new(),
            live: HashMap::new(),
        }
    }

    /// Files a block under what it is.
    fn file(&mut self, id: Id) {
        let b = self.blocks.get(id);
        match b.state {
            State::Free => drop(self.free.insert((b.small, b.stream, b.size, b.address), id)),
            State::Unmapped => drop(self.unmapped.insert((b.small, b.stream, b.address), id)),
            State::Allocated => {}
        }
    }

    fn unfile(&mut self, id: Id) {
        let b = self.blocks.get(id);
        match b.state {
            State::Free => drop(self.free.remove(&(b.small, b.stream, b.size, b.address))),
            State::Unmapped => drop(self.unmapped.remove(&(b.small, b.stream, b.address))),
            State::Allocated => {}
        }
    }

    /// The best free block, already taken out of the list. A block that could grow (unmapped space follows) counts
    /// with the size it could grow to, so the space at the end of the range is spared.
    fn take_free(&mut self, small: bool, stream: u64, size: u64) -> Option<Id> {
        let range = (small, stream, size, 0)..=(small, stream, u64::MAX, u64::MAX);
        let mut fitting = self.free.range(range).map(|(_, id)| *id);
        let mut best = fitting.next()?;
        for id in fitting {
            if self.blocks.next_in(best, State::Unmapped).is_none()
                || self.reach(id) >= self.reach(best)
            {
                break;
            }
            best = id;
        }
        self.unfile(best);
        Some(best)
    }

    /// Size of a block together with unmapped space right after it.
    fn reach(&self, id: Id) -> u64 {
        let after = self
            .blocks
            .next_in(id, State::Unmapped)
            .map_or(0, |next| self.blocks.get(next).size);
        self.blocks.get(id).size + after
    }

    /// Maps memory so that a free block of at least `size` exists, and takes it out of the list.
    fn grow(&mut self, small: bool, stream: u64, size: u64) -> Result<Id, Full> {
        let mut candidate = self.room(small, stream, size)?;
        if self.blocks.get(candidate).state == State::Unmapped {
            candidate = self.map(candidate, size)?;
        }
        while self.blocks.get(candidate).size < size {
            let missing = size - self.blocks.get(candidate).size;
            let next = self
                .blocks
                .next_in(candidate, State::Unmapped)
                .ok_or(Full)?;
            candidate = self.map(next, missing)?;
        }
        self.unfile(candidate);
        Ok(candidate)
    }

    /// The lowest run of free and unmapped blocks with room for `size`, in a new range if there is none.
    fn room(&mut self, small: bool, stream: u64, size: u64) -> Result<Id, Full> {
        if size > RANGE_BYTES {
            return Err(Full);
        }
        let all = (small, stream, 0)..=(small, stream, u64::MAX);
        for id in self.unmapped.range(all).map(|(_, id)| *id) {
            let start = self.blocks.previous_in(id, State::Free).unwrap_or(id);
            let (mut bytes, mut at) = (0, Some(start));
            while let Some(id) = at.filter(|id| self.blocks.get(*id).state != State::Allocated) {
                bytes += self.blocks.get(id).size;
                if bytes >= size {
                    return Ok(start);
                }
                at = self.blocks.get(id).next;
            }
        }
        let address = self
            .driver
            .addresses(RANGE_BYTES + LARGE_SEGMENT_BYTES)
            .next_multiple_of(LARGE_SEGMENT_BYTES);
        let state = State::Unmapped;
        let id = self.blocks.add(Block {
            address,
            size: RANGE_BYTES,
            stream,
            small,
            state,
            previous: None,
            next: None,
        });
        self.file(id);
        Ok(id)
    }

    /// Puts memory behind the first handles of an unmapped block, up to `bytes` of it, and joins it with free
    /// neighbours. Returns the free block that came of it.
    fn map(&mut self, id: Id, bytes: u64) -> Result<Id, Full> {
        let block = *self.blocks.get(id);
        let handle = handle_bytes(block.small);
        let count = bytes.min(block.size).div_ceil(handle);
        self.driver.map(count, handle).or_else(|Full| {
            self.unmap_cached(id);
            self.driver.map(count, handle)
        })?;
        self.unfile(id);
        if count * handle < block.size {
            let rest = self.blocks.split(id, count * handle);
            self.file(rest);
        }
        self.blocks.get_mut(id).state = State::Free;
        Ok(self.settle(id))
    }

    /// Joins a block that is in no list with its neighbours of the same state, and files the result.
    fn settle(&mut self, mut id: Id) -> Id {
        let state = self.blocks.get(id).state;
        if let Some(next) = self.blocks.next_in(id, state) {
            self.unfile(next);
            self.blocks.join_next(id);
        }
        if let Some(previous) = self.blocks.previous_in(id, state) {
            self.unfile(previous);
            self.blocks.join_next(previous);
            id = previous;
        }
        self.file(id);
        id
    }

    /// Unmaps the whole handles in free blocks, except beside `keep`, which is about to be mapped.
    fn unmap_cached(&mut self, keep: Id) {
        let beside = self.blocks.get(keep).previous;
        let ids: Vec<Id> = self
            .free
            .values()
            .copied()
            .filter(|id| Some(*id) != beside)
            .collect();
        for id in ids {
            let Some((start, count)) = self.whole_handles(id) else {
                continue;
            };
            let handle = handle_bytes(self.blocks.get(id).small);
            self.driver.unmap(count, handle);
            self.unfile(id);
            let before = start - self.blocks.get(id).address;
            let mut middle = id;
            if before > 0 {
                middle = self.blocks.split(id, before);
                self.file(id);
            }
            if self.blocks.get(middle).size > count * handle {
                let rest = self.blocks.split(middle, count * handle);
                self.file(rest);
            }
            self.blocks.get_mut(middle).state = State::Unmapped;
            self.settle(middle);
        }
    }

    /// Start and number of the handles that lie in a block as a whole. Ranges start at a multiple of any handle.
    fn whole_handles(&self, id: Id) -> Option<(u64, u64)> {
        let block = self.blocks.get(id);
        let handle = handle_bytes(block.small);
        let start = block.address.next_multiple_of(handle);
        let count = (block.address + block.size).saturating_sub(start) / handle;
        (count > 0).then_some((start, count))
    }
}

impl Policy for Expandable {
    fn allocate(&mut self, request: Request) -> Result<(), Full> {
        let size = rounded(request.size_bytes).ok_or(Full)?;
        let small = size <= SMALL_LIMIT_BYTES;
        let id = match self.take_free(small, request.stream, size) {
            Some(id) => id,
            None => self.grow(small, request.stream, size)?,
        };
        if self.blocks.get(id).size - size >= GRANULE_BYTES {
            let rest = self.blocks.split(id, size);
            self.file(rest);
        }
        self.blocks.get_mut(id).state = State::Allocated;
        self.live.insert(request.id, id);
        Ok(())
    }

    fn free(&mut self, id: u64) {
        let Some(id) = self.live.remove(&id) else {
            return;
        };
        self.blocks.get_mut(id).state = State::Free;
        self.settle(id);
    }

    fn largest_cached_bytes(&self) -> u64 {
        self.free
            .keys()
            .filter(|key| key.1 == 0)
            .map(|key| key.2)
            .max()
            .unwrap_or(0)
    }

    fn releasable_bytes(&self) -> u64 {
        let whole = self
            .free
            .values()
            .filter_map(|id| Some((*id, self.whole_handles(*id)?.1)));
        whole
            .map(|(id, count)| count * handle_bytes(self.blocks.get(id).small))
            .sum()
    }

    fn driver(&self) -> Figures {
        self.driver.figures
    }
}
