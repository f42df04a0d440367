//! A backing that knows the truth: when each byte was last used, which barriers and scrubs came after, who holds what.
//!
//! Time is a count of events. A use is stamped **before** the free that ends it, a barrier when it **begins**; a barrier
//! orders every use with a smaller stamp. What a block must satisfy when it is handed out is checked by [`Watched::hand_out`].

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::Mutex;

use cushion::pool::{Backing, BackingError, Fence, Pages, Quiet, Range, ScrubTicket};

use super::arithmetic::Arithmetic;

#[cfg(not(loom))]
thread_local! {
    static CAPTURING: Cell<bool> = const { Cell::new(false) };
}
#[cfg(loom)]
loom::thread_local! {
    static CAPTURING: Cell<bool> = Cell::new(false);
}

/// From now on this thread is inside a call that promised the pool would not fence, wait or join; or it is out of it.
pub fn set_capturing(capturing: bool) {
    CAPTURING.with(|cell| cell.set(capturing));
}

#[derive(Debug, Clone)]
struct Scrub {
    ticket: u64,
    begun: u64,
    /// What was submitted before this is behind it; 0: nothing is.
    covers: u64,
    ranges: Vec<Range>,
}

#[derive(Debug, Default)]
struct Truth {
    now: u64,
    /// Every use stamped below this is ordered before all later work.
    barrier: u64,
    /// Scrubs up to and with this number are ordered before all later work.
    joined: Option<u64>,
    scrubs: Vec<Scrub>,
    /// Ranges used and freed since their segment is ours, with the stamp of the free.
    used: Vec<(Range, u64)>,
    /// The same for memory that was dirty when it was mapped, with the stamp of the mapping; it needs no barrier.
    dirt: Vec<(Range, u64)>,
    /// Dirty parts of handles that are mapped nowhere at the moment, relative to their start.
    loose: BTreeMap<u64, Vec<Range>>,
    /// The host knows that every use stamped below this has ended.
    ended: u64,
    /// Barriers that were made, by when they began.
    fences: BTreeSet<u64>,
    /// Ranges that must not be handed out.
    kept: Vec<Range>,
    live: BTreeMap<u64, u64>,
    /// Calls made so far, and the faults still to come: at which call, and what.
    calls: u64,
    faults: BTreeMap<u64, BackingError>,
    /// One call in so many fails, from a random sequence.
    fault_rate: u64,
    random: u64,
}

#[derive(Debug)]
pub struct Watched {
    below: Arithmetic,
    scrub: bool,
    pub sole_stream: AtomicBool,
    truth: Mutex<Truth>,
    /// The model checker lets other threads come in between wherever this is touched. Relaxed: it orders nothing.
    #[cfg(loom)]
    turn: loom::sync::atomic::AtomicU64,
}

fn overlap(a: Range, b: Range) -> bool {
    a.address < b.address + b.size_bytes && b.address < a.address + a.size_bytes
}

/// What is left of `ranges` without `cut`.
fn without(ranges: Vec<Range>, cut: Range) -> Vec<Range> {
    let mut left = Vec::new();
    for range in ranges {
        if !overlap(range, cut) {
            left.push(range);
            continue;
        }
        let (end, cut_end) = (
            range.address + range.size_bytes,
            cut.address + cut.size_bytes,
        );
        if range.address < cut.address {
            left.push(Range {
                size_bytes: cut.address - range.address,
                ..range
            });
        }
        if cut_end < end {
            left.push(Range {
                address: cut_end,
                size_bytes: end - cut_end,
            });
        }
    }
    left
}

impl Truth {
    /// The parts of a range that were used and not scrubbed since, by scrubs that `counts`.
    fn dirty_parts(&self, range: Range, counts: impl Fn(&Truth, &Scrub) -> bool) -> Vec<Range> {
        let mut all = Vec::new();
        let used = self.used.iter().chain(&self.dirt);
        for &(used, stamp) in used.filter(|(used, _)| overlap(*used, range)) {
            let from = used.address.max(range.address);
            let to = (used.address + used.size_bytes).min(range.address + range.size_bytes);
            let mut dirty = vec![Range {
                address: from,
                size_bytes: to - from,
            }];
            let since = self.scrubs.iter().filter(|scrub| scrub.begun > stamp);
            for scrub in since.filter(|scrub| counts(self, scrub)) {
                for &range in &scrub.ranges {
                    dirty = without(dirty, range);
                }
            }
            all.extend(dirty);
        }
        all
    }

