//! What one thread keeps in front: hints to freed blocks by size, numbers for its allocations, and its share of the
//! figures. Only the thread that has the lane writes here, so there are loads and stores and no locked instruction.

use crate::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::sync::atomic::{AtomicI64, AtomicU64};

use super::bin::{depth, Bin, Crowd, Hint, DEPTH};
use super::wide::Wide;
use crate::pool::size::{class_of, CLASS_COUNT};

/// Larger blocks are kept one at a time, unless threads meet at the pool's lock (`wide`).
pub const KEPT_APART_ABOVE_BYTES: u64 = 384 << 10;
/// A bin for each class of sizes that are not kept apart.
pub const BINS: usize = if cfg!(loom) { 2 } else { CLASS_COUNT };
/// Sequence numbers fetched at first, and at most: twice as many each time.
const LEASE_FIRST: u64 = 256;
const LEASE_MOST: u64 = if cfg!(loom) { 256 } else { 16 << 10 };

/// The bin of a size that is not kept apart.
#[inline]
pub fn bin_number(size_bytes: u64) -> usize {
    class_of(size_bytes) % BINS
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
    /// As [`Lane::events`].
    #[inline]
    pub fn events(&self) -> u64 {
        self.taken[0].wrapping_add(self.freed[0])
    }

    /// Taken minus freed.
    #[inline]
    pub fn net(&self, figure: usize) -> i64 {
        self.taken[figure].wrapping_sub(self.freed[figure]) as i64
    }

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
    pub wide: Wide,
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
            wide: Wide::new(),
        }
    }

    /// The bin of a size, whatever it holds.
    #[inline]
    pub fn bin_for(&self, size_bytes: u64) -> &Bin {
        if size_bytes > KEPT_APART_ABOVE_BYTES {
            return self.wide.bin_for(size_bytes);
        }
        &self.bins[bin_number(size_bytes)]
    }

    /// The bin of a request, if it holds blocks of `size_bytes`, to which it is rounded. Both have one class, and its number does not
    /// wait for the rounding.
    #[inline]
    pub fn bin_of_request(&self, requested_bytes: u64, size_bytes: u64) -> Option<&Bin> {
        let bin = if requested_bytes > KEPT_APART_ABOVE_BYTES {
            self.wide.bin_for(size_bytes)
        } else {
            &self.bins[bin_number(requested_bytes)]
        };
        bin.is_of(size_bytes).then_some(bin)
    }

    /// The bin of a size, if it holds blocks of that size or did last.
    #[inline]
    pub fn bin_of(&self, size_bytes: u64) -> Option<&Bin> {
        let bin = self.bin_for(size_bytes);
        bin.is_of(size_bytes).then_some(bin)
    }

    /// Whether a block of this size that is not in front yet would crowd out none of its own size.
    #[inline]
    pub fn has_room(&self, size_bytes: u64) -> bool {
        if size_bytes > KEPT_APART_ABOVE_BYTES {
            return self.wide.has_room(size_bytes);
        }
        let fits = |bin: &Bin| bin.count() < depth(size_bytes);
        self.bin_of(size_bytes).is_none_or(fits)
    }

    /// Keeps a freed block. `false`: there is no room; see [`Lane::crowd_in`].
    #[inline]
    pub fn keep(&self, size_bytes: u64, hint: Hint) -> bool {
        self.keep_in(self.bin_for(size_bytes), size_bytes, hint)
    }

    /// The same with its bin at hand.
    #[inline]
    pub fn keep_in(&self, bin: &Bin, size_bytes: u64, hint: Hint) -> bool {
        if !bin.is_of(size_bytes) || bin.count() >= depth(size_bytes) {
            return false;
        }
        if size_bytes > KEPT_APART_ABOVE_BYTES {
            if !self.wide.has_room_beside(size_bytes) {
                return false;
            }
            self.wide.count(size_bytes, 1);
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
            self.wide.count(size_bytes, -1);
            bin.note_taken();
        }
    }

    /// Keeps a freed block for which there is no room; what it crowds out has to go: the older half of its own size, or all
    /// of the size that had the bin.
    pub fn crowd_in(&self, size_bytes: u64, hint: Hint) -> Option<Crowd> {
        if size_bytes > KEPT_APART_ABOVE_BYTES {
            return self.wide.crowd_in(size_bytes, hint);
        }
        let bin = self.bin_for(size_bytes);
        let count = if bin.is_of(size_bytes) {
            depth(size_bytes).div_ceil(2)
        } else {
            DEPTH as u32
        };
        let crowd = (bin.count() > 0).then(|| bin.evict(count));
        bin.set_size(size_bytes);
        bin.add(hint);
        crowd
    }

    /// Takes in what another lane had no room for, when there is nothing of this size here.
    pub fn refill(&self, crowd: &Crowd) {
        let bin = self.bin_for(crowd.size_bytes);
        debug_assert!(bin.count() == 0);
        bin.set_size(crowd.size_bytes);
        crowd.hints().iter().for_each(|&hint| bin.add(hint));
    }

    /// Whether the bin of this size stands empty.
    pub fn is_empty_for(&self, size_bytes: u64) -> bool {
        self.bin_for(size_bytes).count() == 0
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
    #[inline]
    pub fn net_peak(&self, figure: usize) -> i64 {
        self.net_peaks[figure].load(Acquire)
    }

    /// The same of all figures.
    pub fn net_peaks(&self) -> [i64; FIGURES] {
        std::array::from_fn(|figure| self.net_peak(figure))
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
        lane.wide.set_limit(16 << 20);
        let keep = |size_bytes, number| {
            lane.keep(size_bytes, hint(number)) || lane.crowd_in(size_bytes, hint(number)).is_none()
        };
        assert!((0..8).all(|number| keep(1 << 20, number)));
        assert!((8..10).all(|number| keep(4 << 20, number)), "16 MiB in all");
        assert!(!lane.wide.has_room_beside(4 << 20) && lane.has_room(4 << 20));
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
        lane.wide.set_limit(0);
        let crowd = lane.crowd_in(1 << 20, hint(14)).expect("one at a time");
        assert_eq!(crowd.hints().len(), 4);
        assert_eq!(lane.wide.hints().collect::<Vec<_>>(), [hint(14)]);
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
