//! Freed blocks of one size, in the order of their frees. Only the thread that has the lane writes here.

use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::atomic::{AtomicU32, AtomicU64};

/// Most blocks in a bin.
pub const DEPTH: usize = if cfg!(loom) { 2 } else { 32 };
/// Most blocks in a bin of sizes above [`DEEP_BYTES`].
pub const SHALLOW_DEPTH: u32 = if cfg!(loom) { 2 } else { 16 };
const DEEP_BYTES: u64 = 32 << 10;

/// Most blocks of this size in a bin.
#[inline]
pub fn depth(size_bytes: u64) -> u32 {
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
    pub fn with(crowd: Option<Crowd>, size_bytes: u64, hint: Hint) -> Self {
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
    /// 1 if one was taken since [`Bin::cool`].
    was_taken: AtomicU32,
    hints: [AtomicU64; DEPTH],
}

impl Bin {
    pub fn new() -> Self {
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
    pub fn count(&self) -> u32 {
        self.count.load(Relaxed)
    }

    /// The size of its blocks.
    #[inline]
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes.load(Relaxed)
    }

    /// Whether it holds blocks of this size, or did last.
    #[inline]
    pub fn is_of(&self, size_bytes: u64) -> bool {
        self.size_bytes.load(Relaxed) == size_bytes
    }

    /// From now on it holds blocks of this size. It is empty, or they are of this size already.
    #[inline]
    pub fn set_size(&self, size_bytes: u64) {
        debug_assert!(self.count() == 0 || self.is_of(size_bytes));
        self.size_bytes.store(size_bytes, Relaxed);
    }

    /// A block of this size was asked for.
    #[inline]
    pub fn note_taken(&self) {
        self.was_taken.store(1, Relaxed);
    }

    /// Whether one was taken since this was asked last.
    pub fn cool(&self) -> bool {
        let was_taken = self.was_taken.load(Relaxed) != 0;
        self.was_taken.store(0, Relaxed);
        was_taken
    }

    /// All that it holds, oldest first.
    pub fn hints(&self) -> impl Iterator<Item = Hint> + '_ {
        let (first, count) = (self.first.load(Relaxed), self.count());
        (0..count).map(move |at| Hint(self.at(first.wrapping_add(at)).load(Relaxed)))
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
    pub fn add(&self, hint: Hint) {
        let count = self.count();
        debug_assert!((count as usize) < DEPTH);
        self.at(self.first.load(Relaxed).wrapping_add(count))
            .store(hint.0, Relaxed);
        self.count.store(count + 1, Relaxed);
    }

    /// Takes the oldest `count` out.
    pub fn evict(&self, count: u32) -> Crowd {
        let mut crowd = Crowd {
            size_bytes: self.size_bytes.load(Relaxed),
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
