//! The segments of a pool: which address lies in which, and which are idle.
//!
//! *Idle*: no block of the segment is live, held or in a thread's hands, so the segment can go back to the driver
//! (invariant WHOLE). Idle segments are in a list, the one idle for longest first.

use std::ops::{Index, IndexMut};

use super::arena::{Arena, NONE};
use super::bits::Starts;
use super::by_address::ByAddress;
pub(super) use super::segment::Segment;

/// Up to this many blocks of a segment, the block an address lies in is found by walking. Only segments with more have
/// an index of starts, so that metadata stays small where blocks are large.
const FEW_BLOCKS: u32 = 24;

/// See the module.
#[derive(Debug)]
pub(super) struct Segments {
    slots: Vec<Option<Segment>>,
    vacant: Vec<u32>,
    by_address: ByAddress,
    idle_first: u32,
    idle_last: u32,
    /// Sum of the idle segments.
    pub idle_bytes: u64,
    /// Sum of those among them that were taken ahead of need.
    pub ahead_idle_bytes: u64,
    /// Counted by whoever has a clock.
    pub ticks: u64,
}

impl Segments {
    pub fn new() -> Self {
        Segments {
            slots: Vec::new(),
            vacant: Vec::new(),
            by_address: ByAddress::default(),
            idle_first: NONE,
            idle_last: NONE,
            idle_bytes: 0,
            ahead_idle_bytes: 0,
            ticks: 0,
        }
    }

    /// Adds a segment to the tables.
    pub fn add(&mut self, segment: Segment) -> u32 {
        let index = self.vacant.pop().unwrap_or_else(|| {
            if self.slots.len() == self.slots.capacity() {
                let more = (self.slots.len() / 16).max(16);
                self.slots.reserve_exact(more);
            }
            self.slots.push(None);
            (self.slots.len() - 1) as u32
        });
        self.slots[index as usize] = Some(segment);
        self.attach(index);
        index
    }

    /// Puts a segment into the tables (again).
    pub fn attach(&mut self, index: u32) {
        self[index].attached = true;
        let address = self[index].address;
        let is_new = self.by_address.insert(address, index);
        debug_assert!(is_new, "the driver gave the same segment twice");
    }

    /// Takes a segment out of the tables; it keeps its slot until [`Segments::remove`].
    pub fn detach(&mut self, index: u32) {
        self.leave_idle(index);
        self[index].attached = false;
        let address = self[index].address;
        self.by_address.remove(address);
    }

    /// Forgets a detached segment.
    pub fn remove(&mut self, index: u32) {
        debug_assert!(!self[index].attached);
        self.slots[index as usize] = None;
        self.vacant.push(index);
    }

    /// The segment that holds `address`.
    pub fn holding(&self, address: u64) -> Option<u32> {
        let index = self.by_address.at_or_below(address)?;
        let segment = &self[index];
        (address - segment.address < segment.size_bytes).then_some(index)
    }

    /// The first segment at or above `address`.
    pub fn at_or_above(&self, address: u64) -> Option<u32> {
        self.by_address.at_or_above(address)
    }

