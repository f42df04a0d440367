//! Free space as a set of disjoint extents; first fit, lowest address.
use std::collections::BTreeMap;

#[derive(Default)]
pub struct Extents {
    free: BTreeMap<u64, u64>,
}

impl Extents {
    pub fn new(start: u64, length: u64) -> Extents {
        Extents {
            free: BTreeMap::from([(start, length)]),
        }
    }

    /// The lowest aligned place of this length.
    pub fn take(&mut self, length: u64, align: u64) -> Option<u64> {
        let (start, size, at) = self.free.iter().find_map(|(&start, &size)| {
            let at = start.checked_next_multiple_of(align)?;
            (at.checked_add(length)? <= start + size).then_some((start, size, at))
        })?;
        self.carve(start, size, at, length);
        Some(at)
    }

    fn carve(&mut self, start: u64, size: u64, at: u64, length: u64) {
        self.free.remove(&start);
        if at > start {
            self.free.insert(start, at - start);
        }
        if at + length < start + size {
            self.free.insert(at + length, start + size - at - length);
        }
    }

    /// Gives a place back, merging it with its neighbours.
    pub fn give(&mut self, at: u64, length: u64) {
        let (mut at, mut length) = (at, length);
        if let Some((&start, &size)) = self.free.range(..at).next_back() {
            if start + size == at {
                self.free.remove(&start);
                (at, length) = (start, length + size);
            }
        }
        if let Some(size) = self.free.remove(&(at + length)) {
            length += size;
        }
        self.free.insert(at, length);
    }

    pub fn is_all(&self, start: u64, length: u64) -> bool {
        self.free.len() == 1 && self.free.get(&start) == Some(&length)
    }
}
