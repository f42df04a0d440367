//! The blocks in front, one cache line each.

use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::OnceLock;

/// So many blocks of a pool can be in front at once.
pub const ENTRIES_MAX: u32 = if cfg!(loom) { 8 } else { 8192 };
const PAGE: usize = if cfg!(loom) { 4 } else { 64 };
const PAGES: usize = ENTRIES_MAX as usize / PAGE;

/// Where a block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// No block.
    Vacant = 0,
    /// Freed, and kept.
    Cached = 1,
    /// Handed out.
    Live = 2,
    /// In one thread's hands.
    Busy = 3,
}

/// A state and the sequence number of the allocation it belongs to: for `Cached` the one that was freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Word(u64);

impl Word {
    #[inline]
    pub fn new(state: State, sequence: u64) -> Self {
        Word(sequence << 2 | state as u64)
    }

    #[inline]
    pub fn state(self) -> State {
        match self.0 & 3 {
            0 => State::Vacant,
            1 => State::Cached,
            2 => State::Live,
            _ => State::Busy,
        }
    }

    #[inline]
    pub fn sequence(self) -> u64 {
        self.0 >> 2
    }
}

/// A block in front. Whoever has it by its word may write the rest.
#[derive(Debug)]
#[repr(align(64))]
pub struct Entry {
    word: AtomicU64,
    pub address: AtomicU64,
    /// As handed out.
    pub size_bytes: AtomicU64,
    pub requested_bytes: AtomicU64,
    pub tag: AtomicU64,
    /// When it was freed.
    pub epoch: AtomicU64,
    /// Its place in the pool's tables.
    pub block: AtomicU32,
}

impl Entry {
    fn vacant() -> Self {
        Entry {
            word: AtomicU64::new(0),
            address: AtomicU64::new(0),
            size_bytes: AtomicU64::new(0),
            requested_bytes: AtomicU64::new(0),
            tag: AtomicU64::new(0),
            epoch: AtomicU64::new(0),
            block: AtomicU32::new(0),
        }
    }

    #[inline]
    pub fn word(&self) -> Word {
        Word(self.word.load(Ordering::Acquire))
    }

    #[inline]
    pub fn is(&self, word: Word) -> bool {
        self.word() == word
    }

    /// Its place in the pool's tables, and when it was freed.
    #[inline]
    pub fn block_and_epoch(&self) -> (u32, u64) {
        (
            self.block.load(Ordering::Acquire),
            self.epoch.load(Ordering::Acquire),
        )
    }

    /// Bytes requested, and the tag.
    #[inline]
    pub fn request(&self) -> (u64, u64) {
        (
            self.requested_bytes.load(Ordering::Acquire),
            self.tag.load(Ordering::Acquire),
        )
    }

    /// Takes the block into the caller's hands; `false` if its word is another.
    #[inline]
    pub fn seize(&self, word: Word) -> bool {
        let busy = Word::new(State::Busy, word.sequence());
        self.change(word, busy)
    }

    /// Ends the entry; `false` if its word is another.
    pub fn vacate(&self, word: Word) -> bool {
        self.change(word, Word(0))
    }

    #[inline]
    fn change(&self, from: Word, to: Word) -> bool {
        self.word
            .compare_exchange(from.0, to.0, Ordering::SeqCst, Ordering::Relaxed)
            .is_ok()
    }

    /// Lets go of a block in the caller's hands.
    #[inline]
    pub fn put(&self, word: Word) {
        self.word.store(word.0, Ordering::Release);
    }
}

/// All of them, by number; made a page at a time, and kept.
#[derive(Debug)]
pub struct Entries {
    pages: Box<[OnceLock<Box<[Entry; PAGE]>>; PAGES]>,
}

impl Entries {
    pub fn new() -> Self {
        Entries {
            pages: Box::new([const { OnceLock::new() }; PAGES]),
        }
    }

    #[inline]
    pub fn get(&self, id: u32) -> &Entry {
        let page = &self.pages[id as usize / PAGE % PAGES];
        let page = match page.get() {
            Some(page) => page,
            None => Self::make(page),
        };
        &page[id as usize % PAGE]
    }

    #[cold]
    fn make(page: &OnceLock<Box<[Entry; PAGE]>>) -> &[Entry; PAGE] {
        page.get_or_init(|| Box::new(std::array::from_fn(|_| Entry::vacant())))
    }

    /// Bytes of host memory.
    pub fn host_bytes(&self) -> usize {
        let pages = self.pages.iter().filter(|page| page.get().is_some());
        pages.count() * size_of::<[Entry; PAGE]>() + size_of_val(&*self.pages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_in_front_is_one_cache_line() {
        assert_eq!(size_of::<Entry>(), 64);
    }

    #[test]
    fn only_the_right_word_takes_a_block() {
        let entry = Entry::vacant();
        let live = Word::new(State::Live, 7);
        entry.put(live);
        assert!(!entry.seize(Word::new(State::Live, 6)));
        assert!(!entry.seize(Word::new(State::Cached, 7)));
        assert!(entry.seize(live));
        assert!(!entry.seize(live), "a second free");
        assert_eq!(
            (entry.word().state(), entry.word().sequence()),
            (State::Busy, 7)
        );
        entry.put(Word::new(State::Cached, 7));
        assert!(entry.vacate(Word::new(State::Cached, 7)));
        assert_eq!(entry.word().state(), State::Vacant);
    }
}
