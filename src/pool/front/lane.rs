//! What one thread keeps in front: hints to freed blocks by size, numbers for its allocations, and its share of the
//! figures. Only the thread that has the lane writes here, so there are loads and stores and no locked instruction.

use crate::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::sync::atomic::{AtomicI64, AtomicU32, AtomicU64};

use crate::pool::size::{class_of, CLASS_COUNT, GRANULE_BYTES};

/// Larger blocks are kept one at a time, unless threads meet at the pool's lock ([`Lane::set_wide_limit`]).
pub const KEPT_APART_ABOVE_BYTES: u64 = 384 << 10;
/// Most blocks in a bin.
const DEPTH: usize = if cfg!(loom) { 2 } else { 32 };
/// Most blocks in a bin of sizes above [`DEEP_BYTES`].
const SHALLOW_DEPTH: u32 = if cfg!(loom) { 2 } else { 16 };
const DEEP_BYTES: u64 = 32 << 10;
/// A bin for each class of sizes that are not kept apart.
pub const BINS: usize = if cfg!(loom) { 2 } else { CLASS_COUNT };
/// Bins for blocks that are kept apart. Each size has two that it may lie in, by hashes.
const WIDE_BINS: usize = if cfg!(loom) { 2 } else { 32 };
/// Blocks of one size that may be kept where one is ([`Lane::set_alike_limit`]).
const ALIKE: u32 = if cfg!(loom) { 2 } else { 4 };
/// Sequence numbers fetched at first, and at most: twice as many each time.
const LEASE_FIRST: u64 = 256;
const LEASE_MOST: u64 = if cfg!(loom) { 256 } else { 16 << 10 };

/// The bin of a size that is not kept apart.
#[inline]
pub fn bin_number(size_bytes: u64) -> usize {
    class_of(size_bytes) % BINS
}

/// Most blocks of this size in a bin.
#[inline]
fn depth(size_bytes: u64) -> u32 {
    if size_bytes > DEEP_BYTES {
        SHALLOW_DEPTH
    } else {
        DEPTH as u32
    }
}

/// Where a freed block is, and which allocation it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hint(u64);

const ENTRY_BITS: u32 = super::entry::ENTRIES_MAX.trailing_zeros();

impl Hint {
    #[inline]
    pub fn new(entry: u32, sequence: u64) -> Self {
        Hint(sequence << ENTRY_BITS | u64::from(entry))
    }

    #[inline]
    pub fn entry(self) -> u32 {
        self.0 as u32 & (super::entry::ENTRIES_MAX - 1)
    }

    #[inline]
    pub fn sequence(self) -> u64 {
        self.0 >> ENTRY_BITS
    }
}

/// Hints that have to make room, all of one size, or all of sizes that are kept apart.
#[derive(Debug)]
pub struct Crowd {
    pub size_bytes: u64,
    hints: [Hint; DEPTH + 1],
    count: usize,
}

impl Crowd {
    /// Blocks that are kept apart, and one more of them.
    fn with(crowd: Option<Crowd>, size_bytes: u64, hint: Hint) -> Self {
        let mut crowd = crowd.unwrap_or(Crowd {
            size_bytes,
            hints: [hint; DEPTH + 1],
            count: 0,
        });
        crowd.hints[crowd.count] = hint;
        crowd.count += 1;
        crowd
    }

    pub fn hints(&self) -> &[Hint] {
        &self.hints[..self.count]
    }
}

/// Freed blocks of one size, in the order of their frees.
#[derive(Debug)]
pub struct Bin {
    /// 0: never used.
    size_bytes: AtomicU64,
    first: AtomicU32,
    count: AtomicU32,
    /// Of blocks kept apart: 1 if one was taken since the hand passed ([`Lane::evict_cold`]).
    was_taken: AtomicU32,
    hints: [AtomicU64; DEPTH],
}

