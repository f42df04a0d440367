//! From the base address of a block in front to its entry, read without a lock.
//!
//! Buckets of one cache line. What does not fit into its bucket does not come to the front. Written only under the pool's
//! lock; a reader that misses what is being written asks the tables, under the lock.

use crate::sync::atomic::{AtomicU64, Ordering};

use super::entry::ENTRIES_MAX;
use crate::pool::hash::spread;

const WAYS: usize = 8;
/// At most half full.
const BUCKETS: usize = ENTRIES_MAX as usize * 2 / WAYS;
const BUCKET_BITS: u32 = BUCKETS.trailing_zeros();
/// Blocks start at multiples of this many bytes, as a power of two.
const GRANULE_BITS: u32 = 9;
const ENTRY_BITS: u32 = ENTRIES_MAX.trailing_zeros();

#[derive(Debug)]
#[repr(align(64))]
struct Bucket([AtomicU64; WAYS]);

#[derive(Debug)]
pub struct Index {
    buckets: Box<[Bucket; BUCKETS]>,
}

/// An address and an entry in one word; never 0, which is a vacant place.
#[inline]
fn word(address: u64, entry: u32) -> u64 {
    (address >> GRANULE_BITS) << ENTRY_BITS | u64::from(entry)
}

impl Index {
    pub fn new() -> Self {
        let bucket = || Bucket(std::array::from_fn(|_| AtomicU64::new(0)));
        let buckets: Box<[Bucket]> = (0..BUCKETS).map(|_| bucket()).collect();
        match buckets.try_into() {
            Ok(buckets) => Index { buckets },
            Err(_) => unreachable!("as many as there are"),
        }
    }

    /// The places where an address may be.
    #[inline]
    fn places(&self, address: u64) -> &[AtomicU64; WAYS] {
        let hash = spread(address >> GRANULE_BITS);
        &self.buckets[(hash >> (u64::BITS - BUCKET_BITS)) as usize].0
    }

    /// The entry of the block whose base is `address`.
    #[inline]
    pub fn find(&self, address: u64) -> Option<u32> {
        if !address.is_multiple_of(1 << GRANULE_BITS) || address == 0 {
            return None;
        }
        let wanted = word(address, 0);
        self.places(address).iter().find_map(|place| {
            let entry = place.load(Ordering::Acquire) ^ wanted;
            (entry < u64::from(ENTRIES_MAX)).then_some(entry as u32)
        })
    }

    /// The place of an address that holds `word`.
    #[inline]
    fn holding(&self, address: u64, word: u64) -> Option<&AtomicU64> {
        let mut places = self.places(address).iter();
        places.find(|place| place.load(Ordering::Relaxed) == word)
    }

    /// Adds a block that is not in the index; `false` if there is no room.
    pub fn insert(&self, address: u64, entry: u32) -> bool {
        debug_assert_eq!(address % (1 << GRANULE_BITS), 0);
        let Some(place) = self.holding(address, 0) else {
            return false;
        };
        place.store(word(address, entry), Ordering::Release);
        true
    }

    /// Takes a block out.
    pub fn remove(&self, address: u64, entry: u32) {
        if let Some(place) = self.holding(address, word(address, entry)) {
            place.store(0, Ordering::Release);
        }
    }

    /// Bytes of host memory.
    pub fn host_bytes(&self) -> usize {
        size_of_val(&*self.buckets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_was_put_in_until_it_is_taken_out() {
        let index = Index::new();
        let base = 0x7f00_0000_0000;
        let put: Vec<u32> = (0..ENTRIES_MAX)
            .filter(|&entry| index.insert(base + u64::from(entry) * 512, entry))
            .collect();
        assert!(put.len() > ENTRIES_MAX as usize * 9 / 10);
        for &entry in &put {
            let address = base + u64::from(entry) * 512;
            assert_eq!(index.find(address), Some(entry));
            assert_eq!(index.find(address + 1), None);
            index.remove(address, entry ^ 1);
            assert_eq!(index.find(address), Some(entry), "another's entry");
            index.remove(address, entry);
            assert_eq!(index.find(address), None);
        }
        assert_eq!(index.find(0), None);
    }
}