    /// All segments in the tables, in address order.
    pub fn in_order(&self) -> impl Iterator<Item = u32> + '_ {
        self.by_address.in_order()
    }

    /// The segment that has been idle for longest.
    #[inline]
    pub fn longest_idle(&self) -> Option<u32> {
        Some(self.idle_first).filter(|&index| index != NONE)
    }

    /// The same of those that were taken because they were needed.
    pub fn longest_idle_of_need(&self) -> Option<u32> {
        let mut idle = self.longest_idle();
        while let Some(index) = idle.filter(|&index| self[index].ahead) {
            idle = self.idle_after(index);
        }
        idle
    }

    /// The one idle for longest, if it was already idle at the start of the last `ticks` ticks.
    pub fn idle_for(&self, ticks: u64) -> Option<u32> {
        self.longest_idle().filter(|&index| {
            u64::from((self.ticks as u32).wrapping_sub(self[index].idle_since)) > ticks
        })
    }

    /// The idle segment after `index`.
    pub fn idle_after(&self, index: u32) -> Option<u32> {
        Some(self[index].idle_next).filter(|&index| index != NONE)
    }

    /// A block of the segment became busy.
    #[inline]
    pub fn add_busy(&mut self, index: u32) {
        self[index].busy += 1;
        if self[index].idle {
            self.leave_idle(index);
        }
    }

    /// A block of the segment is no longer busy. `release_first`: the segment is of no use to the pool.
    #[inline]
    pub fn subtract_busy(&mut self, index: u32, release_first: bool) {
        self[index].busy -= 1;
        if self[index].busy == 0 {
            self.become_idle(index, release_first);
        }
    }

    /// Enters the idle list: last, or first if `release_first`.
    pub fn become_idle(&mut self, index: u32, release_first: bool) {
        let (previous, next) = if release_first {
            (NONE, self.idle_first)
        } else {
            (self.idle_last, NONE)
        };
        let ticks = self.ticks as u32;
        let segment = &mut self[index];
        debug_assert!(!segment.idle && segment.busy == 0);
        segment.idle = true;
        segment.idle_since = ticks;
        segment.idle_previous = previous;
        segment.idle_next = next;
        self.idle_bytes += self[index].size_bytes;
        self.ahead_idle_bytes += self.ahead_bytes(index);
        self.link_idle(previous, next, index, index);
    }

    fn ahead_bytes(&self, index: u32) -> u64 {
        let segment = &self[index];
        if segment.ahead {
            segment.size_bytes
        } else {
            0
        }
    }

    fn leave_idle(&mut self, index: u32) {
        if !self[index].idle {
            return;
        }
        let segment = &mut self[index];
        segment.idle = false;
        let (previous, next) = (segment.idle_previous, segment.idle_next);
        self.idle_bytes -= self[index].size_bytes;
        self.ahead_idle_bytes -= self.ahead_bytes(index);
        self.link_idle(previous, next, next, previous);
    }

    /// Makes `after` follow `previous` and `before` precede `next`.
    fn link_idle(&mut self, previous: u32, next: u32, after: u32, before: u32) {
        if previous == NONE {
            self.idle_first = after;
        } else {
            self[previous].idle_next = after;
        }
        if next == NONE {
            self.idle_last = before;
        } else {
            self[next].idle_previous = before;
        }
    }

    /// A block of a segment was cut in two, the upper one at `address`.
    #[inline]
    pub fn block_added(&mut self, index: u32, address: u64, blocks: &Arena) {
        let segment = &mut self[index];
        segment.block_count += 1;
        let granule = segment.granule(address);
        if let Some(starts) = &mut segment.starts {
            starts.set(granule);
        } else if segment.block_count > FEW_BLOCKS {
            segment.index_starts(blocks);
        }
    }

    /// A block of a segment that started at `address` was joined with the one below.
    #[inline]
    pub fn block_removed(&mut self, index: u32, address: u64) {
        let segment = &mut self[index];
        segment.block_count -= 1;
        let granule = segment.granule(address);
        if let Some(starts) = &mut segment.starts {
            starts.clear(granule);
        }
    }

    /// The base of the block that `address`, which is in the segment, lies in.
    pub fn block_base(&self, index: u32, address: u64, blocks: &Arena) -> Option<u64> {
        let segment = &self[index];
        if let Some(starts) = &segment.starts {
            let granule = starts.at_or_below(segment.granule(address))?;
            return Some(segment.address_of(granule));
        }
        let mut entry = &blocks[segment.first];
        while address - entry.address() >= entry.size_bytes() {
            entry = blocks.get(entry.next())?;
        }
        Some(entry.address())
    }

    /// Bytes of host memory.
    pub fn host_bytes(&self) -> usize {
        let maps: usize = self
            .slots
            .iter()
            .flatten()
            .map(|segment| {
                segment.starts().map_or(0, Starts::host_bytes)
                    + segment.dirt.as_ref().map_or(0, |dirt| dirt.host_bytes())
            })
            .sum();
        maps + self.slots.capacity() * size_of::<Option<Segment>>()
            + self.vacant.capacity() * size_of::<u32>()
            + self.by_address.host_bytes()
    }
}

/// A link that leads to a vacant slot would be a bug of this room; the panic would be caught at the exported function.
const VACANT: &str = "a segment index outlives its segment";

impl Index<u32> for Segments {
    type Output = Segment;
    #[inline]
    fn index(&self, index: u32) -> &Segment {
        match &self.slots[index as usize] {
            Some(segment) => segment,
            None => unreachable!("{VACANT}"),
        }
    }
}

impl IndexMut<u32> for Segments {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut Segment {
        match &mut self.slots[index as usize] {
            Some(segment) => segment,
            None => unreachable!("{VACANT}"),
        }
    }
}