impl Bin {
    fn new() -> Self {
        Bin {
            size_bytes: AtomicU64::new(0),
            first: AtomicU32::new(0),
            count: AtomicU32::new(0),
            was_taken: AtomicU32::new(0),
            hints: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    #[inline]
    fn at(&self, place: u32) -> &AtomicU64 {
        &self.hints[place as usize % DEPTH]
    }

    #[inline]
    fn count(&self) -> u32 {
        self.count.load(Relaxed)
    }

    #[inline]
    pub fn newest(&self) -> Option<Hint> {
        let last = self
            .first
            .load(Relaxed)
            .wrapping_add(self.count().checked_sub(1)?);
        Some(Hint(self.at(last).load(Relaxed)))
    }

    #[inline]
    pub fn oldest(&self) -> Option<Hint> {
        self.count().checked_sub(1)?;
        Some(Hint(self.at(self.first.load(Relaxed)).load(Relaxed)))
    }

    #[inline]
    pub fn drop_newest(&self) {
        self.count.store(self.count().saturating_sub(1), Relaxed);
    }

    #[inline]
    pub fn drop_oldest(&self) {
        self.first
            .store(self.first.load(Relaxed).wrapping_add(1), Relaxed);
        self.drop_newest();
    }

    #[inline]
    fn add(&self, hint: Hint) {
        let count = self.count();
        self.at(self.first.load(Relaxed).wrapping_add(count))
            .store(hint.0, Relaxed);
        self.count.store(count + 1, Relaxed);
    }

    /// Takes the oldest `count` out.
    fn evict(&self, size_bytes: u64, count: u32) -> Crowd {
        let mut crowd = Crowd {
            size_bytes,
            hints: [Hint(0); DEPTH + 1],
            count: 0,
        };
        while crowd.count < count as usize {
            let Some(hint) = self.oldest() else {
                break;
            };
            self.drop_oldest();
            crowd.hints[crowd.count] = hint;
            crowd.count += 1;
        }
        crowd
    }
}

/// Requests, requested bytes and allocated bytes, of which each lane counts what it took and what it freed.
pub const FIGURES: usize = 3;

/// Read by [`Lane::tally`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Taken since the lane began: count, requested bytes, allocated bytes.
    pub taken: [u64; FIGURES],
    /// Freed likewise.
    pub freed: [u64; FIGURES],
}

impl Tally {
    /// What was taken and freed since an earlier one.
    #[inline]
    pub fn since(&self, before: &Tally) -> ([u64; FIGURES], [u64; FIGURES]) {
        let less = |now: &[u64; FIGURES], before: &[u64; FIGURES]| {
            std::array::from_fn(|figure| now[figure].wrapping_sub(before[figure]))
        };
        (
            less(&self.taken, &before.taken),
            less(&self.freed, &before.freed),
        )
    }
}

/// See the module.
#[derive(Debug)]
#[repr(align(128))]
pub struct Lane {
    taken: [AtomicU64; FIGURES],
    freed: [AtomicU64; FIGURES],
    /// The most that taken minus freed has been since [`Lane::begin_peaks`].
    net_peaks: [AtomicI64; FIGURES],
    next_sequence: AtomicU64,
    end_sequence: AtomicU64,
    /// How many numbers the last lease had.
    leased: AtomicU64,
    bins: [Bin; BINS],
    /// Blocks above [`KEPT_APART_ABOVE_BYTES`].
    wide: [Bin; WIDE_BINS],
    /// Bytes of the hints in `wide`, stale ones too.
    wide_bytes: AtomicU64,
    /// The most of them. 0: one block at a time.
    wide_limit_bytes: AtomicU64,
    /// A block of this size or less may be one of [`ALIKE`] of its size, where one block is kept.
    alike_limit_bytes: AtomicU64,
    /// The bin of `wide` that is looked at first when there is no room.
    wide_hand: AtomicU32,
}

impl Lane {
    pub fn new() -> Self {
        Lane {
            taken: Default::default(),
            freed: Default::default(),
            net_peaks: Default::default(),
            next_sequence: AtomicU64::new(0),
            end_sequence: AtomicU64::new(0),
            leased: AtomicU64::new(LEASE_FIRST / 2),
            bins: std::array::from_fn(|_| Bin::new()),
            wide: std::array::from_fn(|_| Bin::new()),
            wide_bytes: AtomicU64::new(0),
            wide_limit_bytes: AtomicU64::new(0),
            alike_limit_bytes: AtomicU64::new(0),
            wide_hand: AtomicU32::new(0),
        }
    }

