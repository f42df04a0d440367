//! One reservation from the backing, and its units.

use super::arena::{Arena, NONE};
use super::bits::Starts;
use super::dirt::Dirt;
use super::{Range, SegmentKind};

/// See the module.
#[derive(Debug)]
pub(super) struct Segment {
    pub address: u64,
    pub size_bytes: u64,
    pub kind: SegmentKind,
    /// Its lowest block.
    pub first: u32,
    /// Unit of block sizes and addresses, as a power of two.
    pub granule_bits: u8,
    /// Blocks that keep it from being released.
    pub busy: u32,
    /// In the tables; not while a thread is giving it back (FORGET-FIRST).
    pub attached: bool,
    /// A range of addresses with memory mapped into parts of it (see `mapped`).
    pub is_mapped: bool,
    /// How many blocks tile it.
    pub block_count: u32,
    /// Where they start, once there are many.
    pub starts: Option<Box<Starts>>,
    /// Granules that are not clean; only with scrubbing.
    pub dirt: Option<Box<Dirt>>,
    /// Taken ahead of need.
    pub ahead: bool,
    pub idle: bool,
    /// The tick in which it became idle, by its low bits: with four ticks a second they tell for decades.
    pub idle_since: u32,
    pub idle_previous: u32,
    pub idle_next: u32,
}

impl Segment {
    pub fn new(range: Range, kind: SegmentKind, granule_bits: u32, dirt: Option<bool>) -> Self {
        let granules = (range.size_bytes >> granule_bits) as usize;
        Segment {
            address: range.address,
            size_bytes: range.size_bytes,
            kind,
            first: NONE,
            granule_bits: granule_bits as u8,
            busy: 0,
            attached: false,
            is_mapped: false,
            block_count: 1,
            starts: None,
            dirt: dirt.map(|dirty| Box::new(Dirt::new(granules, dirty))),
            ahead: false,
            idle: false,
            idle_since: 0,
            idle_previous: NONE,
            idle_next: NONE,
        }
    }

    /// Builds the index of starts.
    #[cold]
    pub fn index_starts(&mut self, blocks: &Arena) {
        let mut starts = Starts::new((self.size_bytes >> self.granule_bits) as usize);
        let mut at = self.first;
        while let Some(entry) = blocks.get(at) {
            starts.set(self.granule(entry.address()));
            at = entry.next();
        }
        self.starts = Some(Box::new(starts));
    }

    pub fn range(&self) -> Range {
        Range {
            address: self.address,
            size_bytes: self.size_bytes,
        }
    }

    /// Which granule an address of the segment lies in.
    #[inline]
    pub fn granule(&self, address: u64) -> usize {
        ((address - self.address) >> self.granule_bits) as usize
    }

    /// The granules that a range of the segment lies in: the first, and the one above the last.
    #[inline]
    pub fn granules(&self, address: u64, size_bytes: u64) -> (usize, usize) {
        (
            self.granule(address),
            self.granule(address + size_bytes - 1) + 1,
        )
    }

    /// Makes what a range of the segment lies in dirty, or clean; nothing without scrubbing.
    #[inline]
    pub fn set_dirt(&mut self, address: u64, size_bytes: u64, is_dirty: bool) {
        let (from, to) = self.granules(address, size_bytes);
        match &mut self.dirt {
            Some(dirt) if is_dirty => dirt.set_range(from, to),
            Some(dirt) => dirt.clear_range(from, to),
            None => {}
        }
    }

    /// The address at which a granule starts.
    #[inline]
    pub fn address_of(&self, granule: usize) -> u64 {
        self.address + ((granule as u64) << self.granule_bits)
    }

    /// The index of starts, if there is one.
    pub fn starts(&self) -> Option<&Starts> {
        self.starts.as_deref()
    }

    pub fn block_count(&self) -> u32 {
        self.block_count
    }

    pub fn is_idle(&self) -> bool {
        self.idle
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_64_bytes() {
        assert_eq!(size_of::<Option<Segment>>(), 64);
    }
}
