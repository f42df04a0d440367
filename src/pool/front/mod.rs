//! In front of the pool's lock: blocks freed lately, for the next request of their size.
//!
//! A free and the allocation after it that has the same rounded size do no split, no join and take no lock. Each costs
//! one locked instruction, on a cache line of the block's own.
//!
//! # What is where
//! The pool's tables count a block in front as *live* the whole time: they keep its place, and nothing there has to know
//! more. The truth about it is its [`entry::Entry`]: `CACHED` (freed; kept for the next request) or `LIVE` (handed out
//! again, with the request's figures). [`index::Index`] leads from the address to the entry, without a lock. A
//! [`lane::Lane`], one for each thread, holds hints to entries that are `CACHED`, by size; a hint can be stale, the entry
//! decides. Entries come into being and vanish only under the pool's lock (`recycle`).
//!
//! # Decision: who may change an entry
//! Whoever moves its word from `CACHED` or `LIVE` by compare-and-swap has it: to `BUSY` (a thread that frees or allocates
//! it and is done a few instructions later) or to `VACANT` (under the pool's lock, to give it back to the tables). A
//! word holds the sequence number of the allocation that it stands for, which no other ever has, so a stale hint or a
//! second free cannot succeed. Nobody waits for a `BUSY` one but [`Front::settle`], which a context's end needs.
//!
//! # Decision: FENCED holds here too
//! The epoch of a free is read after the locked instruction of that free, and stored before the entry is `CACHED`. Work that
//! uses the block was submitted before the free, so a fence made after that epoch closed covers it. A hit needs an epoch
//! that is fenced, or the backing's order, read while the block is in the hitting thread's hands or about to be; both
//! only ever become true after the barrier is in place ([`super::Backing::sole_stream`]).
//!
//! # Decision: what may be kept in front
//! Plain blocks only (not held, retired, oversize or isolated), and none with scrubbing on. A size up to
//! [`lane::KEPT_APART_ABOVE_BYTES`] has a bin for its class, of up to 32 blocks; of larger blocks a lane keeps one, and gives it back before another large request is cut from the tables, since a hole that is kept makes the pool cut
//! elsewhere (kept like the small ones, `resnet` fell from 96.4 to 90.7 % of utilisation; up to 512 KiB,
//! `streams` takes a half more calls of the driver; up to 1 MiB, it falls from 87.9 to 85.8 %). A request that finds nothing in
//! the free lists takes a part of what is in front back to the tables ([`super::Pool::drain_part`]); before the pool grows or
//! gives memory back, and for a snapshot, everything goes back, so a block in front never costs memory. All of this while one
//! thread uses the pool, or several by turns; `super::meeting` has what is different while they meet.
//! [`entry::ENTRIES_MAX`] bounds it all.
//!
//! # Decision: from thread to thread by the crowd
//! A lane that has no room for a freed block puts half a bin into the [`depot`], and a lane with an empty bin takes from there
//! before it takes the pool's lock. So a thread that frees what another allocates meets it at a lock once in 16 blocks
//! (8 above 32 KiB).

mod bin;
mod depot;
pub(super) mod entry;
pub(super) mod index;
pub(super) mod lane;
mod wide;

use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::pause;
use std::sync::{Arc, OnceLock};

use super::epochs::Seen;
use crate::lane::LANE_COUNT;
use bin::Crowd;
pub(super) use bin::Hint;
use depot::Depot;
use entry::{Entries, Entry, State, Word};
use index::Index;
use lane::{Lane, KEPT_APART_ABOVE_BYTES};

/// See the module.
#[derive(Debug)]
pub(super) struct Front {
    lanes: [OnceLock<Box<Lane>>; LANE_COUNT],
    /// A bit for each lane that was ever used here.
    used_lanes: AtomicU64,
    pub entries: Entries,
    index: OnceLock<Index>,
    pub depot: Depot,
    epochs: Arc<Seen>,
}

/// What the front knows of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    /// Nothing: the tables are right.
    Nothing,
    /// Freed, or in some thread's hands.
    NotLive,
    /// Handed out from here.
    Live {
        requested_bytes: u64,
        tag: u64,
        sequence: u64,
    },
}

/// A block that was freed here.
#[derive(Debug, Clone, Copy)]
pub(super) struct Freed {
    pub requested_bytes: u64,
    pub size_bytes: u64,
    pub tag: u64,
    pub hint: Hint,
    /// Its lane has no room for it: the caller has to make some.
    pub is_crowded: bool,
}

impl Front {
    pub fn new(epochs: Arc<Seen>) -> Self {
        let front = Front {
            lanes: [const { OnceLock::new() }; LANE_COUNT],
            used_lanes: AtomicU64::new(0),
            entries: Entries::new(),
            index: OnceLock::new(),
            depot: Depot::new(),
            epochs,
        };
        if cfg!(loom) {
            // The model checker does not see that who finds these made comes after who made them.
            front.index.get_or_init(Index::new);
            (0..entry::ENTRIES_MAX).for_each(|id| _ = front.entries.get(id));
        }
        front
    }