    /// The bin of a size: of those kept apart the one that holds it, else one that stands empty, else the second.
    #[inline]
    fn bin_for(&self, size_bytes: u64) -> &Bin {
        if size_bytes > KEPT_APART_ABOVE_BYTES {
            let hash = (size_bytes / GRANULE_BYTES).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let first = &self.wide[(hash >> 32) as usize % WIDE_BINS];
            let second = &self.wide[(hash >> 48) as usize % WIDE_BINS];
            let holds = |bin: &Bin| bin.size_bytes.load(Relaxed) == size_bytes;
            let takes_first = holds(first) || (first.count() == 0 && !holds(second));
            return if takes_first { first } else { second };
        }
        &self.bins[bin_number(size_bytes)]
    }

    /// The bin of a size, if it holds blocks of that size or did last.
    #[inline]
    pub fn bin_of(&self, size_bytes: u64) -> Option<&Bin> {
        let bin = self.bin_for(size_bytes);
        (bin.size_bytes.load(Relaxed) == size_bytes).then_some(bin)
    }

    /// Whether a block of this size that is not in front yet would crowd out none of its own size.
    #[inline]
    pub fn has_room(&self, size_bytes: u64) -> bool {
        let fits = |bin: &Bin| bin.count() < depth(size_bytes);
        if size_bytes > KEPT_APART_ABOVE_BYTES && self.is_wide() {
            return size_bytes <= self.wide_limit_bytes.load(Relaxed)
                && fits(self.bin_for(size_bytes));
        }
        size_bytes > KEPT_APART_ABOVE_BYTES || self.bin_of(size_bytes).is_none_or(fits)
    }

    /// Keeps a freed block. `false`: there is no room; see [`Lane::crowd_in`].
    #[inline]
    pub fn keep(&self, size_bytes: u64, hint: Hint) -> bool {
        let Some(bin) = self.bin_of(size_bytes) else {
            return false;
        };
        let is_apart = size_bytes > KEPT_APART_ABOVE_BYTES;
        if bin.count() >= depth(size_bytes) {
            return false;
        }
        if is_apart && !self.has_wide_room(size_bytes) && !self.has_room_for_alike(size_bytes) {
            return false;
        }
        if is_apart {
            self.count_wide(size_bytes, 1);
        }
        bin.add(hint);
        true
    }

    /// Takes the newest or the oldest hint out of its bin.
    #[inline]
    pub fn drop_hint(&self, bin: &Bin, size_bytes: u64, newest: bool) {
        if newest {
            bin.drop_newest();
        } else {
            bin.drop_oldest();
        }
        if size_bytes > KEPT_APART_ABOVE_BYTES {
            self.count_wide(size_bytes, -1);
            bin.was_taken.store(1, Relaxed);
        }
    }

    /// Takes out all of a size that was not asked for lately, to make room for one of another.
    fn evict_cold(&self, size_bytes: u64) -> Option<Crowd> {
        let hand = self.wide_hand.load(Relaxed) as usize;
        for at in (hand..hand + WIDE_BINS).map(|at| at % WIDE_BINS) {
            self.wide_hand.store(at as u32 + 1, Relaxed);
            let bin = &self.wide[at];
            let is_own = bin.size_bytes.load(Relaxed) == size_bytes;
            let was_taken = bin.was_taken.load(Relaxed) != 0;
            bin.was_taken.store(0, Relaxed);
            if bin.count() > 0 && !was_taken && !is_own {
                return Some(self.evict_wide(bin, DEPTH as u32));
            }
        }
        None
    }

    /// Whether one more block that is kept apart may be kept, and the others stay.
    #[inline]
    fn has_wide_room(&self, size_bytes: u64) -> bool {
        let kept_bytes = self.wide_bytes.load(Relaxed);
        kept_bytes == 0 || kept_bytes + size_bytes <= self.wide_limit_bytes.load(Relaxed)
    }