    /// The memory behind a range is there no more.
    fn vacate(&mut self, range: Range) {
        for &address in self.live.keys() {
            let outside = address < range.address || address >= range.address + range.size_bytes;
            assert!(outside, "WHOLE: gave back a live block");
        }
        for list in [&mut self.used, &mut self.dirt] {
            let cut = |&(used, stamp): &(Range, u64)| {
                let left = without(vec![used], range);
                left.into_iter().map(move |part| (part, stamp))
            };
            *list = list.iter().flat_map(cut).collect();
        }
        self.kept.retain(|&kept| !overlap(kept, range));
        for scrub in &mut self.scrubs {
            scrub.ranges = without(std::mem::take(&mut scrub.ranges), range);
        }
    }
}

impl Watched {
    /// `scrub`: the pool has to clean blocks.
    pub fn new(capacity_bytes: u64, scrub: bool) -> Self {
        Watched {
            below: Arithmetic::new(capacity_bytes),
            scrub,
            sole_stream: AtomicBool::new(false),
            truth: Mutex::new(Truth::default()),
            #[cfg(loom)]
            turn: loom::sync::atomic::AtomicU64::new(0),
        }
    }

    /// Other threads may run here: between what the pool or the program did and what the device sees of it.
    fn step(&self) {
        #[cfg(loom)]
        self.turn.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }

    /// Memory can be mapped.
    pub fn with_pages(self, has_pages: bool) -> Self {
        self.below.has_pages.store(has_pages, SeqCst);
        self
    }

    /// Ranges of all scrubs.
    pub fn scrub_ranges(&self) -> u64 {
        self.below
            .scrub_ranges
            .load(std::sync::atomic::Ordering::SeqCst)
    }

    /// The host has waited.
    fn ended(&self, begun: u64) {
        let mut truth = self.truth.lock().unwrap();
        truth.ended = truth.ended.max(begun);
    }

    pub fn reserved_bytes(&self) -> u64 {
        self.below.reserved_bytes()
    }

    pub fn peak_bytes(&self) -> u64 {
        self.below.peak_bytes.load(SeqCst)
    }

    pub fn calls(&self) -> u64 {
        self.truth.lock().unwrap().calls
    }

    /// The call after `calls` more ones fails.
    pub fn fail_after(&self, calls: u64, error: BackingError) {
        let mut truth = self.truth.lock().unwrap();
        let at = truth.calls + calls;
        truth.faults.insert(at, error);
    }

    /// One call in `rate` fails; 0: none does, and planned faults are forgotten.
    pub fn fail_at_random(&self, rate: u64, seed: u64) {
        let mut truth = self.truth.lock().unwrap();
        truth.faults.clear();
        (truth.fault_rate, truth.random) = (rate, seed);
    }

    fn enter(&self, forbidden_while_capturing: bool) -> Result<u64, BackingError> {
        self.step();
        assert!(
            !(forbidden_while_capturing && CAPTURING.with(Cell::get)),
            "a context-wide call while capturing"
        );
        let mut truth = self.truth.lock().unwrap();
        truth.now += 1;
        let call = truth.calls;
        truth.calls += 1;
        truth.random = truth
            .random
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        let lot = truth.random >> 33;
        if truth.fault_rate > 0 && lot.is_multiple_of(truth.fault_rate) {
            return Err(match lot / truth.fault_rate % 3 {
                0 => BackingError::OutOfMemory,
                1 => BackingError::Unavailable,
                _ => BackingError::Failed(700),
            });
        }
        match truth.faults.remove(&call) {
            Some(error) => Err(error),
            None => Ok(truth.now),
        }
    }

    fn barrier(&self, begun: u64) {
        let mut truth = self.truth.lock().unwrap();
        truth.barrier = truth.barrier.max(begun);
    }

    /// The program waits for the context itself; the pool is told by `mark` before and `drained` after.
    pub fn program_waits(&self) {
        self.step();
        let mut truth = self.truth.lock().unwrap();
        truth.now += 1;
        truth.barrier = truth.now;
        truth.ended = truth.now;
    }

