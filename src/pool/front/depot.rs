//! Between the lanes: what one lane has no room for, until another has nothing of that size. So blocks that one thread frees and
//! another asks for travel by the crowd, under one short lock, past the pool's.
//!
//! Hints only, as in a lane: whoever takes one out may find that its block is back in the tables.

use super::bin::Crowd;
use super::lane::{bin_number, BINS};
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{Mutex, MutexGuard};
use std::sync::PoisonError;

/// Most crowds of a bin.
const SHELF: usize = if cfg!(loom) { 1 } else { 16 };

/// See the module.
#[derive(Debug)]
#[repr(align(128))]
pub struct Depot {
    shelves: Mutex<Vec<Vec<Crowd>>>,
    /// How many crowds lie on each shelf, for whoever looks before it takes the lock.
    counts: [AtomicU32; BINS],
}

impl Depot {
    pub fn new() -> Self {
        Depot {
            shelves: Mutex::new(Vec::new()),
            counts: std::array::from_fn(|_| AtomicU32::new(0)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Vec<Crowd>>> {
        self.shelves.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there may be a crowd of this size.
    #[inline]
    pub fn may_have(&self, size_bytes: u64) -> bool {
        self.counts[bin_number(size_bytes)].load(Ordering::Relaxed) > 0
    }

    /// Whether [`Depot::put`] would keep a crowd of this size.
    pub fn has_room(&self, size_bytes: u64) -> bool {
        let count = self.counts[bin_number(size_bytes)].load(Ordering::Relaxed);
        (count as usize) < SHELF
    }

    /// Keeps a crowd. `Some`: there is no room for it.
    pub fn put(&self, crowd: Crowd) -> Option<Crowd> {
        let bin = bin_number(crowd.size_bytes);
        let count = &self.counts[bin];
        if count.load(Ordering::Relaxed) as usize >= SHELF {
            return Some(crowd);
        }
        let mut shelves = self.lock();
        if shelves.is_empty() {
            shelves.resize_with(BINS, Vec::new);
        }
        let shelf = &mut shelves[bin];
        if shelf.len() >= SHELF {
            return Some(crowd);
        }
        shelf.push(crowd);
        count.store(shelf.len() as u32, Ordering::Relaxed);
        None
    }

    /// The crowd of this size that came last.
    pub fn take(&self, size_bytes: u64) -> Option<Crowd> {
        if !self.may_have(size_bytes) {
            return None;
        }
        let bin = bin_number(size_bytes);
        let count = &self.counts[bin];
        let mut shelves = self.lock();
        let shelf = shelves.get_mut(bin)?;
        let at = shelf
            .iter()
            .rposition(|crowd| crowd.size_bytes == size_bytes)?;
        let crowd = shelf.remove(at);
        count.store(shelf.len() as u32, Ordering::Relaxed);
        Some(crowd)
    }

    /// Everything in front went back to the tables.
    pub fn clear(&self) {
        let mut shelves = self.lock();
        shelves.iter_mut().for_each(Vec::clear);
        for count in &self.counts {
            count.store(0, Ordering::Relaxed);
        }
    }

    /// Bytes of host memory beside itself.
    pub fn host_bytes(&self) -> usize {
        let shelves = self.lock();
        let crowds: usize = shelves.iter().map(Vec::capacity).sum();
        shelves.capacity() * size_of::<Vec<Crowd>>() + crowds * size_of::<Crowd>()
    }
}

#[cfg(test)]
mod tests {
    use super::super::bin::Hint;
    use super::super::lane::Lane;
    use super::*;

    fn crowd_of(size_bytes: u64) -> Crowd {
        let lane = Lane::new();
        assert!(lane.crowd_in(size_bytes, Hint::new(1, 1)).is_none());
        while lane.keep(size_bytes, Hint::new(1, 2)) {}
        lane.crowd_in(size_bytes, Hint::new(1, 3)).expect("full")
    }

    #[test]
    fn a_crowd_comes_back_to_whoever_asks_for_its_size() {
        let depot = Depot::new();
        assert!(depot.take(512).is_none());
        let hints = crowd_of(512).hints().to_vec();
        assert!(depot.put(crowd_of(512)).is_none());
        assert!(depot.take(1024).is_none());
        assert_eq!(depot.take(512).expect("kept").hints(), hints);
        assert!(depot.take(512).is_none());
    }

    #[test]
    fn it_keeps_so_many_until_it_is_cleared() {
        let depot = Depot::new();
        for _ in 0..SHELF {
            assert!(depot.has_room(512) && depot.put(crowd_of(512)).is_none());
        }
        assert!(!depot.has_room(512) && depot.has_room(1024));
        assert!(depot.put(crowd_of(512)).is_some(), "no room");
        depot.clear();
        assert!(depot.take(512).is_none());
        assert!(depot.put(crowd_of(512)).is_none());
    }
}
