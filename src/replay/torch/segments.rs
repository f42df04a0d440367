//! The allocator with its defaults: one `cudaMalloc` a segment.

use std::collections::{BTreeMap, HashMap};

use super::blocks::{Block, Blocks, Id, State};
use super::{rounded, segment_bytes, GRANULE_BYTES, SMALL_LIMIT_BYTES};
use crate::replay::{Driver, Figures, Full, Policy, Request};

/// Orders free blocks: pool, stream, size, address.
type Key = (bool, u64, u64, u64);

/// The default allocator.
#[derive(Debug)]
pub(in crate::replay) struct Torch {
    driver: Driver,
    blocks: Blocks,
    free: BTreeMap<Key, Id>,
    live: HashMap<u64, Id>,
}

fn key(block: &Block) -> Key {
    (block.small, block.stream, block.size, block.address)
}

impl Torch {
    pub fn new(driver: Driver) -> Torch {
        Torch {
            driver,
            blocks: Blocks::default(),
            free: BTreeMap::new(),
            live: HashMap::new(),
        }
    }

    /// The smallest free block that fits.
    fn take_free(&mut self, small: bool, stream: u64, size: u64) -> Option<Id> {
        let range = (small, stream, size, 0)..=(small, stream, u64::MAX, u64::MAX);
        let (key, id) = self.free.range(range).next().map(|(key, id)| (*key, *id))?;
        self.free.remove(&key);
        Some(id)
    }

    fn grow(&mut self, small: bool, stream: u64, size: u64) -> Result<Id, Full> {
        let bytes = segment_bytes(size);
        let address = self.driver.malloc(bytes).or_else(|Full| {
            self.release_cached();
            self.driver.malloc(bytes)
        })?;
        let state = State::Free;
        Ok(self.blocks.add(Block {
            address,
            size: bytes,
            stream,
            small,
            state,
            previous: None,
            next: None,
        }))
    }

    /// Gives every segment that is free as a whole back to the driver.
    fn release_cached(&mut self) {
        let whole: Vec<(Key, Id)> = self.whole_segments().collect();
        for (key, id) in whole {
            self.free.remove(&key);
            self.driver.free(self.blocks.get(id).size);
            self.blocks.remove(id);
        }
    }

    fn whole_segments(&self) -> impl Iterator<Item = (Key, Id)> + '_ {
        let alone = |id: &Id| {
            self.blocks.get(*id).previous.is_none() && self.blocks.get(*id).next.is_none()
        };
        self.free
            .iter()
            .filter(move |(_, id)| alone(id))
            .map(|(key, id)| (*key, *id))
    }
}

impl Policy for Torch {
    fn allocate(&mut self, request: Request) -> Result<(), Full> {
        let size = rounded(request.size_bytes).ok_or(Full)?;
        let small = size <= SMALL_LIMIT_BYTES;
        let id = match self.take_free(small, request.stream, size) {
            Some(id) => id,
            None => self.grow(small, request.stream, size)?,
        };
        let rest = self.blocks.get(id).size - size;
        if (small && rest >= GRANULE_BYTES) || rest > SMALL_LIMIT_BYTES {
            let rest = self.blocks.split(id, size);
            self.free.insert(key(self.blocks.get(rest)), rest);
        }
        self.blocks.get_mut(id).state = State::Allocated;
        self.live.insert(request.id, id);
        Ok(())
    }

    fn free(&mut self, id: u64) {
        let Some(mut id) = self.live.remove(&id) else {
            return;
        };
        self.blocks.get_mut(id).state = State::Free;
        if let Some(next) = self.blocks.next_in(id, State::Free) {
            self.free.remove(&key(self.blocks.get(next)));
            self.blocks.join_next(id);
        }
        if let Some(previous) = self.blocks.previous_in(id, State::Free) {
            self.free.remove(&key(self.blocks.get(previous)));
            self.blocks.join_next(previous);
            id = previous;
        }
        self.free.insert(key(self.blocks.get(id)), id);
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
        self.whole_segments().map(|(key, _)| key.2).sum()
    }

    fn driver(&self) -> Figures {
        self.driver.figures
    }
}