    /// A block was handed out: no other holds a byte of it, its earlier uses are ordered, it is clean.
    pub fn hand_out(&self, range: Range) {
        self.step();
        assert!(
            self.below.holds(range),
            "OURS: a block outside every segment"
        );
        let mut truth = self.truth.lock().unwrap();
        let below = truth
            .live
            .range(..range.address + range.size_bytes)
            .next_back();
        if let Some((&address, &size_bytes)) = below {
            assert!(
                address + size_bytes <= range.address,
                "ONE-PLACE: two live blocks share bytes"
            );
        }
        truth.live.insert(range.address, range.size_bytes);
        assert!(
            !truth.kept.iter().any(|&kept| overlap(kept, range)),
            "a held block was handed out"
        );
        for &(_, stamp) in truth.used.iter().filter(|(used, _)| overlap(*used, range)) {
            let ordered = stamp < truth.barrier || self.sole_stream.load(SeqCst);
            assert!(
                ordered,
                "FENCED: {range:x?} was used at {stamp}, barrier {}",
                truth.barrier
            );
        }
        if self.scrub {
            let dirty = truth.dirty_parts(range, |truth, scrub| {
                scrub.begun < truth.barrier || Some(scrub.ticket) <= truth.joined
            });
            assert!(dirty.is_empty(), "CLEAN: {dirty:x?} of {range:x?}");
        }
    }

    /// The program is done with a block and is about to free it.
    pub fn done_with(&self, range: Range) {
        self.step();
        let mut truth = self.truth.lock().unwrap();
        assert_eq!(truth.live.remove(&range.address), Some(range.size_bytes));
        truth.now += 1;
        let stamp = truth.now;
        truth.used.push((range, stamp));
    }

    /// The free failed: the block is live still.
    pub fn not_done_with(&self, range: Range) {
        self.truth
            .lock()
            .unwrap()
            .live
            .insert(range.address, range.size_bytes);
    }

    /// The range must not be handed out from now on.
    pub fn keep(&self, range: Range) {
        self.truth.lock().unwrap().kept.push(range);
    }

    pub fn no_longer_keep(&self, range: Range) {
        self.step();
        let mut truth = self.truth.lock().unwrap();
        let at = truth.kept.iter().position(|&kept| kept == range);
        truth.kept.swap_remove(at.expect("kept"));
        // Another process may have used it until now.
        truth.now += 1;
        let stamp = truth.now;
        truth.used.push((range, stamp));
    }

    /// The context is gone, with all memory.
    pub fn destroy(&self) {
        self.below.destroy();
        let mut truth = self.truth.lock().unwrap();
        truth.used.clear();
        truth.dirt.clear();
        truth.loose.clear();
        truth.kept.clear();
        truth.live.clear();
        truth.scrubs.clear();
    }
}

impl Watched {
    fn scrub(
        &self,
        ranges: &[Range],
        byte: u8,
        is_behind_barrier: bool,
    ) -> Result<ScrubTicket, BackingError> {
        let begun = match self.enter(true) {
            Ok(begun) => begun,
            Err(error) => {
                // Some of it was queued before the call failed.
                let mut truth = self.truth.lock().unwrap();
                let begun = truth.now;
                if let (BackingError::Failed(_), Some(&range)) = (error, ranges.first()) {
                    truth.used.push((range, begun));
                }
                return Err(error);
            }
        };
        let mut truth = self.truth.lock().unwrap();
        for &range in ranges {
            for (&address, &size_bytes) in &truth.live {
                assert!(
                    !overlap(
                        Range {
                            address,
                            size_bytes
                        },
                        range
                    ),
                    "a scrub of a live block"
                );
            }
        }
        if is_behind_barrier {
            let barrier = truth.barrier;
            let late = |(used, stamp): &&(Range, u64)| {
                *stamp >= barrier && ranges.iter().any(|&range| overlap(*used, range))
            };
            let late = truth.used.iter().find(late);
            assert!(
                late.is_none(),
                "a scrub before {late:x?} has ended, barrier {barrier}"
            );
        }
        let ticket = self.below.begin_scrub(ranges, byte)?;
        truth.scrubs.push(Scrub {
            ticket: ticket.0,
            begun,
            covers: if is_behind_barrier { 0 } else { begun },
            ranges: ranges.to_vec(),
        });
        Ok(ticket)
    }
}

impl Backing for Watched {
    fn reserve(&self, size_bytes: u64) -> Result<u64, BackingError> {
        self.enter(false)?;
        self.below.reserve(size_bytes)
    }

    fn release(&self, segment: Range) -> Result<(), BackingError> {
        let begun = self.enter(false)?;
        self.truth.lock().unwrap().vacate(segment);
        self.below.release(segment)?;
        self.barrier(begun);
        Ok(())
    }