    /// The epochs, for a state that begins anew.
    pub fn epochs(&self) -> Arc<Seen> {
        self.epochs.clone()
    }

    /// A lane, made on first use.
    #[inline]
    pub fn lane(&self, number: usize) -> &Lane {
        match self.lanes[number].get() {
            Some(lane) => lane,
            None => self.make_lane(number),
        }
    }

    #[cold]
    fn make_lane(&self, lane: usize) -> &Lane {
        let made = self.lanes[lane].get_or_init(|| Box::new(Lane::new()));
        self.used_lanes.fetch_or(1 << lane, Ordering::Release);
        made
    }

    /// Every lane that was ever used here, by number.
    pub fn lanes(&self) -> impl Iterator<Item = (usize, &Lane)> {
        let mut left = self.used_lanes.load(Ordering::Acquire);
        std::iter::from_fn(move || {
            (left != 0).then(|| {
                let lane = left.trailing_zeros() as usize;
                left &= left - 1;
                lane
            })
        })
        .filter_map(|lane| Some((lane, &**self.lanes[lane].get()?)))
    }

    /// The lane, while there is only one.
    #[inline]
    pub fn only_lane(&self) -> Option<(usize, &Lane)> {
        let used = self.used_lanes.load(Ordering::Acquire);
        let number = used.trailing_zeros() as usize;
        (used.is_power_of_two()).then_some((number, &**self.lanes.get(number)?.get()?))
    }

    /// Serves a request with a block of `size_bytes` (rounded) that was freed lately, if one needs nothing before its next
    /// use: its address, and the allocation's number.
    // Decision: always inlined, and plain words in and out. A struct that is written by parts and read as a whole, as a
    // grant passed through memory is, waits for its stores: 10 ns of 60.
    #[inline(always)]
    pub fn take(
        &self,
        lane: &Lane,
        size_bytes: u64,
        (requested_bytes, tag): (u64, u64),
        is_ordered: bool,
    ) -> Option<(u64, u64)> {
        let bin = lane.bin_of_request(requested_bytes, size_bytes)?;
        loop {
            // In order, the block freed last is the one whose data the caches hold. Else the one freed first is fenced first.
            let hint = if is_ordered {
                bin.newest()?
            } else {
                bin.oldest()?
            };
            let entry = self.entries.get(hint.entry());
            let cached = Word::new(State::Cached, hint.sequence());
            if entry.is(cached) {
                let epoch = entry.epoch.load(Ordering::Relaxed);
                if !is_ordered && !self.epochs.is_fenced(epoch) {
                    return None;
                }
                if lane.needs_sequences() {
                    return None;
                }
            }
            lane.drop_hint(bin, size_bytes, is_ordered);
            if !entry.seize(cached) {
                continue; // It was given back to the tables.
            }
            // Decision: the block is asked all the same. A mistake in a lane's bins must cost a hit, and not hand out a block that is
            // too small. (Not in the model, to which it is one more load to reorder.)
            if !cfg!(loom) && entry.size_bytes.load(Ordering::Relaxed) != size_bytes {
                debug_assert!(false, "a hint lies in the bin of its block's size");
                entry.put(cached);
                return None;
            }
            let sequence = lane.next_sequence();
            entry
                .requested_bytes
                .store(requested_bytes, Ordering::Relaxed);
            entry.tag.store(tag, Ordering::Relaxed);
            lane.count_taken(requested_bytes, size_bytes);
            let address = entry.address.load(Ordering::Relaxed);
            entry.put(Word::new(State::Live, sequence));
            return Some((address, sequence));
        }
    }

    /// Whether [`Front::take`] would find a block of this size once everything is fenced.
    pub fn waits_for_fence(&self, lane: &Lane, size_bytes: u64) -> bool {
        let newest = lane.bin_of(size_bytes).and_then(|bin| bin.newest());
        newest.is_some_and(|hint| {
            let cached = Word::new(State::Cached, hint.sequence());
            self.entries.get(hint.entry()).is(cached)
        })
    }

    /// Frees the block at `address`, if it is live here. `None`: the front has no say in it.
    #[inline(always)]
    pub fn free(&self, lane: &Lane, address: u64) -> Option<Freed> {
        let (id, entry) = self.find(address)?;
        let live = entry.word();
        if live.state() != State::Live || entry.address.load(Ordering::Acquire) != address {
            return None;
        }
        // Before the locked instruction, which all that follows waits for. They are of `live` if that is what it finds.
        let requested_bytes = entry.requested_bytes.load(Ordering::Acquire);
        let tag = entry.tag.load(Ordering::Acquire);
        let size_bytes = entry.size_bytes.load(Ordering::Acquire);
        let bin = lane.bin_for(size_bytes);
        if !entry.seize(live) {
            return None;
        }
        entry.epoch.store(self.epochs.current(), Ordering::Relaxed);
        lane.count_freed(requested_bytes, size_bytes);
        let sequence = live.sequence();
        entry.put(Word::new(State::Cached, sequence));
        let hint = Hint::new(id, sequence);
        Some(Freed {
            requested_bytes,
            size_bytes,
            tag,
            hint,
            is_crowded: !lane.keep_in(bin, size_bytes, hint),
        })
    }