    /// Whether blocks of this size are kept and no others, and one more may be.
    #[inline]
    pub fn has_room_for_alike(&self, size_bytes: u64) -> bool {
        let (kept_bytes, limit_bytes) = (
            self.wide_bytes.load(Relaxed),
            self.alike_limit_bytes.load(Relaxed),
        );
        !self.is_wide()
            && size_bytes <= limit_bytes
            && (size_bytes..u64::from(ALIKE) * size_bytes).contains(&kept_bytes)
            && self
                .bin_of(size_bytes)
                .is_some_and(|bin| u64::from(bin.count()) * size_bytes == kept_bytes)
    }

    /// Where one block is kept, one of so many bytes or less may be one of [`ALIKE`]; 0: none may.
    pub fn set_alike_limit(&self, bytes: u64) {
        self.alike_limit_bytes.store(bytes, Relaxed);
    }

    #[inline]
    fn count_wide(&self, size_bytes: u64, count: i64) {
        let bytes = self.wide_bytes.load(Relaxed);
        let now = bytes.wrapping_add_signed(size_bytes as i64 * count);
        self.wide_bytes.store(now, Relaxed);
    }

    /// Whether more than one block that is kept apart may be.
    #[inline]
    pub fn is_wide(&self) -> bool {
        self.wide_limit_bytes.load(Relaxed) > 0
    }

    /// So many bytes of blocks that are kept apart may be kept; 0: one block.
    pub fn set_wide_limit(&self, bytes: u64) {
        self.wide_limit_bytes.store(bytes, Relaxed);
    }

    /// Keeps a freed block for which there is no room; what it crowds out has to go: the older half of its own size, or all
    /// of the size that had the bin. One that is kept apart crowds out the other that is, or itself where there are many.
    pub fn crowd_in(&self, size_bytes: u64, hint: Hint) -> Option<Crowd> {
        if size_bytes > KEPT_APART_ABOVE_BYTES {
            return self.crowd_in_apart(size_bytes, hint);
        }
        let bin = self.bin_for(size_bytes);
        let had_bytes = bin.size_bytes.load(Relaxed);
        let count = if had_bytes == size_bytes {
            depth(size_bytes).div_ceil(2)
        } else {
            DEPTH as u32
        };
        let crowd = (bin.count() > 0).then(|| bin.evict(had_bytes, count));
        bin.size_bytes.store(size_bytes, Relaxed);
        bin.add(hint);
        crowd
    }

    fn crowd_in_apart(&self, size_bytes: u64, hint: Hint) -> Option<Crowd> {
        let crowd = if !self.is_wide() {
            self.evict_large()
        } else if !self.has_wide_room(size_bytes) {
            let cold = self.evict_cold(size_bytes);
            if cold.is_none() || !self.has_wide_room(size_bytes) {
                return Some(Crowd::with(cold, size_bytes, hint));
            }
            let bin = self.bin_for(size_bytes);
            if bin.count() > 0 && bin.size_bytes.load(Relaxed) != size_bytes {
                return Some(Crowd::with(cold, size_bytes, hint));
            }
            cold
        } else {
            let bin = self.bin_for(size_bytes);
            let is_own = bin.size_bytes.load(Relaxed) == size_bytes;
            let count = if is_own {
                SHALLOW_DEPTH / 2
            } else {
                DEPTH as u32
            };
            (bin.count() > 0).then(|| self.evict_wide(bin, count))
        };
        let bin = self.bin_for(size_bytes);
        bin.size_bytes.store(size_bytes, Relaxed);
        self.count_wide(size_bytes, 1);
        bin.add(hint);
        crowd
    }

    /// Takes the oldest out of a bin of blocks kept apart.
    fn evict_wide(&self, bin: &Bin, count: u32) -> Crowd {
        let size_bytes = bin.size_bytes.load(Relaxed);
        let crowd = bin.evict(size_bytes, count);
        self.count_wide(size_bytes, -(crowd.count as i64));
        crowd
    }