    fn fence(&self) -> Result<Fence, BackingError> {
        let begun = self.enter(true)?;
        std::thread::yield_now();
        self.barrier(begun);
        self.truth.lock().unwrap().fences.insert(begun);
        Ok(Fence(begun))
    }

    fn synchronize(&self) -> Result<(), BackingError> {
        let begun = self.enter(true)?;
        std::thread::yield_now();
        self.barrier(begun);
        self.ended(begun);
        Ok(())
    }

    fn begin_scrub(&self, ranges: &[Range], byte: u8) -> Result<ScrubTicket, BackingError> {
        self.scrub(ranges, byte, false)
    }

    fn begin_scrub_behind_barrier(
        &self,
        ranges: &[Range],
        byte: u8,
    ) -> Result<ScrubTicket, BackingError> {
        self.scrub(ranges, byte, true)
    }

    fn join_scrub(&self, ticket: ScrubTicket) -> Result<(), BackingError> {
        self.enter(true)?;
        self.below.join_scrub(ticket)?;
        let mut truth = self.truth.lock().unwrap();
        truth.joined = truth.joined.max(Some(ticket.0));
        let begun = truth
            .scrubs
            .iter()
            .filter(|scrub| scrub.ticket <= ticket.0)
            .map(|s| s.covers)
            .max();
        truth.barrier = truth.barrier.max(begun.unwrap_or(0));
        Ok(())
    }

    fn sole_stream(&self) -> bool {
        self.sole_stream.load(SeqCst)
    }

    fn pages(&self) -> Option<&dyn Pages> {
        self.below.pages().map(|_| self as &dyn Pages)
    }
}

/// A new handle is dirty, a moved one as dirty as it was.
impl Pages for Watched {
    fn reserve_range(&self, size_bytes: u64) -> Result<u64, BackingError> {
        self.enter(true)?;
        self.below.reserve_range(size_bytes)
    }

    fn room_bytes(&self) -> Option<u64> {
        self.below.room_bytes()
    }

    fn create(&self, size_bytes: u64) -> Result<u64, BackingError> {
        self.enter(true)?;
        let handle = self.below.create(size_bytes)?;
        let all = Range {
            address: 0,
            size_bytes,
        };
        self.truth.lock().unwrap().loose.insert(handle, vec![all]);
        Ok(handle)
    }

    fn map(&self, handle: u64, range: Range) -> Result<(), BackingError> {
        let mapped = self.enter(true)?;
        let mut truth = self.truth.lock().unwrap();
        self.below.map(handle, range)?;
        for part in truth.loose.remove(&handle).unwrap_or_default() {
            let part = Range {
                address: part.address + range.address,
                ..part
            };
            truth.dirt.push((part, mapped));
        }
        Ok(())
    }

    fn unmap(&self, what: &Quiet) -> Result<(), BackingError> {
        let range = what.range();
        self.enter(true)?;
        let mut truth = self.truth.lock().unwrap();
        let handle = self.below.handle_at(range).expect("a whole mapping");
        let late = |&&(used, stamp): &&(Range, u64)| overlap(used, range) && stamp >= truth.ended;
        assert_eq!(
            truth.used.iter().find(late),
            None,
            "SETTLED: work may touch it"
        );
        for scrub in truth
            .scrubs
            .iter()
            .filter(|scrub| scrub.begun >= truth.ended)
        {
            let touches = scrub.ranges.iter().any(|&other| overlap(other, range));
            assert!(!touches, "SETTLED: a scrub may touch it");
        }
        let parts = truth.dirty_parts(range, |_, _| true);
        let relative = |part: Range| Range {
            address: part.address - range.address,
            ..part
        };
        truth
            .loose
            .insert(handle, parts.into_iter().map(relative).collect());
        truth.vacate(range);
        self.below.unmap(what)
    }

    fn destroy(&self, handle: u64) {
        self.truth.lock().unwrap().loose.remove(&handle);
        Pages::destroy(&self.below, handle);
    }

    fn has_passed(&self, fence: Fence) -> bool {
        let mut truth = self.truth.lock().unwrap();
        assert!(
            truth.fences.contains(&fence.0),
            "asked for a barrier that was never made"
        );
        let passed = truth.now.is_multiple_of(3);
        if passed {
            truth.ended = truth.ended.max(fence.0);
        }
        passed
    }

    fn fresh_is_zero(&self) -> bool {
        false
    }
}