    /// Whether a block of this size that is not in front yet would crowd none of its own size out of the front. What has no
    /// room in its lane may be what another thread asks for.
    pub fn has_room(&self, lane: &Lane, size_bytes: u64) -> bool {
        lane.has_room(size_bytes)
            || (size_bytes <= KEPT_APART_ABOVE_BYTES
                && !self.used_lanes.load(Ordering::Relaxed).is_power_of_two()
                && self.depot.has_room(size_bytes))
    }

    /// Keeps what a lane has no room for, for other lanes. `Some`: it has to go back to the tables.
    pub fn put_aside(&self, crowd: Crowd) -> Option<Crowd> {
        if crowd.size_bytes > KEPT_APART_ABOVE_BYTES {
            return Some(crowd);
        }
        self.depot.put(crowd)
    }

    /// Whether [`Front::refill`] may bring a block of this size, or numbers are all that is missing.
    #[inline]
    pub fn may_refill(&self, lane: &Lane, size_bytes: u64) -> bool {
        lane.needs_sequences()
            || (size_bytes <= KEPT_APART_ABOVE_BYTES && self.depot.may_have(size_bytes))
    }

    /// Takes blocks of this size that another lane had no room for. `false`: there are none.
    pub fn refill(&self, lane: &Lane, size_bytes: u64) -> bool {
        if size_bytes > KEPT_APART_ABOVE_BYTES || !lane.is_empty_for(size_bytes) {
            return false;
        }
        let crowd = self.depot.take(size_bytes);
        crowd.is_some_and(|crowd| {
            lane.refill(&crowd);
            true
        })
    }

    #[inline]
    fn find(&self, address: u64) -> Option<(u32, &Entry)> {
        let id = self.index.get()?.find(address)?;
        Some((id, self.entries.get(id)))
    }

    /// What the front knows of `address`. Under the pool's lock, so that entries neither come nor go.
    pub fn look(&self, address: u64) -> Look {
        let Some((_, entry)) = self.find(address) else {
            return Look::Nothing;
        };
        loop {
            let word = entry.word();
            if word.state() != State::Live {
                return Look::NotLive;
            }
            let live = Look::Live {
                requested_bytes: entry.requested_bytes.load(Ordering::Acquire),
                tag: entry.tag.load(Ordering::Acquire),
                sequence: word.sequence(),
            };
            if entry.is(word) {
                return live;
            }
        }
    }

    /// Enters a block under the pool's lock, `CACHED`. `None`: there is no room.
    pub fn enter(&self, id: u32, entering: Entering) -> Option<Hint> {
        let Entering {
            address,
            size_bytes,
            requested_bytes,
            sequence,
            block,
            epoch,
        } = entering;
        let index = self.index.get_or_init(Index::new);
        let entry = self.entries.get(id);
        debug_assert!(entry.word().state() == State::Vacant);
        if !index.insert(address, id) {
            return None;
        }
        entry.address.store(address, Ordering::Release);
        entry.size_bytes.store(size_bytes, Ordering::Relaxed);
        entry
            .requested_bytes
            .store(requested_bytes, Ordering::Relaxed);
        entry.block.store(block, Ordering::Relaxed);
        entry.epoch.store(epoch, Ordering::Relaxed);
        entry.put(Word::new(State::Cached, sequence));
        Some(Hint::new(id, sequence))
    }

    /// Takes an entry out, under the pool's lock, if its word is `word`.
    pub fn leave(&self, id: u32, word: Word) -> bool {
        let entry = self.entries.get(id);
        if !entry.vacate(word) {
            return false;
        }
        if let Some(index) = self.index.get() {
            index.remove(entry.address.load(Ordering::Relaxed), id);
        }
        true
    }

    /// The entry of an address, with its word. Under the pool's lock.
    pub fn entry_of(&self, address: u64) -> Option<(u32, Word)> {
        self.find(address).map(|(id, entry)| (id, entry.word()))
    }

    /// The word of an entry once no thread has it in its hands. Under the pool's lock. `None`: its thread does not go on
    /// (it was ended in the midst of a call).
    pub fn settle(&self, id: u32) -> Option<Word> {
        let entry = self.entries.get(id);
        for turn in 0..SETTLE_TURNS {
            let word = entry.word();
            if word.state() != State::Busy {
                return Some(word);
            }
            pause(turn);
        }
        None
    }

    /// Bytes of host memory beside itself.
    pub fn host_bytes(&self) -> usize {
        self.lanes().count() * size_of::<Lane>()
            + self.entries.host_bytes()
            + self.index.get().map_or(0, Index::host_bytes)
            + self.depot.host_bytes()
    }
}

/// Turns that [`Front::settle`] waits: far longer than a thread is off its processor.
const SETTLE_TURNS: u32 = 1 << 22;

/// A block that comes to the front.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entering {
    pub address: u64,
    pub size_bytes: u64,
    pub requested_bytes: u64,
    pub sequence: u64,
    pub block: u32,
    pub epoch: u64,
}
