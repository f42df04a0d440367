//! What the pool knows of the blocks in front, under its lock.

use super::asked::Asked;
use super::front::lane::Tally;
use super::meeting::Meetings;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Book {
    /// Bytes of blocks that are `CACHED`, as of the last fold. Below zero for a moment, while a free is yet to be folded.
    pub cached_bytes: i64,
    /// Numbers of entries that are vacant, for each lane that used them last.
    pub vacant: Vec<Vec<u32>>,
    /// The lane that each run of [`RUN_ENTRIES`] entries belongs to.
    runs: Vec<u8>,
    /// Entries ever used: those below this number.
    pub used_count: u32,
    /// Where the next eviction begins to look.
    pub hand: u32,
    /// Where the next part to be drained begins.
    pub drained: u32,
    /// The lane whose large blocks are drained next.
    pub drained_lane: u32,
    /// What was folded of each lane.
    pub folded: Vec<Tally>,
    /// Misses since the last fold.
    pub misses: u32,
    /// Whether threads meet at the lock.
    pub meetings: Meetings,
    /// Sizes that were asked for lately and not served in front.
    pub asked: Asked,
}

/// Entries that a lane takes at a time. They are neighbours, so that no two threads write into one pair of cache lines.
const RUN_ENTRIES: u32 = if cfg!(loom) { 2 } else { 8 };

impl Book {
    /// Bytes of host memory.
    pub fn host_bytes(&self) -> usize {
        let vacant: usize = self.vacant.iter().map(Vec::capacity).sum();
        vacant * size_of::<u32>()
            + self.vacant.capacity() * size_of::<Vec<u32>>()
            + self.runs.capacity()
            + self.folded.capacity() * size_of::<Tally>()
            + self.asked.host_bytes()
    }

    /// Entries that were never used are the lane's.
    pub fn add_run(&mut self, lane: usize) {
        let first = self.used_count;
        self.used_count += RUN_ENTRIES;
        self.runs.push(lane as u8);
        (first..first + RUN_ENTRIES).for_each(|id| self.add_vacant(id));
    }

    /// An entry is vacant.
    pub fn add_vacant(&mut self, id: u32) {
        let lane = usize::from(self.runs[(id / RUN_ENTRIES) as usize]);
        if self.vacant.len() <= lane {
            self.vacant.resize_with(lane + 1, Vec::new);
        }
        self.vacant[lane].push(id);
    }

    /// One that is vacant, if this lane has any.
    pub fn take_vacant(&mut self, lane: usize) -> Option<u32> {
        self.vacant.get_mut(lane)?.pop()
    }

    /// One that is vacant, of whatever lane.
    pub fn take_vacant_of_any(&mut self) -> Option<u32> {
        self.vacant.iter_mut().find_map(Vec::pop)
    }

    /// This one, which is vacant.
    pub fn take_vacant_number(&mut self, id: u32) -> Option<u32> {
        let lane = usize::from(self.runs[(id / RUN_ENTRIES) as usize]);
        let vacant = &mut self.vacant[lane];
        let at = vacant.iter().rposition(|&other| other == id)?;
        Some(vacant.swap_remove(at))
    }
}