    /// Takes in what another lane had no room for, when there is nothing of this size here.
    pub fn refill(&self, crowd: &Crowd) {
        let bin = self.bin_for(crowd.size_bytes);
        debug_assert!(bin.count() == 0);
        bin.size_bytes.store(crowd.size_bytes, Relaxed);
        crowd.hints().iter().for_each(|&hint| bin.add(hint));
    }

    /// Whether the bin of this size stands empty.
    pub fn is_empty_for(&self, size_bytes: u64) -> bool {
        self.bin_for(size_bytes).count() == 0
    }

    /// Takes out blocks of one size that are kept apart, if there are any.
    pub fn evict_large(&self) -> Option<Crowd> {
        if self.wide_bytes.load(Relaxed) == 0 {
            return None;
        }
        let mut bins = self.wide.iter();
        let bin = bins.find(|bin| bin.count() > 0)?;
        Some(self.evict_wide(bin, DEPTH as u32))
    }

    /// Those that are kept apart, without taking them out, which only the lane's own thread may.
    pub fn wide_hints(&self) -> impl Iterator<Item = Hint> + '_ {
        self.wide.iter().flat_map(|bin| {
            let (first, count) = (bin.first.load(Relaxed), bin.count());
            (0..count).map(move |at| Hint(bin.at(first.wrapping_add(at)).load(Relaxed)))
        })
    }

    /// A number that no other allocation of the pool has. Not to be asked while [`Lane::needs_sequences`].
    #[inline]
    pub fn next_sequence(&self) -> u64 {
        let next = self.next_sequence.load(Relaxed);
        self.next_sequence.store(next + 1, Relaxed);
        next
    }

    /// The lease is used up.
    #[inline]
    pub fn needs_sequences(&self) -> bool {
        self.next_sequence.load(Relaxed) == self.end_sequence.load(Relaxed)
    }

    /// Numbers from `first` on are this lane's. Returns how many.
    pub fn lease(&self, first: u64) -> u64 {
        let count = (self.leased.load(Relaxed) * 2).min(LEASE_MOST);
        self.leased.store(count, Relaxed);
        self.next_sequence.store(first, Relaxed);
        self.end_sequence.store(first + count, Relaxed);
        count
    }

    /// The count comes last, and is read first: who has seen it has seen the bytes that belong to it ([`Lane::events`]).
    #[inline]
    pub fn count_taken(&self, requested_bytes: u64, allocated_bytes: u64) {
        for (figure, by) in [(1, requested_bytes), (2, allocated_bytes), (0, 1)] {
            let taken = self.taken[figure].load(Relaxed).wrapping_add(by);
            self.taken[figure].store(taken, Release);
            let net = taken.wrapping_sub(self.freed[figure].load(Relaxed)) as i64;
            if net > self.net_peaks[figure].load(Relaxed) {
                self.net_peaks[figure].store(net, Release);
            }
        }
    }

    /// In the order of [`Lane::count_taken`].
    #[inline]
    pub fn count_freed(&self, requested_bytes: u64, allocated_bytes: u64) {
        for (figure, by) in [(1, requested_bytes), (2, allocated_bytes), (0, 1)] {
            let freed = self.freed[figure].load(Relaxed).wrapping_add(by);
            self.freed[figure].store(freed, Release);
        }
    }

    /// Changes whenever anything was counted, after all of it was.
    #[inline]
    pub fn events(&self) -> u64 {
        self.taken[0]
            .load(Acquire)
            .wrapping_add(self.freed[0].load(Acquire))
    }

    /// What was freed. Of all lanes this is to be read before what was taken: then no free is seen without its
    /// allocation.
    pub fn freed(&self) -> [u64; FIGURES] {
        std::array::from_fn(|figure| self.freed[figure].load(Acquire))
    }

    /// What was taken.
    pub fn taken(&self) -> [u64; FIGURES] {
        std::array::from_fn(|figure| self.taken[figure].load(Acquire))
    }

    /// The most that taken minus freed has been since [`Lane::begin_peaks`].
    pub fn net_peaks(&self) -> [i64; FIGURES] {
        std::array::from_fn(|figure| self.net_peaks[figure].load(Acquire))
    }

    /// Peaks count anew. By the lane's own thread.
    pub fn begin_peaks(&self) {
        for figure in 0..FIGURES {
            let net = self.taken[figure]
                .load(Relaxed)
                .wrapping_sub(self.freed[figure].load(Relaxed));
            self.net_peaks[figure].store(net as i64, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bin_gives_the_newest_or_the_oldest_and_crowds_out_the_oldest() {
        let lane = Lane::new();
        assert!(!lane.keep(512, Hint::new(3, 0)), "no bin yet");
        assert!(lane.crowd_in(512, Hint::new(3, 0)).is_none());
        for number in 1..DEPTH as u64 {
            assert!(lane.keep(512, Hint::new(3, number)));
        }
        let bin = lane.bin_of(512).expect("made");
        assert_eq!(bin.newest().map(Hint::sequence), Some(DEPTH as u64 - 1));
        assert_eq!(bin.oldest().map(Hint::sequence), Some(0));
        assert!(!lane.has_room(512) && !lane.keep(512, Hint::new(3, 99)));
        let crowd = lane.crowd_in(512, Hint::new(3, 99)).expect("full");
        let out: Vec<u64> = crowd.hints().iter().map(|hint| hint.sequence()).collect();
        assert_eq!(out, (0..DEPTH as u64 / 2).collect::<Vec<_>>());
        bin.drop_newest();
        assert_eq!(bin.newest().map(Hint::sequence), Some(DEPTH as u64 - 1));
        assert_eq!(bin.newest().map(Hint::entry), Some(3));
    }

    #[test]
    fn a_large_block_is_alone_in_its_bin() {
        const BIG_BYTES: u64 = KEPT_APART_ABOVE_BYTES + 512;
        let lane = Lane::new();
        assert!(lane.crowd_in(BIG_BYTES, Hint::new(0, 1)).is_none());
        let crowd = lane.crowd_in(2 * BIG_BYTES, Hint::new(0, 2)).expect("full");
        assert_eq!(crowd.hints(), [Hint::new(0, 1)]);
    }

    #[test]
    fn large_blocks_of_sizes_that_nobody_takes_make_room() {
        let hint = |number| Hint::new(0, number);
        let lane = Lane::new();
        lane.set_wide_limit(16 << 20);
        let keep = |size_bytes, number| {
            lane.keep(size_bytes, hint(number)) || lane.crowd_in(size_bytes, hint(number)).is_none()
        };
        assert!((0..8).all(|number| keep(1 << 20, number)));
        assert!((8..10).all(|number| keep(4 << 20, number)), "16 MiB in all");
        assert!(!lane.has_wide_room(4 << 20) && lane.has_room(4 << 20));
        let bin = lane.bin_of(4 << 20).expect("made");
        lane.drop_hint(bin, 4 << 20, true);
        assert!(keep(4 << 20, 10));
        let cold = lane.crowd_in(4 << 20, hint(11)).expect("1 MiB is cold");
        let out: Vec<u64> = cold.hints().iter().map(|hint| hint.sequence()).collect();
        assert_eq!(out, (0..8).collect::<Vec<_>>());
        assert!(keep(4 << 20, 12), "16 MiB again");
        let own = lane.crowd_in(4 << 20, hint(13)).expect("no other is left");
        assert_eq!(own.hints(), [hint(13)]);
        assert!(!lane.has_room(17 << 20));
        lane.set_wide_limit(0);
        let crowd = lane.crowd_in(1 << 20, hint(14)).expect("one at a time");
        assert_eq!(crowd.hints().len(), 4);
        assert_eq!(lane.wide_hints().collect::<Vec<_>>(), [hint(14)]);
    }

    #[test]
    fn peaks_are_those_between_folds() {
        let lane = Lane::new();
        lane.count_freed(100, 512);
        lane.begin_peaks();
        lane.count_freed(100, 512);
        lane.count_taken(300, 512);
        assert_eq!(lane.net_peaks(), [-1, 100, -512]);
        assert_eq!(lane.taken(), [1, 300, 512]);
    }
}
